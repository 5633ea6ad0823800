"""Logarithms of probabilities, from the scores: −∞ off the support, and no digit lost elsewhere.

``pt.entmax(z).log()`` is −∞ where p underflows, and has few correct digits near p = 1. Gradients
exist of every order, in the scores and in α; a logarithm that is −∞ gets and gives none. For a
model that is trained, the Fenchel-Young losses are finite for every target and have a gradient
everywhere; these logarithms are for decoding, for scores of samples, and for softmax.
"""

from __future__ import annotations

from torch import Tensor

from pyentmax.torch.calls import apply


def log_softmax(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, offsets: Tensor | None = None
) -> Tensor:
    """log p of p = softmax(z) along ``dim``, with its derivatives.

    Parameters
    ----------
    z : Tensor of scores
    dim : int, default -1
    mask : bool Tensor that broadcasts to z, optional
        True where a score may get probability
    offsets : as in `pyentmax.torch.softmax`

    Returns
    -------
    Tensor of z's shape and dtype; −∞ where p is 0

    Examples
    --------
    >>> import torch
    >>> log_softmax(torch.tensor([0.0, 0.0, 9.0]), mask=torch.tensor([True, True, False]))
    tensor([-0.6931, -0.6931,    -inf])
    """
    return apply("log_softmax", z, None, dim, mask=mask, offsets=offsets)


def log_sparsemax(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, offsets: Tensor | None = None
) -> Tensor:
    """log p of p = sparsemax(z) along ``dim``, with its derivatives.

    Parameters
    ----------
    z, dim, mask, offsets : as in `log_softmax`

    Returns
    -------
    as in `log_softmax`

    Examples
    --------
    >>> import torch
    >>> log_sparsemax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([-0.2877, -1.3863,    -inf])
    """
    return apply("log_sparsemax", z, None, dim, mask=mask, offsets=offsets)


def log_entmax15(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, offsets: Tensor | None = None
) -> Tensor:
    """log p of p = entmax15(z) along ``dim``, with its derivatives.

    Parameters
    ----------
    z, dim, mask, offsets : as in `log_softmax`

    Returns
    -------
    as in `log_softmax`

    Examples
    --------
    >>> import torch
    >>> log_entmax15(torch.tensor([2.0, 1.6, -1.0]))
    tensor([-0.4463, -1.0217,    -inf])
    """
    return apply("log_entmax15", z, None, dim, mask=mask, offsets=offsets)


def log_entmax(
    z: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """log p of p = entmax(z, alpha) along ``dim``, with its derivatives.

    Parameters
    ----------
    z, dim, mask, offsets : as in `log_softmax`
    alpha : float or Tensor that broadcasts to z's shape without ``dim``, default 1.5
        a tensor gets a gradient

    Returns
    -------
    as in `log_softmax`

    Examples
    --------
    >>> import torch
    >>> log_entmax(torch.tensor([0.0, -900.0, -1100.0]), 1.001)
    tensor([    0.0000, -2302.5852,       -inf])
    """
    return apply("log_entmax", z, alpha, dim, mask=mask, offsets=offsets)
