"""α-sigmoid and its losses, as α-entmax of each score and 0: so with all its derivatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyentmax.torch.arguments import (
    check_broadcast,
    check_dim,
    check_mask,
    check_options,
    check_scores,
    check_tensor,
)
from pyentmax.torch.arrays import HALF
from pyentmax.torch.functions import apply, apply_loss
from pyentmax.torch.registry import is_plain


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
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be one of mean, sum, none, got {reduction!r}")
    check_scores(z, "z")
    check_tensor(y, "y")
    check_dim(dim)
    check_mask(mask, z)
    check_options(weight, ignore_index, label_smoothing)
    _check_alpha(alpha, z, "one_vs_all_loss")
    if not z.ndim:
        raise ValueError("z is 0-dimensional; a row of at least one score is expected")
    if y.is_complex():
        raise TypeError(f"y must hold real numbers, got {y.dtype}; convert it, with y.real")
    dtype = z.dtype
    z = z.float() if dtype in HALF else z  # in which sums of losses may be beyond float16
    live = torch.ones_like(z, dtype=torch.bool) if mask is None else mask.expand_as(z)
    rows = live.any(dim).shape
    if weight is not None:  # what counts nothing may hold anything
        check_broadcast(weight, rows, "weight", "the losses")
        live = live & (weight != 0).expand(rows).unsqueeze(dim)
    wrong = None
    if y.shape == rows and not (y.is_floating_point() or y.dtype == torch.bool):
        y = y.unsqueeze(dim).long()  # a uint8 is compared to −100 as to 156
        if ignore_index is not None:
            live = live & (y != ignore_index)
        wrong = _wrong_labels(y, live.any(dim, keepdim=True), z.shape[dim])
        classes = torch.arange(z.shape[dim], device=z.device)
        y = y == classes.reshape([-1 if axis == dim % z.ndim else 1 for axis in range(z.ndim)])
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
    if wrong is not None:
        each = torch.where(wrong.squeeze(dim), torch.nan, each)
    counts = live.any(dim).to(z.dtype)
    if weight is not None:
        counts = counts * torch.where(weight >= 0, weight, torch.nan)
    if reduction == "mean" and counts.numel():  # only ratios count: no sum of them overflows
        largest = counts.detach().max()
        counts = counts / torch.where(largest == 0, 1, largest)
    each = torch.where(counts == 0, 0, each * counts)
    if reduction == "none":
        return each.to(dtype)
    total = torch.where(counts.sum() == 0, 1, counts.sum()) if reduction == "mean" else 1
    return (each.sum() / total).to(dtype)


def _check_alpha(alpha: Any, z: Tensor, loss: str) -> None:
    """Raise an error for a tensor that does not broadcast to z, or of which a gradient is asked."""
    if isinstance(alpha, Tensor):
        check_broadcast(alpha, z.shape, "alpha", "z")
        if alpha.requires_grad:
            raise TypeError(
                f"{loss} has no gradient in alpha: pass a number, or detach() the tensor"
            )


def _wrong_labels(labels: Tensor, counted: Tensor, classes: int) -> Tensor:
    """Which rows have a label of no class; a ValueError, where a look at the labels costs nothing.

    Nothing is looked at on a device, nor in a graph or a transformation.
    """
    wrong = counted & ((labels < 0) | (labels >= classes))
    if _can_be_seen(labels, counted) and wrong.any():
        raise ValueError(
            f"labels must be in 0 … {classes - 1}, got {labels[wrong][0].item()}; rows to leave "
            "out are marked with ignore_index"
        )
    return wrong


def _check_targets(targets: Tensor, live: Tensor) -> None:
    """Raise a ValueError for targets outside [0, 1], where a look at them costs nothing."""
    if _can_be_seen(targets, live):
        wrong = live & ~((targets >= 0) & (targets <= 1))
        if wrong.any():
            raise ValueError(f"targets y must be in [0, 1], got {targets[wrong][0].item():g}")


def _can_be_seen(values: Tensor, counted: Tensor) -> bool:
    """Whether to look at values neither waits for a device nor breaks a graph."""
    return (
        not torch.compiler.is_compiling()
        and is_plain((values, counted))
        and values.is_cpu
        and counted.is_cpu
    )


def _pairs(z: Tensor, live: Tensor | None) -> Tensor:
    """Each score beside a 0, moved so that the larger is 0; 0 where it does not count."""
    z = z if live is None else torch.where(live, z, 0)
    pairs = torch.stack([z, -z], dim=-1)
    return torch.minimum(pairs, torch.zeros_like(pairs))  # at most 0, +∞ too
