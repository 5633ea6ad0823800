r"""What the heads of a Transformer do: how dense they are, how they differ, where they look.

All functions take attention weights of shape (B, H, T, S): of B sentences, H heads, T queries and S
keys, as :meth:`pyentmax.models.transformer.Transformer.attention_weights` gives them for each kind
and layer. The bool arrays ``queries`` (B, T) and ``keys`` (B, S) are True for tokens and False for
padding; by default they are all True. Every result has one number per head, except the diversity,
which is one number per layer.

The measures are those of Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def head_densities(
    weights: ArrayLike,
    *,
    queries: ArrayLike | None = None,
    keys: ArrayLike | None = None,
    causal: bool = False,
) -> Floats:
    """Mean share of the allowed keys that get a weight above zero, for each head (Figures 4, 5).

    Parameters
    ----------
    weights : (B, H, T, S) array
    queries, keys : (B, T) and (B, S) bool arrays, optional
        Where there are tokens.
    causal : bool, default False
        Whether query t may look at the keys 0 … t only.

    Returns
    -------
    (H,) array, from 0 to 1

    Raises
    ------
    ValueError
        If shapes do not fit, or no query has an allowed key.

    Examples
    --------
    >>> looks = [[[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]]  # two heads
    >>> head_densities(looks)
    array([0.5, 1. ])
    >>> head_densities(looks, causal=True)[0]
    np.float64(0.75)
    """
    p, counted, allowed = _arguments(weights, queries, keys, causal)
    available = allowed.sum(axis=-1)
    counted &= available > 0
    share = ((p > 0) & allowed[:, None]).sum(axis=-1) / np.maximum(available, 1)[:, None]
    return _mean(share, counted, "an allowed key")


def head_diversity(
    weights: ArrayLike,
    *,
    queries: ArrayLike | None = None,
    keys: ArrayLike | None = None,
    causal: bool = False,
) -> float:
    r"""Jensen-Shannon divergence between the heads of a layer, averaged over queries (Eq. 11).

    .. math:: JS = H^S\Big(\frac1H \sum_j p_j\Big) - \frac1H \sum_j H^S(p_j)

    with Shannon's entropy to the base of the number of allowed keys, so that 0 ≤ JS ≤ 1: it is 0 if
    all heads look alike. Queries with a single allowed key, where no two heads can differ, do not
    count.

    Parameters
    ----------
    weights, queries, keys, causal : as in `head_densities`

    Raises
    ------
    ValueError
        If shapes do not fit, or no query has two allowed keys.

    Examples
    --------
    >>> head_diversity([[[[1.0, 0.0]], [[0.0, 1.0]]]])  # two heads, one query: all they can differ
    1.0
    >>> head_diversity([[[[0.9, 0.1]], [[0.9, 0.1]]]])
    0.0
    """
    p, counted, allowed = _arguments(weights, queries, keys, causal)
    available = allowed.sum(axis=-1)
    counted &= available > 1
    entropies = _entropy(p).mean(axis=1)
    base = np.log(np.maximum(available, 2))
    divergence = (_entropy(p.mean(axis=1)) - entropies) / base
    # Rounding may take heads that look alike below zero.
    return float(_mean(np.maximum(divergence, 0)[:, None], counted, "two allowed keys")[0])


def positional_confidence(
    weights: ArrayLike, offset: int, *, queries: ArrayLike | None = None
) -> Floats:
    """Mean weight of query t on position t + offset, for each head of self-attention (Figure 7).

    A head with a confidence near 1 at −1 is a previous-token head.

    Parameters
    ----------
    weights : (B, H, T, T) array
    offset : int
        Such as −1, 0 or +1.
    queries : (B, T) bool array, optional
        Where there are tokens. A query counts if the position that it should look at has one too.

    Returns
    -------
    (H,) array, from 0 to 1

    Raises
    ------
    ValueError
        If shapes do not fit, or no query has a token at that offset.

    Examples
    --------
    >>> looks_back = np.eye(3, k=-1)[None, None]  # the first token has nothing before it
    >>> positional_confidence(looks_back, -1), positional_confidence(looks_back, 0)
    (array([1.]), array([0.]))
    """
    p, counted, allowed = _arguments(weights, queries, queries, False)
    length = p.shape[-1]
    _check_square(p)
    place = np.arange(length) + offset
    inside = (place >= 0) & (place < length)
    place = np.clip(place, 0, length - 1)
    counted &= inside & np.take_along_axis(allowed[:, 0], place[None], axis=1)
    return _mean(p[:, :, np.arange(length), place], counted, f"a token at offset {offset:+d}")


def attention_to(weights: ArrayLike, queries: ArrayLike, keys: ArrayLike) -> Floats:
    """Mean mass that the chosen queries put on the chosen keys, for each head (Figure 9).

    With the interrogative words as queries and the question mark as key, the head with the most is
    the interrogation head; with the last source token as key, Explicit Sparse Transformer, Fig. 4.

    Parameters
    ----------
    weights : (B, H, T, S) array
    queries : (B, T) bool array
    keys : (B, S) bool array
        Sentences without such a key count as 0: choose their queries only if that is meant.

    Returns
    -------
    (H,) array, from 0 to 1

    Raises
    ------
    ValueError
        If shapes do not fit, or no query is chosen.

    Examples
    --------
    >>> looks = [[[[0.1, 0.0, 0.9], [0.5, 0.5, 0.0]]]]  # "who sleeps" and the keys "who sleeps ?"
    >>> attention_to(looks, [[True, False]], [[False, False, True]])
    array([0.9])
    """
    p, counted, allowed = _arguments(weights, queries, keys, False)
    mass = np.where(allowed[:, None], p, 0).sum(axis=-1)
    return _mean(mass, counted, "been chosen")


def merging_scores(weights: ArrayLike, clusters: Sequence[Iterable[Sequence[int]]]) -> Floats:
    """How well each head of self-attention joins the pieces of a word (§5.2, Figure 8).

    The score of a cluster, the positions of the pieces of one word, is the most attention that any
    of its tokens puts on the rest of it; of a cluster of one, what it puts on itself. A head's
    score is the mean over clusters. A head that only looks at its own position joins nothing, but
    gets 1 for every cluster of one: give clusters of at least two to look for joining.

    Parameters
    ----------
    weights : (B, H, T, T) array
    clusters : sequence of B lists of clusters
        As from `word_clusters`.

    Returns
    -------
    (H,) array, from 0 to 1

    Raises
    ------
    ValueError
        If shapes do not fit, a position is outside the sentence, or there is no cluster.

    Examples
    --------
    >>> p = np.array([[[[0.0, 1.0, 0.0], [0.2, 0.0, 0.8], [0.0, 0.0, 1.0]]]])
    >>> merging_scores(p, [[(0, 1)]]), merging_scores(p, [[(1, 2), (2,)]])
    (array([1.]), array([0.9]))
    """
    p = _weights(weights)
    _check_square(p)
    if len(clusters) != len(p):
        raise ValueError(
            f"clusters: expected a list for each of {len(p)} sentences, got {len(clusters)}"
        )
    scores, last = [], p.shape[-1] - 1
    for sentence, words in zip(p, clusters, strict=True):
        for cluster in words:
            places = np.unique(np.asarray(cluster, dtype=np.intp))
            if not len(places) or places[0] < 0 or places[-1] > last:
                raise ValueError(f"clusters: expected positions from 0 to {last}, got {cluster}")
            inside = sentence[:, places[:, None], places]
            if len(places) > 1:
                inside = inside * (1 - np.eye(len(places)))
            scores.append(inside.sum(axis=-1).max(axis=-1))
    if not scores:
        raise ValueError("clusters: expected one at least, got none")
    return np.mean(scores, axis=0)


def word_clusters(
    pieces: Sequence[str], *, begins: str = "▁", smallest: int = 2
) -> list[tuple[int, ...]]:
    """The positions of the pieces of each word, for words of at least ``smallest`` pieces.

    Parameters
    ----------
    pieces : sequence of str
        A sentence cut into sub-words, where the first of each word begins with ``begins``, as in
        sentencepiece.
    begins : str
    smallest : int, default 2

    Examples
    --------
    >>> word_clusters(["▁der", "▁hund", "e", "kuchen", "▁liegt"])
    [(1, 2, 3)]
    """
    words: list[list[int]] = []
    for i, piece in enumerate(pieces):
        if piece.startswith(begins) or not words:
            words.append([])
        words[-1].append(i)
    return [tuple(word) for word in words if len(word) >= smallest]


def _arguments(
    weights: ArrayLike, queries: ArrayLike | None, keys: ArrayLike | None, causal: bool
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Weights; which queries count (B, T); and which keys they may look at (B, T, S)."""
    p = _weights(weights)
    batch, _, rows, columns = p.shape
    counted = _mask("queries", queries, (batch, rows)).copy()
    allowed = np.repeat(_mask("keys", keys, (batch, columns))[:, None], rows, axis=1)
    if causal:
        allowed &= np.tri(rows, columns, dtype=bool)
    return p, counted, allowed


def _weights(weights: ArrayLike) -> Floats:
    p = np.asarray(weights, dtype=np.float64)
    if p.ndim != 4:
        raise ValueError(
            "weights: expected shape (sentences, heads, queries, keys), got "
            f"{p.ndim} dimensions: {p.shape}"
        )
    return p


def _mask(name: str, mask: ArrayLike | None, shape: tuple[int, int]) -> NDArray[np.bool_]:
    if mask is None:
        return np.ones(shape, dtype=bool)
    array = np.asarray(mask)
    if array.dtype != bool or array.shape != shape:
        raise ValueError(
            f"{name}: expected a bool array of shape {shape}, got {array.dtype} of {array.shape}"
        )
    return array


def _check_square(p: Floats) -> None:
    if p.shape[-2] != p.shape[-1]:
        raise ValueError(
            "weights: expected self-attention, as many queries as keys, got "
            f"{p.shape[-2]} and {p.shape[-1]}"
        )


def _entropy(p: Floats) -> Any:
    return -np.sum(p * np.log(p, out=np.zeros_like(p), where=p > 0), axis=-1)


def _mean(values: Any, counted: NDArray[np.bool_], what: str) -> Floats:
    """Mean over the counted queries of values (B, H, T), for each H."""
    if not counted.any():
        raise ValueError(f"queries: expected one that has {what}, got none")
    return np.asarray(values.swapaxes(0, 1)[:, counted].mean(axis=-1))
