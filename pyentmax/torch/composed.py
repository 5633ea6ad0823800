r"""The α-entmax family as PyTorch operations, differentiable any number of times.

Two callers need it: tensors on a device without kernels, and derivatives of derivatives. Rows lie
along the last axis; a parameter is a number or a tensor of the batch shape.

The Jacobian of p = α-entmax(z) is diag(s) − s sᵀ/Σs with s = p^{2−α} on the support (Peters et al.
2019, Prop. 1), and ∂p/∂α is an elementwise function of p (Correia et al. 2019, Prop. 1). Both are
written in p, so PyTorch differentiates them again through p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)  # computed in float32

# The α whose entmax has the mapping's Jacobian on the support of p. α-entmax has its own.
ALPHAS = {
    "softmax": 1.0,
    "topk_softmax": 1.0,
    "entmax15": 1.5,
    "sparsemax": 2.0,
    "topk_sparsemax": 2.0,
}
NAMES = (*ALPHAS, "entmax")

LARGE = 0.75  # at most one probability of a row is above
SUM_TOLERANCE = 4e-3  # of target distributions, which bfloat16 rounds by up to 2⁻⁸ of themselves


def check_composed(name: str, value: Any, device: torch.device) -> None:
    """Raise an error unless the mapping is one of `NAMES` and a number fits as its parameter."""
    if name not in NAMES:
        raise NotImplementedError(
            f"{name} has no kernel for tensors on {device}: compute it on the host, with .cpu(), "
            "or on a CUDA device with CuPy installed; without kernels there are "
            + ", ".join(sorted(NAMES))
        )
    if not isinstance(value, (int, float)):
        return
    if name == "entmax" and not value > 0:
        raise ValueError(f"alpha must be above 0, got {value:g}")
    if name.startswith("topk") and not (value >= 1 and value == int(value)):
        raise ValueError(f"k must be a whole number of at least 1, got {value:g}")


def support_alpha(name: str, value: Any) -> Any:
    """α of the Jacobian: a number, or a tensor of the batch shape."""
    return ALPHAS.get(name, value)


# --- mappings -------------------------------------------------------------------------------------


def mapping(z: Tensor, name: str, value: Any, mask: Tensor | None) -> Tensor:
    """Probabilities of z's shape and dtype: zeros for a row with nothing left, else NaN for a row
    with NaN, +∞ or an invalid parameter.
    """
    check_composed(name, value, z.device)
    scores, x, dead, broken = _rows(z, mask)
    if name.startswith("topk"):
        k = _column(value, x)
        kept = _k_largest(scores, k, ties=name == "topk_softmax")
        # The k largest include the maximum: x needs no new shift.
        x = torch.where(kept, x, -torch.inf)
        broken = broken | (k < 1) | (k != k.floor())
    if name == "entmax":
        alpha = _column(value, x)
        broken = broken | ~(alpha > 0)
        p = entmax_rows(x, torch.where(alpha > 0, alpha, 2))
    elif ALPHAS[name] == 1:
        p = torch.softmax(x, -1)
    else:
        p = {1.5: entmax15_rows, 2.0: sparsemax_rows}[ALPHAS[name]](x)
    p = torch.where(broken, torch.nan, p)
    return torch.where(dead, 0, p).to(z.dtype)


def log_mapping(z: Tensor, name: str, value: Any, mask: Tensor | None) -> Tensor:
    """Logarithms of probabilities, a large one from the others of its row; −∞ off the support."""
    p = mapping(wide(z), name, value, mask)
    if ALPHAS.get(name) == 1:
        _, x, dead, broken = _rows(z, mask)
        log_p = torch.log_softmax(x, -1)
        log_p = torch.where(dead, -torch.inf, torch.where(broken, torch.nan, log_p))
    else:
        large = p > LARGE
        others = torch.where(large, 0, p).sum(-1, keepdim=True).clamp(max=1 - LARGE)
        log_p = torch.where(large, torch.log1p(-others), p.log())
    return log_p.to(z.dtype)


def sparsemax_rows(x: Tensor) -> Tensor:
    """p = [x − τ]₊ with τ from sorted scores (Held et al. 1974)."""
    falling = x.sort(-1, descending=True).values
    rank = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    sums = torch.where(falling == -torch.inf, 0, falling).cumsum(-1)
    size = (1 + rank * falling > sums).sum(-1, keepdim=True)
    tau = (sums.gather(-1, size - 1) - 1) / size
    for _ in range(2):  # Newton, against the rounding of long running sums
        u = (x - tau).clamp(min=0)
        tau = tau + (u.sum(-1, keepdim=True) - 1) / (u > 0).sum(-1, keepdim=True)
    return (x - tau).clamp(min=0)


def entmax15_rows(x: Tensor) -> Tensor:
    """p = [x/2 − τ]₊² with τ from sorted scores (Peters et al. 2019, Alg. 2)."""
    x = x / 2
    falling = x.sort(-1, descending=True).values
    rank = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    finite = torch.where(falling == -torch.inf, 0, falling)
    mean = finite.cumsum(-1) / rank
    spread = (finite**2).cumsum(-1) - rank * mean**2
    tau = mean - ((1 - spread).clamp(min=0) / rank).sqrt()
    # τ(ρ) increases with ρ up to the size of the support; −∞ is never inside.
    size = (tau <= falling).sum(-1, keepdim=True)
    tau = tau.gather(-1, size - 1)
    for _ in range(2):  # Newton, against the rounding of long running sums
        u = (x - tau).clamp(min=0)
        tau = tau + ((u * u).sum(-1, keepdim=True) - 1) / (2 * u.sum(-1, keepdim=True))
    return (x - tau).clamp(min=0) ** 2


def entmax_rows(x: Tensor, alpha: Tensor) -> Tensor:
    """p = [1 + β (x − c)]₊^{1/β}, β = α − 1, with c by bisection; at β = 0 it is exp(x − c).

    c lies between 0 and the c of constant scores, (1 − d^{−β}) / β. That is large for β < 0, where
    log(1 − βc)/(−β), which lies between 0 and log d, is halved instead. The number of steps is
    fixed, since looking at a mass would wait for the device.
    """
    finite = alpha < torch.inf
    beta = torch.where(finite, alpha - 1, 1)
    log_d = torch.scalar_tensor(x.shape[-1], dtype=x.dtype, device=x.device).log()
    high = torch.where(beta * log_d < 1e-6, log_d, -torch.expm1(-beta * log_d) / beta)
    low = torch.zeros_like(high + x[..., :1])
    high = high + low

    def c_from(level: Tensor) -> Tensor:
        return torch.where(beta < -1e-6, torch.expm1(-beta * level) / -beta, level)

    for _ in range(round(-math.log2(torch.finfo(x.dtype).eps)) + 4):
        middle = low + (high - low) / 2
        above = _exponential(x - c_from(middle), beta).sum(-1, keepdim=True) >= 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    p = _exponential(x - c_from(low), beta)
    # What the sum lacks goes to the entries as Newton's next step would send it.
    s = torch.where(p > 0, ((1 - beta) * torch.where(p > 0, p, 1).log()).exp(), 0)
    lacking = 1 - p.sum(-1, keepdim=True)
    p = torch.where(p > 0, (p + lacking * s / s.sum(-1, keepdim=True)).clamp(0, 1), 0)
    top = (x == 0).to(x.dtype)
    return torch.where(finite, p, top / top.sum(-1, keepdim=True))


# --- derivatives ----------------------------------------------------------------------------------


def product(p: Tensor, v: Tensor, alpha: Any) -> Tensor:
    """J v = s ∘ (v − Σ s v / Σ s), s = p^{2−α} on the support.

    Taken relative to the v of the largest s, which changes nothing: for α > 2 that s can exceed all
    others by more than a float's digits, so its own entry is minus the sum of the others.
    """
    dtype = p.dtype
    p, v = wide(p), wide(v)
    alpha = _column(alpha, p)
    on = (p > 0) & (alpha < torch.inf)
    log_s = torch.where(on, (2 - alpha) * torch.where(on, p, 1).log(), -torch.inf)
    largest = log_s.detach().argmax(-1, keepdim=True)
    most = log_s.gather(-1, largest)
    share = torch.where(on, (log_s - torch.where(most > -torch.inf, most, 0)).exp(), 0)
    top = torch.arange(p.shape[-1], device=p.device) == largest
    rest = on & ~top
    v = torch.where(rest, v - torch.where(on, v, 0).gather(-1, largest), 0)
    total = share.sum(-1, keepdim=True)
    mean = (share * v).sum(-1, keepdim=True) / torch.where(total == 0, 1, total)
    moved = torch.where(rest, torch.where(rest, log_s, 0).exp() * (v - mean), 0)
    moved = torch.where(top & on, -moved.sum(-1, keepdim=True), moved)
    # The product of a NaN row is NaN, though nothing in it is above 0.
    return torch.where(p.isnan(), p, moved).to(dtype)


def grad_alpha(p: Tensor, alpha: Any) -> Tensor:
    r"""∂p/∂α on the support, for every α above 0.

    With ℓ = −log p and ρ = (e^{βℓ} − 1 − βℓ)/β², Proposition 1 of Correia et al. becomes

        p [E ρ − ρ + β (ℓ E ρ − ρ E ℓ)] / E e^{βℓ},    E over p,

    which has no division by β: at α = 1 it is p (E ℓ² − ℓ²)/2. For α > 2 p e^{βℓ} = p^{2−α} may
    exceed all floats, so numerator and denominator are divided by its largest.
    """
    p = wide(p)
    alpha = _column(alpha, p)
    on = (p > 0) & (alpha < torch.inf)
    beta = torch.where(alpha < torch.inf, alpha - 1, 1)
    inside = torch.where(on, p, 0)
    ell = -torch.where(on, p, 1).log()
    log_s = torch.where(on, (beta - 1) * ell, -torch.inf)
    most = log_s.detach().amax(-1, keepdim=True)
    most = torch.where(most > -torch.inf, most, 0)
    scaled, unit = torch.where(on, (log_s - most).exp(), 0), (-most).exp()
    near = (beta * ell).abs() < 0.5  # where the series is used
    few, many = torch.where(near, beta * ell, 0), torch.where(near, 1, beta)
    rho = torch.where(  # p ρ, divided by the largest
        near,
        unit * inside * ell**2 * _series(few, 2),
        (scaled - unit * inside * (1 + beta * ell)) / many**2,
    )
    mean_rho, mean_ell = (x.sum(-1, keepdim=True) for x in (rho, inside * ell))
    moved = inside * mean_rho - rho + beta * (inside * ell * mean_rho - rho * mean_ell)
    total = scaled.sum(-1, keepdim=True)
    return torch.where(on, moved / torch.where(total == 0, 1, total), 0)


def log_vjp(log_p: Tensor, g: Tensor, alpha: Any) -> Tensor:
    """The gradient of the scores for g, that of log p.

    On the support ∂log p_i/∂z_j = r_i (δ_ij − s_j/Σs) with r = p^{1−α} and s = p^{2−α}, so that
    the gradient is r ∘ g − s (r·g)/Σs. Off it there is none.
    """
    on, r, share = _log_jacobian(log_p, alpha)
    moved = torch.where(on, r * torch.where(on, g, 0), 0)
    moved = moved - share * moved.sum(-1, keepdim=True)
    return torch.where(log_p.isnan(), log_p, moved).to(g.dtype)


def log_jvp(log_p: Tensor, v: Tensor, alpha: Any) -> Tensor:
    """The change of log p in the direction v of the scores: r ∘ (v − s·v/Σs), in those terms."""
    on, r, share = _log_jacobian(log_p, alpha)
    moved = r * (v - (share * torch.where(on, v, 0)).sum(-1, keepdim=True))
    return torch.where(log_p.isnan(), log_p, torch.where(on, moved, 0)).to(v.dtype)


def _log_jacobian(log_p: Tensor, alpha: Any) -> tuple[Tensor, Tensor, Tensor]:
    log_p = wide(log_p)
    alpha = _column(alpha, log_p)
    on = (log_p > -torch.inf) & (alpha < torch.inf)
    ell, beta = torch.where(on, log_p, 0), torch.where(alpha < torch.inf, alpha - 1, 1)
    some = on.any(-1, keepdim=True)
    log_s = torch.where(on | ~some, (1 - beta) * ell, -torch.inf)
    return on, (-beta * ell).exp(), torch.where(on, log_s.softmax(-1), 0)


def log_grad_alpha(log_p: Tensor, alpha: Any) -> Tensor:
    """∂log p/∂α on the support, where p does not underflow."""
    p = wide(log_p).exp()
    return torch.where(p > 0, grad_alpha(p, alpha) / torch.where(p > 0, p, 1), 0)


# --- losses ---------------------------------------------------------------------------------------


def loss_and_gradient(
    z: Tensor,
    y: Tensor,
    name: str,
    value: Any,
    weight: Tensor | None,
    mask: Tensor | None,
    reduction: str,
    ignore_index: int | None,
    label_smoothing: Tensor | None,
    solve: Callable[..., Tensor] = mapping,
) -> tuple[Tensor, Tensor]:
    """Ω*(z) + Ω(q) − q·z, reduced, and its gradient share ∘ (p − q)."""
    q, counts, right = targets(z, y, name, mask, ignore_index, label_smoothing)
    alpha = support_alpha(name, value)
    if name == "one_vs_all":
        x, live, counts = pairs(wide(z), counts), counts, counts.any(-1)
        both = solve(x, "entmax", value, None)
        each = _each(both, torch.stack([q, 1 - q], -1), x, _column(alpha, x))
        each, p = torch.where(live, each, 0).sum(-1), torch.where(live, both[..., 0], q)
    else:
        p, (_, x, _, _) = solve(wide(z), name, value, mask), _rows(z, mask)
        each = _each(p, q, x, _column(alpha, x))
        if name.startswith("topk"):
            each = torch.where((q > 0).sum(-1) > _column(value, x)[..., 0], torch.inf, each)
    each = torch.where(right, each, torch.nan)
    share = shares(counts, weight, reduction, q)
    gradient = torch.where(share.unsqueeze(-1) == 0, 0, share.unsqueeze(-1) * (p - q))
    return reduced(each, share, reduction).to(z.dtype), gradient.to(z.dtype)


def _each(p: Tensor, q: Tensor, x: Tensor, alpha: Tensor) -> Tensor:
    """The loss of each row."""
    products = (torch.where(p > 0, p * x, 0) - torch.where(q > 0, q * x, 0)).sum(-1)
    each = _omega(q, alpha) - _omega(p, alpha) + products
    return each + (-each.detach()).clamp(min=0)  # below 0 is rounding, which has a derivative


def targets(
    z: Tensor,
    y: Tensor,
    name: str,
    mask: Tensor | None,
    ignore_index: int | None,
    label_smoothing: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Targets q in rows, which rows count, for the one-vs-all loss which scores, and which rows
    have a valid target.
    """
    labels = y.shape == z.shape[:-1] and not (y.is_floating_point() or y.dtype == torch.bool)
    if not labels and y.shape != z.shape:
        raise ValueError(
            f"y must be integer labels of shape {tuple(z.shape[:-1])} or targets of shape "
            f"{tuple(z.shape)}, got dtype {y.dtype} and shape {tuple(y.shape)}"
        )
    _, x, dead, _ = _rows(z, mask)
    one_vs_all = name == "one_vs_all"
    seen = torch.ones_like(x, dtype=torch.bool) if mask is None else mask.expand_as(x)
    counts = seen if one_vs_all else ~dead
    y = y.unsqueeze(-1).long() if labels else y  # as a uint8, −100 would equal 156
    if ignore_index is not None and (labels or one_vs_all):
        counts = counts & (y != ignore_index)
    if labels:
        right = (y >= 0) & (y < z.shape[-1])
        q = (torch.arange(z.shape[-1], device=z.device) == y).to(x.dtype)
    else:
        q = torch.where(seen & counts, y.to(x.dtype), 0)
        excess = q.sum(-1, keepdim=True) - 1
        right = (q >= 0) & (q <= 1 if one_vs_all else excess.abs() <= SUM_TOLERANCE)
    right = (~counts | right).all(-1)
    if label_smoothing is not None:
        allowed = (x > -torch.inf).to(x.dtype)
        uniform = 0.5 if one_vs_all else allowed / allowed.sum(-1, keepdim=True)
        q = (1 - label_smoothing) * q + label_smoothing * uniform
    return q, counts if one_vs_all else counts[..., 0], right


def pairs(z: Tensor, live: Tensor | None) -> Tensor:
    """Each score next to a 0, shifted so that the larger is 0; 0 where it does not count."""
    z = z if live is None else torch.where(live, z, 0)
    both = torch.stack([z, -z], dim=-1)
    return torch.minimum(both, torch.zeros_like(both))  # at most 0, +∞ too


def class_weights(
    z: Tensor, y: Tensor, weight: Tensor, mask: Tensor | None, *, soft: bool
) -> Tensor:
    """The weight of each row: that of its label's class, or the mean under its target."""
    d = z.shape[-1]
    if weight.shape != (d,):
        raise ValueError(
            f"class_weight must have the shape ({d},), one weight for each class, got shape "
            f"{tuple(weight.shape)}; weight= has one for each row"
        )
    if y.shape == z.shape[:-1] and not y.is_floating_point():
        return weight[y.long().clamp(0, d - 1)]  # others are ignored, or wrong
    if not soft:
        raise ValueError("class_weight is for integer labels: of targets pass weight=")
    q = y if mask is None else torch.where(mask, y, 0)
    return torch.where(q == 0, 0, q * weight).sum(-1)


def target_slope(z: Tensor, q: Tensor, name: str, value: Any, mask: Tensor | None) -> Tensor:
    """Ω'(q) − z, the derivative of a loss in its target; 0 where the target is 0.

    Up to a constant in each row: a target's sum is fixed.
    """
    if name == "one_vs_all":
        x, q = pairs(wide(z), mask), torch.stack([q, 1 - q], -1)
        slope = target_slope(x, q, "entmax", value, None)
        return slope[..., 0] - slope[..., 1]
    _, x, _, _ = _rows(z, mask)
    beta = _column(support_alpha(name, value), x) - 1
    on = q > 0
    ell = -torch.where(on, q, 1).log()
    return torch.where(on, -ell * _decrease(beta * ell) - torch.where(on, x, 0), 0)


def shares(counts: Tensor, weight: Tensor | None, reduction: str, like: Tensor) -> Tensor:
    """What each row's loss is multiplied by. In a mean only the ratios of weights matter."""
    share = counts.to(like.dtype)
    if weight is not None:
        weight = torch.where(weight >= 0, weight.to(like.dtype), torch.nan)
        share = torch.where(counts & (weight != 0), weight, 0)
    if reduction != "mean" or not share.numel():
        return share
    largest = share.detach().amax()
    share = share / torch.where(largest == 0, 1, largest)  # so that no sum overflows
    total = share.sum()
    return share / torch.where(total == 0, 1, total)


def reduced(each: Tensor, share: Tensor, reduction: str) -> Tensor:
    """Each row's loss times its share, summed unless the reduction is "none"."""
    each = torch.where(share == 0, 0, each * share)  # what counts nothing may hold anything
    return each if reduction == "none" else each.sum()


def _omega(p: Tensor, alpha: Tensor) -> Tensor:
    """Minus Tsallis' entropy, Σ (p^α − p) / (α (α − 1)); Shannon's at α = 1."""
    on, large = p > 0, p > LARGE
    ell = -torch.where(on, p, 1).log()
    others = torch.where(large, 0, p).sum(-1, keepdim=True).clamp(max=1 - LARGE)
    ell = ell + torch.where(large, -torch.log1p(-others) - ell, 0).detach()  # p may round to 1
    return -(torch.where(on, p, 0) * ell * _decrease((alpha - 1) * ell) / alpha).sum(-1)


# --- rows and powers ------------------------------------------------------------------------------


def _rows(z: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores with −∞ where masked, the same with their maximum at 0, and columns that say which
    rows have nothing left and which contain NaN or +∞; both of these are zeros in the second.
    """
    scores = wide(z)
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    top = scores.amax(-1, keepdim=True)
    dead, broken = top == -torch.inf, top.isnan() | (top == torch.inf)
    x = torch.where(dead | broken, 0, scores - torch.where(dead | broken, 0, top))
    return scores, x, dead, broken


def wide(x: Tensor) -> Tensor:
    """In float32 at least."""
    return x.float() if x.dtype in HALF else x


def _column(value: Any, like: Tensor) -> Tensor:
    """A parameter for each row, of shape (…, 1)."""
    if not isinstance(value, Tensor):
        return torch.full((1,), value, dtype=like.dtype, device=like.device)
    return value.to(like.dtype).unsqueeze(-1)


def _k_largest(scores: Tensor, k: Tensor, ties: bool) -> Tensor:
    """Where the k largest are: with all that tie with the k-th, or with the first of them."""
    falling = scores.sort(dim=-1, descending=True).values
    place = k.clamp(1, scores.shape[-1]).long() - 1
    last = falling.gather(-1, place.expand(*scores.shape[:-1], 1))
    above, tied = scores > last, scores == last
    if not ties:
        tied = tied & (tied.cumsum(-1) <= k - above.sum(-1, keepdim=True))
    return above | tied


def _exponential(t: Tensor, beta: Tensor) -> Tensor:
    """[1 + β t]₊^{1/β}, which is exp t at β = 0."""
    near = beta.abs() < 1e-30
    safe = torch.where(near, 1, beta)
    inside = 1 + safe * t > 0
    power = (torch.where(inside, safe * t, 0).log1p() / safe).exp()
    return torch.where(near, t.exp(), torch.where(inside, power, 0))


def _decrease(a: Tensor) -> Tensor:
    """(1 − e^{−a}) / a, which is 1 at 0; of its derivatives the division loses digits."""
    near = a.abs() < 0.5
    safe = torch.where(near, 1, a)
    return torch.where(near, _series(torch.where(near, -a, 0), 1), -torch.expm1(-safe) / safe)


def _series(a: Tensor, first: int) -> Tensor:
    """Σ_n aⁿ / (n + first)!, to 1e-17 for |a| ≤ ½."""
    total = torch.zeros_like(a)
    for n in reversed(range(15)):
        total = total * a + 1 / math.factorial(n + first)
    return total
