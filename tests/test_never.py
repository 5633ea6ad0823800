"""The essay: eight screens, at most 900 words, and what moves has the library's numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import make_browser_model
import numpy as np
import pytest
import webdriver

import pyentmax as pe
from pyentmax.seq2seq.inflection.demo import demo_split

pytestmark = pytest.mark.docs
needs_chromium = pytest.mark.skipif(webdriver.DRIVER is None, reason=webdriver.MISSING)

DOCS = Path(__file__).parents[1] / "docs"
ESSAY = (DOCS / "never.md").read_text("utf-8")
PARTS = (DOCS / "never.html").read_text("utf-8")
ATOL = 1e-6


def words(html: str) -> list[str]:
    """The words that a reader sees."""
    return re.sub(r"<[^>]*>|\]\([^)]*\)|[#*`]", " ", html).split()


def test_essay_has_eight_screens_and_at_most_900_words():
    body, _, rest = ESSAY.partition("---\n\n")[2].partition("```{raw} html")
    assert len(re.findall(r"^## \d\. ", body, re.MULTILINE)) == 8
    assert re.findall(r'<div id="never-(\d)" class="never-part"></div>', body) == list("12345678")
    assert re.findall(r'data-screen="(\d)"', PARTS) == list("12345678")
    assert "`" not in body  # no code
    assert 500 < len(words(body + rest.partition("```")[2] + PARTS)) <= 900


def test_numbers_of_the_essay_are_those_of_the_models():
    facts = make_browser_model.read(make_browser_model.FOLDER / "verbs-sparse.js")[1]["facts"]
    text = " ".join(words(ESSAY))
    assert f"{len({e.lemma for e in demo_split(0)[0]}):,} English verbs" in text
    assert f"Of {facts['examples']} forms of verbs that it had not seen, it gets" in text
    assert f"it gets {facts['right']} right" in text
    assert f"In {facts['impossible']} cases it calls the right form impossible" in text


# --- what moves -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    places = "".join(re.findall(r'<div id="never-.*</div>', ESSAY))
    page = webdriver.write_page(tmp_path_factory.mktemp("never") / "never.html", places + PARTS)
    with webdriver.Browser() as chromium:
        chromium.open(page)
        yield chromium


def part(screen: int) -> str:
    return f"document.getElementById('never-{screen}').firstElementChild"


def state(browser: webdriver.Browser, screen: int, **expected: Any) -> Any:
    test = f"JSON.parse({part(screen)}.dataset.state ?? '{{}}')"
    conditions = [f"s[{key!r}] === {json.dumps(value)}" for key, value in expected.items()]
    browser.wait(f"const s = {test}; return {' && '.join(['true', *conditions])}")
    return browser.run(f"return {test}")


def press(browser: webdriver.Browser, screen: int, *keys: str) -> Any:
    browser.run(f"{part(screen)}.querySelector('input').focus()")
    browser.press(*keys)
    return state(browser, screen)


def status(browser: webdriver.Browser, screen: int) -> str:
    said: str = browser.run(f"return {part(screen)}.querySelector('[role=status]').textContent")
    return said


@needs_chromium
@pytest.mark.parametrize(("screen", "alpha"), [(1, 1.0), (5, 1.5)])
def test_scores_have_the_probabilities_of_the_library(browser, screen, alpha):
    for key in ("home", "right", "end", "left"):
        shown = press(browser, screen, key)
        np.testing.assert_allclose(shown["p"], pe.entmax(shown["z"], alpha), rtol=0, atol=ATOL)
        if screen == 5:
            loss = pe.entmax15.loss(shown["z"], 0)
            np.testing.assert_allclose(shown["loss"], loss, rtol=0, atol=ATOL)
            assert ("The loss is 0." in status(browser, 5)) == (shown["z"][0] >= 2)


@needs_chromium
def test_dot_walks_from_the_inside_to_a_corner(browser):
    assert "inside" in status(browser, 3)
    shown = press(browser, 3, "end")
    assert shown["p"] == [1, 0, 0]
    assert "in a corner" in status(browser, 3)


@needs_chromium
def test_row_and_column_become_zero(browser):
    for key, zero in (("home", True), ("end", False)):
        shown = press(browser, 4, key)
        p = pe.entmax15(shown["z"])
        jacobian = pe.entmax15.jacobian(p)
        np.testing.assert_allclose(shown["jacobian"], jacobian, rtol=0, atol=ATOL)
        assert ("zeros" in status(browser, 4)) == zero == bool((p == 0).any())


@needs_chromium
def test_water_rises_with_alpha(browser):
    read = f"return JSON.parse({part(2)}.dataset.state)"
    low = browser.run(read)
    browser.run(f"{part(2)}.querySelector('input').focus()")
    browser.press("end")
    high = browser.run(read)
    assert high["alpha"] > low["alpha"]
    assert high["threshold"] > low["threshold"]
    for shown in (low, high):
        np.testing.assert_allclose(
            shown["p"], pe.entmax(shown["z"], shown["alpha"]), rtol=0, atol=ATOL
        )


@needs_chromium
def test_narrow_beam_loses_the_proof(browser):
    assert state(browser, 6, beam="5", complete=True)["forms"]
    assert "Complete" in status(browser, 6)
    press(browser, 6, " ")  # the first of the radio buttons
    state(browser, 6, beam="1", complete=False)
    assert "lost" in status(browser, 6)


@needs_chromium
def test_any_verb_is_answered(browser):
    browser.run(f"{part(7)}.querySelector('input').select()")
    press(browser, 7, *"gloop")
    assert state(browser, 7, verb="gloop")["forms"]


@needs_chromium
def test_right_form_is_impossible_for_the_sparse_model_alone(browser):
    shown = state(browser, 8, output="sparse", complete=True)
    [form] = [
        e.form
        for part in demo_split(0)
        for e in part
        if (e.lemma, ";".join(e.tags)) == (shown["verb"], shown["tags"])
    ]
    assert form == "drew"
    assert form not in dict(shown["forms"])
    browser.click("#never-8 input[value=softmax]")
    state(browser, 8, output="softmax", complete=False)
    assert "Never complete" in status(browser, 8)
