"""Reverse-mode differentiation in a few hundred lines, enough for the models of the papers.

``tensor`` is the tape with its arithmetic, ``ops`` the functions on tensors, ``mappings`` the
mappings and their losses, and ``sparse_attention`` attention that stores only the support of its
weights. Each mapping of `pyentmax.MAPPINGS` is an attribute of this package, such as
``autograd.sparsemax``.
"""

from typing import Any

from pyentmax.seq2seq.autograd.mappings import MAPPING_OPS, fenchel_young_loss, linear_loss
from pyentmax.seq2seq.autograd.ops import (
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
from pyentmax.seq2seq.autograd.sparse_attention import attention
from pyentmax.seq2seq.autograd.tensor import Tensor, as_tensor

__all__ = [
    "MAPPING_OPS",
    "Tensor",
    "as_tensor",
    "attention",
    "concatenate",
    "dropout",
    "exp",
    "fenchel_young_loss",
    "linear",
    "linear_loss",
    "log",
    "matmul",
    "relu",
    "sigmoid",
    "stack",
    "take_rows",
    "tanh",
]


def __getattr__(name: str) -> Any:
    if name in MAPPING_OPS:
        return MAPPING_OPS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *MAPPING_OPS])
