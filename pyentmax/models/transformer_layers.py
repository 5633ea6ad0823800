"""What the Transformers of `transformer` and `language_model` share: their layers and settings.

A layer is a sub-layer of attention and one of a position-wise network, each with a sum and a layer
norm, x ← norm(x + f(x)) or x ← x + f(norm(x)). `LayerPass` applies them; `Past` keeps the keys and
values of what a decoder has read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from pyentmax.autograd import Tensor, as_tensor, dropout
from pyentmax.autograd.tensor import Array
from pyentmax.calls.devices import array_module
from pyentmax.models.encoder_decoder import EncoderDecoder, check_config, check_positive
from pyentmax.models.protocol import IntArray
from pyentmax.nn.attention import (
    HEAD_SCORES,
    LEARNED,
    AttentionMapping,
    attend_heads,
    init_learned_alpha,
    init_multi_head_attention,
    keys_and_values,
    learned_entmax,
)
from pyentmax.nn.feed_forward import feed_forward, init_feed_forward
from pyentmax.nn.initializers import Generator, Parameters
from pyentmax.nn.layer_norm import init_norm, norm
from pyentmax.nn.mapping_choice import choose_mapping

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
    alpha_trained: bool = True
    output: str = "1.5"
    label_smoothing: float = 0.0
    score: str = "scaled"
    attention_bias: bool = True
    norm: str = "post"
    scale_embeddings: bool = True
    first_attention: str | None = None
    first_updates: int | None = None
    anneal_updates: int | None = None
    query_key_scale: float | None = None

    def check_layers(self, *sizes: str) -> None:
        """Raise a ValueError unless sizes, these too, rates, choices and mappings are right."""
        rates = ("dropout", "attention_dropout", "inner_dropout", "label_smoothing")
        check_config(self, (*sizes, "width", "layers", "heads", "inner"), rates)
        if self.width % 2:
            raise ValueError(f"width: expected an even number, got {self.width}")
        if self.width % self.heads:
            raise ValueError(
                f"heads: expected a divisor of the width {self.width}, got {self.heads}"
            )
        check_choice("alpha_per", self.alpha_per, ALPHA_PER)
        check_choice("score", self.score, HEAD_SCORES)
        check_choice("norm", self.norm, NORMS)
        for choice in (self.attention, self.inference_attention):
            if choice not in (LEARNED, None):
                choose_mapping(choice)
        if self.inference_attention == LEARNED != self.attention:
            raise ValueError(
                f"inference_attention: {LEARNED!r} needs the attention to be {LEARNED!r} too"
            )
        _check_start(self)

    def attention_after(self, updates: int) -> str:
        """The attention of the update that follows after so many in a training.

        Examples
        --------
        >>> start = {"first_attention": "1", "first_updates": 100, "anneal_updates": 50}
        >>> config = LayersConfig(attention="1.5", **start)
        >>> [config.attention_after(updates) for updates in (0, 99, 100, 124, 149, 5000)]
        ['1', '1', '1.01', '1.25', '1.5', '1.5']
        """
        if self.first_attention is None or self.first_updates is None:
            return self.attention
        if updates < self.first_updates:
            return self.first_attention
        done = updates - self.first_updates + 1
        if self.anneal_updates is None or done >= self.anneal_updates:
            return self.attention
        first, last = (choose_mapping(x).alpha for x in (self.first_attention, self.attention))
        assert first is not None
        assert last is not None
        return str(round(first + (last - first) * done / self.anneal_updates, 6))


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Raise a ValueError unless a setting is one of those that are known."""
    if value not in known:
        raise ValueError(f"{name}: expected one of {', '.join(known)}; got {value!r}")


def _check_start(config: LayersConfig) -> None:
    for name in ("first_updates", "anneal_updates"):
        value = getattr(config, name)
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name}: expected a whole number from 1 up, got {value!r}")
    check_positive("query_key_scale", config.query_key_scale)
    if (config.first_attention is None) != (config.first_updates is None):
        raise ValueError(
            "first_attention, first_updates: expected both or neither, got "
            f"{config.first_attention!r} and {config.first_updates!r}"
        )
    if config.first_attention is not None:
        choose_mapping(config.first_attention)
    if config.anneal_updates is not None:
        alphas = [
            choose_mapping(choice).alpha if choice not in (None, LEARNED) else None
            for choice in (config.first_attention, config.attention)
        ]
        if None in alphas:
            raise ValueError(
                "anneal_updates: expected α-entmax as first_attention and as attention, got "
                f"{config.first_attention!r} and {config.attention!r}"
            )


Config = TypeVar("Config", bound=LayersConfig)


class LayeredModel(EncoderDecoder[Config]):
    """A model of such layers."""

    def at_update(self, n: int) -> Self:
        """The model that update number n (from 0) trains, with the attention scheduled for it.

        It has the same parameters. It is the model itself, except in the first updates, if the
        configuration gives them another attention.
        """
        attention = self.config.attention_after(n)
        if attention == self.config.attention:
            return self
        names = ("inference_attention", "first_attention", "first_updates", "anneal_updates")
        unscheduled: Any = dict.fromkeys(names)
        config = replace(self.config, attention=attention, **unscheduled)
        return type(self)(config, self.params, self.bos, self.eos)


def init_attention(rng: Generator, config: LayersConfig, name: str, dtype: Any) -> Parameters:
    """The parameters of an attention with its norm, but for its α."""
    n = config.width
    params = init_multi_head_attention(
        rng,
        name,
        n,
        dtype,
        bias=config.attention_bias,
        score=config.score,
        heads=config.heads,
    )
    if config.query_key_scale is not None and config.score != "dot":
        for part in ("query", "key"):
            params[f"{name}.{part}.weight"] *= config.query_key_scale
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
    return init_learned_alpha(alpha, shape, rng, dtype)


def init_network(rng: Generator, config: LayersConfig, name: str, dtype: Any) -> Parameters:
    """The parameters of a position-wise network with its norm."""
    params = init_feed_forward(rng, name, config.width, config.inner, dtype)
    return params | init_norm(f"{name}.norm", config.width, dtype)


class KeysValues(NamedTuple):
    """Keys and values of an attention, each (…, S, n)."""

    keys: Any
    values: Any


class LayerPass:
    """One pass through a model's layers: what they share.

    Parameters
    ----------
    rng : generator, optional
        Switches on dropout and the attention of training.
    weights : dict of lists, optional
        Where the weights of each attention are appended, as arrays.
    """

    def __init__(
        self,
        config: LayersConfig,
        params: Parameters,
        rng: Generator | None,
        weights: dict[str, list[Array]] | None = None,
    ) -> None:
        self.config, self.params, self.rng, self.weights = config, params, rng, weights
        self.pre = config.norm == "pre"

    def attention(
        self,
        kind: str,
        layer: int,
        name: str,
        x: Tensor,
        memory: KeysValues | Callable[[Tensor], KeysValues],
        allowed: Array | None,
        *,
        causal: bool = False,
        prepare: Callable[[Tensor], tuple[Tensor, Tensor | None]] | None = None,
    ) -> Tensor:
        """x + attention(x), normalised.

        ``memory`` is what x attends to, or gives it from x as it enters the projections;
        ``prepare`` is as for `attend_heads`.
        """
        config = self.config
        query = self.inside(name, x)
        keys, values = memory(query) if callable(memory) else memory
        y, weights = attend_heads(
            self.params,
            name,
            query,
            keys,
            values,
            self._mapping(kind, layer),
            heads=config.heads,
            mask=allowed,
            causal=causal,
            score=config.score,
            rate=config.attention_dropout,
            rng=self.rng,
            need_weights=self.weights is not None,
            prepare=prepare,
        )
        if self.weights is not None and weights is not None:
            self.weights[kind].append(weights.data)
        return self._added(x, y, name)

    def self_attention(
        self,
        kind: str,
        layer: int,
        name: str,
        x: Tensor,
        allowed: Array | None,
        *,
        causal: bool = False,
    ) -> Tensor:
        """The same, of x to itself."""
        own = partial(self.keys_and_values, name)
        return self.attention(kind, layer, name, x, own, allowed, causal=causal)

    def keys_and_values(self, name: str, x: Tensor) -> KeysValues:
        """The keys and values of an attention to x."""
        return KeysValues(*keys_and_values(self.params, name, x, x, self.config.score))

    def inside(self, name: str, x: Tensor) -> Tensor:
        """What enters a sub-layer: x, or x normalised."""
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

    def last(self, x: Tensor, name: str) -> Tensor:
        """What comes out of the last layer: normalised, if each layer's input is."""
        return norm(self.params, f"{name}.norm", x) if self.pre else x

    def _mapping(self, kind: str, layer: int) -> AttentionMapping:
        config = self.config
        choice = config.attention
        if self.rng is None and config.inference_attention is not None:
            choice = config.inference_attention
        if choice != LEARNED:
            return choose_mapping(choice)
        name = alpha_name(config, kind, layer)
        return learned_entmax(self.params, name, trained=config.alpha_trained)


def alpha_name(config: LayersConfig, kind: str, layer: int) -> str:
    """Where the α of an attention lies: with its layer and kind, its kind, or the model."""
    if config.alpha_per == "model":
        return "attention"
    return f"attention.{kind}" if config.alpha_per == "kind" else f"attention.{kind}.{layer}"


class Past:
    """The keys and values of all tokens so far, once the last one's are computed.

    ``longer`` then holds them for the next step. If all rows are of one length, ``lengths`` may be
    None.
    """

    def __init__(
        self, run: LayerPass, name: str, before: KeysValues, lengths: IntArray | None
    ) -> None:
        self.run, self.name, self.before, self.lengths = run, name, before, lengths
        self.longer = before

    def __call__(self, x: Tensor) -> KeysValues:
        new = detached(self.run.keys_and_values(self.name, x))
        pairs = zip(self.before, new, strict=True)
        self.longer = KeysValues(*(_appended(a, b, self.lengths) for a, b in pairs))
        return self.longer


def own_keys(lengths: IntArray, longest: int, xp: ModuleType) -> Array | None:
    """Which keys a row of ``lengths`` tokens and the next one has; None if all have ``longest``."""
    if (lengths == longest).all():
        return None
    return xp.asarray(np.arange(longest + 1) <= lengths[:, None])[:, None, None, :]


def _appended(past: Array, new: Array, lengths: IntArray | None) -> Array:
    """Each row's (1, n) after its ``lengths`` first entries, in a new array."""
    if lengths is None:
        return array_module(past).concatenate([past, new], axis=1)
    longer = lengthened(past, past.shape[1] + 1)
    xp = array_module(past)
    longer[xp.arange(len(lengths)), xp.asarray(lengths)] = new[:, 0]
    return longer


def lengthened(x: Array, length: int) -> Array:
    """(rows, T, n) with zeros behind, up to a length."""
    if x.shape[1] == length:
        return x
    xp = array_module(x)
    zeros = xp.zeros((x.shape[0], length - x.shape[1], x.shape[2]), x.dtype)
    return xp.concatenate([x, zeros], axis=1)


def rows_of_past(past: Sequence[KeysValues], rows: Array) -> tuple[KeysValues, ...]:
    """The keys and values of some rows, for each layer."""
    return tuple(KeysValues(*(x[rows] for x in layer)) for layer in past)


def joined_past(pasts: Sequence[Sequence[KeysValues]]) -> tuple[KeysValues, ...]:
    """The keys and values of the rows of several states, for each layer."""
    xp, longest = array_module(pasts[0][0].keys), max(past[0].keys.shape[1] for past in pasts)

    def joined(arrays: Sequence[Array]) -> Array:
        return xp.concatenate([lengthened(x, longest) for x in arrays])

    return tuple(
        KeysValues(joined([x.keys for x in layer]), joined([x.values for x in layer]))
        for layer in zip(*pasts, strict=True)
    )


def detached(pair: KeysValues) -> KeysValues:
    """The same off the tape."""
    return KeysValues(*(as_tensor(x).data for x in pair))
