"""The three checks: of a Jacobian, of a vector-Jacobian product and of a gradient."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.calls.dtypes import is_masked
from pyentmax.calls.numbers import is_number
from pyentmax.checking._differences import EPSILON, Array, numeric_derivatives
from pyentmax.checking._report import CheckReport

ENTRY_LIMIT = 256  # with more entries than this, random directions replace single entries
DIRECTION_COUNT = 16
# Of floats at 1, by the names of dtypes shorter than float64, PyTorch's too.
SPACINGS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def check_jacobian(
    fn: Callable[[Any], Any],
    z: Any,
    jacobian: Callable[[Any], Any],
    axis: int = -1,
    *,
    rng: np.random.Generator | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> CheckReport:
    """Compare ``jacobian(fn(z))`` with finite differences of ``fn`` at z.

    In rows of up to 256 scores, one score at a time is perturbed. In longer rows, J u is compared
    with the directional derivative along random directions u.

    Parameters
    ----------
    fn : callable
        From an array of z's shape to one of the same shape; maps each row along ``axis`` by itself.
        It gets a copy, and its output is copied: it may work in place.
    z : array
        Scores, at least one and all finite.
    jacobian : callable
        From fn's output to an array of shape batch + (d, d), whose entry (i, j) is ∂fn_i/∂z_j.
    axis : int
        The axis that each row lies along.
    rng : numpy.random.Generator, optional
        Draws u; by default a generator with a fixed seed.
    rtol, atol : float
        Tolerance, relative to the largest numeric entry, and absolute; the estimated error of the
        differences comes on top.

    Returns
    -------
    CheckReport
        Prints as a table, and Jupyter shows it as a picture. For random directions, its entries are
        (direction, …, i).

    Examples
    --------
    >>> from pyentmax import sparsemax, sparsemax_jacobian
    >>> check_jacobian(sparsemax, [0.3, 0.1, -2.0], sparsemax_jacobian).passed
    True
    >>> report = check_jacobian(sparsemax, [0.3, 0.1, -2.0], lambda p: np.eye(3))
    >>> print(report)  # doctest: +ELLIPSIS
    Jacobian: FAILED
      largest error  1.00e+00 ...
    """
    _check_arguments(rng, rtol, atol, fn=fn, jacobian=jacobian)
    to_caller, z = _from_caller(z)
    axis = _one_axis(axis, z.ndim)
    rows = np.moveaxis(z, axis, -1)
    d = rows.shape[-1]

    def on_host(x: Array) -> Array:
        return _to_host(fn(to_caller(x)), "fn's output")

    axis += 1  # in an array of all directions

    def by_rows(values: Array) -> Array:
        return np.moveaxis(values, axis, -1)

    p = fn(to_caller(z))
    epsilon = _epsilon(p)
    p = _to_host(p, "fn's output", kept=True)
    if p.shape != z.shape:
        raise ValueError(f"fn must return an array of z's shape {z.shape}, got {p.shape}")
    analytic = _to_host(jacobian(to_caller(p)), "the Jacobian")
    if analytic.shape != (*rows.shape, d):
        raise ValueError(
            f"the Jacobian must have shape {(*rows.shape, d)}, got {analytic.shape}; its entry "
            "(i, j) is ∂p_i/∂z_j"
        )
    what = "Jacobian"
    if d <= ENTRY_LIMIT:
        # Rows do not mix, so one score of every row is perturbed at a time.
        entries = np.eye(d).reshape(d, *[1] * (z.ndim - 1), d)
        directions = np.broadcast_to(np.moveaxis(entries, -1, axis), (d, *z.shape))
        numeric = numeric_derivatives(on_host, z, directions, epsilon)
        numeric = numeric.rearranged(lambda values: np.moveaxis(by_rows(values), 0, -1))
    else:
        what = "Jacobian along random directions"
        directions = _random_directions(z.shape, rng)
        numeric = numeric_derivatives(on_host, z, directions, epsilon, alike=True)
        numeric = numeric.rearranged(by_rows)
        analytic = np.stack([(analytic @ u[..., None])[..., 0] for u in by_rows(directions)])
    if epsilon > EPSILON:  # a Jacobian that is 0 carries the rounding of p
        rounding = 2 * epsilon * float(np.nanmax(np.abs(p), initial=0))
        numeric = numeric._replace(hidden=max(numeric.hidden, rounding))
    return CheckReport.compare(what, analytic, numeric, rtol, atol)


def check_vjp(
    fn: Callable[[Any], Any],
    z: Any,
    vjp: Callable[[Any, Any], Any],
    jvp: Callable[[Any, Any], Any] | None = None,
    *,
    rng: np.random.Generator | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> CheckReport:
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
    rng : numpy.random.Generator, optional
        Draws v and u; by default a generator with a fixed seed.
    rtol, atol : as in `check_jacobian`

    Returns
    -------
    CheckReport
        For random directions, ``where`` is the number of the direction.

    Examples
    --------
    >>> from pyentmax import entmax15, entmax15_jvp, entmax15_vjp
    >>> check_vjp(entmax15, [0.3, 0.1, -2.0], entmax15_vjp, entmax15_jvp).passed
    True
    """
    _check_arguments(rng, rtol, atol, fn=fn, vjp=vjp, **{} if jvp is None else {"jvp": jvp})
    rng = np.random.default_rng(0) if rng is None else rng
    to_caller, z = _from_caller(z)
    p = fn(to_caller(z))
    epsilon = _epsilon(p)
    p = _to_host(p, "fn's output", kept=True)
    v = rng.standard_normal(p.shape).astype(p.dtype)

    spacings = [0.0]  # of the dtypes in which products came

    def backward(v: Array) -> Array:
        product = vjp(to_caller(p), to_caller(v))
        spacings.append(_epsilon(product))
        return _with_shape("VJP", product, z.shape, "z")

    def scalar(x: Array) -> Array:
        return np.asarray(np.sum(v * _to_host(fn(to_caller(x)), "fn's output"), dtype=np.float64))

    duality = None
    if jvp is not None:
        duality = 0.0
        for _ in range(DIRECTION_COUNT):
            u, w = (rng.standard_normal(x.shape).astype(p.dtype) for x in (z, p))
            product = jvp(to_caller(p), to_caller(u))
            spacings.append(_epsilon(product))
            forward = w * _with_shape("JVP", product, p.shape, "p")
            gap = abs(np.sum(forward) - np.sum(backward(w) * u)) / (np.sum(np.abs(forward)) or 1)
            duality = max(duality, np.inf if np.isnan(gap) else float(gap))
    analytic = backward(v)
    return _compare_gradients(
        "VJP", scalar, z, analytic, rng, rtol, atol, epsilon, duality, max(spacings)
    )


def check_gradient(
    loss: Callable[[Any], Any],
    z: Any,
    gradient: Callable[[Any], Any],
    *,
    rng: np.random.Generator | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> CheckReport:
    """Compare ``gradient(z)`` with finite differences of ``loss`` at z.

    Parameters
    ----------
    loss : callable
        From z to a loss, or to several losses (one per row, say), which are summed.
    gradient : callable
        From z to an array of z's shape.
    z, rng, rtol, atol : as in `check_vjp`

    Examples
    --------
    >>> from pyentmax import entmax15_loss, entmax15_loss_and_grad
    >>> z, y = [[0.3, 0.1, -2.0]], [1]
    >>> check_gradient(
    ...     lambda z: entmax15_loss(z, y), z, lambda z: entmax15_loss_and_grad(z, y)[1]
    ... ).passed
    True
    """
    _check_arguments(rng, rtol, atol, loss=loss, gradient=gradient)
    rng = np.random.default_rng(0) if rng is None else rng
    to_caller, z = _from_caller(z)
    analytic = _with_shape("gradient", gradient(to_caller(z)), z.shape, "z")

    def scalar(x: Array) -> Array:
        return np.asarray(np.sum(_to_host(loss(to_caller(x)), "the loss")))

    epsilon = _epsilon(loss(to_caller(z)))
    return _compare_gradients("gradient", scalar, z, analytic, rng, rtol, atol, epsilon)


def _compare_gradients(
    what: str,
    scalar: Callable[[Array], Array],
    z: Array,
    analytic: Array,
    rng: np.random.Generator,
    rtol: float,
    atol: float,
    epsilon: float,
    duality: float | None = None,
    product_epsilon: float = 0.0,
) -> CheckReport:
    few = z.size <= ENTRY_LIMIT
    if few:
        shape = z.shape
        directions = np.eye(z.size).reshape(z.size, *shape)
    else:
        shape = (DIRECTION_COUNT,)
        directions = _random_directions(z.shape, rng)
        analytic = np.array([np.sum(analytic * u) for u in directions])
    numeric = numeric_derivatives(scalar, z, directions, epsilon, alike=not few)
    numeric = numeric.rearranged(lambda values: values.reshape(shape))
    return CheckReport.compare(what, analytic, numeric, rtol, atol, duality, product_epsilon)


def _check_arguments(rng: Any, rtol: Any, atol: Any, **functions: Any) -> None:
    """Raise an error that names an argument which is not of its kind."""
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} must be a function, got {function!r:.60}")
    if rng is not None and not hasattr(rng, "standard_normal"):
        raise TypeError(
            f"rng must be a generator such as numpy.random.default_rng(0), got {rng!r:.60}"
        )
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not (is_number(value) and value >= 0):
            raise ValueError(f"{name} must be a number of 0 or more, got {value!r:.60}")


def _one_axis(axis: Any, ndim: int) -> int:
    """The axis counted from the first; a Jacobian needs rows that lie along one."""
    try:
        number = operator.index(axis)
    except TypeError:
        raise TypeError(f"axis must be one integer, got {axis!r}") from None
    if not -ndim <= number < ndim:
        raise np.exceptions.AxisError(number, ndim)
    return number % ndim


def _random_directions(shape: tuple[int, ...], rng: np.random.Generator | None) -> Array:
    """Directions whose entries are ±1 or ±½, so that steps along them are exact at large scores."""
    rng = np.random.default_rng(0) if rng is None else rng
    return rng.choice([-1.0, -0.5, 0.5, 1.0], (DIRECTION_COUNT, *shape))


def _from_caller(z: Any) -> tuple[Callable[[Array], Any], Array]:
    """A function that moves a host array to z's device, and z as float64 on the host.

    It copies, so that functions may work in place.
    """
    host = _to_host(z, "z")
    if not (host.ndim and host.size and np.isfinite(host).all()):
        raise ValueError(
            f"z must be a non-empty array of finite scores, got shape {host.shape}: {host}"
        )
    if isinstance(z, np.ndarray) or not hasattr(z, "__array_function__"):
        return np.copy, host
    return lambda array: np.asarray(array.copy(), like=z), host


def _epsilon(array: Any) -> float:
    """The spacing of floats at 1 of the dtype that an array came in; of float64 at least."""
    dtype = getattr(array, "dtype", None)
    name = getattr(dtype, "name", str(dtype).rpartition(".")[2])  # torch.float32 has none
    return SPACINGS.get(name, EPSILON)


def _to_host(array: Any, name: str, *, kept: bool = False) -> Array:
    """A copy as float64 on the host: the caller may write its next result into the same array.

    With ``kept``, of a floating dtype's own: derivatives are given p as the function returned it.
    """
    # CuPy's arrays become NumPy's only by this method.
    if hasattr(array, "__array_function__") and hasattr(array, "get"):
        array = array.get()
    if is_masked(array):
        raise TypeError(
            f"{name} is a numpy.ma array, and its mask would be lost; pass a plain array, and "
            "have the function mask, as in lambda z: softmax(z, mask=keep)"
        )
    came = array
    try:
        array = np.asarray(array)
    except ValueError:  # rows of several lengths
        raise TypeError(f"{name} must hold real numbers, got {came!r:.60}") from None
    if array.dtype.kind == "c":
        raise TypeError(
            f"{name} must hold real numbers, got dtype {array.dtype}; for a complex function "
            "check its real and imaginary parts as functions of real numbers"
        )
    try:
        if came is None or array.dtype.kind in "US":  # NumPy takes None for a NaN and '3' for 3
            raise TypeError
        floating = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        return array.astype(array.dtype if kept and floating else np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must hold real numbers, got {came!r:.60}") from None


def _with_shape(what: str, array: Any, shape: tuple[int, ...], of: str) -> Array:
    array = _to_host(array, f"the {what}")
    if array.shape != shape:
        raise ValueError(f"the {what} must have the shape of {of}, {shape}, got {array.shape}")
    return array
