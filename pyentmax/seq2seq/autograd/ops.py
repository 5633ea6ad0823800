"""Functions on the tape, each with its VJP directly below its value.

Every function takes tensors, arrays or numbers and returns a :class:`Tensor`. A number or an array
is a constant. Arithmetic and changes of shape are methods of the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor


# --- elementwise functions ------------------------------------------------------------------------
def exp(a: Any) -> Tensor:
    """eᵃ; (eᵃ)' = eᵃ."""
    a = as_tensor(a)
    y = np.exp(a.data)
    return Tensor(y, (a, lambda g: g * y))


def log(a: Any) -> Tensor:
    """log a; (log a)' = 1/a."""
    a = as_tensor(a)
    return Tensor(np.log(a.data), (a, lambda g: g / a.data))


def tanh(a: Any) -> Tensor:
    """tanh a; tanh' = 1 − tanh²."""
    a = as_tensor(a)
    y = np.tanh(a.data)
    return Tensor(y, (a, lambda g: g * (1 - y * y)))


def sigmoid(a: Any) -> Tensor:
    """σ(a) = 1/(1 + e⁻ᵃ); σ' = σ(1 − σ)."""
    a = as_tensor(a)
    # Through tanh, which neither overflows nor warns at either end.
    y = 0.5 * np.tanh(0.5 * a.data) + 0.5
    return Tensor(y, (a, lambda g: g * (y * (1 - y))))


def relu(a: Any) -> Tensor:
    """[a]₊; its derivative is the indicator of a > 0."""
    a = as_tensor(a)
    return Tensor(np.maximum(a.data, 0), (a, lambda g: g * (a.data > 0)))


# --- matrices and rows ----------------------------------------------------------------------------
def matmul(a: Any, b: Any) -> Tensor:
    """a @ b, of vectors, matrices and stacks of matrices."""
    return as_tensor(a) @ b


def linear(x: Any, weight: Any, bias: Any | None = None) -> Tensor:
    """x W + b with x of shape (..., n), W (n, m) and b (m,): one row of x per example.

    Examples
    --------
    >>> linear(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])).data
    array([[1., 2., 3.]])
    """
    x, weight = as_tensor(x), as_tensor(weight)
    y = times_matrix(x.data, weight.data)
    parents = [
        (x, lambda g: times_matrix(g, weight.data.T)),
        (weight, lambda g: as_rows(x.data).T @ as_rows(g)),
    ]
    if bias is not None:
        bias = as_tensor(bias)
        y += bias.data
        parents.append((bias, lambda g: as_rows(g).sum(axis=0)))
    return Tensor(y, *parents)


def times_matrix(x: Array, matrix: Array) -> Array:
    """x @ matrix for x (…, n), as one product of all rows.

    With leading axes `@` would run a product for each of their entries: for the sentences of a
    batch that is half as fast.
    """
    return (as_rows(x) @ matrix).reshape(*x.shape[:-1], matrix.shape[-1])


def as_rows(x: Array) -> Array:
    """x (…, n) as a matrix."""
    return x.reshape(-1, x.shape[-1])


def take_rows(table: Any, index: Array) -> Tensor:
    """``table[index]``: rows of a matrix (V, n) by an integer array of any shape (an embedding).

    A row that is taken several times gets the sum of its gradients.

    Examples
    --------
    >>> table = Tensor(np.eye(3), requires_grad=True)
    >>> take_rows(table, [2, 2, 0]).sum().backward()
    >>> table.grad[:, 0]
    array([1., 0., 2.])
    """
    table = as_tensor(table)
    index = np.asarray(index)
    if index.dtype.kind not in "iu":
        raise TypeError(f"index: expected integers, got an array of {index.dtype}")

    def vjp(g: Array) -> Array:
        rows = g.reshape(index.size, *table.shape[1:])
        # −1 and V − 1 are one row, whose gradients have to meet.
        return _sum_by_row(rows, index.reshape(-1).astype(np.int64) % len(table), table.data)

    return Tensor(table.data[index], (table, vjp))


def _sum_by_row(rows: Array, index: Array, like: Array) -> Array:
    """An array like a table, whose row i is the sum of the ``rows`` with index i."""
    out = np.zeros_like(like)
    if len(index):
        # Sorted, equal indices stand together, and reduceat sums each run: ten times faster.
        order = index.argsort(kind="stable")
        ordered = index[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        out[ordered[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return out


# --- several tensors ------------------------------------------------------------------------------
def concatenate(tensors: Sequence[Any], axis: int = -1) -> Tensor:
    """Join along an axis; the gradient is cut at the same places.

    Examples
    --------
    >>> concatenate([np.ones((2, 3)), np.zeros((2, 1))]).shape
    (2, 4)
    """
    parts = tuple(as_tensor(x) for x in tensors)
    cuts = list(accumulate(part.shape[axis] for part in parts[:-1]))
    joined = np.concatenate([part.data for part in parts], axis=axis)
    return Tensor(joined, (parts, lambda g: tuple(np.split(g, cuts, axis=axis))))


def stack(tensors: Sequence[Any]) -> Tensor:
    """Join along a new first axis; the gradient of the t-th is the t-th slice.

    Examples
    --------
    >>> stack([np.ones(3), np.zeros(3)]).shape
    (2, 3)
    """
    parts = tuple(as_tensor(x) for x in tensors)
    return Tensor(np.stack([part.data for part in parts]), (parts, tuple))


# --- dropout --------------------------------------------------------------------------------------
def dropout(x: Any, rate: float, rng: Any | None) -> Tensor:
    """Zero each element with probability ``rate`` and divide the others by 1 − rate.

    Parameters
    ----------
    x : Tensor
    rate : float
        In [0, 1).
    rng : numpy.random.Generator or None
        Where the draws come from. None switches dropout off, as when a trained model is used.

    Examples
    --------
    >>> dropout(Tensor(np.ones(6)), 0.5, np.random.default_rng(0)).data
    array([2., 2., 2., 0., 0., 0.])
    """
    if not 0 <= rate < 1:
        raise ValueError(f"dropout: expected a rate in [0, 1), got {rate!r}")
    x = as_tensor(x)
    if rng is None or rate == 0:
        return x
    factors = dropout_factors(x.data, rate, rng)
    return Tensor(x.data * factors, (x, lambda g: g * factors))


def dropout_factors(x: Array, rate: float, rng: Any) -> Array:
    """An array like x: 1/(1 − rate) where an element is kept, 0 where it is dropped."""
    keep = rng.random(x.shape, dtype=np.float32) >= rate
    return keep * x.dtype.type(1 / (1 - rate))
