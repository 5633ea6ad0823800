"""Properties that hold of every row of MAPPINGS, as its record declares, on random input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from parameter_values import EXAMPLES

from pyentmax import MAPPINGS, Mapping

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
    "budget": lambda d: st.one_of(st.integers(1, d), st.floats(0.01, d)),
    "k": lambda d: st.integers(1, 13),
    "strength": lambda d: st.one_of(st.just(0.0), st.floats(0, 3), st.floats(0, 1e6)),
    "upper": lambda d: hnp.arrays(np.float64, d, elements=st.floats(1 / d, 1)),
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


@records_that(lambda record: record.on_simplex)
@given(data=st.data())
def test_on_the_simplex(record: Mapping, data: st.DataObject) -> None:
    z = data.draw(ROWS)
    params = draw_params(record, data, z)
    p = record(z, *params)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-14)
    assert (record.support(z, *params) >= (p > 0)).all()


@records_that(lambda record: record.shift_invariant)
@given(data=st.data())
def test_shifting_all_scores_changes_nothing(record: Mapping, data: st.DataObject) -> None:
    # Whole numbers of 1/64 shift without rounding.
    z = np.round(data.draw(ROWS) * 64) / 64
    params = draw_params(record, data, z)
    shift = data.draw(st.integers(-1000, 1000))
    np.testing.assert_array_equal(record(z + shift, *params), record(z, *params))


@records_that(lambda record: record.permutation_equivariant)
@given(data=st.data())
def test_permuting_scores_permutes_probabilities(record: Mapping, data: st.DataObject) -> None:
    z = data.draw(ROWS)
    params = draw_params(record, data, z)
    order = np.array(data.draw(st.permutations(range(z.shape[-1]))))
    p, permuted = record(z, *params), record(z[..., order], *params)
    # Sums may round in another order; above α = 2 that matters only at the threshold.
    # normmax is ill-conditioned there above α = 2 too, and at ∞ it jumps.
    beta = 1.0
    if record.name in ("entmax", "normmax"):
        beta = max(1.0, params[0] - 1)
        assume(beta < np.inf)
    np.testing.assert_allclose(p[..., order] ** beta, permuted**beta, rtol=1e-12, atol=1e-13)


@records_that(lambda record: record.permutation_equivariant)
@given(data=st.data())
def test_larger_scores_get_no_less(record: Mapping, data: st.DataObject) -> None:
    z = data.draw(ROWS)
    params = draw_params(record, data, z)
    p = record(z, *params)
    order = np.argsort(z, axis=-1)
    assert (np.diff(np.take_along_axis(p, order, -1), axis=-1) >= 0).all()


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


@records_that(lambda record: record.symmetric)
@given(data=st.data())
def test_jacobian_is_symmetric_positive_semidefinite(record: Mapping, data: st.DataObject) -> None:
    """And J1 = 0 where a shift changes nothing; its products are those of the JVP and the VJP."""
    z = data.draw(ROWS)
    params = draw_params(record, data, z)
    p = record(z, *params)
    jacobian = record.jacobian(p, *params)
    # An entry just inside the support of α > 2 has a slope without bound.
    largest = np.abs(jacobian).max(initial=0)
    assume(largest < 1e100)
    room = 1e-12 * (1 + largest)
    np.testing.assert_array_equal(jacobian, np.swapaxes(jacobian, -1, -2))
    assert np.linalg.eigvalsh(jacobian).min() >= -room
    if record.shift_invariant:
        np.testing.assert_allclose(jacobian.sum(axis=-1), 0, rtol=0, atol=room)
    u, v = data.draw(hnp.arrays(np.float64, (2, *z.shape), elements=st.floats(-1, 1)))
    product = (jacobian @ v[..., None])[..., 0]
    np.testing.assert_allclose(record.jvp(p, v, *params), product, rtol=0, atol=room)
    dual = np.sum(record.vjp(p, u, *params) * v, axis=-1)
    np.testing.assert_allclose(np.sum(u * product, axis=-1), dual, rtol=0, atol=20 * room)
