"""The tape: an array that remembers how it was made, and the sweep back through that memory.

A :class:`Tensor` wraps an array of any NumPy-like module and, if it was computed from other
tensors, holds them as *parents* together with one function, its VJP. For y = f(x) with Jacobian J
the VJP maps the gradient ∂L/∂y to ∂L/∂x = Jᵀ ∂L/∂y. :meth:`Tensor.backward` visits the tensors in
the reverse of the order in which they were computed, so that each one's gradient is complete before
it is passed on.

There is no global switch for "no gradients": a tensor is recorded only if one of its parents needs
a gradient, so a model whose parameters are plain arrays builds no tape at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from pyentmax.calls.devices import array_module

Array: TypeAlias = Any
"""An array of NumPy or of a module with NumPy's surface (CuPy)."""


class GradientSlice(NamedTuple):
    """A gradient that is zero outside ``x[index]``: the part is kept, never the zeros around it."""

    index: Any
    value: Array


class GradientProduct(NamedTuple):
    """A gradient of the form ``leftᵀ @ right``, for 2-D arrays with one row an example.

    A weight matrix that is used at T time steps gets T of these. They are collected and multiplied
    out once, as one long product, which is several times faster than T short ones. Leading axes
    stand for as many products at once.
    """

    left: Array
    right: Array


Contribution: TypeAlias = Array | GradientSlice | GradientProduct | None
"""What a VJP may return for one parent: an array, a part, a product, or None for no gradient."""

VJP: TypeAlias = Callable[[Array], Sequence[Contribution]]


class Tensor:
    """An array on the tape.

    Parameters
    ----------
    data : array
        The value. It is not copied.
    requires_grad : bool, default False
        Whether ``backward`` should leave a gradient in ``grad``. Meant for leaves, such as a
        model's parameters.
    parents : sequence of Tensor, optional
        What the value was computed from.
    vjp : callable, optional
        Maps the gradient of this tensor to one contribution for each parent, in their order.

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.autograd import Tensor
    >>> x = Tensor(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    >>> y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    array([2., 4., 6.])
    """

    __slots__ = ("data", "grad", "requires_grad", "parents", "vjp")

    # NumPy must not spread a Tensor over the elements of an array: `array * tensor` is ours to do.
    __array_ufunc__ = None

    def __init__(
        self,
        data: Array,
        requires_grad: bool = False,
        parents: Sequence[Tensor] = (),
        vjp: VJP | None = None,
    ) -> None:
        if isinstance(data, Tensor) or not hasattr(data, "dtype"):
            raise TypeError(f"expected an array, got {type(data).__name__}")
        if requires_grad and data.dtype.kind != "f":
            raise TypeError(f"requires_grad: expected a floating-point array, got {data.dtype}")
        self.data = data
        self.grad: Array | None = None
        self.requires_grad: bool = requires_grad or any(parent.requires_grad for parent in parents)
        # A value that nothing can ask a gradient of forgets where it came from, and so frees it.
        self.parents = tuple(parents) if self.requires_grad else ()
        self.vjp = vjp if self.requires_grad else None

    # --- what it is -------------------------------------------------------------------------------
    @property
    def xp(self) -> ModuleType:
        """The array module of the data: numpy, or cupy."""
        return array_module(self.data)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the data."""
        return self.data.shape

    @property
    def ndim(self) -> int:
        """Number of axes of the data."""
        return self.data.ndim

    @property
    def dtype(self) -> Any:
        """Data type of the data."""
        return self.data.dtype

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        note = ", requires_grad=True" if self.requires_grad else ""
        return f"Tensor({self.data!r}{note})"

    def item(self) -> float:
        """The value of a tensor with one element, as a Python number; waits for a GPU."""
        return self.data.item()

    # --- the sweep --------------------------------------------------------------------------------
    def backward(self, gradient: Array | None = None) -> None:
        """Add the gradient of this tensor to ``grad`` of every leaf that asked for one.

        Parameters
        ----------
        gradient : array, optional
            ∂L/∂(this tensor). May be left out for a scalar, where it is 1.

        Raises
        ------
        ValueError
            If the tensor is no scalar and ``gradient`` is missing, if the shapes differ, or if
            nothing that it was computed from requires a gradient.
        """
        if not self.requires_grad:
            raise ValueError(
                "backward: nothing that this tensor was computed from requires a gradient"
            )
        if gradient is None:
            if self.data.size != 1:
                raise ValueError(
                    "backward: a tensor that is no scalar needs `gradient`, an array of shape "
                    f"{self.shape}; to start from a scalar, reduce with .sum() or .mean()"
                )
            gradient = self.xp.ones_like(self.data)
        gradient = self.xp.asarray(gradient)
        if gradient.shape != self.shape:
            raise ValueError(
                f"backward: expected a gradient of shape {self.shape}, got {gradient.shape}"
            )

        sums: dict[int, _GradientSum] = {id(self): _GradientSum(self.data)}
        sums[id(self)].add(gradient)
        for tensor in reversed(_in_order_of_computation(self)):
            if id(tensor) not in sums:
                continue  # every VJP on the way here answered None
            total = sums.pop(id(tensor))
            if tensor.vjp is None:
                # A gradient that is left behind is its owner's to change.
                tensor.grad = total.own() if tensor.grad is None else tensor.grad + total.value()
                continue
            for parent, contribution in zip(tensor.parents, tensor.vjp(total.value()), strict=True):
                if parent.requires_grad and contribution is not None:
                    if id(parent) not in sums:
                        sums[id(parent)] = _GradientSum(parent.data)
                    sums[id(parent)].add(contribution)

    # --- arithmetic (defined in ops.py, which imports this module) --------------------------------
    def __add__(self, other: Any) -> Tensor:
        return _ops().add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _ops().add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _ops().subtract(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _ops().subtract(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _ops().multiply(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _ops().multiply(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _ops().divide(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _ops().divide(other, self)

    def __pow__(self, exponent: float) -> Tensor:
        return _ops().power(self, exponent)

    def __neg__(self) -> Tensor:
        return _ops().negative(self)

    def __matmul__(self, other: Any) -> Tensor:
        return _ops().matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _ops().matmul(other, self)

    def __getitem__(self, index: Any) -> Tensor:
        return _ops().getitem(self, index)

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Sum over ``axis``, as ``numpy.sum``."""
        return _ops().sum(self, axis, keepdims)

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Mean over ``axis``, as ``numpy.mean``."""
        return _ops().mean(self, axis, keepdims)

    def reshape(self, *shape: int | tuple[int, ...]) -> Tensor:
        """The same elements in another shape, given as numbers or as a tuple."""
        return _ops().reshape(self, _numbers(shape))

    def transpose(self, *axes: int | tuple[int, ...]) -> Tensor:
        """The axes in another order, given as numbers or as a tuple; reversed without."""
        return _ops().transpose(self, _numbers(axes) or None)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Two axes exchanged."""
        return _ops().swapaxes(self, axis1, axis2)


def _numbers(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    return arguments[0] if len(arguments) == 1 and isinstance(arguments[0], tuple) else arguments


def _ops() -> ModuleType:
    from pyentmax.autograd import ops

    return ops


def _in_order_of_computation(last: Tensor) -> list[Tensor]:
    """The tensors that ``last`` depends on and that need a gradient, parents before children.

    A depth-first walk with its own stack: a long recurrent graph would exceed Python's.
    """
    order: list[Tensor] = []
    seen: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(last, False)]
    while stack:
        tensor, parents_done = stack.pop()
        if parents_done:
            order.append(tensor)
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            stack.append((tensor, True))
            stack.extend(
                (p, False) for p in tensor.parents if p.requires_grad and id(p) not in seen
            )
    return order


class _GradientSum:
    """The sum of the contributions to one tensor's gradient."""

    __slots__ = ("like", "dense", "owned", "products")

    def __init__(self, like: Array) -> None:
        self.like = like
        self.dense: Array | None = None
        # A contribution may be another tensor's gradient, or a view of it, so the first array is
        # kept as it came and copied only when something must be added to it.
        self.owned = False
        self.products: list[GradientProduct] = []

    def add(self, contribution: Contribution) -> None:
        if isinstance(contribution, GradientProduct):
            self.products.append(contribution)
        elif isinstance(contribution, GradientSlice):
            if self.dense is None:
                self.dense, self.owned = array_module(self.like).zeros_like(self.like), True
            elif not self.owned:
                self.dense, self.owned = self.dense.copy(), True
            self.dense[contribution.index] += contribution.value
        elif self.dense is None:
            self.dense = contribution
        elif self.owned:
            self.dense += contribution
        else:
            self.dense, self.owned = self.dense + contribution, True

    def value(self) -> Array:
        if self.products:
            xp = array_module(self.like)
            if len(self.products) == 1:
                [(left, right)] = self.products
            else:
                left = xp.concatenate([p.left for p in self.products], axis=-2)
                right = xp.concatenate([p.right for p in self.products], axis=-2)
            self.products = []
            product = left.swapaxes(-1, -2) @ right
            if self.dense is None:
                self.dense, self.owned = product, True
            else:
                self.add(product)
        return self.dense

    def own(self) -> Array:
        """The sum in an array that nothing else looks at."""
        value = self.value()
        return value if self.owned else value.copy()
