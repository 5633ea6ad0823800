"""What the Transformers of `transformer` and `language_model` share: their layers and settings.

A layer is a sub-layer of attention and one of a position-wise network, each with a sum and a layer
norm, x ← norm(x + f(x)) or x ← x + f(norm(x)). `LayerPass` applies them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from pyentmax.engine.system.config import is_positive, require
from pyentmax.seq2seq.autograd import Tensor, as_tensor, dropout
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.models.encoder_decoder import EncoderDecoder, check_config
from pyentmax.seq2seq.models.past import Past
from pyentmax.seq2seq.models.protocol import IntArray
from pyentmax.seq2seq.nn.attention import (
    HEAD_SCORES,
    LEARNED,
    attend_heads,
    init_learned_alpha,
    init_multi_head_attention,
    keys_and_values,
    learned_alpha,
    learned_entmax,
)
from pyentmax.seq2seq.nn.attention.sparse import can_screen
from pyentmax.seq2seq.nn.feed_forward import feed_forward, init_feed_forward
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.layer_norm import init_norm, norm
from pyentmax.seq2seq.nn.linear import embedding, init_linear, linear, tied_linear
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.seq2seq.nn.output_layer import NextScores, output_loss
from pyentmax.seq2seq.nn.positions import sinusoidal_positions

ALPHA_PER = ("head", "layer", "kind", "model")
NORMS = ("post", "pre")


@dataclass(frozen=True, kw_only=True)
class LayersConfig:
    """What configurations of models of such layers share; `TransformerConfig` says what each is."""

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
        for name, known in (("alpha_per", ALPHA_PER), ("score", HEAD_SCORES), ("norm", NORMS)):
            require(self, name, known.__contains__, f"one of {', '.join(known)}")
        require(self, "alpha_std", lambda x: is_positive(x) or x == 0, "a number from 0 up")
        for choice in (self.attention, self.inference_attention):
            if choice not in (LEARNED, None):
                choose_mapping(choice)
        if self.inference_attention == LEARNED != self.attention:
            raise ValueError(
                f"inference_attention: {LEARNED!r} needs the attention to be {LEARNED!r} too"
            )


class LayeredModel(EncoderDecoder):
    """A model of such layers."""

    config: LayersConfig
    kinds: ClassVar[tuple[str, ...]]
    """What kinds of attention it has. α-entmax has an α of its own for each."""
    table: ClassVar[str]
    """Name of the embeddings of what is predicted."""

    @staticmethod
    @abstractmethod
    def attentions(config: Any) -> Iterator[tuple[str, int, str]]:
        """Kind, layer and name of every attention."""

    def alphas(self) -> dict[str, np.ndarray]:
        """The learned α of each kind's heads, (layers, heads); empty if they are not learned."""
        config, alphas = self.config, {}
        if config.attention == LEARNED:
            attentions = list(self.attentions(config))
            shape = config.layers, config.heads
            with_heads = {kind for kind, _, _ in attentions}
            alphas = {kind: np.empty(shape) for kind in self.kinds if kind in with_heads}
            for kind, layer, _ in attentions:
                alpha = learned_alpha(self.params, alpha_name(config, kind, layer))
                alphas[kind][layer] = alpha.data[:, 0]
        return alphas

    def diagnostics(self) -> dict[str, Any]:
        """The figures that a run's history records: the learned α, as nested lists."""
        return {kind: alpha.tolist() for kind, alpha in self.alphas().items()}

    def _embed(
        self, run: LayerPass, table: str, tokens: Array, positions: IntArray | None
    ) -> Tensor:
        """Embeddings and positions, (B, T, n), for positions of shape (T,) or (B, T)."""
        n = self.config.width
        x = embedding(run.params, table, tokens)
        if self.config.scale_embeddings:
            x = x * n**0.5
        if positions is not None:
            x = x + np.asarray(sinusoidal_positions(positions, n, x.dtype))
        return dropout(x, self.config.dropout, run.rng)

    def _output_loss(self, params: Parameters, hidden: Tensor, labels: Array) -> Tensor:
        """The mean loss of the next tokens, (n,), after hidden states (n, width)."""
        tied = "output.weight" not in params
        weight = as_tensor(params[f"{self.table}.weight" if tied else "output.weight"])
        rows, bias = weight if tied else weight.transpose(), params["output.bias"]
        smoothing = self.config.label_smoothing
        return output_loss(self.output, hidden, rows, bias, labels, label_smoothing=smoothing)

    def _next_scores(self) -> NextScores:
        """The output layer as decoding calls it."""
        return NextScores(self.output, self.params, partial(self._output, self.params), self.table)

    def _output(self, params: Parameters, hidden: Tensor) -> Tensor:
        """The scores of the next token."""
        if "output.weight" in params:
            return linear(params, "output", hidden)
        return tied_linear(params, self.table, "output", hidden)


def init_attention(rng: Generator, config: LayersConfig, name: str, dtype: Any) -> Parameters:
    """The parameters of an attention with its norm, but for its α."""
    n, score, bias = config.width, config.score, config.attention_bias
    params = init_multi_head_attention(
        rng, name, n, dtype, bias=bias, score=score, heads=config.heads
    )
    params |= init_norm(f"{name}.norm", n, dtype)
    return params


def init_alpha(
    rng: Generator, config: LayersConfig, kind: str, layer: int, params: Parameters, dtype: Any
) -> Parameters:
    """The α of an attention, if it is learned and ``params`` do not have it yet."""
    alpha = alpha_name(config, kind, layer)
    if config.attention != LEARNED or f"{alpha}.alpha_logit" in params:
        return {}
    shape = (config.heads if config.alpha_per == "head" else 1, 1)
    drawn = init_learned_alpha(alpha, shape, rng, dtype)
    return {name: a * float(config.alpha_std) for name, a in drawn.items()}


def init_network(rng: Generator, config: LayersConfig, name: str, dtype: Any) -> Parameters:
    """The parameters of a position-wise network with its norm."""
    params = init_feed_forward(rng, name, config.width, config.inner, dtype)
    return params | init_norm(f"{name}.norm", config.width, dtype)


def init_output(
    rng: Generator, config: LayersConfig, size: int, tied: bool, dtype: Any
) -> Parameters:
    """The parameters of the output; its matrix is that of the embeddings if they are tied."""
    if tied:
        return {"output.bias": np.zeros(size, dtype)}
    return init_linear(rng, "output", config.width, size, dtype=dtype)


class LayerPass:
    """One pass through a model's layers: what they share.

    Parameters
    ----------
    rng : generator, optional
        Switches on dropout and the attention of training.
    weights : dict of lists, optional
        Where the weights of each attention of these kinds are appended, as arrays.
    last_only : bool
        Whether only those of the last layer are.
    """

    def __init__(
        self,
        config: LayersConfig,
        params: Parameters,
        rng: Generator | None,
        weights: dict[str, list[Array]] | None = None,
        *,
        last_only: bool = False,
    ) -> None:
        self.config = config
        self.params = params
        self.rng = rng
        self.weights = weights or {}
        self.first_with_weights: int = config.layers - 1 if last_only else 0
        self.pre: bool = config.norm == "pre"
        used = config.attention if rng is not None else config.inference_attention
        choice = used or config.attention
        self.mapping = None if choice == LEARNED else choose_mapping(choice)

    def attention(
        self,
        kind: str,
        layer: int,
        name: str,
        x: Tensor,
        memory: Any,
        allowed: Array | None,
        *,
        causal: bool = False,
        scale: Tensor | None = None,
    ) -> Tensor:
        """x + attention(x), normalised.

        ``memory`` is a pair of keys and values, or gives it from x as it enters the projections;
        ``scale`` is as for `attend_heads`.
        """
        config, mapping = self.config, self._mapping(kind, layer)
        query = self.inside(name, x)
        keys, values = memory(query) if callable(memory) else memory
        y, weights = attend_heads(
            self.params,
            name,
            query,
            keys,
            values,
            mapping,
            heads=config.heads,
            mask=allowed,
            causal=causal,
            score=config.score,
            rate=config.attention_dropout,
            rng=self.rng,
            need_weights=self._needs_weights(kind, layer),
            scale=scale,
        )
        if weights is not None:
            self.weights[kind].append(weights.data)
        return self._added(x, y, name)

    def _mapping(self, kind: str, layer: int) -> Any:
        return self.mapping or learned_entmax(self.params, alpha_name(self.config, kind, layer))

    def _needs_weights(self, kind: str, layer: int) -> bool:
        return kind in self.weights and layer >= self.first_with_weights

    def screened_heads(self, kind: str, layer: int, x: Tensor, past: Past) -> int | None:
        """The number of heads if, for queries x, keys of the past may be `ScreenedRows`."""
        if self._needs_weights(kind, layer) or self.config.score == "additive":
            return None
        heads = self.config.heads
        served = can_screen(self._mapping(kind, layer), heads, x.data, past.longest)
        return heads if served else None

    def keys_and_values(self, name: str, x: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of an attention to x."""
        return keys_and_values(self.params, name, x, x, self.config.score)

    def inside(self, name: str, x: Tensor) -> Tensor:
        """What enters a sub-layer, or comes out of the last layer: x, or x normalised."""
        return norm(self.params, f"{name}.norm", x) if self.pre else x

    def network(self, name: str, x: Tensor) -> Tensor:
        """x + network(x), normalised."""
        y = feed_forward(
            self.params, name, self.inside(name, x), self.config.inner_dropout, self.rng
        )
        return self._added(x, y, name)

    def _added(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        total = x + dropout(y, self.config.dropout, self.rng)
        return total if self.pre else norm(self.params, f"{name}.norm", total)


def alpha_name(config: LayersConfig, kind: str, layer: int) -> str:
    """Where the α of an attention lies: with its layer and kind, its kind, or the model."""
    if config.alpha_per == "model":
        return "attention"
    return f"attention.{kind}" if config.alpha_per == "kind" else f"attention.{kind}.{layer}"
