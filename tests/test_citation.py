"""Every source that a mapping or a search for its threshold names stands in CITATION.cff."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pyentmax

ROOT = Path(__file__).parents[1]
PACKAGE = Path(str(pyentmax.__file__)).parent
# "Peters et al. 2019", "Niculae & Blondel (2017)", "Amos, Koltun & Kolter 2019", "Johnson's (2013)"
NAMED = re.compile(r"([A-Z]\w+)(?:'s| et al\.|(?:, [A-Z]\w+)* & [A-Z]\w+)? \(?((?:19|20)\d\d)\b")

pytestmark = pytest.mark.skipif(
    not (ROOT / "CITATION.cff").is_file(), reason="CITATION.cff is not beside the tests"
)


def cited(text: str) -> set[tuple[str, str]]:
    """(first author, year) of all references."""
    found = set()
    for entry in text.split("\n  - type: ")[1:]:
        author = re.search(r'family-names: "?([^",}]+)', entry)
        year = re.search(r"^    year: (\d+)$", entry, re.MULTILINE)
        assert author, entry
        assert year, entry
        found.add((author[1].strip(), year[1]))
    return found


def test_sources_of_mappings_and_thresholds_can_be_cited():
    known = cited((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    named = set()
    for folder in ("mappings", "thresholds"):
        for file in (PACKAGE / folder).glob("*.py"):
            named |= {match.groups() for match in NAMED.finditer(file.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert not named - known
