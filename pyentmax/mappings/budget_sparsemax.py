"""Budget sparsemax: how much of each entry to take when k in all are to be taken.

Problem: argmax of p·z − ½‖p‖² over 0 ≤ p ≤ 1, Σp = k. The feasible set is the convex hull of the
0/1 vectors with k ones (for whole k), so this is to choosing k of d what sparsemax, k = 1, is to
choosing one. (Amos, Koltun & Kolter 2019 regularise the same set by binary entropies, which leaves
no p_i at 0 or 1.)

The optimality conditions are p_i = clip(z_i − τ, 0, 1), τ such that p sums to k. A change of z
moves only the free entries, 0 < p_i < 1, less their mean: J = diag(s) − s sᵀ/Σs with s = 1 there
and 0 elsewhere. A larger k is shared evenly by them: ∂p_i/∂k = s_i/Σs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.backends.choice import accelerated
from pyentmax.calls.rows import Rows, Tangent, check_parameter, reduce_to
from pyentmax.mappings import _simplex
from pyentmax.mappings._bounded import live_entries, solve_shifted
from pyentmax.mappings._record import Mapping
from pyentmax.thresholds import fill_boxes


class _Rows(Rows):
    """The scores of one call, and the budget, 1 or batch rows of it."""

    __slots__ = ("budget", "live")

    def __init__(
        self, z: Any, budget: Any, axis: Any = -1, *, mask: Any = None, out: Any = None
    ) -> None:
        super().__init__(z, axis, mask=mask, out=out)
        self.live = live_entries(self)
        budget = self.parameter(budget, "budget", 0, strict=True)
        places = np.sum(self.live, axis=-1)
        fits = (budget <= places) | (places == 0)
        if self.on_host and not np.all(fits):
            wrong = ~np.broadcast_to(fits, self.batch)
            asked, most = (np.broadcast_to(a, self.batch)[wrong].flat[0] for a in (budget, places))
            raise ValueError(
                f"budget must be at most the number of a row's unmasked entries, {most}, "
                f"got {asked:.9g}"
            )
        # Where nobody could look, an impossible budget makes its row NaN.
        self.budget = np.where(fits & (budget > 0), budget, np.nan)[..., None].astype(self.z.dtype)

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that its budget needs no check."""

    def operands(self) -> tuple[Any, ...]:
        """What a kernel takes: scores, mask and the budget per row."""
        return (*super().operands(), self.budget[..., 0])

    def solve(self) -> Any:
        """p in rows."""
        upper = self.live.astype(self.z.dtype)
        return solve_shifted(self, upper, lambda y: fill_boxes(y, upper, self.budget).p)


class _Tangent(Tangent):
    """Probabilities, a direction, and where p is free to move."""

    __slots__ = ("budget", "free")

    def __init__(self, p: Any, v: Any, budget: Any, axis: Any = -1, *, mask: Any = None) -> None:
        super().__init__(p, v, axis, mask=mask)
        self.budget = check_parameter(budget, "budget", self.p, 0, strict=True)
        # Written so that a NaN stays a NaN.
        self.free = np.where(np.isnan(self.p), self.p, (self.p > 0) & (self.p < 1))

    @staticmethod
    def plain(*_: Any, **__: Any) -> None:
        """No call is so common that its budget needs no check."""


@accelerated(_Rows)
def budget_sparsemax(
    z: Any, budget: Any, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> Any:
    """Shares p = clip(z − τ, 0, 1) that sum to the budget k: sparsemax that takes k in all.

    Maximises p·z − ½‖p‖² over 0 ≤ p ≤ 1, Σp = k. Exact, by a sort of the breakpoints z and z − 1
    and a binary search over them (`pyentmax.thresholds.water_fill`): O(d log d); twice that where
    full entries score far above the rest, to keep the rest's digits. The compiled kernel finds the
    level without a sort, O(d) per pass.

    Parameters
    ----------
    z : array of scores
    budget : float or array that broadcasts against the batch shape (z's without the axis)
        k, above 0 and at most the number of a row's unmasked entries
    axis, mask, out, workers : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros and ones

    Raises
    ------
    ValueError
        if a budget is out of its range or does not fit the batch; else as in `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> print(budget_sparsemax([3.0, 1.0, 0.5, -2.0], 2))
    [1.   0.75 0.25 0.  ]
    """
    rows = _Rows(z, budget, axis, mask=mask, out=out)
    return rows.restore(rows.solve())


def budget_sparsemax_support(z: Any, budget: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where budget_sparsemax takes anything: z > τ.

    Examples
    --------
    >>> print(budget_sparsemax_support([3.0, 1.0, 0.5, -2.0], 2))
    [ True  True  True False]
    """
    rows = _Rows(z, budget, axis, mask=mask)
    rows.scores()
    return rows.restore_support(budget_sparsemax(rows.z, budget, mask=rows.mask) > 0)


@accelerated(_Tangent)
def budget_sparsemax_jvp(p: Any, v: Any, budget: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """J v: v less its mean over the free entries 0 < p_i < 1; 0 elsewhere.

    Parameters
    ----------
    p, v : arrays of one shape, p = budget_sparsemax(z, budget)
    budget, axis, mask : as in `budget_sparsemax`

    Returns
    -------
    array of p's shape

    Examples
    --------
    >>> print(budget_sparsemax_jvp([1.0, 0.75, 0.25, 0.0], [9.0, -1.0, 0.0, 9.0], 2))
    [ 0.  -0.5  0.5  0. ]
    """
    rows = _Tangent(p, v, budget, axis, mask=mask)
    return rows.restore(_simplex.product(rows.free, rows.v))


# J is symmetric, a projection onto differences between free entries: Jᵀ v is J v.
budget_sparsemax_vjp = budget_sparsemax_jvp


def budget_sparsemax_vjp_budget(
    p: Any, g: Any, budget: Any, axis: Any = -1, *, mask: Any = None
) -> Any:
    """Σ_i g_i ∂p_i/∂k, the gradient in the budget of a loss with gradient g in p.

    The mean of g over the free entries; 0 where there are none, since p then stands at a corner.

    Parameters
    ----------
    p, g : arrays of one shape, p = budget_sparsemax(z, budget)
    budget, axis, mask : as in `budget_sparsemax`

    Returns
    -------
    array of budget's shape

    Examples
    --------
    >>> print(budget_sparsemax_vjp_budget([1.0, 0.75, 0.25, 0.0], [9.0, 1.0, 0.0, 9.0], 2))
    0.5
    """
    rows = _Tangent(p, g, budget, axis, mask=mask)
    count = np.sum(rows.free, axis=-1)
    each = np.sum(np.where(rows.free != 0, rows.free * rows.v, 0), axis=-1)
    return rows.reduced(reduce_to(each / np.where(count == 0, 1, count), np.shape(budget)))


def budget_sparsemax_jacobian(p: Any, budget: Any, axis: Any = -1) -> Any:
    """J = diag(s) − s sᵀ/Σs, s = 1 where 0 < p_i < 1, else 0; of shape batch + (d, d).

    Examples
    --------
    >>> print(budget_sparsemax_jacobian([1.0, 0.75, 0.25], 2))
    [[ 0.   0.   0. ]
     [ 0.   0.5 -0.5]
     [ 0.  -0.5  0.5]]
    """
    return _simplex.dense(_Tangent(p, p, budget, axis).free)


MAPPING = Mapping(
    name="budget_sparsemax",
    forward=budget_sparsemax,
    support=budget_sparsemax_support,
    jvp=budget_sparsemax_jvp,
    vjp=budget_sparsemax_vjp,
    jacobian=budget_sparsemax_jacobian,
    omega=None,  # ½‖p‖², but no label or distribution sums to k
    parameters=("budget",),
    on_simplex=False,
)
