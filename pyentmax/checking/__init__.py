"""Finite-difference checks of derivatives: of the library's mappings, and of the reader's own.

Central differences (f(z + hv) − f(z − hv)) / 2h err by O(h²) for smooth f and by O(ε/h) from
rounding, so no single h suits every entry. Here each is computed for a falling series of steps,
extrapolated to h → 0 (Richardson), and every entry keeps the extrapolation that changed least, with
that change and its rounding as the error estimate (Ridders 1982). All is done in float64.

Sparse mappings have kinks, where an entry is just entering the support and no derivative exists.
A report says when the point sits on one.

The checks work on any function of arrays. Where z is a device array (CuPy's, say), the functions
are called with device arrays, and only the comparison is made on the host.
"""

from pyentmax.checking._checks import check_gradient, check_jacobian, check_vjp
from pyentmax.checking._report import CheckReport

__all__ = ["CheckReport", "check_gradient", "check_jacobian", "check_vjp"]
