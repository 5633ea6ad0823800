"""Adapters: the same calls for every backend, from NumPy's arrays to NumPy's arrays.

A new backend is one more class here, in BACKENDS; the tables then say of it all that they say of
the others.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.engine.backends import choice
from pyentmax.seq2seq import autograd

try:
    from pyentmax import _cpu
except ImportError:
    _cpu = None  # type: ignore[assignment]

# A mapping, with a value of its parameter if it has one. Bounds and budgets need two scores.
CASES: list[tuple[Any, ...]] = [("softmax",), ("sparsemax",), ("entmax15",)]
CASES += [("entmax", alpha) for alpha in (1e-9, 0.5, 1, 1 + 1e-12, 1.001, 1.25, 1.75, 2, 3, np.inf)]
CASES += [("normmax", alpha) for alpha in (1.3, 2.0, 4.0, np.inf)]
CASES += [("topk_softmax", 2), ("topk_sparsemax", 2), ("fusedmax", 0), ("fusedmax", 0.2)]
CASES += [("oscarmax", 0.05), ("csoftmax", 0.6), ("csparsemax", 0.6)]
CASES += [("budget_sparsemax", 1), ("budget_sparsemax", 1.7)]
ENDS = ((1e-9,), (np.inf,))
"""Values of α that not every backend takes."""
LOSSES = [case for case in CASES if pe.MAPPINGS[case[0]].loss.is_defined]


class Backend:
    """What tables call; `name` is the last part of a test's."""

    name: str
    lengths: tuple[int, ...] | None = None
    """Lengths of rows, where others would take long."""
    is_arrays = False
    """Whether it is the array functions, with all their attributes and options."""
    several_axes = False
    """Whether a row may lie along several axes."""

    marks: Any = ()
    """Marks of its tests."""

    def has(self, name: str, *value: Any) -> bool:
        """Whether there is such a mapping."""
        return True

    def call(self, name: str, *arrays: Any, **options: Any) -> Any:
        """The result of a function by its name, such as entmax.support."""
        raise NotImplementedError

    def vjp(self, name: str, z: Any, g: Any, *value: Any, **options: Any) -> Any:
        """Jᵀ g at the probabilities of scores."""
        raise NotImplementedError

    def loss_and_grad(self, name: str, z: Any, y: Any, *value: Any, **options: Any) -> Any:
        """The reduced loss and its gradient in the scores."""
        raise NotImplementedError

    def parameter_vjp(self, name: str, z: Any, g: Any, value: Any) -> Any:
        """Σ g ∘ ∂p/∂value, in the value's shape."""
        raise NotImplementedError


class Arrays(Backend):
    """Array functions: their rules, or the kernels of one build."""

    is_arrays = several_axes = True

    def __init__(self, build: str = "") -> None:
        self.build, self.name = build, f"kernels {build.split()[0]}" if build else "rules"

    def function(self, name: str) -> Any:
        """The public function, or its reference."""
        function = attrgetter(name)(pe)
        if self.build:
            return function
        owner, _, part = name.rpartition(".")
        if part == "at_scores":
            return self.function(owner).at_scores
        return getattr(function, "reference", function)

    def call(self, name: str, *arrays: Any, **options: Any) -> Any:
        """See `Backend`."""
        before, kernels = choice.kernels, dict(_cpu.BUILDS[self.build]) if self.build else {}
        choice.kernels = lambda: kernels  # type: ignore[assignment]
        try:
            return self.function(name)(*arrays, **options)
        finally:
            choice.kernels = before

    def vjp(self, name: str, z: Any, g: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        p = self.call(name, z, *value, **options)
        return self.call(f"{name}.vjp", p, g, *value, **options)

    def loss_and_grad(self, name: str, z: Any, y: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        return self.call(f"{name}.loss_and_grad", z, y, *value, **options)

    def parameter_vjp(self, name: str, z: Any, g: Any, value: Any) -> Any:
        """See `Backend`."""
        p = self.call(name, z, value)
        return self.call(f"{name}.parameter_vjp.at_scores", z, p, g, value)


class Emulated(Arrays):
    """The CUDA kernels, compiled for the host; on a false CuPy the rules of what has none."""

    name, is_arrays, lengths, kernels = "CUDA", False, (7, 300), True

    def __init__(self) -> None:
        from on_gpu import MARKS

        self.marks = MARKS

    def has(self, name: str, *value: Any) -> bool:
        """See `Backend`: of α-entmax some values, as emulation takes long.

        Subnormal scores, which the table has, are zeros on a device, and decide what is among the
        largest; roundings decide normmax's jump at α = ∞ and fusedmax's ties without a penalty.
        """
        if name in ("topk_softmax", "topk_sparsemax") and value == (2,):
            return False
        if (name, *value) in (("normmax", np.inf), ("fusedmax", 0)):
            return False
        return name != "entmax" or value in ((), (0.5,), (1.25,), (3,))

    def call(self, name: str, *arrays: Any, **options: Any) -> Any:
        """See `Backend`."""
        from on_gpu import on_gpu

        return on_gpu(attrgetter(name)(pe), self.kernels)(*arrays, **options)


class Device(Emulated):
    """The rules on a false CuPy: the host's results, and nothing is copied between the two."""

    name, marks, kernels = "rules on device", [pytest.mark.slow], False
    lengths = (7,)

    def __init__(self) -> None: ...

    def has(self, name: str, *value: Any) -> bool:
        """See `Backend`: each mapping once."""
        once = {"entmax": 1.25, "normmax": 2.0, "fusedmax": 0.2, "budget_sparsemax": 1.7}
        return not value or value[0] == once.get(name, value[0])


class Tape(Backend):
    """The autograd of the models."""

    name = "tape"

    def call(self, name: str, z: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        return getattr(autograd, name)(autograd.Tensor(z), *value, **options).data

    def vjp(self, name: str, z: Any, g: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        scores = autograd.Tensor(z, requires_grad=True)
        getattr(autograd, name)(scores, *value, **options).backward(g)
        return scores.grad

    def loss_and_grad(self, name: str, z: Any, y: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        options |= dict(zip(pe.MAPPINGS[name].parameters, value, strict=True))
        scores = autograd.Tensor(z, requires_grad=True)
        loss = autograd.fenchel_young_loss(scores, y, name, **options)
        loss.backward(np.ones_like(loss.data))
        return loss.data, scores.grad

    def parameter_vjp(self, name: str, z: Any, g: Any, value: Any) -> Any:
        """See `Backend`."""
        learned = autograd.Tensor(value, requires_grad=True)
        getattr(autograd, name)(autograd.Tensor(z), learned).backward(g)
        return learned.grad


class Tensors(Backend):
    """PyTorch: with the kernels, or by its own operations, as on devices that have none."""

    def __init__(self, composed: bool) -> None:
        self.composed, self.name = composed, "torch composed" if composed else "torch"

    def has(self, name: str, *value: Any) -> bool:
        """See `Backend`."""
        from pyentmax.torch import composed

        return not self.composed or (name in composed.NAMES and value not in ENDS)

    def tensor(self, x: Any) -> Any:
        """A tensor with an array's entries; anything else as it is."""
        import torch

        return torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray | list) else x

    @contextmanager
    def library(self, options: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The room of tensors, and the options as they are called there."""
        import pyentmax.torch as pt
        from pyentmax.torch import operations

        names, before = {"axis": "dim", "weight": "row_weight"}, operations.has_kernels
        if self.composed:
            operations.has_kernels = lambda tensor: False
        try:
            yield pt, {names.get(key, key): self.tensor(x) for key, x in options.items()}
        finally:
            operations.has_kernels = before

    def call(self, name: str, *arrays: Any, **options: Any) -> Any:
        """See `Backend`."""
        with self.library(options) as (pt, named):
            return attrgetter(name)(pt)(*map(self.tensor, arrays), **named).numpy()

    def vjp(self, name: str, z: Any, g: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        scores = self.tensor(z).requires_grad_()
        with self.library(options) as (pt, named):
            p = getattr(pt, name)(scores, *map(self.tensor, value), **named)
            p.backward(self.tensor(g))
        return scores.grad.numpy()

    def loss_and_grad(self, name: str, z: Any, y: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        scores = self.tensor(z).requires_grad_()
        with self.library(options) as (pt, named):
            function = getattr(pt, name).loss
            loss = function(scores, self.tensor(y), *map(self.tensor, value), **named)
            loss.sum().backward()
        return loss.detach().numpy(), scores.grad.numpy()

    def parameter_vjp(self, name: str, z: Any, g: Any, value: Any) -> Any:
        """See `Backend`."""
        learned = self.tensor(np.asarray(value)).requires_grad_()
        with self.library({}) as (pt, _):
            getattr(pt, name)(self.tensor(z), learned).backward(self.tensor(g))
        return learned.grad.numpy()


class Jax(Backend):
    """JAX, in double precision where the scores are doubles."""

    name, several_axes = "jax", True
    lengths = (7,)  # each is compiled

    def has(self, name: str, *value: Any) -> bool:
        """See `Backend`: two, as each is compiled for each shape."""
        return (name, *value) in (("sparsemax",), ("entmax", 1.25))

    def call(self, name: str, *arrays: Any, **options: Any) -> Any:
        """See `Backend`."""
        import jax

        import pyentmax.jax as pj

        with jax.enable_x64(True):
            return np.asarray(attrgetter(name)(pj)(*arrays, **options))

    def vjp(self, name: str, z: Any, g: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        import jax

        import pyentmax.jax as pj

        with jax.enable_x64(True):
            _, pull = jax.vjp(lambda z: getattr(pj, name)(z, *value, **options), z)
            return np.asarray(pull(g)[0])

    def loss_and_grad(self, name: str, z: Any, y: Any, *value: Any, **options: Any) -> Any:
        """See `Backend`."""
        import jax

        import pyentmax.jax as pj

        with jax.enable_x64(True):
            function = getattr(pj, name).loss
            loss, pull = jax.vjp(lambda z: function(z, y, *value, **options), z)
            return np.asarray(loss), np.asarray(pull(np.ones_like(loss))[0])

    def parameter_vjp(self, name: str, z: Any, g: Any, value: Any) -> Any:
        """See `Backend`."""
        import jax

        import pyentmax.jax as pj

        with jax.enable_x64(True):
            _, pull = jax.vjp(lambda value: getattr(pj, name)(z, value), value)
            return np.asarray(pull(g)[0])


def _there(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


ARRAYS: list[Any] = [Arrays(), *(map(Arrays, _cpu.BUILDS) if _cpu else ())]
BACKENDS: list[Any] = [*ARRAYS, Tape(), Device(), Emulated()]
BACKENDS += [Tensors(composed=False), Tensors(composed=True)] if _there("torch") else []
BACKENDS += [Jax()] if _there("jax") else []


SECOND = [("entmax", alpha) for alpha in (1e-9, 1 + 1e-12, 1.001, 1.75, 3)]
SECOND += [("normmax", 2.0), ("normmax", 4.0), ("budget_sparsemax", 1)]
"""Cases whose kernel another case runs too. They, and rules where there are kernels, are of the
second stage, but for values."""


def for_each(
    backends: list[Any], cases: list[tuple[Any, ...]], second: list[tuple[Any, ...]] | None = None
) -> pytest.MarkDecorator:
    """A test of every backend with each case that it has; of some in the second stage."""
    pairs = []
    for backend in backends:
        for case in cases:
            later = second and (case in second or (_cpu and backend is ARRAYS[0]))
            marks = [*backend.marks, *([pytest.mark.slow] if later else ())]
            name = f"{backend.name}-{'-'.join(map(str, case))}"
            if backend.has(*case):
                pairs.append(pytest.param(backend, case, marks=marks, id=name))
    return pytest.mark.parametrize(("backend", "case"), pairs)
