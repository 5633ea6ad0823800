"""The textbook versions: what the papers print, as an oracle of what the library computes."""

from __future__ import annotations

import inspect
from itertools import product
from typing import Any

import numpy as np
import pytest
from parameter_values import EXAMPLES

import pyentmax
from pyentmax import MAPPINGS, Mapping
from pyentmax.reference.mappings import entmax

# What a parameter is tried at, instead of its example; bounds are for D scores.
D = 6
VALUES: dict[str, list[Any]] = {
    "alpha": [1.1, 1.5, 2.0, 3.0],
    "k": [1, 2, D],
    "strength": [0.1, 1.0],
    "upper": [np.array([0.5, 0.1, 1.0, 0.0, 0.3, 0.9]), 1.0, np.full(D, 0.2)],
    "budget": [0.5, 1, 2.5],
}
CASES = [
    pytest.param(record, params, id=f"{name}-{number}")
    for name, record in MAPPINGS.items()
    for number, params in enumerate(
        product(*(VALUES.get(name, [EXAMPLES[name]]) for name in record.parameters))
    )
]
every_case = pytest.mark.parametrize(("record", "params"), CASES)

# The textbook's bisections halve their bracket sixty times; fusedmax's projected gradient, the
# least exact of them all, has come to rest at 1e-12 by then.
TOLERANCE = 1e-11


def scores(record: Mapping | None = None) -> np.ndarray:
    # fusedmax's projected gradient takes a fifth of a second per row.
    count = 2 if record is MAPPINGS["fusedmax"] else 8
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, D)) * np.geomspace(0.1, 4, count)[:, None]


@pytest.mark.parametrize("record", MAPPINGS.values(), ids=MAPPINGS.keys())
def test_every_mapping_has_short_textbook_version(record: Mapping) -> None:
    assert record.textbook is not None
    assert record.jacobian.textbook is not None
    assert (record.loss.textbook is not None) == (record.regularizer.is_defined)
    assert EXAMPLES.keys() >= set(record.parameters)
    lines = [
        line
        for part in (record.textbook, record.jacobian.textbook, record.loss.textbook)
        if part is not None
        for line in inspect.getsource(part).partition('    """\n')[2].splitlines()
    ]
    assert len(lines) <= 25, f"{record.name}: a student can copy fifteen lines, not {len(lines)}"


@every_case
def test_mapping_equals_textbook(record: Mapping, params: tuple[Any, ...]) -> None:
    assert record.textbook is not None
    for z in scores(record):
        found = record(z, *params)
        np.testing.assert_allclose(record.textbook(z, *params), found, rtol=0, atol=TOLERANCE)


@every_case
def test_jacobian_equals_textbook(record: Mapping, params: tuple[Any, ...]) -> None:
    assert record.jacobian.textbook is not None
    for z in scores()[::2]:
        p = record(z, *params)
        found = record.jacobian(p, *params)
        scale = max(1.0, np.abs(found).max())
        expected = record.jacobian.textbook(p, *params)
        np.testing.assert_allclose(expected, found, rtol=0, atol=1e-13 * scale)


@every_case
def test_loss_equals_textbook(record: Mapping, params: tuple[Any, ...]) -> None:
    if record.loss.textbook is None:
        return
    options = dict(zip(record.parameters, params, strict=True))
    for number, z in enumerate(scores(record)[::2]):
        y = number % D
        found = pyentmax.fenchel_young_loss(z, y, record, **options)
        np.testing.assert_allclose(
            record.loss.textbook(z, y, *params), found, rtol=1e-12, atol=10 * TOLERANCE
        )


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_grad_alpha_equals_textbook(alpha: float) -> None:
    """Near α = 1 the printed form cancels: that is what the library's is for."""
    for z in scores()[::2]:
        p = pyentmax.entmax(z, alpha)
        found = pyentmax.entmax.parameter_slope(p, alpha)
        expected = entmax.textbook_grad_alpha(p, alpha)
        np.testing.assert_allclose(expected, found, rtol=0, atol=1e-13 / (alpha - 1) ** 2)
