"""Forced decoding: a model's distributions at each step of a given target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyentmax.seq2seq.decoding._shared import as_source, follow, refuse_stuck
from pyentmax.seq2seq.decoding.hypothesis_tree import format_percent
from pyentmax.seq2seq.models.protocol import BoolArray, Decodable, FloatArray, IntArray, Step


class ForcedStep(NamedTuple):
    """One step: the forced token, and what else was possible.

    Attributes
    ----------
    token : int
    probability : float
        That of the token; 0 if it is impossible.
    possible : bool
    others : tuple of (token, probability)
        All other possible tokens, most probable first; ties in the order of their ids.
    """

    token: int
    probability: float
    possible: bool
    others: tuple[tuple[int, float], ...]


@dataclass(frozen=True, eq=False)
class ForcedDecoding:
    """A model's distributions at the T steps of one target, its end symbol included.

    Attributes
    ----------
    tokens : (T,) int array
        The target, and the end symbol as the last token.
    log_prob : (T, vocabulary) float array
        Log-probability of each token as the next one, after the target's tokens before it.
    support : (T, vocabulary) bool array
        Where the output mapping gives a probability above zero.
    attention : (T, source length) float array
        Attention weights at each step, without the source's padding.
    """

    tokens: IntArray
    log_prob: FloatArray
    support: BoolArray
    attention: FloatArray

    @property
    def possible(self) -> BoolArray:
        """(T,) bool array: whether the forced token was possible."""
        return self.support[np.arange(len(self.tokens)), self.tokens]

    @property
    def token_log_probs(self) -> FloatArray:
        """(T,) float array: log-probability of the forced tokens, −∞ where impossible."""
        log_probs = self.log_prob[np.arange(len(self.tokens)), self.tokens].astype(np.float64)
        return np.where(self.possible, log_probs, -np.inf)

    @property
    def steps(self) -> list[ForcedStep]:
        """The steps one by one, each with the possible tokens only."""
        steps = []
        for token, log_prob, support in zip(self.tokens, self.log_prob, self.support, strict=True):
            p = np.where(support, np.exp(log_prob.astype(np.float64)), 0.0)
            order = [int(i) for i in np.argsort(-p, kind="stable") if support[i] and i != token]
            others = tuple((i, float(p[i])) for i in order)
            steps.append(ForcedStep(int(token), float(p[token]), bool(support[token]), others))
        return steps

    @property
    def probability(self) -> float:
        """Probability of the whole target; 0 if a step is impossible."""
        return float(np.exp(self.token_log_probs.sum()))

    def text(
        self, decode: Callable[[int], str], *, what: str = "target", most_others: int = 8
    ) -> str:
        """The steps as lines of text, and the probability of the whole target.

        Parameters
        ----------
        decode : callable
            The text of a token, such as ``vocabulary.tokens.__getitem__``.
        what : str
            A word for the target.
        most_others : int
            The largest number of other possible tokens that a step lists.

        Examples
        --------
        >>> p = np.array([[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]])
        >>> with np.errstate(divide="ignore"):
        ...     decoding = ForcedDecoding(np.array([2, 1]), np.log(p), p > 0, np.ones((2, 1)))
        >>> print(decoding.text(["a", "</s>", "b"].__getitem__))
          step  forced     probability  also possible
             1  b                75.0%  a 25.0%
             2  </s>            100.0%
        <BLANKLINE>
        The model gives this target the probability 0.750000.
        """

        def show(token: int) -> str:
            return decode(token).replace(" ", "␣")

        width = max(6, *(len(show(token)) for token in self.tokens.tolist()))
        lines = [f"  step  {'forced':{width}} {'probability':>15}  also possible"]
        impossible = []
        for number, step in enumerate(self.steps, start=1):
            others = [f"{show(i)} {format_percent(p)}" for i, p in step.others[:most_others]]
            if len(step.others) > most_others:
                others.append(f"and {len(step.others) - most_others} more")
            percent = format_percent(step.probability)
            if not step.possible:
                percent = "impossible here"
                impossible.append(str(number))
            line = f"  {number:4}  {show(step.token):{width}} {percent:>15}  {'  '.join(others)}"
            lines.append(line.rstrip())
        verdict = f"The model gives this {what} the probability {self.probability:.6f}."
        if impossible:
            where = f"step{'s' * (len(impossible) > 1)} {', '.join(impossible)}"
            verdict = f"The model gives this {what} no probability: it is impossible at {where}."
        return "\n".join([*lines, "", verdict])


def forced_decoding(
    model: Decodable, source: ArrayLike, source_mask: ArrayLike, targets: Sequence[ArrayLike]
) -> list[ForcedDecoding]:
    """Feed each source's target to the model, and record its distribution at every step.

    A token of the target is fed even if the model gives it no probability, and the model continues
    from there.

    Parameters
    ----------
    model, source, source_mask : as in `beam_search`
    targets : sequence of B int sequences
        One per source, without begin and end symbols.

    Returns
    -------
    list of B ForcedDecoding
        In the order of the sources.

    Raises
    ------
    ValueError
        If the arrays do not fit together, a target is not a list of token ids of the model, or if
        the model gives a row no possible token (as NaN scores do).

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, Figure 2.

    Examples
    --------
    A model that writes token 2 or 3 and then ends:

    >>> from pyentmax.seq2seq.decoding import Step
    >>> class Coin:
    ...     bos, eos, output_is_sparse = 0, 1, True
    ...     table = np.array([[0, 0, 0.75, 0.25], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    ...     def encode(self, source, source_mask):
    ...         return source
    ...     def step(self, state, tokens, prove=True):
    ...         p = self.table[tokens]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, np.ones(state.shape)), state
    >>> source = np.array([[4], [4]])
    >>> once, twice = forced_decoding(Coin(), source, source > 0, [[3], [3, 2]])
    >>> once.probability, once.support.sum(axis=1)
    (0.25, array([2, 1]))
    >>> twice.probability, twice.possible
    (0.0, array([ True, False,  True]))
    """
    source, source_mask = as_source(source, source_mask)
    if len(targets) != len(source):
        raise ValueError(
            f"expected one target for each of the {len(source)} sources, got {len(targets)}"
        )
    forced = [np.append(_as_target(target), model.eos) for target in targets]
    recorded: list[list[tuple[FloatArray, BoolArray, FloatArray]]] = [[] for _ in forced]

    def choose(step: Step, rows: IntArray, length: int) -> tuple[IntArray, BoolArray]:
        possible = np.any(step.support & np.isfinite(step.log_prob), axis=1)
        refuse_stuck(step, possible, rows, length)
        tokens = np.array([forced[i][length] for i in rows])
        vocabulary = step.log_prob.shape[1]
        for i in rows[tokens >= vocabulary]:
            raise ValueError(
                f"targets: expected token ids below {vocabulary}, the size of the vocabulary, got "
                f"{forced[i][length]} for source {i}"
            )
        for row, i in enumerate(rows):
            weights = step.attention[row][source_mask[i]]
            recorded[i].append((step.log_prob[row], step.support[row], weights))
        return tokens, np.array([length + 1 < len(forced[i]) for i in rows])

    follow(model, source, source_mask, choose, prove=True)
    return [
        ForcedDecoding(target, *map(np.stack, zip(*steps, strict=True)))
        for target, steps in zip(forced, recorded, strict=True)
    ]


def _as_target(tokens: ArrayLike) -> IntArray:
    """The ids of one target as an array."""
    ids = np.asarray(tokens)
    if ids.ndim != 1 or (ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0)):
        raise ValueError(
            "targets: expected a list of token ids from 0 up for each source, got "
            f"{tokens if ids.ndim == 1 else f'one of shape {ids.shape}'}"
        )
    return ids.astype(np.int64)
