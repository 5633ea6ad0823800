"""Soft sorting, ranks and top-k: projections onto the permutahedron (Blondel et al. 2020).

Sorting has derivatives that ignore how far apart values are, and ranks have none. Both are linear
programs over the permutahedron P(w), the convex hull of all orders of a vector w:

    ranks of z  = argmax over P(1, …, d) of p·z,        sorted z = argmax over P(z) of p·(1, …, d).

A quadratic term makes the first a projection, and both differentiable almost everywhere:

    soft_rank(z) = proj(z/ε; 1, …, d),    soft_topk(z, k) = proj(z/ε; 1, …, 1, 0, …, 0),
    soft_sort(z) = proj((1, …, d)/ε; z),   proj(x; w) = argmin over P(w) of ½‖p − x‖².

With x and w sorted to fall, proj(x; w) = x − v, v the falling sequence nearest to x − w: an
isotonic regression, which pools what rises into blocks. So in each block B

    p = x − mean_B x + mean_B w,

exactly the hard answer w where a block has one entry. As ε grows, blocks do, until all is one.

The entropic regulariser replaces ½‖p − x‖² by KL(p ‖ eˣ), and pools log-sum-exps:
log p = x − LSE_B x + LSE_B log w. soft_topk with k = 1 is then softmax(z/ε), as it is
sparsemax(z/ε) with the quadratic one, and budget_sparsemax(z/ε, k) for any k.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.engine.calls.parameters import PerRow
from pyentmax.engine.calls.rows import (
    Rows,
    arrange_scores,
    check_one_axis,
    check_same_shape,
    to_rows,
)
from pyentmax.reference.mappings._fused import falling_rows, pooled, run_means, run_sums
from pyentmax.reference.mappings.topk_softmax import K

__all__ = [
    "soft_rank",
    "soft_rank_jvp",
    "soft_rank_vjp",
    "soft_sort",
    "soft_sort_jvp",
    "soft_sort_vjp",
    "soft_topk",
    "soft_topk_jvp",
    "soft_topk_vjp",
]


def textbook(x: Any, w: Any) -> np.ndarray:
    """proj(x; w), the point nearest to x in the convex hull of w's permutations, for one vector.

    >>> textbook([0.0, 5.0, 0.5], [1, 2, 3])  # ranks: two values are too close to be told apart
    array([1.25, 3.  , 1.75])
    """
    x = np.asarray(x, float)
    order = np.argsort(-x)
    blocks: list[list[float]] = []
    for value in x[order] - np.sort(w)[::-1]:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-1]) > np.mean(blocks[-2]):
            last = blocks.pop()
            blocks[-1] += last
    p = x.copy()
    p[order] -= [np.mean(block) for block in blocks for _ in block]
    return p


def textbook_jacobian(x: Any, w: Any) -> np.ndarray:
    """∂proj/∂x = I − M, M the mean over each block: the entries of one v = x − p.

    >>> textbook_jacobian([0.0, 5.0, 0.5], [1, 2, 3])
    array([[ 0.5,  0. , -0.5],
           [ 0. ,  0. ,  0. ],
           [-0.5,  0. ,  0.5]])
    """
    v = np.asarray(x, float) - textbook(x, w)
    same = np.abs(v[:, None] - v) < 1e-9
    return np.eye(len(v)) - same / same.sum(axis=1)


# What follows is right for every input: all rows are pooled at once, and values that differ by much
# more than ε, or that share a large offset, cost no digits.

STRENGTH = PerRow("strength", least=0, strict=True, one_axis=True)
REGULARIZERS = ("quadratic", "entropic")


def soft_sort(
    z: Any,
    strength: Any = 1.0,
    axis: Any = -1,
    *,
    regularizer: str = "quadratic",
    out: Any = None,
) -> Any:
    """z sorted to rise, differentiably: proj((1, …, d)/ε; z), ε the strength.

    Exactly sorted where neighbours differ by less than 1/ε; a block of values that are farther
    apart is pulled to its mean, and as ε grows all values are. (Blondel et al. 2020 sort to fall.)

    Parameters
    ----------
    z : array
    strength : float or array that broadcasts against the batch shape (z's without the axis)
        ε > 0
    axis : int
    regularizer : {"quadratic", "entropic"}
        the entropic one is smooth, and in logarithms: e^p lies in the permutahedron of e^z
    out : array of z's shape, optional
        where to write the result, and what is returned then

    Returns
    -------
    array of z's shape and dtype
        half precision is computed in float32, integers become float64; a row with NaN or infinity
        is NaN

    Raises
    ------
    ValueError
        if some strength is not above 0 or does not fit the batch, or the axis is empty or not one
    TypeError
        if z is not of real numbers

    Examples
    --------
    >>> print(soft_sort([2.0, -1.0, 0.0], 0.4))
    [-1.  0.  2.]
    >>> print(soft_sort([2.0, -1.0, 0.0], 4).round(4))
    [0.0833 0.3333 0.5833]
    """
    problem = _sorting(z, strength, axis, regularizer, out)
    return problem.finish(problem.projection()[..., ::-1], out)


def soft_sort_jvp(
    z: Any, v: Any, strength: Any = 1.0, axis: Any = -1, *, regularizer: str = "quadratic"
) -> Any:
    """The derivative of `soft_sort` at z in the direction v: its means over the blocks.

    Parameters
    ----------
    z : as in `soft_sort`
    v : array of z's shape
        a direction
    strength, axis, regularizer : as in `soft_sort`

    Returns
    -------
    array of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `soft_sort`

    Examples
    --------
    >>> print(soft_sort_jvp([2.0, -1.0, 0.0], [3.0, 0.0, 0.0]))
    [1. 1. 1.]
    """
    problem = _sorting(z, strength, axis, regularizer)
    moved = np.take_along_axis(problem.direction(v, "v"), problem.order, axis=-1)
    return problem.finish(run_sums(problem.shares(problem.w) * moved, problem.start)[..., ::-1])


def soft_sort_vjp(
    z: Any, g: Any, strength: Any = 1.0, axis: Any = -1, *, regularizer: str = "quadratic"
) -> Any:
    """The gradient in z of a loss with gradient g in `soft_sort`'s output.

    Examples
    --------
    >>> print(soft_sort_vjp([2.0, -1.0, 0.0], [0.0, 0.0, 3.0], 0.4))
    [3. 0. 0.]
    """
    problem = _sorting(z, strength, axis, regularizer)
    sums = run_sums(problem.direction(g, "g")[..., ::-1], problem.start)
    return problem.finish(problem.unsorted(problem.shares(problem.w) * sums))


def soft_rank(
    z: Any,
    strength: Any = 1.0,
    axis: Any = -1,
    *,
    regularizer: str = "quadratic",
    out: Any = None,
) -> Any:
    """Ranks of z, 1 for the least and d for the largest: proj(z/ε; 1, …, d), ε the strength.

    Exact ranks where neighbours differ by more than ε, ties share their mean, and values that are
    closer than that get ranks between. (Blondel et al. 2020 rank from the largest.)

    Parameters
    ----------
    z, strength, axis, out : as in `soft_sort`
    regularizer : {"quadratic", "entropic"}
        the entropic one minimises KL(p ‖ e^{z/ε}) over the same permutahedron, for smooth ranks

    Returns
    -------
    array of z's shape, whose rows sum to d (d + 1)/2

    Raises
    ------
    ValueError, TypeError
        as in `soft_sort`

    Examples
    --------
    >>> print(soft_rank([0.0, 5.0, 0.5]))
    [1.25 3.   1.75]
    >>> print(soft_rank([0.0, 5.0, 0.5], 0.1))
    [1. 3. 2.]
    """
    problem = _ranking(z, strength, axis, regularizer, out)
    return problem.finish(problem.unsorted(problem.projection()), out)


def soft_rank_jvp(
    z: Any, v: Any, strength: Any = 1.0, axis: Any = -1, *, regularizer: str = "quadratic"
) -> Any:
    """The derivative of `soft_rank` at z in the direction v: (v − its mean over the block)/ε.

    Parameters
    ----------
    z : as in `soft_rank`
    v : array of z's shape
        a direction
    strength, axis, regularizer : as in `soft_rank`

    Returns
    -------
    array of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `soft_rank`

    Examples
    --------
    >>> print(soft_rank_jvp([0.0, 5.0, 0.5], [1.0, 9.0, 0.0]))
    [ 0.5  0.  -0.5]
    """
    return _ranking(z, strength, axis, regularizer).product(v, "v")


def soft_rank_vjp(
    z: Any, g: Any, strength: Any = 1.0, axis: Any = -1, *, regularizer: str = "quadratic"
) -> Any:
    """The gradient in z of a loss with gradient g in `soft_rank`'s output: J is symmetric.

    Examples
    --------
    >>> print(soft_rank_vjp([0.0, 5.0, 0.5], [1.0, 9.0, 0.0]))
    [ 0.5  0.  -0.5]
    """
    return _ranking(z, strength, axis, regularizer).product(g, "g")


def soft_topk(
    z: Any,
    k: Any,
    strength: Any = 1.0,
    axis: Any = -1,
    *,
    regularizer: str = "quadratic",
    out: Any = None,
) -> Any:
    """Between 0 and 1, how much each entry belongs to the k largest: proj(z/ε; 1, …, 1, 0, …, 0).

    Sparse with the quadratic regulariser, where it is ``budget_sparsemax(z / strength, k)``: 1 for
    what leads and 0 for what falls behind by some ε. Of the values that are largest in magnitude,
    ``z * soft_topk(z**2 / 2, k)`` keeps some k (Sander et al. 2023).

    Parameters
    ----------
    z, strength, axis, out : as in `soft_sort`
    k : int or array that broadcasts against the batch shape
        from 1 up; from d on, all entries belong to the k largest
    regularizer : {"quadratic", "entropic"}
        with the entropic one, nothing is 0 but what underflows

    Returns
    -------
    array of z's shape, whose rows sum to k

    Raises
    ------
    ValueError
        if some k is below 1 or not whole; else as in `soft_sort`
    TypeError
        as in `soft_sort`

    Examples
    --------
    >>> print(soft_topk([0.5, 2.0, 0.0, -1.0], 2))
    [0.75 1.   0.25 0.  ]
    """
    problem = _choosing(z, k, strength, axis, regularizer, out)
    return problem.finish(problem.unsorted(problem.projection()), out)


def soft_topk_jvp(
    z: Any, v: Any, k: Any, strength: Any = 1.0, axis: Any = -1, *, regularizer: str = "quadratic"
) -> Any:
    """The derivative of `soft_topk` at z in the direction v.

    Parameters
    ----------
    z : as in `soft_topk`
    v : array of z's shape
        a direction
    k, strength, axis, regularizer : as in `soft_topk`

    Returns
    -------
    array of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `soft_topk`

    Examples
    --------
    >>> print(soft_topk_jvp([0.5, 2.0, 0.0, -1.0], [1.0, 9.0, 0.0, 9.0], 2))
    [ 0.5  0.  -0.5  0. ]
    """
    return _choosing(z, k, strength, axis, regularizer).product(v, "v")


def soft_topk_vjp(
    z: Any, g: Any, k: Any, strength: Any = 1.0, axis: Any = -1, *, regularizer: str = "quadratic"
) -> Any:
    """The gradient in z of a loss with gradient g in `soft_topk`'s output: J is symmetric.

    Examples
    --------
    >>> print(soft_topk_vjp([0.5, 2.0, 0.0, -1.0], [1.0, 9.0, 0.0, 9.0], 2))
    [ 0.5  0.  -0.5  0. ]
    """
    return _choosing(z, k, strength, axis, regularizer).product(g, "g")


class _Problem(NamedTuple):
    """Rows of proj(x; w), x and w sorted to fall; with `entropic`, of the log-KL projection.

    Attributes
    ----------
    rows : Rows
        of the call
    order : array of int
        which of the caller's entries is the largest, the next, …
    strength : array
        ε, a column or a number
    start : array of bool
        where blocks begin
    is_log : bool
        w holds logarithms, so that the result is the exponential of the projection
    """

    rows: Rows
    order: Any
    strength: Any
    x: Any
    w: Any
    start: Any
    entropic: bool
    is_log: bool

    def projection(self) -> Any:
        """p, sorted to fall."""
        levels = [_level(a, self.start, self.entropic) for a in (self.x, self.w)]
        p = self.x - levels[0] + levels[1]
        return np.exp(p) if self.is_log else p

    def shares(self, a: Any) -> Any:
        """The derivative of the level of each block in its entries: they sum to 1."""
        if self.entropic:
            return np.exp(a - _level(a, self.start, True))
        return 1 / run_sums(np.ones_like(a), self.start)

    def product(self, direction: Any, name: str) -> Any:
        """J v, where only x depends on z."""
        v = np.take_along_axis(self.direction(direction, name), self.order, axis=-1)
        moved = v - run_sums(self.shares(self.x) * v, self.start)
        if self.is_log:
            moved = moved * self.projection()
        return self.finish(self.unsorted(moved / self.strength))

    def direction(self, v: Any, name: str) -> Any:
        """A direction of the shape of z, in rows."""
        v = as_floating(v, name)[0]
        check_same_shape(v.shape, name, self.rows.shape)
        return to_rows(v, self.rows.axes).astype(np.float64, copy=False)

    def unsorted(self, values: Any) -> Any:
        """Values in the order of the caller's entries."""
        return np.take_along_axis(values, np.argsort(self.order, axis=-1), axis=-1)

    def finish(self, values: Any, out: Any = None) -> Any:
        """Values in the caller's form; NaN in rows that hold NaN or infinities."""
        finite = np.isfinite(self.rows.array).all(axis=-1, keepdims=True)
        return self.rows.finish(np.where(finite, values, np.nan), out)


def _sorting(z: Any, strength: Any, axis: Any, regularizer: str, out: Any = None) -> _Problem:
    rows, order, z, strength = _arranged(z, strength, axis, regularizer, out)
    d = z.shape[-1]
    x = np.arange(d, 0, -1, like=z) / strength
    return _problem(rows, order, strength, x + np.zeros_like(z), z, regularizer)


def _ranking(z: Any, strength: Any, axis: Any, regularizer: str, out: Any = None) -> _Problem:
    rows, order, z, strength = _arranged(z, strength, axis, regularizer, out)
    w = np.arange(z.shape[-1], 0, -1, like=z) + np.zeros_like(z)
    return _scaled(rows, order, strength, z, w, regularizer)


def _choosing(
    z: Any, k: Any, strength: Any, axis: Any, regularizer: str, out: Any = None
) -> _Problem:
    rows, order, z, strength = _arranged(z, strength, axis, regularizer, out)
    k = K.checked(k, rows.array)
    w = np.arange(z.shape[-1], like=z) < (k[..., None] if k.ndim else k)
    return _scaled(rows, order, strength, z, w + np.zeros_like(z), regularizer)


def _arranged(
    z: Any, strength: Any, axis: Any, regularizer: str, out: Any
) -> tuple[Rows, Any, Any, Any]:
    """The rows of a call, their order, z sorted in double, and ε as a column."""
    if regularizer not in REGULARIZERS:
        raise ValueError(f"regularizer must be quadratic or entropic, got {regularizer!r}")
    rows = arrange_scores(z, axis, out=out)
    check_one_axis(rows.axes)
    strength = STRENGTH.for_scores(strength, rows)
    finite = np.isfinite(rows.array).all(axis=-1, keepdims=True)
    z = np.where(finite, rows.array, 0).astype(np.float64)
    order = np.argsort(-z, axis=-1, kind="stable")
    return (
        rows,
        order,
        np.take_along_axis(z, order, -1),
        strength[..., None] if strength.ndim else strength,
    )


def _scaled(rows: Rows, order: Any, strength: Any, z: Any, w: Any, regularizer: str) -> _Problem:
    """proj(z/ε; w), or exp of the log-KL projection on log w.

    Where two neighbours are farther apart than w's first and last entry, a block ends between them,
    and how much farther does not matter. So gaps are limited to somewhat more than that, and no
    digits are lost to blocks far away.
    """
    is_log, most = regularizer == "entropic", np.finfo(np.float64).max / (2 * z.shape[-1])
    with np.errstate(divide="ignore", over="ignore"):
        w = np.log(w) if is_log else w
        limit = np.minimum(2 * (w[..., :1] - w[..., -1:]) + 1, most)  # so that x is finite
        gaps = np.minimum((z[..., :-1] - z[..., 1:]) / strength, limit)
    x = np.concatenate([np.zeros_like(z[..., :1]), 0 - np.cumsum(gaps, axis=-1)], axis=-1)
    return _problem(rows, order, strength, x, w, regularizer, is_log)


def _problem(
    rows: Rows, order: Any, strength: Any, x: Any, w: Any, regularizer: str, is_log: bool = False
) -> _Problem:
    entropic = regularizer == "entropic"
    if entropic:
        start, _ = pooled(lambda start: _level(x, start, True) - _level(w, start, True), x)
    else:
        y, v = x - w, np.empty_like(x)
        falling_rows(y, out=v)
        start = np.ones_like(v, dtype=bool)
        start[..., 1:] = v[..., 1:] != v[..., :-1]
        start |= run_sums(v != y, start) == 0  # equal from the first, and not pooled
    return _Problem(rows, order, strength, x, w, start, entropic, is_log)


def _level(a: Any, start: Any, entropic: bool) -> Any:
    """The mean of each block or its log-sum-exp, at each of its entries; a falls along the row."""
    if not entropic:
        return run_means(a, start)
    places = np.maximum.accumulate(np.where(start, np.arange(a.shape[-1], like=a), 0), axis=-1)
    top = np.take_along_axis(a, places.astype(np.int64), axis=-1)
    top = np.where(top == -np.inf, 0, top)
    with np.errstate(divide="ignore"):
        return top + np.log(run_sums(np.exp(a - top), start))
