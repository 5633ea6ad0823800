"""The best words of an output layer, and draws from softmax, of tensors: without most products."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyentmax.sparse_attention import exact_heads
from pyentmax.torch.arrays import lent
from pyentmax.torch.screened import ScreenedRows, _array, check_no_gradient


def linear_argmax(
    x: Tensor, rows: Any, *, bias: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The word with the largest of the scores scale · x · rowsᵀ + bias, and that score.

    Parameters
    ----------
    x : Tensor of shape (d,) or (b, d), on the CPU
    rows : ScreenedRows of shape (n, d), or a Tensor
        a tensor is multiplied with as a whole, for the same results
    bias : Tensor of shape (n,), optional
    scale : float, default 1

    Returns
    -------
    words, scores : Tensors of shape () or (b,)
        scores of half types are those of a product in float32

    Raises
    ------
    TypeError, ValueError
        as `pyentmax.linear_argmax`; a TypeError for tensors that require a gradient, while
        gradients are enabled, or are not on the CPU

    Examples
    --------
    >>> import torch, pyentmax.torch as pt
    >>> rows = pt.ScreenedRows(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
    >>> pt.linear_argmax(torch.tensor([1.0, 0.5]), rows)
    (tensor(1), tensor(1.1000))
    """
    array, matrix, own = _arrays("linear_argmax", x, rows, bias)
    return _tensors(exact_heads.linear_argmax(array, matrix, bias=own, scale=scale))


def linear_top_k(
    x: Tensor, rows: Any, k: int, *, bias: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The k words with the largest scores by falling score, as `pyentmax.linear_top_k`.

    Parameters
    ----------
    x, rows, bias, scale : as in `linear_argmax`
    k : int
        words of each state, from 1 up

    Examples
    --------
    >>> import torch, pyentmax.torch as pt
    >>> rows = pt.ScreenedRows(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
    >>> pt.linear_top_k(torch.tensor([1.0, 0.5]), rows, 2)
    (tensor([1, 0]), tensor([1.1000, 1.0000]), tensor([0, 2]))
    """
    array, matrix, own = _arrays("linear_top_k", x, rows, bias)
    return _tensors(exact_heads.linear_top_k(array, matrix, k, bias=own, scale=scale))


def linear_min_p(
    x: Tensor, rows: Any, min_p: float, *, bias: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The words with at least min_p of the largest probability, as `pyentmax.linear_min_p`.

    Parameters
    ----------
    x, rows, bias, scale : as in `linear_argmax`
    min_p : float in (0, 1]
        the least share of the largest probability

    Examples
    --------
    >>> import torch, pyentmax.torch as pt
    >>> rows = pt.ScreenedRows(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
    >>> pt.linear_min_p(torch.tensor([1.0, 0.5]), rows, 0.8)[0]
    tensor([1, 0])
    """
    array, matrix, own = _arrays("linear_min_p", x, rows, bias)
    return _tensors(exact_heads.linear_min_p(array, matrix, min_p, bias=own, scale=scale))


def linear_sample(
    x: Tensor, rows: Any, *, generator: torch.Generator | None = None, temperature: float = 1.0,
    top_k: int | None = None, min_p: float | None = None, bias: Tensor | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A word for each state, drawn from softmax of the scores / temperature.

    The arguments are those of `pyentmax.linear_sample`. The numbers that are drawn are those of
    ``torch.multinomial(p, 1, generator=generator)`` for p in float32, and so is the word, but for
    rounding.

    Parameters
    ----------
    x, rows, bias, scale : as in `linear_argmax`
    generator : torch.Generator, optional
    temperature : float, default 1.0
    top_k, min_p : as in `linear_top_k` and `linear_min_p`, optional
        the words to draw from

    Examples
    --------
    >>> import torch, pyentmax.torch as pt
    >>> rows, x = torch.randn(50, 4), torch.randn(3, 4)
    >>> words, _ = pt.linear_sample(x, pt.ScreenedRows(rows), generator=torch.manual_seed(0))
    >>> p = torch.softmax(x @ rows.T, dim=-1)
    >>> bool((words == torch.multinomial(p, 1, generator=torch.manual_seed(0))[:, 0]).all())
    True
    """
    array, matrix, own = _arrays("linear_sample", x, rows, bias)
    shape = x.shape[:-1].numel(), matrix.shape[0]
    noise = gumbel(shape, generator, torch.promote_types(rows.dtype, torch.float32)).numpy()

    def numbers(start: int, count: int) -> Any:
        return noise[start : start + count]

    rule = temperature, top_k, min_p
    return _tensors(exact_heads.sampled(array, matrix, numbers, *rule, own, scale))


def gumbel(shape: Any, generator: Any, dtype: torch.dtype) -> Tensor:
    """−log q of the exponential numbers q that ``torch.multinomial`` divides probabilities by."""
    return torch.empty(shape, dtype=dtype).exponential_(1, generator=generator).log_().neg_()


def _arrays(name: str, x: Tensor, rows: Any, bias: Tensor | None) -> tuple[Any, ...]:
    check_no_gradient(name, x, rows, bias)
    for tensor in (x, rows, bias):
        if isinstance(tensor, Tensor) and not tensor.is_cpu:
            raise TypeError(f"{name}: expected tensors on the CPU, got one on {tensor.device}")
    matrix = rows.screened if isinstance(rows, ScreenedRows) else _array(rows)
    return lent(x), matrix, None if bias is None else lent(bias)


def _tensors(arrays: tuple[Any, ...]) -> Any:
    return tuple(torch.from_numpy(np.asarray(array)) for array in arrays)
