r"""α-entmax attention by PyTorch's FlexAttention, on GPUs without CuPy (experimental).

FlexAttention computes softmax(m(s)) V for any function m of the scores s = scale · q·k, with the
log-sum-exp and the maximum of m(s), without an array of all scores. With β = α − 1, the largest
score h of a row and u = β (s − h) + t,

    p = [u]₊^{1/β},    F(t) = Σ p = 1,    D(t) = β F'(t) = Σ [u]₊^{1/β − 1},    n^{−β} ≤ t ≤ 1.

m = log p makes the softmax p itself and the log-sum-exp log F, which must be 0. For a step towards
that, one pass over the scores takes the weights of D and the keys as values: log D, the mean of s,
with which F = D · mean(u), and the largest score come back.

**Steps.** t is first solved for a sample of the keys. The first step is Newton's for log F as a
function of log t; later ones interpolate log t as a cubic of log F through two passes. N = F^β is
convex in t, with N(0) = 0: its tangent bounds the root from above, chords from 0 and across the
root from below.

**Precision.** Near α = 2, t falls to 1/n, and one number for the threshold h − t/β would lose it;
near α = 1, log u = log(1 + β (s − h) − r) needs r = 1 − t. All three are kept.

The last two passes are at a t without gradient. One gives M, the mean of the values by D's weights,
the other, which is differentiated, the output O and L = log F. As β ∂O/∂t = (O − M) D/F and a
change of F moves its root by −β dF/D,

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
MOST_PASSES = 12
LEAST_BETA = 1e-6  # stands for 0, which would divide by 0; it moves p by p · 1e-6 (s − h)²/2
FLAT = 1e-12  # at α = 2, D's weights are e^{FLAT u}: from their maximum follows that of u
# β |log F| that one more step repairs, and for half types up to α = 1.5.
ENOUGH, ENOUGH_HALF = 0.03, 0.2


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
    passes: int | None = None,
    flex: Callable[..., Any] | None = None,
) -> Tensor:
    """The output of α-entmax attention.

    Parameters
    ----------
    query, key, value : Tensors of shape (B, H, T, d), (B, n, S, d), (B, n, S, dᵥ), n dividing H
    alpha : float or Tensor of shape (), (1,) or (H,), from 1 to 2
        a head whose α in a tensor is outside gives NaN
    scale, mask, causal, offset : as in `pyentmax.torch.attention`
    passes : int, optional
        over the scores, for the threshold; two more give the output. By default until the last
        one is so close that its step suffices, which is looked up on the device; in a graph that
        PyTorch compiles, 4 up to α = 1.5 and 8 beyond
    flex : callable, optional
        FlexAttention, or what has its semantics; by default it is compiled with all that is here
    """
    # To look at values would wait for the device, which a graph cannot.
    smooth = not isinstance(alpha, Tensor) and alpha <= 1.5
    if passes is None and torch.compiler.is_compiling():
        passes = 4 if smooth else 8
    heads, device, dtype = query.size(1), query.device, query.dtype
    enough = ENOUGH_HALF if smooth and query.element_size() == 2 else ENOUGH
    query, key, value = (x.float() if x.element_size() < 4 else x for x in (query, key, value))
    beta = torch.as_tensor(alpha, dtype=query.dtype, device=device) - 1
    beta = torch.where((beta >= 0) & (beta <= 1), beta, torch.nan)
    beta = beta.clamp(min=LEAST_BETA).expand(heads)
    block_mask = _block_mask(query, key, mask, causal, offset)
    options = {"block_mask": block_mask, "scale": scale}
    options["enable_gqa"] = query.size(1) != key.size(1)
    start, step, output = (_start, _step, _output) if flex is not None else _compiled()
    flex = flex or library.flex_attention
    with torch.no_grad():
        h, t, r = start(query, key, beta, causal, options)
        before = None
        for done in range(1, MOST_PASSES + 1):
            (h, t, r), before, far = step(query, key, beta, h, t, r, before, options, flex)
            if done == passes or (passes is None and far <= enough):
                break
    return output(query, key, value, beta, h, t, r, options, flex).to(dtype)


def _start(
    query: Tensor, key: Tensor, beta: Tensor, causal: bool, options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """h, t and r of a sample of the keys, each of which stands for those around it."""
    heads, keys, device = query.size(1), key.size(2), query.device
    size = min(keys, max(64, min(256, keys // 16)))
    edges = torch.arange(size + 1, device=device, dtype=torch.float64) / size
    # Of a causal sequence the first keys are all that early queries see.
    edges = (edges**2 * keys).maximum(size * edges) if causal else edges * keys
    edges = edges.round().long()
    j, weight = (edges[:-1] + edges[1:]) // 2, edges.diff().to(query.dtype)
    some = key[:, :, j].repeat_interleave(heads // key.size(1), 1)
    s = options["scale"] * query @ some.mT
    if options["block_mask"] is not None:
        places = (torch.arange(n, device=device) for n in s.shape[:3])
        b, head, i = (x.view(-1, *[1] * (3 - n)) for n, x in enumerate(places))
        s = torch.where(options["block_mask"].mask_mod(b, head, i, j), s, -torch.inf)
    # A score far above the others stands for itself; the next one, for those around it.
    two = s.topk(min(2, size)).values.expand(*s.shape[:-1], 2)
    s = torch.cat([torch.where(s == two[..., :1], two[..., 1:], s), two], -1)
    one = torch.ones_like(weight[:1])
    weight = torch.cat([weight, one, -one])
    top = two[..., 0]
    # A row of which the sample has no key starts below all its scores.
    longest = key.norm(dim=-1).amax(-1).repeat_interleave(heads // key.size(1), 1)
    least = abs(options["scale"]) * query.norm(dim=-1) * longest[..., None]
    h = torch.where(top > -torch.inf, top, -least)
    t, r = torch.ones_like(h), torch.zeros_like(h)
    b = beta[:, None]
    for _ in range(8):
        log = _log_u(s, h[..., None], t[..., None], r[..., None], beta[:, None, None])
        curvature = weight * torch.exp((1 / b - 1)[..., None] * log)
        d, f = curvature.sum(-1), (curvature * log.exp()).sum(-1)
        move = torch.where(d > 0, torch.expm1(-b * f.log()) * f / d, 0)
        t, r = t + move, r - move
    return h, t, r


def _log_u(s: Tensor, h: Tensor, t: Tensor, r: Tensor, beta: Tensor) -> Tensor:
    """log u of u = β (s − h) + t; −∞ where u is not positive."""
    x = beta * (s - h)
    u, near = x + t, x - r > -0.5
    precise = torch.log1p(torch.where(near, x - r, 0))
    log = torch.where(near, precise, torch.log(torch.where(u > 0, u, 1)))
    return torch.where((u > 0) | u.isnan(), log, -torch.inf)


def _step(
    query: Tensor, key: Tensor, beta: Tensor, h: Tensor, t: Tensor, r: Tensor,
    before: tuple[Tensor, ...] | None, options: dict[str, Any], flex: Callable[..., Any],
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], Tensor]:  # fmt: skip
    """A pass and a step: the next h, t, r; this pass' t, r, log F, slope; the largest |log F|."""
    power = 1 / beta - 1

    def log_d(s: Tensor, b: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        place = b, head, i
        log = _log_u(s, h[place], t[place], r[place], beta[head])
        flat = torch.where(log > -torch.inf, FLAT * log.exp(), log)
        return torch.where(power[head] > 0, power[head] * log, flat)

    mean_key, aux = flex(
        query, key, key, log_d, **options,
        return_aux=library.AuxRequest(lse=True, max_scores=True),
    )  # fmt: skip
    b, one = beta[:, None], torch.ones_like(t)
    some = aux.lse > -torch.inf
    # The largest u, from that of D's weights; h becomes the row's largest score.
    log_top = torch.where(b < 1, aux.max_scores / power[:, None], torch.log(aux.max_scores / FLAT))
    rise = torch.where(some, torch.expm1(log_top) + r, 0)
    above = options["scale"] * (query * mean_key).sum(-1) - h
    h_next = h + rise / b
    rise = b * (h_next - h)  # by which h, a rounded number, has risen
    t, r = t + rise, r - rise
    below = (b * above - rise).clamp(max=0)  # the mean of u less the largest one
    mean = torch.maximum(below + t, 1e-6 * t)
    log_mean = torch.where(below - r > -0.5, torch.log1p((below - r).clamp(min=-0.5)), mean.log())
    log_f = torch.where(some, aux.lse + log_mean, 0)
    slope = b * mean / t  # of log t by log F
    log_move = -slope * log_f
    back = torch.expm1(-b * log_f)  # 1/N − 1
    low, high = torch.where(log_f > 0, t * back, 0), mean * back
    least, most = torch.zeros_like(t), one
    if before is not None:
        t0, r0, log_f0, slope0, least, most = before
        apart, gap = torch.where(r < 0.5, r - r0, t0 - t), log_f0 - log_f
        c = -log_f / torch.where(gap == 0, one, gap)
        cubic = (
            slope * gap * c * (1 - c) ** 2
            + torch.log1p(torch.maximum(apart / t, -0.999999 * one)) * c * c * (3 - 2 * c)
            + slope0 * gap * c * c * (c - 1)
        )
        log_move = torch.where((gap != 0) & (c > -3) & (c < 4), cubic, log_move)
        span = torch.exp(b * log_f) - torch.exp(b * log_f0)
        across = (log_f * log_f0 < 0) & (span != 0)
        chord = torch.expm1(b * log_f) * apart / torch.where(across, span, one)
        low = torch.where(across, torch.maximum(low, chord), low)
    # The bounds of all passes, with room for what rounds t.
    low = torch.maximum(low, least * (1 - 1e-6) - t)
    high = torch.minimum(high, most * (1 + 1e-6) - t)
    move = t * torch.expm1(log_move)
    if before is not None:  # in clusters, where log F has kinks
        slow = (log_f.abs() > log_f0.abs() / 2) | (across & ((move < low) | (move > high)))
        move = torch.where(slow, high, move)
    move = torch.where(some, torch.minimum(torch.maximum(move, low), high), 0)
    least, most = torch.maximum(least, t + low), torch.minimum(most, t + high)
    far = torch.where(some, b.clamp(min=0.1) * log_f.abs(), 0).nan_to_num(0).amax()
    # From far below, only the largest score was to be learnt: start there, with no pass before.
    blind = t > 2
    least, most = torch.where(blind, 0, least), torch.where(blind, 1, most)
    log_f = torch.where(blind, torch.nan, log_f)
    t_next, r_next = torch.where(blind, 1, t + move), torch.where(blind, 0, r - move)
    return (h_next, t_next, r_next), (t, r, log_f, slope, least, most), far


def _output(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, h: Tensor, t: Tensor, r: Tensor,
    options: dict[str, Any], flex: Callable[..., Any],
) -> Tensor:  # fmt: skip
    """The output at a threshold, corrected for what F is."""

    def over(power: float, beta: Tensor) -> Callable[..., Tensor]:
        """log [u]₊^{1/β − power}"""

        def log_power(s: Tensor, b: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            place = b, head, i
            log = _log_u(s, h[place], t[place], r[place], beta[head])
            inside = log != -torch.inf
            scaled = torch.where(inside, log, 0) * (1 / beta[head] - power)
            return torch.where(inside, scaled, -torch.inf)

        return log_power

    with torch.no_grad():
        mean_value = flex(query, key, value, over(1, beta), **options)
    lse = library.AuxRequest(lse=True)
    output, aux = flex(query, key, value, over(0, beta), **options, return_aux=lse)
    alive = aux.lse != -torch.inf
    b = beta.detach()[:, None]
    moved = -torch.expm1(-b * torch.where(alive, aux.lse, 0)) / b
    output = output + (output.detach() - mean_value) * moved[..., None]
    return torch.where(alive[..., None], output, 0)


@functools.cache
def _compiled() -> tuple[Callable[..., Any], ...]:
    # As a whole: a score_mod compiled alone would be a new function, and compiled anew, each time.
    return tuple(torch.compile(x) for x in (_start, _step, _output))


def _block_mask(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, offset: int) -> Any:
    """Which blocks of scores to skip, and which scores of others."""
    if mask is None and not causal:
        return None
    shape = (query.size(0), query.size(1), query.size(-2), key.size(-2))
    whole = None if mask is None else mask.expand(shape)

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        earlier = j <= i + offset if causal else j >= 0
        return earlier if whole is None else earlier & whole[b, h, i, j]

    batch, heads = (None, None) if whole is None else shape[:2]
    return library.create_block_mask(mask_mod, batch, heads, *shape[2:], device=str(query.device))
