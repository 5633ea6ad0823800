"""Finite-difference checks of derivatives: of the library's mappings, and of the reader's own.

Central differences (f(z + hv) − f(z − hv)) / 2h err by O(h²) for smooth f and by O(ε/h) from
rounding, so no single h suits every entry. Here each is computed for a falling series of steps,
extrapolated to h → 0 (Richardson), and every entry keeps the extrapolation that changed least, with
that change and its rounding as the error estimate (Ridders 1982). All is done in float64.

Sparse mappings have kinks, where an entry is just entering the support and no derivative exists.
A report says when the point sits on one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

STEPS = 2.0**-4 * 4.0 ** -np.arange(9)  # from 0.06 to 1e-6, where rounding costs 1e-10
ENTRY_LIMIT = 256  # up to so many entries each is perturbed alone; above, random directions
DIRECTIONS = 16


@dataclass(frozen=True)
class CheckReport:
    """What a check found; prints as a small table.

    Attributes
    ----------
    what : str
        which derivative was checked
    passed : bool
    largest_error : float
        largest absolute difference, and its place and values below
    tolerance : float
        what it may be: atol + rtol · (largest numeric entry)
    where : tuple of int
        index of the largest difference
    analytic, numeric : float
        the two values there
    step : float
        smallest step that the numeric value there rests on
    estimate : float
        the finite differences' own error there, as estimated
    kink : bool
        the support changes however small the step: no derivative exists there
    differences : array
        analytic − numeric, all of them
    """

    what: str
    passed: bool
    largest_error: float
    tolerance: float
    where: tuple[int, ...]
    analytic: float
    numeric: float
    step: float
    estimate: float
    kink: bool
    differences: Array = field(repr=False)

    def __str__(self) -> str:
        place = ", ".join(str(i) for i in self.where)
        lines = [
            f"{self.what}: {'passed' if self.passed else 'FAILED'}",
            f"  largest error  {self.largest_error:.2e}   (tolerance {self.tolerance:.2e})",
            f"  at [{place}]",
            f"  analytic       {self.analytic:+.12e}",
            f"  numeric        {self.numeric:+.12e}   (±{self.estimate:.1e}, step {self.step:.1e})",
        ]
        if self.kink:
            lines.append("  z sits on a kink: an entry is entering the support, move z a little")
        return "\n".join(lines)

    def raise_if_failed(self) -> CheckReport:
        """Raise AssertionError with the table if the check failed; else return the report."""
        if not self.passed:
            raise AssertionError(str(self))
        return self


def check_jacobian(
    fn: Callable[[Array], Any],
    z: Any,
    jacobian: Callable[[Array], Any],
    axis: int = -1,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> CheckReport:
    """Compare ``jacobian(fn(z))`` with finite differences of ``fn`` at z.

    Parameters
    ----------
    fn : function of an array that maps each row along axis by itself
    z : array of scores
    jacobian : function of fn's output
        returns shape batch + (d, d), entry (i, j) being ∂fn_i/∂z_j
    axis : int
        which axis forms a row
    rtol, atol : float
        tolerance, relative to the largest numeric entry, and absolute

    Returns
    -------
    CheckReport

    Raises
    ------
    ValueError
        if the Jacobian or fn's output has the wrong shape

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
    z = _as_double(z)
    p = _output(fn, z)
    d = z.shape[axis]
    columns = [_derivative(fn, z, _unit(z, axis, j)) for j in range(d)]
    numeric, estimate, step = (
        np.stack([np.moveaxis(c[k], axis, -1) for c in columns], axis=-1) for k in range(3)
    )
    analytic = np.asarray(jacobian(p))
    kink = any(_on_kink(fn, z, p, _unit(z, axis, j)) for j in range(d))
    return _report("Jacobian", analytic, numeric, estimate, step, kink, rtol, atol)


def check_vjp(
    fn: Callable[[Array], Any],
    z: Any,
    vjp: Callable[[Array, Array], Any],
    *,
    rng: np.random.Generator | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> CheckReport:
    """Compare ``vjp(fn(z), v)``, v random, with the numeric gradient of v·fn(z).

    Up to 256 entries each one is perturbed; above, vjp·u is compared with the directional
    derivative v·(J u) for random directions u.

    Parameters
    ----------
    fn : function of an array
    z : array of scores
    vjp : function of fn's output p and of v, of p's shape; returns z's shape
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
        if the product has the wrong shape

    Examples
    --------
    >>> from pyentmax import entmax15, entmax15_vjp
    >>> check_vjp(entmax15, [0.3, 0.1, -2.0], entmax15_vjp).passed
    True
    """
    rng = np.random.default_rng(0) if rng is None else rng
    z = _as_double(z)
    p = _output(fn, z)
    v = rng.standard_normal(p.shape)
    analytic = np.asarray(vjp(p, v))
    return _compare_gradients(
        "VJP", lambda x: np.sum(v * _output(fn, x)), z, analytic, rng, rtol, atol, (fn, p)
    )


def check_gradient(
    loss: Callable[[Array], Any],
    z: Any,
    gradient: Callable[[Array], Any],
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
        if the gradient has the wrong shape

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
    z = _as_double(z)
    analytic = np.asarray(gradient(z))
    return _compare_gradients(
        "gradient", lambda x: np.sum(loss(x)), z, analytic, rng, rtol, atol, None
    )


def _compare_gradients(
    what: str,
    scalar: Callable[[Array], Any],
    z: Array,
    analytic: Array,
    rng: np.random.Generator,
    rtol: float,
    atol: float,
    mapping: tuple[Callable[[Array], Any], Array] | None,
) -> CheckReport:
    if analytic.shape != z.shape:
        raise ValueError(f"the {what} must have the shape of z, {z.shape}, got {analytic.shape}")
    if z.size <= ENTRY_LIMIT:
        shape = z.shape
        directions = np.eye(z.size).reshape(z.size, *shape)
    else:
        shape = (DIRECTIONS,)
        directions = rng.standard_normal((DIRECTIONS, *z.shape))
        directions /= np.sqrt(z.size)  # so that a step moves z by about h in all
        analytic = np.array([np.sum(analytic * u) for u in directions])
    found = [_derivative(scalar, z, u) for u in directions]
    numeric, estimate, step = (np.array([f[k] for f in found]).reshape(shape) for k in range(3))
    kink = mapping is not None and any(_on_kink(mapping[0], z, mapping[1], u) for u in directions)
    return _report(what, analytic, numeric, estimate, step, kink, rtol, atol)


def _derivative(fn: Callable[[Array], Any], z: Array, u: Array) -> tuple[Array, Array, Array]:
    """d fn(z + tu)/dt at t = 0, its error estimate and the smallest step used, entry by entry."""
    scale = max(1.0, float(np.max(np.abs(z * u), initial=0)))
    previous: list[Array] = []
    best = error = used = np.array(0.0)
    for k, h in enumerate(STEPS * scale):
        up, down = _output(fn, z + h * u), _output(fn, z - h * u)
        row = [(up - down) / (2 * h)]
        # Without it, two noisy values that agree by chance would win.
        rounding = np.finfo(np.float64).eps * np.maximum(np.abs(up), np.abs(down)) / h
        if k == 0:
            best, error, used = row[0], np.full_like(row[0], np.inf), np.full_like(row[0], h)
        for j, before in enumerate(previous):
            # The error is a series in h², and h falls by 4: cancel its (j+1)-th term.
            row.append(row[j] + (row[j] - before) / (16.0 ** (j + 1) - 1))
            change = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - before)) + rounding
            better = change < error
            best = np.where(better, row[-1], best)
            used = np.where(better, h, used)
            error = np.where(better, change, error)
        previous = row
    return best, error, used


def _on_kink(fn: Callable[[Array], Any], z: Array, p: Array, u: Array) -> bool:
    h = STEPS[-1] * max(1.0, float(np.max(np.abs(z * u), initial=0)))
    return any(bool(np.any((_output(fn, z + t * u) == 0) != (p == 0))) for t in (h, -h))


def _report(
    what: str,
    analytic: Array,
    numeric: Array,
    estimate: Array,
    step: Array,
    kink: bool,
    rtol: float,
    atol: float,
) -> CheckReport:
    if analytic.shape != numeric.shape:
        raise ValueError(f"the {what} must have shape {numeric.shape}, got {analytic.shape}")
    differences = analytic - numeric
    # A NaN is the worst of errors, not one to be compared away.
    size = np.where(np.isnan(differences), np.inf, np.abs(differences))
    tolerance = atol + rtol * float(np.max(np.abs(numeric), initial=0))
    where = tuple(int(i) for i in np.unravel_index(np.argmax(size), size.shape))
    return CheckReport(
        what=what,
        passed=bool(size[where] <= tolerance),
        largest_error=float(size[where]),
        tolerance=tolerance,
        where=where,
        analytic=float(analytic[where]),
        numeric=float(numeric[where]),
        step=float(step[where]),
        estimate=float(estimate[where]),
        kink=kink,
        differences=differences,
    )


def _as_double(z: Any) -> Array:
    z = np.asarray(z, dtype=np.float64)
    if not (z.ndim and z.size and np.isfinite(z).all()):
        raise ValueError(f"z must be a non-empty array of finite scores, got shape {z.shape}: {z}")
    return z


def _output(fn: Callable[[Array], Any], z: Array) -> Array:
    return np.asarray(fn(z), dtype=np.float64)


def _unit(z: Array, axis: int, j: int) -> Array:
    unit = np.zeros_like(z)
    np.moveaxis(unit, axis, -1)[..., j] = 1
    return unit
