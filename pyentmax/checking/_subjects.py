"""What the checks of mappings, losses and attention share: how a function is called and judged.

A subject is a function, what it claims to be, an array library and a float type. Everything that
goes in and comes out is float64 on the host, with values that the float type can hold. A library
is recognised by what a function returns, or takes, among those that the caller has imported; none
is imported here.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._grades import HALF_LIMIT, LIMIT, CallError
from pyentmax.engine.calls.record import Mapping

# --- libraries ------------------------------------------------------------------------------------
Function = Callable[..., Any]
# Of each float type, the spacing at 1 and the smallest normal number; bfloat16 is PyTorch's too.
SPACINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


class Library(NamedTuple):
    """How to convert to and from a library's arrays, and its vector-Jacobian product if any."""

    array: Callable[[Array, str], Any]
    numbers: Callable[[Any], Array]
    stack: Callable[[list[Any]], Any]
    vjp: Callable[[Function, Any, Array], Any] | None = None


def _numpy() -> Library:
    return Library(
        lambda x, dtype: np.array(x, dtype), lambda p: np.array(p).astype(np.float64), np.stack
    )


def _torch() -> Library:
    torch: Any = sys.modules["torch"]

    def vjp(fn: Function, z: Any, v: Array) -> Any:
        p = fn(z.requires_grad_() * 1)  # which fn may overwrite
        return torch.autograd.grad(p, z, torch.tensor(v, dtype=p.dtype, device=p.device))[0]

    return Library(
        lambda x, dtype: torch.tensor(x, dtype=getattr(torch, dtype)),
        lambda p: p.detach().cpu().double().numpy(),
        torch.stack,
        vjp,
    )


def _jax() -> Library:
    jax: Any = sys.modules["jax"]

    def vjp(fn: Function, z: Any, v: Array) -> Any:
        p, product = jax.vjp(fn, z)
        return product(jax.numpy.asarray(v, p.dtype))[0]

    return Library(
        jax.numpy.array, lambda p: np.asarray(p).astype(np.float64), jax.numpy.stack, vjp
    )


def _tensorflow() -> Library:
    tf: Any = sys.modules["tensorflow"]

    def vjp(fn: Function, z: Any, v: Array) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(z)
            p = fn(z)
        return tape.gradient(p, z, output_gradients=tf.constant(v, p.dtype))

    return Library(tf.constant, lambda p: p.numpy().astype(np.float64), tf.stack, vjp)


def _cupy() -> Library:
    cupy: Any = sys.modules["cupy"]
    return Library(cupy.array, lambda p: p.get().astype(np.float64), cupy.stack)


LIBRARIES = {
    "numpy": _numpy, "torch": _torch, "jax": _jax, "tensorflow": _tensorflow, "cupy": _cupy,
}  # fmt: skip
"""Name of the module → `Library`; NumPy first, since others' functions may take its arrays."""


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


def parameter_names(fn: Function) -> set[str] | None:
    """The names of fn's parameters; None if it has no signature."""
    try:
        return {*inspect.signature(fn).parameters}
    except (TypeError, ValueError):
        return None


# --- subjects -------------------------------------------------------------------------------------
S = TypeVar("S", bound="Subject")
HINTS = {  # words in an error → what to do
    "cuda|device|gpu": "if fn computes on a device, pass lambda z: fn(z.cuda()).cpu()",
    r"dimension|axis|\dD": "if fn's axis was fixed when it was made, make it with axis=-1 (dim=-1)",
    "": "a library that is missing here has to be imported first",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """What is judged, in one library and one float type."""

    integers: ClassVar[str] = "int64"
    fn: Function
    own_vjp: Function | None
    record: Mapping
    parameters: dict[str, Any]
    library: str
    dtype: str = "float32"

    @property
    def epsilon(self) -> float:
        """The spacing of floats at 1."""
        return SPACINGS[self.dtype]

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
    def names(self) -> set[str]:
        """The names of fn's parameters, as far as they are known."""
        return parameter_names(self.fn) or set()

    @property
    def passed(self) -> dict[str, Any]:
        """The parameters of the mapping that fn takes by their names."""
        return {name: value for name, value in self.parameters.items() if name in self.names}

    @property
    def title(self) -> str:
        """The mapping and its parameters."""
        parameters = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return f"{self.record.name} ({parameters})" if parameters else self.record.name

    def array(self, x: Any) -> Any:
        """An array of the library; floats in the float type."""
        x = np.asarray(x)
        kind = {"b": "bool", "i": self.integers}.get(x.dtype.kind, self.dtype)
        return self.functions.array(x, kind)

    def rounded(self, x: Any) -> Array:
        """The values that the float type can hold."""
        return to_numbers(Subject.array(self, np.asarray(x, float)))

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
def blaming(z: Array, given: str = "") -> Iterator[None]:
    """Errors of a function as `CallError`, with its input."""
    try:
        yield
    except CallError:
        raise
    except Exception as error:  # libraries have errors of their own
        raise CallError(z, error, given) from error


def check_function(fn: Any) -> None:
    """A TypeError for what cannot be called with scores."""
    if not callable(fn):
        raise TypeError(f"fn must be a function, got {fn!r:.60}")
    if inspect.isclass(fn):
        raise TypeError(f"fn is the class {fn.__name__}; pass an instance, {fn.__name__}(…)")


def fitting(
    trials: Callable[[str], Iterable[S]], dtypes: Sequence[str] | None, expected: str
) -> list[S]:
    """The first of a library's subjects that fn takes, in every float type that it takes."""
    errors: dict[str, Exception] = {}
    for library in (name for name in LIBRARIES if name in sys.modules):
        for subject in trials(library):
            try:
                out = subject.tried()
            except Exception as error:  # libraries have errors of their own
                if isinstance(errors.setdefault(library, error), RecursionError):
                    break
                continue
            subject = replace(subject, library=library_of(out) if library == "numpy" else library)
            subject = subject.settled(out)
            fit = [one for dtype in SPACINGS if (one := replace(subject, dtype=dtype)).fits()]
            if chosen := [one for one in fit if dtypes is None or one.dtype in dtypes]:
                return chosen
            taken = [one.dtype for one in fit]
            raise ValueError(f"dtypes must have one that fn takes, of {taken}, got {dtypes}")
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
