"""Each row of docs/migration.md gives the same numbers on both sides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyentmax

PAGE = Path(__file__).parents[1] / "docs" / "migration.md"
ROW = re.compile(r"^\| `(?P<theirs>[^`]+\))` \| `(?P<ours>[^`]+)` \|", re.MULTILINE)
ROWS = [(match["theirs"], match["ours"]) for match in ROW.finditer(PAGE.read_text("utf-8"))]
RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "z": RNG.standard_normal((7, 6)),
    "g": RNG.standard_normal((7, 6)),
    "labels": np.array([0, 1, 2, 3, 4, 5, 0]),
    "alpha": np.linspace(1.1, 2, 7),
}


def test_every_row_of_the_tables_is_read():
    text = PAGE.read_text("utf-8")
    rules = len(re.findall(r"^\| --- ", text, re.MULTILINE))
    assert len(ROWS) == text.count("\n| ") - 2 * rules > 0


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[theirs for theirs, _ in ROWS])
def test_both_sides_of_a_row_agree(theirs, ours):
    reason = "is not installed; pip install --group bench"
    torch = pytest.importorskip("torch", reason=f"PyTorch {reason}")
    entmax = pytest.importorskip("entmax", reason=f"entmax {reason}")
    tensors = {
        "X": torch.tensor(ARRAYS["z"], requires_grad=True),
        "G": torch.tensor(ARRAYS["g"]),
        "y": torch.tensor(ARRAYS["labels"]),
        "alphas": torch.tensor(ARRAYS["alpha"][:, None], requires_grad=True),
        "grad": lambda *args: torch.autograd.grad(*args)[0],
    }
    expected = eval(theirs, vars(entmax) | tensors).detach().numpy()
    got = np.asarray(eval(ours, vars(pyentmax) | ARRAYS))
    # Their α's axis of length 1; bisection in float64 leaves 50 bits.
    np.testing.assert_allclose(got, expected.reshape(got.shape), rtol=0, atol=1e-9)
    from pyentmax.torch import entmax_package as same_names

    again = eval(theirs, vars(same_names) | tensors).detach().numpy()
    np.testing.assert_allclose(again, expected, rtol=0, atol=1e-9)


def test_no_name_of_theirs_is_left_out():
    entmax = pytest.importorskip("entmax", reason="entmax is not installed")
    public = {
        name
        for name, value in vars(entmax).items()
        if callable(value) and value.__module__.startswith("entmax.")
    }
    named = set(re.findall(r"\w+", " ".join(theirs for theirs, _ in ROWS)))
    assert len(public) >= 20
    assert public <= named
