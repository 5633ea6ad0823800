"""Mappings that functions may claim to be: pyentmax's, and two that are not public here.

- softmax1(z) = e^z / (1 + Σ e^z): softmax with a sink of 0.
- softpick(z) = relu(e^z − 1) / Σ |e^z − 1| (Zuhri et al. 2025). Its derivative needs z: a negative
  score has probability 0, and still moves the others'. Entries of −∞ are masked, and add nothing
  to the denominator, as in the authors' code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.reference.fenchel_young import record_and_parameters
from pyentmax.reference.mapping import AnyMapping as Mapping
from pyentmax.reference.mapping import mapping

SMALL = 30.0  # e^30 − 1 is e^30 to rounding, and neither overflows


def softmax1(z: Array, axis: int = -1, *, mask: Any = None) -> Array:
    """e^z / (1 + Σ e^z), with the 1 shifted as the scores are."""
    top = np.maximum(np.max(z, axis=axis, keepdims=True), 0)
    e = np.exp(z - top)
    p: Array = e / (np.exp(-top) + np.sum(e, axis=axis, keepdims=True))
    return p


def softmax1_jacobian(p: Array) -> Array:
    """diag(p) − ppᵀ, as softmax's; p does not sum to 1."""
    return np.eye(p.shape[-1]) * p[..., None] - p[..., None] * p[..., None, :]


def _excess(z: Array, axis: int) -> tuple[Array, Array]:
    """e^z − 1 and e^z, both over the largest e^z, or 1."""
    top = np.maximum(np.max(z, axis=axis, keepdims=True), 0)
    small = np.expm1(np.minimum(z, SMALL)) * np.exp(-top)
    excess = np.where(top < SMALL, small, np.exp(z - top) - np.exp(-top))
    return np.where(z == -np.inf, 0, excess), np.exp(z - top)


def softpick(z: Array, axis: int = -1, *, mask: Any = None) -> Array:
    """relu(e^z − 1) / Σ |e^z − 1|; zeros where all scores are 0."""
    excess, _ = _excess(z, axis)
    total = np.sum(np.abs(excess), axis=axis, keepdims=True)
    return np.maximum(excess, 0) / np.where(total == 0, 1, total)


def softpick_jacobian(z: Array) -> Array:
    """∂p_i/∂z_j = ([i = j, z_i > 0] − p_i sign z_j) e^z_j / Σ |e^z − 1|, from the scores."""
    excess, e = _excess(z, -1)
    total = np.sum(np.abs(excess), axis=-1, keepdims=True)
    slope = (e / np.where(total == 0, np.inf, total))[..., None, :]
    own = np.eye(z.shape[-1]) * (z > 0)[..., None]
    return slope * (own - softpick(z)[..., None] * np.sign(z)[..., None, :])


def _record(name: str, forward: Any, jacobian: Any) -> Mapping:
    """A truth of the judge: called, and with a Jacobian, in NumPy and nothing else."""

    def text(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
        return z, None, axis, mask, out

    text.__name__ = name
    facts: Any = {"on_simplex": False, "shift_invariant": False, "symmetric": False}
    truth = mapping(None, **facts)(text)
    vars(truth)["run"] = lambda arrays, _, axis, mask, *rest: forward(*arrays, axis, mask=mask)
    vars(truth.jacobian)["run"] = lambda arrays, *rest: jacobian(*arrays)
    return truth


TRUTHS = {
    "softmax1": _record("softmax1", softmax1, softmax1_jacobian),
    "softpick": _record("softpick", softpick, lambda p: np.zeros((*p.shape, p.shape[-1]))),
}
JACOBIANS = {  # from z, where p does not tell all, or there is no product
    "softpick": softpick_jacobian, "softmax1": lambda z: softmax1_jacobian(softmax1(z)),
}  # fmt: skip


def slack(record: Mapping, z: Array, limit: float) -> Array | float:
    """The relative error allowed where the definition adds 1e-6 to a denominator."""
    if record.name != "softpick":
        return 0.0
    total = np.sum(np.abs(_excess(np.minimum(z, SMALL), -1)[0]), axis=-1, keepdims=True)
    return np.asarray(4e-6 / limit / np.maximum(total, 1e-6))


def truth(name: str | Mapping, parameters: dict[str, Any]) -> Mapping:
    """The record of a claim; an error names a mapping or parameters that do not exist."""
    named = TRUTHS.get(name, name) if isinstance(name, str) else name
    return record_and_parameters(named, parameters)[0]
