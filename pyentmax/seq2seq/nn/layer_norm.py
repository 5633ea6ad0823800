r"""Layer normalisation (Ba, Kiros & Hinton 2016), as one operation on the tape.

With mean μ and variance σ² of the n features of a row, r = 1/√(σ² + ε) and x̂ = r(x − μ),

    y = γ ∘ x̂ + β

In the backward pass, with g the gradient of y and h = γ ∘ g,

    of x: r (h − mean(h) − x̂ mean(h ∘ x̂))        of γ: Σ g ∘ x̂        of β: Σ g

since x̂ is left unchanged by what is added to x, and by what x is scaled with (but for ε). Written
with the tape's arithmetic it would be a dozen passes over x each way, which take longer than the
matrix product next to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.choice import writes_out
from pyentmax.seq2seq.autograd import Tensor, as_tensor
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.nn.initializers import Parameters

EPS = 1e-5


@writes_out
def layer_norm_rows(x: Array, gain: Array, bias: Array, *, out: tuple[Array, Array, Array]) -> None:
    """Normalise the rows of ``x``: (…, n) with ``gain`` and ``bias`` (n,).

    ``out`` is (y, x̂, r), of shapes (…, n), (…, n) and (…).
    """
    y, normal, r = out
    n = x.shape[-1]
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=normal)
    np.multiply(normal, normal, out=y)
    y.sum(axis=-1, out=r)
    r /= n
    r += EPS
    np.sqrt(r, out=r)
    np.divide(1, r, out=r)
    normal *= r[..., None]
    np.multiply(normal, gain, out=y)
    y += bias


@writes_out
def layer_norm_rows_vjp(g: Array, normal: Array, r: Array, gain: Array, *, out: Array) -> None:
    """The gradient of x from that of y, (…, n), and from what `layer_norm_rows` computed."""
    np.multiply(g, gain, out=out)
    along = out * normal
    mean = along.mean(axis=-1, keepdims=True)
    out -= out.mean(axis=-1, keepdims=True)
    np.multiply(normal, mean, out=along)
    out -= along
    out *= r[..., None]


def layer_norm(x: Any, gain: Any, bias: Any) -> Tensor:
    """Each row of x, (…, n), with mean 0 and variance 1, then scaled by γ and shifted by β, (n,).

    Examples
    --------
    >>> layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)).data.round(3)
    array([[-1.,  1.]])
    """
    x, gain, bias = as_tensor(x), as_tensor(gain), as_tensor(bias)
    rows = x.data
    y, normal = (np.empty(rows.shape, rows.dtype) for _ in range(2))
    r = np.empty(rows.shape[:-1], rows.dtype)
    layer_norm_rows(rows, gain.data, bias.data, out=(y, normal, r))

    def vjp(g: Array) -> Array:
        gradient = np.empty(g.shape, g.dtype)
        layer_norm_rows_vjp(g, normal, r, gain.data, out=gradient)
        return gradient

    return Tensor(y, (x, vjp), (gain, lambda g: g * normal), (bias, lambda g: g))


def init_norm(name: str, width: int, dtype: Any = np.float32) -> Parameters:
    """``name.gain``, γ = 1, and ``name.bias``, β = 0, of shape (width,)."""
    return {f"{name}.gain": np.ones(width, dtype), f"{name}.bias": np.zeros(width, dtype)}


def norm(params: Parameters, name: str, x: Any) -> Tensor:
    """Layer normalisation with the parameters under ``name``.

    Examples
    --------
    >>> norm(init_norm("norm", 2), "norm", np.array([[1.0, 3.0]])).data.round(3)
    array([[-1.,  1.]])
    """
    return layer_norm(x, params[f"{name}.gain"], params[f"{name}.bias"])
