"""SparseMAP: a handful of structures, found by any maximiser that is given (Niculae et al. 2018).

Problem: argmax over the convex hull of structures {a_1, a_2, …} of μ·z − ½‖μ‖². A structure is a
vector that says which of its parts are there: the k of n that are chosen, the edges of a matching
or a tree, the transitions of a sequence. There are too many to list, but an oracle finds the best
one, argmax_s a_s·z, and that is all it takes: μ = Σ_s p_s a_s with few p_s > 0, at most one more
than z has entries. One of n gives sparsemax, k of n `budget_sparsemax`.

The active set (Wolfe's minimum-norm point, for z − μ): keep some structures and the best p for
them. Ask the oracle at the residual z − μ. If its answer gains nothing, (z − μ)·(a − μ) ≤ 0, then μ
is optimal: that is Frank and Wolfe's gap. Else add it, and move p towards the best weights of sum
1; when one becomes 0 on the way, drop its structure and go on.

The support of p is locally constant, and the best weights of sum 1 project z on the structures'
affine hull. So J is the projection on the directions between them, symmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.mappings import sparsemax as _sparsemax

__all__ = [
    "Oracle",
    "SparseMap",
    "best_matching",
    "best_path",
    "best_tree",
    "k_of_n",
    "sparsemap",
    "sparsemap_jvp",
    "sparsemap_vjp",
]

Oracle = Callable[[np.ndarray], Any]
"""From scores z to the structure a that maximises a·z, an array of z's shape."""


def textbook(z: Any, structures: Any) -> np.ndarray:
    """μ with all structures listed: p on the simplex by projected gradients of p·Az − ½‖Aᵀp‖².

    >>> textbook([1.0, 0.5, -2.0], [[1, 1, 0], [1, 0, 1], [0, 1, 1]]).round(6)  # 2 of 3
    array([1., 1., 0.])
    """
    z, a = np.asarray(z, float), np.asarray(structures, float)
    p = np.full(len(a), 1 / len(a))
    step = 1 / np.linalg.norm(a @ a.T, 2)
    for _ in range(2000):
        p = _sparsemax.textbook(p + step * a @ (z - a.T @ p))
    return a.T @ p


# --- the active set -------------------------------------------------------------------------------


class SparseMap(NamedTuple):
    """The result of `sparsemap`.

    Attributes
    ----------
    mean : array of the scores' shape
        μ, how much each part is in the structures
    structures : array of shape (s, …)
        those with a probability above 0
    p : array of shape (s,)
        their probabilities
    gap : float
        Frank and Wolfe's: by how much the objective may be below its maximum
    """

    mean: np.ndarray
    structures: np.ndarray
    p: np.ndarray
    gap: float


def sparsemap(scores: Any, oracle: Oracle, *, max_steps: int = 1000) -> SparseMap:
    """The sparse distribution over structures with the best mean: argmax of μ·z − ½‖μ‖².

    Parameters
    ----------
    scores : array of any shape, finite
        z, a score for each part
    oracle : callable
        from scores to the best structure, 1 where a part is in it and 0 elsewhere (any vectors do),
        of the shape of the scores. Ready ones: `k_of_n`, `best_path`, `best_matching`, `best_tree`
    max_steps : int
        the most calls of the oracle

    Returns
    -------
    SparseMap
        its mean, structures, probabilities and gap

    Raises
    ------
    ValueError
        if scores are not finite, a structure has another shape, or max_steps do not suffice
    TypeError
        if oracle is not a function

    Examples
    --------
    >>> found = sparsemap([1.0, 0.8, 0.1, -2.0], k_of_n(2))
    >>> print(found.mean.round(4), found.p.round(4), found.structures.tolist())
    [1.   0.85 0.15 0.  ] [0.85 0.15] [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]]

    Its loss for a structure a, at least 0 and 0 only where μ = a, has the gradient μ − a:

    >>> z, a = np.array([1.0, 0.8, 0.1, -2.0]), np.array([1.0, 1.0, 0.0, 0.0])
    >>> print(round(float(np.sum((a - z) ** 2) - np.sum((found.mean - z) ** 2)) / 2, 4))
    0.0225
    """
    if not callable(oracle):
        raise TypeError(f"oracle must be a function of the scores, got {oracle!r}")
    z = np.asarray(scores, np.float64)
    if not np.isfinite(z).all():
        raise ValueError("scores must be finite; give a part that is ruled out a very low score")

    def best_at(residual: np.ndarray) -> np.ndarray:
        a = np.asarray(oracle(residual), np.float64)
        if a.shape != z.shape:
            raise ValueError(f"oracle: expected a structure of shape {z.shape}, got {a.shape}")
        return a

    active, p = best_at(z)[None], np.ones(1)
    for _ in range(max_steps):
        mean = np.tensordot(p, active, 1)
        best = best_at(z - mean)
        gap = float(np.sum((z - mean) * (best - mean)))
        scale = float(np.sum((np.abs(z) + np.abs(mean)) * (np.abs(best) + np.abs(mean))))
        known = (active == best).reshape(len(active), -1).all(axis=1).any()
        if known or gap <= 64 * np.finfo(np.float64).eps * scale:
            return SparseMap(mean, active, p, max(gap, 0.0))
        active, p = _optimal_weights(z, np.concatenate([active, best[None]]), np.append(p, 0))
    raise ValueError(
        f"max_steps={max_steps} calls of the oracle were not enough, the gap is still {gap:g}; "
        "allow more, or check that it returns the best structure"
    )


def _optimal_weights(
    z: np.ndarray, active: np.ndarray, p: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The structures that stay, and the p ≥ 0 of sum 1 that is best for them."""
    while True:
        # Σ p = 1 leaves the directions from the first structure: least squares of what z lacks.
        directions = (active[1:] - active[0]).reshape(len(active) - 1, z.size).T
        # What all share has no weight here, but its score may round away those of the others.
        differ = directions.any(axis=1)
        lacking = (z - active[0]).ravel()[differ]
        rest = np.linalg.lstsq(directions[differ], lacking, rcond=None)[0]
        best = np.append(1 - rest.sum(), rest)
        falls = best <= 0
        if not falls.any():
            return active, best
        # As far as the first that becomes 0; the newest starts there, and is on its way up.
        step = np.min(p[falls] / np.maximum(p[falls] - best[falls], np.finfo(np.float64).tiny))
        p = p + min(step, 1) * (best - p)
        stays = ~falls | (p > np.finfo(np.float64).eps)
        stays[np.argmin(np.where(falls, p, np.inf))] = False
        active, p = active[stays], np.maximum(p[stays], 0)


def sparsemap_jvp(structures: Any, v: Any) -> np.ndarray:
    """J v, the change of `sparsemap`'s mean for a change v of the scores.

    J projects on the directions between the structures of the result.

    Parameters
    ----------
    structures : array of shape (s, …)
        of the result
    v : array of the scores' shape

    Returns
    -------
    array of the scores' shape

    Raises
    ------
    ValueError
        if shapes do not fit

    Examples
    --------
    >>> found = sparsemap([1.0, 0.8, 0.1, -2.0], k_of_n(2))
    >>> print(sparsemap_jvp(found.structures, [9.0, 1.0, 0.0, 9.0]).round(4) + 0)
    [ 0.   0.5 -0.5  0. ]
    """
    active, v = np.asarray(structures, np.float64), np.asarray(v, np.float64)
    if active.shape[1:] != v.shape:
        raise ValueError(f"v must have the shape of the scores, {active.shape[1:]}, got {v.shape}")
    directions = (active[1:] - active[0]).reshape(len(active) - 1, v.size).T
    weights = np.linalg.lstsq(directions, v.ravel(), rcond=None)[0]
    return (directions @ weights).reshape(v.shape)


# J is symmetric, being a projection.
sparsemap_vjp = sparsemap_jvp


# --- oracles --------------------------------------------------------------------------------------


def k_of_n(k: int) -> Oracle:
    """The k largest scores, 0 ≤ k ≤ n.

    >>> k_of_n(2)(np.array([0.3, 0.1, 0.5])).tolist()
    [1.0, 0.0, 1.0]
    """

    def oracle(z: np.ndarray) -> np.ndarray:
        if not 0 <= k <= z.size:
            raise ValueError(f"k_of_n: k must be from 0 to {z.size}, the number of parts, got {k}")
        a = np.zeros(z.size)
        a[np.argsort(-z, axis=None, kind="stable")[:k]] = 1
        return a.reshape(z.shape)

    return oracle


def best_path(z: np.ndarray) -> np.ndarray:
    """The best sequence of labels, by Viterbi: z[t, i, j] scores i at t and j at t + 1.

    Its structure has a 1 for each transition. For T labels out of K, z has shape (T − 1, K, K).

    >>> best_path(np.array([[[0.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 3.0]]])).tolist()
    [[[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]
    """
    total, back = np.zeros(z.shape[1]), []
    for step in z:
        candidates = total[:, None] + step
        back.append(candidates.argmax(axis=0))
        total = candidates.max(axis=0)
    a, label = np.zeros_like(z), int(total.argmax())
    for t in range(len(z) - 1, -1, -1):
        before = int(back[t][label])
        a[t, before, label] = 1
        label = before
    return a


def best_matching(z: np.ndarray) -> np.ndarray:
    """The best matching of rows with columns, by SciPy; of a tall z, each column gets a row.

    >>> best_matching(np.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError("best_matching needs SciPy: pip install 'pyentmax[sparse]'") from error
    a = np.zeros_like(z)
    a[linear_sum_assignment(z, maximize=True)] = 1
    return a


def best_tree(z: np.ndarray) -> np.ndarray:
    """The best tree out of node 0, not necessarily projective, by NetworkX: z[i, j] scores i → j.

    Every node but 0 has one parent; column 0 and the diagonal are not used.

    >>> z = np.array([[0.0, 2.0, 1.0], [0.0, 0.0, 5.0], [0.0, 1.0, 0.0]])
    >>> best_tree(z).tolist()  # doctest: +SKIP
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    try:
        import networkx  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError("best_tree needs NetworkX: pip install networkx") from error
    n, a = len(z), np.zeros_like(z)
    usable = ~np.eye(n, dtype=bool) & (np.arange(n) > 0)
    # Every node but 0 has one parent, so that only differences from its best one count. A tree of
    # edges that are all at least `least` exists; an edge below n times that is in no best tree, and
    # NetworkX, which adds the range of all weights to each, would round the others away by it.
    below_best = np.where(usable, z - np.max(z, axis=0, where=usable, initial=-np.inf), -np.inf)
    reached = np.where(np.arange(n) == 0, 0.0, -np.inf)
    for _ in range(n):
        reached = np.maximum(reached, np.minimum(reached[:, None], below_best).max(axis=0))
    least = float(reached.min())
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(n))
    ends = np.argwhere(usable & (below_best >= n * least)).tolist()
    graph.add_weighted_edges_from((i, j, float(below_best[i, j])) for i, j in ends)
    for i, j in networkx.maximum_spanning_arborescence(graph).edges:
        a[i, j] = 1
    return a
