"""Every way to find τ agrees with every other, and with the definition."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from pyentmax.thresholds import (
    Threshold,
    bisect_p_max,
    bisection,
    condat,
    halley,
    in_support,
    michelot,
    newton,
    newton_threshold,
    partial_sort_entmax15,
    partial_sort_sparsemax,
    sort_entmax15,
    sort_sparsemax,
    tsallis_exp,
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


@pytest.mark.parametrize(("sort", "alpha"), [(sort_sparsemax, 2), (sort_entmax15, 1.5)])
def test_sort_solves_the_equation(sort: Callable[..., Threshold], alpha: float) -> None:
    x = rows(0)
    tau, size, passes = sort(x)
    np.testing.assert_allclose(
        np.sum(np.maximum(x - tau, 0) ** (1 / (alpha - 1)), -1), 1, rtol=1e-14
    )
    np.testing.assert_array_equal(size, np.sum(x > tau, axis=-1, keepdims=True))
    assert passes == 1
    np.testing.assert_allclose(tau, bisection(x, alpha).tau, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [1.1, 1.33, 1.5, 1.75, 2])
def test_newton_and_bisection_agree(alpha: float) -> None:
    y = rows(1)
    y = y - y.max(axis=-1, keepdims=True)
    beta = np.array([alpha - 1])
    c, size, passes = newton(y, beta)
    np.testing.assert_allclose(tsallis_exp(y - c, beta)[0].sum(axis=-1), 1, rtol=1e-13)
    # In the scores x = βy, u = 1 + β(y − c) is x − τ, so τ = βc − 1.
    tau = bisection(beta * y, alpha).tau
    np.testing.assert_allclose(beta * c - 1, tau, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(size, in_support(y, c, beta).sum(axis=-1, keepdims=True))
    assert 1 < passes <= 40


def test_newton_is_log_sum_exp_at_alpha_1_and_then_needs_two_passes() -> None:
    y = rows(2)
    y = y - y.max(axis=-1, keepdims=True)
    c, size, passes = newton(y, np.array([0.0]))
    np.testing.assert_allclose(c[:, 0], np.log(np.exp(y).sum(axis=-1)), rtol=1e-14)
    assert passes <= 3  # the first step is exact, the next ones see that nothing moves
    assert (size == y.shape[-1]).all()


@pytest.mark.parametrize("d", [2, 100, 20_000])
def test_newton_keeps_its_promise_on_rows_made_against_it(d: int) -> None:
    """Michelot's method drops few entries at a time where the scores fall geometrically."""
    y = np.stack([-np.geomspace(1e-12, 1, d), -(0.5 ** np.arange(d)), np.linspace(-1, 0, d)])
    y = y - y.max(axis=-1, keepdims=True)
    for beta in (1e-3, 0.5, 0.9, 1.0):
        passes = newton(y, np.array([beta])).passes
        assert passes < 2 + np.log2(d) + 26, f"{passes} passes: not stopped before the limit"


@pytest.mark.parametrize("alpha", [2.5, 4, 10])
def test_bisection_of_p_max_agrees_with_plain_bisection(alpha: float) -> None:
    y = rows(3, d=5)
    y = y - y.max(axis=-1, keepdims=True)
    beta = np.array([alpha - 1])
    p, p_max, _ = bisect_p_max(y, beta)
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-15)
    np.testing.assert_allclose(p.max(axis=-1, keepdims=True), p_max, rtol=1e-14)
    x = beta * y
    np.testing.assert_allclose(
        p**beta, np.maximum(x - bisection(x, alpha).tau, 0), rtol=0, atol=1e-14
    )


def test_fewer_passes_of_bisection_give_fewer_bits() -> None:
    x = rows(4)
    exact = sort_sparsemax(x).tau
    for passes in (5, 10, 20):
        result = bisection(x, 2, passes)
        assert result.passes == passes
        error = np.abs(result.tau - exact).max()
        assert error <= 2.0**-passes
        assert error >= 2.0 ** (-passes - 10)


@pytest.mark.parametrize("sort", [sort_sparsemax, sort_entmax15])
def test_float32_sums_of_a_long_row_do_not_pile_up(
    sort: Callable[..., Threshold],
) -> None:
    x = (np.random.default_rng(5).random(50_000) * 1e-3).astype(np.float32)
    tau = sort(x).tau
    assert tau.dtype == np.float32
    exact = sort(x.astype(np.float64)).tau
    np.testing.assert_allclose(tau, exact, rtol=3e-7)


def test_tsallis_exp_limits() -> None:
    t = np.array([-np.inf, -5.0, -0.5, 0.0, 0.5])
    for got in tsallis_exp(t, np.array([0.0])):
        np.testing.assert_array_equal(got, np.exp(t))
    for got in tsallis_exp(t, np.array([1e-300])):
        np.testing.assert_allclose(got, np.exp(t), rtol=1e-15)
    p, s = tsallis_exp(t, np.array([1.0]))
    np.testing.assert_allclose(p, np.maximum(1 + t, 0), rtol=1e-15)
    np.testing.assert_allclose(s, 1 + t > 0, rtol=1e-15)


# Every way to find τ, by α: the same answers from all, and against many digits.
AT_2: dict[str, Callable[..., Threshold]] = {
    "sort": sort_sparsemax,
    "partial sort": partial_sort_sparsemax,
    "partial sort from 1": lambda x: partial_sort_sparsemax(x, 1),
    "Michelot": michelot,
    "Condat": condat,
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
WAYS = (
    [(2, name, way) for name, way in AT_2.items()]
    + [(1.5, name, way) for name, way in AT_15.items()]
    + [
        (alpha, name, lambda x, way=way, alpha=alpha: way(x, alpha))
        for alpha in (1.01, 1.1, 1.33, 1.5, 1.75, 2, 2.5, 4, 10)
        for name, way in GENERAL.items()
        if alpha <= 2 or name != "Newton"
    ]
)
every_way = pytest.mark.parametrize(
    ("alpha", "way"), [(a, w) for a, _, w in WAYS], ids=[f"{n}-{a}" for a, n, _ in WAYS]
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


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_way_finds_the_threshold(
    alpha: float, way: Callable[..., Threshold], dtype: type
) -> None:
    rows = adversarial_rows(17)
    if dtype is np.float32:
        rows = np.maximum(rows, -1e30)
    x = rows.astype(dtype)
    tau, size, passes = way(x)
    assert tau.dtype == dtype
    assert isinstance(passes, int)
    assert passes >= 1
    exact = np.array([[float(exact_tau(row, alpha))] for row in x])
    # τ is as good as the scores' own rounding and that of sums near 1.
    room = 8 * np.finfo(dtype).eps * (1 + np.abs(x.max(axis=-1, keepdims=True)))
    assert (np.abs(tau - exact) <= room).all(), (tau - exact) / room
    assert (size >= np.sum(x > exact + room, axis=-1, keepdims=True)).all()
    assert (size <= np.sum(x > exact - room, axis=-1, keepdims=True)).all()
    alone = way(x[0])
    assert (np.abs(alone.tau - tau[0]) <= room[0]).all()
    np.testing.assert_array_equal(way(x.reshape(3, 4, -1)).tau, tau.reshape(3, 4, 1))


@every_way
def test_every_way_takes_long_rows_and_minus_infinity(
    alpha: float, way: Callable[..., Threshold]
) -> None:
    x = adversarial_rows(1000)
    tau, size, _ = way(x)
    by_bisection = bisection(x, alpha).tau
    top = np.abs(x.max(axis=-1, keepdims=True))
    assert (np.abs(tau - by_bisection) <= 1e-14 * (1 + top)).all()
    masked = np.concatenate([x, np.full_like(x, -np.inf)], axis=-1)
    again = way(masked)
    assert (np.abs(again.tau - tau) <= 1e-14 * (1 + top)).all()
    np.testing.assert_array_equal(way(np.array([[3.0], [-2.0]])).tau, [[2.0], [-3.0]])
    assert (size >= 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("alpha", "way"),
    [(a, w) for a, _, w in WAYS if w in (*AT_2.values(), *AT_15.values())],
    ids=[f"{n}-{a}" for a, n, w in WAYS if w in (*AT_2.values(), *AT_15.values())],
)
def test_running_sums_are_mended(alpha: float, way: Callable[..., Threshold], dtype: type) -> None:
    """Rows all in the support, where τ has a closed form; one score leads, or all are close.

    Sums and bounds kept up to date score by score are off by up to thousands of ε there.
    """
    close = np.random.default_rng(2).random(300) * 1e-3
    led = np.append(0, np.random.default_rng(2).random(9999) * 1e-6 - 0.9)
    for row in (close, led):
        x = row.astype(dtype)
        x -= x.max()
        tau, size, _ = way(x)
        assert size == x.size
        with mpmath.workdps(40):
            scores = [mpmath.mpf(float(score)) for score in x]
            total = mpmath.fsum(scores)
            if alpha == 2:
                exact = (total - 1) / x.size
            else:
                squares = mpmath.fsum(score * score for score in scores)
                exact = (total - mpmath.sqrt(total**2 - x.size * (squares - 1))) / x.size
            error = abs(mpmath.mpf(float(tau[0])) - exact)
            assert error <= np.finfo(dtype).eps * abs(exact)


def test_passes_tell_the_ways_apart() -> None:
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


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2, 3, 10, 50])
def test_halley_is_safe_on_rows_made_against_it(alpha: float) -> None:
    for d in (2, 17, 1000):
        passes = halley(adversarial_rows(d) * (alpha - 1), alpha).passes
        assert passes < 3 * 54 - 1, "ended by its bracket, not by the limit"


def test_partial_sort_needs_a_start() -> None:
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        partial_sort_sparsemax(np.zeros(3), 0)


GENERAL = (bisection, halley, newton_threshold)


@pytest.mark.parametrize("solve", GENERAL)
def test_an_alpha_per_row_gives_a_threshold_per_row(solve: Callable[..., Threshold]) -> None:
    x, alpha = np.array([[0.3, 0.0], [0.2, -0.1]]), np.array([1.5, 2])
    tau = solve(x, alpha).tau
    each = [solve(row, a).tau for row, a in zip(x, alpha, strict=True)]
    assert tau.shape == (2, 1)
    np.testing.assert_allclose(tau, each, rtol=0, atol=1e-14)


@pytest.mark.parametrize("solve", GENERAL)
def test_an_alpha_outside_the_domain_is_named(solve: Callable[..., Threshold]) -> None:
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
        *(lambda x, f=f: f(x, 2) for f in GENERAL),
    ],
)
def test_lists_and_integers_are_scores_too(solve: Callable[..., Threshold]) -> None:
    for x in ([2, 2, -3], np.array([2, 2, -3]), [2.0, 2.0, -3.0]):
        np.testing.assert_allclose(solve(x).tau, [1.5], rtol=1e-14)
    for x in ([], 1.0, np.zeros((2, 0))):
        with pytest.raises(ValueError, match="x must hold rows of at least one score, got shape"):
            solve(x)


def test_a_k_that_is_no_int_is_named() -> None:
    with pytest.raises(TypeError, match="k must be an int, got float"):
        partial_sort_sparsemax(np.zeros(3), 2.0)
