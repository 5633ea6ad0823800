"""Sums of rows where many entries share the rounding error of a threshold."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from crowded_rows import (
    assert_as_exact,
    crowded_rows,
    crowds_at_the_threshold,
)
from exact_rows import exact_entmax
from parameter_values import EXAMPLES
from stages import slow

import pyentmax
from pyentmax import MAPPINGS

PARAMETERS: dict[str, list[float]] = {
    "alpha": [1.1, 1.3, 1.9, 2.5, 4],
    "k": [100, 10_000],
    "fusedmax": [0.001, 0.1],
    "oscarmax": [1e-5, 1e-3],
    "upper": [1, 0.9, 0.3],
    "budget": [1, 1.5, 0.3, 37.5],
    "normmax": [1.1, 1.5, 2, 4],
}
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
CASES = [
    (name, params)
    for name, record in MAPPINGS.items()
    for params in product(
        *(PARAMETERS.get(name) or PARAMETERS.get(key, [EXAMPLES[key]]) for key in record.parameters)
    )
]


def assert_sums(p: np.ndarray, total: float = 1, scale: float = 1) -> None:
    room = 4 * np.finfo(p.dtype).eps * math.sqrt(p.shape[-1]) * scale
    off = np.abs([math.fsum(row.tolist()) - total for row in p]) / room
    assert off.max() <= 1, f"row {off.argmax()} is off by {off.max()} times what is allowed"


@every_dtype
@pytest.mark.parametrize("form", ["", *slow(".reference")])
@pytest.mark.parametrize(("name", "params"), CASES)
def test_rows_of_near_ties_sum_exactly(name: str, params: Any, form: str, dtype: type) -> None:
    function = getattr(pyentmax, name)
    function = function.reference if form else function
    given = [x if isinstance(x, int) else np.asarray(x, dtype) for x in params]
    total = float(given[0]) if name == "budget_sparsemax" else 1.0
    for d in (300,) if form else (300, 4_000):
        p = function(crowded_rows(d, dtype), *given)
        assert_sums(p, total, max(total, 1))


@every_dtype
@pytest.mark.parametrize("name", ["sparsemax", "csparsemax", "budget_sparsemax"])
def test_rows_of_near_ties_are_exact(name: str, dtype: type) -> None:
    """Against the threshold by bisection in wider floats: |p − p*| ≤ 4ε p* + 16ε."""
    function, eps = getattr(pyentmax, name), np.finfo(dtype).eps
    given = {"csparsemax": (np.array(0.9, dtype),), "budget_sparsemax": (1.5,)}.get(name, ())
    total, bound = 1.5 if name == "budget_sparsemax" else 1, given[0] if given else np.inf
    bound = 1 if name == "budget_sparsemax" else bound
    z = crowded_rows(1_000, dtype).astype(np.longdouble)
    low, high = z.min(axis=-1, keepdims=True) - 2, z.max(axis=-1, keepdims=True)
    for _ in range(80):
        tau = (low + high) / 2
        much = np.clip(z - tau, 0, bound).sum(axis=-1, keepdims=True) >= total
        low, high = np.where(much, tau, low), np.where(much, high, tau)
    exact = np.clip(z - low, 0, bound)
    p = function(z.astype(dtype), *given)
    assert (np.abs(p - exact) <= 4 * eps * exact + 16 * eps * max(1, float(-z.min()))).all()


@every_dtype
@pytest.mark.parametrize("form", ["", ".reference"])
@pytest.mark.parametrize("alpha", [2, *slow(1 + 2 / 3, 1.9, 1.99, 1.999, 1.9999, 2 - 1e-6)])
def test_entries_around_threshold_get_their_share(alpha: float, form: str, dtype: type) -> None:
    names = ["entmax", "sparsemax", "topk_sparsemax"] if alpha == 2 else ["entmax"]
    for d in (194,) if form else (60, 194, 600):
        z = crowds_at_the_threshold(d, alpha, dtype)
        exact = exact_entmax(z.astype(np.longdouble), alpha)
        for name in names:
            function = getattr(pyentmax, name)
            function = function.reference if form else function
            given = {"entmax": (alpha,), "sparsemax": (), "topk_sparsemax": (d,)}[name]
            assert_as_exact(function(z, *given), exact, z, alpha)


@pytest.mark.parametrize(
    ("d", "level", "alpha", "largest"),
    [
        (16_263, -0.9996864, 1.999, 0.99868550207),
        (20_000, -0.9993258, 1.9999, 0.99922584),
        (48_689, -0.997820258140564, 1.999, 0.99681933),
    ],
)
def test_rounded_threshold_excludes_no_ties(
    d: int, level: float, alpha: float, largest: float
) -> None:
    # All of it went to the largest, which got 1: no loss, no gradient, a support of one.
    z = np.full(d, level, np.float32)
    z[0] = 0
    p, log_p = pyentmax.entmax(z, alpha), pyentmax.entmax.log(z, alpha)
    room = 20 * np.finfo(np.float32).eps
    assert abs(p[0] - largest) <= room
    assert abs(np.exp(log_p[0]) - largest) <= room
    assert (p > 0).all()
    assert np.isfinite(log_p).all()
    assert pyentmax.entmax.support(z, alpha).all()
    loss, gradient = pyentmax.entmax.loss_and_grad(z, 0, alpha)
    assert loss > 0
    assert abs(gradient[0] - (largest - 1)) <= room


@every_dtype
def test_ties_of_short_row_do_not_oscillate(dtype: type) -> None:
    # Of 22 scores all steps but the last took the threshold past the crowd and back, and that put
    # 2e-7 on each: 4 times what a sum may be off by.
    ulps = np.arange(1, 12)[:, None] * np.finfo(dtype).eps / 2
    for d in (17, 22, 64, 200):
        z = np.broadcast_to(ulps - 1, (11, d)).astype(dtype)
        z[:, 0] = 0
        p = pyentmax.sparsemax(z)
        assert_as_exact(p, exact_entmax(z.astype(np.longdouble), 2), z, 2)
        assert_sums(p)


@every_dtype
@pytest.mark.parametrize("alpha", [1.995, *slow(1.9, 1.98, 1.9999, 1 + 2 / 3)])
def test_ties_crossing_threshold_in_last_step_count(alpha: float, dtype: type) -> None:
    # Just below α = 2 an entry gets nearly as much from a last step of a few ε as it is long.
    rng, eps = np.random.default_rng(0), float(np.finfo(dtype).eps)
    for d in (250, 30_000):  # in a tile; alone
        z = np.zeros((30, d), dtype)
        z[:, 1:] = -rng.uniform(0.2, 1, (30, 1)) / (alpha - 1)
        z[:, 1:] += 80 * eps * rng.standard_normal((30, d - 1))
        p = pyentmax.entmax(z, alpha)
        assert_sums(p)
        # p_i = t^b w_i^b, so roots of probabilities are as far apart as the scores.
        some = p[:, 1:].max(axis=1) > 8 * eps
        apart = p[:, 0].astype(float) ** (alpha - 1)
        apart = apart - p[:, 1:].max(axis=1).astype(float) ** (alpha - 1)
        expected = -(alpha - 1) * z[:, 1:].max(axis=1).astype(float)
        assert (np.abs(apart - expected)[some] <= 16 * eps).all()


@pytest.mark.parametrize("order", [1, -1])
def test_sum_does_not_depend_on_order(order: int) -> None:
    # Each of a crowd of 145 got ε/2 more than it should: added to 1, one by one, they were lost.
    h = float.fromhex
    lead = [h("0x1.2046a283466cap+0"), h("0x1.9e0fb84edcd02p-1"), h("0x1.62d6e7bcefd54p-1")]
    crowd = [h("0x1.15d14c5b732a4p-1")] * 108 + [h("0x1.15d14c5b732a5p-1")] * 145
    p = pyentmax.sparsemax(np.array(lead + crowd)[::order]).astype(np.longdouble)
    assert abs(float(p.sum() - 1)) <= 4 * np.finfo(float).eps
