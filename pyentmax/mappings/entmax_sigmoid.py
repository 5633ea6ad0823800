"""α-sigmoid: the probability of a binary event, by α-entmax of its score and 0.

Problem: argmax over 0 ≤ p ≤ 1 of p z + H_α([p, 1 − p]), H_α Tsallis' entropy: the first entry of
α-entmax([z, 0]). Where 0 < p < 1 the derivative is zero, so that p solves

    (p^{α−1} − (1 − p)^{α−1})/(α − 1) = z,

the logit log p − log(1 − p) = z at α = 1, and p is exactly 0 or 1 from |z| = 1/(α−1) on. Closed
forms: the logistic sigmoid at α = 1; (1 + z)/2 at 2 and (1 + 2z)/2 at 3, clipped to [0, 1]; at
1.5, with t = z/2, √p = (√(2 − t²) + t)/2. It is the binary case of Blondel, Martins & Niculae
(2020), Learning with Fenchel-Young losses, where the scores are [z, 0], and Figure 3 of Peters et
al. (2019).

One-vs-all losses have such a loss for each class, so that several classes may apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyentmax.backends.entries import Run, entrywise
from pyentmax.calls.devices import beside
from pyentmax.calls.dtypes import as_array, as_floating
from pyentmax.calls.entries import (
    arrange_entries,
    check_broadcasts,
    entries_beside,
    entry_values,
    finish_entries,
)
from pyentmax.calls.options import LossOptions, Options, checked_options
from pyentmax.calls.parameters import PerRow, parts_of_largest
from pyentmax.calls.rows import arrange_scores, check_mask, from_rows, reduce_to, to_rows
from pyentmax.calls.signatures import renamed
from pyentmax.losses.declare import plan_loss
from pyentmax.losses.targets import checked_labels, checked_weight, places

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "entmax_sigmoid",
    "entmax_sigmoid_grad_alpha",
    "entmax_sigmoid_jvp",
    "entmax_sigmoid_loss",
    "entmax_sigmoid_loss_and_grad",
    "entmax_sigmoid_vjp",
    "entmax_sigmoid_vjp_alpha",
    "one_vs_all_loss",
    "one_vs_all_loss_and_grad",
]


def textbook(z: float, alpha: float = 1.5) -> float:
    """p with (p^{α−1} − (1 − p)^{α−1})/(α−1) = z, α > 0, α ≠ 1, for one score: halve [0, 1].

    The left side rises with p, for α > 1 from −1/(α−1) to 1/(α−1).

    >>> round(textbook(1.0, 2), 6), round(textbook(0.8, 1.5), 6)
    (1.0, 0.771293)
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        below = (p ** (alpha - 1) - (1 - p) ** (alpha - 1)) / (alpha - 1) <= z
        low, high = (p, high) if below else (low, p)
    return (low + high) / 2


def textbook_loss(z: float, y: float, alpha: float = 1.5) -> float:
    """L = Ω*(z) + Ω(y) − y z with Ω(p) = −H_α([p, 1 − p]) (Blondel et al. 2020, Def. 2).

    >>> round(textbook_loss(0.0, 1.0, 2), 6)
    0.25
    """

    def omega(p: float) -> float:
        return (p**alpha + (1 - p) ** alpha - 1) / (alpha * (alpha - 1))

    p = textbook(z, alpha)
    return p * z - omega(p) + omega(y) - y * z


# What follows is right for every input. All is computed from q, the smaller of p and 1 − p, and
# a = |z|: so no digit of a small probability is lost, and p(−z) is 1 − p(z) to the last bit. The
# derivatives take z and not p: near 1 rounding loses 1 − p, and √(1 − p) is steep.

ALPHA = PerRow("alpha", least=0, strict=True)
OPTIONS = Options._field_defaults


@entrywise(ALPHA)
def entmax_sigmoid(run: Run, z: Any, alpha: Any = 1.5, *, mask: Any = None, out: Any = None) -> Any:
    """α-sigmoid, elementwise: p of the problem max p z + H_α([p, 1 − p]), as α-entmax([z, 0])₁.

    The logistic sigmoid at α = 1; entmoid (Popov et al. 2019) at α = 1.5. Above 1, p is exactly 0
    below z = −1/(α−1), exactly 1 above 1/(α−1), and at α = ∞ a step, ½ at 0.

    Parameters
    ----------
    z : array of scores, of any shape
        −∞ gives 0 and ∞ gives 1
    alpha : float or array that broadcasts to z
        above 0; only above 1 can p be 0 or 1
    mask : bool array that broadcasts to z, optional
        0 stands where it is False
    out : array of z's shape, optional
    workers : int, optional
        how many threads share the entries; by default as `pyentmax.set_workers` says

    Returns
    -------
    array of z's shape and dtype; half precision is computed in float32, integers become float64

    Raises
    ------
    ValueError
        if some alpha is not above 0, or shapes do not fit
    TypeError
        if z is not of real numbers

    Examples
    --------
    >>> print(entmax_sigmoid([-3.0, -1.0, 0.0, 0.5, 2.0]).round(6))
    [0.       0.169281 0.5      0.673993 1.      ]
    >>> print(entmax_sigmoid([-1.0, 0.5, 1.0], 2))
    [0.   0.75 1.  ]
    """
    z, mask, dtype = arrange_entries(z, mask, out)
    beta = _beta(entry_values(ALPHA, alpha, z), z)
    return finish_entries(run("entmax_sigmoid", _probability, z, beta), mask, dtype, out)


@entrywise(ALPHA)
def entmax_sigmoid_jvp(run: Run, z: Any, v: Any, alpha: Any = 1.5, *, mask: Any = None) -> Any:
    """dp/dz ∘ v: forward or backward through `entmax_sigmoid`, whose Jacobian is diagonal.

    Takes the scores z, unlike the products of the other mappings, since rounding loses 1 − p near
    p = 1.

    Parameters
    ----------
    z : as in `entmax_sigmoid`
    v : array of z's shape
        a direction
    alpha, mask, workers : as in `entmax_sigmoid`

    Returns
    -------
    array of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `entmax_sigmoid`

    Examples
    --------
    >>> print(entmax_sigmoid_jvp([-3.0, 0.0, 0.5], [1.0, 2.0, 2.0], 2))
    [0. 1. 1.]
    """
    z, mask, dtype = arrange_entries(z, mask)
    v, z, dtype = entries_beside(v, "v", z, dtype)
    slope = _from_smaller(run, _slope, z, alpha)
    product = np.where(slope == 0, slope, slope * np.where(slope == 0, 0, v))
    return finish_entries(product, mask, dtype)


entmax_sigmoid_vjp = renamed(entmax_sigmoid_jvp, "entmax_sigmoid_vjp")


@entrywise(ALPHA)
def entmax_sigmoid_grad_alpha(run: Run, z: Any, alpha: Any = 1.5, *, mask: Any = None) -> Any:
    """∂p/∂α at p = entmax_sigmoid(z, alpha), elementwise, exact for every α > 0 (0 at α = ∞).

    With β = α − 1 and q = 1 − p, differentiating (p^β − q^β)/β = z by β gives

        (p^{β−1} + q^{β−1}) ∂p/∂α = ψ(β log q) log² q − ψ(β log p) log² p,

    where ψ(x) = (x eˣ − eˣ + 1)/x² is ½ at x = 0: there is no division by β.

    Parameters
    ----------
    z, alpha, mask, workers : as in `entmax_sigmoid`

    Returns
    -------
    array of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `entmax_sigmoid`

    Examples
    --------
    >>> print(entmax_sigmoid_grad_alpha([-1.0, 0.0, 1.0], 1.5).round(6))
    [-0.248462  0.        0.248462]
    """
    z, mask, dtype = arrange_entries(z, mask)
    slope = _from_smaller(run, _slope_alpha, z, alpha)
    return finish_entries(np.where(z > 0, slope, 0 - slope), mask, dtype)


@entrywise(ALPHA, results=("gradient",))
def entmax_sigmoid_vjp_alpha(
    run: Run, z: Any, g: Any, alpha: Any = 1.5, *, mask: Any = None
) -> Any:
    """Σ g ∘ ∂p/∂α, summed to alpha's shape: the gradient in α of a loss with gradient g in p.

    Parameters
    ----------
    z : as in `entmax_sigmoid`
    g : array of z's shape
        a loss's gradient in p
    alpha, mask, workers : as in `entmax_sigmoid`

    Returns
    -------
    array of alpha's shape

    Raises
    ------
    ValueError, TypeError
        as in `entmax_sigmoid`

    Examples
    --------
    >>> print(round(float(entmax_sigmoid_vjp_alpha([-1.0, 1.0], [0.0, 2.0], 1.5)), 6))
    0.496923
    """
    z, mask, dtype = arrange_entries(z, mask)
    g, z, dtype = entries_beside(g, "g", z, dtype)
    slope = _from_smaller(run, _slope_alpha, z, alpha)
    each = np.where(slope == 0, 0, np.where(z > 0, slope, 0 - slope) * g)
    each = each if mask is None else np.where(mask, each, 0)
    return reduce_to(each, np.shape(alpha)).astype(dtype, copy=False)[()]


# --- losses ---------------------------------------------------------------------------------------


@entrywise(ALPHA, keywords=OPTIONS, plan=plan_loss)
def entmax_sigmoid_loss(
    run: Run, z: Any, y: Any, alpha: Any = 1.5, **options: Unpack[LossOptions]
) -> Any:
    """The Fenchel-Young loss of `entmax_sigmoid`, for a score and a binary target.

        L(z, y) = Ω*(z) + Ω(y) − y z,    Ω(p) = −H_α([p, 1 − p])

    Binary cross-entropy at α = 1, log(1 + e^{−z}) for y = 1. Above, it is exactly 0 from a margin
    of 1/(α−1) on, z ≥ 1/(α−1) for y = 1 and z ≤ −1/(α−1) for y = 0.

    Parameters
    ----------
    z : array of scores, of any shape
    y : array of z's shape
        of 0 and 1, bools, or probabilities between
    alpha : float or array that broadcasts to z
    reduction : {"mean", "sum", "none"}
        the mean divides by the weights that count
    weight : array that broadcasts to z, optional
    mask : bool array that broadcasts to z, optional
        entries where it is False are ignored
    ignore_index : int, optional
        entries with this target are ignored
    label_smoothing : float
        y is moved towards ½ by this fraction
    workers : as in `entmax_sigmoid`

    Returns
    -------
    float, or array of z's shape for "none"

    Raises
    ------
    ValueError
        if some y is outside [0, 1], some alpha not above 0, a weight negative, or shapes do not fit
    TypeError
        if z is not of real numbers

    Examples
    --------
    >>> print(entmax_sigmoid_loss([3.0, 0.0, -1.0], [1, 1, 0], reduction="none").round(6))
    [0.       0.390524 0.061656]
    """
    return _per_entry(run, z, y, alpha, options)[0]


@entrywise(ALPHA, results=("number", "number"), keywords=OPTIONS, plan=plan_loss)
def entmax_sigmoid_loss_and_grad(
    run: Run, z: Any, y: Any, alpha: Any = 1.5, **options: Unpack[LossOptions]
) -> tuple[Any, Any]:
    """`entmax_sigmoid_loss` and its gradient p − y in z, with one forward pass.

    Parameters
    ----------
    z, y, alpha : as in `entmax_sigmoid_loss`
    reduction, weight, mask, ignore_index, label_smoothing, workers : as in `entmax_sigmoid_loss`

    Returns
    -------
    loss, gradient
        as `entmax_sigmoid_loss` returns it, and of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `entmax_sigmoid_loss`

    Examples
    --------
    >>> loss, grad = entmax_sigmoid_loss_and_grad([0.0, 2.0], [1, 1], 2)
    >>> print(loss, grad)
    0.125 [-0.25  0.  ]
    """
    loss, grad = _per_entry(run, z, y, alpha, options, gradient=True)
    return loss, grad[..., 0][()]


@entrywise(None, keywords=OPTIONS, plan=plan_loss)
def one_vs_all_loss(
    run: Run, z: Any, y: Any, alpha: Any = 1.5, axis: Any = -1, **options: Unpack[LossOptions]
) -> Any:
    """Σ over the classes of `entmax_sigmoid_loss`: a binary decision for every class.

    For one label per row, or for any number of labels per row (multi-label targets).

    Parameters
    ----------
    z : array of scores
    y : array
        integer labels of z's shape without the axis; or of z's shape, 0 and 1, bools or
        probabilities, which need not sum to 1
    alpha : float or array that broadcasts to z
        with shape (d,), one for each class, if the axis is the last
    axis : int, tuple of int or None
        of the classes
    reduction : {"mean", "sum", "none"}
        over the rows: a row's loss is the sum over its classes
    weight : array that broadcasts against the rows, optional
        the mean divides by the weights that count
    mask : bool array that broadcasts to z, optional
        classes where it is False are ignored, and so is a row without any class
    ignore_index : int, optional
        rows with this label are ignored; if y has z's shape, entries with this target
    label_smoothing : float
        each class's target is moved towards ½ by this fraction
    workers : as in `entmax_sigmoid`

    Returns
    -------
    float, or array of the rows' shape for "none"

    Raises
    ------
    ValueError
        if a label is not a class, a target outside [0, 1], some alpha not above 0, a weight
        negative, or shapes do not fit
    TypeError
        if z is not of real numbers

    Examples
    --------
    >>> scores = np.array([[2.5, -2.0, -3.0], [0.0, 0.0, -2.0]])
    >>> print(one_vs_all_loss(scores, [0, 1], reduction="none").round(6))
    [0.       0.781049]
    >>> print(one_vs_all_loss(scores, [[1, 0, 0], [1, 1, 0]], 2, reduction="none"))
    [0.  0.5]
    """
    return _one_vs_all(run, z, y, alpha, axis, checked_options(**options))[0]


@entrywise(None, results=("number", "entries"), keywords=OPTIONS, plan=plan_loss)
def one_vs_all_loss_and_grad(
    run: Run, z: Any, y: Any, alpha: Any = 1.5, axis: Any = -1, **options: Unpack[LossOptions]
) -> tuple[Any, Any]:
    """`one_vs_all_loss` and its gradient p − y in z, with one forward pass.

    Parameters
    ----------
    z, y, alpha, axis : as in `one_vs_all_loss`
    reduction, weight, mask, ignore_index, label_smoothing, workers : as in `one_vs_all_loss`

    Returns
    -------
    loss, gradient
        as `one_vs_all_loss` returns it, and of z's shape

    Raises
    ------
    ValueError, TypeError
        as in `one_vs_all_loss`

    Examples
    --------
    >>> loss, grad = one_vs_all_loss_and_grad([[0.0, 0.0, -2.0]], [1], 2)
    >>> print(loss, grad)
    0.5 [[ 0.5 -0.5  0. ]]
    """
    return _one_vs_all(run, z, y, alpha, axis, checked_options(**options), gradient=True)


def _per_entry(
    run: Run, z: Any, y: Any, alpha: Any, options: LossOptions, gradient: bool = False
) -> tuple[Any, Any]:
    """Each entry as a row of one class."""
    z, y = as_array(z, "z"), as_array(y, "y")
    if y.shape != z.shape:  # or y could be taken for labels, which is another loss
        raise ValueError(f"y must have the shape of z, {z.shape}, got {y.shape}")
    for name, value in (("alpha", alpha), ("weight", options.get("weight"))):
        check_broadcasts(name, value, z)
    if options.get("mask") is not None:
        mask = np.broadcast_to(check_mask(options["mask"], z, "z"), z.shape)
        options = {**options, "mask": mask[..., None]}
    alpha = as_array(alpha, "alpha")[..., None] if np.shape(alpha) else alpha
    checked = checked_options(**options)
    return _one_vs_all(run, z[..., None], y[..., None], alpha, -1, checked, gradient)


def _one_vs_all(
    run: Run, z: Any, y: Any, alpha: Any, axis: Any, options: Options, gradient: bool = False
) -> tuple[Any, Any]:
    rows = arrange_scores(z, axis, options.mask)
    z, mask, shape, axes, dtype = rows
    alpha = entry_values(ALPHA, alpha, from_rows(z, shape, axes))
    beta = _beta(alpha, z)
    if beta.ndim:
        beta = to_rows(np.broadcast_to(beta, shape), axes)
    weight: Any = 1.0
    if options.weight is not None:
        weight = checked_weight(options.weight, z, options.reduction)
    y, live, valid = _targets(z, y, mask, shape, axes, weight, options)
    weight = _shares(np.where(np.any(live, axis=-1), weight, 0), z, options)
    if not isinstance(z, np.ndarray):
        weight = np.where(valid, weight, np.nan)
    each, slope = run("entmax_sigmoid_loss_and_grad", _loss_and_slope, z, y, beta)
    each = np.sum(np.where(live, each, 0), axis=-1)
    each = np.where(weight == 0, 0, each * weight)
    each = each if options.reduction == "none" else np.sum(each)
    loss = each.astype(dtype, copy=False)[()]
    if not gradient:
        return loss, None
    weight = weight[..., None]
    slope = np.where(live & (weight != 0), slope * weight, 0)
    return loss, rows.finish(slope)


def _targets(
    z: Any,
    y: Any,
    mask: Any,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    weight: Any,
    options: Options,
) -> tuple[Any, Any, Any]:
    """The targets in z's shape, which of them count, and which rows have valid targets."""
    y = beside(as_array(y, "y"), z, "y")
    live = np.ones_like(z, dtype=bool) if mask is None else np.broadcast_to(mask, z.shape)
    batch = z.shape[:-1]
    if options.weight is not None:
        live = live & np.broadcast_to(weight != 0, batch)[..., None]
    ignored = options.ignore_index
    if y.dtype.kind in "iu" and y.shape == batch:
        if ignored is not None:
            live = live & (y != ignored)[..., None]
        label, valid = checked_labels(y, np.any(live, axis=-1), z.shape[-1])
        y = (places(z) == label[..., None]).astype(z.dtype)
    elif y.shape == shape:
        if ignored is not None:
            live = live & to_rows(y != ignored, axes)
        y = to_rows(as_floating(y, "y")[0], axes)
        within = ~live | ((y >= 0) & (y <= 1))
        valid = np.all(within, axis=-1)
        if isinstance(y, np.ndarray) and not valid.all():
            raise ValueError(f"targets y must be in [0, 1], got {y[~within].flat[0]:g}")
        y = np.where(live & within, y, 0).astype(z.dtype)
    else:
        raise ValueError(
            f"y must be integer labels of shape {batch} or targets of shape {shape}, got dtype "
            f"{y.dtype} and shape {y.shape}"
        )
    smoothing = options.label_smoothing
    return ((1 - smoothing) * y + smoothing / 2 if smoothing else y), live, valid


def _shares(weight: Any, z: Any, options: Options) -> Any:
    """The weight of each row; for the mean, its share of the total."""
    if options.reduction != "mean":
        return weight.astype(z.dtype)
    weight = parts_of_largest(weight).astype(z.dtype)
    total = np.sum(weight)
    return weight / np.where(total == 0, 1, total)


# --- from a = |z| and β = α − 1 to q, the smaller of p and 1 − p ----------------------------------


def _beta(alpha: Any, like: Any) -> Any:
    # β = α − 1 in the working dtype, subtracted before α is rounded to it; beyond that it is ∞.
    with np.errstate(over="ignore"):
        return (alpha - 1).astype(like.dtype)


def _from_smaller(run: Run, function: Callable[[Any, Any], Any], z: Any, alpha: Any) -> Any:
    """A function of q and β for the scores of a call."""
    beta = _beta(entry_values(ALPHA, alpha, z), z)
    return function(run("entmax_sigmoid", _probability, -np.abs(z), beta), beta)


def _probability(z: Any, beta: Any) -> Any:
    q = _smaller(np.abs(z), beta)
    return np.where(z > 0, 1 - q, q)


def _smaller(a: Any, beta: Any) -> Any:
    """q, by the closed form for this β if there is one. Entries do not affect each other."""
    nan, centre = np.isnan(a), a == 0
    a = np.where(nan, 0, np.minimum(a, np.finfo(a.dtype).max))
    on_host = isinstance(beta, np.ndarray | np.generic)
    q = np.full_like(a, np.nan)
    with np.errstate(over="ignore", under="ignore"):
        for applies, example, solve in _SOLVERS:
            on = applies(beta)
            if on_host and on.all():
                q = solve(a, beta)
                break
            if not on_host or on.any():
                q = np.where(on, solve(a, np.where(on, beta, example).astype(a.dtype)), q)
    nan = nan | np.isnan(beta)  # on a device, an invalid α is NaN
    return np.where(nan, np.nan, np.where(centre, 0.5, q)).astype(a.dtype, copy=False)


def _logistic(a: Any, beta: Any) -> Any:
    e = np.exp(-a)
    return e / (1 + e)


def _square(a: Any, beta: Any) -> Any:
    # √q = (√(2 − t²) − t)/2 with t = a/2, as the fraction that does not cancel near t = 1.
    t = np.minimum(a / 2, 1)
    root = (1 - t) * (1 + t) / (np.sqrt(2 - t * t) + t)
    return root * root


def _linear(a: Any, beta: Any) -> Any:
    # p² − q² = p − q, since p + q = 1.
    return np.maximum(1 - beta * np.minimum(a, 1), 0) / 2


def _below_2(a: Any, beta: Any) -> Any:
    """For −1 ≤ β < 1, from the ratio r = q/(1 − q).

    With v = (1 − r^β)/β, that is r = [1 − βv]^{1/β}, the equation reads v = a (1 + r)^β. At β = 0
    and 1 a single Newton step solves it. (1 + r)^β is a norm of (1, 1 − βv), of order 1/β ≥ 1 and
    so convex in v: from v = a, where v − a (1 + r)^β ≤ 0, the steps rise to the root. For β < 0 it
    is concave, and they fall to the root. For all a and β, the error is below 1e−14 after four
    steps, and rounding after five.
    """
    within = beta * a < 1
    v = a = np.where(within, a, 0)
    lowest = np.finfo(a.dtype).epsneg - 1  # βv stays below 1 despite rounding: no log of 0
    for _ in range(5):
        x = np.maximum(-beta * v, lowest)
        r = np.exp(np.log1p(x) / beta)
        norm = a * np.exp(beta * np.log1p(r))
        v = v + (norm - v) / (1 + beta * norm * (r / (1 + x)) / (1 + r))
    r = np.exp(np.log1p(np.maximum(-beta * v, lowest)) / beta)
    return np.where(within, r / (1 + r), 0)


def _above_2(a: Any, beta: Any) -> Any:
    """For β > 1, from w = (1 − q)^β.

    The equation reads w − (1 − w^{1/β})^β = βa. With r = q/(1 − q) ≤ 1 the left side has the slope
    1 + r^{β−1}, between 1 and 2 and falling, since r falls where w rises: it is concave. It is 0 at
    2^{−β}, so that the root is not below 2^{−β} + βa/2, nor below βa, and from there Newton's steps
    rise to it. For all a and β, the relative error of w is below 1e−11 after three steps, and
    rounding after four. A rounding of w moves the score by 1/β of one, which the accuracy contract
    allows above α = 2.
    """
    within, beta = a < 1 / beta, _finite(beta)
    tiny = np.finfo(a.dtype).tiny
    s = beta * np.where(within, a, 0)
    w = np.maximum(np.maximum(np.exp(-math.log(2) * beta) + s / 2, s), tiny)
    for _ in range(4):
        log = np.log(w) / beta
        p, q = np.exp(log), np.maximum(-np.expm1(log), tiny)
        rest = np.exp(beta * np.log(q))
        w = w + (s - w + rest) / (1 + rest / w * (p / q))
        w = np.minimum(np.maximum(w, tiny), 1)
    return np.where(within, np.minimum(-np.expm1(np.log(w) / beta), 0.5), 0)


# Which β each solver is for, a valid β to call it with for other entries, and the solver.
_SOLVERS = (
    (lambda beta: beta == 0, 0, _logistic),
    (lambda beta: beta == 0.5, 0.5, _square),
    (lambda beta: (beta == 1) | (beta == 2), 1, _linear),
    (lambda beta: (beta < 1) & (beta != 0) & (beta != 0.5), 0.25, _below_2),
    (lambda beta: (beta > 1) & (beta != 2), 3, _above_2),
)


# --- derivatives and the loss, from q -------------------------------------------------------------


def _slope(q: Any, beta: Any) -> Any:
    """1/(p^{β−1} + q^{β−1}) with the larger of the two taken out, 0 at q = 0 and at β = ∞."""
    ratio, power = q / (1 - q), _finite(np.abs(beta - 1))
    with np.errstate(over="ignore", under="ignore"):
        larger = np.where(beta <= 1, q**power, (1 - q) ** -power)
        slope = larger / (1 + ratio**power)
    return np.where((q > 0) & ~np.isinf(beta), slope, np.where(np.isnan(q), q, 0))


def _slope_alpha(q: Any, beta: Any) -> Any:
    """∂p/∂α where p is the larger, and its negative where it is the smaller.

    Where both powers are small, the numerator x eˣ − eˣ + 1 of ψ is nearly 1, and the difference of
    two would be rounding, multiplied by a possibly steep slope. There the 1 is left out, and p^β is
    divided out of the rest and of the slope, so that neither underflows.
    """
    live = (q > 0) & (q < 0.5)
    inside, finite = np.where(live, q, 0.25), _finite(np.where(np.isinf(beta), 1, beta))
    logs = np.log(inside), np.log1p(-inside)
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        parts = [log * log * _psi(finite * log) for log in logs]
        slope = _slope(inside, beta) * (parts[0] - parts[1])
        few, most = (1 - finite * log for log in logs)
        ratio = inside / (1 - inside)
        share = (1 - inside) / (1 + ratio ** (finite - 1))
        slope = np.where(most > 1.3, share * (most - few * ratio**finite) / finite / finite, slope)
    return np.where(live & ~np.isinf(beta), slope, np.where(np.isnan(q), q, 0))


def _psi(x: Any) -> Any:
    """(x eˣ − eˣ + 1)/x², by its Taylor series Σ (k+1) xᵏ/(k+2)! near 0."""
    near = np.abs(x) < 0.3
    small, series = np.where(near, x, 0), np.zeros_like(x)
    for k in range(13, -1, -1):
        series = series * small + (k + 1) / math.factorial(k + 2)
    large = np.where(near, -1, np.maximum(x, -np.sqrt(np.finfo(x.dtype).max) / 2))
    return np.where(near, series, (large * np.exp(large) - np.expm1(large)) / (large * large))


def _finite(beta: Any) -> Any:
    # So large that powers are as with ∞, but its product with log 1 is 0 and not NaN.
    return np.minimum(beta, np.finfo(beta.dtype).max / 1e4)


def _loss_and_slope(z: Any, y: Any, beta: Any) -> tuple[Any, Any]:
    """Ω*(z) + Ω(y) − y z and p − y of each entry.

    L(z, y) = L(−z, 1 − y), so let z ≥ 0. At y = 1 the loss is Ω*(−a), without cancellation
    (`_conjugate`); y < 1 adds (1 − y) a − H_α([y, 1 − y]).
    """
    a, positive = np.abs(z), z > 0
    q = _smaller(a, beta)
    away = np.where(positive, 1 - y, y)
    with np.errstate(over="ignore"):
        loss = _conjugate(q, beta) + np.where(away == 0, 0, away * np.where(away == 0, 0, a))
    loss = np.maximum(loss - _entropy(y, beta), 0)  # below 0 is rounding
    return loss, np.where(positive, (1 - y) - q, q - y)


def _conjugate(q: Any, beta: Any) -> Any:
    """Ω* of −a, which is H_α − a q at its q, as a sum of positive terms:

        q^α/α + ∫₀^q s (1 − s)^{β−1} ds,

    the integral being (1 − (1 − q)^β (1 + βq))/(αβ), or for small q its series. At β = 0 the sum is
    −log(1 − q), at β = 1 it is q². For β < 0, where α may be near 0, the integral is taken as
    (1 − (1 − q)^β)/β − (1 − (1 − q)^α)/α.
    """
    finite = _finite(np.where(np.isinf(beta), 1, beta))
    shannon = finite == 0
    few = (1 + np.maximum(finite, 0)) * q < 0.05
    small, series = np.where(few, q, 0), np.zeros_like(q + finite)
    for k in range(13, -1, -1):  # of (1 − s)^{β−1}: 1 + (1 − β) s (1 + (2 − β)/2 s (1 + …))
        series = 1 / (k + 2) + (k + 1 - finite) / (k + 1) * small * series
    divisor = np.where(shannon, 1, finite)
    log = np.log1p(-q)
    growth = np.where(shannon, q, np.log1p(finite * q) / divisor) + log
    with np.errstate(over="ignore", under="ignore"):
        whole = np.where(shannon, -growth, -np.expm1(finite * growth) / divisor) / (1 + finite)
        below = np.expm1((1 + finite) * log) / (1 + finite) - np.expm1(finite * log) / divisor
        whole = np.where(finite < 0, below, whole)
        power = q ** (1 + finite) / (1 + finite)
    return np.where(np.isinf(beta), q * 0, power + np.where(few, small * small * series, whole))


def _entropy(y: Any, beta: Any) -> Any:
    """H_α([y, 1 − y]), exactly 0 at 0 and 1."""
    if isinstance(y, np.ndarray) and bool(np.all((y == 0) | (y == 1))):
        return np.zeros_like(y)
    finite = _finite(np.where(np.isinf(beta), 1, beta))
    divisor = np.where(finite == 0, 1, finite)
    total = np.zeros_like(y)
    for part in (y, 1 - y):
        log = np.log(np.where(part == 0, 1, part))
        with np.errstate(over="ignore", under="ignore"):
            power = np.where(finite == 0, log, np.expm1(finite * log) / divisor)
        total = total - part * power / (1 + finite)
    return np.where(np.isinf(beta), 0, total)
