"""The check of anybody's implementation of a mapping, and its report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.calls.record import Mapping
from pyentmax.checking._claims import CallError, Claim, claims_of
from pyentmax.checking._picture import bars, table
from pyentmax.checking._properties import PROPERTIES, Finding, Property, half_types
from pyentmax.fenchel_young import record_and_parameters

# In units of the contract. Bisections and softmaxes that compute in float32 are up to there. In a
# half type 64 units would be more than a probability, so that nothing could fail.
LIMIT, HALF_LIMIT = 64.0, 4.0
MARKS = {"passed": "✓", "failed": "✗", "not applicable": "–"}


@dataclass(frozen=True, eq=False)
class PropertyResult:
    """How a property came out.

    Attributes
    ----------
    name : str
        The property.
    description : str
        What it says.
    verdict : str
        ``"passed"``, ``"failed"``, or ``"not applicable"``: the mapping does not have the property,
        or the function has no derivative, no axis or no half types.
    dtype : str
        The float type in which it came out so.
    finding : Finding or None
        The smallest input that fails: with ``z``, ``observed``, ``expected``, ``units`` (of the
        contract of accuracy) and, for a derivative, ``v``. If none fails, that with the most units.
    """

    name: str
    description: str
    verdict: str
    dtype: str
    finding: Finding | None

    def __str__(self) -> str:
        if self.finding is None:
            return self.verdict
        z, observed, expected, units, v = self.finding
        off = f"{units:.2g} × the contract"
        if self.verdict == "passed":
            return observed if isinstance(observed, str) else off
        at = ""
        if isinstance(expected, np.ndarray) and expected.size > 5 and observed.size:
            error = np.abs(observed - expected)
            where = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), z.shape)
            at = f" at [{', '.join(map(str, where))}]"
            observed, expected = observed[where], expected[where]
        short = _text(observed) != _text(expected)
        gives = f"{_text(observed, short)}{at}, expected {_text(expected, short)}"
        direction = "" if v is None else f", v = {_text(v, short)}"
        return f"{_text(z, short)}{direction} gives {gives}   ({self.dtype}, {off})"


@dataclass(frozen=True, eq=False, repr=False)
class MappingReport:
    """What holds of an implementation; prints as a table, and Jupyter shows it as a picture.

    Attributes
    ----------
    mapping : str
        What it claims to be.
    dtypes : tuple of str
        The float types that it takes.
    results : tuple of PropertyResult
        One per property: ``name``, ``description``, ``verdict`` (``"passed"``, ``"failed"`` or
        ``"not applicable"``), ``dtype`` and ``finding``, which has the input (``z``, and ``v`` for
        a derivative), ``observed``, ``expected``, and ``units`` of the contract.
    """

    mapping: str
    dtypes: tuple[str, ...]
    results: tuple[PropertyResult, ...]

    @property
    def failures(self) -> dict[str, PropertyResult]:
        """Name → result, of the properties that fail."""
        return {one.name: one for one in self.results if one.verdict == "failed"}

    @property
    def passed(self) -> bool:
        """Whether no property fails."""
        return not self.failures

    def __bool__(self) -> bool:
        return self.passed

    def raise_if_failed(self) -> MappingReport:
        """Raise AssertionError with the table if a property fails; else return the report."""
        if not self.passed:
            raise AssertionError(str(self))
        return self

    @property
    def _heading(self) -> str:
        failed = f"FAILED {len(self.failures)} of {len(self.results)} properties"
        return f"{self.mapping}: {'passed' if self.passed else failed}, {', '.join(self.dtypes)}"

    def _rows(self) -> list[tuple[str, str]]:
        return [(f"{MARKS[one.verdict]} {one.name}", str(one)) for one in self.results]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self._rows())
        return "\n".join(
            [self._heading, *(f"  {name:<{width}}  {text}" for name, text in self._rows())]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """A bar for the error of each property, above the table."""
        units = {one.name: one.finding.units for one in self.results if one.finding}
        return table(self._heading, bars(units, LIMIT), self._rows(), "")


def check_mapping(
    fn: Callable[..., Any],
    mapping: str | Mapping,
    *,
    vjp: Callable[[Any, Any], Any] | None = None,
    dtypes: Sequence[str] | None = None,
    **parameters: Any,
) -> MappingReport:
    """Check anybody's implementation of a mapping, in any array library.

    Some hundred rows, the smallest first, go through the function in every float type that it
    takes, and through this library's own in double precision. A property fails where the function
    is off by more than 64 times what this library's contract of accuracy allows in that float type
    (4 times in float16 and bfloat16).

    Parameters
    ----------
    fn : callable
        From an array of scores to one of probabilities, the rows along its last axis, of NumPy,
        PyTorch, JAX, TensorFlow, Keras or CuPy; of the libraries that are already imported, it is
        the one whose arrays fn returns or takes. If fn has a parameter ``axis`` or ``dim``, every
        axis is checked.
    mapping : str or Mapping
        What it claims to be: the name of a row of `pyentmax.MAPPINGS`, or a `Mapping`.
    vjp : callable, optional
        From p, which fn gave, and v to Jᵀv, both fn's arrays. If not given, PyTorch, JAX and
        TensorFlow differentiate fn themselves.
    dtypes : sequence of str, optional
        The float types to look at, of ``"float64"``, ``"float32"``, ``"float16"`` and
        ``"bfloat16"``; by default all that fn takes.
    **parameters
        The mapping's own, such as ``alpha``. They are passed to fn by name if it has a parameter of
        that name; otherwise fn is expected to have them built in.

    Returns
    -------
    MappingReport
        A line per property, with the smallest input that fails.

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
    >>> report.passed, list(report.failures)
    (False, ['shifts', 'tiny and huge scores', 'half types'])
    >>> print(report.failures["shifts"])
    [1000, 1000.5] gives [nan, nan], expected [0.377541, 0.622459]   (float64, inf × the contract)
    """
    if not callable(fn):
        raise TypeError(f"fn must be a function, got {fn!r:.60}")
    record, _ = record_and_parameters(mapping, parameters)
    parameters = {name: parameters[name] for name in record.parameters}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # fn may warn of overflow, but its result is what counts
        claims = claims_of(fn, record, parameters, vjp)
        taken = [claim.dtype for claim in claims]
        claims = [claim for claim in claims if dtypes is None or claim.dtype in dtypes]
        if not claims:
            raise ValueError(f"dtypes must have one that fn takes, of {taken}, got {dtypes}")
        results = tuple(_examine(holds, claims) for holds in PROPERTIES)
    given = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    name = f"{record.name} ({given})" if given else record.name
    return MappingReport(name, tuple(claim.dtype for claim in claims), results)


def _examine(holds: Property, claims: list[Claim]) -> PropertyResult:
    """The property in one float type after another, up to the first input that fails."""
    name, description = holds.__name__.replace("_", " "), str(holds.__doc__)
    worst: tuple[str, Finding] | None = None
    for claim in (claim for claim in claims if claim.half == (holds is half_types)):
        limit = HALF_LIMIT if claim.half else LIMIT
        try:
            for finding in holds(claim):
                if finding.units > limit:
                    return PropertyResult(name, description, "failed", claim.dtype, finding)
                if worst is None or finding.units > worst[1].units:
                    worst = claim.dtype, finding
        except CallError as error:
            finding = Finding(error.z, str(error), "no error", np.inf)
            return PropertyResult(name, description, "failed", claim.dtype, finding)
    if worst is None:
        return PropertyResult(name, description, "not applicable", "", None)
    return PropertyResult(name, description, "passed", *worst)


def _text(x: Any, short: bool = True) -> str:
    """An array, number or text as a report shows it: in 6 digits, or all that it has.

    >>> print(_text(np.array([0.0, 1 / 3, -np.inf])))
    [0, 0.333333, -inf]
    """
    if isinstance(x, np.ndarray):
        if x.size > 12 or not x.size:
            return f"{'scores' if x.ndim == 1 else 'an array'} of shape {x.shape}"
        return f"[{', '.join(_text(one, short) for one in x)}]"
    return str(x) if not isinstance(x, float) else f"{x:.6g}" if short else repr(float(x))
