"""A stack of layers, which the Transformers of `transformer` and `language_model` are made of.

A layer has up to three sub-layers: attention to its own input, attention to a memory, and a
position-wise network. Each is a sum and a layer norm, x ← norm(x + f(x)) or x ← x + f(norm(x)).
:func:`stack` applies the layers; an encoder and a language model are a stack without a memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pyentmax.engine.system.config import is_positive, require
from pyentmax.seq2seq.autograd import Tensor, as_tensor, dropout, exp, linear
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.models.encoder_decoder import EncoderDecoder, check_config
from pyentmax.seq2seq.models.protocol import IntArray
from pyentmax.seq2seq.models.states import Queries
from pyentmax.seq2seq.nn.attention import (
    LEARNED,
    SCORES,
    LearnedEntmax,
    MultiHead,
    init_learned_alpha,
    init_multi_head_attention,
    learned_alpha,
)
from pyentmax.seq2seq.nn.feed_forward import feed_forward, init_feed_forward
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.layer_norm import init_norm, norm
from pyentmax.seq2seq.nn.linear import embedding, init_linear
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.seq2seq.nn.output_layer import output_loss
from pyentmax.seq2seq.nn.positions import sinusoidal_positions

ALPHA_PER = ("head", "layer", "kind", "model")
NORMS = ("post", "pre")

Pair = tuple[Any, Any]
"""Keys and values, (B, S, n) both."""


class Memory(NamedTuple):
    """Keys and values that a stack attends to in addition to its own input."""

    pairs: Sequence[Pair]  # of each layer
    mask: Array  # (B, S): where there is a token
    queries: Queries | None = None  # in decoding: the rows of each of the B sources


def added(
    params: Parameters, name: str, config: StackConfig, rng: Generator | None,
    f: Callable[[Tensor], Tensor], x: Tensor,
) -> Tensor:  # fmt: skip
    """norm(x + f(x)), or x + f(norm(x)) in a pre-norm model, with the norm under ``name``."""
    pre = config.norm == "pre"
    y = f(norm(params, f"{name}.norm", x) if pre else x)
    total = x + dropout(y, config.dropout, rng)
    return total if pre else norm(params, f"{name}.norm", total)


@dataclass(frozen=True)
class Attention(MultiHead):
    """A sub-layer of attention.

    Parameters
    ----------
    add : callable
        The sum and norm around a function: :func:`added` but for its last two arguments.
    record : list, optional
        Where the weights of each call are appended, as arrays.
    """

    add: Any = None
    record: list[Array] | None = None

    def to_itself(
        self, x: Tensor, mask: Array | None = None, extend: Callable[[Pair], Pair] | None = None
    ) -> Tensor:
        """x + attention of x to itself, normalised; ``extend`` gives more keys and values."""

        def f(inside: Tensor) -> Tensor:
            pair = self.keys_and_values(inside)
            return self._recorded(inside, pair if extend is None else extend(pair), mask)

        return self.add(f, x)

    def to_memory(
        self, x: Tensor, pair: Pair, mask: Array, queries: Queries | None = None
    ) -> Tensor:
        """x + attention of x to a memory, normalised."""
        allowed = mask[:, None, None, :]

        def f(inside: Tensor) -> Tensor:
            if queries is None:
                return self._recorded(inside, pair, allowed)
            inside = queries.by_source(inside.data[:, 0])
            return queries.by_row(self._recorded(inside, pair, allowed))[:, None]

        return self.add(f, x)

    def _recorded(self, query: Tensor, pair: Pair, mask: Array | None) -> Tensor:
        scale = self._length_scale(query.shape[-2], pair[0].shape[-2], mask)
        y, weights = self(query, *pair, mask, scale=scale, need_weights=self.record is not None)
        if self.record is not None and weights is not None:
            self.record.append(weights.data)
        return y

    def _length_scale(self, queries: int, keys: int, mask: Array | None) -> Tensor | None:
        """1 + β (log n)^γ of each head, (…, heads, T), for queries that see n keys."""
        if f"{self.name}.length_logit" not in self.params:
            return None
        parts = (self.params[f"{self.name}.length_{part}"] for part in ("logit", "power"))
        logit, power = (as_tensor(part).reshape(-1, 1) for part in parts)
        # A single key gets all the weight, whatever its score; log 1 = 0 would have no logarithm.
        n_keys = np.maximum(keys_seen(queries, keys, mask), 2)
        log_log = np.log(np.log(n_keys))[..., None, :].astype(logit.dtype)
        return 1 + exp(logit + power * log_log)


def keys_seen(queries: int, keys: int, mask: Array | None) -> IntArray:
    """The numbers of keys that causal queries see, (T,), or (B, 1) of single ones with a mask."""
    return np.arange(keys - queries, keys) + 1 if mask is None else mask.sum(axis=-1)[:, 0]


class Layer(NamedTuple):
    """The sub-layers of one layer."""

    attention: Any  # Attention to its own input, or None
    context: Any  # Attention to a memory, or None
    network: Callable[[Tensor], Tensor]


def stack(
    x: Tensor, layers: Sequence[Layer], memory: Memory | None = None,
    *, mask: Array | None = None, cache: Callable[[int, Pair], Pair] | None = None,
) -> Tensor:  # fmt: skip
    """x, (B, T, n), after all layers.

    Parameters
    ----------
    x : (B, T, n) Tensor
    layers : sequence of Layer
    memory : Memory, optional
        What each layer attends to after its own input.
    mask : bool array, optional
        Broadcastable to (B, heads, T, S): which keys of the layers' own input may be seen.
    cache : callable, optional
        From a layer's number and the keys and values of x to those of all tokens so far.
    """
    for k, (attention, context, network) in enumerate(layers):
        if attention is not None:
            x = attention.to_itself(x, mask, None if cache is None else partial(cache, k))
        if context is not None and memory is not None:
            x = context.to_memory(x, memory.pairs[k], memory.mask, memory.queries)
        x = network(x)
    return x


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """Settings shared by models of such layers; `TransformerConfig` explains them."""

    width: int = 512
    layers: int = 6
    heads: int = 8
    inner: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0
    inner_dropout: float = 0.0
    attention: str = "1.5"
    inference_attention: str | None = None
    alpha_per: str = "head"
    alpha_std: float = 1.0
    output: str = "1.5"
    label_smoothing: float = 0.0
    score: str = "scaled"
    attention_bias: bool = True
    norm: str = "post"
    scale_embeddings: bool = True

    def check_layers(self, sizes: str) -> None:
        """Raise a ValueError unless these sizes and all settings of the layers are right."""
        rates = "dropout attention_dropout inner_dropout label_smoothing"
        check_config(self, f"{sizes} width layers heads inner", rates)
        require(self, "width", lambda n: n % 2 == 0, "an even number")
        divisor = f"a divisor of the width {self.width}"
        require(self, "heads", lambda n: self.width % n == 0, divisor)
        for name, known in (("alpha_per", ALPHA_PER), ("score", SCORES), ("norm", NORMS)):
            require(self, name, known.__contains__, f"one of {', '.join(known)}")
        require(self, "alpha_std", lambda x: is_positive(x) or x == 0, "a number from 0 up")
        for choice in (self.attention, self.inference_attention):
            if choice not in (LEARNED, None):
                choose_mapping(choice)
        if self.inference_attention == LEARNED != self.attention:
            raise ValueError(
                f"inference_attention: {LEARNED!r} needs the attention to be {LEARNED!r} too"
            )


class StackModel(EncoderDecoder):
    """A model of stacks, with its parameters under their names."""

    config: StackConfig
    kinds: ClassVar[tuple[str, ...]]
    """Kinds of attention in the model. α-entmax has an α of its own for each."""
    table: ClassVar[str]
    """Name of the embeddings of what is predicted."""
    attention: ClassVar[type[Attention]] = Attention

    @staticmethod
    @abstractmethod
    def attentions(config: Any) -> Iterator[tuple[str, int, str]]:
        """Kind, layer and name of every attention."""

    # --- a pass through the layers ----------------------------------------------------------------
    def layers(
        self, side: str, params: Parameters, rng: Generator | None = None,
        weights: dict[str, list[Array]] | None = None, *, last_only: bool = False,
    ) -> list[Layer]:  # fmt: skip
        """The layers of a stack, for one pass.

        Parameters
        ----------
        side : str
            With which the names of its parameters begin.
        params : dict of Tensors or arrays
        rng : generator, optional
            Switches on dropout and the attention of training.
        weights : dict of lists, optional
            Where the weights of each attention of these kinds are appended, as arrays.
        last_only : bool
            Whether only those of the last layer are.
        """
        config = self.config
        kinds = {name: (kind, k) for kind, k, name in self.attentions(config)}

        def attention(name: str) -> Attention | None:
            if name not in kinds:
                return None
            kind, k = kinds[name]
            recorded = k == config.layers - 1 or not last_only
            return self.attention(
                params, name, self.mapping(kind, k, params, rng), config.heads, config.score,
                causal=name.endswith(".self") and side != "encoder",
                rate=config.attention_dropout, rng=rng,
                add=partial(added, params, name, config, rng),
                record=(weights or {}).get(kind) if recorded else None,
            )  # fmt: skip

        def network(name: str) -> Callable[[Tensor], Tensor]:
            f = partial(feed_forward, params, name, rate=config.inner_dropout, rng=rng)
            return partial(added, params, name, config, rng, f)

        names = [f"{side}.{k}" for k in range(config.layers)]
        return [
            Layer(attention(f"{x}.self"), attention(f"{x}.context"), network(f"{x}.network"))
            for x in names
        ]

    def mapping(self, kind: str, layer: int, params: Parameters, rng: Generator | None) -> Any:
        """The mapping of an attention, in training where there is a generator."""
        config = self.config
        choice = (rng is None and config.inference_attention) or config.attention
        if choice != LEARNED:
            return choose_mapping(choice)
        return LearnedEntmax(params, alpha_name(config, kind, layer))

    def _embed(
        self, params: Parameters, table: str, tokens: Array, positions: IntArray | None,
        rng: Generator | None = None,
    ) -> Tensor:  # fmt: skip
        """Embeddings and positions, (B, T, n), for positions of shape (T,) or (B, T)."""
        n = self.config.width
        x = embedding(params, table, tokens)
        if self.config.scale_embeddings:
            x = x * n**0.5
        if positions is not None:
            x = x + sinusoidal_positions(positions, n, x.dtype)
        return dropout(x, self.config.dropout, rng)

    def _last(self, params: Parameters, side: str, x: Tensor) -> Tensor:
        """The output of the last layer, which a pre-norm model normalises here."""
        return norm(params, f"{side}.norm", x) if self.config.norm == "pre" else x

    def _output_rows(self, params: Parameters) -> tuple[Tensor, Any]:
        """The output's matrix, (classes, width), which may be that of the embeddings; its bias."""
        tied = "output.weight" not in params
        weight = as_tensor(params[f"{self.table}.weight" if tied else "output.weight"])
        return weight if tied else weight.transpose(), params["output.bias"]

    def _output(self, params: Parameters, hidden: Tensor) -> Tensor:
        """The scores of the next token."""
        rows, bias = self._output_rows(params)
        return linear(hidden, rows.transpose(), bias)

    def _output_loss(self, params: Parameters, hidden: Tensor, labels: Array) -> Tensor:
        """The mean loss of the next tokens, (n,), after hidden states (n, width)."""
        options = {"label_smoothing": self.config.label_smoothing}
        return output_loss(self.output, hidden, *self._output_rows(params), labels, **options)

    # --- parameters -------------------------------------------------------------------------------
    @classmethod
    def _init_attention(
        cls, rng: Generator, config: Any, place: tuple[str, int, str], params: Parameters,
        dtype: Any,
    ) -> None:  # fmt: skip
        """Add the parameters of an attention, its norm, and its α if it is learned."""
        (kind, layer, name), n = place, config.width
        params |= init_multi_head_attention(
            rng, name, n, dtype, bias=config.attention_bias, score=config.score, heads=config.heads
        )
        params |= init_norm(f"{name}.norm", n, dtype)
        alpha = alpha_name(config, kind, layer)
        if config.attention == LEARNED and f"{alpha}.alpha_logit" not in params:
            shape = (config.heads if config.alpha_per == "head" else 1, 1)
            drawn = init_learned_alpha(alpha, shape, rng, dtype)
            params |= {name: a * float(config.alpha_std) for name, a in drawn.items()}

    @staticmethod
    def _init_network(
        rng: Generator, config: Any, name: str, params: Parameters, dtype: Any
    ) -> None:
        """Add the parameters of a position-wise network and its norm."""
        params |= init_feed_forward(rng, name, config.width, config.inner, dtype)
        params |= init_norm(f"{name}.norm", config.width, dtype)

    @staticmethod
    def _init_output(rng: Generator, config: Any, size: int, tied: bool, dtype: Any) -> Parameters:
        """The parameters of the output; its matrix is that of the embeddings if they are tied."""
        if tied:
            return {"output.bias": np.zeros(size, dtype)}
        return init_linear(rng, "output", config.width, size, dtype=dtype)

    def alphas(self) -> dict[str, np.ndarray]:
        """The learned α of each kind's heads, (layers, heads); empty if they are not learned."""
        config, alphas = self.config, {}
        if config.attention == LEARNED:
            places = list(self.attentions(config))
            present = {kind for kind, _, _ in places}
            shape = config.layers, config.heads
            alphas = {kind: np.empty(shape) for kind in self.kinds if kind in present}
            for kind, layer, _ in places:
                alpha = learned_alpha(self.params, alpha_name(config, kind, layer))
                alphas[kind][layer] = alpha.data[:, 0]
        return alphas

    def diagnostics(self) -> dict[str, Any]:
        """The figures that a run's history records: the learned α, as nested lists."""
        return {kind: alpha.tolist() for kind, alpha in self.alphas().items()}


def alpha_name(config: StackConfig, kind: str, layer: int) -> str:
    """Where the α of an attention lies: with its layer and kind, its kind, or the model."""
    if config.alpha_per == "model":
        return "attention"
    return f"attention.{kind}" if config.alpha_per == "kind" else f"attention.{kind}.{layer}"
