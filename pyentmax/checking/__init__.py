"""Checks of derivatives by finite differences, and of anybody's implementation of a mapping.

Central differences (f(z + hv) − f(z − hv)) / 2h have an error of O(h²) for smooth f, and one of
O(ε/h) from rounding, so no single h suits every entry. Therefore they are computed for a decreasing
series of steps and extrapolated to h → 0 (Richardson). Of each entry the most certain extrapolation
that all smaller steps confirm is used; its change by the last extrapolation plus the rounding,
which is measured, is its error estimate (Ridders 1982).

Sparse mappings have kinks, where an entry is just entering the support and no derivative exists.
Therefore a check has three verdicts: the derivative passed, it failed, or differences cannot
resolve it, because z is on a kink, for example, or the function is too noisy.

The checks work on any function of arrays. If z is a device array (of CuPy, for example), the
functions are called with device arrays, and only the comparison is made on the host.

`check_mapping`, `check_loss` and `check_attention` look at one property after another of anybody's
function, in any array library. An *operator* (``_rows.py``, ``_loss.py``, ``_attention.py``) says
what goes in, what is right, on a tape (``_tape.py``), and lists the properties; a *subject*
(``_subject.py``) is the function in one float type, with what was found out about it; likely causes
are one table (``_faults.py``); ``_check.py`` asks and reports. `cases` makes tests of them.
"""

from pyentmax.checking._check import (
    AttentionReport,
    LossReport,
    MappingReport,
    cases,
    check_attention,
    check_loss,
    check_mapping,
)
from pyentmax.checking._checks import check_gradient, check_jacobian, check_vjp
from pyentmax.checking._report import CheckReport

__all__ = [
    "AttentionReport",
    "CheckReport",
    "LossReport",
    "MappingReport",
    "cases",
    "check_attention",
    "check_gradient",
    "check_jacobian",
    "check_loss",
    "check_mapping",
    "check_vjp",
]
