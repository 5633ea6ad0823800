"""Right implementations of five mappings, and one-line faults of them.

A fault is the text to replace in the right source, its replacement, and the property of
`check_mapping` that has to name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

SOFTMAX = """
def forward(z, axis=-1):
    top = np.max(z, axis=axis, keepdims=True)
    e = np.exp(z - np.where(top > -np.inf, top, 0))
    total = np.sum(e, axis=axis, keepdims=True)
    p = e / np.where(total > 0, total, 1)
    return p

def vjp(p, v):
    return p * (v - np.sum(p * v, axis=-1, keepdims=True))
"""
SPARSEMAX = """
def forward(z, axis=-1):
    z = np.moveaxis(z, axis, -1)
    y = z - np.max(z, axis=-1, keepdims=True)
    falling = -np.sort(-y, axis=-1)
    excess = np.cumsum(falling, axis=-1) - 1
    support = np.arange(1, falling.shape[-1] + 1, dtype=z.dtype) * falling > excess
    size = np.sum(support, axis=-1, keepdims=True)
    tau = np.take_along_axis(excess, size - 1, axis=-1) / size.astype(z.dtype)
    p = np.maximum(y - tau, 0)
    return np.moveaxis(p, -1, axis)

def vjp(p, v):
    s = (p > 0).astype(p.dtype)
    return s * (v - np.sum(s * v, axis=-1, keepdims=True) / np.sum(s, axis=-1, keepdims=True))
"""
ENTMAX15 = """
def forward(z):
    y = (z - np.max(z, axis=-1, keepdims=True)) / 2
    falling = -np.sort(-y, axis=-1)
    rho = np.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    mean = np.cumsum(falling, axis=-1) / rho
    spread = np.cumsum(falling**2, axis=-1) - rho * mean**2
    tau = mean - np.sqrt(np.maximum(1 - spread, 0) / rho)
    size = np.sum(tau <= falling, axis=-1, keepdims=True)
    p = np.maximum(y - np.take_along_axis(tau, size - 1, axis=-1), 0) ** 2
    return p

def vjp(p, v):
    s = np.sqrt(p)
    return s * (v - np.sum(s * v, axis=-1, keepdims=True) / np.sum(s, axis=-1, keepdims=True))
"""
ENTMAX = """
def forward(z, alpha):
    y = (alpha - 1) * (z - np.max(z, axis=-1, keepdims=True))
    high = np.zeros_like(y[..., :1])
    low = high - 1
    for _ in range(60):
        tau = (low + high) / 2
        p = np.maximum(y - tau, 0) ** (1 / (alpha - 1))
        more = np.sum(p, axis=-1, keepdims=True) >= 1
        low, high = np.where(more, tau, low), np.where(more, high, tau)
    p = p / np.sum(p, axis=-1, keepdims=True)
    return p

def vjp(p, v):
    s = np.where(p > 0, p ** (2 - ALPHA), 0)
    return s * (v - np.sum(s * v, axis=-1, keepdims=True) / np.sum(s, axis=-1, keepdims=True))
"""
TOPK_SOFTMAX = """
def forward(z, k):
    least = np.sort(z, axis=-1)[..., -k:][..., :1]
    kept = np.where(z >= least, z, -np.inf)
    e = np.exp(kept - np.max(kept, axis=-1, keepdims=True))
    p = e / np.sum(e, axis=-1, keepdims=True)
    return p

def vjp(p, v):
    return p * (v - np.sum(p * v, axis=-1, keepdims=True))
"""
PARAMETERS: dict[str, dict[str, float]] = {"entmax": {"alpha": 1.25}, "topk_softmax": {"k": 2}}
RIGHT = {
    "softmax": SOFTMAX,
    "sparsemax": SPARSEMAX,
    "entmax15": ENTMAX15,
    "entmax": ENTMAX,
    "topk_softmax": TOPK_SOFTMAX,
}


class Fault(NamedTuple):
    """A change of one line of a right implementation, and the property that it breaks."""

    name: str
    mapping: str
    old: str
    new: str
    named: str

    @property
    def verdict(self) -> str:
        """The verdict that it should have."""
        return next((one for one, names in VERDICTS.items() if str(self) in names), "wrong")

    def __str__(self) -> str:
        return f"{self.mapping}: {self.name}"

    def source(self) -> str:
        right = RIGHT[self.mapping]
        assert right.count(self.old) == 1, f"{self}: {self.old!r} must stand there once"
        return right.replace(self.old, self.new)


def functions(source: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The mapping, and its vector-Jacobian product, of a source."""
    namespace: dict[str, Any] = {"np": np, "ALPHA": PARAMETERS["entmax"]["alpha"]}
    exec(source, namespace)
    return namespace["forward"], namespace["vjp"]


# Of faults whose verdict is not "wrong": those that show at edges only, and small errors.
VERDICTS = {
    "edges": (
        "softmax: without the shift",
        "softmax: shifted by the mean", "softmax: the maximum of the batch",
        "softmax: returns float64", "softmax: masks with -1e9", "softmax: works in place",
    ),
    "imprecise": (
        "softmax: float32 inside", "softmax: clipped from below",
        "sparsemax: threshold rounded to float16",
    ),
}  # fmt: skip


# What has to be found of the first stage: published faults, and those that hide best.
FIRST = [
    Fault(*fields)
    for fields in (
        ("without the shift", "softmax", "np.exp(z - np.where(top > -np.inf, top, 0))",
         "np.exp(z)", "shifts"),
        ("the mean with the wrong sign", "softmax", "(v - np.sum(p", "(v + np.sum(p", "derivative"),
        ("threshold from all running sums, as in Keras 3.15", "sparsemax",
         "np.take_along_axis(excess, size - 1, axis=-1)",
         "(np.sum(np.where(support, excess + 1, 0), axis=-1, keepdims=True) - 1)", "exact values"),
        ("threshold rounded to float16", "sparsemax", "y - tau",
         "y - tau.astype(np.float16).astype(z.dtype)", "exact values"),
        ("ties broken by order", "sparsemax", "falling = -np.sort(-y",
         "y = y - np.arange(z.shape[-1], dtype=z.dtype) / 1000; falling = -np.sort(-y", "ties"),
    )
]  # fmt: skip
OTHERS = [
    Fault(*fields)
    for fields in (
        ("shifted by the mean", "softmax", "np.max(z", "np.mean(z", "tiny and huge scores"),
        ("the maximum of the batch", "softmax", "np.max(z, axis=axis", "np.max(z", "batches"),
        ("sums along the last axis", "softmax", "(e, axis=axis", "(e, axis=-1", "axes"),
        ("float32 inside", "softmax", "p = e", "p = e.astype('f4').astype(e.dtype)",
         "exact values"),
        ("returns float64", "softmax", "return p\n", "return p * np.ones(1)\n",
         "float type and shape"),
        ("masks with -1e9", "softmax", "top = ", "z = np.maximum(z, -1e9); top = ", "masked rows"),
        (
            "works in place",
            "softmax",
            "np.exp(z - np.where(top > -np.inf, top, 0))",
            "np.exp(np.subtract(z, np.where(top > -np.inf, top, 0), out=z))",
            "inputs left as they were",
        ),
        ("clipped from below", "softmax", "return p\n", "return p.clip(1e-6)\n", "masked entries"),
        ("the mean of all", "softmax", "(v - np.sum(p", "(v - np.mean(p", "derivative"),
        ("without a sort", "sparsemax", "-np.sort(-y, axis=-1)", "y", "exact values"),
        ("sums in float16", "sparsemax", "np.cumsum(falling, axis=-1)",
         "np.cumsum(falling, axis=-1, dtype='f2').astype(z.dtype)", "exact values"),
        ("scores not halved", "entmax15", "keepdims=True)) / 2", "keepdims=True))",
         "exact values"),
        ("the slopes of softmax", "entmax15", "s = np.sqrt(p)", "s = p", "derivative"),
        ("the last of 32 scores", "softmax", "return p\n",
         "d = p.shape[-1]\n    return p * (np.arange(d) < d - (d % 32 == 0))\n",
         "rows and lengths"),
        ("the mean of 64 entries", "softmax", "(v - np.sum(p * v, axis=-1, keepdims=True))",
         "(v - np.sum((p * v)[..., :64], axis=-1, keepdims=True))", "derivative of long rows"),
        ("ten bisections", "entmax", "range(60)", "range(10)", "exact values"),
        ("drops the k-th", "topk_softmax", "z >= least", "z > least - (z == z.max())",
         "exact values"),
    )
]  # fmt: skip
