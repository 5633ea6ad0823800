"""A model's last layer without all scores where the vocabulary is large."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd import Tensor, ops
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.nn.mapping_choice import ChosenMapping

LARGE_VOCABULARY = 2000
"""Classes from which on no array of all scores is made.

There a loss and its gradients take 0.44 of the time once the scores are sharp, and 0.97 to 1.04 of
it while all classes are in the support (1.5-entmax, width 128 and 256, AVX2); of 300, 1.10 to 1.18.
"""


def output_loss(
    output: ChosenMapping, hidden: Tensor, rows: Any, bias: Any, labels: Array, **options: Any
) -> Tensor:
    """The mean loss of the scores x Wᵀ + b, on the tape.

    Parameters
    ----------
    output : ChosenMapping
    hidden : Tensor of shape (…, d)
    rows : Tensor of shape (classes, d)
        W, such as tied embeddings, or a transposed matrix.
    bias : Tensor of shape (classes,)
    labels : integer array of shape (…,)
    **options
        ``weight`` and ``label_smoothing``, as for `ChosenMapping.loss`.

    Examples
    --------
    >>> from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
    >>> hidden, rows = Tensor(np.ones((1, 2))), Tensor(np.array([[2.0, 0.0], [1.0, 1.2]]))
    >>> loss = output_loss(choose_mapping(2), hidden, rows, Tensor(np.zeros(2)), np.array([0]))
    >>> round(loss.item(), 4)
    0.36
    """
    if rows.shape[0] < LARGE_VOCABULARY or not isinstance(hidden.data, np.ndarray):
        return output.loss(ops.linear(hidden, rows.transpose(), bias), labels, **options)
    return output.linear_loss(hidden, rows, bias, labels, **options)
