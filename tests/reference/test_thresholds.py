"""Every solver of a threshold agrees with the others and with the definition."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from crowded_rows import crowded_rows
from search_twins import (
    bisect_kth_largest,
    bracketed_water_fill,
    halley_norm,
    kth_largest,
    newton_entmax15,
    newton_p_last,
    newton_water_fill,
    radix_select,
)
from stages import slow

from pyentmax.reference.thresholds import (
    Threshold,
    bisect_p_max,
    bisection,
    condat,
    halley,
    michelot,
    newton_sparsemax,
    newton_threshold,
    partial_sort_entmax15,
    partial_sort_sparsemax,
    project_capped_simplex,
    prune_chunks,
    sort_entmax15,
    sort_sparsemax,
    tsallis_exp,
    water_fill,
)


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
    "tangents and quadratics": newton_entmax15,
    "the same in chunks": lambda x: prune_chunks(x, newton_entmax15, 4, 2),
}
GENERAL: dict[str, Callable[..., Threshold]] = {
    "bisection": bisection,
    "Halley": halley,
    "Newton": newton_threshold,
    "Halley on a norm": halley_norm,
    "the same in chunks": lambda x, alpha: prune_chunks(
        x, lambda gaps, t: halley_norm(gaps, alpha, t), 4, 2
    ),
}
UP_TO_2 = ("Newton", "Halley on a norm", "the same in chunks")
SOLVERS = (
    [(2, name, solve) for name, solve in AT_2.items()]
    + [(1.5, name, solve) for name, solve in AT_15.items()]
    + [
        (alpha, name, lambda x, solve=solve, alpha=alpha: solve(x, alpha))
        for alpha in (1.01, 1.33, 1.5, 2, 2.5, 10)
        for name, solve in GENERAL.items()
        if alpha <= 2 or name not in UP_TO_2
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


def test_numbers_of_passes() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 1000))
    slow = -(1000.0 ** np.arange(100))
    assert michelot(x).passes <= 10
    assert michelot(slow).passes > 90
    assert condat(slow).passes == 2
    assert condat(np.array([-1.5, 0, -0.7, -0.2])).passes == 2, "0 alone is a better bound"
    assert condat(x).passes <= michelot(x).passes
    wide = np.zeros(1000)
    assert [partial_sort_sparsemax(wide, k).passes for k in (1000, 500, 16, 1)] == [1, 2, 7, 11]
    assert partial_sort_sparsemax(x).passes == 1
    # Only the rows that need more go on; the answer of the others does not change.
    both = partial_sort_sparsemax(np.stack([wide, x[0]]))
    assert both.passes == 7
    np.testing.assert_array_equal(both.tau[1], partial_sort_sparsemax(x[0]).tau)
    for alpha in (1.1, 1.5, 2, 4):
        assert halley(x, alpha).passes <= 30 < bisection(x, alpha).passes


@pytest.mark.parametrize("alpha", [1.01, 2, 10, 50])
def test_halley_ends_before_its_limit(alpha: float) -> None:
    for d in (2, 17, 300):
        passes = halley(adversarial_rows(d) * (alpha - 1), alpha).passes
        assert passes < 3 * 54 - 1, "ended by its bracket, not by the limit"


def newton_bound(d: int, epsilon: float) -> float:
    """Steps that Newton's method on a norm takes at most, and two to see that it has arrived."""
    return 2 + np.log2(d) - 0.5 * np.log2(epsilon)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 17, 1000, *slow(20_000)])
def test_kernel_searches_stay_within_bounds(d: int, dtype: type) -> None:
    falling = np.stack(
        [-np.geomspace(1e-12, 1, d), -(0.5 ** np.arange(d)), np.linspace(-1, 0, d), np.zeros(d)]
    )
    slow = -np.minimum(1000.0 ** np.minimum(np.arange(d), 100), 1e30)
    x = np.concatenate([falling, [slow], -(falling[:3] ** 2)]).astype(dtype)
    bound = newton_bound(d, np.finfo(dtype).eps)
    assert newton_sparsemax(x).passes <= bound
    assert newton_entmax15(x).passes <= 2 * bound
    for beta in (0.001, 0.1, 0.5, 0.9, 1):
        assert halley_norm(beta * x, 1 + beta).passes <= 8 + bound
    y = x - x.max(axis=-1, keepdims=True)
    for beta in (1.5, 3.0, 50.0, 1e4):
        passes = newton_p_last(y, np.array([beta], dtype)).passes
        assert passes <= 2 * np.log2(d / (2 * np.finfo(dtype).eps)) + 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("beta", [1.5, 3, 49, 1e4])
def test_newton_in_the_last_p_agrees_with_bisection(beta: float, dtype: type) -> None:
    for scale in (1e-3, 0.1, 1):
        y = np.concatenate([rows(7, 40), np.zeros((1, 40))]).astype(dtype) * dtype(scale / beta)
        y = y - y.max(axis=-1, keepdims=True)
        y[:, 5] = -np.inf
        p, p_max, _ = newton_p_last(y, np.array([beta], dtype))
        bisected = bisect_p_max(y, np.array([beta], dtype))
        epsilon = np.finfo(dtype).eps
        assert p.dtype == p_max.dtype == dtype
        assert (p[:, 5] == 0).all()
        np.testing.assert_allclose(p_max, bisected.p_max, rtol=4 * epsilon)
        np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=8 * epsilon)
        # p^β is known to a few units in the last place of the largest, one for each of β's.
        room = 16 * epsilon * beta * p_max.astype(float) ** beta
        assert (np.abs(p.astype(float) ** beta - bisected.p.astype(float) ** beta) <= room).all()
        if beta < 2:
            assert newton_p_last(y[0], np.array([beta], dtype)).passes < bisected.passes


def bounded_rows(scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores and bounds that sum to 1 at least: ties, bounds of 0, what is ruled out."""
    rng = np.random.default_rng(11)
    y = rng.standard_normal((60, 23)) * scale
    y[:, :8] = np.round(y[:, :8])
    y[:20, 3] = -np.inf
    u = rng.random(y.shape) * 0.3
    u[rng.random(y.shape) < 0.2] = 0
    u[:, 0] += np.maximum(1.01 - np.where(y > -np.inf, u, 0).sum(axis=-1), 0)
    u[40] = 1
    return y, u


@pytest.mark.parametrize("fill", [newton_water_fill, bracketed_water_fill])
@pytest.mark.parametrize("scale", [1e-3, 1, 30])
def test_water_fill_agrees_with_sort(fill: Callable[..., Any], scale: float) -> None:
    y, u = bounded_rows(scale)
    finite, there = np.where(y > -np.inf, y, 0), np.where(y > -np.inf, u, 0)
    expected = project_capped_simplex(finite, there, 1).p
    p, passes = fill(y, u, 1)
    room = 8 * np.finfo(float).eps * (1 + scale * 5)
    np.testing.assert_allclose(p, expected, rtol=0, atol=room)
    assert passes <= 80
    e = np.exp(y - y.max(axis=-1, keepdims=True))
    points = np.divide(there, e, out=np.zeros_like(e), where=e > 0)
    expected = water_fill(points, lambda r: np.minimum(there, e * np.maximum(r, 0)), 1).p
    p, passes = fill(y, u, 1, exponential=True)
    np.testing.assert_allclose(p, expected, rtol=0, atol=room)
    assert passes <= 80
    short = fill(y, u / 100, 1).p  # where the bounds sum to less, p is the bounds
    np.testing.assert_array_equal(short, there / 100)


@pytest.mark.parametrize("d", [300, 3000])
def test_water_fill_of_ties_corrects_the_rounding_of_its_level(d: int) -> None:
    """Hundreds of entries share it: the row is solved again relative to a level a little below."""
    z, epsilon = crowded_rows(d, np.float64), np.finfo(float).eps
    p, passes = newton_water_fill(z, np.full_like(z, 0.9), 1)
    off = np.abs([math.fsum(row.tolist()) - 1 for row in p])
    assert (off <= epsilon * np.sqrt(d)).all()
    exact = project_capped_simplex(z.astype(np.longdouble), np.longdouble(0.9), 1).p
    np.testing.assert_allclose(p, exact.astype(float), rtol=0, atol=epsilon)
    assert passes <= 25, "from a level above it takes twice as many"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kth_largest_agrees_with_sort(dtype: type) -> None:
    rng = np.random.default_rng(3)
    for d in (1, 2, 30, 700):
        x = np.concatenate([rows(d, d), adversarial_rows(d)]).clip(-1e30).astype(dtype)
        x[1, (d + 1) // 2 :] = -np.inf
        x[0] *= rng.choice([-1, 0, 1], d).astype(dtype)  # zeros of both signs
        k = rng.integers(1, d + 1, (len(x), 1))
        expected = np.take_along_axis(-np.sort(-x, axis=-1), k - 1, axis=-1)
        for select in (
            radix_select,
            kth_largest,
            lambda x, k: kth_largest(x, k, 8, 2),
        ):
            score, passes = select(x, k)
            assert score.dtype == dtype
            np.testing.assert_array_equal(score, expected)
            assert passes <= 1 + 2 * dtype().itemsize
        # On the GPU scores are told apart by their distance from the largest, which is rounded.
        score, passes = bisect_kth_largest(x, k)
        top = x.max(axis=-1, keepdims=True)
        np.testing.assert_array_equal(top - score, top - expected)
        assert passes <= 8 * dtype().itemsize
    assert radix_select(np.arange(9.0), 3).score == 6


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


ANY_ALPHA = (bisection, halley, newton_threshold, halley_norm)


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
    if solve in (newton_threshold, halley_norm):
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


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("fill", [newton_water_fill, bracketed_water_fill])
def test_water_fill_reaches_any_total(fill: Any, exponential: bool) -> None:
    """The bracket began at the level of 1, and p summed to that."""
    rng = np.random.default_rng(0)
    for total in (1e-9, 0.3, 1, 2.5):
        y, upper = 3 * rng.standard_normal((50, 8)), rng.uniform(0.4, 1, (50, 8))
        p = fill(y, upper, total, exponential).p
        np.testing.assert_allclose(p.sum(axis=-1), total, rtol=1e-12)


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float32, 1e8), (np.float32, 1e16), (float, 1e17), (float, 1e100)]
)
def test_bounds_of_distant_scores_fill_one_after_the_other(
    dtype: type, scale: float, exponential: bool
) -> None:
    """A step was lost in the rounding of the level, and sums were off by up to 0.9."""
    rng = np.random.default_rng(0)
    y = np.sort(scale * rng.standard_normal((200, 20)))[:, ::-1].astype(dtype)
    upper = rng.uniform(0.1, 0.4, y.shape).astype(dtype)
    p = bracketed_water_fill(y, upper, 1, exponential).p
    full = np.clip(1 - (upper.cumsum(axis=-1) - upper), 0, upper)
    np.testing.assert_allclose(p, full, rtol=0, atol=1e-6)
