"""Functions on the tape, each with its VJP directly below its value.

Every function takes tensors, arrays or numbers and returns a :class:`Tensor`. A number or an array
is a constant. Arithmetic and changes of shape are methods of the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pyentmax.autograd.counter_rng import random_bits
from pyentmax.autograd.gradients import Array, GradientProduct
from pyentmax.autograd.tensor import Tensor
from pyentmax.autograd.tensor import as_tensor as as_tensor
from pyentmax.calls.devices import array_module


# --- elementwise functions ------------------------------------------------------------------------
def exp(a: Any) -> Tensor:
    """eᵃ; (eᵃ)' = eᵃ."""
    a = as_tensor(a)
    y = a.xp.exp(a.data)
    return Tensor(y, parents=(a,), vjp=lambda g: (g * y,))


def log(a: Any) -> Tensor:
    """log a; (log a)' = 1/a."""
    a = as_tensor(a)
    return Tensor(a.xp.log(a.data), parents=(a,), vjp=lambda g: (g / a.data,))


def tanh(a: Any) -> Tensor:
    """tanh a; tanh' = 1 − tanh²."""
    a = as_tensor(a)
    y = a.xp.tanh(a.data)
    return Tensor(y, parents=(a,), vjp=lambda g: (g * (1 - y * y),))


def sigmoid(a: Any) -> Tensor:
    """σ(a) = 1/(1 + e⁻ᵃ); σ' = σ(1 − σ)."""
    a = as_tensor(a)
    # Through tanh, which neither overflows nor warns at either end.
    y = 0.5 * a.xp.tanh(0.5 * a.data) + 0.5
    return Tensor(y, parents=(a,), vjp=lambda g: (g * (y * (1 - y)),))


def relu(a: Any) -> Tensor:
    """[a]₊; its derivative is the indicator of a > 0."""
    a = as_tensor(a)
    return Tensor(a.xp.maximum(a.data, 0), parents=(a,), vjp=lambda g: (g * (a.data > 0),))


# --- linear algebra -------------------------------------------------------------------------------
def matmul(a: Any, b: Any) -> Tensor:
    """a @ b, for operands of two or more axes; leading axes broadcast."""
    return as_tensor(a) @ b


def linear(x: Any, weight: Any, bias: Any | None = None) -> Tensor:
    """x W + b with x of shape (..., n), W (n, m) and b (m,): one row of x per example.

    The gradient of W is the product xᵀ g over all rows. It is kept as a :class:`GradientProduct`
    until the backward pass reaches W, so that a weight shared by many steps is multiplied out once.
    """
    x, weight = as_tensor(x), as_tensor(weight)
    y = times_matrix(x.data, weight.data)
    if bias is None:
        parents: tuple[Tensor, ...] = (x, weight)
    else:
        bias = _bias(bias, y)
        parents = (x, weight, bias)
        y += bias.data

    def vjp(g: Array) -> tuple[Any, ...]:
        rows = _rows(g)
        gx = times_matrix(g, weight.data.T) if x.requires_grad else None
        gw = GradientProduct(_rows(x.data), rows)
        return (gx, gw) if bias is None else (gx, gw, rows.sum(axis=0))

    return Tensor(y, parents=parents, vjp=vjp)


def times_matrix(x: Array, matrix: Array) -> Array:
    """x @ matrix for x (…, n), as one product of all rows.

    With leading axes `@` would run a product for each of their entries: for the sentences of a
    batch that is half as fast.
    """
    if x.ndim < 3:
        return x @ matrix
    rows = _rows(x) @ matrix
    return rows.reshape(*x.shape[:-1], matrix.shape[-1])


def linear_by_rows(x: Any, table: Any, bias: Any | None = None) -> Tensor:
    """x Tᵀ + b, for a table T (V, n) with a row per output: scores of words by their embeddings.

    Examples
    --------
    >>> linear_by_rows(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])).data
    array([[1., 2., 3.]])
    """
    x, table = as_tensor(x), as_tensor(table)
    y = times_matrix(x.data, table.data.T)
    parents = [x, table]
    if bias is not None:
        parents.append(_bias(bias, y))
        y += parents[2].data

    def vjp(g: Array) -> list[Any]:
        rows = _rows(g)
        gx = times_matrix(g, table.data) if x.requires_grad else None
        gradients = [gx, GradientProduct(rows, _rows(x.data))]
        return gradients if bias is None else [*gradients, rows.sum(axis=0)]

    return Tensor(y, parents=parents, vjp=vjp)


def _rows(x: Array) -> Array:
    """x (…, n) as a matrix; its columns may be none, of which -1 would not know how long."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _bias(bias: Any, y: Array) -> Tensor:
    """The bias b (m,) of y (…, m); a ValueError if it is of another shape."""
    bias = as_tensor(bias)
    if bias.shape != y.shape[-1:]:
        raise ValueError(f"bias: expected shape {y.shape[-1:]}, got {bias.shape}")
    return bias


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
    index = table.xp.asarray(index)
    if index.dtype.kind not in "iu":
        raise TypeError(f"index: expected integers, got an array of {index.dtype}")

    def vjp(g: Array) -> tuple[Array]:
        # −1 and V − 1 are one row, whose gradients have to meet.
        places = index.reshape(-1).astype(np.int64) % len(table)
        rows = g.reshape(
            len(places), *table.shape[1:]
        )  # -1 would not know how long without columns
        return (_add_rows(rows, places, table.data),)

    return Tensor(table.data[index], parents=(table,), vjp=vjp)


def select_rows(x: Any, index: Array) -> Tensor:
    """The rows of a matrix (N, n) at some places, none of them twice.

    Unlike `take_rows` it has no gradients to sum, and is several times faster.

    Examples
    --------
    >>> select_rows(np.eye(3), np.array([0, 2])).data
    array([[1., 0., 0.],
           [0., 0., 1.]])
    """
    x = as_tensor(x)

    def vjp(g: Array) -> tuple[Array]:
        gradient = x.xp.zeros_like(x.data)
        gradient[index] = g
        return (gradient,)

    return Tensor(x.data[index], parents=(x,), vjp=vjp)


def _add_rows(rows: Array, index: Array, like: Array) -> Array:
    """A table of zeros with the shape of ``like``, to row index[i] of which rows[i] was added."""
    xp = array_module(like)
    out = xp.zeros_like(like)
    if xp is not np:
        xp.add.at(out, index, rows)  # atomic additions, in no fixed order
        return out
    if not len(index):
        return out
    # Sorted, equal indices stand together and reduceat sums each run: ten times faster than add.at.
    order = index.argsort(kind="stable")
    ordered = index[order]
    starts = xp.flatnonzero(xp.concatenate(([True], ordered[1:] != ordered[:-1])))
    out[ordered[starts]] = xp.add.reduceat(rows[order], starts, axis=0)
    return out


# --- several tensors ------------------------------------------------------------------------------
def concatenate(tensors: Sequence[Any], axis: int = -1) -> Tensor:
    """Join along an axis; the gradient is cut at the same places.

    Examples
    --------
    >>> concatenate([np.ones((2, 3)), np.zeros((2, 1))]).shape
    (2, 4)
    """
    parts = _parts(tensors)
    xp = parts[0].xp
    cuts = list(accumulate(part.shape[axis] for part in parts[:-1]))
    return Tensor(
        xp.concatenate([p.data for p in parts], axis=axis),
        parents=parts,
        vjp=lambda g: xp.split(g, cuts, axis=axis),
    )


def stack(tensors: Sequence[Any]) -> Tensor:
    """Join along a new first axis; the gradient of the t-th is the t-th slice.

    Examples
    --------
    >>> stack([np.ones(3), np.zeros(3)]).shape
    (2, 3)
    """
    parts = _parts(tensors)
    return Tensor(parts[0].xp.stack([p.data for p in parts]), parents=parts, vjp=lambda g: list(g))


def _parts(tensors: Sequence[Any]) -> list[Tensor]:
    parts = [as_tensor(t) for t in tensors]
    if not parts:
        raise ValueError("tensors: expected at least one to join, got none")
    return parts


# --- dropout --------------------------------------------------------------------------------------
def dropout(x: Any, rate: float, rng: Any | None) -> Tensor:
    """Zero each element with probability ``rate`` and divide the others by 1 − rate.

    Parameters
    ----------
    x : Tensor
    rate : float
        In [0, 1).
    rng : numpy.random.Generator or None
        Where the draws come from. On a GPU one seed per operation is drawn from it, and the dropout
        mask is a function of that seed and of the element's place. None switches dropout off, as
        when a trained model is used.

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
    return Tensor(x.data * factors, parents=(x,), vjp=lambda g: (g * factors,))


def dropout_factors(x: Array, rate: float, rng: Any) -> Array:
    """An array like x: 1/(1 − rate) where an element is kept, 0 where it is dropped."""
    xp = array_module(x)
    if xp is np:
        keep = rng.random(x.shape, dtype=np.float32) >= rate
    else:
        bits = random_bits(int(rng.integers(2**64, dtype=np.uint64)), x.shape, xp)
        keep = bits >= np.uint64(int(rate * 2**64))
    return keep * x.dtype.type(1 / (1 - rate))
