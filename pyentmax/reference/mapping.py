"""One mapping is one object: called like a function, its derivatives and its loss are attributes.

    @mapping(Alpha("alpha", least=0, strict=True))
    def entmax(z, alpha=1.5, axis=-1, *, mask=None, out=None):
        '''The text that users read.'''
        return z, alpha, axis, mask, out

    @entmax.rule
    def _forward(y, alpha): ...            # rows (n, d), largest score 0, α a column (n, 1)

    @entmax.jvp.rule
    def _product(p, v, alpha): ...

The text says what a call takes and returns its arguments; Python itself binds them. A rule is the
mathematics, and `inspect.getsource(entmax.jvp)` shows it. After its own arrays an attribute takes
the arguments of the call, with their names and defaults: ``entmax.jvp(p, v, alpha=1.5, axis=-1, *,
mask=None)``. Type checkers know that, since all share one ParamSpec.

Axes, masks, dtypes, devices and errors are not written per mapping: `Function.run` of
`pyentmax.engine.backends.function` is the path of every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from pyentmax.engine.backends.function import (
    F,
    Function,
    OfProbabilities,
    OfScores,
    SetOfScores,
    Text,
)
from pyentmax.engine.calls.dask_arrays import plan_rows
from pyentmax.engine.calls.options import USUAL, checked_options
from pyentmax.engine.calls.parameters import Alpha, Parameter, Strength, TopK
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.losses.definition import fenchel_young, fenchel_young_and_gradient
from pyentmax.reference.losses.function import LossFunction

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Parameter | None)


class Support(SetOfScores[P]):
    """Where the mapping gives probability, even if it underflows to 0: bools of z's shape."""


class Log(OfScores[P]):
    """log p of p = mapping(z): −∞ off the support, finite and exact where p underflows."""

    empty_value = -float("inf")

    def __call__(self, z: ArrayLike, *args: P.args, **kwargs: P.kwargs) -> Array:
        """The logarithms for scores."""
        try:
            _, value, axis, mask, out = self.bind(z, *args, **kwargs)
        except TypeError as error:
            raise _with_hint(error, kwargs) from None
        result: Array = self.run((z,), value, axis, mask, out)
        return result


class Product(OfProbabilities[P]):
    """The product J v with the Jacobian at p = mapping(z), of p's shape.

    J is symmetric, being the Hessian of the conjugate Ω*, so J v is also the product with its
    transpose, Jᵀ v. `v` has p's shape; off the support it may hold anything. Whether p is what the
    mapping gave is not checked: that would take longer than the product of a short row.
    """

    arrays, direction = ("p", "v"), "v"

    def __call__(self, p: ArrayLike, v: ArrayLike, *args: P.args, **kwargs: P.kwargs) -> Array:
        """The product."""
        _, value, axis, mask, out = self.bind(p, *args, **kwargs)
        result: Array = self.run((p, v), value, axis, mask, out)
        return result


class Jacobian(OfProbabilities[P]):
    """The Jacobian ∂p/∂z at p = mapping(z), of p's shape without the axis, and (d, d)."""

    arrays, results = ("p",), ("matrix",)

    def __call__(self, p: ArrayLike, *args: P.args, **kwargs: P.kwargs) -> Array:
        """The matrices."""
        _, value, axis, mask, out = self.bind(p, *args, **kwargs)
        result: Array = self.run((p,), value, axis, mask, out)
        return result


class Regularizer(OfProbabilities[P]):
    """Ω(p) of each row: the mapping maximises p·z − Ω(p)."""

    arrays, results = ("p",), ("number",)

    def __call__(self, p: ArrayLike, *args: P.args, **kwargs: P.kwargs) -> Array:
        """A number for each row."""
        _, value, axis, mask, out = self.bind(p, *args, **kwargs)
        result: Array = self.run((p,), value, axis, mask, out)
        return result


class ParameterSlope(OfProbabilities[P]):
    """The derivative of each probability in the parameter, at p = mapping(z), of p's shape."""

    arrays = ("p",)

    def __call__(self, p: ArrayLike, *args: P.args, **kwargs: P.kwargs) -> Array:
        """The slopes."""
        _, value, axis, mask, out = self.bind(p, *args, **kwargs)
        result: Array = self.run((p,), value, axis, mask, out)
        return result


class ParameterVjp(OfProbabilities[P]):
    """Σ g ∘ ∂p/∂parameter, in the parameter's shape, for a loss whose gradient in p is g."""

    arrays, direction = ("p", "g"), "g"
    results: ClassVar[tuple[str, ...]] = ("gradient",)

    def __call__(self, p: ArrayLike, g: ArrayLike, *args: P.args, **kwargs: P.kwargs) -> Array:
        """The gradient."""
        if self.with_scores:
            raise TypeError(
                f"{self.__qualname__} needs the scores too, as p does not tell all: call "
                f"{self.__qualname__}.at_scores(z, p, g, …)"
            )
        _, value, axis, mask, out = self.bind(p, *args, **kwargs)
        result: Array = self.run((p, g), value, axis, mask, out)
        return result

    def at_scores(
        self, z: ArrayLike, p: ArrayLike, g: ArrayLike, *args: P.args, **kwargs: P.kwargs
    ) -> Array:
        """The gradient, given the scores too, of any mapping: generic code calls this one."""
        _, value, axis, mask, out = self.bind(p, *args, **kwargs)
        arrays = (p, g, z) if self.with_scores else (p, g)
        result: Array = self.run(arrays, value, axis, mask, out)
        return result

    def plan(self, named: dict[str, Any], options: Any) -> Any:
        """See `Function`."""
        function = self.at_scores if self.with_scores else self
        return plan_rows(function, self.parameter, named, self.results)


class Vjps(OfProbabilities[P]):
    """Jᵀ g and the parameter's gradient at once, which costs less than one after the other."""

    arrays, direction = ("p", "g"), "g"
    results = ("entries", "gradient")

    def __call__(
        self, p: ArrayLike, g: ArrayLike, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[Array, Array]:
        """Both."""
        _, value, axis, mask, out = self.bind(p, *args, **kwargs)
        result: tuple[Array, Array] = self.run((p, g), value, axis, mask, out)
        return result


class LossOptions(TypedDict, total=False):
    """Options of every loss, which `pyentmax.fenchel_young_loss` explains."""

    reduction: Literal["mean", "sum", "none"]
    weight: ArrayLike | None
    mask: ArrayLike | None
    ignore_index: int | None
    label_smoothing: float


class Loss(LossFunction[...], Generic[K, R]):
    """The mapping's Fenchel-Young loss Ω*(z) + Ω(q) − q·z, whose gradient in z is p − q.

    `y` holds integer labels (z's shape without the axis) or distributions q (z's shape). Options
    are those of `pyentmax.fenchel_young_loss`: reduction, weight, ignore_index, label_smoothing.
    """

    # PEP 612: no method adds options to a ParamSpec. So here the parameters are written out, once
    # for all mappings.
    @overload
    def __call__(
        self: Loss[None, R], z: ArrayLike, y: ArrayLike, axis: Axis = -1,
        **options: Unpack[LossOptions],
    ) -> R: ...  # fmt: skip
    @overload
    def __call__(
        self: Loss[Alpha, R], z: ArrayLike, y: ArrayLike, alpha: ArrayLike = ..., axis: Axis = -1,
        **options: Unpack[LossOptions],
    ) -> R: ...  # fmt: skip
    @overload
    def __call__(
        self: Loss[TopK, R], z: ArrayLike, y: ArrayLike, k: ArrayLike, axis: Axis = -1,
        **options: Unpack[LossOptions],
    ) -> R: ...  # fmt: skip
    @overload
    def __call__(
        self: Loss[Strength, R], z: ArrayLike, y: ArrayLike, strength: ArrayLike = ...,
        axis: Axis = -1, **options: Unpack[LossOptions],
    ) -> R: ...  # fmt: skip
    def __call__(
        self, z: Any, y: Any, *args: Any, reduction: Any = "mean", weight: Any = None,
        ignore_index: Any = None, label_smoothing: Any = 0.0, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """The loss, reduced."""
        try:
            _, value, axis, mask, out = self.bind(z, *args, **kwargs)
        except TypeError as error:
            raise _with_hint(error, kwargs) from None
        if reduction == "mean" and weight is ignore_index is mask is None:
            if label_smoothing == 0.0:
                return self.run((z, y), value, axis, mask, out, USUAL)
        options = checked_options(reduction, weight, mask, ignore_index, label_smoothing)
        return self.run((z, y), value, axis, mask, out, options)


class LossAndGrad(Loss[K, tuple[Any, Array]]):
    """The loss, and the gradient in z of the number that it returns, with one forward pass.

    The arguments are those of the loss. For ``reduction="none"`` the gradient of a row is of its
    own loss.
    """

    results = ("number", "entries")


class Facts(TypedDict, total=False):
    """Properties of a mapping, for generic code; the defaults are those of `Mapping`."""

    sparse: bool
    on_simplex: bool
    shift_invariant: bool
    permutation_equivariant: bool
    symmetric: bool
    omega_at_vertices: float | None
    support_alpha: float | None
    of_largest: str | None


class Mapping(OfScores[P], Generic[P, K]):
    """A mapping from scores to probabilities: an object that is called, and has its derivatives.

    An attribute without a rule exists, and raises a ValueError; its `is_defined` is False.

    Attributes
    ----------
    name : str
    parameters : tuple of str
        none or one
    support, log : functions of scores z
    jvp, vjp, jacobian, regularizer : functions of probabilities p
    parameter_slope, parameter_vjp, vjps : the same, of a parameter that has a gradient
    loss, loss_and_grad : functions of scores z and targets y, of a mapping with a regularizer
    reference : the same mapping without kernels; each attribute has its own
    body, textbook : the rule on rows, and one vector as the paper prints it; so has each attribute
    conjugate : ``conjugate(z, p, *params)`` → Ω*(z), shape batch, of rows whose largest z is 0
        None where p·z − Ω(p) loses no digits
    doubtful : ``doubtful(z, on, *params)`` → `pyentmax.reference.thresholds.proof.Doubt` or None
        which entries off the support ``on``, as computed, are not proved to be off it, for rows on
        the host and numbers as parameters; None where the mapping's zeros cannot be proved
    sparse : bool
        can give exact zeros
    on_simplex : bool
        p ≥ 0 and Σp = 1
    shift_invariant : bool
        adding a constant to z changes nothing, so J1 = 0
    permutation_equivariant : bool
    symmetric : bool
        J = Jᵀ, so that `vjp` is `jvp`
    omega_at_vertices : float or None
        Ω(e_y) where it is the same for every vertex
    support_alpha : float or None
        the α whose entmax has the same Jacobian at p on the support: 1 for softmax of some entries,
        2 for sparsemax of some. None where there is no such α, or it is a parameter
    of_largest : str or None
        the mapping that a row's k largest scores go through, if the others get nothing
    """

    sparse = on_simplex = shift_invariant = permutation_equivariant = symmetric = True
    omega_at_vertices: float | None = None
    support_alpha: float | None = None
    of_largest: str | None = None
    conjugate: Callable[..., Any] | None = None
    doubtful: Callable[..., Any] | None = None

    def __init__(self, text: Text[P], parameter: K, **facts: Unpack[Facts]) -> None:
        name, own = text.__name__, (text, parameter)
        # Compiled kernels are those of the package's own mappings, whatever another is called.
        kernel = name if text.__module__ == f"pyentmax.reference.mappings.{name}" else ""
        super().__init__(name, text, parameter, kernel)
        self.__doc__, self.__wrapped__ = text.__doc__, text
        self.name = name
        self.parameters: tuple[str, ...] = () if parameter is None else (parameter.name,)
        vars(self).update(facts)
        self.support: Support[P] = Support(f"{name}.support", *own)
        self.log: Log[P] = Log(f"{name}.log", *own, kernel and f"log_{name}")
        self.jvp: Product[P] = Product(f"{name}.jvp", *own, kernel and f"{name}_jvp")
        self.vjp: Product[P] = self.jvp if self.symmetric else Product(f"{name}.vjp", *own)
        self.jacobian: Jacobian[P] = Jacobian(f"{name}.jacobian", *own)
        self.regularizer: Regularizer[P] = Regularizer(f"{name}.regularizer", *own)
        self.loss: Loss[K, Any] = Loss(f"{name}.loss", *own, kernel and f"{name}_loss")
        self.loss_and_grad: LossAndGrad[K] = LossAndGrad(
            f"{name}.loss_and_grad", *own, kernel and f"{name}_loss_and_grad"
        )
        self.loss.define(self, fenchel_young)
        self.loss_and_grad.define(self, fenchel_young_and_gradient)
        varied = "" if parameter is None else parameter.name
        self.parameter_slope: ParameterSlope[P] = ParameterSlope(
            f"{name}.parameter_slope", *own, kernel and f"{name}_grad_{varied}"
        )
        self.parameter_vjp: ParameterVjp[P] = ParameterVjp(
            f"{name}.parameter_vjp", *own, kernel and f"{name}_vjp_{varied}"
        )
        self.vjps: Vjps[P] = Vjps(f"{name}.vjps", *own, kernel and f"{name}_vjps")

    def rule(self, body: F) -> F:
        """Decorator: the function on rows that the mapping is by definition."""
        self.body = body
        return body

    @property
    def one_axis(self) -> bool:
        """Whether the order of a row's entries matters, which those of several axes do not have."""
        return getattr(self.parameter, "one_axis", False)

    def __dir__(self) -> list[str]:
        functions = {name: x for name, x in vars(self).items() if isinstance(x, Function)}
        defined = [name for name, x in functions.items() if x.is_defined]
        facts = [*Facts.__annotations__, "conjugate", "doubtful"]
        return [*super().__dir__(), "name", "one_axis", "parameters", *defined, *facts]

    def __call__(self, z: ArrayLike, *args: P.args, **kwargs: P.kwargs) -> Array:
        """The probabilities of scores."""
        try:
            _, value, axis, mask, out = self.bind(z, *args, **kwargs)
        except TypeError as error:
            raise _with_hint(error, kwargs) from None
        result: Array = self.run((z,), value, axis, mask, out)
        return result


def _with_hint(error: TypeError, named: dict[str, Any]) -> TypeError:
    """An error of `bind`; for those who come from tensors it says what their dim is here."""
    return TypeError(f"{error}; of arrays it is axis") if "dim" in named else error


AnyMapping = Mapping[Any, Any]


@overload
def mapping(
    parameter: None = None, **facts: Unpack[Facts]
) -> Callable[[Text[P]], Mapping[P, None]]: ...
@overload
def mapping(parameter: K, **facts: Unpack[Facts]) -> Callable[[Text[P]], Mapping[P, K]]: ...
def mapping(parameter: Any = None, **facts: Any) -> Any:
    """Decorator: the object of a mapping, from the text of its call; rules follow.

    Parameters
    ----------
    parameter : declaration from `pyentmax.engine.calls.parameters`, optional
        of the argument that follows the scores, such as ``Alpha("alpha", least=1)``
    **facts
        properties of the mapping that differ from the defaults of `Mapping`

    Examples
    --------
    Sparsemax at a temperature, whose Ω is T/2 ‖p‖²:

    >>> from pyentmax.engine.calls.parameters import Strength
    >>> from pyentmax.reference.mappings.sparsemax import sparsemax
    >>> @mapping(Strength("temperature", least=0, strict=True))
    ... def warm(z, temperature=1.0, axis=-1, *, mask=None, out=None):
    ...     return z, temperature, axis, mask, out
    >>> @warm.rule
    ... def _(y, temperature):
    ...     return sparsemax.body(y / temperature)
    >>> @warm.jvp.rule
    ... def _(p, v, temperature):
    ...     return sparsemax.jvp.body(p, v) / temperature
    >>> @warm.regularizer.rule
    ... def _(p, temperature):
    ...     return temperature[:, 0] * (p * p).sum(axis=-1) / 2
    >>> print(warm([2.0, 1.2, -1.0], 2.0), warm([2.0, 1.2, -1.0], mask=[True, False, True]))
    [0.7 0.3 0. ] [1. 0. 0.]
    >>> print(warm.loss([2.0, 0.0], 1, 2.0))
    2.0
    """
    return lambda text: Mapping(text, parameter, **facts)
