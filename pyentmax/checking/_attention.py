"""Attention: what is right for a case of options, and the grid of cases that is tried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np

from pyentmax.checking import _questions as ask
from pyentmax.checking._differences import Array
from pyentmax.checking._subject import LONG_SUM, Operator, Property, Subject, accepts
from pyentmax.checking._tape import V, join, mapped, matmul, reshaped, take, tanh, transposed, where
from pyentmax.checking._verdict import CallError, Case, Expected, Finding, Missing

ALIGNMENTS, KINDS = ("bottom-right", "top-left"), ("boolean", "additive", "0/1")
LAYOUTS = ("BHTd", "BTHd")
N_DROPOUTS, DEVIATIONS = 200, 6.0
SIZES = ((2, 4), (16, 16), (64, 64), (128, 128))  # T and d that are tried first
WIDTHS = (16, 40, 64, 72, 80, 128, 192, 256)
G: Case = {"gradients": True}


# --- what is right --------------------------------------------------------------------------------
def visible(case: Case, t: int, s: int) -> Array:
    """The mask of keys that each query sees."""
    i, j = np.indices((t, s))
    default = 0 if case.get("alignment") == "top-left" else s - t
    i = i + case.get("offset", default) + case.get("later", 0)
    see = np.full((t, s), True)
    if case.get("causal"):
        see = see & (j <= i + case.get("diagonal_at", 0))
    if case.get("window"):
        row = i - (default if case.get("window_first") else 0)
        see = see & (j > row - case["window"] - case.get("extra", 0))
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


def scale_of(case: Case) -> float:
    """The scale that is given, or 1/√d."""
    return float(case.get("scale", case["query"].shape[-1] ** -0.5))


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


def weighted(case: Case, values: list[Any], record: Any, leaf: dict[str, V]) -> tuple[V, V]:
    """The output for a case, whose entries may hold a fault, and the scores."""
    q, k, v = (leaf[name] for name in ("query", "key", "value"))
    t, s = q.x.shape[-2], k.x.shape[-2]
    if q.x.ndim > 2:
        n, kv = q.x.shape[-3], k.x.shape[-3]
        heads = np.arange(n) % kv if case.get("tiled") else np.arange(n) * kv // n
        if kv < n:
            share = case.get("group", lambda heads: 1.0)(heads)
            k, v = take(k, heads, -3, share), take(v, heads, -3, share)
    see = visible(case, t, s)
    scale = scale_of(case)
    scores = matmul(q, k, case.get("keys_of_dquery", 1.0)) * scale
    bias = leaf.get("bias", V(0.0))
    cap = case.get("softcap")
    if case.get("bias_first"):
        scores = scores + bias
    if cap:
        cap = cap * (scale if case.get("cap_first") else 1.0)
        scores = tanh(scores * (1 / cap), not case.get("no_slope")) * cap
    if not case.get("bias_first"):
        scores = scores + bias
    if not case.get("finite_hides"):
        scores = scores + case.get("graded", 0.0)
    if "slopes" in leaf:
        i, j = np.indices((t, s))
        default = 0 if case.get("alignment") == "top-left" else s - t
        distance = np.abs(i + case.get("offset", default) - j)
        scores = scores + reshaped(leaf["slopes"], -1, 1, 1) * -distance
    late = case.get("late", False)
    hidden = -cap if cap and case.get("mask_first") else -np.inf
    rows = scores if late else where(see, scores, hidden)
    if "sink" in leaf:
        rows = join(rows, reshaped(leaf["sink"], *((-1, 1, 1) if q.x.ndim > 2 else (1, 1))))
    if n := case.get("padded"):  # zeros in the scores beyond the last key
        rows = join(rows, V(np.zeros(-s % n)))
    p = mapped(record, values, rows * case.get("times", 1.0), case.get("axis", -1),
               not case.get("no_delta"))  # fmt: skip
    if case.get("mean"):
        p = where(np.any(see, axis=-1, keepdims=True), p, 1 / s)
    if "backward" in case:  # a backward pass that computes its weights of other scores
        total = np.log(np.sum(np.exp(rows.x), axis=-1, keepdims=True))
        again = np.where(visible(case | case["backward"], t, s), scores.x, -np.inf)
        weights = np.where(total > -np.inf, np.exp(again - np.maximum(total, -1e300)), 0)
        value = p.x[..., :s] @ v.x
        return V(value, (scores, lambda g: weights * (
            g @ np.swapaxes(v.x, -1, -2) - np.sum(g * value, axis=-1, keepdims=True))),
            (v, lambda g: np.swapaxes(weights, -1, -2) @ g)), scores  # fmt: skip
    used = p if p.x.shape[-1] == s else take(p, np.arange(s), -1)
    if late:
        used = where(see, used, 0)
    if "blocks" in case:
        used = V(_not_rescaled(case["blocks"], p.x, rows.x, s))
    out = matmul(used, transposed(v))
    if case.get("reshaped") and out.x.ndim > 2:
        out = reshaped(transposed(out, -2, -3), *out.x.shape)
    return out, scores


# --- what is tried --------------------------------------------------------------------------------
OPTIONS: dict[str, Case] = {
    "causal": {"causal": True}, "mask": {"mask": "some"}, "window": {"causal": True, "window": 3},
    "sink": {"sink": "drawn"}, "softcap": {"softcap": 0.7, "spread": 3.0},
    "bias": {"bias": "drawn"}, "scale": {"scale": 0.3}, "groups": {"heads": 4, "kv": 2},
    "lengths": {"lengths": "drawn"}, "cu_seqlens": {"cu_seqlens": "drawn"},
    "offset": {"causal": True, "offset": 1}, "slopes": {"causal": True, "slopes": "drawn"},
    "graded": {"mask": "graded"},
}  # fmt: skip
ALONE: list[tuple[str, str, list[Case]]] = [
    ("scale", "``scale`` takes the place of 1/√d.", [{"scale": 0.3}, {"scale": 2.0}]),
    ("boolean masks", "Keys where the mask is False are not seen.", [
        {"mask": "boolean"}, {"t": 4, "s": 4, "mask": "boolean"}]),
    ("additive masks", "A mask is added; −∞ hides keys.", [
        {"mask": "additive"}, {"mask": "graded"}]),
    ("masks of 0 and 1", "Keys where the mask is 0 are not seen.", [{"mask": "0/1"}]),
    ("causal, T = S", "A query sees no later key.", [
        {"t": t, "s": t, "causal": True} for t in (4, 7)]),
    ("offsets", "Query i stands at position i + offset.", [
        {"causal": True, "offset": o} for o in (0, 1, 2)]),
    ("sliding windows", "A query sees the last w keys, its own with them.", [
        {"t": 6, "s": 6, "causal": True, "window": w} for w in (2, 3)]),
    ("sinks", "One more score per head takes weight, and has no value.", [
        {"sink": "drawn"}, {"t": 80, "sink": "drawn"}]),
    ("softcap", "Scores are cap · tanh(scores / cap).", [OPTIONS["softcap"]]),
    ("bias", "The bias is added to the scaled scores.", [
        {"bias": "drawn"}, {"t": 80, "bias": "drawn"}]),
    ("slopes", "A bias of −slope times the distance.", [
        {"t": 4, "s": 4, "causal": True, "slopes": "drawn"}]),
    ("key lengths", "Keys from a length on are not seen.", [{"lengths": "drawn"}]),
    ("packed sequences", "A query sees its own sequence alone, of three and an empty one.",
     [{"t": 9, "s": 9, "cu_seqlens": "drawn"}]),
]  # fmt: skip
BLOCKS = [  # T, S, d, B, H, heads of keys
    (1, 257, 64, 1, 2, 0), (17, 17, 16, 3, 8, 2), (65, 65, 80, 2, 2, 0), (17, 64, 128, 1, 2, 1),
    (64, 17, 16, 3, 12, 0), (130, 130, 64, 1, 1, 0), (65, 257, 16, 1, 2, 1), (257, 65, 16, 1, 1, 0),
    (300, 300, 16, 1, 1, 0), (5, 7, 64, 5, 16, 2),
]  # fmt: skip

def _has(u: Subject, words: Case) -> bool:
    options = {*words} & {*u.operator.names}
    known = {*u.spelled, *u.facts["always"]} | ({"causal"} if "window" in options else set())
    return options <= known


def _blocks(u: Subject) -> list[Case]:
    shapes = [*BLOCKS[: 2 if u.compiles else None],
              *((t, s, d, 1, 2, 0) for t, s, d in u.operator.sizes)]  # fmt: skip
    cases: list[Case] = []
    for t, s, d, b, heads, groups in shapes:
        kv = groups if u.facts["rank"] > 2 and not u.facts["groups"] else 0
        base: Case = {"t": t, "s": s, "d": d, "b": b, "heads": heads, "kv": kv, **G}
        cases += [base | more for more in ({}, {"causal": True}, {"causal": True, "window": 40},
                                           {"causal": True, "window": 70}, {"mask": "some"},
                                           {"lengths": "drawn"})]  # fmt: skip
    return [one for one in cases if _has(u, one) and one.get("window", 0) < one["s"]]


def _widths(u: Subject) -> list[Case]:
    return [{"t": 5, "s": 7, "d": d, "b": b, **G}
            for d, b in ((40, 1), (72, 1), (128, 3), (192, 1), (256, 2)) if d in u.facts["widths"]]


def _pairs(t: int, s: int, u: Subject) -> list[Case]:
    if u.compiles and not 1 < t < s:  # each case is compiled: one shape has to do
        return []
    both = [OPTIONS[a] | OPTIONS[b] for a, b in combinations(OPTIONS, 2)
            if {a, b} not in ({"mask", "graded"}, {"lengths", "cu_seqlens"})
            and not ({a, b} & {"cu_seqlens", "offset"} and t != s)]  # fmt: skip
    alone = [] if u.compiles else [*OPTIONS.values()]
    more = {} if u.half and not u.alone else G
    return [{"t": t, "s": s, **more, "seed": 1, **one} for one in (*alone, *both) if _has(u, one)]


def _laid_out(u: Subject) -> list[Case]:
    return [{"t": t, "s": s, "layout": name, **(
             {} if name in ("reversed", "read-only") else G)}
            for name in ("heads inside", "transposed", "every second", "part of a wider array",
                         "reversed", "read-only")
            if u.has_layout(name) and not (name == "heads inside" and u.facts["rank"] < 3)
            for t, s in ((3, 5), (17, 17))]  # fmt: skip


def _strided(u: Subject) -> list[Case]:
    shapes = ({"t": 3, "s": 5}, {"t": 17, "s": 17, "b": 3, "d": 64})
    return [{**one, **G, "upstream": "strided"} for one in shapes
            if u.library == "torch" and u.own_vjp is None]  # fmt: skip


def _dropout(u: Subject, case: Case) -> Iterator[Finding]:
    state = np.random.get_state()  # noqa: NPY002  # fn may draw from it
    with ExitStack() as stack:
        stack.callback(np.random.set_state, state)  # noqa: NPY002
        if u.library == "torch":
            stack.enter_context(sys.modules["torch"].random.fork_rng(devices=[]))
        outputs = np.stack([u.observe(case)["output"] for _ in range(N_DROPOUTS)])
    deviation = np.std(outputs, axis=0) / np.sqrt(N_DROPOUTS) + 1e-6
    right = u.expect(case)["output"]
    right = right._replace(allowed=right.allowed + deviation * DEVIATIONS / u.limit)
    yield u.measure(case, "output", outputs.mean(0), right)


class Attention(Operator):
    """A function of queries, keys, values and options."""

    kind, positional, laid_out = "attention", ("query", "key", "value"), 3
    floats = ("query", "key", "value", "sink", "bias")
    integers = "int32"
    taken = ("max_seqlen_q", "max_seqlen_k", "cu_seqlens_k")
    expected_arrays = "query, key and value (…, T, d) to (…, T, e)"
    names = {
        "mask": ("mask", "attn_mask", "attention_mask", "att_mask"),
        "causal": ("causal", "is_causal"),
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
    properties = (
        Property("output", "The output is mapping(scale · q kᵀ) v.", [
            {"t": 1, "s": 1}, {"t": 2, "s": 2, **G}, G, {"t": 4, "s": 4, "spread": 4.0, **G}],
            core=True, vital=True),
        Property("T < S", "There may be fewer queries than keys, also one.", [
            {"t": t, "s": 5, "unequal": True, **G} for t in (3, 1)]),
        Property("T > S", "There may be more queries than keys.", [
            {"t": t, "s": s, "unequal": True, **G} for t, s in ((5, 3), (7, 2))]),
        Property("long rows", "Rows of 300 and 1200 keys, also with nearly equal scores.", [
            {"t": 2, "s": 1200, "spread": 1e-3}, {"t": 2, "s": 1200}, {"t": 2, "s": 300, **G},
            {"t": 130, "s": 70, **G}], core=True),
        Property("large scores", "Scores of some thousands.", [
            {"spread": 1e3}, {"t": 2, "s": 300, "spread": 1e3}], edge=True, core=True),
        Property("blocks", "T and S of 1 to 300, d of 16 to 128, up to 5 batches of 16 heads.",
                 _blocks, refusable=True, vital=True),
        Property("widths", "Keys 40, 72, 128, 192 and 256 wide.", _widths, refusable=True),
        Property("grouped heads", "Neighbouring query heads share a head of keys.", [
            {"heads": n, "kv": kv, **G} for n, kv in ((4, 2), (6, 2), (3, 1), (16, 2))],
            refusable=True, core=True),
        *(Property(name, says, [{**G, **one} for one in cases], option=True, core="masks" in name)
          for name, says, cases in ALONE),
        Property("broadcast bias", "A bias of one batch goes for all, and so does its gradient.", [
            {"t": t, "bias": "broadcast", **G} for t in (3, 80)], refusable=True),
        Property("causal, T < S", "The mask is aligned as the report says.", [
            {"causal": True, **G}, {"t": 1, "s": 5, "causal": True, **G}]),
        Property("causal, T > S", "The mask is aligned as the report says.", [
            {"t": 6, "s": 4, "causal": True}]),
        *(Property(f"pairs of options, {name}", "One and two options at a time.",
                   partial(_pairs, t, s), refusable=True) for name, t, s in (
            ("T = S", 7, 7), ("T < S", 3, 7), ("T > S", 7, 3), ("T = 1", 1, 7))),
        Property("rows that see nothing", "They give zeros or NaN, and leave others alone.", [
            {"edge": True, **G, "mask": "empty"}, {"edge": True, **G, "t": 6, "s": 4,
                                                   "causal": True}], edge=True),
        Property("NaN in what is masked", "What is not seen may be NaN or infinite.", [
            {"mask": "some", "hidden": x} for x in (np.nan, np.inf)], edge=True),
        Property("memory layouts", "Views of any strides give the same.", _laid_out),
        Property("dropout", "The mean over many calls with dropout is the output without.", [
            {"dropout": 0.5}], _dropout, option=True,
            cause="dropout is not rescaled: divide the weights that stay by 1 − rate"),
        Property("gradients", "Those in query, key and value, in all cases; for any g.", [
            {**G, "upstream": how, "fixed": True} for how in ("scaled", "expanded", "zero")],
            core=True),
        Property("gradients of sink and bias", "A sink and a bias have their own."),
        Property("gradient of the parameter", "That in α, if fn takes it as an array.", [
            {**G, "learned": True}, {**G, "learned": True, "causal": True}], refusable="always"),
        Property("strided gradients from above", "Gradients for a g that is a view.", _strided,
                 cause="strides of the gradient from above not used: make it contiguous"),
        *ask.of_calls([{}, {"t": 17, "s": 17}], [{"mask": "some"}], [
            {"sink": "drawn"}, {"bias": "drawn"}, {"lengths": "drawn"}]),
    )  # fmt: skip

    def __init__(self, layout: str | None = None, always: Any = None, masks: str | None = None,
                 causal: str | None = None, sizes: Any = ()) -> None:  # fmt: skip
        self.layout, self.always, self.masks = layout, dict(always or {}), masks
        self.causal, self.sizes = causal, tuple(sizes)

    # --- what is found out ------------------------------------------------------------------------
    def forms(self, u: Subject) -> Iterator[dict[str, Any]]:
        """Axes, layouts, widths and sizes; last a single query, with its axis or without."""
        facts = {"always": self.always, "aligned": "", "newest": False, "pair": False, "extra": 0,
                 "kinds": (self.masks,) if self.masks else KINDS[:2], "mask_axes": 4,
                 "equal": False, "groups": "", "widths": WIDTHS, "packed": False,
                 "turned": False}  # fmt: skip
        layouts = (self.layout,) if self.layout else LAYOUTS
        axes = [(rank, form) for rank in (4, 3) for form in layouts] + [(2, "BHTd")]
        for (m, d), single in (*((size, "") for size in SIZES), (SIZES[0], "one"),
                               (SIZES[0], "none")):  # fmt: skip
            for (rank, form), wider in product(axes, (1, 0)):
                yield facts | {"rank": rank, "layout": form, "wider": wider, "least": d,
                               "multiple": 1 if m == 2 else m, "single": single}  # fmt: skip

    def settle(self, u: Subject) -> None:
        """A table of facts: each is the candidate with the least error for a case."""
        f = u.facts
        square: Case = {"t": max(3, f["multiple"]), "s": max(3, f["multiple"])}
        if f["rank"] > 2:
            ways = [(f["layout"], False)] if self.layout else [*product(LAYOUTS, (False, True))]
            off = [u.having(layout=x, turned=y).off(**square, heads=4) for x, y in ways]
            if min(off) <= 1 or off[0] == np.inf:
                f["layout"], f["turned"] = ways[int(np.argmin(off))]
            elif not self.layout and self._heads_mix(u, square):
                f["layout"] = "BTHd"
        if "causal" not in u.spelled and "causal" not in self.always:
            u.nearest("always", [self.always, self.always | {"causal": True}], True, t=6, s=6)
        f["widths"] = tuple(d for d in WIDTHS[: 3 if u.compiles else None]
                            if u.works(t=2, s=2, d=d))  # fmt: skip
        f["one"] = f["multiple"] == 1 or u.having(one=True).works(t=1, s=4)
        f["equal"] = not (f["single"] or u.works(t=3, s=5) or u.works(t=5, s=3))
        if f["rank"] > 2:
            with_groups: Case = {"t": 4, "s": 4, "heads": 4, "kv": 2}
            try:
                u.observe(self.make(u, **with_groups))
            except CallError as error:
                f["groups"] = str(error)
        if "window" in u.spelled:
            words: Case = {"t": 6, "s": 6, "causal": True, "window": 2}
            parameter = u.known.get(u.spelled["window"])
            f["pair"] = isinstance(getattr(parameter, "default", None), tuple) or (
                not u.works(**words) and u.having(pair=True).works(**words))  # fmt: skip
            u.nearest("extra", [0, 1], True, **words)
        for t, s in ((3, 9), (9, 3)):
            off = [u.having(aligned=x).off(t=t, s=s, causal=True, edge=True) for x in ALIGNMENTS]
            if not f["aligned"] and not f["equal"] and min(off) < np.inf:
                f["aligned"] = ALIGNMENTS[int(np.argmin(off))]
        if f["aligned"] == ALIGNMENTS[1] and not self.causal:
            u.nearest("newest", [False, True], True, t=1, s=5, causal=True)
        if "cu_seqlens" in u.spelled and f["rank"] > 2:
            words = {"t": 9, "s": 9, "cu_seqlens": "drawn"}
            f["packed"] = u.having(packed=True).off(**words) <= 1 or not u.works(**words)
        if f["wider"] and any(not u.works(**one) and u.having(wider=0).works(**one)
                              for one in OPTIONS.values()):  # fmt: skip
            f["wider"] = 0
        self._masks(u)
        self._say(u)

    def _heads_mix(self, u: Subject, square: Case) -> bool:
        """Whether a value moves the outputs of other heads, and none of other positions."""
        case, moved = self.make(u, **square, heads=4), []
        for axis in (-3, -2):
            value = np.moveaxis(case["value"], axis, 0).copy()
            value[0] += 1.0
            other = {**case, "value": np.moveaxis(value, 0, axis)}
            change = np.nan_to_num(u.observe(other)["output"] - u.observe(case)["output"])
            moved.append(np.abs(np.moveaxis(change, axis, 0)[1:]).max() > 1e-3)
        return moved == [True, False]

    def _masks(self, u: Subject) -> None:
        """The kinds of mask that fn takes, and their axes; one taken otherwise is a fault."""
        if "mask" not in u.spelled:
            return
        kinds = (self.masks,) if self.masks else KINDS
        for axes in (4, 3, 2):
            one = u.having(mask_axes=axes, kinds=kinds)
            off = {kind: one.off(mask=kind) for kind in kinds}
            if min(off.values()) < np.inf:
                break
        right = [kind for kind in kinds if off[kind] <= 1]
        # A boolean mask that counts as 0 and 1 is both; 0 and 1 that are added are neither.
        right = [kind for kind in right if kind != "0/1" or right == ["0/1"]]
        if "boolean" in kinds and "boolean" not in right and off["boolean"] < np.inf:
            case = self.make(one, mask="boolean")
            added = {name: x for name, x in case.items() if name != "mask"} | {
                "graded": case["mask"] * 1.0}  # fmt: skip
            as_numbers = one.expect(added)["output"]
            found = one.measure(case, "output", one.observe(case)["output"], as_numbers)
            if found.units > one.limit:  # not added as 1 and 0: so it was meant as a mask
                right = ["boolean", *right]
        known = [kind for kind in KINDS[:2] if off.get(kind, np.inf) < np.inf]
        for kind in {*kinds[:2]} - {*known}:
            try:
                one.observe(self.make(one, mask=kind))
            except CallError as error:
                if isinstance(error.__cause__, (NameError, AttributeError)):
                    right += [kind]  # a slip of the pen, not another convention
        u.facts["mask_axes"] = axes
        u.facts["kinds"] = tuple(kinds if self.masks else right or known or KINDS[:1])

    def _say(self, u: Subject) -> None:
        f = u.facts
        axes = {4: "(B, T, H, d)", 3: "(T, H, d)", 2: ""}[f["rank"]]
        shape = {3: "(B, 1, T, S)", 2: "(T, S)"}.get(f["mask_axes"], "")
        for true, words in (
            (f["layout"] == "BTHd" and not f["turned"],
             f'its arrays are {axes}; layout="BTHd" declares it'),
            (f["turned"], f"of {f['layout']} it gives {LAYOUTS[f['layout'] == 'BHTd']}, as "
                          "transformers' attention does"),
            (f["always"] != self.always,
             'it is causal always; always={"causal": True} declares it'),
            (f["single"], "it takes one query alone"
                          + ", without its axis" * (f["single"] == "none")),
            (len(f["widths"]) < len(WIDTHS) and not u.compiles,
             f"keys {', '.join(str(d) for d in WIDTHS if d not in f['widths'])} wide are refused"),
            (f["multiple"] > 1 or f["least"] > 4, f"T and S are multiples of {f['multiple']}, keys "
                                                  f"at least {f['least']} wide"),
            (not f["wider"], "values are as wide as keys"),
            (f["equal"], "T and S have to be equal"),
            (f["pair"], "a window of w keys was passed as (w − 1, 0)"),
            (f["extra"], "a window of w has w + 1 keys, the query's own with them"),
            (f["aligned"], f"the causal mask is aligned {f['aligned']}"),
            (f["newest"], "a single query sees all keys"),
            (f["packed"], "packed sequences are (N, H, d)"),
            (shape and f["rank"] > 2, f"masks are {shape}: another shape raises an error"),
            ("mask" in u.spelled and not self.masks and len(f["kinds"]) == 1,
             f'masks are {f["kinds"][0]}; masks="{f["kinds"][0]}" declares it'),
        ):  # fmt: skip
            if true:
                u.say(words)

    # --- cases ------------------------------------------------------------------------------------
    def sample(self, u: Subject) -> Case:
        """As many queries as keys."""
        return self.make(u, t=2, s=2)

    def make(self, u: Subject, t: int = 3, s: int = 5, d: int = 4, b: int = 2, heads: int = 2,
             kv: int = 0, spread: float = 1.0, fixed: bool = False, unequal: bool = False,
             seed: int = 0, **options: Any) -> Case:  # fmt: skip
        """Random arrays, and options in words made arrays."""
        f, rank = u.facts, u.facts["rank"]
        packed = "cu_seqlens" in options and f["packed"]
        rank = 3 if packed else rank
        known = ("hidden", "gradients", "upstream", "layout", "edge", "learned")
        extra: Case = {name: options.pop(name) for name in known if name in options}
        if extra.get("learned") and not u.learned:
            raise Missing("no parameter of the mapping that may be learned")
        for name in options:
            if (
                name not in u.spelled
                and name not in f["always"]
                and not (name == "causal" and "window" in options)
            ):
                raise Missing(f"no parameter {name}")
        if kv and (rank < 3 or f["groups"]):
            raise Missing(f["groups"] and f"fewer heads of keys raised {f['groups']}"
                          or "fn's arrays have no heads")  # fmt: skip
        if t != s and f["equal"]:
            if unequal or (options and (t, s) != (3, 5)):
                raise Missing("T and S have to be equal")
            t = s = min(max(t, s), 300)
        if t > 1 and f["single"]:
            if t > s:
                raise Missing("it takes one query alone")
            t = 1
        kind = options.get("mask", "")
        if (kind and kind not in ("empty", "some", "graded", *f["kinds"])) or (
            kind == "graded" and "additive" not in f["kinds"]
        ):
            raise Missing(f"its masks are {' or '.join(f['kinds'])}")
        if extra.get("gradients") and u.no_gradients:
            if fixed or extra.get("learned") or "upstream" in extra:
                raise Missing(u.no_gradients)
            del extra["gradients"]
        if u.compiles and max(t, s) < 10:  # few shapes, since each is compiled
            t, s = 1 if t == 1 else 3 if t < s else 7, 3 if s < t else 7
        t, s = (self._size(u, n) for n in (t, s))
        d = max(d, f["least"]) if d < 16 else d if d in f["widths"] else max(
            f["widths"], default=f["least"])  # fmt: skip
        if t != s and "cu_seqlens" in options:
            raise Missing("packed sequences have T = S")
        if s < u.parameters.get("k", 0):
            raise Missing(f"fewer keys than k = {u.parameters['k']}")
        e = d + f["wider"]
        rng = np.random.default_rng(u.settings.seed + seed)
        batch = ((), (heads,), (b, heads))[rank - 2]
        keys = (*batch[:-1], kv) if kv else batch

        def draw(*shape: int, size: float = 1.0) -> Array:
            return u.rounded(size * rng.standard_normal(shape))

        alignment = self.causal or f["aligned"] or ALIGNMENTS[0]
        case: Case = {
            "query": draw(*batch, t, d, size=spread), "key": draw(*keys, s, d),
            "value": draw(*keys, s, e), "g": draw(*batch, t, e),
            "alignment": ALIGNMENTS[0] if f["newest"] and t == 1 else alignment,
            "extra": f["extra"], "packed": packed, **f["always"], **options, **extra,
        }  # fmt: skip
        case["g"] = case["g"] * {"scaled": 3.0, "zero": 0.0}.get(extra.get("upstream", ""), 1.0)
        if extra.get("upstream") == "expanded":
            case["g"] = np.ones_like(case["g"])
        words = [f"T = {t}, S = {s}", *([f"d = {d}"] if d != 4 else ()),
                 *([f"B = {b}, H = {heads}"] if (b, heads) != (2, 2) and len(batch) > 1 else ()),
                 *([f"{kv} of {heads} heads have keys"] if kv else ())]  # fmt: skip
        words += [name if x is True else f"{name} = {x}" for name, x in (options | extra).items()
                  if name not in ("gradients", "edge")]  # fmt: skip
        case["words"] = ", ".join(words)
        if kind:
            self._mask(u, case, kind, (*batch, t, s), rng)
        if "bias" in case:
            one = [1] * (rank == 4) if case["bias"] == "broadcast" else batch[:-1]
            case["bias"] = draw(*one, *batch[-1:], t, s)
        if "sink" in case:
            case["sink"] = draw(*batch[-1:])
        if "slopes" in case:
            case["slopes"] = u.rounded(2.0 ** -np.arange(1, heads + 1))
        if "lengths" in case:
            n = (1, heads, b)[rank - 2]
            lengths = [max(1, s // 2), s, max(1, s - 1)][-n:] if n > 1 else [s // 2]
            case["lengths"] = np.resize(np.maximum(lengths, 1), n)
        if "cu_seqlens" in case:
            case["cu_seqlens"] = np.array([0, t // 3, t // 3, (2 * t - 1) // 3, t])
        see = np.broadcast_to(visible(case, t, s), (*batch, t, s))
        nothing = ~see.any(-1, keepdims=True)
        if nothing.any():
            case["nothing"] = nothing
            if not case.get("edge"):  # gradients beside such rows are a property of their own
                case.pop("gradients", None)
        case["cost"] = float(case["query"].size * s)
        case["long"] = s * u.epsilon > LONG_SUM
        u.count(T=t, S=s, d=d, B=b, H=heads)
        return case

    def _size(self, u: Subject, n: int) -> int:
        """The number of queries or keys for n, if fn takes multiples only."""
        m = u.facts["multiple"]
        if m == 1 or (n == 1 and u.facts.get("one")):
            return n
        return int(m * (max(1, n // 2) if n < m and n < 10 else -(-n // m)))

    def _mask(self, u: Subject, case: Case, kind: str, shape: tuple[int, ...], rng: Any) -> None:
        """A random mask of a kind; every query keeps the first key, and its own at both corners."""
        (t, s), axes = shape[-2:], u.facts["mask_axes"]
        shape = shape if axes == 4 else shape[-2:]
        if axes == 3 and len(case["query"].shape) == 4:
            shape = (case["query"].shape[0], 1, t, s)
        keep, i = rng.random(shape) < 0.6, np.arange(t)
        keep[..., 0] = True
        keep[..., i, np.clip(i, 0, s - 1)] = True
        keep[..., i, np.clip(i + s - t, 0, s - 1)] = True
        if kind == "empty":
            keep[..., min(1, t - 1), :] = False
        if (x := case.pop("hidden", None)) is not None:
            hidden = ~keep.reshape(-1, t, s).any((0, 1))
            hidden[-1], keep[..., -1] = True, False
            case["key"][..., hidden, :] = case["value"][..., hidden, :] = x
        if kind == "graded":
            case["graded"] = np.where(keep, u.rounded(rng.standard_normal(shape)), 0)
        kind = {"graded": "additive"}.get(kind, kind)
        case["mask"], case["kind"] = keep, kind if kind in KINDS else u.facts["kinds"][0]

    def _options(self, u: Subject, case: Case) -> dict[str, Any]:
        """The options of a case that fn is passed, and what it has to have, by its names."""
        f = u.facts
        options = {name: case[name] for name in self.names
                   if name in case and name in u.spelled and name not in f["always"]}  # fmt: skip
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
            parameter = u.known.get(u.spelled.get(name, ""))
            if parameter is not None and name not in options and name not in f["always"]:
                needed = parameter.default is parameter.empty and parameter.kind.value in (1, 3)
                if needed or (name == "causal" and parameter.default is True):
                    options[name] = value
        if "mask" in options:
            options["mask"] = keep = case.get("inverted", options["mask"])
            kind = case.get("kind", f["kinds"][0])
            if kind == "additive":
                options["mask"] = np.where(keep, case.get("graded", 0.0), -np.inf)
            elif kind == "0/1":
                options["mask"] = keep.astype(float)
        if f["pair"] and options.get("window") is not None:
            options["window"] = (options["window"] - 1, 0)
        own = dict(u.passed)
        if case.get("learned"):
            own[u.learned] = np.asarray(float(own[u.learned]))
        if "cu_seqlens" in options:  # FlashAttention's has those of the keys and the longest, too
            ends = {"q": options["cu_seqlens"], "k": case.get("cu_seqlens", np.array([0, s]))}
            own |= {f"cu_seqlens_{x}": ends[x] for x in ends if f"cu_seqlens_{x}" in u.known}
            own |= {f"max_seqlen_{x}": int(np.diff(ends[x]).max()) for x in ends
                    if f"max_seqlen_{x}" in u.known}  # fmt: skip
        return {u.spelled[name]: x for name, x in options.items()} | own

    def given(self, u: Subject, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays in fn's layout, and options."""
        options = self._options(u, case)
        arrays = {name: self._turned(u, case, case[name]) for name in self.positional}
        if u.facts["single"] == "none":
            arrays["query"] = np.squeeze(arrays["query"], self._t_axis(u, case))
        arrays |= {name: x for name, x in options.items() if isinstance(x, np.ndarray)}
        return arrays, {name: x for name, x in options.items() if name not in arrays}

    def _turned(self, u: Subject, case: Case, x: Array, out: bool = False) -> Array:
        """Heads and positions swapped, if fn has them so."""
        before = case.get("packed") or u.facts["layout"] == "BTHd"
        turn = before ^ (out and u.facts["turned"] and not case.get("packed"))
        return np.swapaxes(x, -2, -3) if turn and x.ndim > 2 else x

    def _t_axis(self, u: Subject, case: Case, out: bool = False) -> int:
        return -3 if self._turned(u, case, np.zeros((1, 2, 3)), out).shape[1] == 1 else -2

    def shape(self, u: Subject, case: Case) -> tuple[int, ...]:
        """Queries of values."""
        return (*case["query"].shape[:-1], case["value"].shape[-1])

    def back(self, u: Subject, case: Case, name: str, x: Array) -> Array:
        """Heads before positions."""
        if name not in ("", *self.positional):
            return x
        if u.facts["single"] == "none" and name in ("", "query"):
            x = np.expand_dims(x, self._t_axis(u, case, not name))
        return self._turned(u, case, x, not name)

    def toward(self, u: Subject, case: Case, g: Array) -> Array:
        """As fn's output."""
        g = self._turned(u, case, g, True)
        return np.squeeze(g, self._t_axis(u, case, True)) if u.facts["single"] == "none" else g

    def finish(self, u: Subject, case: Case, found: dict[str, Array]) -> None:
        """Zero the rows that see no key: a property of its own asks them for zeros, or NaN."""
        if "nothing" in case:
            for name in {"output", "dquery"} & {*found}:
                x, strict = found[name], case.get("edge")
                zero = case["nothing"] & (np.isnan(x).all(-1, keepdims=True) if strict else True)
                found[name] = np.where(zero, 0, x)

    def line(self, name: str) -> str:
        """Gradients have lines of their own."""
        return {"dsink": "gradients of sink and bias", "dbias": "gradients of sink and bias",
                "dparameter": "gradient of the parameter"}.get(name, "gradients")  # fmt: skip

    def own_vjp(self, u: Subject, case: Case, native: Any, options: Any) -> dict[str, Any]:
        """Call the VJP of fn: gradients in query, key and value."""
        more = {name: x for name, x in native.items() if name not in self.positional} | options
        accepts(u.own_vjp, {*more})
        g = u.array(self._turned(u, case, case["g"], True))
        assert u.own_vjp is not None
        grads = u.own_vjp(*(native[name] for name in self.positional), g, **more)
        return dict(zip(self.positional, grads, strict=False))

    # --- what is right ----------------------------------------------------------------------------
    def truth(self, u: Subject, case: Case) -> tuple[V, dict[str, V]]:
        """The output, on a tape."""
        leaves = {name: V(np.where(np.isfinite(case[name]), case[name], 0)) for name in
                  (*self.floats, "slopes") if isinstance(case.get(name), np.ndarray)}  # fmt: skip
        more = {}
        if case.get("learned"):
            more["parameter"] = V(u.parameters[u.learned])
        out, scores = weighted(case, u.values(more.get("parameter")), u.record, leaves)
        case["largest"] = float(np.max(np.abs(scores.x), initial=0))
        leaves.pop("slopes", None)
        return out, leaves | more

    def expected(self, u: Subject, case: Case, value: Array, grads: Any) -> dict[str, Expected]:
        """Rounding of the scores may move the output and its gradients."""
        arrays = [case[name] for name in (*self.positional, "g")]
        size = [float(np.max(np.abs(x), initial=0, where=np.isfinite(x))) for x in arrays]
        unit = case.get("epsilon", u.epsilon) * size[2] * (1 + case.get("largest", 0)) / 4
        rows = max(1.0, (case["query"].shape[-2] / 16) ** 0.5)
        if case.get("nothing") is not None and not case.get("edge"):
            value = np.where(case["nothing"], 0, value)
        return {"output": Expected(value, unit)} | {
            f"d{name}": Expected(x, unit * max(size) ** 2 * rows or u.epsilon)
            for name, x in grads.items()
        }
