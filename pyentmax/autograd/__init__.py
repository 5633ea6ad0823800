"""Reverse-mode differentiation in a few hundred lines, enough for the models of the papers.

``tensor`` is the tape with its arithmetic, ``gradients`` what flows back along it, ``ops`` the
functions on tensors, and ``mappings`` the sparse mappings and their losses.
"""

from pyentmax.autograd.gradients import GradientProduct, GradientSlice
from pyentmax.autograd.mappings import (
    MAPPING_OPS,
    budget_sparsemax,
    csoftmax,
    csparsemax,
    entmax,
    entmax15,
    fenchel_young_loss,
    fusedmax,
    normmax,
    oscarmax,
    softmax,
    sparsemax,
    topk_softmax,
)
from pyentmax.autograd.ops import (
    as_tensor,
    concatenate,
    dropout,
    exp,
    linear,
    log,
    matmul,
    relu,
    sigmoid,
    stack,
    take_rows,
    tanh,
)
from pyentmax.autograd.tensor import Tensor
from pyentmax.calls.devices import array_module

__all__ = [
    "MAPPING_OPS",
    "GradientSlice",
    "GradientProduct",
    "Tensor",
    "array_module",
    "as_tensor",
    "budget_sparsemax",
    "concatenate",
    "csoftmax",
    "csparsemax",
    "dropout",
    "entmax",
    "entmax15",
    "exp",
    "fenchel_young_loss",
    "fusedmax",
    "linear",
    "log",
    "matmul",
    "normmax",
    "oscarmax",
    "relu",
    "sigmoid",
    "softmax",
    "sparsemax",
    "stack",
    "take_rows",
    "tanh",
    "topk_softmax",
]
