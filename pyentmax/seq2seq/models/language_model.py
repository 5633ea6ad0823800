"""A language model: the decoder of a Transformer alone, with any mapping in every head.

    x ← embeddings + positions;  L times  x ← x + self(x),  x ← x + network(x)
    p(x_{t+1} | x_1 … x_t) = π'(V x_t + b)

with causal self-attention, π(q·k/√d) in each head, as in `transformer`, whose layers these are. The
scores of a query that sees n keys can be multiplied by 1 + β (log n)^γ with β, γ of each head's own
(Vasylenko et al. 2025, Long-Context Generalization with Sparse Attention: there β and γ depend on
the token too), which makes up for the longer texts in which more keys share the weight.

Texts are (batch, time) arrays of token ids. To the decoders of `pyentmax.seq2seq.decoding`, a
source is the beginning of a text, and a hypothesis how it goes on up to the next ``eos``, such as
the end of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.models.encoder_decoder import check_sources
from pyentmax.seq2seq.models.protocol import BoolArray, IntArray, Shared
from pyentmax.seq2seq.models.stack import Pair, StackConfig, StackModel, stack
from pyentmax.seq2seq.models.states import Cache
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.layer_norm import init_norm
from pyentmax.seq2seq.nn.linear import init_embedding

KIND = "self"
"""The one kind of attention."""


@dataclass(frozen=True)
class LanguageModelConfig(StackConfig):
    """The sizes and mappings of a model.

    Parameters
    ----------
    size : int
        Of the vocabulary.
    width, layers, heads, inner, dropout, attention_dropout, inner_dropout, attention, \
inference_attention, alpha_per, alpha_std, output, label_smoothing, score, attention_bias, \
norm, scale_embeddings
        As for `TransformerConfig`.
    tied : bool
        Whether the embeddings are the rows of the output's matrix.
    length_scale : bool
        Whether scores are multiplied by 1 + β (log n)^γ where n keys are seen.

    Raises
    ------
    ValueError
        If a size is not positive or does not fit, a rate is out of range, or a choice is unknown.
    """

    size: int
    _: KW_ONLY
    output: str = "softmax"
    norm: str = "pre"
    tied: bool = False
    length_scale: bool = False

    def __post_init__(self) -> None:
        self.check_layers("size")


class LanguageModelState(NamedTuple):
    """The state of decoding between steps, with a row for each prefix."""

    shared: Shared  # the layers, and what they record
    cache: Cache  # of the tokens read so far
    unread: IntArray  # (rows,): the last token of the source until it is read, then −1
    mask: BoolArray  # (rows, S): where the source has tokens


class LanguageModel(StackModel):
    """A model: its configuration and a flat dict of parameter arrays.

    Parameters
    ----------
    config : LanguageModelConfig
    params : dict of arrays
        As :meth:`initialize` makes them.
    bos, eos : int
        ``eos`` ends what decoders write. What they pass to the first step, ``bos``, is not read:
        the last token of the source is.

    Examples
    --------
    >>> import numpy as np
    >>> config = LanguageModelConfig(9, width=8, layers=2, heads=2, inner=16)
    >>> model = LanguageModel.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    >>> text = np.array([[3, 4, 5]])
    >>> model.scores(model.params, text).shape
    (1, 3, 9)
    >>> step, state = model.step(model.encode(text, text > 0), np.array([model.bos]))
    >>> step.log_prob.shape
    (1, 9)
    """

    config: LanguageModelConfig
    kinds = (KIND,)
    table = "embedding"

    @classmethod
    def initialize(
        cls,
        config: LanguageModelConfig,
        rng: Generator,
        bos: int,
        eos: int,
        dtype: Any = np.float32,
    ) -> LanguageModel:
        """A model with random parameters drawn from ``rng``."""
        params = init_embedding(rng, "embedding", config.size, config.width, dtype)
        for place in cls.attentions(config):
            cls._init_attention(rng, config, place, params, dtype)
            cls._init_network(rng, config, f"layer.{place[1]}.network", params, dtype)
        if config.norm == "pre":
            params |= init_norm("last.norm", config.width, dtype)
        params |= cls._init_output(rng, config, config.size, config.tied, dtype)
        return cls(config, params, bos, eos)

    @classmethod
    def _init_attention(
        cls, rng: Generator, config: Any, place: tuple[str, int, str], params: Parameters,
        dtype: Any,
    ) -> None:  # fmt: skip
        super()._init_attention(rng, config, place, params, dtype)
        if config.length_scale:
            # β = e^−2 at first: the scores of 256 keys by 1.75.
            params[f"{place[-1]}.length_logit"] = np.full(config.heads, -2.0, dtype)
            params[f"{place[-1]}.length_power"] = np.ones(config.heads, dtype)

    @staticmethod
    def attentions(config: LanguageModelConfig) -> Iterator[tuple[str, int, str]]:
        """Kind, layer and name of every attention."""
        return ((KIND, k, f"layer.{k}.self") for k in range(config.layers))

    # --- training ---------------------------------------------------------------------------------
    def loss(self, params: Parameters, batch: Any, rng: Generator | None = None) -> Tensor:
        """Mean Fenchel-Young loss per token, each predicted from those before it.

        Parameters
        ----------
        params : dict of Tensors (or of arrays, for no gradient)
        batch : pyentmax.seq2seq.data.Segment
            Or what has its arrays.
        rng : numpy.random.Generator, optional
            Switches dropout on, and the attention of training.
        """
        hidden = self._hidden(params, batch.tokens_in, rng).reshape(-1, self.config.width)
        return self._output_loss(params, hidden, batch.tokens_out.reshape(-1))

    def scores(self, params: Parameters, tokens: Array, rng: Generator | None = None) -> Tensor:
        """Scores z of shape (B, T, V) for every next token, given those up to it."""
        return self._output(params, self._hidden(params, tokens, rng))

    def attention_weights(self, tokens: Array) -> list[Array]:
        """The weights of every head as the model reads texts: (B, H, T, T) per layer."""
        weights: dict[str, list[Array]] = {KIND: []}
        self._hidden(self.params, np.asarray(tokens), None, weights)
        return weights[KIND]

    def _hidden(
        self,
        params: Parameters,
        tokens: Array,
        rng: Generator | None = None,
        weights: dict[str, list[Array]] | None = None,
        cache: Callable[[int, Pair], Pair] | None = None,
    ) -> Tensor:
        """The last layer, (B, T, n)."""
        x = self._embed(params, self.table, tokens, np.arange(tokens.shape[1]), rng)
        layers = self.layers("layer", params, rng, weights)
        return self._last(params, "last", stack(x, layers, cache=cache))

    # --- decoding ---------------------------------------------------------------------------------
    def encode(self, source: Array, source_mask: Array) -> LanguageModelState:
        """The state after the beginnings of some texts but for their last token, off the tape."""
        check_sources(source, source_mask, self.config.size)
        source, mask = np.asarray(source), np.asarray(source_mask, dtype=bool)
        rows, lengths, read = len(source), mask.sum(axis=1), source.shape[1] - 1
        dtype = self.params["embedding.weight"].dtype
        cache = Cache.empty(rows, self.config.layers, self.config.width, dtype)
        if read:
            pairs: list[Any] = []

            def collect(k: int, pair: Pair) -> Pair:
                pairs.append(tuple(x.data for x in pair))
                return pair

            self._hidden(self.params, source[:, :-1], cache=collect)
            cache = Cache(lengths - 1, tuple(pairs))
        unread = source[np.arange(rows), lengths - 1]
        weights: dict[str, list[Array]] = {KIND: []}
        layers = self.layers("layer", self.params, weights=weights, last_only=True)
        return LanguageModelState(Shared((layers, weights[KIND])), cache, unread, mask)

    def advance(
        self, state: LanguageModelState, tokens: Array
    ) -> tuple[Array, Array, LanguageModelState]:
        """Read one token per row; return the scores of the next, the attention, the new state.

        The weights that come with it are those of the source: what a row has written itself gets
        the rest.
        """
        (layers, weights), lengths = state.shared.part, state.cache.lengths
        longer: list[Any] = []
        tokens = np.where(state.unread >= 0, state.unread, np.asarray(tokens))
        x = self._embed(self.params, self.table, tokens[:, None], lengths[:, None])
        append = partial(state.cache.append, longer)
        x = stack(x, layers, mask=state.cache.mask(), cache=append)
        scores = self._output(self.params, self._last(self.params, "last", x)[:, 0])
        attention = np.zeros(state.mask.shape, scores.dtype)  # padding included
        seen = weights.pop()[:, :, 0].mean(axis=1)[:, : attention.shape[1]]
        attention[:, : seen.shape[1]] = seen
        cache, unread = Cache(lengths + 1, tuple(longer)), np.full_like(state.unread, -1)
        after = state._replace(cache=cache, unread=unread)
        return scores.data, attention * state.mask, after
