"""The loss Ω*(z) + Ω(q) − q·z and its gradient p − q, for any mapping and any target.

All is computed with scores relative to each row's largest, which changes nothing (Σp = Σq) and
loses no digits to their offset; then Ω*(z) ≥ 0 too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.calls.dtypes import as_floating
from pyentmax.calls.options import Options
from pyentmax.calls.rows import Rows
from pyentmax.log_probabilities import log_sum_exp
from pyentmax.losses._targets import arranged_target
from pyentmax.mappings import MAPPINGS, Mapping


def loss_and_gradient(
    z: Any,
    y: Any,
    record: Mapping,
    params: tuple[Any, ...],
    axis: Any,
    options: Options,
) -> tuple[Any, Callable[[], Any]]:
    """The reduced loss, and a function that gives its gradient."""
    rows = Rows(z, axis, mask=options.mask)
    scores = rows.scores()
    omega = _omega(record, params, scores)
    dense_only = record.omega_vertices is None
    target, weights = arranged_target(rows, y, options, dense_only)

    p = record.forward(scores, *params)
    each = _conjugate(record, params, p, scores, omega) - target.dot(scores)
    each = np.maximum(each + target.omega(record, omega), 0)  # below 0 is rounding
    # A NaN row stays NaN unless it counts nothing: no 0 · NaN or 0 · ∞ in the sum.
    broken, counts = ~np.isfinite(rows.top()[..., 0]), weights != 0
    if options.reduction == "mean":
        total = np.sum(weights)
        weights = weights / np.where(total == 0, 1, total)
    each = np.where(counts, np.where(broken, np.nan, each), 0) * weights
    loss = each if options.reduction == "none" else np.sum(each)

    def gradient() -> Any:
        apart = np.where(broken[..., None], np.nan, target.subtracted_from(p))
        return rows.in_callers_form(np.where(counts[..., None], apart * weights[..., None], 0))

    return rows.reduced(loss), gradient


def _omega(record: Mapping, params: tuple[Any, ...], scores: Any) -> Callable[[Any], Any]:
    """Ω as a function of p in rows, with the mapping's parameters filled in."""
    if record.omega is None:
        raise ValueError(
            f"mapping must have an Ω for a Fenchel-Young loss, and {record.name} has none: choose "
            f"one of {', '.join(name for name, other in MAPPINGS.items() if other.omega)}"
        )
    omega, options = record.omega, {"mask": scores > -np.inf} if record.omega_takes_mask else {}
    return lambda p: omega(p, *params, **options)


def _conjugate(
    record: Mapping,
    params: tuple[Any, ...],
    p: Any,
    scores: Any,
    omega: Callable[[Any], Any],
) -> Any:
    """Ω*(z) = p·z − Ω(p) where the largest score is 0."""
    if record is MAPPINGS["softmax"]:
        return log_sum_exp(scores)[..., 0]
    conjugate = np.sum(p * np.where(p == 0, 0, scores), axis=-1) - omega(p)
    if record is MAPPINGS["entmax"]:
        alpha, _ = as_floating(params[0], "alpha")
        return np.where(alpha == 1, log_sum_exp(scores)[..., 0], conjugate)
    return conjugate


def record_and_parameters(
    mapping: str | Mapping, params: dict[str, Any]
) -> tuple[Mapping, tuple[Any, ...]]:
    """A mapping's record, by name or itself, and its parameters in the order of the record."""
    if isinstance(mapping, str):
        if mapping not in MAPPINGS:
            raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
        mapping = MAPPINGS[mapping]
    if not isinstance(mapping, Mapping):
        raise TypeError(
            "mapping must be a Mapping or the name of a row of pyentmax.MAPPINGS, got a "
            f"{type(mapping).__name__}; of a function of your own, make a Mapping"
        )
    if set(params) != set(mapping.parameters):
        raise TypeError(
            f"{mapping.name} takes the parameters ({', '.join(mapping.parameters)}), "
            f"got ({', '.join(params)})"
        )
    return mapping, tuple(params[name] for name in mapping.parameters)
