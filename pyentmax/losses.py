"""Fenchel-Young losses: for every mapping with a regulariser Ω, the loss whose gradient it is.

For scores z and a target distribution q (a label y is q = e_y),

    L(z; q) = Ω*(z) + Ω(q) − q·z,    Ω*(z) = p·z − Ω(p),  p = mapping(z),

is convex in z, at least 0, and 0 exactly where p = q; its gradient in z is p − q (Blondel,
Martins & Niculae 2020; Peters et al. 2019, §3.2). Softmax's is the cross-entropy (for a
distribution q the Kullback-Leibler divergence, since Ω(q) is included). All is computed with
scores relative to each row's largest, which changes nothing (Σp = Σq) and loses no digits to
their offset; then Ω*(z) ≥ 0 too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax._dispatch import as_floating
from pyentmax.mappings import MAPPINGS, Mapping
from pyentmax.mappings._rows import Rows, check_parameter

REDUCTIONS = ("mean", "sum", "none")
SUM_TOLERANCE = 1e-3  # half floats' probabilities sum to 1 no better


def fenchel_young_loss(
    z: Any,
    y: Any,
    mapping: str | Mapping,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    **params: Any,
) -> Any:
    """The Fenchel-Young loss of any mapping with an Ω: Ω*(z) + Ω(q) − q·z.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    mapping : name of a row of `pyentmax.MAPPINGS`, or a `Mapping` of one's own
    axis : int, tuple of int or None
        which axes form a row
    reduction : "mean", "sum" or "none"
        the mean divides by the sum of the weights that count, and is 0 where none does
    weight : array that broadcasts against the labels' shape, optional
        what each row counts
    mask : bool array that broadcasts to z, optional
        True where a score may get probability. A label on a masked entry costs infinity; what a
        distribution holds there is not looked at. A row with nothing left costs and counts
        nothing, nor does one of weight 0, and their targets may be anything
    ignore_index : int, optional
        rows with this label cost and count nothing; for labels only
    label_smoothing : float in [0, 1]
        ε in q = (1 − ε) q + ε/d, d the number of unmasked entries
    **params
        the mapping's own parameters, such as ``alpha``

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError
        if y is neither labels nor distributions that fit z, or an option is out of its range
    TypeError
        if y is not of numbers or is a masked array, an option is of the wrong kind, or a parameter
        is missing or unknown

    Examples
    --------
    >>> print(fenchel_young_loss([[2.0, 1.0, 0.0]], [0], "sparsemax"))
    0.0
    >>> print(fenchel_young_loss([[2.0, 1.0, 0.0]], [1], "entmax", alpha=2))
    1.0
    """
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = _loss(z, y, mapping, axis, options, params)
    return loss


def fenchel_young_loss_and_grad(
    z: Any,
    y: Any,
    mapping: str | Mapping,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    **params: Any,
) -> tuple[Any, Any]:
    """`fenchel_young_loss` and its gradient in z, of z's shape, for one forward pass.

    For "none" the gradient is each row's own.

    Examples
    --------
    >>> loss, grad = fenchel_young_loss_and_grad([[2.0, 1.0, 0.0]], [1], "sparsemax")
    >>> print(loss, grad)
    1.0 [[ 1. -1.  0.]]
    """
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, grad = _loss(z, y, mapping, axis, options, params)
    return loss, grad()


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = _loss(z, y, "softmax", axis, options, {})
    return loss


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = _loss(z, y, "softmax", axis, options, {})
    return loss, gradient()


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = _loss(z, y, "sparsemax", axis, options, {})
    return loss


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = _loss(z, y, "sparsemax", axis, options, {})
    return loss, gradient()


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = _loss(z, y, "entmax15", axis, options, {})
    return loss


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = _loss(z, y, "entmax15", axis, options, {})
    return loss, gradient()


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
    >>> print(entmax_loss([1.0, 0.0], 1, np.inf))
    1.0
    """
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = _loss(z, y, "entmax", axis, options, {"alpha": alpha})
    return loss


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = _loss(z, y, "entmax", axis, options, {"alpha": alpha})
    return loss, gradient()


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, _ = _loss(z, y, "normmax", axis, options, {"alpha": alpha})
    return loss


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
    options = _Options(reduction, weight, mask, ignore_index, label_smoothing)
    loss, gradient = _loss(z, y, "normmax", axis, options, {"alpha": alpha})
    return loss, gradient()


@dataclass(frozen=True)
class _Options:
    """What all losses can be asked for."""

    reduction: str
    weight: Any
    mask: Any
    ignore_index: int | None
    smoothing: float

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise ValueError(
                f"reduction must be one of {', '.join(REDUCTIONS)}, got {self.reduction!r}"
            )
        if not isinstance(self.smoothing, (int, float, np.integer, np.floating)):
            raise TypeError(
                f"label_smoothing must be a number in [0, 1], got {type(self.smoothing).__name__}"
            )
        if not 0 <= self.smoothing <= 1:
            raise ValueError(f"label_smoothing must be in [0, 1], got {self.smoothing}")


@dataclass(frozen=True)
class _Target:
    """The target distributions q in rows: one label each, or dense."""

    label: Any  # integers of shape batch + (1,), or None
    dense: Any  # distributions of shape batch + (d,), or None

    def dot(self, scores: Any) -> Any:
        """q·z, where 0 · (−∞) counts 0."""
        if self.dense is None:
            return np.take_along_axis(scores, self.label, axis=-1)[..., 0]
        return np.sum(self.dense * np.where(self.dense == 0, 0, scores), axis=-1)

    def subtracted_from(self, p: Any) -> Any:
        """p − q."""
        if self.dense is None:
            p = p.copy()
            np.put_along_axis(p, self.label, np.take_along_axis(p, self.label, -1) - 1, axis=-1)
            return p
        return p - self.dense

    def omega(self, record: Mapping, omega: Callable[[Any], Any]) -> Any:
        """Ω(q)."""
        if self.dense is None:
            return record.omega_vertices
        return omega(self.dense)


def _loss(
    z: Any,
    y: Any,
    mapping: str | Mapping,
    axis: Any,
    options: _Options,
    named_params: dict[str, Any],
) -> tuple[Any, Callable[[], Any]]:
    """The reduced loss, and a function that gives its gradient."""
    record, params = _record_and_parameters(mapping, named_params)
    rows = Rows(z, axis, mask=options.mask)
    scores = rows.scores()
    omega = _omega(record, params, scores)
    dense_only = record.omega_vertices is None
    target, weights = _target(rows, y, options, dense_only)

    p = record.forward(scores, *params)
    each = _conjugate(record, params, p, scores, omega) - target.dot(scores)
    each = np.maximum(each + target.omega(record, omega), 0)  # below 0 is rounding
    # A NaN row stays NaN unless it counts nothing: 0 · NaN must not reach the sum.
    broken, counts = ~np.isfinite(rows.top()[..., 0]), weights != 0
    if options.reduction == "mean":
        total = np.sum(weights)
        weights = weights / np.where(total == 0, 1, total)
    each = np.where(counts, np.where(broken, np.nan, each) * weights, 0)
    loss = each if options.reduction == "none" else np.sum(each)

    def gradient() -> Any:
        apart = np.where(broken[..., None], np.nan, target.subtracted_from(p))
        return rows.in_callers_form(np.where(counts[..., None], apart * weights[..., None], 0))

    return rows.reduced(loss), gradient


def _omega(record: Mapping, params: tuple[Any, ...], scores: Any) -> Callable[[Any], Any]:
    """Ω as a function of p in rows, with the mapping's parameters filled in."""
    if record.omega is None:
        raise ValueError(
            f"mapping must have an Ω for a Fenchel-Young loss, and {record.name} has none: choose "
            f"one of {', '.join(name for name, other in MAPPINGS.items() if other.omega)}"
        )
    omega, options = record.omega, {"mask": scores > -np.inf} if record.omega_takes_mask else {}
    return lambda p: omega(p, *params, **options)


def _conjugate(
    record: Mapping,
    params: tuple[Any, ...],
    p: Any,
    scores: Any,
    omega: Callable[[Any], Any],
) -> Any:
    """Ω*(z) = p·z − Ω(p) where the largest score is 0."""
    if record is MAPPINGS["softmax"]:
        return _log_sum_exp(scores)
    conjugate = np.sum(p * np.where(p == 0, 0, scores), axis=-1) - omega(p)
    if record is MAPPINGS["entmax"]:
        alpha, _ = as_floating(params[0], "alpha")
        return np.where(alpha == 1, _log_sum_exp(scores), conjugate)
    return conjugate


def _log_sum_exp(scores: Any) -> Any:
    """log Σ exp z where the largest score is 0, which counts 1: small sums of the rest keep digits.

    Taken as −log p of the largest, all below ε would be lost, as the gradient is not.
    """
    terms = np.exp(scores)
    np.put_along_axis(terms, np.argmax(scores, axis=-1, keepdims=True), 0, axis=-1)
    return np.log1p(np.sum(terms, axis=-1))


def _record_and_parameters(
    mapping: str | Mapping, params: dict[str, Any]
) -> tuple[Mapping, tuple[Any, ...]]:
    if isinstance(mapping, str):
        if mapping not in MAPPINGS:
            raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
        mapping = MAPPINGS[mapping]
    if not isinstance(mapping, Mapping):
        raise TypeError(
            "mapping must be a Mapping or the name of a row of pyentmax.MAPPINGS, got a "
            f"{type(mapping).__name__}; of a function of your own, make a Mapping"
        )
    if set(params) != set(mapping.parameters):
        raise TypeError(
            f"{mapping.name} takes the parameters ({', '.join(mapping.parameters)}), "
            f"got ({', '.join(params)})"
        )
    return mapping, tuple(params[name] for name in mapping.parameters)


def _target(rows: Rows, y: Any, options: _Options, dense_only: bool) -> tuple[_Target, Any]:
    """The targets and each row's weight, 0 for rows that count nothing."""
    if isinstance(y, np.ma.MaskedArray):
        raise TypeError(
            "y is a numpy.ma array; pass plain labels, those to leave out set to ignore_index, or "
            "plain distributions and mask="
        )
    y = y if hasattr(y, "__array_function__") else np.asarray(y)
    scores = rows.scores()
    weight = 1.0
    if options.weight is not None:
        weight = _checked_weight(options.weight, rows.batch)
    counts = ~rows.dead() & (weight != 0)
    label: Any = None
    dense: Any = None
    if y.dtype.kind in "iu" and y.shape == rows.batch:
        if options.ignore_index is not None:
            counts = counts & (y != options.ignore_index)
        label = _checked_labels(rows, np.where(counts, y, 0))[..., None]
        if dense_only or options.smoothing:
            dense = np.zeros_like(scores)
            np.put_along_axis(dense, label, 1, axis=-1)
    elif y.shape == rows.shape:
        if options.ignore_index is not None:
            raise ValueError(
                "ignore_index is for integer labels, and y holds distributions; leave rows out "
                "with weight=0"
            )
        dense = _checked_distributions(rows, y, counts)
    else:
        raise ValueError(
            f"y must be integer labels of shape {rows.batch} or distributions of shape "
            f"{rows.shape}, got dtype {y.dtype} and shape {y.shape}"
        )
    if options.smoothing:
        allowed = (scores > -np.inf).astype(scores.dtype)
        uniform = allowed / np.sum(allowed, axis=-1, keepdims=True)
        dense = (1 - options.smoothing) * dense + options.smoothing * uniform
    weights = np.where(counts, weight, 0).astype(scores.dtype, copy=False)
    return _Target(label if dense is None else None, dense), weights


def _checked_weight(weight: Any, batch: tuple[int, ...]) -> Any:
    weight = check_parameter(weight, "weight", batch, 0)
    if isinstance(weight, np.ndarray) and np.isinf(weight).any():
        raise ValueError("weight must be finite, got inf: no mean exists with it")
    return weight


def _checked_labels(rows: Rows, y: Any) -> Any:
    d = rows.z.shape[-1]
    if isinstance(y, np.ndarray) and not ((y >= 0) & (y < d)).all():
        wrong = y[(y < 0) | (y >= d)].flat[0]
        raise ValueError(
            f"labels must be in 0 … {d - 1}, got {wrong}; rows to leave out are marked with "
            "ignore_index"
        )
    return y


def _checked_distributions(rows: Rows, y: Any, counts: Any) -> Any:
    """y in rows, zeros where the mask is False and in the rows that do not count."""
    y, _ = as_floating(y, "y")
    y = rows.from_caller(y).astype(rows.z.dtype, copy=False)
    y = np.where(counts[..., None] if rows.mask is None else counts[..., None] & rows.mask, y, 0)
    if isinstance(y, np.ndarray):
        total = np.sum(y, axis=-1)
        off = counts & (np.abs(total - 1) > SUM_TOLERANCE)
        if not (y >= 0).all() or off.any():
            total = total[counts]
            raise ValueError(
                f"distributions y must be ≥ 0 and sum to 1 within {SUM_TOLERANCE} over the "
                f"unmasked entries, got a smallest entry of {y.min():g} and sums from "
                f"{total.min():g} to {total.max():g}"
            )
    return y
