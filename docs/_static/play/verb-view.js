// What docs/draw.md and docs/never.md show of the model of verbs: the forms as a tree, the certificate, the attention.
"use strict";

const VerbView = (() => {
  const FOLDER = document.currentScript.src;
  const SHOWN = 12; // strings in a tree

  const element = (name, text = "", kind = "") =>
    Object.assign(document.createElement(name), { textContent: text, className: kind });

  /** As the library's trees have it: rounding never makes it 0% or 100%. */
  function percent(p) {
    if (p >= 0.9995 && p < 1 - 1e-6) return "> 99.9%"; // closer to 1 is 1 but for rounding
    if (p > 0 && p < 5e-6) return "< 0.001%";
    return `${p > 0 && p < 5e-4 ? Number((100 * p).toPrecision(1)) : (100 * p).toFixed(1)}%`;
  }

  // --- the worker ----------------------------------------------------------------------------------------------------

  const scripts = {};
  /** The weights for an output, "sparse" or "softmax": a script that is fetched when they are first needed. */
  function weights(output) {
    scripts[output] ??= new Promise((loaded, failed) => {
      const script = Object.assign(document.createElement("script"), { src: new URL(`verbs-${output}.js`, FOLDER) });
      script.onload = () => loaded(VerbWeights[output]);
      script.onerror = () => {
        delete scripts[output]; // the next question tries again
        failed(Error("The model could not be loaded."));
      };
      document.head.append(script);
    });
    return scripts[output];
  }

  /** Of the worker: a message is the weights, or a question. */
  function serve() {
    let model;
    onmessage = ({ data }) => {
      if (data.base64) model = VerbModel.load(data);
      else {
        const begin = performance.now(), result = model.inflect(...data);
        postMessage({ ...result, ms: performance.now() - begin });
      }
    };
  }
  const SOURCE = `"use strict"; const VerbModel = (${makeVerbModel})(); (${serve})();`;
  const PROGRAM = URL.createObjectURL(new Blob([SOURCE], { type: "text/javascript" }));

  /** A function that searches in a worker. A new question stops the search for an older one, which gets no answer. */
  function makeSearch() {
    let worker, holds, busy = false, latest = 0;
    function start(model, output) {
      worker?.terminate();
      worker = new Worker(PROGRAM);
      worker.postMessage(model);
      holds = output;
    }
    return async ({ verb, tags, output, beam }) => {
      const question = ++latest, model = await weights(output);
      if (question !== latest) return undefined;
      if (busy || holds !== output) start(model, output);
      busy = true;
      const result = await new Promise((answered, failed) => {
        worker.onmessage = ({ data }) => answered(data);
        worker.onerror = ({ message }) => failed(Error(message));
        worker.postMessage([verb, tags, Number(beam)]);
      }).finally(() => { busy = false; });
      return { ...result, model };
    };
  }

  // --- what is shown -------------------------------------------------------------------------------------------------

  const some = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

  /** Whether the list is complete, or what a search with this beam lost, and which strings are proved the best nevertheless. */
  function certificate({ mass, count, complete, proved, firstPruned, beam, limit, sparse }) {
    if (complete) return "Complete: no other string has a probability above zero.";
    const lost = percent(mass.pruned + mass.open), cut = some(count.pruned + count.open, "continuation");
    const best = proved > 1 ? ` The ${proved} best strings are proved.` : proved ? " The best string is proved." : "";
    if (!sparse) {
      return `Never complete: softmax gives every string a probability above zero. This search cut off ${cut}, ${lost} of the probability.${best}`;
    }
    const why = [];
    if (count.pruned) why.push(`${count.pruned.toLocaleString("en")} pruned by the beam of ${beam}, first at step ${firstPruned}`);
    if (count.open) why.push(`${count.open.toLocaleString("en")} open at the limit of ${limit} letters`);
    if (count.doubtful) why.push(`at ${some(count.doubtful, "step")} rounding may have decided`);
    return `Not proved complete: ${cut} lost, with ${lost} of the probability (${why.join("; ")}).${best}`;
  }

  /** Strings as a tree: a run of letters, the probability of all that begins so, and its branches, most probable first. */
  function tree(forms, start = 0) {
    const END = "(end)", at = ({ letters }, i) => letters[i] ?? END, [first] = forms, groups = new Map();
    const p = forms.reduce((total, form) => total + form.p, 0);
    let stop = start;
    while (stop <= first.letters.length && forms.every(form => at(form, stop) === at(first, stop))) stop += 1;
    const run = first.letters.slice(start, stop).join("") || (forms.length === 1 ? END : "·");
    if (forms.length === 1) return { run, p, form: first, branches: [] };
    for (const form of forms) groups.set(at(form, stop), [...(groups.get(at(form, stop)) ?? []), form]);
    return { run, p, branches: [...groups.values()].map(group => tree(group, stop)).sort((a, b) => b.p - a.p) };
  }

  /** A node as an item of a list; `choose`, if there is one, is called with the form of a leaf that is pressed. */
  function item({ run, p, form, branches }, chosen, choose) {
    const li = element("li"), node = element("span", run, "verb-run");
    li.append(node);
    if (form) {
      const leaf = element(choose ? "button" : "strong", `${form.letters.join("") || "(empty)"} ${percent(p)}`, "verb-leaf");
      leaf.style.setProperty("--share", `${100 * p}%`);
      if (choose) {
        leaf.type = "button";
        leaf.setAttribute("aria-pressed", form === chosen);
        leaf.addEventListener("click", () => choose(form));
      }
      li.append(leaf);
    } else {
      node.append(element("small", percent(p)));
      const list = element("ul");
      list.append(...branches.map(branch => item(branch, chosen, choose)));
      li.append(list);
    }
    return li;
  }

  /** Draw the most probable forms of a result. */
  function drawTree(place, { forms }, chosen, choose) {
    place.replaceChildren();
    if (!forms.length) return;
    const list = element("ul");
    list.append(item(tree(forms.slice(0, SHOWN)), chosen, choose));
    place.append(list);
    if (forms.length > SHOWN) place.append(element("p", `And ${some(forms.length - SHOWN, "more string")}, each less probable.`));
  }

  /** Draw which tags and letters were read when each letter was written. */
  function drawAttention(table, { read }, form) {
    const head = element("tr"), plain = token => token.replace(/^<(.+)>$/, "$1");
    head.append(element("td"), ...read.map(token => Object.assign(element("th", plain(token)), { scope: "col" })));
    const rows = form.attention.map((weights, i) => {
      const row = element("tr"), name = Object.assign(element("th", form.letters[i] ?? "(end)"), { scope: "row" });
      row.append(name, ...weights.map(weight => {
        const cell = element("td", weight === 0 ? "" : weight < 0.005 ? "<1" : (100 * weight).toFixed(0));
        cell.style.background = `rgb(0 114 178 / ${0.6 * weight})`;
        return cell;
      }));
      return row;
    });
    table.replaceChildren(head, ...rows);
  }

  return { makeSearch, certificate, percent, some, drawTree, drawAttention };
})();
