"""Common parts of fusedmax and oscarmax: sparsemax of scores that edges pull together into groups.

Problem, over the simplex and with a weight w_ij ≥ 0 on every edge between two entries:

    argmax  p·z − ½‖p‖² − Σ_edges w_ij |p_i − p_j|.

Neighbours are joined in fusedmax, all pairs in oscarmax. Two steps solve it: first
u = prox(z) = argmin ½‖u − z‖² + Σ w_ij |u_i − u_j| without constraints, then p = sparsemax(u)
(Niculae & Blondel 2017, who prove it for the chain).

Proof. u is optimal if and only if z_i = u_i + Σ_j y_ij, where y_ij = −y_ji is w_ij if u_i > u_j and
anything in [−w_ij, w_ij] if they are equal. Now p = [u − τ]₊ never reverses an order, it can only
make two entries equal: so the same y are valid for p. With μ = p − (u − τ), which is ≥ 0, and 0
where p > 0, this reads z_i − p_i − Σ_j y_ij = τ − μ_i: the optimality conditions of the problem. ∎

Derivatives. In a group G of entries fused to one value the y inside cancel in pairs, so

    u_G = mean_G z + (1/|G|) Σ_{edges from G to others} w_ij sign(u_j − u_i),

and small changes of z or w change neither the groups nor the signs. So prox averages a direction
over each group, and sparsemax's J follows: J v = mean_G v − mean_S v on the support S. The output p
shows all that is needed of u: on S equal p means equal u, and every entry off S lies below those
on it. (Neighbours that are equal without being fused are at a kink, and have measure zero.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.engine.calls.parameters import Strength
from pyentmax.reference.mappings.sparsemax import above_threshold, sparsemax

STRENGTH = Strength("strength", least=0, shifted=False)


def relative(z: Any, scale: float) -> Any:
    """(z − max z)/scale in double, divided first, so that finite scores have finite gaps.

    In a fused group a score counts however low it is, so only masked entries may be −∞. In double,
    since a group's value is a sum over many scores, which may lie far below the largest.
    """
    x = z.astype(np.float64) / scale
    return x - np.max(x, axis=-1, keepdims=True)


def headroom(d: int) -> float:
    """A power of two to divide d scores by, so that no sum that smoothing takes of them overflows.

    The prox is homogeneous, prox_{cλ}(cz) = c prox_λ(z). With λ held to at most d times the range
    of the scores no sum of d terms exceeds 16 d² times that range.
    """
    return 2.0 ** (4 + 2 * math.ceil(math.log2(d)))


def scaled_up(u: Any, allowed: Any, scale: float, dtype: Any) -> Any:
    """u times scale, minus its largest, a shift that sparsemax ignores; −∞ where not allowed.

    Groups may lie farther from each other than the scores do, by a few times. A difference that
    does not fit into the dtype becomes −∞, since such an entry gets no probability.
    """
    largest = np.max(np.where(allowed, u, -np.inf), axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        return np.where(allowed, (u - largest) * scale, -np.inf).astype(dtype)


def check_finite(strength: Any) -> None:
    """Raise an error for λ = ∞ where Ω itself is needed, which is then ∞ or undefined."""
    if isinstance(strength, np.ndarray) and not np.isfinite(strength).all():
        raise ValueError(
            "strength must be finite for a regulariser or a loss, got inf; from the number of "
            "scores times their range on, all entries are fused"
        )


def rounded(strength: Any, dtype: Any) -> Any:
    """λ rounded to the scores' dtype, in double; ∞ if it is too large for that dtype."""
    with np.errstate(over="ignore"):
        return strength.astype(dtype).astype(np.float64)


def run_sums(v: Any, start: Any) -> Any:
    """The sum of v over each run, in double, at each of its entries. `start`: where runs begin.

    Every row's first entry starts a run, so no run continues into the next row. CuPy's reduceat
    takes differences of one running sum over all rows, which cancel and spread NaN; so device
    arrays are added up entry by entry.

    Examples
    --------
    >>> v, start = np.array([[1.0, 3.0, 8.0]]), np.array([[True, False, True]])
    >>> print(run_sums(v, start))
    [[4. 4. 8.]]
    """
    run = np.cumsum(start.ravel()) - 1
    if isinstance(v, np.ndarray):
        total = np.add.reduceat(v.ravel(), np.flatnonzero(start), dtype=np.float64)
    else:
        total = np.zeros_like(run, dtype=np.float64)
        np.add.at(total, run, v.ravel().astype(np.float64))
    return total[run].reshape(v.shape)


def run_means(v: Any, start: Any) -> Any:
    """The mean of v over each run, at each of its entries, in v's dtype."""
    return (run_sums(v, start) / run_sums(np.ones_like(v), start)).astype(v.dtype)


def pooled(level: Callable[[Any], Any], like: Any) -> tuple[Any, Any]:
    """Where blocks begin whose levels fall along each row, and these levels: isotonic regression.

    `level` gives each block's, at each of its entries, from where blocks begin. As long as it lies
    above that of the block before, the two are one in the solution, in whatever order pairs are
    pooled; so each pass pools all of them.
    """
    start = np.ones_like(like, dtype=bool)
    levels = level(start)
    for _ in range(like.shape[-1] - 1):
        rises = levels[..., 1:] > levels[..., :-1]
        if not rises.any():  # on a GPU too: synchronising costs less than d passes
            break
        start[..., 1:] &= ~rises
        levels = level(start)
    return start, levels


def project(u: Any) -> Any:
    """The second step: sparsemax of u, whose largest is 0."""
    return sparsemax.body(u)


def support(u: Any) -> Any:
    """Where u > τ, for u whose largest is 0."""
    return above_threshold(u) > 0


def on_support(p: Any, v: Any) -> Any:
    """v where p > 0, else 0: off the support v is unused and may hold anything."""
    return np.where(p != 0, v, 0)


def dense(p: Any, same: Any) -> Any:
    """J, of shape batch + (d, d): 1/|G| for two entries of one group, less 1/|S| on the support."""
    on = np.where(np.isnan(p), p, np.sign(p))  # 1 on S, written so that a NaN stays a NaN
    same = same & (on[..., :, None] != 0) & (on[..., None, :] != 0)
    averaging = same / np.maximum(np.sum(same, axis=-1, keepdims=True), 1).astype(p.dtype)
    r = on / np.sqrt(np.maximum(np.sum(on, axis=-1, keepdims=True), 1))
    return averaging - r[..., :, None] * r[..., None, :]


def vjp_strength(p: Any, g: Any, pull: Any) -> Any:
    """Σ g ∘ ∂p/∂λ of each row; `pull` is ∂u/∂λ on the support."""
    return np.sum(on_support(p, g) * sparsemax.jvp.body(p, pull), axis=-1)


def averaging(same: Any) -> np.ndarray:
    """The matrix that averages over groups, for the textbook versions: same_ij is 1 within one."""
    return same / same.sum(axis=-1, keepdims=True)
