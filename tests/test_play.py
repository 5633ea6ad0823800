"""The page to play with: mouse, touch and keyboard move it, and its numbers are the library's."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdriver

import pyentmax as pe

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(webdriver.DRIVER is None, reason=webdriver.MISSING),
]

DOCS = Path(__file__).parents[1] / "docs"
ATOL = 1e-6  # the page shows two digits; a drawing cannot show more than six
CORNERS = np.array([[150, 24], [24, 242.2], [276, 242.2]])  # of the page's triangle


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page's own part of docs/play.md, with its script and style, as a file."""
    [html] = re.findall(
        r"```\{raw\} html\n(.*?)```", (DOCS / "play.md").read_text("utf-8"), re.DOTALL
    )
    html = html.replace("../_static/", (DOCS / "_static").as_uri() + "/")
    style = (DOCS / "_static" / "pyentmax.css").read_text("utf-8")
    head = (
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    )
    path = tmp_path_factory.mktemp("play") / "play.html"
    path.write_text(f"{head}<style>{style}</style><body>{html}</body>", encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(page):
    with webdriver.Browser() as chromium:
        chromium.open(page)
        yield chromium


def state(browser: webdriver.Browser) -> Any:
    shown = json.loads(browser.run("return document.getElementById('play').dataset.state"))
    for key in ("alpha", "threshold"):
        shown[key] = float(shown[key])
    return shown


def choose(browser: webdriver.Browser, mapping: str) -> None:
    browser.click(f"input[name=play-mapping][value={mapping}]")


def expected(shown: Any) -> tuple[Any, Any]:
    """p and J as the library has them."""
    z, kind = shown["z"], shown["mapping"]
    if kind == "topk":
        p = pe.topk_softmax(z, shown["k"])
        return p, pe.topk_softmax_jacobian(p, shown["k"])
    if kind == "fusedmax":
        p = pe.fusedmax(z, shown["lambda"])
        return p, pe.fusedmax_jacobian(p, shown["lambda"])
    p = pe.entmax(z, shown["alpha"])
    return p, pe.entmax_jacobian(p, shown["alpha"])


def compare(browser: webdriver.Browser) -> Any:
    """Everything that the page says, against the library."""
    shown = state(browser)
    p, jacobian = expected(shown)
    np.testing.assert_allclose(shown["p"], p, rtol=0, atol=ATOL, err_msg=str(shown))
    np.testing.assert_array_equal(np.array(shown["p"]) > 0, p > 0, err_msg=str(shown))
    np.testing.assert_allclose(
        shown["jacobian"], jacobian, rtol=ATOL, atol=ATOL, err_msg=str(shown)
    )
    threshold, alpha = shown["threshold"], shown["alpha"]
    if shown["mapping"] == "entmax" and 1 < alpha < np.inf:
        above = np.maximum(np.array(shown["z"]) - threshold, 0)
        again = ((alpha - 1) * above) ** (1 / (alpha - 1))
        np.testing.assert_allclose(again, p, rtol=0, atol=1e-4)  # of a difference, by a root
    if shown["mapping"] == "topk":
        assert threshold == sorted(shown["z"])[-shown["k"]]
    x, y = browser.run(
        "const c = document.querySelector('.play-point');"
        "return [Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))]"
    )
    np.testing.assert_allclose([x, y], p @ CORNERS, rtol=0, atol=1e-3)
    return shown


def test_dragging_a_score_moves_p(browser):
    choose(browser, "entmax")
    before = compare(browser)
    browser.drag("#play-z1", (before["z"][0] + 3) / 6, 0.2)
    after = compare(browser)
    assert after["z"][0] < -1 < before["z"][0]
    assert after["z"][1:] == before["z"][1:]
    assert after["p"][0] < before["p"][0]


def test_dragging_parameters_reaches_both_ends(browser):
    choose(browser, "entmax")
    browser.drag("#play-alpha", 0.5, 0.0)
    assert compare(browser)["alpha"] == 1
    browser.drag("#play-alpha", 0.01, 1.0)
    assert compare(browser)["alpha"] == np.inf
    choose(browser, "topk")
    assert browser.run("return document.getElementById('play-alpha-row').hidden")
    browser.drag("#play-k", 0.5, 1.0)
    assert compare(browser)["k"] == 3


def test_keyboard_moves_everything(browser):
    choose(browser, "entmax")  # whatever the test before left
    browser.run("document.getElementById('play-z2').focus()")
    before = state(browser)
    browser.press("right", "right", "left", "right")
    after = compare(browser)
    assert round(after["z"][1] - before["z"][1], 9) == 0.02
    browser.press("home")
    assert compare(browser)["z"][1] == -3
    browser.press("tab", "tab", "right")  # by the third score to the mappings
    assert compare(browser)["mapping"] == "topk"
    browser.press("left", "tab", "end")
    assert compare(browser)["alpha"] == np.inf


def test_touch_on_a_phone(page):
    with webdriver.Browser(390, 800, touch=True) as phone:
        phone.open(page)
        assert phone.run("return document.documentElement.scrollWidth") <= 390
        phone.drag("#play-z1", 0.7, 0.1, pointer="touch")
        assert compare(phone)["z"][0] < -1


def test_values_agree_with_the_library(browser):
    """Many positions of the sliders, ties and both ends among them, set without a mouse."""
    rng = np.random.default_rng(0)
    rows = [*rng.uniform(-3, 3, size=(12, 3)).round(2).tolist(), [1, 1, 0], [0, 0, 0], [3, -3, 3]]
    sliders = {"entmax": (0, 0.5, 20, 33.5, 50, 60, 75, 100), "topk": (1, 2, 3)}
    sliders["fusedmax"] = (0, 0.25, 0.8, 2)
    names = {"entmax": "alpha", "topk": "k", "fusedmax": "lambda"}
    put = (
        "for (const [name, value] of Object.entries(arguments[0])) {"
        " const slider = document.getElementById('play-' + name); slider.value = value;"
        " slider.dispatchEvent(new Event('input', {bubbles: true})) }"
    )
    for mapping, values in sliders.items():
        choose(browser, mapping)
        for z, value in product(rows, values):
            scores = {f"z{i}": score for i, score in enumerate(z, 1)}
            browser.run(put, scores | {names[mapping]: value})
            compare(browser)


def test_state_of_a_link_is_opened_and_written(page):
    link = "#view=three&z=0.5,-1.25,2&mapping=fusedmax&lambda=0.4"
    with webdriver.Browser() as chromium:
        chromium.open(page + link)
        shown = compare(chromium)
        assert (shown["z"], shown["mapping"], shown["lambda"]) == ([0.5, -1.25, 2], "fusedmax", 0.4)
        chromium.run("document.getElementById('play-z3').focus()")
        chromium.press("home")
        changed = link.replace("1.25,2", "1.25,-3")
        assert chromium.run("return document.getElementById('play-link').hash") == changed
        chromium.wait(f"return location.hash === {changed!r}")
        chromium.run("location.hash = 'view=three&z=1,1,1&mapping=topk&k=1'")
        chromium.wait("return document.getElementById('play-z3').value === '1'")
        assert compare(chromium)["mapping"] == "topk"


@pytest.mark.parametrize(
    "fragment",
    ["", "#what-to-try", "#view=nine", "#z=1,a,2&alpha=0&mapping=max", "#z=1,2&alpha=&x=%E0%A4%A"],
)
def test_broken_link_shows_the_default_page(browser, page, fragment):
    browser.open("about:blank")
    browser.open(page + fragment)
    shown = compare(browser)
    assert (shown["z"], shown["mapping"], shown["alpha"]) == ([1.2, 0.7, -1], "entmax", 1.5)


def test_links_in_documents_name_states(browser):
    """Every key is understood: the state of the link, written again, is the link."""
    links = set()
    for path in [*DOCS.rglob("*.md"), *(DOCS.parent / "notebooks").rglob("*.ipynb")]:
        links |= set(re.findall(r"play\.md(#[^)\s]*=[^)\s]*)\)", path.read_text("utf-8")))
    assert len(links) > 20
    write = "PlayState.toLink(PlayState.fromLink(link))"
    again = browser.run(f"return arguments[0].map(link => {write})", sorted(links))
    assert again == sorted(links)


def test_python_code_is_shown(browser):
    for mapping in ("topk", "fusedmax", "entmax"):
        choose(browser, mapping)
        code = browser.run("return document.getElementById('play-python').textContent")
        np.testing.assert_allclose(eval(code, {"pe": pe}), state(browser)["p"], rtol=0, atol=ATOL)
