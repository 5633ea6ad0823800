"""The one dispatch: how a call gets to a kernel or to its rule, and how its result comes back.

A `Function` holds a rule on rows, such as α-entmax's threshold search or the product with its
Jacobian. `Function.run` is the path of every call:

    few entries along the last axis  → straight to the compiled kernel, nothing is arranged
    Dask array                       → a call for each chunk
    CuPy array                       → the CUDA kernel of that name, if there is one
    else arrange: axis, mask, dtype, parameter, all checked; rows along the last axis
      NumPy array                    → the compiled kernel, for some rows perhaps the rule
      without a kernel               → the rule, of rows (n, d), the parameter as a column (n, 1)
    and finish: the result in the caller's shape, dtype and ``out``

`OfScores` and `OfProbabilities` say what the arrays of a call are. The public classes, whose calls
are typed, are in `pyentmax.reference.mapping`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

import numpy as np

from pyentmax.engine.backends import choice, threads
from pyentmax.engine.calls.dask_arrays import plan_rows
from pyentmax.engine.calls.devices import is_dask, on_device_of
from pyentmax.engine.calls.dtypes import KERNEL_DTYPES, as_array
from pyentmax.engine.calls.parameters import Parameter
from pyentmax.engine.calls.rows import (
    Rows,
    all_true,
    apply_to_scores,
    arrange_probabilities,
    arrange_scores,
    check_out,
    check_same_shape,
    writable_rows,
)
from pyentmax.engine.calls.types import Array, ArrayLike

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

ENTRIES = ("entries",)
SMALL_CALL = 1 << 12
"""Up to this many entries, checking and arranging take longer than a kernel."""

Arguments = tuple[Any, Any, Any, Any, Any]
"""Values that a call's text returns: its scores, parameter (or None), axis, mask and out."""
Text = Callable[Concatenate[ArrayLike, P], Arguments]
"""Function that users read and Python binds: it takes scores and returns its arguments."""


class _Signature:
    """``__signature__``: a function's own arrays, then the arguments of its text, then options.

    A descriptor, for a ``__getattr__`` would slow every attribute down; inspect finds none on the
    class.
    """

    def __get__(self, function: Any, kind: type) -> inspect.Signature:
        if function is None:
            raise AttributeError("__signature__")
        call = inspect.signature(kind.__call__)
        arrays = [x for x in call.parameters.values() if x.kind == x.POSITIONAL_OR_KEYWORD][1:]
        options = [x for x in call.parameters.values() if x.kind == x.KEYWORD_ONLY]
        _, *shared = inspect.signature(function.bind).parameters.values()
        shared = [x for x in shared if x.name != "out" or function.results == ENTRIES]
        parameters = [*arrays, *shared, *options]
        return inspect.Signature(parameters, return_annotation=call.return_annotation)


class Call:
    """The arguments of a call, and its arrays and parameter once `Function.arrange` checked them.

    Attributes
    ----------
    arrays, value, axis, mask, out, options : the caller's; value is the parameter's
    rows : Rows
    operands : tuple of arrays
        all arrays in rows
    checked : the parameter's value, checked
    """

    __slots__ = ("arrays", "axis", "checked", "mask", "operands", "options", "out", "rows", "value")
    rows: Rows
    operands: tuple[Any, ...]
    checked: Any

    def __init__(
        self, arrays: tuple[Any, ...], value: Any, axis: Any, mask: Any, out: Any, options: Any
    ) -> None:
        self.arrays, self.value, self.axis, self.mask = arrays, value, axis, mask
        self.out, self.options, self.checked = out, options, None


class Function(Generic[P]):
    """A function of arrays: its rule on rows, and the path of every call to it.

    Attributes
    ----------
    body : the rule, a function of rows (n, d) and the parameter as a column (n, 1)
    is_defined : bool
        whether there is a rule; without one, a call raises a ValueError
    reference : the same function without kernels
    textbook : function of one vector, as the paper prints it, or None
    parameter : Parameter or None
    kernel : str
        the name of its compiled and CUDA kernels; "" in a `reference`, and where there are none
    """

    arrays: ClassVar[tuple[str, ...]] = ("z",)
    """Names of the arrays that a call begins with."""
    results: ClassVar[tuple[str, ...]] = ENTRIES
    """Results of a row: "entries", "bools", a "number", a "matrix", its part of a "gradient"."""
    writes_out: ClassVar[bool] = False
    """Whether kernels write to ``out``."""
    with_scores = with_mask = False
    """Whether the rule takes the scores that gave p, or the mask."""
    textbook: Callable[..., Any] | None = None
    __wrapped__: Any
    _reference: Any

    def __init__(
        self, name: str, text: Text[P], parameter: Parameter | None, kernel: str = ""
    ) -> None:
        self.__qualname__, self.__name__ = name, name.rpartition(".")[2]
        self.__module__ = text.__module__
        self.bind, self.parameter, self.kernel = text, parameter, kernel
        self.goes_straight = bool(kernel) and (parameter is None or parameter.goes_straight)
        self.body: Any = self._undefined
        kind: Any = type(self)
        self.__doc__ = _documentation(kind)  # help shows the class unless this differs

    def _undefined(self, *rows: Any) -> Any:
        raise ValueError(f"{self.__qualname__} is not defined: this mapping has no such rule")

    @property
    def is_defined(self) -> bool:
        """Whether there is a rule."""
        return bool(self.body != self._undefined)

    def rule(self, body: F) -> F:
        """Decorator: the function on rows that this is by definition."""
        self.body = self.__wrapped__ = body
        if body.__doc__:
            self.__doc__ = f"{inspect.cleandoc(body.__doc__)}\n\n{self.__doc__}"
        return body

    @property
    def reference(self) -> Self:
        """The same function without kernels."""
        if not self.kernel:
            return self
        if "_reference" not in vars(self):
            reference: Self = object.__new__(type(self))
            vars(reference).update(vars(self), kernel="", goes_straight=False)
            reference.__qualname__ += ".reference"
            self._reference = reference
        return self._reference

    __signature__ = _Signature()

    def __repr__(self) -> str:
        call = self.__signature__
        bare = [x.replace(annotation=x.empty) for x in call.parameters.values()]
        return f"<{self.__qualname__}{call.replace(parameters=bare, return_annotation=call.empty)}>"

    def __dir__(self) -> list[str]:  # for completion, without the plumbing
        special = [name for name in object.__dir__(self) if name.startswith("__")]
        return [*special, "body", "is_defined", "kernel", "parameter", "reference", "textbook"]

    def __reduce__(self) -> str:  # pickled by name, as functions are
        return self.__qualname__

    # --- the path of a call -----------------------------------------------------------------------

    def run(
        self, arrays: tuple[Any, ...], value: Any, axis: Any, mask: Any, out: Any = None,
        options: Any = None,
    ) -> Any:  # fmt: skip
        """The result for arguments by position; `options` are those of a loss."""
        first = arrays[0]
        if type(first) is list:
            named = zip(self.arrays, arrays, strict=False)
            converted = [as_array(x, name) if type(x) is list else x for name, x in named]
            arrays = (*converted, *arrays[len(converted) :])
            first = arrays[0]
        if type(first) is not np.ndarray:
            result = self.run_elsewhere(Call(arrays, value, axis, mask, out, options))
            if result is not NotImplemented:
                return result
        elif (
            self.goes_straight
            and 0 < first.size <= SMALL_CALL
            and first.ndim
            and first.dtype in KERNEL_DTYPES
        ):
            kernel = choice.kernels().get(self.kernel)
            if kernel is not None and axis == -1:
                result = self.run_straight(kernel, arrays, value, mask, out, options)
                if result is not NotImplemented:
                    return result
            elif kernel is not None and axis == 0 and self._has_plain_columns(arrays, mask, out):
                columns = tuple([x.T for x in arrays])
                result = self.run_straight(kernel, columns, value, None, None, options)
                if result is not NotImplemented:
                    return result.T
        call = Call(arrays, value, axis, mask, out, options)
        self.arrange(call)
        result = NotImplemented
        if self.kernel:
            kernel = choice.kernel_for(call.rows.array, self.kernel, self.parameter, call.checked)
            if kernel is not None:
                result = self.by_kernel(call, kernel)
            elif self.parameter is not None:
                result = self.by_both(call)
        if result is NotImplemented:
            result = self.by_rule(call)
        return self.finish(call, result)

    def _has_plain_columns(self, arrays: tuple[Any, ...], mask: Any, out: Any) -> bool:
        """Whether the rows of a call are the columns of two-dimensional arrays."""
        plain = mask is out is None and arrays[0].ndim == 2 and self.results is ENTRIES
        return plain and type(arrays[-1]) is np.ndarray

    def run_straight(
        self, kernel: Any, arrays: tuple[Any, ...], value: Any, mask: Any, out: Any, options: Any
    ) -> Any:
        """The kernel's result for a few entries in plain arrays, rows along the last axis.

        NotImplemented where something has to be converted, arranged or refused.
        """
        return NotImplemented

    def arrange(self, call: Call) -> None:
        """Check the call, and put its arrays in rows."""
        raise NotImplementedError

    def by_rule(self, call: Call) -> Any:
        """The rule's result for each row."""
        raise NotImplementedError

    def by_kernel(self, call: Call, kernel: Any) -> Any:
        """The kernel's result for each row; NotImplemented where the rule has to run."""
        raise NotImplementedError

    def by_both(self, call: Call) -> Any:
        """Each row's result from kernel or rule, where the kernel takes some, such as α ≥ 1."""

        def run_rows(arrays: Any, value: Any, mask: Any) -> Any:
            return self.run(tuple(arrays), value, -1, mask, None, call.options)

        how = self.kernel, self.parameter, call.checked, call.rows.mask
        result = choice.run_apart(run_rows, *how, *call.operands)
        return NotImplemented if result is None else result

    def finish(self, call: Call, result: Any) -> Any:
        """The rows' results in the caller's form."""
        if self.results is ENTRIES:
            return result if result is call.out else call.rows.finish(result, call.out)
        if len(self.results) == 1:
            return self._in_form(call, self.results[0], result)
        return tuple([self._in_form(call, *x) for x in zip(self.results, result, strict=True)])

    def _in_form(self, call: Call, form: str, result: Any) -> Any:
        rows = call.rows
        if form in ("entries", "bools"):
            return rows.finish(result, dtype=result.dtype if form == "bools" else None)
        if form == "gradient":
            assert self.parameter is not None
            return self.parameter.gradient(result, np.shape(call.value), rows)
        shape = (*rows.batch, *result.shape[1:]) if form == "matrix" else rows.batch
        return result.reshape(shape)[()].astype(rows.dtype, copy=False)

    def run_elsewhere(self, call: Call) -> Any:
        """The result for a Dask or CuPy array; NotImplemented where the host's path is right."""
        if is_dask(call.arrays[0]):
            if call.out is not None:
                raise TypeError("out must be left out for a Dask array, which is computed later")
            named = dict(zip((*self.arrays, "z"), call.arrays, strict=False))
            named |= {} if self.parameter is None else {self.parameter.name: call.value}
            return self.plan({**named, "axis": call.axis, "mask": call.mask}, call.options)
        if not self.kernel or self.with_scores or not (self.writes_out or call.out is None):
            return NotImplemented
        values = () if self.parameter is None else (call.value,)
        arguments = (*call.arrays, *values, call.axis, *self.gpu_options(call))
        return choice.run_on_gpu(self.kernel, self.parameter, call.value, arguments)

    def plan(self, named: dict[str, Any], options: Any) -> Any:
        """A call for each chunk of Dask arrays, given by name."""
        forms = tuple("entries" if form == "bools" else form for form in self.results)
        return plan_rows(self, self.parameter, named, forms)

    def gpu_options(self, call: Call) -> tuple[Any, ...]:
        """Arguments of the CUDA kernel's function after the axis."""
        return call.mask, call.out

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replaced by a typed call in each public class."""
        raise NotImplementedError


class OfScores(Function[P]):
    """Functions whose first array holds scores z."""

    writes_out = True
    empty_value: ClassVar[float] = 0
    """The result of a row with nothing left."""

    def run_straight(
        self, kernel: Any, arrays: tuple[Any, ...], value: Any, mask: Any, out: Any, options: Any
    ) -> Any:
        """See `Function`."""
        z = arrays[0]
        parameter: Any = self.parameter  # one that goes straight
        if mask is None:
            mask = all_true(z.shape[-1])
        elif not is_plain(mask, z):
            return NotImplemented
        if out is not None and not _fits(out, z):
            return NotImplemented
        if parameter is None:
            return kernel(z, mask, out=out)
        value = parameter.for_few(value, z)
        return NotImplemented if value is None else kernel(z, mask, value, out=out)

    def arrange(self, call: Call) -> None:
        """See `Function`."""
        call.rows = rows = arrange_scores(call.arrays[0], call.axis, call.mask, call.out)
        call.operands = (rows.array, *call.arrays[1:])
        if self.parameter is not None:
            call.checked = self.parameter.for_scores(call.value, rows)

    def by_rule(self, call: Call) -> Any:
        """See `Function`."""
        arguments = self.body, call.rows, self.parameter, call.checked
        return apply_to_scores(*arguments, empty_value=self.empty_value)

    def by_kernel(self, call: Call, kernel: Any) -> Any:
        """See `Function`."""
        rows, operands = call.rows, call.rows.operands()
        if self.parameter is not None:
            operands += (self.parameter.kernel_operand(call.checked, rows.array),)
        target = None if call.out is None else writable_rows(call.out, rows)
        result = threads.run(kernel, operands, target)
        return result if target is None else call.out


class SetOfScores(OfScores[P]):
    """Functions that select some of the scores: bools of their shape."""

    results = ("bools",)

    def __call__(self, z: ArrayLike, *args: P.args, **kwargs: P.kwargs) -> Array:
        """The bools of scores."""
        _, value, axis, mask, out = self.bind(z, *args, **kwargs)
        if out is not None:
            raise TypeError(f"{self.__qualname__}() got an unexpected keyword argument 'out'")
        result: Array = self.run((z,), value, axis, mask)
        return result


class KeepSet(SetOfScores[P]):
    """A set of scores to keep, for a mask; a row with a NaN or +∞ keeps its other scores.

    The first argument of its rule is the library of the array functions.
    """

    empty_value = True

    def __init__(self, text: Text[P], parameter: Parameter) -> None:
        super().__init__(text.__name__, text, parameter)
        self.__doc__, self.__wrapped__ = text.__doc__, text

    def rule(self, body: F) -> F:
        """Decorator: the function of a library and rows that the set is by definition."""
        self.body = body
        return body

    def by_rule(self, call: Call) -> Any:
        """See `Function`."""
        body = functools.partial(self.body, np)
        return apply_to_scores(body, call.rows, self.parameter, call.checked, empty_value=True)


def keep_set(parameter: Parameter) -> Callable[[Text[P]], KeepSet[P]]:
    """Decorator: the keep-set of a text, which returns its arguments; its rule follows."""
    return lambda text: KeepSet(text, parameter)


class OfProbabilities(Function[P]):
    """Functions whose first array holds probabilities p, perhaps with a direction and scores."""

    direction: ClassVar[str] = ""
    """Name of the array that follows p, if one does."""

    def rule_with(self, *, mask: bool = False, scores: bool = False) -> Callable[[F], F]:
        """Decorator: as `rule`, for a body that takes ``mask=``, or the scores as its last."""
        self.with_mask, self.with_scores = mask, scores
        return self.rule

    def run_straight(
        self, kernel: Any, arrays: tuple[Any, ...], value: Any, mask: Any, out: Any, options: Any
    ) -> Any:
        """See `Function`."""
        p, v = arrays[0], arrays[-1]
        parameter: Any = self.parameter  # one that goes straight
        if out is not None or self.with_scores or type(v) is not np.ndarray:
            return NotImplemented
        if v.dtype != p.dtype or v.shape != p.shape:
            return NotImplemented
        if mask is not None:
            if not is_plain(mask, p):
                return NotImplemented
            arrays = tuple([np.where(mask, x, 0) for x in arrays])
        if parameter is not None:
            value = parameter.for_few(value, p)
            if value is None:
                return NotImplemented
            if parameter.in_product:
                arrays = (*arrays, value)
        result = kernel(*arrays)
        if self.results is ENTRIES:
            return result
        # for_few takes a value of rows for all of them: the gradient is theirs, or their sum.
        *entries, gradient = result if len(self.results) > 1 else (result,)
        gradient = gradient if value.ndim else gradient.sum()
        return (*entries, gradient) if entries else gradient

    def arrange(self, call: Call) -> None:
        """See `Function`."""
        p, direction = call.arrays[0], self.direction
        v = call.arrays[1] if direction else None
        call.rows, v = arrange_probabilities(p, v, call.axis, call.mask, direction)
        call.operands = (call.rows.array, v) if direction else (call.rows.array,)
        if self.with_scores:
            call.operands += (_scores_like(call.rows, call.arrays[2], call.axis),)
        if self.parameter is not None:
            call.checked = self.parameter.for_probabilities(call.value, call.rows, p)
        if call.out is not None:
            if self.results is not ENTRIES:
                raise TypeError(f"{self.__qualname__}() got an unexpected keyword argument 'out'")
            check_out(call.out, p, call.rows.dtype, "p")

    def by_rule(self, call: Call) -> Any:
        """See `Function`."""
        rows, masked = call.rows, {}
        shape = rows.array.shape
        operands = [x.reshape(-1, shape[-1]) for x in call.operands]
        if self.parameter is not None:
            column = self.parameter.body_operand(call.checked, rows.batch)
            operands.insert(1 + bool(self.direction), column)
        if self.with_mask:
            mask = np.ones_like(rows.array, dtype=bool) if rows.mask is None else rows.mask
            masked["mask"] = np.broadcast_to(mask, shape).reshape(-1, shape[-1])
        with np.errstate(under="ignore"):
            return self.body(*operands, **masked)

    def by_kernel(self, call: Call, kernel: Any) -> Any:
        """See `Function`."""
        operands = list(call.operands)
        if self.parameter is not None and self.parameter.in_product:
            column = self.parameter.kernel_operand(call.checked, call.rows.array)
            operands.insert(1 + bool(self.direction), column)
        return threads.run(kernel, operands)

    def gpu_options(self, call: Call) -> tuple[Any, ...]:
        """See `Function`."""
        return (call.mask,) if self.direction else ()


def is_plain(mask: Any, like: Any) -> bool:
    """Whether a kernel can take the mask of a few entries as it is."""
    plain = type(mask) is np.ndarray and mask.dtype == bool
    return plain and mask.shape in (like.shape, like.shape[-1:])


def _fits(out: Any, like: Any) -> bool:
    """Whether a kernel can write entries to ``out``."""
    plain = type(out) is np.ndarray and out.dtype == like.dtype and out.shape == like.shape
    return plain and bool(out.flags.writeable)


def _scores_like(rows: Rows, z: Any, axis: Any) -> Any:
    """The scores that gave the probabilities, in rows."""
    scores = arrange_scores(on_device_of(as_array(z, "z"), rows.array, "z"), axis)
    check_same_shape(scores.shape, "z", rows.shape)
    return scores.array


@functools.cache
def _documentation(kind: Any) -> str:
    return inspect.cleandoc(kind.__doc__ or "")
