"""The losses, under the entmax package's name for them."""

from pyentmax.torch.entmax import (
    Entmax15Loss,
    EntmaxBisectLoss,
    NormmaxBisectLoss,
    SparsemaxBisectLoss,
    SparsemaxLoss,
    entmax15_loss,
    entmax_bisect_loss,
    normmax_bisect_loss,
    sparsemax_bisect_loss,
    sparsemax_loss,
)

__all__ = [
    "Entmax15Loss",
    "EntmaxBisectLoss",
    "NormmaxBisectLoss",
    "SparsemaxBisectLoss",
    "SparsemaxLoss",
    "entmax15_loss",
    "entmax_bisect_loss",
    "normmax_bisect_loss",
    "sparsemax_bisect_loss",
    "sparsemax_loss",
]
