"""α as a parameter of the attention: α = 1 + σ(a), between softmax and sparsemax.

Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §4 and Eq. 10, learn one α per
attention head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.seq2seq.autograd.mappings import MAPPING_OPS
from pyentmax.seq2seq.autograd.ops import sigmoid
from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor
from pyentmax.seq2seq.nn.initializers import Generator, Parameters

LEARNED = "learned"
"""In place of α in a configuration: the attention is α-entmax, and α is a parameter."""


def init_learned_alpha(
    name: str, shape: tuple[int, ...] = (1,), rng: Generator | None = None, dtype: Any = np.float32
) -> Parameters:
    """The parameter a under ``name.alpha_logit``.

    Parameters
    ----------
    name : str
    shape : tuple of int
        That of α, which broadcasts against the scores without their last axis: (1,) is one α for
        all rows, (heads, 1) one per head for the (…, heads, T, S) scores of multi-head attention.
    rng : numpy.random.Generator, optional
        Draws a from N(0, 1). By default a is 0, so that α starts at 1.5.
    dtype : dtype

    Examples
    --------
    >>> init_learned_alpha("self_attention", shape=(2, 1))
    {'self_attention.alpha_logit': array([[0.],
           [0.]], dtype=float32)}
    """
    a = np.zeros(shape) if rng is None else rng.standard_normal(shape)
    return {f"{name}.alpha_logit": a.astype(dtype)}


def learned_alpha(params: Parameters, name: str) -> Tensor:
    """α = 1 + σ(a) with the parameter a under ``name``.

    Examples
    --------
    >>> learned_alpha(init_learned_alpha("attention"), "attention").data
    array([1.5], dtype=float32)
    """
    return 1 + sigmoid(as_tensor(params[f"{name}.alpha_logit"]))


class LearnedEntmax(NamedTuple):
    """α-entmax with the α under ``name``: what `learned_entmax` gives."""

    params: Parameters
    name: str

    def __call__(self, scores: Tensor, /, *, mask: Array | None = None) -> Tensor:
        """The weights of scores over the last axis."""
        return MAPPING_OPS["entmax"](scores, self.alpha(), mask=mask)

    def alpha(self) -> Tensor:
        """α on the tape."""
        return learned_alpha(self.params, self.name)


def learned_entmax(params: Parameters, name: str) -> LearnedEntmax:
    """α-entmax with the α under ``name``, which gets a gradient: the sum of g ∘ ∂p/∂α.

    The sum goes over all rows that share an α: over the batch and the queries of a head, say.

    Examples
    --------
    One head with α = 1 and one with α = 2, for a single query:

    >>> params = {"a.alpha_logit": np.array([[-50.0], [50.0]])}
    >>> z = as_tensor(np.zeros((2, 1, 3)) + [2.0, 0.0, -9.0])
    >>> learned_entmax(params, "a")(z).data.round(3)
    array([[[0.881, 0.119, 0.   ]],
           [[1.   , 0.   , 0.   ]]])
    """
    return LearnedEntmax(params, name)
