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

soft_topk is sparsemax(z/ε) for k = 1, and budget_sparsemax(z/ε, k) for any k. The paper's entropic
regulariser, KL(p ‖ eˣ) in the place of ½‖p − x‖², is not here; soft_topk of it with k = 1 is
softmax(z/ε).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.backends.choice import writes_out
from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.engine.calls.parameters import PerRow
from pyentmax.engine.calls.rows import (
    arrange_scores,
    check_one_axis,
    check_same_shape,
    to_rows,
)
from pyentmax.reference.mappings._fused import pooled, run_means, run_sums
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


def soft_sort(z: Any, strength: Any = 1.0, axis: Any = -1, *, out: Any = None) -> Any:
    """z sorted to rise, differentiably: proj((1, …, d)/ε; z), ε the strength.

    Exactly sorted where neighbours differ by less than 1/ε; a block of values that are farther
    apart is pulled to its mean, and as ε grows all values are. (Blondel et al. 2020 sort to fall.)

    Parameters
    ----------
    z : array
    strength : float or array that broadcasts against the batch shape (z's without the axis)
        ε > 0
    axis : int
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
    return _Call(z, SORTED, strength, axis, out).forward(out)


def soft_sort_jvp(z: Any, v: Any, strength: Any = 1.0, axis: Any = -1) -> Any:
    """The derivative of `soft_sort` at z in the direction v: its means over the blocks.

    Parameters
    ----------
    z : as in `soft_sort`
    v : array of z's shape
        a direction
    strength, axis : as in `soft_sort`

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
    return _Call(z, SORTED, strength, axis).product(v, "v")


def soft_sort_vjp(z: Any, g: Any, strength: Any = 1.0, axis: Any = -1) -> Any:
    """The gradient in z of a loss with gradient g in `soft_sort`'s output.

    Examples
    --------
    >>> print(soft_sort_vjp([2.0, -1.0, 0.0], [0.0, 0.0, 3.0], 0.4))
    [3. 0. 0.]
    """
    return _Call(z, SORTED_TRANSPOSED, strength, axis).product(g, "g")


def soft_rank(z: Any, strength: Any = 1.0, axis: Any = -1, *, out: Any = None) -> Any:
    """Ranks of z, 1 for the least and d for the largest: proj(z/ε; 1, …, d), ε the strength.

    Exact ranks where neighbours differ by more than ε, ties share their mean, and values that are
    closer than that get ranks between. (Blondel et al. 2020 rank from the largest.)

    Parameters
    ----------
    z, strength, axis, out : as in `soft_sort`

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
    return _Call(z, RANKS, strength, axis, out).forward(out)


def soft_rank_jvp(z: Any, v: Any, strength: Any = 1.0, axis: Any = -1) -> Any:
    """The derivative of `soft_rank` at z in the direction v: (v − its mean over the block)/ε.

    Parameters
    ----------
    z : as in `soft_rank`
    v : array of z's shape
        a direction
    strength, axis : as in `soft_rank`

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
    return _Call(z, RANKS, strength, axis).product(v, "v")


def soft_rank_vjp(z: Any, g: Any, strength: Any = 1.0, axis: Any = -1) -> Any:
    """The gradient in z of a loss with gradient g in `soft_rank`'s output: J is symmetric.

    Examples
    --------
    >>> print(soft_rank_vjp([0.0, 5.0, 0.5], [1.0, 9.0, 0.0]))
    [ 0.5  0.  -0.5]
    """
    return _Call(z, RANKS, strength, axis).product(g, "g")


def soft_topk(z: Any, k: Any, strength: Any = 1.0, axis: Any = -1, *, out: Any = None) -> Any:
    """Between 0 and 1, how much each entry belongs to the k largest: proj(z/ε; 1, …, 1, 0, …, 0).

    It is ``budget_sparsemax(z / strength, k)``, and sparse: 1 for what leads and 0 for what falls
    behind by some ε. Of the values that are largest in magnitude, ``z * soft_topk(z**2 / 2, k)``
    keeps some k (Sander et al. 2023).

    Parameters
    ----------
    z, strength, axis, out : as in `soft_sort`
    k : int or array that broadcasts against the batch shape
        from 1 up; from d on, all entries belong to the k largest

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
    return _Call(z, k, strength, axis, out).forward(out)


def soft_topk_jvp(z: Any, v: Any, k: Any, strength: Any = 1.0, axis: Any = -1) -> Any:
    """The derivative of `soft_topk` at z in the direction v.

    Parameters
    ----------
    z : as in `soft_topk`
    v : array of z's shape
        a direction
    k, strength, axis : as in `soft_topk`

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
    return _Call(z, k, strength, axis).product(v, "v")


def soft_topk_vjp(z: Any, g: Any, k: Any, strength: Any = 1.0, axis: Any = -1) -> Any:
    """The gradient in z of a loss with gradient g in `soft_topk`'s output: J is symmetric.

    Examples
    --------
    >>> print(soft_topk_vjp([0.5, 2.0, 0.0, -1.0], [1.0, 9.0, 0.0, 9.0], 2))
    [ 0.5  0.  -0.5  0. ]
    """
    return _Call(z, k, strength, axis).product(g, "g")


class _Call:
    """A call's rows and parameters, checked; k counts the largest, or is one of those below."""

    def __init__(self, z: Any, k: Any, strength: Any, axis: Any, out: Any = None) -> None:
        self.rows = arrange_scores(z, axis, out=out)
        check_one_axis(self.rows.axes)
        self.strength = STRENGTH.for_scores(strength, self.rows)
        self.k = k if isinstance(k, _Instead) else K.checked(k, self.rows.array)

    def forward(self, out: Any) -> Any:
        """p, in the caller's form."""
        return self.rows.finish(self._run(permutahedron, self.rows.array), out)

    def product(self, direction: Any, name: str) -> Any:
        """J v, or Jᵀ v, in the caller's form."""
        v, z = as_floating(direction, name)[0], self.rows.array
        check_same_shape(v.shape, name, self.rows.shape)
        v = to_rows(v, self.rows.axes).astype(z.dtype, copy=False)
        return self.rows.finish(self._run(permutahedron_product, z, v))

    @np.errstate(under="ignore")
    def _run(self, function: Any, *rows: Any) -> Any:
        result = np.empty_like(rows[0])
        function(*rows, self.k, self.strength, out=result)
        return result


class _Instead(float):
    """For k: what is asked for instead of the k largest, or that the derivative be transposed."""


RANKS, SORTED, SORTED_TRANSPOSED = _Instead(0), _Instead(-1), _Instead(-2)


@writes_out
def permutahedron(z: Any, k: Any, strength: Any, *, out: Any) -> None:
    """proj of rows, in the order that k asks for; NaN in rows that hold NaN or infinities."""
    problem = _problem(z, k, strength)
    p = problem.projection()
    p = p[..., ::-1] if problem.sorting else problem.unsorted(p)
    out[...] = np.where(np.isfinite(z).all(axis=-1, keepdims=True), p, np.nan)


@writes_out
def permutahedron_product(z: Any, v: Any, k: Any, strength: Any, *, out: Any) -> None:
    """J v of rows, in which only w depends on z for sorting, and else only x."""
    problem = _problem(z, k, strength)
    shares, start, v = problem.shares(), problem.start, v.astype(np.float64)
    if problem.sorting and k == SORTED_TRANSPOSED:
        moved = problem.unsorted(shares * run_sums(v[..., ::-1], start))
    else:
        moved = np.take_along_axis(v, problem.order, axis=-1)
        if problem.sorting:
            moved = run_sums(shares * moved, start)[..., ::-1]
        else:
            moved = moved - run_sums(shares * moved, start)
            moved = problem.unsorted(moved / _column(strength))
    out[...] = np.where(np.isfinite(z).all(axis=-1, keepdims=True), moved, np.nan)


class _Problem(NamedTuple):
    """Rows of proj(x; w), x and w sorted to fall.

    Attributes
    ----------
    order : array of int
        which of the caller's entries is the largest, the next, …
    start : array of bool
        where blocks begin
    sorting : bool
        w depends on z, and not x
    """

    order: Any
    x: Any
    w: Any
    start: Any
    sorting: bool

    def projection(self) -> Any:
        """p, sorted to fall."""
        return self.x - run_means(self.x, self.start) + run_means(self.w, self.start)

    def shares(self) -> Any:
        """The derivative of the mean of each block in its entries: they sum to 1."""
        return 1 / run_sums(np.ones_like(self.x), self.start)

    def unsorted(self, values: Any) -> Any:
        """Values in the order of the caller's entries."""
        return np.take_along_axis(values, np.argsort(self.order, axis=-1), axis=-1)


def _problem(z: Any, k: Any, strength: Any) -> _Problem:
    """The rows that k asks for, sorted in double and pooled.

    Where two neighbours are farther apart than w's first and last entry, a block ends between them,
    and how much farther does not matter. So gaps are limited to somewhat more than that, and no
    digits are lost to blocks far away.
    """
    finite = np.isfinite(z).all(axis=-1, keepdims=True)
    z = np.where(finite, z, 0).astype(np.float64)
    order = np.argsort(-z, axis=-1, kind="stable")
    z, strength, d = np.take_along_axis(z, order, -1), _column(strength), z.shape[-1]
    sorting = isinstance(k, float) and k < 0
    if sorting:
        x, w = np.arange(d, 0, -1, like=z) / strength + np.zeros_like(z), z
    else:
        ranks = isinstance(k, float) and k == RANKS
        w = np.arange(d, 0, -1, like=z) if ranks else np.arange(d, like=z) < _column(k)
        most = np.finfo(np.float64).max / (2 * d)
        with np.errstate(over="ignore"):
            w = w + np.zeros_like(z)
            limit = np.minimum(2 * (w[..., :1] - w[..., -1:]) + 1, most)  # so that x is finite
            gaps = np.minimum((z[..., :-1] - z[..., 1:]) / strength, limit)
        x = np.concatenate([np.zeros_like(z[..., :1]), 0 - np.cumsum(gaps, axis=-1)], axis=-1)
    start, _ = pooled(lambda start: run_means(x - w, start), x)
    return _Problem(order, x, w, start, sorting)


def _column(parameter: Any) -> Any:
    """A number of each row, or of all, as it broadcasts against their entries."""
    return parameter[..., None] if np.ndim(parameter) else parameter
