// Water that can be moved: scores as bars, α-entmax's level, and the probabilities. Notebook 1 shows it.
"use strict";

const PlayWater = (root, scores) => {
  const LOW = -3, HIGH = 2, WIDTH = 300, HEIGHT = 200, NUMBERS = 24;
  const { draw, format, subscript } = PlayDrawing;
  const z = [...scores], step = WIDTH / z.length;
  const y = score => (HIGH - score) / (HIGH - LOW) * HEIGHT + 4;
  const svg = draw(root, "svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT + NUMBERS}`, role: "img", style: "width: 100%; max-width: 30rem; display: block",
    "aria-label": "The scores as bars, water up to the level, and the probability of each score below.",
  });
  const status = document.createElement("p");
  status.setAttribute("role", "status");

  /** A slider with its name and value; `moved` gets the slider's position. */
  function slider(name, min, max, value, moved) {
    const label = document.createElement("label"), input = document.createElement("input");
    const text = document.createElement("span");
    Object.assign(input, { type: "range", min, max, step: 0.01, value });
    label.style.display = "flex";
    text.style.minWidth = "8rem";
    input.style.flex = "1 1 8rem";
    label.append(text, input);
    root.append(label);
    const update = () => { text.textContent = `${name} = ${format(moved(Number(input.value)))}`; };
    input.addEventListener("input", () => { update(); show(); });
    update();
  }

  let alpha = 1.5;
  function show() {
    const { p, threshold } = PlayMappings.map(z, { mapping: "entmax", alpha }), level = Math.max(threshold, LOW);
    svg.replaceChildren();
    draw(svg, "rect", { x: 0, y: y(level), width: WIDTH, height: y(LOW) - y(level), fill: "#56b4e9", "fill-opacity": 0.25 });
    z.forEach((score, i) => {
      const bar = { x: (i + 0.15) * step, width: 0.7 * step }, surface = Math.min(score, level);
      draw(svg, "rect", { ...bar, y: y(surface), height: y(LOW) - y(surface), fill: "#999999", "fill-opacity": 0.5 });
      draw(svg, "rect", { ...bar, y: y(Math.max(score, level)), height: y(level) - y(Math.max(score, level)), fill: "#0072b2" });
      draw(svg, "text", { x: (i + 0.5) * step, y: HEIGHT + 20, "text-anchor": "middle", "font-size": 13, fill: "currentColor" }, format(p[i]));
    });
    if (level > LOW) draw(svg, "line", { x1: 0, x2: WIDTH, y1: y(level), y2: y(level), stroke: "currentColor" });
    const many = PlayDrawing.supportSize(p);
    const where = threshold === -Infinity ? "There is no level" : `The level is ${format(threshold)}`;
    status.textContent = `${where}; ${many} of ${z.length} probabilities are above 0.`;
    root.dataset.state = JSON.stringify({ z, alpha, p, threshold: threshold === -Infinity ? null : threshold });
  }

  slider("α", 1, 4, alpha, value => (alpha = value));
  z.forEach((score, i) => slider(`z${subscript(i + 1)}`, LOW, HIGH, score, value => (z[i] = value)));
  root.append(status);
  show();
};
