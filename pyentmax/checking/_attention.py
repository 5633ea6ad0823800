"""The check of anybody's attention: cases are data, and so are the known wrong variants."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Table
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations, product
from typing import Any

import numpy as np

from pyentmax.checking import _engine as engine
from pyentmax.checking._differences import Array
from pyentmax.checking._engine import CallError, Case, Cause, Expected, Finding, Missing, Property
from pyentmax.checking._subjects import Settings, Subject, blaming, in_memory_order, judge
from pyentmax.checking._truths import JACOBIANS, truth
from pyentmax.reference.mapping import AnyMapping as Mapping

NAMES = {
    "mask": ("mask", "attn_mask", "attention_mask", "att_mask"), "causal": ("causal", "is_causal"),
    "scale": ("scale", "softmax_scale", "sm_scale", "scaling"),
    "bias": ("bias", "attn_bias", "position_bias"), "sink": ("sink", "sinks", "s_aux"),
    "softcap": ("softcap", "logits_soft_cap", "attn_logits_soft_cap", "soft_cap", "logit_cap"),
    "window": ("window", "window_size", "sliding_window", "local_window_size",
               "sliding_window_size"),
    "offset": ("offset",),
    "lengths": ("lengths", "key_lengths", "key_value_seq_lengths", "seq_lens", "valid_lens"),
    "cu_seqlens": ("cu_seqlens", "cu_seqlens_q"),
    "dropout": ("dropout", "dropout_p", "dropout_rate"), "slopes": ("slopes", "alibi_slopes"),
}  # fmt: skip
ALIGNMENTS, KINDS = ("bottom-right", "top-left"), ("boolean", "additive", "0/1")
LAYOUTS = ("BHTd", "BTHd")
N_DROPOUTS, DEVIATIONS = 200, 6.0
SIZES = ((2, 4), (16, 16), (64, 64), (128, 128))  # T and d that are tried first
WIDTHS = (16, 64, 80, 128)
GRADIENTS = ("dquery", "dkey", "dvalue")


@dataclass(frozen=True, eq=False, repr=False)
class AttentionReport(engine.Report):
    """What holds of an attention; as `MappingReport`, with

    Attributes
    ----------
    causal : str
        Where its causal mask is aligned if there are more keys than queries, or fewer:
        ``"bottom-right"``, ``"top-left"``, or ``""`` if it has none.
    """

    @property
    def causal(self) -> str:
        """Where the causal mask is aligned."""
        return str(self.subjects[0].aligned)


# --- the reference --------------------------------------------------------------------------------
def reference(record: Mapping, values: Sequence[Any], case: Case) -> tuple[dict[str, Array], float]:
    """The output and, if the case asks for them, the gradients for g; and the largest score."""
    q, k, v = (case[name] for name in ("query", "key", "value"))
    (t, s), groups, kv = (q.shape[-2], k.shape[-2]), 1, 0
    if q.ndim > 2:
        kv, n = k.shape[-3], q.shape[-3]
        groups, heads = n // kv, np.arange(n)
        heads = heads % kv if case.get("tiled") else heads // groups
        k, v = k[..., heads, :, :], v[..., heads, :, :]
    k, v = (np.where(np.isnan(x), 0, x) for x in (k, v))
    scale, see, late = _scale(case), visible(case, t, s), case.get("late", False)
    bias, more, first = case.get("bias", 0), _added(case, t, s), case.get("bias_first", False)
    scores, slope, cap = scale * q @ np.swapaxes(k, -1, -2) + bias * first, 1.0, case.get("softcap")
    if cap:
        cap = cap * (scale if case.get("cap_first") else 1.0)
        bent = np.tanh(scores / cap)
        scores, slope = cap * bent, 1 - bent**2
    scores = scores + bias * (not first) + more
    largest = float(np.max(np.abs(scores), initial=0))
    hidden = -cap if cap and case.get("mask_first") else -np.inf
    rows = scores if late else np.where(see, scores, hidden)
    if case.get("sink") is not None:
        sink = np.reshape(case["sink"], (-1, 1, 1)) if q.ndim > 2 else case["sink"]
        rows = np.concatenate([rows, np.broadcast_to(sink, (*scores.shape[:-1], 1))], axis=-1)
    if n := case.get("padded"):  # zeros in the scores beyond the last key
        rows = np.concatenate([rows, np.zeros((*rows.shape[:-1], -s % n))], axis=-1)
    p = record(rows * case.get("times", 1.0), *values[: len(record.parameters)],
                       axis=case.get("axis", -1))  # fmt: skip
    p = np.where(np.isfinite(rows), p, 0)
    if case.get("mean"):
        p = np.where(see.any(-1, keepdims=True), p, 1 / s)
    weights = np.where(see, p[..., :s], 0) if late else p[..., :s]
    if "blocks" in case:
        weights = _not_rescaled(case["blocks"], p, rows, s)
    out = weights @ v
    if case.get("reshaped") and out.ndim > 2:
        out = np.swapaxes(out, -2, -3).reshape(out.shape)
    if not case.get("gradients"):
        return {"output": out}, largest
    g, towards = case["g"], np.zeros_like(p)
    towards[..., :s] = g @ np.swapaxes(v, -1, -2)
    if "backward" in case:  # a backward pass that computes its weights of other scores
        total = np.log(np.sum(np.exp(rows), axis=-1, keepdims=True))
        again = np.where(visible(case | case["backward"], t, s), scores, -np.inf)
        p = np.exp(np.concatenate([again, rows[..., s:]], axis=-1) - total)
        weights = p[..., :s]
        at_rows = p * (towards - np.sum(g * out, axis=-1, keepdims=True))
    elif case.get("no_delta"):
        at_rows = p * towards
    elif record.name in JACOBIANS:
        at_rows = np.einsum(
            "...i,...ij->...j", towards, np.nan_to_num(JACOBIANS[record.name](rows))
        )
    else:
        at_rows = np.nan_to_num(record.vjp(p, towards, *values[: len(record.parameters)]))
    at_bias = at_rows[..., :s] * (slope if first else 1)
    at_scores = at_rows[..., :s] * (1.0 if case.get("no_slope") else slope)
    used = [_summed(case, name, n) for name, n in zip(GRADIENTS, (s, t, t), strict=True)]
    at_q = scale * at_scores[..., used[0]] @ k[..., used[0], :]
    at_k = scale * np.swapaxes(at_scores[..., used[1], :], -1, -2) @ q[..., used[1], :]
    at_v = np.swapaxes(weights[..., used[2], :], -1, -2) @ g[..., used[2], :]
    if groups > 1:
        order = np.argsort(heads, kind="stable")
        shape = (*q.shape[:-3], kv, groups)
        at_k, at_v = (x[..., order, :, :].reshape(*shape, *x.shape[-2:]) for x in (at_k, at_v))
        at_k, at_v = (x.sum(-3) if one is None else x[..., one, :, :]
                      for one in [case.get("one_of_group")] for x in (at_k, at_v))  # fmt: skip
    grads = {"output": out, "dquery": at_q, "dkey": at_k, "dvalue": at_v}
    for name, factor in case.get("factors", {}).items():
        grads[name] = grads[name] * (factor or 1 / scale)
    if case.get("sink") is not None:
        axes = tuple(i for i in range(p.ndim - 1) if i != p.ndim - 3)
        grads["dsink"] = at_rows[..., -1].sum(axes) * (not case.get("sink_constant"))
    if "bias" in case:
        grads["dbias"] = at_bias * (not case.get("bias_constant"))
    if case.get("learned"):
        grads["dparameter"] = record.parameter_vjp(p, towards, *values[: len(record.parameters)])
    return grads, largest


def _not_rescaled(blocks: tuple[str, int], p: Array, rows: Array, s: int) -> Array:
    """Softmax's weights where a new maximum does not rescale the values, or the sum, before it."""
    what, n = blocks
    running = np.maximum.accumulate(rows[..., :s], axis=-1)
    running = running[..., np.minimum((np.arange(s) // n + 1) * n, s) - 1]
    first = np.max(rows[..., s:], axis=-1, keepdims=True, initial=-np.inf)  # a sink
    running = np.concatenate([np.maximum(running, first), rows[..., s:]], axis=-1)
    late = np.where(p > 0, p * np.exp(np.max(rows, axis=-1, keepdims=True) - running), 0)
    total = np.sum(late, axis=-1, keepdims=True)
    return (late if what == "values" else p / np.where(total > 0, total, 1))[..., :s]


def _summed(case: Case, name: str, n: int) -> slice:
    """Over which keys or queries a gradient is summed: all, or those of one block."""
    names, block, last = case.get("block", ((), 0, False))
    if name not in names:
        return slice(None)
    return slice((n - 1) // block * block, n) if last else slice(block)


def visible(case: Case, t: int, s: int) -> Array:
    """Which keys each query sees."""
    i, j = np.indices((t, s))
    default = 0 if case.get("alignment") == "top-left" else s - t
    i = i + case.get("offset", default) + case.get("later", 0)
    see = np.full((t, s), True)
    if case.get("causal"):
        see = see & (j <= i)
    if case.get("window"):
        row = i - (default if case.get("window_first") else 0)
        see = see & (j > row - case["window"])
    if case.get("mask") is not None:
        see = see & case["mask"]
        if case.get("finite_hides"):
            see = see & (case.get("graded", np.zeros(1)) == 0)
    if case.get("cu_seqlens") is not None:
        ends = np.asarray(case["cu_seqlens"])
        of = np.searchsorted(ends, np.arange(s), side="left" if case.get("cu_late") else "right")
        see = see & (of[:t, None] == of)
    if case.get("lengths") is not None:
        shape = (-1, *[1] * (case["query"].ndim - 1))
        see = see & (j < np.reshape(case["lengths"], shape) + case.get("longer", 0))
    if (n := case.get("skip")) and s > n:
        see = see & (j < s // n * n)
    if n := case.get("diagonal"):
        see = see & (j // n < i // n)
    return see


def _scale(case: Case) -> float:
    return float(case.get("scale", case["query"].shape[-1] ** -0.5))


def _added(case: Case, t: int, s: int) -> Any:
    """What is added beside a bias: finite entries of a mask, and slopes times distances."""
    more = 0 if case.get("finite_hides") else case.get("graded", 0)
    if "slopes" in case:
        i, j = np.indices((t, s))
        distance = np.abs(i + (0 if case.get("alignment") == "top-left" else s - t) - j)
        more = more - np.reshape(case["slopes"], (-1, 1, 1)) * distance
    return more


# --- wrong variants: what changes in a case, and the cure -----------------------------------------
def _without(*names: str, given: str = "query") -> Callable[[Case], Case]:
    """Without some entries, if there is one of that name."""
    return lambda case: (
        case if case.get(given) is None else {k: x for k, x in case.items() if k not in names}
    )


def _with(needs: str = "query", **changes: Any) -> Callable[[Case], Case]:
    """Other entries, or functions of the case, if it has an entry of that name."""
    return lambda case: (
        case | {name: x(case) if callable(x) else x for name, x in changes.items()}
        if needs in case else case
    )  # fmt: skip


def _one_query(**changes: Any) -> Callable[[Case], Case]:
    return lambda case: case | changes if case["query"].shape[-2] == 1 else case


def _backward(name: str) -> Callable[[Case], Case]:
    return _with(name, backward=lambda c: c.get("backward", {}) | {name: None})


CONDITIONAL = [
    Cause(f"{one} ignored where {other} is given", _without(one, given=other),
          "the two options go together")
    for one in ("causal", "mask", "window", "sink", "softcap", "bias", "lengths")
    for other in ("causal", "mask", "window", "sink", "softcap", "bias", "lengths") if one != other
]  # fmt: skip
VARIANTS = (
    Cause("scores not scaled", _with(scale=1.0), "multiply by 1/√d, or by scale= if it is given"),
    Cause("scale ignored", _without("scale"), "use the scale that is given in place of 1/√d"),
    Cause("scaled by 1/d", lambda c: {"scale": 1 / c["query"].shape[-1]} | c, "the scale is 1/√d"),
    Cause("scaled by a width that is rounded up", lambda c: {
        "scale": (2.0 ** np.ceil(np.log2(c["query"].shape[-1]))) ** -0.5} | c,
        "d is the width of a key, not that of a block"),
    Cause("scaled twice", _with(scale=lambda c: _scale(c) ** 2), "scale queries or scores"),
    *(Cause(f"strides of {' and '.join(names)} not used", _with("layout", **{
        name: lambda c, name=name: in_memory_order(c[name], c["layout"]) for name in names}),
        "use the strides of every array, or make it contiguous")
      for names in (("query",), ("key",), ("value",), ("query", "key", "value"))),
    Cause("rows and columns confused", _with(axis=-2), "the mapping goes along the keys, axis=-1"),
    Cause("heads tiled", _with(tiled=True), "neighbours share a head: repeat it, h // (H / H_kv)"),
    Cause("heads tiled if causal", _with("causal", tiled=True),
          "neighbours share a head: repeat it, h // (H / H_kv)"),
    Cause("causal ignored", _without("causal"), "a query sees no later key"),
    Cause("causal always", _with(causal=True), "without causal= a query sees all keys"),
    Cause("causal aligned at the other corner", _with("causal", alignment=lambda c: ALIGNMENTS[
        c.get("alignment") != "top-left"]), "with T ≠ S say to which corner the mask belongs"),
    Cause("own key hidden", _with("causal", later=-1), "a query sees its own key: j ≤ i"),
    Cause("next key seen", _with("causal", later=1),
          "a query sees no later key: j ≤ i, not j ≤ i + 1"),
    Cause("offset ignored", _without("offset"), "query i stands at position i + offset"),
    Cause("window ignored", _without("window"), "a query sees the last w keys, its own with them"),
    Cause("window too wide", _with("window", window=lambda c: c["window"] + 1),
          "w keys, not w + 1"),
    Cause("window too narrow", _with("window", window=lambda c: c["window"] - 1),
          "w keys, not w − 1"),
    Cause("window counted from the first key", _with("window", window_first=True),
          "query i stands at position i + S − T for the window too"),
    Cause("mask ignored", _without("mask", "graded"), "hide what the mask hides"),
    Cause("mask inverted", _with("mask", mask=lambda c: ~c["mask"] if c["kind"] == "boolean"
                                 else c["mask"]), "True means: take part"),
    Cause("finite entries of the mask hide", _with("graded", finite_hides=True),
          "an additive mask is added; only −∞ hides"),
    Cause("masked after the mapping", _with(late=True), "mask the scores, not the weights"),
    Cause("masked before the softcap", _with("softcap", mask_first=True),
          "cap · tanh(−∞ / cap) is −cap: mask after the cap"),
    Cause("mean of all values in rows that see nothing", _with(mean=True), "such rows give zeros"),
    Cause("sink ignored", _without("sink"), "the sink is one more score, with no value behind it"),
    Cause("softcap ignored", _without("softcap"), "scores are cap · tanh(scores / cap)"),
    Cause("softcap after the bias", _with("softcap", bias_first=True), "cap, then add the bias"),
    Cause("bias ignored", _without("bias"), "add the bias to the scores"),
    Cause("bias scaled", _with("bias", bias=lambda c: c["bias"] * _scale(c)), "add the bias last"),
    Cause("bias subtracted", _with("bias", bias=lambda c: -c["bias"]), "add the bias"),
    Cause("lengths ignored", _without("lengths"), "keys from the length on are padding"),
    Cause("one key past the length seen", _with("lengths", longer=1), "j < length, not j ≤ length"),
    Cause("sequences mixed", _without("cu_seqlens"), "a query sees keys of its own sequence alone"),
    Cause("sequences begin one late", _with("cu_seqlens", cu_late=True),
          "sequence b holds cu_seqlens[b] ≤ j < cu_seqlens[b + 1]"),
    *(Cause(f"keys after whole blocks of {n} skipped", _with(skip=n),
            "the last block may be shorter; round their number up")
      for n in (16, 32, 64, 80, 128)),
    *(Cause(f"the {what} not rescaled, blocks of {n}", _with(blocks=(what, n)),
            "a new maximum rescales what was summed before, e^(old − new)")
      for what in ("values", "sum") for n in (16, 32, 64, 128)),
    *(Cause(f"the block of {n} on the diagonal skipped", _with("causal", diagonal=n),
            "it is masked in part: j ≤ i") for n in (16, 32, 64, 128)),
    *(Cause(f"padding to blocks of {n} counted", _with(padded=n), "keys beyond S weigh nothing")
      for n in (16, 32, 64, 128)),
    Cause("zeros", _with(value=lambda c: 0 * c["value"]), "nothing was computed"),
    Cause("powers of 2", _with(times=np.log(2)), "2^x is e^(x ln 2): multiply by log₂ e"),
    Cause("scaled by the width of all heads", lambda c: {
        "scale": c["query"][..., 0, :].size ** -0.5 * c["query"].shape[0] ** (
            0.5 * (c["query"].ndim == 4))} | c, "d is the width of one head"),
    Cause("softcap before the scale", _with("softcap", cap_first=True), "scale, then cap"),
    Cause("half of the window", _with("window", window=lambda c: c["window"] // 2),
          "w keys, not w / 2"),
    Cause("lengths of the first sequence", _with("lengths", lengths=lambda c: (
        0 * c["lengths"] + c["lengths"][0])), "each sequence has its own"),
    Cause("heads and positions confused in the output", _with(reshaped=True),
          "transpose before reshape"),
    Cause("one query stands at the first key", _one_query(offset=0),
          "a single query is the newest: it sees all keys"),
    Cause("one query without the newest key", _one_query(later=-1),
          "a single query is the newest: it sees all keys"),
    *CONDITIONAL,
    Cause("δ left out of the gradient", _with("gradients", no_delta=True),
          "the gradient of scores is p ∘ (g vᵀ − δ), δ = Σ g ∘ out"),
    *(Cause(f"{name} not scaled", _with("gradients", factors={name: None}), "multiply by the scale")
      for name in ("dquery", "dkey")),
    *(Cause(f"twice {name}", _with("gradients", factors={name: 2.0}), "divide by 2")
      for name in GRADIENTS),
    Cause("upstream gradient unused", _with("gradients", g=lambda c: np.ones_like(c["g"])),
          "multiply by it"),
    *(Cause("one head of a group in dkey and dvalue", _with("gradients", one_of_group=one),
            "sum over the query heads that share a head of keys") for one in (0, -1)),
    *(Cause(f"{' and '.join(names)} of the {'last' if last else 'first'} block of {n} alone",
            _with("gradients", block=(names, n, last)), "add up what all blocks give")
      for names in (("dquery",), ("dkey",), ("dvalue",), ("dkey", "dvalue"))
      for n in (16, 32, 64, 128) for last in (False, True)),
    Cause("causal aligned at the other corner backwards", _with("causal", backward=lambda c: {
        "alignment": ALIGNMENTS[c.get("alignment") != "top-left"]}),
        "hide the same keys as forwards"),
    Cause("softcap without its slope in the gradient", _with("softcap", no_slope=True),
          "multiply by 1 − tanh²"),
    Cause("no gradient of the sink", _with("sink", sink_constant=True),
          "its gradient is that of its column, summed"),
    Cause("no gradient of the bias", _with("bias", bias_constant=True),
          "its gradient is that of the scores"),
    *(Cause(f"{name} missing backwards", _backward(name),
            "hide the same keys as forwards")
      for name in ("causal", "window", "lengths", "mask", "cu_seqlens")),
)  # fmt: skip


# --- the function ---------------------------------------------------------------------------------
OPTIONAL = ("mask", "bias", "sink", "slopes", "lengths", "cu_seqlens")  # options that are arrays


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionSubject(Subject):
    """An attention, and the mapping that it claims to use."""

    integers = "int32"
    positional = laid_out = 3
    vital = ("output", "blocks")
    paired = True
    variants = VARIANTS
    named: dict[str, str]  # option → fn's own name of it
    rank: int
    wider: int  # by how much values are wider than keys
    multiple: int = 1  # of T and S
    least: int = 4  # width of keys
    layout: str = "BHTd"
    always: dict[str, Any] = field(default_factory=dict)
    pairs: bool = False  # fn takes a window as (left, right)
    extra: int = 0  # how many keys more than w a window has
    declared: str = ""  # where the causal mask should be aligned
    aligned: str = ""  # where it is
    newest: bool = False  # a single query sees all keys, although it is aligned top-left
    kinds: tuple[str, ...] = KINDS[:2]
    mask_axes: int = 4  # of the mask that fn takes
    one: bool = True  # fn takes one query
    groups: str = ""  # what fn raises for fewer heads of keys than of queries
    equal: bool = False  # fn takes as many queries as keys only
    widths: tuple[int, ...] = WIDTHS
    differentiable: str = "yes"
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def swapped(self) -> bool:
        """Whether positions come before heads."""
        return self.layout == "BTHd" and self.rank > 2

    @cached_property
    def spelled(self) -> dict[str, str]:
        """Option → fn's name of it."""
        own = {option: name for option, all in NAMES.items() for name in all if name in self.known}
        return own | self.named

    @property
    def spellings(self) -> set[str]:
        """fn's names of its options."""
        return {*self.spelled.values()}

    def sample(self) -> Case:
        """As many queries as keys."""
        return self.make(t=2, s=2)

    def tried(self) -> Any:
        """What fn gives for as many queries as keys, and whether it has the shape."""
        case = self.sample()
        self.observe(case)
        return self.first(self.call(case, [*map(self.array, self.arrays_of(case))]))

    # --- cases ------------------------------------------------------------------------------------
    def size(self, n: int) -> int:
        """The number of queries or keys for n, if fn takes multiples only."""
        m = self.multiple
        if m == 1 or (n == 1 and self.one):
            return n
        return m * (max(1, n // 2) if n < m and n < 10 else -(-n // m))

    def width(self, d: int) -> int:
        """The width of keys for d."""
        if d < 16:
            return max(d, self.least)
        return d if d in self.widths else max(self.widths, default=self.least)

    def make(self, t: int = 3, s: int = 5, d: int = 4, b: int = 2, heads: int = 2, kv: int = 0,
             spread: float = 1.0, wider: int | None = None, fixed: bool = False,
             unequal: bool = False, seed: int = 0, **options: Any) -> Case:  # fmt: skip
        """Random arrays, and options in words made arrays."""
        spec = {**locals(), **options}
        del spec["self"], spec["options"]
        if kv and self.rank < 3:
            raise Missing("fn's arrays have no heads")
        extra: Case = {
            name: options.pop(name)
            for name in ("nan", "gradients", "upstream", "layout", "edge", "learned")
            if name in options
        }
        if "learned" in extra and not self.learned:
            raise Missing("no parameter of the mapping that may be learned")
        for name in options:
            if (
                name not in self.spelled
                and name not in self.always
                and not (name == "causal" and "window" in options)
            ):
                raise Missing(f"no parameter {name}")
        if kv and self.groups:
            raise Missing(f"fewer heads of keys raised {self.groups}")
        if t != s and self.equal and not unequal:
            if options and (t, s) != (3, 5):
                raise Missing("T and S have to be equal")
            t = s = min(max(t, s), 300)
        kind = options.get("mask", "")
        if (kind and kind not in ("empty", "some", "graded", *self.kinds)) or (
            kind == "graded" and "additive" not in self.kinds
        ):
            raise Missing(f"its masks are {' or '.join(self.kinds)}")
        if extra.get("gradients") and self.differentiable != "yes":
            if fixed:
                raise Missing(self.differentiable)
            del extra["gradients"]
        if self.compiles and max(t, s) < 10:  # few shapes, since each is compiled
            t, s = 1 if t == 1 else 3 if t < s else 7, 3 if s < t else 7
        t, s, d = self.size(t), self.size(s), self.width(d)
        if t != s and "cu_seqlens" in options:
            raise Missing("packed sequences have T = S")
        e = d + (self.wider if wider is None else wider)
        rng = np.random.default_rng(self.settings.seed + seed)
        batch = ((), (heads,), (b, heads))[self.rank - 2]
        keys = (*batch[:-1], kv) if kv else batch

        def draw(*shape: int, size: float = 1.0) -> Array:
            return self.rounded(size * rng.standard_normal(shape))

        case: Case = {
            "query": draw(*batch, t, d, size=spread), "key": draw(*keys, s, d),
            "value": draw(*keys, s, e), "g": draw(*batch, t, e), "spec": spec,
            "alignment": ALIGNMENTS[0] if self.newest and t == 1 else self.alignment,
            **self.always, **options, **extra,
        }  # fmt: skip
        if extra.get("upstream") == "expanded":
            case["g"] = np.ones_like(case["g"])
        elif "upstream" in extra:
            case["g"] = case["g"] * extra["upstream"]
        words = [f"T = {t}, S = {s}", *([f"d = {d}"] if d != 4 else ()),
                 *([f"B = {b}, H = {heads}"] if (b, heads) != (2, 2) and len(batch) > 1 else ()),
                 *([f"{kv} of {heads} heads have keys"] if kv else ())]  # fmt: skip
        words += [name if x is True else f"{name} = {x}" for name, x in (options | extra).items()
                  if name not in ("gradients", "edge")]  # fmt: skip
        case["words"] = ", ".join(words)
        if kind:
            self._mask(case, kind, (*batch, t, s), rng)
        if "bias" in case:
            case["bias"] = draw(*batch, t, s)
        if "sink" in case:
            case["sink"] = draw(*batch[-1:])
        if "slopes" in case:
            case["slopes"] = self.rounded(2.0 ** -np.arange(1, heads + 1))
        if "lengths" in case:
            n = (1, heads, b)[self.rank - 2]
            lengths = [max(1, s // 2), s, max(1, s - 1)][-n:] if n > 1 else [s // 2]
            case["lengths"] = np.resize(lengths, n)
        if "cu_seqlens" in case:
            case["cu_seqlens"] = np.array([0, max(1, 2 * s // 5), s])
        see = np.broadcast_to(visible(case, t, s), (*batch, t, s))
        nothing = ~see.any(-1, keepdims=True)
        if nothing.any():
            case["nothing"], case["g"] = nothing, np.where(nothing, 0, case["g"])
            if not case.get("edge"):
                case.pop("gradients", None)
        case["cost"] = float(case["query"].size * s)
        case["long"] = s * self.epsilon > engine.LONG_SUM
        self.count(T=t, S=s, d=d, B=b, H=heads)
        return case

    def _mask(self, case: Case, kind: str, shape: tuple[int, ...], rng: Any) -> None:
        """A random mask of a kind; every query keeps the first key, and its own at both corners."""
        (t, s), shape = shape[-2:], shape if self.mask_axes == 4 else shape[-2:]
        if self.mask_axes == 3 and len(case["query"].shape) == 4:
            shape = (case["query"].shape[0], 1, t, s)
        keep, i = rng.random(shape) < 0.6, np.arange(t)
        keep[..., 0] = True
        keep[..., i, np.clip(i, 0, s - 1)] = True
        keep[..., i, np.clip(i + s - t, 0, s - 1)] = True
        if kind == "empty":
            keep[..., min(1, t - 1), :] = False
        if case.pop("nan", False):
            hidden = ~keep.reshape(-1, t, s).any((0, 1))
            hidden[-1], keep[..., -1] = True, False
            case["key"][..., hidden, :] = case["value"][..., hidden, :] = np.nan
        if kind == "graded":
            case["graded"] = np.where(keep, self.rounded(rng.standard_normal(shape)), 0)
        kind = {"graded": "additive"}.get(kind, kind)
        case["mask"], case["kind"] = keep, kind if kind in KINDS else self.kinds[0]

    def given(self, case: Case) -> dict[str, Any]:
        """The options of a case that fn is passed, and what it has to have, by its names."""
        options = {
            name: case[name]
            for name in NAMES
            if name in case and name in self.spelled and name not in self.always
        }
        *batch, t, _ = case["query"].shape
        s, d = case["key"].shape[-2:]
        heads = batch[-1:]
        neutral = {
            "causal": False, "scale": d**-0.5, "dropout": 0.0, "offset": s - t, "softcap": 0.0,
            "mask": np.ones((t, s), bool), "bias": np.zeros((t, s)), "window": t + s,
            "sink": np.full(heads, -1e4), "slopes": np.zeros(heads),
            "lengths": np.full(batch[:1], s), "cu_seqlens": np.array([0, t]),
        }  # fmt: skip
        for name, value in neutral.items():
            parameter = self.known.get(self.spelled.get(name, ""))
            if parameter is not None and name not in options and name not in self.always:
                needed = parameter.default is parameter.empty and parameter.kind.value in (1, 3)
                if needed or (name == "causal" and parameter.default is True):
                    options[name] = value
        if "mask" in options:
            options["mask"] = keep = case.get("inverted", options["mask"])
            kind = case.get("kind", self.kinds[0])
            if kind == "additive":
                options["mask"] = np.where(keep, case.get("graded", 0.0), -np.inf)
            elif kind == "0/1":
                options["mask"] = keep.astype(float)
        if self.pairs and options.get("window") is not None:
            options["window"] = (options["window"] - 1, 0)
        own = self.passed | ({self.learned: case["at"]} if "at" in case else {})
        if "cu_seqlens" in options:  # FlashAttention's has those of the keys and the longest, too
            ends = {"q": options["cu_seqlens"], "k": case.get("cu_seqlens", np.array([0, s]))}
            own |= {f"cu_seqlens_{x}": ends[x] for x in ends if f"cu_seqlens_{x}" in self.known}
            own |= {f"max_seqlen_{x}": int(np.diff(ends[x]).max()) for x in ends
                    if f"max_seqlen_{x}" in self.known}  # fmt: skip
        return {self.spelled[name]: x for name, x in options.items()} | own

    def arguments(self, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """What fn is passed: arrays by name, and options that are not arrays."""
        given = self.given(case)
        arrays = {name: case[name] for name in ("query", "key", "value")}
        if self.swapped:
            arrays = {name: np.swapaxes(x, -2, -3) for name, x in arrays.items()}
        arrays |= {name: x for name, x in given.items() if isinstance(x, np.ndarray)}
        return arrays, {name: x for name, x in given.items() if name not in arrays}

    def observe(self, case: Case) -> dict[str, Array]:
        """What fn gives, with the gradients if the case asks for them."""
        query, native = case["query"], self.native(case)
        with blaming(case):
            raw = self.first(self.call(case, native))
            case["epsilon"] = self.epsilon_of(raw)
            out = self._back(self.numbers(raw))
            if out.shape != (*query.shape[:-1], case["value"].shape[-1]):
                raise engine.WrongShape(f"expected queries of values, got shape {out.shape}")
            result = {"output": out}
            if case.get("gradients"):
                result |= self.gradients(case, self.native(case))
        nothing = case.get("nothing")
        if nothing is not None:  # what such a row gives is a property of its own
            strict = case.get("edge")
            for name in ("output", "dquery"):
                if name in result:
                    x = result[name]
                    change = nothing & (np.isnan(x).all(-1, keepdims=True) if strict else True)
                    result[name] = np.where(change, 0, x)
        return result

    def gradients(self, case: Case, native: list[Any]) -> dict[str, Array]:
        """Those in query, key and value, and in a sink and a bias, for g."""
        g = self._back(case["g"])
        names = [*self.arguments(case)[0]]
        if self.own_vjp is not None:
            options = self.arguments(case)[1]
            more = dict(zip(names[3:], native[3:], strict=True))
            grads = self.own_vjp(*native[:3], self.array(g), **more, **options)
            pairs = zip(GRADIENTS, grads, strict=False)
            return {name: self._back(self.numbers(x)) for name, x in pairs}
        floats = [i for i, name in enumerate(names) if i < 3 or (
            name in [self.spelled.get(x) for x in ("sink", "bias") if x in case])]  # fmt: skip
        assert self.functions.vjp is not None

        def along(*changed: Any) -> Any:
            arrays = [*native]
            for i, x in zip(floats, changed, strict=True):
                arrays[i] = x
            return self.first(self.call(case, arrays))

        if case.get("learned"):
            parameter = self.array(self.parameters[self.learned])

            def at(x: Any) -> Any:
                return self.first(self.call(case | {"at": x}, native))

            return {"dparameter": self.moved(self.functions.vjp(at, [parameter], g)[0])}
        grads = self.functions.vjp(along, [native[i] for i in floats], g)
        spelled = {x: f"d{name}" for name, x in self.spelled.items()}
        return {
            spelled.get(names[i], f"d{names[i]}"): self._back(self.numbers(x)) if i < 3
            else self.numbers(x) for i, x in zip(floats, grads, strict=True)
        }  # fmt: skip

    def _back(self, x: Array) -> Array:
        return np.swapaxes(x, -2, -3) if self.swapped else x

    # --- what is right ----------------------------------------------------------------------------
    def expect(self, case: Case) -> dict[str, Expected]:
        """The right output and gradients; rounding of the scores may move them."""
        if case.get("window"):
            case = case | {"window": case["window"] + self.extra}
        right, largest = reference(self.record, [*self.parameters.values()], case)
        arrays = [case[name] for name in ("query", "key", "value", "g")]
        size = [float(np.nanmax(np.abs(x), initial=0)) for x in arrays]
        unit = case.get("epsilon", self.epsilon) * size[2] * (1 + largest) / 4
        rows = max(1.0, (case["query"].shape[-2] / 16) ** 0.5)
        result = {"output": Expected(right.pop("output"), unit)}
        if case.get("nothing") is not None and not case.get("edge"):
            result["output"] = Expected(np.where(case["nothing"], 0, result["output"].value), unit)
        for name, x in right.items():
            result[name] = Expected(x, unit * max(size) ** 2 * rows or self.epsilon)
        return result

    def predict(self, variants: tuple[Cause, ...], case: Case, observed: Any) -> Any:
        """What the reference gives for the case with the changes of the variants."""
        changed = case
        for one in variants:
            changed = one.variant(changed)
        return self.expect(changed)

    def ask(self, question: Any, case: Case) -> list[Finding]:
        """The findings; where wider values are an error they are as wide as keys."""
        try:
            return [*question(self, case)]
        except CallError:
            if not (self.wider and case["spec"]["wider"] is None):
                raise
            self.observed.clear()
            found = [*question(self, self.make(**case["spec"] | {"wider": 0}))]
            self.say(f"values have to be as wide as keys for {case['words']}")
            return found

    # --- what is found out ------------------------------------------------------------------------
    def settled(self, out: Any) -> AttentionSubject:
        """The layout, which shapes and masks fn takes, and what it always does."""
        found = replace(self, **_layout(self))
        if found.layout == "BTHd":
            axes = "(B, T, H, d)" if found.rank == 4 else "(T, H, d)"
            found.say(f'its arrays are {axes}; layout="BTHd" declares it')
        for step in (_always, _sizes, _window, _alignment, _masks, _differentiable):
            found = replace(found, **step(found))
        if found.aligned:
            found.say(f"the causal mask is aligned {found.aligned}")
        newest = replace(found, newest=True)
        if found.alignment == ALIGNMENTS[1]:
            with suppress(Missing):
                case, other = (x.make(t=1, s=5, causal=True) for x in (found, newest))
                if found.near(case) > 1 >= found.near(other):
                    found = newest
                    found.say("a single query sees all keys")
        return replace(found, sizes={})

    @property
    def alignment(self) -> str:
        """What is right."""
        return self.declared or self.aligned or ALIGNMENTS[0]

    def near(self, case: Case) -> float:
        """By how many times its limit the output is off; infinite if it raises."""
        with suppress(CallError):
            found, right = self.observe(case)["output"], self.expect(case)["output"]
            return engine.measure(self, case, "output", found, right).units / self.limit
        return np.inf


def _layout(subject: AttentionSubject) -> dict[str, Any]:
    """Heads before or after positions: a value moves the outputs of its own head alone."""
    if subject.rank < 3 or subject.layout != "":
        return {"layout": subject.layout or "BHTd"}
    usual, n = replace(subject, layout="BHTd"), max(3, subject.size(3))
    case = usual.make(t=n, s=n, heads=n)
    with suppress(CallError):
        out, others = usual.observe(case)["output"], []
        for axis in (-3, -2):
            value = np.moveaxis(case["value"], axis, 0).copy()
            value[0] += 1.0
            found = usual.observe({**case, "value": np.moveaxis(value, 0, axis)})["output"]
            moved = np.moveaxis(np.abs(np.nan_to_num(found - out)), axis, 0)
            others.append(bool(moved[1:].max() > 1e-3))
        if others == [True, False]:
            return {"layout": "BTHd"}
    return {"layout": "BHTd"}


def _always(subject: AttentionSubject) -> dict[str, Any]:
    """Whether a function without a causal parameter hides later keys."""
    if "causal" in subject.spelled or "causal" in subject.always:
        return {}
    case = subject.make(t=6, s=6)
    other = {**case, "value": case["value"].copy()}
    other["value"][..., -1, :] += 1.0
    with suppress(CallError):
        a, b = (subject.observe(x)["output"] for x in (case, other))
        moved = np.abs(np.nan_to_num(b - a)) > 1e-3
        if moved[..., -1, :].any() and not moved[..., 0, :].any():
            subject.say('it is causal always; always={"causal": True} declares it')
            return {"always": {**subject.always, "causal": True}}
    return {}


def _works(subject: AttentionSubject, **words: Any) -> bool:
    try:
        subject.observe(subject.make(**words))
    except (CallError, Missing):
        return False
    return True


def _sizes(subject: AttentionSubject) -> dict[str, Any]:
    """The widths that fn takes, and whether one query is enough."""
    tried = WIDTHS[: 2 if subject.compiles else None]  # as `BLOCKS` has them
    widths = tuple(d for d in tried if _works(subject, t=2, s=2, d=d))
    if missing := [d for d in tried if d not in widths]:
        subject.say(f"keys {', '.join(map(str, missing))} wide raise an error")
    if subject.multiple > 1 or subject.least > 4:
        subject.say(f"T and S are multiples of {subject.multiple}, keys at least "
                    f"{subject.least} wide")  # fmt: skip
    if not subject.wider:
        subject.say("values are as wide as keys")
    one = subject.multiple == 1 or _works(replace(subject, one=True), t=1, s=4)
    equal = not _works(subject, t=3, s=5) and not _works(subject, t=5, s=3)
    if equal:
        subject.say("T and S have to be equal")
    groups = ""
    if subject.rank > 2:
        try:
            subject.observe(subject.make(t=4, s=4, heads=4, kv=2))
        except CallError as error:
            groups = str(error)
    return {"widths": widths, "one": one, "equal": equal, "groups": groups}


def _window(subject: AttentionSubject) -> dict[str, Any]:
    """Whether fn takes a window as a pair, and if it has w + 1 keys."""
    words: Case = {"t": 6, "s": 6, "causal": True, "window": 2}
    if "window" not in subject.spelled:
        return {}
    parameter = subject.known.get(subject.spelled["window"])
    pair = replace(subject, pairs=True)
    default = isinstance(getattr(parameter, "default", None), tuple)
    if default or (not _works(subject, **words) and _works(pair, **words)):
        subject.say("a window of w keys was passed as (w − 1, 0)")
        return {"pairs": True}
    case = subject.make(**words)
    if subject.near(case) > 1 >= replace(subject, extra=1).near(case):
        subject.say("a window of w has w + 1 keys, the query's own with them")
        return {"extra": 1}
    return {}


def _alignment(subject: AttentionSubject) -> dict[str, Any]:
    """That of fn's causal mask: whether a value far ahead, or the first, moves the first output."""
    for t, s, at, corner in ((3, 9, slice(5, 9), 0), (9, 3, slice(0, 1), 1)):
        with suppress(Missing, CallError):
            case = subject.make(t=t, s=s, causal=True)
            case.pop("nothing", None)
            if case["query"].shape[-2] >= case["key"].shape[-2] and not corner:
                continue
            other = {**case, "value": case["value"].copy()}
            other["value"][..., at, :] += 1.0
            a, b = (np.nan_to_num(subject.observe(x)["output"]) for x in (case, other))
            moved = bool((np.abs(b - a)[..., corner, :] > 1e-3).any())
            return {"aligned": ALIGNMENTS[(not moved) ^ corner]}
    return {}


def _masks(subject: AttentionSubject) -> dict[str, Any]:
    """The kinds of mask that fn takes, and their axes; those that are declared if there are any."""
    if "mask" not in subject.spelled:
        return {}
    declared = subject.kinds if len(subject.kinds) == 1 else ()
    best: dict[str, Any] = {}
    for axes in (4, 3, 2):
        one = replace(subject, mask_axes=axes, kinds=declared or KINDS)
        off = {kind: one.near(one.make(mask=kind)) for kind in one.kinds}
        best = best or {"mask_axes": axes, "kinds": declared or KINDS[:2]}
        right = tuple(kind for kind in one.kinds if off[kind] <= 1)
        if right:
            if "boolean" in one.kinds and "boolean" not in right:
                case = one.make(mask="boolean")
                if one.near({**case, "mask": ~case["mask"], "inverted": case["mask"]}) <= 1:
                    right = ("boolean", *right)  # a mask that hides what is True is a fault
            # A boolean mask that counts as 0 and 1 is both; 0 and 1 that are added are neither.
            right = tuple(kind for kind in right if kind != "0/1" or right == ("0/1",))
            best = {"mask_axes": axes, "kinds": declared or right}
            break
        if min(off.values()) < np.inf:
            best = {"mask_axes": axes, "kinds": declared or tuple(
                kind for kind in KINDS[:2] if off[kind] < np.inf) or KINDS[:1]}  # fmt: skip
            break
    if best["mask_axes"] != 4 and subject.rank > 2:
        shape = {3: "(B, 1, T, S)", 2: "(T, S)"}[best["mask_axes"]]
        subject.say(f"masks are {shape}: another shape raises an error")
    if not declared and len(best["kinds"]) == 1:
        kind = best["kinds"][0]
        subject.say(f'masks are {kind}; masks="{kind}" declares it')
    return best


def _differentiable(subject: AttentionSubject) -> dict[str, Any]:
    """Whether there are gradients, or why there are none."""
    if subject.own_vjp is None and subject.functions.vjp is None:
        return {"differentiable": "NumPy has no gradients; vjp= hands them in"}
    try:
        subject.observe(subject.make(t=2, s=2, gradients=True))
    except CallError as error:
        unsupported = isinstance(error.__cause__, NotImplementedError)
        if unsupported or "no gradient" in str(error) or "require grad" in str(error):
            return {"differentiable": f"raised {error}"}
    return {}


# --- the properties -------------------------------------------------------------------------------
def _dropout(subject: AttentionSubject, case: Case) -> Iterator[Finding]:
    state = np.random.get_state()  # noqa: NPY002  # fn may draw from it
    with ExitStack() as stack:
        stack.callback(np.random.set_state, state)  # noqa: NPY002
        if subject.library == "torch":
            stack.enter_context(sys.modules["torch"].random.fork_rng(devices=[]))
        outputs = np.stack([subject.observe(case)["output"] for _ in range(N_DROPOUTS)])
    deviation = np.std(outputs, axis=0) / np.sqrt(N_DROPOUTS) + 1e-6
    right = subject.expect(case)["output"]
    right = right._replace(allowed=right.allowed + deviation * DEVIATIONS / subject.limit)
    yield engine.measure(subject, case, "output", outputs.mean(0), right)


def _laid_out(subject: AttentionSubject) -> list[Case]:
    names = ("heads inside", "transposed", "every second", "part of a wider array", "reversed",
             "read-only")  # fmt: skip
    return [{"t": t, "s": s, "layout": name, "gradients": name not in ("reversed", "read-only")}
            for name in names if subject.has_layout(name)
            and not (name == "heads inside" and subject.rank < 3)
            for t, s in ((3, 5), (17, 17))]  # fmt: skip


PAIRED: dict[str, Case] = {
    "causal": {"causal": True}, "mask": {"mask": "some"}, "window": {"causal": True, "window": 3},
    "sink": {"sink": "drawn"}, "softcap": {"softcap": 0.7, "spread": 3.0},
    "bias": {"bias": "drawn"}, "scale": {"scale": 0.3}, "groups": {"heads": 4, "kv": 2},
    "lengths": {"lengths": "drawn"}, "cu_seqlens": {"cu_seqlens": "drawn"},
    "offset": {"causal": True, "offset": 1}, "slopes": {"causal": True, "slopes": "drawn"},
    "graded": {"mask": "graded"},
}  # fmt: skip


def _pairs(t: int, s: int, subject: AttentionSubject) -> list[Case]:
    if subject.compiles and not 1 < t < s:  # each case is compiled: one shape has to do
        return []
    both = [PAIRED[a] | PAIRED[b] for a, b in combinations(PAIRED, 2)
            if {a, b} not in ({"mask", "graded"}, {"lengths", "cu_seqlens"})
            and not ({a, b} & {"cu_seqlens", "offset"} and t != s)]  # fmt: skip
    return [{"t": t, "s": s, "gradients": True, "seed": 1, **one} for one in both]


BLOCKS = [  # T, S, d, B, H, heads of keys
    (1, 257, 64, 1, 2, 0), (17, 17, 16, 3, 8, 2), (65, 65, 80, 1, 2, 0), (17, 64, 128, 1, 2, 1),
    (64, 17, 16, 3, 8, 0), (130, 130, 64, 1, 1, 0), (65, 257, 16, 1, 2, 1), (257, 65, 16, 1, 1, 0),
]  # fmt: skip


def _blocks(subject: AttentionSubject) -> list[Case]:
    shapes = [
        *BLOCKS[: 2 if subject.compiles else None],
        *((t, s, d, 1, 2, 0) for t, s, d in subject.shapes),
    ]
    cases: list[Case] = []
    for t, s, d, b, heads, groups in shapes:
        kv = groups if subject.rank > 2 and not subject.groups else 0
        base: Case = {"t": t, "s": s, "d": d, "b": b, "heads": heads, "kv": kv, "gradients": True}
        cases += [base, base | {"causal": True}, base | {"causal": True, "window": 40}]
        cases += [base | {"mask": "some"}, base | {"lengths": "drawn"}]
    return cases


def _known(subject: AttentionSubject) -> list[Case]:
    return [one for one in _blocks(subject)
            if {*one} & {*NAMES} <= {*subject.spelled, *subject.always}]  # fmt: skip


FLAT: list[Case] = [{"t": 2, "s": 1200, "spread": 1e-3}, {"t": 2, "s": 1200}]
EMPTY: list[Case] = [
    {"mask": "empty", "edge": True},
    {"t": 6, "s": 4, "causal": True, "edge": True},
]
G: Case = {"gradients": True, "fixed": True}
PROPERTIES = (
    Property("output", "The output is mapping(scale · q kᵀ) v.", [
        {"t": 1, "s": 1}, {"t": 2, "s": 2}, {}, {"t": 4, "s": 4, "spread": 4.0}], core=True),
    Property("T < S", "There may be fewer queries than keys, also one.", [
        {"t": 3, "s": 5, "unequal": True}, {"t": 1, "s": 5, "unequal": True}]),
    Property("T > S", "There may be more queries than keys.", [
        {"t": 5, "s": 3, "unequal": True}, {"t": 7, "s": 2, "unequal": True}]),
    Property("long rows", "Rows of 1200 keys, also with nearly equal scores.", FLAT, core=True),
    Property("large scores", "Scores of some thousands.", [{"spread": 1e3}], edge=True, core=True),
    Property("blocks", "T and S of 1 to 257, d of 16 to 128, up to 3 batches of 8 heads, with "
             "causal, window, mask and lengths if fn has them.", _known, refusable="some"),
    Property("grouped heads", "Neighbouring query heads share a head of keys.", [
        {"heads": 4, "kv": 2}, {"heads": 6, "kv": 2}, {"heads": 3, "kv": 1}], refusable="some",
        core=True),
    Property("scale", "``scale`` takes the place of 1/√d.", [{"scale": 0.3}, {"scale": 2.0}]),
    Property("boolean masks", "Keys where the mask is False are not seen.", [{"mask": "boolean"}],
             core=True),
    Property("additive masks", "A mask is added; −∞ hides keys.", [
        {"mask": "additive"}, {"mask": "graded"}]),
    Property("masks of 0 and 1", "Keys where the mask is 0 are not seen.", [{"mask": "0/1"}]),
    Property("rows that see nothing", "They give zeros or NaN, and leave others alone.", EMPTY,
             edge=True),
    Property("causal, T = S", "A query sees no later key.", [
        {"t": 4, "s": 4, "causal": True}, {"t": 7, "s": 7, "causal": True}], core=True),
    Property("causal, T < S", "The mask is aligned as the report says.", [
        {"causal": True}, {"t": 1, "s": 5, "causal": True}]),
    Property("causal, T > S", "The mask is aligned as the report says.", [
        {"t": 6, "s": 4, "causal": True}]),
    Property("offsets", "Query i stands at position i + offset.", [
        {"causal": True, "offset": o} for o in (0, 1, 2)]),
    Property("sliding windows", "A query sees the last w keys, its own with them.", [
        {"t": 6, "s": 6, "causal": True, "window": w} for w in (2, 3)]),
    Property("sinks", "One more score per head takes weight, and has no value.", [
        {"sink": "drawn"}]),
    Property("softcap", "Scores are cap · tanh(scores / cap).", [{"softcap": 0.7, "spread": 3.0}]),
    Property("bias", "The bias is added to the scaled scores.", [{"bias": "drawn"}]),
    Property("slopes", "A bias of −slope times the distance.", [
        {"t": 4, "s": 4, "causal": True, "slopes": "drawn"}]),
    Property("key lengths", "Keys from a length on are not seen.", [{"lengths": "drawn"}]),
    Property("packed sequences", "A query sees keys of its own sequence alone.", [
        {"t": 5, "s": 5, "cu_seqlens": "drawn"}]),
    *(Property(f"pairs of options, {name}", "Two options at a time, forwards and backwards.",
               partial(_pairs, t, s), refusable="some")
      for name, t, s in (("T = S", 7, 7), ("T < S", 3, 7), ("T > S", 7, 3), ("T = 1", 1, 7))),
    Property("NaN in what is masked", "Keys and values that are not seen may be NaN.", [
        {"mask": "some", "nan": True}], edge=True),
    Property("memory layouts", "Transposed, strided, reversed and read-only arrays give the same.",
             _laid_out),
    Property("dropout", "The mean over many calls with dropout is the output without.", [
        {"dropout": 0.5}], question=_dropout),
    Property("gradients", "The gradients in query, key and value are right.", [
        {**G}, {**G, "t": 4, "s": 4}, {**G, "t": 5, "s": 3}, {**G, "heads": 4, "kv": 2},
        {**G, "upstream": 3.0},
        {**G, "upstream": "expanded"}, {**G, "upstream": 0.0}], refusable="some", core=True),
    Property("gradients of long rows", "The same with rows of 300 keys.", [
        {**G, "t": 2, "s": 300}, {**G, "t": 130, "s": 70}]),
    Property("gradients of sink and bias", "A sink and a bias have their own.", [
        {**G, "sink": "drawn"}, {**G, "bias": "drawn"}]),
    Property("gradient of the parameter", "That in α, if fn takes it as an array.", [
        {**G, "learned": True}, {**G, "learned": True, "causal": True}], refusable="all"),
    Property("gradients beside rows that see nothing", "No NaN comes from such a row.", [
        {**G, **one} for one in EMPTY], edge=True),
    Property("a second call", "It gives the same.", [{}, {"t": 17, "s": 17}],
             question=engine.repeated),
    Property("arrays read anew", "A call sees what was written into its arrays since the last.",
             lambda subject: [{}, {"mask": "some"}] * subject.has_layout("transposed"),
             question=engine.arrays_read_anew),
    Property("inputs left as they were", "fn does not write into its arrays.", [
        {}, {"mask": "some"}, {"sink": "drawn"}, {"bias": "drawn"}, {"lengths": "drawn"}],
        question=engine.inputs_unchanged, edge=True, core=True),
    Property("results left as they were", "A result does not change with the next call.",
             [{}, {"t": 4, "s": 4}], question=engine.results_kept, edge=True),
    Property("float type", "The output has the float type of the arrays.", [{}],
             question=engine.float_type, edge=True, core=True),
)  # fmt: skip


def check_attention(
    fn: Callable[..., Any],
    mapping: str | Mapping = "softmax",
    *,
    vjp: Callable[..., Any] | None = None,
    names: dict[str, str] | None = None,
    causal: str | None = None,
    layout: str | None = None,
    always: Table[str, Any] | None = None,
    masks: str | None = None,
    shapes: Sequence[tuple[int, int, int]] = (),
    dtypes: Sequence[str] | None = None,
    device: Any = None,
    seed: int = 0,
    tolerances: Table[str, float] | None = None,
    strict: bool = False,
    **parameters: Any,
) -> AttentionReport:
    """Check anybody's attention, in any array library.

    Outputs and gradients are compared with a reference in double precision, and the known wrong
    variants of the reference are run through the same inputs: the report names the one that the
    function agrees with. Which shapes, masks and float types the function takes is found out, and
    stands in the report's notes. The function is called some 100 to 2,000 times.

    Parameters
    ----------
    fn : callable
        ``fn(query, key, value, …)`` of arrays (…, T, d), (…, S, d) and (…, S, e): four axes, three
        or two, whichever it takes first. Its keywords are tried under these names and their usual
        others: ``mask`` (True takes part, or additive), ``causal``, ``scale``, ``bias``, ``sink``
        (a score per head), ``softcap``, ``window`` (of w keys; as (w − 1, 0) where it is a pair),
        ``offset``, ``lengths`` (of keys), ``cu_seqlens``, ``slopes`` (of ALiBi) and ``dropout``,
        alone and two at a time. An option that always raises an error is an edge; two that raise
        one together are not a fault, and the report says so.
    mapping : str or Mapping
        What makes weights of scores; as in `check_mapping`.
    vjp : callable, optional
        ``vjp(query, key, value, g, …)`` → their gradients. If not given, PyTorch, JAX and
        TensorFlow differentiate fn; for other libraries they are not tried.
    names : dict, optional
        fn's own names of keywords, such as ``{"mask": "keep"}``; needed where fn has no signature.
    causal : {"bottom-right", "top-left"}, optional
        Where the causal mask should be aligned if T ≠ S. If not given, either is right.
    layout : {"BHTd", "BTHd"}, optional
        Whether heads come before or after positions in arrays of four axes.
    always : dict, optional
        Options that fn has built in, such as ``{"causal": True, "window": 128}``.
    masks : {"boolean", "additive", "0/1"}, optional
        The kind of mask that fn takes.
    shapes : sequence of (T, S, d), optional
        Sizes to try beside the usual ones.
    dtypes, device, seed, tolerances, strict, **parameters : as in `check_mapping`

    Returns
    -------
    AttentionReport

    Examples
    --------
    >>> import numpy as np
    >>> import pyentmax as pe
    >>> def attention(query, key, value, causal=False):
    ...     scores = query @ np.swapaxes(key, -1, -2)  # / √d is missing
    ...     later = np.triu(np.ones(scores.shape[-2:], bool), 1)
    ...     return pe.softmax(np.where(causal & later, -np.inf, scores)) @ value
    >>> report = check_attention(attention)
    >>> report.verdict, report.causal, report.causes
    ('wrong', 'top-left', ('scores not scaled: multiply by 1/√d, or by scale= if it is given',))
    """
    for what, value, known in (("causal", causal, ALIGNMENTS), ("layout", layout, LAYOUTS),
                               ("masks", masks, KINDS)):  # fmt: skip
        if value not in (None, *known):
            words = ", ".join(f'"{one}"' for one in known)
            raise ValueError(f"{what} must be {words} or None, got {value!r}")
    if unknown := {*(always or {})} - {*NAMES}:
        raise ValueError(f"always takes {', '.join(NAMES)}, got {', '.join(sorted(unknown))}")
    record = truth(mapping, parameters)
    parameters = {name: parameters[name] for name in record.parameters}
    settings = Settings(dtypes, device, seed, tolerances, strict)

    def trials(library: str) -> Iterator[AttentionSubject]:
        forms = [(rank, form) for rank in (4, 3) for form in ([layout] if layout else ["", "BTHd"])]
        forms += [(2, "")]
        for (t, d), (rank, form), wider in product(SIZES, forms, (1, 0)):
            yield AttentionSubject(
                fn=fn, own_vjp=vjp, record=record, parameters=parameters, library=library,
                settings=settings, named=names or {}, rank=rank, wider=wider,
                multiple=1 if t == 2 else t, least=d, layout=form,
                always=dict(always or {}), kinds=(masks,) if masks else KINDS[:2],
                shapes=tuple(shapes), declared=causal or "")  # fmt: skip

    expected = "query, key and value (…, T, d) to (…, T, e)"
    return judge(AttentionReport, "attention of ", fn, PROPERTIES, settings, trials, expected)
