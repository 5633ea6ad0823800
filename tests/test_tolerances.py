"""Every comparison of floats in the tests says how far apart the two may be.

A tolerance that is not named is NumPy's or pytest's, and looser than what the library promises:
``assert_allclose`` adds a relative 1e-7 to whatever ``atol`` says, ``approx`` an absolute 1e-12 to
whatever ``rel`` says, in which anything that small disappears.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NEEDED = {  # the tolerances that are not zero when left out
    "assert_allclose": {"rtol"},
    "allclose": {"rtol", "atol"},
    "isclose": {"rtol", "atol"},
    "approx": {"abs"},
}
POSITIONAL = 2  # the two values; a third argument without a name would be a tolerance
UNFIT = {"assert_almost_equal", "assert_array_almost_equal"}  # their tolerance is in digits


def unnamed_tolerances(source: str) -> Iterator[tuple[int, str]]:
    """Line and complaint for each comparison that does not name its tolerance."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if name in UNFIT:
            yield node.lineno, f"{name} counts digits: use assert_allclose"
        named = {keyword.arg for keyword in node.keywords}
        missing = NEEDED.get(name, set()) - named
        if missing and None not in named:  # None stands for tolerances that come as a dictionary
            yield node.lineno, f"{name} does not name {' and '.join(sorted(missing))}"
        elif name in NEEDED and len(node.args) > POSITIONAL - (name == "approx"):
            yield node.lineno, f"{name} has a tolerance without a name"


def test_every_comparison_names_its_tolerance() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {complaint}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, complaint in unnamed_tolerances(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("assert_allclose(a, b, atol=1e-9)", "assert_allclose does not name rtol"),
        ("assert_allclose(a, b, 1, rtol=0)", "assert_allclose has a tolerance without a name"),
        ("np.allclose(a, b)", "allclose does not name atol and rtol"),
        ("assert a == pytest.approx(b, rel=1e-9)", "approx does not name abs"),
        ("np.testing.assert_almost_equal(a, b)", "assert_almost_equal counts digits"),
        ("np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)", None),
        ("assert a == pytest.approx(b, abs=1e-14)", None),
    ],
)
def test_unnamed_tolerance_is_reported(source: str, complaint: str | None) -> None:
    found = [(line, text.partition(":")[0]) for line, text in unnamed_tolerances("\n" + source)]
    assert found == ([] if complaint is None else [(2, complaint)])
