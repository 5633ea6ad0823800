// Three scores: bars with the threshold, the simplex as a triangle, the Jacobian.
"use strict";

const PlayTriangle = (() => {
  const { COLOURS, byId, format, subscript, draw, clear } = PlayDrawing;
  const CORNERS = [[150, 24], [24, 242.2], [276, 242.2]]; // e₁ on top

  const xy = p => [0, 1].map(axis => PlayMappings.sum(p.map((share, i) => share * CORNERS[i][axis])));

  function simplex(z, options, found) {
    const svg = clear("simplex");
    draw(svg, "polygon", { points: CORNERS.join(" "), class: "play-outline" });
    CORNERS.forEach(([x, y], i) =>
      draw(svg, "text", { x, y: i ? y + 22 : y - 8, "text-anchor": "middle" }, `all on ${i + 1}`));
    const path = PlayState.range(options).map(other => xy(PlayMappings.map(z, other).p));
    draw(svg, "polyline", { points: path.join(" "), class: "play-path" });
    const [cx, cy] = xy(found.p);
    draw(svg, "circle", { cx, cy, r: 8, class: "play-point" });
  }

  /** The scores as marks, the threshold as a level, and what stands out of it. */
  function bars(id, z, found) {
    const svg = clear(id), y = score => 130 - 30 * score, step = 252 / z.length;
    for (const score of [-3, 0, 3]) {
      draw(svg, "line", { x1: 30, x2: 290, y1: y(score), y2: y(score), class: "play-grid" });
      draw(svg, "text", { x: 24, y: y(score) + 4, "text-anchor": "end" }, format(score, 0));
    }
    const clipped = Math.max(-3.6, Math.min(3.6, found.threshold));
    if (found.threshold > -Infinity) {
      draw(svg, "line", { x1: 30, x2: 290, y1: y(clipped), y2: y(clipped), class: "play-threshold" });
    }
    (found.u ?? z).forEach((score, i) => {
      const middle = 24 + step * (i + 0.5), colour = COLOURS[i];
      if (found.p[i] > 0) {
        const height = Math.max(Math.min(y(clipped), y(-3.6)) - y(score), 0);
        draw(svg, "rect", { x: middle - 12, y: y(score), width: 24, height, fill: colour, opacity: 0.35 });
      }
      draw(svg, "line",
        { x1: middle - 20, x2: middle + 20, y1: y(score), y2: y(score), stroke: colour, class: "play-score" });
      if (found.u) draw(svg, "circle", { cx: middle, cy: y(z[i]), r: 4, fill: colour });
      const name = z.length > 3 ? "" : `p${subscript(i + 1)} = `;
      draw(svg, "text", { x: middle, y: 268, "text-anchor": "middle" }, name + format(found.p[i]));
    });
  }

  function fillJacobian(jacobian) {
    jacobian.forEach((row, i) => row.forEach((entry, j) => {
      const cell = byId(`j${i + 1}${j + 1}`), share = 0.7 * Math.min(Math.abs(entry), 1);
      cell.textContent = format(entry);
      cell.style.background = entry > 0 ? `rgb(213 94 0 / ${share})` : `rgb(0 114 178 / ${share})`;
    }));
  }

  function render(state) {
    const z = state.z.three, found = PlayMappings.map(z, state);
    const jacobian = PlayMappings.jacobian(found, state);
    simplex(z, state, found);
    bars("bars", z, found);
    fillJacobian(jacobian);
    return { ...found, z, jacobian, status: describe(found) };
  }

  function describe({ p, threshold }) {
    const cut = threshold === -Infinity ? "none: nothing is cut off" : format(threshold);
    const shares = p.map(share => format(share)).join(", ");
    return `p = (${shares}), ${PlayDrawing.supportSize(p)} of ${p.length} in the support; threshold ${cut}`;
  }

  return { render, simplex, bars, fillJacobian, describe };
})();
