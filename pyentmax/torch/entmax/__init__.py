"""The names and signatures of the ``entmax`` package, version 1.3, with our operations.

``from entmax import entmax15`` becomes ``from pyentmax.torch.entmax import entmax15``, and that is
all; `activations`, `losses` and `root_finding` are modules here, too. Nothing named ``entmax`` is
installed. For code that is not yours, put this package in its place before that code is imported::

    sys.modules["entmax"] = pyentmax.torch.entmax

Where results differ, these are right:

- ``k=``, ``n_iter=`` and ``ensure_sum_one=`` are accepted and ignored: the kernels stop when the
  result is exact, and rows sum to 1.
- α = 1 is softmax and α = ∞ argmax.
- A row of −∞ gives zeros and zero gradients, not NaN; where all targets are ignored the mean is 0.
- Any label may be the ``ignore_index``, negative ones too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from pyentmax.torch.calls import apply, apply_loss
from pyentmax.torch.modules import Settings

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


class _Mapping(Settings):
    function: Callable[..., Tensor]

    def forward(self, X: Tensor) -> Tensor:
        """Probabilities of scores."""
        return self.function(X, **self.settings())


class Sparsemax(_Mapping):
    """`sparsemax` as a module."""

    function: Callable[..., Tensor] = staticmethod(sparsemax)

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__({"dim": dim, "k": k})


class Entmax15(_Mapping):
    """`entmax15` as a module."""

    function: Callable[..., Tensor] = staticmethod(entmax15)

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__({"dim": dim, "k": k})


class SparsemaxBisect(_Mapping):
    """`sparsemax_bisect` as a module."""

    function: Callable[..., Tensor] = staticmethod(sparsemax_bisect)

    def __init__(self, dim: int = -1, n_iter: int | None = None) -> None:
        super().__init__({"dim": dim, "n_iter": n_iter})


class EntmaxBisect(_Mapping):
    """`entmax_bisect` as a module; an ``nn.Parameter`` as its ``alpha`` is learned."""

    function: Callable[..., Tensor] = staticmethod(entmax_bisect)

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__({"alpha": alpha, "dim": dim, "n_iter": n_iter})


class NormmaxBisect(_Mapping):
    """`normmax_bisect` as a module."""

    function: Callable[..., Tensor] = staticmethod(normmax_bisect)

    def __init__(self, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__({"alpha": alpha, "dim": dim, "n_iter": n_iter})


class BudgetBisect(_Mapping):
    """`budget_bisect` as a module."""

    function: Callable[..., Tensor] = staticmethod(budget_bisect)

    def __init__(self, budget: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__({"budget": budget, "dim": dim, "n_iter": n_iter})


class _Loss(Settings):
    mapping: str

    def __init__(self, ignore_index: int, reduction: str, **own: Any) -> None:
        if reduction not in ("elementwise_mean", "mean", "sum", "none"):
            raise ValueError(
                f"reduction must be elementwise_mean, mean, sum or none, got {reduction!r}"
            )
        super().__init__({**own, "ignore_index": ignore_index, "reduction": reduction})

    def forward(self, X: Tensor, target: Tensor) -> Tensor:
        """The loss of scores (n, classes) and labels (n,)."""
        settings = self.settings()
        alpha = _constant(settings.get("alpha"), X, -1)
        reduction = settings["reduction"].removeprefix("elementwise_")
        options = {"reduction": reduction, "ignore_index": int(settings["ignore_index"])}
        return apply_loss(self.mapping, X, target, alpha, -1, **options)


class SparsemaxLoss(_Loss):
    """`sparsemax_loss`, reduced."""

    mapping = "sparsemax"

    def __init__(
        self, k: int | None = None, ignore_index: int = -100, reduction: str = "elementwise_mean"
    ) -> None:
        super().__init__(ignore_index, reduction, k=k)


class Entmax15Loss(_Loss):
    """`entmax15_loss`, reduced."""

    mapping = "entmax15"

    def __init__(
        self, k: int | None = 100, ignore_index: int = -100, reduction: str = "elementwise_mean"
    ) -> None:
        super().__init__(ignore_index, reduction, k=k)


class SparsemaxBisectLoss(_Loss):
    """`sparsemax_bisect_loss`, reduced."""

    mapping = "sparsemax"

    def __init__(
        self, n_iter: int = 50, ignore_index: int = -100, reduction: str = "elementwise_mean"
    ) -> None:
        super().__init__(ignore_index, reduction, n_iter=n_iter)


class EntmaxBisectLoss(_Loss):
    """`entmax_bisect_loss`, reduced."""

    mapping = "entmax"

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction, alpha=alpha, n_iter=n_iter)


class NormmaxBisectLoss(_Loss):
    """`normmax_bisect_loss`, reduced."""

    mapping = "normmax"

    def __init__(
        self,
        alpha: float | Tensor = 2,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction, alpha=alpha, n_iter=n_iter)
