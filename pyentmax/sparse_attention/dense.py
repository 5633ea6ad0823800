"""Attention and its derivatives with all weights, zeros included: what the tiles compute.

    S = scale · Q Kᵀ,    P = π(S) row by row,    O = P V.

Let L be a function of O with gradient G. O is linear in V and in P:

    ∂L/∂V = Pᵀ G,    ∂L/∂P = G Vᵀ.

Through the mapping goes its Jacobian. For α-entmax, with s = p^{2−α} on the support and 0 off it,
that is J = diag(s) − s sᵀ/Σs (Peters et al. 2019, Prop. 1), so for a row, d its part of ∂L/∂P,

    ∂L/∂S = J d = s ∘ (d − (s·d)/Σs),

and J = Jᵀ. S is bilinear in Q and K:

    ∂L/∂Q = scale · ∂L/∂S K,    ∂L/∂K = scale · (∂L/∂S)ᵀ Q.

Why only the support enters: where p_ij = 0, s_ij = 0 as well, so that this entry of ∂L/∂S is 0
whatever d_ij is, and d_ij counts for no other entry of its row. Hence of G Vᵀ only the dot products
g_i · v_j with p_ij > 0 are needed, and every other product has P or ∂L/∂S as a factor. So is it for
all mappings here: a score off the support does not matter until it reaches the threshold. For the
same reason ∂L/∂α = Σ_ij (g_i · v_j) ∂p_ij/∂α is a sum over the support.

The queries, keys and values here have batch shapes that broadcast, and `mapping` is a
`pyentmax.sparse_attention.arguments.RowMapping`.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def attention(
    query: Any, key: Any, value: Any, mapping: Any, mask: Any, scale: float
) -> tuple[Any, Any]:
    """The output and all weights."""
    scores = scale * (query @ _transposed(key))
    weights = mapping.forward(scores, mask)
    return on_support(weights, value), weights


def attention_vjp(
    weights: Any, query: Any, key: Any, value: Any, g: Any, mapping: Any, mask: Any, scale: float
) -> tuple[Any, Any, Any]:
    """Gradients of query, key and value, of the full batch shape, given the output's."""
    g_scores = mapping.vjp(weights, g @ _transposed(value), mask)
    return (
        scale * on_support(g_scores, key),
        scale * on_support(_transposed(g_scores), query),
        on_support(_transposed(weights), g),
    )


def attention_jvp(
    weights: Any,
    query: Any,
    key: Any,
    value: Any,
    tangents: tuple[Any, Any, Any],
    mapping: Any,
    mask: Any,
    scale: float,
) -> Any:
    """How the output changes when query, key and value move along `tangents`."""
    d_query, d_key, d_value = tangents
    d_scores = scale * (d_query @ _transposed(key) + query @ _transposed(d_key))
    d_weights = mapping.jvp(weights, d_scores, mask)
    return on_support(d_weights, value) + on_support(weights, d_value)


def attention_vjp_alpha(weights: Any, value: Any, g: Any, mapping: Any, mask: Any) -> Any:
    """The gradient of α, in the shape that broadcast against the queries."""
    return mapping.vjp_alpha(weights, g @ _transposed(value), mask)


def on_support(weights: Any, rows: Any) -> Any:
    """``weights @ rows``, where a weight of 0 takes nothing, even from a row with a NaN."""
    finite = np.isfinite(rows)
    if isinstance(finite, np.ndarray) and finite.all():
        return weights @ rows
    product = weights @ np.where(finite, rows, 0)
    broken = np.where(finite, 0, rows)
    for j in np.flatnonzero((~finite).any(axis=(*range(finite.ndim - 2), -1))):
        weight = weights[..., j, None]
        with np.errstate(invalid="ignore"):
            product = product + np.where(weight == 0, 0, weight * broken[..., j, None, :])
    return product


def _transposed(matrix: Any) -> Any:
    return np.swapaxes(matrix, -1, -2)
