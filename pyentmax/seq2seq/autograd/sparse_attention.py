"""Attention as one operation on the tape, at a cost that follows the support of its weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.reference.mapping import AnyMapping as Mapping
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.sparse_attention.problem import AttentionProblem


def attention(
    query: Any,
    key: Any,
    value: Any,
    alpha: Any = 1.5,
    *,
    mapping: str | Mapping | None = None,
    **options: Any,
) -> Tensor:
    """Output of attention with sparse weights, α-entmax unless another mapping is named.

    For the backward pass only the weights that are not zero are stored.

    Parameters
    ----------
    query, key, value : Tensors or arrays of shape (…, T, d), (…, S, d), (…, S, dᵥ)
    alpha : Tensor, array or float
        of α-entmax; broadcasts against the batch shape: (H,) is one per head of (B, H, T, d).
        A tensor gets its gradient
    mapping, **options
        as in :func:`pyentmax.attention`: mask, causal, offset, cu_seqlens, the mapping's
        parameters, and as arrays without a gradient scale, sink and bias

    Returns
    -------
    Tensor of shape (…, T, dᵥ)

    Raises
    ------
    TypeError
        if alpha is a tensor and the mapping is not α-entmax
    ValueError, TypeError
        as in :func:`pyentmax.attention`

    Examples
    --------
    >>> import numpy as np
    >>> query = Tensor(np.array([[2.0, 0.0]]), requires_grad=True)
    >>> key = np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> alpha = Tensor(np.array(1.5), requires_grad=True)
    >>> attention(query, key, key, alpha).sum().backward()
    >>> print(query.grad.round(4), alpha.grad.round(4))
    [[-0.0565  0.113 ]] -0.0882
    """
    tensors = [as_tensor(x) for x in (query, key, value)]
    q, k, v = (x.data for x in tensors)
    learned = isinstance(alpha, Tensor)
    if learned and mapping not in (None, "entmax", MAPPINGS["entmax"]):
        name = getattr(mapping, "name", mapping)
        raise TypeError(f"alpha: a tensor is for α-entmax, which has a gradient in it; got {name}")
    number = alpha.data if learned else alpha
    parents = (*tensors, alpha) if learned else tuple(tensors)
    problem = AttentionProblem(q, k, v, number, mapping=mapping, **options)
    learning = any(parent.requires_grad for parent in parents)
    output, weights = problem.forward(return_weights=learning, whole=False)
    if weights is None:
        return Tensor(output)

    def vjp(g: Array) -> tuple[Array, ...]:
        gradients = problem.vjp(weights, g)[:3]
        if learned and alpha.requires_grad:
            return *gradients, np.asarray(problem.vjp_alpha(weights, g), number.dtype)
        return gradients

    return Tensor(output, (parents, vjp))
