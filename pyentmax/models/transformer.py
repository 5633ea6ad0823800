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

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from pyentmax.autograd import Tensor, as_tensor, dropout, take_rows
from pyentmax.autograd.tensor import Array
from pyentmax.calls.devices import array_module, to_host
from pyentmax.models.protocol import IntArray, PairBatch
from pyentmax.models.readers import Readers
from pyentmax.models.sources import check_sources
from pyentmax.models.transformer_layers import (
    KeysValues,
    LayeredModel,
    LayerPass,
    LayersConfig,
    Past,
    alpha_name,
    check_choice,
    detached,
    init_alpha,
    init_attention,
    init_network,
    joined_past,
    own_keys,
    rows_of_past,
)
from pyentmax.nn.attention import LEARNED, learned_alpha
from pyentmax.nn.initializers import Generator, Parameters
from pyentmax.nn.layer_norm import init_norm
from pyentmax.nn.linear import embedding, init_embedding, init_linear, linear, tied_linear
from pyentmax.nn.positions import sinusoidal_positions

KINDS = ("encoder", "context", "decoder")
"""The three attentions: of the encoder to itself, of the decoder to the encoder, of the decoder to
itself. α-entmax has an α of its own for each."""

TIED = ("none", "output", "all")


@dataclass(frozen=True)
class TransformerConfig(LayersConfig):
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
    alpha_trained : bool
        False leaves each α as it was drawn.
    output : str
        The mapping of the output, trained with its own Fenchel-Young loss.
    label_smoothing : float
        The target's share that is spread over the vocabulary.
    score : str
        One of :data:`pyentmax.nn.attention.HEAD_SCORES`.
    attention_bias : bool
        Whether the projections of attention have biases.
    norm : {"post", "pre"}
        Layer norm after each sum, or on each layer's input and once at the end.
    tied : {"none", "output", "all"}
        "output": the target's embeddings are the rows of the output's matrix; "all": the source's
        too, for a joint vocabulary.
    scale_embeddings : bool
        Whether embeddings are multiplied by √width.
    first_attention : str, optional
        The mapping of every head in the first updates of a training, such as "softmax": sparse
        heads learn little while they see one or two positions only. Validations and use take
        ``attention`` from the start.
    first_updates : int, optional
        How many updates ``first_attention`` has.
    anneal_updates : int, optional
        Over how many updates after those α moves on to that of ``attention``, in equal steps. If
        not given, it jumps there.
    query_key_scale : float, optional
        What the initial projections of queries and keys are multiplied by; 1 if not given.

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
        self.check_layers("source_size", "target_size")
        check_choice("tied", self.tied, TIED)
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
    """What the decoder carries from step to step; each tuple has an entry per layer."""

    past: tuple[Any, ...]  # keys and values of the tokens read so far, (rows, T, n) each
    lengths: IntArray  # (rows,): how many of the T are a row's own; on the host
    readers: Readers  # of the sources' mask and, per layer, keys and values


class Transformer(LayeredModel[TransformerConfig]):
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

    @classmethod
    def initialize(
        cls, config: TransformerConfig, rng: Generator, bos: int, eos: int, dtype: Any = np.float32
    ) -> Transformer:
        """A model with random parameters drawn from ``rng``."""
        n = config.width
        params = init_embedding(rng, "target_embedding", config.target_size, n, dtype)
        params |= cls._source_parameters(config, rng, dtype)
        for kind, layer, name in _attentions(config):
            params |= init_attention(rng, config, name, dtype)
            params |= init_alpha(rng, config, kind, layer, params, dtype)
        for name in _networks(config):
            params |= init_network(rng, config, name, dtype)
        if config.norm == "pre":
            params |= init_norm("encoder.norm", n, dtype) | init_norm("decoder.norm", n, dtype)
        if config.tied == "none":
            params |= init_linear(rng, "output", n, config.target_size, dtype=dtype)
        else:
            params["output.bias"] = np.zeros(config.target_size, dtype)
        return cls(config, params, bos, eos)

    @classmethod
    def _source_parameters(
        cls, config: TransformerConfig, rng: Generator, dtype: Any
    ) -> Parameters:
        """What turns the source's positions into vectors."""
        if config.tied == "all":
            return {}
        return init_embedding(rng, "source_embedding", config.source_size, config.width, dtype)

    def alphas(self) -> dict[str, np.ndarray]:
        """The learned α of each kind's heads, (layers, heads); empty if they are not learned."""
        config = self.config
        if config.attention != LEARNED:
            return {}
        with_heads = {kind for kind, _, _ in _attentions(config)}
        shape = config.layers, config.heads
        alphas = {kind: np.empty(shape) for kind in KINDS if kind in with_heads}
        for kind, layer, _ in _attentions(config):
            alpha = learned_alpha(self.params, alpha_name(config, kind, layer))
            alphas[kind][layer] = to_host(alpha.data)[:, 0]
        return alphas

    # --- training ---------------------------------------------------------------------------------
    def diagnostics(self) -> dict[str, Any]:
        """The α of each kind's heads, if they are learned, as nested lists."""
        return {kind: alpha.tolist() for kind, alpha in self.alphas().items()}

    def loss(self, params: Parameters, batch: PairBatch, rng: Generator | None = None) -> Tensor:
        """Mean Fenchel-Young loss per target token, with the reference sequence as input.

        Parameters
        ----------
        params : dict of Tensors (or of arrays, for no gradient)
        batch : PairBatch
            Such as :func:`pyentmax.data.make_batch` makes. It is moved to the parameters' device.
        rng : numpy.random.Generator, optional
            Switches dropout on, and the attention of training.
        """
        # The scores of padding would cost as much as all others, and count nothing.
        places = array_module(batch.target_mask).flatnonzero(batch.target_mask)
        padded = len(places) < batch.target_mask.size
        batch = batch.on(self.xp)
        hidden = self._hidden(params, batch.source, batch.source_mask, batch.target_in, rng)
        hidden = hidden.reshape(-1, self.config.width)
        labels = batch.target_out.reshape(-1)
        if padded:
            places = self.xp.asarray(places)
            hidden, labels = take_rows(hidden, places), labels[places]
        smoothing = self.config.label_smoothing
        return self.output.loss(self._output(params, hidden), labels, label_smoothing=smoothing)

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
        xp = self.xp
        source, mask, read = map(xp.asarray, (source, source_mask, target_in))
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
        run = LayerPass(self.config, params, rng, weights)
        memory = self._encode(run, source, source_mask)
        x = self._embed(run, "target", target_in, np.arange(target_in.shape[1]))
        allowed = source_mask[:, None, None, :]
        for k in range(self.config.layers):
            layer = f"decoder.{k}"
            x = run.self_attention("decoder", k, f"{layer}.self", x, None, causal=True)
            context = run.keys_and_values(f"{layer}.context", memory)
            x = run.attention("context", k, f"{layer}.context", x, context, allowed)
            x = run.network(f"{layer}.network", x)
        return run.last(x, "decoder")

    def _encode(self, run: LayerPass, source: Array, mask: Array) -> Tensor:
        self._check_source(source, mask)
        x = self._embed_source(run, source)
        for k in range(self.config.layers):
            if self.config.encoder_attends:
                x = run.self_attention("encoder", k, f"encoder.{k}.self", x, mask[:, None, None, :])
            x = run.network(f"encoder.{k}.network", x)
        return run.last(x, "encoder")

    def _check_source(self, source: Array, mask: Array) -> None:
        check_sources(source, mask, self.config.source_size)

    def _embed_source(self, run: LayerPass, source: Array) -> Tensor:
        """The source's positions as the first layer of the encoder takes them, (B, S, n)."""
        return self._embed(run, "source", source, np.arange(source.shape[1]))

    def _embed(self, run: LayerPass, side: str, tokens: Array, positions: IntArray) -> Tensor:
        """Embeddings and positions, (B, T, n), for positions of shape (T,) or (B, T)."""
        n = self.config.width
        table = "target" if self.config.tied == "all" else side
        x = embedding(run.params, f"{table}_embedding", tokens)
        if self.config.scale_embeddings:
            x = x * n**0.5
        encoded = sinusoidal_positions(positions, n, x.dtype)
        return dropout(x + x.xp.asarray(encoded), self.config.dropout, run.rng)

    def _output(self, params: Parameters, hidden: Tensor) -> Tensor:
        if self.config.tied == "none":
            return linear(params, "output", hidden)
        return tied_linear(params, "target_embedding", "output", hidden)

    # --- decoding ---------------------------------------------------------------------------------
    def encode(self, source: Array, source_mask: Array) -> TransformerState:
        """The decoder's state before the first token, as arrays off the tape."""
        self._check_source(source, source_mask)
        xp, config = self.xp, self.config
        run = LayerPass(config, self.params, None)
        mask = xp.asarray(source_mask)
        hidden = self._encode(run, xp.asarray(source), mask)
        rows = len(source)
        names = [f"decoder.{k}.context" for k in range(config.layers)]
        memory = [x for name in names for x in detached(run.keys_and_values(name, hidden))]
        empty = xp.zeros((rows, 0, config.width), hidden.dtype)
        past = (KeysValues(empty, empty),) * config.layers
        lengths = np.zeros(rows, dtype=np.int64)
        return TransformerState(past, lengths, Readers(np.arange(rows), [mask, *memory]))

    def advance(
        self, state: TransformerState, tokens: Array
    ) -> tuple[Array, Array, TransformerState]:
        """Read one token per row; return the scores of the next, the attention, the new state."""
        xp, lengths = self.xp, state.lengths
        weights: dict[str, list[Array]] = {kind: [] for kind in KINDS}
        run = LayerPass(self.config, self.params, None, weights)
        longest = state.past[0].keys.shape[1]
        allowed = own_keys(lengths, longest, xp)
        positions = np.array([longest]) if allowed is None else lengths[:, None]
        x = self._embed(run, "target", xp.asarray(tokens)[:, None], positions)
        readers = state.readers
        mask, *memory = readers.memory
        mask = mask[:, None, None, :]
        past = []
        for k in range(self.config.layers):
            layer = f"decoder.{k}"
            cached = Past(run, f"{layer}.self", state.past[k], None if allowed is None else lengths)
            x = run.attention("decoder", k, f"{layer}.self", x, cached, allowed)
            past.append(cached.longer)
            source = KeysValues(*memory[2 * k : 2 * k + 2])
            queries = readers.by_source(x[:, 0])
            attended = run.attention("context", k, f"{layer}.context", queries, source, mask)
            x = run.network(f"{layer}.network", readers.by_row(attended)[:, None])
        scores = self._output(self.params, run.last(x, "decoder")[:, 0])
        attention = readers.by_row(as_tensor(weights["context"][-1].mean(axis=1))).data
        state = state._replace(past=tuple(past), lengths=lengths + 1)
        return scores.data, to_host(attention), state

    def select(self, state: TransformerState, rows: Array) -> TransformerState:
        """The state of the given rows; a row may be repeated."""
        return state._replace(
            past=rows_of_past(state.past, self.xp.asarray(rows)),
            lengths=state.lengths[rows],
            readers=state.readers.select(rows),
        )

    def join(self, states: Sequence[TransformerState]) -> TransformerState:
        """The rows of several states of one encoding, one state after the other."""
        return states[0]._replace(
            past=joined_past([state.past for state in states]),
            lengths=np.concatenate([state.lengths for state in states]),
            readers=Readers.join([state.readers for state in states]),
        )


def _attentions(config: TransformerConfig) -> Iterator[tuple[str, int, str]]:
    """Kind, layer and name of every attention."""
    for k in range(config.layers if config.encoder_attends else 0):
        yield "encoder", k, f"encoder.{k}.self"
    for k in range(config.layers):
        yield "decoder", k, f"decoder.{k}.self"
        yield "context", k, f"decoder.{k}.context"


def _networks(config: TransformerConfig) -> list[str]:
    return [f"{side}.{k}.network" for side in ("encoder", "decoder") for k in range(config.layers)]
