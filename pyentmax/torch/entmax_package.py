"""The names and signatures of the ``entmax`` package, version 1.3, with our operations.

``from entmax import entmax15`` becomes ``from pyentmax.torch.entmax_package import entmax15``. For
code that is not yours, put this module in the package's place before that code is imported::

    names = ["entmax", "entmax.activations", "entmax.losses", "entmax.root_finding"]
    sys.modules.update(dict.fromkeys(names, pyentmax.torch.entmax_package))

Where results differ, these are right:

- ``k=``, ``n_iter=`` and ``ensure_sum_one=`` are ignored: the kernels stop when the result is
  exact, and rows sum to 1.
- α = 1 is softmax and α = ∞ argmax.
- A row of −∞ gives zeros and zero gradients, not NaN; where all targets are ignored the mean is 0.
- Any label may be the ``ignore_index``, negative ones too.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from torch import Tensor

from pyentmax.torch.calls import apply, apply_loss
from pyentmax.torch.modules import Settings

activations = losses = root_finding = sys.modules[__name__]


def sparsemax(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    return apply("sparsemax", X, None, dim)


def entmax15(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    return apply("entmax15", X, None, dim)


def sparsemax_bisect(
    X: Tensor, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True
) -> Tensor:
    return apply("sparsemax", X, None, dim)


def entmax_bisect(
    X: Tensor, alpha: Any = 1.5, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True
) -> Tensor:
    """A tensor ``alpha`` has X's shape with 1 in place of ``dim``, and gets a gradient."""
    return apply("entmax", X, _per_row(alpha, X, dim), dim)


def normmax_bisect(X: Tensor, alpha: Any = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    return apply("normmax", X, _constant(alpha, X, dim), dim)


def budget_bisect(X: Tensor, budget: Any = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    return apply("budget_sparsemax", X, _constant(budget, X, dim), dim)


def _per_row(value: Any, X: Tensor, dim: int) -> Any:
    """Our parameters have the scores' shape without the dimension; theirs have 1 in its place."""
    if isinstance(value, Tensor) and value.ndim:
        value = value[(None,) * (X.ndim - value.ndim)].squeeze(dim)
    return value


def _constant(value: Any, X: Tensor, dim: int) -> Any:
    return _per_row(value.detach() if isinstance(value, Tensor) else value, X, dim)


def sparsemax_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    return _loss("sparsemax", X, target)


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    return _loss("entmax15", X, target)


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int = 50) -> Tensor:
    return _loss("sparsemax", X, target)


def entmax_bisect_loss(X: Tensor, target: Tensor, alpha: Any = 1.5, n_iter: int = 50) -> Tensor:
    return _loss("entmax", X, target, alpha)


def normmax_bisect_loss(X: Tensor, target: Tensor, alpha: Any = 2, n_iter: int = 50) -> Tensor:
    return _loss("normmax", X, target, alpha)


def _loss(name: str, X: Tensor, target: Tensor, alpha: Any = None, **options: Any) -> Tensor:
    options["reduction"] = options.get("reduction", "none").removeprefix("elementwise_")
    return apply_loss(name, X, target, _constant(alpha, X, -1), -1, **options)


class _Module(Settings):
    def __init__(self, function: Any, **settings: Any) -> None:
        super().__init__(settings)
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors, **self.settings())


class Sparsemax(_Module):
    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__(sparsemax, dim=dim)


class Entmax15(_Module):
    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__(entmax15, dim=dim)


class SparsemaxBisect(_Module):
    def __init__(self, dim: int = -1, n_iter: int | None = None) -> None:
        super().__init__(sparsemax, dim=dim)


class EntmaxBisect(_Module):
    def __init__(self, alpha: Any = 1.5, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(entmax_bisect, alpha=alpha, dim=dim)


class NormmaxBisect(_Module):
    def __init__(self, alpha: Any = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(normmax_bisect, alpha=alpha, dim=dim)


class BudgetBisect(_Module):
    def __init__(self, budget: Any = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(budget_bisect, budget=budget, dim=dim)


class _Loss(_Module):
    def __init__(self, name: str, ignore_index: Any, **settings: Any) -> None:
        super().__init__(partial(_loss, name), ignore_index=int(ignore_index), **settings)


MEAN = "elementwise_mean"


class SparsemaxLoss(_Loss):
    def __init__(self, k: Any = None, ignore_index: int = -100, reduction: str = MEAN) -> None:
        super().__init__("sparsemax", ignore_index=ignore_index, reduction=reduction)


class Entmax15Loss(_Loss):
    def __init__(self, k: Any = 100, ignore_index: int = -100, reduction: str = MEAN) -> None:
        super().__init__("entmax15", ignore_index=ignore_index, reduction=reduction)


class SparsemaxBisectLoss(_Loss):
    def __init__(self, n_iter: int = 50, ignore_index: int = -100, reduction: str = MEAN) -> None:
        super().__init__("sparsemax", ignore_index=ignore_index, reduction=reduction)


class EntmaxBisectLoss(_Loss):
    def __init__(
        self, alpha: Any = 1.5, n_iter: int = 50, ignore_index: int = -100, reduction: str = MEAN
    ) -> None:
        super().__init__("entmax", alpha=alpha, ignore_index=ignore_index, reduction=reduction)


class NormmaxBisectLoss(_Loss):
    def __init__(
        self, alpha: Any = 2, n_iter: int = 50, ignore_index: int = -100, reduction: str = MEAN
    ) -> None:
        super().__init__("normmax", alpha=alpha, ignore_index=ignore_index, reduction=reduction)
