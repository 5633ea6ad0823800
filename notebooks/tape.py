"""Reverse-mode differentiation in some ninety lines, as notebook 8 builds it cell by cell."""

import numpy as np

import pyentmax
from pyentmax import check_gradient


# tape.py, 1 of 3: values and the sweep
class Var:
    """An array that remembers what it was computed from."""

    __array_ufunc__ = None  # NumPy shall not spread a Var over the elements of an array

    def __init__(self, value, *parents):
        self.value = np.asarray(value, dtype=float)
        self.parents = parents  # pairs: a Var, and the VJP that leads back to it
        self.gradient = np.zeros_like(self.value)

    def backward(self):
        self.gradient = np.ones_like(self.value)
        for var in sweep(self):
            for parent, vjp in var.parents:
                g = fitted(vjp(var.gradient), parent.value.shape)
                parent.gradient = parent.gradient + g


def sweep(last):
    """All that a value was computed from, itself first, each after all that use it."""
    order, seen = [], set()

    def visit(var):
        if id(var) not in seen:
            seen.add(id(var))
            for parent, _ in var.parents:
                visit(parent)
            order.append(var)

    visit(last)
    return order[::-1]


def fitted(g, shape):
    """Broadcasting, backwards: where an axis was stretched, gradients are summed."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    return g.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


# tape.py, 2 of 3: operations
def as_var(x):
    return x if isinstance(x, Var) else Var(x)


def add(a, b):
    a, b = as_var(a), as_var(b)
    return Var(a.value + b.value, (a, lambda g: g), (b, lambda g: g))


def multiply(a, b):
    a, b = as_var(a), as_var(b)
    x, y = a.value, b.value
    return Var(x * y, (a, lambda g: g * y), (b, lambda g: g * x))


def power(a, k):
    return Var(a.value**k, (a, lambda g: g * k * a.value ** (k - 1)))


def matmul(a, b):  # a matrix with a vector or a matrix, or a vector with a matrix
    a, b = as_var(a), as_var(b)
    x, y = a.value, b.value
    to_a = lambda g: np.outer(g, y) if y.ndim == 1 else g @ y.T  # noqa: E731
    to_b = lambda g: np.outer(x, g) if x.ndim == 1 else x.T @ g  # noqa: E731
    return Var(x @ y, (a, to_a), (b, to_b))


def total(a):
    return Var(a.value.sum(), (a, lambda g: g * np.ones_like(a.value)))


def tanh(x):
    y = np.tanh(x.value)
    return Var(y, (x, lambda g: g * (1 - y * y)))


Var.__add__ = Var.__radd__ = add
Var.__mul__ = Var.__rmul__ = multiply
Var.__pow__, Var.__matmul__, Var.sum = power, matmul, total


# tape.py, 3 of 3: mappings, and checks
def entmax(z, alpha):
    """α-entmax of the scores in a Var; softmax for α = 1."""
    p = pyentmax.entmax(z.value, alpha)
    return Var(p, (z, lambda g: pyentmax.entmax.vjp(p, g, alpha)))


def gradients(f, *arrays):
    """Those of f, a function of Vars with one number as its value, in each array."""
    leaves = [Var(array) for array in arrays]
    f(*leaves).backward()
    return [leaf.gradient for leaf in leaves]


def check_gradients(f, **arrays):
    """Reports: the gradient of f in each array, compared with finite differences."""
    found = dict(zip(arrays, gradients(f, *arrays.values()), strict=True))
    reports = {}
    for name, array in arrays.items():

        def value(x, name=name):
            leaves = map(Var, (arrays | {name: x}).values())
            return float(f(*leaves).value)

        reports[name] = check_gradient(value, array, lambda x, name=name: found[name])
        assert reports[name].passed, (name, reports[name])
    return reports


# tape.py, 4 of 4: a layer with weights
def linear(x, W, b):
    """The rows of x times W, plus b: one operation, three VJPs."""
    X, w = x.value, W.value
    to_x, to_W = (lambda g: g @ w.T), (lambda g: X.T @ g)
    return Var(X @ w + b.value, (x, to_x), (W, to_W), (b, lambda g: g))


class Linear:
    """A layer y = xW + b that keeps its weights."""

    def __init__(self, inputs, outputs, rng):
        self.W = Var(rng.normal(size=(inputs, outputs)) / np.sqrt(inputs))
        self.b = Var(np.zeros(outputs))

    def __call__(self, x):
        return linear(x, self.W, self.b)

    def step(self, rate):
        """A step of gradient descent. New leaves have no past and no gradient."""
        self.W = Var(self.W.value - rate * self.W.gradient)
        self.b = Var(self.b.value - rate * self.b.gradient)
