"""Likely causes: one table of known faults, and what explains that a function fails.

A fault is what becomes of a case of attention, of the probabilities of rows, of the product with
their Jacobian, or of the losses and gradients of rows. It is named if what it gives agrees to
rounding with what the function gave, in all cases. A fault of attention's forward pass is one of
its backward pass, too: outputs are right then, and gradients are those of the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, combinations, product
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._attention import ALIGNMENTS, scale_of
from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import in_memory_order
from pyentmax.checking._loss import REDUCTIONS, losses, one_hot, reduction_of
from pyentmax.checking._rows import alpha_of, exact, in_family, slopes
from pyentmax.checking._subject import Subject
from pyentmax.checking._verdict import Case, Expected, PropertyResult, Seen
from pyentmax.reference.fenchel_young import fenchel_young_loss, fenchel_young_loss_and_grad
from pyentmax.reference.mappings import MAPPINGS

PAIRED_COST, N_PAIRS = 2e4, 1500  # entries of a case up to which two faults are tried at a time
ROUNDS = 2  # times the limit that a fault may be off by: it rounds otherwise than fn


class Fault(NamedTuple):
    """A known way of being wrong: its kind and name, what it changes, and what cures it."""

    kind: str
    name: str
    change: Callable[..., Any]
    cure: str

    def __str__(self) -> str:
        return f"{self.name}: {self.cure}"


# --- of attention: a change of the case -----------------------------------------------------------
def _with(needs: str = "query", **changes: Any) -> Callable[[Case], Case]:
    """Other entries, or functions of the case, if it has an entry of that name."""
    return lambda case: (
        case | {name: x(case) if callable(x) and name != "group" else x
                for name, x in changes.items()} if case.get(needs) is not None else case
    )  # fmt: skip


def _without(*names: str, given: str = "query", one: bool = False) -> Callable[[Case], Case]:
    """Without some entries, if there is one of that name, or of a single query."""
    return lambda case: (
        case if case.get(given) is None or (one and case["query"].shape[-2] > 1)
        else {k: x for k, x in case.items() if k not in names}
    )  # fmt: skip


def _one_query(**changes: Any) -> Callable[[Case], Case]:
    return lambda case: case | changes if case["query"].shape[-2] == 1 else case


def _part(names: Sequence[str], n: int, last: bool, axis: int = -2) -> Callable[[Case], Case]:
    """Gradients of the first or last block of n queries, or batches, alone."""

    def change(case: Case) -> Case:
        g = case["g"]
        size = g.shape[axis] if g.ndim >= -axis else 0
        at = np.arange(size) >= (size - 1) // n * n if last else np.arange(size) < n
        keep = at.reshape(-1, *[1] * (-1 - axis)) * 1.0
        return case | {"partial": case.get("partial", {}) | dict.fromkeys(names, keep)}

    return change


def _keys(n: int, last: bool) -> Callable[[Case], Case]:
    """The gradient of queries from one block of n keys alone."""

    def change(case: Case) -> Case:
        j, s = np.arange(case["key"].shape[-2]), case["key"].shape[-2]
        return case | {"keys_of_dquery": (j >= (s - 1) // n * n if last else j < n) * 1.0}

    return change


def _first(names: Sequence[str], axis: int, kind: str = "") -> Callable[[Case], Case]:
    """The first head's, or batch's, for all; of masks of one kind alone if it is given."""

    def change(case: Case) -> Case:
        if kind and case.get("kind") != kind:
            return case
        found = {name: case[name] for name in names if np.ndim(case.get(name, 0)) >= -axis}
        return case | {n: np.broadcast_to(np.take(x, [0], axis), x.shape) for n, x in found.items()}

    return change


def _scaled(name: str, power: float) -> Callable[[Case], Case]:
    return lambda c: c | {"factors": c.get("factors", {}) | {name: scale_of(c) ** power}}


OPTIONS = ("causal", "mask", "window", "sink", "softcap", "bias", "lengths", "scale", "slopes",
           "cu_seqlens", "offset")  # fmt: skip
BLOCKS = (16, 32, 64, 128)
D, ROOT, OWN = "d is the width of a key", "the scale is 1/√d, once", "each has its own"
ORDER, NEWEST = "scale, cap, bias, mask", "a single query is the newest: it sees all keys"
TOTAL, SAME = "add up what all blocks give", "hide the same keys as forwards"
SHARED = "neighbours share a head: repeat it, h // (H / H_kv)"
GROUP = "sum over the query heads that share a head of keys"


def _other_corner(case: Case) -> str:
    return ALIGNMENTS[case.get("alignment") != "top-left"]


def _narrowed(n: int, whole: bool = False) -> Callable[[Case], Case]:
    """Scores over n entries of the width, or over whole blocks of n."""

    def change(case: Case) -> Case:
        d = case["query"].shape[-1]
        used = np.arange(d) < (max(n, d // n * n) if whole else n)
        return case | {name: np.where(used, case[name], 0) for name in ("query", "key")}

    return change


ATTENTION: list[tuple[str, Callable[[Case], Case], str]] = [
    ("scores not scaled", _with(scale=1.0), "multiply by 1/√d, or by scale= if it is given"),
    ("scaled by 1/d", lambda c: {"scale": 1 / c["query"].shape[-1]} | c, ROOT),
    ("scaled by the values' width", lambda c: {"scale": c["value"].shape[-1] ** -0.5} | c, D),
    ("scaled by a width that is rounded up", lambda c: {
        "scale": (2.0 ** np.ceil(np.log2(c["query"].shape[-1]))) ** -0.5} | c, D),
    ("scaled by the width of all heads", lambda c: {
        "scale": (c["query"].shape[-1] * np.prod(c["query"].shape[-3:-2])) ** -0.5} | c, D),
    ("scaled twice", _with(scale=lambda c: scale_of(c) * c["query"].shape[-1] ** -0.5), ROOT),
    ("the scale squared", _with(scale=lambda c: scale_of(c) ** 2), ROOT),
    *((f"strides of {' and '.join(names)} not used", _with("layout", **{
        name: lambda c, name=name: in_memory_order(c[name], c["layout"]) for name in names}),
       "use the strides of every array, or make it contiguous")
      for names in (("query",), ("key",), ("value",), ("query", "key", "value"))),
    ("rows and columns confused", _with(axis=-2), "the mapping goes along the keys, axis=-1"),
    ("heads tiled", _with(tiled=True), SHARED),
    ("heads tiled if causal", _with("causal", tiled=True), SHARED),
    ("causal always", _with(causal=True), "without causal= a query sees all keys"),
    ("causal aligned at the other corner", _with("causal", alignment=_other_corner),
     "with T ≠ S say to which corner the mask belongs"),
    *(one for by in ("later", "diagonal_at") for one in (
        ("own key hidden", _with("causal", **{by: -1}), "a query sees its own key: j ≤ i"),
        ("next key seen", _with("causal", **{by: 1}), "a query sees no later key: j ≤ i"))),
    *((f"window too {how}", _with("window", window=lambda c, n=n: c["window"] + n),
       "a query sees the last w keys, its own with them") for how, n in (("narrow", -1),
                                                                         ("wide", 1))),
    ("half of the window", _with("window", window=lambda c: c["window"] // 2), "w keys, not w / 2"),
    ("window rounded up to blocks of 64", _with("window", window=lambda c: c["window"] if (
        c["window"] < 64) else -(-c["window"] // 64) * 64), "hide keys inside of a block, too"),
    ("window counted from the first key", _with("window", window_first=True),
     "with T < S the last query stands at the last key"),
    ("mask inverted", _with("mask", mask=lambda c: c["mask"] ^ (c["kind"] != "additive")),
     "True means that a key is seen"),
    *((f"the first {what}'s {name} for all", _first((name, *more), axis, kind), OWN)
      for name, more, kind in (("bias", (), ""), ("mask", ("graded",), ""), ("mask", (), "boolean"))
      for what, axis in (("head", -3), ("batch", -4))),
    ("the first head's sink for all", _first(["sink"], -1), OWN),
    ("the first sequence's lengths for all", _first(["lengths"], -1), OWN),
    ("masked after the mapping", _with(late=True),
     "hide keys in the scores: the weights have to sum to 1"),
    ("masked before the softcap", _with("softcap", mask_first=True), ORDER),
    ("finite entries of the mask hide", _with("graded", finite_hides=True), "−∞ alone hides"),
    ("mean of all values in rows that see nothing", _with(mean=True), "−1e9 is not −∞"),
    ("sink scaled", _with("sink", sink=lambda c: c["sink"] * scale_of(c)), "a sink is a score"),
    ("softcap after the bias", _with("softcap", bias_first=True), ORDER),
    ("softcap before the scale", _with("softcap", cap_first=True), ORDER),
    ("bias scaled", _with("bias", bias=lambda c: c["bias"] * scale_of(c)), ORDER),
    ("bias subtracted", _with("bias", bias=lambda c: -c["bias"]), "add the bias"),
    ("slopes with the sign reversed", _with("slopes", slopes=lambda c: -c["slopes"]),
     "−slope times the distance"),
    ("one key past the length seen", _with("lengths", longer=1), "j < length"),
    ("sequences mixed", _without("cu_seqlens"), "a query sees keys of its own sequence alone"),
    ("sequences begin one late", _with("cu_seqlens", cu_late=True), "they begin at cu_seqlens"),
    *((f"{one} ignored", _without(one, *(["graded"] if one == "mask" else ())), f"use {one}=")
      for one in OPTIONS if one != "cu_seqlens"),
    ("boolean masks ignored", lambda c: {k: x for k, x in c.items() if k != "mask"} if (
        c.get("kind") == "boolean") else c, "True means that a key is seen"),
    *((f"{one} ignored for one query", _without(one, one=True), "T = 1 is no exception")
      for one in OPTIONS),
    *((f"keys after whole blocks of {n} skipped", _with(skip=n), "the last block may be shorter")
      for n in (*BLOCKS, 80)),
    *((f"the block of {n} on the diagonal skipped", _with("causal", diagonal=n),
       "a query sees the keys of its own block up to itself") for n in BLOCKS),
    *((f"the {what} not rescaled, blocks of {n}", _with(blocks=(what, n)),
       "a new maximum rescales what was summed before it")
      for what in ("values", "sum") for n in BLOCKS),
    *((f"padding to blocks of {n} counted", _with(padded=n), "keys beyond S weigh nothing")
      for n in BLOCKS),
    *((f"{n} of the width alone", _narrowed(n), "sum over the whole width") for n in (64, 128)),
    ("the width cut to whole blocks of 16", _narrowed(16, True), "sum over the whole width"),
    ("zeros", _with(value=lambda c: 0 * c["value"]), "nothing was computed"),
    ("powers of 2", _with(times=np.log(2)), "2^x is e^(x ln 2): multiply by log₂ e"),
    ("heads and positions confused in the output", _with(reshaped=True), "first transpose"),
    ("one query stands at the first key", lambda c: {
        "offset": 0 if c["query"].shape[-2] == 1 else c["key"].shape[-2] - c["query"].shape[-2]} | c
     if c.get("alignment") != "top-left" else c, NEWEST),
    ("one query without the newest key", _one_query(diagonal_at=-1), NEWEST),
    *((f"{one} ignored where {other} is given", _without(one, given=other),
       "the two options go together")
      for one, other in product(OPTIONS[:7], repeat=2) if one != other),
    ("δ left out of the gradient", _with("gradients", no_delta=True),
     "the gradient of scores is p ∘ (g vᵀ − δ), δ = Σ g ∘ out"),
    *((f"d{name} {what}", _scaled(name, power), "multiply by the scale, once")
      for name in ("query", "key") for what, power in (("not scaled", -1), ("scaled twice", 1))),
    *((f"twice d{name}", _with("gradients", factors={name: 2.0}), "divide by 2")
      for name in ("query", "key", "value")),
    ("upstream gradient unused", _with("gradients", g=lambda c: np.ones_like(c["g"])),
     "multiply by it"),
    *((f"{name} of a group in dkey and dvalue", _with("gradients", group=share), GROUP)
      for name, share in (
        ("one head", lambda h: np.append(h[1:] != h[:-1], True) * 1.0),
        ("one head", lambda h: np.append(True, h[1:] != h[:-1]) * 1.0),
        ("the mean", lambda h: 1 / np.sum(h == h[:, None], axis=-1)))),
    *((f"dquery of the {('first', 'last')[last]} block of {n} alone", _keys(n, last), TOTAL)
      for n in BLOCKS for last in (False, True)),
    *((f"{' and '.join('d' + x for x in names)} of the {('first', 'last')[last]} block of {n} "
       "alone", _part(names, n, last), TOTAL)
      for names in (("key",), ("value",), ("key", "value"), ("sink",), ("bias",))
      for n in BLOCKS for last in (False, True)),
    *((f"d{name} of the first batch alone", _part([name], 1, False, -4), TOTAL)
      for name in ("query", "key", "value", "bias", "sink")),
    ("softcap without its slope in the gradient", _with("softcap", no_slope=True),
     "multiply by 1 − tanh²"),
    *((f"no gradient of the {name}", _with(name, factors={name: 0.0}),
       "its gradient is that of its scores, summed") for name in ("sink", "bias")),
    *((f"{name} missing backwards", _with(name, backward=lambda c, name=name: c.get(
        "backward", {}) | {name: None}), SAME)
      for name in ("causal", "window", "lengths", "mask", "cu_seqlens")),
    ("causal aligned at the other corner backwards", _with("causal", backward=lambda c: {
        "alignment": _other_corner(c)}), SAME),
]  # fmt: skip


# --- of mappings: what becomes of scores z (rows along the last axis), fn gave p ------------------
def _power(u: Subject) -> float:
    if alpha_of(u) == 1:
        raise ValueError("there is no threshold")
    return alpha_of(u) - 1


def _sum(x: Array) -> Array:
    return np.asarray(np.sum(x, axis=-1, keepdims=True))


def _powers(z: Array) -> Array:
    return np.asarray(np.exp(z - np.max(z, axis=-1, keepdims=True)))


def _named(name: str, scale: Callable[[float], float] = lambda _: 1.0) -> Any:
    return lambda u, z, p: MAPPINGS[name](scale(alpha_of(u)) * z)


def _closest(variants: Sequence[Array], p: Array) -> Array:
    return min(variants, key=lambda q: float(np.nan_to_num(np.max(np.abs(q - p)), nan=np.inf)))


def _at(u: Subject, z: Array, thresholds: Sequence[Array]) -> list[Array]:
    """The mapping with other thresholds, and divided by its sum then."""
    power = _power(u)
    x = power * (z - np.max(z, axis=-1, keepdims=True))
    powers = [np.maximum(x - tau, 0) ** (1 / power) for tau in thresholds]
    return [*powers, *(q / np.where(_sum(q) > 0, _sum(q), 1) for q in powers)]


def _stopped_early(u: Subject, z: Array, p: Array) -> Array:
    """With a threshold that bisection visits in its first 30 steps."""
    power, d, visited = _power(u), z.shape[-1], []
    for end in (d**-power, 1 / d, 0.0):
        low, high = np.full_like(z[..., :1], -1.0), np.full_like(z[..., :1], -end)
        for _ in range(30):
            middle = (low + high) / 2
            more = _sum(_at(u, z, [middle])[0]) >= 1
            low, high = np.where(more, middle, low), np.where(more, high, middle)
            visited += [middle, low, high]
    return _closest(_at(u, z, visited), p)


def _other_axis(u: Subject, z: Array, p: Array) -> Array:
    return _closest([np.moveaxis(exact(u, np.moveaxis(z, i, -1)), -1, i) for i in range(z.ndim)], p)


def _other_k(change: int) -> Any:
    def variant(u: Subject, z: Array, p: Array) -> Array:
        k = max(1, int(u.parameters["k"]) + change)
        result: Array = u.record(z, min(k, z.shape[-1]))
        return result

    return variant


def _gate(change: Callable[[Array], Any]) -> Any:
    """The fault of a router that gives ``change(z)`` to the k scores that it keeps."""
    return lambda u, z, p: np.where(exact(u, z) > 0, change(z), 0) if u.parameters["k"] else z


def _softmax(u: Subject, z: Array, top: Any = 0.0, more: float = 0.0) -> Array:
    if u.record.name != "softmax":
        raise ValueError("of softmax alone")
    e = np.exp(z - top)
    return np.asarray(e / (_sum(e) + more))


def _in_half(u: Subject, z: Array, p: Array) -> Array:
    def bfloat16(x: Array) -> Array:
        part, power = np.frexp(x)
        return np.asarray(np.ldexp(np.round(part * 2.0**8), power - 8))

    half = (bfloat16, lambda x: np.asarray(x).astype(np.float16).astype(np.float64))
    x, found = z - np.max(z, axis=-1, keepdims=True), [to(exact(u, z)) for to in half]
    if u.record.name == "softmax":
        powers = [one for to in half for e in [np.exp(to(x))] for one in (e, to(e), to(np.exp(x)))]
        found += [e / _sum(e) for e in powers]
    return _closest(found, p)


def _constant(u: Subject, z: Array, p: Array) -> Array:
    """Softmax with 10⁻⁴ to 10⁻¹² added to the sum, of shifted scores or as they are."""
    tops: Any = (np.max(z, axis=-1, keepdims=True), 0.0)
    return _closest([_softmax(u, z, top, 0.1**n) for top in tops for n in range(4, 13)], p)


def _temperature(u: Subject, z: Array, p: Array) -> Array:
    return _closest([exact(u, z * t) for t in (0.5, 2.0, 0.1, 10.0, z.shape[-1] ** -0.5)], p)


def _blocks(n: int, sums: bool) -> Any:
    def variant(u: Subject, z: Array, p: Array) -> Array:
        d = z.shape[-1]
        keep = np.arange(d) < max(d // n, d < n) * n
        if not sums:
            return exact(u, np.where(keep, z, -np.inf))
        return np.asarray(_powers(z) / _sum(_powers(z) * keep))

    return variant


VALUES: list[tuple[str, Any, str]] = [
    ("strides not used", lambda u, z, p: exact(u, z),  # of z as memory has it
     "use the strides of the scores, or make them contiguous"),
    ("another axis", _other_axis,
     "fn maps along an axis that is not always the last; make it with axis=-1 (dim=-1)"),
    ("the whole array as one row", lambda u, z, p: exact(u, z.reshape(-1)).reshape(z.shape),
     "fn takes the maximum or sum over all entries; keep the last axis (axis=-1, keepdims)"),
    ("scores not multiplied by α − 1", lambda u, z, p: exact(u, z / _power(u)),
     "the threshold is that of (α − 1)z: halve the scores at α = 1.5"),
    ("softmax(αz)", _named("softmax", float), "α is no temperature; p = [(α−1)z − τ]₊^{1/(α−1)}"),
    *((f"another mapping, {name}", _named(name), f"fn gives {name}(z)")
      for name in ("softmax", "sparsemax", "entmax15")),
    ("the maximum of the whole array", lambda u, z, p: _softmax(u, z, np.max(z)),
     "subtract the maximum of each row: axis=-1, keepdims=True"),
    ("the maximum is not subtracted", lambda u, z, p: _softmax(u, z),
     "e^z overflows: subtract the maximum of the row first"),
    ("a constant in the sum", _constant, "the sum is at least 1 after the shift: add nothing"),
    ("rounded to a half type", _in_half, "keep exponentials and sums in float32"),
    ("a temperature", _temperature, "the scores are those of temperature 1"),
    *((f"scores after whole blocks of {n} left out{words}", _blocks(n, sums),
       "the last block may be shorter; round their number up")
      for words, sums in (("", False), (" of the sum", True)) for n in (4, 8, 16, 32, 64, 128)),
    ("the 1 is not shifted", lambda u, z, p: _powers(z) / (1 + _sum(_powers(z))),
     "with the maximum m subtracted, the 1 of the denominator is e^{-m}"),
    ("the sum over the batch", lambda u, z, p: _powers(z) / np.sum(_powers(z)),
     "the sum goes along the row: axis=-1, keepdims=True"),
    ("clip and renormalise", lambda u, z, p: np.maximum(z, 0) / _sum(np.maximum(z, 0)),
     "max(z, 0) / Σ is no projection; subtract the threshold"),
    ("sorted order returned", lambda u, z, p: exact(u, -np.sort(-z, axis=-1)),
     "undo the sort, or use it for the threshold alone"),
    ("rising order returned", lambda u, z, p: exact(u, np.sort(z, axis=-1)),
     "undo the sort, or use it for the threshold alone"),
    ("negative scores clipped first", lambda u, z, p: exact(u, np.maximum(z, 0)),
     "scores below 0 count too; shift by the maximum instead"),
    ("absolute scores", lambda u, z, p: exact(u, np.abs(z)), "take the scores as they are"),
    ("negated scores", lambda u, z, p: exact(u, -z), "the largest score gets the most"),
    ("zeros", lambda u, z, p: 0 * exact(u, z), "nothing was computed"),
    ("logarithms returned", lambda u, z, p: np.log(exact(u, z)), "exponentiate"),
    ("one score too many is kept", _other_k(1), "keep k; the k-th largest is the least kept"),
    ("one score too few is kept", _other_k(-1), "keep k; the k-th largest is the least kept"),
    ("softmax over all scores, of which k are kept", _gate(lambda z: _powers(z) / _sum(_powers(z))),
     "divide by the sum of those that stay"),
    ("sigmoids of the k scores", _gate(lambda z: 1 / (1 + np.exp(-z))), "softmax of the k scores"),
    ("the k scores themselves", _gate(lambda z: z), "softmax of the k scores"),
    ("bisection stopped early", _stopped_early,
     "one bit a step: float32 needs some 24 steps, float64 53"),
]  # fmt: skip
BEYOND_COMPARED = ("the maximum of the whole array",)  # named for rows beside others, too


# --- of derivatives: p, v and the slopes s = p^{2−α} ----------------------------------------------
def _centred(s: Array, v: Array, axis: Any = -1) -> Array:
    total = np.sum(s, axis=axis, keepdims=True)
    result: Array = s * (v - np.sum(s * v, axis=axis, keepdims=True) / total)
    return result


PRODUCTS: list[tuple[str, Any, str]] = [
    ("τ taken as a constant", lambda p, v, s: s * v,
     "τ moves with the scores: subtract Σsv/Σs, s = p^{2−α}, or detach the bisection"),
    ("τ taken as a constant, then divided by the sum", lambda p, v, s: s * (v - _sum(p * v)),
     "do not differentiate through a bisection; use s(v − Σsv/Σs), s = p^{2−α}"),
    ("the mean over the batch", lambda p, v, s: _centred(s, v, None),
     "Σsv/Σs is a sum along the row: axis=-1, keepdims=True"),
    ("the mean over all batch rows", lambda p, v, s: s * (
        v - np.sum(s * v) / np.sum(s[..., :1] * 0 + 1) / _sum(s)),
     "Σsv/Σs is a sum along the row: axis=-1, keepdims=True"),
    ("divided by the largest support of the batch", lambda p, v, s: s * (
        v - _sum(s * v) / np.max(_sum(s))), "Σsv/Σs is of each row: keepdims=True, no maximum"),
    ("the mean over all entries", lambda p, v, s: s * (v - np.mean(v, axis=-1, keepdims=True)),
     "the mean is over the support, weighted by s = p^{2−α}"),
    ("the sum over the support divided by the length of the row", lambda p, v, s: s * (
        v - np.mean(s * v, axis=-1, keepdims=True)), "Σsv/Σs: divide by the sum of the slopes"),
    ("the derivative of softmax", lambda p, v, s: _centred(p, v),
     "the slopes are p^{2−α}, not p"),
    ("the derivative of sparsemax", lambda p, v, s: _centred((p > 0) * 1.0, v),
     "the slopes are p^{2−α}, not 1"),
    ("v passed through", lambda p, v, s: v, "multiply by the Jacobian"),
    ("sign of the mean", lambda p, v, s: s * v - (_centred(s, v) - s * v),
     "subtract Σsv/Σs, do not add it"),
]  # fmt: skip


# --- of losses: those of the rows -----------------------------------------------------------------
def _label(x: Array, y: Any) -> Array:
    return np.asarray(np.sum(x * one_hot(y, x.shape[-1]), axis=-1))


def _grad(u: Subject, z: Array, y: Any, **options: Any) -> Array:
    options = {"reduction": "none", **options, **u.parameters}
    return np.asarray(fenchel_young_loss_and_grad(z, y, u.record, **options)[1])


def _loss(change: Callable[[Any, Array], Any]) -> Any:
    return lambda u, z, y: change(losses(u, z, y), z)


def _one_vs_all(reduce: Any) -> Any:
    return lambda u, z, y: reduce(np.logaddexp(0, (1 - 2 * one_hot(y, z.shape[-1])) * z), axis=-1)


def _row_blocks(n: int) -> Any:
    """Losses of rows after whole blocks are 0."""
    return _loss(lambda loss, z: loss * (np.arange(len(loss)) < (len(loss) // n * n or len(loss))))


def _class_blocks(n: int) -> Any:
    def variant(u: Subject, z: Array, y: Any) -> Array:
        d = z.shape[-1]
        if not np.isfinite(z).all():
            raise ValueError("scores of −∞ say nothing about blocks")
        shown = np.where(np.arange(d) < (d // n * n or d), z, -np.inf)
        at = np.argmax(z * 0 + (shown > -np.inf) * (z - z.min() + 1), axis=-1)
        return losses(u, shown, at) + _label(z, at) - _label(z, y)  # of e_y − e_at, which cancels

    return variant


CONVENTION = "½‖p‖² is ½ at a label, ½(‖p‖² − 1) is 0: use one of them in all terms"
LOSSES: list[tuple[str, Any, str]] = [
    ("½p² without z·p", lambda u, z, y: losses(u, z, y) - np.sum(exact(u, z) * z, axis=-1),
     "Ω*(z) is p·z − Ω(p)"),
    ("−log p_y", lambda u, z, y: -np.log(_label(exact(u, z), y)),
     "infinite off the support; use Ω*(z) + Ω(y) − z_y"),
    *((f"log of p{words} {eps:g}", lambda u, z, y, at=at, eps=eps: -np.log(
        at(_label(exact(u, z), y), eps)), "use log_softmax: a constant hides large losses")
      for words, at in ((" +", np.add), (" clipped at", np.maximum))
      for eps in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12)),
    ("rows of label 0 ignored", lambda u, z, y: losses(u, z, y) * (np.asarray(y) != 0),
     "0 is a class; padding has a label of its own"),
    ("−p_y, without the logarithm", lambda u, z, y: -_label(exact(u, z), y),
     "NLL expects log-probabilities"),
    ("−z_y alone", lambda u, z, y: -_label(z, y), "NLL expects log-probabilities"),
    ("the mapping applied twice", lambda u, z, y: losses(u, exact(u, z), y),
     "the loss takes scores, not probabilities"),
    ("1 − p_y", lambda u, z, y: 1 - _label(exact(u, z), y), "use Ω*(z) + Ω(y) − z_y"),
    *((f"focal, γ = {gamma}", lambda u, z, y, gamma=gamma: losses(u, z, y) * (
        1 - _label(exact(u, z), y)) ** gamma, "do not weigh the loss by (1 − p_y)^γ")
      for gamma in (1, 2)),
    *((f"one against all{words}", _one_vs_all(reduce),
       "a binary loss for each class is another loss")
      for words, reduce in (("", np.sum), (", averaged", np.mean))),
    *((name, lambda u, z, y, how=how, factor=factor: factor * how(_grad(u, z, y) ** 2, axis=-1),
       "the squared error of probabilities is another loss")
      for name, how, factor in (("‖p − y‖²", np.sum, 1), ("½‖p − y‖²", np.sum, 0.5),
                                ("‖p − y‖², averaged", np.mean, 1))),
    ("labels smoothed by 0.1", lambda u, z, y: losses(u, z, y) + 0.1 * (
        _label(z, y) - z.mean(-1)), "set the smoothing to 0"),
    *((name, _loss(change), cure) for name, change, cure in (
        ("shift not taken out", lambda loss, z: loss - np.max(z, axis=-1),
         "subtract the maximum from z_y too, or add it to Ω*(z)"),
        ("shift taken out twice", lambda loss, z: loss + np.max(z, axis=-1),
         "subtract the maximum from z_y too, or add it to Ω*(z) once"),
        ("Ω(y) of another convention", lambda loss, z: loss + 0.5, CONVENTION),
        ("Ω(y) left out", lambda loss, z: loss - 0.5, CONVENTION),
        ("half of the loss", lambda loss, z: loss / 2, "multiply by 2"),
        ("twice the loss", lambda loss, z: 2 * loss, "divide by 2"),
        ("the logarithm to base 2", lambda loss, z: loss / np.log(2), "use log"),
        ("negated", lambda loss, z: -loss, "the loss is at least 0"),
        ("the mean over the wrong count", lambda loss, z: loss / z.shape[-1],
         "the mean divides by the number of rows, not by that of the entries"),
        ("another axis", lambda loss, z: None if len(z) > 1 else 0 * loss,
         "a batch of one row has no loss along the first axis; rows lie along the last"))),
    *((f"the loss of {name}",
       lambda u, z, y, name=name: fenchel_young_loss(z, y, name, reduction="none"),
       f"fn gives the loss of {name}") for name in ("softmax", "sparsemax", "entmax15")),
    *((f"rows after whole blocks of {n} left out", _row_blocks(n), "the last block may be shorter")
      for n in (4, 8, 16, 32, 64)),
    *((f"classes after whole blocks of {n} left out", _class_blocks(n),
       "the last block may be shorter") for n in (32, 64, 128, 256, 512, 1024)),
]  # fmt: skip
LOSS_GRADIENTS: list[tuple[str, Any, str]] = [  # of the right g of each row, p, upstream v, rows n
    ("p without − y", lambda g, p, v, n: p * v / n, "subtract 1 at the label"),
    ("y − p", lambda g, p, v, n: -g * v / n, "the gradient is p − y"),
    ("upstream gradient unused", lambda g, p, v, n: g / n, "multiply by it"),
    ("the first row's upstream gradient for all", lambda g, p, v, n: g * np.ravel(v)[0] / n,
     "each row has its own"),
    ("not divided by the number of rows", lambda g, p, v, n: g * v,
     "the gradient of a mean has 1 / rows"),
    ("divided by the number of rows", lambda g, p, v, n: g * v / len(g),
     "a sum is not divided by the rows"),
    ("divided by the number of rows twice", lambda g, p, v, n: g * v / n**2, "divide once"),
    ("twice the gradient", lambda g, p, v, n: 2 * g * v / n, "divide by 2"),
    ("half of the gradient", lambda g, p, v, n: g * v / n / 2, "multiply by 2"),
    ("no gradient", lambda g, p, v, n: 0 * g, "the result does not depend on the scores"),
]  # fmt: skip
FAULTS = [
    Fault(kind, *one)
    for kind, rows in (("attention", ATTENTION), ("values", VALUES), ("products", PRODUCTS),
                       ("losses", LOSSES), ("loss gradients", LOSS_GRADIENTS))
    for one in rows
]  # fmt: skip
KINDS = {  # of a function: faults of values, and of gradients
    "attention": ("attention", "attention"), "mapping": ("values", "products"),
    "loss": ("losses", "loss gradients"),
}  # fmt: skip


# --- what a fault gives ---------------------------------------------------------------------------
def predict(u: Subject, faults: Sequence[Fault], case: Case, observed: dict[str, Any],
            backwards: bool) -> dict[str, Expected] | None:  # fmt: skip
    """Results of a case under these faults; None if they predict nothing for it."""
    one = faults[0]
    if one.kind == "attention":
        changed = case
        for fault in faults:
            changed = fault.change(changed)
        return u.expect(case, lambda _: changed, backwards)
    if one.kind in ("values", "products"):
        return _of_rows(u, one, case, observed)
    z, y, right = case["z"], case["y"], u.expect(case)
    if {"ignore_index", "mask", "label_smoothing"} & {*case} or case.get("soft"):
        return None
    how = reduction_of(u, case)
    if one.kind == "losses":
        rows = one.change(u, z, y)
        loss = None if rows is None else np.asarray(REDUCTIONS[how](rows))
        return None if loss is None else {"loss": Expected(loss, right["loss"].allowed)}
    v = case["g"][..., None] if np.ndim(case["g"]) else case["g"]
    g = one.change(_grad(u, z, y), exact(u, z), v, len(z) if how == "mean" else 1)
    return {"gradient": Expected(g, right["gradient"].allowed)}


def _of_rows(u: Subject, one: Fault, case: Case, observed: Any) -> dict[str, Expected] | None:
    z, unit = case["z"], 8 * u.epsilon
    compared = "compare" in case and one.name not in BEYOND_COMPARED
    if case["axis"] != -1 or compared or not 0 < z.size <= 5000:
        return None
    if one.kind == "products":
        if not in_family(u):
            return {}
        p = exact(u, z)
        value = one.change(p, case["g"], slopes(p, alpha_of(u)))
        return {"Jᵀv": Expected(value, unit * max(1, np.max(np.abs(value))))}
    if one.name == "strides not used":
        z = in_memory_order(z, case.get("layout", ""))
    p = np.asarray(one.change(u, z, observed["p"]))[: case.get("compare")]
    return {
        "p": Expected(p, unit * max(1, np.nanmax(np.abs(p), initial=0))),
        "sum": Expected(np.sum(p, axis=-1), 4 * unit * z.shape[-1]),
    }


def _agrees(observed: Array, predicted: Expected, limit: float) -> bool:
    value, allowed, _ = predicted
    if np.shape(observed) != np.shape(value):
        return False
    both = np.isnan(observed) & np.isnan(value)
    near = np.abs(np.subtract(observed, value)) <= limit * allowed
    return bool(np.all(near | both | (observed == value)))


def _is_right(right: dict[str, Expected], predicted: Any, names: Any, limit: float) -> bool:
    return all(_agrees(one.value, right[name], limit)
               for name, one in predicted.items() if name in names)  # fmt: skip


class _Evidence(NamedTuple):
    """A case, what fn gave, what is right, and whether that agrees."""

    case: Case
    observed: dict[str, Array]
    expected: dict[str, Expected]
    fine: bool


def _explains(u: Subject, faults: Sequence[Fault], one: _Evidence, backwards: bool) -> bool | None:
    """Whether faults give what was seen; None if they say nothing about the case.

    What is right for a case that fails explains nothing, however near it is.
    """
    with suppress(ValueError, KeyError, ZeroDivisionError, NotImplementedError, IndexError):
        predicted = predict(u, faults, one.case, one.observed, backwards)
        if predicted is None:
            return None
        if not one.fine and _is_right(one.expected, predicted, one.observed, u.limit):
            return False
        for name, x in one.observed.items():
            if name not in predicted:
                return False
            sizes = (np.nanmax(np.abs(y), initial=1e-300) for y in (
                predicted[name].value, one.expected[name].value))  # fmt: skip
            larger = max(1.0, float(np.divide(*sizes)))  # a larger result has more rounding
            if not _agrees(x, predicted[name], u.limit * ROUNDS * larger):
                return False
        return True
    return False


def _changing(u: Subject, faults: Sequence[Fault], one: _Evidence, backwards: bool) -> set[int]:
    """Indices of the faults whose predicted result is not right for a case."""
    found = set()
    for i, fault in enumerate(faults):
        with suppress(ValueError, KeyError, ZeroDivisionError, NotImplementedError, IndexError):
            predicted = predict(u, [fault], one.case, one.observed, backwards)
            if predicted and not _is_right(one.expected, predicted, one.observed, u.limit):
                found.add(i)
    return found


def explain(subjects: Sequence[Subject], seen: dict[str, list[Seen]],
            results: Sequence[PropertyResult], properties: Sequence[Any],
            raised: Sequence[str]) -> tuple[tuple[str, ...], str]:  # fmt: skip
    """Causes of a function's failures, and a note if none explains them."""
    own = {one.name: one.cause for one in properties}
    grades = {one.name: max((one.grade, *one.grades.values()), key=_RANK.index) for one in results}
    bad = {name for name, grade in grades.items() if grade in ("wrong", "imprecise")}
    edges = not bad
    bad = bad or {name for name, grade in grades.items() if grade == "edges"}
    if not bad:
        return (), ""
    if raised:
        return tuple(dict.fromkeys(raised)), ""
    if "a second call" in bad:
        return (own["a second call"],), ""
    if all(own[name] for name in bad):
        return (next(own[name] for name in own if name in bad),), ""
    kept = tuple(own[name] for name in STATE if name in bad)[:1]
    for u in subjects:
        for backwards in (False, True):
            evidence = [*_evidence(u, seen.get(u.dtype, ()), backwards, edges)]
            if evidence and not all(one.fine for one in evidence):
                found = _table(u, evidence, backwards, edges) or (
                    () if edges else _place(evidence))  # fmt: skip
                if found:
                    return found, ""
                if kept:
                    return kept, ""
                n = sum(one.kind in KINDS[u.operator.kind] for one in FAULTS)
                return (), "" if edges else f"none of the {n} known faults explains what fails"
    return kept, ""


# Which spoil other properties, too.
STATE = ("arrays read anew", "a second backward pass", "inputs left as they were")
_RANK = ("not applicable", "right", "edges", "imprecise", "wrong")


def _evidence(u: Subject, seen: Any, backwards: bool, edges: bool) -> Iterator[_Evidence]:
    """Values, or gradients; failures at edges only if there are no others."""
    values = {u.operator.result, "sum"}
    for one in sorted(seen, key=lambda one: one.case.get("cost", 0.0)):
        graded = {n: g for n, g in one.grades.items() if (n in values) != backwards}
        if graded and (edges or "edges" not in graded.values()):
            observed = {n: one.observed[n] for n in graded if n in one.observed}
            fine = all(g == "right" for g in graded.values())
            yield _Evidence(one.case, observed, one.expected, fine)


def _table(u: Subject, evidence: list[_Evidence], backwards: bool, edges: bool) -> tuple[str, ...]:
    """The fault of the table, or of attention the two, that explain all evidence."""
    known = [one for one in FAULTS if one.kind == KINDS[u.operator.kind][backwards]]
    failing = [one for one in evidence if not one.fine]
    order = [*failing, *(one for one in evidence if one.fine)]
    small = [one for one in failing if one.case.get("cost", 0.0) <= PAIRED_COST][:12]
    pairs: Any = ()
    if u.operator.kind == "attention" and small and not edges:
        first = _changing(u, known, small[0], backwards)
        able = sorted(first.union(*(_changing(u, known, one, backwards) for one in small[1:4])))
        both = (two for two in combinations(able, 2) if first & {*two})
        pairs = ([known[i] for i in two] for _, two in zip(range(N_PAIRS), both, strict=False))
    for faults in chain(([one] for one in known), pairs):
        explained = False
        for one in order:
            says = _explains(u, faults, one, backwards)
            if says is False:
                break
            explained |= says is True and not one.fine
        else:
            if explained:
                return tuple(map(str, faults))
    return ()


def _place(evidence: list[_Evidence]) -> tuple[str, ...]:
    """Sizes from a least one on, options, or both, at which alone a function fails."""

    def about(case: Case) -> dict[str, float]:
        if "query" not in case:
            return {"the length of rows": case["z"].shape[-1], "the number of rows": max(
                1, case["z"].size // case["z"].shape[-1])}  # fmt: skip
        (*batch, t, d), s = case["query"].shape, case["key"].shape[-2]
        sizes = dict(zip(("H", "B"), batch[::-1], strict=False))
        return {"T": t, "S": s, "d": d, **sizes, "window": case.get("window") or 0}

    def options(case: Case) -> set[str]:
        return {name for name in OPTIONS if not any(case.get(name) is x for x in (None, False))}

    failing = [one.case for one in evidence if not one.fine]
    together = set.intersection(*(options(case) for case in failing))
    fine = [one.case for one in evidence if one.fine and together <= options(one.case)]
    words = " and ".join(sorted(together))
    for name in about(failing[0]):
        bad, good = ([about(case)[name] for case in cases if name in about(case)]
                     for cases in (failing, fine))  # fmt: skip
        least = 2 if name in "BH" else 4  # that smaller cases are right says little
        if good and least <= max(good) < min(bad):
            where = f"{name} from {min(bad):g} on ({max(good):g} is right)"
        elif good and min(good) > max(bad) and max(bad) > 0:
            where = f"{name} {'=' if min(bad) == max(bad) else 'up to'} {max(bad):g}"
        else:
            continue
        with_options = f"{words} and " if words else ""
        return (f"fails only with {with_options}{where}: look at what depends on it",)
    if len(together) > 1 and not fine:
        return (f"fails only with {words} together: look at what depends on both",)
    return ()
