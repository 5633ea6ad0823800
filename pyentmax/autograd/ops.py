"""The operations on the tape, each with its VJP directly beneath its value.

Every function takes tensors, arrays or numbers and returns a :class:`Tensor`. A number or an array
is a constant. Broadcasting is NumPy's: an axis that was stretched to fit gets its gradient summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyentmax.autograd.counter_rng import random_bits
from pyentmax.autograd.tensor import Array, GradientProduct, GradientSlice, Tensor
from pyentmax.calls.devices import array_module


def as_tensor(value: Any, like: Tensor | None = None) -> Tensor:
    """A tensor unchanged; an array, list or number as a constant.

    A number beside a floating-point tensor takes its dtype: 0.5 must not widen float32.
    """
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "dtype"):
        return Tensor(value)
    xp = np if like is None else like.xp
    if not isinstance(value, (int, float)):
        return Tensor(xp.asarray(value))
    takes = like is not None and like.dtype.kind == "f"
    # full, not asarray: to a GPU the number goes as an argument of a kernel, without a copy.
    return Tensor(xp.full((), value, dtype=like.dtype if takes and like is not None else None))


def _pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    a_like, b_like = (x if isinstance(x, Tensor) else None for x in (a, b))
    return as_tensor(a, b_like), as_tensor(b, a_like)


def _unbroadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum the gradient over the axes along which an operand of ``shape`` was stretched."""
    if gradient.shape == shape:
        return gradient
    extra = gradient.ndim - len(shape)
    stretched = tuple(i + extra for i, n in enumerate(shape) if n == 1 != gradient.shape[i + extra])
    return gradient.sum(axis=(*range(extra), *stretched), keepdims=False).reshape(shape)


# --- arithmetic -----------------------------------------------------------------------------------
def add(a: Any, b: Any) -> Tensor:
    """a + b."""
    a, b = _pair(a, b)
    return Tensor(
        a.data + b.data,
        parents=(a, b),
        vjp=lambda g: (_unbroadcast(g, a.shape), _unbroadcast(g, b.shape)),
    )


def subtract(a: Any, b: Any) -> Tensor:
    """a − b."""
    a, b = _pair(a, b)
    return Tensor(
        a.data - b.data,
        parents=(a, b),
        vjp=lambda g: (_unbroadcast(g, a.shape), _unbroadcast(-g, b.shape)),
    )


def multiply(a: Any, b: Any) -> Tensor:
    """a ∘ b."""
    a, b = _pair(a, b)
    return Tensor(
        a.data * b.data,
        parents=(a, b),
        vjp=lambda g: (_unbroadcast(g * b.data, a.shape), _unbroadcast(g * a.data, b.shape)),
    )


def divide(a: Any, b: Any) -> Tensor:
    """a / b."""
    a, b = _pair(a, b)
    y = a.data / b.data

    def vjp(g: Array) -> tuple[Array, Array]:
        g = g / b.data
        return _unbroadcast(g, a.shape), _unbroadcast(-g * y, b.shape)

    return Tensor(y, parents=(a, b), vjp=vjp)


def negative(a: Tensor) -> Tensor:
    """−a."""
    return Tensor(-a.data, parents=(a,), vjp=lambda g: (-g,))


def power(a: Tensor, exponent: float) -> Tensor:
    """``a ** exponent`` for a constant exponent."""

    def vjp(g: Array) -> tuple[Array]:
        # 0 · 0⁻¹ would be a NaN where the derivative of a⁰ is 0.
        return (g * (exponent * a.data ** (exponent - 1)) if exponent else a.xp.zeros_like(g),)

    return Tensor(a.data**exponent, parents=(a,), vjp=vjp)


# --- elementwise functions ------------------------------------------------------------------------
def exp(a: Tensor) -> Tensor:
    """eᵃ; (eᵃ)' = eᵃ."""
    y = a.xp.exp(a.data)
    return Tensor(y, parents=(a,), vjp=lambda g: (g * y,))


def log(a: Tensor) -> Tensor:
    """log a; (log a)' = 1/a."""
    return Tensor(a.xp.log(a.data), parents=(a,), vjp=lambda g: (g / a.data,))


def tanh(a: Tensor) -> Tensor:
    """tanh a; tanh' = 1 − tanh²."""
    y = a.xp.tanh(a.data)
    return Tensor(y, parents=(a,), vjp=lambda g: (g * (1 - y * y),))


def sigmoid(a: Tensor) -> Tensor:
    """σ(a) = 1/(1 + e⁻ᵃ); σ' = σ(1 − σ)."""
    # Through tanh, which neither overflows nor warns at either end.
    y = 0.5 * a.xp.tanh(0.5 * a.data) + 0.5
    return Tensor(y, parents=(a,), vjp=lambda g: (g * (y * (1 - y)),))


def relu(a: Tensor) -> Tensor:
    """[a]₊; its derivative is the indicator of a > 0."""
    return Tensor(a.xp.maximum(a.data, 0), parents=(a,), vjp=lambda g: (g * (a.data > 0),))


# --- linear algebra -------------------------------------------------------------------------------
def matmul(a: Any, b: Any) -> Tensor:
    """a @ b, for operands of two or more axes; leading axes broadcast."""
    a, b = _pair(a, b)
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(
            f"matmul: expected operands of two or more axes, got shapes {a.shape} and {b.shape}; "
            "reshape a vector to a row or a column"
        )

    def vjp(g: Array) -> tuple[Array, Array]:
        return (
            _unbroadcast(g @ b.data.swapaxes(-1, -2), a.shape) if a.requires_grad else None,
            _unbroadcast(a.data.swapaxes(-1, -2) @ g, b.shape) if b.requires_grad else None,
        )

    return Tensor(a.data @ b.data, parents=(a, b), vjp=vjp)


def linear(x: Any, weight: Any, bias: Any | None = None) -> Tensor:
    """x W + b with x of shape (..., n), W (n, m) and b (m,): one row of x per example.

    The gradient of W is the product xᵀ g over all rows. It is kept as a :class:`GradientProduct`
    until the backward pass reaches W, so that a weight shared by many steps is multiplied out once.
    """
    x, weight = as_tensor(x), as_tensor(weight)
    y = x.data @ weight.data
    if bias is None:
        parents: tuple[Tensor, ...] = (x, weight)
    else:
        bias = as_tensor(bias)
        parents = (x, weight, bias)
        y += bias.data

    def vjp(g: Array) -> tuple[Any, ...]:
        rows = g.reshape(-1, g.shape[-1])
        gx = g @ weight.data.T if x.requires_grad else None
        gw = GradientProduct(x.data.reshape(-1, x.shape[-1]), rows)
        return (gx, gw) if bias is None else (gx, gw, rows.sum(axis=0))

    return Tensor(y, parents=parents, vjp=vjp)


# --- shape ----------------------------------------------------------------------------------------
def getitem(a: Tensor, index: Any) -> Tensor:
    """``a[index]`` for integers, slices, None and Ellipsis; for arrays see :func:`take_rows`."""
    for part in index if isinstance(index, tuple) else (index,):
        if hasattr(part, "shape") or isinstance(part, list):
            raise TypeError(
                "indexing a Tensor with an array: a repeated index would lose gradient; "
                "use pyentmax.autograd.take_rows"
            )
    return Tensor(a.data[index], parents=(a,), vjp=lambda g: (GradientSlice(index, g),))


def take_rows(table: Any, index: Array) -> Tensor:
    """``table[index]``: rows of a matrix (V, n) by an integer array of any shape (an embedding).

    A row that is taken several times gets the sum of its gradients.
    """
    table = as_tensor(table)
    index = table.xp.asarray(index)
    return Tensor(
        table.data[index],
        parents=(table,),
        vjp=lambda g: (_sum_rows(g.reshape(-1, g.shape[-1]), index.reshape(-1), table.data),),
    )


def _sum_rows(rows: Array, index: Array, like: Array) -> Array:
    """Add each of ``rows`` to the row of a zero table that ``index`` names."""
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


def concatenate(tensors: Sequence[Any], axis: int = -1) -> Tensor:
    """Join along an axis; the gradient is cut at the same places."""
    parts = [as_tensor(t) for t in tensors]
    xp = parts[0].xp
    cuts: list[int] = []
    for part in parts[:-1]:
        cuts.append((cuts[-1] if cuts else 0) + part.shape[axis])
    return Tensor(
        xp.concatenate([p.data for p in parts], axis=axis),
        parents=parts,
        vjp=lambda g: xp.split(g, cuts, axis=axis),
    )


def stack(tensors: Sequence[Any]) -> Tensor:
    """Join along a new first axis; the gradient of the t-th is the t-th slice."""
    parts = [as_tensor(t) for t in tensors]
    return Tensor(parts[0].xp.stack([p.data for p in parts]), parents=parts, vjp=lambda g: list(g))


def reshape(a: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same elements in another shape."""
    return Tensor(a.data.reshape(shape), parents=(a,), vjp=lambda g: (g.reshape(a.shape),))


def transpose(a: Tensor, axes: tuple[int, ...] | None = None) -> Tensor:
    """The axes in another order; the gradient goes back in the inverse order."""
    axes = tuple(range(a.ndim))[::-1] if axes is None else tuple(ax % a.ndim for ax in axes)
    inverse = tuple(sorted(range(a.ndim), key=axes.__getitem__))
    return Tensor(a.data.transpose(axes), parents=(a,), vjp=lambda g: (g.transpose(inverse),))


def swapaxes(a: Tensor, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged; the gradient exchanges them back."""
    return Tensor(
        a.data.swapaxes(axis1, axis2), parents=(a,), vjp=lambda g: (g.swapaxes(axis1, axis2),)
    )


# --- reductions -----------------------------------------------------------------------------------
def sum(a: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Σ over ``axis``; each summand gets the gradient of the sum."""

    def vjp(g: Array) -> tuple[Array]:
        if axis is not None and not keepdims:
            g = a.xp.expand_dims(g, axis)
        return (a.xp.broadcast_to(g, a.shape),)

    return Tensor(a.xp.asarray(a.data.sum(axis=axis, keepdims=keepdims)), parents=(a,), vjp=vjp)


def mean(a: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """The sum divided by the number of summands."""
    if not a.data.size:
        raise ValueError(f"mean: expected at least one element, got shape {a.shape}")
    total = sum(a, axis, keepdims)
    return total * (total.data.size / a.data.size)


# --- dropout --------------------------------------------------------------------------------------
def dropout(x: Tensor, rate: float, rng: Any | None) -> Tensor:
    """Zero each element with probability ``rate`` and divide the others by 1 − rate.

    Parameters
    ----------
    x : Tensor
    rate : float
        In [0, 1).
    rng : numpy.random.Generator or None
        Where the draws come from; on a GPU one seed an operation is drawn from it, and the mask is
        a function of that and of the place. None switches dropout off, as when a trained model is
        used.

    Raises
    ------
    ValueError
        If ``rate`` is not in [0, 1).
    """
    if not 0 <= rate < 1:
        raise ValueError(f"dropout: expected a rate in [0, 1), got {rate!r}")
    if rng is None or rate == 0:
        return x
    keep = _kept(x, rate, rng)
    return Tensor(x.data * keep, parents=(x,), vjp=lambda g: (g * keep,))


def _kept(x: Tensor, rate: float, rng: Any) -> Array:
    """An array like x: 1/(1 − rate) where an element is kept, 0 where it is dropped."""
    if x.xp is np:
        keep = rng.random(x.shape, dtype=np.float32) >= rate
    else:
        bits = random_bits(int(rng.integers(2**64, dtype=np.uint64)), x.shape, x.xp)
        keep = bits >= np.uint64(int(rate * 2**64))
    return keep * x.dtype.type(1 / (1 - rate))
