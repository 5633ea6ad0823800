"""Decorators that declare what a public function is: they give it `dispatch`, which it calls.

A mapping's file holds mathematics on rows. Beside it stands the function that users call:

    def _forward(y, alpha):
        ...

    @declare.mapping(_forward, ALPHA)
    def entmax(z, alpha=1.5, axis=-1, *, mask=None, out=None, workers=None, offsets=None):
        return entmax.dispatch(z, alpha, axis, mask, out, workers, offsets)

The decorator returns the function as it is written, with these attributes:

- ``dispatch`` takes what the function does, by position, None in the place of a parameter that it
  does not have. A NumPy array goes to the compiled kernel of the function's name, if there is one,
  a CuPy array to the CUDA kernel of that name, and everything else to the body; a Dask array chunk
  by chunk.
- ``body`` is the mathematics on rows: y is an array of shape (n, d), −∞ where the mask is False,
  each row's largest score at 0; alpha is a column; axis, mask and out have done their work before.
- ``reference`` takes the same arguments, and always runs the body.
- ``parameter`` declares the values of alpha.

Functions that may have a kernel take ``workers=``, the threads of a call (`pyentmax.set_workers`).
All but Jacobians and Ω take ``offsets=``, which cut the axis into rows of different lengths
(`pyentmax.engine.calls.offsets`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from pyentmax.engine.backends import choice, cut_rows, threads
from pyentmax.engine.calls.dask_arrays import plan_rows
from pyentmax.engine.calls.devices import is_dask, on_device_of
from pyentmax.engine.calls.dtypes import as_array
from pyentmax.engine.calls.offsets import call_by_offsets
from pyentmax.engine.calls.parameters import Parameter
from pyentmax.engine.calls.rows import (
    Rows,
    apply_to_scores,
    arrange_probabilities,
    arrange_scores,
    check_same_shape,
    writable_rows,
)

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Body = Callable[..., Any]

NO_KERNEL: Any = object()
"""In the place of ``workers``: what `reference` passes on."""


class Accelerated(Protocol[P, R]):
    """A function that runs a kernel where it can; `reference` never does."""

    __name__: str
    __qualname__: str
    dispatch: Callable[..., Any]
    """What every call goes through, of arguments by position."""
    arguments: Sequence[str]
    """The names of these, "" where the function has none."""
    results: Sequence[str]
    """What each row gives: entries, a number, a matrix, or its part of a parameter's gradient."""
    body: Body
    """The mathematics, of rows."""
    parameter: Parameter | None
    """What it takes besides arrays."""

    @property
    def reference(self) -> Callable[P, R]:
        """The same function without kernels, of any arrays."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernel, or the body."""


class Declare(Protocol):
    """What gives a function its attributes."""

    def __call__(self, function: Callable[P, R], /) -> Accelerated[P, R]:
        """The function itself."""


def mapping(body: Body, parameter: Parameter | None = None) -> Declare:
    """Probabilities of scores: ``dispatch(z, parameter, axis, mask, out, workers, offsets)``."""
    return decorator(_of_scores, body, parameter, 0)


def log_probabilities(body: Body, parameter: Parameter | None = None) -> Declare:
    """Logarithms of probabilities, called as the mapping is; −∞ in a row with nothing left."""
    return decorator(_of_scores, body, parameter, -np.inf)


def support(body: Body, parameter: Parameter | None = None) -> Declare:
    """Where there is probability: ``dispatch(z, parameter, axis, mask, offsets)``."""
    return decorator(_set_of_scores, body, parameter, False)


def keep_set(body: Body, parameter: Parameter) -> Declare:
    """Which scores are kept, called as a support is.

    The body's first argument is the library of the array functions.
    """
    return decorator(_set_of_scores, body, parameter, True)


def product(
    body: Body, parameter: Parameter | None = None, *, kernel: str | None = None
) -> Declare:
    """A product with the Jacobian: ``dispatch(p, v, parameter, axis, mask, workers, offsets)``.

    `kernel` names another function's kernel that does the same.
    """
    return decorator(
        _of_probabilities, body, parameter, _DerivativeSpec(("entries",), "v", kernel=kernel)
    )


def elementwise_gradient(body: Body, parameter: Parameter) -> Declare:
    """A derivative of each entry, called as a product is, with None in the place of v and mask."""
    return decorator(_of_probabilities, body, parameter, _DerivativeSpec(("entries",)))


def parameter_vjp(
    body: Body, parameter: Parameter, *, with_mask: bool = False, with_scores: bool = False
) -> Declare:
    """The gradient in a parameter, called as a product is, with g in the place of v.

    The body returns what each row gives (for a bound: each entry), and the caller gets their sums
    in the shape of the parameter. With `with_mask` the body also sees the mask, by that keyword;
    with `with_scores` the scores z, which `dispatch` takes last.
    """
    form = _DerivativeSpec(("gradient",), "g", with_mask=with_mask, with_scores=with_scores)
    return decorator(_of_probabilities, body, parameter, form)


def vjps(body: Body, parameter: Parameter) -> Declare:
    """The products with the Jacobian and the gradient in a parameter at once, as a pair.

    Called as either is. The body returns both in rows, the gradient as what each row gives.
    """
    return decorator(
        _of_probabilities, body, parameter, _DerivativeSpec(("entries", "gradient"), "g")
    )


def jacobian(body: Body, parameter: Parameter | None = None) -> Declare:
    """The Jacobian: ``dispatch(p, parameter, axis)``, where the body returns (n, d, d)."""
    return decorator(_of_whole_rows, body, parameter, _DerivativeSpec(("matrix",)))


def regularizer(
    body: Body, parameter: Parameter | None = None, *, with_mask: bool = False
) -> Declare:
    """Ω(p) of each row: ``dispatch(p, parameter, axis, mask)``."""
    return decorator(
        _of_whole_rows, body, parameter, _DerivativeSpec(("number",), with_mask=with_mask)
    )


def decorator(function: Callable[..., Any], *declared: Any) -> Any:
    """What calls `function` on these and then on what it decorates; mypy cannot follow partial."""
    return partial(function, *declared)


def accelerated(
    function: Callable[P, R],
    dispatch: Callable[..., Any],
    arguments: Sequence[str],
    body: Body,
    parameter: Parameter | None,
    results: Sequence[str] = ("entries",),
    *,
    kernels: bool = True,
) -> Accelerated[P, R]:
    """The function with its attributes.

    Parameters
    ----------
    function : as users call it
    dispatch, arguments, body, parameter, results : as in `Accelerated`
    kernels : bool
        False for a function that has none, and does not take ``workers=``
    """
    public: Any = function
    public.dispatch, public.arguments, public.results = dispatch, arguments, results
    public.body, public.parameter = body, parameter
    public.reference = _without_kernels(public) if kernels else public
    return cast("Accelerated[P, R]", public)


def _without_kernels(function: Any) -> Any:
    @functools.wraps(function)
    def reference(*args: Any, **kwargs: Any) -> Any:
        if "workers" in kwargs:
            raise TypeError(
                f"{function.__name__}() got an unexpected keyword argument 'workers': its "
                "reference runs in one thread"
            )
        return function(*args, **kwargs, workers=NO_KERNEL)

    whole = inspect.signature(function)
    parameters = [x for x in whole.parameters.values() if x.name != "workers"]
    reference.__qualname__ = f"{function.__qualname__}.reference"  # by which it can be pickled
    reference.__signature__ = whole.replace(parameters=parameters)  # type: ignore[attr-defined]
    return reference


def _of_scores(
    body: Body, parameter: Parameter | None, empty: float, function: Any
) -> Accelerated[..., Any]:
    """A function of scores whose result has their shape."""
    name, named = function.__name__, "" if parameter is None else parameter.name
    arguments = ("z", named, "axis", "mask", "out", "workers", "offsets")

    def dispatch(
        z: Any, value: Any, axis: Any, mask: Any, out: Any, workers: Any, offsets: Any = None
    ) -> Any:
        use_kernels = workers is not NO_KERNEL
        if offsets is not None:
            values = (z, value, axis, mask, out, workers, None)
            if use_kernels:
                named_values = dict(zip(arguments, values, strict=True))
                how = name, parameter, ("entries",), None
                result = cut_rows.run_in_place(*how, offsets, named_values)
                if result is not NotImplemented:
                    return result
            return call_by_offsets(dispatch, arguments, parameter, ("entries",), offsets, *values)
        if type(z) is not np.ndarray:
            if is_dask(z):
                if out is not None:
                    raise TypeError(
                        "out must be left out for a Dask array, which is computed later"
                    )
                this = function if use_kernels else function.reference
                arrays = {"z": z, named: value, "axis": axis, "mask": mask}
                return plan_rows(this, parameter, arrays)
            if use_kernels:
                given: tuple[Any, ...] = (z, axis, mask, out)
                if parameter is not None:
                    given = (z, value, axis, mask, out)
                result = choice.run_on_gpu(name, parameter, value, given)
                if result is not NotImplemented:
                    return result
        rows = arrange_scores(z, axis, mask, out)
        if parameter is not None:
            value = parameter.for_scores(value, rows)
        kernel = None
        if use_kernels:
            if workers is not None:
                workers = threads.counted(workers)
            kernel = choice.kernel_for(rows.array, name, parameter, value)
        if kernel is None and use_kernels:

            def in_rows(arrays: Any, value: Any, mask: Any) -> Any:
                (z,) = arrays
                return dispatch(z, value, -1, mask, None, workers)

            p = choice.run_apart(in_rows, name, parameter, value, rows.mask, rows.array)
            if p is not None:
                return rows.finish(p, out)
        if kernel is None:
            return rows.finish(
                apply_to_scores(body, rows, parameter, value, empty_value=empty), out
            )
        operands = rows.operands()
        if parameter is not None:
            operands += (parameter.kernel_operand(value, rows.array),)
        out_rows = None if out is None else writable_rows(out, rows)
        p = threads.run(kernel, operands, out_rows, workers)
        return rows.finish(p, out) if out_rows is None else out

    return accelerated(function, dispatch, arguments, body, parameter)


def _set_of_scores(
    body: Body, parameter: Parameter | None, is_keep_set: bool, function: Any
) -> Accelerated[..., Any]:
    """Some of the scores, as bools of their shape."""
    on_rows = partial(body, np) if is_keep_set else body
    arguments = ("z", "" if parameter is None else parameter.name, "axis", "mask", "offsets")

    def dispatch(z: Any, value: Any, axis: Any, mask: Any, offsets: Any = None) -> Any:
        if offsets is not None:
            values = (z, value, axis, mask, None)
            return call_by_offsets(dispatch, arguments, parameter, ("entries",), offsets, *values)
        if is_dask(z):
            given = dict(zip(arguments, (z, value, axis, mask), strict=False))
            return plan_rows(function, parameter, given)
        rows = arrange_scores(z, axis, mask)
        if parameter is not None:
            value = parameter.for_scores(value, rows)
        # In a row with nothing left a keep-set is True, and masks nothing.
        chosen = apply_to_scores(on_rows, rows, parameter, value, empty_value=is_keep_set)
        return rows.finish(chosen, dtype=chosen.dtype)

    return accelerated(function, dispatch, arguments, body, parameter, kernels=False)


class _DerivativeSpec(NamedTuple):
    """What a function of probabilities p takes and gives."""

    results: Sequence[str]
    """As in `Accelerated`."""
    direction: str = ""
    """The name of the array that follows p, if any."""
    with_mask: bool = False
    """Whether the body sees the mask."""
    with_scores: bool = False
    """Whether the body sees the scores."""
    kernel: str | None = None
    """The name of its kernel, if that is not the function's own."""


def _of_probabilities(
    body: Body, parameter: Parameter | None, form: _DerivativeSpec, function: Any
) -> Accelerated[..., Any]:
    """A function of probabilities p, perhaps of a direction, a parameter, and the scores z."""
    name, named = form.kernel or function.__name__, "" if parameter is None else parameter.name
    results, direction, with_scores = form.results, form.direction, form.with_scores
    arguments = ("p", direction, named, "axis", "mask", "workers", "offsets", "z")

    def dispatch(
        p: Any, v: Any, value: Any, axis: Any, mask: Any, workers: Any, offsets: Any = None,
        z: Any = None,
    ) -> Any:  # fmt: skip
        use_kernels = workers is not NO_KERNEL
        if offsets is not None:
            values = (p, v, value, axis, mask, workers, None, z)
            if use_kernels:
                named_values = dict(zip(arguments, values, strict=True))
                how = name, parameter, results, direction
                result = cut_rows.run_in_place(*how, offsets, named_values)
                if result is not NotImplemented:
                    return result
            return call_by_offsets(dispatch, arguments, parameter, results, offsets, *values)
        if type(p) is not np.ndarray:
            if is_dask(p):
                this = function if use_kernels else function.reference
                arrays = {"p": p, direction: v, named: value, "z": z, "axis": axis}
                return plan_rows(this, parameter, {**arrays, "mask": mask}, results)
            if use_kernels:
                given: tuple[Any, ...] = (p, v) if direction else (p,)
                given += () if parameter is None else (value,)
                given += (axis, mask) if direction else (axis,)
                result = choice.run_on_gpu(name, parameter, value, given)
                if result is not NotImplemented:
                    return result
        rows, v = arrange_probabilities(p, v, axis, mask, direction)
        operands = (rows.array, v) if direction else (rows.array,)
        checked = None if parameter is None else parameter.for_probabilities(value, rows, p)
        scores = _scores_like(rows, z, axis) if with_scores else None
        kernel = None
        if use_kernels:
            if workers is not None:
                workers = threads.counted(workers)
            kernel = choice.kernel_for(rows.array, name, parameter, checked)
        each: Any = None
        if kernel is None and use_kernels:

            def in_rows(arrays: Any, value: Any, mask: Any) -> Any:
                first, v = (*arrays, None)[:2]
                return dispatch(first, v, value, -1, mask, workers)

            each = choice.run_apart(in_rows, name, parameter, checked, rows.mask, *operands)
        if kernel is None and each is None:
            each = _run_body(body, form, rows, operands, parameter, checked, scores)
        elif kernel is not None:
            if parameter is not None and parameter.in_product:
                operands += (parameter.kernel_operand(checked, rows.array),)
            operands += () if scores is None else (scores,)
            each = threads.run(kernel, operands, None, workers)
        if len(results) > 1:
            finish = partial(_in_callers_form, rows, parameter, value)
            return tuple(map(finish, results, each))
        return _in_callers_form(rows, parameter, value, results[0], each)

    return accelerated(function, dispatch, arguments, body, parameter, results)


def _of_whole_rows(
    body: Body, parameter: Parameter | None, form: _DerivativeSpec, function: Any
) -> Accelerated[..., Any]:
    """A function of probabilities p that has a matrix or a number for each row, and no kernel."""
    arguments = ("p", "" if parameter is None else parameter.name, "axis", "mask")

    def dispatch(p: Any, value: Any, axis: Any, mask: Any = None) -> Any:
        if is_dask(p):
            given = dict(zip(arguments, (p, value, axis, mask), strict=True))
            return plan_rows(function, parameter, given, form.results)
        rows, _ = arrange_probabilities(p, None, axis, mask)
        checked = None if parameter is None else parameter.for_probabilities(value, rows, p)
        each = _run_body(body, form, rows, (rows.array,), parameter, checked)
        return _in_callers_form(rows, parameter, value, form.results[0], each)

    return accelerated(function, dispatch, arguments, body, parameter, form.results, kernels=False)


def _scores_like(rows: Rows, z: Any, axis: Any) -> Any:
    """The scores that gave the probabilities, in rows."""
    scores = arrange_scores(on_device_of(as_array(z, "z"), rows.array, "z"), axis)
    check_same_shape(scores.shape, "z", rows.shape)
    return scores.array


def _run_body(
    body: Body,
    form: _DerivativeSpec,
    rows: Rows,
    operands: tuple[Any, ...],
    parameter: Parameter | None,
    value: Any,
    scores: Any = None,
) -> Any:
    """What the body of a derivative gives for arranged arguments."""
    shape = rows.array.shape
    flat = (-1, shape[-1])
    operands = tuple([x.reshape(flat) for x in operands])
    if parameter is not None:
        operands += (parameter.body_operand(value, rows.batch),)
    if scores is not None:
        operands += (scores.reshape(flat),)
    options: dict[str, Any] = {}
    if form.with_mask:
        mask = np.ones_like(rows.array, dtype=bool) if rows.mask is None else rows.mask
        options["mask"] = np.broadcast_to(mask, shape).reshape(flat)
    with np.errstate(under="ignore"):
        return body(*operands, **options)


def _in_callers_form(
    rows: Rows, parameter: Parameter | None, value: Any, result: str, each: Any
) -> Any:
    """What a derivative gives for each row, in the form that the caller expects."""
    if result == "entries":
        return rows.finish(each)
    if result == "gradient":
        assert parameter is not None
        return parameter.gradient(each, np.shape(value), rows)
    each = each.reshape((*rows.batch, *each.shape[1:]) if result == "matrix" else rows.batch)
    return each[()].astype(rows.dtype, copy=False)
