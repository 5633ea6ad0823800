"""Attention with sparse weights as a function of tensors.

Three routes give the same numbers. The operation goes over the support of the weights, in the
kernels, and stores no array of all weights. `dense_attention` multiplies whole matrices, with the
mapping between them: where that is faster, where scores or weights are changed on their way or
asked for, and on devices without kernels. On a GPU without CuPy, long rows of α-entmax go through
`triton_attention` where that serves them.
"""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import handle_torch_function

from pyentmax.sparse_attention.arguments import check_edges, check_shapes, pair_of
from pyentmax.sparse_attention.bias import DistanceBias, check_distances
from pyentmax.sparse_attention.few_queries import FEW, short_call
from pyentmax.sparse_attention.route import MANY_KEYS, is_short
from pyentmax.torch import composed, dense_attention
from pyentmax.torch.arguments import (
    FLOATING,
    as_input,
    as_number,
    autocast_dtype,
    check_broadcast,
    check_mask,
    check_number,
    check_scores,
    is_overridden,
)
from pyentmax.torch.arrays import has_kernels, lent
from pyentmax.torch.attention_operations import sparse_operation
from pyentmax.torch.attention_problem import TensorProblem
from pyentmax.torch.attention_weights import AttentionWeights, rows_of
from pyentmax.torch.calls import DEFAULTS, chosen, in_onnx_export, name_of, split
from pyentmax.torch.key_sets import KeySets, bias_of_entries, tensor_sets
from pyentmax.torch.operations import PARAMETERS
from pyentmax.torch.registry import is_plain, is_unwatched
from pyentmax.torch.screened import ScreenedRows, screened_attention

HAS_TRITON = torch.__version__ >= "2.9" and importlib.util.find_spec("triton") is not None
KERNEL_DTYPES = (torch.float32, torch.float64)
TRITON_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WITH_SINK = ("entmax", "softmax", "entmax15", "sparsemax", "topk_softmax", "topk_sparsemax")
# Keywords of PyTorch and of Hugging Face's models, and what they are called here.
FOREIGN_KEYWORDS = {
    "is_causal": "causal",
    "attn_mask": "mask, or bias for scores to add",
    "dropout_p": "dropout",
    "enable_gqa": "done where there are fewer heads of keys than of queries",
    "scaling": "scale",
    "need_weights": "return_weights",
}


def attention(
    query: Tensor,
    key: Tensor | ScreenedRows,
    value: Tensor,
    alpha: float | Tensor | None = None,
    *,
    mapping: Any = "entmax",
    mask: Tensor | None = None,
    bias: Tensor | DistanceBias | None = None,
    causal: bool = False,
    offset: int | Tensor = 0,
    scale: float | Tensor | None = None,
    sink: float | Tensor | None = None,
    cu_seqlens: Tensor | tuple[Tensor, Tensor] | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
    **parameters: Any,
) -> Any:
    """Attention with sparse weights, π(scale · Q Kᵀ + bias) V, with its derivatives.

    Time and memory follow the support: no array of all weights is stored, except where that is
    faster (for few scores, and on a GPU where they take at most 1/128 of its memory), with a bias
    that is a tensor, `softcap` or `dropout`, and on a device without kernels.

    Parameters
    ----------
    query, key, value : Tensors of shape (…, T, d), (…, S, d), (…, S, dᵥ)
        batch shapes broadcast. With H heads of queries and n < H heads of keys (or values), the
        last batch dimension, H/n neighbouring heads of queries share one (grouped queries). The
        key may be `ScreenedRows`, for few queries to many keys without gradient
    alpha : float or Tensor that broadcasts against the batch shape, default 1.5
        of shape (H,) it is one for each head of (B, H, T, d), and gets a gradient
    mapping : str, default "entmax"
        or a mapping such as `entmax15`
    mask : bool Tensor that broadcasts to (…, T, S), or a set of keys, optional
        True where a query may see a key. Or the keys that each query sees, on the CPU and for
        α-entmax with α ≥ 1, at a cost that follows their number, forward and backward: a boolean
        `torch.sparse_csr` tensor, integers (…, T, k) with −1 for none, or the `AttentionWeights` of
        another call
    bias : Tensor that broadcasts to (…, T, S), or DistanceBias of a tensor, optional
        added to the scores; −∞ hides a key. With a set of keys, a number for each of its entries,
        (…, entries), or in the shape of the integers. `DistanceBias` has a number for each
        distance, such as relative positions, or ALiBi's slopes, and no T × S tensor is made. It
        gets a gradient
    causal : bool, default False
        query t sees only the keys 0 … t + offset
    offset : int, default 0
        number of keys before the first query: for new queries behind a cache, its length. Distances
        of ALiBi count from there
    scale : float or Tensor that broadcasts to (…, T), default 1/√d
        of shape (H, 1) it is one for each head, of shape (T,) one for each query; gets a gradient
    sink : float or Tensor that broadcasts against the batch shape, optional
        one more score with no value behind it, for α-entmax and the top-k mappings: of shape (H,)
        one for each head. The weights then sum to at most 1. It gets a gradient
    cu_seqlens : Tensor of integers, or a pair of them, optional
        where packed sequences begin, and the last one ends: numbers that rise from 0 to T, or a
        pair for queries and keys. Each sequence sees its own keys only, as in a call of its own
        with the same arguments; `offset` may be a tensor with one for each
    softcap : float, optional
        c > 0 replaces a score s, after the scale and before the bias, by c · tanh(s / c)
    dropout : float, default 0
        the probability of dropping a weight; the others are divided by 1 − dropout. Not only in
        training: `Attention` passes 0 in evaluation
    return_weights : bool, default False
        return the weights, after dropout, too, as an object without their zeros
    **parameters
        of the mapping by its name, such as ``k=8``

    Returns
    -------
    Tensor of shape (…, T, dᵥ), or that and `AttentionWeights`
        zeros for a query that sees no key. The weights have no array of all of them in eager calls,
        unless that is faster; ``weights.to_dense()`` makes it. They have gradients, too

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
    >>> print(output, weights.to_dense())
    tensor([[2.9393]]) tensor([[0.3536, 0.0000, 0.6464]])
    """
    if (
        mask is bias is scale is sink is cu_seqlens is softcap is None
        and mapping == "entmax" and causal is return_weights is False
        and type(offset) is int and not (offset or dropout or parameters)
    ):  # fmt: skip
        output = _short_call(query, key, value, alpha)
        if output is not None:
            return output
    options = {
        "mapping": mapping, "mask": mask, "bias": bias, "causal": causal, "offset": offset,
        "scale": scale, "sink": sink, "cu_seqlens": cu_seqlens, "softcap": softcap,
        "dropout": dropout, "return_weights": return_weights, **parameters,
    }  # fmt: skip
    if isinstance(key, ScreenedRows):
        return screened_attention(query, key, value, alpha, **options)
    if is_overridden(query, key, value):
        tensors = query, key, value
        return handle_torch_function(attention, tensors, *tensors, alpha=alpha, **options)
    if torch.jit.is_tracing() and torch.onnx.is_in_onnx_export():
        raise RuntimeError("attention goes to ONNX by torch.onnx.export(..., dynamo=True) alone")
    problem, shape, dtype = _problem(query, key, value, alpha, **options)
    output, weights = _run(_route(problem, shape), problem)
    return (output.to(dtype), weights.to(dtype)) if return_weights else output.to(dtype)


def route(*arguments: Any, **options: Any) -> str:
    """How `attention` with these arguments is computed, as ``attention.route(…)``.

    Returns
    -------
    str
        "short call" straight to the kernels; "screened", of `ScreenedRows`; "sparse", over the
        support or a set of keys; "dense", by whole matrices; "sdpa", PyTorch's own function; or
        "triton"

    Examples
    --------
    >>> x = torch.ones(4, 300, 8)
    >>> attention.route(x[:, :1], x, x), attention.route(x, x, x, mapping="softmax")
    ('short call', 'sdpa')
    """
    bound = inspect.signature(attention).bind(*arguments, **options)
    query, key, value, *_ = bound.args
    unset = attention.__kwdefaults__ or {}
    if all(
        (type(x) is type(unset.get(k, ...)) or k == "dropout") and x == unset[k]
        for k, x in bound.kwargs.items()
    ):
        if _short_call(query, key, value, bound.arguments.get("alpha")) is not None:
            return "short call"
    if isinstance(key, ScreenedRows):
        return "screened"
    bound.apply_defaults()
    named = bound.arguments
    problem, shape, _ = _problem(**named.pop("parameters"), **named)
    return _route(problem, shape)


attention.route = route  # type: ignore[attr-defined]


def _problem(
    query: Any, key: Any, value: Any, alpha: Any, *, mapping: Any, mask: Any, bias: Any,
    causal: bool, offset: Any, scale: Any, sink: Any, cu_seqlens: Any, softcap: Any,
    dropout: float, return_weights: bool, **parameters: Any,
) -> tuple[TensorProblem, tuple[int, ...], torch.dtype]:  # fmt: skip
    """The arguments of a call, checked and in one dtype, the scores' shape, the output's dtype."""
    mapping, parameter = attention_parameter(mapping, alpha, sink, parameters)
    shape = _scores_shape(query, key, value)
    sets, ends, kind = None, None, "scores"
    is_bools = isinstance(mask, Tensor) and mask.dtype == torch.bool
    if mask is not None and not (is_bools and mask.layout is torch.strided):
        options = {"cu_seqlens": cu_seqlens, "softcap": softcap, "dropout": dropout}
        sets = tensor_sets(mask, shape, mapping=mapping, **options)
        if sets is not None and causal:
            sets = sets.up_to(np.arange(shape[-2]) + int(offset))
    if sets is None and mask is not None:
        check_mask(mask)
        check_broadcast(mask, shape, "mask", "the scores")
    if bias is not None:
        bias, kind = _checked_bias(bias, shape, query, sets)
    if softcap is not None or dropout:
        check_settings(softcap, dropout)
    if not causal and kind != "slopes" and isinstance(offset, int) and offset:
        raise ValueError(f"offset shifts the causal mask, got {offset} with causal=False")
    if torch.compiler.is_compiling() and not in_onnx_export():
        parameter, scale, sink = (as_input(x, query) for x in (parameter, scale, sink))
    (query, key, value), dtype = _with_one_dtype(query, key, value)
    if isinstance(scale, Tensor):
        check_broadcast(scale, shape[:-1], "scale", "the queries")
        query, key, value = map(composed.wide, (query, key, value))
        query, scale = query * scale.to(query.dtype).unsqueeze(-1), 1.0
    scale = max(query.shape[-1], 1) ** -0.5 if scale is None else float(scale)
    if sink is not None:
        if not isinstance(sink, Tensor):
            sink = composed.wide(query.new_empty(0)).new_tensor(as_number(sink, "sink"))
        check_broadcast(sink, shape[:-2], "sink", "the batch")
    cu_queries = cu_keys = offsets = None
    if cu_seqlens is not None:
        cu_queries, cu_keys, offsets, offset = _checked_sequences(cu_seqlens, offset, query)
    if sets is not None:
        if causal:
            causal, offset = False, offset if kind == "slopes" else 0
        mask, ends = torch.from_numpy(sets.indices), torch.from_numpy(sets.ends)
    return TensorProblem(
        query, key, value, mapping, *split(mapping, parameter), mask, ends, causal, int(offset),
        scale, sink, bias, kind, cu_queries, cu_keys, offsets, softcap, dropout, return_weights,
    ), shape, dtype  # fmt: skip


def _short_call(query: Any, key: Any, value: Any, alpha: Any) -> Any:
    """The output of few queries without options or gradient; None for any other call."""
    screened = key.screened if isinstance(key, ScreenedRows) else None
    tensors = (query, key, value) if screened is None else (query, value)
    learns = torch.is_grad_enabled()
    for x in tensors:
        if not isinstance(x, Tensor) or x.dtype not in KERNEL_DTYPES or x.is_nested or x.ndim < 2:
            return None
        if learns and x.requires_grad:
            return None
    if not is_unwatched(tensors) or torch.is_autocast_enabled("cpu") or query.size(-2) > FEW:
        return None
    array = lent(key) if screened is None else screened
    output = short_call(lent(query), array, lent(value), 1.5 if alpha is None else alpha)
    return None if output is None else torch.from_numpy(output)


def _route(problem: TensorProblem, shape: tuple[int, ...]) -> str:
    """The algorithm for a problem: "sparse", "dense", "triton" or "sdpa".

    The numbers that decide are in `pyentmax.sparse_attention.route`.
    """
    if problem.ends is not None:
        return "sparse"
    device, compiling = problem.query.device, torch.compiler.is_compiling()
    kernels, onnx = has_kernels(problem.query), compiling and torch.onnx.is_in_onnx_export()
    if not kernels and not onnx and _is_for_triton(problem):
        return "triton"
    if problem.modifies_scores or not kernels or onnx:
        return "sdpa" if problem.is_softmax and not onnx else "dense"
    if problem.return_weights:
        # Graphs and vmap need to know sizes, and softmax has no zeros.
        is_full = problem.mapping == "softmax" or not is_plain(problem[:3])
        if is_full or is_short(shape, problem.causal):
            return "dense"
    if problem.cu_queries is not None:
        return "sparse"
    known = statically_known_true if compiling else bool
    if known(shape[-2] <= FEW) and problem.has_few_queries:
        if compiling or shape[-1] >= MANY_KEYS:
            return "sparse"
    memory = None
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    if is_short(shape, problem.causal, memory=memory, known=known):
        # Graphs and vmap cannot tell whether what is hidden holds a NaN.
        return "sparse" if compiling and problem.masks_keys else "dense"
    return "sdpa" if problem.is_softmax and not (compiling and problem.masks_keys) else "sparse"


def _is_for_triton(problem: TensorProblem) -> bool:
    query, key, value = problem[:3]
    alpha = problem.alpha
    if alpha is None or problem.dropout or problem.return_weights or not HAS_TRITON:
        return False
    if not _is_long_on_gpu(query, key) or not query.ndim == key.ndim == value.ndim == 4:
        return False
    by_head = (), (1,), (query.size(1),)
    in_range = alpha.shape in by_head if isinstance(alpha, Tensor) else 1 <= alpha <= 2
    bias = problem.bias is None or problem.kind == "slopes" and problem.bias.shape in by_head
    sink = problem.sink is None or problem.sink.shape in by_head
    batch = query.size(0) == key.size(0) == value.size(0) and key.size(1) == value.size(1)
    one_batch = problem.cu_queries is None or query.size(0) == 1
    sizes = query.size(-1), value.size(-1)
    fits = 16 <= min(sizes) and max(sizes) <= 256 and query.dtype in TRITON_DTYPES
    return in_range and bias and sink and batch and one_batch and fits


def _is_long_on_gpu(query: Tensor, key: Tensor) -> bool:
    return query.is_cuda and not is_short((query.size(-2), key.size(-2)))


def _run(backend: str, problem: TensorProblem) -> tuple[Tensor, Any]:
    if backend == "triton":
        from pyentmax.torch import triton_attention  # Triton comes with PyTorch for CUDA alone

        return triton_attention.triton_attention(problem)[0], None
    if backend in ("dense", "sdpa"):
        kernels = has_kernels(problem.query)
        if not kernels:
            composed.check_composed(problem.mapping, problem.parameter_value, problem.query.device)
        if backend == "sdpa":
            output, weights = dense_attention.softmax_attention(problem), None
        else:
            output, weights = dense_attention.dense_attention(problem)
        no_other_way = not (problem.masks_keys and kernels) or problem.modifies_scores
        if no_other_way or problem.return_weights or in_onnx_export():
            return output, weights
        if dense_attention.is_finite(output, problem.query, problem.key):
            return output, weights
    output, parts = sparse_operation(problem)
    if parts is None:
        return output, None
    data, indices, indptr, sink = parts
    if problem.sink is None:
        sink = None
    elif data.requires_grad:  # as a function of the weights, so that it has a gradient, too
        sums = data.new_zeros(len(indptr) - 1).index_add(0, rows_of(indptr), data)
        sink = 1 - sums.reshape(problem.shape[:-1])
    return output, AttentionWeights(problem.shape, (data, indices, indptr), sink)


def attention_parameter(
    mapping: Any, alpha: Any, sink: Any, parameters: dict[str, Any]
) -> tuple[str, Any]:
    """The mapping's name and its parameter; an error for unknown keywords, or a sink it lacks."""
    if mapping != "entmax":
        mapping = name_of(mapping)
    if sink is not None and mapping not in WITH_SINK:
        raise ValueError(f"sink: expected one of {', '.join(WITH_SINK)}, got {mapping}")
    if PARAMETERS[mapping] == "alpha" and not parameters:
        return mapping, DEFAULTS[mapping] if alpha is None else alpha
    if alpha is not None:
        parameters = {**parameters, "alpha": alpha}
    for keyword in parameters.keys() & FOREIGN_KEYWORDS.keys():
        raise TypeError(
            f"attention() got an unexpected keyword argument {keyword!r}, as PyTorch spells it; "
            f"here it is {FOREIGN_KEYWORDS[keyword]}"
        )
    return chosen(f"attention(mapping={mapping!r})", mapping, dict(parameters))


def check_settings(softcap: Any, dropout: Any) -> None:
    """Raise an error unless the numbers are in their ranges."""
    if softcap is not None and not check_number(softcap, "softcap") > 0:
        raise ValueError(f"softcap must be above 0, got {softcap}")
    if not 0 <= check_number(dropout, "dropout") <= 1:
        raise ValueError(f"dropout must be a probability, from 0 to 1, got {dropout}")


def _checked_sequences(cu_seqlens: Any, offset: Any, like: Tensor) -> tuple[Any, ...]:
    """Starts of sequences of queries and keys, the offsets of each or None, and that of all."""
    queries, keys = (torch.as_tensor(x, device=like.device) for x in pair_of(cu_seqlens))
    for tensor in (queries, keys):
        check_edges(tensor, not (tensor.is_floating_point() or tensor.dtype == torch.bool))
    if isinstance(offset, int):
        return queries, keys, None, offset
    return queries, keys, torch.as_tensor(offset, device=like.device), 0


def _checked_bias(
    bias: Any, shape: tuple[int, ...], query: Tensor, sets: KeySets | None
) -> tuple[Tensor, str]:
    """The tensor of a bias, and what its numbers belong to, or an error unless it fits."""
    if not isinstance(bias, DistanceBias):
        check_scores(bias, "bias")
        if sets is not None:
            bias = bias_of_entries(bias, sets)
            check_broadcast(bias, (*shape[:-2], bias.shape[-1]), "bias", "the batch")
            return bias, "entries"
        check_broadcast(bias, shape, "bias", "the scores")
        return bias, "scores"
    array = bias.array
    if not isinstance(array, Tensor):
        array = torch.as_tensor(array, dtype=composed.wide(query.new_empty(0)).dtype)
        array = array.to(query.device)
    check_scores(array, "bias")
    if bias.is_alibi:
        check_broadcast(array, shape[:-2], "bias", "the batch")
    else:
        check_distances(tuple(array.shape), *shape[-2:])
        check_broadcast(array, (*shape[:-2], array.shape[-1]), "bias", "the batch and distances")
    return array, "slopes" if bias.is_alibi else "distances"


def _with_one_dtype(*tensors: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """The tensors in the dtype that theirs promote to, and the output's dtype."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    lower = None if dtype == torch.float64 else autocast_dtype(tensors[0].device)
    if lower is not None:  # two half types have float32 in common
        dtype = torch.promote_types(dtype, lower)
    query, key, value = tensors
    return (query.to(dtype), key.to(dtype), value.to(dtype)), lower or dtype


def _scores_shape(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """The shape of the scores, (…, T, S), or an error for tensors that do not fit."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if type(x) is not Tensor or x.dtype not in FLOATING or x.is_nested:
            check_scores(x, name)
    batch, _ = check_shapes(query.shape, key.shape, value.shape)
    return (*batch, query.shape[-2], key.shape[-2])
