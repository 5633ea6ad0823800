"""From scores to the distribution of the next token: the last layer of a model made elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from pyentmax import keep as keep_sets
from pyentmax.seq2seq.models.encoder_decoder import check_distribution
from pyentmax.seq2seq.models.protocol import FloatArray, Step
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping


class OutputRule:
    """An output mapping, after a temperature and a keep-set.

    Parameters
    ----------
    mapping : str or float
        As `choose_mapping` takes it: a name, or α.
    keep : str, optional
        A keep-set by its name and parameter, ``"min_p=0.05"``, or several, one after the other,
        ``"top_k=50,min_p=0.05"``: all other scores count as −∞.
    temperature : float
        Scores are divided by it first.
    ends : sequence of int
        The tokens that end a string. They become one, the first.

    Raises
    ------
    ValueError
        If a choice is unknown or a number out of its range.

    Examples
    --------
    >>> rule = OutputRule("softmax", "top_k=2", 1.0, [0, 1])
    >>> step = rule(np.log([[0.4, 0.1, 0.2, 0.4]]), 3)
    >>> print(np.exp(step.log_prob), step.support)
    [[0.5 0.  0.  0.5]] [[ True False False  True]]
    """

    def __init__(
        self, mapping: str | float, keep: str | None, temperature: float, ends: Sequence[int]
    ) -> None:
        self.mapping = choose_mapping(mapping)
        check_distribution(self.mapping)
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature must be a number above 0, not {temperature}")
        self.temperature, self.ends = temperature, [index(end) for end in ends]
        self.keep = choose_keep_sets(keep)

    @property
    def is_sparse(self) -> bool:
        """Whether its zeros are certain: those of the mapping, or only those of the keep-set."""
        alpha = self.mapping.alpha
        dense = alpha is not None and alpha <= 1
        return self.mapping.proves_zeros or (dense and bool(self.keep))

    def __call__(self, scores: FloatArray, positions: int, *, prove: bool = True) -> Step:
        """The step of (rows, vocabulary) scores, with attention of 0 to so many positions."""
        if self.temperature != 1:
            scores = scores / self.temperature
        for function, value in self.keep:
            scores = np.where(function(scores, value), scores, -np.inf)
        if prove:
            log_prob, support, unseen = self.mapping.certified(scores)
        else:
            (log_prob, support), unseen = self.mapping.log_probabilities(scores), None
        first, *others = self.ends
        if others:
            log_prob[:, first] = np.logaddexp.reduce(log_prob[:, self.ends], axis=1)
            support[:, first] = support[:, self.ends].any(axis=1)
            log_prob[:, others], support[:, others] = -np.inf, False
        attention = np.broadcast_to(np.zeros((), log_prob.dtype), (len(scores), positions))
        return Step(log_prob, support, attention, unseen)


def choose_keep_sets(choice: str | None) -> list[tuple[Any, float]]:
    """The functions and parameters that ``"top_k=50,min_p=0.05"`` names, in their order.

    >>> choose_keep_sets("top_q=1")
    Traceback (most recent call last):
        ...
    ValueError: keep: expected NAME=NUMBER, such as min_p=0.05, with a name from epsilon, eta, \
min_p, top_k, top_n_sigma, top_p, typical, got 'top_q=1'
    """
    chosen: list[tuple[Any, float]] = []
    for part in [] if choice is None else str(choice).split(","):
        name, _, text = part.partition("=")
        try:
            keep_sets.__all__.index(name)
            value = float(text)
        except ValueError:
            raise ValueError(
                "keep: expected NAME=NUMBER, such as min_p=0.05, with a name from "
                f"{', '.join(keep_sets.__all__)}, got {part!r}"
            ) from None
        function = getattr(keep_sets, name)
        function.parameter.check_number(value)
        chosen.append((function, value))
    return chosen
