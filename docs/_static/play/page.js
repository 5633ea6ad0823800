// The page docs/play.md: its controls, its state, and the view that shows it. No library, no network.
"use strict";

(() => {
  const { byId, format, subscript, whenDragged, whenArrow } = PlayDrawing;
  const root = document.getElementById("play");
  const RENDER = {
    three: PlayTriangle.render, four: PlayTetrahedron.render, race: PlayRace.render, attention: PlayAttention.render,
  };
  let state;

  const controls = () => root.querySelectorAll("[data-key]");
  const clamp = (low, value, high) => Math.min(Math.max(value, low), high);

  /** Where a control's number is in the state: an object and a key of it. */
  function slot({ key, entry }) {
    if (key === "z") return [state.z[state.view], entry];
    return entry === undefined ? [state, key] : [state[key], entry];
  }

  /** Put what a control says into the state. */
  function readControl(control) {
    const { key } = control.dataset, [object, name] = slot(control.dataset);
    if (key === "sink-on") state.sink = control.checked ? Number(byId("sink").value) : null;
    else if (key === "alpha") state.alpha = PlayState.alphaAt(Number(control.value));
    else if (control.type === "radio") object[name] = control.value;
    else object[name] = Number(control.value);
    if (key === "view" || key === "mapping") PlayState.clampToView(state);
  }

  /** As many sliders as the view has scores. */
  function makeSliders() {
    const scores = state.z[state.view] ?? [];
    if (byId("scores").children.length === scores.length) return;
    byId("scores").replaceChildren(...scores.map((_, i) => {
      const row = document.createElement("p"), id = `play-z${i + 1}`;
      row.innerHTML = `<label for="${id}">z${subscript(i + 1)} = <output id="${id}-value"></output></label>
        <input type="range" id="${id}" data-key="z" data-entry="${i}" min="-3" max="3" step="0.01">`;
      return row;
    }));
  }

  /** Show the state in the controls, and of the controls those that it has. */
  function showControls() {
    makeSliders();
    const race = state.view === "race", kind = race ? "entmax" : state.mapping;
    for (const part of root.querySelectorAll("[data-views]")) {
      part.hidden = !part.dataset.views.split(" ").includes(state.view);
    }
    for (const [mapping, id] of [["entmax", "alpha"], ["topk", "k"], ["fusedmax", "lambda"]]) {
      byId(`${id}-row`).hidden = kind !== mapping;
    }
    byId("alpha").min = race ? 2.5 : 0;
    byId("alpha").max = race ? 90 : 100;
    byId("k").max = state.view === "attention" ? PlayAttention.KEYS.length : (state.z[state.view] ?? []).length;
    byId("sink-row").hidden = state.mapping === "fusedmax";
    byId("sink").disabled = state.sink === null;
    for (const control of controls()) {
      const { key } = control.dataset, [object, name] = slot(control.dataset);
      if (key === "sink-on") control.checked = state.sink !== null;
      else if (control.type === "radio") control.checked = control.value === object[name];
      else if (key === "alpha") control.value = PlayState.sliderOf(state.alpha);
      else if (object[name] !== null) control.value = object[name];
      const output = byId(`${control.id.replace("play-", "")}-value`);
      if (!output) continue;
      output.textContent = formatted(key, object[name]);
      control.setAttribute("aria-valuetext", output.textContent); // of α, the slider has only the root
    }
  }

  function formatted(key, value) {
    if (key === "alpha") return value === Infinity ? "∞" : String(value);
    if (key === "turn") return `${format(value, 0)}°`;
    if (key === "sink" && value === null) return "";
    return key === "k" || key === "step" ? String(value) : format(value);
  }

  function inPython({ view, mapping, alpha, k, lambda, query, scale }, found) {
    const list = values => `[${values.join(", ")}]`;
    const number = value => (value === Infinity ? "float('inf')" : value);
    if (view === "race") {
      const x = found.x.map(score => Number(score.toFixed(12))); // 0.3 instead of 0.30000000000000004
      return `pe.reference.thresholds.bisection(${list(x)}, ${alpha}).tau`;
    }
    if (view === "attention") {
      const keys = list(found.keys.map(list)), sink = found.sink === null ? "" : `, sink=${found.sink}`;
      const named = { topk: `mapping="topk_softmax", k=${k}`, fusedmax: `mapping="fusedmax", strength=${lambda}` };
      const kind = named[mapping] ?? number(alpha);
      return `pe.attention(${list([list(query)])}, keys := ${keys}, keys, ${kind}, scale=${scale}${sink})`;
    }
    if (mapping === "topk") return `pe.topk_softmax(${list(found.z)}, ${k})`;
    if (mapping === "fusedmax") return `pe.fusedmax(${list(found.z)}, ${lambda})`;
    return `pe.entmax(${list(found.z)}, ${number(alpha)})`;
  }

  function update() {
    showControls();
    const found = RENDER[state.view](state);
    byId("status").textContent = found.status;
    byId("python").textContent = inPython(state, found);
    byId("link").href = PlayState.toLink(state);
    const infinite = (_, value) => (Math.abs(value) === Infinity ? String(value) : value);
    root.dataset.state = JSON.stringify({ ...state, ...found }, infinite);
  }

  let writing;
  /** After a change by the reader: redraw, and put the link into the address once the reader pauses. */
  function changed() {
    update();
    clearTimeout(writing); // browsers allow a page few changes of its address per second
    writing = setTimeout(() => history.replaceState(null, "", byId("link").href), 300);
  }

  function openLink() {
    state = PlayState.fromLink(location.hash);
    update();
  }

  function turn([dx, dy]) {
    const wrap = angle => (angle + 540) % 360 - 180;
    state.turn = [wrap(state.turn[0] + dx), wrap(state.turn[1] + dy)].map(Math.round);
    changed();
  }

  function moveQuery(query) {
    state.query = query.map(part => Number(clamp(-2, part, 2).toFixed(2)));
    changed();
  }

  function makeStep(step) {
    state.step = clamp(0, step, PlayRace.STEPS);
    changed();
  }

  if (!root) return;
  root.hidden = false;
  document.getElementById("play-alone").remove();
  openLink();
  root.addEventListener("input", event => {
    readControl(event.target);
    changed();
  });
  byId("forward").addEventListener("click", () => makeStep(state.step + 1));
  byId("restart").addEventListener("click", () => makeStep(0));
  whenDragged(byId("tetrahedron"), ([dx, dy]) => turn([0.7 * dx, 0.7 * dy]));
  whenArrow(byId("tetrahedron"), ([dx, dy]) => turn([5 * dx, 5 * dy]));
  whenDragged(byId("plane"), (_, here) => moveQuery(PlayAttention.queryAt(here)));
  whenArrow(byId("plane"), ([dx, dy]) => moveQuery([state.query[0] + 0.1 * dx, state.query[1] - 0.1 * dy]));
  addEventListener("hashchange", () => { // a link to a state on this page
    if (!PlayState.isLink(location.hash)) return;
    openLink();
    root.scrollIntoView();
  });
})();
