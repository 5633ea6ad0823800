"""A language model with relative positions and a memory (Dai et al. 2019, Transformer-XL).

A text that is longer than what is read at once can be read in segments: the hidden states of the
segment before are kept, without a gradient, and attended to. That needs positions that are
relative: what a segment before says of its own positions would be taken for this one's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.language_model.positions import init_relative_positions, relative_scores, shift
from pyentmax.engine.system.config import require
from pyentmax.seq2seq.autograd import Tensor, as_tensor, concatenate
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.data import Segment, Segments, cut
from pyentmax.seq2seq.models.language_model import KIND, LanguageModel, LanguageModelConfig
from pyentmax.seq2seq.models.stack import Attention, keys_seen, stack
from pyentmax.seq2seq.nn.attention import dot_scores
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.layer_norm import norm

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


@dataclass(frozen=True)
class RelativeAttention(Attention):
    """`Attention` to which distances add scores, and which may see the segment before.

    ``before`` is what it reads of that segment, (B, M, n), normalised as its input is; ``read``
    collects the inputs of all layers.
    """

    before: Tensor | None = None
    read: list[Array] | None = None

    def to_itself(self, x: Tensor, mask: Any = None, extend: Any = None) -> Tensor:
        """As of `Attention`, with the keys and values of the segment before in front."""
        if self.read is not None:
            self.read.append(x.data)
        if self.before is None:
            return super().to_itself(x, mask, extend)
        pair = self.keys_and_values(self.before)

        def longer(new: Any) -> Any:
            return [concatenate(parts, axis=1) for parts in zip(pair, new, strict=True)]

        return super().to_itself(x, mask, longer)

    def __call__(self, *args: Any, need_weights: bool = True, **options: Any) -> Any:
        return super().__call__(*args, need_weights=True, **options)

    def _scores(self, factor: float, mask: Array | None) -> Callable[[Any, Any], Tensor]:
        def scores(query: Tensor, keys: Tensor) -> Tensor:
            queries, n_keys = query.shape[-2], keys.shape[-2]
            one = queries == 1 and mask is not None  # a query per row, with a length of its own
            seen = keys_seen(1, n_keys, mask if one else None)
            distances = np.maximum(seen - 1 - np.arange(n_keys), 0)
            by_distance = relative_scores(self.params, self.name, query, distances, factor)
            content = dot_scores(query, keys, factor)
            return content + (by_distance if one else shift(by_distance))

        return scores


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
    attention = RelativeAttention

    @classmethod
    def _init_attention(
        cls, rng: Generator, config: Any, place: tuple[str, int, str], params: Parameters,
        dtype: Any,
    ) -> None:  # fmt: skip
        super()._init_attention(rng, config, place, params, dtype)
        params |= init_relative_positions(rng, place[-1], config.width, dtype)

    def _embed(self, params: Any, table: str, tokens: Any, positions: Any, rng: Any = None) -> Any:
        return super()._embed(params, table, tokens, None, rng)

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
        cache: Any = None,
        memory: Memory | None = None,
        read: list[Array] | None = None,
    ) -> Tensor:
        layers = self.layers("layer", params, rng, weights)
        for k, layer in enumerate(layers):
            before = None if memory is None else as_tensor(memory[k])
            if before is not None and self.config.norm == "pre":
                before = norm(params, f"layer.{k}.self.norm", before)
            layers[k] = layer._replace(attention=replace(layer.attention, before=before, read=read))
        x = self._embed(params, self.table, tokens, None, rng)
        return self._last(params, "last", stack(x, layers, cache=cache))
