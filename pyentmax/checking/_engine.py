"""The engine of all checks: cases and variants → properties, grades, causes, and a report.

A *subject* is a function in one library and float type. It makes a case of a few words, calls the
function for it, and knows what is right: arrays by name (``"output"``, ``"dkey"``), each with what
it may be off by. A *property* is a list of cases, the smallest first, and a question that is asked
of each; by default whether the function gives what is right. A *variant* is a known way of being
wrong. It is named as the cause if it gives what the function gives in all cases.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._report import Judged, absolute

Case = dict[str, Any]
# In units of the contract. Bisections and softmaxes that compute in float32 are up to there. In a
# half type 64 units would be more than a probability, so that nothing could fail.
LIMIT, HALF_LIMIT = 64.0, 4.0
WRONG, HALF_WRONG = 1e-3, 1e-2  # of the result's size: an error that is more than imprecision
ORDINARY, HALF_ORDINARY = 20.0, 10.0  # larger scores are edges; e^11.1 is infinite in float16
LONG_SUM = 0.25  # spacings at 1 times the terms of a sum: more, and none in that type is exact
GRADES = ("not applicable", "right", "edges", "imprecise", "wrong")  # the worst counts
MARKS = dict(zip(GRADES, "–✓▵≈✗", strict=True))
PAIRED_COST = 2e4  # entries of a case up to which two causes at a time are tried
KINDS_OF_CASES = 12  # that are asked which variants change them, before these are paired
ROUNDS = 2  # times the limit that a variant may be off by: it rounds otherwise than fn


class CallError(Exception):
    """What the function raised, and for which case."""

    def __init__(self, case: Case, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}")
        self.case = case


class WrongShape(ValueError):
    """The function gave a result of another shape."""


class Missing(Exception):
    """Why a case does not apply."""


class Expected(NamedTuple):
    """What is right, what one unit of the contract is there, and the size that errors count by."""

    value: Any
    allowed: Any
    size: float | None = None


class Cause(NamedTuple):
    """A known way of being wrong: its name, what becomes of a case or a result, and the cure."""

    name: str
    variant: Callable[..., Any]
    cure: str

    def __str__(self) -> str:
        return f"{self.name}: {self.cure}"


class Finding(NamedTuple):
    """What came out for one case, and what should have.

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
        """How bad it is; at an ``edge`` nothing is worse than that."""
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
    v = f", v = {text(case['v'], short)}" if "v" in case else ""
    return f"{words}{v}"


class Seen(NamedTuple):
    """What the function gave for a case, and how it was graded."""

    property: str
    case: Case
    observed: dict[str, Array]
    grades: dict[str, str]


# --- questions ------------------------------------------------------------------------------------
def right(subject: Any, case: Case) -> Iterator[Finding]:
    """Whether the function gives what is right."""
    observed = subject.observe(case)
    subject.observed.append((case, observed))
    for name, expected in subject.expect(case).items():
        if name in observed:
            yield measure(subject, case, name, observed[name], expected)


def measure(subject: Any, case: Case, name: str, observed: Any, expected: Expected) -> Finding:
    """What came out against what should have, in units of what it may be off by."""
    value, allowed, size = expected
    size = float(np.max(np.abs(value), initial=0)) if size is None else size
    if (tolerance := subject.settings.tolerances.get(subject.dtype)) is not None:
        allowed = tolerance * size / subject.limit
    error = np.array(np.nan)
    if np.shape(observed) == np.shape(value):
        error = np.where(np.equal(observed, value), 0, np.abs(np.subtract(observed, value)))
    units = np.max(error / allowed, initial=0)
    units = float(np.inf if np.isnan(units) else units)
    return Finding(case, observed, value, units, "" if name == subject.primary[0] else name, size)


def same(case: Case, observed: Any, expected: Any, equal: bool | None = None) -> Finding:
    """What came out against what should have, where nothing lies between right and wrong."""
    equal = observed == expected if equal is None else equal
    return Finding(case, observed, expected, 0.0 if equal else np.inf)


def float_type(subject: Any, case: Case) -> Iterator[Finding]:
    """Whether the result has the float type of the arrays, and its precision."""
    name = subject.type_of(subject.first(subject.call(case, subject.native(case))))
    words = " of float32's precision" * (subject.single and name == subject.dtype)
    yield same(case, name + words, subject.dtype)


def inputs_unchanged(subject: Any, case: Case) -> Iterator[Finding]:
    """Whether fn writes into what it gets."""
    arrays = [subject.array(x, case.get("layout", "")) for x in subject.arrays_of(case)]
    subject.call(case, arrays)
    after = [subject.numbers(x) for x in arrays]
    before = [subject.numbers(subject.array(x)) for x in subject.arrays_of(case)]
    intact = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, after, strict=True))
    yield same(case, "as they were" if intact else "inputs changed", "as they were")


def results_kept(subject: Any, case: Case) -> Iterator[Finding]:
    """Whether the result of a call survives the next one, which gets other arrays of that shape."""
    arrays = [subject.array(x) for x in subject.arrays_of(case)]
    out = subject.first(subject.call(case, arrays))
    before = subject.numbers(out).copy()
    subject.call(case, _others(subject, case))
    intact = np.array_equal(before, subject.numbers(out), equal_nan=True)
    yield same(case, "changed by the next call" if not intact else "kept", "kept")


def _others(subject: Any, case: Case) -> list[Any]:
    """Arrays of the same shapes, and other numbers."""
    return [subject.array(np.where(np.isfinite(x), -x, 0) if x.dtype.kind == "f" else x)
            for x in map(np.asarray, subject.arrays_of(case))]  # fmt: skip


def arrays_read_anew(subject: Any, case: Case) -> Iterator[Finding]:
    """Whether a call sees what was written into its arrays since the last one."""
    arrays, others = ([subject.array(x) for x in subject.arrays_of(case)], _others(subject, case))
    subject.call(case, arrays)
    for array, other in zip(arrays, others, strict=True):
        array[...] = other
    again, right = (subject.numbers(subject.first(subject.call(case, x))) for x in (arrays, others))
    name = subject.primary[0]
    yield measure(subject, case, name, again, subject.expect(case)[name]._replace(value=right))


def repeated(subject: Any, case: Case) -> Iterator[Finding]:
    """Whether a second call gives the same, up to the order of sums."""
    first, second = subject.observe(case), subject.observe(case)
    for name, expected in subject.expect(case).items():
        if name in first:
            yield measure(subject, case, name, second[name], expected._replace(value=first[name]))


class Property(NamedTuple):
    """A property: what it says, the words of its cases, and what is asked of each.

    With ``edge`` nothing that fails is worse than *edges*. Cases that raise an error are no failure
    if ``refusable`` is ``"some"`` and another case of the property does not raise, or if it is
    ``"all"``. Float types in which not all is tried get the cases of ``core`` properties.
    """

    name: str
    says: str
    cases: Any
    question: Callable[..., Iterator[Finding]] = right
    edge: bool = False
    refusable: str = ""
    core: bool = False


# --- results --------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class PropertyResult(Judged):
    """How a property came out.

    Attributes
    ----------
    name : str
        The property.
    description : str
        What it says.
    grade : str
        ``"right"``, ``"edges"``, ``"imprecise"`` or ``"wrong"``; or ``"not applicable"``.
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
    """What holds of an implementation; prints as a table. It is true if it passed.

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
        What was found out about the function: how it was called, which shapes it takes.
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
    subjects: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def verdict(self) -> str:
        """The worst grade: ``"right"``, ``"edges"``, ``"imprecise"`` or ``"wrong"``.

        *Edges* is right on ordinary input, and fails for −∞, NaN, scores beyond 20, empty batches,
        the type of the result, or raises an error for an option or a shape. *Imprecise* are errors
        beyond the contract, up to 1e-3 of the result's size (1e-2 in half types). *Wrong* is an
        error above that, of values or gradients.
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

    def __str__(self) -> str:
        tried = sum(one.finding is not None for one in self.results)
        fail = f" ({len(self.failures)} of {tried} properties fail)" if self.failures else ""
        rows = [(f"{MARKS[one.grade]} {one.name}", str(one)) for one in self.results]
        width = max(len(name) for name, _ in rows)
        return "\n".join([
            f"{self.claim}: {self.verdict}{fail}, {', '.join(self.dtypes)}",
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
            "dtypes": [*self.dtypes], "tried": self.tried, "causes": [*self.causes],
            "notes": [*self.notes], "results": results,
        }  # fmt: skip

    def reproduce(self, words: str) -> Reproduction:
        """The arrays of a property's input, by its name, or of a case whose description has words.

        Of a property that fails it is the input in the report's line.
        """
        for one in self.results:
            if one.name == words and one.finding is not None:
                found = one.finding
                return _reproduction(self.subjects, found.case, found.observed, found.expected)
        for subject in self.subjects:
            for seen in subject.seen:
                if seen.property == words or words in describe(seen.case):
                    name = subject.primary[0]
                    expected = subject.expect(seen.case)[name].value
                    return _reproduction(self.subjects, seen.case, seen.observed[name], expected)
        names = ", ".join(repr(one.name) for one in self.results if one.finding is not None)
        raise ValueError(f"no case of that name; properties are {names}, got {words!r:.60}")


def _reproduction(subjects: Any, case: Case, observed: Any, expected: Any) -> Reproduction:
    arrays, options = subjects[0].arguments(case)
    words = ", ".join(
        [f'case["{name}"]' for name in arrays if name in ("z", "y", *("query", "key", "value"))]
        + [f'{name}=case["{name}"]' for name in arrays if name in subjects[0].spellings]
        + [f"{name}={value!r}" for name, value in options.items()]
    )
    script = "\n".join([
        "import numpy as np", "", "from mine import fn  # the function that was judged", "",
        f"# {describe(case)}".replace("\n", " "),
        'case = np.load("case.npz")  # as report.reproduce(…).save() wrote it',
        f"out = fn({words})",
        'print(out, case["expected"])', 'print(np.max(np.abs(out - case["expected"])))',
    ])  # fmt: skip
    return Reproduction(arrays, options, observed, expected, script)


# --- the examination ------------------------------------------------------------------------------
def examine(properties: Sequence[Property], subjects: Sequence[Any]) -> tuple[PropertyResult, ...]:
    """Every property in every float type."""
    return tuple(_examine(one, subjects) for one in properties)


def _examine(one: Property, subjects: Sequence[Any]) -> PropertyResult:
    graded: list[tuple[str, str, Finding]] = []
    reasons: list[str] = []
    raised: list[tuple[str, CallError]] = []
    count = 0
    for subject in subjects:
        if not (subject.full or one.core):
            continue
        cases = one.cases(subject) if callable(one.cases) else one.cases
        for words in cases:
            try:
                case = subject.make(**words)
            except Missing as reason:
                reasons.append(str(reason))
                continue
            count += 1
            try:
                findings = [*subject.ask(one.question, case)]
            except CallError as error:
                raised.append((subject.dtype, error))
                continue
            grades: dict[str, str] = {}
            for finding in findings:
                grade = finding.grade(subject.limit, one.edge, subject.half)
                graded.append((grade, subject.dtype, finding))
                name = finding.name or subject.primary[0]
                grades[name] = max(grade, grades.get(name, "right"), key=GRADES.index)
            for seen_case, observed in subject.observed:
                subject.seen.append(Seen(one.name, seen_case, observed, grades))
            subject.observed.clear()
    why = "; ".join(dict.fromkeys(reasons)) if not graded else ""
    if raised:
        n = f"{len(raised)} of {count} cases raised" if graded else "raised"
        why = f"{n} {raised[0][1]}"
    refused = one.refusable == "all" or (one.refusable == "some" and graded)
    for dtype, failure in raised:
        shape = isinstance(failure.__cause__, WrongShape)
        if shape or not refused:
            ill = shape or one.name in subjects[0].vital
            grade = "wrong" if ill and not (one.edge or failure.case.get("edge")) else "edges"
            finding = Finding(failure.case, str(failure), "no error", np.inf)
            graded.append((grade, dtype, finding))
    if not graded:
        return PropertyResult(one.name, one.says, "not applicable", reason=why or "no such case")
    grade = max((grade for grade, _, _ in graded), key=GRADES.index)
    alike = [(dtype, finding) for each, dtype, finding in graded if each == grade]
    if grade == "right":
        dtype, finding = max(alike, key=lambda each: each[1].units)
        return PropertyResult(one.name, one.says, grade, dtype, finding, None, count, why)
    dtype, finding = alike[0]
    worst = max((each for _, each in alike), key=lambda each: each.error)
    much = worst if worst.error > 2 * finding.error else None
    return PropertyResult(one.name, one.says, grade, dtype, finding, much, count, why)


# --- causes ---------------------------------------------------------------------------------------
BAD = ("wrong", "imprecise")


def causes(subjects: Sequence[Any]) -> tuple[tuple[str, ...], str]:
    """What explains everything that fails, and a note if nothing does.

    Edges are left out unless nothing else fails; gradients unless all values are right.
    """
    grades = {grade for one in subjects for seen in one.seen for grade in seen.grades.values()}
    bad = [grade for grade in BAD if grade in grades] or ["edges"]
    for subject in subjects:
        primary = {*subject.primary}
        for values in (True, False):
            cases = []
            for one in subject.seen:
                graded = {
                    name: grade for name, grade in one.grades.items() if (name in primary) == values
                }
                if graded and ("edges" in bad or "edges" not in graded.values()):
                    fails = any(grade in bad for grade in graded.values())
                    known = {name: one.observed[name] for name in graded if name in one.observed}
                    cases.append((not fails, one.case.get("cost", 0.0), one.case, known))
            cases.sort(key=lambda one: one[:2])
            if cases and not cases[0][0]:
                with np.errstate(all="ignore"):
                    return _explain(subject, cases, bad == ["edges"])
    return (), ""


def _explain(subject: Any, seen: list[Any], edges: bool) -> tuple[tuple[str, ...], str]:
    cases = {frozenset(case): case for fine, cost, case, _ in seen
             if not fine and cost <= PAIRED_COST}  # fmt: skip
    small = seen[0][1] <= PAIRED_COST and subject.paired and not edges
    changing = [{id(one) for one in subject.variants if _changes(subject, one, case)}
                for case in [seen[0][2], *cases.values()][:KINDS_OF_CASES] if small]  # fmt: skip
    able = [one for one in subject.variants if any(id(one) in some for some in changing)]
    pairs = (two for two in combinations(able, 2) if changing[0] & {*map(id, two)})
    for variants in chain(((one,) for one in subject.variants), pairs):
        explained = 0
        for fine, _, case, observed in seen:
            says = _explains(subject, variants, case, observed, fine)
            if says is False:
                break
            explained += says is True and not fine
        else:
            if explained:
                return tuple(map(str, variants)), ""
    none = f"none of the {len(subject.variants)} known faults explains what fails"
    return (), "" if edges else none


def _explains(
    subject: Any, variants: Any, case: Case, observed: dict[str, Any], fine: bool
) -> bool | None:
    """Whether variants give what was seen; None if they say nothing about the case.

    What is right for a case that fails explains nothing, however near it is.
    """
    with suppress(ValueError, KeyError, ZeroDivisionError, NotImplementedError):
        predicted = subject.predict(variants, case, observed)
        if predicted is None:
            return None
        limit = subject.limit * ROUNDS
        if not fine and _right(subject, case, predicted):
            return False
        return all(
            name in predicted and _agrees(x, predicted[name], limit) for name, x in observed.items()
        )
    return False


def _right(subject: Any, case: Case, predicted: dict[str, Expected]) -> bool:
    right = subject.expect(case)
    return all(_agrees(one.value, right[name], subject.limit) for name, one in predicted.items())


def _changes(subject: Any, variant: Any, case: Case) -> bool:
    """Whether a variant gives anything but what is right for a case."""
    with suppress(ValueError, KeyError, ZeroDivisionError, NotImplementedError):
        return not _right(subject, case, subject.predict((variant,), case, {}))
    return False


def _agrees(observed: Array, predicted: Expected, limit: float) -> bool:
    value, allowed, _ = predicted
    if np.shape(observed) != np.shape(value):
        return False
    both = np.isnan(observed) & np.isnan(value)
    near = np.abs(np.subtract(observed, value)) <= limit * allowed
    return bool(np.all(near | both | (observed == value)))


class PropertyCheck:
    """One property of a check, which runs when the first of them is asked for its result."""

    def __init__(self, name: str, report: Callable[[], Report]) -> None:
        self.name, self.report = name, report

    def __repr__(self) -> str:
        return self.name

    def raise_if_failed(self, strict: bool = False) -> PropertyResult:
        """As `PropertyResult.raise_if_failed`."""
        result = next(one for one in self.report().results if one.name == self.name)
        return result.raise_if_failed(strict)


def cases(check: Callable[..., Any], *arguments: Any, **options: Any) -> list[PropertyCheck]:
    """The properties of a check, for a test of each of them.

    Parameters
    ----------
    check : callable
        `check_mapping`, `check_loss` or `check_attention`.
    *arguments, **options
        What it is called with, once, when the first result is asked for.

    Returns
    -------
    list of PropertyCheck
        Their text is the property's name. ``raise_if_failed()`` raises an AssertionError with the
        property's line if it is wrong or imprecise, ``raise_if_failed(strict=True)`` at edges too.

    Examples
    --------
    >>> import pyentmax as pe
    >>> some = cases(pe.check_mapping, pe.softmax, "softmax", dtypes=["float32"])
    >>> some[:3]
    [row lengths, exact values, rows and lengths]
    >>> some[1].raise_if_failed(strict=True).grade
    'right'

    In a test::

        @pytest.mark.parametrize("case", cases(pe.check_attention, attention), ids=str)
        def test_attention(case):
            case.raise_if_failed(strict=True)
    """
    properties = getattr(sys.modules[check.__module__], "PROPERTIES", None)
    if properties is None:
        raise TypeError(
            f"check must be check_mapping, check_loss or check_attention, got {check!r}"
        )
    report = cache(lambda: check(*arguments, **options))
    return [PropertyCheck(one.name, report) for one in properties]


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
