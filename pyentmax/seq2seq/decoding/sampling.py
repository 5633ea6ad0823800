"""Ancestral sampling: strings drawn from the model, token by token.

Each token comes from the model's own distribution given those before it, so that a string is drawn
with its probability. A sparse output mapping gives unlikely tokens a probability of 0, so that it
needs no truncation by `top_k` or `nucleus` as a dense one does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.seq2seq.decoding._shared import (
    as_source,
    follow,
    length_limits,
    positive,
    refuse_stuck,
)
from pyentmax.seq2seq.decoding.hypotheses import Hypothesis
from pyentmax.seq2seq.models.protocol import BoolArray, Decodable, FloatArray, IntArray, Step


def ancestral_sampling(
    model: Decodable, source: ArrayLike, source_mask: ArrayLike, rng: np.random.Generator, *,
    samples: int = 1, temperature: float = 1.0, top_k: int | None = None,
    nucleus: float | None = None, max_length: int | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """Draw strings for each source.

    Parameters
    ----------
    model, source, source_mask, max_length : as in `beam_search`
    rng : numpy.random.Generator
        Draws one number per open string and step.
    samples : int
        Strings per source, independent of each other.
    temperature : float
        Probabilities are raised to the power 1/temperature and normalised: below 1 the draws stay
        closer to the most probable string. The support stays what it is.
    top_k : int, optional
        Draw among the k most probable tokens only (Fan et al. 2018).
    nucleus : float, optional
        Draw among the fewest most probable tokens that have this mass (Holtzman et al. 2020).

    Returns
    -------
    list of B lists of Hypothesis
        In the order in which they were drawn; a string may come more than once. ``log_prob`` is
        that of the model, whatever the temperature. Those that the length limit cut off are
        unfinished.

    Raises
    ------
    ValueError
        As in `beam_search`, or if a number is out of its range.

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import Step
    >>> class Coin:  # writes token 2 or 3, and ends
    ...     bos, eos, output_is_sparse = 0, 1, True
    ...     table = np.array([[0, 0, 0.75, 0.25], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    ...     def encode(self, source, source_mask):
    ...         return source
    ...     def step(self, state, tokens, prove=True):
    ...         p = self.table[tokens]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, np.ones(state.shape)), state
    >>> source, rng = np.array([[4]]), np.random.default_rng(0)
    >>> [drawn] = ancestral_sampling(Coin(), source, source > 0, rng, samples=1000)
    >>> sum(h.tokens == (2,) for h in drawn)
    769
    """
    source, source_mask = as_source(source, source_mask)
    samples = positive("samples", samples)
    check_choice(temperature, top_k, nucleus)
    limit = length_limits(source_mask, max_length).repeat(samples)
    drawn: list[list[int]] = [[] for _ in limit]
    log_prob, finished = np.zeros(len(limit)), np.zeros(len(limit), bool)

    def choose(step: Step, rows: IntArray, length: int) -> tuple[IntArray, BoolArray]:
        possible = step.support & np.isfinite(log_prob[rows, None] + step.log_prob)
        refuse_stuck(step, np.any(possible, axis=1), rows // samples, length, hidden=False)
        log_p = np.where(possible, step.log_prob, -np.inf).astype(np.float64)
        tokens = draw_tokens(log_p, rng, temperature, top_k, nucleus)
        ended = tokens == model.eos
        # A string at its limit may still end; any other token leaves it unfinished.
        active = ~ended & (length < limit[rows])
        finished[rows[ended]] = True
        counted = np.flatnonzero(ended | active)
        log_prob[rows[counted]] += log_p[counted, tokens[counted]]
        for i, token in zip(rows[active].tolist(), tokens[active].tolist(), strict=True):
            drawn[i].append(token)
        return tokens, active

    follow(model, source, source_mask, choose, copies=samples)
    hypotheses = [
        Hypothesis(tuple(tokens), score, None, ended)
        for tokens, score, ended in zip(drawn, log_prob.tolist(), finished.tolist(), strict=True)
    ]
    return [hypotheses[i : i + samples] for i in range(0, len(hypotheses), samples)]


def check_choice(temperature: float, top_k: int | None, nucleus: float | None) -> None:
    """Raise a ValueError or TypeError unless these numbers are valid."""
    if not (temperature > 0 and np.isfinite(temperature)):
        raise ValueError(f"temperature must be a number above 0, not {temperature}")
    if top_k is not None:
        positive("top_k", top_k)
    if nucleus is not None and not 0 < nucleus <= 1:
        raise ValueError(f"nucleus must be a mass in (0, 1], not {nucleus}")


def draw_tokens(
    log_p: FloatArray, rng: np.random.Generator, temperature: float, top_k: int | None,
    nucleus: float | None,
) -> np.ndarray:  # fmt: skip
    """Draw a token for each row, with numbers that `check_choice` accepts."""
    log_p = log_p.astype(np.float64, copy=False)  # in float32 a small temperature could be 0
    with np.errstate(over="ignore"):  # at very low temperatures gaps become −∞, as they should
        p = np.exp((log_p - log_p.max(axis=1, keepdims=True)) / temperature)
    if top_k is not None or nucleus is not None:
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        if top_k is not None:
            ranked[:, top_k:] = 0
        if nucleus is not None:
            # A token stays if those before it do not have the mass yet; the first always does.
            before = np.cumsum(ranked, axis=1) - ranked
            enough = before >= nucleus * ranked.sum(axis=1, keepdims=True)
            ranked[:, 1:][enough[:, 1:]] = 0
        np.put_along_axis(p, order, ranked, axis=1)
    cumulative = np.cumsum(p, axis=1)
    # In (0, total], so that impossible tokens before the first possible one are never drawn.
    u = (1 - rng.random(len(p))) * cumulative[:, -1]
    return (cumulative < u[:, None]).sum(axis=1)
