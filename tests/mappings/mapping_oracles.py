"""Independent answers to compare the mappings with, and the list of functions under test."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import mpmath
import numpy as np

import pyentmax

# name → (function of z with axis, mask and out; its α)
FORWARDS: dict[str, tuple[Callable[..., Any], float]] = {
    "softmax": (pyentmax.softmax, 1),
    "softmax.reference": (pyentmax.softmax.reference, 1),
    "sparsemax": (pyentmax.sparsemax, 2),
    "sparsemax.reference": (pyentmax.sparsemax.reference, 2),
    "entmax15": (pyentmax.entmax15, 1.5),
    "entmax15.reference": (pyentmax.entmax15.reference, 1.5),
} | {
    f"entmax({alpha})": (
        lambda z, axis=-1, alpha=alpha, **options: pyentmax.entmax(z, alpha, axis, **options),
        alpha,
    )
    for alpha in (1, 1.001, 1.1, 1.33, 1.5, 1.75, 2, 2.5, 4, np.inf)
}

# Further mappings that keep the contract; those below need an order and take one axis only.
STRUCTURED: dict[str, Callable[..., Any]] = {
    "topk_softmax(2)": lambda z, axis=-1, **options: pyentmax.topk_softmax(z, 2, axis, **options),
    "topk_sparsemax(2)": lambda z, axis=-1, **options: pyentmax.topk_sparsemax(
        z, 2, axis, **options
    ),
    "fusedmax(0)": lambda z, axis=-1, **options: pyentmax.fusedmax(z, 0, axis, **options),
    "fusedmax(0.2)": lambda z, axis=-1, **options: pyentmax.fusedmax(z, 0.2, axis, **options),
    "oscarmax(0)": lambda z, axis=-1, **options: pyentmax.oscarmax(z, 0, axis, **options),
    "oscarmax(0.1)": lambda z, axis=-1, **options: pyentmax.oscarmax(z, 0.1, axis, **options),
    "csoftmax(1)": lambda z, axis=-1, **options: pyentmax.csoftmax(z, 1, axis, **options),
    "csparsemax(1)": lambda z, axis=-1, **options: pyentmax.csparsemax(z, 1, axis, **options),
    "budget(1)": lambda z, axis=-1, **options: pyentmax.budget_sparsemax(z, 1, axis, **options),
    "normmax(2)": lambda z, axis=-1, **options: pyentmax.normmax(z, 2, axis, **options),
    "normmax(inf)": lambda z, axis=-1, **options: pyentmax.normmax(z, np.inf, axis, **options),
}
ORDERED = ("fusedmax(0)", "fusedmax(0.2)")

# A value for each parameter of a record, where any will do.
EXAMPLES: dict[str, Any] = {"alpha": 1.5, "budget": 1, "k": 1, "strength": 1.5, "upper": 1}

SUPPORTS: dict[str, Callable[..., Any]] = {
    "softmax": pyentmax.softmax_support,
    "sparsemax": pyentmax.sparsemax_support,
    "entmax15": pyentmax.entmax15_support,
    "entmax(1)": partial(pyentmax.entmax_support, alpha=1),
    "entmax(1.001)": partial(pyentmax.entmax_support, alpha=1.001),
    "entmax(1.5)": partial(pyentmax.entmax_support, alpha=1.5),
    "entmax(4)": partial(pyentmax.entmax_support, alpha=4),
    "topk_softmax(2)": partial(pyentmax.topk_softmax_support, k=2),
    "topk_sparsemax(2)": partial(pyentmax.topk_sparsemax_support, k=2),
    "fusedmax(0.2)": partial(pyentmax.fusedmax_support, strength=0.2),
    "oscarmax(0.1)": partial(pyentmax.oscarmax_support, strength=0.1),
    "csoftmax(1)": partial(pyentmax.csoftmax_support, upper=1),
    "csparsemax(1)": partial(pyentmax.csparsemax_support, upper=1),
    "budget(1)": partial(pyentmax.budget_sparsemax_support, budget=1),
    "normmax(2)": partial(pyentmax.normmax_support, alpha=2),
    "normmax(inf)": partial(pyentmax.normmax_support, alpha=np.inf),
}


def exact_entmax(z: Any, alpha: float, digits: int = 30) -> list[mpmath.mpf]:
    """α-entmax of one row, 1 ≤ α < ∞, by bisection on log p_max in `digits` digits."""
    return list(_exact_entmax(tuple(float(score) for score in z), alpha, digits))


@cache
def _exact_entmax(z: tuple[float, ...], alpha: float, digits: int) -> list[mpmath.mpf]:
    with mpmath.workdps(digits):
        scores = [mpmath.mpf(score) for score in z]
        top, beta = max(scores), mpmath.mpf(alpha) - 1
        y = [score - top for score in scores]
        if beta == 0:
            p = [mpmath.exp(t) for t in y]
        else:
            low, high = -beta * mpmath.log(len(y)), mpmath.mpf(0)
            for _ in range(int(3.5 * digits)):
                middle = (low + high) / 2
                if sum(_powers(y, mpmath.exp(middle), beta)) >= 1:
                    high = middle
                else:
                    low = middle
            p = _powers(y, mpmath.exp(high), beta)
        total = sum(p)
        return [value / total for value in p]


def _powers(y: list[mpmath.mpf], w: mpmath.mpf, beta: mpmath.mpf) -> list[mpmath.mpf]:
    return [(w + beta * t) ** (1 / beta) if w + beta * t > 0 else mpmath.mpf(0) for t in y]
