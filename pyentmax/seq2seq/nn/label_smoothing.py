"""The loss of smoothed labels at the price of labels, for α-entmax outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.reference.fenchel_young import fenchel_young_loss_and_grad
from pyentmax.reference.mapping import AnyMapping as Mapping
from pyentmax.seq2seq.autograd.tensor import Array, Tensor


def smoothed_label_loss(
    z: Tensor,
    y: Array,
    record: Mapping,
    *,
    label_smoothing: float,
    weight: Array | None = None,
    reduction: str = "mean",
    **params: Any,
) -> Tensor:
    """The mean or sum of L(z; q) over rows, q = (1 − ε) e_y + ε/d, without any array of the q.

    Ω of an α-entmax is symmetric and 0 at labels, so that smoothing only adds

        L(z; q) = L(z; e_y) + ε (z_y − mean z) + Ω(q)        ∇ = p − e_y + ε (e_y − 1/d)

    Parameters
    ----------
    z : Tensor
        Finite scores, with the classes on the last axis.
    y : integer array
        A label per row.
    record : Mapping
        Of an α-entmax.
    label_smoothing : float
        ε in (0, 1].
    weight : array, optional
        Of each row.
    reduction : {"mean", "sum"}
    **params
        Those of the mapping.

    Examples
    --------
    >>> from pyentmax.reference.mappings import MAPPINGS
    >>> z = Tensor(np.array([[2.0, 0.0, 0.0, 0.0]]), requires_grad=True)
    >>> loss = smoothed_label_loss(z, np.array([0]), MAPPINGS["sparsemax"], label_smoothing=0.2)
    >>> loss.backward()
    >>> round(loss.item(), 4), z.grad  # p − q, with p = (1, 0, 0, 0)
    (0.165, array([[ 0.15, -0.05, -0.05, -0.05]]))
    """
    loss, gradient = fenchel_young_loss_and_grad(
        z.data, y, record, weight=weight, reduction=reduction, **params
    )
    d, smoothing = z.shape[-1], label_smoothing
    q = np.full(d, smoothing / d)
    q[0] += 1 - smoothing
    omega = float(record.regularizer(q, *params.values()))
    share = np.ones(y.size) if weight is None else weight.reshape(-1).astype(np.float64)
    if reduction == "mean":
        share /= share.sum()
    scores, labels, rows = z.data.reshape(-1, d), y.reshape(-1), np.arange(y.size)
    above_mean = scores[rows, labels] - scores.mean(axis=-1, dtype=np.float64)
    loss = loss + (share * (smoothing * above_mean + omega)).sum()
    pull = (smoothing * share).astype(z.dtype)
    gradient = gradient.reshape(-1, d)
    gradient -= (pull / d)[:, None]
    gradient[rows, labels] += pull
    gradient = gradient.reshape(z.shape)
    return Tensor(np.asarray(loss, dtype=z.dtype), (z, lambda g: gradient * g))
