"""fusedmax: sparse probabilities that neighbours share, for attention to whole segments.

Problem (Niculae & Blondel 2017): argmax over the simplex of p·z − ½‖p‖² − λ Σ_j |p_{j+1} − p_j|.
The last term, the total variation, makes p piecewise constant. Two steps solve it
(`pyentmax.reference.mappings._fused` proves it): u = argmin ½‖u − z‖² + λ Σ |u_{j+1} − u_j|, then
p = sparsemax(u). Texts that leave out the ½ mean half our λ.

The first step is Johnson's (2013) dynamic program. Let F_j(x) be the best value of the terms up
to entry j with u_j = x, and f_j its derivative. Whichever u_j is best for a given u_{j+1} = x,

    min_y F_j(y) + λ|x − y|   has the derivative   clip(f_j(x), −λ, λ)
                              and the minimiser    y = clip(x, low_j, high_j),

where f_j, which increases, reaches −λ at low_j and λ at high_j. So f_{j+1}(x) is
clip(f_j(x), −λ, λ) + x − z_{j+1}: piecewise linear. Clipping removes knots only at the ends, and
adds one new knot on each side. The root of f_d is u_d, and the minimisers lead back from there.
Each knot is added and removed at most once: O(d) per row.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings import _fused
from pyentmax.reference.mappings import sparsemax as _sparsemax
from pyentmax.reference.mappings.sparsemax import sparsemax

__all__ = ["fusedmax"]


def textbook(z: Any, strength: float = 1.0, passes: int = 20_000) -> np.ndarray:
    """sparsemax(prox_{λTV}(z)) (Niculae & Blondel 2017, Prop. 1), for one vector.

    The prox by projected gradient steps on its dual: u = z − Dᵀy, where D takes differences of
    neighbours and y minimises ½‖z − Dᵀy‖² with |y_j| ≤ λ.

    >>> textbook([1.0, 0.9, 1.1, -1.0, 0.8], 0.1).round(4)
    array([0.3167, 0.3167, 0.3167, 0.    , 0.05  ])
    """
    z = np.asarray(z, float)
    d = np.diff(np.eye(len(z)), axis=0)
    y = np.zeros(len(z) - 1)
    for _ in range(passes):
        y = np.clip(y + d @ (z - d.T @ y) / 4, -strength, strength)
    return _sparsemax.textbook(z - d.T @ y)


def textbook_jacobian(p: Any, strength: float = 1.0) -> np.ndarray:
    """J = J_sparsemax · M at p = fusedmax(z), M_ij = 1/|G| if i and j are in one fused run G.

    >>> textbook_jacobian([0.3, 0.3, 0.4, 0.0], 0.1).round(4)
    array([[ 0.1667,  0.1667, -0.3333,  0.    ],
           [ 0.1667,  0.1667, -0.3333,  0.    ],
           [-0.3333, -0.3333,  0.6667,  0.    ],
           [ 0.    ,  0.    ,  0.    ,  0.    ]])
    """
    run = np.cumsum(np.diff(p, prepend=np.nan) != 0)
    return _sparsemax.textbook_jacobian(p) @ _fused.averaging(run[:, None] == run)


def textbook_loss(z: Any, y: int, strength: float = 1.0) -> float:
    """L = p·z − Ω(p) + Ω(e_y) − z_y, Ω(p) = ½‖p‖² + λ Σ_j |p_{j+1} − p_j|.

    >>> round(float(textbook_loss([0.0, 0.0], 0)), 6)
    1.25
    """
    p, z = textbook(z, strength), np.asarray(z, float)

    def omega(p: np.ndarray) -> float:
        return p @ p / 2 + strength * np.sum(np.abs(np.diff(p)))

    return p @ z - omega(p) + omega(np.eye(len(p))[y]) - z[y]


# What follows is right for every input: exact, and of O(d) steps, by the dynamic program above;
# scores far below the rest, huge strengths and masked entries, which split a row, cost no digits.

STRENGTH = replace(_fused.STRENGTH, one_axis=True)


@mapping(STRENGTH, permutation_equivariant=False)
def fusedmax(
    z: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """Sparse probabilities, equal over runs of neighbours (Niculae & Blondel 2017).

    Maximises p·z − ½‖p‖² − λ Σ_j |p_{j+1} − p_j| over the simplex, λ the strength: sparsemax at 0,
    and uniform from some λ on. O(d) steps of Johnson's dynamic program, for all rows at once, and a
    sort for the sparsemax. In NumPy each step is an iteration of a Python loop and takes about
    0.1 ms: about a second for 10 000 scores, for one row or many. The compiled kernel takes the
    rows one by one, with at most about a millisecond for that many scores.

    Parameters
    ----------
    z : array of scores
    strength : float or array that broadcasts against the batch shape (z's without the axis)
        λ ≥ 0
    axis : int
        one axis only: the entries of several have no order
    mask : as in `pyentmax.softmax`
        the scores on both sides of a masked entry are not neighbours:
        each run between masked entries is smoothed separately, then one sparsemax taken of all
    out : as in `pyentmax.softmax`

    Returns
    -------
    array of z's shape, with exact zeros, and exactly equal where entries are fused

    Raises
    ------
    ValueError
        if some strength is below 0 or does not fit the batch, or axis names several; else as in
        `pyentmax.softmax`
    TypeError
        as in `pyentmax.softmax`

    Examples
    --------
    >>> z = [1.0, 0.9, 1.1, -1.0, 0.8]
    >>> print(fusedmax(z, 0.1).round(4))
    [0.3167 0.3167 0.3167 0.     0.05  ]
    >>> print(fusedmax(z, 0.1, mask=[True, False, True, True, True]).round(4))
    [0.4333 0.     0.4333 0.     0.1333]
    >>> print(fusedmax.support(z, 0.1), fusedmax.regularizer([0.5, 0.5, 0.0]))
    [ True  True  True False  True] 0.75
    >>> print(fusedmax.jvp([0.3, 0.3, 0.4, 0.0], [-1.0, 0.0, 0.0, 9.0], 0.1).round(4))
    [-0.1667 -0.1667  0.3333  0.    ]
    >>> print(fusedmax.parameter_vjp(fusedmax(z, 0.1), [0.0, 0.0, 0.0, 0.0, 1.0], 0.1).round(4))
    -0.5
    """
    return z, strength, axis, mask, out


@fusedmax.rule
def _forward(y: Any, strength: Any) -> Any:
    return _fused.project(_smoothed(y, strength))


def _smoothed(z: Any, strength: Any) -> Any:
    """u of rows, minus its largest; −∞ where masked, and where p is certainly 0.

    Its two edges move a score by 2λ at most. So max u ≥ −2λ, τ ≥ −1 − 2λ, and a score at or below
    −1 − 4λ gets p = 0. The code uses −1 − 5λ, which also holds where λ is so large that the 1 is
    lost to rounding and a score of −4λ may tie with the peaks. For its neighbour j, the edge is
    then |p_j − 0| = p_j: the neighbour's score decreases by λ, and the chain is cut. λ is limited
    to d·(range of z), which already fuses all.
    """
    scale = _fused.headroom(z.shape[-1])
    x = _fused.relative(z, scale)
    allowed = x > -np.inf
    weight = _fused.rounded(strength, z.dtype) / scale
    floor = -1 / scale - 5 * weight
    y = np.where(allowed, np.maximum(x, floor), 0)
    weight = np.minimum(weight, -x.shape[-1] * np.min(y, axis=-1, keepdims=True))
    live = allowed & (x > floor)
    dropped = (allowed & ~live).astype(x.dtype)
    dropped_neighbours = np.zeros_like(x)
    dropped_neighbours[..., 1:] += dropped[..., :-1]
    dropped_neighbours[..., :-1] += dropped[..., 1:]
    y = np.where(live, y, 0)
    edge = np.where(live[..., 1:] & live[..., :-1], weight, 0)
    u = _dynamic_program(y - weight * dropped_neighbours, edge)
    start = _starts(u, edge) & _starts(y, edge)  # rounding may give equal scores a different u
    pull = _divergence(np.where(edge > 0, np.sign(np.diff(u)), 0)) - dropped_neighbours
    mean, pull, size = (_fused.run_sums(x, start) for x in (y, pull, np.ones_like(y)))
    runs = _Runs(mean / size, pull, size)
    return _fused.scaled_up(runs.minus_highest(u, live, weight), live, scale, z.dtype)


class _Runs(NamedTuple):
    """The run of each entry, with u = mean + weight·pull/size as three separate arrays.

    Where λ is much larger than the scores, two peaks may have the same pull/size. They then differ
    only in their means, which a sum with λ would round away.
    """

    mean: Any  # of the scores
    pull: Any  # the number of edges up, less that of edges down
    size: Any

    def minus_highest(self, u: Any, allowed: Any, weight: Any) -> Any:
        """u minus its largest, from a u in which rounding may have swapped two peaks."""
        for _ in range(2):  # relative to the highest by rounded u, then to the true highest
            highest = np.argmax(np.where(allowed, u, -np.inf), axis=-1)[..., None]
            mean, pull, size = (np.take_along_axis(x, highest, axis=-1) for x in self)
            pulls = (self.pull * size - pull * self.size) / (self.size * size)
            u = self.mean - mean + weight * pulls
        return u


def _dynamic_program(x: Any, weight: Any) -> Any:
    """argmin ½‖u − x‖² + Σ_j weight_j |u_{j+1} − u_j|, for rows x and a weight per pair.

    Its running sums are rounded, and the values lose digits as the weights grow. They only have to
    decide which neighbours are fused, and which of two is higher.
    """
    d, count = x.shape[-1], math.prod(x.shape[:-1])
    low, high = _clip_levels(x.reshape(count, d), weight.reshape(count, d - 1))
    low, high = low.reshape(x.shape), high.reshape(x.shape)
    u = low.copy()
    for j in range(d - 2, -1, -1):
        u[..., j] = np.clip(u[..., j + 1], low[..., j], high[..., j])
    return u


def _clip_levels(x: Any, weight: Any) -> tuple[Any, Any]:
    """low_j and high_j of the dynamic program, for rows x of two dimensions.

    Knots are places and the change of slope there, in a double-ended queue: entries `first` to
    `last` of an array, starting in the middle. No edge follows the last entry, so its weight is 0
    and low is the root of f_d.
    """
    count, d = x.shape
    low, high = np.empty_like(x), np.empty_like(x)
    place, bend = np.zeros_like(x, shape=(2, count, 2 * d))
    row = np.arange(count, like=x)
    first = np.full_like(row, d)
    last = first - 1
    before = np.zeros_like(x[:, 0])
    for j in range(d):
        after = weight[:, j] if j < d - 1 else np.zeros_like(before)
        # Beyond its outermost knots f is ∓before + t − x: it is ∓after at t = x ± (before − after).
        left, slope, first = _crossing(x[:, j] + (before - after), 1, place, bend, first, last + 1)
        first = first - 1
        place[row, first], bend[row, first] = left, slope
        right, slope, last = _crossing(x[:, j] - (before - after), -1, place, bend, last, first)
        last = last + 1
        place[row, last], bend[row, last] = right, -slope
        low[:, j], high[:, j], before = left, right, after
    return low, high


def _crossing(
    t: Any, side: int, place: Any, bend: Any, end: Any, stop: Any
) -> tuple[Any, Any, Any]:
    """Where f crosses its level, coming from one side, its slope there, and the end of the queue.

    t is where f would cross if it went on with slope 1, as it does beyond the knots. While a knot k
    lies before t, f bends there: the height left, (t − k)·slope, takes the new slope from k on.
    Slopes count entries. They stay at least 1 even where rounding swaps two knots' places, since
    their order in the queue stands.
    """
    row = np.arange(t.shape[0], like=t)
    slope = np.ones_like(t)
    while True:
        reach = np.where(side * (stop - end) > 0, end, 0)
        k = place[row, reach]
        passed = (side * (stop - end) > 0) & (side * (t - k) > 0)
        if not passed.any():
            return t, slope, end
        steeper = np.where(passed, slope + side * bend[row, reach], slope)
        t = np.where(passed, k + (t - k) * (slope / steeper), t)
        slope, end = steeper, end + side * passed


def _divergence(flow: Any) -> Any:
    """The flow of the pair on the right of each entry minus that of the pair on its left."""
    zero = np.zeros_like(flow, shape=(*flow.shape[:-1], 1))
    return np.diff(flow, prepend=zero, append=zero)


def _starts(p: Any, weight: Any) -> Any:
    """Where runs begin: at every entry that differs from the one before or has no edge to it."""
    first = np.ones_like(p[..., :1], dtype=bool)
    return np.concatenate([first, (p[..., 1:] != p[..., :-1]) | (weight == 0)], axis=-1)


@fusedmax.support.rule
def _support(y: Any, strength: Any) -> Any:
    """Where u > τ."""
    return _fused.support(_smoothed(y, strength))


@fusedmax.jvp.rule
def _product(p: Any, v: Any, strength: Any) -> Any:
    """J v: v's mean over each fused run, less that over the support.

    The fused runs are read from p, as neighbours with equal p > 0. That is all of them, since
    neighbours which are merely tied have measure zero, as long as p is not rounded: p in half
    precision may tie more. For scores in float16 compute p = fusedmax(z.astype(np.float32)), keep
    that p for the derivatives, and round only what goes on. Without strength nothing is fused.
    """
    start = _starts(p, strength)
    averaged = _fused.run_means(_fused.on_support(p, v), start)
    return sparsemax.jvp.body(p, averaged)


@fusedmax.jacobian.rule
def _jacobian(p: Any, strength: Any) -> Any:
    """J: 1/|G| within a fused run G, less 1/|S| on the support S."""
    run = np.cumsum(_starts(p, strength), axis=-1)
    return _fused.dense(p, run[..., :, None] == run[..., None, :])


@fusedmax.parameter_vjp.rule_with(mask=True)
def _vjp_strength(p: Any, g: Any, strength: Any, *, mask: Any) -> Any:
    """Σ g ∘ ∂p/∂λ, the gradient in the strength; where λ = 0 the derivative to the right.

    A fused run of n entries has u = mean z + (λ/n) Σ s over its two ends, s = 1 where the
    neighbouring run lies higher, −1 where lower, and 0 at an end of the row or next to a masked
    entry. On the support p shows which: a neighbour off the support lies lower. The rest is
    sparsemax's J. A score of −∞ counts as masked too, which p does not show: mask it.
    """
    step = np.where(mask[..., 1:] & mask[..., :-1], np.sign(np.diff(p)), 0)
    pull = _fused.run_means(_divergence(step), _starts(p, np.ones_like(p[..., :1])))
    return _fused.vjp_strength(p, g, pull)


@fusedmax.regularizer.rule_with(mask=True)
def _omega(p: Any, strength: Any, *, mask: Any) -> Any:
    """Ω(p) = ½‖p‖² + λ Σ_j |p_{j+1} − p_j|, over pairs of unmasked neighbours; λ finite."""
    _fused.check_finite(strength)
    step = np.where(mask[..., 1:] & mask[..., :-1], np.abs(np.diff(p)), 0)
    variation = np.sum(step, axis=-1)
    return np.sum(p**2, axis=-1) / 2 + strength[:, 0] * variation


fusedmax.textbook, fusedmax.jacobian.textbook = textbook, textbook_jacobian
fusedmax.loss.textbook = textbook_loss
