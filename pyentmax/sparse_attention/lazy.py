"""Attention of lazy arrays (Dask's): a task for each block of the batch axes.

Heads and what else the batch shape holds do not know each other, so each block of them is a call of
its own, whenever Dask computes it. Queries, keys and features of one head have to lie in one chunk.
Weights are as lazy as the rest: `LazyAttentionWeights`, which the derivatives take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.calls.lazy import is_lazy
from pyentmax.sparse_attention.arguments import Inputs, Setting
from pyentmax.sparse_attention.weights import AttentionWeights


@dataclass(frozen=True)
class LazyAttentionWeights:
    """The weights of attention of lazy arrays, block by block.

    Attributes
    ----------
    shape : tuple of int
        batch + (T, S), as of the weights that `compute` returns
    """

    shape: tuple[int, ...]
    _inner: tuple[int, ...]
    _blocks: Any  # a pair of output and weights in each chunk of the batch axes

    def compute(self) -> AttentionWeights:
        """The weights of all blocks, in memory."""
        import dask

        found = dask.compute(self._blocks.to_delayed().tolist())[0]
        batch, (t, _) = self._inner[:-2], self._inner[-2:]
        numbers = np.arange(int(np.prod(batch))).reshape(batch)
        pieces: list[Any] = [None] * numbers.size
        for place in np.ndindex(self._blocks.numblocks):
            weights = found
            for i in place:
                weights = weights[i]
            weights = weights[1]
            ends = [np.cumsum((0, *chunks)) for chunks in self._blocks.chunks]
            some = tuple(slice(e[i], e[i + 1]) for e, i in zip(ends, place, strict=True))
            for i, head in enumerate(numbers[some].ravel()):
                ends_of = weights.indptr[i * t : (i + 1) * t + 1]
                entries = slice(ends_of[0], ends_of[-1])
                pieces[head] = weights.data[entries], weights.indices[entries], np.diff(ends_of)
        data, indices, counts = (np.concatenate(x) for x in zip(*pieces, strict=True))
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return AttentionWeights(self.shape, data, indices, indptr)


class ByBlocks:
    """Attention and its derivatives of lazy arrays, given those of a block's arrays in memory."""

    def __init__(
        self,
        attention: Callable[..., Any],
        vjp: Callable[..., Any],
        jvp: Callable[..., Any],
        vjp_alpha: Callable[..., Any],
    ) -> None:
        self._attention, self._vjp, self._jvp = attention, vjp, jvp
        self._vjp_alpha = vjp_alpha

    @staticmethod
    def takes(inputs: Inputs) -> bool:
        """Whether these are lazy arrays."""
        return is_lazy(inputs.query)

    def forward(self, inputs: Inputs, setting: Setting, keep: bool) -> Any:
        """The output, lazy, and the weights if they are to be kept."""

        def run(query: Any, key: Any, value: Any, options: Any) -> Any:
            found = self._attention(query, key, value, return_weights=keep, **options)
            return found if keep else (found, None)

        plan = _Plan(inputs, setting)
        blocks = plan.blocks(run, inputs.query, inputs.key, inputs.value)
        shape = inputs.query.shape[-2], inputs.value.shape[-1]
        output = plan.part(blocks, 0, shape, inputs.dtype)
        if not keep:
            return output, None
        outer = (*inputs.outer, *inputs.shape[-2:])
        return output, LazyAttentionWeights(outer, inputs.shape, blocks)

    def backward(self, inputs: Inputs, setting: Setting, weights: Any, g: Any) -> list[Any]:
        """Gradients of query, key and value, of their shapes."""

        def run(pair: Any, query: Any, key: Any, value: Any, g: Any, options: Any) -> Any:
            return self._vjp(pair[1], query, key, value, g, **options)

        plan, arrays = _Plan(inputs, setting, weights), (inputs.query, inputs.key, inputs.value)
        blocks = plan.blocks(run, *arrays, g)
        return [plan.part(blocks, i, x.shape[-2:], x.dtype, like=x) for i, x in enumerate(arrays)]

    def along(
        self, inputs: Inputs, setting: Setting, weights: Any, tangents: tuple[Any, Any, Any]
    ) -> Any:
        """How the output changes along the tangents of query, key and value."""

        def run(pair: Any, *given: Any) -> Any:
            *arrays, options = given
            return (self._jvp(pair[1], *arrays, **options),)

        plan = _Plan(inputs, setting, weights)
        blocks = plan.blocks(run, inputs.query, inputs.key, inputs.value, *tangents)
        shape = inputs.query.shape[-2], inputs.value.shape[-1]
        return plan.part(blocks, 0, shape, inputs.dtype)

    def of_alpha(self, inputs: Inputs, setting: Setting, weights: Any, g: Any) -> Any:
        """What each head contributes to the gradient of α, of the batch shape."""

        def run(pair: Any, value: Any, g: Any, options: Any) -> Any:
            alpha = np.broadcast_to(options["alpha"], g.shape[:-2])
            return (self._vjp_alpha(pair[1], value, g, alpha),)

        plan = _Plan(inputs, setting, weights)
        return plan.part(plan.blocks(run, inputs.value, g), 0, (), inputs.dtype)


def check_weights(weights: Any, inputs: Inputs) -> LazyAttentionWeights:
    """Weights as a caller passes them with lazy arrays, if they are of such inputs."""
    if not isinstance(weights, LazyAttentionWeights):
        raise TypeError(
            "weights of lazy arrays must be the LazyAttentionWeights that attention returns for "
            f"them with return_weights=True, got {type(weights).__name__}"
        )
    outer = (*inputs.outer, *inputs.shape[-2:])
    if weights.shape != outer:
        raise ValueError(
            f"weights of shape {weights.shape} do not belong to query, key and value, whose "
            f"weights have shape {outer}"
        )
    return weights


class _Plan:
    """How the batch axes are cut, and what each block's call is told."""

    def __init__(self, inputs: Inputs, setting: Setting, weights: Any = None) -> None:
        self._batch, self._setting, self._weights = inputs.batch, setting, weights
        for name in ("query", "key", "value"):
            array = getattr(inputs, name)
            if any(len(chunks) > 1 for chunks in array.chunks[-2:]):
                raise ValueError(
                    f"{name} must lie in one chunk along positions and features, its last two "
                    f"axes, got chunks {array.chunks[-2:]}; pass {name}.rechunk({{-2: -1, -1: -1}})"
                )
        if any(is_lazy(value) for value in setting.mapping.values):
            raise TypeError("the mapping's parameters must lie in memory: pass them computed")
        self._axes = tuple(range(len(self._batch)))
        self._chunks = tuple(
            max(self._cuts(inputs, i, n), key=len) for i, n in enumerate(self._batch)
        )
        if weights is not None:
            self._chunks = weights._blocks.chunks

    def blocks(self, run: Callable[..., Any], *arrays: Any) -> Any:
        """What `run` returns for each block, an object in each chunk.

        It is called with the block's weights, if there are any, arrays and options.
        """
        import dask.array

        setting = self._setting
        operands = [self._aligned(array, 2) for array in arrays]
        parameters = [
            (name, self._aligned(dask.array.asarray(value if bound else value[..., 0]), 2 * bound))
            for name, value, bound in zip(
                setting.record.parameters, setting.mapping.values, setting.mapping.bounds,
                strict=True,
            )
        ]  # fmt: skip
        extra = [array for _, array in parameters]
        if setting.own_mask is not None:
            extra.append(self._aligned(setting.own_mask, 2))
        names = [name for name, _ in parameters]
        options = {
            "mapping": setting.record,
            "causal": setting.reach is not None,
            "offset": setting.reach or 0,
            "scale": setting.scale,
            "workers": 1,
        }
        count = len(operands) + (self._weights is not None)

        def one(*given: Any) -> Any:
            own, more = given[:count], given[count:]
            named = dict(zip(names, more, strict=False))
            mask = more[len(names)] if len(more) > len(names) else None
            return run(*own, {**options, **named, "mask": mask})

        every = [*operands, *extra]
        pairs = [x for array in every for x in (array, self._index(array))]
        if self._weights is not None:
            pairs = [self._weights._blocks, self._axes, *pairs]
        # It comes first, for its chunks are the result's.
        grid = dask.array.zeros(self._batch, chunks=self._chunks, dtype=bool)
        return dask.array.blockwise(
            lambda _, *given: one(*given), self._axes, grid, self._axes, *pairs,
            dtype=object, meta=np.empty((0,) * len(self._batch), object),
            concatenate=True, align_arrays=False,
        )  # fmt: skip

    def part(
        self, blocks: Any, number: int, core: tuple[int, ...], dtype: Any, like: Any = None
    ) -> Any:
        """Of what the blocks hold the array of that number, with the core axes behind the batch.

        It is as large as the batch, or as `like`, the sum over blocks that share an entry of that.
        """
        import dask.array

        n = len(self._batch)
        new = {n + i: size for i, size in enumerate(core)}
        shared: tuple[int, ...] = ()
        if like is not None:
            lengths = (1,) * (n + 2 - like.ndim) + like.shape[:-2]
            shared = tuple(i for i in self._axes if lengths[i] == 1 < self._batch[i])

        def take(found: Any) -> Any:
            array = np.asarray(found[number])
            return array.reshape((1,) * (n + len(core) - array.ndim) + array.shape)

        result = dask.array.blockwise(
            take, (*self._axes, *new), blocks, self._axes, new_axes=new, dtype=dtype,
            adjust_chunks=dict.fromkeys(shared, lambda size: 1),
            meta=np.empty((0,) * (n + len(core)), dtype),
        )  # fmt: skip
        if shared:
            result = result.sum(axis=shared, keepdims=True)
        return result if like is None else result.reshape(like.shape)

    def _aligned(self, array: Any, core: int) -> Any:
        """An array of batch and core axes, cut along the batch as the plan says."""
        import dask.array

        array = dask.array.asarray(array)
        array = array.reshape((1,) * (len(self._batch) + core - array.ndim) + array.shape)
        cuts = {i: chunks if array.shape[i] > 1 else -1 for i, chunks in enumerate(self._chunks)}
        return array.rechunk(cuts | {-1 - i: -1 for i in range(core)})

    def _index(self, array: Any) -> tuple[int, ...]:
        # Core axes lie in one chunk; a number for each array and axis keeps them apart.
        n = len(self._batch)
        return (*self._axes, *(n + 1000 * id(array) + i for i in range(array.ndim - n)))

    def _cuts(self, inputs: Inputs, axis: int, length: int) -> Any:
        for array in (inputs.query, inputs.key, inputs.value):
            at = axis - len(self._batch) + array.ndim - 2
            if at >= 0 and array.shape[at] == length:
                yield array.chunks[at]
