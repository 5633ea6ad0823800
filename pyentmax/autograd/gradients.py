"""Gradients on their way back: what a VJP may return, and the sum of what reaches one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from pyentmax.calls.devices import array_module

Array: TypeAlias = Any
"""An array of NumPy or of a module with NumPy's interface (CuPy)."""


class GradientSlice(NamedTuple):
    """A gradient that is zero outside ``x[index]``: only the slice is kept, never the zeros."""

    index: Any
    value: Array


class GradientProduct(NamedTuple):
    """A gradient of the form ``leftᵀ @ right``, for 2-D arrays with one row per example.

    A weight matrix that is used at T time steps gets T of these. They are collected and multiplied
    out once, as one long product, which is several times faster than T short ones. With leading
    axes it is one product for each of their entries.
    """

    left: Array
    right: Array


Contribution: TypeAlias = Array | GradientSlice | GradientProduct | None
"""What a VJP may return for a parent: an array, a slice, a product, or None for no gradient."""

VJP: TypeAlias = Callable[[Array], Sequence[Contribution]]


class GradientSum:
    """The sum of all contributions to one tensor's gradient.

    Parameters
    ----------
    like : array
        The tensor's data: the gradient has its shape and array module, and in the end its dtype.
    """

    __slots__ = ("like", "dense", "owned", "products")

    def __init__(self, like: Array) -> None:
        self.like = like
        self.dense: Array | None = None
        # A contribution may be another tensor's gradient, or a view of it. So the first array is
        # kept as it came, and copied only when something must be added to it.
        self.owned = False
        self.products: list[GradientProduct] = []

    def add(self, contribution: Contribution) -> None:
        """Add one contribution that is not None."""
        if isinstance(contribution, GradientProduct):
            self.products.append(contribution)
        elif isinstance(contribution, GradientSlice):
            if self.dense is None:
                self.dense, self.owned = array_module(self.like).zeros_like(self.like), True
            elif not self.owned or not self.like.ndim:  # sums of numbers are no arrays
                self.dense, self.owned = array_module(self.like).array(self.dense), True
            self.dense[contribution.index] += contribution.value
        elif self.dense is None:
            self.dense = contribution
        elif self.owned:
            self.dense += contribution
        else:
            self.dense, self.owned = self.dense + contribution, True

    def value(self) -> Array:
        """The sum; it may share memory with another gradient."""
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

    def owned_value(self) -> Array:
        """The sum in an array of the tensor's dtype that shares memory with no other."""
        value = array_module(self.like).asarray(self.value())
        return value.astype(self.like.dtype, copy=not self.owned)
