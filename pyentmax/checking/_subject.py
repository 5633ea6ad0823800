"""A function in one library and float type: how it is called, what it gives, and what is right."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import (
    HALF,
    LAYOUTS,
    LIBRARIES,
    NUMPY_ONLY,
    SPACINGS,
    Function,
    Library,
    NoGradients,
    dtype_name,
    library_of,
    parameters_of,
    to_numbers,
)
from pyentmax.checking._tape import V, gradients
from pyentmax.checking._verdict import CallError, Case, Expected, Finding, Missing, WrongShape
from pyentmax.reference.mapping import AnyMapping as Mapping

# In units of the contract. Bisections and softmaxes that compute in float32 are up to there.
LIMIT = 64.0
LONG_SUM = 0.25  # spacings at 1 times the terms of a sum: more, and none in that type is exact
HINTS = {  # words in an error → what to do
    "required positional argument|required keyword": "bind what fn needs, as in "
    "lambda query, key, value: fn(query, key, value, slopes=…)",
    "multiple values for argument": "fn takes a parameter of the mapping by position: name it, as "
    "in lambda query, key, value: fn(query, key, value)",
    "cuda|device|gpu": "if fn computes on a device, pass device=, or lambda z: fn(z.cuda()).cpu()",
    r"dimension|axis|\dD": "if fn's axis was fixed when it was made, make it with axis=-1 (dim=-1)",
    "dtype|Half|BFloat": "name the float types that fn takes, dtypes=[…]",
    "attribute|numpy|Tensor|Array": "a library that is missing here has to be imported first",
    "": "pass a lambda that calls fn as it wants to be called",
}


@dataclass(frozen=True)
class Settings:
    """Settings of the caller, the same for every subject."""

    dtypes: Sequence[str] | None = None
    device: Any = None
    seed: int = 0
    tolerances: Any = None
    strict: bool = False

    def __post_init__(self) -> None:
        """An error for a name or a number that cannot be."""
        object.__setattr__(self, "tolerances", dict(self.tolerances or {}))
        for name, tolerance in self.tolerances.items():
            if name not in SPACINGS or not (isinstance(tolerance, (int, float)) and tolerance > 0):
                raise ValueError(
                    f"tolerances must be numbers above 0 for {', '.join(SPACINGS)}, got "
                    f"{name!r}: {tolerance!r:.40}"
                )


class Operator:
    """A kind of function: what goes in, what is right, what it may be off by, what is tried.

    Each kind has ``forms`` (how fn may be called: facts to begin with) and ``settle`` (finds out
    more), ``make`` (words made arrays) with a ``sample``, ``given`` (what fn is passed), ``truth``
    (what is right, on a tape) with ``expected`` (and by how much it may be off), and ``own_vjp``
    (gradients by the function that the caller handed in).
    """

    kind = ""  # of its rows in the table of faults
    positional: tuple[str, ...] = ("z",)
    laid_out = 1  # how many of them may be views
    floats: tuple[str, ...] = ("z",)  # what has a gradient
    names: dict[str, tuple[str, ...]] = {}  # option → fn's usual names of it
    taken: tuple[str, ...] = ()  # names of parameters that are passed, or need not be tried
    result = "output"
    integers = "int64"
    half_limit = 4.0  # 64 units of a half type exceed 1: no probability could fail
    properties: tuple[Any, ...] = ()
    expected_arrays = ""

    def back(self, u: Subject, case: Case, name: str, x: Array) -> Array:
        """A result or gradient of fn in the case's own shape."""
        return x.reshape(np.shape(case[name])) if name in case else x

    def toward(self, u: Subject, case: Case, g: Array) -> Array:
        """A gradient from above in the shape of fn's result."""
        return g

    def shape(self, u: Subject, case: Case) -> tuple[int, ...]:
        """The shape of the result."""
        return np.shape(case["z"])

    def finish(self, u: Subject, case: Case, found: dict[str, Array]) -> None:
        """Change or add to what was observed."""

    def gradient(self, name: str) -> str:
        """The name that the report gives to the gradient in an input."""
        return f"d{name}"

    def line(self, name: str) -> str:
        """The property to whose line a gradient belongs; empty if it is that of its case."""
        return ""


class Property(NamedTuple):
    """A property: what it says, the words of its cases, and what is asked of each.

    With ``edge`` nothing that fails is worse than *edges*. Cases of a grid that raise an error are
    no failure (``refusable``) if another one does not, or ``"always"``; an ``option`` whose cases
    all raise is wrong, and so is an error in a ``vital`` one. Float types in which not all is tried
    get the cases of ``core`` properties. ``cause`` is named if nothing else fails.
    """

    name: str
    says: str
    cases: Any = ()
    ask: Callable[[Subject, Case], Iterator[Finding]] | None = None
    edge: bool = False
    refusable: Any = False
    core: bool = False
    vital: bool = False
    option: bool = False
    cause: str = ""


@contextmanager
def blaming(case: Case) -> Iterator[None]:
    """Errors of a function as `CallError`, with its input."""
    try:
        yield
    except (CallError, Missing):
        raise
    except Exception as error:  # libraries have errors of their own
        raise CallError(case, error) from error


@dataclass(eq=False, kw_only=True)
class Subject:
    """The function that is judged, in one library and one float type."""

    fn: Function
    own_vjp: Function | None
    operator: Any
    record: Mapping
    parameters: dict[str, Any]
    library: str
    settings: Settings
    named: dict[str, str] = field(default_factory=dict)  # option → fn's own name of it
    facts: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    full: bool = True  # every case is tried; otherwise the most telling ones
    alone: bool = False  # fn takes no wider float type
    single: bool = False  # fn computes float64 in float32
    notes: list[str] = field(default_factory=list)
    sizes: dict[str, set[int]] = field(default_factory=dict)

    def having(self, **facts: Any) -> Subject:
        """The same with other facts."""
        return replace(self, facts=self.facts | facts)

    @property
    def compiles(self) -> bool:
        """Whether the library compiles every shape anew, so that fewer sizes are tried."""
        return self.library in ("jax", "tensorflow")

    @property
    def computed(self) -> str:
        """The float type that fn computes in, as far as it is known."""
        return "float32" if self.single else self.dtype

    @property
    def epsilon(self) -> float:
        """The spacing of floats at 1."""
        return SPACINGS[self.computed]

    @property
    def half(self) -> bool:
        """Whether it is one of the two half types."""
        return self.dtype in HALF

    @property
    def limit(self) -> float:
        """The number of units of the contract within which a result is right."""
        return float(self.operator.half_limit if self.half else LIMIT)

    @property
    def ordinary(self) -> float:
        """Larger scores are edges; e^11.1 is infinite in float16."""
        return 10.0 if self.half else 20.0

    @property
    def functions(self) -> Library:
        """Functions on arrays of the library."""
        return LIBRARIES[self.library]()

    @cached_property
    def known(self) -> dict[str, inspect.Parameter]:
        """fn's parameters, as far as they are known."""
        return parameters_of(self.fn) or {}

    @cached_property
    def spelled(self) -> dict[str, str]:
        """Option → fn's name of it."""
        usual = self.operator.names.items()
        return {x: name for x, all in usual for name in all if name in self.known} | self.named

    @property
    def passed(self) -> dict[str, Any]:
        """The parameters of the mapping that fn takes by their names."""
        return {name: value for name, value in self.parameters.items() if name in self.known}

    @property
    def learned(self) -> str:
        """The parameter of the mapping that fn takes and that has a gradient, if there is one."""
        record = self.record
        learns = record.parameter_vjp.is_defined and not record.parameter_vjp.with_scores
        learns = learns and self.own_vjp is None and self.functions.vjp is not None
        return next((x for x in self.passed if learns and np.ndim(self.passed[x]) == 0), "")

    def values(self, leaf: V | None = None) -> list[Any]:
        """The parameters of the mapping, with a leaf of the tape for the one that is learned."""
        return [leaf if leaf is not None and name == self.learned else value
                for name, value in self.parameters.items()]  # fmt: skip

    @property
    def no_gradients(self) -> str:
        """Why there are no gradients; empty if there are."""
        if self.own_vjp is None and self.functions.vjp is None:
            return f"{self.library} has no gradients; vjp= (of a loss grad=) hands them in"
        return str(self.facts.get("no_gradients", ""))

    def array(self, x: Any, layout: str = "") -> Any:
        """An array of the library, floats in the float type; a view of another one if asked for."""
        x = np.asarray(x)
        kind = {"b": "bool", "i": self.operator.integers}.get(x.dtype.kind, self.dtype)
        memory, view = LAYOUTS[layout] if layout else (np.asarray, lambda a: a)
        held = np.ascontiguousarray(memory(x)) if layout else x
        return view(self.functions.array(held, kind, self.settings.device))

    def has_layout(self, layout: str) -> bool:
        """Whether the library has views of that kind."""
        return self.library in ("numpy", "torch")[: 1 if layout in NUMPY_ONLY else 2]

    def rounded(self, x: Any) -> Array:
        """The values that the float type can hold."""
        return to_numbers(self.array(np.asarray(x, float)))

    def say(self, note: str) -> None:
        """Put a line into the report, once."""
        if note not in self.notes:
            self.notes.append(note)

    def count(self, **sizes: int) -> None:
        """Remember the sizes of a case, for the report."""
        for name, n in sizes.items():
            self.sizes.setdefault(name, set()).add(n)

    def first(self, out: Any) -> Any:
        """The result; of several that fn returns, the first."""
        if isinstance(out, (tuple, list)) and len(out) > 1 and hasattr(out[0], "shape"):
            self.say(f"fn returns {len(out)} values; the first was judged")
            return out[0]
        return out

    # --- what fn gives ----------------------------------------------------------------------------
    def native(self, case: Case) -> dict[str, Any]:
        """The arrays of a case in the library, the first of them laid out."""
        arrays, layout = self.operator.given(self, case)[0], case.get("layout", "")
        return {name: self.array(x, layout if i < self.operator.laid_out else "")
                for i, (name, x) in enumerate(arrays.items())}  # fmt: skip

    def call(self, native: dict[str, Any], options: dict[str, Any], function: Any = None) -> Any:
        """Call fn on arrays of its library; row by row if it takes one row."""
        f, n = function or self.fn, self.operator.positional
        more = {name: x for name, x in native.items() if name not in n} | options
        arrays = [native[name] for name in n if name in native]
        if not self.facts.get("each") or len(np.shape(arrays[0])) < 2:
            return self.first(f(*arrays, **more))
        rows, shape = arrays[0].reshape(-1, arrays[0].shape[-1]), arrays[0].shape
        if not len(rows):
            return arrays[0]
        outs = [self.first(f(row, *(x[i] for x in arrays[1:]), **more))
                for i, row in enumerate(rows)]  # fmt: skip
        one = self.functions.stack(outs)
        return one.reshape(shape) if np.ndim(outs[0]) else one

    def raw(self, case: Case, native: dict[str, Any] | None = None) -> Any:
        """The result of fn for a case, in its library."""
        with blaming(case):
            options = self.operator.given(self, case)[1]
            return self.call(self.native(case) if native is None else native, options)

    def observe(self, case: Case) -> dict[str, Any]:
        """The result of fn, its gradients if the case asks for them, or a failure's "error"."""
        op, out = self.operator, None
        found: dict[str, Any] = {}
        with blaming(case):
            native, options = self.native(case), op.given(self, case)[1]
            if case.get("gradients") and not self.no_gradients:
                try:
                    out, found = self._differentiated(case, native, options)
                except Missing:
                    pass
                except Exception as error:  # libraries have errors of their own
                    found = {"error": CallError(case, error)}
                    found["error"].__cause__, found["error"].gradient = error, True
                    native = self.native(case)
            if out is None:
                out = self.call(native, options)
            case["epsilon"] = self.epsilon_of(out)
            x, shape = to_numbers(out), op.shape(self, case)
            if x.size == 1 and shape == ():
                x = x.reshape(())
            x = op.back(self, case, "", x)
            if x.shape != shape:
                raise WrongShape(f"expected the shape {shape}, got {x.shape}")
            found = {op.result: x, **found}
            op.finish(self, case, found)
        return found

    def _differentiated(self, case: Case, native: Any, options: Any) -> tuple[Any, dict[str, Any]]:
        """The result of fn (None if it is not known), and its gradients."""
        op = self.operator
        if self.own_vjp is not None:
            grads = op.own_vjp(self, case, native, options)
            return None, {op.gradient(n): op.back(self, case, n, to_numbers(x))
                          for n, x in grads.items()}  # fmt: skip
        spelled = {n: n if n in op.positional else self.spelled.get(n, "") for n in op.floats}
        spelled |= {"parameter": self.learned} if case.get("learned") else {}
        known = {*case, "parameter"}
        names = {n: x for n, x in spelled.items() if n in known and x in native}

        def along(*changed: Any) -> Any:
            again = native | dict(zip(names.values(), changed, strict=True))
            return self.call(again, options)

        assert self.functions.vjp is not None
        out, grads = self.functions.vjp(along, [native[x] for x in names.values()],
                                        op.toward(self, case, np.asarray(case["g"], float)),
                                        case.get("upstream", ""))  # fmt: skip
        found = {op.gradient(n): op.back(self, case, n, to_numbers(x))
                 for n, x in zip(names, grads, strict=True)}  # fmt: skip
        if case.get("learned") and not np.any(found[op.gradient("parameter")]):
            raise NotImplementedError(f"no gradient in {self.learned}")
        return out, found

    def epsilon_of(self, out: Any) -> float:
        """The spacing that a result can be judged by: that of its own type if it is coarser."""
        coarse = SPACINGS.get(dtype_name(out), 0.0)
        rounder = self.operator.half_limit / self.limit if dtype_name(out) in HALF else 1.0
        return self.epsilon if coarse <= self.epsilon else coarse * rounder

    # --- what is right ----------------------------------------------------------------------------
    def expect(
        self, case: Case, change: Any = None, backwards: bool = False
    ) -> dict[str, Expected]:
        """Expected results of a case, or of a change of it: in all of them, or in gradients."""
        changed = case if change is None else change(case)
        out, leaves = self.operator.truth(self, changed)
        value = self.operator.truth(self, case)[0].x if backwards else out.x
        grads = gradients(out, changed["g"], leaves) if case.get("gradients") else {}
        for name, keep in changed.get("partial", {}).items() if grads else ():  # of some of g alone
            if name in leaves:
                grads |= gradients(out, changed["g"] * keep, {name: leaves[name]})
        for name, factor in changed.get("factors", {}).items():
            grads |= {name: factor * grads[name]} if name in grads else {}
        expected: dict[str, Expected] = self.operator.expected(self, case, value, grads)
        return expected

    def measure(self, case: Case, name: str, observed: Any, expected: Expected) -> Finding:
        """The error of an observed result, in units of the error that is allowed."""
        value, allowed, size = expected
        size = float(np.max(np.abs(value), initial=0)) if size is None else size
        if (tolerance := self.settings.tolerances.get(self.dtype)) is not None:
            allowed = tolerance * size / self.limit
        error = np.array(np.nan)
        if np.shape(observed) == np.shape(value):
            error = np.where(np.equal(observed, value), 0, np.abs(np.subtract(observed, value)))
        units = np.max(error / allowed, initial=0)
        units = float(np.inf if np.isnan(units) else units)
        first = name == self.operator.result
        return Finding(case, observed, value, units, "" if first else name, size)

    def off(self, **words: Any) -> float:
        """By how many times its limit the result is off; infinite if it raises."""
        with suppress(CallError, Missing):
            case, name = self.operator.make(self, **words), self.operator.result
            found = self.observe(case)[name]
            return self.measure(case, name, found, self.expect(case)[name]).units / self.limit
        return np.inf

    def nearest(self, fact: str, candidates: Sequence[Any], sure: bool, **words: Any) -> Any:
        """Set a fact to the candidate with the least error; to be ``sure``, only if it is right."""
        off = [self.having(**{fact: one}).off(**words) for one in candidates]
        best = int(np.argmin(off))
        if off[best] <= (1 if sure else np.finfo(float).max):
            self.facts[fact] = candidates[best]
        return self.facts.get(fact)

    def works(self, **words: Any) -> bool:
        """Whether fn takes a case."""
        try:
            self.observe(self.operator.make(self, **words))
        except (CallError, Missing):
            return False
        return True

    def fits(self) -> bool:
        """Whether the library has the float type, and fn takes it."""
        try:
            self.observe(self.operator.sample(self))
            return dtype_name(self.array(1.0)) == self.dtype
        except Exception:  # libraries have errors of their own
            return False

    def computes_in_single(self) -> bool:
        """Whether a change that float32 does not show changes nothing in float64 either."""
        if self.dtype != "float64":
            return False
        with suppress(CallError, Missing):
            case, name = self.operator.sample(self), self.operator.result
            first = self.operator.positional[0]
            moved = case | {first: case[first] * (1 + 2.0**-40)}
            a, b = (self.expect(x)[name].value for x in (case, moved))
            p, q = (self.observe(x)[name] for x in (case, moved))
            return not np.array_equal(a, b) and np.array_equal(p, q)
        return False


def fitting(first: Subject) -> list[Subject]:
    """The first form that fn takes in one of the imported libraries, in every float type.

    Each float type is tried alone, so that a kernel of half types is taken as it is. Every case is
    tried in the widest of float32 and float64 that fn takes and in one half type.
    """
    errors: dict[str, Exception] = {}
    settings, operator = first.settings, first.operator
    asked = (
        [*SPACINGS] if settings.dtypes is None else [x for x in SPACINGS if x in settings.dtypes]
    )
    order = sorted(asked or SPACINGS, key=["float32", "float16", "bfloat16", "float64"].index)
    for library in (name for name in LIBRARIES if name in sys.modules):
        for form in operator.forms(replace(first, library=library)):
            for dtype in order:
                u = replace(first, library=library, dtype=dtype, facts=dict(form))
                try:
                    case = operator.sample(u)
                    u.observe(case)
                    if library == "numpy" and (other := library_of(u.raw(case))) != library:
                        u = replace(u, library=other)
                        u.observe(operator.sample(u))
                except Exception as error:  # libraries have errors of their own
                    known = isinstance(error, CallError)
                    errors.setdefault(library, error if known else CallError({}, error))
                    continue
                return _in_every_type(u)
    each = "; ".join(f"{name}: {str(error)[:160]}" for name, error in errors.items())
    hint = next(hint for words, hint in HINTS.items() if re.search(words, each, re.IGNORECASE))
    raise TypeError(f"fn must map {operator.expected_arrays}: {each}; {hint}") from (
        next(iter(errors.values())).__cause__)  # fmt: skip


def _in_every_type(u: Subject) -> list[Subject]:
    settings, operator = u.settings, u.operator
    operator.settle(u)
    if not u.no_gradients:
        error = u.observe(operator.sample(u) | {"gradients": True}).get("error")
        cause = error and error.__cause__
        said = isinstance(cause, NoGradients) or "no gradient" in str(error)
        if error and (said or isinstance(cause, NotImplementedError)):
            u.facts["no_gradients"] = str(cause) if said else str(error)
            u.say(f"gradients: not applicable ({cause})")
    unknown = {*u.known} - {*u.spelled.values(), *u.passed, *operator.taken}
    for name, one in [*u.known.items()][len(operator.positional) :]:
        if name in unknown and one.kind.name not in ("VAR_POSITIONAL", "VAR_KEYWORD"):
            u.say(f"{name}= was not tried")
    fit = [x for name in SPACINGS if (x := replace(u, dtype=name)).fits()]
    if u.library == "numpy" and settings.dtypes is None:  # ml_dtypes' is not NumPy's
        fit = [x for x in fit if x.dtype != "bfloat16"]
    chosen = [x for x in fit if settings.dtypes is None or x.dtype in settings.dtypes]
    if not chosen:
        raise ValueError(
            "dtypes must have one that fn takes, of "
            f"{[x.dtype for x in fit]}, got {[*(settings.dtypes or ())]}"
        )
    wide = next((x.dtype for x in chosen if not x.half), "")
    half = next((x.dtype for x in chosen if x.half), "")
    full = (wide, half)[: 1 if wide and u.compiles else 2]
    for x in chosen:
        x.full, x.alone, x.single = x.dtype in full, not wide, x.computes_in_single()
    return chosen


def accepts(function: Any, names: set[str]) -> None:
    """`Missing` unless a function has parameters of these names."""
    known = parameters_of(function)
    if known is None or any(one.kind.name == "VAR_KEYWORD" for one in known.values()):
        return
    if lacks := names - {*known}:
        raise Missing(f"the function of gradients takes no {', '.join(sorted(lacks))}")


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings: fn may overflow, but its result is what counts."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
