"""The Fenchel-Young losses Ω*(z) + Ω(y) − z·y of tensors, whose gradient is π_Ω(z) − y.

Each is the function of the same name in `pyentmax`, with ``dim`` for its ``axis`` (Blondel et al.
2020, Def. 1). A loss has gradients in z, where the mapping's are known in y, and in a `weight`, and
none in the mapping's parameter.
"""

from __future__ import annotations

from typing import Any, Unpack

from torch import Tensor

from pyentmax.torch.calls import LOSS_OPTIONS, LossOptions, apply_loss, chosen


def softmax_loss(z: Tensor, y: Tensor, dim: int = -1, **options: Unpack[LossOptions]) -> Tensor:
    """The Fenchel-Young loss of `softmax`: cross-entropy.

    Parameters
    ----------
    z : Tensor of scores
    y : Tensor of integer labels, of z's shape without ``dim``, or of distributions like z
    dim : int, default -1
        along which the classes lie
    **options
        reduction : "mean", "sum" or "none", default "mean"
            the mean divides by the sum of the weights that count, and is 0 where none does
        weight : Tensor that broadcasts to the labels' shape, optional
            the weight of each row, which may be learned; `class_weight` has those of classes
        mask : bool Tensor that broadcasts to z, optional
            True where a score may get probability
        ignore_index : int, optional
            rows with this label are ignored
        label_smoothing : float in [0, 1], default 0.0
            ε in q = (1 − ε) q + ε/d, d the number of unmasked entries
        class_weight : Tensor of shape (d,), optional
            the weight of each class: a row counts by that of its label, before smoothing, or by the
            mean of all under its distribution, times its `weight`
        offsets : as in `pyentmax.torch.softmax`, optional
            labels, weights and losses are then those of the rows; not with `class_weight`

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each row

    Raises
    ------
    ValueError
        if y is neither labels nor distributions that fit z, or an option is out of its range or
        does not fit
    TypeError
        if z, y or an option is of the wrong kind

    Examples
    --------
    >>> import torch
    >>> softmax_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]))
    tensor(0.5424)
    """
    return apply_loss("softmax", z, y, None, dim, **options)


def sparsemax_loss(z: Tensor, y: Tensor, dim: int = -1, **options: Unpack[LossOptions]) -> Tensor:
    """The Fenchel-Young loss of `sparsemax`.

    Parameters
    ----------
    z, y, dim, **options : as in `softmax_loss`

    Returns
    -------
    as in `softmax_loss`

    Examples
    --------
    >>> import torch
    >>> sparsemax_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]))
    tensor(0.0900)
    """
    return apply_loss("sparsemax", z, y, None, dim, **options)


def entmax15_loss(z: Tensor, y: Tensor, dim: int = -1, **options: Unpack[LossOptions]) -> Tensor:
    """The Fenchel-Young loss of `entmax15`.

    Parameters
    ----------
    z, y, dim, **options : as in `softmax_loss`

    Returns
    -------
    as in `softmax_loss`

    Examples
    --------
    >>> import torch
    >>> entmax15_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]))
    tensor(0.2187)
    """
    return apply_loss("entmax15", z, y, None, dim, **options)


def entmax_loss(
    z: Tensor, y: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, **options: Unpack[LossOptions]
) -> Tensor:
    """The Fenchel-Young loss of `entmax`.

    Parameters
    ----------
    z, y, dim, **options : as in `softmax_loss`
    alpha : as in `entmax`; it gets no gradient

    Returns
    -------
    as in `softmax_loss`

    Examples
    --------
    >>> import torch
    >>> entmax_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]))
    tensor(0.2187)
    """
    return apply_loss("entmax", z, y, alpha, dim, **options)


def normmax_loss(
    z: Tensor, y: Tensor, alpha: float | Tensor = 2.0, dim: int = -1, **options: Unpack[LossOptions]
) -> Tensor:
    """The Fenchel-Young loss of `normmax`.

    Parameters
    ----------
    z, y, dim, **options : as in `softmax_loss`
    alpha : as in `normmax`; it gets no gradient

    Returns
    -------
    as in `softmax_loss`

    Examples
    --------
    >>> import torch
    >>> normmax_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]))
    tensor(0.1218)
    """
    return apply_loss("normmax", z, y, alpha, dim, **options)


def topk_sparsemax_loss(
    z: Tensor, y: Tensor, k: float | Tensor, dim: int = -1, **options: Unpack[LossOptions]
) -> Tensor:
    """The Fenchel-Young loss of `topk_sparsemax`.

    Parameters
    ----------
    z, y, dim, **options : as in `softmax_loss`
    k : as in `topk_sparsemax`; it gets no gradient

    Returns
    -------
    as in `softmax_loss`

    Examples
    --------
    >>> import torch
    >>> topk_sparsemax_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]), 2)
    tensor(0.0900)
    """
    return apply_loss("topk_sparsemax", z, y, k, dim, **options)


def fusedmax_loss(
    z: Tensor,
    y: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    **options: Unpack[LossOptions],
) -> Tensor:
    """The Fenchel-Young loss of `fusedmax`.

    Parameters
    ----------
    z, y, dim, **options : as in `softmax_loss`
    strength : as in `fusedmax`; it gets no gradient

    Returns
    -------
    as in `softmax_loss`

    Examples
    --------
    >>> import torch
    >>> fusedmax_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]))
    tensor(0.5500)
    """
    return apply_loss("fusedmax", z, y, strength, dim, **options)


def oscarmax_loss(
    z: Tensor,
    y: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    **options: Unpack[LossOptions],
) -> Tensor:
    """The Fenchel-Young loss of `oscarmax`.

    Parameters
    ----------
    z, y, dim, **options : as in `softmax_loss`
    strength : as in `oscarmax`; it gets no gradient

    Returns
    -------
    as in `softmax_loss`

    Examples
    --------
    >>> import torch
    >>> oscarmax_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]))
    tensor(0.5500)
    """
    return apply_loss("oscarmax", z, y, strength, dim, **options)


def fenchel_young_loss(
    z: Tensor, y: Tensor, mapping: str = "entmax15", dim: int = -1, **options: Any
) -> Tensor:
    """The Fenchel-Young loss of any mapping in `pyentmax.MAPPINGS` that has an Ω.

    Parameters
    ----------
    z, y, dim : as in `softmax_loss`
    mapping : str
    **options
        those of `softmax_loss`, and the mapping's parameter by its name

    Returns
    -------
    as in `softmax_loss`

    Examples
    --------
    >>> import torch
    >>> fenchel_young_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]), "entmax", alpha=2)
    tensor(0.0900)
    """
    value = chosen("fenchel_young_loss()", mapping, options, LOSS_OPTIONS)
    return apply_loss(mapping, z, y, value, dim, **options)
