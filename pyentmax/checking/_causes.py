"""Likely causes: variants of a mapping and of its derivative that give what a wrong function gives.

An entry is a name, the variant in NumPy, and what cures it. A variant of values gets the claim,
scores (rows along the last axis) and what fn gave; one of derivatives p, v, the slopes p^{2−α} and
the number of rows. The first that agrees to rounding with fn, in all rows that are tried, is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._claims import Claim
from pyentmax.checking._differences import Array
from pyentmax.checking._grades import CallError, PropertyResult
from pyentmax.reference.mappings import MAPPINGS

ROUNDING = 512  # spacings of floats that a variant may differ by
ALPHAS = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
VALUES = ("exact values", "sum of a row", "permutations", "batches", "three dimensions", "axes")
SHAPES = ((3,), (5,), (40,), (3, 3), (2, 2, 3))


class Cause(NamedTuple):
    """A likely cause, and what to do about it."""

    name: str
    variant: Callable[..., Any]
    cure: str

    def __str__(self) -> str:
        return f"{self.name}: {self.cure}"


def _alpha(claim: Claim) -> float:
    return float(ALPHAS.get(claim.record.name, claim.parameters.get("alpha", 1.0)))


def _power(claim: Claim) -> float:
    if _alpha(claim) == 1:
        raise ValueError("there is no threshold")
    return _alpha(claim) - 1


def _sum(x: Array) -> Array:
    return np.asarray(np.sum(x, axis=-1, keepdims=True))


def _powers(z: Array) -> Array:
    return np.asarray(np.exp(z - np.max(z, axis=-1, keepdims=True)))


def _named(name: str, scale: Callable[[float], float] = lambda _: 1.0) -> Any:
    return lambda claim, z, p: MAPPINGS[name].forward(scale(_alpha(claim)) * z)


def _threshold(claim: Claim, z: Array, p: Array) -> Array:
    """The mapping with the threshold, and the sum, that fit p best."""
    power, rows = _power(claim), p.copy()  # any two fit
    for index in np.ndindex(p.shape[:-1]):
        on = p[index] > 0
        if np.sum(on) > 2 and np.ptp(z[index][on]):
            slope, offset = np.polyfit(z[index][on], p[index][on] ** power, 1)
            rows[index] = np.maximum(slope * z[index] + offset, 0) ** (1 / power)
    return rows


def _at(claim: Claim, z: Array, thresholds: Sequence[Array]) -> list[Array]:
    """The mapping with other thresholds, and divided by its sum then."""
    power = _power(claim)
    x = power * (z - np.max(z, axis=-1, keepdims=True))
    powers = [np.maximum(x - tau, 0) ** (1 / power) for tau in thresholds]
    return [*powers, *(q / np.where(_sum(q) > 0, _sum(q), 1) for q in powers)]


def _stopped_early(claim: Claim, z: Array, p: Array) -> Array:
    """As `_threshold`, if the threshold is a point that bisection visits in its first 30 steps."""
    power, d, visited = _power(claim), z.shape[-1], []
    for end in (d**-power, 1 / d, 0.0):
        low, high = np.full_like(z[..., :1], -1.0), np.full_like(z[..., :1], -end)
        for _ in range(30):
            visited.append((low + high) / 2)
            more = _sum(_at(claim, z, visited[-1:])[0]) >= 1
            low, high = np.where(more, visited[-1], low), np.where(more, high, visited[-1])
    return _closest(_at(claim, z, visited), p)


def _closest(variants: Sequence[Array], p: Array) -> Array:
    return min(variants, key=lambda q: float(np.nan_to_num(np.max(np.abs(q - p)), nan=np.inf)))


def _narrow(claim: Claim, z: Array, p: Array) -> Array:
    """The mapping with τ held within a bracket that ends too early at one side."""
    power, d = _power(claim), z.shape[-1]
    tau = -(np.max(claim.exact(z), axis=-1, keepdims=True) ** power)
    ends = [-1 / d, -(d**-power), *-np.arange(1, 10) / 10, -0.25, -0.75]
    clipped = [clip(tau, end) for end in ends for clip in (np.maximum, np.minimum)]
    return _closest(_at(claim, z, clipped), p)


def _other_axis(claim: Claim, z: Array, p: Array) -> Array:
    return _closest([claim.exact(z, axis=axis) for axis in range(z.ndim)], p)


def _other_k(change: int) -> Any:
    def variant(claim: Claim, z: Array, p: Array) -> Array:
        k = max(1, int(claim.parameters["k"]) + change)
        result: Array = claim.record.forward(z, min(k, z.shape[-1]))
        return result

    return variant


VALUE_CAUSES = (
    Cause("another axis", _other_axis,
          "fn maps along an axis that is not always the last; make it with axis=-1 (dim=-1)"),
    Cause("the whole array as one row",
          lambda claim, z, p: claim.exact(z.reshape(-1)).reshape(z.shape),
          "fn takes the maximum or sum over all entries; keep the last axis (axis=-1, keepdims)"),
    Cause("scores not multiplied by α − 1", lambda claim, z, p: claim.exact(z / _power(claim)),
          "the threshold is that of (α − 1)z: halve the scores at α = 1.5"),
    Cause("softmax(αz)", _named("softmax", float),
          "α is no temperature; p = [(α−1)z − τ]₊^{1/(α−1)}"),
    Cause("another mapping, softmax", _named("softmax"), "fn gives softmax(z)"),
    Cause("another mapping, sparsemax", _named("sparsemax"), "fn gives sparsemax(z)"),
    Cause("another mapping, entmax15", _named("entmax15"), "fn gives entmax15(z)"),
    Cause("the 1 is not shifted", lambda claim, z, p: _powers(z) / (1 + _sum(_powers(z))),
          "with the maximum m subtracted, the 1 of the denominator is e^{-m}"),
    Cause("the sum over the batch", lambda claim, z, p: _powers(z) / np.sum(_powers(z)),
          "the sum goes along the row: axis=-1, keepdims=True"),
    Cause("clip and renormalise", lambda claim, z, p: np.maximum(z, 0) / _sum(np.maximum(z, 0)),
          "max(z, 0) / Σ is no projection; subtract the threshold"),
    Cause("sorted order returned", lambda claim, z, p: claim.exact(-np.sort(-z, axis=-1)),
          "undo the sort, or use it for the threshold alone"),
    Cause("rising order returned", lambda claim, z, p: claim.exact(np.sort(z, axis=-1)),
          "undo the sort, or use it for the threshold alone"),
    Cause("negative scores clipped first", lambda claim, z, p: claim.exact(np.maximum(z, 0)),
          "scores below 0 count too; shift by the maximum instead"),
    Cause("absolute scores", lambda claim, z, p: claim.exact(np.abs(z)),
          "take the scores as they are"),
    Cause("negated scores", lambda claim, z, p: claim.exact(-z), "the largest score gets the most"),
    Cause("logarithms returned", lambda claim, z, p: np.log(claim.exact(z)), "exponentiate"),
    Cause("one score too many is kept", _other_k(1), "keep k; the k-th largest is the least kept"),
    Cause("one score too few is kept", _other_k(-1), "keep k; the k-th largest is the least kept"),
    Cause("a bracket too narrow", _narrow,
          "the threshold lies between max − 1 and max − d^{1−α} of (α − 1)z"),
    Cause("bisection stopped early", _stopped_early,
          "one bit a step: float32 needs some 24 steps, float64 53"),
    Cause("the threshold is off", _threshold,
          "p has the right form with another τ: look at its sum, the support's size, the sort"),
)  # fmt: skip


def _centred(s: Array, v: Array, axis: Any = -1) -> Array:
    total = np.sum(s, axis=axis, keepdims=True)
    result: Array = s * (v - np.sum(s * v, axis=axis, keepdims=True) / total)
    return result


DERIVATIVE_CAUSES = (
    Cause("τ taken as a constant", lambda p, v, s: s * v,
          "τ moves with the scores: subtract Σsv/Σs, s = p^{2−α}, or detach the bisection"),
    Cause("τ taken as a constant, then divided by the sum",
          lambda p, v, s: s * (v - np.sum(p * v, axis=-1, keepdims=True)),
          "do not differentiate through a bisection; use s(v − Σsv/Σs), s = p^{2−α}"),
    Cause("the mean over the batch", lambda p, v, s: _centred(s, v, None),
          "Σsv/Σs is a sum along the row: axis=-1, keepdims=True"),
    Cause("the mean over all batch rows", lambda p, v, s: s * (
        v - np.sum(s * v) / np.sum(s[..., :1] * 0 + 1) / np.sum(s, axis=-1, keepdims=True)),
          "Σsv/Σs is a sum along the row: axis=-1, keepdims=True"),
    Cause("the mean over all entries", lambda p, v, s: s * (v - np.mean(v, axis=-1, keepdims=True)),
          "the mean is over the support, weighted by s = p^{2−α}"),
    Cause("the derivative of softmax", lambda p, v, s: _centred(p, v),
          "the slopes are p^{2−α}, not p"),
    Cause("the derivative of sparsemax", lambda p, v, s: _centred((p > 0) * 1.0, v),
          "the slopes are p^{2−α}, not 1"),
    Cause("v passed through", lambda p, v, s: v, "multiply by the Jacobian"),
    Cause("sign of the mean", lambda p, v, s: s * v - (_centred(s, v) - s * v),
          "subtract Σsv/Σs, do not add it"),
)  # fmt: skip


def causes(claim: Claim, results: Sequence[PropertyResult]) -> tuple[str, ...]:
    """The likely causes, of the values and else of the derivative."""
    bad = {one.name for one in results if one.grade in ("imprecise", "wrong")}
    if bad & {*VALUES}:
        return likely(VALUE_CAUSES, [*_values(claim)], claim.epsilon)
    if any(name.startswith("derivative") for name in bad):
        return likely(DERIVATIVE_CAUSES, [*_products(claim)], claim.epsilon)
    return ()


def likely(
    entries: Sequence[Cause], cases: Sequence[Any], epsilon: float = 0.0, agree: Any = None
) -> tuple[str, ...]:
    """The first entry whose variant gives what was seen, for all cases.

    A case is the arguments of a variant, what was seen, and what is right. There is no cause where
    what is right agrees with all that was seen: what is wrong then shows in no case.
    """
    agree = agree or partial(_agree, epsilon=epsilon)
    with np.errstate(all="ignore"):
        if all(agree(exact, observed) for _, observed, exact in cases):
            return ()
        for entry in entries:
            with suppress(ValueError, KeyError, ZeroDivisionError):
                if all(agree(entry.variant(*args), observed) for args, observed, _ in cases):
                    return (str(entry),)
    return ()


def _agree(variant: Any, observed: Array, epsilon: float) -> bool:
    limit = ROUNDING * epsilon * max(1, np.nanmax(np.abs(observed), initial=0))
    both = np.isnan(variant) & np.isnan(observed)
    return bool(np.all((np.abs(variant - observed) <= limit) | (variant == observed) | both))


def _inputs(claim: Claim) -> Iterator[Array]:
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        if claim.takes(shape[-1]):
            yield claim.rounded(np.round(rng.standard_normal(shape), 2))


def _values(claim: Claim) -> Iterator[Any]:
    """Arguments of a variant, what fn gave, and what is right."""
    for z in _inputs(claim):
        with suppress(CallError):
            yield (claim, z, claim(z)), claim(z), claim.exact(z)


def _products(claim: Claim) -> Iterator[Any]:
    for z in _inputs(claim) if claim.record.name in ALPHAS or "alpha" in claim.parameters else ():
        p, v = claim.exact(z), np.resize([1.0, -0.5, 2.0, 0.25, -2.0], z.shape)
        s = np.where(p > 0, np.where(p > 0, p, 1) ** (2 - _alpha(claim)), 0)
        with suppress(CallError):
            product = claim.vjp(z, v)
            if product is not None:
                yield (p, v, s), product, _centred(s, v)
