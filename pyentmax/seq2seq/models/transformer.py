"""The Transformer of Vaswani et al. (2017) with any mapping in every head, and any output loss.

    encoder    x ← embeddings + positions;  L times  x ← x + self(x),  x ← x + network(x)
    decoder    the same with causal self-attention, and attention to the encoder between the two
    output     y_t ~ π'(V x_t + b)

where each sum is normalised: after it (post-norm, as in the papers) or before its second term
(pre-norm). Every head's weights are π(q·k/√d), π any mapping: 1.5-entmax, explicit top-k (Explicit
Sparse Transformer), or α-entmax with an α of the head's own, α = 1 + σ(a) with a drawn from N(0, 1)
(Correia, Niculae & Martins 2019, §4).

Sequences are (batch, time) arrays of token ids. In decoding, the keys and values of the source and
of the tokens read so far are kept, so that a step computes one position only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.system.config import require
from pyentmax.seq2seq.autograd import Tensor, as_tensor, take_rows
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.models.encoder_decoder import check_sources
from pyentmax.seq2seq.models.protocol import IntArray, Shared
from pyentmax.seq2seq.models.stack import Memory, StackConfig, StackModel, stack
from pyentmax.seq2seq.models.states import Cache, Queries
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.layer_norm import init_norm
from pyentmax.seq2seq.nn.linear import init_embedding

KINDS = ("encoder", "context", "decoder")
"""The three attentions: of the encoder to itself, of the decoder to the encoder, of the decoder to
itself. α-entmax has an α of its own for each."""

TIED = ("none", "output", "all")


@dataclass(frozen=True)
class TransformerConfig(StackConfig):
    """The sizes and mappings of a model; the defaults are the shape of Transformer-Base.

    Parameters
    ----------
    source_size, target_size : int
        Sizes of the two vocabularies.
    width : int
        Of embeddings and layers: a multiple of ``heads``, and even.
    layers, heads, inner : int
        Depth of encoder and decoder, heads per attention, width inside the feed-forward networks.
    dropout : float
        Dropout rate on embeddings and on what each layer adds.
    attention_dropout, inner_dropout : float
        Dropout rates on attention weights and inside the feed-forward networks.
    attention : str
        The mapping of every head: an α or a name as for `choose_mapping`, such as
        "topk_softmax:8", or "learned".
    inference_attention : str, optional
        The mapping in its place where the model is used and not trained (without a generator for
        dropout): another k, or "softmax". Explicit Sparse Transformer, Table 5.
    alpha_per : {"head", "layer", "kind", "model"}
        What has an α of its own, if it is learned: each head of each layer of each kind, each layer
        of each kind, each kind, or only the whole.
    alpha_std : float
        Standard deviation of the logits a of α = 1 + σ(a) as they are drawn, around 0. With 0 each
        α starts at 1.5.
    output : str
        The mapping of the output, trained with its own Fenchel-Young loss.
    label_smoothing : float
        The target's share that is spread over the vocabulary.
    score : str
        One of :data:`pyentmax.seq2seq.nn.attention.SCORES`.
    attention_bias : bool
        Whether the projections of attention have biases.
    norm : {"post", "pre"}
        Layer norm after each sum, or on each layer's input and once at the end.
    tied : {"none", "output", "all"}
        "output": the target's embeddings are the rows of the output's matrix; "all": the source's
        too, for a joint vocabulary.
    scale_embeddings : bool
        Whether embeddings are multiplied by √width.

    Raises
    ------
    ValueError
        If a size is not positive or does not fit, a rate is out of range, or a choice is unknown.
    """

    source_size: int
    target_size: int
    _: KW_ONLY
    tied: str = "none"

    def __post_init__(self) -> None:
        self.check_layers("source_size target_size")
        require(self, "tied", TIED.__contains__, f"one of {', '.join(TIED)}")
        if self.tied == "all" and self.source_size != self.target_size:
            raise ValueError(
                "tied: 'all' needs one vocabulary for both sides, got sizes "
                f"{self.source_size} and {self.target_size}"
            )

    @property
    def encoder_attends(self) -> bool:
        """Whether the positions of the source attend to each other."""
        return True


class TransformerState(NamedTuple):
    """The decoder's state between steps, with a row for each prefix."""

    shared: Shared  # the layers, what they record; the sources' mask and keys and values per layer
    source: IntArray  # (rows,): the source of each
    cache: Cache  # of the tokens read so far


class Transformer(StackModel):
    """A model: its configuration and a flat dict of parameter arrays.

    Parameters
    ----------
    config : TransformerConfig
    params : dict of arrays
        As :meth:`initialize` makes them.
    bos, eos : int
        Ids of the target tokens that begin and end a sequence.

    Examples
    --------
    >>> import numpy as np
    >>> config = TransformerConfig(9, 7, width=8, layers=2, heads=2, inner=16)
    >>> model = Transformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    >>> source = np.array([[3, 4, 5]])
    >>> step, state = model.step(model.encode(source, source > 0), np.array([model.bos]))
    >>> step.log_prob.shape, step.attention.shape
    ((1, 7), (1, 3))
    """

    config: TransformerConfig
    kinds = KINDS
    table = "target_embedding"

    @classmethod
    def initialize(
        cls, config: TransformerConfig, rng: Generator, bos: int, eos: int, dtype: Any = np.float32
    ) -> Transformer:
        """A model with random parameters drawn from ``rng``."""
        n = config.width
        params = init_embedding(rng, "target_embedding", config.target_size, n, dtype)
        params |= cls._source_parameters(config, rng, dtype)
        for place in cls.attentions(config):
            cls._init_attention(rng, config, place, params, dtype)
        for side in ("encoder", "decoder"):
            for k in range(config.layers):
                cls._init_network(rng, config, f"{side}.{k}.network", params, dtype)
        if config.norm == "pre":
            params |= init_norm("encoder.norm", n, dtype) | init_norm("decoder.norm", n, dtype)
        params |= cls._init_output(rng, config, config.target_size, config.tied != "none", dtype)
        return cls(config, params, bos, eos)

    @staticmethod
    def attentions(config: TransformerConfig) -> Iterator[tuple[str, int, str]]:
        """Kind, layer and name of every attention."""
        for k in range(config.layers if config.encoder_attends else 0):
            yield "encoder", k, f"encoder.{k}.self"
        for k in range(config.layers):
            yield "decoder", k, f"decoder.{k}.self"
            yield "context", k, f"decoder.{k}.context"

    @classmethod
    def _source_parameters(
        cls, config: TransformerConfig, rng: Generator, dtype: Any
    ) -> Parameters:
        """The parameters that turn the source's positions into vectors."""
        if config.tied == "all":
            return {}
        return init_embedding(rng, "source_embedding", config.source_size, config.width, dtype)

    # --- training ---------------------------------------------------------------------------------
    def loss(self, params: Parameters, batch: Any, rng: Generator | None = None) -> Tensor:
        """Mean Fenchel-Young loss per target token, with the reference sequence as input.

        Parameters
        ----------
        params : dict of Tensors (or of arrays, for no gradient)
        batch : pyentmax.seq2seq.data.Batch
            Or what has its arrays.
        rng : numpy.random.Generator, optional
            Switches dropout on, and the attention of training.
        """
        # The scores of padding would cost as much as all others, and count nothing.
        places = np.flatnonzero(batch.target_mask)
        padded = len(places) < batch.target_mask.size
        hidden = self._hidden(params, batch.source, batch.source_mask, batch.target_in, rng)
        hidden = hidden.reshape(-1, self.config.width)
        labels = batch.target_out.reshape(-1)
        if padded:
            hidden, labels = take_rows(hidden, places), labels[places]
        return self._output_loss(params, hidden, labels)

    def scores(
        self,
        params: Parameters,
        source: Array,
        source_mask: Array,
        target_in: Array,
        rng: Generator | None = None,
    ) -> Tensor:
        """Scores z of shape (B, T, V) for every next token, given those before it."""
        return self._output(params, self._hidden(params, source, source_mask, target_in, rng))

    def attention_weights(
        self, source: Array, source_mask: Array, target_in: Array
    ) -> dict[str, list[Array]]:
        """The weights of every head as the model reads a target: kind → (B, H, T, S) per layer."""
        weights: dict[str, list[Array]] = {kind: [] for kind in KINDS}
        source, mask, read = map(np.asarray, (source, source_mask, target_in))
        self._hidden(self.params, source, mask, read, None, weights)
        return weights

    def _hidden(
        self,
        params: Parameters,
        source: Array,
        source_mask: Array,
        target_in: Array,
        rng: Generator | None,
        weights: dict[str, list[Array]] | None = None,
    ) -> Tensor:
        """The decoder's last layer, (B, T, n)."""
        self._check_source(source, source_mask)
        encoded = self._encode(params, source, source_mask, rng, weights)
        layers = self.layers("decoder", params, rng, weights)
        memory = Memory([layer.context.keys_and_values(encoded) for layer in layers], source_mask)
        x = self._embed(params, self.table, target_in, np.arange(target_in.shape[1]), rng)
        return self._last(params, "decoder", stack(x, layers, memory))

    def _encode(
        self,
        params: Parameters,
        source: Array,
        mask: Array,
        rng: Generator | None = None,
        weights: dict[str, list[Array]] | None = None,
    ) -> Tensor:
        """The encoder's last layer, (B, S, n)."""
        layers = self.layers("encoder", params, rng, weights)
        x = stack(self._embed_source(params, source, rng), layers, mask=mask[:, None, None, :])
        return self._last(params, "encoder", x)

    def _check_source(self, source: Array, mask: Array) -> None:
        check_sources(source, mask, self.config.source_size)

    def _embed_source(self, params: Parameters, source: Array, rng: Generator | None) -> Tensor:
        """The source's positions as the first layer of the encoder takes them, (B, S, n)."""
        table = "target_embedding" if self.config.tied == "all" else "source_embedding"
        return self._embed(params, table, source, np.arange(source.shape[1]), rng)

    # --- decoding ---------------------------------------------------------------------------------
    def encode(self, source: Array, source_mask: Array) -> TransformerState:
        """The decoder's state before the first token, as arrays off the tape."""
        self._check_source(source, source_mask)
        mask, rows = np.asarray(source_mask), len(source)
        encoded = self._encode(self.params, np.asarray(source), mask)
        weights: dict[str, list[Array]] = {"context": []}
        layers = self.layers("decoder", self.params, weights=weights, last_only=True)
        arrays = [x.data for layer in layers for x in layer.context.keys_and_values(encoded)]
        cache = Cache.empty(rows, len(layers), self.config.width, encoded.dtype)
        shared = Shared((layers, weights["context"], mask, arrays))
        return TransformerState(shared, np.arange(rows), cache)

    def advance(
        self, state: TransformerState, tokens: Array
    ) -> tuple[Array, Array, TransformerState]:
        """Read one token per row; return the scores of the next, the attention, the new state."""
        layers, weights, mask, arrays = state.shared.part
        lengths, longer = state.cache.lengths, list[Any]()
        queries = Queries.of(state.source, len(mask))
        read = [x[queries.sources] for x in arrays]
        pairs = list(zip(read[::2], read[1::2], strict=True))
        memory = Memory(pairs, mask[queries.sources], queries)
        x = self._embed(self.params, self.table, np.asarray(tokens)[:, None], lengths[:, None])
        append = partial(state.cache.append, longer)
        x = stack(x, layers, memory, mask=state.cache.mask(), cache=append)
        scores = self._output(self.params, self._last(self.params, "decoder", x)[:, 0])
        attention = queries.by_row(as_tensor(weights.pop().mean(axis=1))).data
        cache = Cache(lengths + 1, tuple(longer))
        return scores.data, attention, state._replace(cache=cache)
