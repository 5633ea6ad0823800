"""The mappings and losses in JAX: for ``jit``, ``vmap``, ``grad`` of any order, on any device.

    import pyentmax.jax as pj

    p = pj.entmax(scores, alpha, axis=-1)          # alpha may be learned, and one per head
    loss = pj.entmax15.loss(scores, labels)

Names, arguments and edge cases are those of ``pyentmax``, with one difference: values that a
trace hides, such as an α of 0, give NaN instead of an error.
"""

from __future__ import annotations

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"pyentmax.jax needs JAX, which cannot be imported ({error}): pip install 'pyentmax[jax]'"
    ) from error

from pyentmax.jax import keep
from pyentmax.jax.attention import attention
from pyentmax.jax.mappings import (
    Mapping,
    entmax,
    entmax15,
    softmax,
    sparsemax,
    topk_softmax,
    topk_sparsemax,
)

# Names of the functions before mappings were objects.
softmax_loss = softmax.loss
sparsemax_loss = sparsemax.loss
entmax15_loss = entmax15.loss
entmax_loss = entmax.loss
softmax_support = softmax.support
sparsemax_support = sparsemax.support
entmax15_support = entmax15.support
entmax_support = entmax.support
topk_softmax_support = topk_softmax.support
topk_sparsemax_support = topk_sparsemax.support

__all__ = [
    "Mapping",
    "attention",
    "entmax",
    "entmax15",
    "entmax15_loss",
    "entmax15_support",
    "entmax_loss",
    "entmax_support",
    "keep",
    "softmax",
    "softmax_loss",
    "softmax_support",
    "sparsemax",
    "sparsemax_loss",
    "sparsemax_support",
    "topk_softmax",
    "topk_softmax_support",
    "topk_sparsemax",
    "topk_sparsemax_support",
]
