"""What attention is called with, checked and arranged: dtypes, batch shapes, heads, mask, mapping.

Fewer key heads than query heads are told by the last batch axis. With H query heads and n key
heads, query head h goes with key head h // (H/n), as with `enable_gqa` in PyTorch. That axis is
split into (n, H/n) here, and into (n, 1) for the keys, after which batch shapes broadcast as usual.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pyentmax.backends import threads
from pyentmax.calls.devices import array_module, beside
from pyentmax.calls.dtypes import as_floating
from pyentmax.calls.lazy import check_known
from pyentmax.calls.parameters import UpperBounds
from pyentmax.calls.record import Mapping
from pyentmax.calls.rows import as_mask, reduce_to
from pyentmax.mappings import MAPPINGS
from pyentmax.mappings.entmax import ALPHA, ENTMAX
from pyentmax.mappings.entmax15 import ENTMAX15
from pyentmax.mappings.softmax import SOFTMAX
from pyentmax.mappings.sparsemax import SPARSEMAX
from pyentmax.sparse_attention.weights import AttentionWeights, check_parts

SPECIAL = (SOFTMAX, ENTMAX15, SPARSEMAX)  # α-entmax of one α


class Inputs:
    """Arrays of one call, with batch shapes that broadcast, in the dtype to compute in.

    Attributes
    ----------
    query, key, value : arrays of shape (…, T, d), (…, S, d), (…, S, dᵥ)
    batch : tuple of int
        what their batch shapes broadcast to, heads split in two where they are grouped
    outer : tuple of int
        the same as the caller sees it
    shape : tuple of int
        batch + (T, S)
    answer : dtype
        to answer in
    """

    def __init__(self, query: Any, key: Any, value: Any) -> None:
        given = {"query": query, "key": key, "value": value}
        arrays, answers = {}, []
        for name, array in given.items():
            arrays[name], answer = as_floating(array, name)
            check_known(arrays[name], name)
            answers.append(answer)
            if arrays[name].ndim < 2:
                raise ValueError(
                    f"{name} must have at least two axes, positions and features, got shape "
                    f"{arrays[name].shape}"
                )
        self.answer = np.result_type(*answers)
        self.dtype = np.result_type(*(array.dtype for array in arrays.values()))
        query, key, value = (
            beside(array, arrays["query"], name).astype(self.dtype, copy=False)
            for name, array in arrays.items()
        )
        if query.shape[-1] != key.shape[-1]:
            raise ValueError(
                f"query and key must have as many features, got shapes {query.shape} and "
                f"{key.shape}"
            )
        if key.shape[-2] != value.shape[-2]:
            raise ValueError(
                f"key and value must have as many positions, got shapes {key.shape} and "
                f"{value.shape}"
            )
        self._shapes = query.shape, key.shape, value.shape
        self._groups = _groups(*(shape[:-2] for shape in self._shapes))
        self.query, self.key, self.value = (self._split_heads(x) for x in (query, key, value))
        try:
            self.batch = _broadcast(*(x.shape[:-2] for x in self._arranged()))
        except ValueError:
            q, k, v = (shape[:-2] for shape in self._shapes)
            raise ValueError(
                f"the batch shapes of query {q}, key {k} and value {v} must broadcast, or have a "
                "number of query heads, the last of these axes, that is a multiple of the others'"
            ) from None
        self.outer = self.batch
        if self._groups:
            self.outer = (*self.batch[:-2], math.prod(self.batch[-2:]))
        self.shape = (*self.batch, query.shape[-2], key.shape[-2])

    def per_head(self, value: Any, name: str) -> Any:
        """A parameter, checked to broadcast against the batch shape, and as it does so here."""
        value = np.asarray(value) if not hasattr(value, "__array_function__") else value
        if not value.ndim:
            return value
        try:
            fits = np.broadcast_shapes(value.shape, self.outer) == self.outer
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"{name} of shape {value.shape} does not broadcast against the batch shape "
                f"{self.outer}"
            )
        return self._split_outer(value, 0)

    def per_score(self, value: Any, name: str) -> Any:
        """An array that broadcasts against the scores, of shape (…, T, S)."""
        value = np.asarray(value) if not hasattr(value, "__array_function__") else value
        outer = (*self.outer, *self.shape[-2:])
        try:
            fits = np.broadcast_shapes(value.shape, outer) == outer
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"{name} of shape {value.shape} does not broadcast to the scores, of shape {outer}"
            )
        matrices = np.broadcast_to(value, (1,) * (2 - value.ndim) + value.shape)
        return self._split_outer(matrices, 2)

    def of_output(self, g: Any, name: str) -> Any:
        """An array of the output's shape, such as its gradient, in the dtype to compute in."""
        array, answer = as_floating(g, name)
        shape = (*self.outer, self.query.shape[-2], self.value.shape[-1])
        if array.shape != shape:
            raise ValueError(
                f"{name} must have the shape of the output, {shape}, got {array.shape}"
            )
        self.answer = np.promote_types(self.answer, answer)
        return self._split_outer(beside(array, self.query, name).astype(self.dtype, copy=False), 2)

    def tangent(self, tangent: Any, which: int) -> Any:
        """A direction for query, key or value (0, 1, 2), of its shape; None is none at all."""
        name = ("query", "key", "value")[which]
        like, shape = self._arranged()[which], self._shapes[which]
        if tangent is None:
            return np.zeros_like(like)
        array, answer = as_floating(tangent, f"d_{name}")
        if array.shape != shape:
            raise ValueError(f"d_{name} must have the shape of {name}, {shape}, got {array.shape}")
        self.answer = np.promote_types(self.answer, answer)
        return beside(array, like, f"d_{name}").astype(self.dtype, copy=False).reshape(like.shape)

    def gradient(self, gradient: Any, which: int) -> Any:
        """A gradient of query, key or value as the caller's: summed where it was broadcast."""
        if gradient.shape != self._arranged()[which].shape:
            gradient = reduce_to(gradient, self._arranged()[which].shape)
        return gradient.reshape(self._shapes[which]).astype(self.answer, copy=False)

    def output(self, output: Any) -> Any:
        """The output in the caller's shape and dtype."""
        shape = (*self.outer, *output.shape[-2:])
        return output.reshape(shape).astype(self.answer, copy=False)

    def outer_weights(self, weights: AttentionWeights) -> AttentionWeights:
        """Weights of these inputs as the caller sees them."""
        shape = (*self.outer, *self.shape[-2:])
        return AttentionWeights(shape, weights.data, weights.indices, weights.indptr)

    def check_weights(self, weights: Any) -> AttentionWeights:
        """Weights as a caller passes them, if they are of such inputs."""
        if not isinstance(weights, AttentionWeights):
            raise TypeError(
                "weights must be the AttentionWeights that attention returns with "
                f"return_weights=True, got {type(weights).__name__}"
            )
        outer = (*self.outer, *self.shape[-2:])
        if weights.shape != outer:
            raise ValueError(
                f"weights of shape {weights.shape} do not belong to query, key and value, whose "
                f"weights have shape {outer}"
            )
        check_parts(weights)
        xp = array_module(weights.data)
        data, indices, indptr = (
            xp.asarray(array, dtype, order="C")
            for array, dtype in (
                (weights.data, self.dtype),
                (weights.indices, np.int32),
                (weights.indptr, np.int64),
            )
        )
        return AttentionWeights(self.shape, data, indices, indptr)

    def _arranged(self) -> tuple[Any, Any, Any]:
        return self.query, self.key, self.value

    def _split_heads(self, array: Any) -> Any:
        if not self._groups or array.ndim < 3:
            return array
        n, heads = self._groups, array.shape[-3]
        apart = (heads, 1) if heads in (1, n) else (n, heads // n)
        return array.reshape((*array.shape[:-3], *apart, *array.shape[-2:]))

    def _split_outer(self, array: Any, core: int) -> Any:
        at = array.ndim - core - 1
        if not self._groups or at < 0:
            return array
        apart = self.batch[-2:] if array.shape[at] != 1 else (1, 1)
        return array.reshape((*array.shape[:at], *apart, *array.shape[at + 1 :]))


@dataclass(frozen=True)
class RowMapping:
    """A mapping with its parameters, applied to scores of shape batch + (T, S).

    Attributes
    ----------
    record : Mapping
    values : tuple of arrays
        the parameters, of shapes that broadcast against batch + (T,), or as scores for bounds
    bounds : tuple of bool
        which of them are bounds, a number for each score
    """

    record: Mapping
    values: tuple[Any, ...]
    bounds: tuple[bool, ...]

    def forward(self, scores: Any, mask: Any) -> Any:
        """Weights; none in a row without keys."""
        if scores.shape[-1] == 0:
            return np.zeros_like(scores)
        weights = self.record.forward(scores, *self.values, mask=mask)
        # The mapping makes a row with a NaN one throughout; what is masked stays out of it here.
        return weights if mask is None else np.where(mask, weights, 0)

    def vjp(self, weights: Any, g: Any, mask: Any) -> Any:
        """Jᵀ g, row by row."""
        if weights.shape[-1] == 0:
            return np.zeros_like(weights)
        return self.record.vjp(weights, g, *self.values, mask=mask)

    def jvp(self, weights: Any, v: Any, mask: Any) -> Any:
        """J v, row by row."""
        if weights.shape[-1] == 0:
            return np.zeros_like(weights)
        return self.record.jvp(weights, v, *self.values, mask=mask)

    def vjp_alpha(self, weights: Any, g: Any, mask: Any) -> Any:
        """The gradient of the parameter α, of its shape."""
        (alpha,) = self.values
        if weights.shape[-1] == 0:
            return np.zeros_like(alpha)
        assert self.record.parameter_vjp is not None
        return self.record.parameter_vjp(weights, g, alpha, mask=mask)


class Setting:
    """How attention is computed: mapping with parameters, mask, causality, scale, threads.

    Attributes
    ----------
    mapping : RowMapping
    entmax : bool
        whether the mapping is the α-entmax of `support_alpha`
    support_alpha : float, array that broadcasts to the batch shape, or None
        the α whose entmax has the mapping's Jacobian on the support, if there is one
    mask : bool array that broadcasts to batch + (T, S), or None
    reach : int or None
        query t sees keys 0 … t + reach at most
    scale : float
    workers : int
        threads to use at most
    """

    def __init__(
        self,
        inputs: Inputs,
        alpha: Any,
        mapping: str | Mapping | None,
        parameters: dict[str, Any],
        mask: Any = None,
        causal: bool = False,
        offset: int = 0,
        scale: float | None = None,
        workers: int | None = None,
    ) -> None:
        self._shape = inputs.shape
        self.record = _record(mapping)
        self.alpha_shape = np.shape(alpha)
        if "alpha" in self.record.parameters:
            parameters = {**parameters, "alpha": alpha}
        if set(parameters) != set(self.record.parameters):
            wanted, got = self.record.parameters, sorted(parameters)
            raise TypeError(
                f"{self.record.name} takes the parameters ({', '.join(wanted)}), "
                f"got ({', '.join(got)})"
            )
        self.mapping = _row_mapping(self.record, parameters, inputs)
        self.support_alpha = self.record.support_alpha
        self.entmax = any(self.record is record for record in (ENTMAX, *SPECIAL))
        if self.record is ENTMAX:
            on_host = isinstance(alpha, np.ndarray) or not hasattr(alpha, "__array_function__")
            if on_host and (np.ndim(alpha) or ALPHA.quick(alpha) is None):
                ALPHA.checked(alpha, np.broadcast_to(np.float64(0), (*inputs.outer, 1)))
            self.support_alpha = self.mapping.values[0][..., 0]
        self.alpha = 1.0 if self.support_alpha is None else self.support_alpha
        self.own_mask = None if mask is None else _mask(mask, inputs)
        self.reach = _reach(causal, offset, inputs.shape)
        self.scale = _scale(scale, inputs.query.shape[-1])
        self.workers = threads.get_workers() if workers is None else threads.counted(workers)

    @cached_property
    def mask(self) -> Any:
        """Where a query may see a key, causality included, or None for everywhere."""
        if self.reach is None:
            return self.own_mask
        t, s = self._shape[-2:]
        causal = np.tri(t, s, k=self.reach, dtype=bool)
        if self.own_mask is None:
            return causal
        return self.own_mask & causal


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    return shapes[0] if len(set(shapes)) == 1 else np.broadcast_shapes(*shapes)


def _groups(query: tuple[int, ...], *others: tuple[int, ...]) -> int:
    """The number of key or value heads that query heads share; 0 where shapes just broadcast."""
    if not query:
        return 0
    heads = query[-1]
    found = {other[-1] for other in others if other and other[-1] not in (1, heads)}
    if len(found) != 1:
        return 0
    (n,) = found
    return n if n > 0 and heads > 0 and heads % n == 0 else 0


def _record(mapping: str | Mapping | None) -> Mapping:
    if mapping is None:
        return ENTMAX
    if isinstance(mapping, str):
        if mapping not in MAPPINGS:
            raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
        return MAPPINGS[mapping]
    if not isinstance(mapping, Mapping):
        raise TypeError(
            "mapping must be a Mapping or the name of a row of pyentmax.MAPPINGS, got a "
            f"{type(mapping).__name__}; of a function of your own, make a Mapping"
        )
    return mapping


def _row_mapping(record: Mapping, parameters: dict[str, Any], inputs: Inputs) -> RowMapping:
    declared = getattr(getattr(record.forward, "kind", None), "parameters", ())
    bounds = {p.name for p in declared if isinstance(p, UpperBounds)}
    values = tuple(
        inputs.per_score(parameters[name], name)
        if name in bounds
        else inputs.per_head(parameters[name], name)[..., None]
        for name in record.parameters
    )
    return RowMapping(record, values, tuple(name in bounds for name in record.parameters))


def _mask(mask: Any, inputs: Inputs) -> Any:
    mask = as_mask(mask, "where a key may be seen")
    return inputs.per_score(beside(mask, inputs.query, "mask"), "mask")


def _reach(causal: bool, offset: int, shape: tuple[int, ...]) -> int | None:
    if np.ndim(causal) or causal not in (False, True):
        raise TypeError(f"causal must be True or False, got {causal!r}; a shift goes to offset")
    try:
        offset = operator.index(offset)
    except TypeError:
        raise TypeError(f"offset must be a whole number, got {offset!r}") from None
    if not causal and offset:
        raise ValueError(f"offset shifts what is causal, got {offset} with causal=False")
    # Farther than all keys is no farther, and fits into the numbers of arrays.
    return max(-shape[-2], min(offset, shape[-1])) if causal else None


def _scale(scale: float | None, d: int) -> float:
    if scale is None:
        return 1 / math.sqrt(max(d, 1))
    if not hasattr(scale, "__float__") or np.ndim(scale):
        raise TypeError(f"scale must be a number, got {scale!r}")
    number = float(scale)
    if not math.isfinite(number):
        raise ValueError(f"scale must be finite, got {number}")
    return number
