"""What makes a mapping one: p maximises its problem, and its loss is convex and 0 at p."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from parameter_values import EXAMPLES

from pyentmax import (
    MAPPINGS,
    Mapping,
    fenchel_young_loss,
    fenchel_young_loss_and_grad,
    sparsemax,
    topk_sparsemax,
)

ROWS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=12),
    elements=st.floats(-50, 50, allow_subnormal=False),
)
ALPHAS = st.one_of(st.sampled_from([1.0, 1.5, 2.0]), st.floats(1, 6))
# The values that a parameter may take for rows of d scores, by its name or the mapping's.
PARAMETERS: dict[str, Callable[[int], st.SearchStrategy[Any]]] = {
    "alpha": lambda d: ALPHAS,
    "normmax": lambda d: st.one_of(st.sampled_from([1.01, 2.0, np.inf]), st.floats(1.01, 6)),
    "k": lambda d: st.integers(1, 13),
    "strength": lambda d: st.one_of(st.just(0.0), st.floats(0, 3), st.floats(0, 1e6)),
}


def records_that(declare: Callable[[Mapping], bool]) -> pytest.MarkDecorator:
    """A test of all the records that declare to have what it tests."""
    records = {name: record for name, record in MAPPINGS.items() if declare(record)}
    return pytest.mark.parametrize("record", records.values(), ids=records.keys())


def draw_params(record: Mapping, data: st.DataObject, z: np.ndarray) -> tuple[Any, ...]:
    return tuple(
        data.draw(PARAMETERS[key](z.shape[-1])) if key in PARAMETERS else EXAMPLES[name]
        for name in record.parameters
        for key in (record.name if record.name in PARAMETERS else name,)
    )


@records_that(lambda record: record.regularizer.is_defined)
@given(data=st.data())
def test_maximises_its_own_problem(record: Mapping, data: st.DataObject) -> None:
    """No other point of the simplex has a larger p·z − Ω(p)."""
    z = data.draw(ROWS)
    params = draw_params(record, data, z)
    weights = data.draw(hnp.arrays(np.float64, z.shape, elements=st.floats(0, 1)))
    assume((weights.sum(axis=-1) > 1e-3).all())
    q = weights / weights.sum(axis=-1, keepdims=True)
    p = record(z, *params)
    best = np.sum(p * z, axis=-1) - record.regularizer(p, *params)
    other = np.sum(q * z, axis=-1) - record.regularizer(q, *params)
    assert (best >= other - 1e-12 * (1 + np.abs(z).max() + np.abs(best))).all()


D = 5
ROW = hnp.arrays(np.float64, D, elements=st.floats(-20, 20, allow_subnormal=False))
WEIGHTS = hnp.arrays(np.float64, D, elements=st.floats(0, 1, allow_subnormal=False))
has_a_loss = records_that(lambda record: record.regularizer.is_defined)


def draw_target(data: st.DataObject) -> np.ndarray:
    """A distribution, often a corner or on an edge."""
    weights = data.draw(WEIGHTS.filter(lambda w: w.sum() > 1e-3))
    return weights / weights.sum()


def draw_problem(record: Mapping, data: st.DataObject) -> tuple[np.ndarray, Any, dict[str, Any]]:
    z = data.draw(ROW)
    y = data.draw(st.integers(0, D - 1)) if data.draw(st.booleans()) else draw_target(data)
    # A strength beyond every gap only fuses all scores; past 1e6 rounding is all that is left.
    values = [min(v, 100.0) if isinstance(v, float) else v for v in draw_params(record, data, z)]
    if isinstance(y, np.ndarray) and np.isinf(record.regularizer(y, *values)):
        y = np.eye(D)[np.argmax(y)]  # top-k sparsemax has no finite loss with so many non-zeros
    return z, y, dict(zip(record.parameters, values, strict=True))


def size_of(record: Mapping, z: np.ndarray, params: dict[str, Any]) -> float:
    """The size of the terms that a loss is computed from: its rounding is some ε of that."""
    uniform = np.full(D, 1 / D)
    omega = np.abs(record.regularizer(uniform, *params.values()))
    omega = np.where(np.isinf(omega), 0, omega)
    corner = np.abs(record.regularizer(np.eye(D)[0], *params.values()))
    return float(1 + np.ptp(z) + omega + corner)


@has_a_loss
@given(data=st.data())
def test_non_negative_and_zero_at_p(record: Mapping, data: st.DataObject) -> None:
    z, y, params = draw_problem(record, data)
    assert fenchel_young_loss(z, y, record, **params) >= 0
    p = record(z, *params.values())
    assert fenchel_young_loss(z, p, record, **params) <= 1e-13 * size_of(record, z, params)


@has_a_loss
@given(data=st.data())
def test_convex_with_gradient_p_minus_q(record: Mapping, data: st.DataObject) -> None:
    """The tangent at any point lies below: L(z') ≥ L(z) + (p − q)·(z' − z)."""
    z, y, params = draw_problem(record, data)
    other = data.draw(ROW)
    loss, grad = fenchel_young_loss_and_grad(z, y, record, **params)
    q = y if isinstance(y, np.ndarray) else np.eye(D)[y]
    np.testing.assert_allclose(grad, record(z, *params.values()) - q, rtol=0, atol=1e-15)
    elsewhere = fenchel_young_loss(other, y, record, **params)
    room = 1e-13 * (size_of(record, z, params) + size_of(record, other, params))
    assert elsewhere >= loss + grad @ (other - z) - room
    middle = fenchel_young_loss((z + other) / 2, y, record, **params)
    assert middle <= (loss + elsewhere) / 2 + room


def least_distance(z: np.ndarray, k: int) -> float:
    """The least ½‖p − z‖² over all supports of k entries, each with sparsemax's own p."""
    least = np.inf
    for support in combinations(range(len(z)), min(k, len(z))):
        p = np.zeros(len(z))
        p[list(support)] = sparsemax(z[list(support)])
        least = min(least, float(np.sum((p - z) ** 2) / 2))
    return least


@pytest.mark.parametrize("form", ["", "reference"])
@pytest.mark.parametrize("k", [1, 2, 3, 7, 9])
def test_no_other_support_is_nearer(form: str, k: int) -> None:
    for z in np.random.default_rng(k).standard_normal((8, 7)) * 0.7:
        p = (topk_sparsemax.reference if form else topk_sparsemax)(z, k)
        assert np.count_nonzero(p) <= k
        np.testing.assert_allclose(np.sum((p - z) ** 2) / 2, least_distance(z, k), rtol=1e-13)
