"""The functions of `pyentmax` that have a CUDA kernel, with their signatures, for CuPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.backends.cuda._calls import (
    Call,
    bounded,
    compute_type,
    derivative,
    forward,
    fused,
    fused_product,
    loss,
    pooled_scores,
    smoothed_neighbours,
)
from pyentmax.backends.cuda._launch import Kernel
from pyentmax.calls.options import Options

SOFTMAX = Kernel("forward", "Softmax", "softmax.cu")
SPARSEMAX = Kernel("forward", "Sparsemax", "sparsemax.cu")
ENTMAX15 = Kernel("forward", "Entmax15", "entmax15.cu")
ENTMAX = Kernel("forward", "Entmax", "entmax.cu", gathers=True)
NORMMAX = Kernel("forward", "Normmax", "normmax.cu", gathers=True)
TOPK_SOFTMAX = Kernel("forward", "TopkSoftmax", "topk_softmax.cu")
CSOFTMAX = Kernel("bounded", "Csoftmax", "bounded.cu")
CSPARSEMAX = Kernel("bounded", "Csparsemax", "bounded.cu")
BUDGET_SPARSEMAX = Kernel("bounded", "BudgetSparsemax", "bounded.cu")
SOFTMAX_JVP = Kernel("derivative", "SoftmaxJvp", "softmax.cu")
SPARSEMAX_JVP = Kernel("derivative", "SparsemaxJvp", "sparsemax.cu")
ENTMAX15_JVP = Kernel("derivative", "Entmax15Jvp", "entmax15.cu")
ENTMAX_JVP = Kernel("derivative", "EntmaxJvp", "entmax.cu")
NORMMAX_JVP = Kernel("derivative", "NormmaxJvp", "normmax.cu")
SOFTMAX_LOSS = Kernel("loss", "SoftmaxLoss", "losses.cu")
SPARSEMAX_LOSS = Kernel("loss", "SparsemaxLoss", "losses.cu")
ENTMAX15_LOSS = Kernel("loss", "Entmax15Loss", "losses.cu")
ENTMAX_LOSS = Kernel("loss", "EntmaxLoss", "losses.cu", gathers=True)
NORMMAX_LOSS = Kernel("loss", "NormmaxLoss", "losses.cu", gathers=True)
ENTMAX_GRAD_ALPHA = Kernel("derivative", "EntmaxGradAlpha", "grad_alpha.cu")


def softmax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.softmax`."""
    return forward(SOFTMAX, z, axis, mask, out)


def sparsemax(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.sparsemax`."""
    return forward(SPARSEMAX, z, axis, mask, out)


def entmax15(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.entmax15`."""
    return forward(ENTMAX15, z, axis, mask, out)


def entmax(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.entmax`."""
    return forward(ENTMAX, z, axis, mask, out, _alpha(alpha))


def normmax(z: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.normmax`."""
    return forward(NORMMAX, z, axis, mask, out, _above_1(alpha))


def topk_softmax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.topk_softmax`."""
    return forward(TOPK_SOFTMAX, z, axis, mask, out, _whole(k))


def csoftmax(z: Any, upper: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.csoftmax`."""
    return bounded(CSOFTMAX, z, upper, axis, mask, out, _least_sum(upper))


def csparsemax(z: Any, upper: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """`pyentmax.csparsemax`."""
    return bounded(CSPARSEMAX, z, upper, axis, mask, out, _least_sum(upper))


def budget_sparsemax(
    z: Any, budget: Any, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> Any:
    """`pyentmax.budget_sparsemax`."""
    return bounded(BUDGET_SPARSEMAX, z, None, axis, mask, out, _budget(budget))


def fusedmax(
    z: Any, strength: Any = 1.0, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> Any:
    """`pyentmax.fusedmax`; its rows have an order, which several axes have not."""
    if axis is None or np.ndim(axis):
        return NotImplemented
    return fused(SPARSEMAX, smoothed_neighbours, z, axis, mask, out, _strength(strength))


def oscarmax(
    z: Any, strength: Any = 1.0, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> Any:
    """`pyentmax.oscarmax`."""
    return fused(SPARSEMAX, pooled_scores, z, axis, mask, out, _strength(strength))


def softmax_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.softmax_jvp`."""
    return derivative(SOFTMAX_JVP, p, v, axis, mask)


def sparsemax_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.sparsemax_jvp`."""
    return derivative(SPARSEMAX_JVP, p, v, axis, mask)


def entmax15_jvp(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.entmax15_jvp`."""
    return derivative(ENTMAX15_JVP, p, v, axis, mask)


def entmax_jvp(p: Any, v: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.entmax_jvp`."""
    return derivative(ENTMAX_JVP, p, v, axis, mask, _alpha(alpha))


def entmax_grad_alpha(p: Any, alpha: Any = 1.5, axis: Any = -1) -> Any:
    """`pyentmax.entmax_grad_alpha`."""
    return derivative(ENTMAX_GRAD_ALPHA, p, None, axis, None, _alpha(alpha))


def normmax_jvp(p: Any, v: Any, alpha: Any = 2.0, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.normmax_jvp`."""
    return derivative(NORMMAX_JVP, p, v, axis, mask, _above_1(alpha))


def topk_softmax_jvp(p: Any, v: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.topk_softmax_jvp`; k is only checked, as p is 0 wherever a score was dropped."""
    return derivative(SOFTMAX_JVP, p, v, axis, mask, _whole(k))


def csoftmax_jvp(p: Any, v: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.csoftmax_jvp`."""
    return derivative(SOFTMAX_JVP, p, v, axis, mask, upper=upper)


def csparsemax_jvp(p: Any, v: Any, upper: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.csparsemax_jvp`."""
    return derivative(SPARSEMAX_JVP, p, v, axis, mask, upper=upper)


def budget_sparsemax_jvp(p: Any, v: Any, budget: Any, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.budget_sparsemax_jvp`; the budget is only checked, as p tells what is free."""
    return derivative(SPARSEMAX_JVP, p, v, axis, mask, _budget(budget), upper=1.0)


def fusedmax_jvp(p: Any, v: Any, strength: Any = 1.0, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.fusedmax_jvp`."""
    if axis is None or np.ndim(axis):
        return NotImplemented
    return fused_product(p, v, axis, mask, _strength(strength), anywhere=False)


def oscarmax_jvp(p: Any, v: Any, strength: Any = 1.0, axis: Any = -1, *, mask: Any = None) -> Any:
    """`pyentmax.oscarmax_jvp`."""
    return fused_product(p, v, axis, mask, _strength(strength), anywhere=True)


def softmax_loss(
    z: Any,
    y: Any,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.softmax_loss`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(SOFTMAX_LOSS, z, y, axis, options, with_gradient=False)


def softmax_loss_and_grad(
    z: Any,
    y: Any,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.softmax_loss_and_grad`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(SOFTMAX_LOSS, z, y, axis, options, with_gradient=True)


def sparsemax_loss(
    z: Any,
    y: Any,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.sparsemax_loss`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(SPARSEMAX_LOSS, z, y, axis, options, with_gradient=False)


def sparsemax_loss_and_grad(
    z: Any,
    y: Any,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.sparsemax_loss_and_grad`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(SPARSEMAX_LOSS, z, y, axis, options, with_gradient=True)


def entmax15_loss(
    z: Any,
    y: Any,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.entmax15_loss`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(ENTMAX15_LOSS, z, y, axis, options, with_gradient=False)


def entmax15_loss_and_grad(
    z: Any,
    y: Any,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.entmax15_loss_and_grad`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(ENTMAX15_LOSS, z, y, axis, options, with_gradient=True)


def entmax_loss(
    z: Any,
    y: Any,
    alpha: Any = 1.5,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.entmax_loss`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(ENTMAX_LOSS, z, y, axis, options, _alpha(alpha), with_gradient=False)


def entmax_loss_and_grad(
    z: Any,
    y: Any,
    alpha: Any = 1.5,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.entmax_loss_and_grad`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(ENTMAX_LOSS, z, y, axis, options, _alpha(alpha), with_gradient=True)


def normmax_loss(
    z: Any,
    y: Any,
    alpha: Any = 2.0,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.normmax_loss`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(NORMMAX_LOSS, z, y, axis, options, _above_1(alpha), with_gradient=False)


def normmax_loss_and_grad(
    z: Any,
    y: Any,
    alpha: Any = 2.0,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """`pyentmax.normmax_loss_and_grad`."""
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    return loss(NORMMAX_LOSS, z, y, axis, options, _above_1(alpha), with_gradient=True)


def _alpha(alpha: Any) -> Callable[[Call], Any]:
    return lambda call: call.parameter(alpha, "alpha", 1)


def _strength(strength: Any) -> Callable[[Call], Any]:
    return lambda call: call.parameter(strength, "strength", 0)


def _above_1(alpha: Any) -> Callable[[Call], Any]:
    return lambda call: call.parameter(alpha, "alpha", 1, strict=True)


def _whole(k: Any) -> Callable[[Call], Any]:
    def parameter(call: Call) -> Any:
        number = call.parameter(k, "k", 1)
        if isinstance(number, float) and number != np.floor(number):
            raise ValueError(f"k must be a whole number, got {number:g}")
        return number

    return parameter


def _budget(budget: Any) -> Callable[[Call], Any]:
    return lambda call: call.parameter(budget, "budget", 0, strict=True)


def _least_sum(upper: Any) -> Callable[[Call], float]:
    """What bounds have to sum to at least: 1, rounding allowed for."""

    def parameter(call: Call) -> float:
        n = math.prod(call.array.shape[axis] for axis in call.axes)
        given = getattr(upper, "dtype", np.dtype(np.float64))
        precision = given if given.kind == "f" else np.dtype(np.float64)
        epsilon = max(np.finfo(d).eps for d in (compute_type(call.array), precision))
        return float(1 - 8 * epsilon * n**0.5)

    return parameter


KERNELS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        softmax,
        sparsemax,
        entmax15,
        entmax,
        normmax,
        topk_softmax,
        csoftmax,
        csparsemax,
        budget_sparsemax,
        fusedmax,
        oscarmax,
        softmax_jvp,
        sparsemax_jvp,
        entmax15_jvp,
        entmax_jvp,
        entmax_grad_alpha,
        normmax_jvp,
        topk_softmax_jvp,
        csoftmax_jvp,
        csparsemax_jvp,
        budget_sparsemax_jvp,
        fusedmax_jvp,
        oscarmax_jvp,
        softmax_loss,
        softmax_loss_and_grad,
        sparsemax_loss,
        sparsemax_loss_and_grad,
        entmax15_loss,
        entmax15_loss_and_grad,
        entmax_loss,
        entmax_loss_and_grad,
        normmax_loss,
        normmax_loss_and_grad,
    )
}
