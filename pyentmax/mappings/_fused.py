"""What fusedmax and oscarmax share: sparsemax of scores that edges pull together into groups.

Problem, over the simplex and with a weight w_ij ≥ 0 on every edge between two entries:

    argmax  p·z − ½‖p‖² − Σ_edges w_ij |p_i − p_j|.

Neighbours are joined in fusedmax, all pairs in oscarmax. Two steps solve it: first
u = prox(z) = argmin ½‖u − z‖² + Σ w_ij |u_i − u_j| without constraints, then p = sparsemax(u)
(Niculae & Blondel 2017, who prove it for the chain).

Proof. u is optimal if and only if z_i = u_i + Σ_j y_ij, where y_ij = −y_ji is w_ij if u_i > u_j and
anything in [−w_ij, w_ij] if they are equal. Now p = [u − τ]₊ never turns an order round, it can
only make two entries equal: the same y serve p. With μ = p − (u − τ), which is ≥ 0, and 0 where
p > 0, that reads z_i − p_i − Σ_j y_ij = τ − μ_i: the optimality conditions of the whole. ∎

Derivatives. In a group G of entries fused to one value the y inside cancel in pairs, so

    u_G = mean_G z + (1/|G|) Σ_{edges from G to others} w_ij sign(u_j − u_i),

and neither the groups nor the signs move with z or w in the small. So prox averages a direction
over each group, and sparsemax's J follows: J v = mean_G v − mean_S v on the support S. And p
tells all that is needed of u: on S equal p means equal u, and every entry off S lies below those
on it. (Neighbours that are equal without being fused sit on a kink, and have measure zero.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyentmax.calls.rows import Rows, Tangent, check_parameter, reduce_to, to_rows
from pyentmax.mappings._bounded import live_entries
from pyentmax.mappings.sparsemax import sparsemax_jvp
from pyentmax.thresholds import sort_sparsemax


class StrengthRows(Rows):
    """The scores of one call, and the strength λ."""

    __slots__ = ("strength",)

    def __init__(
        self, z: Any, strength: Any = 1.0, axis: Any = -1, *, mask: Any = None, out: Any = None
    ) -> None:
        super().__init__(z, axis, mask=mask, out=out)
        self.strength = self.parameter(strength, "strength", 0)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that the strength needs no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: scores, mask, and the strength per row or one for all."""
        return (*super().operands(), self.strength)

    def scores(self) -> Any:
        """z − max z, no lower than the dtype's lowest number: −∞ is only what is ruled out.

        Where all is fused a score counts however low it is, so z − max z must not overflow.
        """
        x = super().scores()
        return np.where(live_entries(self), np.maximum(x, np.finfo(x.dtype).min), x)


class StrengthTangent(Tangent):
    """Probabilities, a direction, the strength λ, and which entries there are."""

    __slots__ = ("mask", "strength")

    def __init__(
        self, p: Any, v: Any, strength: Any = 1.0, axis: Any = -1, *, mask: Any = None
    ) -> None:
        super().__init__(p, v, axis, mask=mask)
        self.strength = check_parameter(strength, "strength", self.p, 0)
        if mask is None:
            self.mask = np.ones_like(self.p, dtype=bool)
        else:  # checked above
            self.mask = to_rows(np.broadcast_to(mask, self._shape), self._axes)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that the strength needs no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: p, v, and the strength per row or one for all."""
        return (*super().operands(), self.strength)


def headroom(d: int) -> float:
    """A power of two to divide d scores by, so that no sum that smoothing takes of them overflows.

    The prox is homogeneous, prox_{cλ}(cz) = c prox_λ(z). With λ held to at most d times the range
    of the scores no sum of d terms exceeds 16 d² times that range.
    """
    return 2.0 ** (4 + 2 * math.ceil(math.log2(d)))


def check_finite(strength: Any) -> None:
    """Refuse λ = ∞ where Ω itself is asked for, which is then ∞ or undefined."""
    if isinstance(strength, np.ndarray) and not np.isfinite(strength).all():
        raise ValueError(
            "strength must be finite for a regulariser or a loss, got inf; all is fused already "
            "from the number of scores times their range on"
        )


def column(strength: Any, like: Any) -> Any:
    """λ in the working dtype with an axis for the entries; what is too large for it is ∞."""
    with np.errstate(over="ignore"):
        return strength[..., None].astype(like.dtype)


def run_means(v: Any, start: Any) -> Any:
    """The mean of v over each run, at each of its entries; `start` marks where runs begin.

    Every row's first entry starts a run, so that in memory no run goes on into the next row. CuPy's
    reduceat takes differences of one running sum over all rows, which cancel and spread a NaN, so
    that device arrays are added up entry by entry.

    Examples
    --------
    >>> v, start = np.array([[1.0, 3.0, 8.0]]), np.array([[True, False, True]])
    >>> print(run_means(v, start))
    [[2. 2. 8.]]
    """
    run = np.cumsum(start.ravel()) - 1
    if isinstance(v, np.ndarray):
        first = np.flatnonzero(start)
        mean = np.add.reduceat(v.ravel(), first) / np.diff(first, append=v.size).astype(v.dtype)
    else:  # in double, so that the order of the additions does not show in single
        total = np.zeros_like(run, dtype=np.float64)
        size = np.zeros_like(total)
        np.add.at(total, run, v.ravel().astype(np.float64))
        np.add.at(size, run, np.ones_like(total))
        mean = (total / np.maximum(size, 1)).astype(v.dtype)
    return mean[run].reshape(v.shape)


def support(u: Any) -> Any:
    """Where u > τ. Relative to its largest u, τ keeps its digits however far the scores reach."""
    u = u - np.max(u, axis=-1, keepdims=True)
    return u > sort_sparsemax(u).tau


def on_support(p: Any, v: Any) -> Any:
    """v where p > 0, else 0: off the support it plays no part and may hold anything."""
    return np.where(p != 0, v, 0)


def dense(p: Any, same: Any) -> Any:
    """J, of shape batch + (d, d): 1/|G| for two entries of one group, less 1/|S| on the support."""
    on = np.where(np.isnan(p), p, np.sign(p))  # 1 on S, written so that a NaN stays a NaN
    same = same & (on[..., :, None] != 0) & (on[..., None, :] != 0)
    averaging = same / np.maximum(np.sum(same, axis=-1, keepdims=True), 1).astype(p.dtype)
    r = on / np.sqrt(np.maximum(np.sum(on, axis=-1, keepdims=True), 1))
    return averaging - r[..., :, None] * r[..., None, :]


def vjp_strength(rows: StrengthTangent, pull: Any, shape: tuple[int, ...]) -> Any:
    """Σ v ∘ ∂p/∂λ, summed to λ's shape; `pull` is ∂u/∂λ on the support."""
    moved = sparsemax_jvp.reference(rows.p, pull)
    each = np.sum(on_support(rows.p, rows.v) * moved, axis=-1)
    return rows.reduced(reduce_to(each, shape))
