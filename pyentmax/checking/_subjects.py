"""How a function of any array library is called: its arrays, float types and derivatives.

Everything that goes in and comes out is float64 on the host, with values that the float type can
hold. A library is recognised by what a function returns, or takes, among those that the caller has
imported; none is imported here.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._engine import (
    HALF_LIMIT,
    LIMIT,
    CallError,
    Case,
    Cause,
    Expected,
    Finding,
    Missing,
    Property,
    Report,
    Seen,
    causes,
    examine,
)  # fmt: skip
from pyentmax.reference.mapping import AnyMapping as Mapping

# --- libraries ------------------------------------------------------------------------------------
Function = Callable[..., Any]
# Of each float type, the spacing at 1 and the smallest normal number; bfloat16 is PyTorch's too.
SPACINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


class Library(NamedTuple):
    """How to convert to and from a library's arrays, and its vector-Jacobian product if any."""

    array: Callable[[Array, str, Any], Any]
    numbers: Callable[[Any], Array]
    stack: Callable[[list[Any]], Any]
    vjp: Callable[[Function, list[Any], Array], Sequence[Any]] | None = None


def _numpy() -> Library:
    return Library(
        lambda x, dtype, device: np.array(x, dtype, order="C"),
        lambda p: np.array(p).astype(np.float64),
        np.stack,
    )


def _torch() -> Library:
    torch: Any = sys.modules["torch"]

    def vjp(fn: Function, arrays: list[Any], v: Array) -> Sequence[Any]:
        leaves = [x.detach().requires_grad_() for x in arrays]
        # fn may overwrite what it gets; views keep their strides.
        p = fn(*(x * 1 if x.is_contiguous() else x for x in leaves))
        if not p.requires_grad:
            raise TypeError("the result has no gradient")
        if np.ptp(v) == 0:  # as p.sum().backward() passes it: one number, with strides of 0
            g = torch.tensor(float(v.flat[0]), dtype=p.dtype, device=p.device).expand(p.shape)
        else:
            g = torch.tensor(v, dtype=p.dtype, device=p.device).reshape(p.shape)
        grads = torch.autograd.grad(p, leaves, g, allow_unused=True)
        pairs = zip(grads, leaves, strict=True)
        return [torch.zeros_like(x) if one is None else one for one, x in pairs]

    return Library(
        lambda x, dtype, device: torch.tensor(x, dtype=getattr(torch, dtype), device=device),
        lambda p: p.detach().cpu().double().numpy(),
        torch.stack,
        vjp,
    )


def _jax() -> Library:
    jax: Any = sys.modules["jax"]

    def vjp(fn: Function, arrays: list[Any], v: Array) -> Sequence[Any]:
        p, product = jax.vjp(fn, *arrays)
        return tuple(product(jax.numpy.asarray(v.reshape(p.shape), p.dtype)))

    return Library(
        lambda x, dtype, device: jax.device_put(jax.numpy.array(x, dtype), device),
        lambda p: np.asarray(p).astype(np.float64),
        jax.numpy.stack,
        vjp,
    )


def _tensorflow() -> Library:
    tf: Any = sys.modules["tensorflow"]

    def vjp(fn: Function, arrays: list[Any], v: Array) -> Sequence[Any]:
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            p = fn(*arrays)
        grads = tape.gradient(p, arrays, output_gradients=tf.constant(v.reshape(p.shape), p.dtype))
        pairs = zip(grads, arrays, strict=True)
        return [tf.zeros_like(x) if one is None else one for one, x in pairs]

    return Library(
        lambda x, dtype, device: tf.constant(x, dtype),
        lambda p: p.numpy().astype(np.float64),
        tf.stack,
        vjp,
    )


def _cupy() -> Library:
    cupy: Any = sys.modules["cupy"]
    return Library(
        lambda x, dtype, device: cupy.array(x, dtype),
        lambda p: p.get().astype(np.float64),
        cupy.stack,
    )


LIBRARIES = {
    "numpy": _numpy, "torch": _torch, "jax": _jax, "tensorflow": _tensorflow, "cupy": _cupy,
}  # fmt: skip
"""Name of the module → `Library`; NumPy first, since others' functions may take its arrays."""

# Layout → what the contiguous memory holds, and the view of it that has the entries asked for.
LAYOUTS: dict[str, tuple[Callable[[Array], Array], Callable[[Any], Any]]] = {
    "transposed": (lambda x: np.swapaxes(x, -1, -2), lambda a: a.swapaxes(-1, -2)),
    "heads inside": (lambda x: np.swapaxes(x, -2, -3), lambda a: a.swapaxes(-2, -3)),
    "every second": (lambda x: np.stack([x, 7 + 0 * x], -1).reshape(*x.shape[:-1], -1),
                     lambda a: a[..., ::2]),
    "part of a wider array": (lambda x: np.concatenate([x, 7 + 0 * x], -1),
                              lambda a: a[..., : a.shape[-1] // 2]),
    "reversed": (lambda x: x[..., ::-1], lambda a: a[..., ::-1]),
    "read-only": (lambda x: x, lambda a: a.setflags(write=False) or a),
}  # fmt: skip
NUMPY_ONLY = ("reversed", "read-only")


def in_memory_order(x: Array, layout: str) -> Array:
    """What a function reads that takes a view's memory for that of a contiguous array."""
    if layout in ("", "reversed"):  # whose memory ends where it begins
        return x
    return np.ravel(LAYOUTS[layout][0](x))[: x.size].reshape(x.shape)


def library_of(array: Any) -> str:
    """The name of the library that an array belongs to; NumPy's if it is not a known one."""
    name = type(array).__module__.partition(".")[0].replace("jaxlib", "jax")
    return name if name in LIBRARIES else "numpy"


def dtype_name(array: Any) -> str:
    """The name of an array's dtype, such as ``"float32"``, in any library."""
    dtype = getattr(array, "dtype", None)
    return str(getattr(dtype, "name", str(dtype).rpartition(".")[2]))


def to_numbers(array: Any) -> Array:
    """An array of any library, or a number, as float64 on the host."""
    return LIBRARIES[library_of(array)]().numbers(array)


def parameters_of(fn: Function) -> dict[str, inspect.Parameter] | None:
    """fn's parameters, those of a module's ``forward``; None if it has no signature."""
    try:
        return dict(inspect.signature(getattr(fn, "forward", fn)).parameters)
    except (TypeError, ValueError):
        return None


# --- subjects -------------------------------------------------------------------------------------
S = TypeVar("S", bound="Subject")
HINTS = {  # words in an error → what to do
    "required positional argument|required keyword": "bind what fn needs, as in "
    "lambda query, key, value: fn(query, key, value, slopes=…)",
    "cuda|device|gpu": "if fn computes on a device, pass device=, or lambda z: fn(z.cuda()).cpu()",
    r"dimension|axis|\dD": "if fn's axis was fixed when it was made, make it with axis=-1 (dim=-1)",
    "dtype|Half|BFloat": "name the float types that fn takes, dtypes=[…]",
    "": "a library that is missing here has to be imported first",
}


@dataclass(frozen=True)
class Settings:
    """What the caller declares for every subject."""

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """What is judged, in one library and one float type."""

    fn: Function
    own_vjp: Function | None
    record: Mapping
    parameters: dict[str, Any]
    library: str
    settings: Settings
    dtype: str = "float32"
    full: bool = True  # every case is tried; otherwise the most telling ones
    alone: bool = False  # fn takes no wider float type
    single: bool = False  # fn computes float64 in float32
    seen: list[Seen] = field(default_factory=list)
    observed: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sizes: dict[str, set[int]] = field(default_factory=dict)

    positional: ClassVar[int] = 1  # arrays that fn is passed by position
    laid_out: ClassVar[int] = 1  # arrays that may be views
    integers: ClassVar[str] = "int64"
    primary: ClassVar[tuple[str, ...]] = ("output",)  # values; the rest observed are gradients
    vital: ClassVar[tuple[str, ...]] = ("output",)  # properties where an error raised is wrong
    paired: ClassVar[bool] = False  # whether two variants at a time are tried as causes
    variants: ClassVar[tuple[Cause, ...]] = ()
    spellings: ClassVar[Any] = frozenset()  # fn's names of its options

    @property
    def compiles(self) -> bool:
        """Whether the library compiles every shape anew, so that fewer sizes are tried."""
        return self.library in ("jax", "tensorflow")

    @property
    def epsilon(self) -> float:
        """The spacing of floats at 1."""
        return SPACINGS[self.computed]

    @property
    def computed(self) -> str:
        """The float type that fn computes in, as far as it is known."""
        return "float32" if self.single else self.dtype

    @property
    def half(self) -> bool:
        """Whether it is one of the two half types."""
        return self.epsilon > SPACINGS["float32"]

    @property
    def limit(self) -> float:
        """How many units of the contract are right."""
        return HALF_LIMIT if self.half else LIMIT

    @cached_property
    def functions(self) -> Library:
        """How to use arrays of the library."""
        return LIBRARIES[self.library]()

    @cached_property
    def known(self) -> dict[str, inspect.Parameter]:
        """fn's parameters, as far as they are known."""
        return parameters_of(self.fn) or {}

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

    @property
    def title(self) -> str:
        """The mapping and its parameters."""
        parameters = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return f"{self.record.name} ({parameters})" if parameters else self.record.name

    def array(self, x: Any, layout: str = "") -> Any:
        """An array of the library, floats in the float type; a view of another one if asked for."""
        x = np.asarray(x)
        kind = {"b": "bool", "i": self.integers}.get(x.dtype.kind, self.dtype)
        if not layout:
            return self.functions.array(x, kind, self.settings.device)
        memory, view = LAYOUTS[layout]
        return view(
            self.functions.array(np.ascontiguousarray(memory(x)), kind, self.settings.device)
        )

    def has_layout(self, layout: str) -> bool:
        """Whether the library has views of that kind."""
        return self.library in ("numpy", "torch")[: 1 if layout in NUMPY_ONLY else 2]

    def rounded(self, x: Any) -> Array:
        """The values that the float type can hold."""
        return to_numbers(Subject.array(self, np.asarray(x, float)))

    def first(self, out: Any) -> Any:
        """The result; of several that fn returns, the first."""
        if isinstance(out, (tuple, list)) and len(out) > 1 and hasattr(out[0], "shape"):
            self.say(f"fn returns {len(out)} values; the first was judged")
            return out[0]
        return out

    def say(self, note: str) -> None:
        """Put a line into the report, once."""
        if note not in self.notes:
            self.notes.append(note)

    def epsilon_of(self, out: Any) -> float:
        """The spacing that a result can be judged by: that of its own type if it is coarser."""
        coarse = SPACINGS.get(dtype_name(out), 0.0)
        return self.epsilon if coarse <= self.epsilon else coarse * HALF_LIMIT / self.limit

    def type_of(self, array: Any) -> str:
        """The name of an array's float type."""
        return dtype_name(array)

    def numbers(self, array: Any) -> Array:
        """An array of the library as float64."""
        return to_numbers(array)

    def moved(self, gradient: Any) -> Array:
        """A parameter's gradient as numbers; an error if there is none, which is no fault."""
        numbers = self.numbers(gradient)
        if not np.any(numbers):
            raise NotImplementedError(f"no gradient in {self.learned}")
        return numbers

    def arguments(self, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """What fn is passed: arrays by name, and options that are not arrays."""
        raise NotImplementedError

    def arrays_of(self, case: Case) -> list[Array]:
        """All arrays that are passed to fn."""
        return [*self.arguments(case)[0].values()]

    def native(self, case: Case) -> list[Any]:
        """The arrays of a case in the library, the first of them laid out."""
        layout = case.get("layout", "")
        return [self.array(x, layout if i < self.laid_out else "")
                for i, x in enumerate(self.arrays_of(case))]  # fmt: skip

    def call(self, case: Case, arrays: list[Any], function: Any = None) -> Any:
        """What fn, or another function of the same arguments, gives for arrays of its library."""
        named, options = self.arguments(case)
        n = self.positional
        more = dict(zip([*named][n:], arrays[n:], strict=True))
        with blaming(case):
            return (function or self.fn)(*arrays[:n], **more, **options)

    def ask(self, question: Any, case: Case) -> list[Finding]:
        """The findings."""
        return [*question(self, case)]

    def count(self, **sizes: int) -> None:
        """Remember the sizes of a case, for the report."""
        for name, n in sizes.items():
            self.sizes.setdefault(name, set()).add(n)

    def sample(self) -> Case:
        """Ordinary input."""
        raise NotImplementedError

    def observe(self, case: Case) -> dict[str, Array]:
        """What fn gives, and its gradients if the case asks for them."""
        raise NotImplementedError

    def expect(self, case: Case) -> dict[str, Expected]:
        """What is right, and what it may be off by."""
        raise NotImplementedError

    def computes_in_single(self) -> bool:
        """Whether a change that float32 does not show changes nothing in float64 either."""
        if self.dtype != "float64":
            return False
        with suppress(CallError, Missing):
            case, name = self.sample(), self.primary[0]
            moved = case | {x: case[x] * (1 + 2.0**-40) for x in ("z", "query") if x in case}
            a, b = (self.expect(x)[name].value for x in (case, moved))
            p, q = (self.observe(x)[name] for x in (case, moved))
            return not np.array_equal(a, b) and np.array_equal(p, q)
        return False

    def tried(self) -> Any:
        """What fn gives for ordinary input, of its library; an exception if it does not fit."""
        raise NotImplementedError

    def settled(self: S, out: Any) -> S:
        """The subject with what is found out from that."""
        return self

    def fits(self) -> bool:
        """Whether the library has the float type, and fn takes it."""
        try:
            self.tried()
            return dtype_name(self.array(1.0)) == self.dtype
        except Exception:  # libraries have errors of their own
            return False


@contextmanager
def blaming(case: Case) -> Iterator[None]:
    """Errors of a function as `CallError`, with its input."""
    try:
        yield
    except CallError:
        raise
    except Exception as error:  # libraries have errors of their own
        raise CallError(case, error) from error


def fitting(trials: Callable[[str], Iterable[S]], settings: Settings, expected: str) -> list[S]:
    """The first of a library's subjects that fn takes, in every float type that it takes.

    Each float type is tried alone, so that a kernel of half types is taken as it is. Every case is
    tried in the widest of float32 and float64 that fn takes and in one half type.
    """
    errors: dict[str, Exception] = {}
    asked = (
        [*SPACINGS] if settings.dtypes is None else [x for x in SPACINGS if x in settings.dtypes]
    )
    first = sorted(asked or SPACINGS, key=["float32", "float16", "bfloat16", "float64"].index)
    for library in (name for name in LIBRARIES if name in sys.modules):
        for subject in trials(library):
            for dtype in first:
                one = replace(subject, dtype=dtype)
                try:
                    out = one.tried()
                except RecursionError as error:
                    errors.setdefault(library, error)
                    break
                except Exception as error:  # libraries have errors of their own
                    errors.setdefault(library, error)
                    continue
                one = replace(one, library=library_of(out) if library == "numpy" else library)
                one = one.settled(out)
                fit = [x for name in SPACINGS if (x := replace(one, dtype=name, seen=[])).fits()]
                if one.library == "numpy" and settings.dtypes is None:  # ml_dtypes' is not NumPy's
                    fit = [x for x in fit if x.dtype != "bfloat16"]
                if chosen := [x for x in fit if x.dtype in asked]:
                    wide = next((x.dtype for x in chosen if not x.half), "")
                    half = next((x.dtype for x in chosen if x.half), "")
                    full = (wide, half)[: 1 if wide and one.compiles else 2]
                    return [replace(x, full=x.dtype in full, alone=not wide,
                                    single=x.computes_in_single()) for x in chosen]  # fmt: skip
                raise ValueError(
                    "dtypes must have one that fn takes, of "
                    f"{[x.dtype for x in fit]}, got {[*(settings.dtypes or ())]}"
                )
            else:
                continue
            break
    each = "; ".join(
        f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]:.150}"
        for name, error in errors.items()
    )
    hint = next(hint for words, hint in HINTS.items() if re.search(words, each, re.IGNORECASE))
    raise TypeError(f"fn must map {expected}: {each}; {hint}") from next(iter(errors.values()))


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings: fn may overflow, but its result is what counts."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


R = TypeVar("R", bound=Report)


def judge(
    kind: type[R], what: str, fn: Any, properties: Sequence[Property], settings: Settings,
    trials: Callable[[str], Iterable[Subject]], expected: str,
) -> R:  # fmt: skip
    """The report on a function: the first subject of its library that fits is examined."""
    if not callable(fn):
        raise TypeError(f"fn must be a function, got {fn!r:.60}")
    if inspect.isclass(fn):
        raise TypeError(f"fn is the class {fn.__name__}; pass an instance, {fn.__name__}(…)")
    with quiet():
        subjects = fitting(trials, settings, expected)
        results = examine(properties, subjects)
        found, none = causes(subjects)
    first = subjects[0]
    sizes = ", ".join(f"{name} {min(x)} to {max(x)}" for name, x in first.sizes.items())
    return kind(
        f"{what}{first.title}", tuple(one.dtype for one in subjects), results, settings.strict,
        found, (*first.notes, *([none] if none else ())),
        f"{sum(one.cases for one in results)} cases, {sizes}", tuple(subjects),
    )  # fmt: skip
