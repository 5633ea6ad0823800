"""The losses of output layers, of tensors: `pyentmax.linear_loss`, and a module for it.

On the host the scores of a chunk are one product by PyTorch, and everything else runs on the
tensors' memory, as in `pyentmax`. On other devices a chunk's scores, loss and gradients are
operations of PyTorch: that saves memory, and no time.

A loss that is one number computes its gradients along with it, as the scores do not outlast their
chunk; the backward pass multiplies them. Losses of rows keep the supports, since the backward pass
brings a number for each row; where these are large, in a graph, and on devices it computes the
scores again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function

from pyentmax.reference.linear_loss import Options, passes
from pyentmax.torch import composed
from pyentmax.torch.arguments import (
    check_options,
    check_scores,
    check_tensor,
    is_overridden,
    scores_of_loss,
)
from pyentmax.torch.arrays import on_arrays
from pyentmax.torch.calls import chosen, split, weights_of_rows
from pyentmax.torch.modules import Settings
from pyentmax.torch.operations import PARAMETERS
from pyentmax.torch.registry import (
    PARAMETER,
    is_plain,
    is_unwatched,
    not_differentiable,
    one_by_one,
    registered,
)
from pyentmax.torch.sparse_attention import check_settings

# Not public: without it, each backward pass makes new tensors.
_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
DEVICE_CHUNK_BYTES = 1 << 28  # of scores: a device wants large products, and has no cache to fit


def linear_loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    mapping: Any = "entmax15",
    *,
    linear_bias: Tensor | None = None,
    softcap: float | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
    row_weight: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
    **parameters: Any,
) -> Tensor:
    """The Fenchel-Young loss of ``input @ linear_weight.T``, without a tensor of all scores.

    Arguments are named as those of PyTorch's ``linear_cross_entropy``: `weight` is of classes, and
    `row_weight`, which it lacks, of rows.

    Parameters
    ----------
    input : Tensor of shape (…, d)
    linear_weight : Tensor of shape (classes, d)
    target : Tensor of integer labels of shape (…,), or of distributions of shape (…, classes)
    mapping : str, or a mapping such as `entmax15`
        one that has a loss
    linear_bias : Tensor of shape (classes,), optional
        −∞ excludes a class
    softcap : float, optional
        c in scores of c · tanh((input @ linear_weight.T + linear_bias) / c), as Gemma has them
    reduction, weight, row_weight, ignore_index, label_smoothing : as in ``softmax.loss``
        only `input`, `linear_weight` and `linear_bias` get gradients
    chunk : int, optional
        rows of the input whose scores are computed at a time; by default as many as fit in 32 MB,
        on a device in 256 MB
    **parameters
        the mapping's own, such as ``alpha``

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each row

    Raises
    ------
    ValueError, TypeError
        if shapes do not fit, or an argument is out of its range or of the wrong kind
    NotImplementedError
        for second derivatives, and in forward mode

    Notes
    -----
    Half types are computed in float32 on the host, which takes a copy of each tensor; elsewhere
    products are of the tensors' own type, and sums of chunks in float32. Under autocast the loss is
    float32. Labels that are out of range are an error on the host alone.

    Examples
    --------
    >>> x, rows = torch.tensor([[1.0, 0.5]]), torch.tensor([[2.0, 0.0], [1.0, 1.2], [-1.0, 0.0]])
    >>> linear_loss(x, rows, torch.tensor([0]))
    tensor(0.2187)
    """
    options = {"reduction": reduction, "weight": weight, "row_weight": row_weight}
    options |= {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "chunk": chunk}
    options |= {"softcap": softcap}
    tensors = (input, linear_weight, target)
    if is_overridden(*tensors):
        named = {"linear_bias": linear_bias, **options, **parameters}
        result: Tensor = handle_torch_function(linear_loss, tensors, *tensors, mapping, **named)
        return result
    mapping, value = chosen("linear_loss()", mapping, parameters)
    check_scores(input, "input")
    check_scores(linear_weight, "linear_weight")
    check_tensor(target, "target")
    check_options(reduction, weight, row_weight, ignore_index, label_smoothing)
    check_settings(softcap, 0.0)
    if linear_weight.ndim != 2 or not input.ndim or input.shape[-1] != linear_weight.shape[1]:
        raise ValueError(
            "input must have the shape (…, d) and linear_weight (classes, d), got "
            f"{tuple(input.shape)} and {tuple(linear_weight.shape)}"
        )
    if linear_bias is not None:
        check_scores(linear_bias, "linear_bias")
        if linear_bias.shape != linear_weight.shape[:1]:
            raise ValueError(
                f"linear_bias must have the shape ({len(linear_weight)},), got "
                f"{tuple(linear_bias.shape)}"
            )
    constants: dict[str | None, Any] = {
        "weight": weight,
        "row_weight": row_weight,
        "target": target,
    }
    constants[PARAMETERS[mapping]] = value
    for name, tensor in constants.items():
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            raise TypeError(
                f"linear_loss has no gradient in {name}: detach() it"
                + ("; or multiply the losses of reduction='none'" if "weight" in str(name) else "")
            )
    if weight is not None:
        shape = *input.shape[:-1], len(linear_weight)
        row_weight = weights_of_rows(weight, row_weight, target, shape)
    layer = (scores_of_loss(input), scores_of_loss(linear_weight), linear_bias)
    wanted = ""
    if torch.is_grad_enabled():
        wanted = "".join(n for n, x in zip("xrb", layer, strict=True) if _learns(x))
    if reduction == "none" and not is_plain((*layer, target)):
        wanted = ""  # supports, whose size a graph would have to know
    setting = (row_weight, reduction, ignore_index, float(label_smoothing), chunk)
    cap = None if softcap is None else float(softcap)
    rest = (*setting, cap, None, wanted, None, None, None)
    loss: Tensor = _operation(*layer, target, mapping, *split(mapping, value), *rest)[0]
    return loss


def _learns(x: Tensor | None) -> bool:
    return x is not None and x.requires_grad


class LinearLoss(Settings):
    """An output layer and its loss: `linear_loss` with a weight, and a bias if asked for.

    Parameters
    ----------
    in_features, num_classes : int
    mapping : as in `linear_loss`
    bias : bool, default False
    device, dtype
        of the parameters ``weight``, (num_classes, in_features), and ``bias``, which are
        initialised as those of ``torch.nn.Linear``
    softcap, chunk, reduction, ignore_index, label_smoothing, **parameters
        as in `linear_loss`
    class_weight : Tensor of shape (num_classes,), optional
        the `weight` of `linear_loss`; ``weight`` is the layer's, as in ``torch.nn.Linear``

    Examples
    --------
    >>> layer = LinearLoss(8, 1000, "sparsemax", ignore_index=-100)
    >>> layer(torch.zeros(3, 8), torch.tensor([1, 2, -100])).detach()
    tensor(0.4995)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        mapping: Any = "entmax15",
        *,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        softcap: float | None = None,
        chunk: int | None = None,
        reduction: str = "mean",
        class_weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        **parameters: Any,
    ) -> None:
        settings: dict[str, Any] = {"mapping": None, "chunk": chunk, "reduction": reduction}
        settings |= {"class_weight": class_weight, "ignore_index": ignore_index}
        settings |= {"softcap": softcap}
        settings["mapping"], _ = chosen("LinearLoss()", mapping, dict(parameters))
        super().__init__({**settings, "label_smoothing": label_smoothing, **parameters})
        self.weight = nn.Parameter(
            torch.empty(num_classes, in_features, device=device, dtype=dtype)
        )
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = nn.Parameter(torch.empty(num_classes, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as ``torch.nn.Linear`` does."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(max(1, self.weight.shape[1]))
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, target: Tensor, row_weight: Tensor | None = None) -> Tensor:
        """The loss of inputs and targets."""
        settings = {"linear_bias": self.bias, "row_weight": row_weight, **self.settings()}
        settings["weight"] = settings.pop("class_weight")
        return linear_loss(input, self.weight, target, **settings)


# --- the operation --------------------------------------------------------------------------------


def _compute(
    x: Tensor, rows: Tensor, bias: Any, y: Tensor, name: str, parameter: Any, number: Any,
    *rest: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    value = number if parameter is None else parameter
    if x.is_cpu:
        wide = torch.promote_types(composed.wide(x[..., :0]).dtype, composed.wide(rows[:0]).dtype)
        found = on_arrays(_on_host, x, rows, bias, y, name, value, *rest, dtype=wide)
    else:
        # The backward pass of losses of rows computes the gradients.
        rest = *rest[:7], rest[7] if rest[1] != "none" or rest[6] is not None else ""
        found = _in_chunks(x, rows, bias, y, name, parameter, number, *rest)
    loss, *parts = (x.new_empty(0) if part is None else part for part in found)
    parts += [x.new_empty(0) for _ in range(3 - len(parts))]
    return loss.to(torch.promote_types(x.dtype, rows.dtype)), *parts


def _on_host(x: Any, rows: Any, bias: Any, y: Any, name: str, value: Any, *rest: Any) -> Any:
    row_weight, reduction, ignore_index, smoothing, chunk, softcap, upstream, wanted = rest[:8]
    options = Options(reduction, row_weight, None, ignore_index, smoothing)
    own = PARAMETERS[name]
    supports: Any = bool(wanted) and reduction == "none" and upstream is None
    if rest[-1] is not None:
        supports = rest[-3:]
    found = passes(
        x, rows, y, name, {} if own is None else {own: value}, bias, options, chunk,
        softcap=softcap, wanted=wanted, upstream=upstream, supports=supports, matmul=_multiply,
        add_product=_add_product,
    )  # fmt: skip
    return tuple(np.empty(0) if part is None else part for part in found)


def _multiply(a: Any, b: Any, out: Any) -> None:
    torch.mm(_as_tensor(a), _as_tensor(b), out=torch.from_numpy(out))


def _add_product(a: Any, b: Any, out: Any) -> None:
    torch.from_numpy(out).addmm_(_as_tensor(a), _as_tensor(b))


class _Alias:
    """The memory of an array, which PyTorch would warn not to write to."""

    def __init__(self, array: Any) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self._array = array


def _as_tensor(array: Any) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Alias(array)))


def _in_chunks(
    x: Tensor, rows: Tensor, bias: Any, y: Tensor, name: str, parameter: Any, number: Any,
    row_weight: Any, reduction: str, ignore_index: Any, smoothing: float, chunk: Any,
    softcap: Any, upstream: Any, wanted: str,
) -> tuple[Any, ...]:  # fmt: skip
    """The same in PyTorch's operations, for devices other than the host."""
    batch, wide = x.shape[:-1], composed.wide(x[..., :0]).dtype
    is_label = y.shape == batch and not y.is_floating_point()
    flat = x.reshape(-1, x.shape[-1])
    y = y.reshape(-1) if is_label else y.reshape(len(flat), -1)
    counts = torch.ones(len(flat), dtype=torch.bool, device=x.device)
    if ignore_index is not None:
        counts = y != ignore_index
    if bias is not None:
        counts = counts & (bias != -torch.inf).any()
    if row_weight is not None:
        row_weight = row_weight.expand(batch).reshape(-1)
    share = composed.shares(counts, row_weight, reduction, x.new_empty(0, dtype=wide))
    slope = share if upstream is None else share * upstream.reshape(-1)
    if parameter is not None:
        parameter = parameter.expand(batch).reshape(-1)
    softness = torch.full((), smoothing, dtype=wide) if smoothing else None
    each = torch.empty(len(flat), dtype=wide, device=x.device)
    layer = zip("xrb", (flat, rows, bias), strict=True)
    found = [torch.zeros_like(t, dtype=wide) if n in wanted else None for n, t in layer]
    in_x, in_rows, in_bias = found
    step = chunk or max(1, DEVICE_CHUNK_BYTES // (4 * len(rows)))
    for start in range(0, len(flat), step):
        some = slice(start, start + step)
        z = torch.mm(flat[some].to(rows.dtype), rows.T).to(wide)
        z = z if bias is None else z + bias
        if softcap is not None:
            z = torch.where(z == -torch.inf, z, softcap * torch.tanh(z / softcap))
        own = None if parameter is None else parameter[some]
        rest = (None, None, "none", ignore_index, softness)
        each[some], g = torch.ops.pyentmax.loss(z, y[some], name, own, number, *rest)
        if wanted:
            g = torch.where(slope[some, None] == 0, 0, g * slope[some, None])
            if softcap is not None:
                g *= 1 - (z.clamp(min=-softcap) / softcap).square()
        if in_x is not None:
            in_x[some] = torch.mm(g.to(rows.dtype), rows)
        if in_rows is not None:
            in_rows += torch.mm(g.to(x.dtype).T, flat[some])
        if in_bias is not None:
            in_bias += g.sum(0)
    loss = torch.where(share == 0, 0, each * share)
    loss = loss.reshape(batch) if reduction == "none" else loss.sum()
    return loss, None if in_x is None else in_x.reshape(x.shape), in_rows, in_bias


def _fake(x: Tensor, rows: Tensor, bias: Any, *rest: Any) -> tuple[Tensor, ...]:
    reduction, wanted = rest[-10], rest[-4]
    shape = x.shape[:-1] if reduction == "none" else ()
    loss = x.new_empty(shape, dtype=torch.promote_types(x.dtype, rows.dtype))
    wide = torch.promote_types(composed.wide(x[..., :0]).dtype, composed.wide(rows[:0]).dtype)
    parts = [
        t.new_empty(t.shape, dtype=wide) if n in wanted else x.new_empty(0)
        for n, t in zip("xrb", (x, rows, bias), strict=True)
    ]
    return loss, *parts


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    x, rows, bias, y, ctx.name, parameter, ctx.number, row_weight, *ctx.rest = inputs
    ctx.save_for_backward(x, rows, bias, y, parameter, row_weight, *output[1:])


def _backward(ctx: Any, g: Tensor | None, *unused: Any) -> tuple[Any, ...]:
    nothing = (None,) * 18
    if g is None:
        return nothing
    x, rows, bias, y, parameter, row_weight, *parts = ctx.saved_tensors
    reduction, ignore_index, smoothing, chunk, softcap, *_ = ctx.rest
    layer, needed, factor = (x, rows, bias), ctx.needs_input_grad[:3], g
    if reduction == "none":
        supports = parts if ctx.rest[-4] and parts[-1].numel() else (None,) * 3
        given = (*layer, y, ctx.name, parameter, ctx.number, row_weight)
        wanted = "".join(n for n, need in zip("xrb", needed, strict=True) if need)
        rest = ("sum", ignore_index, smoothing, chunk, softcap, g, wanted, *supports)
        parts, factor = _operation(*given, *rest)[1:], None
    # The caller may change what it gets, and go through a graph that is kept again.
    elif is_unwatched((g,)) and not _graph_is_kept():
        parts, factor = [part.mul_(g) if part.numel() else part for part in parts], None
    found = [
        (part if factor is None else part * factor).to(t.dtype) if need else None
        for part, t, need in zip(parts, layer, needed, strict=True)
    ]
    if torch.is_grad_enabled():
        found = [part if part is None else _once(part, g, x, rows) for part in found]
    return *found, *nothing[3:]


# A gradient that may be differentiated again, which PyTorch would take for a constant.
_once = registered(
    "linear_loss_gradient",
    "(Tensor gradient, Tensor g, Tensor x, Tensor rows) -> Tensor",
    compute=lambda gradient, *unused: gradient.clone(),
    fake=lambda gradient, *unused: gradient.new_empty(gradient.shape),
    vmap=one_by_one,
    **not_differentiable(
        "linear_loss has no second derivatives: take them of a loss of all scores, as "
        "fenchel_young_loss(input @ linear_weight.T, target)"
    ),
)


_operation: Callable[..., Any] = registered(
    "linear_loss",
    f"(Tensor x, Tensor rows, Tensor? bias, Tensor y, str name, {PARAMETER}, "
    "Tensor? row_weight, str reduction, int? ignore_index, float smoothing, int? chunk, "
    "float? softcap, Tensor? upstream, str wanted, Tensor? values, Tensor? columns, Tensor? ends) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    compute=_compute,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    vmap=one_by_one,
)
