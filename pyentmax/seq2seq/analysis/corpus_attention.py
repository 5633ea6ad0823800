r"""The heads of a Transformer over a whole corpus, sentence by sentence.

`corpus_attention` reads sentences with their references and yields the weights of every head;
`measure_heads` accumulates the measures of `pyentmax.seq2seq.analysis.heads`, so that a corpus of
any size takes the memory of one batch. Each sentence has its own measures, with the number of
queries that they are means over: a mean over the corpus goes over queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.engine.calls.devices import to_host
from pyentmax.seq2seq.analysis.heads import (
    attention_to,
    head_densities,
    head_diversity,
    merging_scores,
    positional_confidence,
)
from pyentmax.seq2seq.data import Pair, bucketed_batches, make_batch
from pyentmax.seq2seq.models.transformer import KINDS, Transformer
from pyentmax.seq2seq.training import counting

Floats = NDArray[np.float64]
# Kinds of self-attention with the offsets that are measured; the decoder cannot look ahead.
POSITIONS = [("encoder", -1), ("encoder", 0), ("encoder", 1), ("decoder", -1), ("decoder", 0)]


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
            layers = {kind: np.stack([to_host(p) for p in weights[kind]]) for kind in KINDS}
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
