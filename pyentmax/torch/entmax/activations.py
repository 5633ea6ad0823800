"""The mappings that the entmax package solves exactly, under its name for them."""

from pyentmax.torch.entmax import Entmax15, Sparsemax, entmax15, sparsemax

__all__ = ["Entmax15", "Sparsemax", "entmax15", "sparsemax"]
