"""Fenchel-Young losses: for every mapping with a regulariser Ω, the loss whose gradient it is.

For scores z and a target distribution q (a label y is q = e_y),

    L(z; q) = Ω*(z) + Ω(q) − q·z,    Ω*(z) = p·z − Ω(p),  p = mapping(z),

is convex in z, at least 0, and 0 exactly where p = q; its gradient in z is p − q (Blondel,
Martins & Niculae 2020; Peters et al. 2019, §3.2). Softmax's is the cross-entropy (for a
distribution q the Kullback-Leibler divergence, since Ω(q) is included).

`generic` has the loss of any mapping and `named` those with a name of their own; `_definition` is
the mathematics of all of them, and `_targets` reads labels, distributions and options.
"""

from pyentmax.losses.generic import fenchel_young_loss, fenchel_young_loss_and_grad
from pyentmax.losses.named import (
    entmax15_loss,
    entmax15_loss_and_grad,
    entmax_loss,
    entmax_loss_and_grad,
    normmax_loss,
    normmax_loss_and_grad,
    softmax_loss,
    softmax_loss_and_grad,
    sparsemax_loss,
    sparsemax_loss_and_grad,
)

__all__ = [
    "entmax15_loss",
    "entmax15_loss_and_grad",
    "entmax_loss",
    "entmax_loss_and_grad",
    "fenchel_young_loss",
    "fenchel_young_loss_and_grad",
    "normmax_loss",
    "normmax_loss_and_grad",
    "softmax_loss",
    "softmax_loss_and_grad",
    "sparsemax_loss",
    "sparsemax_loss_and_grad",
]
