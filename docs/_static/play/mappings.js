// The mathematics of the page docs/play.md, for one vector. A test compares its numbers with the library's.
"use strict";

const PlayMappings = (() => {
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
      if (middle === low || middle === high) break;
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

  /** p and the threshold of the mapping that is named; for fusedmax also u, the smoothed scores. */
  function map(z, { mapping, alpha, k, lambda }) {
    if (mapping === "topk") return topk(z, k);
    return mapping === "fusedmax" ? fusedmax(z, lambda) : entmax(z, alpha);
  }

  function jacobian({ p, u }, { mapping, alpha, lambda }) {
    if (mapping === "fusedmax") return fusedmaxJacobian(p, u, lambda);
    return entmaxJacobian(p, mapping === "topk" ? 1 : alpha); // top-k is softmax on its support
  }

  /**
   * One query over keys that are their own values: z_i = scale · q·k_i, weights, output Σ w_i k_i.
   * A sink is one more score with no value behind it; it takes none of the k places of top-k.
   * fusedmax has no threshold for the scores themselves: it cuts off smoothed ones.
   */
  function attend(query, keys, { scale, sink, ...options }) {
    const z = keys.map(key => scale * (query[0] * key[0] + query[1] * key[1]));
    let found = map(z, options);
    if (sink !== null && options.mapping === "entmax") found = map([...z, sink], options);
    if (sink !== null && options.mapping === "topk") {
      const kept = z.map(score => (score >= found.threshold ? score : -Infinity));
      found = { ...entmax([...kept, sink], 1), threshold: found.threshold };
    }
    const weights = found.p.slice(0, z.length);
    const output = [0, 1].map(axis => sum(keys.map((key, i) => weights[i] * key[axis])));
    return { z, weights, output, threshold: found.u ? -Infinity : found.threshold, sunk: found.p[z.length] ?? 0 };
  }

  // --- solving F(τ) = Σ [x_i − τ]₊^{1/(α−1)} = 1 for x = (α−1) z --------------------------------------

  /** F(τ) − 1, F′(τ) and F″(τ). */
  function derivatives(x, alpha, tau) {
    const b = 1 / (alpha - 1), above = x.filter(score => score > tau);
    const power = exponent => sum(above.map(score => (score - tau) ** exponent));
    return [power(b) - 1, -b * power(b - 1), b * (b - 1) * power(b - 2)];
  }

  /** Algorithm 1: the bracket after each pass. */
  function bisection(x, alpha, [low, high], passes) {
    const brackets = [[low, high]];
    for (let pass = 0; pass < passes; pass++) {
      const middle = low + (high - low) / 2;
      if (derivatives(x, alpha, middle)[0] >= 0) low = middle; else high = middle;
      brackets.push([low, high]);
    }
    return brackets;
  }

  /** Newton's iterates from the left end; null once they are where F is 0 and has no slope. */
  function newton(x, alpha, [low], passes) {
    const iterates = [low];
    for (let pass = 0; pass < passes; pass++) {
      const tau = iterates[pass], [f, slope] = tau === null ? [0, 0] : derivatives(x, alpha, tau);
      iterates.push(slope < 0 ? tau - f / slope : null);
    }
    return iterates;
  }

  /** Halley's iterates with a net, as in notebook 3: the bracket's middle after a step out of it or one that stalls. */
  function halley(x, alpha, [low, high], passes) {
    const iterates = [low + (high - low) / 2];
    let before = Infinity;
    for (let pass = 0; pass < passes; pass++) {
      const tau = iterates[pass], [f, slope, bend] = derivatives(x, alpha, tau);
      if (Math.abs(f) < 1e-14 || high - low < 1e-15) { iterates.push(tau); continue; }
      if (f >= 0) low = tau; else high = tau;
      const aimed = tau - 2 * f * slope / (2 * slope * slope - f * bend);
      const good = low < aimed && aimed < high && Math.abs(f) < before / 2;
      iterates.push(good ? aimed : low + (high - low) / 2);
      before = good ? Math.abs(f) : Infinity;
    }
    return iterates;
  }

  /** The three methods, step by step, and the τ that they look for. */
  function race(z, alpha, passes) {
    const x = z.map(score => (alpha - 1) * score), top = Math.max(...x);
    const bracket = [top - 1, top - x.length ** (1 - alpha)];
    const brackets = bisection(x, alpha, bracket, passes);
    const iterates = {
      bisection: brackets.map(([low, high]) => low + (high - low) / 2),
      newton: newton(x, alpha, bracket, passes),
      halley: halley(x, alpha, bracket, passes),
    };
    const tau = top - Math.max(...entmax(z, alpha).p) ** (alpha - 1);
    return { x, tau, brackets, iterates };
  }

  return { sum, map, jacobian, attend, derivatives, race };
})();
