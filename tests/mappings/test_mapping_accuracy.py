"""Accuracy where many digits are too slow, and against what a generic solver finds.

The contract on its whole grid is in test_oracles.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from mapping_oracles import FORWARDS
from scipy.optimize import minimize

import pyentmax

UP_TO_2 = [name for name, (_, alpha) in FORWARDS.items() if alpha <= 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", UP_TO_2)
def test_long_rows_meet_optimality_conditions(name: str, scale: float, dtype: type) -> None:
    """d = 50,000, too long for many digits: against bisection in extended precision."""
    forward, alpha = FORWARDS[name]
    d = 50_000
    z = (np.random.default_rng(1).standard_normal(d) * scale).astype(dtype)
    epsilon = np.finfo(dtype).eps
    p = forward(z)
    assert abs(p.sum(dtype=np.float64) - 1) <= 4 * epsilon * np.sqrt(d)
    y = z.astype(np.float64) - z.astype(np.float64).max()
    best = _longest_double_solution(y, alpha)
    on = best > 0
    reach = max(1.0, -y[on].min())
    allowed = 4 * epsilon * best[on] + 16 * epsilon * best[on] ** (2 - alpha) * reach
    assert (np.abs(p[on] - best[on]) <= np.maximum(allowed, np.finfo(dtype).tiny)).all()
    # An entry on the threshold may round to inside.
    extra = p[~on & (p > 0)].astype(np.float64)
    assert (extra ** (alpha - 1) <= 16 * epsilon * reach).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", UP_TO_2)
def test_float32_sums_over_strided_axis_are_accurate(name: str) -> None:
    """NumPy's sums are pairwise over contiguous memory only: 50,000 terms one by one lose 3 digits.

    One score leads and the rest are close together, where the running sums of a sort are worst.
    """
    forward, alpha = FORWARDS[name]
    z = (np.random.default_rng(2).random((50_000, 3)) * 1e-6 - 0.95).astype(np.float32)
    z[0] = 0
    p = forward(z, axis=0)
    for j in range(3):
        best = _longest_double_solution(z[:, j].astype(np.float64), alpha)
        on = best > 0
        allowed = 4 * best[on] + 16 * best[on] ** (2 - alpha)
        assert (np.abs(p[on, j] - best[on]) <= np.finfo(np.float32).eps * allowed).all()
        assert abs(p[:, j].sum(dtype=np.float64) - 1) <= 4 * 2.0**-23 * np.sqrt(50_000)


@pytest.mark.parametrize("name", [name for name in UP_TO_2 if name.endswith(".reference")])
def test_small_entries_take_rounding_from_the_largest(name: str) -> None:
    """Half for one, half for 50,000: what they owe to the rounding of τ is theirs to give back."""
    forward, alpha = FORWARDS[name]
    beta, d = alpha - 1, 50_000
    for lead in np.linspace(0.4, 0.6, 9):
        share = (1 - lead) / d
        gap = np.log(lead / share) if beta == 0 else (lead**beta - share**beta) / beta
        z = np.full(d + 1, -gap, np.float32)
        z[0] = 0
        # In closed form but for the rounding of the gap, which bisection takes as it is.
        best = _leading_probability(float(-z[1]), beta, d)
        allowed = 4 * best + 16 * best ** (2 - alpha) * max(1.0, gap)
        assert abs(float(forward(z)[0]) - best) <= np.finfo(np.float32).eps * allowed


def _leading_probability(gap: float, beta: float, d: int) -> float:
    """p with p + d q = 1, where p leads by the gap: (p^β − q^β)/β = gap."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        q = p * np.exp(-gap) if beta == 0 else max(p**beta - beta * gap, 0) ** (1 / beta)
        low, high = (p, high) if p + d * q < 1 else (low, p)
    return low


def _longest_double_solution(y: np.ndarray, alpha: float) -> np.ndarray:
    """α-entmax in extended precision where the machine has it, by bisection on c."""
    y = y.astype(np.longdouble)
    beta = np.longdouble(alpha) - 1
    low, high = np.longdouble(0), np.log(np.longdouble(y.size)) + 1

    def powers(c: np.longdouble) -> np.ndarray:
        if beta == 0:
            return np.exp(y - c)
        with np.errstate(divide="ignore"):
            return np.exp(np.log1p(np.maximum(beta * (y - c), -1)) / beta)

    for _ in range(70):
        middle = (low + high) / 2
        low, high = (middle, high) if powers(middle).sum() >= 1 else (low, middle)
    p = powers(high)
    return (p / p.sum()).astype(np.float64)


@pytest.mark.parametrize("alpha", [1, 1.3, 1.5, 2])
def test_agrees_with_generic_solver(alpha: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        z = rng.standard_normal(4)

        def objective(p: np.ndarray, z: np.ndarray = z) -> float:
            return -(p @ z) - float(pyentmax.tsallis_entropy(np.maximum(p, 0), alpha))

        solution = minimize(
            objective,
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        p = pyentmax.entmax(z, alpha)
        assert objective(p) <= solution.fun + 1e-9
        np.testing.assert_allclose(p, solution.x, rtol=0, atol=2e-4)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2, 4])
def test_two_scores_saturate_at_margin(alpha: float) -> None:
    margin = 1 / (alpha - 1)
    below, above = pyentmax.entmax([[0.999 * margin, 0.0], [1.001 * margin, 0.0]], alpha)
    assert 0 < below[1] < 0.5
    assert above.tolist() == [1, 0]


def test_scores_of_the_slides() -> None:
    p = pyentmax.softmax([-0.3, -1.0, 1.8])
    np.testing.assert_allclose(p, [0.10, 0.05, 0.85], rtol=0, atol=5e-3)


@pytest.mark.parametrize("beta", [1e-15, 1e-12, 1e-8, 1e-5, 1e-3])
def test_alpha_near_1_approaches_softmax(beta: float) -> None:
    z = np.random.default_rng(4).standard_normal(20)
    p, limit = pyentmax.entmax(z, 1 + beta), pyentmax.softmax(z)
    slope = np.abs(pyentmax.entmax_grad_alpha(limit, 1)).max()
    assert np.abs(p - limit).max() <= 2 * slope * beta + 1e-15


def test_tiny_and_huge_scores_are_finite() -> None:
    for forward, _ in FORWARDS.values():
        for z in ([1e308, -1e308, 0.0], [5e-324, 0.0], [-1e308, -1e308], [3e38, 1e-30, -3e38]):
            p = forward(np.array(z))
            assert np.isfinite(p).all()
            assert abs(p.sum() - 1) < 1e-14
