r"""Statistics of the papers' experiments: the heads of a Transformer, and calibration.

What heads do is measured as in Correia, Niculae and Martins (2019), §5. The functions of heads take
the attention weights of one sentence, of shape (…, T, S) for T queries and S keys, without padding:
as `corpus_attention` gives them for each kind, (layers, heads, T, S), or of a single head, (T, S).
Each result has one number per head, except the diversity, which has one per layer. `measure_heads`
accumulates them over a corpus of any size in the memory of one batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.seq2seq.data import Pair, bucketed_batches, make_batch
from pyentmax.seq2seq.decoding import SearchResult
from pyentmax.seq2seq.models.transformer import KINDS, Transformer
from pyentmax.seq2seq.training import counting

Floats = NDArray[np.float64]
# Kinds of self-attention with the offsets that are measured; the decoder cannot look ahead.
POSITIONS = [("encoder", -1), ("encoder", 0), ("encoder", 1), ("decoder", -1), ("decoder", 0)]


# --- one sentence ---------------------------------------------------------------------------------
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


# --- a corpus -------------------------------------------------------------------------------------
class SentenceAttention(NamedTuple):
    """The weights of all heads as a model reads one sentence and its reference.

    Attributes
    ----------
    place : int
        Of the sentence in the corpus.
    weights : dict of arrays
        Kind → (layers, heads, T, S), without padding: ``encoder``, ``context`` and ``decoder``. The
        decoder's queries are the begin symbol and the tokens of the reference.
    """

    place: int
    weights: dict[str, Any]


def corpus_attention(
    model: Transformer, pairs: Sequence[Pair], *, batch_size: int = 64, progress: bool = False
) -> Iterator[SentenceAttention]:
    """The attention of every head on each sentence, the reference being read (teacher forcing).

    Sentences of similar length share a batch, so they do not come in their order; each says which
    it is. The memory is that of one batch.

    Parameters
    ----------
    model : Transformer
    pairs : sequence of pairs of token ids
    batch_size : int
    progress : bool
        Whether a progress bar is shown.

    Examples
    --------
    >>> from pyentmax.seq2seq.models.transformer import TransformerConfig
    >>> config = TransformerConfig(9, 7, width=8, layers=2, heads=4, inner=8)
    >>> model = Transformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    >>> pairs = [(np.array([3, 4, 5]), np.array([6])), (np.array([8]), np.array([4, 5]))]
    >>> for sentence in corpus_attention(model, pairs):
    ...     print(sentence.place, sentence.weights["context"].shape)
    1 (2, 4, 3, 1)
    0 (2, 4, 2, 3)
    """
    with counting(len(pairs), "sentence", progress) as advance:
        for index in bucketed_batches(pairs, batch_size):
            batch = make_batch(pairs, index)
            weights = model.attention_weights(batch.source, batch.source_mask, batch.target_in)
            layers = {kind: np.stack(weights[kind]) for kind in KINDS}
            for row, i in enumerate(index):
                source, target = pairs[i]
                lengths = {"encoder": (len(source),) * 2, "decoder": (len(target) + 1,) * 2}
                lengths["context"] = (len(target) + 1, len(source))
                yield SentenceAttention(
                    int(i),
                    {kind: layers[kind][:, row, :, :t, :s] for kind, (t, s) in lengths.items()},
                )
            advance(len(index))


class PerSentence(NamedTuple):
    """A measure of each sentence, and of the corpus.

    Attributes
    ----------
    values : (sentences, …) array
        Zeros for sentences that do not count.
    counts : (sentences,) array
        The number of queries, or clusters, behind each.
    """

    values: Floats
    counts: Floats

    @property
    def mean(self) -> Floats:
        """The mean over the corpus's queries; NaN if there is none."""
        total = self.counts.sum()
        if not total:
            return np.full(self.values.shape[1:], np.nan)
        # Divided last, so that what is 1 everywhere is exactly 1.
        return np.asarray(np.tensordot(self.counts, self.values, axes=1) / total)


@dataclass(frozen=True)
class HeadMeasures:
    """The result of `measure_heads`, by kind of attention; means have shape (layers, heads).

    Attributes
    ----------
    density : dict
        Kind → share of allowed keys with a weight above zero (Figures 4, 5).
    diversity : dict
        Kind → Jensen-Shannon divergence between the heads of each layer, (layers,) (Figure 6).
    positional : dict
        (kind, offset) → confidence of self-attention at −1, 0 and +1 (Figure 7). The decoder cannot
        look at +1.
    merging : PerSentence
        Of the encoder's heads, how they join the pieces of words (Figure 8).
    marked : PerSentence
        Of the encoder's heads, the mass from the chosen tokens to the mark (Figure 9).
    last_source : PerSentence
        Of the context's heads, the mass on the last source token (Explicit Sparse Transformer,
        Figure 4).
    """

    density: dict[str, PerSentence]
    diversity: dict[str, PerSentence]
    positional: dict[tuple[str, int], PerSentence]
    merging: PerSentence
    marked: PerSentence
    last_source: PerSentence


def measure_heads(
    sentences: Iterable[SentenceAttention],
    *,
    clusters: Sequence[Iterable[Sequence[int]]] | None = None,
    marked: Sequence[tuple[ArrayLike, ArrayLike]] | None = None,
) -> HeadMeasures:
    """Measure the heads of a model on a corpus.

    Parameters
    ----------
    sentences : iterable of SentenceAttention
        Such as `corpus_attention` gives.
    clusters : sequence, optional
        For each source sentence the positions of the pieces of each of its words.
    marked : sequence of pairs of bool arrays, optional
        For each source sentence, which tokens are to look and which are to be looked at. Sentences
        that lack one of the two do not count.

    Raises
    ------
    ValueError
        If there is no sentence.

    Examples
    --------
    >>> looks_back = np.eye(3, k=-1)[None, None] + [[[[1, 0, 0], [0, 0, 0], [0, 0, 0]]]]
    >>> weights = {"encoder": looks_back, "context": looks_back, "decoder": looks_back}
    >>> measures = measure_heads([SentenceAttention(0, weights)])
    >>> measures.positional["encoder", -1].mean
    array([[1.]])
    """
    measured: dict[Any, dict[int, tuple[Any, float]]] = defaultdict(dict)

    def add(name: Any, count: float, measure: Any, *arguments: Any, **options: Any) -> None:
        measured[name][index] = (measure(*arguments, **options) if count else 0), count

    for index, weights in sentences:
        for kind, p in weights.items():
            causal, (rows, columns) = kind == "decoder", p.shape[2:]
            add(("density", kind), rows, head_densities, p, causal=causal)
            # The first token of the decoder has one key, where heads cannot differ.
            count = (rows - causal) * (columns > 1)
            add(("diversity", kind), count, head_diversity, p, causal=causal)
        for kind, offset in POSITIONS:
            count = max(weights[kind].shape[2] - abs(offset), 0)
            add((kind, offset), count, positional_confidence, weights[kind], offset)
        words = list(clusters[index]) if clusters is not None else []
        add("merging", len(words), merging_scores, weights["encoder"], words)
        queries, keys = map(np.asarray, ([], []) if marked is None else marked[index])
        count = queries.sum() if keys.any() else 0
        add("marked", count, attention_to, weights["encoder"], queries, keys)
        rows, columns = weights["context"].shape[2:]
        last = np.arange(columns) == columns - 1
        add("last", rows, attention_to, weights["context"], np.full(rows, True), last)
        shape = weights["encoder"].shape[:2]
    if not measured:
        raise ValueError("sentences: expected at least one, got none")
    size = 1 + max(measured["merging"])

    def gathered(name: Any, shape: tuple[int, ...] = shape) -> PerSentence:
        values, counts = np.zeros((size, *shape)), np.zeros(size)
        for i, (value, count) in measured[name].items():
            values[i], counts[i] = value, count
        return PerSentence(values, counts)

    return HeadMeasures(
        {kind: gathered(("density", kind)) for kind in KINDS},
        {kind: gathered(("diversity", kind), shape[:1]) for kind in KINDS},
        {position: gathered(position) for position in POSITIONS},
        gathered("merging"),
        gathered("marked"),
        gathered("last"),
    )


# --- calibration ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class CalibrationBin:
    """The predictions whose confidence lies in (low, high].

    Attributes
    ----------
    low, high : float
    count : int
        At least 1.
    confidence : float
        Mean probability that the model gave them.
    accuracy : float
        Share of them that are correct.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """How far a model's confidence is from its accuracy.

    Attributes
    ----------
    error : float
        Expected calibration error.
    bins : tuple of CalibrationBin
        Those that are not empty, in order of confidence.
    """

    error: float
    bins: tuple[CalibrationBin, ...]

    @property
    def count(self) -> int:
        """Number of predictions."""
        return sum(b.count for b in self.bins)

    def __str__(self) -> str:
        return f"expected calibration error {self.error:.2%} over {self.count} predictions"


def calibration(confidence: ArrayLike, correct: ArrayLike, bins: int = 10) -> Calibration:
    r"""Expected calibration error of predictions in bins of equal width.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{acc}_b - \mathrm{conf}_b \right|

    with n_b predictions in bin b, their accuracy and their mean confidence. Bin b of M holds
    confidences in ((b−1)/M, b/M]. The first bin also holds 0, and the last also what rounding
    lifts above 1. The error depends on M, so compare only errors with the same M.

    Parameters
    ----------
    confidence : (n,) array
        Probability that the model gave each of n > 0 predictions, from 0 to 1.
    correct : (n,) bool array
        Whether each prediction is correct.
    bins : int
        M.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), Obtaining Well Calibrated Probabilities Using Bayesian
    Binning. Guo, Pleiss, Sun and Weinberger (2017), On Calibration of Modern Neural Networks,
    Eq. 3.

    Examples
    --------
    >>> calibration([0.75, 0.75, 0.75, 0.75, 1.0], [True, True, True, False, True]).error
    0.0
    >>> print(calibration([0.75, 1.0], [False, True]))
    expected calibration error 37.50% over 2 predictions
    """
    p, correct = np.asarray(confidence, dtype=float), np.asarray(correct, dtype=bool)
    if p.ndim != 1 or p.shape != correct.shape:
        raise ValueError(
            "confidence and correct must be lists of the same length, but have the shapes "
            f"{p.shape} and {correct.shape}"
        )
    if not p.size:
        raise ValueError("calibration needs at least one prediction, but there is none")
    valid = (p >= 0) & (p <= 1 + 1e-4)
    if not valid.all():
        raise ValueError(f"confidence must lie between 0 and 1, got {p[~valid][0]:g}")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    upper = np.arange(1, bins + 1) / bins
    place = np.minimum(np.searchsorted(upper, p), bins - 1)
    filled = []
    for i in np.unique(place).tolist():
        inside = place == i
        means = float(p[inside].mean()), float(correct[inside].mean())
        filled.append(CalibrationBin(i / bins, (i + 1) / bins, int(np.sum(inside)), *means))
    error = sum(b.count / p.size * abs(b.accuracy - b.confidence) for b in filled)
    return Calibration(float(error), tuple(filled))


def listed_predictions(
    results: Sequence[SearchResult],
    references: Sequence[object],
    spell: Callable[[tuple[int, ...]], object],
    *,
    best_only: bool = False,
) -> tuple[list[float], list[bool]]:
    """Each listed string as a prediction of the reference, for `calibration`.

    The confidence of a hypothesis is its probability, and it is correct if it equals the reference.
    So a source gives one prediction for each of its listed strings, and at most one is correct.
    A hypothesis that did not end within the length limit is not counted.

    Parameters
    ----------
    results : sequence of SearchResult
    references : sequence of the same length
        What ``spell`` is compared with.
    spell : callable
        From a hypothesis's tokens to what is compared, such as `Inflector.form`.
    best_only : bool, default False
        Whether to take only the most probable string of each source.

    Returns
    -------
    confidence, correct : lists of the same length

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import SearchResult, Hypothesis
    >>> listed = (Hypothesis((7,), 0.0), Hypothesis((8, 9), -np.inf))
    >>> result = SearchResult(listed, exact=False, mass=1.0, reason="")
    >>> listed_predictions([result], [(8, 9)], tuple)
    ([1.0, 0.0], [False, True])
    """
    predictions = [
        (hypothesis.probability, spell(hypothesis.tokens) == reference)
        for result, reference in zip(results, references, strict=True)
        for hypothesis in result.hypotheses[: 1 if best_only else None]
        if hypothesis.finished
    ]
    return [p for p, _ in predictions], [correct for _, correct in predictions]
