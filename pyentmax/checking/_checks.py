"""The three checks: of a Jacobian, of a vector-Jacobian product and of a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pyentmax.checking._differences import EPSILON, Array, derivatives
from pyentmax.checking._libraries import SPACINGS, dtype_name
from pyentmax.checking._report import CheckReport, compare
from pyentmax.engine.calls.dtypes import is_masked
from pyentmax.engine.system.config import is_number

ENTRY_LIMIT = 256  # with more entries than this, random directions replace single entries
N_DIRECTIONS = 16
# Of the gap between two products, relative to Σ|u∘Jv|. A sum that cancels costs digits: of 3 scores
# in float32 up to 700 ε were measured.
DUALITY_TOLERANCE, DUALITY_EPSILONS, COARSEST_DUALITY = 1e-10, 4096, 2.0**-4


def check_jacobian(
    fn: Callable[[Any], Any], z: Any, jacobian: Callable[[Any], Any] | None = None,
    axis: int = -1, *, rng: np.random.Generator | int | None = None, rtol: float = 1e-6,
    atol: float = 0.0, epsilon: float | np.floating[Any] | None = None,
) -> CheckReport:  # fmt: skip
    """Compare ``jacobian(fn(z))`` with finite differences of ``fn`` at z.

    In rows of up to 256 scores, one score at a time is perturbed. In longer rows, J u is compared
    with the directional derivative along random directions u.

    Parameters
    ----------
    fn : callable
        From an array of z's shape to one of the same shape; maps each row along ``axis`` by itself.
        It gets a copy, and its output is copied, so it may work in place.
    z : array
        Scores, at least one and all finite.
    jacobian : callable, optional
        From fn's output to an array of shape batch + (d, d), whose entry (i, j) is ∂fn_i/∂z_j;
        by default that of a mapping, ``fn.jacobian``.
    axis : int
        The axis that each row lies along.
    rng : numpy.random.Generator or int, optional
        Draws u; by default a generator with a fixed seed.
    rtol, atol : float
        Tolerance, relative to the largest numeric entry, and absolute; the estimated error of the
        differences comes on top.
    epsilon : float, optional
        The spacing of floats at 1 in which fn computes, if that is a shorter dtype than the dtype
        of its output: ``np.finfo(np.float16).eps``, for example.

    Returns
    -------
    CheckReport
        Prints as a table. For random directions, its entries are (direction, …, i).

    Examples
    --------
    >>> from pyentmax import sparsemax
    >>> check_jacobian(sparsemax, [0.3, 0.1, -2.0]).passed
    True
    >>> report = check_jacobian(sparsemax, [0.3, 0.1, -2.0], lambda p: np.eye(3))
    >>> print(report)  # doctest: +ELLIPSIS
    Jacobian: FAILED
      largest error  1.00e+00 ...
    """
    formula: Any = getattr(fn, "jacobian", None) if jacobian is None else jacobian
    _check_arguments(rtol, atol, epsilon, fn=fn, jacobian=formula)
    to_caller, z = _from_caller(z)
    axis = normalize_axis_index(axis, z.ndim) + 1  # in an array of all directions
    *batch, d = np.moveaxis(z, axis - 1, -1).shape

    def on_host(x: Array) -> Array:
        return _to_host(fn(to_caller(x)), "fn's output")

    p = fn(to_caller(z))
    epsilon = float(epsilon or _spacing(p))
    p = _to_host(p, "fn's output", keep_dtype=True)
    if p.shape != z.shape:
        raise ValueError(f"fn must return an array of z's shape {z.shape}, got {p.shape}")
    analytic = _to_host(formula(to_caller(p)), "the Jacobian")
    if analytic.shape != (*batch, d, d):
        raise ValueError(
            f"the Jacobian must have shape {(*batch, d, d)}, got {analytic.shape}; its entry "
            "(i, j) is ∂p_i/∂z_j"
        )
    if d <= ENTRY_LIMIT:
        what = "Jacobian"
        # Rows do not mix, so one score of every row is perturbed at a time.
        entries = np.eye(d).reshape(d, *[1] * (z.ndim - 1), d)
        directions = np.broadcast_to(np.moveaxis(entries, -1, axis), (d, *z.shape))
        diffs = derivatives(on_host, z, directions, epsilon)
        diffs = diffs.rearranged(lambda x: np.moveaxis(np.moveaxis(x, axis, -1), 0, -1))
    else:
        what = "Jacobian along random directions"
        directions = _random_directions(z.shape, np.random.default_rng(0 if rng is None else rng))
        diffs = derivatives(on_host, z, directions, epsilon, alike=True)
        diffs = diffs.rearranged(lambda x: np.moveaxis(x, axis, -1))
        along_rows = np.moveaxis(directions, axis, -1)
        analytic = np.stack([(analytic @ u[..., None])[..., 0] for u in along_rows])
    return compare(what, analytic, diffs, epsilon, rtol, atol)


def check_vjp(
    fn: Callable[[Any], Any], z: Any, vjp: Callable[[Any, Any], Any],
    jvp: Callable[[Any, Any], Any] | None = None,
    *, rng: np.random.Generator | int | None = None, rtol: float = 1e-6, atol: float = 0.0,
    epsilon: float | np.floating[Any] | None = None,
) -> CheckReport:  # fmt: skip
    """Compare ``vjp(fn(z), v)``, for a random v, with the numeric gradient of v·fn(z).

    Up to 256 entries of z are perturbed one by one. With more entries, vjp·u is compared with the
    directional derivative v·(J u) along random directions u. If ``jvp`` is given, the two products
    are also compared with each other, u·(J v) = (Jᵀu)·v for 16 random pairs. That needs no finite
    differences, and so no choice of a step.

    Parameters
    ----------
    fn : callable
        From an array of z's shape to p, an array.
    z : array
        Scores, at least one and all finite.
    vjp : callable
        From p and v, both of p's shape, to an array of z's shape.
    jvp : callable, optional
        From p and u, which has z's shape, to an array of p's shape.
    rng : numpy.random.Generator or int, optional
        Draws v and u; by default a generator with a fixed seed.
    rtol, atol, epsilon : as in `check_jacobian`

    Returns
    -------
    CheckReport
        For random directions, ``where`` is the number of the direction.

    Examples
    --------
    >>> from pyentmax import entmax15
    >>> check_vjp(entmax15, [0.3, 0.1, -2.0], entmax15.vjp, entmax15.jvp).passed
    True
    """
    _check_arguments(rtol, atol, epsilon, fn=fn, vjp=vjp, **{} if jvp is None else {"jvp": jvp})
    rng = np.random.default_rng(0 if rng is None else rng)
    to_caller, z = _from_caller(z)
    p = fn(to_caller(z))
    epsilon = float(epsilon or _spacing(p))
    p = _to_host(p, "fn's output", keep_dtype=True)
    v = rng.standard_normal(p.shape).astype(p.dtype)
    coarsest = epsilon if jvp is None else 0.0

    def product(name: str, function: Any, direction: Array, shape: tuple[int, ...]) -> Array:
        nonlocal coarsest
        result = function(to_caller(p), to_caller(direction))
        coarsest = max(coarsest, _spacing(result))
        return _with_shape(name, result, shape, "z" if name == "VJP" else "p")

    def scalar(x: Array) -> Array:
        return np.asarray(np.sum(v * _to_host(fn(to_caller(x)), "fn's output"), dtype=np.float64))

    analytic = product("VJP", vjp, v, z.shape)
    gaps = []
    for _ in range(N_DIRECTIONS if jvp is not None else 0):
        u, w = (rng.standard_normal(x.shape).astype(p.dtype) for x in (z, p))
        forward = w * product("JVP", jvp, u, p.shape)
        gap = abs(np.sum(forward) - np.sum(product("VJP", vjp, w, z.shape) * u))
        gaps.append(gap / (np.sum(np.abs(forward)) or 1))
    duality = float(np.nan_to_num(np.max(gaps), nan=np.inf)) if gaps else None
    allowed = max(DUALITY_TOLERANCE, min(DUALITY_EPSILONS * coarsest, COARSEST_DUALITY))
    return _compare_gradients(
        "VJP", scalar, z, analytic, rng, epsilon, rtol, atol, duality, allowed
    )


def check_gradient(
    loss: Callable[[Any], Any], z: Any, gradient: Callable[[Any], Any],
    *, rng: np.random.Generator | int | None = None, rtol: float = 1e-6, atol: float = 0.0,
    epsilon: float | np.floating[Any] | None = None,
) -> CheckReport:  # fmt: skip
    """Compare ``gradient(z)`` with finite differences of ``loss`` at z.

    Parameters
    ----------
    loss : callable
        From z to a loss, or to several losses (one per row, for example), which are summed.
    gradient : callable
        From z to an array of z's shape.
    z, rng : as in `check_vjp`
    rtol, atol, epsilon : as in `check_jacobian`

    Examples
    --------
    >>> from pyentmax import entmax15
    >>> z, y = [[0.3, 0.1, -2.0]], [1]
    >>> check_gradient(
    ...     lambda z: entmax15.loss(z, y), z, lambda z: entmax15.loss_and_grad(z, y)[1]
    ... ).passed
    True
    """
    _check_arguments(rtol, atol, epsilon, loss=loss, gradient=gradient)
    rng = np.random.default_rng(0 if rng is None else rng)
    to_caller, z = _from_caller(z)
    analytic = _with_shape("gradient", gradient(to_caller(z)), z.shape, "z")

    def scalar(x: Array) -> Array:
        return np.asarray(np.sum(_to_host(loss(to_caller(x)), "the loss")))

    epsilon = float(epsilon or _spacing(loss(to_caller(z))))
    return _compare_gradients("gradient", scalar, z, analytic, rng, epsilon, rtol, atol)


def _compare_gradients(what: str, scalar: Callable[[Array], Array], z: Array, analytic: Array,
                       rng: np.random.Generator, epsilon: float,
                       *tolerances: Any) -> CheckReport:  # fmt: skip
    if z.size <= ENTRY_LIMIT:
        directions = np.eye(z.size).reshape(z.size, *z.shape)
    else:
        directions = _random_directions(z.shape, rng)
        analytic = np.array([np.sum(analytic * u) for u in directions])
    diffs = derivatives(scalar, z, directions, epsilon, alike=z.size > ENTRY_LIMIT)
    diffs = diffs.rearranged(lambda x: x.reshape(analytic.shape))
    return compare(what, analytic, diffs, epsilon, *tolerances)


def _check_arguments(rtol: Any, atol: Any, epsilon: Any, **functions: Any) -> None:
    """Raise an error that names an argument of the wrong type."""
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} must be a function, got {function!r:.60}")
    for name, value in {"rtol": rtol, "atol": atol, "epsilon": epsilon or 0}.items():
        if not (is_number(value) and value >= 0):
            raise ValueError(f"{name} must be a number of 0 or more, got {value!r:.60}")


def _random_directions(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Directions whose entries are ±1 or ±½, so that steps along them are exact at large scores."""
    return rng.choice([-1.0, -0.5, 0.5, 1.0], (N_DIRECTIONS, *shape))


def _from_caller(z: Any) -> tuple[Callable[[Array], Any], Array]:
    """A function that copies a host array to z's device, and z as float64 on the host."""
    host = _to_host(z, "z")
    if not (host.ndim and host.size and np.isfinite(host).all()):
        raise ValueError(
            f"z must be a non-empty array of finite scores, got shape {host.shape}: {host}"
        )
    if isinstance(z, np.ndarray) or not hasattr(z, "__array_function__"):
        return np.copy, host
    return lambda array: np.asarray(array.copy(), like=z), host


def _spacing(array: Any) -> float:
    """The spacing of floats at 1 in the dtype of an array, at least that of float64."""
    return SPACINGS.get(dtype_name(array), EPSILON)


def _to_host(array: Any, name: str, *, keep_dtype: bool = False) -> Array:
    """A copy as float64 on the host, since the caller may reuse the array for the next result.

    With ``keep_dtype``, in a floating dtype's own: derivatives get p as the function returned it.
    """
    # CuPy's arrays become NumPy's only by this method.
    if hasattr(array, "__array_function__") and hasattr(array, "get"):
        array = array.get()
    if is_masked(array):
        raise TypeError(
            f"{name} is a numpy.ma array, and its mask would be lost; pass a plain array, and "
            "have the function mask, as in lambda z: softmax(z, mask=keep)"
        )
    host = np.asarray(array)
    floating = host.dtype.kind == "f" or host.dtype.name == "bfloat16"
    if not (floating or host.dtype.kind in "biu"):
        raise TypeError(
            f"{name} must hold real numbers, got dtype {host.dtype}: {array!r:.60}; for a complex "
            "function check its real and imaginary parts as functions of real numbers"
        )
    return host.astype(host.dtype if keep_dtype and floating else np.float64)


def _with_shape(what: str, array: Any, shape: tuple[int, ...], of: str) -> Array:
    array = _to_host(array, f"the {what}")
    if array.shape != shape:
        raise ValueError(f"the {what} must have the shape of {of}, {shape}, got {array.shape}")
    return array
