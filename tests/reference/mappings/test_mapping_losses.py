"""What holds of the Fenchel-Young loss of every record that has an Ω (Peters App. A.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_mapping_properties import draw_params, records_that

import pyentmax
from pyentmax import (
    MAPPINGS,
    Mapping,
    check_jacobian,
    fenchel_young_loss,
    fenchel_young_loss_and_grad,
)

D = 5
ROW = hnp.arrays(np.float64, D, elements=st.floats(-20, 20, allow_subnormal=False))
WEIGHTS = hnp.arrays(np.float64, D, elements=st.floats(0, 1, allow_subnormal=False))
has_a_loss = records_that(lambda record: record.omega is not None)


def draw_target(data: st.DataObject) -> np.ndarray:
    """A distribution, often a corner or on an edge."""
    weights = data.draw(WEIGHTS.filter(lambda w: w.sum() > 1e-3))
    return weights / weights.sum()


def draw_problem(record: Mapping, data: st.DataObject) -> tuple[np.ndarray, Any, dict[str, Any]]:
    z = data.draw(ROW)
    y = data.draw(st.integers(0, D - 1)) if data.draw(st.booleans()) else draw_target(data)
    # A strength beyond every gap only fuses all scores; past 1e6 rounding is all that is left.
    values = [min(v, 100.0) if isinstance(v, float) else v for v in draw_params(record, data, z)]
    assert record.omega is not None
    if isinstance(y, np.ndarray) and np.isinf(record.omega(y, *values)):
        y = np.eye(D)[np.argmax(y)]  # top-k sparsemax has no finite loss with so many non-zeros
    return z, y, dict(zip(record.parameters, values, strict=True))


def size_of(record: Mapping, z: np.ndarray, params: dict[str, Any]) -> float:
    """The size of the terms that a loss is computed from: its rounding is some ε of that."""
    uniform = np.full(D, 1 / D)
    omega = np.abs(record.omega(uniform, *params.values()))
    omega = np.where(np.isinf(omega), 0, omega)
    corner = np.abs(record.omega(np.eye(D)[0], *params.values()))
    return float(1 + np.ptp(z) + omega + corner)


@has_a_loss
@given(data=st.data())
def test_non_negative_and_zero_at_p(record: Mapping, data: st.DataObject) -> None:
    z, y, params = draw_problem(record, data)
    assert fenchel_young_loss(z, y, record, **params) >= 0
    p = record.forward(z, *params.values())
    assert fenchel_young_loss(z, p, record, **params) <= 1e-13 * size_of(record, z, params)


@has_a_loss
@given(data=st.data())
def test_convex_with_gradient_p_minus_q(record: Mapping, data: st.DataObject) -> None:
    """The tangent at any point lies below: L(z') ≥ L(z) + (p − q)·(z' − z)."""
    z, y, params = draw_problem(record, data)
    other = data.draw(ROW)
    loss, grad = fenchel_young_loss_and_grad(z, y, record, **params)
    q = y if isinstance(y, np.ndarray) else np.eye(D)[y]
    np.testing.assert_allclose(grad, record.forward(z, *params.values()) - q, rtol=0, atol=1e-15)
    elsewhere = fenchel_young_loss(other, y, record, **params)
    room = 1e-13 * (size_of(record, z, params) + size_of(record, other, params))
    assert elsewhere >= loss + grad @ (other - z) - room
    middle = fenchel_young_loss((z + other) / 2, y, record, **params)
    assert middle <= (loss + elsewhere) / 2 + room


@has_a_loss
@given(data=st.data(), t=st.floats(0.1, 10))
def test_temperature_scales_loss(record: Mapping, data: st.DataObject, t: float) -> None:
    """L_{tΩ}(z; q) = t L_Ω(z/t; q), where tΩ is a record of one's own."""
    z, y, params = draw_problem(record, data)
    omega = record.omega
    assert omega is not None
    vertices = None if record.omega_at_vertices is None else t * record.omega_at_vertices
    tempered = replace(
        record,
        name="tempered",
        forward=lambda z, *values, **options: record.forward(z / t, *values, **options),
        omega=lambda p, *values, **options: t * omega(p, *values, **options),
        omega_at_vertices=vertices,
        conjugate=None,
        loss=None,
        loss_and_grad=None,
    )
    np.testing.assert_allclose(
        fenchel_young_loss(z, y, tempered, **params),
        t * fenchel_young_loss(z / t, y, record, **params),
        rtol=1e-12,
        atol=1e-13 * (1 + t) * size_of(record, z / t, params),
    )


STRONGLY_CONVEX: list[tuple[str, tuple[float, ...]]] = [
    ("softmax", ()),
    ("sparsemax", ()),
    ("entmax15", ()),
    *(("entmax", (alpha,)) for alpha in (0.2, 1.0, 1.1, 1.5, 1.9, 2.0)),
    *(("fusedmax", (strength,)) for strength in (0.0, 0.1, 5.0)),
    *(("oscarmax", (strength,)) for strength in (0.0, 0.1, 5.0)),
]


@pytest.mark.parametrize(("name", "params"), STRONGLY_CONVEX)
@given(z=ROW, direction=ROW, size=st.sampled_from([1e-6, 1e-3, 0.1, 1.0]))
def test_gradient_is_lipschitz_if_omega_strongly_convex(
    name: str, params: tuple[float, ...], z: np.ndarray, direction: np.ndarray, size: float
) -> None:
    """Ω'' ≥ 1 on the simplex for Tsallis' entropies with α ≤ 2 and whatever adds to ½‖p‖²: so the
    gradient p − q moves no farther than z does."""
    other = z + size * direction
    step = np.linalg.norm(record_forward(name, z, params) - record_forward(name, other, params))
    assert step <= np.linalg.norm(other - z) + 1e-13
    if name == "softmax":  # strongly convex even in the 1-norm (Pinsker): the dual is the largest
        moved = np.abs(pyentmax.softmax(z) - pyentmax.softmax(other)).sum()
        assert moved <= np.abs(other - z).max() + 1e-14


def record_forward(name: str, z: np.ndarray, params: tuple[float, ...]) -> Any:
    return MAPPINGS[name].forward(z, *params)


@pytest.mark.parametrize("alpha", [2.5, 4, 10])
def test_gradient_is_not_lipschitz_above_alpha_2(alpha: float) -> None:
    """Ω'' = p^{α−2} nears 0 with p: small entries trade places fast."""
    p = np.array([[0.78, 0.12, 0.1], [0.78, 0.1, 0.12]])
    z = p ** (alpha - 1) / (alpha - 1)
    # p is exact for scores moved by 8ε, and a score moves the least p by p^{2−α}.
    digits = 16 * np.finfo(float).eps * 0.1 ** (1 - alpha)
    np.testing.assert_allclose(pyentmax.entmax(z, alpha), p, rtol=digits)
    assert np.linalg.norm(p[0] - p[1]) > 2 * np.linalg.norm(z[0] - z[1])


@pytest.mark.parametrize(
    ("name", "params"),
    [("softmax", ()), ("fusedmax", (0.1,)), *(("entmax", (a,)) for a in (1.1, 2, 3)),
     ("normmax", (1.5,))],
)  # fmt: skip
def test_hessian_is_the_jacobian(name: str, params: tuple[float, ...]) -> None:
    record = MAPPINGS[name]
    z = np.random.default_rng(0).standard_normal(4) / 2
    named = dict(zip(record.parameters, params, strict=True))

    def gradient(z: np.ndarray) -> Any:
        return fenchel_young_loss_and_grad(z, 1, record, **named)[1]

    # Adding e_y to the gradient would round p, and tell fused entries apart that are equal.
    jacobian = record.jacobian(record.forward(z, *params), *params)
    check_jacobian(gradient, z, lambda _: jacobian, rtol=1e-5).raise_if_failed()


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
def test_loss_ignores_offset_for_rounded_targets(name: str) -> None:
    """With Σq ≠ 1, Ω*(z) + Ω(q) − q·z changes with an offset of z by (1 − Σq) of it."""
    z, q = np.array([0.5, 0.25, -1.0]), np.array([0.5, 0.25, 0.2494])
    loss = fenchel_young_loss(z, q, name)
    for offset in (2.0**13, -(2.0**13)):
        assert fenchel_young_loss(z + offset, q, name) == loss
