"""One call of attention as an object: built once, then asked for output, weights and derivatives.

It is what the array functions, the tape's operation and PyTorch's ask.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.calls.dtypes import as_floating
from pyentmax.sparse_attention import few_queries, given_keys, tiles
from pyentmax.sparse_attention.arguments import Arguments, has_gradient
from pyentmax.sparse_attention.screened_rows import ScreenedRows, is_half, stand_in, widened
from pyentmax.sparse_attention.weights import AttentionWeights

# Keys that no query sees may hold infinities and NaN, whose products warn.
QUIET: dict[str, Any] = {"over": "ignore", "under": "ignore", "invalid": "ignore"}


class AttentionProblem(Arguments):
    """The arguments of a call, checked and arranged, and what is computed from them.

    Gradients have the shapes and dtypes of the caller's arrays.
    """

    def __init__(self, query: Any, key: Any, value: Any, alpha: Any = 1.5, **options: Any) -> None:
        screened = key if isinstance(key, ScreenedRows) else None
        if screened is not None and options.get("cu_seqlens") is not None:
            raise ValueError("ScreenedRows as key: expected one sequence, got cu_seqlens")
        if screened is None:
            super().__init__(query, key, value, alpha, **options)
        else:
            rows = screened.rows
            super().__init__(query, stand_in(rows), stand_in(value), alpha, **options)
            if self.sets is not None:
                raise ValueError("ScreenedRows as key: expected a mask of bools, got a set of keys")
            self._set_screen(screened)
            self._set_halves({"query": query, "key": rows, "value": value})
        self._alpha = alpha
        self._learned: dict[str, Any] = {}
        for name in ("scale", "sink", "bias"):
            if has_gradient(x := options.get(name)):
                self._learned[name] = x

    def _set_screen(self, screened: ScreenedRows) -> None:
        alpha = self.support_alpha if self.is_entmax else np.nan
        if not np.all((np.asarray(alpha) > 1) & (np.asarray(alpha) <= 2)):
            raise ValueError(
                "ScreenedRows as key: expected α-entmax with 1 < alpha <= 2, got "
                f"{self.mapping.record.name} with alpha={alpha}; pass key.rows for other mappings"
            )
        arrays = screened.copies, screened.bounds, screened.scales
        self.screen = arrays if not self._groups else tuple(map(self._split_heads, arrays))

    def _set_halves(self, arrays: dict[str, Any]) -> None:
        """Put keys and values of a half type, with a screen, in the places of their stand-ins."""
        halves = {name: x for name, x in arrays.items() if name != "query" and is_half(x)}
        if halves:
            dtypes = (as_floating(x, name)[1] for name, x in arrays.items() if name not in halves)
            half = (x.dtype for x in halves.values() if x.dtype == np.float16)
            self.result_dtype = np.result_type(*dtypes, *half)
        for name, x in halves.items():
            setattr(self, name, self._split_heads(np.asarray(x)) if self._groups else np.asarray(x))

    def route(self, return_weights: bool = False) -> str:
        """The algorithm of the call: "given keys", "few queries" or "tiles"."""
        if self.sets is not None:
            return "given keys"
        return "few queries" if few_queries.serves(self, return_weights) else "tiles"

    def forward(
        self, return_weights: bool = False, *, whole: bool = True
    ) -> tuple[Any, AttentionWeights | None]:
        """The output, and the weights or None.

        Unless `whole`, the weights are what `vjp` and `vjp_alpha` need: those of heads with few
        zeros are not stored.
        """
        with np.errstate(**QUIET):
            route = self.route(return_weights)
            if route == "given keys":
                output, weights = given_keys.forward(self, return_weights)
            elif route == "few queries":
                output, weights = few_queries.forward(self, return_weights)
            else:
                if self.screen is not None:
                    self.key, self.value = (
                        widened(x).astype(self.dtype, copy=False) for x in (self.key, self.value)
                    )
                output, weights = tiles.forward(self, return_weights, whole)
        return self.output(output), weights

    def vjp(
        self, weights: AttentionWeights, g: Any, *, with_bias: bool = True, g_weights: Any = None
    ) -> tuple[Any, ...]:
        """Gradients of query, key and value, then of scale, sink and bias that are arrays.

        `g_weights`, an array like ``weights.data``, is the gradient of the weights themselves.
        """
        if self.screen is not None:
            raise TypeError(
                "ScreenedRows have no derivatives: pass their rows as key, as in key.rows"
            )
        learned = self._learned
        with_bias = with_bias and "bias" in learned
        weights, g = self.check_weights(weights), self.output_like(g, "g")
        with np.errstate(**QUIET):
            *gradients, g_scale, g_sink, g_bias = tiles.vjp(self, weights, g, with_bias, g_weights)
        gradients = list(map(self.gradient, gradients, range(3)))
        for name, each in (("scale", g_scale), ("sink", g_sink)):
            if name in learned:
                gradients.append(self.parameter_gradient(each, learned[name]))
        if with_bias:
            gradients.append(self.bias_gradient(g_bias, learned["bias"]))
        return tuple(gradients)

    def vjp_alpha(self, weights: AttentionWeights, g: Any, g_weights: Any = None) -> Any:
        """The gradient of α."""
        weights, g = self.check_weights(weights), self.output_like(g, "g")
        with np.errstate(**QUIET):
            each = tiles.vjp_alpha(self, weights, g, g_weights)
        return self.parameter_gradient(each, self._alpha)
