r"""Long short-term memory (Hochreiter & Schmidhuber 1997; with forget gates, Gers et al. 2000).

With the weights W of the input, U of the hidden state and b, a step takes

    a = x W + h U + b        (h', c') = cell(a, c)

where :mod:`pyentmax.seq2seq.nn.lstm_cell` has the formulas of the cell and of its derivative: da,
the gradient of a, and that of c. All that is left for the backward pass are products:

    gradient of h: da Uᵀ     of U: hᵀ da     of x: da Wᵀ     of W: xᵀ da

:func:`lstm` runs a whole sequence as one operation on the tape. Its input's part x W + b of the
pre-activations is left to :func:`pyentmax.seq2seq.autograd.linear`: one product for all time steps.
:func:`lstm_step` is one step, for a decoder whose input depends on the step before; there the input
and the hidden state are multiplied together, by W on top of U.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd import Tensor, as_tensor, concatenate
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.nn.initializers import Generator, Parameters, glorot_uniform, orthogonal
from pyentmax.seq2seq.nn.linear import linear
from pyentmax.seq2seq.nn.lstm_cell import lstm_cell, lstm_cell_vjp
from pyentmax.seq2seq.nn.shared_matrix import shared


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
        False where a sequence has ended or not begun: there the state passes through unchanged.
    reverse : bool, default False
        Run from the last step to the first.

    Returns
    -------
    hidden : Tensor of shape (T, B, H)
        The hidden state after each step.
    last : Tensor of shape (2, B, H)
        Hidden state and cell after the final step.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> params = init_lstm(rng, "encoder", inputs=3, hidden=2)
    >>> x = rng.standard_normal((5, 1, 3))  # five steps of one example
    >>> hidden, last = lstm(linear(params, "encoder", x), params["encoder.recurrent"])
    >>> hidden.shape, last.shape
    ((5, 1, 2), (2, 1, 2))
    """
    a, recurrent = as_tensor(a), as_tensor(recurrent)
    steps, batch, width = a.shape
    n = width // 4
    u = recurrent.data
    order = range(steps)[:: -1 if reverse else 1]
    active = np.ones((steps, 1), bool) if mask is None else mask
    # Where all sequences go on, a step needs no mask.
    all_active: list[bool] = np.all(active, axis=1).tolist()

    # Hidden states and, after them, the final cell: whatever may get a gradient.
    packed = np.empty((steps + 1, batch, n), a.dtype)
    gates = np.empty((steps, batch, 4, n), a.dtype)
    cells, tanh_cells = (np.empty((steps, batch, n), a.dtype) for _ in range(2))
    from_input = a.data.reshape(gates.shape)
    h = c = start = np.zeros((batch, n), a.dtype)
    for t in order:
        from_state = (h @ u).reshape(batch, 4, n)
        out = (gates[t], cells[t], tanh_cells[t], packed[t])
        lstm_cell(from_input[t], from_state, c, out=out)
        if not all_active[t]:
            on = active[t][:, None]
            packed[t] = np.where(on, packed[t], h)
            cells[t] = np.where(on, cells[t], c)
        h, c = packed[t], cells[t]
    packed[steps] = c

    def vjp(gradient: Array) -> tuple[Any, ...]:
        da = np.empty_like(gates)
        before = np.empty_like(tanh_cells)
        transposed = u.T.copy()  # contiguous, which is faster in products of few rows
        dh, dc = np.zeros_like(start), gradient[steps]
        for t, previous in zip(reversed(order), [*reversed(order[:-1]), None], strict=True):
            h, c = (start, start) if previous is None else (packed[previous], cells[previous])
            before[t] = h
            dh = dh + gradient[t]
            dc_before = np.empty_like(start)
            out = (da[t], dc_before)
            if all_active[t]:
                lstm_cell_vjp(dh, dc, gates[t], tanh_cells[t], c, out=out)
                dh, dc = da[t].reshape(batch, width) @ transposed, dc_before
            else:
                # Where the mask is False the step did nothing, and gradients pass it unchanged.
                on = active[t][:, None]
                lstm_cell_vjp(dh * on, dc * on, gates[t], tanh_cells[t], c, out=out)
                dh = da[t].reshape(batch, width) @ transposed + dh * ~on
                dc = dc_before + dc * ~on
        return da.reshape(a.shape), before.reshape(-1, n).T @ da.reshape(-1, width)

    sequence = Tensor(packed, ((a, recurrent), vjp))
    last_h = sequence[order[-1] : order[-1] + 1]
    return sequence[:steps], concatenate([last_h, sequence[steps:]], axis=0)


def lstm_step(a: Any, x: Any, state: Any, weight: Any) -> Tensor:
    """One step of an LSTM as one operation on the tape.

    Parameters
    ----------
    a : Tensor of shape (4H,) or (B, 4H)
        The rest of the pre-activations: b, and products that were computed before.
    x : Tensor of shape (B, n)
        The input.
    state : Tensor of shape (2, B, H)
        Hidden state and cell.
    weight : Tensor of shape (n + H, 4H)
        W on top of U; a `SharedMatrix`, if many steps use it.

    Returns
    -------
    Tensor of shape (2, B, H)
        The new hidden state and cell.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> params = init_lstm(rng, "decoder", inputs=3, hidden=2)
    >>> weight = np.concatenate([params["decoder.weight"], params["decoder.recurrent"]])
    >>> state = np.zeros((2, 1, 2))
    >>> lstm_step(params["decoder.bias"], rng.standard_normal((1, 3)), state, weight).shape
    (2, 1, 2)
    """
    a, x, state, weight = as_tensor(a), as_tensor(x), as_tensor(state), shared(weight)
    h, c = state.data
    batch, n = h.shape
    both = np.concatenate([x.data, h], axis=1)
    new, gates, tanh_c = _next_state(a.data, both @ weight.data, c)

    def vjp(gradient: Array) -> tuple[Any, ...]:
        da, d_state = np.empty_like(gates), np.empty_like(new)
        lstm_cell_vjp(gradient[0], gradient[1], gates, tanh_c, c, out=(da, d_state[1]))
        da = da.reshape(batch, 4 * n)
        d_both = da @ weight.transposed
        d_state[0] = d_both[:, -n:]
        return da, d_both[:, :-n], d_state, [(both, da)]

    return Tensor(new, ((a, x, state, weight), vjp))


def next_lstm_state(a: Array, b: Array, c: Array) -> Array:
    """The new hidden state and cell, (2, B, H), of pre-activations a + b (B, 4H) and old cells.

    Without a tape, for decoders that have the products already.

    Examples
    --------
    >>> next_lstm_state(np.zeros((1, 4)), np.zeros((1, 4)), np.ones((1, 1)))[1]
    array([[0.5]])
    """
    return _next_state(a, b, c)[0]


def _next_state(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """The new hidden state and cell, and what a backward pass needs: gates and tanh of the cell."""
    batch, n = c.shape
    gates, tanh_c = np.empty((batch, 4, n), b.dtype), np.empty_like(c)
    new = np.empty((2, batch, n), b.dtype)
    parts = a.reshape(*a.shape[:-1], 4, n), b.reshape(batch, 4, n)
    lstm_cell(*parts, c, out=(gates, new[1], tanh_c, new[0]))
    return new, gates, tanh_c


def init_lstm(
    rng: Generator, name: str, inputs: int, hidden: int, dtype: Any = np.float32
) -> Parameters:
    """``name.weight`` W (inputs, 4H), ``name.recurrent`` U (H, 4H) and ``name.bias`` b (4H,).

    U is orthogonal gate by gate, and the forget gate's bias is 1, so that at first a cell remembers
    (Jozefowicz et al. 2015).
    """
    weight = [glorot_uniform(rng, inputs, hidden, dtype) for _ in range(4)]
    recurrent = [orthogonal(rng, hidden, dtype) for _ in range(4)]
    bias = np.zeros(4 * hidden, dtype)
    bias[hidden : 2 * hidden] = 1
    params = {"weight": np.hstack(weight), "recurrent": np.hstack(recurrent), "bias": bias}
    return {f"{name}.{part}": x for part, x in params.items()}


def init_bilstm(
    rng: Generator, name: str, inputs: int, hidden: int, dtype: Any = np.float32
) -> Parameters:
    """Two LSTMs, ``name.forward`` and ``name.backward``, each of half the even width ``hidden``."""
    if hidden % 2:
        raise ValueError(
            f"hidden: expected an even number, since each direction gets half; got {hidden}"
        )
    params = init_lstm(rng, f"{name}.forward", inputs, hidden // 2, dtype)
    return params | init_lstm(rng, f"{name}.backward", inputs, hidden // 2, dtype)


def bilstm(
    params: Parameters, name: str, x: Any, mask: Array | None = None
) -> tuple[Tensor, Tensor]:
    """A bidirectional layer: hidden states (T, B, H) and last states (2, B, H) of both directions.

    x has shape (T, B, n). Each direction gives one half of the H features.

    Examples
    --------
    >>> params = init_bilstm(np.random.default_rng(0), "encoder", inputs=3, hidden=4)
    >>> hidden, last = bilstm(params, "encoder", np.ones((5, 1, 3)))
    >>> hidden.shape, last.shape
    ((5, 1, 4), (2, 1, 4))
    """
    hidden, last = [], []
    for direction in (f"{name}.forward", f"{name}.backward"):
        reverse = direction.endswith(".backward")
        both = lstm(linear(params, direction, x), params[f"{direction}.recurrent"], mask, reverse)
        hidden.append(both[0])
        last.append(both[1])
    return concatenate(hidden), concatenate(last)
