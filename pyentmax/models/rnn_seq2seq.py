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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pyentmax.autograd import Tensor, as_tensor, concatenate, dropout, stack, tanh
from pyentmax.autograd.tensor import Array
from pyentmax.calls.devices import array_module, to_host
from pyentmax.models.encoder_decoder import EncoderDecoder, check_config, check_positive
from pyentmax.models.protocol import IntArray, PairBatch
from pyentmax.models.readers import Readers, distinct, joined_sources, still_read
from pyentmax.models.sources import check_sources
from pyentmax.nn.attention import (
    CONSTRAINED,
    LEARNED,
    AttentionMapping,
    Memory,
    attend,
    choose_score,
    constrained_attention,
    init_learned_alpha,
    learned_alpha,
    learned_entmax,
    weighted_average,
)
from pyentmax.nn.initializers import Generator, Parameters, glorot_uniform, uniform
from pyentmax.nn.linear import embedding, init_embedding, init_linear, linear
from pyentmax.nn.lstm import bilstm, init_bilstm, init_lstm, lstm_step, next_lstm_state
from pyentmax.nn.mapping_choice import choose_mapping
from pyentmax.nn.shared_matrix import SharedMatrix, shared


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
        How attention compares states, a name in :data:`pyentmax.nn.attention.SCORES`.
    fertility : float, optional
        The most attention that a source position gets over all steps (Malaviya et al. 2018). The
        attention must be softmax or sparsemax. It becomes csoftmax or csparsemax, bounded by what
        is left of the fertility, with a sink beside the source.
    label_smoothing : float
        The target's share that is spread over the vocabulary.
    embedding_std : float, optional
        Standard deviation of the embeddings' entries at the start, 1/√hidden unless given. With a
        vocabulary of thousands, 1 learns faster by far.
    start : {"uniform"}, optional
        How all but the embeddings starts: "uniform" draws weights and biases from ±1/√n for n
        inputs, n units in an encoder, as PyTorch's layers do. Unless given, weights are Glorot's,
        recurrent ones orthogonal, and biases 0 but for a forget gate's, 1.

    Raises
    ------
    ValueError
        If a size is not positive, ``hidden`` is odd, a rate or a fertility is out of range, or a
        mapping or score is unknown or does not fit its role.
    """

    source_size: int
    target_size: int
    hidden: int = 128
    layers: int = 1
    dropout: float = 0.3
    attention: str = "1.5"
    output: str = "1.5"
    score: str = "bilinear"
    fertility: float | None = None
    label_smoothing: float = 0.0
    embedding_std: float | None = None
    start: str | None = None

    def __post_init__(self) -> None:
        sizes = ("source_size", "target_size", "hidden", "layers")
        check_config(self, sizes, ("dropout", "label_smoothing"))
        if self.hidden % 2:
            raise ValueError(f"hidden: expected an even number, got {self.hidden}")
        attention = LEARNED if self.attention == LEARNED else choose_mapping(self.attention).name
        choose_score(self.score)
        check_positive("embedding_std", self.embedding_std)
        check_positive("fertility", self.fertility)
        if self.start not in (None, "uniform"):
            raise ValueError(f"start: expected 'uniform' or none, got {self.start!r}")
        if self.fertility is not None and attention not in CONSTRAINED:
            raise ValueError(
                f"fertility: expected the attention {' or '.join(CONSTRAINED)}, which can be "
                f"bounded, got {self.attention}"
            )


class DecoderState(NamedTuple):
    """What the decoder carries from step to step."""

    weights: tuple[Any, ...]  # per layer (2H, 4H): those of its input on top of the recurrent ones
    layers: tuple[Any, ...]  # per layer (2, B, H): hidden state and cell
    input_feed: Any  # (B, H): õ of the step before
    memory: Memory  # of the sources, (sources, S, …) each
    memory_index: IntArray  # (sources,): which encoded sources these are, ascending; on the host
    source_index: IntArray  # (B,): which encoded source a row decodes; on the host
    coverage: Any = None  # (B, S): the sum of past attention, where a fertility bounds it
    # (V, 4H): the part of each target token in the first layer's gates, where these are few.
    token_gates: Any = None
    # Rows that differ in their last token alone share the state before it. Then layers and
    # input_feed hold each such state once, and this says which is whose, on the host: (B,).
    place: IntArray | None = None

    def with_own_rows(self) -> DecoderState:
        """The same with a copy of the state for each row."""
        if self.place is None:
            return self
        place = array_module(self.input_feed).asarray(self.place)
        layers = tuple(layer[:, place] for layer in self.layers)
        return self._replace(layers=layers, input_feed=self.input_feed[place], place=None)


class RNNSeq2Seq(EncoderDecoder[RNNSeq2SeqConfig]):
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

    def __init__(self, config: RNNSeq2SeqConfig, params: Parameters, bos: int, eos: int) -> None:
        super().__init__(config, params, bos, eos)
        learned = config.attention == LEARNED
        self.attention = None if learned else choose_mapping(config.attention)
        self.score = choose_score(config.score)

    @classmethod
    def initialize(
        cls, config: RNNSeq2SeqConfig, rng: Generator, bos: int, eos: int, dtype: Any = np.float32
    ) -> RNNSeq2Seq:
        """A model with random parameters drawn from ``rng``."""
        n, std = config.hidden, config.embedding_std
        params = init_embedding(rng, "source_embedding", config.source_size, n, dtype, std)
        params |= init_embedding(rng, "target_embedding", config.target_size, n, dtype, std)
        for k in range(config.layers):
            params |= init_bilstm(rng, f"encoder.{k}", n, n, dtype)
            params |= init_lstm(rng, f"decoder.{k}", n, n, dtype)
        params["decoder.feed.weight"] = glorot_uniform(rng, n, 4 * n, dtype)
        params |= choose_score(config.score).initialize(rng, "attention", n, dtype)
        if config.attention == LEARNED:
            params |= init_learned_alpha("attention", dtype=dtype)
        params |= init_linear(rng, "combine", 2 * n, n, bias=False, dtype=dtype)
        params |= init_linear(rng, "output", n, config.target_size, dtype=dtype)
        if config.start == "uniform":
            params |= _uniform_start(rng, params, n)
        return cls(config, params, bos, eos)

    @property
    def attention_alpha(self) -> float | None:
        """α of the attention, fixed or as learned so far; None if it is not an α-entmax."""
        if self.attention is not None:
            return self.attention.alpha
        return float(to_host(learned_alpha(self.params, "attention").data)[0])

    # --- training ---------------------------------------------------------------------------------
    def diagnostics(self) -> dict[str, float]:
        """The figures that a run's history records: the learned α of the attention."""
        alpha = self.attention_alpha if self.attention is None else None
        return {} if alpha is None else {"attention": alpha}

    def loss(self, params: Parameters, batch: PairBatch, rng: Generator | None = None) -> Tensor:
        """Mean Fenchel-Young loss per target token, with the reference sequence as input.

        Parameters
        ----------
        params : dict of Tensors (or of arrays, for no gradient)
        batch : PairBatch
            Such as :func:`pyentmax.data.make_batch` makes. It is moved to the parameters' device.
        rng : numpy.random.Generator, optional
            Switches dropout on.
        """
        batch = batch.on(self.xp)
        scores = self.scores(params, batch.source, batch.source_mask, batch.target_in, rng)
        weight = batch.target_mask.T.astype(scores.dtype)
        options = {"weight": weight, "label_smoothing": self.config.label_smoothing}
        return self.output.loss(scores, batch.target_out.T, **options)

    def scores(
        self,
        params: Parameters,
        source: Array,
        source_mask: Array,
        target_in: Array,
        rng: Generator | None = None,
    ) -> Tensor:
        """Scores z of shape (T, B, V) for every next token, given those before it."""
        state = self._encode(params, source, source_mask, rng)
        params = params | {"combine.weight": SharedMatrix(params["combine.weight"])}
        embedded = embedding(params, "target_embedding", target_in.T)
        embedded = dropout(embedded, self.config.dropout, rng)
        # The embeddings' part of the first layer's gates, in one product for all steps.
        gates = linear(params, "decoder.0", embedded)
        outputs = []
        for step_gates in gates:
            state, _ = self._decode_step(params, step_gates, state, rng)
            outputs.append(state.input_feed)
        return linear(params, "output", stack(outputs))

    def _encode(
        self, params: Parameters, source: Array, mask: Array, rng: Generator | None
    ) -> DecoderState:
        check_sources(source, mask, self.config.source_size)
        rate = self.config.dropout
        time_mask = mask.T
        x = embedding(params, "source_embedding", source.T)
        last = []
        for k in range(self.config.layers):
            x, final = bilstm(params, f"encoder.{k}", dropout(x, rate, rng), time_mask)
            last.append(final)
        values = dropout(x, rate, rng).transpose(1, 0, 2)
        keys = self.score.keys(params, "attention", values)
        xp = array_module(x.data)
        input_feed = as_tensor(xp.zeros_like(x.data[0]))
        coverage = None if self.config.fertility is None else xp.zeros_like(values.data[:, :, 0])
        weights = []
        for k in range(self.config.layers):
            # The first layer's input is õ alone: the embeddings' part was computed for all steps.
            inputs = params[f"decoder.{k}.weight" if k else "decoder.feed.weight"]
            both = concatenate([inputs, params[f"decoder.{k}.recurrent"]], axis=0)
            weights.append(SharedMatrix(both))
        memory, index = Memory(keys, shared(values), mask), np.arange(len(mask))
        return DecoderState(tuple(weights), tuple(last), input_feed, memory, index, index, coverage)

    def _decode_step(
        self,
        params: Parameters,
        gates: Any,
        state: DecoderState,
        rng: Generator | None,
        readers: Readers | None = None,
    ) -> tuple[DecoderState, Tensor]:
        """One step of the decoder, from the embeddings' part of the first layer's gates.

        Each row attends to the source in its place, or to that of which it is one of the readers.
        """
        rate = self.config.dropout
        layers = self._lstm_layers(params, gates, state, rng)
        x = layers[-1][0]
        mapping, coverage = self._step_mapping(params, state.coverage)
        if readers is None:
            scores = self.score.compare(params, "attention", x, state.memory.keys)
            context, weights = attend(scores, state.memory, mapping)
        else:
            context, weights = self._attend_beside(params, x, state.memory, mapping, readers)
        if coverage is not None:
            coverage = coverage + weights
        combined = dropout(tanh(linear(params, "combine", concatenate([context, x]))), rate, rng)
        after = state._replace(
            layers=tuple(layers), input_feed=combined, coverage=coverage, place=None
        )
        return after, weights

    def _lstm_layers(
        self, params: Parameters, gates: Any, state: DecoderState, rng: Generator | None
    ) -> list[Tensor]:
        """The layers' new states."""
        if state.place is not None:
            return self._layers_of_shared(gates, state)
        x = as_tensor(state.input_feed)
        layers: list[Tensor] = []
        for k, before in enumerate(state.layers):
            if k:
                gates, x = params[f"decoder.{k}.bias"], dropout(x, self.config.dropout, rng)
            layers.append(lstm_step(gates, x, before, state.weights[k]))
            x = layers[-1][0]
        return layers

    def _layers_of_shared(self, gates: Array, state: DecoderState) -> list[Tensor]:
        """`_lstm_layers` where rows share the state before: its products are taken once for all."""
        place = self.xp.asarray(state.place)
        n = self.config.hidden
        layers: list[Array] = []
        for k, (h, c) in enumerate(state.layers):
            weight = state.weights[k]
            if k:
                x = layers[-1][0]
                shared = h @ weight[n:] + self.params[f"decoder.{k}.bias"]
                gates, of_before = x @ weight[:n], shared[place]
            else:
                of_before = (self.xp.concatenate([state.input_feed, h], axis=1) @ weight)[place]
            layers.append(next_lstm_state(gates, of_before, c[place]))
        return [as_tensor(layer) for layer in layers]

    def _attend_beside(
        self,
        params: Parameters,
        x: Tensor,
        memory: Memory,
        mapping: AttentionMapping,
        readers: Readers,
    ) -> tuple[Tensor, Tensor]:
        """Contexts and weights of rows with one copy of each source's keys and values."""
        keys, values = (readers.sources(part)[:, None] for part in (memory.keys, memory.values))
        beside = readers.beside(x.reshape(len(x.data), 1, -1))
        scores = readers.rows(self.score.compare(params, "attention", beside, keys)).data[:, 0]
        mask = readers.each(memory.mask)
        weights = mapping(as_tensor(scores), mask=mask)
        beside = readers.beside(weights.reshape(len(scores), 1, -1))
        return as_tensor(readers.rows(weighted_average(beside, values)).data[:, 0]), weights

    def _step_mapping(
        self, params: Parameters, coverage: Any
    ) -> tuple[AttentionMapping, Tensor | None]:
        """The mapping of this step and, if there is a fertility to bound it, the coverage."""
        if self.attention is None:
            return learned_entmax(params, "attention"), None
        if self.config.fertility is None:
            return self.attention, None
        coverage = as_tensor(coverage)
        upper = self.config.fertility - coverage
        return partial(constrained_attention, upper=upper, name=self.attention.name), coverage

    # --- decoding ---------------------------------------------------------------------------------
    def encode(self, source: Array, source_mask: Array) -> DecoderState:
        """The decoder's state before the first token, as arrays off the tape."""
        check_sources(source, source_mask, self.config.source_size)
        xp = self.xp
        state = self._encode(self.params, xp.asarray(source), xp.asarray(source_mask), None)
        if self.config.target_size <= 2 * len(source):  # all of them are soon read
            every = self.params["target_embedding.weight"]
            state = state._replace(token_gates=linear(self.params, "decoder.0", every))
        return _detached(state)

    def advance(self, state: DecoderState, tokens: Array) -> tuple[Array, Array, DecoderState]:
        """Read one token per row; return the scores of the next, the attention, the new state."""
        of_tokens, place = state.token_gates, tokens
        if of_tokens is None:
            # Many rows read the same token, whose part of the gates is computed once.
            different, place = distinct(tokens, self.config.target_size)
            embedded = embedding(self.params, "target_embedding", different)
            of_tokens = linear(self.params, "decoder.0", embedded).data
        gates = of_tokens[self.xp.asarray(place)]
        readers = Readers(np.searchsorted(state.memory_index, state.source_index))
        state, weights = self._decode_step(self.params, gates, state, None, readers)
        scores = linear(self.params, "output", state.input_feed)
        return scores.data, to_host(weights.data), _detached(state)

    def select(self, state: DecoderState, rows: Array) -> DecoderState:
        """The state of the given rows; a row may be repeated."""
        source_index = state.source_index[rows]
        states = rows if state.place is None else state.place[rows]
        different, place = distinct(states, len(state.input_feed))
        # Products of a few rows more would cost less than the way through `place`.
        share = 4 * len(different) <= 3 * len(rows)
        states = self.xp.asarray(different if share else states)
        memory, memory_index = state.memory, state.memory_index
        read = still_read(memory_index, source_index)
        if read is not None:
            places = self.xp.asarray(np.flatnonzero(read))
            memory = Memory(*(part[places] for part in memory))
            memory_index = memory_index[read]
        return state._replace(
            layers=tuple(layer.take(states, axis=1) for layer in state.layers),
            input_feed=state.input_feed[states],
            memory=memory,
            memory_index=memory_index,
            source_index=source_index,
            coverage=None if state.coverage is None else state.coverage[self.xp.asarray(rows)],
            place=place if share else None,
        )

    def join(self, states: Sequence[DecoderState]) -> DecoderState:
        """The rows of several states of one encoding, one state after the other."""
        xp = self.xp
        states = [state.with_own_rows() for state in states]
        layers = zip(*(state.layers for state in states), strict=True)
        index, memory = joined_sources(
            [state.memory_index for state in states], [state.memory for state in states]
        )
        return DecoderState(
            states[0].weights,
            tuple(xp.concatenate(parts, axis=1) for parts in layers),
            xp.concatenate([state.input_feed for state in states]),
            Memory(*memory),
            index,
            np.concatenate([state.source_index for state in states]),
            None if states[0].coverage is None else xp.concatenate([s.coverage for s in states]),
            token_gates=states[0].token_gates,
        )


def _uniform_start(rng: Generator, params: Parameters, hidden: int) -> Parameters:
    """All parameters but the embeddings and α, drawn anew from ±1/√n."""
    inputs = {"encoder": hidden // 2, "decoder": hidden, "combine": 2 * hidden}
    started: Parameters = {}
    for name, x in params.items():
        layer = name.partition(".")[0]
        if layer.endswith("_embedding") or name == "attention.alpha_logit":
            continue
        n = inputs.get(layer, hidden)
        if layer == "decoder" and name != "decoder.0.weight" and not name.endswith(".bias"):
            n *= 2  # what comes from below and the state before stand side by side
        started[name] = uniform(rng, x.shape, n**-0.5, x.dtype)
    return started


def _detached(state: Any) -> Any:
    """The same state, or part of one, as arrays off the tape."""
    if isinstance(state, tuple):
        parts = map(_detached, state)
        return state._make(parts) if hasattr(state, "_make") else tuple(parts)
    return state.data if isinstance(state, Tensor) else state
