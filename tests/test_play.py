"""The page to play with: mouse and keyboard move it, and its numbers are the library's."""

from __future__ import annotations

import json
import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdriver

import pyentmax as pe
from pyentmax.reference import thresholds

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(webdriver.DRIVER is None, reason=webdriver.MISSING),
]

DOCS = Path(__file__).parents[1] / "docs"
ATOL = 1e-6  # the page shows two digits; a drawing cannot show more than six
CORNERS = np.array([[150, 24], [24, 242.2], [276, 242.2]])  # of the page's triangle
VIEWS = {
    "three": "#view=three&z=0.5,-1.25,2&mapping=fusedmax&lambda=0.4",
    "four": "#view=four&z=0.5,0.25,2,-1&mapping=topk&k=3&turn=-30,60",
    "race": "#view=race&z=1.2,0.9,0.3&alpha=3&step=4",
    "attention": "#view=attention&query=-1,0.5&mapping=entmax&alpha=inf&scale=2&sink=-0.5",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page's own part, with its scripts and style, as a file."""
    path = tmp_path_factory.mktemp("play") / "play.html"
    return webdriver.write_page(path, (DOCS / "play.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def browser():
    with webdriver.Browser() as chromium:
        yield chromium


@pytest.fixture
def show(browser, page):
    """Open the page at a state; gives the browser."""

    def show(fragment: str = "") -> webdriver.Browser:
        browser.open("about:blank")  # else only the fragment changes
        browser.open(page + fragment)
        return browser

    return show


def state(browser: webdriver.Browser) -> Any:
    return read(browser.run("return document.getElementById('play').dataset.state"))


def read(text: str) -> Any:
    shown = json.loads(text)
    for key in ("alpha", "threshold"):
        if key in shown:
            shown[key] = float(shown[key])
    return shown


def choose(browser: webdriver.Browser, mapping: str) -> None:
    browser.click(f"input[name=play-mapping][value={mapping}]")


def focus(browser: webdriver.Browser, name: str) -> None:
    browser.run("document.getElementById('play-' + arguments[0]).focus()", name)


def mapped(z: Any, shown: Any) -> Any:
    """p as the library has it."""
    if shown["mapping"] == "topk":
        return pe.topk_softmax(z, shown["k"])
    if shown["mapping"] == "fusedmax":
        return pe.fusedmax(z, shown["lambda"])
    return pe.entmax(z, shown["alpha"])


def jacobian(p: Any, shown: Any) -> Any:
    if shown["mapping"] == "topk":
        return pe.topk_softmax.jacobian(p, shown["k"])
    if shown["mapping"] == "fusedmax":
        return pe.fusedmax.jacobian(p, shown["lambda"])
    return pe.entmax.jacobian(p, shown["alpha"])


READ = (
    "const read = () => { const c = document.querySelector('#play-simplex .play-point');"
    " return [document.getElementById('play').dataset.state,"
    " Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))] };"
)


def compare(browser: webdriver.Browser) -> Any:
    """Everything that the page says of three scores, against the library."""
    return check(*browser.run(f"{READ} return read()"))


def check(text: str, x: float, y: float) -> Any:
    shown = read(text)
    p = compare_p(shown)
    np.testing.assert_allclose(
        shown["jacobian"], jacobian(p, shown), rtol=ATOL, atol=ATOL, err_msg=str(shown)
    )
    threshold, alpha = shown["threshold"], shown["alpha"]
    if shown["mapping"] == "entmax" and 1 < alpha < np.inf:
        above = np.maximum(np.array(shown["z"]) - threshold, 0)
        again = ((alpha - 1) * above) ** (1 / (alpha - 1))
        np.testing.assert_allclose(again, p, rtol=0, atol=1e-4)  # of a difference, by a root
    if shown["mapping"] == "topk":
        assert threshold == sorted(shown["z"])[-shown["k"]]
    np.testing.assert_allclose([x, y], p @ CORNERS, rtol=0, atol=1e-3)
    return shown


def compare_p(shown: Any) -> Any:
    p = mapped(shown["z"], shown)
    np.testing.assert_allclose(shown["p"], p, rtol=0, atol=ATOL, err_msg=str(shown))
    np.testing.assert_array_equal(np.array(shown["p"]) > 0, p > 0, err_msg=str(shown))
    return p


# --- three scores ---------------------------------------------------------------------------------


def test_dragging_parameters_reaches_both_ends(show):
    browser = show()
    browser.drag("#play-alpha", 0.25, 0.0)
    assert compare(browser)["alpha"] == 1
    browser.drag("#play-alpha", 0.01, 1.0)
    assert compare(browser)["alpha"] == np.inf
    choose(browser, "topk")
    assert browser.run("return document.getElementById('play-alpha-row').hidden")
    browser.drag("#play-k", 0.5, 1.0)
    assert compare(browser)["k"] == 3


def test_keyboard_moves_everything(show):
    browser = show()
    focus(browser, "z2")
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


def test_values_agree_with_the_library(show):
    """Many positions of the sliders, ties and both ends among them, set without a mouse."""
    rng = np.random.default_rng(0)
    rows = [*rng.uniform(-3, 3, size=(12, 3)).round(2).tolist(), [1, 1, 0], [0, 0, 0], [3, -3, 3]]
    sliders = {"entmax": (0, 0.5, 20, 33.5, 50, 60, 75, 100), "topk": (1, 2, 3)}
    sliders["fusedmax"] = (0, 0.25, 0.8, 2)
    names = {"entmax": "alpha", "topk": "k", "fusedmax": "lambda"}
    put = (
        f"{READ} return arguments[0].map(values => {{"
        " for (const [name, value] of Object.entries(values)) {"
        "  const slider = document.getElementById('play-' + name); slider.value = value;"
        "  slider.dispatchEvent(new Event('input', {bubbles: true})) }"
        " return read() })"
    )
    browser = show()
    for mapping, values in sliders.items():
        choose(browser, mapping)
        cases = [
            {"z1": z1, "z2": z2, "z3": z3, names[mapping]: value}
            for (z1, z2, z3), value in product(rows, values)
        ]
        for shown in browser.run(put, cases):
            assert check(*shown)["mapping"] == mapping


# --- four scores ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mapping", ["entmax&alpha=1", "entmax&alpha=2", "topk&k=2"])
def test_tetrahedron_counts_supports(show, mapping):
    shown = state(show(f"#view=four&z=1,0.5,0,-1&mapping={mapping}"))
    compare_p(shown)
    steps = 1.1673039782614187 ** -np.arange(1.0, 5)
    scores = 3 * ((0.5 + np.arange(1, 401)[:, None] * steps) % 1 - 0.5)
    sizes = np.count_nonzero(mapped(scores, shown), axis=-1)
    assert shown["counts"] == np.bincount(sizes, minlength=5).tolist()


# --- the race to τ --------------------------------------------------------------------------------


def race_of(z: Any, alpha: float) -> str:
    return f"#view=race&z={','.join(map(str, z))}&alpha={alpha}&step=0"


@pytest.mark.parametrize("alpha", [1.05, 1.25, 1.5, 2, 3, 4.5])
def test_race_agrees_with_the_library(show, alpha):
    z = np.random.default_rng(1).uniform(-3, 3, 8).round(2)
    shown = state(show(race_of(z, alpha)))
    x = (alpha - 1) * z
    tau = thresholds.bisection(x, alpha).tau
    np.testing.assert_allclose([shown["tau"]], tau, rtol=0, atol=1e-14)
    low, high = np.transpose(shown["brackets"])
    np.testing.assert_allclose(low[0], x.max() - 1, rtol=0, atol=1e-14)
    np.testing.assert_allclose(high[0], x.max() - 8 ** (1 - alpha), rtol=0, atol=1e-14)
    for passes in (1, 5, 20):
        found = thresholds.bisection(x, alpha, passes).tau
        np.testing.assert_allclose([low[passes]], found, rtol=0, atol=1e-14)
    assert ((low <= shown["tau"] + 1e-14) & (shown["tau"] - 1e-14 <= high)).all()
    iterates = shown["iterates"]
    np.testing.assert_allclose(iterates["bisection"], (low + high) / 2, rtol=0, atol=1e-14)
    for before, after in pairwise(iterates["newton"]):
        if before is None or before >= x.max():  # F is 0 there, without a slope
            assert after is None
            continue
        u = x[x > before] - before
        b = 1 / (alpha - 1)
        aimed = before + (np.sum(u**b) - 1) / (b * np.sum(u ** (b - 1)))
        np.testing.assert_allclose(after, aimed, rtol=0, atol=1e-12)
    if alpha <= 2:
        found = thresholds.newton_threshold(x, alpha).tau
        np.testing.assert_allclose([iterates["newton"][-1]], found, rtol=0, atol=1e-14)
        assert (np.diff(iterates["newton"]) >= -1e-15).all()  # it rises to τ
        np.testing.assert_allclose([iterates["halley"][-1]], tau, rtol=0, atol=1e-14)


# --- attention ------------------------------------------------------------------------------------


def compare_attention(browser: webdriver.Browser) -> Any:
    shown = state(browser)
    keys = np.array(shown["keys"], float)
    options: dict[str, Any] = {"scale": float(shown["scale"]), "return_weights": True}
    if shown["sink"] is not None:
        options["sink"] = float(shown["sink"])
    if shown["mapping"] == "topk":
        options |= {"mapping": "topk_softmax", "k": shown["k"]}
    elif shown["mapping"] == "fusedmax":
        options |= {"mapping": "fusedmax", "strength": shown["lambda"]}
    else:
        options["alpha"] = shown["alpha"]
    output, weights = pe.attention([shown["query"]], keys, keys, **options)
    expected = weights.to_dense()[0]
    message = str(shown)
    np.testing.assert_allclose(shown["weights"], expected, rtol=0, atol=ATOL, err_msg=message)
    np.testing.assert_array_equal(np.array(shown["weights"]) > 0, expected > 0, err_msg=message)
    np.testing.assert_allclose(shown["output"], output[0], rtol=0, atol=ATOL, err_msg=message)
    assert abs(sum(shown["weights"]) + shown["sunk"] - 1) < 1e-9
    return shown


def test_attention_agrees_with_the_library(show):
    queries, sinks = ("1.5,0.4", "-1,1", "0,0"), ("", "&sink=-1", "&sink=1.5")
    mappings = ("entmax&alpha=1", "entmax&alpha=1.5", "entmax&alpha=3", "topk&k=2")
    cases = [*product(mappings, sinks), ("fusedmax&lambda=0.3", ""), ("entmax&alpha=inf", "")]
    browser = show()
    for query, (mapping, sink) in product(queries, cases):
        if query == "0,0" and mapping.startswith("topk"):
            continue  # nine ties for two places
        fragment = f"#view=attention&query={query}&mapping={mapping}&scale=1.5{sink}"
        browser.run("location.hash = arguments[0]", fragment)
        browser.wait(f"return document.getElementById('play-link').hash === {fragment!r}")
        compare_attention(browser)


# --- links, phones, labels ------------------------------------------------------------------------


def test_links_in_documents_name_states(show):
    """Every key is understood: the state of the link, written again, has all of the link."""
    links = set()
    for path in [*DOCS.rglob("*.md"), *(DOCS.parent / "notebooks").rglob("*.ipynb")]:
        links |= set(re.findall(r"play\.md(#[^)\s]*=[^)\s]*)\)", path.read_text("utf-8")))
    assert len(links) > 20
    write = "PlayState.toLink(PlayState.fromLink(link))"
    again = show().run(f"return arguments[0].map(link => {write})", sorted(links))
    for link, written in zip(sorted(links), again, strict=True):
        assert set(link[1:].split("&")) <= set(written[1:].split("&")), link


@pytest.mark.parametrize("view", VIEWS)
def test_python_code_is_shown(show, view):
    browser = show(VIEWS[view])
    for mapping in ("topk", "fusedmax", "entmax") if view != "race" else (None,):
        if mapping:
            choose(browser, mapping)
        code = browser.run("return document.getElementById('play-python').textContent")
        found, shown = eval(code, {"pe": pe}), state(browser)
        key = {"race": "tau", "attention": "output"}.get(view, "p")
        np.testing.assert_allclose(np.ravel(found), np.ravel(shown[key]), rtol=0, atol=ATOL)
