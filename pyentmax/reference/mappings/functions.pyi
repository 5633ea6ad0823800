"""The array functions of all mappings, as callers see them.

Made by tools/write_stubs.py (`make stubs`): do not edit."""

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from pyentmax.engine.backends.declare import Declare

Array = NDArray[Any]
Axis = int | tuple[int, ...] | None
Reduction = Literal["mean", "sum", "none"]
_declared: Declare

__all__ = [
    "log_softmax",
    "softmax",
    "softmax_jacobian",
    "softmax_jvp",
    "softmax_loss",
    "softmax_loss_and_grad",
    "softmax_support",
    "softmax_vjp",
    "log_sparsemax",
    "sparsemax",
    "sparsemax_jacobian",
    "sparsemax_jvp",
    "sparsemax_loss",
    "sparsemax_loss_and_grad",
    "sparsemax_support",
    "sparsemax_vjp",
    "entmax15",
    "entmax15_jacobian",
    "entmax15_jvp",
    "entmax15_loss",
    "entmax15_loss_and_grad",
    "entmax15_support",
    "entmax15_vjp",
    "log_entmax15",
    "entmax",
    "entmax_grad_alpha",
    "entmax_jacobian",
    "entmax_jvp",
    "entmax_loss",
    "entmax_loss_and_grad",
    "entmax_support",
    "entmax_vjp",
    "entmax_vjp_alpha",
    "log_entmax",
    "entmax_sigmoid",
    "entmax_sigmoid_grad_alpha",
    "entmax_sigmoid_jvp",
    "entmax_sigmoid_vjp",
    "entmax_sigmoid_vjp_alpha",
    "entmax_sigmoid_loss",
    "entmax_sigmoid_loss_and_grad",
    "one_vs_all_loss",
    "one_vs_all_loss_and_grad",
    "normmax",
    "normmax_jacobian",
    "normmax_jvp",
    "normmax_loss",
    "normmax_loss_and_grad",
    "normmax_support",
    "normmax_vjp",
    "topk_softmax",
    "topk_softmax_jacobian",
    "topk_softmax_jvp",
    "topk_softmax_support",
    "topk_softmax_vjp",
    "topk_sparsemax",
    "topk_sparsemax_jacobian",
    "topk_sparsemax_jvp",
    "topk_sparsemax_loss",
    "topk_sparsemax_loss_and_grad",
    "topk_sparsemax_support",
    "topk_sparsemax_vjp",
    "fusedmax",
    "fusedmax_jacobian",
    "fusedmax_jvp",
    "fusedmax_support",
    "fusedmax_vjp",
    "fusedmax_vjp_strength",
    "oscarmax",
    "oscarmax_jacobian",
    "oscarmax_jvp",
    "oscarmax_support",
    "oscarmax_vjp",
    "oscarmax_vjp_strength",
    "csoftmax",
    "csoftmax_jacobian",
    "csoftmax_jvp",
    "csoftmax_support",
    "csoftmax_vjp",
    "csoftmax_vjp_upper",
    "csparsemax",
    "csparsemax_jacobian",
    "csparsemax_jvp",
    "csparsemax_support",
    "csparsemax_vjp",
    "csparsemax_vjp_upper",
    "budget_sparsemax",
    "budget_sparsemax_jacobian",
    "budget_sparsemax_jvp",
    "budget_sparsemax_support",
    "budget_sparsemax_vjp",
    "budget_sparsemax_vjp_bounds",
    "budget_sparsemax_vjp_budget",
]

@_declared
def log_softmax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def softmax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def softmax_jacobian(p: ArrayLike, axis: Axis = -1) -> Array: ...
@_declared
def softmax_jvp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def softmax_loss(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any: ...
@_declared
def softmax_loss_and_grad(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]: ...
@_declared
def softmax_support(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def softmax_vjp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def log_sparsemax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def sparsemax(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def sparsemax_jacobian(p: ArrayLike, axis: Axis = -1) -> Array: ...
@_declared
def sparsemax_jvp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def sparsemax_loss(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any: ...
@_declared
def sparsemax_loss_and_grad(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]: ...
@_declared
def sparsemax_support(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def sparsemax_vjp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax15(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax15_jacobian(p: ArrayLike, axis: Axis = -1) -> Array: ...
@_declared
def entmax15_jvp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax15_loss(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any: ...
@_declared
def entmax15_loss_and_grad(
    z: ArrayLike, y: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]: ...
@_declared
def entmax15_support(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax15_vjp(
    p: ArrayLike, v: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def log_entmax15(
    z: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None, out: Array | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax(
    z: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_grad_alpha(
    p: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_jacobian(p: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1) -> Array: ...
@_declared
def entmax_jvp(
    p: ArrayLike, v: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_loss(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any: ...
@_declared
def entmax_loss_and_grad(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]: ...
@_declared
def entmax_support(
    z: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_vjp(
    p: ArrayLike, v: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_vjp_alpha(
    p: ArrayLike, g: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def log_entmax(
    z: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_sigmoid(
    z: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None,
) -> Array: ...
@_declared
def entmax_sigmoid_grad_alpha(
    p: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_sigmoid_jvp(
    p: ArrayLike, v: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_sigmoid_vjp(
    p: ArrayLike, v: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_sigmoid_vjp_alpha(
    p: ArrayLike, g: ArrayLike, alpha: ArrayLike = 1.5, *, mask: ArrayLike | None = None,
) -> Array: ...
@_declared
def entmax_sigmoid_loss(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
) -> Any: ...
@_declared
def entmax_sigmoid_loss_and_grad(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
) -> tuple[Any, Array]: ...
@_declared
def one_vs_all_loss(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any: ...
@_declared
def one_vs_all_loss_and_grad(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]: ...
@_declared
def normmax(
    z: ArrayLike, alpha: ArrayLike = 2.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def normmax_jacobian(p: ArrayLike, alpha: ArrayLike = 2.0, axis: Axis = -1) -> Array: ...
@_declared
def normmax_jvp(
    p: ArrayLike, v: ArrayLike, alpha: ArrayLike = 2.0, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def normmax_loss(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 2.0, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any: ...
@_declared
def normmax_loss_and_grad(
    z: ArrayLike, y: ArrayLike, alpha: ArrayLike = 2.0, axis: Axis = -1, *,
    reduction: Reduction = "mean", weight: ArrayLike | None = None, mask: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]: ...
@_declared
def normmax_support(
    z: ArrayLike, alpha: ArrayLike = 2.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def normmax_vjp(
    p: ArrayLike, v: ArrayLike, alpha: ArrayLike = 2.0, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def topk_softmax(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def topk_softmax_jacobian(p: ArrayLike, k: ArrayLike, axis: Axis = -1) -> Array: ...
@_declared
def topk_softmax_jvp(
    p: ArrayLike, v: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def topk_softmax_support(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def topk_softmax_vjp(
    p: ArrayLike, v: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def topk_sparsemax(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def topk_sparsemax_jacobian(p: ArrayLike, k: ArrayLike, axis: Axis = -1) -> Array: ...
@_declared
def topk_sparsemax_jvp(
    p: ArrayLike, v: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def topk_sparsemax_loss(
    z: ArrayLike, y: ArrayLike, k: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> Any: ...
@_declared
def topk_sparsemax_loss_and_grad(
    z: ArrayLike, y: ArrayLike, k: ArrayLike, axis: Axis = -1, *, reduction: Reduction = "mean",
    weight: ArrayLike | None = None, mask: ArrayLike | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: ArrayLike | None = None, workers: int | None = None,
    offsets: ArrayLike | None = None,
) -> tuple[Any, Array]: ...
@_declared
def topk_sparsemax_support(
    z: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def topk_sparsemax_vjp(
    p: ArrayLike, v: ArrayLike, k: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def fusedmax(
    z: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def fusedmax_jacobian(p: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1) -> Array: ...
@_declared
def fusedmax_jvp(
    p: ArrayLike, v: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def fusedmax_support(
    z: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def fusedmax_vjp(
    p: ArrayLike, v: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def fusedmax_vjp_strength(
    p: ArrayLike, g: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def oscarmax(
    z: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def oscarmax_jacobian(p: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1) -> Array: ...
@_declared
def oscarmax_jvp(
    p: ArrayLike, v: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def oscarmax_support(
    z: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def oscarmax_vjp(
    p: ArrayLike, v: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def oscarmax_vjp_strength(
    p: ArrayLike, g: ArrayLike, strength: ArrayLike = 1.0, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csoftmax(
    z: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csoftmax_jacobian(p: ArrayLike, upper: ArrayLike, axis: Axis = -1) -> Array: ...
@_declared
def csoftmax_jvp(
    p: ArrayLike, v: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csoftmax_support(
    z: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csoftmax_vjp(
    p: ArrayLike, v: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csoftmax_vjp_upper(
    p: ArrayLike, g: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csparsemax(
    z: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csparsemax_jacobian(p: ArrayLike, upper: ArrayLike, axis: Axis = -1) -> Array: ...
@_declared
def csparsemax_jvp(
    p: ArrayLike, v: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csparsemax_support(
    z: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csparsemax_vjp(
    p: ArrayLike, v: ArrayLike, upper: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def csparsemax_vjp_upper(
    p: ArrayLike, g: ArrayLike, upper: ArrayLike, z: ArrayLike, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def budget_sparsemax(
    z: ArrayLike, budget: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, lower: ArrayLike = 0,
    upper: ArrayLike = 1, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def budget_sparsemax_jacobian(
    p: ArrayLike, budget: ArrayLike, axis: Axis = -1, *, lower: ArrayLike = 0, upper: ArrayLike = 1,
) -> Array: ...
@_declared
def budget_sparsemax_jvp(
    p: ArrayLike, v: ArrayLike, budget: ArrayLike, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, lower: ArrayLike = 0,
    upper: ArrayLike = 1, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def budget_sparsemax_support(
    z: ArrayLike, budget: ArrayLike, axis: Axis = -1, *, mask: ArrayLike | None = None,
    lower: ArrayLike = 0, upper: ArrayLike = 1, offsets: ArrayLike | None = None,
) -> Array: ...
@_declared
def budget_sparsemax_vjp(
    p: ArrayLike, v: ArrayLike, budget: ArrayLike, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, lower: ArrayLike = 0,
    upper: ArrayLike = 1, offsets: ArrayLike | None = None,
) -> Array: ...
def budget_sparsemax_vjp_bounds(
    p: ArrayLike, g: ArrayLike, z: ArrayLike, axis: Axis = -1, *, lower: ArrayLike = 0,
    upper: ArrayLike = 1, mask: ArrayLike | None = None,
) -> Array: ...
@_declared
def budget_sparsemax_vjp_budget(
    p: ArrayLike, g: ArrayLike, budget: ArrayLike, axis: Axis = -1, *,
    mask: ArrayLike | None = None, workers: int | None = None, lower: ArrayLike = 0,
    upper: ArrayLike = 1, offsets: ArrayLike | None = None,
) -> Array: ...
