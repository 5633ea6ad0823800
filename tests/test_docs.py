"""The documentation: names in the table of equations exist, and a broken site is reported."""

from __future__ import annotations

import ast
import csv
import pkgutil
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
EQUATIONS = ROOT / "docs" / "equations.md"
ROW = re.compile(r"^\| (?!there |---)(.*) \|$", re.MULTILINE)


def rows(text: str) -> list[list[str]]:
    """The cells of every row; of the equations: there, what, where."""
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
    for there, what, where in rows(text):
        functions = re.findall(r"`(.+?)`", where)
        sections = re.findall(r"\[(.+?)\]\((.+?)\)", where)
        missing += [f"{there} ({what}): no {f}" for f in functions if not exists(f)]
        missing += [
            f"{there} ({what}): no section {n}" for n, x in sections if not is_section(n, x)
        ]
        if not functions:
            missing.append(f"{there} ({what}): needs a function")
    return missing


def test_names_in_equations_exist():
    text = EQUATIONS.read_text(encoding="utf-8")
    assert len(rows(text)) > 60
    assert not faults(text)


def test_equations_have_tests_that_exist():
    with (ROOT / "tests" / "equations.csv").open(encoding="utf-8") as file:
        named = list(csv.DictReader(file))
    page = EQUATIONS.read_text(encoding="utf-8")
    assert len(named) > len(rows(page))  # a row may stand for several
    assert not [row for row in named if not is_test(row["test"])]
    assert all(f"\n## {row['text']}\n" in page for row in named)
