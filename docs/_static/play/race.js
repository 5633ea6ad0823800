// Bisection, Newton and Halley on their way to τ, step by step.
"use strict";

const PlayRace = (() => {
  const { COLOURS, byId, format, minus, draw, clear } = PlayDrawing;
  const METHODS = { bisection: "bisection", newton: "Newton", halley: "Halley" };
  const STEPS = 20, FLOOR = 1e-16, RIGHT = 1e-15; // below RIGHT an error is rounding
  const colour = i => COLOURS[[0, 5, 2][i]];

  function errorText(error) {
    if (error === null) return "failed";
    return error < RIGHT ? "< 10⁻¹⁵" : minus(error.toExponential(1).replace("e+0", ""));
  }

  /** F near τ, the iterates on it, and a lane below for each method. */
  function curve({ x, tau, brackets, iterates }, alpha, step) {
    const svg = clear("curve"), top = Math.max(...x), [low, high] = [top - 1.12, top + 0.06];
    const F = t => PlayMappings.derivatives(x, alpha, t)[0] + 1;
    const ceiling = Math.min(Math.max(F(top - 1), 1.6), 4);
    const px = t => 34 + 256 * (t - low) / (high - low);
    const py = value => 172 - 160 * Math.min(value, ceiling) / ceiling;
    const [from, to] = brackets[step];
    draw(svg, "rect", { x: px(from), y: 8, width: Math.max(px(to) - px(from), 1), height: 164, class: "play-bracket" });
    for (const value of [0, 1]) {
      draw(svg, "line", { x1: 30, x2: 290, y1: py(value), y2: py(value), class: "play-grid" });
      draw(svg, "text", { x: 24, y: py(value) + 4, "text-anchor": "end" }, value);
    }
    const points = Array.from({ length: 241 }, (_, i) => low + (high - low) * i / 240).filter(t => F(t) < ceiling);
    draw(svg, "polyline", { points: points.map(t => `${px(t)},${py(F(t))}`).join(" "), class: "play-outline" });
    draw(svg, "line", { x1: px(tau), x2: px(tau), y1: 8, y2: 256, class: "play-threshold" });
    const label = { x: Math.min(Math.max(px(tau), 76), 250), y: 271, "text-anchor": "middle" };
    draw(svg, "text", label, `τ = ${format(tau, 4)}`);
    const [before, after] = [iterates.newton[step - 1], iterates.newton[step]];
    if (before >= low && before <= high && after !== null) { // the tangent of Newton's last step
      const line = { x1: px(before), y1: py(F(before)), x2: px(after), y2: py(1), stroke: colour(1) };
      draw(svg, "line", { ...line, class: "play-tangent" });
    }
    Object.keys(METHODS).forEach((name, i) => {
      const lane = 192 + 26 * i, passed = iterates[name].slice(0, step + 1);
      draw(svg, "line", { x1: 34, x2: 290, y1: lane, y2: lane, class: "play-grid" });
      passed.forEach((t, n) => {
        const last = n === step;
        if (t !== null && t > high && last) draw(svg, "text", { x: 278, y: lane + 5, style: `fill: ${colour(i)}` }, "→");
        if (t === null || t < low || t > high) return;
        draw(svg, "circle", { cx: px(t), cy: lane, r: last ? 7 : 3, fill: colour(i) });
        if (last) draw(svg, "circle", { cx: px(t), cy: py(F(t)), r: 5, fill: colour(i) });
      });
      draw(svg, "text", { x: 30, y: lane + 4, "text-anchor": "end" }, METHODS[name][0].toUpperCase());
    });
  }

  /** The errors on a logarithmic axis. */
  function logarithms(errors, step) {
    const svg = clear("errors"), px = n => 50 + 11.6 * n;
    const py = error => 14 + 220 * Math.log10(Math.max(error, FLOOR)) / Math.log10(FLOOR);
    for (const power of [0, -4, -8, -12, -16]) {
      const y = py(10 ** power);
      draw(svg, "line", { x1: 46, x2: 290, y1: y, y2: y, class: "play-grid" });
      const label = draw(svg, "text", { x: 42, y: y + 4, "text-anchor": "end" }, power === 0 ? "1" : "10");
      if (power) draw(label, "tspan", { dy: -5, "font-size": 9 }, minus(String(power)));
    }
    for (const n of [0, 5, 10, 15, 20]) draw(svg, "text", { x: px(n), y: 252, "text-anchor": "middle" }, n);
    draw(svg, "text", { x: 166, y: 270, "text-anchor": "middle" }, "steps");
    Object.keys(METHODS).forEach((name, i) => {
      const there = errors[name].slice(0, step + 1).filter(error => error !== null);
      const points = there.map((error, n) => `${px(n)},${py(error)}`);
      draw(svg, "polyline", { points: points.join(" "), stroke: colour(i), class: "play-errors" });
      there.forEach((error, n) => draw(svg, "circle", { cx: px(n), cy: py(error), r: 3.5, fill: colour(i) }));
      // Errors fall, so the upper right corner is free.
      draw(svg, "text", { x: 288, y: 26 + 17 * i, "text-anchor": "end", style: `fill: ${colour(i)}` }, METHODS[name]);
    });
  }

  function table(errors, step) {
    const rows = Array.from({ length: step + 1 }, (_, n) => {
      const row = document.createElement("tr"), head = document.createElement("th");
      head.scope = "row";
      head.textContent = n;
      const cells = Object.keys(METHODS).map(name => {
        const cell = document.createElement("td");
        cell.textContent = errorText(errors[name][n]);
        return cell;
      });
      row.append(head, ...cells);
      return row;
    });
    byId("steps").replaceChildren(...rows);
  }

  function render({ z, alpha, step }) {
    const found = PlayMappings.race(z.race, alpha, STEPS), errors = {};
    for (const name of Object.keys(METHODS)) {
      errors[name] = found.iterates[name].map(t => (t === null ? null : Math.abs(t - found.tau)));
    }
    curve(found, alpha, step);
    logarithms(errors, step);
    table(errors, step);
    const status = Object.entries(METHODS).map(([name, title]) => `${title} ${errorText(errors[name][step])}`);
    const steps = step === 1 ? "1 step" : `${step} steps`;
    return { ...found, z: z.race, errors, status: `Distance from τ after ${steps}: ${status.join(", ")}` };
  }

  return { STEPS, render };
})();
