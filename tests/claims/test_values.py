"""Every backend gives the truth on every row: p, its sum, support, log p, Ω, loss and gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import rows
import truth
from backends import ARRAYS, BACKENDS, CASES, LOSSES, for_each
from crowded_rows import crowds_at_the_threshold
from stages import slow

import pyentmax as pe

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
every_length = pytest.mark.parametrize(
    "lengths", [rows.LENGTHS, *slow(((16, 64, 300, 1000, 2077),))], ids=str
)
MODEST = ("largest floats", "half is -inf", *rows.SPOILT)
BLURRED = ("tied but for roundings", "at the threshold", "largest floats")
"""Rows where rounding, or a difference beyond the floats, decides what is on the support."""


def fitting(case: tuple[Any, ...], lengths: tuple[int, ...]) -> list[int]:
    """Lengths with room for bounds and budgets, and not too long for rational numbers."""
    longest = {"fusedmax": 33, "oscarmax": 129}.get(case[0], 1000)
    longest = 2077 if case[0] in (*truth.ALPHAS, "entmax") else longest
    return [n for n in lengths if n <= longest and (n > 1 or case[0] not in truth.BOUNDED)]


@cache
def problem(case: tuple[Any, ...], n: int, dtype: Any) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of rows, their scores, and their probabilities."""
    tight = case[0] in truth.BOUNDED and n < 7
    names, z = rows.batch(n, dtype, ("half is -inf",) if tight else ())
    return names, z, truth.forward(case[0], z, *case[1:])


def assert_right(case: tuple[Any, ...], p: Any, best: Any, z: Any, names: Any = None) -> None:
    """The contract of accuracy, the sum, and the order of the scores."""
    wrong = truth.wrong(case[0], p, best, z, *case[1:])
    where = [(names[i] if names else i, j, p[i, j], best[i, j]) for i, j in np.argwhere(wrong)[:3]]
    assert not wrong.any(), (z.shape[1], where)
    total = float(case[1]) if case[0] == "budget_sparsemax" else 1.0
    left = best.sum(axis=-1) > 0
    room = 4 * truth.ROUNDINGS * np.finfo(p.dtype).eps * math.sqrt(p.shape[-1]) * max(total, 1)
    off = [abs(math.fsum(row.tolist()) - total) for row in p[left]]
    assert max(off, default=0) <= room, (z.shape[1], max(off), room)
    assert (p[left] >= 0).all()
    if case[0] == "topk_sparsemax":  # rounding lifted entries beyond the k-th above 0
        assert ((p[left] > 0).sum(axis=-1) <= case[1]).all()
    if case[0] not in ("fusedmax", "topk_sparsemax") and not any(map(np.ndim, case[1:])):
        order = np.argsort(z[left], axis=-1, kind="stable")
        sorted_p = np.take_along_axis(p[left], order, axis=-1)
        rise = np.diff(sorted_p) / np.maximum(sorted_p[:, 1:], np.finfo(p.dtype).tiny)
        assert (rise >= -2 * np.finfo(p.dtype).eps).all(), "a larger score gets no less"
    if case[0] in ("fusedmax", "oscarmax"):  # derivatives read from p what is fused
        order = np.argsort(best[left] if case[0] == "oscarmax" else 0 * best[left], kind="stable")
        fused = np.diff(np.take_along_axis(best[left], order, axis=-1)) == 0
        steps = np.diff(np.take_along_axis(p[left], order, axis=-1))
        assert (steps[fused] == 0).all(), "what is fused has one value, to the bit"


@for_each(BACKENDS, CASES)
@every_dtype
@every_length
def test_probabilities(backend: Any, case: Any, dtype: Any, lengths: Any) -> None:
    for n in fitting(case, backend.lengths or lengths):
        names, z, best = problem(case, n, dtype)
        p = backend.call(case[0], z, *case[1:])
        assert p.dtype == dtype
        assert_right(case, p, best, z, names)


CROWDED = [("sparsemax",), ("entmax15",), ("topk_sparsemax", 600)]
CROWDED += [("entmax", alpha) for alpha in (1 + 2 / 3, 1.9, 1.99, 1.9999, 2 - 1e-6, 2, 2.5, 4)]


@for_each(ARRAYS, CROWDED)
@every_dtype
def test_crowds_at_the_threshold(backend: Any, case: Any, dtype: Any) -> None:
    for n in (22, 194, 600, *((1994,) if case == ("sparsemax",) else ())):
        alpha = 2.0 if case[0] == "topk_sparsemax" else truth.ALPHAS.get(case[0], *case[1:])
        z = crowds_at_the_threshold(n, alpha, dtype)
        best = truth.forward("entmax", z, alpha)
        assert_right(("entmax", alpha), backend.call(case[0], z, *case[1:]), best, z)


SUMMED = [*CASES, ("oscarmax", 1e-5), ("oscarmax", 1e-3), ("fusedmax", 0.001)]


@for_each(ARRAYS[1:], [case for case in SUMMED if case[1:] not in ((1e-9,), (0.5,))])
@every_dtype
def test_sums_of_long_rows(backend: Any, case: Any, dtype: Any) -> None:
    _, z = rows.batch(4000, dtype, rows.SPOILT)
    total = float(case[1]) if case[0] == "budget_sparsemax" else 1.0
    off = [abs(math.fsum(p) - total) for p in backend.call(case[0], z, *case[1:]).tolist()]
    assert max(off) <= 4 * np.finfo(dtype).eps * math.sqrt(4000) * max(total, 1)


def hard_rows() -> Iterator[tuple[str, Any, list[float]]]:
    """Rows that an algorithm of its kind has got wrong: a mapping, its parameter, scores."""
    for name in ("csoftmax", "csparsemax"):
        for exponent, low in product((1, 10, 19, 28, 37), (1e3, 1e8, 1e13)):
            yield name, 0.4, [10.0**exponent, 0, -low, -2 * low, -(low**2)]
        far = [1e38, 1e29, 1e20, 1e11, 1e2, 0.5, 0.45, 0.4, -1e4, -1e13, -1e22, -1e31]
        yield name, 0.15, far  # five scales are full; the others keep their digits
        for scale in (1, 1e-14, 1e290):  # used once the others are full, however low
            yield name, [0.25, 0.25, 1, 1], [0, -scale, -1e17 * scale, -1e17 * scale]
        yield name, [0.5, 0, 1], [0, -5, -9]
        yield name, [0.5, 0.5], [1e308, -1e308]
        yield name, [0.3, *[0.11] * 7], [np.nextafter(np.float32(1e30), np.inf), *[1e30] * 7]
        steps = -np.arange(40) / 4  # bounds just below what softmax gives, but for the last
        yield name, [*(0.9 * pe.softmax(steps)[:-1]), 1], steps.tolist()
    for upper, gap in product((1.0, [1, 1, 0.5, 0.5], [1, 1, 1, np.inf]), (10, 20, 40, 80)):
        yield "csoftmax", upper, [gap, 0, 1, 0.5]  # what is rounded to 1 is not full
    for budget in (1, 2.5, 3, 5):
        yield "budget_sparsemax", budget, [5, -3, 2, 9, 0]
    yield "budget_sparsemax", 2, [0, -1e17, -1e17]
    for top in ([1e9], [1e30], [3e38, -3e38]):
        yield "budget_sparsemax", 2, [*top, 0.3, 0.1, -0.4]
    for strength, seed in product((0.3, 30, 1e8, 1e15), range(8)):
        rng_ = np.random.default_rng(seed)  # peaks, and valleys that cut the chain or do not
        z = rng_.standard_normal(rng_.integers(2, 14)) * rng_.choice([0.2, 1, 3])
        low = rng_.random(len(z)) < 0.5
        z[low] = -strength * rng_.choice([0.3, 1, 2, 3.5, 4.5, 1e3], low.sum())
        yield "fusedmax", strength, z.tolist()
        yield "oscarmax", strength, z.tolist()
    yield "fusedmax", 2.0**70, (np.array([-4, 0, -4, 0, -4]) * 2.0**70).tolist()
    for level, strength in ((-0.3, 2e-17), (-0.9, 1e-16), (-0.02, 3e-18)):
        yield "fusedmax", strength, [0, *[level] * 5]  # a rounding of strength fuses them
    for short in (0, 1e-9, 1e-12, 1e-15):  # two plateaus are all but fused, or just are
        yield "fusedmax", 0.37 * 50 * (1 - short), [0.0] * 100 + [0.37] * 100
    for k, top in product((1, 2, 3, 4), (0.75, 16)):
        close = [-9] * 30 + [top, 0, 2.0**-26, 0, 2.0**-25] + [-9] * 30  # gaps to the top tie
        yield "topk_softmax" if top == 16 else "topk_sparsemax", k, close
        yield "topk_softmax" if top == 16 else "topk_sparsemax", k, [2, 1, 3, 1, 1, 0]
    for alpha, left, others in product((2, 20, 50), (1, 3, 100, 1e8), ([], [0], [-0.3, 0.5])):
        yield "normmax", alpha, [1 - 2.0**-53 * left, *others, 0]
    for alpha, level in ((4, -0.7382), (20, -0.66647)):  # 5e-7 above the others' threshold
        yield "normmax", alpha, [0, -0.3, level]
    for alpha, at in product((4, 7.97, 10, 50), np.linspace(0.3, 0.99, 20)):
        yield "entmax", alpha, [-at / (alpha - 1), *[-9] * 22, 0]  # barely reached by the threshold
    for alpha, n in product((2.5, 51, 1001), (20, 64, 1000)):  # gaps too small for any threshold
        for z in (-(0.5 ** np.arange(n)), -np.geomspace(1e-44, 1, n)):
            yield "entmax", alpha, z.tolist()
    for alpha in (4, 10, 50):  # p is smooth where two scores all but tie
        yield from (("entmax", alpha, [t, 0]) for t in np.geomspace(1e-17, 1 / (alpha - 1), 20))
    for alpha in (0.5, 1e-9):  # a tail that is a power, at any distance
        yield from (("entmax", alpha, [gap, 0, -np.inf]) for gap in (1e4, 1e10, 1e30))
    yield from (("softmax", None, [0, -float(gap)]) for gap in range(80, 800, 3))  # it underflows
    powers = (2.0 ** np.arange(-60, 60)).tolist()
    for k in (1, 7, 60, 119, 121, 200):  # one bit, or the first digit, is all that differs
        yield "topk_softmax", k, [*powers, *(-x for x in powers), 0, -0.0]
    yield "normmax", np.inf, [-6.6e-14, 0.32830883026969465, 0.3059988294392768, 0.36569234029083]


@pytest.mark.parametrize("backend", ARRAYS, ids=lambda backend: backend.name)
@every_dtype
def test_hard_rows(backend: Any, dtype: Any) -> None:
    alike: dict[Any, list[Any]] = {}  # rows of one length and parameter are one call
    for name, value, scores in hard_rows():
        with np.errstate(over="ignore"):
            z = np.array(scores, dtype)
        if np.isinf(z).sum() == np.isinf(scores).sum():
            alike.setdefault((name, str(value), z.size), []).append((value, z))
    for (name, text, _), same in alike.items():
        value, z = same[0][0], np.stack([row for _, row in same])
        given = [] if value is None else [value]
        if name in ("csoftmax", "csparsemax", "fusedmax", "oscarmax"):
            given = [np.asarray(value, dtype)[()]]
        best = truth.forward(name, z, *given)
        p = backend.call(name, z, *given)
        assert_right((name, *given), p, best, z, [(name, text, row) for row in z])
        if "softmax" not in name and not (
            name == "entmax" and value > 2
        ):  # underflow; moved scores
            on, clear = backend.call(f"{name}.support", z, *given), (best > 1e-9) | (best == 0)
            np.testing.assert_array_equal(on[clear], best[clear] > 0, str((name, text)))


@pytest.mark.parametrize("backend", ARRAYS, ids=lambda backend: backend.name)
@every_dtype
def test_parameters_at_their_ends(backend: Any, dtype: Any) -> None:
    z = np.random.default_rng(4).standard_normal((50, 9)).astype(dtype)
    same, eps = np.testing.assert_array_equal, float(np.finfo(dtype).eps)
    sparsemax, softmax = backend.call("sparsemax", z), backend.call("softmax", z)
    one_hot = np.eye(9)[z.argmax(axis=-1)]
    for name in ("fusedmax", "oscarmax"):
        same(backend.call(name, z, 0), sparsemax)
        for row in (z[0], np.array([0, -1e38, 3e38, 1], dtype)):
            np.testing.assert_allclose(backend.call(name, row, np.inf), 1 / row.size, rtol=4 * eps)
            assert backend.call(f"{name}.support", row, np.inf).all()
    for k in (9, 30, np.inf):
        np.testing.assert_allclose(backend.call("topk_softmax", z, k), softmax, rtol=64 * eps)
        same(backend.call("topk_sparsemax", z, k) > 0, sparsemax > 0)
    same(backend.call("topk_softmax", z, 1), one_hot)
    same(backend.call("entmax", z, np.inf), one_hot)
    for alpha, name in ((1, "softmax"), (1.5, "entmax15"), (2, "sparsemax")):
        np.testing.assert_allclose(
            backend.call("entmax", z, alpha), backend.call(name, z), rtol=0, atol=16 * eps
        )
    y = z.argmin(axis=-1)
    margin = np.ptp(z.astype(float), axis=-1)
    for alpha in (1e10, 1e39, 1e305):  # argmax, and the perceptron's loss
        same(backend.call("entmax", z, alpha), one_hot)
        loss, _ = backend.loss_and_grad("entmax", z, y, alpha, reduction="none")
        assert (np.abs(loss - margin) <= 1 / alpha + 16 * eps * margin).all()
        p = backend.call("softmax", z)
        slope = backend.call("entmax.parameter_slope", p, alpha)
        assert (np.abs(slope) <= 2 * (1 - float(np.log(p.min()))) / alpha).all()
        assert not np.isnan(backend.call("entmax.jvp", p, z, alpha)).any()
    for bound in (1, 1.5, np.inf):
        np.testing.assert_allclose(backend.call("csoftmax", z, bound), softmax, rtol=64 * eps)
        same(backend.call("csparsemax", z, bound) > 0, sparsemax > 0)
    same(backend.call("budget_sparsemax", z, 9), np.ones_like(z))
    same(backend.call("budget_sparsemax", z, 0), np.zeros_like(z))
    same(backend.call("budget_sparsemax", z.astype(np.float32), 1e-46), np.zeros_like(z))
    for name, type_ in product(("csoftmax", "csparsemax"), (np.float16, dtype)):
        upper, rounding = np.full(9, 1 / 9).astype(type_), float(np.finfo(type_).eps)
        for bounds in (upper, upper * type_(1 - 5 * rounding)):  # which sum to 1 or a bit less
            p = backend.call(name, z.astype(type_), bounds)
            np.testing.assert_allclose(p, np.broadcast_to(bounds, z.shape), rtol=rounding)
        with pytest.raises(ValueError, match="upper is infeasible"):
            backend.call(name, z, upper * type_(1 - 40 * rounding))
    nothing = np.zeros((2, 9), dtype)
    for part in ("jvp", "parameter_vjp"):
        assert not backend.call(f"budget_sparsemax.{part}", nothing, z[:2], np.zeros(2)).any()


@pytest.mark.parametrize("backend", ARRAYS, ids=lambda backend: backend.name)
def test_underflowing_probabilities_keep_support_and_logarithm(backend: Any) -> None:
    z = np.array([0.0, -900.0, -1100.0, -np.inf])
    for name, value, on in (
        ("softmax", [], [1, 1, 1, 0]), ("topk_softmax", [2], [1, 1, 0, 0]),
        ("entmax", [1], [1, 1, 1, 0]), ("entmax", [1.001], [1, 1, 0, 0]),
        ("entmax", [4], [1, 0, 0, 0]),
    ):  # fmt: skip
        p = backend.call(name, z, *value)
        assert p.tolist() == [1, 0, 0, 0]
        assert backend.call(f"{name}.support", z, *value).tolist() == on
        if pe.MAPPINGS[name].log.is_defined:
            exact = -900 if value != [1.001] else np.log1p(-0.9) / 1e-3
            log_p = backend.call(f"{name}.log", z, *value)
            np.testing.assert_array_equal(log_p > -np.inf, on)
            np.testing.assert_allclose(log_p[1], exact if on[1] else -np.inf, rtol=1e-12)


@pytest.mark.parametrize("backend", ARRAYS, ids=lambda backend: backend.name)
def test_logarithms_of_near_certainty_keep_their_digits(backend: Any) -> None:
    """log p is −q, q = 1e−12 what others have; the logarithm of a rounded p has four digits."""
    for name, value, gap in (
        ("softmax", [], 27.6), ("entmax", [1], 27.6), ("entmax15", [], 2 - 2e-6),
        ("entmax", [1.25], 3.996),
    ):  # fmt: skip
        z = np.array([[-gap, 0.0]])
        log_p = backend.call(f"{name}.log", z, *value)[0, 1]
        exact = np.log1p(-truth.forward(name, z, *value)[0, 0])
        np.testing.assert_allclose(log_p, float(exact), rtol=1e-8)


# Rows of one score of 0 and n − 1 ties, where a search stopped early, or a threshold rounded.
TIES = [
    (508, 1.828375494727526, -0.5869228), (488, 1.821805240879634, -0.59463054),
    (472, 1.8130152482818396, -0.60712004), (490, 1.8370263224469399, -0.58615494),
    (497, 1.7709446004324905, -0.75844795), (4096, 1.4787, -1.911174), (4096, 1.4721, -1.794335),
    (50_000, 1.5, -1.5), (16_263, 1.999, -0.9996864), (20_000, 1.9999, -0.9993258),
    (48_689, 1.999, -0.997820258140564), *slow((32_000, 1.4694, -2.06788)),
]  # fmt: skip


@pytest.mark.parametrize("backend", ARRAYS, ids=lambda backend: backend.name)
@pytest.mark.parametrize(("n", "alpha", "level"), TIES)
def test_ties_near_the_threshold(backend: Any, n: int, alpha: float, level: float) -> None:
    z = np.full((1, n), level, np.float32)
    z[0, 0] = 0
    best = truth.forward("entmax", z, alpha)
    p = backend.call("entmax", z, alpha)
    assert_right(("entmax", alpha), p, best, z)
    on = backend.call("entmax.support", z, alpha)
    np.testing.assert_array_equal(on, p > 0)
    log_p = backend.call("entmax.log", z, alpha)[on].astype(float)
    np.testing.assert_allclose(np.exp(log_p), p[on], rtol=1e-4, atol=1e-6)
    loss, gradient = backend.loss_and_grad("entmax", z, np.array([0]), alpha)
    assert loss > 0
    np.testing.assert_allclose(gradient[0, 0], float(best[0, 0]) - 1, rtol=0, atol=3e-6)


@for_each([backend for backend in BACKENDS if backend.name != "tape"], CASES)
def test_supports(backend: Any, case: Any) -> None:
    for n in fitting(case, backend.lengths or rows.LENGTHS):
        names, z, best = problem(case, n, np.float64)
        on = backend.call(f"{case[0]}.support", z, *case[1:])
        assert on.dtype == bool
        sure = ((best > 1e-9) | (best == 0)) & ~np.isin(names, BLURRED)[:, None]
        np.testing.assert_array_equal(on[sure], best[sure] > 0)
        assert not on[np.isnan(best)].any()
    # The last score of each row is at the threshold of sparsemax, or of 1.5-entmax, to the bit.
    z = np.array([[0, -np.inf, -1], [0, 0, -0.5], [0, -np.inf, -2], [-1, -np.inf, -3]])
    if case[0] not in truth.BOUNDED:
        on, p = (backend.call(case[0] + part, z, *case[1:]) for part in (".support", ""))
        np.testing.assert_array_equal(on, p > 0)


LOGS = [case for case in CASES if pe.MAPPINGS[case[0]].log.is_defined]


@for_each([backend for backend in BACKENDS if backend.name != "tape"], LOGS)
@every_dtype
def test_logarithms(backend: Any, case: Any, dtype: Any) -> None:
    """Within ε of log p, and what a moved score does to it: s/p = p^{−β}."""
    beta = min(truth.ALPHAS.get(case[0], *case[1:]) - 1, 1e6)
    eps = np.finfo(dtype).eps * truth.ROUNDINGS
    for n in fitting(case, backend.lengths or rows.LENGTHS):
        names, z, best = problem(case, n, dtype)
        found = backend.call(f"{case[0]}.log", z, *case[1:])
        assert found.dtype == dtype
        with np.errstate(all="ignore"):
            exact, top = np.log(best), z.max(axis=-1, keepdims=True)
            gap = truth.reach(z.astype(truth.Wide) - top, best > 0)
            moved = 32 * eps * gap * np.exp(-beta * exact)
            right = np.abs(found - exact) <= 8 * eps * np.abs(exact) + moved
        near_tau = (moved > 0.05) & (found < 0)  # an entry at the threshold may go either way
        right |= near_tau | (found == exact) | (np.isnan(found) & np.isnan(exact))
        right |= np.isin(names, "largest floats")[:, None]  # a difference beyond the floats is −∞
        if backend.name == "torch composed":  # which takes the logarithm of p
            right |= best < np.finfo(dtype).tiny
        assert right.all(), [
            (names[i], n, found[i, j], exact[i, j]) for i, j in np.argwhere(~right)[:3]
        ]
        assert not (backend.is_arrays and np.signbit(found[found == 0]).any())


@for_each(ARRAYS, [case for case in CASES if pe.MAPPINGS[case[0]].regularizer.is_defined])
def test_regularizers(backend: Any, case: Any) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(6) / 2, size=7)
    p[0], p[1] = np.eye(6)[2], 1 / 6
    if case[0] == "topk_sparsemax":
        assert (backend.call("topk_sparsemax.regularizer", p, 2)[1:] == np.inf).all()
        p = np.concatenate([p[:1], np.eye(6)[:2] @ np.diag([1, 1, 1, 1, 1, 1.0])])
        p[1, :2] = 0.25, 0.75
    found = backend.call(f"{case[0]}.regularizer", p, *case[1:])
    best = truth.omega(case[0], p, *case[1:]).astype(float)
    np.testing.assert_allclose(found, best, rtol=1e-13, atol=1e-15)


@cache
def labelled(case: tuple[Any, ...], n: int, dtype: Any) -> tuple[Any, ...]:
    """Rows, labels near the largest score and anywhere, losses and probabilities."""
    names, z = rows.batch(n, dtype, MODEST)
    place = np.arange(len(z))
    y = np.where(place % 2, z.argmax(axis=-1), place % n)
    return (
        names,
        z,
        y,
        truth.loss(case[0], z, np.eye(n)[y], *case[1:]),
        truth.forward(case[0], z, *case[1:]),
    )


def assert_loss_right(case: tuple[Any, ...], found: Any, labelled_rows: Any) -> None:
    """The loss of each row, its gradient p − e_y, and that this sums to 0."""
    (names, z, y, best, p), (loss, grad), n = labelled_rows, found, labelled_rows[1].shape[1]
    assert loss.dtype == grad.dtype == z.dtype
    gap = np.maximum(1, np.ptp(z.astype(float), axis=-1))
    eps = np.finfo(z.dtype).eps * truth.ROUNDINGS
    wrong = np.abs(loss - best) > eps * (8 * np.abs(best) + 4 * gap)
    assert not wrong.any(), [(names[i], n, loss[i], best[i]) for i in np.flatnonzero(wrong)[:3]]
    assert (loss >= 0).all()
    other = np.eye(n)[y] == 0
    gradient = np.where(other, grad, p).astype(z.dtype)
    wrong = truth.wrong(case[0], gradient, p, z, *case[1:]) & other
    assert not wrong.any(), [(names[i], n, grad[i, j], p[i, j]) for i, j in np.argwhere(wrong)[:3]]
    off, allowed = np.abs(grad.astype(float).sum(axis=-1)), 4 * eps * n**0.5 + 32 * eps * gap
    assert (off <= allowed).all(), [(names[i], n, off[i]) for i in np.flatnonzero(off > allowed)]


@for_each(BACKENDS, LOSSES)
@every_dtype
@every_length
def test_losses_and_gradients(backend: Any, case: Any, dtype: Any, lengths: Any) -> None:
    for n in fitting(case, backend.lengths or lengths):
        names, z, y, best, p = labelled(case, n, dtype)
        weight = (2.0 ** (1 + np.arange(len(z)) % 3)).astype(dtype)
        options = {"reduction": "none", "weight": weight}
        loss, grad = backend.loss_and_grad(case[0], z, y, *case[1:], **options)
        found = loss / weight, grad / weight[:, None]
        assert_loss_right(case, found, (names, z, y, best, p))


@for_each(ARRAYS[1:], [("entmax", alpha) for alpha in (1, 1.001, 1.2, 1.5, 1.75, 2, 3)])
@every_dtype
def test_small_losses_keep_their_digits(backend: Any, case: Any, dtype: Any) -> None:
    """Kernels; rules lose them in a difference. p = 1 − q for the label, others share q."""
    alpha, own = case[1], {1: ["softmax"], 1.5: ["entmax15"], 2: ["sparsemax"]}.get(case[1], [])
    for m, q in product((1, 4, 299), (0.2, 1e-2, 1e-4)):
        z = np.zeros((1, m + 2), dtype)
        beta, each = alpha - 1, q / m
        gap = ((1 - q) ** beta - each**beta) / beta if beta else np.log((1 - q) / each)
        z[0, 0], z[0, -1] = gap, -np.inf
        best, p = (
            truth.loss("entmax", z, np.eye(m + 2)[:1], alpha),
            truth.forward("entmax", z, alpha),
        )
        # A rounding of the gap moves q by s = q^{1 − β} times that.
        rtol = 16 * alpha * np.finfo(dtype).eps * (1 + gap / each**beta)
        found = [backend.loss_and_grad("entmax", z, np.array([0]), alpha)]
        found += [backend.loss_and_grad(name, z, np.array([0])) for name in own]
        for loss, grad in found:
            np.testing.assert_allclose(float(loss), float(best[0]), rtol=rtol, atol=1e-18)
            np.testing.assert_allclose(grad[0, 0], -float(p[0, 1:].sum()), rtol=rtol)


@pytest.mark.parametrize("alpha", [0.05, 0.8, 1, 1 + 1e-8, 1.1, 1.5, 1.75, 2, 2.2, 7.5])
@every_dtype
def test_pairs_of_a_score_and_0(alpha: float, dtype: Any) -> None:
    """entmax_sigmoid and one_vs_all_loss: inside the support, at its edge, near 0 and beyond."""
    edge = 1 / (alpha - 1) if alpha > 1.02 else 40.0
    shares = np.array([1e-30, 1e-3, 0.01, 0.3, 0.9, 0.9999, 1 - 1e-6, 1.0, 1e8])
    z = np.concatenate([-edge * shares, [0], edge * shares]).astype(dtype)
    pairs, eps = np.stack([z, 0 * z], axis=-1), np.finfo(dtype).eps
    best = truth.forward("entmax", pairs, alpha)
    p = pe.entmax_sigmoid(z, alpha)
    assert p.dtype == dtype
    other = best[:, 1].astype(dtype) if alpha <= 2 else 1 - p
    wrong = truth.wrong("entmax", np.stack([p, other], axis=-1), best, pairs, alpha)
    assert not wrong.any(), (z[wrong[:, 0]], p[wrong[:, 0]])
    for y in (0.0, 0.25, 1.0):
        loss, grad = pe.one_vs_all_loss_and_grad(
            z[:, None], np.full((len(z), 1), y, dtype), alpha, reduction="none"
        )
        exact = truth.loss("entmax", pairs, np.array([[y, 1 - y]] * len(z)), alpha)
        size = 16 * np.abs(exact) + 16 * np.maximum(1, np.abs(z.astype(float)))
        size += 8 * np.abs(truth.omega("entmax", [[0.5, 0.5]], alpha))  # of terms that cancel
        assert (np.abs(loss - exact) <= eps * size).all()
        np.testing.assert_allclose(grad[:, 0], p - dtype(y), rtol=0, atol=4 * eps)
    most = np.finfo(dtype).max
    ends = pe.entmax_sigmoid(np.array([-np.inf, -most, 0, most, np.inf, np.nan], dtype), alpha)
    if alpha >= 1:
        np.testing.assert_array_equal(ends, [0, 0, 0.5, 1, 1, np.nan])
