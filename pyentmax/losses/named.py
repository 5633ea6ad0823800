"""The losses that have a name of their own: cross-entropy and its sparse relatives."""

from __future__ import annotations

from typing import Any

from pyentmax.backends.choice import accelerated
from pyentmax.calls.options import Options
from pyentmax.losses._definition import loss_and_gradient
from pyentmax.losses._labelled import EntmaxLabelledRows, LabelledRows
from pyentmax.mappings import MAPPINGS


@accelerated(LabelledRows)
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
    """Cross-entropy: log Σ exp z − z_y for a label, KL(q‖softmax(z)) for a distribution.

    Equal to PyTorch's and scikit-learn's log loss for labels; for soft targets it is theirs less
    the entropy of q, which makes 0 its minimum.

    Parameters
    ----------
    z, y : scores; labels or distributions
    axis, reduction, weight, mask, ignore_index, label_smoothing : as in `fenchel_young_loss`

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError, TypeError
        as in `fenchel_young_loss`

    Examples
    --------
    >>> print(round(float(softmax_loss([2.0, 1.0], 0)), 6))
    0.313262
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = loss_and_gradient(z, y, MAPPINGS["softmax"], (), axis, options)
    return loss


@accelerated(LabelledRows)
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
) -> tuple[Any, Any]:
    """`softmax_loss` and its gradient in z, for one forward pass.

    Examples
    --------
    >>> loss, grad = softmax_loss_and_grad([0.0, 0.0], 0)
    >>> print(round(float(loss), 6), grad)
    0.693147 [-0.5  0.5]
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = loss_and_gradient(z, y, MAPPINGS["softmax"], (), axis, options)
    return loss, gradient()


@accelerated(LabelledRows)
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
    """The sparsemax loss (Martins & Astudillo 2016), 0 from a margin of 1 on.

    For a label, p·z − z_y + ½ Σ p (1 − p) at p = sparsemax(z): a smooth hinge, exactly 0 where z_y
    exceeds every other score by 1.

    Parameters
    ----------
    z, y : scores; labels or distributions
    axis, reduction, weight, mask, ignore_index, label_smoothing : as in `fenchel_young_loss`

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError, TypeError
        as in `fenchel_young_loss`

    Examples
    --------
    >>> print(sparsemax_loss([2.0, 1.0], 0), sparsemax_loss([0.0, 0.0], 0))
    0.0 0.25
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = loss_and_gradient(z, y, MAPPINGS["sparsemax"], (), axis, options)
    return loss


@accelerated(LabelledRows)
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
) -> tuple[Any, Any]:
    """`sparsemax_loss` and its gradient in z, for one forward pass.

    Examples
    --------
    >>> loss, grad = sparsemax_loss_and_grad([0.0, 0.0], 0)
    >>> print(loss, grad)
    0.25 [-0.5  0.5]
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = loss_and_gradient(z, y, MAPPINGS["sparsemax"], (), axis, options)
    return loss, gradient()


@accelerated(LabelledRows)
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
    """The 1.5-entmax loss (Peters et al. 2019, §3.2), 0 from a margin of 2 on.

    For a label, p·z − z_y + H(p) at p = entmax15(z), H Tsallis' 1.5-entropy.

    Parameters
    ----------
    z, y : scores; labels or distributions
    axis, reduction, weight, mask, ignore_index, label_smoothing : as in `fenchel_young_loss`

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError, TypeError
        as in `fenchel_young_loss`

    Examples
    --------
    >>> print(entmax15_loss([2.0, 0.0], 0))
    0.0
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = loss_and_gradient(z, y, MAPPINGS["entmax15"], (), axis, options)
    return loss


@accelerated(LabelledRows)
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
) -> tuple[Any, Any]:
    """`entmax15_loss` and its gradient in z, for one forward pass.

    Examples
    --------
    >>> loss, grad = entmax15_loss_and_grad([0.0, 0.0], 0)
    >>> print(round(float(loss), 6), grad)
    0.390524 [-0.5  0.5]
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = loss_and_gradient(z, y, MAPPINGS["entmax15"], (), axis, options)
    return loss, gradient()


@accelerated(EntmaxLabelledRows)
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
    """The α-entmax loss (Peters et al. 2019, §3.2), 0 from a margin of 1/(α−1) on.

    For a label, p·z − z_y + H_α(p) at p = entmax(z, alpha): cross-entropy at α = 1, the sparsemax
    loss at 2, and max z − z_y (the perceptron's) at ∞.

    Parameters
    ----------
    z, y, alpha : scores; labels or distributions; the shape, as in `pyentmax.entmax`
    axis, reduction, weight, mask, ignore_index, label_smoothing : as in `fenchel_young_loss`

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError, TypeError
        as in `fenchel_young_loss`, and for an alpha below 1

    Examples
    --------
    >>> print(entmax_loss([1.0, 0.0], 1, float("inf")))
    1.0
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = loss_and_gradient(z, y, MAPPINGS["entmax"], (alpha,), axis, options)
    return loss


@accelerated(EntmaxLabelledRows)
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
) -> tuple[Any, Any]:
    """`entmax_loss` and its gradient in z, for one forward pass.

    Examples
    --------
    >>> loss, grad = entmax_loss_and_grad([0.0, 0.0], 0, 2)
    >>> print(loss, grad)
    0.25 [-0.5  0.5]
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = loss_and_gradient(z, y, MAPPINGS["entmax"], (alpha,), axis, options)
    return loss, gradient()


@accelerated(None)
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
    """The normmax loss (Blondel, Martins & Niculae 2020, §4.3), 0 from a margin of 1 on.

    For a label, p·z − z_y + 1 − ‖p‖_α at p = normmax(z, alpha): Ω of a label is 1, not 0. Since
    Ω*(z) is the threshold τ, it is also τ + 1 − z_y.

    Parameters
    ----------
    z, y, alpha : scores; labels or distributions; the norm's order, as in `pyentmax.normmax`
    axis, reduction, weight, mask, ignore_index, label_smoothing : as in `fenchel_young_loss`

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError, TypeError
        as in `fenchel_young_loss`, and for an alpha that is not above 1

    Examples
    --------
    >>> print(normmax_loss([1.0, 0.0], 0), round(float(normmax_loss([0.0, 0.0], 0)), 6))
    0.0 0.292893
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = loss_and_gradient(z, y, MAPPINGS["normmax"], (alpha,), axis, options)
    return loss


@accelerated(None)
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
) -> tuple[Any, Any]:
    """`normmax_loss` and its gradient in z, for one forward pass.

    Examples
    --------
    >>> loss, grad = normmax_loss_and_grad([0.0, 0.0], 0)
    >>> print(round(float(loss), 6), grad)
    0.292893 [-0.5  0.5]
    """
    options = Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = loss_and_gradient(z, y, MAPPINGS["normmax"], (alpha,), axis, options)
    return loss, gradient()
