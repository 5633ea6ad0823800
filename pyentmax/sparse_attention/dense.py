"""Attention and its derivatives with all weights, zeros included.

    S = scale · Q Kᵀ,    P = π(S) row by row,    O = P V.

Let L be a function of O with gradient G. O is linear in V and in P:

    ∂L/∂V = Pᵀ G,    ∂L/∂P = G Vᵀ.

Through the mapping goes its Jacobian. For α-entmax, with s = p^{2−α} on the support and 0 off it,
that is J = diag(s) − s sᵀ/Σs (Peters et al. 2019, Prop. 1), so for a row, d its part of ∂L/∂P,

    ∂L/∂S = J d = s ∘ (d − (s·d)/Σs),

and J = Jᵀ. S is bilinear in Q and K:

    ∂L/∂Q = scale · ∂L/∂S K,    ∂L/∂K = scale · (∂L/∂S)ᵀ Q.

Why only the support enters: where p_ij = 0, s_ij = 0 as well, so that this entry of ∂L/∂S is 0
whatever d_ij is, and d_ij does not enter any other entry of its row. Hence of G Vᵀ only the dot
products g_i · v_j with p_ij > 0 are needed, and every other product has P or ∂L/∂S as a factor.
The same holds for all mappings here: a score off the support does not matter until it reaches the
threshold. For the same reason ∂L/∂α = Σ_ij (g_i · v_j) ∂p_ij/∂α is a sum over the support.

A sink is one more score s in every row, with no value behind it: P = π([S, s]), without its last
column for O. The derivatives are those of the longer rows, where the last column of ∂L/∂P is 0, and
∂L/∂s is the sum of the last column of ∂L/∂[S, s].

A bias is added to S, so that its gradient is ∂L/∂S.

In the functions the queries are scaled already, batch shapes broadcast, and `mapping` is a
`pyentmax.sparse_attention.arguments.RowMapping`. With a sink, weights have the last column, and the
derivatives take no mask. `tiles` calls them with one tile of queries after the other, where few
weights are zero, and sums over the support where many are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.sparse_attention.products import matmul


def forward(
    query: Any, key: Any, value: Any, mapping: Any, mask: Any, bias: Any = None
) -> tuple[Any, Any]:
    """The output and all weights, those of a sink last."""
    all_weights = weights(query, key, mapping, mask, bias)
    return on_support(all_weights[..., : value.shape[-2]], value), all_weights


def weights(query: Any, key: Any, mapping: Any, mask: Any, bias: Any = None) -> Any:
    """All weights, those of a sink last."""
    scores = matmul(query, _transposed(key))
    if bias is not None:
        scores += bias
    return mapping.forward(scores, mask)


def vjp(
    weights: Any,
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    mapping: Any,
    mask: Any,
    added: Any = None,
) -> tuple[Any, Any, Any, Any]:
    """Gradients of query, key, value and scores, of the full batch shape, given the output's.

    `added` is a gradient of all weights that does not come from the output.
    """
    keys = value.shape[-2]
    g_weights = matmul(g, _transposed(value))
    if added is not None:
        g_weights = _on_weights(weights, g_weights) + added
    elif g_weights.shape != weights.shape or not (mapping.skips_zeros and np.isfinite(value).all()):
        g_weights = _on_weights(weights, g_weights)
    g_scores = mapping.vjp(weights, g_weights, mask)
    return (
        on_support(g_scores[..., :keys], key),
        on_support(_transposed(g_scores[..., :keys]), query),
        on_support(_transposed(weights[..., :keys]), g),
        g_scores,
    )


def vjp_alpha(weights: Any, value: Any, g: Any, mapping: Any, added: Any = None) -> Any:
    """The gradient of α, in the shape that broadcast against the queries; `added` as in `vjp`."""
    g_weights = _on_weights(weights, matmul(g, _transposed(value)))
    return mapping.vjp_alpha(weights, g_weights if added is None else g_weights + added)


def _on_weights(weights: Any, x: Any) -> Any:
    """x on the support of the weights, 0 elsewhere, and 0 for a sink, if there is one."""
    if x.shape == weights.shape:
        return np.where(weights != 0, x, 0)
    longer = np.empty_like(weights)
    longer[..., :-1], longer[..., -1] = np.where(weights[..., :-1] != 0, x, 0), 0
    return longer


def on_support(weights: Any, rows: Any) -> Any:
    """``weights @ rows``, where a weight of 0 takes nothing, even from a row with a NaN."""
    finite = np.isfinite(rows)
    if finite.all():
        return matmul(weights, rows)
    product = matmul(weights, np.where(finite, rows, 0))
    broken = np.where(finite, 0, rows)
    for j in np.flatnonzero((~finite).any(axis=(*range(finite.ndim - 2), -1))):
        weight = weights[..., j, None]
        product = product + np.where(weight == 0, 0, weight * broken[..., j, None, :])
    return product


def _transposed(matrix: Any) -> Any:
    return np.swapaxes(matrix, -1, -2)
