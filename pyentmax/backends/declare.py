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
the CUDA kernel of that name, and everything else to the body. ``function.reference`` always runs
the body. Functions that may have a kernel take ``workers=``, the threads of a call
(`pyentmax.set_workers`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from pyentmax.backends import choice, threads
from pyentmax.calls.binding import Binder
from pyentmax.calls.documentation import GRADIENT, PRODUCT, VJPS, with_sections
from pyentmax.calls.kinds import Kind, OfProbabilities, OfScores, Parameter
from pyentmax.calls.lazy import cut_alike

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
    def kind(self) -> Kind:
        """What its calls are like."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: Any, workers: int | None, **kwargs: Any) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Run the kernel, on so many threads, or the body."""


Decorator = Callable[[Callable[P, R]], Accelerated[P, R]]


def mapping(
    *parameters: Parameter, shifted: bool = True, one_axis: bool = False
) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """Probabilities of scores: ``f(z, *parameters, axis=-1, *, mask=None, out=None)``."""
    return _accelerated(OfScores(parameters, shifted=shifted, one_axis=one_axis))


def log_probabilities(*parameters: Parameter) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """Logarithms of probabilities, called as the mapping is; −∞ in a row with nothing left."""
    return _accelerated(OfScores(parameters, dead=float("-inf")))


def support(
    *parameters: Parameter, shifted: bool = True, one_axis: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Where there is probability: ``f(z, *parameters, axis=-1, *, mask=None)``."""
    return _arranged(OfScores(parameters, shifted=shifted, one_axis=one_axis, support=True))


def product(
    *parameters: Parameter, one_axis: bool = False, kernel: str | None = None
) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """A product with the Jacobian: ``f(p, v, *parameters, axis=-1, *, mask=None)``.

    `kernel` names another function's kernel that does the same.
    """
    return _accelerated(OfProbabilities(parameters, one_axis=one_axis), kernel, PRODUCT)


def jacobian(
    *parameters: Parameter, one_axis: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The Jacobian: ``f(p, *parameters, axis=-1)``, of which the body returns (n, d, d)."""
    kind = OfProbabilities(parameters, direction=False, one_axis=one_axis, matrix=True)
    return _arranged(kind)


def elementwise_gradient(*parameters: Parameter) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """A derivative of each entry: ``f(p, *parameters, axis=-1)``."""
    return _accelerated(OfProbabilities(parameters, direction=False))


def parameter_vjp(
    *parameters: Parameter,
    with_scores: bool = False,
    with_mask: bool = False,
    one_axis: bool = False,
) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """The gradient in a parameter: ``f(p, g, *parameters[, z], axis=-1, *, mask=None)``.

    The body returns what each row gives (for a bound: each entry), and the caller gets their sums
    in the shape of the parameter.
    """
    return _accelerated(
        OfProbabilities(
            parameters,
            with_scores=with_scores,
            with_mask=with_mask,
            one_axis=one_axis,
            gradient=True,
        ),
        sections=GRADIENT,
    )


def vjps(*parameters: Parameter) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """The products with the Jacobian and the gradient in a parameter at once, as a pair.

    Called as either is. The body returns both in rows, the gradient as what each row gives.
    """
    return _accelerated(OfProbabilities(parameters, both=True), sections=VJPS)


def regularizer(
    *parameters: Parameter, with_mask: bool = False, one_axis: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Ω(p) of each row: ``f(p, *parameters, axis=-1[, *, mask=None])``."""
    kind = OfProbabilities(
        parameters, direction=False, with_mask=with_mask, one_axis=one_axis, per_row=True
    )
    return _arranged(kind)


def of_kind(kind: Kind, sections: str) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """A function with a kind of calls of its own, as the losses have."""
    return _accelerated(kind, sections=sections)


def _accelerated(
    kind: Kind, kernel: str | None = None, sections: str = ""
) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    def decorate(body: Callable[P, R]) -> Accelerated[P, R]:
        if sections:
            with_sections(body, sections, arrays=2)
        return accelerated(body, kind, kernel or body.__name__)

    return decorate


def _arranged(kind: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(body: Callable[P, R]) -> Callable[P, R]:
        return _reference(body, kind)

    return decorate


def accelerated(body: Callable[P, R], kind: Kind, name: str) -> Accelerated[P, R]:
    """A function of users' arrays, of a body of rows: with the kernels of that name."""
    bind, plain, answer_of = Binder(body), kind.plain(body), kind.answer

    @functools.wraps(body)
    def public(*args: Any, workers: int | None = None, **kwargs: Any) -> R:
        if workers is not None:
            workers = threads.counted(workers)
        kernel = choice.kernels().get(name)
        if kernel is not None and plain is not None:
            try:
                operands = plain(*args, **kwargs)
            except TypeError:  # no such arguments: `bind` says which
                operands = None
            if operands is not None:
                if operands[0].size < threads.ENTRIES_PER_WORKER:
                    answer = kernel(*operands)
                else:
                    answer = threads.run(kernel, operands, workers=workers)
                if answer_of is not None:
                    answer = answer_of(answer, operands)
                if answer is not None:
                    return cast("R", answer)
        values = bind(args, kwargs)
        answer = choice.run_on_gpu(name, kind.parameters, values)
        if answer is not NotImplemented:
            return cast("R", answer)
        call = kind.arranged(values)
        if kernel is None or not call.kernel_ready:
            return cast("R", call.run(body))
        operands = cut_alike(kernel, call.operands())
        return cast("R", call.restore(threads.run(kernel, operands, call.target(), workers)))

    public.reference = _reference(body, kind)  # type: ignore[attr-defined]
    public.body = body  # type: ignore[attr-defined]
    public.kind = kind  # type: ignore[attr-defined]
    public.__signature__ = _with_workers(inspect.signature(body))  # type: ignore[attr-defined]
    return cast("Accelerated[P, R]", public)


def _reference(body: Callable[P, R], kind: Kind) -> Callable[P, R]:
    bind = Binder(body)

    @functools.wraps(body)
    def reference(*args: Any, **kwargs: Any) -> Any:
        return kind.arranged(bind(args, kwargs)).run(body)

    return reference


def _with_workers(signature: inspect.Signature) -> inspect.Signature:
    parameter = inspect.Parameter(
        "workers", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="int | None"
    )
    return signature.replace(parameters=[*signature.parameters.values(), parameter])
