"""The kinds of calls: what a function takes, what its kernel takes, and what its body sees.

A kind is given the arguments of a call in order and arranges them. The arranged call hands the
operands to a kernel, or rows to a body: two-dimensional arrays of scores or probabilities, and the
parameters as columns. Either result goes back into the form that the caller expects.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pyentmax.calls.devices import beside
from pyentmax.calls.gufuncs import in_blocks
from pyentmax.calls.lazy import check_known, reshaped
from pyentmax.calls.parameters import PerRow, UpperBounds
from pyentmax.calls.rows import (
    EVERYTHING,
    KERNEL_DTYPES,
    ProbabilityRows,
    ScoreRows,
    flattened,
)

Parameter = PerRow | UpperBounds
Values = tuple[Any, ...]
Plain = Callable[..., Values | None]


class ArrangedCall(Protocol):
    """One call: its arguments checked and in rows."""

    @property
    def kernel_ready(self) -> bool:
        """Whether a compiled kernel can take the operands."""

    def operands(self) -> Values:
        """What the kernel takes."""

    def target(self) -> Any:
        """The caller's own array in the shape of the result, if the kernel can write to it."""

    def restore(self, result: Any) -> Any:
        """The kernel's result in the shape and dtype that the caller expects."""

    def run(self, body: Callable[..., Any]) -> Any:
        """The body's result in the shape and dtype that the caller expects."""


class Kind(Protocol):
    """What calls of a function are like."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Those that follow the arrays."""

    def plain(self, function: Callable[..., Any]) -> Plain | None:
        """A function of a call's arguments: the operands of an ordinary call, or None.

        It saves small calls the checks: what it returns operands for needs none. `function` has the
        signature of the calls.
        """

    @property
    def answer(self) -> Callable[[Any, Values], Any] | None:
        """A function of the kernel's result and operands: what an ordinary call returns.

        It gives None where the call has to be arranged after all, since something was left
        unchecked. There is none where the result itself is returned.
        """

    def arranged(self, values: Values) -> ArrangedCall:
        """A call with these arguments, in order."""


def plain_scores(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Values | None:
    """Kernel operands where nothing needs checking or arranging, else None."""
    if type(z) is np.ndarray and z.dtype in KERNEL_DTYPES and z.ndim:
        if axis == -1 and type(axis) is int and out is None and z.shape[-1]:
            if mask is None:
                return z, EVERYTHING[: z.shape[-1]]
            if type(mask) is np.ndarray and mask.dtype == np.bool_ and _fits(mask.shape, z.shape):
                return z, in_blocks(mask, z, 1)
    return None


def _fits(shape: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    """Whether the kernel itself broadcasts a mask of this shape, with rows of full length."""
    if shape == scores:
        return True
    if not 0 < len(shape) <= len(scores) or shape[-1] != scores[-1]:
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(scores), strict=False))


def fits_batch(value: Any, like: Any) -> bool:
    """Whether an operand with a number per row broadcasts to the rows of an array."""
    shape, batch = value.shape, like.shape[:-1]
    return len(shape) <= len(batch) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(batch), strict=False)
    )


def plain_product(p: Any, v: Any, axis: Any = -1, *, mask: Any = None) -> Values | None:
    """The same for a product with the Jacobian."""
    if type(p) is np.ndarray and type(v) is np.ndarray and p.dtype in KERNEL_DTYPES:
        if axis == -1 and type(axis) is int and p.dtype == v.dtype and p.shape == v.shape:
            if not p.ndim or not p.shape[-1]:
                return None
            if mask is None:
                return p, v
            if type(mask) is np.ndarray and mask.dtype == np.bool_ and mask.shape == p.shape:
                return np.where(mask, p, 0), v
    return None


def with_parameter(
    plain: Plain,
    arrays: int,
    parameters: tuple[Parameter, ...],
    function: Callable[..., Any],
    *,
    in_kernel: bool = True,
) -> Plain:
    """As a plain call without the one parameter, which follows so many arrays, or is named."""
    (parameter,) = parameters
    name, quick = parameter.name, parameter.quick
    default = inspect.signature(function).parameters[name].default
    default = None if default is inspect.Parameter.empty else default

    def ordinary(*args: Any, **options: Any) -> Values | None:
        value, *axis = args[arrays:] or (options.pop(name, default),)
        operand = quick(value)
        if operand is None:
            return None
        operands = plain(*args[:arrays], *axis, **options)
        if operands is None or not fits_batch(operand, operands[0]):
            return None
        return (*operands, in_blocks(operand, operands[0], 0)) if in_kernel else operands

    return ordinary


@dataclass(frozen=True)
class OfScores:
    """Calls ``f(z, *parameters, axis=-1, *, mask=None, out=None)`` that return an array like z.

    The body sees ``(z, *parameters)``: (n, d) scores, −∞ where ruled out, and columns.

    Attributes
    ----------
    parameters : tuple of Parameter
    shifted : bool
        the body sees each row's largest score at 0; not where a bound may keep it from mattering
    one_axis : bool
        a row needs an order, which the entries of several axes do not have
    support : bool
        the result is where there is probability; then there is no ``out``
    dead : float
        what stands in a row with nothing left
    """

    parameters: tuple[Parameter, ...] = ()
    shifted: bool = True
    one_axis: bool = False
    support: bool = False
    dead: float = 0

    def plain(self, function: Callable[..., Any]) -> Plain | None:
        """As in `Kind`."""
        if not self.parameters:
            return plain_scores
        return with_parameter(plain_scores, 1, self.parameters, function)

    @property
    def answer(self) -> None:
        """As in `Kind`: the result itself."""

    def arranged(self, values: Values) -> ScoreCall:
        """As in `Kind`."""
        return ScoreCall(self, values)


class ScoreCall(ScoreRows):
    """One call of the kind `OfScores`."""

    __slots__ = ("_kind", "_values")

    def __init__(self, kind: OfScores, values: Values) -> None:
        z, *given = values
        axis, mask, *out = given[len(kind.parameters) :]
        super().__init__(z, axis, mask=mask, out=out[0] if out else None, dead=kind.dead)
        if kind.one_axis:
            check_order(self.axes, axis)
        self._kind = kind
        self._values: list[Any] = []
        if kind.parameters:
            pairs = zip(kind.parameters, given, strict=False)
            self._values = [parameter.of_scores(value, self) for parameter, value in pairs]

    def operands(self) -> Values:
        """Scores, mask, and parameters."""
        z, mask = super().operands()
        pairs = zip(self._kind.parameters, self._values, strict=True)
        own = [parameter.operand(value, z) for parameter, value in pairs]
        return (z, in_blocks(mask, z, 1), *own)

    def run(self, body: Callable[..., Any]) -> Any:
        """The body's result, as the caller expects it."""
        pairs = zip(self._kind.parameters, self._values, strict=True)
        columns = [parameter.column(value, self.batch) for parameter, value in pairs]
        result = body(flattened(self.scores(shifted=self._kind.shifted)), *columns)
        return self.restore_support(result) if self._kind.support else self.restore(result)


@dataclass(frozen=True)
class OfProbabilities:
    """Calls ``f(p, v, *parameters, axis=-1, *, mask=None)`` at the output p of a mapping.

    The body sees ``(p, v, *parameters)`` and returns an array like p, unless said otherwise.

    Attributes
    ----------
    parameters : tuple of Parameter
    direction : bool
        there is a v; without one there is no mask either, and the body sees ``(p, *parameters)``
    with_scores : bool
        the scores z follow the parameters, as they came
    with_mask : bool
        the body also sees the mask, by that keyword
    one_axis : bool
        as in `OfScores`
    per_row : bool
        the result is a number per row
    matrix : bool
        the result is a matrix per row
    gradient : bool
        the result is the gradient in the first parameter, to be summed to its shape
    both : bool
        the result is the product for each entry, and that gradient
    """

    parameters: tuple[Parameter, ...] = ()
    direction: bool = True
    with_scores: bool = False
    with_mask: bool = False
    one_axis: bool = False
    per_row: bool = False
    matrix: bool = False
    gradient: bool = False
    both: bool = False

    def plain(self, function: Callable[..., Any]) -> Plain | None:
        """As in `Kind`."""
        if not self.direction or self.gradient or self.both:
            return None
        if not self.parameters:
            return plain_product
        (parameter,) = self.parameters
        kept = parameter.in_product
        return with_parameter(plain_product, 2, self.parameters, function, in_kernel=kept)

    @property
    def answer(self) -> None:
        """As in `Kind`: the result itself."""

    def arranged(self, values: Values) -> ProbabilityCall:
        """As in `Kind`."""
        return ProbabilityCall(self, values)


class ProbabilityCall(ProbabilityRows):
    """One call of the kind `OfProbabilities`."""

    __slots__ = ("_kind", "_scores", "_shapes", "_values")

    def __init__(self, kind: OfProbabilities, values: Values) -> None:
        p, *rest = values
        v = rest.pop(0) if kind.direction else p
        count = len(kind.parameters)
        given, rest = rest[:count], rest[count:]
        z = rest.pop(0) if kind.with_scores else None
        axis, mask = rest if len(rest) == 2 else (rest[0], None)
        called = "g" if kind.gradient or kind.both else "v"
        super().__init__(p, v, axis, mask=mask, alone=not kind.direction, direction=called)
        if kind.matrix:
            check_known(p, "p")
        if kind.one_axis:
            check_order(self.axes, axis)
        self._kind = kind
        self._shapes = [np.shape(value) for value in given]
        pairs = zip(kind.parameters, given, strict=True)
        self._values = [parameter.of_probabilities(value, self) for parameter, value in pairs]
        self._scores: ScoreRows | None = None
        if kind.with_scores:
            self._scores = ScoreRows(z, axis, mask=mask)
            self._scores.z = beside(self._scores.z, self.p, "z")
            self.kernel_ready = self.kernel_ready and self._scores.kernel_ready
            if self._scores.shape != self.shape:
                raise ValueError(
                    f"z must have the shape of p, {self.shape}, got {self._scores.shape}"
                )

    def operands(self) -> Values:
        """p, v, parameters and scores, as far as the kernel takes them."""
        pairs = zip(self._kind.parameters, self._values, strict=True)
        own = [x.operand(value, self.p) for x, value in pairs if x.in_product]
        return (
            self.p,
            *([self.v] if self._kind.direction else []),
            *own,
            *([] if self._scores is None else [self._scores.z]),
        )

    def target(self) -> None:
        """Derivatives have no ``out`` to write to."""

    def restore(self, result: Any) -> Any:
        """A result for each entry, row or pair of entries, as the caller expects it."""
        kind = self._kind
        if kind.both:
            product, each = result
            return self.entries(product), self._gradient(each)
        if kind.gradient:
            return self._gradient(result)
        if kind.matrix:
            return self.in_callers_dtype(reshaped(result, (*self.p.shape, self.p.shape[-1])))
        if kind.per_row:
            return self.in_callers_dtype(reshaped(result, self.batch)[()])
        return self.entries(result)

    def _gradient(self, each: Any) -> Any:
        """What each row, or each bound, gives, in the shape of the first parameter."""
        return self._kind.parameters[0].gradient(each, self._shapes[0], self)

    def run(self, body: Callable[..., Any]) -> Any:
        """The body's result, as the caller expects it."""
        kind, p = self._kind, flattened(self.p)
        pairs = zip(kind.parameters, self._values, strict=True)
        seen = [p, flattened(self.v)] if kind.direction else [p]
        seen += [parameter.column(value, self.batch) for parameter, value in pairs]
        if self._scores is not None:
            seen.append(flattened(self._scores.z))
        if not kind.with_mask:
            return self.restore(body(*seen))
        everything = np.ones_like(p, dtype=bool)
        mask = everything if self.mask is None else flattened(self.mask)
        return self.restore(body(*seen, mask=mask))


def check_order(axes: tuple[int, ...], axis: Any) -> None:
    """Refuse the entries of several axes, which have no order."""
    if len(axes) > 1:
        raise ValueError(
            f"axis must be one axis, since the scores of a row need an order here, got {axis}; "
            "move the entries of several axes into one in the order that is meant"
        )
