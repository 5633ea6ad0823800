r"""What the heads of a Transformer do: how dense they are, how they differ, where they look.

All functions take the attention weights of one sentence, of shape (…, T, S) for T queries and S
keys, without padding: as `corpus_attention` gives them for each kind, (layers, heads, T, S), or of
a single head, (T, S). Each result has one number per head, except the diversity, which has one per
layer. `measure_heads` averages them over a corpus.

The measures are those of Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def head_densities(weights: ArrayLike, *, causal: bool = False) -> Floats:
    """Mean share of the keys that get a weight above zero, for each head (Figures 4, 5).

    Parameters
    ----------
    weights : (…, T, S) array
    causal : bool, default False
        Whether query t may look at the keys 0 … t only.

    Returns
    -------
    (…) array, from 0 to 1

    Examples
    --------
    >>> weights = [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]  # two heads
    >>> head_densities(weights)
    array([0.5, 1. ])
    >>> head_densities(weights, causal=True)[0]
    np.float64(0.75)
    """
    p = _weights(weights)
    available = _available_keys(p, causal)
    positive = (p > 0) & (np.arange(p.shape[-1]) < available[:, None])
    return np.asarray((positive.sum(axis=-1) / available).mean(axis=-1))


def head_diversity(weights: ArrayLike, *, causal: bool = False) -> Floats:
    r"""Jensen-Shannon divergence between the heads of a layer, averaged over queries (Eq. 11).

    .. math:: JS = H^S\Big(\frac1H \sum_j p_j\Big) - \frac1H \sum_j H^S(p_j)

    with Shannon's entropy to the base of the number of keys, so that 0 ≤ JS ≤ 1: it is 0 if all
    heads look alike. Queries with a single key, where no two heads can differ, do not count.

    Parameters
    ----------
    weights : (…, H, T, S) array
    causal : as in `head_densities`

    Returns
    -------
    (…) array, from 0 to 1

    Raises
    ------
    ValueError
        If no query has two keys.

    Examples
    --------
    >>> head_diversity([[[1.0, 0.0]], [[0.0, 1.0]]])  # two heads, one query: all they can differ
    array(1.)
    >>> head_diversity([[[0.9, 0.1]], [[0.9, 0.1]]])
    array(0.)
    """
    p = _weights(weights)
    available = _available_keys(p, causal)
    counted = available > 1
    if not counted.any():
        raise ValueError("weights: expected a query with two keys, got none")
    entropies = _entropy(p).mean(axis=-2)
    divergence = (_entropy(p.mean(axis=-3)) - entropies)[..., counted] / np.log(available[counted])
    # Rounding may take heads that look alike below zero.
    return np.asarray(np.maximum(divergence, 0).mean(axis=-1))


def positional_confidence(weights: ArrayLike, offset: int) -> Floats:
    """Mean weight of query t on position t + offset, for each head of self-attention (Figure 7).

    A head with a confidence near 1 at −1 is a previous-token head. A query counts if there is a
    token at that offset.

    Parameters
    ----------
    weights : (…, T, T) array
    offset : int
        Such as −1, 0 or +1; smaller than T.

    Returns
    -------
    (…) array, from 0 to 1

    Examples
    --------
    >>> looks_back = np.eye(3, k=-1)  # the first token has nothing before it
    >>> positional_confidence(looks_back, -1), positional_confidence(looks_back, 0)
    (array(1.), array(0.))
    """
    p = _weights(weights, square=True)
    if abs(offset) >= p.shape[-1]:
        raise ValueError(f"offset: expected less than {p.shape[-1]} tokens, got {offset:+d}")
    return np.asarray(np.diagonal(p, offset, -2, -1).mean(axis=-1))


def attention_to(weights: ArrayLike, queries: ArrayLike, keys: ArrayLike) -> Floats:
    """Mean mass that the chosen queries put on the chosen keys, for each head (Figure 9).

    With the interrogative words as queries and the question mark as key, the head with the most is
    the interrogation head; with the last source token as key, Explicit Sparse Transformer, Fig. 4.

    Parameters
    ----------
    weights : (…, T, S) array
    queries : (T,) bool array
        One query at least.
    keys : (S,) bool array

    Returns
    -------
    (…) array, from 0 to 1

    Examples
    --------
    >>> weights = [[0.1, 0.0, 0.9], [0.5, 0.5, 0.0]]  # of "who sleeps" at "who sleeps ?"
    >>> attention_to(weights, [True, False], [False, False, True])
    array(0.9)
    """
    chosen, looked_at = (np.asarray(side, dtype=bool) for side in (queries, keys))
    if not chosen.any():
        raise ValueError("queries: expected at least one, got none")
    return np.asarray(_weights(weights)[..., chosen, :][..., looked_at].sum(axis=-1).mean(axis=-1))


def merging_scores(weights: ArrayLike, clusters: Iterable[Sequence[int]]) -> Floats:
    """How well each head of self-attention joins the pieces of a word (§5.2, Figure 8).

    The score of a cluster, the positions of the pieces of one word, is the most attention that any
    of its tokens puts on the rest of it; of a cluster of one, what it puts on itself. A head's
    score is the mean over clusters. A head that only looks at its own position joins nothing, but
    gets 1 for every cluster of one: give clusters of at least two to look for joining.

    Parameters
    ----------
    weights : (…, T, T) array
    clusters : iterable of clusters, one at least
        The positions of the pieces of a word, for each word of several.

    Returns
    -------
    (…) array, from 0 to 1

    Examples
    --------
    >>> p = np.array([[0.0, 1.0, 0.0], [0.2, 0.0, 0.8], [0.0, 0.0, 1.0]])
    >>> merging_scores(p, [(0, 1)]), merging_scores(p, [(1, 2), (2,)])
    (array(1.), array(0.9))
    """
    p = _weights(weights, square=True)
    scores = []
    for cluster in clusters:
        inside = p[..., np.array(cluster)[:, None], cluster]
        if len(cluster) > 1:
            inside = inside * (1 - np.eye(len(cluster)))
        scores.append(inside.sum(axis=-1).max(axis=-1))
    if not scores:
        raise ValueError("clusters: expected at least one, got none")
    return np.asarray(np.mean(scores, axis=0))


def _weights(weights: ArrayLike, square: bool = False) -> Floats:
    p = np.asarray(weights, dtype=np.float64)
    if p.ndim < 2 or (square and p.shape[-2] != p.shape[-1]):
        expected = "(…, T, T), those of self-attention" if square else "(…, queries, keys)"
        raise ValueError(f"weights: expected the shape {expected}, got {p.shape}")
    return p


def _available_keys(p: Floats, causal: bool) -> NDArray[np.int64]:
    """The number of keys that each query may look at."""
    rows, columns = p.shape[-2:]
    return np.minimum(np.arange(1, rows + 1), columns) if causal else np.full(rows, columns)


def _entropy(p: Floats) -> Any:
    return -np.sum(p * np.log(p, out=np.zeros_like(p), where=p > 0), axis=-1)
