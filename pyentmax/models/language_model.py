"""A language model: the decoder of a Transformer alone, with any mapping in every head.

    x ← embeddings + positions;  L times  x ← x + self(x),  x ← x + network(x)
    p(x_{t+1} | x_1 … x_t) = π'(V x_t + b)

with causal self-attention, π(q·k/√d) in each head, as in `transformer`, whose layers these are. A
text that is longer than what is read at once can be read in segments: the hidden states of the
segment before are kept, without a gradient, and attended to (Dai et al. 2019, Transformer-XL).
That needs positions that are relative. The scores of a query that sees n keys can be multiplied by
1 + β (log n)^γ with β, γ of each head's own (Vasylenko et al. 2025, Long-Context Generalization
with Sparse Attention: there β and γ depend on the token too), which makes up for the longer texts
in which more keys share the weight.

Texts are (batch, time) arrays of token ids. To the decoders of `pyentmax.decoding`, a source is the
beginning of a text, and a hypothesis how it goes on up to the next ``eos``, such as the end of a
line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from pyentmax.autograd import Tensor, as_tensor, concatenate, dropout, exp
from pyentmax.autograd.tensor import Array
from pyentmax.calls.devices import to_host
from pyentmax.models.protocol import BoolArray, IntArray, TextBatch
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
from pyentmax.nn.relative_positions import (
    init_relative_positions,
    relative_scores,
    relative_scores_of_last,
)

POSITIONS = ("sinusoidal", "relative")
KIND = "self"
"""The one kind of attention."""

Memory = tuple[Any, ...]
"""What each layer read of the segment before, (B, M, n) arrays off the tape."""


@dataclass(frozen=True)
class LanguageModelConfig(LayersConfig):
    """The sizes and mappings of a model.

    Parameters
    ----------
    size : int
        Of the vocabulary.
    width, layers, heads, inner, dropout, attention_dropout, inner_dropout, attention, \
inference_attention, alpha_per, alpha_trained, output, label_smoothing, score, attention_bias, \
norm, scale_embeddings, first_attention, first_updates, anneal_updates, query_key_scale
        As for `TransformerConfig`.
    tied : bool
        Whether the embeddings are the rows of the output's matrix.
    positions : {"sinusoidal", "relative"}
        Added to the embeddings, or in the scores of attention.
    memory : int
        How many positions before a segment are attended to: 0, unless positions are relative.
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
    positions: str = "sinusoidal"
    memory: int = 0
    length_scale: bool = False

    def __post_init__(self) -> None:
        self.check_layers("size")
        check_choice("positions", self.positions, POSITIONS)
        if self.memory < 0:
            raise ValueError(f"memory: expected at least 0, got {self.memory}")
        if self.memory and self.positions != "relative":
            raise ValueError(
                "memory: expected 0, or positions 'relative': what a segment before says of its "
                f"own positions would be taken for this one's; got {self.memory}"
            )
        if self.positions == "relative" and self.score not in ("scaled", "bilinear"):
            raise ValueError(
                "positions: expected the score 'scaled' or 'bilinear' with 'relative', got "
                f"{self.score!r}"
            )


class LanguageModelState(NamedTuple):
    """What decoding carries from step to step."""

    past: tuple[Any, ...]  # keys and values of the tokens read so far, (rows, T, n) each
    lengths: IntArray  # (rows,): how many of the T are a row's own; on the host
    unread: IntArray  # (rows,): the last token of the source until it is read, then −1
    source_mask: BoolArray  # (rows, S): where the source has tokens; on the host
    source_index: IntArray  # (rows,): which text a row continues; on the host


class LanguageModel(LayeredModel[LanguageModelConfig]):
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
        n = config.width
        params = init_embedding(rng, "embedding", config.size, n, dtype)
        for k in range(config.layers):
            name = f"layer.{k}.self"
            params |= init_attention(rng, config, name, dtype)
            params |= init_alpha(rng, config, KIND, k, params, dtype)
            if config.positions == "relative":
                params |= init_relative_positions(rng, name, n, dtype)
            if config.length_scale:
                # β = e^−2 at first: the scores of 256 keys by 1.75.
                params[f"{name}.length_logit"] = np.full(config.heads, -2.0, dtype)
                params[f"{name}.length_power"] = np.ones(config.heads, dtype)
            params |= init_network(rng, config, f"layer.{k}.network", dtype)
        if config.norm == "pre":
            params |= init_norm("last.norm", n, dtype)
        if config.tied:
            params["output.bias"] = np.zeros(config.size, dtype)
        else:
            params |= init_linear(rng, "output", n, config.size, dtype=dtype)
        return cls(config, params, bos, eos)

    def alphas(self) -> np.ndarray | None:
        """The learned α of the heads, (layers, heads); None if they are not learned."""
        config = self.config
        if config.attention != LEARNED:
            return None
        alphas = np.empty((config.layers, config.heads))
        for k in range(config.layers):
            alpha = learned_alpha(self.params, alpha_name(config, KIND, k))
            alphas[k] = to_host(alpha.data)[:, 0]
        return alphas

    # --- training ---------------------------------------------------------------------------------
    def diagnostics(self) -> dict[str, Any]:
        """The figures that a run's history records: the learned α of the heads, as nested lists."""
        alphas = self.alphas()
        return {} if alphas is None else {KIND: alphas.tolist()}

    def loss(self, params: Parameters, batch: TextBatch, rng: Generator | None = None) -> Tensor:
        """Mean Fenchel-Young loss per token, each predicted from those before it.

        Parameters
        ----------
        params : dict of Tensors (or of arrays, for no gradient)
        batch : TextBatch
            Such as :class:`pyentmax.data.Segments` makes. It is moved to the parameters' device.
            What the model remembers of ``batch.before`` gets no gradient.
        rng : numpy.random.Generator, optional
            Switches dropout on, and the attention of training.
        """
        batch = batch.on(self.xp)
        memory = None
        if batch.before.shape[1]:
            values = {name: as_tensor(x).data for name, x in params.items()}
            memory = self.memory_of(batch.before, params=values)
        scores = self.scores(params, batch.tokens_in, rng, memory)
        flat = scores.reshape(-1, self.config.size)
        smoothing = self.config.label_smoothing
        return self.output.loss(flat, batch.tokens_out.reshape(-1), label_smoothing=smoothing)

    def scores(
        self,
        params: Parameters,
        tokens: Array,
        rng: Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """Scores z of shape (B, T, V) for every next token, given those up to it."""
        return self._output(params, self._hidden(params, tokens, rng, memory))

    def memory_of(
        self, tokens: Array, memory: Memory | None = None, params: Parameters | None = None
    ) -> Memory:
        """What is kept of a segment, (B, T, n), for the next one to attend to: no gradient.

        A memory from before it is put in front, and the last ``config.memory`` positions are kept.
        """
        if not self.config.memory:
            raise ValueError("memory: expected a configuration with memory above 0, got 0")
        read: list[Array] = []
        self._hidden(params or self.params, tokens, None, memory, read=read)
        before = (None,) * len(read) if memory is None else memory
        longer = [
            new if old is None else self.xp.concatenate([old, new], axis=1)
            for old, new in zip(before, read, strict=True)
        ]
        return tuple(x[:, -self.config.memory :] for x in longer)

    def attention_weights(self, tokens: Array, memory: Memory | None = None) -> list[Array]:
        """The weights of every head as the model reads texts: (B, H, T, M + T) per layer."""
        weights: dict[str, list[Array]] = {KIND: []}
        self._hidden(self.params, self.xp.asarray(tokens), None, memory, weights)
        return weights[KIND]

    def _hidden(
        self,
        params: Parameters,
        tokens: Array,
        rng: Generator | None = None,
        memory: Memory | None = None,
        weights: dict[str, list[Array]] | None = None,
        read: list[Array] | None = None,
        cache: list[KeysValues] | None = None,
    ) -> Tensor:
        """The last layer, (B, T, n); what each layer read and its keys and values on request."""
        config = self.config
        run = LayerPass(config, params, rng, weights)
        count = tokens.shape[1]
        before = 0 if memory is None else memory[0].shape[1]
        x = self._embed(run, tokens, np.arange(count))
        seen = np.arange(before + 1, before + count + 1)

        for k in range(config.layers):
            name = f"layer.{k}.self"
            if read is not None:
                read.append(x.data)

            def own(inside: Tensor, k: int = k, name: str = name) -> KeysValues:
                if memory is not None:
                    remembered = run.inside(name, as_tensor(memory[k]))
                    inside = concatenate([remembered, inside], axis=1)
                pair = run.keys_and_values(name, inside)
                if cache is not None:
                    cache.append(detached(pair))
                return pair

            def prepare(q: Tensor, name: str = name) -> tuple[Tensor, Tensor | None]:
                q = self._scaled(params, name, q, seen)
                if config.positions != "relative":
                    return q, None
                keys = before + count
                return q, relative_scores(params, name, q, keys, config.heads, self._scale)

            x = run.attention(KIND, k, name, x, own, None, causal=True, prepare=prepare)
            x = run.network(f"layer.{k}.network", x)
        return run.last(x, "last")

    def _embed(self, run: LayerPass, tokens: Array, positions: IntArray) -> Tensor:
        """Embeddings and positions, (B, T, n), for positions of shape (T,) or (B, T)."""
        n = self.config.width
        x = embedding(run.params, "embedding", tokens)
        if self.config.scale_embeddings:
            x = x * n**0.5
        if self.config.positions == "sinusoidal":
            x = x + x.xp.asarray(sinusoidal_positions(positions, n, x.dtype))
        return dropout(x, self.config.dropout, run.rng)

    def _scaled(self, params: Parameters, name: str, q: Tensor, seen: IntArray) -> Tensor:
        """Queries (B, T, n) times 1 + β (log seen)^γ of each head, for numbers (T,) or (B, T)."""
        if not self.config.length_scale:
            return q
        heads = self.config.heads
        # A single key gets all the weight, whatever its score; log 1 = 0 would have no logarithm.
        log_log = np.log(np.log(np.maximum(seen, 2)))[..., None].astype(q.dtype)
        power = as_tensor(params[f"{name}.length_power"])
        factor = 1 + exp(as_tensor(params[f"{name}.length_logit"]) + power * q.xp.asarray(log_log))
        by_head = q.reshape(*q.shape[:-1], heads, q.shape[-1] // heads)
        return (by_head * factor.reshape(*factor.shape, 1)).reshape(*q.shape)

    @property
    def _scale(self) -> float:
        """What `attend_heads` multiplies q·k with."""
        d = self.config.width // self.config.heads
        return float(d**-0.5) if self.config.score == "scaled" else 1.0

    def _output(self, params: Parameters, hidden: Tensor) -> Tensor:
        if self.config.tied:
            return tied_linear(params, "embedding", "output", hidden)
        return linear(params, "output", hidden)

    # --- decoding ---------------------------------------------------------------------------------
    def encode(self, source: Array, source_mask: Array) -> LanguageModelState:
        """The state after the beginnings of some texts but for their last token, off the tape."""
        check_sources(source, source_mask, self.config.size)
        source, mask = np.asarray(source), np.asarray(source_mask, dtype=bool)
        lengths = mask.sum(axis=1)
        rows = np.arange(len(source))
        cache: list[KeysValues] = []
        if source.shape[1] > 1:
            self._hidden(self.params, self.xp.asarray(source[:, :-1]), cache=cache)
        else:
            table = self.params["embedding.weight"]
            empty = self.xp.zeros((len(source), 0, self.config.width), table.dtype)
            cache = [KeysValues(empty, empty)] * self.config.layers
        unread = source[rows, lengths - 1]
        return LanguageModelState(tuple(cache), lengths - 1, unread, mask, rows)

    def advance(
        self, state: LanguageModelState, tokens: Array
    ) -> tuple[Array, Array, LanguageModelState]:
        """Read one token per row; return the scores of the next, the attention, the new state.

        The weights that come with it are those of the source: what a row has written itself gets
        the rest.
        """
        xp, config, lengths = self.xp, self.config, state.lengths
        tokens = np.where(state.unread >= 0, state.unread, np.asarray(tokens))
        weights: dict[str, list[Array]] = {KIND: []}
        run = LayerPass(config, self.params, None, weights)
        x = self._embed(run, xp.asarray(tokens)[:, None], lengths[:, None])
        longest = state.past[0].keys.shape[1]
        allowed = own_keys(lengths, longest, xp)
        past = []
        for k in range(config.layers):
            name = f"layer.{k}.self"
            cached = Past(run, name, state.past[k], None if allowed is None else lengths)

            def prepare(q: Tensor, name: str = name) -> tuple[Tensor, Tensor | None]:
                q = self._scaled(self.params, name, q, lengths[:, None] + 1)
                if config.positions != "relative":
                    return q, None
                shape = (longest + 1, config.heads, self._scale)
                return q, relative_scores_of_last(self.params, name, q, lengths, *shape)

            x = run.attention(KIND, k, name, x, cached, allowed, prepare=prepare)
            past.append(cached.longer)
            x = run.network(f"layer.{k}.network", x)
        scores = self._output(self.params, run.last(x, "last")[:, 0])
        mask = state.source_mask
        attention = to_host(weights[KIND][-1][:, :, 0].mean(axis=1))[:, : mask.shape[1]]
        read = np.full_like(state.unread, -1)
        after = state._replace(past=tuple(past), lengths=lengths + 1, unread=read)
        return scores.data, attention * mask, after

    def select(self, state: LanguageModelState, rows: Array) -> LanguageModelState:
        """The state of the given rows; a row may be repeated."""
        past, *rest = state
        chosen: Any = (x[rows] for x in rest)
        return LanguageModelState(rows_of_past(past, self.xp.asarray(rows)), *chosen)

    def join(self, states: Sequence[LanguageModelState]) -> LanguageModelState:
        """The rows of several states of one encoding, one state after the other."""
        pasts, *others = zip(*states, strict=True)
        rest: Any = map(np.concatenate, others)
        return LanguageModelState(joined_past(pasts), *rest)
