r"""Long short-term memory (Hochreiter & Schmidhuber 1997; with forget gates, Gers et al. 2000).

With gate pre-activations a = x W + h U + b, cut into four blocks,

    i = σ(aᵢ)   f = σ(a_f)   o = σ(aₒ)   g = tanh(a_g)
    c' = f ∘ c + i ∘ g          h' = o ∘ tanh(c')

Backwards, with dh, dc the gradients that reach h' and c' (t = tanh c'):

    dc ← dc + dh ∘ o ∘ (1 − t²)
    daₒ = dh ∘ t ∘ o(1 − o)     da_f = dc ∘ c ∘ f(1 − f)
    daᵢ = dc ∘ g ∘ i(1 − i)     da_g = dc ∘ i ∘ (1 − g²)
    gradient of h: da Uᵀ        of c: dc ∘ f        of U: hᵀ da

:func:`lstm` runs a whole sequence as one operation on the tape, :func:`lstm_step` one step of it.
Both call the same two functions, which hold the formulas above. The input's part x W + b of the
pre-activations is left to :func:`pyentmax.autograd.linear`: one product for all time steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._devices import array_module
from ..autograd import Product, Tensor, as_tensor, concatenate
from ..autograd.tensor import Array
from .initializers import Generator, Parameters, glorot_uniform, orthogonal
from .linear import linear


class _Step(NamedTuple):
    """What a step leaves behind for its backward pass."""

    gates: Array  # (B, 4H): i, f, o, g after their nonlinearities
    tanh_c: Array  # (B, H): tanh of the new cell
    h: Array  # (B, H): the hidden state before the step
    c: Array  # (B, H): the cell before the step


def _forward(a: Array, h: Array, c: Array) -> tuple[Array, Array, _Step]:
    """h', c' from pre-activations a (B, 4H), which are overwritten by the gates."""
    xp = array_module(a)
    n = c.shape[-1]
    # σ(a) = ½ + ½ tanh(a/2): one call of tanh serves all four gates.
    sigmoids = a[:, : 3 * n]
    sigmoids *= 0.5
    xp.tanh(a, out=a)
    sigmoids *= 0.5
    sigmoids += 0.5
    i, f, o, g = (a[:, k * n : (k + 1) * n] for k in range(4))
    new_c = f * c
    new_c += i * g
    tanh_c = xp.tanh(new_c)
    return o * tanh_c, new_c, _Step(a, tanh_c, h, c)


def _backward(dh: Array, dc: Array, step: _Step, out: Array | None = None) -> tuple[Array, Array]:
    """da (B, 4H) and the gradient of the old cell, from those of h' and c' (dc is overwritten)."""
    xp = array_module(dh)
    gates, t, _, c = step
    n = c.shape[-1]
    i, f, o, g = (gates[:, k * n : (k + 1) * n] for k in range(4))
    da = xp.empty_like(gates) if out is None else out
    di, df, do, dg = (da[:, k * n : (k + 1) * n] for k in range(4))
    dh_o = dh * o
    dc += dh_o
    dc -= dh_o * t * t
    xp.multiply(dc, g, out=di)
    xp.multiply(dc, c, out=df)
    xp.multiply(dh, t, out=do)
    s = gates[:, : 3 * n]
    da[:, : 3 * n] *= s - s * s
    xp.multiply(dc, i, out=dg)
    dg -= dg * g * g
    dc *= f
    return da, dc


def lstm(
    a: Any, recurrent: Any, mask: Array | None = None, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Run an LSTM over a sequence, starting from zeros, as one operation on the tape.

    Parameters
    ----------
    a : Tensor of shape (T, B, 4H)
        The input's part x W + b of the pre-activations; time comes first.
    recurrent : Tensor of shape (H, 4H)
        U, the weights of the hidden state.
    mask : array of bool, shape (T, B), optional
        False where a sequence has ended (or not begun): there the state passes through unchanged.
    reverse : bool, default False
        Run from the last step to the first.

    Returns
    -------
    hidden : Tensor of shape (T, B, H)
        The hidden state after each step.
    last : Tensor of shape (2, B, H)
        Hidden state and cell after the final step.
    """
    a, recurrent = as_tensor(a), as_tensor(recurrent)
    xp = a.xp
    steps, batch, width = a.shape
    n = width // 4
    u = recurrent.data
    order = range(steps)[:: -1 if reverse else 1]
    held = xp.ones((steps, 1), bool) if mask is None else mask
    # Where all sequences go on, a step needs no mask. To ask a GPU would be to wait for it.
    whole = held.all(axis=1).tolist() if xp is np else [mask is None] * steps

    # Hidden states and, behind them, the final cell: what the caller may ask gradients of.
    packed = xp.empty((steps + 1, batch, n), a.dtype)
    h = c = xp.zeros((batch, n), a.dtype)
    cache: list[Any] = [None] * steps
    for t in order:
        new_h, new_c, cache[t] = _forward(a.data[t] + h @ u, h, c)
        if not whole[t]:
            on = held[t][:, None]
            new_h, new_c = xp.where(on, new_h, h), xp.where(on, new_c, c)
        h, c = new_h, new_c
        packed[t] = h
    packed[steps] = c

    def vjp(gradient: Array) -> tuple[Any, ...]:
        da = xp.empty_like(a.data)
        before = xp.empty((steps, batch, n), a.dtype)
        dh, dc = xp.zeros_like(packed[0]), gradient[steps].copy()
        for t in reversed(order):
            before[t] = cache[t].h
            dh = dh + gradient[t]
            if whole[t]:
                _, dc = _backward(dh, dc, cache[t], out=da[t])
                dh = da[t] @ u.T
            else:
                # Where the mask is False the step did nothing: its gradients pass it unchanged.
                on = held[t][:, None]
                _, dc_through = _backward(dh * on, dc * on, cache[t], out=da[t])
                dh = da[t] @ u.T + dh * ~on
                dc = dc_through + dc * ~on
        return da, Product(before.reshape(-1, n), da.reshape(-1, width))

    sequence = Tensor(packed, parents=(a, recurrent), vjp=vjp)
    final = order[-1]
    last_h = sequence[final : final + 1]
    return sequence[:steps], concatenate([last_h, sequence[steps:]], axis=0)


def lstm_step(a: Any, state: Any, recurrent: Any) -> Tensor:
    """One step of an LSTM as one operation on the tape.

    Parameters
    ----------
    a : Tensor of shape (B, 4H)
        The input's part x W + b of the pre-activations.
    state : Tensor of shape (2, B, H)
        Hidden state and cell.
    recurrent : Tensor of shape (H, 4H)
        U, the weights of the hidden state.

    Returns
    -------
    Tensor of shape (2, B, H)
        The new hidden state and cell.
    """
    a, state, recurrent = as_tensor(a), as_tensor(state), as_tensor(recurrent)
    xp = a.xp
    u = recurrent.data
    h, c = state.data
    new_h, new_c, step = _forward(a.data + h @ u, h, c)

    def vjp(gradient: Array) -> tuple[Any, ...]:
        da, dc = _backward(gradient[0], gradient[1].copy(), step)
        return da, xp.stack([da @ u.T, dc]), Product(h, da)

    return Tensor(xp.stack([new_h, new_c]), parents=(a, state, recurrent), vjp=vjp)


def init_lstm(
    rng: Generator, name: str, inputs: int, hidden: int, dtype: Any = np.float32
) -> Parameters:
    """``name.weight`` W (inputs, 4H), ``name.recurrent`` U (H, 4H) and ``name.bias`` b (4H,).

    U is orthogonal gate by gate, and the forget gate's bias is 1, so that at first a cell remembers
    (Jozefowicz et al. 2015).
    """
    bias = np.zeros(4 * hidden, dtype)
    bias[hidden : 2 * hidden] = 1
    return {
        f"{name}.weight": np.concatenate(
            [glorot_uniform(rng, inputs, hidden, dtype) for _ in range(4)], axis=1
        ),
        f"{name}.recurrent": np.concatenate(
            [orthogonal(rng, hidden, dtype) for _ in range(4)], axis=1
        ),
        f"{name}.bias": bias,
    }


def init_bilstm(
    rng: Generator, name: str, inputs: int, hidden: int, dtype: Any = np.float32
) -> Parameters:
    """Two LSTMs of half the width, ``name.forward`` and ``name.backward``, to be concatenated."""
    if hidden % 2:
        raise ValueError(
            f"hidden: a bidirectional LSTM splits it in two halves, got the odd {hidden}"
        )
    return init_lstm(rng, f"{name}.forward", inputs, hidden // 2, dtype) | init_lstm(
        rng, f"{name}.backward", inputs, hidden // 2, dtype
    )


def bilstm(
    params: Parameters, name: str, x: Any, mask: Array | None = None
) -> tuple[Tensor, Tensor]:
    """A bidirectional layer: hidden states (T, B, H) and last states (2, B, H) of both directions.

    x has shape (T, B, n); each direction makes one half of the H features.
    """
    forward, forward_last = lstm(
        linear(params, f"{name}.forward", x), params[f"{name}.forward.recurrent"], mask
    )
    backward, backward_last = lstm(
        linear(params, f"{name}.backward", x),
        params[f"{name}.backward.recurrent"],
        mask,
        reverse=True,
    )
    return concatenate([forward, backward]), concatenate([forward_last, backward_last])
