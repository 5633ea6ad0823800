"""What each kernel of rows takes: operands of every kind, for tests that run all of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

BASELINE = list(_cpu.BUILDS)[-1]
# Those of attention do not take rows of scores: tests/cpu/test_attention_kernels.py.
KERNELS_OF_ROWS = [
    name for name in _cpu.BUILDS[BASELINE] if not name.startswith(("rows_", "columns_"))
]


def rows_of_every_kind(rng, dtype):
    for n in (1, 3, 16, 45, 64, 130, 1000):
        z = rng.standard_normal((20, n))
        for scale in (0.1, 1, 5):
            yield (scale * z).astype(dtype)
        yield np.sort(z).astype(dtype)
        yield np.round(z).astype(dtype)
        spoilt = z.astype(dtype)
        spoilt[::4, 0], spoilt[1::4, -1], spoilt[2::4] = np.nan, np.inf, -np.inf
        yield spoilt
    yield (0.1 * rng.standard_normal((20, 2100))).astype(dtype)  # most of it in the support


ALPHAS = [1, 1 + 1e-9, 1.2, 1.33, 1.45, 1.5, 1.9, 2, 3, np.inf]
# What a kernel takes beside scores and mask, one value for each of 20 rows.
FURTHER_OPERANDS = {
    "entmax": lambda rng, z: (rng.choice(ALPHAS, 20),),
    "topk_softmax": lambda rng, z: (rng.integers(1, 40, 20),),
    "topk_sparsemax": lambda rng, z: (rng.integers(1, 8, 20),),
    "fusedmax": lambda rng, z: (rng.choice([0, 0.03, 0.5, 1e30], 20),),
    "oscarmax": lambda rng, z: (rng.choice([0, 0.003, 0.1, 1e30], 20),),
    "csoftmax": lambda rng, z: (rng.uniform(0, 3 / z.shape[1], z.shape).astype(z.dtype),),
    "csparsemax": lambda rng, z: (rng.uniform(0, 3 / z.shape[1], z.shape).astype(z.dtype),),
    "normmax": lambda rng, z: (rng.choice([1.01, 1.5, 3, np.inf], 20),),
    "budget_sparsemax": lambda rng, z: (rng.uniform(0, z.shape[1], 20),),
}
for mapping in ("softmax", "sparsemax", "entmax15"):
    for loss in (f"{mapping}_loss", f"{mapping}_loss_and_grad"):
        FURTHER_OPERANDS[loss] = lambda rng, z: (
            rng.integers(0, z.shape[1], 20),
            rng.integers(0, 3, 20).astype(z.dtype),
        )
for loss in ("entmax_loss", "entmax_loss_and_grad"):
    FURTHER_OPERANDS[loss] = lambda rng, z: (
        *FURTHER_OPERANDS["softmax_loss"](rng, z),
        *FURTHER_OPERANDS["entmax"](rng, z),
    )
for loss in ("topk_sparsemax_loss", "topk_sparsemax_loss_and_grad"):
    FURTHER_OPERANDS[loss] = lambda rng, z: (
        *FURTHER_OPERANDS["softmax_loss"](rng, z),
        *FURTHER_OPERANDS["topk_sparsemax"](rng, z),
    )


def operands(name, z, rng):
    if name.startswith("lstm_cell"):
        a, b = (np.stack([rng.permuted(z) for _ in range(4)], axis=1) for _ in range(2))
        if name == "lstm_cell":
            return a, b, z
        gates, _, tanh_c, h = _cpu.BUILDS[BASELINE]["lstm_cell"](a, b, z)
        return h, z, gates, tanh_c, rng.permuted(z)
    if name == "adam_step":
        numbers = (np.full(z.size, x) for x in (0.01, 1e-8, 0.9, 0.99))
        return z.ravel(), rng.permuted(z).ravel(), z.ravel() ** 2, z.ravel(), *numbers
    if name.startswith("entmax_sigmoid"):  # entry by entry
        betas = np.array([0, 1e-30, 1e-9, 0.2, 0.5, 0.9, 1, 2, 1.1, 3, 50, np.inf], z.dtype)
        z = z.ravel()
        beta = rng.choice(betas, z.shape)
        if rng.random() < 0.7:
            beta = np.broadcast_to(beta[0], z.shape)  # one for all
        y = np.where(rng.random(z.shape) < 0.5, rng.random(z.shape), z > 0).astype(z.dtype)
        return (z, beta) if name == "entmax_sigmoid" else (z, y, beta)
    if name == "falling_rows":
        return (z,)
    if name == "entmax_grad_alpha":
        z, mask, alpha = operands("entmax", z, rng)
        return _cpu.BUILDS[BASELINE]["entmax"](z, mask, alpha), alpha
    mapping = re.sub("_(jvp|vjps|vjp_upper|vjp_alpha)$", "", name)
    further = FURTHER_OPERANDS.get(mapping, lambda *_: ())(rng, z)
    given = z, rng.random(z.shape) < 0.9, *further
    if name != mapping:
        v = rng.standard_normal(z.shape).astype(z.dtype)
        further = () if mapping == "budget_sparsemax" else further
        further = (*further, z) if name == "csparsemax_vjp_upper" else further
        return _cpu.BUILDS[BASELINE][mapping](*given), v, *further
    return given
