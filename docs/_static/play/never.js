// The essay docs/never.md: what moves on its eight screens, of the parts of docs/play.md and docs/draw.md.
"use strict";

(() => {
  const parts = document.getElementById("never-parts");
  if (!parts) return;
  const { format, subscript, supportSize } = PlayDrawing;
  const place = screen => document.getElementById(`never-${screen}`);
  for (const part of [...parts.content.children]) place(part.dataset.screen).append(part);

  /** At the start and at each input, call `show` with the values of a screen's controls; it returns what is to be said. */
  function onInput(screen, show) {
    const form = place(screen).firstElementChild;
    const update = () => show(Object.fromEntries(new FormData(form)), form);
    form.addEventListener("input", update);
    form.addEventListener("submit", event => event.preventDefault());
    update();
  }

  /** A screen of scores: `show` draws, and returns a number to show at the slider, a sentence, and the state. */
  function scoreScreen(screen, show) {
    onInput(screen, (values, form) => {
      const { shown, said, ...state } = show(values);
      form.querySelector("output").textContent = shown;
      form.querySelector("input").setAttribute("aria-valuetext", shown);
      form.querySelector("[role=status]").textContent = said;
      form.dataset.state = JSON.stringify(state);
    });
  }

  const map = (z, alpha) => PlayMappings.map(z, { mapping: "entmax", alpha });

  scoreScreen(1, ({ z3 }) => {
    const z = [1.2, 0.7, Number(z3)], found = map(z, 1), [, , p3] = found.p;
    PlayTriangle.bars("bars-softmax", z, found);
    return { shown: format(z[2]), said: `p₃ = ${p3.toPrecision(2)}: above zero.`, z, p: found.p };
  });

  PlayWater(place(2).firstElementChild, [1.2, 0.4, -0.5]);

  scoreScreen(3, values => {
    const z = [1.2, 0.7, -0.6], alpha = PlayState.alphaAt(Number(values.alpha)), found = map(z, alpha);
    PlayTriangle.simplex(z, { mapping: "entmax", alpha }, found);
    const where = ["", "in a corner: one choice has everything", "on an edge: one choice has nothing", "inside: no choice has nothing"];
    return { shown: alpha === Infinity ? "∞" : alpha, said: `The dot is ${where[supportSize(found.p)]}.`, z, alpha, p: found.p };
  });

  scoreScreen(4, ({ z3 }) => {
    const z = [1.2, 0.7, Number(z3)], { p } = map(z, 1.5);
    const jacobian = PlayMappings.jacobian({ p }, { mapping: "entmax", alpha: 1.5 });
    PlayTriangle.fillJacobian(jacobian);
    const zeros = [0, 1, 2].filter(i => jacobian[i].every(entry => entry === 0)).map(i => `p${subscript(i + 1)}`);
    const said = zeros.length ? `${zeros.join(" and ")}: a row and a column of zeros.` : "All three move with each score.";
    return { shown: format(z[2]), said, z, jacobian };
  });

  scoreScreen(5, ({ z1 }) => {
    const z = [Number(z1), 0, -1], found = map(z, 1.5), { p } = found;
    // L = Ω*(z) − z₁ = (p − e₁)·z − Ω(p), with Ω(p) = Σ (p^α − p) / (α(α − 1))
    const loss = PlayMappings.sum(p.map((share, i) => (share - (i === 0)) * z[i] - (share ** 1.5 - share) / 0.75));
    PlayTriangle.bars("bars-margin", z, found);
    const lead = `The first score leads by ${format(z[0])}`, behind = `The first score is behind by ${format(-z[0])}`;
    const said = `${z[0] < 0 ? behind : lead}. The loss is ${p[0] === 1 ? "0" : loss.toPrecision(2)}.`;
    return { shown: format(z[0]), said, z, p, loss };
  });

  /** A screen with the model: the question is what is fixed and what the controls say. */
  function verbScreen(screen, fixed) {
    const search = VerbView.makeSearch();
    onInput(screen, async (values, form) => {
      const question = { tags: "V;V.PTCP;PST", output: "sparse", beam: 5, ...fixed, ...values };
      question.verb = question.verb.trim().toLowerCase();
      const status = form.querySelector("[role=status]");
      delete form.dataset.state;
      try {
        const result = await search(question);
        if (!result) return;
        status.textContent = VerbView.certificate(result);
        VerbView.drawTree(form.querySelector(".verb-tree"), result);
        const forms = result.forms.map(({ letters, p }) => [letters.join(""), p]);
        form.dataset.state = JSON.stringify({ ...question, forms, complete: result.complete });
      } catch (error) {
        status.textContent = error.message;
      }
    });
  }

  verbScreen(6, { verb: "draw" });
  verbScreen(7, {});
  verbScreen(8, { verb: "draw", tags: "V;PST" });
})();
