"""The tape: an array that remembers how it was computed, and the sweep back through that memory.

A :class:`Tensor` wraps an array of any NumPy-like module. If it was computed from other tensors, it
holds these *parents*, each with a function, its VJP: for y = f(x) with Jacobian J, the VJP maps the
gradient ∂L/∂y to ∂L/∂x = Jᵀ ∂L/∂y. :meth:`Tensor.backward` visits the tensors in the reverse of the
order in which they were computed, so that the gradient of each is complete before it is passed on.

There is no global switch for "no gradients": numbers, arrays and tensors that need no gradient are
constants, which are not recorded. A model whose parameters are plain arrays builds no tape at all.

Arithmetic and changes of shape are methods, functions are in :mod:`pyentmax.seq2seq.autograd.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Real
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""An array of NumPy or of a module with NumPy's interface (CuPy)."""

Axes: TypeAlias = int | tuple[int, ...] | None


class Tensor:
    """An array on the tape.

    Parameters
    ----------
    data : array
        The value. It is not copied.
    *parents : (Tensor, callable)
        What the value was computed from, and the VJP that leads back to it. A VJP needs not undo
        broadcasting. Where the VJPs of several parents share work, a tuple of them stands in place
        of one, and their VJP returns a tuple of gradients.
    requires_grad : bool, default False
        Whether ``backward`` should store a gradient in ``grad``. Meant for leaves, such as a
        model's parameters.

    Raises
    ------
    TypeError
        If ``data`` is not an array, or ``requires_grad`` and it does not hold floating-point
        numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.seq2seq.autograd import Tensor
    >>> x = Tensor(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    >>> y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    array([2., 4., 6.])

    An operation of one's own is a value with its parents:

    >>> y = Tensor(x.data**3, (x, lambda g: g * 3 * x.data**2))
    """

    __slots__ = ("data", "grad", "parents", "requires_grad")

    # NumPy must not spread a Tensor over the elements of an array: `array * tensor` is our task.
    __array_ufunc__ = None

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a Tensor is not an array; its .data is")

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise TypeError(
            f"numpy.{function.__name__} takes no Tensor; use a Tensor's methods and the functions "
            "of pyentmax.seq2seq.autograd, or pass tensor.data"
        )

    def __init__(
        self, data: Array, *parents: tuple[Any, Callable[[Any], Any]], requires_grad: bool = False
    ) -> None:
        if isinstance(data, Tensor) or not hasattr(data, "dtype"):
            raise TypeError(f"expected an array, got {type(data).__name__}")
        if requires_grad and data.dtype.kind != "f":
            raise TypeError(f"requires_grad: expected a floating-point array, got {data.dtype}")
        self.data: Array = data
        self.grad: Array | None = None
        self.parents: tuple[Any, ...] = _recorded(parents)
        self.requires_grad: bool = requires_grad or bool(self.parents)

    # --- what it is -------------------------------------------------------------------------------
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
        """The slices along the first axis; their gradients are put together once."""

        def vjp(slices: list[tuple[int, Array]]) -> Array:
            gradient = np.zeros_like(self.data)
            for i, g in slices:
                gradient[i] += g
            return gradient

        whole = Tensor(self.data, (self, vjp))
        for i, x in enumerate(self.data):
            yield Tensor(x, (whole, lambda g, i=i: [(i, g)]))  # type: ignore[misc]

    def __repr__(self) -> str:
        note = ", requires_grad=True" if self.requires_grad else ""
        return f"Tensor({self.data!r}{note})"

    def item(self) -> float:
        """The value of a tensor with one element, as a Python number."""
        return self.data.item()

    def __float__(self) -> float:
        return float(self.item())

    def __bool__(self) -> bool:
        return bool(self.data)

    def __format__(self, style: str) -> str:
        return format(self.item(), style) if style else str(self)

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
        if gradient is None and self.data.size != 1:
            raise ValueError(
                "backward: a tensor that is not a scalar needs `gradient`, an array of shape "
                f"{self.shape}; to start from a scalar, reduce with .sum() or .mean()"
            )
        gradient = np.ones_like(self.data) if gradient is None else np.asarray(gradient, self.dtype)
        if gradient.shape != self.shape:
            raise ValueError(
                f"backward: expected a gradient of shape {self.shape}, got {gradient.shape}"
            )
        gradients: dict[int, Any] = {id(self): gradient}
        for tensor in reversed(_topological_order(self)):
            gradient = gradients.pop(id(tensor))
            if not tensor.parents:
                # A copy: a gradient may be another tensor's too, and the caller may change it.
                own = np.array(gradient, dtype=tensor.dtype)
                tensor.grad = own if tensor.grad is None else tensor.grad + own
            for parent, vjp in tensor.parents:
                contribution = _unbroadcast(vjp(gradient), parent)
                if id(parent) in gradients:
                    contribution = gradients[id(parent)] + contribution
                gradients[id(parent)] = contribution

    # --- arithmetic -------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Tensor:
        y = self.data + value_of(other)
        return Tensor(y, (self, lambda g: g), (other, lambda g: g))

    def __sub__(self, other: Any) -> Tensor:
        y = self.data - value_of(other)
        return Tensor(y, (self, lambda g: g), (other, lambda g: -g))

    def __mul__(self, other: Any) -> Tensor:
        a, b = self.data, value_of(other)
        return Tensor(a * b, (self, lambda g: g * b), (other, lambda g: g * a))

    def __truediv__(self, other: Any) -> Tensor:
        b = value_of(other)
        y = self.data / b
        return Tensor(y, (self, lambda g: g / b), (other, lambda g: -g * y / b))

    def __matmul__(self, other: Any) -> Tensor:
        a, b = self.data, value_of(other)
        if b.ndim == 1:
            return (self @ other[:, None])[..., 0]
        if a.ndim == 1:
            return (self[None] @ other)[..., 0, :]
        return Tensor(
            a @ b,
            (self, lambda g: g @ b.swapaxes(-1, -2)),
            (other, lambda g: a.swapaxes(-1, -2) @ g),
        )

    def __radd__(self, other: Any) -> Tensor:
        return self + other

    def __rmul__(self, other: Any) -> Tensor:
        return self * other

    def __rsub__(self, other: Any) -> Tensor:
        return -self + other

    def __rtruediv__(self, other: Any) -> Tensor:
        y = other / self.data
        return Tensor(y, (self, lambda g: -g * y / self.data))

    def __rmatmul__(self, other: Any) -> Tensor:
        return Tensor(other) @ self

    def __neg__(self) -> Tensor:
        return Tensor(-self.data, (self, lambda g: -g))

    def __pow__(self, exponent: Any) -> Tensor:
        """The power with a number; for other exponents, exp(exponent * log(x))."""
        if not isinstance(exponent, Real):
            raise TypeError(f"exponent: expected a number, got {type(exponent).__name__}")
        x = self.data

        def vjp(g: Array) -> Array:
            # Where the exponent is 0, x⁻¹ could be infinite.
            return g * (exponent * x ** (exponent - 1) if exponent else 0)

        return Tensor(x**exponent, (self, vjp))

    # --- shape ------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Tensor:
        """A part, by integers, slices, None and Ellipsis; rows by an array: `take_rows`."""
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, (list, tuple)) or getattr(part, "ndim", 0) for part in parts):
            raise TypeError(
                "indexing a Tensor: expected integers, slices, None and Ellipsis, got an array or a"
                " sequence, which may repeat an index; use pyentmax.seq2seq.autograd.take_rows"
            )

        def vjp(g: Array) -> Array:
            gradient = np.zeros_like(self.data)
            gradient[index] = g
            return gradient

        return Tensor(self.data[index], (self, vjp))

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape, given as numbers or as a tuple."""
        return Tensor(self.data.reshape(*shape), (self, lambda g: g.reshape(self.shape)))

    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order, given as numbers or as a tuple; reversed if none are given."""
        given = axes and axes[0] is not None
        inverse = np.argsort(np.ravel(axes) % self.ndim).tolist() if given else ()
        return Tensor(self.data.transpose(*axes), (self, lambda g: g.transpose(*inverse)))

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """The same elements with two axes exchanged."""
        return Tensor(self.data.swapaxes(axis1, axis2), (self, lambda g: g.swapaxes(axis1, axis2)))

    # --- reductions -------------------------------------------------------------------------------
    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Sum over ``axis``, as ``numpy.sum``; each summand gets the gradient of the sum."""
        return self._reduced(self.data.sum(axis=axis, keepdims=True), 1, axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Mean over ``axis``, as ``numpy.mean``; each entry gets its share of the gradient."""
        mean = self.data.mean(axis=axis, keepdims=True)
        return self._reduced(mean, mean.size / max(self.data.size, 1), axis, keepdims)

    def _reduced(self, value: Array, share: float, axis: Axes, keepdims: bool) -> Tensor:
        def vjp(g: Array) -> Array:
            return np.broadcast_to((g * share).reshape(value.shape), self.shape)

        return Tensor(value if keepdims else value.squeeze(axis), (self, vjp))


class _Operands:
    """Several tensors in place of one parent; the gradient is a tuple, with one for each."""

    __slots__ = ("parents", "requires_grad")

    def __init__(self, tensors: tuple[Any, ...]) -> None:
        self.parents = _recorded((x, itemgetter(k)) for k, x in enumerate(tensors))
        self.requires_grad = bool(self.parents)


def as_tensor(value: Any) -> Tensor:
    """A tensor unchanged; an array, list or number as a constant.

    Examples
    --------
    >>> as_tensor([1.0, 2.0])
    Tensor(array([1., 2.]))
    """
    if isinstance(value, Tensor):
        return value
    return Tensor(value if hasattr(value, "dtype") else np.asarray(value))


def value_of(x: Any) -> Any:
    """The array of a tensor; an array or a number unchanged."""
    return x.data if isinstance(x, Tensor) else x


def _recorded(pairs: Any) -> tuple[tuple[Any, Callable[[Any], Any]], ...]:
    """The pairs of a parent and its VJP without those of constants."""
    edges = []
    for parent, vjp in pairs:
        if isinstance(parent, tuple):
            parent = _Operands(parent)
        if isinstance(parent, (Tensor, _Operands)) and parent.requires_grad:
            edges.append((parent, vjp))
    return tuple(edges)


def _unbroadcast(gradient: Any, parent: Any) -> Any:
    """Sum a gradient over the axes along which the parent was stretched to fit.

    What is not an array yet, a tuple or a list of parts, is put together by the parent's own VJP.
    """
    if isinstance(gradient, (tuple, list)) or gradient.shape == parent.shape:
        return gradient
    shape = parent.shape
    extra = gradient.ndim - len(shape)
    stretched = tuple(i for i, n in enumerate(shape, extra) if n == 1 != gradient.shape[i])
    return gradient.sum(axis=(*range(extra), *stretched)).reshape(shape)


def _topological_order(last: Tensor) -> list[Any]:
    """The tensors that ``last`` depends on and that need a gradient, parents before children.

    A depth-first walk with a stack of its own: a long recurrent graph would exceed Python's.
    """
    order: list[Any] = []
    visited: set[int] = set()
    stack: list[tuple[Any, bool]] = [(last, False)]
    while stack:
        tensor, parents_done = stack.pop()
        if parents_done:
            order.append(tensor)
        elif id(tensor) not in visited:
            visited.add(id(tensor))
            stack.append((tensor, True))
            stack.extend((parent, False) for parent, _ in tensor.parents)
    return order
