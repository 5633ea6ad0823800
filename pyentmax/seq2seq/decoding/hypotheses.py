"""The results of a search: hypotheses, and what is proved about their list."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal

from pyentmax.seq2seq.models.protocol import FloatArray

_UPWARDS = Context(prec=3, rounding=ROUND_CEILING)


# Not frozen, unlike other results: a search makes thousands, and each would take twice as long.
@dataclass(eq=False)
class Hypothesis:
    """One output sequence and its probability.

    Attributes
    ----------
    tokens : tuple of int
        Without the begin and end symbols.
    log_prob : float
        Log-probability of the sequence, its end symbol included. That of an unfinished hypothesis
        is its prefix's, the total over all sequences that begin with it.
    attention : (len(tokens) + 1, source length) array or None
        One row of weights per token and, in a finished hypothesis, one for the end symbol, without
        the source's padding.
    finished : bool
        False if the length limit came before the end symbol.

    Examples
    --------
    >>> Hypothesis(tokens=(5, 6), log_prob=-0.5, attention=None).probability
    0.6065306597126334
    """

    tokens: tuple[int, ...]
    log_prob: float
    attention: FloatArray | None = field(default=None, repr=False)
    finished: bool = True

    @property
    def probability(self) -> float:
        """exp(log_prob); 0.0 if it is too small for a float, although the sequence is possible."""
        return math.exp(self.log_prob)


@dataclass(frozen=True, eq=False, repr=False)
class SearchResult:
    """The hypotheses of one source, and what is proved about them.

    Attributes
    ----------
    hypotheses : tuple of Hypothesis
        Most probable first (`exact_search` can also normalise by length). If nothing ended within
        the length limit, these are unfinished prefixes.
    exact : bool
        True if it is proved that every sequence with a probability above zero is in the list.
    mass : float
        Total probability of the finished hypotheses; 1 up to rounding if ``exact``.
    reason : str
        Why the list is proved complete, or why it is not.
    proved : int
        The number of hypotheses, from the first on, that are proved to be the best of all.
    bound : float
        Upper bound on the probability of any string that is not listed; 1 if none is known.
    mass_bound : float
        Upper bound on the total probability of all strings that are not listed.
    """

    hypotheses: tuple[Hypothesis, ...]
    exact: bool
    mass: float
    reason: str
    proved: int = 0
    bound: float = 1.0
    mass_bound: float = 1.0

    def __repr__(self) -> str:
        """A line; the hypotheses of a wide beam would fill a book."""
        count, best = len(self.hypotheses), f"{self.best.probability:.6g}"
        state = "complete" if self.exact else "not proved complete"
        return f"SearchResult({count} hypotheses, best {best}, mass {self.mass:.6g}, {state})"

    @property
    def best(self) -> Hypothesis:
        """The most probable hypothesis of the list."""
        return self.hypotheses[0]


def proved_text(proved: int) -> str:
    """The claim that the first strings of a result are proved; empty if none is."""
    if proved > 1:
        return f"The {proved} best strings are proved"
    return "The best string is proved" if proved else ""


def bounds_text(bound: float, mass_bound: float) -> str:
    """The two bounds of a result as a sentence, rounded up to three digits.

    Examples
    --------
    >>> bounds_text(0.2401, 0.5)
    'No other has a probability above 0.241, all that are not listed 0.5 together.'
    """
    each, together = map(_rounded_up, (bound, mass_bound))
    return f"No other has a probability above {each}, all that are not listed {together} together."


def _rounded_up(x: float) -> str:
    # Without the factor 0.1 + 0.2 would be shown as 0.301; sums have rounding errors of this size.
    return f"{float(_UPWARDS.plus(Decimal(x * (1 - 1e-9)))):g}"
