"""Decorators that declare what a function is: they check and arrange its calls, and run a kernel.

A mapping's file holds mathematics on rows. With one of these decorators,

    @declare.mapping(ALPHA)
    def entmax(z, alpha=1.5, axis=-1, *, mask=None, out=None):
        ...

the function is called with arrays of any shape, and its body with rows: z is an array of shape
(n, d), −∞ where the mask is False, each row's largest score at 0; alpha is a column; axis, mask and
out have done their work before. The signature is what users call, and what `help` and type checkers
see.

A NumPy array goes to the compiled kernel of the function's name, if there is one, a CuPy array to
the CUDA kernel of that name, and everything else to the body; a Dask array chunk by chunk.
``function.reference`` always runs the body. Functions that may have a kernel take ``workers=``, the
threads of a call (`pyentmax.set_workers`). All but Jacobians and Ω take ``offsets=``, which cut the
axis into rows of different lengths (`pyentmax.engine.calls.offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from pyentmax.engine.backends import choice, cut_rows, threads
from pyentmax.engine.calls.dask_arrays import plan_rows
from pyentmax.engine.calls.devices import is_dask, on_device_of
from pyentmax.engine.calls.documentation import (
    GRADIENT,
    JACOBIAN,
    PRODUCT,
    SUPPORT,
    VJPS,
    with_sections,
)
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
from pyentmax.engine.calls.signatures import parameter_names, with_signature

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Accelerated(Protocol[P, R]):
    """A function that runs a kernel where it can; `reference` is its body, which never does."""

    __name__: str
    __qualname__: str

    @property
    def reference(self) -> Callable[P, R]:
        """The NumPy body, called with any arrays."""

    @property
    def body(self) -> Callable[P, R]:
        """The NumPy body itself, for rows."""

    @property
    def parameter(self) -> Parameter | None:
        """What it takes besides arrays."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernel, or the body."""


class Declare(Protocol):
    """What turns a body into the function that users call."""

    def __call__(self, body: Callable[P, R], /) -> Accelerated[P, R]:
        """The function, with the body's signature."""


Arrange = Callable[[bool], Callable[..., Any]]  # of whether kernels are used: a call's steps


def mapping(parameter: Parameter | None = None) -> Declare:
    """Probabilities of scores: ``f(z[, parameter], axis=-1, *, mask=None, out=None)``."""
    return _with(_score_function, parameter=parameter)


def log_probabilities(parameter: Parameter | None = None) -> Declare:
    """Logarithms of probabilities, called as the mapping is; −∞ in a row with nothing left."""
    return _with(_score_function, parameter=parameter, dead=-np.inf)


def support(parameter: Parameter | None = None) -> Declare:
    """Where there is probability: ``f(z[, parameter], axis=-1, *, mask=None)``."""
    return _with(_score_function, parameter=parameter, sections=SUPPORT, kernels=False)


def keep_set(
    parameter: Parameter,
) -> Callable[[Callable[Concatenate[Any, P], R]], Accelerated[P, R]]:
    """Which scores are kept: ``f(z, parameter, axis=-1, *, mask=None)``.

    The body's first argument, which users do not see, is the library of the array functions.
    """
    return _with(_score_function, parameter=parameter, dead=True, kernels=False, skip=1)


def product(parameter: Parameter | None = None, *, kernel: str | None = None) -> Declare:
    """A product with the Jacobian: ``f(p, v[, parameter], axis=-1, *, mask=None)``.

    `kernel` names another function's kernel that does the same.
    """
    return _of_probabilities(parameter, "entries", direction="v", sections=PRODUCT, kernel=kernel)


def jacobian(parameter: Parameter | None = None) -> Declare:
    """The Jacobian: ``f(p[, parameter], axis=-1)``, of which the body returns (n, d, d)."""
    return _of_probabilities(parameter, "matrix", sections=JACOBIAN, kernels=False)


def elementwise_gradient(parameter: Parameter) -> Declare:
    """A derivative of each entry: ``f(p, parameter, axis=-1)``."""
    return _of_probabilities(parameter, "entries")


def parameter_vjp(parameter: Parameter, *, with_mask: bool = False) -> Declare:
    """The gradient in a parameter: ``f(p, g, parameter[, z], axis=-1, *, mask=None)``.

    The body returns what each row gives (for a bound: each entry), and the caller gets their sums
    in the shape of the parameter. With `with_mask` the body also sees the mask, by that keyword.
    """
    form = {"direction": "g", "sections": GRADIENT, "with_mask": with_mask}
    return _of_probabilities(parameter, "gradient", **form)


def vjps(parameter: Parameter) -> Declare:
    """The products with the Jacobian and the gradient in a parameter at once, as a pair.

    Called as either is. The body returns both in rows, the gradient as what each row gives.
    """
    return _of_probabilities(parameter, "entries", "gradient", direction="g", sections=VJPS)


def regularizer(parameter: Parameter | None = None, *, with_mask: bool = False) -> Declare:
    """Ω(p) of each row: ``f(p[, parameter], axis=-1[, *, mask=None])``."""
    return _of_probabilities(parameter, "number", with_mask=with_mask, kernels=False)


def accelerated(
    body: Callable[P, R],
    parameter: Parameter | None,
    arrange: Arrange,
    roles: Sequence[str],
    keywords: dict[str, Any] | None = None,
    kernels: bool = True,
    skip: int = 0,
    results: Sequence[str] = (),
    by_offsets: Callable[..., Any] = call_by_offsets,
    by_kernel: Callable[..., Any] | None = None,
) -> Accelerated[P, R]:
    """A function of users' arrays that runs kernels, with its `reference`, which does not.

    Parameters
    ----------
    body : function of rows
    parameter : Parameter or None
    arrange : callable
        given whether kernels are used, it returns what takes a call's arguments in a fixed order
    roles : sequence of str
        the names of these arguments, None for those that body does not have
    keywords : dict, optional
        keywords that stand for the body's ``**options``, with their defaults
    kernels : bool
        False for a function that has none, and takes no ``workers=``
    skip : int
        number of the body's first parameters that users do not see
    results : sequence of str, optional
        what it gives for each row, of a function that takes ``offsets=``
    by_offsets : callable, optional
        what takes such a call, as `pyentmax.engine.calls.offsets.call_by_offsets` does
    by_kernel : callable, optional
        what takes it first, of the offsets and arguments by name
        (`pyentmax.engine.backends.cut_rows`)
    """

    def function(use_kernels: bool, keywords: dict[str, Any]) -> Any:
        call = arrange(use_kernels)

        def cut(offsets: Any, *values: Any) -> Any:
            result: Any = NotImplemented
            if use_kernels and by_kernel is not None:
                result = by_kernel(offsets, dict(zip(roles, values, strict=True)))
            if result is not NotImplemented:
                return result
            return by_offsets(call, roles, parameter, results, offsets, *values)

        return with_signature(body, call, roles, keywords, skip, cut if results else None)

    keywords = keywords or {}
    reference = public = function(False, keywords)
    if kernels:
        public = function(True, {**keywords, "workers": None})
    public.reference = reference
    for each in (reference, public):
        each.body, each.parameter, each.results = body, parameter, results
    return cast("Accelerated[P, R]", public)


def _with(function: Any, **form: Any) -> Any:
    """The decorator that `function` becomes; mypy cannot follow its type through partial."""
    return partial(function, **form)


def _of_probabilities(parameter: Parameter | None, *results: str, **form: Any) -> Any:
    """The same for `_derivative`."""
    return partial(_derivative, parameter=parameter, form=_Form(results, **form))


def _score_function(
    body: Callable[P, R],
    parameter: Parameter | None,
    *,
    dead: float = 0,
    sections: str = "",
    kernels: bool = True,
    skip: int = 0,
) -> Accelerated[P, R]:
    """A function of scores whose result has their shape."""
    on_rows = partial(cast("Any", body), np) if skip else body
    name, named = body.__name__, "" if parameter is None else parameter.name
    if sections:
        with_sections(body, sections, (*parameter_names(body), "offsets"))

    def arrange(use_kernels: bool) -> Callable[..., Any]:
        def call(z: Any, value: Any, axis: Any, mask: Any, out: Any, workers: Any) -> Any:
            if type(z) is not np.ndarray:
                kwargs = {"z": z, named: value, "axis": axis, "mask": mask, "out": out}
                result = elsewhere(public, parameter, kwargs, use_kernels, name)
                if result is not NotImplemented:
                    return result
            rows = arrange_scores(z, axis, mask, out)
            if parameter is not None:
                value = parameter.for_scores(value, rows)
            if workers is not None:
                workers = threads.counted(workers)
            kernel = None
            if use_kernels:
                kernel = choice.kernel_for(rows.array, name, parameter, value)
            if kernel is None and use_kernels:

                def in_rows(arrays: Any, value: Any, mask: Any) -> Any:
                    operands: Any = (*arrays, value, -1, mask, None, workers)
                    return call(*operands)

                p = choice.run_apart(in_rows, name, parameter, value, rows.mask, rows.array)
                if p is not None:
                    return rows.finish(p, out)
            if kernel is None:
                p = apply_to_scores(on_rows, rows, parameter, value, dead=dead)
                return rows.finish(p, out, p.dtype if p.dtype == np.bool_ else None)
            operands = rows.operands()
            if parameter is not None:
                operands += (parameter.kernel_operand(value, rows.array),)
            out_rows = None if out is None else writable_rows(out, rows)
            p = threads.run(kernel, operands, out_rows, workers)
            return rows.finish(p, out) if out_rows is None else out

        return call

    roles = ("z", named, "axis", "mask", "out", "workers")
    by_kernel = partial(cut_rows.run_on_scores, name, parameter)
    form: dict[str, Any] = {"kernels": kernels, "skip": skip, "results": ("entries",)}
    form["by_kernel"] = by_kernel
    public: Any = accelerated(body, parameter, arrange, roles, **form)
    return cast("Accelerated[P, R]", public)


class _Form(NamedTuple):
    """How a function of probabilities p is called, and what its kernel and its body give."""

    results: Sequence[str]
    """What each row gives: entries, a matrix, a number, or its part of a parameter's gradient."""
    direction: str = ""
    """The name of the array that follows p, if any."""
    sections: str = ""
    """What is added to the docstring."""
    with_mask: bool = False
    """Whether the body sees the mask."""
    kernel: str | None = None
    """The name of its kernel, if that is not the function's own."""
    kernels: bool = True
    """Whether it may have one."""


def _derivative(
    body: Callable[P, R], parameter: Parameter | None, form: _Form
) -> Accelerated[P, R]:
    """A function of probabilities p, perhaps of a direction, a parameter, and the scores z."""
    names = parameter_names(body)
    name, named = form.kernel or body.__name__, "" if parameter is None else parameter.name
    with_scores = "z" in names
    if form.sections:
        others = names[2 if form.direction else 1 :]
        others += ("workers", "offsets") if form.kernels else ()  # all but Jacobians
        with_sections(body, form.sections, others)

    def arrange(use_kernels: bool) -> Callable[..., Any]:
        def call(p: Any, v: Any, value: Any, z: Any, axis: Any, mask: Any, workers: Any) -> Any:
            if type(p) is not np.ndarray:
                kwargs = {"p": p, form.direction: v, named: value, "z": z, "axis": axis}
                kwargs["mask"] = mask
                result = elsewhere(public, parameter, kwargs, use_kernels, name, form.results)
                if result is not NotImplemented:
                    return result
            rows, v = arrange_probabilities(p, v, axis, mask, form.direction)
            operands = (rows.array, v) if form.direction else (rows.array,)
            checked = None
            if parameter is not None:
                checked = parameter.for_probabilities(value, rows, p)
            scores = _scores_like(rows, z, axis) if with_scores else None
            if workers is not None:
                workers = threads.counted(workers)
            kernel = None
            if use_kernels:
                kernel = choice.kernel_for(rows.array, name, parameter, checked)
            each: Any = None
            if kernel is None and use_kernels:

                def in_rows(arrays: Any, value: Any, mask: Any) -> Any:
                    first = (*arrays, None)[:2]
                    operands: Any = (*first, value, None, -1, mask, workers)
                    return call(*operands)

                each = choice.run_apart(in_rows, name, parameter, checked, rows.mask, *operands)
            if kernel is None and each is None:
                each = _run_body(body, form, rows, operands, parameter, checked, scores)
            elif kernel is not None:
                if parameter is not None and parameter.in_product:
                    operands += (parameter.kernel_operand(checked, rows.array),)
                operands += () if scores is None else (scores,)
                each = threads.run(kernel, operands, None, workers)
            finish = partial(_in_callers_form, rows, parameter, value)
            if len(form.results) > 1:
                return tuple(map(finish, form.results, each))
            return finish(form.results[0], each)

        return call

    roles = ("p", form.direction, named, "z", "axis", "mask", "workers")
    by_rows = () if {"matrix", "number"} & {*form.results} else form.results
    how: dict[str, Any] = {"kernels": form.kernels, "results": by_rows}
    arguments = (name, parameter, form.results, form.direction)
    how["by_kernel"] = partial(cut_rows.run_on_probabilities, *arguments)
    public: Any = accelerated(body, parameter, arrange, roles, **how)
    return cast("Accelerated[P, R]", public)


def _scores_like(rows: Rows, z: Any, axis: Any) -> Any:
    """The scores that gave the probabilities, in rows."""
    scores = arrange_scores(on_device_of(as_array(z, "z"), rows.array, "z"), axis)
    check_same_shape(scores.shape, "z", rows.shape)
    return scores.array


def _run_body(
    body: Callable[..., Any],
    form: _Form,
    rows: Rows,
    operands: tuple[Any, ...],
    parameter: Parameter | None,
    value: Any,
    scores: Any,
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


def elsewhere(
    function: Any,
    parameter: Parameter | None,
    kwargs: dict[str, Any],
    use_kernels: bool,
    name: str,
    results: Sequence[str] = ("entries",),
) -> Any:
    """What a call of Dask arrays gives, or of CuPy arrays where there is a kernel.

    NotImplemented for others. `kwargs` are the arguments by their names, the first array first.
    """
    first = next(iter(kwargs.values()))
    if is_dask(first):
        if kwargs.pop("out", None) is not None:
            raise TypeError("out must be left out for a Dask array, which is computed later")
        return plan_rows(
            function if use_kernels else function.reference, parameter, kwargs, results
        )
    if not use_kernels:
        return NotImplemented
    names = parameter_names(function.body)
    value = None if parameter is None else kwargs[parameter.name]
    return choice.run_on_gpu(name, parameter, value, tuple(kwargs[name] for name in names))
