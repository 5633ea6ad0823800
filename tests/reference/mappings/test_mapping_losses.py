"""What holds of the Fenchel-Young loss of every record that has an Ω (Peters App. A.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_mapping_properties import draw_params, records_that

from pyentmax import (
    Mapping,
    fenchel_young_loss,
    fenchel_young_loss_and_grad,
)

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
    assert record.regularizer.is_defined
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


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
def test_loss_ignores_offset_for_rounded_targets(name: str) -> None:
    """With Σq ≠ 1, Ω*(z) + Ω(q) − q·z changes with an offset of z by (1 − Σq) of it."""
    z, q = np.array([0.5, 0.25, -1.0]), np.array([0.5, 0.25, 0.2494])
    loss = fenchel_young_loss(z, q, name)
    for offset in (2.0**13, -(2.0**13)):
        assert fenchel_young_loss(z + offset, q, name) == loss
