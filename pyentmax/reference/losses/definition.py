"""The loss Ω*(z) + Ω(q) − q·z and its gradient p − q in rows, for any mapping and any target.

Scores are taken relative to each row's largest. This leaves the loss unchanged, since Σp = Σq, and
loses no digits to their offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.reference.losses.targets import Target


def fenchel_young(mapping: Any, scores: Any, target: Target, *params: Any) -> Any:
    """The loss of each row, of shape batch."""
    loss, _ = _loss_and_probabilities(mapping, scores, target, params)
    return loss


def fenchel_young_and_gradient(
    mapping: Any, scores: Any, target: Target, *params: Any
) -> tuple[Any, Any]:
    """The same, and each row's gradient p − q, of shape batch + (d,)."""
    loss, p = _loss_and_probabilities(mapping, scores, target, params)
    return loss, target.subtracted_from(p)


def _loss_and_probabilities(
    mapping: Any, scores: Any, target: Target, params: tuple[Any, ...]
) -> tuple[Any, Any]:
    omega = mapping.regularizer
    masked = {"mask": scores > -np.inf} if omega.with_mask else {}

    def omega_at(p: Any) -> Any:
        return omega(p, *params, **masked)

    p = mapping(scores, *params)
    # The mapping may need the scores as they are; the rest uses gaps to the largest.
    with np.errstate(over="ignore"):
        scores = scores - np.max(scores, axis=-1, keepdims=True)
    if mapping.conjugate is None:
        conjugate = np.sum(p * np.where(p == 0, 0, scores), axis=-1) - omega_at(p)
    else:
        conjugate = mapping.conjugate(scores, p, *params)
    at_target = target.omega(omega_at, mapping.omega_at_vertices, scores)
    # By the Fenchel-Young inequality, values below 0 are rounding.
    return np.maximum(conjugate - target.dot(scores) + at_target, 0), p
