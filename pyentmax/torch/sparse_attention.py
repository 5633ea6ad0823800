"""Attention with sparse weights as a function of tensors.

Three routes give the same numbers. The operation `operations.attention` goes over the support of
the weights, in the kernels, and stores no array of all weights. Products of whole matrices, with
the mapping between them, are faster for few scores, and the only route for what changes scores or
weights on their way: additive scores, a softcap, dropout, weights that are asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyentmax.torch import composed, operations
from pyentmax.torch.arguments import (
    as_number,
    check_broadcast,
    check_mask,
    check_number,
    check_scores,
)
from pyentmax.torch.arrays import has_kernels
from pyentmax.torch.functions import (
    MISSING,
    apply_to_rows,
    chosen,
    in_onnx_export,
    parameter_of,
    split,
)

WITH_SINK = ("entmax", "softmax", "entmax15", "sparsemax", "topk_softmax", "topk_sparsemax")
# How PyTorch, and Hugging Face's models, spell arguments.
THEIRS = {
    "is_causal": "causal",
    "attn_mask": "mask, or bias for scores to add",
    "dropout_p": "dropout",
    "enable_gqa": "done where there are fewer heads of keys than of queries",
    "scaling": "scale",
    "need_weights": "return_weights",
}


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor | None = None,
    *,
    mapping: str = "entmax",
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    offset: int = 0,
    scale: float | Tensor | None = None,
    sink: float | Tensor | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
    **parameters: Any,
) -> Any:
    """Attention with sparse weights, π(scale · Q Kᵀ + bias) V, with its derivatives.

    Time and memory follow the support: no array of all weights is stored, except for few scores,
    where that is faster, with `bias`, `softcap`, `dropout` or `return_weights`, and on a device
    without kernels.

    Parameters
    ----------
    query, key, value : Tensors of shape (…, T, d), (…, S, d), (…, S, dᵥ)
        batch shapes broadcast. With H heads of queries and n < H heads of keys (or values), the
        last batch dimension, H/n neighbouring heads of queries share one (grouped queries)
    alpha : float or Tensor that broadcasts against the batch shape, default 1.5
        of shape (H,) it is one for each head of (B, H, T, d), and gets a gradient
    mapping : str, default "entmax"
        the name of a row of `pyentmax.MAPPINGS`
    mask : bool Tensor that broadcasts to (…, T, S), optional
        True where a query may see a key
    bias : Tensor that broadcasts to (…, T, S), optional
        added to the scores, such as relative positions or ALiBi; −∞ hides a key. It gets a gradient
    causal : bool, default False
        query t sees only the keys 0 … t + offset
    offset : int, default 0
        number of keys before the first query: for new queries behind a cache, its length
    scale : float or Tensor that broadcasts to (…, T), default 1/√d
        of shape (H, 1) it is one for each head, of shape (T,) one for each query; gets a gradient
    sink : float or Tensor that broadcasts against the batch shape, optional
        one more score with no value behind it, for α-entmax and the top-k mappings: of shape (H,)
        one for each head. The weights then sum to at most 1. It gets a gradient
    softcap : float, optional
        c > 0 replaces a score s, after the scale and before the bias, by c · tanh(s / c)
    dropout : float, default 0
        the probability of dropping a weight; the others are divided by 1 − dropout. Not only in
        training: `Attention` passes 0 in evaluation
    return_weights : bool, default False
        return the weights, after dropout, too
    **parameters
        of the mapping by its name, such as ``k=8``

    Returns
    -------
    Tensor of shape (…, T, dᵥ), or that and weights of shape (…, T, S)
        zeros for a query that sees no key

    Raises
    ------
    TypeError
        if an argument is unknown or of another type
    ValueError
        if shapes do not fit, or a number is out of its range

    Examples
    --------
    >>> import torch
    >>> query, key = torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.5, 1.0]])
    >>> value = torch.tensor([[1.0], [2.0], [4.0]])
    >>> attention(query, key, value)
    tensor([[1.7738]])
    >>> recent = torch.tensor([-1.0, -0.5, 0.0])
    >>> output, weights = attention(query, key, value, 2, bias=recent, return_weights=True)
    >>> print(output, weights)
    tensor([[2.9393]]) tensor([[0.3536, 0.0000, 0.6464]])
    """
    parameter = attention_parameter(mapping, alpha, sink, parameters)
    shape = _scores_shape(query, key, value)
    check_mask(mask)
    if mask is not None:
        check_broadcast(mask, shape, "mask", "the scores")
    if bias is not None:
        check_scores(bias, "bias")
        check_broadcast(bias, shape, "bias", "the scores")
    check_settings(softcap, dropout)
    if offset and not causal:
        raise ValueError(f"offset shifts the causal mask, got {offset} with causal=False")
    dtype = query.dtype
    if isinstance(scale, Tensor):
        check_broadcast(scale, shape[:-1], "scale", "the queries")
        query, key, value = map(composed.wide, (query, key, value))
        query, scale = query * scale.to(query.dtype).unsqueeze(-1), 1.0
    scale = None if scale is None else float(scale)
    if sink is not None:
        if not isinstance(sink, Tensor):
            sink = composed.wide(query.new_empty(0)).new_tensor(as_number(sink, "sink"))
        check_broadcast(sink, shape[:-2], "sink", "the batch")
    if (
        (bias is None and softcap is None and not dropout and not return_weights)
        and has_kernels(query)
        and not in_onnx_export()
    ):
        setting = (mapping, *split(mapping, parameter), mask, causal, offset, scale, sink)
        return operations.attention(query, key, value, *setting).to(dtype)
    if not has_kernels(query):
        composed.check_composed(mapping, parameter, query.device)
    if causal:
        seen = torch.ones(shape[-2:], dtype=torch.bool, device=query.device).tril(offset)
        mask = seen if mask is None else seen & mask
    with torch.autocast(query.device.type, enabled=False):  # which would round the scores
        weights = _all_weights(query, key, mapping, parameter, mask, bias, scale, softcap, sink)
        if dropout:
            weights = torch.dropout(weights, dropout, train=True)
        output = _product(weights, composed.wide(value)).to(dtype)
    return (output, weights.to(dtype)) if return_weights else output


def attention_parameter(mapping: str, alpha: Any, sink: Any, parameters: dict[str, Any]) -> Any:
    """The mapping's parameter; an error for unknown keywords, or a sink that it lacks."""
    name, default = parameter_of(mapping)
    for theirs, ours in THEIRS.items():
        if theirs in parameters:
            raise TypeError(
                f"attention() got an unexpected keyword argument {theirs!r}, as PyTorch spells it; "
                f"here it is {ours}"
            )
    if sink is not None and mapping not in WITH_SINK:
        raise ValueError(f"sink: expected one of {', '.join(WITH_SINK)}, got {mapping}")
    if alpha is not None:
        parameters = {**parameters, "alpha": alpha}
    default = 1.5 if name == "alpha" else default
    return chosen(f"attention(mapping={mapping!r})", name, default, MISSING, dict(parameters))


def check_settings(softcap: Any, dropout: Any) -> None:
    """Raise an error unless the numbers are in their ranges."""
    if softcap is not None and not check_number(softcap, "softcap") > 0:
        raise ValueError(f"softcap must be above 0, got {softcap}")
    if not 0 <= check_number(dropout, "dropout") <= 1:
        raise ValueError(f"dropout must be a probability, from 0 to 1, got {dropout}")


def _scores_shape(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """The shape of the scores, (…, T, S), or an error for shapes that do not fit."""
    for tensor, name in ((query, "query"), (key, "key"), (value, "value")):
        check_scores(tensor, name)
        if tensor.ndim < 2:
            raise ValueError(
                f"{name} must have at least two dimensions, positions and features, got shape "
                f"{tuple(tensor.shape)}"
            )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "query and key must have the same number of features, got shapes "
            f"{tuple(query.shape)} and {tuple(key.shape)}"
        )
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            "key and value must have the same number of positions, got shapes "
            f"{tuple(key.shape)} and {tuple(value.shape)}"
        )
    return (*operations.attention_batch(query, key, value), query.shape[-2], key.shape[-2])


def _all_weights(
    query: Tensor,
    key: Tensor,
    mapping: str,
    parameter: Any,
    mask: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    softcap: float | None,
    sink: Tensor | None,
) -> Tensor:
    """Weights of shape (…, T, S), zeros included."""
    scale = max(query.shape[-1], 1) ** -0.5 if scale is None else scale
    scores = _product(scale * composed.wide(query), composed.wide(key).mT)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if not scores.shape[-1]:
        return scores  # mappings need an entry
    if isinstance(parameter, Tensor) and not operations.per_score(mapping):
        parameter = parameter.unsqueeze(-1)  # the same for all queries of a head
    if sink is None:
        return apply_to_rows(mapping, scores, parameter, mask)
    if mapping.startswith("topk"):  # of which a sink takes no place
        mask = apply_to_rows(mapping, scores.detach(), parameter, mask) != 0
        mapping, parameter = mapping.removeprefix("topk_"), None
    last = sink[..., None, None].to(scores.dtype).expand(*scores.shape[:-1], 1)
    if mask is not None:
        mask = torch.cat([mask.expand(scores.shape), torch.ones_like(last, dtype=torch.bool)], -1)
    return apply_to_rows(mapping, torch.cat([scores, last], -1), parameter, mask)[..., :-1]


def _product(rows: Tensor, matrices: Tensor) -> Tensor:
    """``rows @ matrices``, where neighbouring heads of rows may share a matrix."""
    heads, n = (x.shape[-3] if x.ndim > 2 else 1 for x in (rows, matrices))
    if not 0 < n < heads:
        return rows @ matrices
    size = rows.shape[-2]
    product = rows.unflatten(-3, (n, heads // n)).flatten(-3, -2) @ matrices
    return product.unflatten(-2, (heads // n, size)).flatten(-4, -3)
