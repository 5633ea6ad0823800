"""A function in one library and float type: how it is called, what it gives, and what is right."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking import _libraries as lib
from pyentmax.checking import _verdict as v
from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import HALF, LIBRARIES, SPACINGS, dtype_name, to_numbers
from pyentmax.checking._questions import G
from pyentmax.checking._tape import V, gradients
from pyentmax.checking._verdict import CallError, Case, Expected, Finding, Missing, difference
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


class Settings(NamedTuple):
    """Settings of the caller, the same for every subject."""

    dtypes: Sequence[str] | None
    device: Any
    seed: int
    tolerances: dict[str, float]
    strict: bool


class Operator:
    """A kind of function: what goes in, what is right, what it may be off by, what is tried.

    Each kind has ``forms`` (how fn may be called: facts to begin with) and ``settle`` (finds out
    more), ``make`` (words made arrays) with a ``sample``, ``given`` (what fn is passed), ``truth``
    (what is right, on a tape) with ``expected`` (and by how much it may be off), ``axes`` (how many
    the arrays have), and ``own_vjp`` (gradients by the function that the caller handed in).
    """

    kind = ""  # of its rows in the table of faults
    positional: tuple[str, ...] = ("z",)
    laid_out = 1  # how many of them may be views
    floats: tuple[str, ...] = ("z",)  # what has a gradient
    names: dict[str, tuple[str, ...]] = {}  # option → fn's usual names of it
    taken: tuple[str, ...] = ()  # names of parameters that are passed, or need not be tried
    result, integers, expected_arrays = "output", "int64", ""
    half_limit = 4.0  # 64 units of a half type exceed 1: no probability could fail
    properties: tuple[Any, ...] = ()
    gradient_names: dict[str, str] = {}  # the names of gradients in the report, if not d….
    lines: dict[str, str] = {}  # gradient → the property to whose line it belongs
    gradient_line = ""  # that of other gradients; empty if it is that of their case

    def gradient(self, name: str) -> str:
        """The name that the report gives to the gradient in an input."""
        return self.gradient_names.get(name, f"d{name}")

    def line(self, name: str) -> str:
        """The property to whose line a gradient belongs."""
        return self.lines.get(name, self.gradient_line)

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

    fn: Callable[..., Any]
    own_vjp: Callable[..., Any] | None
    operator: Any
    record: Mapping
    parameters: dict[str, Any]
    settings: Settings
    library: str = "numpy"
    named: dict[str, str] = field(default_factory=dict)  # option → fn's own name of it
    facts: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    full: bool = True  # every case is tried; otherwise the most telling ones
    alone: bool = False  # fn takes no wider float type
    single: bool = False  # fn computes float64 in float32
    notes: list[str] = field(default_factory=list)
    sizes: dict[str, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What follows from the function, the library and the float type."""
        self.functions = LIBRARIES[self.library]()
        self.half = self.dtype in HALF
        self.compiles = self.library in ("jax", "tensorflow")  # each shape anew: try fewer
        # The number of units of the contract within which a result is right.
        self.limit = float(self.operator.half_limit if self.half else LIMIT)
        self.ordinary = 10.0 if self.half else 20.0  # larger scores are edges; e^11.1 overflows
        self.known = lib.parameters_of(self.fn) or {}
        self.spelled = {x: name for x, names in self.operator.names.items() for name in names
                        if name in self.known} | self.named  # fmt: skip
        self.passed = {name: x for name, x in self.parameters.items() if name in self.known}

    def having(self, **facts: Any) -> Subject:
        """The same with other facts."""
        return replace(self, facts=self.facts | facts)

    @property
    def epsilon(self) -> float:
        """The spacing of floats at 1 in the type that fn computes in."""
        return SPACINGS["float32" if self.single else self.dtype]

    @property
    def learned(self) -> str:
        """The parameter of the mapping that fn takes and that has a gradient, if there is one."""
        vjp = self.record.parameter_vjp
        learns = vjp.is_defined and not vjp.with_scores
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

    def drop_gradients(self, words: dict[str, Any], needed: Any) -> None:
        """Do not ask for gradients where there are none; `Missing` if the case needs them."""
        if words.get("gradients") and self.no_gradients:
            if needed:
                raise Missing(self.no_gradients)
            del words["gradients"]

    def array(self, x: Any, layout: str = "") -> Any:
        """An array of the library, floats in the float type; a view of another one if asked for."""
        x = np.asarray(x)
        kind = {"b": "bool", "i": self.operator.integers}.get(x.dtype.kind, self.dtype)
        memory, view = lib.LAYOUTS.get(layout, (np.asarray, lambda a: a))
        held = np.ascontiguousarray(memory(x)) if layout else x
        return view(self.functions.array(held, kind, self.settings.device))

    def has_layout(self, layout: str) -> bool:
        """Whether the library has views of that kind."""
        return self.library == "numpy" or self.library == "torch" and layout not in lib.NUMPY_ONLY

    def rounded(self, x: Any) -> Array:
        """The values that the float type can hold."""
        return self.functions.numbers(self.array(np.asarray(x, float)))

    def say(self, note: str) -> None:
        """Put a line into the report, once."""
        self.notes.extend([note] * (note not in self.notes))

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
    def native(self, case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arrays of a case in the library, the first of them laid out, and the options."""
        arrays, options = self.operator.given(self, case)
        return {name: self.array(x, case.layout or "" if i < self.operator.laid_out else "")
                for i, (name, x) in enumerate(arrays.items())}, options  # fmt: skip

    def call(self, native: dict[str, Any], options: dict[str, Any], function: Any = None) -> Any:
        """Call fn on arrays of its library; row by row if it takes one row."""
        f, n = function or self.fn, self.operator.positional
        more = {name: x for name, x in native.items() if name not in n} | options
        arrays = [native[name] for name in n if name in native]
        if not self.facts.get("each") or len(np.shape(arrays[0])) < 2:
            return self.first(f(*arrays, **more))
        rows, shape = arrays[0].reshape(-1, arrays[0].shape[-1]), arrays[0].shape
        outs = [self.first(f(row, *(x[i] for x in arrays[1:]), **more))
                for i, row in enumerate(rows)]  # fmt: skip
        one = self.functions.stack(outs) if outs else arrays[0]
        return one.reshape(shape) if outs and np.ndim(outs[0]) else one

    def raw(self, case: Case, native: dict[str, Any] | None = None) -> Any:
        """The result of fn for a case, in its library."""
        with blaming(case):
            arrays, options = self.native(case)
            return self.call(arrays if native is None else native, options)

    def observe(self, case: Case) -> dict[str, Any]:
        """The result of fn, its gradients if the case asks for them, or a failure's "error"."""
        op, out = self.operator, None
        found: dict[str, Any] = {}
        with blaming(case):
            native, options = self.native(case)
            if case.gradients and not self.no_gradients:
                try:
                    out, found = self._differentiated(case, native, options)
                except Missing:
                    pass
                except Exception as error:  # libraries have errors of their own
                    found = {"error": CallError(case, error)}
                    found["error"].__cause__, found["error"].gradient = error, True
                    native = self.native(case)[0]
            if out is None:
                out = self.call(native, options)
            coarse, half = SPACINGS.get(dtype_name(out), 0.0), dtype_name(out) in HALF
            if coarse > self.epsilon:  # it is judged by its own type
                case["epsilon"] = coarse * (op.half_limit / self.limit if half else 1.0)
            x, shape = to_numbers(out), op.shape(self, case)
            x = op.back(self, case, "", x.reshape(()) if x.size == 1 and shape == () else x)
            if x.shape != shape:
                raise v.WrongShape(f"expected the shape {shape}, got {x.shape}")
            found = {op.result: x, **found}
            op.finish(self, case, found)
        return found

    def _differentiated(self, case: Case, native: Any, options: Any) -> tuple[Any, dict[str, Any]]:
        """The result of fn (None if it is not known), and its gradients."""
        op, out = self.operator, None
        if self.own_vjp is not None:
            grads = op.own_vjp(self, case, native, options)
        else:
            spelled = {n: n if n in op.positional else self.spelled.get(n, "") for n in op.floats}
            names = {n: x for n, x in spelled.items() if n in case and x in native}
            names |= {"parameter": self.learned} if case.learned else {}

            def along(*changed: Any) -> Any:
                return self.call(native | dict(zip(names.values(), changed, strict=True)), options)

            assert self.functions.vjp is not None
            g, how = op.toward(self, case, np.asarray(case["g"], float)), case.upstream or ""
            arrays = [native[x] for x in names.values()]
            out, products = self.functions.vjp(along, arrays, g, how)
            grads = dict(zip(names, products, strict=True))
        found = {op.gradient(n): op.back(self, case, n, to_numbers(x)) for n, x in grads.items()}
        if case.learned and not np.any(found[op.gradient("parameter")]):
            raise NotImplementedError(f"no gradient in {self.learned}")
        return out, found

    # --- what is right ----------------------------------------------------------------------------
    def expect(self, case: Case, change: Any = None, value: Array | None = None) -> Any:
        """Expected results of a case, or of a change of it; of gradients alone with the value."""
        changed = case if change is None else change(case)
        out, leaves = self.operator.truth(self, changed)
        value = out.x if value is None else value
        grads = gradients(out, changed["g"], leaves) if case.gradients else {}
        for name, keep in (changed.partial or {}).items() if grads else ():  # of some of g alone
            if name in leaves:
                grads |= gradients(out, changed["g"] * keep, {name: leaves[name]})
        for name, factor in (changed.factors or {}).items():
            grads |= {name: factor * grads[name]} if name in grads else {}
        return self.operator.expected(self, case, value, grads)

    def measure(self, case: Case, name: str, observed: Any, expected: Expected) -> Finding:
        """The error of an observed result, in units of the error that is allowed."""
        value, allowed, size = expected
        size = float(np.max(np.abs(value), initial=0)) if size is None else size
        if (tolerance := self.settings.tolerances.get(self.dtype)) is not None:
            allowed = tolerance * size / self.limit
        units = np.inf
        if np.shape(observed) == np.shape(value):
            units = float(np.max(difference(observed, value) / allowed, initial=0))
        name = "" if name == self.operator.result else name
        return Finding(case, observed, value, np.inf if np.isnan(units) else units, name, size)

    def off(self, **words: Any) -> float:
        """By how many times its limit the result is off; infinite if it raises."""
        with suppress(CallError, Missing):
            case, name = self.operator.make(self, **words), self.operator.result
            found = self.observe(case)[name]
            return self.measure(case, name, found, self.expect(case)[name]).units / self.limit
        return np.inf

    def nearest(self, candidates: Sequence[dict[str, Any]], sure: bool, **words: Any) -> float:
        """Set facts to the candidate with the least error, if that is ``sure`` to be right; how far
        the nearest one is off."""
        off = [self.having(**one).off(**words) for one in candidates]
        if min(off) <= 1 or (not sure and min(off) < np.inf):
            self.facts |= candidates[int(np.argmin(off))]
        return min(off)

    def error(self, **words: Any) -> str:
        """The error that fn raises for a case, or why there is none; empty if it is taken."""
        try:
            self.observe(self.operator.make(self, **words))
        except (CallError, Missing) as error:
            return str(error)
        return ""

    def fits(self) -> bool:
        """Whether the library has the float type, and fn takes it."""
        with suppress(Exception):  # libraries have errors of their own
            self.observe(self.operator.sample(self))
            return dtype_name(self.array(1.0)) == self.dtype
        return False

    def computes_in_single(self) -> bool:
        """Whether a change that float32 does not show changes nothing in float64 either."""
        with suppress(CallError, Missing):
            case, name = self.operator.sample(self), self.operator.result
            first = self.operator.positional[0]
            both = (case, case | {first: case[first] * (1 + 2.0**-40)})
            a, b = (self.expect(x)[name].value for x in both)
            p, q = (self.observe(x)[name] for x in both)
            return not np.array_equal(a, b) and np.array_equal(p, q)
        return False


def fitting(first: Subject) -> list[Subject]:
    """The first form that fn takes in one of the imported libraries, in every float type.

    Each float type is tried alone, so that a kernel of half types is taken as it is. Every case is
    tried in the widest of float32 and float64 that fn takes and in one half type.
    """
    errors: dict[str, Exception] = {}
    operator = first.operator
    asked = [x for x in SPACINGS if x in (first.settings.dtypes or SPACINGS)] or SPACINGS
    order = sorted(asked, key=["float32", "float16", "bfloat16", "float64"].index)
    for library in (name for name in LIBRARIES if name in sys.modules):
        for form in operator.forms(replace(first, library=library)):
            for dtype in order:
                u = replace(first, library=library, dtype=dtype, facts=dict(form))
                try:
                    case = operator.sample(u)
                    u.observe(case)
                    if library == "numpy" and (other := lib.library_of(u.raw(case))) != library:
                        u = replace(u, library=other)
                        u.observe(operator.sample(u))
                except Exception as error:  # libraries have errors of their own
                    known = isinstance(error, CallError)
                    errors.setdefault(library, error if known else CallError(Case(), error))
                    continue
                return _in_every_type(u)
    each = "; ".join(f"{name}: {str(error)[:160]}" for name, error in errors.items())
    hint = next(hint for words, hint in HINTS.items() if re.search(words, each, re.IGNORECASE))
    raise TypeError(f"fn must map {operator.expected_arrays}: {each}; {hint}") from (
        next(iter(errors.values())).__cause__)  # fmt: skip


def _in_every_type(u: Subject) -> list[Subject]:
    operator, dtypes = u.operator, u.settings.dtypes
    operator.settle(u)
    if not u.no_gradients and (error := u.observe(operator.sample(u) | G).get("error")):
        cause = error.__cause__
        said = isinstance(cause, lib.NoGradients) or "no gradient" in str(error)
        if said or isinstance(cause, NotImplementedError):
            u.facts["no_gradients"] = str(cause) if said else str(error)
            u.say(f"gradients: not applicable ({cause})")
    tried = {*u.spelled.values(), *u.passed, *operator.taken}
    for name, one in [*u.known.items()][len(operator.positional) :]:
        if name not in tried and one.kind.name not in ("VAR_POSITIONAL", "VAR_KEYWORD"):
            u.say(f"{name}= was not tried")
    fit = [x for name in SPACINGS if (x := replace(u, dtype=name)).fits()]
    if u.library == "numpy" and dtypes is None:  # ml_dtypes' is not NumPy's
        fit = [x for x in fit if x.dtype != "bfloat16"]
    chosen = [x for x in fit if dtypes is None or x.dtype in dtypes]
    if not chosen:
        takes = [x.dtype for x in fit]
        raise ValueError(f"dtypes must have one that fn takes, of {takes}, got {[*(dtypes or ())]}")
    wide = next((x.dtype for x in chosen if not x.half), "")
    half = next((x.dtype for x in chosen if x.half), "")
    full = (wide, half)[: 1 if wide and u.compiles else 2]
    for x in chosen:
        x.full, x.alone = x.dtype in full, not wide
        x.single = x.dtype == "float64" and x.computes_in_single()
    return chosen


def accepts(function: Any, names: set[str]) -> None:
    """`Missing` unless a function has parameters of these names."""
    known = lib.parameters_of(function)
    takes_all = known is None or any(one.kind.name == "VAR_KEYWORD" for one in known.values())
    if not takes_all and (lacks := names - {*(known or ())}):
        raise Missing(f"the function of gradients takes no {', '.join(sorted(lacks))}")


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings: fn may overflow, but its result is what counts."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
