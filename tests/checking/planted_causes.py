"""A function, or a derivative, for each likely cause that a report can name."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from planted_in_practice import without_tail

import pyentmax as pe


def total(x: Any) -> Any:
    return np.sum(x, axis=-1, keepdims=True)


def one_kept(z: Any) -> Any:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / (1 + total(e))


def row_max_batch_sum(z: Any) -> Any:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum()


def clipped(z: Any) -> Any:
    return np.maximum(z, 0) / total(np.maximum(z, 0))


def bisection(z: Any, alpha: float = 1.5, steps: int = 60, low: float = -1.0) -> Any:
    x = (alpha - 1) * (z - z.max(-1, keepdims=True))
    low, high = (
        np.full_like(x[..., :1], low),
        np.full_like(x[..., :1], -(x.shape[-1] ** (1 - alpha))),
    )
    for _ in range(steps):
        middle = (low + high) / 2
        p = np.maximum(x - middle, 0) ** (1 / (alpha - 1))
        low, high = (np.where(total(p) >= 1, a, b) for a, b in ((middle, low), (high, middle)))
    return p / total(p)


def whole(z: Any) -> Any:
    return pe.sparsemax(z.reshape(-1)).reshape(z.shape)


def lower_threshold(z: Any) -> Any:
    p = pe.sparsemax(z)
    return np.maximum(p - 0.01 * (p > 0), 0)


def as_in_memory(z: Any) -> Any:
    if z.size and min(z.strides, default=1) > 0:
        z = np.lib.stride_tricks.as_strided(z, (z.size,), (z.itemsize,)).reshape(z.shape)
    return pe.sparsemax(z)


SIXTH: Any = {"alpha": 1.5}
K: Any = {"k": 2}
VALUES: dict[str, tuple[Any, str, Any]] = {
    "strides not used": (as_in_memory, "sparsemax", {}),
    "another axis": (lambda z: pe.sparsemax(z, axis=0), "sparsemax", {}),
    "the whole array as one row": (whole, "sparsemax", {}),
    "scores not multiplied by α − 1": (lambda z: pe.entmax15(2 * z), "entmax15", {}),
    "softmax(αz)": (lambda z: pe.softmax(1.5 * z), "entmax", SIXTH),
    "another mapping, softmax": (pe.softmax, "sparsemax", {}),
    "another mapping, sparsemax": (pe.sparsemax, "entmax15", {}),
    "another mapping, entmax15": (pe.entmax15, "sparsemax", {}),
    "the 1 is not shifted": (one_kept, "softmax1", {}),
    "the sum over the batch": (row_max_batch_sum, "softmax", {}),
    "clip and renormalise": (clipped, "sparsemax", {}),
    "sorted order returned": (lambda z: pe.sparsemax(-np.sort(-z, axis=-1)), "sparsemax", {}),
    "rising order returned": (lambda z: pe.entmax15(np.sort(z, axis=-1)), "entmax15", {}),
    "negative scores clipped first": (lambda z: pe.softmax(np.maximum(z, 0)), "softmax", {}),
    "absolute scores": (lambda z: pe.softmax(np.abs(z)), "softmax", {}),
    "negated scores": (lambda z: pe.softmax(-z), "softmax", {}),
    "zeros": (np.zeros_like, "softmax", {}),
    **{
        f"scores after whole blocks of {n} left out": (partial(without_tail, n=n), "softmax", {})
        for n in (8, 16, 32, 64, 128)
    },
    "logarithms returned": (lambda z: np.log(pe.softmax(z)), "softmax", {}),
    "one score too many is kept": (lambda z: pe.topk_softmax(z, 3), "topk_softmax", K),
    "one score too few is kept": (lambda z: pe.topk_softmax(z, 1), "topk_softmax", K),
    "softmax over all scores, of which k are kept": (
        lambda z: np.where(pe.topk_softmax(z, 2) > 0, pe.softmax(z), 0),
        "topk_softmax",
        K,
    ),
    "sigmoids of the k scores": (
        lambda z: np.where(pe.topk_softmax(z, 2) > 0, 1 / (1 + np.exp(-z)), 0),
        "topk_softmax",
        K,
    ),
    "the k scores themselves": (
        lambda z: np.where(pe.topk_softmax(z, 2) > 0, z, 0),
        "topk_softmax",
        K,
    ),
    "bisection stopped early": (lambda z: bisection(z, steps=9), "entmax15", {}),
    "a bracket too narrow": (lambda z: bisection(z, low=-0.6), "entmax15", {}),
    "the threshold is off": (lower_threshold, "sparsemax", {}),
}


def s_of(p: Any) -> Any:
    return np.sqrt(p)


PRODUCTS: dict[str, Any] = {
    "τ taken as a constant": lambda p, v: s_of(p) * v,
    "τ taken as a constant, then divided by the sum": lambda p, v: s_of(p) * (v - total(p * v)),
    "the mean over the batch": lambda p, v: s_of(p) * (v - np.sum(s_of(p) * v) / np.sum(s_of(p))),
    "the mean over all batch rows": lambda p, v: (
        s_of(p) * (v - np.sum(s_of(p) * v) / (p.size / p.shape[-1]) / total(s_of(p)))
    ),
    "divided by the largest support of the batch": lambda p, v: (
        s_of(p) * (v - total(s_of(p) * v) / total(s_of(p)).max())
    ),
    "the mean over all entries": lambda p, v: s_of(p) * (v - np.mean(v, axis=-1, keepdims=True)),
    "the derivative of softmax": pe.softmax.vjp,
    "the derivative of sparsemax": pe.sparsemax.vjp,
    "v passed through": lambda p, v: v,
    "sign of the mean": lambda p, v: s_of(p) * (v + total(s_of(p) * v) / total(s_of(p))),
}
