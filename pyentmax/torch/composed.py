r"""`reference.composed` for tensors: any dtype and mask, and parameters as users give them.

Two callers need it: tensors on a device without kernels, and derivatives of derivatives. Rows lie
along the last axis; a parameter is a number or a tensor of the batch shape.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from pyentmax import MAPPINGS
from pyentmax.reference.composed import losses, mappings
from pyentmax.reference.composed.mappings import ALPHAS, NAMES
from pyentmax.torch import namespace as xp

# Where α is known to be in (1, 2]: a loop that waits for no value need not halve there.
CONVEX = SimpleNamespace(**{**vars(xp), "level_of_sum_1": xp.level_by_newton})
CLOSED_FORMS = {1.0: "softmax", 1.5: "entmax15", 2.0: "sparsemax"}
HALF = (torch.float16, torch.bfloat16)  # computed in float32
LOGARITHMS = ("log_softmax", "log_sparsemax", "log_entmax15", "log_entmax")
DIFFERENTIABLE = (*NAMES, *LOGARITHMS)


def check_composed(name: str, value: Any, device: torch.device) -> None:
    """Raise an error unless the mapping is one of `NAMES` and a number fits as its parameter."""
    if name not in NAMES:
        raise NotImplementedError(
            f"{name} has no kernel for tensors on {device}: compute it on the host, with .cpu(), "
            "or on a CUDA device with CuPy installed; without kernels there are "
            + ", ".join(sorted(NAMES))
        )
    if not isinstance(value, (int, float)):
        return
    if name == "entmax" and not value > 0:
        raise ValueError(f"alpha must be above 0, got {value:g}")
    if MAPPINGS[name].of_largest and not (value >= 1 and value == int(value)):
        raise ValueError(f"k must be a whole number of at least 1, got {value:g}")


def support_alpha(name: str, value: Any) -> Any:
    """α of the Jacobian: a number, or a tensor of the batch shape."""
    return ALPHAS.get(name.removeprefix("log_"), value)


# --- mappings and their derivatives ---------------------------------------------------------------


def mapping(z: Tensor, name: str, value: Any, mask: Tensor | None) -> Tensor:
    """Probabilities of z's shape and dtype: zeros for a row with nothing left, else NaN for a row
    with NaN, +∞ or an invalid parameter. One of `LOGARITHMS` gives theirs, −∞ off the support.
    """
    solve = mappings.log_mapping if name in LOGARITHMS else mappings.mapping
    name = name.removeprefix("log_")
    check_composed(name, value, z.device)
    name, value = _closed_form(name, value)
    scores = _masked(z, mask)
    return solve(_space(value), scores, name, _column(value, scores)).to(z.dtype)


def _closed_form(name: str, value: Any) -> tuple[str, Any]:
    """α-entmax by the mapping that it is at an α of 1, 1.5 or 2, which needs no search."""
    if name == "entmax" and isinstance(value, (int, float)) and value in CLOSED_FORMS:
        return CLOSED_FORMS[value], None
    return name, value


def _space(value: Any) -> Any:
    return CONVEX if isinstance(value, (int, float)) and 1 < value <= 2 else xp


def support(z: Tensor, name: str, value: Any, mask: Tensor | None) -> Tensor:
    """Where a mapping gives probability."""
    check_composed(name, value, z.device)
    scores = _masked(z, mask)
    value = _column(value, scores)
    p = mappings.mapping(xp, scores, name, value)
    return mappings.support(xp, scores, p, name, value)


def product(p: Tensor, v: Tensor, alpha: Any) -> Tensor:
    """J v at the output p of the mapping whose Jacobian is that of α-entmax."""
    return mappings.product(xp, wide(p), wide(v), _number_or_column(alpha, p)).to(p.dtype)


def grad_alpha(p: Tensor, alpha: Any) -> Tensor:
    """∂p/∂α."""
    return mappings.grad_alpha(xp, wide(p), _column(alpha, p))


def log_vjp(log_p: Tensor, g: Tensor, alpha: Any) -> Tensor:
    """The gradient of the scores for g, that of log p."""
    return mappings.log_vjp(xp, wide(log_p), g, _column(alpha, log_p)).to(g.dtype)


def log_jvp(log_p: Tensor, v: Tensor, alpha: Any) -> Tensor:
    """The change of log p in the direction v of the scores."""
    return mappings.log_jvp(xp, wide(log_p), v, _column(alpha, log_p)).to(v.dtype)


def log_grad_alpha(log_p: Tensor, alpha: Any) -> Tensor:
    """∂log p/∂α."""
    return mappings.log_grad_alpha(xp, wide(log_p), _column(alpha, log_p))


# --- losses ---------------------------------------------------------------------------------------


def loss_and_gradient(
    z: Tensor,
    y: Tensor,
    name: str,
    value: Any,
    weight: Tensor | None,
    mask: Tensor | None,
    reduction: str,
    ignore_index: int | None,
    label_smoothing: Tensor | None,
    solve: Callable[..., Tensor] = mapping,
) -> tuple[Tensor, Tensor]:
    """Ω*(z) + Ω(q) − q·z, reduced, and its gradient share ∘ (p − q)."""
    q, counts, right = targets(z, y, mask, ignore_index, label_smoothing)
    alpha, label = support_alpha(name, value), y.ndim < z.ndim and label_smoothing is None
    p, (x, _, _) = solve(wide(z), name, value, mask), mappings.shifted(xp, _masked(z, mask))
    each = losses.each(xp, p, q, x, _number_or_column(alpha, x), label=label)
    if MAPPINGS[name].of_largest:
        each = torch.where((q > 0).sum(-1) > _column(value, x)[..., 0], torch.inf, each)
    each = torch.where(right, each, torch.nan)
    share = shares(counts, weight, reduction, q)
    gradient = torch.where(share.unsqueeze(-1) == 0, 0, share.unsqueeze(-1) * (p - q))
    return reduced(each, share, reduction), gradient.to(z.dtype)


def targets(
    z: Tensor,
    y: Tensor,
    mask: Tensor | None,
    ignore_index: int | None,
    label_smoothing: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Targets q in rows, which rows count, and which rows have a valid target."""
    labels = y.shape == z.shape[:-1] and not (y.is_floating_point() or y.dtype == torch.bool)
    if not labels and y.shape != z.shape:
        raise ValueError(
            f"y must be integer labels of shape {tuple(z.shape[:-1])} or targets of shape "
            f"{tuple(z.shape)}, got dtype {y.dtype} and shape {tuple(y.shape)}"
        )
    x, empty, _ = mappings.shifted(xp, _masked(z, mask))
    q, counts, right = losses.targets(
        xp,
        x,
        y.unsqueeze(-1).long() if labels else y.to(x.dtype),  # as a uint8, −100 would be 156
        ~empty,
        labels=labels,
        mask=mask,
        ignore_index=ignore_index if labels else None,
    )
    if label_smoothing is not None:
        q = losses.smoothed(xp, q, x, label_smoothing)
    return q, counts[..., 0], right


def target_slope(z: Tensor, q: Tensor, name: str, value: Any, mask: Tensor | None) -> Tensor:
    """The derivative of a loss in its target."""
    x, _, _ = mappings.shifted(xp, _masked(z, mask))
    return losses.target_slope(xp, x, q, _column(support_alpha(name, value), x))


def shares(counts: Tensor, weight: Tensor | None, reduction: str, like: Tensor) -> Tensor:
    """The factor of each row's loss."""
    share = counts.to(like.dtype)
    if weight is not None:
        weight = torch.where(weight >= 0, weight.to(like.dtype), torch.nan)
        share = torch.where(counts & (weight != 0), weight, 0)
    return losses.shares(xp, share, reduction)


def reduced(each: Tensor, share: Tensor, reduction: str) -> Tensor:
    """Each row's loss times its share, summed unless the reduction is "none"."""
    return losses.reduced(xp, each, share, reduction)


# --- rows -----------------------------------------------------------------------------------------


def wide(x: Tensor) -> Tensor:
    """In float32 at least."""
    return x.float() if x.dtype in HALF else x


def _masked(z: Tensor, mask: Tensor | None) -> Tensor:
    """Scores, −∞ where masked."""
    return wide(z) if mask is None else torch.where(mask, wide(z), -torch.inf)


def _column(value: Any, like: Tensor) -> Any:
    """A parameter for each row, of shape (…, 1)."""
    if value is None:
        return None
    dtype = torch.float32 if like.dtype in HALF else like.dtype
    if not isinstance(value, Tensor):
        return torch.full((1,), value, dtype=dtype, device=like.device)
    return value.to(dtype).unsqueeze(-1)


def _number_or_column(alpha: Any, like: Tensor) -> Any:
    """α as a number, which a formula may know, or as a column."""
    return _column(alpha, like) if isinstance(alpha, Tensor) else float(alpha)
