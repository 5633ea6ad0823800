// The demonstration's model of English verbs, for docs/draw.md and docs/never.md, as Peters et al. (2019), §2, have it: a
// bidirectional LSTM reads tags and letters; an LSTM with input feeding and bilinear attention writes the form. Attention and
// output are 1.5-entmax, so that a beam search can list every string of probability above 0, and prove it. Weights are
// rounded to float16, all arithmetic is float64. A test compares strings, probabilities and certificates with the library's.
"use strict";

/** The whole model in one function: its source is that of the worker, too, which a page opened as a file could not load. */
function makeVerbModel() {
  const BOS = 1, EOS = 2, UNKNOWN = 3;
  const DOUBT = 1e-12; // a score this little below the threshold might be above it but for rounding

  // --- weights -------------------------------------------------------------------------------------------------------

  /** The number that 16 bits stand for. */
  function half(bits) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 31) return NaN; // or infinite
    return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
  }

  /** Name → { data, rows, columns }: a matrix as float64, row after row. */
  function decode(base64, shapes) {
    const view = new DataView(Uint8Array.from(atob(base64), letter => letter.charCodeAt(0)).buffer), matrices = {};
    let place = 0;
    for (const [name, rows, columns] of shapes) {
      const data = new Float64Array(rows * columns);
      for (let i = 0; i < data.length; i++, place += 2) data[i] = half(view.getUint16(place, true));
      // With a NaN no probability is above 0, and an empty list would look complete.
      if (!data.every(Number.isFinite)) throw Error(`${name}: expected finite numbers`);
      matrices[name] = { data, rows, columns };
    }
    return matrices;
  }

  // --- arithmetic ----------------------------------------------------------------------------------------------------

  const row = ({ data, columns }, i) => data.slice(i * columns, (i + 1) * columns);

  function concatenate(a, b) {
    const both = new Float64Array(a.length + b.length);
    both.set(a);
    both.set(b, a.length);
    return both;
  }

  function dot(a, b) {
    let total = 0;
    for (let i = 0; i < a.length; i++) total += a[i] * b[i];
    return total;
  }

  /** out += x W. Four rows at a time, since reading and writing out costs as much as the product; all W have 4 n rows. */
  function addProduct(out, x, { data, rows, columns }) {
    for (let i = 0; i < rows; i += 4) {
      const a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
      const first = i * columns, second = first + columns, third = second + columns, fourth = third + columns;
      for (let j = 0; j < columns; j++) {
        out[j] += a * data[first + j] + b * data[second + j] + c * data[third + j] + d * data[fourth + j];
      }
    }
    return out;
  }

  const product = (x, matrix) => addProduct(new Float64Array(matrix.columns), x, matrix);

  const sigmoid = a => 1 / (1 + Math.exp(-a));

  /** Hidden state and cell after a step, from the pre-activations of the gates i, f, o, g. */
  function lstmCell(a, cell) {
    const n = cell.length, h = new Float64Array(n), c = new Float64Array(n);
    for (let j = 0; j < n; j++) {
      c[j] = sigmoid(a[n + j]) * cell[j] + sigmoid(a[j]) * Math.tanh(a[3 * n + j]);
      h[j] = sigmoid(a[2 * n + j]) * Math.tanh(c[j]);
    }
    return { h, c };
  }

  /**
   * p_i = [x_i − τ]₊² of x = z/2, with Σp = 1. If the support is the k largest x, τ is their mean less √((1 − s) / k), s the
   * sum of their squared deviations; the support is the largest k whose last x is above its τ. `gap` is how far the nearest
   * x without probability is below τ.
   */
  function entmax15(z) {
    let top = -Infinity;
    for (const score of z) if (score > top) top = score;
    const x = Float64Array.from(z, score => (score - top) / 2);
    const sorted = x.filter(value => value > -1).sort().reverse(); // τ ≥ max x − 1
    let tau = -1, mean = 0, squares = 0;
    for (let k = 1; k <= sorted.length; k++) {
      const step = sorted[k - 1] - mean; // Welford's update
      mean += step / k;
      squares += step * (sorted[k - 1] - mean);
      if (squares > 1) break;
      const threshold = mean - Math.sqrt((1 - squares) / k);
      if (threshold >= sorted[k - 1]) break;
      tau = threshold;
    }
    let gap = Infinity;
    const p = x.map(value => {
      if (value > tau) return (value - tau) ** 2;
      gap = Math.min(gap, tau - value);
      return 0;
    });
    return { p, gap };
  }

  function softmax(z) {
    const top = Math.max(...z), p = z.map(score => Math.exp(score - top));
    const total = p.reduce((sum, share) => sum + share, 0);
    return { p: p.map(share => share / total), gap: Infinity };
  }

  // --- the network ---------------------------------------------------------------------------------------------------

  /** One direction of the encoder: the hidden state after each token, and the last state. */
  function readTokens(ids, gates, recurrent) {
    let state = { h: new Float64Array(recurrent.rows), c: new Float64Array(recurrent.rows) };
    const hidden = ids.map(id => {
      state = lstmCell(addProduct(row(gates, id), state.h, recurrent), state.c);
      return state.h;
    });
    return { hidden, last: state };
  }

  /** Keys and values of the attention, and the decoder's state before the first letter. */
  function encode(W, ids) {
    const forward = readTokens(ids, W["forward.gates"], W["forward.recurrent"]);
    const backward = readTokens([...ids].reverse(), W["backward.gates"], W["backward.recurrent"]);
    backward.hidden.reverse();
    const values = ids.map((_, s) => concatenate(forward.hidden[s], backward.hidden[s]));
    const keys = values.map(value => product(value, W.attention));
    const h = concatenate(forward.last.h, backward.last.h), c = concatenate(forward.last.c, backward.last.c);
    return { memory: { keys, values }, state: { h, c, feed: new Float64Array(h.length) } };
  }

  /** Read a letter: the scores of the next one, the attention, and the state after it. */
  function advance(W, { keys, values }, state, token) {
    const { h, c, feed } = state;
    state.product ??= product(concatenate(feed, h), W["decoder.joint"]); // all continuations of a prefix share it
    const a = row(W["decoder.gates"], token).map((gate, j) => gate + state.product[j]);
    const cell = lstmCell(a, c), attention = entmax15(keys.map(key => dot(key, cell.h))).p;
    const context = new Float64Array(h.length);
    values.forEach((value, s) => {
      if (attention[s] > 0) for (let j = 0; j < context.length; j++) context[j] += attention[s] * value[j];
    });
    const output = product(concatenate(context, cell.h), W.combine).map(Math.tanh);
    const scores = addProduct(row(W["output.bias"], 0), output, W.output);
    return { scores, attention, state: { ...cell, feed: output } };
  }

  // --- the search ----------------------------------------------------------------------------------------------------

  /**
   * All strings that end, best first, and where the rest of the probability is: pruned by the beam, or open at the length
   * limit. Each step keeps the `beam` best prefixes. Counts decide whether a list is complete, since a mass may round to 0.
   * With softmax every string is possible, and the search stops once `beam` strings are at least as probable as the best
   * open prefix.
   */
  function search(W, ids, sparse, beam) {
    const mapping = sparse ? entmax15 : softmax, limit = 2 * ids.length + 10;
    const { memory, state } = encode(W, ids);
    const forms = [], mass = { open: 0, pruned: 0 }, count = { open: 0, pruned: 0, doubtful: 0 };
    let prefixes = [{ path: { token: BOS }, p: 1, state }], firstPruned = 0, bound = 0;
    function lose(why, share) {
      mass[why] += share;
      count[why] += 1;
      bound = Math.max(bound, share); // no string that is not listed is more probable
    }
    for (let length = 0; prefixes.length; length++) {
      const longer = [];
      for (const { path, p: soFar, state: before } of prefixes) {
        const { scores, attention, state: after } = advance(W, memory, before, path.token);
        const { p, gap } = mapping(scores);
        if (!(gap >= DOUBT)) count.doubtful += 1;
        p.forEach((share, token) => {
          if (share === 0) return;
          const next = { path: { parent: path, token, attention }, p: soFar * share, state: after };
          if (token === EOS) forms.push(next);
          else if (length === limit) lose("open", next.p);
          else longer.push(next);
        });
      }
      longer.sort((a, b) => b.p - a.p); // stable: ties go to the better prefix, then to the lower token
      for (const { p } of longer.slice(beam)) lose("pruned", p);
      if (count.pruned && !firstPruned) firstPruned = length + 1;
      prefixes = longer.slice(0, beam);
      forms.sort((a, b) => b.p - a.p);
      if (!sparse && prefixes.length && forms.length >= beam && forms[beam - 1].p >= prefixes[0].p) {
        for (const { p } of prefixes) lose("open", p);
        break;
      }
    }
    const complete = sparse && !count.open && !count.pruned && !count.doubtful;
    const proved = forms.filter(({ p }) => p >= bound).length; // the best of all strings
    return { forms, mass, count, complete, proved, bound, firstPruned, beam, limit, sparse };
  }

  /** Letters and attention of a finished path; the last attention is that of the end. */
  function unroll(path, target) {
    const letters = [], attention = [];
    for (let step = path; step.parent; step = step.parent) {
      attention.unshift([...step.attention]);
      if (step !== path) letters.unshift(target[step.token]);
    }
    return { letters, attention };
  }

  /** The model of a file that tools/make_browser_model.py wrote. */
  function load({ base64, shapes, source, target, tags, output }) {
    const W = decode(base64, shapes), ids = new Map(source.map((token, id) => [token, id]));

    /** Every form that the search finds, with its certificate. A character that training had nowhere is read as unknown. */
    function inflect(lemma, bundle, beam = 5) {
      const words = bundle.split(";").sort((a, b) => tags.indexOf(a) - tags.indexOf(b));
      if (!words.every(tag => tags.includes(tag))) throw Error(`expected tags from ${tags.join(" ")}, got ${bundle}`);
      const read = [...words.map(tag => `<${tag}>`), ...lemma];
      const { forms, ...result } = search(W, read.map(token => ids.get(token) ?? UNKNOWN), output !== "softmax", beam);
      const spelled = forms.map(({ path, p }) => ({ ...unroll(path, target), p }));
      return { ...result, read, unknown: read.filter(token => !ids.has(token)), forms: spelled };
    }
    return { inflect };
  }

  return { load };
}

const VerbModel = makeVerbModel();
