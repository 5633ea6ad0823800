"""A tape of ten operations: gradients, right or wrong, follow from what is computed forwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._truths import JACOBIANS
from pyentmax.reference.mapping import AnyMapping as Mapping


class V:
    """An array, and for each V that it depends on the product of its Jacobian with a gradient."""

    def __init__(self, x: Any, *parents: tuple[V, Callable[[Array], Array]]) -> None:
        self.x, self.parents = np.asarray(x, float), parents

    def __add__(self, other: Any) -> V:
        b = as_v(other)
        return V(self.x + b.x, (self, lambda g: g), (b, lambda g: g))

    def __mul__(self, other: Any) -> V:
        b = as_v(other)
        return V(self.x * b.x, (self, lambda g: g * b.x), (b, lambda g: g * self.x))


def as_v(x: Any) -> V:
    """A constant as a V."""
    return x if isinstance(x, V) else V(x)


def matmul(a: V, b: V, to_a: Any = 1.0) -> V:
    """a bᵀ over the last two axes; ``to_a`` weighs what goes back to a (1 is right)."""
    return V(a.x @ np.swapaxes(b.x, -1, -2), (a, lambda g: (g * to_a) @ b.x),
             (b, lambda g: np.swapaxes(g, -1, -2) @ a.x))  # fmt: skip


def transposed(a: V, i: int = -1, j: int = -2) -> V:
    """a with two axes swapped."""
    return V(np.swapaxes(a.x, i, j), (a, lambda g: np.swapaxes(g, i, j)))


def reshaped(a: V, *shape: int) -> V:
    """a in another shape."""
    return V(a.x.reshape(shape), (a, lambda g: g.reshape(a.x.shape)))


def tanh(a: V, sloped: bool = True) -> V:
    """tanh a; not sloped, its derivative is taken for 1."""
    y = np.tanh(a.x)
    return V(y, (a, lambda g: g * (1 - y**2) if sloped else g))


def where(keep: Array, a: V, other: Any = -np.inf) -> V:
    """a where keep, and a constant elsewhere."""
    return V(np.where(keep, a.x, other), (a, lambda g: np.where(keep, g, 0)))


def take(a: V, index: Array, axis: int, weights: Any = 1.0) -> V:
    """Entries along an axis, which may repeat; ``weights`` of the gradients (1 is right)."""

    def back(g: Array) -> Array:
        total = np.zeros_like(a.x)
        at: Any = (slice(None),) * (a.x.ndim + axis) + (index,)
        np.add.at(total, at, g * np.reshape(weights, (-1, *[1] * (-1 - axis))))
        return total

    return V(np.take(a.x, index, axis), (a, back))


def join(a: V, b: V) -> V:
    """a, and b broadcast against it, along the last axis."""
    n = a.x.shape[-1]
    other = np.broadcast_to(b.x, (*a.x.shape[:-1], b.x.shape[-1]))
    whole = np.concatenate([a.x, other], axis=-1)
    return V(whole, (a, lambda g: g[..., :n]), (b, lambda g: g[..., n:]))


def mapped(record: Mapping, values: list[Any], z: V, axis: int = -1, delta: bool = True) -> V:
    """A mapping of rows; without delta its derivative is that of e^z over a constant."""
    rows = np.moveaxis(z.x, axis, -1)
    known = [v.x if isinstance(v, V) else v for v in values]
    p = np.asarray(record(rows, *known, axis=-1))
    p = np.where(np.isfinite(rows), p, 0)

    def back(g: Array) -> Array:
        g = np.moveaxis(g, axis, -1)
        if not delta:
            product = g * p
        elif record.name in JACOBIANS:
            jacobian = np.nan_to_num(JACOBIANS[record.name](rows))
            product = np.einsum("...i,...ij->...j", g, jacobian)
        else:
            product = np.nan_to_num(record.vjp(p, g, *known))
        return np.moveaxis(product, -1, axis)

    learned = [(v, lambda g: np.asarray(record.parameter_vjp(p, np.moveaxis(g, axis, -1), *known)))
               for v in values if isinstance(v, V)]  # fmt: skip
    return V(np.moveaxis(p, -1, axis), (z, back), *learned)


def gradients(out: V, g: Array, leaves: dict[str, V]) -> dict[str, Array]:
    """The gradients of Σ g ∘ out in the leaves."""
    order: list[V] = []

    def visit(v: V) -> None:
        if not any(v is one for one in order):
            for parent, _ in v.parents:
                visit(parent)
            order.append(v)

    visit(out)
    at = {id(out): np.broadcast_to(g, out.x.shape).astype(float)}
    for v in reversed(order):
        for parent, back in v.parents if id(v) in at else ():
            more, shape = np.asarray(back(at[id(v)])), parent.x.shape
            more = more.sum(tuple(range(more.ndim - len(shape))))
            ones = tuple(i for i, n in enumerate(shape) if n == 1 < more.shape[i])
            at[id(parent)] = at.get(id(parent), 0.0) + more.sum(ones, keepdims=True)
    return {name: at.get(id(v), np.zeros_like(v.x)) for name, v in leaves.items()}
