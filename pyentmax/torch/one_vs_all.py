"""α-sigmoid and its loss over classes, as α-entmax of each score and 0, with all its gradients."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from pyentmax.torch import composed
from pyentmax.torch.arguments import check_broadcast, check_scores, is_overridden
from pyentmax.torch.calls import LossOptions, apply, apply_loss, checked_loss, weights_of_rows
from pyentmax.torch.registry import is_unwatched


def entmax_sigmoid(z: Tensor, alpha: float | Tensor = 1.5) -> Tensor:
    """α-sigmoid of each score, as `pyentmax.entmax_sigmoid`: a sparse σ(z), 0 or 1 far from 0.

    Parameters
    ----------
    z : Tensor of scores, of any shape
    alpha : float or Tensor that broadcasts to z
        a tensor gets a gradient

    Returns
    -------
    Tensor of z's shape and dtype
    """
    if is_overridden(z):
        return handle_torch_function(entmax_sigmoid, (z,), z, alpha)
    check_scores(z, "z")
    return apply("entmax", _pairs(z), alpha, -1)[..., 0]


def one_vs_all_loss(
    z: Tensor, y: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, **options: Unpack[LossOptions]
) -> Tensor:
    """Σ over the classes of the loss of `entmax_sigmoid`, as `pyentmax.one_vs_all_loss`.

    Parameters
    ----------
    z : Tensor of scores
    y : Tensor of integer labels, of z's shape without ``dim``, or of targets in [0, 1] like z
    alpha : float or Tensor that broadcasts to z
    dim : int, default -1
        of the classes
    **options : as in ``entmax.loss``
        a score whose target is the ignore_index counts nothing; smoothing moves targets towards ½

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each row
    """
    if is_overridden(z, y):
        return handle_torch_function(one_vs_all_loss, (z, y), z, y, alpha, dim, **options)
    return _loss(z, y, alpha, dim, **options)


def _loss(
    z: Tensor, y: Tensor, alpha: Any, dim: int, reduction: str = "mean", weight: Any = None,
    row_weight: Any = None, mask: Any = None, ignore_index: int | None = None, **smoothing: float,
) -> Tensor:  # fmt: skip
    z = checked_loss(z, y, mask, reduction, weight, row_weight, ignore_index, 0.0)
    live = torch.ones_like(z, dtype=torch.bool) if mask is None else mask.expand_as(z)
    alpha = alpha.expand_as(z).movedim(dim, -1) if isinstance(alpha, Tensor) else alpha
    z, live = z.movedim(dim, -1), live.movedim(dim, -1)
    y = y.movedim(dim, -1) if y.ndim == z.ndim else y
    if weight is not None:
        row_weight = weights_of_rows(weight, row_weight, y, z.shape)
    q = y + 0.0 if y.shape == z.shape else composed.targets(z, y, None, None, None)[0]  # of labels
    y, most = (y, 1) if y.shape == z.shape else (y.unsqueeze(-1), z.shape[-1] - 1)
    live = live if ignore_index is None else live & (y != ignore_index)
    if row_weight is not None:
        check_broadcast(row_weight, z.shape[:-1], "row_weight", "the rows")
        live = live & (row_weight != 0).unsqueeze(-1)
    wrong = live & ~((2.0 * y - most).abs() <= most)
    if is_unwatched((z, y)) and wrong.any():
        raise ValueError(f"y must be from 0 to {most}, got {y.expand_as(z)[wrong][0].item()}")
    q = torch.where(wrong, torch.nan, q)
    pairs, targets = _pairs(composed.wide(torch.where(live, z, 0))), torch.stack([q, 1 - q], -1)
    options: Any = {"reduction": "none", "mask": live.unsqueeze(-1), **smoothing}
    each = apply_loss("entmax", pairs, targets, alpha, -1, **options).sum(-1)
    share = composed.shares(live.any(-1), row_weight, reduction, each)
    return composed.reduced(each, share, reduction).to(z.dtype)


def _pairs(z: Tensor) -> Tensor:
    """Each score next to a 0, shifted so that the larger is 0."""
    return torch.stack([z, -z], -1).clamp(max=0)
