"""α-sigmoid, as α-entmax of each score and 0, which gives all its derivatives, and its losses."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from pyentmax.torch import composed
from pyentmax.torch.arguments import (
    check_broadcast,
    check_mask,
    check_scores,
    check_tensor,
    is_overridden,
)
from pyentmax.torch.calls import LossOptions, apply, apply_loss


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
    if is_overridden(z):
        return handle_torch_function(entmax_sigmoid, (z,), z, alpha, mask=mask)
    check_scores(z, "z")
    check_mask(mask, z)
    if isinstance(alpha, Tensor):
        check_broadcast(alpha, z.shape, "alpha", "z")
    p = apply("entmax", composed.pairs(z, mask), alpha, -1)[..., 0]
    return p if mask is None else torch.where(mask, p, 0)


def entmax_sigmoid_loss(
    z: Tensor, y: Tensor, alpha: float | Tensor = 1.5, **options: Unpack[LossOptions]
) -> Tensor:
    """The loss of `entmax_sigmoid`, as `pyentmax.entmax_sigmoid_loss`, with its derivatives.

    Parameters
    ----------
    z, y : Tensors of one shape
        scores, and for each 0, 1, a bool, or a probability
    alpha : float or Tensor that broadcasts to z
    **options : as in `softmax_loss`, but for class_weight

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each score
    """
    if is_overridden(z, y):
        return handle_torch_function(entmax_sigmoid_loss, (z, y), z, y, alpha, **options)
    check_scores(z, "z")
    check_tensor(y, "y")
    if options.get("class_weight") is not None:
        raise TypeError("class_weight is for labels: pass weight=, which broadcasts to z")
    if y.shape != z.shape:  # or y could be taken for labels, which is another loss
        raise ValueError(f"y must be targets of shape {tuple(z.shape)}, got shape {tuple(y.shape)}")
    alpha = alpha.unsqueeze(-1) if isinstance(alpha, Tensor) and alpha.ndim else alpha
    mask = options.get("mask")
    if mask is not None:
        check_mask(mask, z)
        options["mask"] = mask.unsqueeze(-1)
    return apply_loss("one_vs_all", z.unsqueeze(-1), y.unsqueeze(-1), alpha, -1, **options)


def one_vs_all_loss(
    z: Tensor, y: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, **options: Unpack[LossOptions]
) -> Tensor:
    """Σ over the classes of `entmax_sigmoid_loss`, as `pyentmax.one_vs_all_loss`.

    Parameters
    ----------
    z : Tensor of scores
    y : Tensor of integer labels, of z's shape without ``dim``, or of targets in [0, 1] like z
    alpha : float or Tensor that broadcasts to z
    dim : int, default -1
        of the classes
    **options : as in `softmax_loss`
        class_weight is for labels only

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each row
    """
    return apply_loss("one_vs_all", z, y, alpha, dim, **options)
