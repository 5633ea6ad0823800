"""A language model with relative positions and a memory (Dai et al. 2019, Transformer-XL).

A text that is longer than what is read at once can be read in segments: the hidden states of the
segment before are kept, without a gradient, and attended to. That needs positions that are
relative: what a segment before says of its own positions would be taken for this one's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.language_model.positions import init_relative_positions, relative_scores, shift
from pyentmax.engine.system.config import require
from pyentmax.seq2seq.autograd import Tensor, as_tensor, concatenate, dropout
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.data import Segment, Segments, cut
from pyentmax.seq2seq.models.language_model import (
    KIND,
    LanguageModel,
    LanguageModelConfig,
    LanguageModelState,
)
from pyentmax.seq2seq.models.transformer_layers import LayerPass, LayersConfig
from pyentmax.seq2seq.nn.attention import causal_mask
from pyentmax.seq2seq.nn.attention.heads import head_averages, head_scores, scaled_heads
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.linear import linear

Memory = tuple[Any, ...]
"""What each layer read of the segment before, (B, M, n) arrays off the tape."""


@dataclass(frozen=True)
class RelativeConfig(LanguageModelConfig):
    """`LanguageModelConfig`, and how many positions before a segment are attended to."""

    positions: str = "relative"
    memory: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "positions", "relative".__eq__, "'relative'")
        require(self, "memory", lambda n: type(n) is int and n >= 0, "a whole number from 0 up")
        require(self, "score", ("scaled", "bilinear").__contains__, "'scaled' or 'bilinear'")


@dataclass(frozen=True, eq=False)
class RememberedSegment(Segment):
    """Pieces of a text, and the tokens just ``before`` each, (B, M), which the model remembers."""

    before: NDArray[np.int64]


class MemorySegments(Segments):
    """`Segments`, each with the tokens before it.

    Examples
    --------
    >>> batches = MemorySegments(np.arange(20), context=4, batch_size=2, before=3)
    >>> for batch in batches.epoch(np.random.default_rng(2)):
    ...     print(batch.before.tolist(), batch.tokens_in[:, 0])
    [[7, 8, 9], [11, 12, 13]] [10 14]
    """

    def __init__(
        self, tokens: NDArray[np.int64], context: int, batch_size: int, before: int
    ) -> None:
        super().__init__(tokens[before:], context, batch_size)
        self.before, self.whole = before, np.asarray(tokens, np.int64)

    def cut(self, starts: NDArray[np.int64]) -> RememberedSegment:
        """The pieces that begin at some places after the first ``before`` tokens."""
        piece = cut(self.tokens, starts, self.context)
        before = self.whole[starts[:, None] + np.arange(self.before)]
        return RememberedSegment(piece.tokens_in, piece.tokens_out, before)


class RelativePass(LayerPass):
    """One pass through the layers, in which distances add to the scores.

    ``added`` maps the name of an attention and its queries times ``scale``, (B, T, n), to what is
    added, (B, heads, T, S); what each layer reads is appended to ``read``.
    """

    added: Callable[[str, Tensor], Tensor]
    read: list[Array] | None = None

    def attention(
        self, kind: str, layer: int, name: str, x: Tensor, memory: Any, allowed: Array | None,
        *, causal: bool = False, scale: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """x + attention(x), normalised, as of `LayerPass`."""
        config = self.config
        if self.read is not None:
            self.read.append(x.data)
        query = self.inside(name, x)
        keys, values = map(as_tensor, memory(query))
        q = linear(self.params, f"{name}.query", query)
        q = q if scale is None else scaled_heads(q, scale, config.heads)
        factor = relative_factor(config)
        scores = head_scores(q, keys, config.heads, factor) + self.added(name, q)
        if causal:
            allowed = causal_mask(q.shape[-2], keys.shape[-2])
        weights = self._mapping(kind, layer)(scores, mask=allowed)
        if self._needs_weights(kind, layer):
            self.weights[kind].append(weights.data)
        averages = head_averages(dropout(weights, config.attention_dropout, self.rng), values)
        return self._added(x, linear(self.params, f"{name}.output", averages), name)


def relative_factor(config: LayersConfig) -> float:
    """What q·k is multiplied with."""
    return float((config.width // config.heads) ** -0.5) if config.score == "scaled" else 1.0


class RelativeLanguageModel(LanguageModel):
    """A `LanguageModel` whose positions are distances, and which may remember the segment before.

    Examples
    --------
    >>> config = RelativeConfig(9, width=8, layers=2, heads=2, inner=16, memory=2)
    >>> model = RelativeLanguageModel.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    >>> text = np.array([[3, 4, 5, 6, 7]])
    >>> memory = model.memory_of(text[:, :3])
    >>> model.scores(model.params, text[:, 3:], memory=memory).shape
    (1, 2, 9)
    """

    config: RelativeConfig

    @classmethod
    def _init_attention(
        cls, rng: Generator, config: Any, kind: str, k: int, name: str, known: Parameters,
        dtype: Any,
    ) -> Parameters:  # fmt: skip
        params = super()._init_attention(rng, config, kind, k, name, known, dtype)
        return params | init_relative_positions(rng, name, config.width, dtype)

    def loss(self, params: Parameters, batch: Any, rng: Generator | None = None) -> Tensor:
        """As of `LanguageModel`; what is remembered of ``batch.before`` gets no gradient."""
        memory = None
        if self.config.memory:
            values = {name: as_tensor(x).data for name, x in params.items()}
            memory = self.memory_of(batch.before, params=values)
        hidden = self._hidden(params, batch.tokens_in, rng, memory=memory)
        rows = hidden.reshape(-1, self.config.width)
        return self._output_loss(params, rows, batch.tokens_out.reshape(-1))

    def scores(
        self,
        params: Parameters,
        tokens: Array,
        rng: Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """Scores z of shape (B, T, V) for every next token, given those up to it."""
        return self._output(params, self._hidden(params, tokens, rng, memory=memory))

    def memory_of(
        self, tokens: Array, memory: Memory | None = None, params: Parameters | None = None
    ) -> Memory:
        """What is kept of a segment, (B, T, n), for the next one to attend to: no gradient.

        A memory from before it is put in front, and the last ``config.memory`` positions are kept.
        """
        if not self.config.memory:
            raise ValueError("memory: expected a configuration with memory above 0, got 0")
        read: list[Array] = []
        self._hidden(params or self.params, tokens, memory=memory, read=read)
        before = (None,) * len(read) if memory is None else memory
        longer = [
            new if old is None else np.concatenate([old, new], axis=1)
            for old, new in zip(before, read, strict=True)
        ]
        return tuple(x[:, -self.config.memory :] for x in longer)

    def attention_weights(self, tokens: Array, memory: Memory | None = None) -> list[Array]:
        """The weights of every head as the model reads texts: (B, H, T, M + T) per layer."""
        weights: dict[str, list[Array]] = {KIND: []}
        self._hidden(self.params, tokens, weights=weights, memory=memory)
        return weights[KIND]

    def _hidden(
        self,
        params: Parameters,
        tokens: Array,
        rng: Generator | None = None,
        weights: dict[str, list[Array]] | None = None,
        cache: list[tuple[Tensor, Tensor]] | None = None,
        memory: Memory | None = None,
        read: list[Array] | None = None,
    ) -> Tensor:
        config, count = self.config, tokens.shape[1]
        before = 0 if memory is None else memory[0].shape[1]
        run = RelativePass(config, params, rng, weights)

        def own(k: int, name: str, inside: Tensor) -> Any:
            if memory is not None:
                remembered = run.inside(name, as_tensor(memory[k]))
                inside = concatenate([remembered, inside], axis=1)
            pair = run.keys_and_values(name, inside)
            if cache is not None:
                cache.append(pair)
            return pair

        def added(name: str, q: Tensor) -> Tensor:
            distances, factor = np.arange(before + count)[::-1], relative_factor(config)
            return shift(relative_scores(params, name, q, distances, config.heads, factor))

        run.added, run.read = added, read
        n_keys = np.arange(before + 1, before + count + 1)
        x = self._embed(run, self.table, tokens, None)
        return self._layers(run, x, own, n_keys, None, causal=True)

    def advance(
        self, state: LanguageModelState, tokens: Array
    ) -> tuple[Array, Array, LanguageModelState]:
        """Read one token per row, as of `LanguageModel`."""
        config, past = self.config, state.past.longer()
        tokens = np.where(state.unread >= 0, state.unread, np.asarray(tokens))
        weights: dict[str, list[Array]] = {KIND: []}
        run = RelativePass(config, self.params, None, weights, last_only=True)

        def own(k: int, name: str, inside: Tensor) -> Any:
            return past.with_last(k, run.keys_and_values(name, inside), None)

        def added(name: str, q: Tensor) -> Tensor:
            distances = np.maximum(past.lengths[:, None] - 1 - np.arange(past.longest), 0)
            factor = relative_factor(config)
            return relative_scores(run.params, name, q, distances, config.heads, factor)

        run.added = added
        x = self._embed(run, self.table, tokens[:, None], None)
        hidden = self._layers(run, x, own, past.lengths[:, None], past.own)
        attention = weights[KIND][-1][:, :, 0].mean(axis=1)[:, : state.source_mask.shape[1]]
        after = state._replace(past=past, unread=np.full_like(state.unread, -1))
        return state.output(hidden[:, 0]), attention * state.source_mask, after
