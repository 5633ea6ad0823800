"""Rows that a kernel has got wrong, or that an algorithm of its kind gets wrong.

What holds of all rows is in test_kernel_contract.py, what holds of mappings in tests/claims.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernel_contract import assert_contract, results
from kernel_operands import _cpu
from kernel_rows import FLOATS, LENGTHS
from stages import sample, slow

import pyentmax as pe

every_dtype = pytest.mark.parametrize("dtype", FLOATS)


def check(name, z, *further):
    """The contract for a row or rows of scores, in all builds."""
    z = np.atleast_2d(z)
    given = z, np.ones(z.shape, bool), *(np.broadcast_to(x, len(z)) for x in further)
    for kernels in _cpu.BUILDS.values():
        assert_contract(name, results(kernels[name], given), given)
    return getattr(_cpu, name)(*given)


def call(name, z, *further):
    return getattr(_cpu, name)(z, np.broadcast_to(True, z.shape), *further)


# --- α-entmax -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [300, 1994, 4096])
def test_chunks_right_at_the_threshold_have_their_share(n):
    """The root of sparsemax lies between two floats: a chunk was below by less than a rounding."""
    z = np.tile(np.linspace(-0.9999, -0.99999, 101).astype(np.float32)[:, None], n)
    z[:, 7] = 0
    off = np.abs([math.fsum(row) - 1 for row in call("sparsemax", z).tolist()])
    assert off.max() <= 4 * np.finfo(np.float32).eps * math.sqrt(n)


@every_dtype
def test_softmax_underflows_gradually_and_then_to_zero(dtype):
    """e^-x for every x from 0 to far below the least subnormal number, beside a score of 0."""
    lowest = math.log(np.finfo(dtype).smallest_subnormal)
    z = np.linspace(0, 1.1 * lowest, 5_000).astype(dtype)
    p = call("softmax", np.stack([np.zeros_like(z), z], axis=-1))[:, 1]
    exact = np.exp(z.astype(np.longdouble)) / (1 + np.exp(z.astype(np.longdouble)))
    error = np.abs(p - exact) / np.maximum(exact, np.finfo(dtype).tiny)
    assert error.max() <= 4 * np.finfo(dtype).eps
    assert (p[z > 0.99 * lowest] > 0).all()
    assert (p[z < 1.01 * lowest] == 0).all()


@every_dtype
@pytest.mark.parametrize("alpha", [2.5, 51, 1001])
@pytest.mark.parametrize("n", [64, 1000, *slow(20_000)])
def test_gaps_too_small_for_any_threshold_tie(n, alpha, dtype):
    falling = np.arange(n)
    z = np.stack([-(0.5**falling), -(0.25**falling), -np.geomspace(1e-44, 1, n)]).astype(dtype)
    for row in z:  # long rows are solved alone, short ones in a tile
        check("entmax", np.stack([row] * 3), float(alpha))


@pytest.mark.parametrize(
    "alpha", sample([1.19, 8 / 7, 1.33, 1.42, 1.5 - 1e-7, 1.52, 1.6, 1.75, 1.97], 4)
)
def test_long_rows_with_most_entries_in_the_support(alpha):
    rng = np.random.default_rng(0)
    for d in (1024, 1063, 2048, 2077):
        z = 0.03 / (alpha - 1) ** 2 * rng.standard_normal(d) * (1 if alpha < 1.5 else 0.03)
        far = np.where(rng.random(d) < 0.01, -np.inf, z)  # where a sample may not look
        far[(np.arange(d) // 16) % 16 != 0] = z[(np.arange(d) // 16) % 16 != 0]
        half = z - (np.arange(d) % 2)
        rows = z, z / 30, 2 * z, np.sort(z), np.sort(z)[::-1], far, half, z - 1e3
        z = np.array(rows).astype(np.float32)
        check("entmax", z, alpha)
        given = z, np.ones(z.shape, bool), rng.integers(0, d, 8), np.ones(8, np.float32), alpha
        given = (*given[:-1], np.full(8, alpha))
        assert_contract("entmax_loss_and_grad", _cpu.entmax_loss_and_grad(*given), given)


@every_dtype
@pytest.mark.parametrize("n", sample(LENGTHS, 3))
def test_special_alphas_are_those_mappings_to_the_last_bit(n, dtype):
    z = np.random.default_rng(n).standard_normal((33, n)).astype(dtype)
    for alpha, name in ((1, "softmax"), (1.5, "entmax15"), (2, "sparsemax")):
        expected = call(name, z)
        np.testing.assert_array_equal(call("entmax", z, alpha), expected)
        np.testing.assert_array_equal(call("entmax", z, np.full(33, alpha)), expected)


# --- top k ----------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("n", [8, 300, 3000])
def test_ties_with_the_kth(n, dtype):
    """Of softmax all stay, of sparsemax the first; in the row of 3000 of other chunks too."""
    z = np.full(n, -3, dtype)
    z[n // 2 :] = 1
    assert (check("topk_softmax", z, 2) > 0).ravel().tolist() == (z == 1).tolist()
    z = np.zeros(n, dtype)
    for k in (1, 2, n // 2, n - 1):
        np.testing.assert_array_equal(np.flatnonzero(call("topk_sparsemax", z, k)), np.arange(k))
    z[n // 2 :: 2] = 0.25  # two of these, then one of the zeros
    z[n // 2 + 4 :] = -1
    above = np.flatnonzero(z == 0.25)
    p = call("topk_sparsemax", z, len(above) + 1)
    assert np.flatnonzero(p).tolist() == sorted([0, *above])


@every_dtype
@pytest.mark.parametrize("k", [1, 999])
def test_the_kth_differs_in_its_lowest_bit(k, dtype):
    """Or from all others in a single digit: what a selection by digits must not confuse."""
    for place in (0, 499, 999):
        z = np.full(1000, 1, dtype)
        z[place] = np.nextafter(dtype(1), dtype(2 if k == 1 else 0))
        found = np.flatnonzero(call("topk_softmax", z, k))
        assert found.tolist() == [place] if k == 1 else place not in found
    powers = (2.0 ** np.arange(-60, 60)).astype(dtype)
    z = np.concatenate([powers, -powers, [0, -0.0]]).astype(dtype)
    every_k = np.arange(1, len(z))
    check("topk_softmax", np.tile(z, (len(every_k), 1)), every_k)


@pytest.mark.parametrize("dtype", [np.float32, *slow(np.float64)])
def test_no_more_than_k_where_many_are_all_but_at_the_threshold(dtype):
    """Rounding lifted entries beyond the k-th above 0, by what it left to share."""
    eps, rng = np.finfo(dtype).eps, np.random.default_rng(0)
    for n in (20, 300, 3000):
        for k in (1, 2, 3, 7):
            z = np.empty((50, n))
            z[:, :k] = 0.2 * rng.standard_normal((50, k))
            least = pe.sparsemax(z[:, :k]).min(axis=1, keepdims=True)
            z[:, k:] = np.min(z[:, :k], axis=1, keepdims=True) - least
            z = (z + eps * rng.integers(-3, 4, z.shape)).astype(dtype)
            check("topk_sparsemax", z, k)


# --- structured and bounded mappings --------------------------------------------------------------


@every_dtype
def test_groups_are_equal_to_the_last_bit(dtype):
    """Else the Jacobian, which reads the groups off p, has others."""
    z = (np.random.default_rng(5).standard_normal((40, 260)) / 100).astype(dtype)
    for name, strength in (("fusedmax", 1e-3), ("oscarmax", 1e-5)):
        strength = float(np.float32(strength))
        p, exact = call(name, z, strength), getattr(pe, name).reference(z.astype(float), strength)
        for row, exact_row in zip(p, exact, strict=True):
            levels, group = np.unique(exact_row, return_inverse=True)
            if name == "fusedmax":
                group = np.cumsum(np.diff(exact_row, prepend=-1) != 0)  # neighbours only
            on = exact_row > 0
            pairs = set(zip(group[on].tolist(), row[on].tolist(), strict=True))
            assert len({g for g, _ in pairs}) == len(pairs) < on.sum() or len(levels) == 1
        for strength in (1e3, 1e30, np.inf):
            p = call(name, z, strength)
            assert (p == p[:, :1]).all()
            np.testing.assert_allclose(p, 1 / 260, rtol=2 * np.finfo(dtype).eps)


@every_dtype
@pytest.mark.parametrize("name", ["csoftmax", "csparsemax"])
def test_bounds_that_are_hard_to_fill(name, dtype):
    """Breakpoints in geometric order are passed one by one, and full entries hide the others."""
    n, i = 400, np.arange(400)
    rows = [-i / 10, -i / 1000, np.where(i < 50, 100, 0) - i / 50, np.where(i < 20, 1e4, 0) + i]
    bounds = [np.exp(-i / 11) / 9, np.full(n, 1.5 / n), np.where(i < 50, 0.01, 1)]
    bounds += [np.where(i < 20, 1e-4, 0.01)]
    pairs = [(z, upper) for z in rows for upper in bounds if upper.sum() > 1]
    just_below = np.append(pe.softmax(-i / 4)[:-1] * 0.9, 1)  # what softmax gives, but for the last
    z, upper = (np.array(x).astype(dtype) for x in zip(*pairs, (-i / 4, just_below), strict=True))
    given = z, np.ones(z.shape, bool), upper
    for kernels in _cpu.BUILDS.values():
        assert_contract(name, kernels[name](*given), given)


@every_dtype
@pytest.mark.parametrize("alpha", [3, 4])
def test_normmax_near_its_threshold(alpha, dtype):
    """Where p is a root of what a score exceeds the threshold by, its roundings count."""
    rng = np.random.default_rng(0)
    z = rng.uniform(-0.6, 0, (3000, 14)).astype(dtype)
    z[:, :2] = 0, -np.inf
    p = pe.normmax.reference(z.astype(np.float64), alpha)
    norm = (p**alpha).sum(axis=-1) ** (1 / alpha)
    z[:, 1] = -((p[:, 0] / norm) ** (alpha - 1)) + 10 ** rng.uniform(-7, -4, len(z))
    given = z, np.ones(z.shape, bool), np.full(len(z), float(alpha))
    for kernels in _cpu.BUILDS.values():
        assert_contract("normmax", kernels["normmax"](*given), given)
