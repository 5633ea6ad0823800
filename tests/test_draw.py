"""The model of verbs in the browser: its strings, probabilities and certificates are the library's.

Both compute in float64 with the same weights, rounded to float16.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_browser_model
import numpy as np
import pytest
import webdriver

from pyentmax.seq2seq.inflection import Example, Inflector

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(webdriver.DRIVER is None, reason=webdriver.MISSING),
]

DOCS = Path(__file__).parents[1] / "docs"
LEAST, ATOL = 1e-6, 1e-9
PAST = "V;V.PTCP;PST"
ODD = """a z s e ed ing qqqq xkcd gloop zzzzzzzzzz aeiou bcdfghjklmnpqrstvwxyz drawdrawdraw re-draw
antidisestablishmentarianism supercalifragilisticexpialidocious draw1 DRAW O'Neill </s> <V> <unk>
naïve über éa ß İ ﬁx Ω дать 書く 🙂 👩‍👧 draw🙂n नमस्ते""".split()
ODD += ["", " ", "give up", "a\u0301", "draw\u0000", "e" * 40, "go" * 20, "w" * 40]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    html = (DOCS / "draw.html").read_text("utf-8")
    return webdriver.write_page(tmp_path_factory.mktemp("draw") / "draw.html", html)


@pytest.fixture(scope="module")
def browser():
    with webdriver.Browser() as chromium:
        yield chromium


@pytest.fixture
def show(browser, page):
    """Open the page at a state and wait for the answer; gives the browser."""

    def show(fragment: str = "") -> webdriver.Browser:
        browser.open("about:blank")  # else only the fragment changes
        browser.open(page + fragment)
        state(browser)
        return browser

    return show


def state(browser: webdriver.Browser, **expected: Any) -> Any:
    """What the page shows, once it is the answer to such a question."""
    test = "JSON.parse(document.getElementById('play-question').dataset.state ?? '{}')"
    conditions = [f"s[{key!r}] === {json.dumps(value)}" for key, value in expected.items()]
    browser.wait(f"const s = {test}; return {' && '.join(['s.forms', *conditions])} ? true : false")
    return browser.run(f"return {test}")


def text(browser: webdriver.Browser, name: str) -> str:
    found: str = browser.run(
        "return document.getElementById('play-' + arguments[0]).textContent", name
    )
    return found


# --- the numbers ----------------------------------------------------------------------------------


def read(output: str) -> tuple[Inflector, dict[str, Any]]:
    return make_browser_model.read(make_browser_model.FOLDER / f"verbs-{output}.js")


def in_page(browser: webdriver.Browser, output: str, cases: Any, beam: int) -> list[Any]:
    """The page's own answers, without the worker."""
    script = """
        globalThis.models ??= {};
        const [output, cases, beam] = arguments;
        const model = models[output] ??= VerbModel.load(VerbWeights[output]);
        return cases.map(([verb, tags]) => {
          const { forms, ...result } = model.inflect(verb, tags, beam);
          const short = form => [form.letters.join(""), form.p];
          return { ...result, forms: forms.map(short), attention: forms[0]?.attention };
        });
    """
    parts = [cases[i : i + 20] for i in range(0, len(cases), 20)]  # a script has 30 s
    return [answer for part in parts for answer in browser.run(script, output, part, beam)]


def assert_same(answer: Any, result: Any, inflector: Inflector, case: Any) -> None:
    p = {inflector.form(h.tokens): h.probability for h in result.hypotheses if h.finished}
    q = dict(answer["forms"])
    assert {x for x in p if p[x] >= LEAST} == {x for x in q if q[x] >= LEAST}, case
    for form in p.keys() & q.keys():
        np.testing.assert_allclose(q[form], p[form], rtol=0, atol=ATOL, err_msg=str(case))
    assert answer["complete"] == result.exact, (case, result.reason)
    assert answer["proved"] == result.proved, (case, result.reason)
    lost = sum(answer["mass"].values())
    bounds = [result.bound, result.mass_bound]
    np.testing.assert_allclose(
        [answer["bound"], lost], bounds, rtol=0, atol=ATOL, err_msg=str(case)
    )
    np.testing.assert_allclose(sum(q.values()) + lost, 1, rtol=0, atol=ATOL, err_msg=str(case))
    assert bool(answer["count"]["pruned"]) == (f"(beam {answer['beam']})" in result.reason), case
    if answer["sparse"]:  # a dense search stops with prefixes open before the limit
        limit = f"the limit of {answer['limit']} tokens"
        assert bool(answer["count"]["open"]) == (limit in result.reason), (case, result.reason)


@pytest.mark.parametrize(
    ("output", "verbs", "beam"),
    [("sparse", 100, 5), ("sparse", 20, 1), ("sparse", 20, 20), ("softmax", 20, 5)],
)
def test_forms_and_certificates_are_those_of_the_library(show, output, verbs, beam):
    browser = show(f"#verb=draw&tags={PAST}&output={output}")
    inflector, description = read(output)
    rng = np.random.default_rng(0)
    lemmas = [
        str(verb)
        for part in ("seen", "unseen")
        for verb in rng.choice(description[part], verbs, replace=False)
    ]
    lemmas += ODD if verbs == 100 else ODD[::5]
    cases = [(lemma, tags) for lemma in lemmas for tags in description["bundles"]]
    answers = in_page(browser, output, cases, beam)
    results = inflector.predict([Example(v, "", tuple(t.split(";"))) for v, t in cases], beam=beam)
    for case, answer, result in zip(cases, answers, results, strict=True):
        assert_same(answer, result, inflector, case)
    complete = {answer["complete"] for answer in answers}
    assert complete == ({False} if output == "softmax" else {False, True})


def test_attention_is_that_of_the_library(show):
    browser = show()
    inflector, description = read("sparse")
    cases = [(verb, PAST) for verb in description["unseen"][:20]]
    for (verb, tags), answer in zip(cases, in_page(browser, "sparse", cases, 5), strict=True):
        expected = inflector.inflect(verb, tags).best.attention
        np.testing.assert_allclose(answer["attention"], expected, rtol=0, atol=ATOL, err_msg=verb)


# --- the page -------------------------------------------------------------------------------------


def test_page_says_that_the_list_is_complete(show):
    browser = show()
    shown = state(browser, verb="draw", complete=True)
    leaves = browser.run(
        "return [...document.querySelectorAll('.verb-leaf')].map(e => e.textContent)"
    )
    assert [leaf.split()[0] for leaf in leaves] == [form for form, _ in shown["forms"]]
    assert "Complete: no other string has a probability above zero." in text(browser, "status")
    assert "held out" in text(browser, "note")


def test_keyboard_asks_and_chooses(show):
    browser = show()
    browser.run("document.getElementById('play-verb').select()")
    browser.press(*"gloop")
    state(browser, verb="gloop", tags=PAST)
    browser.press("tab", "down")
    shown = state(browser, verb="gloop", tags="V;PST")
    assert "no form of this word" in text(browser, "note")
    browser.wait("return location.hash.includes('verb=gloop&tags=V%3BPST')")
    if len(shown["forms"]) > 1:
        browser.run("document.querySelectorAll('.verb-leaf')[1].focus()")
        browser.press(" ")
        pressed = browser.run("return document.querySelector('[aria-pressed=true]').textContent")
        assert f"“{pressed.split()[0]}”" in text(browser, "attention-form")


def test_link_opens_its_state_and_ignores_what_is_wrong(show):
    browser = show("#verb=sing&tags=V;3;SG;PRS&beam=20&output=softmax")
    shown = state(browser)
    assert [shown[key] for key in ("verb", "tags", "beam", "output")] == [
        "sing",
        "V;3;SG;PRS",
        "20",
        "softmax",
    ]
    shown = state(show("#verb=sing&tags=V;FUT&beam=7&what=1"))
    assert [shown[key] for key in ("verb", "tags", "beam")] == ["sing", PAST, "5"]
