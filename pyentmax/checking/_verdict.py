"""Judgements: findings, a grade for each property and float type, and a report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import HALF
from pyentmax.checking._report import Judged, absolute

Case = dict[str, Any]
WRONG, HALF_WRONG = 1e-3, 1e-2  # of the result's size: an error that is more than imprecision
GRADES = ("not applicable", "right", "edges", "imprecise", "wrong")  # the worst counts
MARKS = dict(zip(GRADES, "–✓▵≈✗", strict=True))


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


class Expected(NamedTuple):
    """The right value, one unit of the contract there, and the size that errors are relative to."""

    value: Any
    allowed: Any
    size: float | None = None


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
        observed, expected = self.observed, self.expected
        if isinstance(observed, (str, tuple)) or np.shape(observed) != np.shape(expected):
            return np.inf if self.units else 0.0
        with np.errstate(invalid="ignore"):  # ∞ − ∞
            error = np.where(
                np.equal(observed, expected), 0, absolute(np.subtract(observed, expected))
            )
        return float(np.max(error, initial=0))

    def grade(self, limit: float, edge: bool, half: bool = False) -> str:
        """The grade of the finding; at an ``edge`` nothing is worse than *edges*."""
        if self.units <= limit:
            return "right"
        if edge or self.case.get("edge"):
            return "edges"
        if half and self.case.get("long"):  # sums that are kept in a half type
            return "imprecise"
        return "wrong" if self.error > (HALF_WRONG if half else WRONG) * self.size else "imprecise"

    def __str__(self) -> str:
        observed, expected = self.observed, self.expected
        at = ""
        if isinstance(expected, np.ndarray) and expected.size > 5 and np.size(observed):
            if np.shape(observed) == expected.shape:
                error = absolute(np.where(np.equal(observed, expected), 0, observed - expected))
                where = np.unravel_index(np.argmax(error), expected.shape)
                at = f" at [{', '.join(map(str, where))}]"
                observed, expected = observed[where], expected[where]
        short = text(observed) != text(expected)
        off = [f"off by {self.error:.2g}"] if np.isfinite(self.error) else []
        if 0 < self.units < np.inf:
            much = f"{self.units:.2g}" if self.units < 1e4 else "> 10000"
            off += [f"{much} × the contract"]
        name = f"{self.name}, " if self.name else ""
        gives = f"{text(observed, short)}{at}, expected {text(expected, short)}"
        return f"{name}{describe(self.case, short)} gives {gives}: {', '.join(off) or 'no number'}"


def describe(case: Case, short: bool = True) -> str:
    """A case in words."""
    words = str(case.get("words", "")) or text(np.asarray(case["z"]), short)
    return f"{words}, v = {text(case['g'], short)}" if case.get("gradients") and not (
        case.get("words")) else words  # fmt: skip


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

    property: str
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
        observed, units = self.finding.observed, self.finding.units
        cases = f"{self.cases} case{'s' * (self.cases != 1)}"
        if self.verdict == "passed":
            much = observed if isinstance(observed, str) else f"{units:.2g} × the contract"
            return f"{much}, {cases}{f'; {self.reason}' if self.reason else ''}"
        worst = "" if self.worst is None else f"; worst: {self.worst}"
        return f"{self.finding} ({self.dtype}){worst}"


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
    seen: tuple[Seen, ...] = field(default=(), repr=False)

    @property
    def verdict(self) -> str:
        """The worst grade: ``"right"``, ``"edges"``, ``"imprecise"`` or ``"wrong"``.

        *Edges* is right on ordinary input, and fails for −∞, NaN, scores beyond 20, empty batches,
        the type of the result, or raises an error for some input; or it fails in a half type
        alone, beside wider ones. *Imprecise* are errors beyond the contract, up to 1e-3 of the
        result's size (1e-2 in half types). *Wrong* is an error above that, of values or gradients,
        or an option that always raises one.
        """
        return max(["right", *(one.grade for one in self.results)], key=GRADES.index)

    @property
    def by_dtype(self) -> dict[str, str]:
        """Float type → the verdict on it alone."""
        return {name: max(("right", *(one.grades.get(name, "right") for one in self.results)),
                          key=GRADES.index) for name in self.dtypes}  # fmt: skip

    @property
    def failures(self) -> dict[str, PropertyResult]:
        """Name → result, of the properties that fail, at edges too."""
        return {one.name: one for one in self.results if one.verdict == "failed"}

    @property
    def passed(self) -> bool:
        """Whether the verdict is ``"right"``, or ``"edges"`` and the check is not strict."""
        return self.verdict in ("right", "edges")[: 1 if self.strict else 2]

    def __str__(self) -> str:
        tried = sum(one.finding is not None for one in self.results)
        fail = f" ({len(self.failures)} of {tried} properties fail)" if self.failures else ""
        each = self.by_dtype
        dtypes = [x if each[x] == self.verdict else f"{x} {each[x]}" for x in self.dtypes]
        rows = [(f"{MARKS[one.grade]} {one.name}", str(one)) for one in self.results]
        width = max(len(name) for name, _ in rows)
        return "\n".join([
            f"{self.claim}: {self.verdict}{fail}, {', '.join(dtypes)}",
            f"  tried: {self.tried}",
            *(f"  likely cause: {cause}" for cause in self.causes),
            *(f"  note: {note}" for note in self.notes),
            *(f"  {name:<{width}}  {words}" for name, words in rows),
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The report as words and numbers, for JSON."""

        def number(x: float | None) -> float | str | None:
            return x if x is None or np.isfinite(x) else "infinite"

        results = [
            {"name": one.name, "grade": one.grade, "dtype": one.dtype, "cases": one.cases,
             "reason": one.reason, "text": str(one),
             "error": number(None if one.finding is None else one.finding.error),
             "units": number(None if one.finding is None else one.finding.units)}
            for one in self.results
        ]  # fmt: skip
        return {
            "claim": self.claim, "verdict": self.verdict, "passed": self.passed,
            "dtypes": [*self.dtypes], "by_dtype": self.by_dtype, "tried": self.tried,
            "causes": [*self.causes], "notes": [*self.notes], "results": results,
        }  # fmt: skip

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
                return _reproduction(one, observed, expected)
        names = ", ".join(repr(one.name) for one in self.results if one.finding is not None)
        raise ValueError(f"no case of that name; properties are {names}, got {words!r:.60}")


def _reproduction(one: Seen, observed: Any, expected: Any) -> Reproduction:
    arrays, options = one.arguments
    first = ("z", "y", "query", "key", "value")
    words = ", ".join(
        [f'case["{name}"]' if name in first else f'{name}=case["{name}"]' for name in arrays]
        + [f"{name}={value!r}" for name, value in options.items()]
    )
    script = "\n".join([
        "import numpy as np", "", "from mine import fn  # the function that was judged", "",
        f"# {describe(one.case)}".replace("\n", " "),
        'case = np.load("case.npz")  # as report.reproduce(…).save() wrote it',
        f"out = fn({words})",
        'print(out, case["expected"])', 'print(np.max(np.abs(out - case["expected"])))',
    ])  # fmt: skip
    return Reproduction(arrays, options, observed, expected, script)


class Raised(NamedTuple):
    """An error of fn, and the float type that it was called in."""

    dtype: str
    error: CallError


@dataclass
class Line:
    """Findings, errors and reasons, collected for one property."""

    graded: list[tuple[str, str, Finding]] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    count: int = 0

    def result(self, one: Any, wide: bool) -> PropertyResult:
        """The property's result; half types beside a ``wide`` one decide no more than edges."""
        graded = [*self.graded]
        why = "; ".join(dict.fromkeys(self.reasons)) if not graded else ""
        if self.raised:
            n = f"{len(self.raised)} of {self.count} cases raised" if graded else "raised"
            why = f"{n} {self.raised[0].error}"
        for dtype, error in self.raised:
            grade = _grade_of(error, one, bool(self.graded))
            if grade:
                finding = Finding(error.case, str(error), "no error", np.inf)
                graded.append((grade, dtype, finding))
        if not graded:
            why = why or "no such case"
            return PropertyResult(one.name, one.says, "not applicable", reason=why)
        own = {dtype: max((x for x, y, _ in graded if y == dtype), key=GRADES.index)
               for dtype in dict.fromkeys(y for _, y, _ in graded)}  # fmt: skip
        capped = [(min(x, "edges", key=GRADES.index) if wide and y in HALF else x, y, finding)
                  for x, y, finding in graded]  # fmt: skip
        grade = max((x for x, _, _ in capped), key=GRADES.index)
        alike = [(dtype, finding) for x, dtype, finding in capped if x == grade]
        dtype, finding = alike[0]
        if grade == "right":
            dtype, finding = max(alike, key=lambda each: each[1].units)
        worst = max((each for _, each in alike), key=lambda each: each.error)
        much = worst if grade != "right" and worst.error > 2 * finding.error else None
        return PropertyResult(
            one.name, one.says, grade, dtype, finding, much, self.count, why, own
        )


def slip(error: CallError, one: Any, graded: bool) -> bool:
    """Whether an error is a fault: a slip of the pen, or one that an option always raises."""
    cause = error.__cause__
    if isinstance(cause, (NotImplementedError, WrongShape)) or one.edge or error.case.get("edge"):
        return isinstance(cause, (NameError, AttributeError))
    return isinstance(cause, (NameError, AttributeError)) or (one.option and not graded)


def _grade_of(error: CallError, one: Any, graded: bool) -> str:
    """The grade of an error: none in a grid, edges, or wrong if it is a slip or always comes."""
    cause, edge = error.__cause__, one.edge or error.case.get("edge")
    if slip(error, one, graded):
        return "wrong"
    some = one.refusable and graded and not isinstance(cause, WrongShape)
    if one.refusable == "always" or some:
        return ""
    wrong = isinstance(cause, WrongShape) or one.vital
    return "wrong" if wrong and not edge and not isinstance(cause, NotImplementedError) else "edges"
