"""α-sigmoid and its losses, as α-entmax of each score and 0, which gives all their derivatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyentmax.torch import composed
from pyentmax.torch.arguments import (
    check_broadcast,
    check_dim,
    check_mask,
    check_options,
    check_scores,
    check_tensor,
    scores_of_loss,
)
from pyentmax.torch.functions import apply, apply_loss


def entmax_sigmoid(z: Tensor, alpha: float | Tensor = 1.5, *, mask: Tensor | None = None) -> Tensor:
    """α-sigmoid of each score, as `pyentmax.entmax_sigmoid`, with its derivatives.

    Parameters
    ----------
    z : Tensor of scores, of any shape
    alpha : float or Tensor that broadcasts to z
        a tensor gets a gradient
    mask : bool Tensor that broadcasts to z, optional
        0 stands where it is False

    Returns
    -------
    Tensor of z's shape and dtype
    """
    check_scores(z, "z")
    check_mask(mask, z)
    if isinstance(alpha, Tensor):
        check_broadcast(alpha, z.shape, "alpha", "z")
    p = apply("entmax", _pairs(z, mask), alpha, -1, None)[..., 0]
    return p if mask is None else torch.where(mask, p, 0)


def entmax_sigmoid_loss(
    z: Tensor,
    y: Tensor,
    alpha: float | Tensor = 1.5,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The loss of `entmax_sigmoid`, as `pyentmax.entmax_sigmoid_loss`, with its derivative in z.

    Parameters
    ----------
    z, y : Tensors of one shape
        scores, and for each 0, 1, a bool, or a probability
    alpha : float or Tensor that broadcasts to z
    reduction, weight, mask, ignore_index, label_smoothing
        as in `pyentmax.entmax_sigmoid_loss`

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each score
    """
    check_scores(z, "z")
    check_tensor(y, "y")
    if y.shape != z.shape:
        raise ValueError(f"y must be targets of shape {tuple(z.shape)}, got shape {tuple(y.shape)}")
    check_mask(mask, z)
    _check_alpha(alpha, z, "entmax_sigmoid_loss")
    alpha = alpha.unsqueeze(-1) if isinstance(alpha, Tensor) and alpha.ndim else alpha
    mask = None if mask is None else mask.unsqueeze(-1)
    z, y = z.unsqueeze(-1), y.unsqueeze(-1)
    return one_vs_all_loss(
        z,
        y,
        alpha,
        reduction=reduction,
        weight=weight,
        mask=mask,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


def one_vs_all_loss(
    z: Tensor,
    y: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Σ over the classes of `entmax_sigmoid_loss`, as `pyentmax.one_vs_all_loss`.

    Parameters
    ----------
    z : Tensor of scores
    y : Tensor of integer labels, of z's shape without ``dim``, or of targets in [0, 1] like z
    alpha : float or Tensor that broadcasts to z
    dim : int, default -1
        of the classes
    reduction, weight, mask, ignore_index, label_smoothing
        as in `pyentmax.one_vs_all_loss`

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each row
    """
    check_scores(z, "z")
    check_tensor(y, "y")
    check_dim(dim)
    check_mask(mask, z)
    check_options(reduction, weight, ignore_index, label_smoothing)
    _check_alpha(alpha, z, "one_vs_all_loss")
    if not z.ndim:
        raise ValueError("z is 0-dimensional; a row of at least one score is expected")
    if y.is_complex():
        raise TypeError(f"y must hold real numbers, got {y.dtype}; convert it, with y.real")
    z = scores_of_loss(z)
    dtype, z = z.dtype, composed.wide(z)  # sums of losses may exceed float16
    live = torch.ones_like(z, dtype=torch.bool) if mask is None else mask.expand_as(z)
    rows = z.shape[: dim % z.ndim] + z.shape[dim % z.ndim + 1 :]
    if weight is not None:  # what counts nothing may hold anything
        check_broadcast(weight, rows, "weight", "the losses")
        live = live & (weight != 0).expand(rows).unsqueeze(dim)
    wrong = torch.zeros((), dtype=torch.bool, device=z.device)
    if y.shape == rows and not (y.is_floating_point() or y.dtype == torch.bool):
        y = y.unsqueeze(dim).long()  # as a uint8, −100 would equal 156
        if ignore_index is not None:
            live = live & (y != ignore_index)
        wrong = _wrong_labels(y, live.any(dim, keepdim=True), z.shape[dim]).squeeze(dim)
        classes = torch.arange(z.shape[dim], device=z.device)
        y = y.movedim(dim, -1).eq(classes).movedim(-1, dim)
    elif y.shape != z.shape:
        raise ValueError(
            f"y must be integer labels of shape {tuple(rows)} or targets of shape "
            f"{tuple(z.shape)}, got dtype {y.dtype} and shape {tuple(y.shape)}"
        )
    else:
        if ignore_index is not None:
            live = live & (y != ignore_index)
        _check_targets(y, live)
    targets = torch.where(live, y.to(z.dtype), 0)
    targets = (1 - label_smoothing) * targets + label_smoothing / 2
    both = torch.stack([targets, 1 - targets], dim=-1)
    each = apply_loss("entmax", _pairs(z, live), both, alpha, -1, reduction="none")
    each = torch.where(live, each, 0).sum(dim)
    each = torch.where(wrong, torch.nan, each)
    share = composed.shares(live.any(dim), weight, reduction, z)
    return composed.reduced(each, share, reduction).to(dtype)


def _check_alpha(alpha: Any, z: Tensor, loss: str) -> None:
    """Raise an error for a tensor that does not broadcast to z, or requires a gradient."""
    if isinstance(alpha, Tensor):
        check_broadcast(alpha, z.shape, "alpha", "z")
        if alpha.requires_grad:
            raise TypeError(
                f"{loss} has no gradient in alpha: pass a number, or detach() the tensor"
            )


def _wrong_labels(labels: Tensor, counted: Tensor, classes: int) -> Tensor:
    """Which rows have a label that is not a class; a ValueError where labels can be looked at."""
    wrong = counted & ((labels < 0) | (labels >= classes))
    if _any_seen(wrong):
        raise ValueError(
            f"labels must be in 0 … {classes - 1}, got {labels[wrong][0].item()}; rows to leave "
            "out are marked with ignore_index"
        )
    return wrong


def _check_targets(targets: Tensor, live: Tensor) -> None:
    """Raise a ValueError for targets outside [0, 1], where they can be looked at."""
    wrong = live & ~((targets >= 0) & (targets <= 1))
    if _any_seen(wrong):
        raise ValueError(f"targets y must be in [0, 1], got {targets[wrong][0].item():g}")


def _any_seen(wrong: Tensor) -> bool:
    """Whether one is True; False where looking would wait for a device or break a graph."""
    if torch.compiler.is_compiling() or not wrong.is_cpu:
        return False
    try:
        return bool(wrong.any())
    except RuntimeError:  # a batched or fake tensor has no value to look at
        return False


def _pairs(z: Tensor, live: Tensor | None) -> Tensor:
    """Each score next to a 0, shifted so that the larger is 0; 0 where it does not count."""
    z = z if live is None else torch.where(live, z, 0)
    pairs = torch.stack([z, -z], dim=-1)
    return torch.minimum(pairs, torch.zeros_like(pairs))  # at most 0, +∞ too
