"""Properties, and questions that go for all functions, each asked of a subject and a case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._libraries import LAYOUTS, NUMPY_ONLY, dtype_name, to_numbers
from pyentmax.checking._verdict import CallError, Case, Finding, Missing

G: dict[str, Any] = {"gradients": True}


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
    ask: Any = None
    edge: bool = False
    refusable: Any = False
    core: bool = False
    vital: bool = False
    option: bool = False
    cause: str = ""


def right(u: Any, case: Case) -> Iterator[Finding]:
    """Whether the function gives what is right."""
    observed = u.observe(case)
    error, expected = observed.pop("error", None), u.expect(case)
    case.update(observed=observed, expected=expected)
    for name, one in expected.items():
        if name in observed:
            yield u.measure(case, name, observed[name], one)
    if error is not None:
        raise error


def same(case: Case, observed: Any, expected: Any, equal: bool | None = None) -> Finding:
    """A finding of equality: nothing lies between right and wrong."""
    equal = observed == expected if equal is None else equal
    return Finding(case, observed, expected, 0.0 if equal else np.inf)


def float_type(u: Any, case: Case) -> Iterator[Finding]:
    """Whether the result has the float type of the arrays, and its precision."""
    name = dtype_name(u.raw(case))
    yield same(case, name + " of float32's precision" * (u.single and name == u.dtype), u.dtype)


def repeated(u: Any, case: Case, *hows: str) -> Iterator[Finding]:
    """Whether a second call gives the same, up to the order of sums; or a second backward pass."""
    cases = [case | {"upstream": how} for how in hows or ("", "")]
    first, second = (u.observe(one) for one in cases)
    if "error" in second and ("error" in first or "second time" in str(second["error"])):
        raise Missing(str(second["error"]))  # a graph that refuses is no fault
    if "error" in second:
        raise second["error"]
    for name, one in u.expect(cases[0]).items():
        if name in first and name in second and not (hows and name == u.operator.result):
            yield u.measure(case, name, second[name], one._replace(value=first[name]))


def again_backwards(u: Any, case: Case) -> Iterator[Finding]:
    """Whether another backward pass of the same result gives the same gradients."""
    if u.library != "torch" or u.no_gradients or u.own_vjp is not None:
        raise Missing("PyTorch's graphs alone are walked twice")
    yield from repeated(u, case, "", "again")


def arrays_read_anew(u: Any, case: Case) -> Iterator[Finding]:
    """Whether a call sees what was written into its arrays since the last one."""
    arrays = u.native(case)[0]
    u.raw(case, arrays)
    for array, other in zip(arrays.values(), _other_numbers(u, case).values(), strict=True):
        array[...] = other
    again, value = (to_numbers(u.raw(case, x)) for x in (arrays, _other_numbers(u, case)))
    name = u.operator.result
    one = u.expect(case)[name]
    one = one._replace(value=value, allowed=np.max(one.allowed))
    yield u.measure(case, name, again, one)


def results_kept(u: Any, case: Case) -> Iterator[Finding]:
    """Whether the result of a call survives the next one, which gets other arrays of that shape."""
    out = u.raw(case)
    before = to_numbers(out).copy()
    u.raw(case, _other_numbers(u, case))
    intact = np.array_equal(before, to_numbers(out), equal_nan=True)
    yield same(case, "kept" if intact else "changed by the next call", "kept")


def _other_numbers(u: Any, case: Case) -> dict[str, Any]:
    """Arrays of the same shapes, and other numbers."""
    return {name: u.array(np.where(np.isfinite(x), -x, 0) if x.dtype.kind == "f" else x)
            for name, x in u.operator.given(u, case)[0].items()}  # fmt: skip


def inputs_unchanged(u: Any, case: Case) -> Iterator[Finding]:
    """Whether fn, or its gradient, writes into what it gets."""
    arrays, before = u.native(case)[0], u.native(case)[0]
    u.raw(case, arrays)
    if u.own_vjp is not None and case.gradients:
        try:
            u.operator.own_vjp(u, case, arrays, u.operator.given(u, case)[1])
        except Exception as error:  # libraries have errors of their own
            raise CallError(case, error) from error
    intact = all(np.array_equal(to_numbers(a), to_numbers(b), equal_nan=True)
                 for a, b in zip(arrays.values(), before.values(), strict=True))  # fmt: skip
    yield same(case, "as they were" if intact else "inputs changed", "as they were")


def views(u: Any, *cases: Any) -> list[Any]:
    """Cases in every layout of memory that the library has, and their axes allow."""
    least = {"heads inside": 3, "transposed": 2}
    return [{**one, "layout": name, **({} if name in NUMPY_ONLY else G)} for name in LAYOUTS
            if u.has_layout(name) for one in cases
            if u.operator.axes(u, one) >= least.get(name, 1)]  # fmt: skip


def of_calls(plain: Any, strided: Any, viewed: Any, written: Any = (), more: Any = ()) -> Any:
    """Properties of every function: cases that are plain, have gradients from above that are views,
    are laid out in views, are written into, and have options."""

    def of(*groups: Any, **words: Any) -> Any:
        return lambda u: [{**one, **words} for x in groups for one in (x(u) if callable(x) else x)]

    return (
        Property("memory layouts", "Views of any strides give the same.",
                 lambda u: views(u, *of(viewed)(u))),
        Property("strided gradients from above", "Gradients for a g that is a view.",
                 lambda u: of(strided, gradients=True, upstream="strided")(u)
                 if u.library == "torch" and u.own_vjp is None else [],
                 cause="strides of the gradient from above not used: make it contiguous"),
        Property("a second backward pass", "It gives the same.", of(plain, **G, fixed=True),
                 again_backwards,
                 cause="a second backward pass differs: leave saved arrays as they are"),
        Property("a second call", "It gives the same.", of(plain), repeated,
                 cause="two calls differ: fn is random, or keeps state"),
        Property("arrays read anew", "A call sees what was written into its arrays since the last.",
                 lambda u: of(plain, written)(u) * u.has_layout("transposed"), arrays_read_anew,
                 cause="a stale result: do not keep results by address or shape"),
        Property("inputs left as they were", "fn does not write into its arrays.",
                 of(plain, written, more), inputs_unchanged, edge=True, core=True,
                 cause="writes into its inputs: copy them first"),
        Property("results left as they were", "A result does not change with the next call.",
                 of(plain), results_kept, edge=True,
                 cause="one buffer for all calls: give each result its own memory"),
        Property("float type", "The result has the float type of the arrays.", of(plain),
                 float_type, edge=True, core=True),
    )  # fmt: skip
