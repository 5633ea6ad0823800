"""The names and signatures of the ``entmax`` package, version 1.3, with our operations.

``from entmax import entmax15`` becomes ``from pyentmax.torch.entmax import entmax15``, and that is
all. Where results differ, these are right:

- ``k=``, ``n_iter=`` and ``ensure_sum_one=`` are accepted and ignored: the kernels stop when the
  result is exact, and rows sum to 1.
- α = 1 is softmax and α = ∞ argmax; below 1 it is a ValueError.
- A row of −∞ gives zeros and zero gradients, not NaN; where all targets are ignored the mean is 0.
- Any label may be the ``ignore_index``, negative ones too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from pyentmax.torch.functions import apply, apply_loss
from pyentmax.torch.modules import FunctionModule, module_class

__all__ = [
    "BudgetBisect",
    "Entmax15",
    "Entmax15Loss",
    "EntmaxBisect",
    "EntmaxBisectLoss",
    "NormmaxBisect",
    "NormmaxBisectLoss",
    "Sparsemax",
    "SparsemaxBisect",
    "SparsemaxBisectLoss",
    "SparsemaxLoss",
    "budget_bisect",
    "entmax15",
    "entmax15_loss",
    "entmax_bisect",
    "entmax_bisect_loss",
    "normmax_bisect",
    "normmax_bisect_loss",
    "sparsemax",
    "sparsemax_bisect",
    "sparsemax_bisect_loss",
    "sparsemax_loss",
]


# --- mappings -------------------------------------------------------------------------------------


def sparsemax(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """`pyentmax.sparsemax`; ``k`` is ignored."""
    return apply("sparsemax", X, None, dim)


def entmax15(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """`pyentmax.entmax15`; ``k`` is ignored."""
    return apply("entmax15", X, None, dim)


def sparsemax_bisect(
    X: Tensor, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True
) -> Tensor:
    """`pyentmax.sparsemax`; ``n_iter`` and ``ensure_sum_one`` are ignored."""
    return apply("sparsemax", X, None, dim)


def entmax_bisect(
    X: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    n_iter: int = 50,
    ensure_sum_one: bool = True,
) -> Tensor:
    """`pyentmax.entmax`; ``n_iter`` and ``ensure_sum_one`` are ignored.

    A tensor ``alpha`` has, or expands to, X's shape with 1 in place of ``dim``; it gets a gradient.
    """
    return apply("entmax", X, _per_row(alpha, X, dim), dim)


def normmax_bisect(X: Tensor, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    """`pyentmax.normmax`; ``n_iter`` is ignored. There is no gradient in ``alpha``."""
    return apply("normmax", X, _constant(alpha, X, dim), dim)


def budget_bisect(X: Tensor, budget: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    """`pyentmax.budget_sparsemax`; ``n_iter`` is ignored. ``budget`` gets no gradient."""
    return apply("budget_sparsemax", X, _constant(budget, X, dim), dim)


def _per_row(value: Any, X: Tensor, dim: int) -> Any:
    """Our parameters have the scores' shape without the dimension; theirs have 1 in its place."""
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    value = value[(None,) * (X.ndim - value.ndim)]
    return value.squeeze(dim)


def _constant(value: Any, X: Tensor, dim: int) -> Any:
    value = _per_row(value, X, dim)
    return value.detach() if isinstance(value, Tensor) else value


# --- losses ---------------------------------------------------------------------------------------


def sparsemax_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """`pyentmax.sparsemax_loss` of each row; ``k`` is ignored."""
    return _each("sparsemax", X, target)


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """`pyentmax.entmax15_loss` of each row; ``k`` is ignored."""
    return _each("entmax15", X, target)


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int = 50) -> Tensor:
    """`pyentmax.sparsemax_loss` of each row; ``n_iter`` is ignored."""
    return _each("sparsemax", X, target)


def entmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 1.5, n_iter: int = 50
) -> Tensor:
    """`pyentmax.entmax_loss` of each row; ``n_iter`` is ignored. No gradient in ``alpha``."""
    return _each("entmax", X, target, alpha)


def normmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 2, n_iter: int = 50
) -> Tensor:
    """`pyentmax.normmax_loss` of each row, as `entmax_bisect_loss` is of `pyentmax.entmax_loss`."""
    return _each("normmax", X, target, alpha)


def _each(name: str, X: Tensor, target: Tensor, alpha: Any = None) -> Tensor:
    return apply_loss(name, X, target, _constant(alpha, X, -1), -1, reduction="none")


# --- modules --------------------------------------------------------------------------------------


class _Mapping(FunctionModule):
    def forward(self, X: Tensor) -> Tensor:
        """Probabilities of scores."""
        return self.function(X, **self.settings())


class _Loss(FunctionModule):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        if self.reduction not in ("elementwise_mean", "mean", "sum", "none"):
            raise ValueError(
                f"reduction must be elementwise_mean, mean, sum or none, got {self.reduction!r}"
            )

    def forward(self, X: Tensor, target: Tensor) -> Tensor:
        """The loss of scores (n, classes) and labels (n,)."""
        reduction = "mean" if self.reduction == "elementwise_mean" else self.reduction
        options = {"reduction": reduction, "ignore_index": int(self.ignore_index)}
        return self.function(X, target, getattr(self, "alpha", None), **options)


def _module(base: type, name: str, function: Callable[..., Tensor], **defaults: Any) -> Any:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    settings = [inspect.Parameter(key, kind, default=value) for key, value in defaults.items()]
    return module_class(base, name, function, settings, __name__)


def _loss_module(name: str, mapping: str, **defaults: Any) -> Any:
    def loss(X: Tensor, target: Tensor, alpha: Any, **options: Any) -> Tensor:
        return apply_loss(mapping, X, target, _constant(alpha, X, -1), -1, **options)

    loss.__name__ = f"pyentmax.{mapping}_loss"
    options = {"ignore_index": -100, "reduction": "elementwise_mean"}
    return _module(_Loss, name, loss, **defaults, **options)


Sparsemax = _module(_Mapping, "Sparsemax", sparsemax, dim=-1, k=None)
Entmax15 = _module(_Mapping, "Entmax15", entmax15, dim=-1, k=None)
SparsemaxBisect = _module(_Mapping, "SparsemaxBisect", sparsemax_bisect, dim=-1, n_iter=None)
EntmaxBisect = _module(_Mapping, "EntmaxBisect", entmax_bisect, alpha=1.5, dim=-1, n_iter=50)
NormmaxBisect = _module(_Mapping, "NormmaxBisect", normmax_bisect, alpha=2, dim=-1, n_iter=50)
BudgetBisect = _module(_Mapping, "BudgetBisect", budget_bisect, budget=2, dim=-1, n_iter=50)

SparsemaxLoss = _loss_module("SparsemaxLoss", "sparsemax", k=None)
Entmax15Loss = _loss_module("Entmax15Loss", "entmax15", k=100)
SparsemaxBisectLoss = _loss_module("SparsemaxBisectLoss", "sparsemax", n_iter=50)
EntmaxBisectLoss = _loss_module("EntmaxBisectLoss", "entmax", alpha=1.5, n_iter=50)
NormmaxBisectLoss = _loss_module("NormmaxBisectLoss", "normmax", alpha=2, n_iter=50)
