"""Likely causes: variants of a mapping and of its derivative that give what a wrong function gives.

An entry is a name, the variant in NumPy, and what cures it. A variant of values gets the claim,
scores (rows along the last axis) and what fn gave; one of derivatives p, v, the slopes p^{2−α} and
the number of rows. The first that agrees to rounding with fn, in all rows that are tried, is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._engine import Cause
from pyentmax.reference.mappings import MAPPINGS

ALPHAS = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}


def alpha_of(claim: Any) -> float:
    """The α of a mapping of Tsallis' family, 1 of others."""
    return float(ALPHAS.get(claim.record.name, claim.parameters.get("alpha", 1.0)))


def slopes(p: Array, alpha: float) -> Array:
    """s = p^{2−α} on the support, 0 off it."""
    return np.where(p > 0, np.where(p > 0, p, 1) ** (2 - alpha), 0)


def _power(claim: Any) -> float:
    if alpha_of(claim) == 1:
        raise ValueError("there is no threshold")
    return alpha_of(claim) - 1


def _sum(x: Array) -> Array:
    return np.asarray(np.sum(x, axis=-1, keepdims=True))


def _powers(z: Array) -> Array:
    return np.asarray(np.exp(z - np.max(z, axis=-1, keepdims=True)))


def _named(name: str, scale: Callable[[float], float] = lambda _: 1.0) -> Any:
    return lambda claim, z, p: MAPPINGS[name](scale(alpha_of(claim)) * z)


def _threshold(claim: Any, z: Array, p: Array) -> Array:
    """The mapping with the threshold, and the sum, that fit p best."""
    power, rows = _power(claim), p.copy()  # any two fit
    for index in np.ndindex(p.shape[:-1]):
        on = p[index] > 0
        if np.sum(on) > 2 and np.ptp(z[index][on]):
            slope, offset = np.polyfit(z[index][on], p[index][on] ** power, 1)
            rows[index] = np.maximum(slope * z[index] + offset, 0) ** (1 / power)
    return rows


def _at(claim: Any, z: Array, thresholds: Sequence[Array]) -> list[Array]:
    """The mapping with other thresholds, and divided by its sum then."""
    power = _power(claim)
    x = power * (z - np.max(z, axis=-1, keepdims=True))
    powers = [np.maximum(x - tau, 0) ** (1 / power) for tau in thresholds]
    return [*powers, *(q / np.where(_sum(q) > 0, _sum(q), 1) for q in powers)]


def _stopped_early(claim: Any, z: Array, p: Array) -> Array:
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


def _narrow(claim: Any, z: Array, p: Array) -> Array:
    """The mapping with τ held within a bracket that ends too early at one side."""
    power, d = _power(claim), z.shape[-1]
    tau = -(np.max(claim.exact(z), axis=-1, keepdims=True) ** power)
    ends = [-1 / d, -(d**-power), *-np.arange(1, 10) / 10, -0.25, -0.75]
    clipped = [clip(tau, end) for end in ends for clip in (np.maximum, np.minimum)]
    return _closest(_at(claim, z, clipped), p)


def _other_axis(claim: Any, z: Array, p: Array) -> Array:
    return _closest(
        [np.moveaxis(claim.exact(np.moveaxis(z, axis, -1)), -1, axis) for axis in range(z.ndim)], p
    )


def _other_k(change: int) -> Any:
    def variant(claim: Any, z: Array, p: Array) -> Array:
        k = max(1, int(claim.parameters["k"]) + change)
        result: Array = claim.record(z, min(k, z.shape[-1]))
        return result

    return variant


def _kept(change: Callable[[Array], Any]) -> Any:
    """What a router gives to the k scores that it keeps."""

    def variant(claim: Any, z: Array, p: Array) -> Array:
        if "k" not in claim.parameters:
            raise ValueError("no k")
        return np.where(claim.exact(z) > 0, change(z), 0)

    return variant


def _softmax(claim: Any, z: Array, top: Any = 0.0, more: float = 0.0) -> Array:
    if claim.record.name != "softmax":
        raise ValueError("of softmax alone")
    e = np.exp(z - top)
    return np.asarray(e / (_sum(e) + more))


def _bfloat16(x: Array) -> Array:
    part, power = np.frexp(x)
    return np.asarray(np.ldexp(np.round(part * 2.0**8), power - 8))


def _float16(x: Array) -> Array:
    return np.asarray(x).astype(np.float16).astype(np.float64)


def _in_half(claim: Any, z: Array, p: Array) -> Array:
    x, half = z - np.max(z, axis=-1, keepdims=True), (_bfloat16, _float16)
    found = [to(claim.exact(z)) for to in half]
    if claim.record.name == "softmax":
        powers = [one for to in half for e in [np.exp(to(x))] for one in (e, to(e), to(np.exp(x)))]
        found += [e / _sum(e) for e in powers]
    return _closest(found, p)


def _constant(claim: Any, z: Array, p: Array) -> Array:
    """Softmax with 10⁻⁴ to 10⁻¹² added to the sum, of shifted scores or as they are."""
    tops: Any = (np.max(z, axis=-1, keepdims=True), 0.0)
    return _closest([_softmax(claim, z, top, 0.1**n) for top in tops for n in range(4, 13)], p)


def _without_tail(n: int) -> Any:
    def variant(claim: Any, z: Array, p: Array) -> Array:
        d = z.shape[-1]
        return np.asarray(claim.exact(np.where(np.arange(d) < max(d // n, d < n) * n, z, -np.inf)))

    return variant


WHOLE = Cause("the maximum of the whole array",
              lambda claim, z, p: _softmax(claim, z, np.max(z)),
              "subtract the maximum of each row: axis=-1, keepdims=True")  # fmt: skip
OFF = Cause(
    "the threshold is off",
    _threshold,
    "p has the right form with another τ: look at its sum, the support's size, the sort",
)
STRIDES = Cause(
    "strides not used",
    lambda claim, z, p: claim.exact(z),  # of z as memory has it
    "use the strides of the scores, or make them contiguous",
)
VALUE_CAUSES = (
    STRIDES,
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
    WHOLE,
    Cause("the maximum is not subtracted", lambda claim, z, p: _softmax(claim, z),
          "e^z overflows: subtract the maximum of the row first"),
    Cause("a constant in the sum", _constant, "the sum is at least 1 after the shift: add nothing"),
    Cause("rounded to a half type", _in_half, "keep exponentials and sums in float32"),
    *(Cause(f"scores after whole blocks of {n} left out", _without_tail(n),
            "the last block may be shorter; round their number up")
      for n in (4, 8, 16, 32, 64, 128)),
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
    Cause("zeros", lambda claim, z, p: 0 * claim.exact(z), "nothing was computed"),
    Cause("logarithms returned", lambda claim, z, p: np.log(claim.exact(z)), "exponentiate"),
    Cause("one score too many is kept", _other_k(1), "keep k; the k-th largest is the least kept"),
    Cause("one score too few is kept", _other_k(-1), "keep k; the k-th largest is the least kept"),
    Cause("softmax over all scores, of which k are kept",
          _kept(lambda z: _powers(z) / _sum(_powers(z))), "divide by the sum of those that stay"),
    Cause("sigmoids of the k scores", _kept(lambda z: 1 / (1 + np.exp(-z))),
          "softmax of the k scores"),
    Cause("the k scores themselves", _kept(lambda z: z), "softmax of the k scores"),
    Cause("a bracket too narrow", _narrow,
          "the threshold lies between max − 1 and max − d^{1−α} of (α − 1)z"),
    Cause("bisection stopped early", _stopped_early,
          "one bit a step: float32 needs some 24 steps, float64 53"),
    OFF,
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
    Cause("divided by the largest support of the batch", lambda p, v, s: s * (
        v - _sum(s * v) / np.max(_sum(s))), "Σsv/Σs is of each row: keepdims=True, no maximum"),
    Cause("the mean over all entries", lambda p, v, s: s * (v - np.mean(v, axis=-1, keepdims=True)),
          "the mean is over the support, weighted by s = p^{2−α}"),
    Cause("the sum over the support divided by the length of the row", lambda p, v, s: s * (
        v - np.mean(s * v, axis=-1, keepdims=True)), "Σsv/Σs: divide by the sum of the slopes"),
    Cause("the derivative of softmax", lambda p, v, s: _centred(p, v),
          "the slopes are p^{2−α}, not p"),
    Cause("the derivative of sparsemax", lambda p, v, s: _centred((p > 0) * 1.0, v),
          "the slopes are p^{2−α}, not 1"),
    Cause("v passed through", lambda p, v, s: v, "multiply by the Jacobian"),
    Cause("sign of the mean", lambda p, v, s: s * v - (_centred(s, v) - s * v),
          "subtract Σsv/Σs, do not add it"),
)  # fmt: skip
