"""What each kernel of rows takes: operands of every kind, for tests that run all of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import pyentmax as pe

sys.path.append(str(Path(__file__).parents[1] / "claims"))
import truth  # noqa: E402

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

BASELINE = list(_cpu.BUILDS)[-1]
# Those of attention do not take rows of scores: tests/cpu/test_attention_kernels.py,
# test_few_query_kernels.py and tests/sparse_attention/test_key_sets.py.
FEW_QUERIES = (
    "candidates",
    "few_queries",
    "given_keys",
    "quantize_rows",
    "screen_best",
    "screen_rows",
)
KERNELS_OF_ROWS = [
    name
    for name in _cpu.BUILDS[BASELINE]
    if not name.startswith(("rows_", "columns_", "product")) and name not in FEW_QUERIES
]
ENTRY_BY_ENTRY = ("adam_step",)

ALPHAS = [1, 1 + 1e-12, 1 + 1e-6, 1.001, 1.03, 1.1, 1.154, 1.25, 4 / 3, 1.49, 1.5, 1.51, 5 / 3]
ALPHAS += [1.75, 1.99, 2 - 1e-9, 2, 2 + 1e-9, 2.1, 2.5, 4, 10, 50, np.inf]


def one_or_each(rng, values, rows):
    """One value for all rows, as most callers have it, or one for each."""
    return np.full(rows, rng.choice(values)) if rng.random() < 0.5 else rng.choice(values, rows)


def upper_bounds(rng, z, live):
    """Bounds that leave room for a sum of 1: tight or loose, and 0 here and there."""
    upper = (rng.random(z.shape) + 0.01) * (rng.random(z.shape) < 0.9) * live
    some = live.argmax(axis=-1)  # never 0 where anything is left
    upper[np.arange(len(z)), some] += 0.5
    room = np.where(live, upper, 0).sum(axis=-1, keepdims=True)
    room = np.where(room > 0, room, 1)
    return (upper * rng.choice([1.001, 1.2, 3, 1000], (len(z), 1)) / room).astype(z.dtype)


def budgets(rng, z, live):
    """Shares of what is left of each row."""
    return np.maximum(live.sum(axis=-1), 1) * rng.choice([0.01, 0.3, 0.5, 0.9, 1], len(z))


# What a kernel takes behind scores and mask: for a batch z, and the entries that are left of it.
FURTHER_OPERANDS = {
    "entmax": lambda rng, z, live: (one_or_each(rng, ALPHAS, len(z)),),
    "topk_softmax": lambda rng, z, live: (one_or_each(rng, [1, 2, 3, 40, 10**12], len(z)),),
    "topk_sparsemax": lambda rng, z, live: (one_or_each(rng, [1, 2, 3, 7, 10**12], len(z)),),
    "fusedmax": lambda rng, z, live: (rng.choice([0, 1e-3, 0.05, 0.7, 20, np.inf], len(z)),),
    "oscarmax": lambda rng, z, live: (rng.choice([0, 1e-4, 0.003, 0.1, np.inf], len(z)),),
    "csoftmax": lambda rng, z, live: (upper_bounds(rng, z, live),),
    "csparsemax": lambda rng, z, live: (upper_bounds(rng, z, live),),
    "normmax": lambda rng, z, live: (rng.choice([1.02, 1.5, 2, 4, np.inf], len(z)),),
    "budget_sparsemax": lambda rng, z, live: (budgets(rng, z, live),),
}


def mapping_of(name):
    """The mapping of a derivative or a loss."""
    return re.sub("_(jvp|vjps|vjp_upper|vjp_alpha|grad_alpha|loss|loss_and_grad)$", "", name)


def operands(name, z, rng):
    """What a kernel takes, made of a batch of scores; NaN where it must not look."""
    if name.startswith("lstm_cell"):
        z = np.clip(z, -8, 8)
        a, b = (np.stack([rng.permuted(z) for _ in range(4)], axis=1) for _ in range(2))
        if name == "lstm_cell":
            return a, b, z
        gates, _, tanh_c, h = _cpu.BUILDS[BASELINE]["lstm_cell"](a, b, z)
        return h, z, gates, tanh_c, rng.permuted(z)
    if name == "adam_step":
        numbers = (np.full(z.size, x) for x in (0.01, 1e-8, 0.9, 0.99))
        z = np.clip(z, -8, 8)
        return z.ravel(), rng.permuted(z).ravel(), z.ravel() ** 2 + 1, z.ravel(), *numbers
    if name == "separable_jacobian":  # of what is at least 0, or NaN
        return (np.clip(z[:, :64], 0, 8),)  # of n, n² come
    if name.startswith("permutahedron"):  # k, and for sorting scores what stands for it
        further = "product" in name
        k = np.full(len(z), rng.choice([0.0, -1.0, 1.0, 3.0, 1e12, *([-2.0] if further else [])]))
        strength = rng.choice([1e-3, 0.1, 1, 30], len(z))
        if not further:
            return z, k, strength
        z = (z * (1 + 0.01 * rng.random(z.shape))).astype(z.dtype)  # blocks change at ties
        return z, rng.standard_normal(z.shape).astype(z.dtype), k, strength
    mapping = mapping_of(name)
    mask = np.broadcast_to(True, z.shape)
    if rng.random() < 0.6:
        mask = rng.random(z.shape) < rng.choice([0.3, 0.9, 1], (len(z), 1))
        z = np.where(mask | (rng.random(z.shape) < 0.5), z, np.nan).astype(z.dtype)
    live = mask & (z != -np.inf)
    further = FURTHER_OPERANDS.get(mapping, lambda *_: ())(rng, z, live)
    if "_loss" in name:
        likely = np.where(mask, np.nan_to_num(z), -np.inf).argmax(axis=-1)
        label = np.where(rng.random(len(z)) < 0.5, likely, rng.integers(0, z.shape[1], len(z)))
        return z, mask, label, rng.integers(0, 3, len(z)).astype(z.dtype), *further
    if name in (mapping, f"log_{mapping}"):
        return z, mask, *further
    p = _cpu.BUILDS[BASELINE][mapping](z, mask, *further)
    if name.endswith("grad_alpha"):
        return p, *further
    v = rng.standard_normal(z.shape).astype(z.dtype)
    if name == "csparsemax_vjp_upper":
        return p, v, *further, np.where(mask, z, -np.inf).astype(z.dtype)
    if not name.endswith("vjp_upper"):
        v[(p == 0) & (rng.random(z.shape) < 0.3)] = np.nan
    return p, v, *(() if mapping == "budget_sparsemax" else further)


def results(kernel, given, **options):
    """Of a kernel that has one result as of one that has several."""
    found = kernel(*given, **options)
    return found if isinstance(found, tuple) else (found,)


def assert_agree(name, found, expected, given):
    """Two builds differ by roundings: of what the contract of tests/claims allows, or of a row's.

    That each is right, the tables say; rows of every kind, and values for each row, come here.
    """
    mapping, dtype = mapping_of(name).removeprefix("log_"), given[0].dtype
    eps, log = float(np.finfo(dtype).eps), name.startswith("log_")
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if one.dtype == bool:
            np.testing.assert_array_equal(one, other)
            continue
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        if name.removeprefix("log_") == mapping and mapping in pe.MAPPINGS:
            p, best = (np.exp(x) if log else x for x in (one, other))
            _assert_alike(mapping, p, best, given)
            continue
        with np.errstate(invalid="ignore"):
            rows = [np.nan_to_num(x.reshape(len(x), -1), posinf=0, neginf=0) for x in (one, other)]
            scores = np.nan_to_num(given[0].reshape(len(given[0]), -1), posinf=0, neginf=0)
        further = given[1] if given[1:] and given[1].dtype == dtype else scores
        further = np.nan_to_num(further.reshape(len(further), -1))
        scale = [np.abs(x).max(axis=-1, keepdims=True) for x in (rows[1], scores, further)]
        if len(scale[0]) != len(scale[1]):
            scale = [np.array(1.0)]
        room = 1e4 * eps * np.maximum(1, np.max(scale, axis=0))
        assert (np.abs(rows[0].astype(float) - rows[1]) <= room).all(), (name, one, other)


def _assert_alike(mapping, p, best, given):
    z, mask, value = given[0], given[1], given[2] if given[2:] else np.zeros(len(given[0]))
    value = np.broadcast_to(value, (len(z), *np.shape(value)[1:]))
    for own in np.unique(value) if value.ndim == 1 else [value]:
        some = value == own if value.ndim == 1 else np.ones(len(z), bool)
        name = (
            {1: "softmax", 1.5: "entmax15", 2: "sparsemax"}.get(own, mapping)
            if mapping == "entmax"
            else mapping
        )
        wrong = truth.wrong(name, p[some], best[some], z[some], own, mask[some])
        assert not wrong.any(), (mapping, own, p[some][wrong][:3], best[some][wrong][:3])
