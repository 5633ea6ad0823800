"""Right implementations of losses, and faults: a verdict, and the start of the likely cause."""

from __future__ import annotations

from typing import Any

import numpy as np

import pyentmax as pe

ROWS = np.arange


def picked(x: Any, y: Any) -> Any:
    return np.take_along_axis(x, y[..., None], -1)[..., 0]


def cross_entropy(z: Any, y: Any) -> Any:
    x = z - z.max(-1, keepdims=True)
    return np.log(np.exp(x).sum(-1)) - picked(x, y)


def sparsemax_loss(z: Any, y: Any) -> Any:
    p = pe.sparsemax(z)
    p, y_z = np.where(p > 0, p, 0), picked(z, y)
    x = np.where(p > 0, z - y_z[..., None], 0)
    return (p * x).sum(-1) + (1 - (p**2).sum(-1)) / 2


def entmax15_loss(z: Any, y: Any) -> Any:
    p = pe.entmax15(z)
    x = np.where(p > 0, z - picked(z, y)[..., None], 0)
    return (p * x).sum(-1) + 4 / 3 * (1 - (p**1.5).sum(-1))


def minus_label(p: Any, y: Any) -> Any:
    return p - np.eye(p.shape[-1])[y].astype(p.dtype)


def gradient_of(name: str) -> Any:
    return lambda z, y: minus_label(pe.MAPPINGS[name](z), y)


RIGHT: dict[str, tuple[Any, str, Any]] = {
    "cross-entropy": (cross_entropy, "softmax", gradient_of("softmax")),
    "sparsemax": (sparsemax_loss, "sparsemax", gradient_of("sparsemax")),
    "entmax15": (entmax15_loss, "entmax15", gradient_of("entmax15")),
    "mean": (lambda z, y: cross_entropy(z, y).mean(), "softmax",
             lambda z, y: gradient_of("softmax")(z, y) / len(z)),
    "sum": (lambda z, y: entmax15_loss(z, y).sum(), "entmax15", gradient_of("entmax15")),
    "own, softmax": (pe.softmax.loss, "softmax", lambda z, y: pe.softmax.loss_and_grad(z, y)[1]),
    "own, sparsemax": (
        pe.sparsemax.loss, "sparsemax", lambda z, y: pe.sparsemax.loss_and_grad(z, y)[1]
    ),
}  # fmt: skip


def without_product(z: Any, y: Any) -> Any:
    return (1 - (pe.sparsemax(z) ** 2).sum(-1)) / 2 - picked(z, y)


def unshifted_label(z: Any, y: Any) -> Any:
    x = z - z.max(-1, keepdims=True)
    return np.log(np.exp(x).sum(-1)) - picked(z, y)


def shifted_label(z: Any, y: Any) -> Any:
    x = z - z.max(-1, keepdims=True)
    return np.log(np.exp(z).sum(-1)) - picked(x, y)


def one_against_all(z: Any, y: Any) -> Any:
    return np.logaddexp(0, (1 - 2 * np.eye(z.shape[-1])[y]) * z).sum(-1)


def along_first(z: Any, y: Any) -> Any:
    return picked(np.log(np.exp(z).sum(0)) - z, y)


FAULTS: dict[str, tuple[Any, str, Any, str, str]] = {
    name: fault for name, *fault in (
        ("no product", without_product, "sparsemax", None, "wrong", "½p² without z·p"),
        ("−log p", lambda z, y: -np.log(picked(pe.sparsemax(z), y)), "sparsemax", None, "wrong",
         "−log p_y"),
        ("shift kept", unshifted_label, "softmax", None, "wrong", "shift not taken out"),
        ("shift twice", shifted_label, "softmax", None, "wrong", "shift taken out twice"),
        ("½ more", lambda z, y: sparsemax_loss(z, y) + 0.5, "sparsemax", None, "wrong",
         "Ω(y) of another convention"),
        ("½ less", lambda z, y: sparsemax_loss(z, y) - 0.5, "sparsemax", None, "wrong",
         "Ω(y) left out"),
        ("half", lambda z, y: sparsemax_loss(z, y) / 2, "sparsemax", None, "wrong",
         "half of the loss"),
        ("twice", lambda z, y: 2 * entmax15_loss(z, y), "entmax15", None, "wrong",
         "twice the loss"),
        ("negated", lambda z, y: -cross_entropy(z, y), "softmax", None, "wrong", "negated"),
        ("cross-entropy", cross_entropy, "sparsemax", None, "wrong", "the loss of softmax"),
        ("sparsemax's", sparsemax_loss, "entmax15", None, "wrong", "the loss of sparsemax"),
        ("entmax15's", entmax15_loss, "sparsemax", None, "wrong", "the loss of entmax15"),
        ("mean over entries", lambda z, y: cross_entropy(z, y).sum() / z.size, "softmax", None,
         "wrong", "the mean over the wrong count"),
        ("first axis", along_first, "softmax", None, "wrong", "another axis"),
        ("p alone", sparsemax_loss, "sparsemax", lambda z, y: pe.sparsemax(z), "wrong",
         "p without − y"),
        ("y − p", cross_entropy, "softmax", lambda z, y: -minus_label(pe.softmax(z), y), "wrong",
         "y − p"),
        ("gradient of the sum", lambda z, y: cross_entropy(z, y).mean(), "softmax",
         lambda z, y: minus_label(pe.softmax(z), y), "wrong", "not divided by the number of rows"),
        ("no logarithm", lambda z, y: -picked(pe.softmax(z), y), "softmax", None, "wrong",
         "−p_y, without the logarithm"),
        ("1 − p", lambda z, y: 1 - picked(pe.softmax(z), y), "softmax", None, "wrong", "1 − p_y"),
        ("focal", lambda z, y: cross_entropy(z, y) * (1 - picked(pe.softmax(z), y)) ** 2,
         "softmax", None, "wrong", "focal, γ = 2"),
        ("one against all", one_against_all, "softmax", None, "wrong", "one against all"),
        ("squared", lambda z, y: (minus_label(pe.softmax(z), y) ** 2).sum(-1), "softmax", None,
         "wrong", "‖p − y‖²"),
        ("smoothed", lambda z, y: cross_entropy(z, y) + z.dtype.type(0.1) * (
            picked(z, y) - z.mean(-1)), "softmax", None, "wrong", "labels smoothed by 0.1"),
        ("base 2", lambda z, y: cross_entropy(z, y) / z.dtype.type(np.log(2)), "softmax", None,
         "wrong", "the logarithm to base 2"),
        ("twice the gradient", cross_entropy, "softmax",
         lambda z, y: 2 * minus_label(pe.softmax(z), y), "wrong", "twice the gradient"),
        ("no shift", lambda z, y: np.log(np.exp(z).sum(-1)) - picked(z, y), "softmax", None,
         "edges", ""),
        ("1e-6 in the logarithm", lambda z, y: -np.log(np.exp(-cross_entropy(z, y)) + 1e-6),
         "softmax", None, "wrong", "log of p + 1e-06"),
    )
}  # fmt: skip
