"""Grades of properties, one by one, and the report on all of them.

A property is a function that tries inputs, the smallest first, and yields a `Finding` for each. It
yields nothing if it does not apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._picture import bars, table
from pyentmax.checking._report import Judged, absolute

# In units of the contract. Bisections and softmaxes that compute in float32 are up to there. In a
# half type 64 units would be more than a probability, so that nothing could fail.
LIMIT, HALF_LIMIT = 64.0, 4.0
WRONG = 1e-3  # an error that is more than imprecision
ORDINARY = 20.0  # larger scores are edges
GRADES = ("not applicable", "right", "edges", "imprecise", "wrong")  # the worst counts
MARKS = dict(zip(GRADES, "–✓▵≈✗", strict=True))


class CallError(Exception):
    """What the function raised, and for which input."""

    def __init__(self, z: Array, error: Exception, given: str = "") -> None:
        super().__init__(f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}")
        self.z, self.given = z, given


class Finding(NamedTuple):
    """What came out for one input, and what should have.

    Attributes
    ----------
    z : array
        The input, as float64.
    observed, expected : array, number or str
    units : float
        How far off, in units of the contract: 0 is exact, 1 all that the library allows itself, and
        infinity an error, a NaN or a wrong shape.
    v : array or None
        The vector of a vector-Jacobian product.
    given : str
        The input in words, where scores do not tell all.
    """

    z: Array
    observed: Any
    expected: Any
    units: float
    v: Array | None = None
    given: str = ""

    @property
    def error(self) -> float:
        """The largest absolute error; infinite for NaN, or if no numbers came out."""
        observed, expected = self.observed, self.expected
        if isinstance(observed, (str, tuple)) or np.shape(observed) != np.shape(expected):
            return np.inf if self.units else 0.0
        with np.errstate(invalid="ignore"):  # ∞ − ∞
            error = np.where(
                np.equal(observed, expected), 0, absolute(np.subtract(observed, expected))
            )
        return float(np.max(error, initial=0))

    def grade(self, limit: float, edge: bool) -> str:
        """How bad it is; at an ``edge`` nothing is worse than that."""
        if self.units <= limit:
            return "right"
        if edge or not np.all(np.abs(self.z) <= ORDINARY):
            return "edges"
        return "wrong" if self.error > WRONG else "imprecise"

    def __str__(self) -> str:
        z, observed, expected, units, v, given = self
        at = ""
        if isinstance(expected, np.ndarray) and expected.size > 5 and np.size(observed):
            error = absolute(observed - expected)
            where = np.unravel_index(np.argmax(error), expected.shape)
            at = f" at [{', '.join(map(str, where))}]"
            observed, expected = observed[where], expected[where]
        short = text(observed) != text(expected)
        off = [f"off by {self.error:.2g}"] if np.isfinite(self.error) else []
        if 0 < units < np.inf:
            off += [f"{units:.2g} × the contract" if units < 1e4 else "> 10000 × the contract"]
        direction = "" if v is None else f", v = {text(v, short)}"
        gives = f"{text(observed, short)}{at}, expected {text(expected, short)}"
        return (
            f"{given or text(z, short)}{direction} gives {gives}: {', '.join(off) or 'no number'}"
        )


def compare(
    z: Array, observed: Any, exact: Any, allowed: Any, v: Array | None = None, given: str = ""
) -> Finding:
    """What came out against what should have, in units of what it may be off by."""
    error = np.array(np.nan)
    if np.shape(observed) == np.shape(exact):
        error = np.where(np.equal(observed, exact), 0, np.abs(np.subtract(observed, exact)))
    units = np.max(error / allowed, initial=0)
    return Finding(z, observed, exact, float(np.inf if np.isnan(units) else units), v, given)


def same(z: Array, observed: Any, expected: Any, given: str = "", equal: Any = None) -> Finding:
    """What came out against what should have, where nothing lies between right and wrong."""
    equal = observed == expected if equal is None else equal
    return Finding(z, observed, expected, 0.0 if equal else np.inf, given=given)


@dataclass(frozen=True, eq=False)
class PropertyResult:
    """How a property came out.

    Attributes
    ----------
    name : str
        The property.
    description : str
        What it says.
    grade : str
        ``"right"``, ``"edges"``, ``"imprecise"`` or ``"wrong"``; or ``"not applicable"``: the
        mapping does not have the property, or the function has no derivative, no axis or no half
        types, or does not support what is tried.
    dtype : str
        The float type in which it came out so.
    finding : Finding or None
        The smallest input of that grade, with ``z``, ``observed``, ``expected``, ``error``,
        ``units`` (of the contract of accuracy) and, for a derivative, ``v``. If none fails, that
        with the most units.
    worst : Finding or None
        The input of that grade with the largest error, if it is another one.
    """

    name: str
    description: str
    grade: str
    dtype: str = ""
    finding: Finding | None = None
    worst: Finding | None = None

    @property
    def verdict(self) -> str:
        """``"passed"``, ``"failed"`` or ``"not applicable"``."""
        return {"right": "passed", "not applicable": self.grade}.get(self.grade, "failed")

    def __str__(self) -> str:
        if self.finding is None:
            return self.grade
        observed, units = self.finding.observed, self.finding.units
        if self.verdict == "passed":
            return observed if isinstance(observed, str) else f"{units:.2g} × the contract"
        worst = "" if self.worst is None else f"; worst: {self.worst}"
        return f"{self.finding} ({self.dtype}){worst}"


@dataclass(frozen=True, eq=False, repr=False)
class Report(Judged):
    """What holds of an implementation; prints as a table, and Jupyter shows it as a picture.

    It is true if it passed.

    Attributes
    ----------
    claim : str
        What the function claims to be.
    dtypes : tuple of str
        The float types that it takes.
    results : tuple of PropertyResult
        One per property.
    strict : bool
        Whether edges count as failures.
    causes : tuple of str
        What is likely wrong: variants of the right function that give the same as this one.
    notes : tuple of str
        How the function was called, where that is not obvious.
    """

    claim: str
    dtypes: tuple[str, ...]
    results: tuple[PropertyResult, ...]
    strict: bool = False
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst grade: ``"right"``, ``"edges"``, ``"imprecise"`` or ``"wrong"``.

        *Edges* is right on ordinary input, and fails for −∞, NaN, scores beyond 20, empty batches,
        half types or the type of the result. *Imprecise* are errors beyond the contract, up to
        1e-3. *Wrong* is an error above that, or a wrong derivative.
        """
        return max(["right", *(one.grade for one in self.results)], key=GRADES.index)

    @property
    def failures(self) -> dict[str, PropertyResult]:
        """Name → result, of the properties that fail, at edges too."""
        return {one.name: one for one in self.results if one.verdict == "failed"}

    @property
    def passed(self) -> bool:
        """Whether the verdict is ``"right"``, or ``"edges"`` and the check is not strict."""
        return self.verdict in ("right", "edges")[: 1 if self.strict else 2]

    @property
    def _heading(self) -> str:
        tried = sum(one.finding is not None for one in self.results)
        fail = f" ({len(self.failures)} of {tried} properties fail)" if self.failures else ""
        return f"{self.claim}: {self.verdict}{fail}, {', '.join(self.dtypes)}"

    def _rows(self) -> list[tuple[str, str]]:
        return [(f"{MARKS[one.grade]} {one.name}", str(one)) for one in self.results]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self._rows())
        lines = [f"  likely cause: {cause}" for cause in self.causes]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {name:<{width}}  {text}" for name, text in self._rows()]
        return "\n".join([self._heading, *lines])

    def _repr_html_(self) -> str:
        """A bar for the error of each property, above the table."""
        units = {one.name: one.finding.units for one in self.results if one.finding}
        below = " ".join([*self.causes, *self.notes])
        return table(self._heading, bars(units, LIMIT), self._rows(), below)


def examine(properties: dict[Any, str], subjects: Sequence[Any]) -> tuple[PropertyResult, ...]:
    """Every property in every float type; of a function → what of it are edges.

    That is ``""``, ``"errors"`` that the function raises, or ``"all"``.
    """
    return tuple(_examine(holds, edges, subjects) for holds, edges in properties.items())


def _examine(holds: Any, edges: str, subjects: Sequence[Any]) -> PropertyResult:
    graded: list[tuple[str, str, Finding]] = []
    name = holds.__name__.replace("_", " ")
    for subject in subjects:
        if subject.half != (name == "half types"):
            continue
        limit, dtype = subject.limit, subject.dtype
        try:
            for finding in holds(subject):
                graded.append((finding.grade(limit, edges == "all"), dtype, finding))
        except CallError as error:
            finding = Finding(error.z, str(error), "no error", np.inf, given=error.given)
            graded.append((finding.grade(limit, edges != ""), dtype, finding))
    if not graded:
        return PropertyResult(name, holds.__doc__, "not applicable")
    grade = max((grade for grade, _, _ in graded), key=GRADES.index)
    alike = [(dtype, finding) for one, dtype, finding in graded if one == grade]
    if grade == "right":
        dtype, finding = max(alike, key=lambda one: one[1].units)
        return PropertyResult(name, holds.__doc__, grade, dtype, finding)
    dtype, finding = alike[0]
    worst = max((one for _, one in alike), key=lambda one: one.error)
    much = worst if worst.error > 2 * finding.error else None
    return PropertyResult(name, holds.__doc__, grade, dtype, finding, much)


def text(x: Any, short: bool = True) -> str:
    """An array, number or text as a report shows it: in 6 digits, or all that it has.

    >>> print(text(np.array([0.0, 1 / 3, -np.inf])))
    [0, 0.333333, -inf]
    """
    if isinstance(x, np.ndarray) and x.ndim:
        if x.size > 12 or not x.size:
            return f"{'scores' if x.ndim == 1 else 'an array'} of shape {x.shape}"
        return f"[{', '.join(text(one, short) for one in x)}]"
    x = x.item() if isinstance(x, np.ndarray) else x
    return str(x) if not isinstance(x, float) else f"{x:.6g}" if short else repr(float(x))
