"""Every solver of a threshold agrees with the others and with the definition."""

from __future__ import annotations

import doctest
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from stages import slow

from pyentmax.reference.thresholds import (
    Threshold,
    bisection,
    condat,
    michelot,
    newton_threshold,
    partial_sort_entmax15,
    partial_sort_sparsemax,
    sort_entmax15,
    sort_sparsemax,
    tsallis_exp,
)

FILE = Path(__file__).parents[2] / "notebooks" / "thresholds.py"
SPEC: Any = importlib.util.spec_from_file_location("notebook_thresholds", FILE)
SHOWN = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SHOWN)
halley, newton_sparsemax, prune_chunks = SHOWN.halley, SHOWN.newton_sparsemax, SHOWN.prune_chunks


def rows(seed: int, d: int = 30) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack(
        [
            rng.standard_normal(d),
            rng.standard_normal(d) * 1e-3,
            rng.standard_normal(d) * 30,
            np.round(rng.standard_normal(d)),
            np.zeros(d),
            -np.geomspace(1e-9, 1, d),
        ]
    )


def test_fewer_bisection_passes_give_fewer_bits() -> None:
    x = rows(4)
    for passes in (5, 20):
        result = bisection(x, 2, passes)
        assert result.passes == passes
        error = np.abs(result.tau - sort_sparsemax(x).tau).max()
        assert 2.0 ** (-passes - 10) <= error <= 2.0**-passes


@pytest.mark.parametrize("halvings", [10, 20, 40])
def test_bisection_adversary_needs_ever_more_passes(halvings: int) -> None:
    """The third score misses the threshold by 2^-halvings (Condat 2016; notebook 3)."""
    x = np.array([0, -0.3, -0.65 - 2.0**-halvings])
    assert sort_sparsemax(x).size == 2
    assert newton_sparsemax(x).size == 2
    assert newton_sparsemax(x).passes <= 3
    assert bisection(x, 2, halvings // 2).size == 3
    assert bisection(x, 2, halvings + 1).size == 2


def test_tsallis_exp_limits() -> None:
    t = np.array([-np.inf, -5.0, -0.5, 0.0, 0.5])
    for got in tsallis_exp(t, np.array([0.0])):
        np.testing.assert_array_equal(got, np.exp(t))
    for got in tsallis_exp(t, np.array([1e-300])):
        np.testing.assert_allclose(got, np.exp(t), rtol=1e-15)
    p, s = tsallis_exp(t, np.array([1.0]))
    np.testing.assert_allclose(p, np.maximum(1 + t, 0), rtol=1e-15)
    np.testing.assert_allclose(s, 1 + t > 0, rtol=1e-15)


# Every solver, by α: all agree, and with many digits.
AT_2: dict[str, Callable[..., Threshold]] = {
    "sort": sort_sparsemax,
    "partial sort": partial_sort_sparsemax,
    "partial sort from 1": lambda x: partial_sort_sparsemax(x, 1),
    "Michelot": michelot,
    "Condat": condat,
    "Newton from above": newton_sparsemax,
    "Newton in chunks": lambda x: prune_chunks(x, newton_sparsemax, 4, 2),
}
AT_15: dict[str, Callable[..., Threshold]] = {
    "sort": sort_entmax15,
    "partial sort": partial_sort_entmax15,
    "partial sort from 1": lambda x: partial_sort_entmax15(x, 1),
}
GENERAL: dict[str, Callable[..., Threshold]] = {
    "bisection": bisection,
    "Halley": halley,
    "Newton": newton_threshold,
}
SOLVERS = (
    [(2, name, solve) for name, solve in AT_2.items()]
    + [(1.5, name, solve) for name, solve in AT_15.items()]
    + [
        (alpha, name, lambda x, solve=solve, alpha=alpha: solve(x, alpha))
        for alpha in (1.01, 1.33, 1.5, 2, 2.5, 10)
        for name, solve in GENERAL.items()
        if alpha <= 2 or name != "Newton"
    ]
)
every_solver = pytest.mark.parametrize(
    ("alpha", "solve"), [(a, s) for a, _, s in SOLVERS], ids=[f"{n}-{a}" for a, n, _ in SOLVERS]
)


def adversarial_rows(d: int) -> np.ndarray:
    """Rows that a method may be slow or wrong on."""
    rng = np.random.default_rng(d)
    z = rng.standard_normal(d)
    outlier = z / 100
    outlier[d // 2] = 5
    return np.stack(
        [
            z,
            np.sort(z),  # rising: every score tops all before it
            np.sort(z)[::-1],
            np.full(d, 3.0),
            np.round(z),  # ties
            np.round(z * 4) / 4 - 1e4,
            outlier,
            -(0.5 ** np.arange(d)),
            -(1000.0 ** np.minimum(np.arange(d), 100)),  # Michelot drops one score a pass
            np.linspace(0, 1, d),
            np.linspace(0, 1e-9, d),
            np.append(np.zeros(d - 1), 1.0),  # exactly on the threshold at α = 2
        ]
    )


@functools.cache
def exact_taus(alpha: float, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Some of those rows in the dtype, and their thresholds."""
    lowest = -1e30 if dtype is np.float32 else -np.inf
    x = np.maximum(adversarial_rows(17), lowest).astype(dtype)
    return x, np.array([[float(exact_tau(row, alpha))] for row in x])


def exact_tau(x: np.ndarray, alpha: float) -> mpmath.mpf:
    """By bisection in 40 digits."""
    with mpmath.workdps(40):
        scores = [mpmath.mpf(float(score)) for score in x if score > x.max() - 1]
        power = 1 / (mpmath.mpf(alpha) - 1)
        low, high = max(scores) - 1, max(scores)
        for _ in range(110):
            tau = (low + high) / 2
            enough = sum((s - tau) ** power for s in scores if s > tau) >= 1
            low, high = (tau, high) if enough else (low, tau)
        return low


@every_solver
@pytest.mark.parametrize("dtype", [np.float64, *slow(np.float32)])
def test_every_solver_finds_the_threshold(
    alpha: float, solve: Callable[..., Threshold], dtype: type
) -> None:
    x, exact = exact_taus(alpha, dtype)
    tau, size, passes = solve(x)
    assert tau.dtype == dtype
    assert isinstance(passes, int)
    assert passes >= 1
    # τ is as good as the scores' own rounding and that of sums near 1.
    room = 8 * np.finfo(dtype).eps * (1 + np.abs(x.max(axis=-1, keepdims=True)))
    assert (np.abs(tau - exact) <= room).all(), (tau - exact) / room
    assert (size >= np.sum(x > exact + room, axis=-1, keepdims=True)).all()
    assert (size <= np.sum(x > exact - room, axis=-1, keepdims=True)).all()
    alone = solve(x[0])
    assert (np.abs(alone.tau - tau[0]) <= room[0]).all()
    np.testing.assert_array_equal(solve(x.reshape(3, 4, -1)).tau, tau.reshape(3, 4, 1))


@every_solver
def test_solvers_on_long_rows_and_minus_infinity(
    alpha: float, solve: Callable[..., Threshold]
) -> None:
    x = adversarial_rows(300)
    tau, size, _ = solve(x)
    by_bisection = bisection(x, alpha).tau
    top = np.abs(x.max(axis=-1, keepdims=True))
    assert (np.abs(tau - by_bisection) <= 1e-14 * (1 + top)).all()
    masked = np.concatenate([x, np.full_like(x, -np.inf)], axis=-1)
    again = solve(masked)
    assert (np.abs(again.tau - tau) <= 1e-14 * (1 + top)).all()
    np.testing.assert_array_equal(solve(np.array([[3.0], [-2.0]])).tau, [[2.0], [-3.0]])
    assert (size >= 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("alpha", "solvers"), [(2, AT_2), (1.5, AT_15)], ids=["2", "1.5"])
def test_running_sums_are_corrected(
    alpha: float, solvers: dict[str, Callable[..., Threshold]], dtype: type
) -> None:
    """Rows all in the support, where τ has a closed form; one score leads, or all are close.

    Sums and bounds kept up to date score by score are off by up to thousands of ε there.
    """
    rng = np.random.default_rng(2)
    for row in (rng.random(300) * 1e-3, np.append(0, rng.random(2999) * 1e-6 - 0.9)):
        x = row.astype(dtype)
        x -= x.max()
        with mpmath.workdps(40):
            scores = [mpmath.mpf(float(score)) for score in x]
            total, squares = mpmath.fsum(scores), mpmath.fsum(score * score for score in scores)
            root = mpmath.sqrt(total**2 - x.size * (squares - 1))
            exact = (total - (1 if alpha == 2 else root)) / x.size
            for name, solve in solvers.items():
                tau, size, _ = solve(x)
                assert size == x.size, name
                error = abs(mpmath.mpf(float(tau[0])) - exact)
                assert error <= np.finfo(dtype).eps * abs(exact), name


@pytest.mark.parametrize("alpha", [1.01, 2, 10, 50])
def test_halley_ends_before_its_limit(alpha: float) -> None:
    for d in (2, 17, 300):
        passes = halley(adversarial_rows(d) * (alpha - 1), alpha).passes
        assert passes < 3 * 54 - 1, "ended by its bracket, not by the limit"


def test_most_chunks_of_long_row_are_skipped() -> None:
    x = np.random.default_rng(0).standard_normal((3, 30_000))
    looked_at = []

    def solve(gaps: np.ndarray, t: float) -> Threshold:
        looked_at.append(np.sum(gaps > -1, axis=-1).max())
        return newton_sparsemax(gaps, t)

    tau, size, _ = prune_chunks(x, solve)
    np.testing.assert_allclose(tau, sort_sparsemax(x).tau, rtol=4e-16)
    assert looked_at[0] <= 30_000 / 16 + 16
    assert (size <= looked_at[1]).all()
    assert looked_at[1] < 100


def test_examples_of_notebook_thresholds_run() -> None:
    assert doctest.testmod(SHOWN, optionflags=doctest.NORMALIZE_WHITESPACE) == (0, 7)


ANY_ALPHA = (bisection, halley, newton_threshold)


@pytest.mark.parametrize("solve", ANY_ALPHA)
def test_alpha_per_row_and_outside_its_domain(solve: Callable[..., Threshold]) -> None:
    x, alpha = np.array([[0.3, 0.0], [0.2, -0.1]]), np.array([1.5, 2])
    tau = solve(x, alpha).tau
    each = [solve(row, a).tau for row, a in zip(x, alpha, strict=True)]
    assert tau.shape == (2, 1)
    np.testing.assert_allclose(tau, each, rtol=0, atol=1e-14)
    x = np.zeros((2, 3))
    for alpha in (1, 0.5, np.nan, np.inf, [1.5, 1.0]):
        with pytest.raises(ValueError, match="alpha must be above 1 and .*, got"):
            solve(x, alpha)
    with pytest.raises(ValueError, match=r"alpha of shape \(3,\) does not broadcast .* \(2,\)"):
        solve(x, np.full(3, 1.5))
    with pytest.raises(TypeError, match="alpha must hold real numbers, got dtype <U1"):
        solve(x, "a")
    if solve is newton_threshold:
        with pytest.raises(ValueError, match="alpha must be above 1 and at most 2, got 3"):
            solve(x, 3)


@pytest.mark.parametrize(
    "solve",
    [
        sort_sparsemax,
        partial_sort_sparsemax,
        michelot,
        condat,
        newton_sparsemax,
        *(lambda x, f=f: f(x, 2) for f in ANY_ALPHA),
    ],
)
def test_lists_and_integers_are_accepted(solve: Callable[..., Threshold]) -> None:
    for x in ([2, 2, -3], np.array([2, 2, -3]), [2.0, 2.0, -3.0]):
        np.testing.assert_allclose(solve(x).tau, [1.5], rtol=1e-14)
    for x in ([], 1.0, np.zeros((2, 0))):
        with pytest.raises(ValueError, match="x must hold rows of at least one score, got shape"):
            solve(x)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        partial_sort_sparsemax(np.zeros(3), 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solve", [michelot, condat, newton_sparsemax, sort_sparsemax])
def test_overflowing_sums_have_a_threshold(solve: Any, dtype: type) -> None:
    low, high = np.finfo(dtype).min, np.finfo(dtype).max
    rows = [([0, low, low], -1), ([0, -0.5, *[low] * 40], -0.75), ([high, low, high], high)]
    for x, tau in rows:
        with np.errstate(over="ignore"):  # max x less min x may be beyond floats itself
            np.testing.assert_array_equal(solve(np.array(x, dtype)).tau, dtype([tau]))
