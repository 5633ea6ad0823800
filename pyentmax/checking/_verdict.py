"""Judgements: cases, findings, a grade for each property and float type, and a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import HALF
from pyentmax.checking._report import Judged, absolute

WRONG, HALF_WRONG = 1e-3, 1e-2  # of the result's size: an error that is more than imprecision
GRADES = ("not applicable", "right", "edges", "imprecise", "wrong")  # the worst counts
MARKS = dict(zip(GRADES, "–✓▵≈✗", strict=True))


class Case(dict[str, Any]):
    """The arrays and options of a call, as attributes too; one that is missing is None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __or__(self, other: Any) -> Case:  # type: ignore[override]
        return Case({**self, **other})


class CallError(Exception):
    """An error that the function raised, and its case."""

    gradient = False  # whether it was raised while gradients were asked for

    def __init__(self, case: Case, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        self.case = case


class WrongShape(ValueError):
    """The function gave a result of another shape."""


class Missing(Exception):
    """Why a case does not apply."""


def refuse(true: Any, reason: str) -> None:
    """Raise `Missing` for a reason, if it is true."""
    if true:
        raise Missing(reason)


class Expected(NamedTuple):
    """The right value, one unit of the contract there, and the size that errors are relative to."""

    value: Any
    allowed: Any
    size: float | None = None


def worst(grades: Iterable[str]) -> str:
    """The worst of the grades."""
    return max(("right", *grades), key=GRADES.index)


def difference(a: Any, b: Any) -> Array:
    """|a − b|: 0 where they are equal, infinite ones too, and infinite for NaN."""
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        return np.where(np.equal(a, b), 0, absolute(np.subtract(a, b)))


class Finding(NamedTuple):
    """The observed and the expected result of one case.

    Attributes
    ----------
    case : dict
        The input: its arrays, as float64, and its options.
    observed, expected : array, number or str
    units : float
        How far off, in units of the contract: 0 is exact, 1 all that the library allows itself, and
        infinity an error, a NaN or a wrong shape.
    name : str
        Which result, if it is not the first: a gradient, for example.
    size : float
        Of what is right; errors are graded relative to it.
    """

    case: Case
    observed: Any
    expected: Any
    units: float
    name: str = ""
    size: float = 1.0

    @property
    def z(self) -> Array:
        """The scores, or the queries."""
        return np.asarray(self.case.get("z", self.case.get("query", 0.0)))

    @property
    def error(self) -> float:
        """The largest absolute error; infinite for NaN, or if no numbers came out."""
        a, b = self.observed, self.expected
        if isinstance(a, (str, tuple)) or np.shape(a) != np.shape(b):
            return np.inf if self.units else 0.0
        return float(np.max(difference(a, b), initial=0))

    def grade(self, limit: float, edge: bool, half: bool = False) -> str:
        """The grade of the finding; at an ``edge`` nothing is worse than *edges*."""
        if self.units <= limit:
            return "right"
        if edge or self.case.edge:
            return "edges"
        if half and self.case.long:  # sums that are kept in a half type
            return "imprecise"
        return "wrong" if self.error > (HALF_WRONG if half else WRONG) * self.size else "imprecise"

    def __str__(self) -> str:
        observed, expected, at = self.observed, self.expected, ""
        many = isinstance(expected, np.ndarray) and expected.size > 5
        if many and np.shape(observed) == expected.shape:
            where = np.unravel_index(np.argmax(difference(observed, expected)), expected.shape)
            at = f" at [{', '.join(map(str, where))}]"
            observed, expected = observed[where], expected[where]
        short = text(observed) != text(expected)
        off = [f"off by {self.error:.2g}"] * bool(np.isfinite(self.error))
        if 0 < self.units < np.inf:
            much = f"{self.units:.2g}" if self.units < 1e4 else "> 10000"
            off += [f"{much} × the contract"]
        name = f"{self.name}, " if self.name else ""
        gives = f"{text(observed, short)}{at}, expected {text(expected, short)}"
        return f"{name}{describe(self.case, short)} gives {gives}: {', '.join(off) or 'no number'}"


def describe(case: Case, short: bool = True) -> str:
    """A case in words."""
    if case.words:
        return str(case.words)
    more = f", v = {text(case['g'], short)}" if case.gradients else ""
    return text(np.asarray(case["z"]), short) + more


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


class Seen(NamedTuple):
    """The function's results for a case, their grades, and the arguments of the call."""

    case: Case
    observed: dict[str, Array]
    grades: dict[str, str]
    expected: dict[str, Expected]
    arguments: tuple[dict[str, Array], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class PropertyResult(Judged):
    """The result of a property.

    Attributes
    ----------
    name : str
        The property.
    description : str
        What it says.
    grade : str
        ``"right"``, ``"edges"``, ``"imprecise"`` or ``"wrong"``; or ``"not applicable"``. Half
        types are no more than edges if the function takes a wider type.
    dtype : str
        The float type in which it came out so.
    finding : Finding or None
        The smallest input of that grade, with ``case``, ``z``, ``observed``, ``expected``,
        ``error`` and ``units`` (of the contract of accuracy). If none fails, that with the most
        units.
    worst : Finding or None
        The input of that grade with the largest error, if it is another one.
    cases : int
        How many were tried, in all float types.
    reason : str
        Why it does not apply, or what some cases raised.
    """

    name: str
    description: str
    grade: str
    dtype: str = ""
    finding: Finding | None = None
    worst: Finding | None = None
    cases: int = 0
    reason: str = ""
    grades: dict[str, str] = field(default_factory=dict)  # float type → how bad it is there

    @property
    def verdict(self) -> str:
        """``"passed"``, ``"failed"`` or ``"not applicable"``."""
        return {"right": "passed", "not applicable": self.grade}.get(self.grade, "failed")

    @property
    def passed(self) -> bool:
        """Whether it does not fail above edges."""
        return GRADES.index(self.grade) <= GRADES.index("edges")

    def raise_if_failed(self, strict: bool = False) -> PropertyResult:
        """Raise AssertionError if it failed, with ``strict`` at edges too; then return it."""
        if not self.passed or (strict and self.grade == "edges"):
            raise AssertionError(f"{MARKS[self.grade]} {self.name}  {self}")
        return self

    def __str__(self) -> str:
        if self.finding is None:
            return f"{self.grade}: {self.reason}"
        if self.verdict == "passed":
            observed, s = self.finding.observed, "s" * (self.cases != 1)
            exact = isinstance(observed, str)
            much = observed if exact else f"{self.finding.units:.2g} × the contract"
            return f"{much}, {self.cases} case{s}{f'; {self.reason}' if self.reason else ''}"
        return f"{self.finding} ({self.dtype}){f'; worst: {self.worst}' if self.worst else ''}"


class Reproduction(NamedTuple):
    """A case of a report, to be run again.

    Attributes
    ----------
    arrays : dict
        The arrays of the input by name.
    options : dict
        fn's keywords that are not arrays.
    observed, expected : array, number or str
    script : str
        Ten lines that call a function for the arrays, saved as ``case.npz``.
    """

    arrays: dict[str, Array]
    options: dict[str, Any]
    observed: Any
    expected: Any
    script: str

    def save(self, path: str = "case.npz") -> None:
        """Save the arrays for the script, with what is expected."""
        arrays: dict[str, Any] = {**self.arrays, "expected": self.expected}
        np.savez(path, **arrays)


SCRIPT = """import numpy as np

from mine import fn  # the function that was judged

# {case}
case = np.load("case.npz")  # as report.reproduce(…).save() wrote it
out = fn({arguments})
print(out, case["expected"])
print(np.max(np.abs(out - case["expected"])))"""


@dataclass(frozen=True, eq=False, repr=False)
class Report(Judged):
    """The judgement of an implementation; prints as a table. It is true if it passed.

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
        What is likely wrong: variants of the right function that give the same as this one, or
        where alone it fails.
    notes : tuple of str
        What was found out about the function: how it was called, which shapes it takes, which of
        its parameters were not tried.
    tried : str
        How many cases were tried, and of what size.
    """

    claim: str
    dtypes: tuple[str, ...]
    results: tuple[PropertyResult, ...]
    strict: bool = False
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tried: str = ""
    seen: tuple[Seen, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst grade: ``"right"``, ``"edges"``, ``"imprecise"`` or ``"wrong"``.

        *Edges* is right on ordinary input, and fails for −∞, NaN, scores beyond 20, empty batches,
        the type of the result, or raises an error for some input; or it fails in a half type
        alone, beside wider ones. *Imprecise* are errors beyond the contract, up to 1e-3 of the
        result's size (1e-2 in half types). *Wrong* is an error above that, of values or gradients,
        or an option that always raises one.
        """
        return worst(one.grade for one in self.results)

    @property
    def by_dtype(self) -> dict[str, str]:
        """Float type → the verdict on it alone."""
        return {name: worst(one.grades.get(name, "right") for one in self.results)
                for name in self.dtypes}  # fmt: skip

    @property
    def failures(self) -> dict[str, PropertyResult]:
        """Name → result, of the properties that fail, at edges too."""
        return {one.name: one for one in self.results if one.verdict == "failed"}

    @property
    def passed(self) -> bool:
        """Whether the verdict is ``"right"``, or ``"edges"`` and the check is not strict."""
        return self.verdict in ("right", "edges")[: 1 if self.strict else 2]

    def __str__(self) -> str:
        tried, each = sum(one.finding is not None for one in self.results), self.by_dtype
        fail = f" ({len(self.failures)} of {tried} properties fail)" if self.failures else ""
        dtypes = [x if each[x] == self.verdict else f"{x} {each[x]}" for x in self.dtypes]
        rows = [(f"{MARKS[one.grade]} {one.name}", str(one)) for one in self.results]
        width = max(len(name) for name, _ in rows)
        return "\n".join([
            f"{self.claim}: {self.verdict}{fail}, {', '.join(dtypes)}", f"  tried: {self.tried}",
            *(f"  likely cause: {cause}" for cause in self.causes),
            *(f"  note: {note}" for note in self.notes),
            *(f"  {name:<{width}}  {words}" for name, words in rows),
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The report as words and numbers, for JSON."""

        def number(finding: Finding | None, name: str) -> Any:
            x = finding and getattr(finding, name)
            return x if x is None or np.isfinite(x) else "infinite"

        names = ("claim", "verdict", "passed", "dtypes", "by_dtype", "tried", "causes", "notes")
        return {name: getattr(self, name) for name in names} | {"results": [
            {"name": one.name, "grade": one.grade, "dtype": one.dtype, "cases": one.cases,
             "reason": one.reason, "text": str(one), "error": number(one.finding, "error"),
             "units": number(one.finding, "units")} for one in self.results]}  # fmt: skip

    def reproduce(self, words: str) -> Reproduction:
        """The arrays of a property's input, by its name, or of a case whose description has words.

        Of a property that fails it is the input in the report's line.
        """
        found = next((x.finding for x in self.results if x.name == words and x.finding), None)
        for one in self.seen:
            if one.case is found.case if found else words in describe(one.case):
                first = next(iter(one.expected), "")
                observed = found.observed if found else one.observed[first]
                expected = found.expected if found else one.expected[first].value
                arrays, options = one.arguments
                first_ones = ("z", "y", "query", "key", "value")
                names = {x: f"{x}=" * (x not in first_ones) for x in arrays}
                call = [f'{name}case["{x}"]' for x, name in names.items()]
                call += [f"{x}={y!r}" for x, y in options.items()]
                case = describe(one.case).replace("\n", " ")
                script = SCRIPT.format(case=case, arguments=", ".join(call))
                return Reproduction(arrays, options, observed, expected, script)
        known = ", ".join(repr(one.name) for one in self.results if one.finding is not None)
        raise ValueError(f"no case of that name; properties are {known}, got {words!r:.60}")


@dataclass
class Line:
    """Grades and findings, errors and reasons, collected for one property, with float types."""

    graded: list[tuple[str, str, Finding]] = field(default_factory=list)
    raised: list[tuple[str, CallError]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    count: int = 0

    def result(self, one: Any, wide: bool) -> PropertyResult:
        """The property's result; half types beside a ``wide`` one decide no more than edges."""
        why = "; ".join(dict.fromkeys(self.reasons)) if not self.graded else ""
        if self.raised:
            some = f"{len(self.raised)} of {self.count} cases " if self.graded else ""
            why = f"{some}raised {self.raised[0][1]}"
        graded = self.graded + [
            (grade, dtype, Finding(error.case, str(error), "no error", np.inf))
            for dtype, error in self.raised if (grade := self.grade_of(error, one))]  # fmt: skip
        if not graded:
            why = why or "no such case"
            return PropertyResult(one.name, one.says, "not applicable", reason=why)
        each = {x: worst(grade for grade, dtype, _ in graded if dtype == x)
                for x in dict.fromkeys(dtype for _, dtype, _ in graded)}  # fmt: skip
        capped = [(min(grade, "edges", key=GRADES.index) if wide and dtype in HALF else grade,
                   dtype, finding) for grade, dtype, finding in graded]  # fmt: skip
        grade = worst(x for x, _, _ in capped)
        alike = [(dtype, finding) for x, dtype, finding in capped if x == grade]
        right = grade == "right"
        dtype, finding = max(alike, key=lambda x: x[1].units) if right else alike[0]
        most = max((x for _, x in alike), key=lambda x: x.error)
        much = most if not right and most.error > 2 * finding.error else None
        return PropertyResult(one.name, one.says, grade, dtype, finding, much, self.count, why,
                              each)  # fmt: skip

    def slips(self, one: Any) -> list[CallError]:
        """Errors that are faults: slips of the pen, or of an option that always raises one."""
        return [error for _, error in self.raised if self.grade_of(error, one, slip=True)]

    def grade_of(self, error: CallError, one: Any, slip: bool = False) -> str:
        """The grade of an error: none in a grid, edges, or wrong if it is a slip or always comes;
        none of one that is not a ``slip``, if that is the question."""
        cause, edge = error.__cause__, one.edge or error.case.edge
        shape, unsupported = (isinstance(cause, x) for x in (WrongShape, NotImplementedError))
        always = one.option and not self.graded and not (shape or unsupported or edge)
        if isinstance(cause, (NameError, AttributeError)) or always:
            return "wrong"
        if slip or one.refusable == "always" or (one.refusable and self.graded and not shape):
            return ""
        return "wrong" if (shape or one.vital) and not edge and not unsupported else "edges"
