"""The judge of anybody's mapping, loss and attention: cases, grades, causes, a report."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from unittest import SkipTest

from pyentmax.checking import _questions as ask
from pyentmax.checking import _verdict as v
from pyentmax.checking._attention import ALIGNMENTS, KINDS, LAYOUTS, Attention
from pyentmax.checking._faults import explain
from pyentmax.checking._libraries import SPACINGS
from pyentmax.checking._loss import TARGETS, Loss, Y, Z
from pyentmax.checking._rows import Rows
from pyentmax.checking._subject import Settings, Subject, fitting, quiet
from pyentmax.checking._truths import truth
from pyentmax.reference.fenchel_young import fenchel_young_loss
from pyentmax.reference.mapping import AnyMapping as Mapping

R = TypeVar("R", bound=v.Report)


class MappingReport(v.Report):
    __doc__ = v.Report.__doc__


class LossReport(v.Report):
    __doc__ = v.Report.__doc__


@dataclass(frozen=True, eq=False, repr=False)
class AttentionReport(v.Report):
    """The judgement of an attention; as `MappingReport`, with

    Attributes
    ----------
    causal : str
        Where its causal mask is aligned if there are more keys than queries, or fewer:
        ``"bottom-right"``, ``"top-left"``, or ``""`` if it has none.
    """

    causal: str = ""


# --- the examination ------------------------------------------------------------------------------
def _ask(u: Subject, one: Any, words: Any, lines: dict[str, v.Line]) -> v.Seen | None:
    """A question of a case; gradients go to a line of their own if the operator says so."""
    grades: dict[str, str] = {}
    touched, case = set(), v.Case()
    try:
        case = u.operator.make(u, **words)
        for finding in (one.ask or ask.right)(u, case):
            grade, name = finding.grade(u.limit, one.edge, u.half), finding.name
            inside = one.edge or one.cause or case.edge or name in ("sum", "")
            line = one.name if inside else u.operator.line(name) or one.name
            lines[line].graded.append((grade, u.dtype, finding))
            touched.add(line)
            name = name or u.operator.result
            grades[name] = v.worst((grade, grades.get(name, "right")))
    except v.Missing as reason:
        lines[one.name].reasons.append(str(reason))
    except v.CallError as error:
        inside = one.edge or one.cause or not error.gradient
        line = one.name if inside else u.operator.line("") or one.name
        lines[line].count += line == one.name and line not in touched
        lines[line].raised.append((u.dtype, error))
    for line in touched:
        lines[line].count += 1
    found, expected = case.pop("observed", {}), case.pop("expected", {})
    return v.Seen(case, found, grades if found else {}, expected,
                  u.operator.given(u, case)) if touched else None  # fmt: skip


def judge(kind: type[R], what: str, operator: Any, fn: Any, own_vjp: Any,
          mapping: str | Mapping, parameters: dict[str, Any], settings: Any,
          names: dict[str, str] | None = None) -> R:  # fmt: skip
    """The report on a function: the first form of it that fits is examined."""
    if not callable(fn):
        raise TypeError(f"fn must be a function, got {fn!r:.60}")
    if inspect.isclass(fn):
        raise TypeError(f"fn is the class {fn.__name__}; pass an instance, {fn.__name__}(…)")
    dtypes, device, seed, tolerances, strict = settings
    for name, x in (tolerances or {}).items():
        if name not in SPACINGS or not (isinstance(x, (int, float)) and x > 0):
            known = ", ".join(SPACINGS)
            raise ValueError(
                f"tolerances must be numbers above 0 for {known}, got {name!r}: {x!r:.40}"
            )
    record = truth(mapping, parameters)
    parameters = {name: parameters[name] for name in record.parameters}
    with quiet():
        subjects = fitting(Subject(
            fn=fn, own_vjp=own_vjp, operator=operator, record=record, parameters=parameters,
            settings=Settings(dtypes, device, seed, dict(tolerances or {}), strict),
            named=names or {}))  # fmt: skip
        lines = {one.name: v.Line() for one in operator.properties}
        seen: dict[str, list[v.Seen]] = {}
        for u in subjects:
            asked = (_ask(u, one, words, lines) for one in operator.properties
                     if u.full or one.core
                     for words in (one.cases(u) if callable(one.cases) else one.cases))  # fmt: skip
            seen[u.dtype] = [one for one in asked if one]
        for one in operator.properties:  # the line of gradients has no cases of its own
            if not one.cases and not (lines[one.name].graded or lines[one.name].raised):
                lines[one.name].reasons = [subjects[0].no_gradients]
        wide = not all(u.half for u in subjects)
        results = tuple(lines[one.name].result(one, wide) for one in operator.properties)
        slips = [f"{one.name}: {error}" for one in operator.properties
                 for error in lines[one.name].slips(one)]  # fmt: skip
        causes, none = explain(subjects, seen, results, operator.properties, slips)
    first = subjects[0]
    title = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    sizes = ", ".join(f"{name} {min(x)} to {max(x)}" for name, x in first.sizes.items())
    more = {"causal": first.facts["aligned"]} if "aligned" in first.facts else {}
    return kind(
        f"{what}{record.name}" + f" ({title})" * bool(title), tuple(u.dtype for u in subjects),
        results, strict, causes, (*first.notes, *([none] if none else ())),
        f"{sum(map(len, seen.values()))} cases, {sizes}",
        tuple(one for u in subjects for one in seen[u.dtype]), **more,
    )  # fmt: skip


def check_mapping(
    fn: Callable[..., Any], mapping: str | Mapping, *,
    vjp: Callable[[Any, Any], Any] | None = None, shapes: Sequence[tuple[int, int]] = (),
    dtypes: Sequence[str] | None = None, device: Any = None, seed: int = 0,
    tolerances: Table[str, float] | None = None, strict: bool = False, **parameters: Any,
) -> MappingReport:  # fmt: skip
    """Check anybody's implementation of a mapping, in any array library.

    Some hundred rows, the smallest first, go through the function, and through this library's own
    in double precision. A property fails where the function is off by more than 64 times what this
    library's contract of accuracy allows in that float type (twice in float16 and bfloat16).
    Each has a grade; the worst is the verdict. The function is called at most 4,000 times.

    Parameters
    ----------
    fn : callable
        From an array of scores to one of probabilities (or several arrays, the first of which are
        the probabilities), the rows along its last axis, of NumPy, PyTorch, JAX, TensorFlow, Keras
        or CuPy; of the libraries that are already imported, it is the one whose arrays fn returns
        or takes. If fn has a parameter ``axis`` or ``dim``, every axis is checked.
    mapping : str or Mapping
        What it claims to be: the name of a row of `pyentmax.MAPPINGS`, ``"softmax1"``,
        e^z / (1 + Σ e^z), ``"softpick"``, relu(e^z − 1) / Σ |e^z − 1|, or a `Mapping`.
    vjp : callable, optional
        From p, which fn gave, and v to Jᵀv, both fn's arrays. If not given, PyTorch, JAX and
        TensorFlow differentiate fn themselves.
    shapes : sequence of (rows, scores), optional
        Sizes to try beside 1 to 300 rows of 1 to 40,000 scores.
    dtypes : sequence of str, optional
        The float types to look at, of ``"float64"``, ``"float32"``, ``"float16"`` and
        ``"bfloat16"``; by default all that fn takes. Everything is tried in the widest one and in
        one half type, the most telling cases in the others.
    device : optional
        Where arrays of PyTorch and JAX are put.
    seed : int
        Draws the random rows.
    tolerances : dict, optional
        Float type → what a result may be off by, relative to its size, in place of the contract.
    strict : bool
        Whether failures at edges count: −∞, NaN, scores beyond 20, empty batches, errors raised.
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
    >>> report = check_mapping(softmax, "softmax", dtypes=["float32"])
    >>> report.verdict, report.passed, list(report.failures)
    ('edges', True, ['shifts', 'tiny and huge scores'])
    >>> print(report.failures["shifts"])
    [100, 100.5] gives [nan, nan], expected [0.377541, 0.622459]: no number (float32)
    """
    settings = (dtypes, device, seed, tolerances, strict)
    return judge(MappingReport, "", Rows(shapes), fn, vjp, mapping, parameters, settings)


def check_loss(
    fn: Callable[..., Any], mapping: str | Mapping, *, grad: Callable[..., Any] | None = None,
    targets: str | None = None, shapes: Sequence[tuple[int, int]] = (),
    dtypes: Sequence[str] | None = None, device: Any = None, seed: int = 0,
    tolerances: Table[str, float] | None = None, strict: bool = False, **parameters: Any,
) -> LossReport:  # fmt: skip
    """Check anybody's implementation of a Fenchel-Young loss, in any array library.

    The function is compared with `pyentmax.fenchel_young_loss` in double precision: labels and soft
    targets, reductions, −∞, shifts, masks, ignored and smoothed labels, batches of up to 300 rows
    and 4,099 classes, with the gradient. It is called at most 6,000 times.

    Parameters
    ----------
    fn : callable
        ``fn(z, y)`` of scores and labels, of one row or of a batch with the rows along the last
        axis; which of them is found out, and so is whether the losses are averaged or summed. Its
        parameters ``reduction``, ``ignore_index``, ``label_smoothing`` and ``mask`` are tried if it
        has them, with the meaning that they have in `pyentmax.fenchel_young_loss`.
    mapping : str or Mapping
        Whose loss it claims to be.
    grad : callable, optional
        ``grad(z, y)``, the gradient in z of what fn returns, summed. If not given, PyTorch, JAX and
        TensorFlow differentiate fn; for other libraries the gradient is not tried.
    targets : {"labels", "soft"}, optional
        Whether y are labels or distributions of the scores' shape. If not given, it is found out.
    shapes : sequence of (rows, classes), optional
        Sizes to try beside the usual ones.
    dtypes, device, seed, tolerances, strict, **parameters : as in `check_mapping`

    Returns
    -------
    LossReport
        As `MappingReport`.

    Examples
    --------
    >>> import numpy as np
    >>> import pyentmax as pe
    >>> def loss(z, y):
    ...     p = pe.sparsemax(z)
    ...     return np.sum(p * z) - np.sum(p**2) / 2 - z[y]  # ½ is missing
    >>> report = check_loss(loss, "sparsemax")
    >>> print(report.verdict, report.causes, report.notes)
    wrong ('Ω(y) left out: ½‖p‖² ...) ('fn takes one row; it was called row by row',)
    """
    if targets not in (None, *TARGETS):
        raise ValueError(f'targets must be "labels", "soft" or None, got {targets!r}')
    fenchel_young_loss(Z, Y, truth(mapping, parameters), **parameters)  # an error if it has no loss
    settings = (dtypes, device, seed, tolerances, strict)
    operator = Loss(targets, shapes)
    return judge(LossReport, "loss of ", operator, fn, grad, mapping, parameters, settings)


def check_attention(
    fn: Callable[..., Any], mapping: str | Mapping = "softmax", *,
    vjp: Callable[..., Any] | None = None, names: dict[str, str] | None = None,
    causal: str | None = None, layout: str | None = None, always: Table[str, Any] | None = None,
    masks: str | None = None, shapes: Sequence[tuple[int, int, int]] = (),
    dtypes: Sequence[str] | None = None, device: Any = None, seed: int = 0,
    tolerances: Table[str, float] | None = None, strict: bool = False, **parameters: Any,
) -> AttentionReport:  # fmt: skip
    """Check anybody's attention, in any array library.

    Outputs and gradients are compared with a reference in double precision, and the known wrong
    variants of the reference are run through the same inputs: the report names the one that the
    function agrees with, or the sizes and options with which alone it fails. Which shapes, masks
    and float types the function takes is found out, and stands in the report's notes. The function
    is called some 100 to 2,000 times.

    Parameters
    ----------
    fn : callable
        ``fn(query, key, value, …)`` of arrays (…, T, d), (…, S, d) and (…, S, e): four axes, three
        or two, whichever it takes first. Its keywords are tried under these names and their usual
        others: ``mask`` (True takes part, or additive), ``causal``, ``scale``, ``bias``, ``sink``
        (a score per head), ``softcap``, ``window`` (of w keys; as (w − 1, 0) where it is a pair),
        ``offset``, ``lengths`` (of keys), ``cu_seqlens``, ``slopes`` (of ALiBi) and ``dropout``,
        alone and two at a time. An option that always raises an error is wrong (an edge if it is a
        NotImplementedError); two that raise one together are not a fault, and the report says so.
    mapping : str or Mapping
        What makes weights of scores; as in `check_mapping`.
    vjp : callable, optional
        ``vjp(query, key, value, g, …)`` → their gradients. If not given, PyTorch, JAX and
        TensorFlow differentiate fn; for other libraries they are not tried.
    names : dict, optional
        fn's own names of keywords, such as ``{"mask": "keep"}``; needed where fn has no signature.
    causal : {"bottom-right", "top-left"}, optional
        Where the causal mask should be aligned if T ≠ S. If not given, either is right.
    layout : {"BHTd", "BTHd"}, optional
        Whether heads come before or after positions in arrays of four axes.
    always : dict, optional
        Options that fn has built in, such as ``{"causal": True, "window": 128}``.
    masks : {"boolean", "additive", "0/1"}, optional
        The kind of mask that fn takes.
    shapes : sequence of (T, S, d), optional
        Sizes to try beside the usual ones.
    dtypes, device, seed, tolerances, strict, **parameters : as in `check_mapping`

    Returns
    -------
    AttentionReport

    Examples
    --------
    >>> import numpy as np
    >>> import pyentmax as pe
    >>> def attention(query, key, value, causal=False):
    ...     scores = query @ np.swapaxes(key, -1, -2)  # / √d is missing
    ...     later = np.triu(np.ones(scores.shape[-2:], bool), 1)
    ...     return pe.softmax(np.where(causal & later, -np.inf, scores)) @ value
    >>> report = check_attention(attention)
    >>> report.verdict, report.causal, report.causes
    ('wrong', 'top-left', ('scores not scaled: multiply by 1/√d, or by scale= if it is given',))
    """
    for what, value, known in (("causal", causal, ALIGNMENTS), ("layout", layout, LAYOUTS),
                               ("masks", masks, KINDS)):  # fmt: skip
        if value not in (None, *known):
            words = ", ".join(f'"{one}"' for one in known)
            raise ValueError(f"{what} must be {words} or None, got {value!r}")
    if unknown := ", ".join(sorted({*(always or {})} - {*Attention.names})):
        raise ValueError(f"always takes {', '.join(Attention.names)}, got {unknown}")
    operator = Attention(layout, always, masks, causal, shapes)
    settings = (dtypes, device, seed, tolerances, strict)
    return judge(AttentionReport, "attention of ", operator, fn, vjp, mapping, parameters,
                 settings, names)  # fmt: skip


class PropertyCheck:
    """One property of a check, which runs when the first of them is asked for its result."""

    def __init__(self, name: str, report: Callable[[], v.Report]) -> None:
        self.name, self.report = name, report

    def __repr__(self) -> str:
        return self.name

    def raise_if_failed(self, strict: bool = False) -> v.PropertyResult:
        """As `PropertyResult.raise_if_failed`; a property that does not apply skips the test."""
        result = next(one for one in self.report().results if one.name == self.name)
        if result.verdict == "not applicable":
            raise SkipTest(result.reason)
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
        property's line if it is wrong or imprecise, ``raise_if_failed(strict=True)`` at edges too,
        and `unittest.SkipTest`, a skip in pytest, if the property does not apply.

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
    operators: Any = {check_mapping: Rows, check_loss: Loss, check_attention: Attention}
    if check not in operators:
        raise TypeError(
            f"check must be check_mapping, check_loss or check_attention, got {check!r}"
        )
    report = cache(lambda: check(*arguments, **options))
    return [PropertyCheck(one.name, report) for one in operators[check].properties]
