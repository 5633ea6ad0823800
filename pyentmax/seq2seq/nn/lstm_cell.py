r"""The elementwise part of an LSTM cell, between its matrix products, and the derivative.

With a, the pre-activations of the four gates of each unit,

    i = σ(aᵢ)   f = σ(a_f)   o = σ(aₒ)   g = tanh(a_g)
    c' = f ∘ c + i ∘ g          h' = o ∘ tanh(c')

In the backward pass, with dh and dc the gradients that reach h' and c', and t = tanh c':

    dc ← dc + dh ∘ o ∘ (1 − t²)
    daₒ = dh ∘ t ∘ o(1 − o)     da_f = dc ∘ c ∘ f(1 − f)
    daᵢ = dc ∘ g ∘ i(1 − i)     da_g = dc ∘ i ∘ (1 − g²)
    gradient of c: dc ∘ f

Gates have shape (B, 4, H) here, or (4, H) where they are the same for all examples. Each function
has a compiled twin of the same name, which takes one pass over memory where the body takes a dozen.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from pyentmax.engine.backends.choice import writes_out
from pyentmax.seq2seq.autograd.tensor import Array

Arrays: TypeAlias = tuple[Array, ...]


@writes_out
def lstm_cell(a: Array, b: Array, c: Array, *, out: Arrays) -> None:
    """Gates, new cell, its tanh and hidden state, from the pre-activations a + b and the old cell.

    Parameters
    ----------
    a, b : arrays that broadcast to (B, 4, H)
        The two summands: usually the input's part and the hidden state's.
    c : array of shape (B, H)
        The old cell.
    out : (gates, new_c, tanh_c, h)
        Arrays for the results: one of shape (B, 4, H), and three of shape (B, H).
    """
    gates, new_c, tanh_c, h = out
    # σ(a) = ½ + ½ tanh(a/2): one call of tanh serves all four gates.
    np.add(a, b, out=gates)
    sigmoids = gates[:, :3]
    sigmoids *= 0.5
    np.tanh(gates, out=gates)
    sigmoids *= 0.5
    sigmoids += 0.5
    i, f, o, g = (gates[:, k] for k in range(4))
    np.multiply(f, c, out=new_c)
    new_c += i * g
    np.tanh(new_c, out=tanh_c)
    np.multiply(o, tanh_c, out=h)


@writes_out
def lstm_cell_vjp(
    dh: Array, dc: Array, gates: Array, tanh_c: Array, c: Array, *, out: Arrays
) -> None:
    """The gradients of the pre-activations and of the old cell, from those of h' and c'.

    Parameters
    ----------
    dh, dc : arrays of shape (B, H)
    gates, tanh_c, c : arrays of shapes (B, 4, H), (B, H), (B, H)
        What :func:`lstm_cell` computed, and the old cell.
    out : (da, dc_before)
        Arrays for the results, of shapes (B, 4, H) and (B, H). Neither may be an operand.
    """
    da, dc_before = out
    i, f, o, g = (gates[:, k] for k in range(4))
    through_h = dh * o
    d = dc + through_h
    d -= through_h * tanh_c * tanh_c
    np.multiply(d, g, out=da[:, 0])
    np.multiply(d, c, out=da[:, 1])
    np.multiply(dh, tanh_c, out=da[:, 2])
    sigmoids = gates[:, :3]
    da[:, :3] *= sigmoids - sigmoids * sigmoids
    d_g = d * i
    np.subtract(d_g, d_g * g * g, out=da[:, 3])
    np.multiply(d, f, out=dc_before)
