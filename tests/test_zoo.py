"""The zoo page: its table of properties is computed from the functions that the page prints."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "zoo.md"
ROWS = re.findall(r"^\| `(\w+)` \| (.*) \| .* \|$", PAGE.read_text("utf-8"), re.MULTILINE)
Function = Callable[[np.ndarray], np.ndarray]


@cache
def functions() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(PAGE.read_text("utf-8")):
        if example.source.startswith(("def ", "import ")):
            exec(example.source, names)
    return names


def score_rows() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(5) * scale for scale in (0.3, 1, 1, 3) for _ in range(6)]


def sums_to_1(f: Function) -> bool:
    return all(abs(f(z).sum() - 1) < 1e-12 for z in score_rows())


def has_zeros(f: Function) -> bool:
    return any((f(z) == 0).any() for z in score_rows())


def keeps_order(f: Function) -> bool:
    return all((np.diff(f(z)[np.argsort(z)]) >= -1e-15).all() for z in score_rows())


def ignores_shift(f: Function) -> bool:
    return all(np.allclose(f(z), f(z + 0.7), rtol=0, atol=1e-12) for z in score_rows())


def is_continuous(f: Function) -> bool:
    """No jump between the ends of an interval of 1e-12, found by halving where p changes most."""
    for z, other in zip(score_rows(), score_rows()[1:], strict=False):
        t = np.linspace(0, 1, 51)
        p = np.array([f(z + s * (other - z)) for s in t])
        at = int(np.abs(np.diff(p, axis=0)).max(axis=1).argmax())
        low, high = t[at], t[at + 1]
        while high - low > 1e-12:
            ends = [f(z + s * (other - z)) for s in (low, (low + high) / 2, high)]
            left, right = (np.abs(a - b).max() for a, b in zip(ends, ends[1:], strict=False))
            low, high = (low, (low + high) / 2) if left >= right else ((low + high) / 2, high)
        if np.abs(f(z + low * (other - z)) - f(z + high * (other - z))).max() > 1e-4:
            return False
    return True


def has_loss(f: Function) -> bool:
    """p is the gradient of a convex function: J is symmetric and positive semi-definite."""
    h = 1e-6
    for z in score_rows():
        moved = [(f(z + h * e) - f(z - h * e)) / (2 * h) for e in np.eye(len(z))]
        jacobian = np.array(moved).T
        symmetric = (jacobian + jacobian.T) / 2
        scale = max(1, np.abs(jacobian).max())
        if np.abs(jacobian - symmetric).max() > 1e-4 * scale:
            return False
        if np.linalg.eigvalsh(symmetric).min() < -1e-4 * scale:
            return False
    return is_continuous(f)


CHECKS = (sums_to_1, has_zeros, keeps_order, ignores_shift, is_continuous, has_loss)


@pytest.mark.parametrize(("name", "cells"), ROWS)
def test_table_says_what_functions_do(name: str, cells: str) -> None:
    function = functions()[name]
    found = ["yes" if check(function) else "no" for check in CHECKS]
    assert cells.split(" | ") == found


def test_functions_are_short_and_all_in_the_table() -> None:
    assert len(ROWS) == 15
    blocks = re.findall(
        r"^>>> def (\w+).*\n((?:\.\.\. .*\n)+)", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert {name for name, _ in blocks} == {name for name, _ in ROWS} | {"entmax_with_prior"}
    assert all(len(body.splitlines()) <= 10 for _, body in blocks)
