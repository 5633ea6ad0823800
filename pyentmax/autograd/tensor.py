"""The tape: an array that remembers how it was computed, and the pass back through that memory.

A :class:`Tensor` wraps an array of any NumPy-like module. If it was computed from other tensors, it
holds them as its *parents*, together with one function, its VJP. For y = f(x) with Jacobian J, the
VJP maps the gradient ∂L/∂y to ∂L/∂x = Jᵀ ∂L/∂y. :meth:`Tensor.backward` visits the tensors in the
reverse of the order in which they were computed, so that the gradient of each is complete before it
is passed on.

There is no global switch for "no gradients": a tensor is recorded only if one of its parents needs
a gradient, so a model whose parameters are plain arrays builds no tape at all.

Arithmetic and changes of shape are methods, each with its VJP directly below its value; functions
are in :mod:`pyentmax.autograd.ops`. Broadcasting is NumPy's: an axis that was stretched to fit gets
its gradient summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pyentmax.autograd.gradients import VJP, GradientSlice, GradientSum
from pyentmax.autograd.gradients import Array as Array
from pyentmax.autograd.gradients import GradientProduct as GradientProduct
from pyentmax.calls.devices import array_module


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

    Raises
    ------
    TypeError
        If ``data`` is not an array, or ``requires_grad`` and it does not hold floating-point
        numbers.

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

    # NumPy must not spread a Tensor over the elements of an array: `array * tensor` is our task.
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
        # A value whose gradient nobody can ask for forgets where it came from, and so frees it.
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

    # --- the backward pass ------------------------------------------------------------------------
    def backward(self, gradient: Array | None = None) -> None:
        """Add the gradient of this tensor to ``grad`` of every leaf that asked for one.

        Parameters
        ----------
        gradient : array, optional
            ∂L/∂(this tensor). May be left out for a scalar, where it is 1.

        Raises
        ------
        ValueError
            If the tensor is not a scalar and ``gradient`` is missing, if the shapes differ, or if
            nothing that the tensor was computed from requires a gradient.
        """
        if not self.requires_grad:
            raise ValueError(
                "backward: nothing that this tensor was computed from requires a gradient"
            )
        if gradient is None:
            if self.data.size != 1:
                raise ValueError(
                    "backward: a tensor that is not a scalar needs `gradient`, an array of shape "
                    f"{self.shape}; to start from a scalar, reduce with .sum() or .mean()"
                )
            gradient = self.xp.ones_like(self.data)
        gradient = self.xp.asarray(gradient, dtype=self.dtype)
        if gradient.shape != self.shape:
            raise ValueError(
                f"backward: expected a gradient of shape {self.shape}, got {gradient.shape}"
            )

        sums: dict[int, GradientSum] = {id(self): GradientSum(self.data)}
        sums[id(self)].add(gradient)
        for tensor in reversed(_topological_order(self)):
            if id(tensor) not in sums:
                continue  # every VJP on the way here returned None
            total = sums.pop(id(tensor))
            if tensor.vjp is None:
                # The caller may change the gradient of a leaf, so no other may share its memory.
                value = total.owned_value()
                tensor.grad = value if tensor.grad is None else tensor.grad + value
                continue
            for parent, contribution in zip(tensor.parents, tensor.vjp(total.value()), strict=True):
                if parent.requires_grad and contribution is not None:
                    if id(parent) not in sums:
                        sums[id(parent)] = GradientSum(parent.data)
                    sums[id(parent)].add(contribution)

    # --- arithmetic -------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Tensor:
        a, b = self, as_tensor(other, self)
        return Tensor(
            a.data + b.data,
            parents=(a, b),
            vjp=lambda g: (_unbroadcast(g, a.shape), _unbroadcast(g, b.shape)),
        )

    def __sub__(self, other: Any) -> Tensor:
        a, b = self, as_tensor(other, self)
        return Tensor(
            a.data - b.data,
            parents=(a, b),
            vjp=lambda g: (_unbroadcast(g, a.shape), _unbroadcast(-g, b.shape)),
        )

    def __mul__(self, other: Any) -> Tensor:
        a, b = self, as_tensor(other, self)
        return Tensor(
            a.data * b.data,
            parents=(a, b),
            vjp=lambda g: (_unbroadcast(g * b.data, a.shape), _unbroadcast(g * a.data, b.shape)),
        )

    def __truediv__(self, other: Any) -> Tensor:
        a, b = self, as_tensor(other, self)
        y = a.data / b.data

        def vjp(g: Array) -> tuple[Array, Array]:
            g = g / b.data
            return _unbroadcast(g, a.shape), _unbroadcast(-g * y, b.shape)

        return Tensor(y, parents=(a, b), vjp=vjp)

    def __matmul__(self, other: Any) -> Tensor:
        a, b = self, as_tensor(other, self)
        if a.ndim < 2 or b.ndim < 2:
            raise ValueError(
                f"matmul: expected operands of two or more axes, got shapes {a.shape} and "
                f"{b.shape}; reshape a vector to a row or a column"
            )

        def vjp(g: Array) -> tuple[Array, Array]:
            return (
                _unbroadcast(g @ b.data.swapaxes(-1, -2), a.shape) if a.requires_grad else None,
                _unbroadcast(a.data.swapaxes(-1, -2) @ g, b.shape) if b.requires_grad else None,
            )

        return Tensor(a.data @ b.data, parents=(a, b), vjp=vjp)

    def __radd__(self, other: Any) -> Tensor:
        return as_tensor(other, self) + self

    def __rsub__(self, other: Any) -> Tensor:
        return as_tensor(other, self) - self

    def __rmul__(self, other: Any) -> Tensor:
        return as_tensor(other, self) * self

    def __rtruediv__(self, other: Any) -> Tensor:
        return as_tensor(other, self) / self

    def __rmatmul__(self, other: Any) -> Tensor:
        return as_tensor(other, self) @ self

    def __neg__(self) -> Tensor:
        return Tensor(-self.data, parents=(self,), vjp=lambda g: (-g,))

    def __pow__(self, exponent: float) -> Tensor:
        """The power with a constant exponent."""

        def vjp(g: Array) -> tuple[Array]:
            if not exponent:
                return (self.xp.zeros_like(g),)  # 0 · 0⁻¹ would be a NaN
            return (g * (exponent * self.data ** (exponent - 1)),)

        return Tensor(self.data**exponent, parents=(self,), vjp=vjp)

    # --- shape ------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Tensor:
        """A part, by integers, slices, None and Ellipsis; by arrays see `take_rows`."""
        for part in index if isinstance(index, tuple) else (index,):
            whole = hasattr(part, "__index__") and not hasattr(part, "shape")
            whole = whole or isinstance(part, np.integer)
            basic = part is None or part is Ellipsis or isinstance(part, slice) or whole
            if not basic or isinstance(part, bool):
                raise TypeError(
                    "indexing a Tensor with an array, a sequence or a bool: a repeated index would "
                    f"lose gradient; use pyentmax.autograd.take_rows; got {type(part).__name__}"
                )
        return Tensor(self.data[index], parents=(self,), vjp=lambda g: (GradientSlice(index, g),))

    def reshape(self, *shape: int | tuple[int, ...]) -> Tensor:
        """The same elements in another shape, given as numbers or as a tuple."""
        return Tensor(
            self.data.reshape(*shape), parents=(self,), vjp=lambda g: (g.reshape(self.shape),)
        )

    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order, given as numbers or as a tuple; reversed if none are given."""
        given = axes[0] if axes and isinstance(axes[0], tuple) else axes
        order = normalize_axis_tuple(given, self.ndim) or range(self.ndim)[::-1]
        data = self.data.transpose(order)  # which refuses too few
        inverse = sorted(range(self.ndim), key=order.__getitem__)
        return Tensor(data, parents=(self,), vjp=lambda g: (g.transpose(inverse),))

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """The same elements with two axes exchanged."""
        return Tensor(
            self.data.swapaxes(axis1, axis2),
            parents=(self,),
            vjp=lambda g: (g.swapaxes(axis1, axis2),),
        )

    # --- reductions -------------------------------------------------------------------------------
    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Sum over ``axis``, as ``numpy.sum``; each summand gets the gradient of the sum."""
        total = self.data.sum(axis=axis, keepdims=keepdims)
        return Tensor(
            self.xp.asarray(total),
            parents=(self,),
            vjp=lambda g: (self._spread(g, axis, keepdims),),
        )

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Mean over ``axis``, as ``numpy.mean``; each entry gets its share of the gradient."""
        if not self.data.size:
            raise ValueError(f"mean: expected at least one element, got shape {self.shape}")
        mean = self.xp.asarray(self.data.mean(axis=axis, keepdims=keepdims))
        share = mean.dtype.type(mean.size / self.data.size)
        return Tensor(
            mean, parents=(self,), vjp=lambda g: (self._spread(g * share, axis, keepdims),)
        )

    def _spread(self, g: Array, axis: int | tuple[int, ...] | None, keepdims: bool) -> Array:
        """The gradient of a reduction, for each entry that was reduced."""
        if axis is not None and not keepdims:
            g = self.xp.expand_dims(g, axis)
        return self.xp.broadcast_to(g, self.shape)


def as_tensor(value: Any, like: Tensor | None = None) -> Tensor:
    """A tensor unchanged; an array, list or number as a constant.

    A number beside a floating-point tensor takes its dtype: 0.5 must not widen float32.

    Examples
    --------
    >>> as_tensor([1.0, 2.0])
    Tensor(array([1., 2.]))
    """
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "dtype"):
        return Tensor(value)
    xp = np if like is None else like.xp
    if not isinstance(value, (int, float)):
        return Tensor(xp.asarray(value))
    dtype = like.dtype if like is not None and like.dtype.kind == "f" else None
    # full, not asarray: to a GPU the number goes as an argument of a kernel, without a copy.
    return Tensor(xp.full((), value, dtype=dtype))


def _unbroadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum the gradient over the axes along which an operand of ``shape`` was stretched."""
    if gradient.shape == shape:
        return gradient
    extra = gradient.ndim - len(shape)
    stretched = tuple(i + extra for i, n in enumerate(shape) if n == 1 != gradient.shape[i + extra])
    return gradient.sum(axis=(*range(extra), *stretched), keepdims=False).reshape(shape)


def _topological_order(last: Tensor) -> list[Tensor]:
    """The tensors that ``last`` depends on and that need a gradient, parents before children.

    A depth-first walk with a stack of its own: a long recurrent graph would exceed Python's.
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
