"""The names and signatures of the ``entmax`` package, version 1.3, with our operations.

``from entmax import entmax15`` becomes ``from pyentmax.torch.entmax import entmax15``, and that is
all. Where answers differ, these are right:

- ``k=`` and ``n_iter=`` are accepted and not looked at: the kernels neither sort nor bisect to a
  given depth, and stop when the answer is exact. So does ``ensure_sum_one=``: rows sum to 1.
- α = 1 is softmax and α = ∞ argmax; below 1 it is a ValueError.
- A row of −∞ gives zeros and zero gradients, not NaN; where all targets are ignored the mean is 0.
- Any label may be the ``ignore_index``, negative ones too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from pyentmax.torch.functions import apply, apply_loss

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
    """`pyentmax.sparsemax`; ``k`` is not looked at."""
    return apply("sparsemax", X, None, dim, None)


def entmax15(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """`pyentmax.entmax15`; ``k`` is not looked at."""
    return apply("entmax15", X, None, dim, None)


def sparsemax_bisect(
    X: Tensor, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True
) -> Tensor:
    """`pyentmax.sparsemax`; ``n_iter`` and ``ensure_sum_one`` are not looked at."""
    return apply("sparsemax", X, None, dim, None)


def entmax_bisect(
    X: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    n_iter: int = 50,
    ensure_sum_one: bool = True,
) -> Tensor:
    """`pyentmax.entmax`; ``n_iter`` and ``ensure_sum_one`` are not looked at.

    A tensor ``alpha`` has, or expands to, X's shape with 1 in place of ``dim``; it gets a gradient.
    """
    return apply("entmax", X, _per_row(alpha, X, dim), dim, None)


def normmax_bisect(X: Tensor, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    """`pyentmax.normmax`; ``n_iter`` is not looked at. There is no gradient in ``alpha``."""
    return apply("normmax", X, _constant(alpha, X, dim), dim, None)


def budget_bisect(X: Tensor, budget: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    """`pyentmax.budget_sparsemax`; ``n_iter`` is not looked at. ``budget`` gets no gradient."""
    return apply("budget_sparsemax", X, _constant(budget, X, dim), dim, None)


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
    """`pyentmax.sparsemax_loss` of each row; ``k`` is not looked at."""
    return _each("sparsemax", X, target)


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """`pyentmax.entmax15_loss` of each row; ``k`` is not looked at."""
    return _each("entmax15", X, target)


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int = 50) -> Tensor:
    """`pyentmax.sparsemax_loss` of each row; ``n_iter`` is not looked at."""
    return _each("sparsemax", X, target)


def entmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 1.5, n_iter: int = 50
) -> Tensor:
    """`pyentmax.entmax_loss` of each row; ``n_iter`` is not looked at. No gradient in ``alpha``."""
    return _each("entmax", X, target, alpha)


def normmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 2, n_iter: int = 50
) -> Tensor:
    """`pyentmax.normmax_loss` of each row, as `entmax_bisect_loss` is of `pyentmax.entmax_loss`."""
    return _each("normmax", X, target, alpha)


def _each(name: str, X: Tensor, target: Tensor, alpha: Any = None) -> Tensor:
    return apply_loss(name, X, target, _constant(alpha, X, -1), -1, reduction="none")


# --- modules --------------------------------------------------------------------------------------


class _Mapping(nn.Module):
    """A function along ``dim``; what a module is made with are its attributes, as in ``entmax``."""

    function: Callable[..., Tensor]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, value)

    def forward(self, X: Tensor) -> Tensor:
        """Probabilities of scores."""
        return type(self).function(X, **{name: getattr(self, name) for name in self._settings})


class Sparsemax(_Mapping):
    """`sparsemax` along ``dim``."""

    function = staticmethod(sparsemax)

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__(dim=dim, k=k)


class Entmax15(_Mapping):
    """`entmax15` along ``dim``."""

    function = staticmethod(entmax15)

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__(dim=dim, k=k)


class SparsemaxBisect(_Mapping):
    """`sparsemax_bisect` along ``dim``."""

    function = staticmethod(sparsemax_bisect)

    def __init__(self, dim: int = -1, n_iter: int | None = None) -> None:
        super().__init__(dim=dim, n_iter=n_iter)


class EntmaxBisect(_Mapping):
    """`entmax_bisect` along ``dim``."""

    function = staticmethod(entmax_bisect)

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(alpha=alpha, dim=dim, n_iter=n_iter)


class NormmaxBisect(_Mapping):
    """`normmax_bisect` along ``dim``."""

    function = staticmethod(normmax_bisect)

    def __init__(self, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(alpha=alpha, dim=dim, n_iter=n_iter)


class BudgetBisect(_Mapping):
    """`budget_bisect` along ``dim``: probabilities that sum to the budget."""

    function = staticmethod(budget_bisect)

    def __init__(self, budget: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(budget=budget, dim=dim, n_iter=n_iter)


class _Loss(nn.Module):
    """A loss of scores (n, classes) and labels (n,).

    Parameters
    ----------
    ignore_index : int, default -100
        rows with this label cost and count nothing
    reduction : "elementwise_mean", or "mean" as elsewhere in PyTorch, "sum" or "none"
    """

    name = ""
    alpha: Any = None

    def __init__(self, ignore_index: int, reduction: str, alpha: Any = None) -> None:
        super().__init__()
        if reduction not in ("elementwise_mean", "mean", "sum", "none"):
            raise ValueError(
                f"reduction must be elementwise_mean, mean, sum or none, got {reduction!r}"
            )
        self.ignore_index, self.reduction, self.alpha = int(ignore_index), reduction, alpha

    def forward(self, X: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return apply_loss(
            self.name,
            X,
            target,
            _constant(self.alpha, X, -1),
            -1,
            reduction="mean" if self.reduction == "elementwise_mean" else self.reduction,
            ignore_index=self.ignore_index,
        )


class SparsemaxLoss(_Loss):
    """`sparsemax_loss`, reduced."""

    name = "sparsemax"

    def __init__(
        self,
        k: int | None = None,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.k = k


class Entmax15Loss(_Loss):
    """`entmax15_loss`, reduced."""

    name = "entmax15"

    def __init__(
        self,
        k: int | None = 100,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.k = k


class SparsemaxBisectLoss(_Loss):
    """`sparsemax_bisect_loss`, reduced."""

    name = "sparsemax"

    def __init__(
        self,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.n_iter = n_iter


class EntmaxBisectLoss(_Loss):
    """`entmax_bisect_loss`, reduced."""

    name = "entmax"

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction, alpha)
        self.n_iter = n_iter


class NormmaxBisectLoss(_Loss):
    """`normmax_bisect_loss`, reduced."""

    name = "normmax"

    def __init__(
        self,
        alpha: float | Tensor = 2,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction, alpha)
        self.n_iter = n_iter
