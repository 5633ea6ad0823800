// One query over the words of a sentence: scores, weights, and their mean of the values.
"use strict";

const PlayAttention = (() => {
  const { byId, format, draw, clear, supportSize } = PlayDrawing;
  // Made by hand: things to the right, what happens to them upwards, articles to the left.
  const WORDS = [
    ["the", [-1.3, -0.5]], ["old", [-0.2, -1.2]], ["dog", [1.6, -0.3]], ["chased", [-0.1, 1.5]],
    ["the", [-1.5, 0.1]], ["cat", [1.2, 0.9]], ["up", [-0.8, 1]], ["a", [-1, -1]], ["tree", [1.1, -1.1]],
  ];
  const KEYS = WORDS.map(([, key]) => key);
  const UNIT = 66, px = x => 150 + UNIT * x, py = y => 138 - UNIT * y;

  function plane({ query, scale }, found) {
    const svg = clear("plane"), length = Math.hypot(...query);
    draw(svg, "line", { x1: px(-2.2), x2: px(2.2), y1: py(0), y2: py(0), class: "play-grid" });
    draw(svg, "line", { x1: px(0), x2: px(0), y1: py(-2.05), y2: py(2.05), class: "play-grid" });
    if (length * scale > 0 && Math.abs(found.threshold) < Infinity) {
      const [a, b] = query.map(part => part / length), away = found.threshold / (scale * length);
      const end = side => [px(away * a - side * b), py(away * b + side * a)];
      const [[x1, y1], [x2, y2]] = [end(-9), end(9)];
      draw(svg, "line", { x1, y1, x2, y2, class: "play-threshold" });
    }
    WORDS.forEach(([word, [x, y]], i) => {
      const weight = found.weights[i];
      const dot = { cx: px(x), cy: py(y), r: 3 + 9 * Math.sqrt(weight) };
      draw(svg, "circle", { ...dot, class: weight > 0 ? "play-key play-on" : "play-key" });
    });
    draw(svg, "line", { x1: px(0), y1: py(0), x2: px(query[0]), y2: py(query[1]), class: "play-query" });
    draw(svg, "circle", { cx: px(query[0]), cy: py(query[1]), r: 9, class: "play-handle" });
    const [x, y] = found.output;
    draw(svg, "rect", { x: px(x) - 5, y: py(y) - 5, width: 10, height: 10, class: "play-point" });
    for (const [word, key] of WORDS) {
      draw(svg, "text", { x: px(key[0]), y: py(key[1]) + 25, "text-anchor": "middle", class: "play-word" }, word);
    }
  }

  /** The sentence, each word as dark as its weight. */
  function sentence(weights) {
    byId("sentence").replaceChildren(...WORDS.flatMap(([word], i) => {
      const span = document.createElement("span");
      span.textContent = word;
      span.style.background = `rgb(0 114 178 / ${0.6 * weights[i]})`;
      return [span, " "];
    }));
  }

  function row(word, score, weight, kind = "") {
    const row = document.createElement("tr");
    row.className = weight > 0 ? kind : `${kind} play-none`;
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = word;
    const cells = [score, weight].map(value => {
      const cell = document.createElement("td");
      cell.textContent = format(value);
      return cell;
    });
    const bar = document.createElement("span");
    bar.className = "play-bar";
    bar.style.width = `${Math.round(100 * weight)}%`;
    cells[1].prepend(bar);
    row.append(head, ...cells);
    return row;
  }

  function render(state) {
    const sink = state.mapping === "fusedmax" ? null : state.sink;
    const found = PlayMappings.attend(state.query, KEYS, { ...state, sink });
    plane(state, found);
    sentence(found.weights);
    const rows = WORDS.map(([word], i) => row(word, found.z[i], found.weights[i]));
    if (sink !== null) rows.push(row("(sink)", sink, found.sunk, "play-sink"));
    byId("weights").replaceChildren(...rows);
    const total = PlayMappings.sum(found.weights), count = supportSize(found.weights);
    const status = `${count} of ${KEYS.length} words have weight` + (sink === null
      ? "; the weights sum to 1" : `; their weights sum to ${format(total)}, the sink's is ${format(found.sunk)}`);
    return { ...found, keys: KEYS, sink, status };
  }

  /** The query at a position in the picture. */
  const queryAt = ([x, y]) => [(x - 150) / UNIT, (138 - y) / UNIT];

  return { KEYS, render, queryAt };
})();
