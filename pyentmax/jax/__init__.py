"""The mappings and losses in JAX: for ``jit``, ``vmap``, ``grad`` of any order, on any device.

    import pyentmax.jax as pj

    p = pj.entmax(scores, alpha, axis=-1)          # alpha may be learned, and one per head
    loss = pj.entmax15_loss(scores, labels)

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
from pyentmax.jax.losses import entmax15_loss, entmax_loss, softmax_loss, sparsemax_loss
from pyentmax.jax.mappings import entmax, entmax15, softmax, sparsemax, topk_softmax, topk_sparsemax
from pyentmax.jax.one_vs_all import entmax_sigmoid, entmax_sigmoid_loss, one_vs_all_loss
from pyentmax.jax.supports import (
    entmax15_support,
    entmax_support,
    softmax_support,
    sparsemax_support,
    topk_softmax_support,
    topk_sparsemax_support,
)

__all__ = [
    "attention",
    "entmax",
    "entmax15",
    "entmax15_loss",
    "entmax15_support",
    "entmax_loss",
    "entmax_sigmoid",
    "entmax_sigmoid_loss",
    "entmax_support",
    "keep",
    "one_vs_all_loss",
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
