"""Likely causes: one table of known faults, and what explains that a function fails.

A fault is what becomes of a case of attention, of the probabilities of rows, of the product with
their Jacobian, or of the losses and gradients of rows. It is named if what it gives agrees to
rounding with what the function gave, in all cases. A fault of attention's forward pass is one of
its backward pass, too: outputs are right then, and gradients are those of the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations, islice, product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from pyentmax.checking._attention import ALIGNMENTS, scale_of
from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import in_memory_order
from pyentmax.checking._loss import IGNORED, REDUCTIONS, SMOOTHING, losses, one_hot, reduction_of
from pyentmax.checking._rows import alpha_of, exact, in_family, slopes
from pyentmax.checking._subject import Subject
from pyentmax.checking._verdict import Case, Expected, PropertyResult, Seen, worst
from pyentmax.reference.fenchel_young import fenchel_young_loss, fenchel_young_loss_and_grad
from pyentmax.reference.mappings import MAPPINGS

PAIRED_COST, N_PAIRS = 2e4, 1500  # entries of a case up to which two faults are tried at a time
ROUNDS = 2  # times the limit that a fault may be off by: it rounds otherwise than fn
UNEXPLAINED = (ValueError, KeyError, ZeroDivisionError, NotImplementedError, IndexError)
Row = tuple[str, Callable[..., Any]]  # a fault's words, and what it changes


# --- of attention: a change of the case -----------------------------------------------------------
OPTIONS = ("causal", "mask", "window", "sink", "softcap", "bias", "lengths", "scale", "slopes",
           "cu_seqlens", "offset")  # fmt: skip
ENDS, BLOCKS = (("first", False), ("last", True)), (16, 32, 64, 128)
ROOT, ORDER, OWN = "the scale is 1/√d, once", "scale, cap, bias, mask", "each has its own"
WINDOW, WHOLE = "the last w keys, a query's own with them", "the last block may be shorter"
TOTAL, LAST = "add up what all blocks give", "axis=-1, keepdims=True"
CONVENTION = "½‖p‖² is ½ at a label, ½(‖p‖² − 1) is 0: use one"
Table = dict[str, Callable[..., Any]]  # the name of a fault, and what cures it → what it changes


def to(needs: str = "query", **changes: Any) -> Callable[[Case], Case]:
    """Other entries, or functions of the case, if it has an entry of that name."""
    return lambda c: c | {name: x(c) if callable(x) else x for name, x in changes.items()} if (
        c.get(needs) is not None) else c  # fmt: skip


def without(*names: str, given: str = "query") -> Callable[[Case], Case]:
    """Without some entries, if there is one of that name."""
    return lambda c: c if c.get(given) is None else Case(
        {name: x for name, x in c.items() if name not in names})  # fmt: skip


def of_one(change: Callable[[Case], Case]) -> Callable[[Case], Case]:
    """A change of cases with a single query."""
    return lambda c: change(c) if c.query.shape[-2] == 1 else c


def _block(size: int, n: int, last: bool) -> Array:
    """1 in the first or last block of n, 0 elsewhere."""
    at = np.arange(size)
    return (at >= (size - 1) // n * n if last else at < n) * 1.0


def _part(names: Sequence[str], n: int, last: bool, axis: int = -2) -> Callable[[Case], Case]:
    """Gradients of the first or last block of n queries, or batches, alone."""

    def change(c: Case) -> Case:
        keep = _block(c.g.shape[axis] if c.g.ndim >= -axis else 0, n, last)
        keep = keep.reshape(-1, *[1] * (-1 - axis))
        return c | {"partial": (c.partial or {}) | dict.fromkeys(names, keep)}

    return change


def _first(names: Sequence[str], axis: int, kind: str = "") -> Callable[[Case], Case]:
    """The first head's, or batch's, for all; of masks of one kind alone if it is given."""
    return lambda c: c | {
        name: np.broadcast_to(np.take(c[name], [0], axis), c[name].shape) for name in names
        if np.ndim(c.get(name, 0)) >= -axis and kind in ("", c.kind)}  # fmt: skip


def _times(name: str, power: float = 0.0, factor: float = 1.0) -> Callable[[Case], Case]:
    """A gradient multiplied by a power of the scale, or a factor."""
    return lambda c: c | {"factors": (c.factors or {}) | {name: factor * scale_of(c) ** power}}


def _narrowed(n: int, whole: bool = False) -> Callable[[Case], Case]:
    """Scores over n entries of the width, or over whole blocks of n."""
    return lambda c: c | {name: np.where(np.arange(d := c[name].shape[-1]) < (
        max(n, d // n * n) if whole else n), c[name], 0) for name in ("query", "key")}  # fmt: skip


def _other_corner(c: Case) -> str:
    return ALIGNMENTS[c.alignment != "top-left"]


ATTENTION: Table = {
    "scores not scaled: multiply by 1/√d, or by scale= if it is given": to(scale=1.0),
    **{f"scaled by {words}: {ROOT}": to(scale=lambda c, f=f: c.get("scale", f(
        c, c.query.shape[-1]))) for words, f in (
            ("1/d", lambda c, d: 1 / d),
            ("the values' width", lambda c, _: c.value.shape[-1] ** -0.5),
            ("a width that is rounded up", lambda c, d: 2 ** (-0.5 * np.ceil(np.log2(d)))),
            ("the width of all heads", lambda c, d: (d * np.prod(c.query.shape[-3:-2])) ** -0.5))},
    f"scaled twice: {ROOT}": to(scale=lambda c: scale_of(c) * c.query.shape[-1] ** -0.5),
    f"the scale squared: {ROOT}": to(scale=lambda c: scale_of(c) ** 2),
    **{f"strides of {' and '.join(names)} not used: make the arrays contiguous": to("layout", **{
        name: lambda c, name=name: in_memory_order(c[name], c.layout) for name in names})
       for names in (("query",), ("key",), ("value",), ("query", "key", "value"))},
    "rows and columns confused: the mapping goes along the keys, axis=-1": to(axis=-2),
    "heads tiled: repeat a head, h // (H / H_kv)": to(tiled=True),
    "heads tiled if causal: repeat a head, h // (H / H_kv)": to("causal", tiled=True),
    "causal always: without causal= a query sees all keys": to(causal=True),
    "causal aligned at the other corner: with T ≠ S say to which corner the mask belongs": to(
        "causal", alignment=_other_corner),
    **{f"own key hidden{words}: a query sees it, j ≤ i": to("causal", diagonal_at=-1, mean=mean)
       for words, mean in (("", False), (", a row of none is the mean", True))},
    "next key seen: a query sees no later key, j ≤ i": to("causal", diagonal_at=1),
    **{f"{words}: {WINDOW}": to("window", window=lambda c, f=f: f(c.window)) for words, f in (
        ("window too narrow", lambda w: w - 1), ("window too wide", lambda w: w + 1),
        ("half of the window", lambda w: w // 2),
        ("window rounded up to blocks of 64", lambda w: w if w < 64 else -(-w // 64) * 64))},
    f"window counted from the first key: {WINDOW}": to("window", window_first=True),
    "mask inverted: True means that a key is seen": to(
        "mask", mask=lambda c: c.mask ^ (c.kind != "additive")),
    "a boolean mask added: True means that a key is seen": to(
        "mask", added=lambda c: c.kind == "boolean"),
    **{f"the first {what}'s {kind}{name} for all: {OWN}": _first((name, "graded"), axis, kind[:-1])
       for name, kind in (("bias", ""), ("mask", ""), ("mask", "boolean "))
       for what, axis in (("head", -3), ("batch", -4))},
    f"the first head's sink for all: {OWN}": _first(["sink"], -1),
    f"the first sequence's lengths for all: {OWN}": _first(["lengths"], -1),
    "masked after the mapping: the weights of what is seen have to sum to 1": to(late=True),
    **{f"the scores of hidden keys are {x:g}: −∞, or −1e9": to(hides=x) for x in (0, 1e-9)},
    f"masked before the softcap: {ORDER}": to("softcap", mask_first=True),
    f"softcap after the bias: {ORDER}": to("softcap", bias_first=True),
    f"softcap before the scale: {ORDER}": to("softcap", cap_first=True),
    f"bias scaled: {ORDER}": to("bias", bias=lambda c: c.bias * scale_of(c)),
    "bias subtracted: add it": to("bias", bias=lambda c: -c.bias),
    "finite entries of the mask hide: −∞ alone hides": to("graded", finite_hides=True),
    "mean of all values in rows that see nothing: −1e9 is not −∞": to(mean=True),
    "sink scaled: a sink is a score": to("sink", sink=lambda c: c.sink * scale_of(c)),
    "slopes with the sign reversed: −slope times the distance": to(
        "slopes", slopes=lambda c: -c.slopes),
    "one key past the length seen: j < length": to("lengths", longer=1),
    "sequences mixed: a query sees keys of its own sequence alone": without("cu_seqlens"),
    "a sequence sees those before it: it sees itself alone": to("cu_seqlens", cu_before=True),
    "sequences begin one late: they begin at cu_seqlens": to("cu_seqlens", cu_late=True),
    **{f"{one} ignored: use {one}=": without(one, *["graded"] * (one == "mask"))
       for one in OPTIONS if one != "cu_seqlens"},
    "boolean masks ignored: True means that a key is seen": lambda c: (
        without("mask")(c) if c.kind == "boolean" else c),
    **{f"{one} ignored for one query: T = 1 is no exception": of_one(without(one))
       for one in OPTIONS},
    **{f"keys after whole blocks of {n} skipped: {WHOLE}": to(skip=n) for n in (*BLOCKS, 80)},
    **{f"the block of {n} on the diagonal skipped: a query sees its own block": to(
        "causal", diagonal=n) for n in BLOCKS},
    **{f"the {what} not rescaled, blocks of {n}: a new maximum rescales what was summed": to(
        blocks=(what, n)) for what in ("values", "sum") for n in BLOCKS},
    **{f"padding to blocks of {n} counted: keys beyond S weigh nothing": to(padded=n)
       for n in BLOCKS},
    **{f"{n} of the width alone: sum over all of it": _narrowed(n) for n in (64, 128)},
    "the width cut to whole blocks of 16: sum over all of it": _narrowed(16, True),
    "zeros: nothing was computed": to(value=lambda c: 0 * c.value),
    "powers of 2: 2^x is e^(x ln 2), multiply by log₂ e": to(times=np.log(2)),
    "heads and positions confused in the output: first transpose": to(reshaped=True),
    "one query stands at the first key: it is the newest, and sees all keys": of_one(
        lambda c: c if c.alignment == ALIGNMENTS[1] else Case({"offset": 0}) | c),
    "one query without the newest key: it sees all keys": of_one(to(diagonal_at=-1)),
    **{f"{one} ignored where {other} is given: the two go together": without(one, given=other)
       for one, other in product(OPTIONS[:7], repeat=2) if one != other},
}  # fmt: skip
BACKWARDS: Table = {  # gradients alone, and every fault of the forward pass
    "δ left out of the gradient: that of scores is p ∘ (g vᵀ − δ), δ = Σ g ∘ out": to(
        "gradients", no_delta=True),
    **{f"d{name} {what}: multiply by the scale, once": _times(name, power)
       for name in ("query", "key") for what, power in (("not scaled", -1), ("scaled twice", 1))},
    **{f"twice d{name}: divide by 2": _times(name, factor=2.0)
       for name in ("query", "key", "value")},
    "upstream gradient unused: multiply by it": to("gradients", g=lambda c: np.ones_like(c.g)),
    **{f"{name}: sum over the heads that share them": to(
        "gradients", group=lambda c, share=share: share) for name, share in (
            ("one head of a group in dkey and dvalue, the last",
             lambda h: np.append(h[1:] != h[:-1], True) * 1.0),
            ("one head of a group in dkey and dvalue, the first",
             lambda h: np.append(True, h[1:] != h[:-1]) * 1.0),
            ("the mean of a group in dkey and dvalue",
             lambda h: 1 / np.sum(h == h[:, None], axis=-1)))},
    **{f"dquery of the {end} block of {n} alone: {TOTAL}": to(keys_of_dquery=lambda c, n=n, x=x: (
        _block(c.key.shape[-2], n, x))) for n in BLOCKS for end, x in ENDS},
    **{f"{' and '.join('d' + x for x in names)} of the {end} block of {n} alone: {TOTAL}": _part(
        names, n, last) for n in BLOCKS for end, last in ENDS
       for names in (("key",), ("value",), ("key", "value"), ("sink",), ("bias",))},
    **{f"d{name} of the first batch alone: {TOTAL}": _part([name], 1, False, -4)
       for name in ("query", "key", "value", "bias", "sink")},
    "softcap without its slope in the gradient: multiply by 1 − tanh²": to(
        "softcap", no_slope=True),
    **{f"no gradient of the {name}: it is that of its scores, summed": _times(name, factor=0.0)
       for name in ("sink", "bias")},
    **{f"{name} missing backwards: hide the same keys as forwards": to(
        name, backward=lambda c, name=name: {**(c.backward or {}), name: None})
       for name in ("causal", "window", "lengths", "mask", "cu_seqlens")},
    "causal aligned at the other corner backwards: hide the same keys as forwards": to(
        "causal", backward=lambda c: {"alignment": _other_corner(c)}),
    **{words.replace(":", " in the backward pass:", 1): x for words, x in ATTENTION.items()},
}  # fmt: skip


# --- of mappings: what becomes of scores z (rows along the last axis), fn gave p ------------------
def _sum(x: Array, axis: Any = -1) -> Array:
    return np.asarray(np.sum(x, axis=axis, keepdims=True))


def _powers(z: Array) -> Array:
    return np.asarray(np.exp(z - np.max(z, axis=-1, keepdims=True)))


def _over_sum(x: Array) -> Array:
    return np.asarray(x / np.where(_sum(x) > 0, _sum(x), 1))


def _only(x: Any, name: str) -> None:
    if x.u.record.name != name:
        raise ValueError(f"of {name} alone")


def _power(x: Any) -> float:
    if alpha_of(x.u) == 1:
        raise ValueError("there is no threshold")
    return alpha_of(x.u) - 1


def _closest(variants: Any) -> Callable[..., Array]:
    """Of several variants the one that is closest to what fn gave."""
    return lambda x: min(variants(x), key=lambda q: float(
        np.nan_to_num(np.max(np.abs(q - x.gave)), nan=np.inf)))  # fmt: skip


def _stopped_early(x: Any) -> Iterator[Array]:
    """With the thresholds of the first 30 steps of a bisection."""
    power = _power(x)
    y = power * (x.z - np.max(x.z, axis=-1, keepdims=True))
    low, high = np.full_like(y[..., :1], -1.0), np.full_like(y[..., :1], -(x.d**-power))
    for _ in range(30):
        middle = (low + high) / 2
        more = _sum(np.maximum(y - middle, 0) ** (1 / power)) >= 1
        low, high = np.where(more, middle, low), np.where(more, high, middle)
        powers = [np.maximum(y - tau, 0) ** (1 / power) for tau in (low, middle, high)]
        yield from (*powers, *map(_over_sum, powers))


def _softmax(x: Any, top: Any = 0.0, more: float = 0.0) -> Array:
    _only(x, "softmax")
    e = np.exp(x.z - top)
    return np.asarray(e / (_sum(e) + more))


def _bfloat16(x: Array) -> Array:
    part, power = np.frexp(x)
    return np.asarray(np.ldexp(np.round(part * 2.0**8), power - 8))


def _in_half(x: Any) -> list[Array]:
    half = (_bfloat16, lambda q: np.asarray(q).astype(np.float16).astype(np.float64))
    soft = [_over_sum(to_half(x.e)) for to_half in half if x.u.record.name == "softmax"]
    return [to_half(x.p) for to_half in half] + soft


def _constant(x: Any) -> list[Array]:
    tops = (np.max(x.z, axis=-1, keepdims=True), np.zeros(1))
    return [_softmax(x, top, 0.1**n) for top in tops for n in range(4, 13)]


def _sparse(x: Any, sign: int = -1, batch: bool = False) -> Array:
    """Sparsemax by sorting, with another order, or one size of the support."""
    _only(x, "sparsemax")
    falling = sign * np.sort(sign * x.z)
    sums = np.cumsum(falling, axis=-1) - 1
    size = np.maximum(_sum(np.arange(1, x.d + 1) * falling > sums), 1)
    size = size * 0 + max(1, np.sum(size) // size.size) if batch else size
    return np.asarray(np.maximum(x.z - np.take_along_axis(sums, size - 1, -1) / size, 0))


def _blocks(x: Any, n: int, sums: bool) -> Any:
    """Whole blocks of n scores alone, in the sum or throughout."""
    keep = np.arange(x.d) < max(x.d // n, x.d < n) * n
    return x.e / _sum(x.e * keep) if sums else x.f(np.where(keep, x.z, -np.inf))


VALUES: Table = {
    "strides not used: make the scores contiguous": lambda x: x.f(x.memory),
    "another axis: fn maps along one that is not always the last, axis=-1 (dim=-1)": _closest(
        lambda x: [np.moveaxis(x.f(np.moveaxis(x.z, i, -1)), -1, i) for i in range(x.z.ndim)]),
    f"the whole array as one row: {LAST}": lambda x: x.f(x.z.ravel()).reshape(x.z.shape),
    "scores not multiplied by α − 1: halve them at 1.5": lambda x: x.f(x.z / _power(x)),
    "softmax(αz): α is no temperature": lambda x: MAPPINGS["softmax"](x.z + _power(x) * x.z),
    **{f"another mapping, {name}: fn gives it": lambda x, name=name: MAPPINGS[name](x.z)
       for name in ("softmax", "sparsemax", "entmax15")},
    f"the maximum of the whole array: {LAST}": lambda x: _softmax(x, np.max(x.z)),
    "the maximum is not subtracted: e^z overflows": lambda x: _softmax(x),
    "a constant in the sum: it is at least 1 after the shift, add nothing": _closest(_constant),
    "rounded to a half type: keep exponentials and sums in float32": _closest(_in_half),
    "a temperature: the scores are those of temperature 1": _closest(lambda x: [
        x.f(x.z * t) for t in (0.5, 2.0, 0.1, 10.0, x.z.shape[-1] ** -0.5)]),
    **{f"scores after whole blocks of {n} left out{words}: {WHOLE}": partial(
        _blocks, n=n, sums=sums) for words, sums in (("", False), (" of the sum", True))
       for n in (4, 8, *BLOCKS)},
    "the 1 is not shifted: it is e^{-m} then": lambda x: x.e / (1 + _sum(x.e)),
    f"the sum over the batch: {LAST}": lambda x: x.e / np.sum(x.e),
    "clip and renormalise: subtract the threshold": lambda x: (
        np.maximum(x.z, 0) / _sum(np.maximum(x.z, 0))),
    "sorted in rising order: sort in falling order": partial(_sparse, sign=1),
    f"the support's size is that of the batch: {LAST}": partial(_sparse, batch=True),
    **{f"{words}: undo the sort": lambda x, sign=sign: x.f(sign * np.sort(sign * x.z))
       for words, sign in (("sorted order returned", -1), ("rising order returned", 1))},
    **{f"{words}: take them as they are": lambda x, f=f: x.f(f(x.z)) for words, f in (
        ("negative scores clipped first", lambda q: np.maximum(q, 0)), ("absolute scores", np.abs),
        ("negated scores", np.negative))},
    "zeros: nothing was computed": lambda x: 0 * x.z,
    "logarithms returned: exponentiate": lambda x: np.log(x.p),
    **{f"one score too {words} is kept: the k-th largest is the least kept": lambda x, n=n: (
        x.u.record(x.z, min(max(1, int(x.u.parameters["k"]) + n), x.d)))
       for words, n in (("many", 1), ("few", -1))},
    **{f"{words}: softmax of the k scores, divided by their sum": lambda x, f=f: np.where(
        x.p > 0, f(x.z), 0) if x.u.parameters["k"] else x.z for words, f in (
        ("softmax over all scores, of which k are kept", lambda q: _over_sum(_powers(q))),
        ("sigmoids of the k scores", lambda q: 1 / (1 + np.exp(-q))),
        ("the k scores themselves", np.asarray))},
    "bisection stopped early: float32 needs some 24 steps, float64 53": _closest(_stopped_early),
}  # fmt: skip
BEYOND_COMPARED = "the maximum of the whole array"  # named for rows beside others, too


# --- of derivatives: p, v and the slopes s = p^{2−α} ----------------------------------------------
def _centred(s: Array, v: Array, axis: Any = -1) -> Array:
    return np.asarray(s * (v - _sum(s * v, axis) / _sum(s, axis)))


PRODUCTS: Table = {
    "τ taken as a constant: subtract Σsv/Σs, s = p^{2−α}": lambda x: x.s * x.v,
    "τ taken as a constant, then divided by the sum: detach the bisection": lambda x: x.s * (
        x.v - _sum(x.p * x.v)),
    f"the mean over the batch: {LAST}": lambda x: _centred(x.s, x.v, None),
    f"the mean over the batch's rows: {LAST}": lambda x: x.s * (
        x.v - np.sum(x.s * x.v) / x.s[..., 0].size / _sum(x.s)),
    f"divided by the largest support of the batch: {LAST}": lambda x: x.s * (
        x.v - _sum(x.s * x.v) / np.max(_sum(x.s))),
    "the mean over all entries: it is over the support, weighted by s = p^{2−α}": lambda x: (
        x.s * (x.v - _sum(x.v) / x.d)),
    "the sum over the support divided by the length of the row: by Σs": lambda x: (
        x.s * (x.v - _sum(x.s * x.v) / x.d)),
    "the derivative of softmax: s = p^{2−α}, not p": lambda x: _centred(x.p, x.v),
    "the derivative of sparsemax: s = p^{2−α}, not 1": lambda x: _centred((x.p > 0) * 1.0, x.v),
    "v passed through: multiply by the Jacobian": lambda x: x.v,
    "sign of the mean: subtract Σsv/Σs": lambda x: 2 * x.s * x.v - _centred(x.s, x.v),
}  # fmt: skip


# --- of losses: those of the rows -----------------------------------------------------------------
def _class_blocks(x: Any, n: int) -> Array:
    if not np.isfinite(x.z).all():
        raise ValueError("scores of −∞ say nothing about blocks")
    shown = np.where(np.arange(x.d) < (x.d // n * n or x.d), x.z, -np.inf)
    first = np.argmax(shown, axis=-1)  # a label that is shown: of e_y − e_first, which cancels
    picked = np.take_along_axis(x.z, first[..., None], -1)[..., 0]
    return np.asarray(x.loss(shown, first) + picked - x.at(x.z))


LOSSES: Table = {
    "½p² without z·p: Ω*(z) is p·z − Ω(p)": lambda x: x.r - np.sum(x.p * x.z, axis=-1),
    **{f"Ω of {name}: take the mapping's own": lambda x, omega=omega: (
        np.sum(np.where(x.p > 0, x.p * x.z, 0) - omega(x.p), axis=-1) - x.at(x.z))
       for name, omega in (
            ("softmax", lambda q: q * np.log(np.where(q > 0, q, 1))),
            ("sparsemax", lambda q: (q**2 - 1 / q.shape[-1]) / 2))},
    "−log p_y: infinite off the support, use Ω*(z) + Ω(y) − z_y": lambda x: -np.log(x.at(x.p)),
    **{f"log of p{words} {e:g}: use log_softmax": lambda x, f=f, e=e: -np.log(f(x.at(x.p), e))
       for words, f in ((" +", np.add), (" clipped at", np.maximum))
       for e in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12)},
    "−p_y, without the logarithm: NLL expects log-probabilities": lambda x: -x.at(x.p),
    "−z_y alone: NLL expects log-probabilities": lambda x: -x.at(x.z),
    "1 − p_y: use Ω*(z) + Ω(y) − z_y": lambda x: 1 - x.at(x.p),
    "the mapping applied twice: the loss takes scores": lambda x: x.loss(x.p, x.y),
    **{f"focal, γ = {n}: do not weigh by (1 − p_y)^γ": lambda x, n=n: x.r * (1 - x.at(x.p)) ** n
       for n in (1, 2)},
    **{f"one against all{words}: another loss": lambda x, f=f: f(np.logaddexp(
        0, (1 - 2 * one_hot(x.y, x.d)) * x.z), axis=-1)
       for words, f in (("", np.sum), (", averaged", np.mean))},
    **{f"{name}: another loss": lambda x, f=f, by=by: by * f(x.g**2, axis=-1) for name, f, by in (
        ("‖p − y‖²", np.sum, 1), ("½‖p − y‖²", np.sum, 0.5), ("‖p − y‖², averaged", np.mean, 1))},
    "labels smoothed by 0.1: do not": lambda x: x.r + 0.1 * (x.at(x.z) - x.z.mean(-1)),
    "another axis: rows lie along the last": lambda x: None if len(x.z) > 1 else 0 * x.r,
    **{f"shift {words}: subtract the maximum from z_y too, or add it to Ω*(z)": (
        lambda x, n=n: x.r + n * np.max(x.z, axis=-1))
       for words, n in (("not taken out", -1), ("taken out twice", 1))},
    f"Ω(y) of another convention: {CONVENTION}": lambda x: x.r + 0.5,
    f"Ω(y) left out: {CONVENTION}": lambda x: x.r - 0.5,
    **{f"{words}: divide by {n:.4g}": lambda x, n=n: n * x.r for words, n in (
        ("half of the loss", 0.5), ("twice the loss", 2.0), ("negated", -1.0),
        ("the logarithm to base 2", 1 / np.log(2)))},
    "rows of label 0 ignored: 0 is a class": lambda x: x.r * (np.asarray(x.y) != 0),
    "the mean over the wrong count: divide by the number of rows": lambda x: x.r / x.d,
    **{f"the loss of {name}: fn gives it": lambda x, name=name: fenchel_young_loss(
        x.z, x.y, name, reduction="none") for name in ("softmax", "sparsemax", "entmax15")},
    "the maximum is not subtracted: e^z overflows": lambda x: (
        np.log(np.sum(np.exp(x.z), axis=-1)) - x.at(x.z)),
    "the mean counts ignored rows: divide by the number of the others": lambda x: x.r,
    "smoothing over C − 1 classes: every class gets ε / C": lambda x: x.loss(x.z, x.y) + (
        SMOOTHING * x.d / (x.d - 1) * (x.at(x.z) - x.z.mean(-1))),
    "soft targets made labels by argmax: use all": lambda x: x.loss(x.z, np.argmax(x.y, axis=-1)),
    **{f"rows after whole blocks of {n} left out: {WHOLE}": lambda x, n=n: x.r * (
        np.arange(len(x.r)) < (len(x.r) // n * n or len(x.r))) for n in (4, 8, 16, 32, 64)},
    **{f"classes after whole blocks of {n} left out: {WHOLE}": partial(_class_blocks, n=n)
       for n in (32, 64, 128, 256, 512, 1024)},
}  # fmt: skip
LOSS_GRADIENTS: Table = {  # of n rows
    "p without − y: subtract 1 at the label": lambda x: x.p * x.v / x.n,
    "y − p: the gradient is p − y": lambda x: -x.g * x.v / x.n,
    "upstream gradient unused: multiply by it": lambda x: x.g / x.n,
    f"the first row's upstream gradient for all: {OWN}": lambda x: x.g * np.ravel(x.v)[0] / x.n,
    f"the mean of the upstream gradients for all: {OWN}": lambda x: x.g * np.mean(x.v) / x.n,
    **{f"ignored rows have gradients{words}: theirs are 0": lambda x, one=one: np.where(
        np.any(x.g, axis=-1, keepdims=True), x.g, x.p - one * np.eye(1, x.d)) * x.v / x.n
       for words, one in (("", 0), (" of label 0", 1))},
    "not divided by the number of rows: a mean is": lambda x: x.g * x.v,
    "divided by the number of rows: a sum is not": lambda x: x.g * x.v / len(x.g),
    "divided by the number of rows twice: divide once": lambda x: x.g * x.v / x.n**2,
    "twice the gradient: divide by 2": lambda x: 2 * x.g * x.v / x.n,
    "half of the gradient: multiply by 2": lambda x: x.g * x.v / x.n / 2,
    "no gradient: the result does not depend on the scores": lambda x: 0 * x.g,
}  # fmt: skip
KINDS = {  # of a function: faults of values, and of gradients
    "attention": (ATTENTION, BACKWARDS), "mapping": (VALUES, PRODUCTS),
    "loss": (LOSSES, LOSS_GRADIENTS),
}  # fmt: skip


# --- what a fault gives ---------------------------------------------------------------------------
class _Evidence(NamedTuple):
    """A case, what fn gave, what is right, whether that agrees, and what faults are made of."""

    case: Case
    observed: dict[str, Array]
    expected: dict[str, Expected]
    fine: bool
    x: Any


def _about(u: Subject, c: Case, observed: Any, backwards: bool) -> Any:
    """What faults of rows and losses are made of; None if they say nothing about the case.

    Scores z of rows of d, and as memory has them; their mapping f, p = f(z), e^{z − max z}, what fn
    ``gave``; v from above and the slopes s = p^{2−α}. Of losses the labels y, right losses r of
    the rows with the gradient g, ``loss(z, y)``, the entries ``at`` the labels, the number n of
    rows.
    """
    if u.operator.kind == "attention" or (u.operator.kind == "mapping" and (
            c.axis != -1 or not 0 < c.z.size <= 5000)):  # fmt: skip
        return None
    x = SimpleNamespace(u=u, z=c.z, d=c.z.shape[-1], v=c.g, gave=observed.get("p"))
    x.f, x.e, x.memory = partial(exact, u), _powers(c.z), in_memory_order(c.z, c.layout or "")
    x.p = x.f(c.z)
    if u.operator.kind == "mapping":
        x.s = slopes(x.p, alpha_of(u)) if in_family(u) or not backwards else np.array(np.nan)
        return x
    how, ignored = reduction_of(u, c), bool(np.any(np.equal(c.y, IGNORED)))
    options = {"reduction": "none", **u.parameters}
    options |= {"ignore_index": IGNORED} if ignored else {}
    x.y, x.how, x.loss = c.y, how, partial(losses, u)
    x.at = lambda a: np.sum(a, axis=-1, where=one_hot(c.y, x.d) > 0)
    x.v = c.g[..., None] if np.ndim(c.g) else c.g
    x.r, x.g = fenchel_young_loss_and_grad(c.z, c.y, u.record, **options)
    x.n = np.count_nonzero(np.not_equal(c.y, IGNORED)) if how == "mean" else 1
    x.asked = {"ignored rows": ignored, "smoothing": "label_smoothing" in c, "mask=": "mask" in c,
               "soft targets": "soft" in c}  # fmt: skip
    return x


def predict(u: Subject, faults: Sequence[Row], one: _Evidence, backwards: bool) -> Any:
    """Results of a case under these faults; None if they predict nothing for it."""
    case, right, x = one.case, one.expected, one.x
    if u.operator.kind == "attention":
        changed = case
        for _, change in faults:
            changed = change(changed)
        value = right[u.operator.result].value if backwards else None
        return u.expect(case, lambda _: changed, value)
    ((name, change),) = faults
    if isinstance(x, Exception):
        raise x
    if x is None or ("compare" in case and not name.startswith(BEYOND_COMPARED)):
        return None
    if u.operator.kind == "loss":
        if any(true != (word in name) for word, true in x.asked.items()):
            return None  # some say something about cases with an option, and about no others
        found = change(x)
        if found is not None and not backwards:
            found = np.asarray(REDUCTIONS[x.how](found))
        name = "gradient" if backwards else "loss"
        return None if found is None else {name: Expected(found, right[name].allowed)}
    p, unit = np.asarray(change(x))[: case.compare], 8 * u.epsilon
    size = unit * max(1, np.nanmax(np.abs(p), initial=0))
    return {"Jᵀv": Expected(p, size)} if backwards else {
        "p": Expected(p, size), "sum": Expected(np.sum(p, axis=-1), 4 * unit * x.d)}  # fmt: skip


def _agrees(observed: Array, predicted: Expected, limit: float) -> bool:
    value, allowed, _ = predicted
    if np.shape(observed) != np.shape(value):
        return False
    near = np.abs(np.subtract(observed, value)) <= limit * allowed
    return bool(np.all(near | (np.isnan(observed) & np.isnan(value)) | (observed == value)))


def _explains(u: Subject, faults: Sequence[Row], one: _Evidence, backwards: bool) -> str:
    """Whether faults give what was seen: "yes" or "no", "right" if they change nothing, and ""
    if they say nothing about the case.

    What is right for a case that fails explains nothing, however near it is.
    """
    with suppress(*UNEXPLAINED):
        predicted = predict(u, faults, one, backwards)
        if predicted is None:
            return ""
        if not one.fine and all(_agrees(predicted[name].value, one.expected[name], u.limit)
                                for name in {*predicted} & {*one.observed}):  # fmt: skip
            return "right"
        for name, x in one.observed.items():
            sizes = (np.nanmax(np.abs(y), initial=1e-300) for y in (
                predicted[name].value, one.expected[name].value))  # fmt: skip
            larger = max(1.0, float(np.divide(*sizes)))  # a larger result has more rounding
            if not _agrees(x, predicted[name], u.limit * ROUNDS * larger):
                return "no"
        return "yes"
    return "error"


def explain(subjects: Sequence[Subject], seen: dict[str, list[Seen]],
            results: Sequence[PropertyResult], properties: Sequence[Any],
            raised: Sequence[str]) -> tuple[tuple[str, ...], str]:  # fmt: skip
    """Causes of a function's failures, and a note if none explains them."""
    own = {one.name: one.cause for one in properties}
    grades = {one.name: worst((one.grade, *one.grades.values())) for one in results}
    bad = [name for name, grade in grades.items() if grade in ("wrong", "imprecise")]
    edges = not bad
    bad = bad or [name for name, grade in grades.items() if grade == "edges"]
    if not bad:
        return (), ""
    if raised:
        return tuple(dict.fromkeys(raised)), ""
    if "a second call" in bad or all(own[name] for name in bad):
        return (own["a second call" if "a second call" in bad else bad[0]],), ""
    kept = tuple(own[name] for name in STATE if name in bad)[:1]
    for u, backwards in product(subjects, (False, True)):
        evidence = [*_evidence(u, seen.get(u.dtype, ()), backwards, edges)]
        if not all(one.fine for one in evidence):
            place = () if edges else _place(evidence)
            if found := _table(u, evidence, backwards, edges) or place or kept:
                return found, ""
            n = len({**KINDS[u.operator.kind][0], **KINDS[u.operator.kind][1]})
            return (), "" if edges else f"none of the {n} known faults explains what fails"
    return kept, ""


# Which spoil other properties, too.
STATE = ("arrays read anew", "a second backward pass", "inputs left as they were")


def _evidence(u: Subject, seen: Any, backwards: bool, edges: bool) -> Iterator[_Evidence]:
    """Values, or gradients; failures at edges only if there are no others."""
    values = {u.operator.result, "sum"}
    for one in sorted(seen, key=lambda one: one.case.get("cost", 0.0)):
        graded = {n: g for n, g in one.grades.items() if (n in values) != backwards}
        if graded and (edges or "edges" not in graded.values()):
            observed = {n: one.observed[n] for n in graded if n in one.observed}
            fine = all(g == "right" for g in graded.values())
            try:
                x = _about(u, one.case, observed, backwards)
            except UNEXPLAINED as error:
                x = error
            yield _Evidence(one.case, observed, one.expected, fine, x)


def _candidates(u: Subject, order: list[_Evidence], backwards: bool, edges: bool) -> Any:
    """The faults of the table one by one, then of attention two that change what fails."""
    known = [*KINDS[u.operator.kind][backwards].items()]
    yield from ([one] for one in known)
    small = [one for one in order if not one.fine and one.case.get("cost", 0.0) <= PAIRED_COST]
    if u.operator.kind == "attention" and small and not edges:
        able = [{i for i, row in enumerate(known) if _explains(u, [row], one, backwards) in (
            "yes", "no")} for one in small[:4]]  # fmt: skip
        both = combinations(sorted(set().union(*able)), 2)
        two = ([known[i] for i in pair] for pair in both if able[0] & {*pair})
        yield from islice(two, N_PAIRS)


def _table(u: Subject, evidence: list[_Evidence], backwards: bool, edges: bool) -> tuple[str, ...]:
    """The fault of the table, or of attention the two, that explain all evidence."""
    order = sorted(evidence, key=lambda one: one.fine)
    for faults in _candidates(u, order, backwards, edges):
        explained = False
        for one in order:
            says = _explains(u, faults, one, backwards)
            if says not in ("yes", ""):
                break
            explained |= says == "yes" and not one.fine
        else:
            if explained:
                return tuple(name for name, _ in faults)
    return ()


def _place(evidence: list[_Evidence]) -> tuple[str, ...]:
    """Sizes from a least one on, options, or both, at which alone a function fails."""

    def about(c: Case) -> dict[str, float]:
        if "query" not in c:
            d = c.z.shape[-1]
            return {"the length of rows": d, "the number of rows": max(1, c.z.size // d)}
        (*batch, t, d), sizes = c.query.shape, {"S": c.key.shape[-2], "window": c.window or 0}
        return {"T": t, "d": d, **sizes, **dict(zip("HB", batch[::-1], strict=False))}

    def options(c: Case) -> set[str]:
        return {name for name in OPTIONS if not any(c.get(name) is x for x in (None, False))}

    failing = [one.case for one in evidence if not one.fine]
    together = set.intersection(*(options(c) for c in failing))
    fine = [one.case for one in evidence if one.fine and together <= options(one.case)]
    words = " and ".join(sorted(together))
    for name in about(failing[0]):
        bad, good = ([about(c)[name] for c in cases if name in about(c)]
                     for cases in (failing, fine))  # fmt: skip
        least = 2 if name in "BH" else 4  # that smaller cases are right says little
        if good and least <= max(good) < min(bad):
            where = f"{name} from {min(bad):g} on ({max(good):g} is right)"
        elif good and min(good) > max(bad) > 0:
            where = f"{name} {'=' if min(bad) == max(bad) else 'up to'} {max(bad):g}"
        else:
            continue
        where = f"{words} and {where}" if words else where
        return (f"fails only with {where}: look at what depends on it",)
    if len(together) > 1 and not fine:
        return (f"fails only with {words} together: look at what depends on both",)
    return ()
