"""What the checks of mappings, losses and attention share: how a function is called and judged.

A subject is a function, what it claims to be, an array library and a float type. Everything that
goes in and comes out is float64 on the host, with values that the float type can hold.
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
from typing import Any, ClassVar, TypeVar

import numpy as np

from pyentmax.calls.record import Mapping
from pyentmax.checking._differences import Array
from pyentmax.checking._grades import HALF_LIMIT, LIMIT, CallError
from pyentmax.checking._libraries import (
    LIBRARIES,
    SPACINGS,
    Function,
    Library,
    dtype_name,
    library_of,
    parameter_names,
    to_numbers,
)

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
        given = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return f"{self.record.name} ({given})" if given else self.record.name

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
