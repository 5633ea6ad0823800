"""The contract of accuracy on its whole grid, against 70 digits; other solvers; known faults."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from exact_rows import error_in_contracts, exact_entmax, exact_row
from mapping_cases import ENTMAX, Case
from stages import slow

import pyentmax

UP_TO_2 = [(case, alpha) for case, alpha in ENTMAX if alpha <= 2]
every_case = pytest.mark.parametrize(("case", "alpha"), ENTMAX, ids=str)
up_to_2 = pytest.mark.parametrize(("case", "alpha"), UP_TO_2, ids=str)
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
SCALES = (1e-3, 1.0, 1e3)


def kinds(d: int, scale: float, dtype: type) -> dict[str, np.ndarray]:
    """Random scores, with ties, with offsets; the rounding of an offset is part of the input."""
    z = np.random.default_rng(d).standard_normal(d) * scale
    ties = np.round(z / scale * 2) / 2 * scale
    rows = {
        "random": z,
        "ties": ties,
        "constant": np.full(d, scale),
        "up": z + 1e4,
        "down": z - 1e4,
    }
    return {kind: row.astype(dtype) for kind, row in rows.items()}


def assert_contract(case: Case, alpha: float, z: np.ndarray) -> None:
    p = case.forward(z)
    assert p.dtype == z.dtype
    epsilon = np.finfo(z.dtype).eps
    assert abs(p.sum(dtype=np.float64) - 1) <= 4 * epsilon * np.sqrt(z.size)
    assert (p >= 0).all()
    if alpha > 2:
        assert_exact_for_scores_nearby(p, z, alpha)
        return
    error = error_in_contracts(p, exact_row(z, alpha), z, alpha)
    assert error <= 1, f"{case}: {error:.3g} times what the contract allows, z = {z!r}"


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


@every_dtype
@every_case
def test_contract_on_short_rows(case: Case, alpha: float, dtype: type) -> None:
    for d in (1, 2, 10):
        for scale in SCALES:
            for z in kinds(d, scale, dtype).values():
                assert_contract(case, alpha, z)


@pytest.mark.slow
@every_dtype
@every_case
def test_contract_on_rows_of_1000(case: Case, alpha: float, dtype: type) -> None:
    for scale, kind in zip(SCALES, ("ties", "random", "random"), strict=True):
        assert_contract(case, alpha, kinds(1000, scale, dtype)[kind])


@pytest.mark.deep
@every_dtype
@pytest.mark.parametrize("kind", ["random", "ties", "constant", "up", "down"])
@pytest.mark.parametrize("scale", SCALES)
@every_case
def test_contract_on_all_long_rows(
    case: Case, alpha: float, scale: float, kind: str, dtype: type
) -> None:
    for d in (1000, 50_000):
        assert_contract(case, alpha, kinds(d, scale, dtype)[kind])


def assert_contract_in_long_doubles(p: np.ndarray, z: np.ndarray, alpha: float) -> None:
    """For rows that are too long for many digits."""
    epsilon = np.finfo(p.dtype).eps
    assert abs(p.sum(dtype=np.float64) - 1) <= 4 * epsilon * np.sqrt(p.size)
    y = z.astype(np.float64) - z.astype(np.float64).max()
    best = exact_entmax(y[None].astype(np.longdouble), alpha)[0].astype(np.float64)
    on = best > 0
    reach = max(1.0, -y[on].min())
    allowed = 4 * epsilon * best[on] + 16 * epsilon * best[on] ** (2 - alpha) * reach
    if alpha < 1:
        allowed += 4 * epsilon * best[on] * -np.log(best[on])
    assert (np.abs(p[on] - best[on]) <= np.maximum(allowed, np.finfo(p.dtype).tiny)).all()
    # An entry on the threshold may round to inside.
    extra = p[~on & (p > 0)].astype(np.float64)
    assert (extra ** (alpha - 1) <= 16 * epsilon * reach).all()


@pytest.mark.slow
@every_dtype
@pytest.mark.parametrize("scale", SCALES)
@up_to_2
def test_long_rows_meet_optimality_conditions(
    case: Case, alpha: float, scale: float, dtype: type
) -> None:
    z = (np.random.default_rng(1).standard_normal(20_000) * scale).astype(dtype)
    assert_contract_in_long_doubles(case.forward(z), z, alpha)


@pytest.mark.slow
@up_to_2
def test_float32_sums_over_strided_axis_are_accurate(case: Case, alpha: float) -> None:
    """NumPy's sums are pairwise over contiguous memory only: 20,000 terms one by one lose 3 digits.

    One score leads and the rest are close together, where the running sums of a sort are worst.
    """
    z = (np.random.default_rng(2).random((20_000, 3)) * 1e-6 - 0.95).astype(np.float32)
    z[0] = 0
    assert_contract_in_long_doubles(case.forward(z, axis=0)[:, 1], z[:, 1], alpha)


@every_dtype
@pytest.mark.parametrize("alpha", [1e-9, 0.1, 0.5, 0.9])
def test_below_1_tails_are_powers(alpha: float, dtype: type) -> None:
    """p = (1 + |β| (c − z))^{−1/|β|} at any distance; and a gap too large for a float is −∞."""
    power = 1 / (1 - alpha)
    for gap in (1e4, 1e10, 1e30):
        z = np.array([gap, 0, -np.inf], dtype)
        p, log_p = pyentmax.entmax(z, alpha), pyentmax.entmax.log(z, alpha)
        tail = -power * np.log1p(gap / power)  # c is next to 0
        assert p[0] > 0.99
        assert p[2] == 0
        assert log_p[2] == -np.inf
        np.testing.assert_allclose(log_p[1], tail, rtol=1e-4)
        np.testing.assert_allclose(p[1], np.exp(log_p[1]), rtol=1e-3)
        assert_contract(Case("entmax", (alpha,)), alpha, z[:2])
        assert pyentmax.entmax.support(z, alpha).tolist() == [True, True, False]
    widest = np.finfo(dtype).max
    assert pyentmax.entmax(np.array([widest, -widest], dtype), alpha).tolist() == [1, 0]


@every_dtype
def test_below_1_loss_keeps_digits(dtype: type) -> None:
    """L = (c − |β| p·z)/α − z_y for max z = 0, of positive terms; p·z + H_α(p) would cancel."""
    for alpha in (1e-6, 0.2, 0.9, 1 - 1e-9):
        for z in ([0.0, -1e-3, 0.0], [0.0, -3.0, -50.0], [0.0, -1e4, -1e9], [-40.0, 0.0, -41.0]):
            row = np.array(z, dtype)
            p, _ = exact_row(row, alpha)
            with mpmath.workdps(50):
                a = mpmath.mpf(alpha)
                entropy = mpmath.fsum(x - x**a for x in p) / (a * (a - 1))
                scores = [mpmath.mpf(float(score)) for score in row]
                best = mpmath.fdot(p, scores) + entropy - scores[0]
                loss, grad = pyentmax.entmax.loss_and_grad(row, 0, alpha)
                error = abs(float(mpmath.mpf(float(loss)) - best))
            assert error <= 64 * np.finfo(dtype).eps * max(float(best), 1e-20)
            np.testing.assert_allclose(
                grad, pyentmax.entmax(row, alpha) - [1, 0, 0], rtol=0, atol=1e-6
            )


@pytest.mark.parametrize("alpha", [4, *slow(10), 50])
def test_nearly_tied_scores_follow_smooth_curve(alpha: float) -> None:
    """deep-spin/entmax at α = 10: p jumps by 0.4 where the scores all but tie.

    t = (p^β − (1−p)^β)/β is smooth and increasing in p; so is p(t) if it satisfies that.
    """
    beta = alpha - 1
    edge, last_places = 1 / beta, 4 * np.finfo(np.float64).eps
    t = np.r_[0.0, np.geomspace(1e-17, edge / 2, 100), np.linspace(edge / 2, edge, 50)]
    z = np.stack([t, np.zeros_like(t)], axis=-1)
    p = pyentmax.entmax(z, alpha)
    back = pyentmax.entmax(z[:, ::-1], alpha)[:, ::-1]
    np.testing.assert_allclose(back, p, rtol=0, atol=last_places)
    assert (np.diff(p[:, 0]) >= -last_places).all()
    assert (np.diff(p[:, 1]) <= last_places).all()
    assert p[0].tolist() == [0.5, 0.5]
    with mpmath.workdps(50):
        for (first, second), gap in zip(p, t, strict=True):
            back = (mpmath.mpf(float(first)) ** beta - mpmath.mpf(float(second)) ** beta) / beta
            assert abs(back - mpmath.mpf(float(gap))) <= 8 * np.finfo(np.float64).eps
