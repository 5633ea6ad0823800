"""A model's last layer without all scores where the vocabulary is large: its loss, and decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.engine.backends import choice
from pyentmax.seq2seq.autograd import Tensor, ops
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.nn.bisection import bisection
from pyentmax.seq2seq.nn.mapping_choice import ChosenMapping
from pyentmax.sparse_attention import ScreenedRows
from pyentmax.sparse_attention.entmax_linear import candidate_scores

LARGE_VOCABULARY = 2000
"""Classes from which on no array of all scores is made.

There a loss and its gradients take 0.44 of the time once the scores are sharp, and 0.97 to 1.04 of
it while all classes are in the support (1.5-entmax, width 128 and 256, AVX2); of 300, 1.10 to 1.18.
"""


SCREENED_VOCABULARY = 4096
"""Classes from which on decoding with α-entmax does not compute all scores."""
FEW_STATES = 8
"""Hidden states up to which that is faster than a product of matrices.

With 32,000 classes and width 512 a step takes 0.52 of the time for one state, 0.66 for five, 0.92
for eight, and 1.18 for sixteen (1.5-entmax, AVX2).
"""
PAID = 16
"""Steps of few states that take as long as the copies of 8 bits, which are made after as many."""


class NextScores:
    """The scores of the next token in decoding, −∞ where a probability of 0 is proved.

    Parameters
    ----------
    output : ChosenMapping
    params : dict of arrays
        With ``output.weight``, (d, classes), or the embeddings ``table``, and ``output.bias``.
    layer : callable
        From hidden states, (rows, d), to all scores.
    table : str, optional

    Examples
    --------
    >>> from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
    >>> params = {"output.weight": np.eye(3), "output.bias": np.zeros(3)}
    >>> scores = NextScores(choose_mapping(1.5), params, lambda x: x)
    >>> scores(Tensor(np.array([[1.0, 2.0, 0.0]])))
    array([[1., 2., 0.]])
    """

    def __init__(
        self, output: ChosenMapping, params: Any, layer: Callable[[Tensor], Tensor],
        table: str | None = None,
    ) -> None:  # fmt: skip
        tied = "output.weight" not in params
        self._rows = params[f"{table}.weight"] if tied else params["output.weight"].T
        self._bias, self._layer, self._alpha = params["output.bias"], layer, output.alpha or 0.0
        self._steps = 0
        self._screened: ScreenedRows | None = None
        proved = 1 < self._alpha <= 2 and output.name != bisection.name
        large = len(self._rows) >= SCREENED_VOCABULARY and type(self._rows) is np.ndarray
        self._serves: bool = proved and large and bool(choice.kernels())

    def __call__(self, hidden: Tensor) -> Array:
        """Scores (rows, classes), off the tape."""
        x = hidden.data
        if not self._serves or len(x) > FEW_STATES:
            return self._layer(hidden).data
        self._steps += 1
        if self._steps <= PAID:
            return self._layer(hidden).data
        if self._screened is None:
            self._screened = ScreenedRows(self._rows)
        return candidate_scores(x, self._screened, self._alpha, self._bias)


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
