"""The accuracy contract on the whole grid, against 50 digits; known faults of others, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from exact_rows import error_in_contracts, exact_row
from stages import slow

import pyentmax
from pyentmax import MAPPINGS

ALPHAS = (1.001, 1.1, 1.33, 1.5, 1.75, 2, 2.5, 4)
FORWARDS: dict[str, tuple[Callable[..., Any], float]] = {
    "softmax": (pyentmax.softmax, 1),
    "softmax.reference": (pyentmax.softmax.reference, 1),
    "sparsemax": (pyentmax.sparsemax, 2),
    "sparsemax.reference": (pyentmax.sparsemax.reference, 2),
    "entmax15": (pyentmax.entmax15, 1.5),
    "entmax15.reference": (pyentmax.entmax15.reference, 1.5),
} | {f"entmax({a})": (lambda z, a=a: pyentmax.entmax(z, a), a) for a in (1, *ALPHAS)}
EVERY_DTYPE = pytest.mark.parametrize("dtype", [np.float32, np.float64])
SCALES = (1e-3, 1.0, 1e3)


def kinds(d: int, scale: float, dtype: type) -> dict[str, np.ndarray]:
    """Random scores, with ties, with offsets; the rounding of an offset is part of the input."""
    rng = np.random.default_rng(d)
    z = rng.standard_normal(d) * scale
    ties = np.round(z / scale * 2) / 2 * scale
    rows = {
        "random": z,
        "ties": ties,
        "constant": np.full(d, scale),
        "up": z + 1e4,
        "down": z - 1e4,
    }
    return {kind: row.astype(dtype) for kind, row in rows.items()}


def assert_contract(name: str, z: np.ndarray) -> None:
    forward, alpha = FORWARDS[name]
    p = forward(z)
    assert p.dtype == z.dtype
    epsilon = np.finfo(z.dtype).eps
    assert abs(p.sum(dtype=np.float64) - 1) <= 4 * epsilon * np.sqrt(z.size)
    assert (p >= 0).all()
    if alpha > 2:
        assert_exact_for_scores_nearby(p, z, alpha)
        return
    error = error_in_contracts(p, exact_row(z, alpha), z, alpha)
    assert error <= 1, f"{name}: {error:.3g} times what the contract allows, z = {z!r}"


def assert_exact_for_scores_nearby(p: np.ndarray, z: np.ndarray, alpha: float) -> None:
    """For α > 2, p is exact for scores moved by at most 8ε max(1, max_S |z − max z|).

    Which scores p is exact for can be read off p: y_i = (p_i^β − p_max^β)/β.
    """
    y = z.astype(np.float64) - z.astype(np.float64).max()
    on = p > 0
    allowed = 8 * float(np.finfo(p.dtype).eps) * max(1.0, -float(y[on].min()))
    with mpmath.workdps(50):
        beta = mpmath.mpf(alpha) - 1
        highest = mpmath.mpf(float(p.max())) ** beta
        for p_i, y_i in zip(p[on], y[on], strict=True):
            moved = (mpmath.mpf(float(p_i)) ** beta - highest) / beta - mpmath.mpf(float(y_i))
            assert abs(moved) <= allowed, f"a score moved by {float(moved)}, allowed {allowed}"
        # What got nothing was at the threshold or below it.
        assert (y[~on] <= -float(highest / beta) + allowed).all()


@EVERY_DTYPE
@pytest.mark.parametrize("name", FORWARDS)
def test_contract_on_short_rows(name: str, dtype: type) -> None:
    for d in (1, 2, 3, 10):
        for scale in (1e-3, 0.1, 1.0, 10.0, 1e3):
            for z in kinds(d, scale, dtype).values():
                assert_contract(name, z)


@EVERY_DTYPE
@pytest.mark.parametrize("name", ["entmax15", *slow(*sorted(FORWARDS.keys() - {"entmax15"}))])
def test_contract_on_rows_of_1000(name: str, dtype: type) -> None:
    for scale in SCALES:
        for kind in ("random", "ties"):
            assert_contract(name, kinds(1000, scale, dtype)[kind])


@pytest.mark.deep
@EVERY_DTYPE
@pytest.mark.parametrize("kind", ["random", "ties", "constant", "up", "down"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", FORWARDS)
def test_contract_on_all_long_rows(name: str, scale: float, kind: str, dtype: type) -> None:
    for d in (1000, 50_000):
        assert_contract(name, kinds(d, scale, dtype)[kind])


@pytest.mark.parametrize("alpha", [4, 10, 50])
def test_nearly_tied_scores_follow_smooth_curve(alpha: float) -> None:
    """deep-spin/entmax at α = 10: p jumps by 0.4 where the scores all but tie.

    t = (p^β − (1−p)^β)/β is smooth and increasing in p; so is p(t) if it satisfies that.
    """
    beta = alpha - 1
    edge = 1 / beta
    t = np.concatenate(
        [[0.0], np.geomspace(1e-17, edge / 2, 400), np.linspace(edge / 2, edge, 200)]
    )
    z = np.stack([t, np.zeros_like(t)], axis=-1)
    p, partner = pyentmax.entmax(z, alpha), pyentmax.entmax(z[:, ::-1], alpha)
    np.testing.assert_array_equal(partner, p[:, ::-1])
    last_place = np.finfo(np.float64).eps / 2
    assert (np.diff(p[:, 0]) >= -last_place).all()
    assert (np.diff(p[:, 1]) <= last_place).all()
    assert p[0].tolist() == [0.5, 0.5]
    with mpmath.workdps(50):
        for (first, second), gap in zip(p, t, strict=True):
            back = (mpmath.mpf(float(first)) ** beta - mpmath.mpf(float(second)) ** beta) / beta
            assert abs(back - mpmath.mpf(float(gap))) <= 8 * np.finfo(np.float64).eps


@pytest.mark.parametrize("alpha", [4, 10, 50])
def test_ties_at_large_alpha_share_exactly(alpha: float) -> None:
    for n in (2, 3, 7):
        for dtype in (np.float32, np.float64):
            p = pyentmax.entmax(np.append(np.full(n, 0.3), -1.0).astype(dtype), alpha)
            assert (p[:n] == p[0]).all()
            assert abs(p.sum(dtype=np.float64) - 1) <= 4 * np.finfo(dtype).eps * np.sqrt(n)


# A value for each parameter, for rows of d scores.
EXAMPLES: dict[str, Callable[[int], Any]] = {
    "alpha": lambda d: 1.2,
    "budget": lambda d: 1,
    "k": lambda d: 5,
    "strength": lambda d: 1e-3,
    "upper": lambda d: np.full(d, 0.5),
}


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
def test_loss_ignores_offset_for_rounded_targets(name: str) -> None:
    """With Σq ≠ 1, Ω*(z) + Ω(q) − q·z changes with an offset of z by (1 − Σq) of it."""
    z = np.array([0.5, 0.25, -1.0])
    q = np.array([0.5, 0.25, 0.2494])
    loss = pyentmax.fenchel_young_loss(z, q, name)
    for offset in (2.0**13, -(2.0**13)):
        assert pyentmax.fenchel_young_loss(z + offset, q, name) == loss


@pytest.mark.parametrize("offset", [0, -1000])
@pytest.mark.parametrize("name", MAPPINGS)
def test_float16_rows_near_minus_1000(name: str, offset: float) -> None:
    """deep-spin/entmax: NaN."""
    record = MAPPINGS[name]
    z = np.array([0, -1, -2, -4], np.float16)
    params = tuple(EXAMPLES[parameter](4) for parameter in record.parameters)
    p = record.forward(z + np.float16(offset), *params)
    assert p.dtype == np.float16
    np.testing.assert_array_equal(p, record.forward(z.astype(np.float64), *params).astype(p.dtype))


def test_labels_where_omega_at_vertex_is_nonzero() -> None:
    """Taken to be 0 elsewhere, the loss would be −1 where normmax's is 0."""
    z = np.array([3.0, 0.0, -1.0])
    assert pyentmax.normmax_loss(z, 0) == 0
    scores = np.random.default_rng(3).standard_normal((20, 5))
    labels = np.arange(20) % 5
    for alpha in (1.3, 2, 4):
        each = pyentmax.normmax_loss(scores, labels, alpha, reduction="none")
        soft = pyentmax.normmax_loss(scores, np.eye(5)[labels], alpha, reduction="none")
        np.testing.assert_allclose(each, soft, rtol=1e-12, atol=1e-14)
        assert (each >= 0).all()
