// The page docs/play.md: three scores, a mapping, and what becomes of them. No library, no network.
"use strict";

// --- the mappings, for one vector ------------------------------------------------------------------

const sum = values => values.reduce((total, value) => total + value, 0);
const zeros = d => Array.from({ length: d }, () => Array(d).fill(0));

/** α-entmax by the largest probability m: p_i = m [1 − β (max z − z_i) / m^β]₊^{1/β}, β = α − 1. */
function entmax(z, alpha) {
  const top = Math.max(...z), gaps = z.map(score => top - score), beta = alpha - 1;
  if (alpha === Infinity) {
    const ties = gaps.filter(gap => gap === 0).length;
    return { p: gaps.map(gap => (gap === 0 ? 1 / ties : 0)), threshold: top };
  }
  const at = m => gaps.map(gap => {
    if (beta === 0) return m * Math.exp(-gap);
    const x = -beta * gap * m ** -beta;
    return x > -1 ? m * Math.exp(Math.log1p(x) / beta) : 0;
  });
  let low = 1 / z.length, high = 1; // Σp rises with m, from at most 1 to at least 1
  for (let pass = 0; pass < 100; pass++) {
    const middle = (low + high) / 2;
    if (sum(at(middle)) < 1) low = middle; else high = middle;
  }
  const p = at(high), total = sum(p);
  const threshold = beta === 0 ? -Infinity : top - high ** beta / beta;
  return { p: p.map(share => share / total), threshold };
}

/** J = diag(s) − s sᵀ/Σs with s = p^{2−α} on the support. */
function entmaxJacobian(p, alpha) {
  const J = zeros(p.length), on = p.map((share, i) => i).filter(i => p[i] > 0);
  if (alpha === Infinity || on.length === 1) return J;
  const s = p.map(share => (share > 0 ? share ** (2 - alpha) : 0)), total = sum(s);
  for (const i of on) for (const j of on) J[i][j] = (i === j ? s[i] : 0) - s[i] * (s[j] / total);
  return J;
}

/** Softmax of all scores that are at least the k-th largest. */
function topk(z, k) {
  const threshold = [...z].sort((a, b) => b - a)[k - 1], top = Math.max(...z);
  const e = z.map(score => (score >= threshold ? Math.exp(score - top) : 0)), total = sum(e);
  return { p: e.map(share => share / total), threshold };
}

/** argmin ½‖u − z‖² + λ Σ|u_j − u_{j+1}|: Johnson's method, as notebook 7a derives it. */
function smooth(z, strength) {
  const knots = [], bounds = []; // of a polyline f: [place, how much its slope grows there]
  let left = [1, -z[0]], right = [1, -z[0]]; // slope and offset of its outermost pieces
  const fromLeft = level => {
    let [slope, offset] = left;
    while (knots.length && slope * knots[0][0] + offset < level) {
      const [place, growth] = knots.shift();
      [slope, offset] = [slope + growth, offset - growth * place];
    }
    return [(level - offset) / slope, slope];
  };
  const fromRight = level => {
    let [slope, offset] = right;
    while (knots.length && slope * knots[knots.length - 1][0] + offset > level) {
      const [place, growth] = knots.pop();
      [slope, offset] = [slope - growth, offset + growth * place];
    }
    return [(level - offset) / slope, slope];
  };
  for (const score of z.slice(1)) {
    const [low, slopeAtLow] = fromLeft(-strength), [high, slopeAtHigh] = fromRight(strength);
    bounds.push([low, high]);
    knots.unshift([low, slopeAtLow]);
    knots.push([high, -slopeAtHigh]);
    [left, right] = [[1, -strength - score], [1, strength - score]];
  }
  const u = [fromLeft(0)[0]];
  for (const [low, high] of bounds.reverse()) u.unshift(Math.min(Math.max(u[0], low), high));
  return u;
}

function fusedmax(z, strength) {
  const u = smooth(z, strength), { p, threshold } = entmax(u, 2);
  return { p, threshold, u };
}

/** 1/|group| − 1/|support| within a group of equal neighbours, −1/|support| between groups. */
function fusedmaxJacobian(p, u, strength) {
  const J = zeros(p.length), size = p.filter(share => share > 0).length;
  const group = [0];
  for (let i = 1; i < u.length; i++) group.push(group[i - 1] + (u[i] !== u[i - 1] || strength === 0 ? 1 : 0));
  for (let i = 0; i < p.length; i++) for (let j = 0; j < p.length; j++) {
    if (p[i] === 0 || p[j] === 0) continue;
    const members = group.filter(g => g === group[i]).length;
    J[i][j] = (group[i] === group[j] ? 1 / members : 0) - 1 / size;
  }
  return J;
}

// --- the page --------------------------------------------------------------------------------------

const place = document.getElementById("play");
const at = id => document.getElementById(`play-${id}`);
const CORNERS = [[150, 24], [24, 242.2], [276, 242.2]]; // of the triangle: e₁ on top
const COLOURS = ["#0072b2", "#e69f00", "#009e73"];
const SVG = "http://www.w3.org/2000/svg";

const xy = p => [0, 1].map(axis => sum(p.map((share, i) => share * CORNERS[i][axis])));
const show = value => (value === 0 ? "0" : value.toFixed(2).replace("-", "−"));

function draw(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/** α from the position of its slider: 1 at the left end, 2 in the middle, ∞ at the right end. */
function alphaAt(t) {
  if (t >= 100) return Infinity;
  return Number((t <= 50 ? 1 + t / 50 : 1 + 50 / (100 - t)).toFixed(3));
}

/** Where the slider stands for α. */
const sliderOf = alpha => (alpha <= 2 ? 50 * (alpha - 1) : 100 - 50 / (alpha - 1));

let state; // of the page; the controls show it

/** Put what a control says into the state. */
function take(control) {
  const value = Number(control.value), [, i] = control.id.match(/^play-z(\d)$/) ?? [];
  if (control.name === "play-mapping") state.mapping = control.value;
  else if (i) state.z.three[i - 1] = value;
  else if (control.id === "play-alpha") state.alpha = alphaAt(value);
  else if (control.id === "play-k") state.k = value;
  else if (control.id === "play-lambda") state.lambda = value;
}

/** Show the state in the controls. */
function set() {
  state.z.three.forEach((score, i) => { at(`z${i + 1}`).value = score; });
  at("alpha").value = sliderOf(state.alpha);
  at("k").value = state.k;
  at("lambda").value = state.lambda;
  place.querySelector(`input[name=play-mapping][value=${state.mapping}]`).checked = true;
}

/** The link to the state: at once below the pictures, and in the address once the reader pauses. */
function link() {
  at("link").href = PlayState.toLink(state);
  clearTimeout(link.timer); // browsers allow a page few changes of its address per second
  link.timer = setTimeout(() => history.replaceState(null, "", at("link").href), 300);
}

function compute({ z, mapping, alpha, k, lambda }) {
  if (mapping === "topk") {
    const found = topk(z, k);
    return { ...found, jacobian: entmaxJacobian(found.p, 1) };
  }
  if (mapping === "fusedmax") {
    const found = fusedmax(z, lambda);
    return { ...found, jacobian: fusedmaxJacobian(found.p, found.u, lambda) };
  }
  const found = entmax(z, alpha);
  return { ...found, jacobian: entmaxJacobian(found.p, alpha) };
}

function inPython({ z, mapping, alpha, k, lambda }) {
  const scores = `[${z.join(", ")}]`;
  if (mapping === "topk") return `pe.topk_softmax(${scores}, ${k})`;
  if (mapping === "fusedmax") return `pe.fusedmax(${scores}, ${lambda})`;
  return `pe.entmax(${scores}, ${alpha === Infinity ? "float('inf')" : alpha})`;
}

/** Where p goes as the parameter of the mapping runs through its range. */
function path(state) {
  const steps = Array.from({ length: 101 }, (_, t) => t);
  if (state.mapping === "topk") return [];
  const key = state.mapping === "fusedmax" ? "lambda" : "alpha";
  const value = t => (key === "alpha" ? alphaAt(t) : t / 50);
  return steps.map(t => xy(compute({ ...state, [key]: value(t) }).p));
}

function drawSimplex(state, found) {
  const svg = at("simplex");
  svg.replaceChildren();
  draw(svg, "polygon", { points: CORNERS.join(" "), class: "play-outline" });
  CORNERS.forEach(([x, y], i) =>
    draw(svg, "text", { x, y: i ? y + 22 : y - 8, "text-anchor": "middle" }, `all on ${i + 1}`));
  draw(svg, "polyline", { points: path(state).join(" "), class: "play-path" });
  const [cx, cy] = xy(found.p);
  draw(svg, "circle", { cx, cy, r: 8, class: "play-point" });
}

function drawBars(state, found) {
  const svg = at("bars"), y = score => 130 - 30 * score, left = i => 46 + 84 * i;
  svg.replaceChildren();
  for (const score of [-3, 0, 3]) {
    draw(svg, "line", { x1: 30, x2: 290, y1: y(score), y2: y(score), class: "play-grid" });
    draw(svg, "text", { x: 24, y: y(score) + 4, "text-anchor": "end" }, show(score).replace(".00", ""));
  }
  const clipped = Math.max(-3.6, Math.min(3.6, found.threshold));
  if (found.threshold > -Infinity) {
    draw(svg, "line", { x1: 30, x2: 290, y1: y(clipped), y2: y(clipped), class: "play-threshold" });
  }
  (found.u ?? state.z).forEach((score, i) => {
    const x = left(i), above = found.p[i] > 0;
    const bottom = Math.min(y(clipped), y(-3.6));
    if (above) {
      const height = Math.max(bottom - y(score), 0);
      draw(svg, "rect", { x: x + 8, y: y(score), width: 24, height, fill: COLOURS[i], opacity: 0.35 });
    }
    draw(svg, "line", { x1: x, x2: x + 40, y1: y(score), y2: y(score), stroke: COLOURS[i], class: "play-score" });
    if (found.u) draw(svg, "circle", { cx: x + 20, cy: y(state.z[i]), r: 4, fill: COLOURS[i] });
    draw(svg, "text", { x: x + 20, y: 268, "text-anchor": "middle" }, `p${"₁₂₃"[i]} = ${show(found.p[i])}`);
  });
}

function fillJacobian(found) {
  found.jacobian.forEach((row, i) => row.forEach((entry, j) => {
    const cell = at(`j${i + 1}${j + 1}`), strength = Math.min(Math.abs(entry), 1);
    cell.textContent = show(entry);
    cell.style.background = entry > 0 ? `rgb(213 94 0 / ${0.7 * strength})` : `rgb(0 114 178 / ${0.7 * strength})`;
  }));
}

function update() {
  drawThree({ ...state, z: state.z.three });
}

function drawThree(state) {
  const found = compute(state), size = found.p.filter(share => share > 0).length;
  [1, 2, 3].forEach(i => { at(`z${i}-value`).textContent = show(state.z[i - 1]); });
  at("alpha-value").textContent = state.alpha === Infinity ? "∞" : String(state.alpha);
  at("k-value").textContent = state.k;
  at("lambda-value").textContent = state.lambda.toFixed(2);
  for (const [mapping, id] of [["entmax", "alpha"], ["topk", "k"], ["fusedmax", "lambda"]]) {
    at(`${id}-row`).hidden = state.mapping !== mapping;
  }
  drawSimplex(state, found);
  drawBars(state, found);
  fillJacobian(found);
  const threshold = found.threshold === -Infinity ? "none: nothing is cut off" : show(found.threshold);
  at("told").textContent = `p = (${found.p.map(show).join(", ")}), ${size} of 3 in the support; threshold ${threshold}`;
  at("python").textContent = inPython(state);
  const told = value => (Math.abs(value) === Infinity ? String(value) : value);
  place.dataset.state = JSON.stringify({
    ...state, alpha: told(state.alpha), p: found.p, threshold: told(found.threshold), jacobian: found.jacobian,
  });
}

if (place) {
  place.hidden = false;
  state = PlayState.fromLink(location.hash);
  set();
  update();
  at("link").href = PlayState.toLink(state);
  place.addEventListener("input", event => { take(event.target); update(); link(); });
  addEventListener("hashchange", () => { // a link to a state on this page
    if (!PlayState.isLink(location.hash)) return;
    state = PlayState.fromLink(location.hash);
    set();
    update();
    at("link").href = PlayState.toLink(state);
    place.scrollIntoView();
  });
}
