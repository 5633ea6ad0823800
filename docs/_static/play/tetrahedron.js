// Four scores: the simplex as a tetrahedron to turn, and where 400 vectors of scores fall in it.
"use strict";

const PlayTetrahedron = (() => {
  const { byId, draw, clear, supportSize } = PlayDrawing;
  const RADIUS = 118, CENTRE = [150, 144];
  const r = Math.sqrt(8) / 3; // of the circle through the three lower corners; the fourth is on top
  const CORNERS = [[0, 1, 0], ...[90, 210, 330].map(degrees => {
    const angle = degrees * Math.PI / 180;
    return [r * Math.cos(angle), -1 / 3, r * Math.sin(angle)];
  })];
  const SUPPORT_NAMES = ["", "at corners", "on edges", "on faces", "inside"]; // by the number of choices in the support

  /** Orthographic: first turned about the upright axis, then tipped towards the reader. Last, the depth. */
  function project([x, y, z], [side, up]) {
    const a = side * Math.PI / 180, b = up * Math.PI / 180;
    const [right, toward] = [x * Math.cos(a) + z * Math.sin(a), z * Math.cos(a) - x * Math.sin(a)];
    const [height, depth] = [y * Math.cos(b) - toward * Math.sin(b), toward * Math.cos(b) + y * Math.sin(b)];
    return [CENTRE[0] + RADIUS * right, CENTRE[1] - RADIUS * height, depth];
  }

  const point = (p, corners) =>
    [0, 1, 2].map(axis => PlayMappings.sum(p.map((share, i) => share * corners[i][axis])));
  const flat = points => points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(" ");

  /** Score vectors spread evenly over a cube: an additive recurrence, whose steps are powers of 1/1.1673. */
  const SPREAD = Array.from({ length: 400 }, (_, n) =>
    [1, 2, 3, 4].map(i => 3 * ((0.5 + (n + 1) * 1.1673039782614187 ** -i) % 1 - 0.5)));
  let images = [], imagesOf = "";

  /** Where the mapping sends them; kept while only the picture turns. */
  function spreadImages(options) {
    const key = PlayState.parameters(options).join();
    if (key !== imagesOf) images = SPREAD.map(z => PlayMappings.map(z, options).p);
    imagesOf = key;
    return images;
  }

  /** A face is hidden if its outward normal, the opposite of its missing corner, points away. */
  const hiddenFace = (corners, missing) => corners[missing][2] > 0;

  function edges(svg, corners) {
    for (let i = 0; i < 4; i++) for (let j = i + 1; j < 4; j++) {
      const faces = [0, 1, 2, 3].filter(k => k !== i && k !== j);
      const hidden = faces.every(missing => hiddenFace(corners, missing));
      const points = flat([corners[i], corners[j]]);
      draw(svg, "polyline", { points, class: hidden ? "play-outline play-hidden" : "play-outline" });
    }
  }

  /** fusedmax's planes p_i = p_{i+1}: where two neighbours have grown together. */
  function planes(svg, corners, p) {
    for (let i = 0; i < 3; i++) {
      const half = point([0, 1, 2, 3].map(j => (j === i || j === i + 1 ? 0.5 : 0)), corners);
      const others = corners.filter((_, j) => j !== i && j !== i + 1);
      const together = p[i] > 0 && p[i] === p[i + 1];
      draw(svg, "polygon", { points: flat([half, ...others]), class: together ? "play-plane play-on" : "play-plane" });
    }
  }

  function render(state) {
    const z = state.z.four, found = PlayMappings.map(z, state), { p } = found;
    const corners = CORNERS.map(corner => project(corner, state.turn));
    const svg = clear("tetrahedron");
    const on = [0, 1, 2, 3].filter(i => p[i] > 0);
    draw(svg, "polygon", { points: flat(on.map(i => corners[i])), class: "play-face" });
    if (state.mapping === "fusedmax") planes(svg, corners, p);
    const counts = [0, 0, 0, 0, 0], dots = ["", "", "", "", ""];
    for (const image of spreadImages(state)) {
      counts[supportSize(image)] += 1;
      dots[supportSize(image)] += `M${flat([point(image, corners)])}h0`;
    }
    dots.forEach((d, n) => d && draw(svg, "path", { d, class: `play-dots play-dots-${n}` }));
    edges(svg, corners);
    corners.forEach(([x, y], i) => {
      const [dx, dy] = [x - CENTRE[0], y - CENTRE[1]], away = 1 + 16 / Math.max(Math.hypot(dx, dy), 16);
      const text = { x: CENTRE[0] + away * dx, y: CENTRE[1] + away * dy + 5, "text-anchor": "middle" };
      draw(svg, "text", text, i + 1);
    });
    const path = PlayState.range(state).map(other => point(PlayMappings.map(z, other).p, corners));
    draw(svg, "polyline", { points: flat(path), class: "play-path" });
    const here = point(p, corners);
    if (state.mapping === "entmax" && state.alpha === 2) {
      const shift = (1 - PlayMappings.sum(z)) / 4, from = point(z.map(score => score + shift), corners);
      draw(svg, "polyline", { points: flat([from, here]), class: "play-threshold" });
    }
    draw(svg, "circle", { cx: here[0], cy: here[1], r: 7, class: "play-point" });
    PlayTriangle.bars("bars-four", z, found);
    const parts = SUPPORT_NAMES.map((name, n) => `${counts[n]} ${name}`).slice(1).reverse();
    byId("counts").textContent = `Of ${SPREAD.length} score vectors between −1.5 and 1.5: ${parts.join(", ")}.`;
    return { ...found, z, point: here, counts, status: `${PlayTriangle.describe(found)}; ${faceOf(on)}` };
  }

  function faceOf(on) {
    const names = on.map(i => i + 1);
    if (on.length === 4) return "p is inside";
    if (on.length === 3) return `p is on the face of ${names.join(", ")}`;
    return on.length === 2 ? `p is on the edge from ${names[0]} to ${names[1]}` : `p is the corner ${names[0]}`;
  }

  return { render };
})();
