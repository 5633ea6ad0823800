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

__all__ = [
    "Mapping",
    "attention",
    "entmax",
    "entmax15",
    "keep",
    "softmax",
    "sparsemax",
    "topk_softmax",
    "topk_sparsemax",
]
