"""The three checks: of a Jacobian, of a vector-Jacobian product, of a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.checking._differences import Array, slopes
from pyentmax.checking._report import CheckReport

ENTRY_LIMIT = 256  # up to so many entries each is perturbed alone; above, random directions
DIRECTIONS = 16


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

    Rows of up to 256 scores are perturbed one score at a time; of longer ones, J u is compared with
    the directional derivative for random directions u.

    Parameters
    ----------
    fn : function of an array that maps each row along axis by itself
    z : array of scores
    jacobian : function of fn's output
        returns shape batch + (d, d), entry (i, j) being ∂fn_i/∂z_j
    axis : int
        which axis forms a row
    rng : numpy.random.Generator, optional
        draws u; by default one with a fixed seed
    rtol, atol : float
        tolerance, relative to the largest numeric entry, and absolute

    Returns
    -------
    CheckReport
        prints as a table and shows in Jupyter as a picture; for random directions its entries
        are (direction, …, i)

    Raises
    ------
    ValueError
        if the Jacobian or fn's output has the wrong shape, or z is empty or not finite

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
    place, z = _from_caller(z)
    d = z.shape[axis]
    rows = np.moveaxis(z, axis, -1)

    def by_rows(x: Array) -> Array:
        return np.moveaxis(_to_host(fn(place(np.moveaxis(x, -1, axis)))), axis, -1)

    p = by_rows(rows)
    if p.shape != rows.shape:
        raise ValueError(f"fn must return the shape of z, {z.shape}, got {p.shape} along the axis")
    analytic = _to_host(jacobian(place(np.moveaxis(p, -1, axis))))
    if analytic.shape != (*p.shape, d):
        raise ValueError(
            f"the Jacobian must have shape {(*p.shape, d)}, got {analytic.shape}; its entry (i, j) "
            "is ∂p_i/∂z_j"
        )
    what = "Jacobian"
    if d <= ENTRY_LIMIT:
        # Rows do not mix: one score of every row is moved at a time.
        found = slopes(by_rows, rows, (np.broadcast_to(e, rows.shape) for e in np.eye(d)))
        found = found.rearranged(lambda values: np.moveaxis(values, 0, -1))
    else:
        what = "Jacobian along random directions"
        directions = _random_directions(rows.shape, d, rng)
        found = slopes(by_rows, rows, directions)
        analytic = np.stack([(analytic @ u[..., None])[..., 0] for u in directions])
    return CheckReport.compare(what, analytic, found, rtol, atol)


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
    """Compare ``vjp(fn(z), v)``, v random, with the numeric gradient of v·fn(z).

    Up to 256 entries each one is perturbed; above, vjp·u is compared with the directional
    derivative v·(J u) for random directions u. With `jvp`, the two products are also held
    against each other: u·(J v) = (Jᵀu)·v for 16 random pairs, which costs no differences and so
    has no step to choose.

    Parameters
    ----------
    fn : function of an array
    z : array of scores
    vjp : function of fn's output p and of v, of p's shape; returns z's shape
    jvp : function of fn's output p and of u, of z's shape, optional; returns p's shape
    rng : numpy.random.Generator, optional
        draws v and u; by default one with a fixed seed
    rtol, atol : float
        tolerance, relative to the largest numeric entry, and absolute

    Returns
    -------
    CheckReport
        for random directions, `where` is the direction's number

    Raises
    ------
    ValueError
        if a product has the wrong shape, or z is empty or not finite

    Examples
    --------
    >>> from pyentmax import entmax15, entmax15_jvp, entmax15_vjp
    >>> check_vjp(entmax15, [0.3, 0.1, -2.0], entmax15_vjp, entmax15_jvp).passed
    True
    """
    rng = np.random.default_rng(0) if rng is None else rng
    place, z = _from_caller(z)
    p = _to_host(fn(place(z)))
    v = rng.standard_normal(p.shape)

    def backward(v: Array) -> Array:
        return _shaped("VJP", vjp(place(p), place(v)), z.shape, "z")

    def scalar(x: Array) -> Array:
        return np.asarray(np.sum(v * _to_host(fn(place(x)))))

    duality = None
    if jvp is not None:
        duality = 0.0
        for _ in range(DIRECTIONS):
            u, w = rng.standard_normal(z.shape), rng.standard_normal(p.shape)
            forward = w * _shaped("JVP", jvp(place(p), place(u)), p.shape, "p")
            gap = abs(np.sum(forward) - np.sum(backward(w) * u)) / (np.sum(np.abs(forward)) or 1)
            duality = max(duality, np.inf if np.isnan(gap) else float(gap))
    return _compare_gradients("VJP", scalar, z, backward(v), rng, rtol, atol, duality)


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
    loss : function of an array; several losses (one per row, say) are summed
    z : array
    gradient : function of z that returns z's shape
    rng, rtol, atol : as in `check_vjp`

    Returns
    -------
    CheckReport

    Raises
    ------
    ValueError
        if the gradient has the wrong shape, or z is empty or not finite

    Examples
    --------
    >>> from pyentmax import entmax15_loss, entmax15_loss_and_grad
    >>> z, y = [[0.3, 0.1, -2.0]], [1]
    >>> check_gradient(
    ...     lambda z: entmax15_loss(z, y), z, lambda z: entmax15_loss_and_grad(z, y)[1]
    ... ).passed
    True
    """
    rng = np.random.default_rng(0) if rng is None else rng
    place, z = _from_caller(z)
    analytic = _shaped("gradient", gradient(place(z)), z.shape, "z")

    def scalar(x: Array) -> Array:
        return np.asarray(np.sum(_to_host(loss(place(x)))))

    return _compare_gradients("gradient", scalar, z, analytic, rng, rtol, atol)


def _compare_gradients(
    what: str,
    scalar: Callable[[Array], Array],
    z: Array,
    analytic: Array,
    rng: np.random.Generator,
    rtol: float,
    atol: float,
    duality: float | None = None,
) -> CheckReport:
    if z.size <= ENTRY_LIMIT:
        shape = z.shape
        directions = np.eye(z.size).reshape(z.size, *shape)
    else:
        shape = (DIRECTIONS,)
        directions = _random_directions(z.shape, z.size, rng)
        analytic = np.array([np.sum(analytic * u) for u in directions])
    found = slopes(scalar, z, directions)
    found = found.rearranged(lambda values: values.reshape(shape))
    return CheckReport.compare(what, analytic, found, rtol, atol, duality)


def _random_directions(shape: tuple[int, ...], n: int, rng: np.random.Generator | None) -> Array:
    rng = np.random.default_rng(0) if rng is None else rng
    # Divided by √n, so that a step moves the n scores of one direction by about h in all.
    return rng.standard_normal((DIRECTIONS, *shape)) / np.sqrt(n)


def _from_caller(z: Any) -> tuple[Callable[[Array], Any], Array]:
    """z as a double on the host, and the function that puts a host array where z was."""
    host = _to_host(z)
    if not (host.ndim and host.size and np.isfinite(host).all()):
        raise ValueError(
            f"z must be a non-empty array of finite scores, got shape {host.shape}: {host}"
        )
    if isinstance(z, np.ndarray) or not hasattr(z, "__array_function__"):
        return lambda array: array, host
    return lambda array: np.asarray(array, like=z), host


def _to_host(array: Any) -> Array:
    # CuPy's arrays refuse to become NumPy's unless asked by name.
    if hasattr(array, "__array_function__") and hasattr(array, "get"):
        array = array.get()
    return np.asarray(array, dtype=np.float64)


def _shaped(what: str, array: Any, shape: tuple[int, ...], of: str) -> Array:
    array = _to_host(array)
    if array.shape != shape:
        raise ValueError(f"the {what} must have the shape of {of}, {shape}, got {array.shape}")
    return array
