"""The documentation: names in the table of equations exist, and a broken site is reported."""

from __future__ import annotations

import ast
import pkgutil
import re
import runpy
from functools import cache
from os.path import normpath
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EQUATIONS = ROOT / "docs" / "equations.md"
ROW = re.compile(r"^\| (?!there |---)(.*) \|$", re.MULTILINE)


def rows(text: str) -> list[list[str]]:
    """The cells of every row: there, what, function, test, notebook."""
    return [line.split(" | ") for line in ROW.findall(text)]


def exists(name: str) -> bool:
    full_name = name if name.startswith(("pyentmax.", "experiments.")) else f"pyentmax.{name}"
    try:
        pkgutil.resolve_name(full_name)
    except (ImportError, AttributeError):
        return False
    return True


@cache
def functions_of(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def is_test(place: str) -> bool:
    path, _, name = place.partition("::")
    return name in functions_of(ROOT / path)


def is_section(number: str, link: str) -> bool:
    """Whether the notebook has a section of that number; Sphinx checks the rest of the link."""
    path = EQUATIONS.parent / link.partition("#")[0]
    heading = re.compile(rf'"#+ {re.escape(number)}[ :]')  # as it stands in the notebook's JSON
    return path.is_file() and bool(heading.search(path.read_text(encoding="utf-8")))


def faults(text: str) -> list[str]:
    """What the table names that is not there."""
    missing = []
    for there, what, function, test, notebook in rows(text):
        where = f"{there} ({what})"
        missing += [f"{where}: no {f}" for f in re.findall(r"`(.+?)`", function) if not exists(f)]
        missing += [f"{where}: no {t}" for t in re.findall(r"`(.+?)`", test) if not is_test(t)]
        sections = re.findall(r"\[(.+?)\]\((.+?)\)", notebook)
        missing += [f"{where}: no section {n}" for n, link in sections if not is_section(n, link)]
        if not re.fullmatch(r"(`[^`]+`(, )?)+", function) or not re.fullmatch("`[^`]+`", test):
            missing.append(f"{where}: needs functions and a test")
        if not sections and notebook != "–":
            missing.append(f"{where}: neither a section nor –")
    return missing


def test_names_in_equations_exist():
    text = EQUATIONS.read_text(encoding="utf-8")
    assert len(rows(text)) > 60
    assert not faults(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("`entmax_grad_alpha`", "`entmax_grad_beta`", "no entmax_grad_beta"),
        (
            "`pyentmax.reference.thresholds.bisection`",
            "`pyentmax.reference.thresholds.guess`",
            "no pyentmax.reference.th",
        ),
        ("tests/reference/test_entropies.py", "tests/test_nothing.py", "test_nothing.py"),
        ("[1.7](", "[1.99](", "no section 1.99"),
        ("03_finding_the_threshold.ipynb", "03_guessing.ipynb", "no section 3"),
        ("`topk_softmax_support`", "–", "needs functions and a test"),
    ],
)
def test_missing_names_are_reported(old, new, message):
    text = EQUATIONS.read_text(encoding="utf-8")
    assert old in text
    reported = faults(text.replace(old, new))
    assert reported
    assert all(message in fault for fault in reported)


def sidebar() -> dict[str, list[str]]:
    """The pages of each group of the sidebar, but for the guide's own."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"^:caption: (.*)\n\n((?:.+\n)+?)```", text, re.MULTILINE)
    return {
        caption: [
            normpath(f"docs/{page}")
            # a line is a page, or `title <page>`
            for page in re.findall(r"([^\s<>]+)>?$", pages, re.MULTILINE)
            if page != "guide/README"
        ]
        for caption, pages in trees
    }


def guide() -> dict[str, list[str]]:
    """The page of each line of the guide's tables, by heading."""
    text = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8")
    groups = {}
    for group in text.split("\n## ")[1:]:
        links = re.findall(r"^\| .* \| [^|]*?\]\(([^)#]+)\.(?:md|rst)\)", group, re.MULTILINE)
        groups[group.splitlines()[0]] = [normpath(f"docs/guide/{link}") for link in links]
    return groups


def test_faq_time_for_crowded_rows_covers_measurements():
    page = (ROOT / "experiments" / "measurements" / "cpu.md").read_text(encoding="utf-8")
    faq = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    table = page.partition("## Size of the support")[2].partition("\n## ")[0]
    measured = [[float(x.replace(",", "")) for x in row] for row in rows(table)[1:]]
    promised = re.findall(r"up to ([\d.]+) where nearly all scores", faq)
    assert len(measured) > 5
    assert max(max(row[2], row[4]) for row in measured) <= float(promised[0])


def test_the_guide_has_the_groups_of_the_sidebar():
    assert guide() == sidebar()


# --- the built site ---


check_site = runpy.run_path(str(ROOT / "docs" / "check_site.py"))["main"]

GOOD = """
<link rel="stylesheet" href="_static/a.css"><script src="_static/a.js?v=1"></script>
<h2 id="α-entmax">α</h2> <a href="https://cupy.dev">elsewhere</a> <a href="#%CE%B1-entmax">up</a>
<a href="api/b.html#x">b</a> <img src="data:image/png;base64,AA" alt="three curves that meet">
"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "api").mkdir()
    (tmp_path / "_static").mkdir()
    (tmp_path / "index.html").write_text(GOOD, encoding="utf-8")
    (tmp_path / "api" / "b.html").write_text('<p id="x"><a href="../index.html">a</a>')
    (tmp_path / "_static" / "a.js").write_text("")
    (tmp_path / "_static" / "a.css").write_text("p { background: url(a.png) }")
    return tmp_path


def test_good_site_has_no_fault(site, capsys):
    assert check_site(site) == 0
    assert "no dead link" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('<a href="api/c.html">c</a>', "there is no api/c.html"),
        ('<a href="api/b.html#y">y</a>', "api/b.html#y has no such place"),
        ('<a href="#nowhere">y</a>', "#nowhere has no such place"),
        ('<img src="_static/gone.png" alt="a picture that is gone">', "there is no _static/gone"),
        ('<img src="data:image/png;base64,AA">', "no text describes the picture data:"),
        ('<img src="data:image/png;base64,AA" alt="plot">', "no text describes"),
        ('<script src="https://cdn.example/mathjax.js"></script>', "fetches https://cdn.example"),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', "fetches //fonts.example"),
    ],
)
def test_bad_page_is_reported(site, capsys, bad, message):
    with (site / "index.html").open("a", encoding="utf-8") as page:
        page.write(bad)
    assert check_site(site) == 1
    assert f"index.html: {message}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "rule", ['@import "https://fonts.example/a"', "p { src: url(//fonts.example/a.woff) }"]
)
def test_remote_style_is_reported(site, capsys, rule):
    (site / "_static" / "a.css").write_text(rule)
    assert check_site(site) == 1
    assert "fonts.example" in capsys.readouterr().out
