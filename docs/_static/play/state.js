// A state of the page as a link: #view=three&z=1.2,0.7,-1&mapping=entmax&alpha=1.5. The keys, in any order, separated by &:
//
//   view     three (scores), four, race (to τ), attention
//   z        scores from −3 to 3, separated by commas: 3, 4, or 2 to 8 in a race
//   mapping  entmax, topk, fusedmax; not in a race
//   alpha    a number from 1 on, or inf; in a race from 1.05 to 6
//   k        a whole number from 1 to the number of scores, with topk
//   lambda   0 to 2, with fusedmax
//   turn     of four scores, two angles in degrees: to the side, upwards
//   step     of a race, the steps already made, 0 to 20
//   query    of attention, its two coordinates, each from −2 to 2
//   scale    of attention, 0 to 4
//   sink     of attention, the sink's score, −3 to 3; without the key there is no sink
//
// A key that is missing, or whose value is not one of these, has its default (a race moves α to the nearest end of its
// range); unknown keys are ignored. So a broken address shows the page as it is without one. In Markdown here and in the
// notebooks such a link is [a corner](../docs/play.md#view=three&z=2,0,-1&mapping=entmax&alpha=2).
"use strict";

const PlayState = (() => {
  const VIEWS = ["three", "four", "race", "attention"];
  const MAPPINGS = ["entmax", "topk", "fusedmax"];
  const DEFAULTS = {
    view: "three",
    z: { three: [1.2, 0.7, -1], four: [1.2, 0.7, 0.2, -1], race: [1.2, 0.9, 0.3, -0.4, -1] },
    mapping: "entmax", alpha: 1.5, k: 2, lambda: 0.3,
    turn: [25, 15], step: 0, query: [1.5, 0.4], scale: 1, sink: null,
  };
  const PARAMETER = { entmax: "alpha", topk: "k", fusedmax: "lambda" };

  /** A number between two bounds, both included; undefined for anything else. */
  function number(text, low, high) {
    const value = /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : NaN;
    return value >= low && value <= high ? value : undefined;
  }

  function numbers(text, counts, low, high) {
    const values = text.split(",").map(part => number(part, low, high));
    return counts.includes(values.length) && !values.includes(undefined) ? values : undefined;
  }

  const whole = value => (Number.isInteger(value) ? value : undefined);

  /** How each key is read; undefined where its text means nothing. */
  const READ = {
    mapping: text => (MAPPINGS.includes(text) ? text : undefined),
    alpha: text => (text === "inf" ? Infinity : number(text, 1, 1000)),
    k: text => whole(number(text, 1, 9)),
    lambda: text => number(text, 0, 2),
    turn: text => numbers(text, [2], -180, 180),
    step: text => whole(number(text, 0, 20)),
    query: text => numbers(text, [2], -2, 2),
    scale: text => number(text, 0, 4),
    sink: text => number(text, -3, 3),
  };
  const COUNTS = { three: [3], four: [4], race: [2, 3, 4, 5, 6, 7, 8] };

  /** α from the position of its slider: 1 at the left end, 2 in the middle, ∞ at the right end. */
  function alphaAt(t) {
    if (t >= 100) return Infinity;
    return Number((t <= 50 ? 1 + t / 50 : 1 + 50 / (100 - t)).toFixed(3));
  }
  const sliderOf = alpha => (alpha <= 2 ? 50 * (alpha - 1) : 100 - 50 / (alpha - 1));

  const parameters = state => [state.mapping, state[PARAMETER[state.mapping]]];

  /** The states in which the parameter of the mapping runs through its range. */
  function range(state) {
    if (state.mapping === "topk") return [];
    const value = t => (state.mapping === "entmax" ? alphaAt(t) : t / 50);
    return Array.from({ length: 101 }, (_, t) => ({ ...state, [PARAMETER[state.mapping]]: value(t) }));
  }

  /** The keys that a state has in its link. */
  function keys({ view, mapping, sink }) {
    if (view === "race") return ["z", "alpha", "step"];
    const shared = ["mapping", PARAMETER[mapping]];
    if (view === "three") return ["z", ...shared];
    if (view === "four") return ["z", ...shared, "turn"];
    return ["query", ...shared, "scale", ...(sink === null || mapping === "fusedmax" ? [] : ["sink"])];
  }

  /** Move α and k into the view's range. */
  function clampToView(state) {
    const { view } = state;
    if (view === "race") state.alpha = Math.min(Math.max(state.alpha, 1.05), 6);
    if (view === "three" || view === "four") state.k = Math.min(state.k, state.z[view].length);
    return state;
  }

  /** The state of a link. A key that is missing, unknown or broken has the value of DEFAULTS. */
  function fromLink(fragment) {
    const state = structuredClone(DEFAULTS), given = new URLSearchParams(fragment.replace(/^#/, ""));
    if (VIEWS.includes(given.get("view"))) state.view = given.get("view");
    for (const [key, read] of Object.entries(READ)) state[key] = read(given.get(key) ?? "") ?? state[key];
    const { view } = state;
    if (COUNTS[view]) state.z[view] = numbers(given.get("z") ?? "", COUNTS[view], -3, 3) ?? state.z[view];
    return clampToView(state);
  }

  const written = value => (value === Infinity ? "inf" : String(value));

  function toLink(state) {
    const value = key => (key === "z" ? state.z[state.view] : state[key]);
    const parts = keys(state).map(key => `${key}=${[value(key)].flat().map(written)}`);
    return `#${[`view=${state.view}`, ...parts].join("&")}`;
  }

  /** Whether a fragment is a link to a state, and not to a heading. */
  const isLink = fragment => fragment.includes("=");

  return { clampToView, fromLink, toLink, isLink, alphaAt, sliderOf, parameters, range };
})();
