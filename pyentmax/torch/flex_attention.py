r"""α-entmax attention by PyTorch's FlexAttention, on GPUs without CuPy (experimental).

FlexAttention computes softmax(m(s)) V for any function m of the scores s = scale · q·k, and the
log-sum-exp of m(s), without an array of all scores. With the normaliser c of α-entmax, β = α − 1,

    p = [1 + β (s − c)]₊^{1/β},    F(c) = Σ p = 1,    D(c) = −F'(c) = Σ [1 + β (s − c)]₊^{1/β − 1},

m = log p makes the softmax p itself and the log-sum-exp log F, which must be 0. For 1 ≤ α ≤ 2 the
function (F^β − 1)/β of c is convex and decreasing, so that Newton's steps from c = max s on climb
to its root; for softmax one step is exact. A step is one pass over the scores: with the weights of
D and the keys as values, log D and the mean of s come back, and F = D · mean(1 + β (s − c)).

The last two passes are at a c without gradient. One gives M, the mean of the values by D's weights,
the other, which is differentiated, the output O and L = log F. As ∂O/∂c = (O − M) D/F and a change
of F moves its root by dF/D,

    O + (O − M) (1 − e^{−βL})/β

corrects the output once more, to second order, and has the implicit gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as library

from pyentmax.sparse_attention.route import is_short

ALPHAS = {"entmax15": 1.5, "sparsemax": 2.0}
MOST_STEPS = 12
LEAST_BETA = 1e-6  # stands for 0, which would divide by 0; it moves p by p · 1e-6 (s − c)²/2


def alpha_for(
    query: Tensor, key: Tensor, value: Tensor, mapping: str, parameter: Any
) -> float | Tensor | None:
    """The α with which FlexAttention serves a call; None if it does not."""
    alpha = ALPHAS.get(mapping, parameter if mapping == "entmax" else None)
    if not query.is_cuda or not hasattr(library, "AuxRequest") or alpha is None:
        return None
    if not query.ndim == key.ndim == value.ndim == 4 or min(query.size(-1), value.size(-1)) < 16:
        return None
    if is_short((query.size(-2), key.size(-2))):
        return None
    if not query.size(0) == key.size(0) == value.size(0) or key.size(1) != value.size(1):
        return None
    if isinstance(alpha, Tensor):
        return alpha if alpha.shape in ((), (1,), (query.size(1),)) else None
    return alpha if 1 <= alpha <= 2 else None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    causal: bool = False,
    offset: int = 0,
    steps: int | None = None,
    flex: Callable[..., Any] | None = None,
) -> Tensor:
    """The output of α-entmax attention.

    Parameters
    ----------
    query, key, value : Tensors of shape (B, H, T, d), (B, n, S, d), (B, n, S, dᵥ), n dividing H
    alpha : float or Tensor of shape (), (1,) or (H,), from 1 to 2
        a head whose α in a tensor is outside gives NaN
    scale, mask, causal, offset : as in `pyentmax.torch.attention`
    steps : int, optional
        Newton's; the passes over the scores are three more. By default 6, which leave less than
        1e-6 up to α = 1.5 and 2,048 keys, and 12 for larger or learned α
    flex : callable, optional
        FlexAttention, or what has its semantics; by default it is compiled with all that is here
    """
    if steps is None:
        steps = 6 if not isinstance(alpha, Tensor) and alpha <= 1.5 else MOST_STEPS
    heads, device, dtype = query.size(1), query.device, query.dtype
    query, key, value = (x.float() if x.element_size() < 4 else x for x in (query, key, value))
    beta = torch.as_tensor(alpha, dtype=query.dtype, device=device) - 1
    # To look at a tensor's values would wait for the device.
    beta = torch.where((beta >= 0) & (beta <= 1), beta, torch.nan)
    beta = beta.clamp(min=LEAST_BETA).expand(heads)
    block_mask = _block_mask(query, key, mask, causal, offset)
    run = _by_newton if flex is not None else _compiled()
    found = run(query, key, value, beta, block_mask, scale, steps, flex or library.flex_attention)
    return found.to(dtype)


def _by_newton(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    block_mask: Any,
    scale: float,
    steps: int,
    flex: Callable[..., Any],
) -> Tensor:
    lse, top = library.AuxRequest(lse=True), library.AuxRequest(max_scores=True)
    options = {"block_mask": block_mask, "scale": scale}
    options["enable_gqa"] = query.size(1) != key.size(1)
    by_head = beta.detach()[:, None]

    def over(power: float, c: Tensor, beta: Tensor) -> Callable[..., Tensor]:
        """log [1 + β (s − c)]₊^{1/β − power}"""

        def log_power(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            t = beta[h] * (s - c[b, h, i])
            inside = t > -1
            return torch.where(
                inside, torch.log1p(torch.where(inside, t, 0)) * (1 / beta[h] - power), -torch.inf
            )

        return log_power

    with torch.no_grad():
        _, aux = flex(query, key, key, **options, return_aux=top)
        alive = aux.max_scores > -torch.inf
        c = torch.where(alive, aux.max_scores, 0)
        for _ in range(steps):
            mean_key, aux = flex(
                query, key, key, over(1, c, by_head[:, 0]), **options, return_aux=lse
            )
            mean = scale * (query * mean_key).sum(-1)
            log_f = aux.lse + torch.log1p((by_head * (mean - c)).clamp(min=-1 + 1e-6))
            step = torch.expm1(by_head * log_f) / by_head
            step = step * torch.exp((1 - by_head) * log_f - aux.lse)
            c = torch.where(alive, c + step, c)
        mean_value = flex(query, key, value, over(1, c, by_head[:, 0]), **options)
    output, aux = flex(query, key, value, over(0, c, beta), **options, return_aux=lse)
    excess = torch.where(alive, aux.lse, 0)
    moved = -torch.expm1(-by_head * excess) / by_head
    output = output + (output.detach() - mean_value) * moved[..., None]
    return torch.where(alive[..., None], output, 0)


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    # As a whole: a score_mod compiled alone would be a new function, and compiled anew, each time.
    return torch.compile(_by_newton)


def _block_mask(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, offset: int) -> Any:
    """Which blocks of scores to skip, and which scores of others."""
    if mask is None and not causal:
        return None
    shape = (query.size(0), query.size(1), query.size(-2), key.size(-2))
    whole = None if mask is None else mask.expand(shape)

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        earlier = j <= i + offset if causal else j >= 0
        return earlier if whole is None else earlier & whole[b, h, i, j]

    batch, heads = (None, None) if whole is None else shape[:2]
    return library.create_block_mask(seen, batch, heads, *shape[2:], device=str(query.device))
