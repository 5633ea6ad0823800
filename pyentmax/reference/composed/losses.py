r"""Fenchel-Young losses L(z, q) = Ω*(z) + Ω(q) − q·z of rows, whose gradient is p − q.

The conjugate is Ω*(z) = p·z + H(p) at p = entmax(z, α), with Tsallis's entropy H = −Ω of order α.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyentmax.reference.composed.mappings import LARGE
from pyentmax.reference.composed.powers import decrease
from pyentmax.reference.losses.targets import SUM_TOLERANCE

_HUGE = 2.0**60  # weights beyond it, or below its inverse, are scaled by it


def each(xp: Any, p: Any, q: Any, x: Any, alpha: Any, *, label: bool) -> Any:
    """The loss of each row at p = π(x), x with its maximum at 0; `label`: q is all in one place."""
    if isinstance(alpha, float) and alpha == 1:  # Ω* is log Σ exp x, of which the maximum gives 1
        e = xp.exp(x)
        top = xp.indicator(x == 0, x)
        others, ties = xp.row_sums(e - xp.detach(e * top), top)
        loss = xp.log1p(others + (ties - 1))[..., 0] - dot(xp, q, x)
    else:
        loss = _entropy(xp, p, alpha, _products(xp, p, x) - _products(xp, q, x))
    loss = loss if label else loss + omega(xp, q, alpha)
    # Below 0 is rounding; a derivative must not end there.
    return loss + xp.detach(xp.clip(-loss, min=0))


def omega(xp: Any, p: Any, alpha: Any) -> Any:
    """Minus Tsallis's entropy, Σ (p^α − p) / (α (α − 1)); Shannon's at α = 1."""
    return -_entropy(xp, p, alpha, 0)


def _entropy(xp: Any, p: Any, alpha: Any, more: Any) -> Any:
    """Tsallis's entropy of each row plus the sum of more: all sums in one pass.

    For a large p, 1 − p and its logarithm come from the other entries: p may round to 1.
    """
    large = p > LARGE
    on = (p > 0) & ~large
    inside, safe = xp.where(on, p, 0), xp.where(on, p, 1)
    entries = inside * _share(xp, 1 - safe, safe, alpha, lambda: -xp.log(safe)) + more
    top, others, total = xp.row_sums(xp.where(large, p, 0), inside, entries)
    safe, others = xp.where(top > 0, top, 1), xp.clip(others, max=1 - LARGE)

    def surprise() -> Any:
        ell = -xp.log(safe)
        return ell + xp.detach(-xp.log1p(-others) - ell)

    rest = 1 - safe
    of_top = _share(xp, rest + xp.detach(others - rest), safe, alpha, surprise)
    return (total + top * of_top)[..., 0]


def _share(xp: Any, rest: Any, p: Any, alpha: Any, surprise: Callable[[], Any]) -> Any:
    """(1 − p^{α−1}) / (α (α − 1)), by 1 − p or by −log p."""
    if isinstance(alpha, float) and alpha == 2:
        return rest / 2
    if isinstance(alpha, float) and alpha == 1.5:
        return rest / (1 + xp.sqrt(p)) / 0.75
    ell = surprise()
    if isinstance(alpha, float) and alpha == 1:
        return ell
    return ell * decrease(xp, (alpha - 1) * ell) / alpha


def dot(xp: Any, p: Any, x: Any) -> Any:
    """p·x, where 0 · (−∞) counts 0."""
    return xp.sum(_products(xp, p, x), axis=-1)


def _products(xp: Any, p: Any, x: Any) -> Any:
    return p * xp.where(p != 0, x, 0)


def target_slope(xp: Any, x: Any, q: Any, alpha: Any) -> Any:
    """Ω'(q) − z, the derivative of a loss in its target; 0 where the target is 0.

    Up to a constant in each row: a target's sum is fixed.
    """
    on = q > 0
    ell = -xp.log(xp.where(on, q, 1))
    return xp.where(on, -ell * decrease(xp, (alpha - 1) * ell) - xp.where(on, x, 0), 0)


# --- targets and weights --------------------------------------------------------------------------


def targets(
    xp: Any,
    x: Any,
    y: Any,
    counts: Any,
    *,
    labels: bool,
    mask: Any = None,
    ignore_index: Any = None,
) -> tuple[Any, Any, Any]:
    """Targets q in rows, what counts, and which rows have a valid target.

    Parameters
    ----------
    x : (…, d) array of scores
    y : (…, 1) integer labels, or (…, d) targets of x's dtype
    counts : bool array (…, 1)
    labels : bool
    mask : bool array that broadcasts to x, optional
    ignore_index : of y's dtype, optional
    """
    if ignore_index is not None:
        counts = counts & (y != ignore_index)
    if labels:
        right = (y >= 0) & (y < x.shape[-1])
        q = xp.indicator(xp.places(x, y.dtype) == y, x)
    else:
        q = xp.where(counts if mask is None else mask & counts, y, 0)
        excess = xp.sum(q, axis=-1, keepdims=True) - 1
        right = (q >= 0) & (xp.abs(excess) <= SUM_TOLERANCE)
    right = xp.all(~counts | right, axis=-1)
    return q, counts, right


def smoothed(xp: Any, q: Any, x: Any, share: Any) -> Any:
    """Targets with a share of their mass spread over all unmasked scores."""
    allowed = xp.indicator(x > -xp.inf, x)
    return (1 - share) * q + share * allowed / xp.sum(allowed, axis=-1, keepdims=True)


def shares(xp: Any, weight: Any, reduction: str) -> Any:
    """The factor of each row's loss. In a mean only the ratios of weights matter."""
    if reduction != "mean":
        return weight
    largest = xp.largest(weight)
    # Not divided by the largest, whose reciprocal XLA may take, and flush to 0 if it is tiny.
    scale = xp.where(largest < 1 / _HUGE, xp.ones_like(largest) * _HUGE, 1)
    weight = weight * xp.where(largest > _HUGE, 1 / _HUGE, scale)
    total = xp.sum(weight)
    return weight / xp.where(total == 0, 1, total)


def reduced(xp: Any, each: Any, share: Any, reduction: str) -> Any:
    """Each row's loss times its share, summed unless the reduction is "none"."""
    each = xp.where(share == 0, 0, each * share)  # rows of weight 0 may contain NaN
    return each if reduction == "none" else xp.sum(each)
