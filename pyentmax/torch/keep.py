"""The keep-sets of `pyentmax.keep` for tensors on any device, as masks: ``softmax(z, mask=…)``.

They compute as PyTorch's own operations, on the bodies of the array functions, so that they
compile. A parameter that is a tensor is not checked.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyentmax import keep
from pyentmax.torch import namespace
from pyentmax.torch.arguments import (
    as_number,
    check_broadcast,
    check_dim,
    check_mask,
    check_scores,
)
from pyentmax.torch.composed import wide

__all__ = ["epsilon", "eta", "min_p", "top_k", "top_n_sigma", "top_p", "typical"]


def _keep_mask(keep_set: Any, z: Tensor, value: Any, dim: int, mask: Tensor | None) -> Tensor:
    """The set of `pyentmax.keep` along a dimension, as its body has it."""
    check_scores(z, "z")
    check_dim(dim)
    check_mask(mask, z)
    if not z.ndim or not z.shape[dim]:
        raise ValueError(f"z of shape {tuple(z.shape)} has no scores along dim {dim}")
    parameter = keep_set.parameter
    with torch.no_grad():
        x = wide(z if mask is None else torch.where(mask, z, -torch.inf)).movedim(dim, -1)
        if isinstance(value, Tensor):
            check_broadcast(value, x.shape[:-1], parameter.name, "z's shape without dim")
            value = value.unsqueeze(-1)
        else:
            value = as_number(value, parameter.name)
            parameter.check_number(value)
        top = x.amax(-1, keepdim=True)
        finite = top.isfinite()
        shift = torch.where(finite, top, 0) if parameter.shifted else 0
        kept = keep_set.body(namespace, torch.where(finite, x - shift, 0), value)
        return ((kept | ~finite) & (x != -torch.inf)).movedim(-1, dim)


def top_k(z: Tensor, k: Any, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Where a score is among the k largest, ties included: `pyentmax.keep.top_k`.

    Parameters
    ----------
    z : Tensor of scores
    k : whole number or Tensor that broadcasts to z's shape without ``dim``
    dim : int, default -1
    mask : bool Tensor that broadcasts to z, optional
        True where a score may be kept

    Returns
    -------
    bool Tensor of z's shape

    Examples
    --------
    >>> import torch
    >>> top_k(torch.tensor([2.0, 1.0, 0.0, 1.0]), 2)
    tensor([ True,  True, False,  True])
    """
    return _keep_mask(keep.top_k, z, k, dim, mask)


def top_p(z: Tensor, mass: Any, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """The fewest largest scores whose softmax has this mass: `pyentmax.keep.top_p`.

    Parameters
    ----------
    z, dim, mask : as in `top_k`
    mass : number in (0, 1] or Tensor that broadcasts to z's shape without ``dim``

    Returns
    -------
    as in `top_k`

    Examples
    --------
    >>> import torch
    >>> top_p(torch.tensor([2.0, 1.0, 0.0, -1.0]), 0.8)
    tensor([ True,  True, False, False])
    """
    return _keep_mask(keep.top_p, z, mass, dim, mask)


def min_p(z: Tensor, ratio: Any, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Where softmax gives at least a ratio of its largest probability: `pyentmax.keep.min_p`.

    Parameters
    ----------
    z, dim, mask : as in `top_k`
    ratio : number in [0, 1] or Tensor that broadcasts to z's shape without ``dim``

    Returns
    -------
    as in `top_k`

    Examples
    --------
    >>> import torch
    >>> min_p(torch.tensor([2.0, 1.0, 0.0, -1.0]), 0.3)
    tensor([ True,  True, False, False])
    """
    return _keep_mask(keep.min_p, z, ratio, dim, mask)


def top_n_sigma(z: Tensor, n: Any, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Where a score is at most n deviations below the largest: `pyentmax.keep.top_n_sigma`.

    Parameters
    ----------
    z, dim, mask : as in `top_k`
    n : number from 0 or Tensor that broadcasts to z's shape without ``dim``

    Returns
    -------
    as in `top_k`

    Examples
    --------
    >>> import torch
    >>> top_n_sigma(torch.tensor([2.0, 1.0, 0.0, -1.0]), 1)
    tensor([ True,  True, False, False])
    """
    return _keep_mask(keep.top_n_sigma, z, n, dim, mask)


def epsilon(z: Tensor, epsilon: Any, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Where softmax gives at least ε, and its largest: `pyentmax.keep.epsilon`.

    Parameters
    ----------
    z, dim, mask : as in `top_k`
    epsilon : number in [0, 1] or Tensor that broadcasts to z's shape without ``dim``

    Returns
    -------
    as in `top_k`

    Examples
    --------
    >>> import torch
    >>> epsilon(torch.tensor([2.0, 1.0, 0.0, -1.0]), 0.2)
    tensor([ True,  True, False, False])
    """
    return _keep_mask(keep.epsilon, z, epsilon, dim, mask)


def eta(z: Tensor, epsilon: Any, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Where softmax gives at least min(ε, √ε e^{−H}), and its largest: `pyentmax.keep.eta`.

    Parameters
    ----------
    z, dim, mask : as in `top_k`
    epsilon : as in `epsilon`

    Returns
    -------
    as in `top_k`

    Examples
    --------
    >>> import torch
    >>> eta(torch.tensor([2.0, 1.0, 0.0, -1.0]), 0.2)
    tensor([ True,  True, False, False])
    """
    return _keep_mask(keep.eta, z, epsilon, dim, mask)


def typical(z: Tensor, mass: Any, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """The fewest of this mass with −log p nearest to the entropy: `pyentmax.keep.typical`.

    Parameters
    ----------
    z, dim, mask : as in `top_k`
    mass : as in `top_p`

    Returns
    -------
    as in `top_k`

    Examples
    --------
    >>> import torch
    >>> typical(torch.tensor([1.0, 0.7, 0.7]), 0.3)
    tensor([False,  True,  True])
    """
    return _keep_mask(keep.typical, z, mass, dim, mask)
