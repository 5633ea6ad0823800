"""The check of anybody's implementation of a mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pyentmax.checking._causes import causes
from pyentmax.checking._claims import FIXED, LENGTHS, Claim
from pyentmax.checking._grades import Report, examine
from pyentmax.checking._properties import PROPERTIES
from pyentmax.checking._subjects import check_function, fitting, parameter_names, quiet
from pyentmax.checking._truths import truth
from pyentmax.engine.calls.record import Mapping


@dataclass(frozen=True, eq=False, repr=False)
class MappingReport(Report):
    __doc__ = Report.__doc__


def check_mapping(
    fn: Callable[..., Any],
    mapping: str | Mapping,
    *,
    vjp: Callable[[Any, Any], Any] | None = None,
    dtypes: Sequence[str] | None = None,
    strict: bool = False,
    **parameters: Any,
) -> MappingReport:
    """Check anybody's implementation of a mapping, in any array library.

    Some hundred rows, the smallest first, go through the function in every float type that it
    takes, and through this library's own in double precision. A property fails where the function
    is off by more than 64 times what this library's contract of accuracy allows in that float type
    (4 times in float16 and bfloat16). Each has a grade; the worst is the verdict. The
    function is called at most 3,000 times.

    Parameters
    ----------
    fn : callable
        From an array of scores to one of probabilities, the rows along its last axis, of NumPy,
        PyTorch, JAX, TensorFlow, Keras or CuPy; of the libraries that are already imported, it is
        the one whose arrays fn returns or takes. If fn has a parameter ``axis`` or ``dim``, every
        axis is checked.
    mapping : str or Mapping
        What it claims to be: the name of a row of `pyentmax.MAPPINGS`, ``"softmax1"``,
        e^z / (1 + Σ e^z), ``"softpick"``, relu(e^z − 1) / Σ |e^z − 1|, or a `Mapping`.
    vjp : callable, optional
        From p, which fn gave, and v to Jᵀv, both fn's arrays. If not given, PyTorch, JAX and
        TensorFlow differentiate fn themselves.
    dtypes : sequence of str, optional
        The float types to look at, of ``"float64"``, ``"float32"``, ``"float16"`` and
        ``"bfloat16"``; by default all that fn takes.
    strict : bool
        Whether failures at edges count: −∞, NaN, scores beyond 20, empty batches, half types.
    **parameters
        The mapping's own, such as ``alpha``. They are passed to fn by name if it has a parameter of
        that name; otherwise fn is expected to have them built in.

    Returns
    -------
    MappingReport
        A line per property, with the smallest input that fails and the worst. True if the verdict
        is ``"right"``, or ``"edges"`` and the check is not strict.

    Raises
    ------
    TypeError
        if fn takes no array of scores, or the parameters are not those of the mapping
    ValueError
        if there is no mapping of that name, or fn takes none of the dtypes

    Examples
    --------
    >>> import numpy as np
    >>> def softmax(z):
    ...     e = np.exp(z)
    ...     return e / e.sum(axis=-1, keepdims=True)
    >>> report = check_mapping(softmax, "softmax")
    >>> report.verdict, report.passed, list(report.failures)
    ('edges', True, ['shifts', 'tiny and huge scores', 'half types'])
    >>> print(report.failures["shifts"])
    [1000, 1000.5] gives [nan, nan], expected [0.377541, 0.622459]: no number (float64)
    """
    check_function(fn)
    record = truth(mapping, parameters)
    parameters = {name: parameters[name] for name in record.parameters}
    known = parameter_names(fn)
    axis_names = ("axis", "dim") if known is None else sorted({"axis", "dim"} & known)

    def trials(library: str) -> Iterator[Claim]:
        for axis, rank, length in product((*axis_names, None), (1, 2), LENGTHS + FIXED):
            yield Claim(fn=fn, own_vjp=vjp, record=record, parameters=parameters, library=library,
                        axis_name=axis, rank=rank, length=length)  # fmt: skip

    with quiet():
        expected = "an array of scores (of 3, 5, 40, 100 or 2 to 64) to probabilities"
        claims = fitting(trials, dtypes, expected)
        results = examine(PROPERTIES, claims)
        likely = causes(claims[0], results)
    notes = ("fn takes one vector; it was called row by row",) if claims[0].one_vector else ()
    taken = tuple(one.dtype for one in claims)
    return MappingReport(claims[0].title, taken, results, strict, likely, notes)
