"""The sequence-to-sequence model of Peters et al. (2019), §2, with any mappings in its two roles.

    encoder    h₁ … h_S    = stacked bidirectional LSTMs over the source's embeddings
    decoder    s_t         = stacked LSTMs over [embedding of y_{t−1}; õ_{t−1}]      (input feeding)
    attention  p_t         = π(z(s_t, h_j)),   c_t = Σ_j p_{t,j} h_j                 (Eq. 1)
    output     õ_t         = tanh(W_o [c_t; s_t]),   y_t ~ π'(V õ_t + b)             (Eq. 2)

With a sparse π' the model may find only a few strings of each length possible. Sequences are
(batch, time) arrays of token ids. Inside the model time comes first, so that a step of the whole
batch is one contiguous block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.system.config import require
from pyentmax.seq2seq.autograd import Tensor, as_tensor, concatenate, dropout, stack, tanh
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.models.encoder_decoder import EncoderDecoder, check_config, check_sources
from pyentmax.seq2seq.models.protocol import IntArray, Shared
from pyentmax.seq2seq.models.states import Queries
from pyentmax.seq2seq.nn.attention import (
    LEARNED,
    SCORES,
    AttentionMapping,
    LearnedEntmax,
    attend,
    check_score,
    init_learned_alpha,
    learned_alpha,
)
from pyentmax.seq2seq.nn.initializers import Generator, Parameters, glorot_uniform
from pyentmax.seq2seq.nn.linear import embedding, init_embedding, init_linear, linear
from pyentmax.seq2seq.nn.lstm import bilstm, init_bilstm, init_lstm, lstm_step, next_lstm_state
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.seq2seq.nn.output_layer import output_loss
from pyentmax.seq2seq.nn.shared_matrix import SharedMatrix, shared


@dataclass(frozen=True)
class RNNSeq2SeqConfig:
    """The sizes and mappings of a model.

    Parameters
    ----------
    source_size, target_size : int
        Sizes of the two vocabularies.
    hidden : int
        Width of embeddings and hidden states. Even, because the encoder's two directions share it.
    layers : int
        Depth of encoder and decoder.
    dropout : float
        Dropout rate on embeddings, between layers and on õ.
    attention, output : str
        The two mappings, an α or a name as for `choose_mapping`. The output is trained with its
        mapping's own Fenchel-Young loss. The attention may be "learned": α-entmax whose α is a
        parameter, 1 < α < 2.
    score : str
        How attention compares states, a name in :data:`pyentmax.seq2seq.nn.attention.SCORES`.
    label_smoothing : float
        The target's share that is spread over the vocabulary.

    Raises
    ------
    ValueError
        If a size is not positive, ``hidden`` is odd, a rate is out of range, or a mapping or score
        is unknown or does not fit its role.
    """

    source_size: int
    target_size: int
    hidden: int = 128
    layers: int = 1
    dropout: float = 0.3
    attention: str = "1.5"
    output: str = "1.5"
    score: str = "bilinear"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_config(self, "source_size target_size hidden layers", "dropout label_smoothing")
        require(self, "hidden", lambda n: n % 2 == 0, "an even number")
        if self.attention != LEARNED:
            choose_mapping(self.attention)
        check_score(self.score)


class Memory(NamedTuple):
    """Keys and values of the decoder's attention, (B, S, H) both, and the mask of tokens."""

    keys: Any
    values: Any
    mask: Array  # (B, S)


class DecoderState(NamedTuple):
    """The state of decoding between steps, with a row for each prefix."""

    shared: Shared  # the `Memory` of the sources, and products of the parameters
    source: IntArray  # (rows,): the source of each
    feed: Array  # õ, (rows, H)
    layers: tuple[tuple[Array, Array], ...]  # per layer the hidden state and the cell, (rows, H)


class RNNSeq2Seq(EncoderDecoder):
    """A model: its configuration and a flat dict of parameter arrays.

    Parameters
    ----------
    config : RNNSeq2SeqConfig
    params : dict of arrays
        As :meth:`initialize` makes them.
    bos, eos : int
        Ids of the target tokens that begin and end a sequence.

    Examples
    --------
    >>> import numpy as np
    >>> config = RNNSeq2SeqConfig(source_size=9, target_size=7, hidden=8)
    >>> model = RNNSeq2Seq.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    >>> source = np.array([[3, 4, 5]])
    >>> step, state = model.step(model.encode(source, source > 0), np.array([model.bos]))
    >>> step.log_prob.shape, step.attention.shape
    ((1, 7), (1, 3))
    """

    config: RNNSeq2SeqConfig

    def __init__(self, config: RNNSeq2SeqConfig, params: Parameters, bos: int, eos: int) -> None:
        super().__init__(config, params, bos, eos)
        learned = config.attention == LEARNED
        self.attention = None if learned else choose_mapping(config.attention)
        self.score: Any = SCORES[config.score]

    @classmethod
    def initialize(
        cls, config: RNNSeq2SeqConfig, rng: Generator, bos: int, eos: int, dtype: Any = np.float32
    ) -> RNNSeq2Seq:
        """A model with random parameters drawn from ``rng``."""
        n = config.hidden
        params = init_embedding(rng, "source_embedding", config.source_size, n, dtype)
        params |= init_embedding(rng, "target_embedding", config.target_size, n, dtype)
        for k in range(config.layers):
            params |= init_bilstm(rng, f"encoder.{k}", n, n, dtype)
            params |= init_lstm(rng, f"decoder.{k}", n, n, dtype)
        params["decoder.feed.weight"] = glorot_uniform(rng, n, 4 * n, dtype)
        params |= SCORES[config.score].initialize(rng, "attention", n, dtype)
        if config.attention == LEARNED:
            params |= init_learned_alpha("attention", dtype=dtype)
        params |= init_linear(rng, "combine", 2 * n, n, bias=False, dtype=dtype)
        params |= init_linear(rng, "output", n, config.target_size, dtype=dtype)
        return cls(config, params, bos, eos)

    @property
    def attention_alpha(self) -> float | None:
        """α of the attention, fixed or as learned so far; None if it is not an α-entmax."""
        if self.attention is not None:
            return self.attention.alpha
        return float(learned_alpha(self.params, "attention").data[0])

    # --- training ---------------------------------------------------------------------------------
    def diagnostics(self) -> dict[str, float]:
        """The figures that a run's history records: the learned α of the attention."""
        alpha = self.attention_alpha if self.attention is None else None
        return {} if alpha is None else {"attention": alpha}

    def loss(self, params: Parameters, batch: Any, rng: Generator | None = None) -> Tensor:
        """Mean Fenchel-Young loss per target token, with the reference sequence as input.

        Parameters
        ----------
        params : dict of Tensors (or of arrays, for no gradient)
        batch : pyentmax.seq2seq.data.Batch
            Or what has its arrays.
        rng : numpy.random.Generator, optional
            Switches dropout on.
        """
        hidden = self._hidden(params, batch.source, batch.source_mask, batch.target_in, rng)
        rows = as_tensor(params["output.weight"]).transpose()
        weight = batch.target_mask.T.astype(hidden.dtype)
        options = {"weight": weight, "label_smoothing": self.config.label_smoothing}
        bias, labels = params["output.bias"], batch.target_out.T
        return output_loss(self.output, hidden, rows, bias, labels, **options)

    def scores(
        self,
        params: Parameters,
        source: Array,
        source_mask: Array,
        target_in: Array,
        rng: Generator | None = None,
    ) -> Tensor:
        """Scores z of shape (T, B, V) for every next token, given those before it."""
        hidden = self._hidden(params, source, source_mask, target_in, rng)
        return linear(params, "output", hidden)

    def _hidden(
        self,
        params: Parameters,
        source: Array,
        source_mask: Array,
        target_in: Array,
        rng: Generator | None,
    ) -> Tensor:
        """The input of the output layer, õ of shape (T, B, H)."""
        check_sources(source, source_mask, self.config.source_size)
        params = params | {"combine.weight": SharedMatrix(params["combine.weight"])}
        memory, layers = self._encode(params, source, source_mask, rng)
        weights = [SharedMatrix(weight) for weight in self._joint_weights(params)]
        rate = self.config.dropout
        embedded = dropout(embedding(params, "target_embedding", target_in.T), rate, rng)
        feed = as_tensor(np.zeros_like(embedded.data[0]))
        outputs = []
        # The embeddings' part of the first layer's gates, in one product for all steps.
        for gates in linear(params, "decoder.0", embedded):
            x, states = feed, []
            for k, before in enumerate(layers):
                if k:
                    gates, x = params[f"decoder.{k}.bias"], dropout(x, rate, rng)
                states.append(lstm_step(gates, x, before, weights[k]))
                x = states[-1][0]
            layers = states
            context, _ = self._attend(params, x, memory)
            feed = dropout(self._combined(params, context, x), rate, rng)
            outputs.append(feed)
        return stack(outputs)

    def _encode(
        self, params: Parameters, source: Array, mask: Array, rng: Generator | None
    ) -> tuple[Memory, list[Tensor]]:
        """The decoder's memory of the source, and its layers' first states, (2, B, H) each."""
        rate = self.config.dropout
        x = embedding(params, "source_embedding", source.T)
        layers = []
        for k in range(self.config.layers):
            x, last = bilstm(params, f"encoder.{k}", dropout(x, rate, rng), mask.T)
            layers.append(last)
        values = dropout(x, rate, rng).transpose(1, 0, 2)
        keys = self.score.keys(params, "attention", values)
        return Memory(keys, shared(values), mask), layers

    def _joint_weights(self, params: Parameters) -> list[Tensor]:
        """Per decoder layer (2H, 4H): the weights of its input on top of the recurrent ones.

        The first layer's input is õ alone: the embeddings have a product of their own.
        """
        names = ["decoder.feed", *(f"decoder.{k}" for k in range(1, self.config.layers))]
        return [
            concatenate([params[f"{name}.weight"], params[f"decoder.{k}.recurrent"]], axis=0)
            for k, name in enumerate(names)
        ]

    def _attend(self, params: Parameters, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """The context vectors and weights of queries (B, H), or of several each, (B, T, H)."""
        mapping: AttentionMapping = self.attention or LearnedEntmax(params, "attention")
        score = partial(self.score.compare, params, "attention")
        return attend(query, memory.keys, memory.values, mapping, memory.mask, score=score)

    def _combined(self, params: Parameters, context: Tensor, x: Tensor) -> Tensor:
        """õ = tanh(W_o [c; s])."""
        return tanh(linear(params, "combine", concatenate([context, x])))

    # --- decoding ---------------------------------------------------------------------------------
    def encode(self, source: Array, source_mask: Array) -> DecoderState:
        """The decoder's state before the first token, as arrays off the tape."""
        check_sources(source, source_mask, self.config.source_size)
        mask = np.asarray(source_mask)
        memory, states = self._encode(self.params, np.asarray(source), mask, None)
        layers = tuple((state.data[0], state.data[1]) for state in states)
        arrays = Memory(memory.keys.data, memory.values.data, mask)
        weights = [weight.data for weight in self._joint_weights(self.params)]
        gates = None
        if self.config.target_size <= 2 * len(mask):  # most of them are soon read
            gates = self._gates(np.arange(self.config.target_size))
        shared = Shared((arrays, weights, gates))
        return DecoderState(shared, np.arange(len(mask)), np.zeros_like(layers[0][0]), layers)

    def _gates(self, tokens: IntArray) -> Array:
        """The contribution of tokens to the first layer's pre-activations, (rows, 4H)."""
        x = embedding(self.params, "target_embedding", tokens)
        return linear(self.params, "decoder.0", x).data

    def advance(self, state: DecoderState, tokens: Array) -> tuple[Array, Array, DecoderState]:
        """Read one token per row; return the scores of the next, the attention, the new state."""
        params, layers = self.params, list[Any]()
        memory, weights, token_gates = state.shared.part
        gates = self._gates(tokens) if token_gates is None else token_gates[tokens]
        below = state.feed
        for k, (hidden, cell) in enumerate(state.layers):
            if k:
                gates, below = params[f"decoder.{k}.bias"], layers[-1][0]
            products = np.concatenate([below, hidden], axis=1) @ weights[k]
            layers.append(tuple(next_lstm_state(gates, products, cell)))
        x = layers[-1][0]
        queries = Queries.of(state.source, len(memory.mask))
        keys, values, mask = (part[queries.sources] for part in memory)
        found = self._attend(params, queries.by_source(x), Memory(keys, values, mask[:, None]))
        context, attention = map(queries.by_row, found)
        feed = self._combined(params, context, as_tensor(x))
        scores = linear(params, "output", feed).data
        return scores, attention.data, state._replace(feed=feed.data, layers=tuple(layers))
