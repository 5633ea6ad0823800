"""The mappings that the entmax package solves by bisection, under its name for them."""

from pyentmax.torch.entmax import (
    BudgetBisect,
    EntmaxBisect,
    NormmaxBisect,
    SparsemaxBisect,
    budget_bisect,
    entmax_bisect,
    normmax_bisect,
    sparsemax_bisect,
)

__all__ = [
    "BudgetBisect",
    "EntmaxBisect",
    "NormmaxBisect",
    "SparsemaxBisect",
    "budget_bisect",
    "entmax_bisect",
    "normmax_bisect",
    "sparsemax_bisect",
]
