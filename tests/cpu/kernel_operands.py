"""What each kernel of rows takes: operands of every kind, for tests that run all of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

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
