"""Proofs that a probability is exactly zero, despite the rounding of the threshold.

A certificate of decoding says that no other string is possible. A computed p_i = 0 is not enough:
a small probability may underflow, and a rounded threshold may turn it into 0. With

    p_i = [β(z_i − τ)]₊ᵏ,    Σ p_i = 1,

which is α-entmax for β = α − 1 and k = 1/β, a zero can be proved from the scores alone, without τ:
the sum falls as τ rises, so that z_i ≤ τ if and only if

    f(z_i) = Σ_j [β(z_j − z_i)]₊ᵏ ≥ 1.

If this holds for the largest score off the support, it holds for all of them: one pass per row.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

EPSILON = float(np.finfo(np.float64).eps)
_MAX_SLACK = 80.0  # with a larger error of the logarithm, sums prove nothing
_LARGEST_RATIONAL = 16  # the largest power that rational numbers are raised to


class Doubt(NamedTuple):
    """Zeros that are not proved.

    Attributes
    ----------
    where : bool array of the scores' shape
        True where p came out as 0 but is not proved to be.
    most : array of shape batch
        An upper bound on these probabilities; 0 in rows without one.
    """

    where: Any
    most: Any


def doubtful(z: Any, on: Any, power: float, beta: float = 1.0) -> Doubt | None:
    """The entries off the support ``on`` that are not proved to be off it; None if all are.

    Parameters
    ----------
    z : array of scores
        Rows along the last axis, on the host.
    on : bool array of z's shape
        True where p came out above 0.
    power, beta : float
        k and β.

    Examples
    --------
    The last score lies exactly at sparsemax's threshold, and then above it, by less than an ulp:

    >>> on = np.array([True, True, False])
    >>> doubtful(np.array([1.0, 0.5, 0.25]), on, power=1) is None
    True
    >>> doubtful(np.array([1.0, 0.5, 0.25 + 1e-16]), on, power=1).where
    array([False, False,  True])
    """
    if z.ndim != 2:
        d = z.shape[-1]
        doubt = doubtful(z.reshape(-1, d), on.reshape(-1, d), power, beta)
        return doubt and Doubt(doubt.where.reshape(on.shape), doubt.most.reshape(on.shape[:-1]))
    # In most rows of a trained model a single term is enough: all scores off the support lie 1/β
    # below the largest, as −∞ always does. Rows with NaN or +∞ have no zeros to prove.
    lowest = z.dtype.type(-(1 + 8 * np.finfo(z.dtype).eps) / beta)
    highest, largest = np.where(on, -np.inf, z).max(axis=1), z.max(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.flatnonzero(highest - largest > lowest)
    if not rows.size:
        return None
    formula = _Formula(power, beta)
    if rows.size < len(z):
        near, on_near, t = z[rows], on[rows], highest[rows]
    else:
        near, on_near, t = z, on, highest
    where, most = None, np.zeros(len(z))
    for row in rows[~formula.at_least_one_on(near, on_near, t)]:
        with np.errstate(over="ignore"):
            off = (z[row] - largest[row] > lowest) & ~on[row]
        scores = z[row].astype(np.float64)
        off &= scores > formula.highest_proved(scores, off)
        if off.any():
            where = np.zeros_like(on) if where is None else where
            where[row] = off
            most[row] = formula.most(scores, scores[off].max())
    return None if where is None else Doubt(where, most)


class _Formula(NamedTuple):
    """f, and bounds on its rounding errors."""

    power: float
    beta: float

    def sums(self, z: Any, t: Any) -> tuple[Any, float]:
        """f(t) of each row, and a bound on the error of its logarithm.

        With u = ε/2 the unit roundoff, a term's base has a relative error of at most 4u: from a
        difference, a product, and β itself. The power multiplies it by k and adds a few u, the sum
        of d terms adds (d − 1)u. Underflow makes the sum smaller, which never gives a false proof.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            terms = self.terms(z, t)
            return terms.sum(axis=-1, keepdims=True), self.slack(z)

    def terms(self, z: Any, t: Any) -> Any:
        """The term of each score z in f(t)."""
        base = np.maximum(z - t, 0) * z.dtype.type(self.beta)
        return base if self.power == 1 else base**self.power

    def slack(self, z: Any) -> float:
        """A bound on the error of the logarithm of a sum over rows z."""
        return float(np.finfo(z.dtype).eps) * (4 * self.power + 8 + z.shape[-1])

    def at_least_one(self, z: Any, t: Any) -> Any:
        """True where f(t) ≥ 1 is certain."""
        sums, slack = self.sums(z, t)
        return sums >= math.exp(slack) if slack < _MAX_SLACK else np.zeros_like(sums, dtype=bool)

    def at_least_one_on(self, z: Any, on: Any, t: Any) -> Any:
        """The same for each row's highest score t off its support: only the support is above t."""
        slack = self.slack(z)
        if slack >= _MAX_SLACK:
            return np.zeros(len(z), dtype=bool)
        places = np.flatnonzero(on)
        rows = places // z.shape[-1]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            terms = self.terms(z.reshape(-1)[places], t[rows])
        return np.bincount(rows, terms, minlength=len(z)) >= math.exp(slack)

    def highest_proved(self, z: Any, off: Any) -> float:
        """The highest of one row's scores off the support with f ≥ 1; −∞ if there is none."""
        scores = np.sort(z[off])
        proved, doubted = -1, len(scores)
        while doubted - proved > 1:
            middle = (proved + doubted) // 2
            if self.decide(z, float(scores[middle])):
                proved = middle
            else:
                doubted = middle
        return float(scores[proved]) if proved >= 0 else -math.inf

    def decide(self, z: Any, t: float) -> bool:
        """Whether f(t) ≥ 1 in one row; by rational numbers where floats cannot decide it."""
        if self.at_least_one(z, t).item() or self.beta * (z.max() - t) >= 1 + 4 * EPSILON:
            return True
        sums, slack = self.sums(z, t)
        rational = float(self.power).is_integer() and self.power <= _LARGEST_RATIONAL
        if not rational or sums.item() < math.exp(-slack):
            return False
        above = (Fraction(self.beta) * (Fraction(x) - Fraction(t)) for x in z[z > t].tolist())
        return sum(base ** int(self.power) for base in above) >= 1

    def most(self, z: Any, t: float) -> float:
        """An upper bound on the probability of a score t, if f(t) < 1.

        From t down to τ the sum grows by p itself or more, up to 1: p ≤ 1 − f(t). And with b the
        largest base at t, p = sᵏ where b + s ≤ 1.
        """
        sums, slack = self.sums(z, t)
        by_sum = max(1 - sums.item() * math.exp(-min(slack, _MAX_SLACK)), 0.0) + slack
        base = max(1 - self.beta * (float(z.max()) - t), 0.0) + 4 * EPSILON
        return min(by_sum, base**self.power, 1.0)
