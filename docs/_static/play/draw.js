// The page docs/draw.md: a verb, its tags, the model's output and the beam; the forms, the certificate and the attention.
"use strict";

(() => {
  const { byId } = PlayDrawing, form = byId("question");
  if (!form) return;
  const KEYS = ["verb", "tags", "output", "beam"], search = VerbView.makeSearch();
  const defaults = Object.fromEntries(new FormData(form));

  const asked = () => {
    const question = Object.fromEntries(new FormData(form));
    return { ...question, verb: question.verb.trim().toLowerCase() };
  };

  /** What to know of an answer besides the certificate. */
  function note({ model, unknown }, verb) {
    const letters = unknown.map(letter => `“${letter}”`).join(", "), notes = [];
    if (model.unseen.includes(verb)) notes.push("Training had no form of this verb: it was held out.");
    else if (model.seen.includes(verb)) notes.push("Training had the forms of this verb.");
    else notes.push("Training had no form of this word.");
    if (letters) notes.push(`It never saw ${letters}, either: the model reads an unknown letter.`);
    return notes.join(" ");
  }

  /** Where the model comes from, how good it is, and what rounding its weights to float16 costs. */
  function provenance({ facts, seed, date }) {
    const [digits, power] = facts["largest difference"].toExponential(1).split("e-"), other = facts["other lists"];
    const moved = `moves no probability by more than ${digits} · 10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[power]}`;
    const lists = other ? `changes ${VerbView.some(other, "list")}` : "changes no list";
    return `Trained on ${date} with seed ${seed}. Of ${facts.examples} forms of verbs held out it gets ${facts.right} right, and calls the
      right one impossible in ${facts.impossible} cases; there, rounding the weights to float16 ${moved} and ${lists}.`;
  }

  function showForm(result, chosen) {
    const choose = other => { showForm(result, other); byId("tree").querySelector("[aria-pressed=true]").focus(); };
    VerbView.drawTree(byId("tree"), result, chosen, choose);
    byId("attention-figure").hidden = !chosen;
    if (!chosen) return;
    VerbView.drawAttention(byId("attention"), result, chosen);
    const weights = chosen.attention.flat(), zeros = weights.filter(weight => weight === 0).length;
    byId("attention-form").textContent = `“${chosen.letters.join("")}”: ${zeros} of its ${weights.length} weights are exactly 0.`;
  }

  async function answer() {
    const question = asked();
    delete form.dataset.state;
    byId("status").textContent = "Searching.";
    try {
      const result = await search(question);
      if (!result) return; // there is a newer question
      const { forms, ms, mass, count, complete, model } = result;
      byId("status").textContent = `${VerbView.some(forms.length, "string")} in ${ms.toFixed(0)} ms. ${VerbView.certificate(result)}`;
      byId("note").textContent = note(result, question.verb);
      byId("provenance").textContent = provenance(model);
      byId("verbs").replaceChildren(...model.unseen.map(verb => new Option("", verb)));
      showForm(result, forms[0]);
      const listed = forms.map(({ letters, p }) => [letters.join(""), p]);
      form.dataset.state = JSON.stringify({ ...question, forms: listed, mass, count, complete, ms });
    } catch (error) {
      byId("status").textContent = error.message;
    }
  }

  let writing;
  function changed() {
    clearTimeout(writing); // browsers allow a page few changes of its address per second
    writing = setTimeout(() => history.replaceState(null, "", `#${new URLSearchParams(asked())}`), 300);
    answer();
  }

  /** Put a link's values into the controls; what it lacks, or has wrong, has its default. */
  function openLink() {
    const link = new URLSearchParams(location.hash.slice(1));
    for (const key of KEYS) {
      form.elements[key].value = defaults[key];
      form.elements[key].value = link.get(key)?.slice(0, 40) ?? defaults[key];
    }
    answer();
  }

  byId("alone").remove();
  form.parentElement.hidden = false;
  form.addEventListener("input", changed);
  form.addEventListener("submit", event => event.preventDefault());
  addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return; // a heading
    openLink();
    form.scrollIntoView();
  });
  openLink();
})();
