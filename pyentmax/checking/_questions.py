"""Questions that go for all functions, each asked of a subject and a case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pyentmax.checking._libraries import dtype_name, to_numbers
from pyentmax.checking._subject import Property, Subject
from pyentmax.checking._verdict import CallError, Case, Finding, Missing


def right(u: Subject, case: Case) -> Iterator[Finding]:
    """Whether the function gives what is right."""
    observed = u.observe(case)
    error, expected = observed.pop("error", None), u.expect(case)
    case |= {"observed": observed, "expected": expected}
    for name, one in expected.items():
        if name in observed:
            yield u.measure(case, name, observed[name], one)
    if error is not None:
        raise error


def same(case: Case, observed: Any, expected: Any, equal: bool | None = None) -> Finding:
    """A finding of equality: nothing lies between right and wrong."""
    equal = observed == expected if equal is None else equal
    return Finding(case, observed, expected, 0.0 if equal else np.inf)


def float_type(u: Subject, case: Case) -> Iterator[Finding]:
    """Whether the result has the float type of the arrays, and its precision."""
    name = dtype_name(u.raw(case))
    yield same(case, name + " of float32's precision" * (u.single and name == u.dtype), u.dtype)


def repeated(u: Subject, case: Case) -> Iterator[Finding]:
    """Whether a second call gives the same, up to the order of sums."""
    first, second = u.observe(case), u.observe(case)
    for name, expected in u.expect(case).items():
        if name in first and name in second:
            yield u.measure(case, name, second[name], expected._replace(value=first[name]))


def again_backwards(u: Subject, case: Case) -> Iterator[Finding]:
    """Whether another backward pass of the same result gives the same gradients."""
    if u.library != "torch" or u.no_gradients or u.own_vjp is not None:
        raise Missing("PyTorch's graphs alone are walked twice")
    found = [u.observe({**case, "gradients": True, "upstream": how}) for how in ("", "again")]
    if errors := [x["error"] for x in found if "error" in x]:
        words = str(errors[0])
        if "error" not in found[0] and "second time" not in words:
            raise errors[0]
        raise Missing(words)  # a graph that refuses is no fault
    for name, expected in u.expect(case | {"gradients": True}).items():
        if name in found[0] and name != u.operator.result:
            yield u.measure(case, name, found[1][name], expected._replace(value=found[0][name]))


def arrays_read_anew(u: Subject, case: Case) -> Iterator[Finding]:
    """Whether a call sees what was written into its arrays since the last one."""
    arrays, others = u.native(case), _other_numbers(u, case)
    u.raw(case, arrays)
    for array, other in zip(arrays.values(), others.values(), strict=True):
        array[...] = other
    name = u.operator.result
    again, value = (to_numbers(u.raw(case, x)) for x in (arrays, _other_numbers(u, case)))
    allowed = np.max(u.expect(case)[name].allowed)
    yield u.measure(case, name, again, u.expect(case)[name]._replace(value=value, allowed=allowed))


def results_kept(u: Subject, case: Case) -> Iterator[Finding]:
    """Whether the result of a call survives the next one, which gets other arrays of that shape."""
    out = u.raw(case)
    before = to_numbers(out).copy()
    u.raw(case, _other_numbers(u, case))
    intact = np.array_equal(before, to_numbers(out), equal_nan=True)
    yield same(case, "changed by the next call" if not intact else "kept", "kept")


def _other_numbers(u: Subject, case: Case) -> dict[str, Any]:
    """Arrays of the same shapes, and other numbers."""
    arrays = u.operator.given(u, case)[0].items()
    return {name: u.array(np.where(np.isfinite(x), -x, 0) if x.dtype.kind == "f" else x)
            for name, x in ((n, np.asarray(x)) for n, x in arrays)}  # fmt: skip


def inputs_unchanged(u: Subject, case: Case) -> Iterator[Finding]:
    """Whether fn, or its gradient, writes into what it gets."""
    arrays, before = u.native(case), u.native(case)
    u.raw(case, arrays)
    if u.own_vjp is not None and case.get("gradients"):
        try:
            u.operator.own_vjp(u, case, arrays, u.operator.given(u, case)[1])
        except Exception as error:  # libraries have errors of their own
            raise CallError(case, error) from error
    intact = all(np.array_equal(to_numbers(a), to_numbers(b), equal_nan=True)
                 for a, b in zip(arrays.values(), before.values(), strict=True))  # fmt: skip
    yield same(case, "as they were" if intact else "inputs changed", "as they were")


def of_calls(plain: Any, written: Any = (), more: Any = ()) -> tuple[Property, ...]:
    """Properties of every function, for plain cases, those that read arrays anew, and options."""

    def of(*groups: Any) -> Any:
        return lambda u: [one for x in groups for one in (x(u) if callable(x) else x)]

    def anew(u: Subject) -> list[Case]:
        found: list[Case] = of(plain, written)(u) * u.has_layout("transposed")
        return found

    def graded(u: Subject) -> list[Case]:
        return [one | {"gradients": True, "fixed": True} for one in of(plain)(u)]

    return (
        Property("a second backward pass", "It gives the same.", graded, again_backwards,
                 cause="a second backward pass differs: leave saved arrays as they are"),
        Property("a second call", "It gives the same.", of(plain), repeated,
                 cause="two calls differ: fn is random, or keeps state"),
        Property("arrays read anew", "A call sees what was written into its arrays since the last.",
                 anew, arrays_read_anew,
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
