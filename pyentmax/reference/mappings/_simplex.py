"""The Jacobian that all mappings with a separable Ω share: diag(s) − s sᵀ / Σs.

For Ω(p) = Σ g(p_i) the optimality condition on the support is g'(p_i) = z_i − τ. Moving z moves
p_i by s_i (dz_i − dτ) with s_i = 1/g''(p_i), and Σ dp = 0 fixes dτ = (s·dz)/Σs (Peters et al.
2019, Prop. 2). Off the support s = 0. J is symmetric, so its product with v serves as JVP and
as VJP.

These functions take p as it is, without validation. For p ≥ 0 the formulas hold whatever its sum;
for any other array, such as logarithms, a row gets meaningless numbers or NaN. The kernels do the
same: whatever a row contains, it affects no other row and no memory but its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends import choice


def normalized(p: Any, s: Any) -> Any:
    """p with unit sum: rounding's excess is removed by a shift of the threshold, dp = −s dτ.

    In a long row the rounding of τ alone, shared by thousands of small entries, can add up to
    1e-3 in float32. Scaling would take it from the largest entry; s takes it where it arose.
    """
    excess = np.sum(p, axis=-1, keepdims=True) - 1
    p = np.maximum(p - s * (excess / np.sum(s, axis=-1, keepdims=True)), 0)
    return p / np.sum(p, axis=-1, keepdims=True)


def product(s: Any, v: Any, share: Any = None, log_s: Any = None) -> Any:
    """J v = s ∘ (v − (s·v)/Σs), rows along the last axis; zero for a row without support.

    s can span dozens of decades (p^{2−α} with α > 2 grows as p nears 0), and where one entry k
    dominates, v_k minus the mean cancels. Taking v relative to v_k leaves the product unchanged, as
    J1 = 0, and with w = s/Σs no difference of near-equal numbers remains:

        (J v)_i = s_i (v_i − Σ_j w_j v_j)  for i ≠ k,      (J v)_k = −w_k Σ_{j≠k} s_j v_j.

    `share` and `log_s` are w and log s, if the caller can compute these although s overflows. Then
    s is ∞ there, ∞ times 0 counts as 0, and where v_i = v_k the second form is used, by logarithms.
    """
    v = np.where(s != 0, v, 0)  # off the support v may hold anything, even NaN
    share = share_of_sum(s) if share is None else share
    k = np.argmax(share, axis=-1, keepdims=True)
    # Infinities on the support may give NaN.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        v = np.where(s != 0, v - entry_of_row(v, k), 0)
        rest, at_k = without_largest(s, k)
        mean = np.sum(share * v, axis=-1, keepdims=True)
        rest_dot_v = np.sum(times(rest, v), axis=-1, keepdims=True)
        moved = np.where(at_k, -share * rest_dot_v, times(rest, v - mean))
        if log_s is not None:
            overflows = np.isinf(np.where(at_k, rest_dot_v, s)) | np.isnan(rest_dot_v) & at_k
            top = np.max(np.where(v == 0, -np.inf, log_s), axis=-1, keepdims=True)
            top = np.where(top > -np.inf, top, 0)
            parts = np.sum(times(np.exp(log_s - top), v), axis=-1, keepdims=True)
            exact = times(np.exp(_log_share(log_s, share) + top), -parts)
            moved = np.where(overflows & (v == 0), exact, moved)
        return np.where(s != 0, moved, 0)


def dense(s: Any, share: Any = None, log_s: Any = None) -> Any:
    """J itself, as `dense_in_numpy` computes it, by a kernel where there is one."""
    kernel = choice.kernel_for(s, "separable_jacobian", None, None) if share is None else None
    return dense_in_numpy(s, share, log_s) if kernel is None else kernel(s)


def dense_in_numpy(s: Any, share: Any = None, log_s: Any = None) -> Any:
    """J itself, of shape batch + (d, d); no cancellation at a dominant entry, as in `product`.

    Off the diagonal it is −s_i w_j, and since J1 = 0, an entry of the diagonal is the sum of the
    others in its row, all of one sign. Of s_i w_j = s_j w_i, the one with the smaller s stays
    finite, and using it keeps J exactly symmetric. `log_s` gives the product where both s_i and s_j
    overflow.
    """
    share = share_of_sum(s) if share is None else share
    lesser = np.minimum(s[..., :, None], s[..., None, :])
    with np.errstate(over="ignore", invalid="ignore"):
        between = lesser * np.maximum(share[..., :, None], share[..., None, :])
        if log_s is not None:
            log_share = _log_share(log_s, share)
            least = np.minimum(log_s[..., :, None], log_s[..., None, :])
            exact = np.exp(least + np.maximum(log_share[..., :, None], log_share[..., None, :]))
            between = np.where(lesser < np.inf, between, exact)
    d = s.shape[-1]
    between = between if between.flags.c_contiguous else between.copy(order="C")
    diagonal = between.reshape(*s.shape[:-1], d * d)[..., :: d + 1]  # a view
    diagonal[...] = 0
    others = between.sum(axis=-1)
    np.subtract(0, between, out=between)
    diagonal[...] = others
    return between


def identity(like: Any) -> Any:
    """The identity matrix for rows like these, on their device."""
    place = np.arange(like.shape[-1], like=like)
    return (place[:, None] == place).astype(like.dtype)


def entry_of_row(v: Any, k: Any) -> Any:
    """v_k of each row, of shape batch + (1,)."""
    return np.take_along_axis(v, k, axis=-1)


def times(a: Any, b: Any) -> Any:
    """a b, and 0 where b = 0, even if a is ∞: that stands for a number that overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(b == 0, 0, a * b)


def _log_share(log_s: Any, share: Any) -> Any:
    # log s/Σs relative to the largest: the logarithms may be huge, so take their difference first.
    top = np.max(log_s, axis=-1, keepdims=True)
    most = np.max(share, axis=-1, keepdims=True)
    return log_s - np.where(top == -np.inf, 0, top) + np.log(np.where(most == 0, 1, most))


def share_of_sum(s: Any) -> Any:
    """s/Σs, and 0 in a row of zeros."""
    total = s.sum(axis=-1, keepdims=True)
    return s / (total + (total == 0))


def without_largest(s: Any, k: Any) -> tuple[Any, Any]:
    """s with a 0 at entry k, and a mask of that entry; a NaN there stays, so the row is NaN."""
    at_k = np.arange(s.shape[-1], like=s) == k
    return np.where(at_k & ~np.isnan(s), 0, s), at_k
