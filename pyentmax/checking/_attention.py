"""Attention: what is right for a case of options, and the grid of cases that is tried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._questions import G, Property, of_calls
from pyentmax.checking._subject import LONG_SUM, Operator, Subject, accepts
from pyentmax.checking._tape import V, join, mapped, matmul, reshaped, take, tanh, transposed, where
from pyentmax.checking._verdict import WRONG, Case, Expected, Finding, refuse

ALIGNMENTS, KINDS = ("bottom-right", "top-left"), ("boolean", "additive", "0/1")
LAYOUTS = ("BHTd", "BTHd")
N_DROPOUTS, DEVIATIONS = 200, 6.0
SIZES = ((1, 4), (16, 16), (64, 64), (128, 128))  # multiples of T, and d, that are tried first
WIDTHS = (16, 40, 64, 72, 80, 128, 192, 256)


# --- what is right --------------------------------------------------------------------------------
def positions(c: Case, t: int, s: int) -> tuple[Array, Array, int]:
    """The positions of queries and of keys, and by how many the last key is behind query T."""
    i, j = np.indices((t, s))
    corner = 0 if c.alignment == ALIGNMENTS[1] else s - t
    return i + c.get("offset", corner), j, corner


def visible(c: Case, t: int, s: int) -> Array:
    """The mask of keys that each query sees."""
    i, j, corner = positions(c, t, s)
    see: Any = np.full((t, s), True)
    if c.causal:
        see = see & (j <= i + (c.diagonal_at or 0))
    if c.window:
        see = see & (j > i - (corner if c.window_first else 0) - c.window - (c.extra or 0))
    if c.mask is not None and not c.added:
        see = see & c.mask & (~np.bool_(c.finite_hides or 0) | (c.get("graded", 0.0) == 0))
    if c.cu_seqlens is not None:
        of = np.searchsorted(c.cu_seqlens, np.arange(s), side="left" if c.cu_late else "right")
        see = see & ((of[:t, None] == of) | (bool(c.cu_before) & (of[:t, None] > of)))
    if c.lengths is not None:
        lengths = np.reshape(c.lengths, (-1, *[1] * (c.query.ndim - 1)))
        see = see & (j < lengths + (c.longer or 0))
    if c.skip and s > c.skip:
        see = see & (j < s // c.skip * c.skip)
    if c.diagonal:
        see = see & (j // c.diagonal < i // c.diagonal)
    return see


def scale_of(c: Case) -> float:
    """The scale that is given, or 1/√d."""
    return float(c.get("scale", c.query.shape[-1] ** -0.5))


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


def weighted(c: Case, values: list[Any], record: Any, leaf: dict[str, V]) -> tuple[V, V]:
    """The output for a case, whose entries may hold a fault, and the scores."""
    q, k, v = (leaf[name] for name in ("query", "key", "value"))
    t, s, scale, cap = q.x.shape[-2], k.x.shape[-2], scale_of(c), c.softcap
    if q.x.ndim > 2 and (n := q.x.shape[-3]) > (kv := k.x.shape[-3]):
        heads = np.arange(n) % kv if c.tiled else np.arange(n) * kv // n
        share = c.group(heads) if c.group else 1.0
        k, v = take(k, heads, -3, share), take(v, heads, -3, share)
    see, bias = visible(c, t, s), leaf.get("bias", V(0.0))
    scores = matmul(q, k, c.get("keys_of_dquery", 1.0)) * scale
    if c.bias_first:
        scores, bias = scores + bias, V(0.0)
    if cap:
        cap = cap * (scale if c.cap_first else 1.0)
        scores = tanh(scores * (1 / cap), not c.no_slope) * cap
    scores = scores + bias + (0.0 if c.finite_hides else c.get("graded", 0.0))
    scores = scores + c.mask * 1.0 if c.added and "mask" in c else scores
    if "slopes" in leaf:
        i, j, _ = positions(c, t, s)
        scores = scores + reshaped(leaf["slopes"], -1, 1, 1) * -np.abs(i - j)
    hidden = -cap if cap and c.mask_first else c.get("hides", -np.inf)
    rows = scores if c.late else where(see, scores, hidden)
    if "sink" in leaf:
        rows = join(rows, reshaped(leaf["sink"], *((-1, 1, 1) if q.x.ndim > 2 else (1, 1))))
    if c.padded:  # zeros in the scores beyond the last key
        rows = join(rows, V(np.zeros(-s % c.padded)))
    p = mapped(record, values, rows * c.get("times", 1.0), c.get("axis", -1), not c.no_delta)
    p = where(np.any(see, axis=-1, keepdims=True), p, 1 / s) if c.mean else p
    if c.backward:  # a backward pass that computes its weights of other scores
        total = np.log(np.sum(np.exp(rows.x), axis=-1, keepdims=True))
        again = np.where(visible(c | c.backward, t, s), scores.x, -np.inf)
        weights = np.where(total > -np.inf, np.exp(again - np.maximum(total, -1e300)), 0)
        value = p.x[..., :s] @ v.x
        return V(value, (scores, lambda g: weights * (
            g @ np.swapaxes(v.x, -1, -2) - np.sum(g * value, axis=-1, keepdims=True))),
            (v, lambda g: np.swapaxes(weights, -1, -2) @ g)), scores  # fmt: skip
    used = p if p.x.shape[-1] == s else take(p, np.arange(s), -1)
    used = where(see, used, 0) if c.late else used
    used = V(_not_rescaled(c.blocks, p.x, rows.x, s)) if c.blocks else used
    out = matmul(used, transposed(v))
    if c.reshaped and out.x.ndim > 2:
        out = reshaped(transposed(out, -2, -3), *out.x.shape)
    return out, scores


# --- what is tried --------------------------------------------------------------------------------
# An option: fn's usual names of it, its property and what that says, a case of it, and what the
# property's cases have besides. One, and two at a time, are tried at four shapes.
Option = tuple[str, str, str, dict[str, Any], list[dict[str, Any]]]
OPTIONS: dict[str, Option] = {
    "scale": ("scale softmax_scale sm_scale scaling", "scale",
              "``scale`` takes the place of 1/√d.", {"scale": 0.3}, [{}, {"scale": 2.0}]),
    "mask": ("mask attn_mask attention_mask att_mask", "boolean masks",
             "Keys where the mask is False are not seen.", {"mask": "some"},
             [{"mask": "boolean"}, {"t": 4, "s": 4, "mask": "boolean"}]),
    "graded": ("", "additive masks", "A mask is added; −∞ hides keys.", {"mask": "graded"},
               [{"mask": "additive"}, {}]),
    "0/1": ("", "masks of 0 and 1", "Keys where it is 0 are not seen.", {"mask": "0/1"}, [{}]),
    "causal": ("causal is_causal", "causal, T = S", "A query sees no later key.",
               {"causal": True}, [{"t": 4, "s": 4}, {"t": 7, "s": 7}]),
    "offset": ("offset", "offsets", "Query i stands at position i + offset.",
               {"causal": True, "offset": 1}, [{"offset": o} for o in (0, 1, 2)]),
    "window": ("window window_size sliding_window local_window_size sliding_window_size",
               "sliding windows", "A query sees the last w keys, its own with them.",
               {"causal": True, "window": 3}, [{"t": 6, "s": 6, "window": w} for w in (2, 3)]),
    "sink": ("sink sinks s_aux", "sinks", "One more score per head takes weight, and has no value.",
             {"sink": "drawn"}, [{}, {"t": 80}]),
    "softcap": ("softcap logits_soft_cap attn_logits_soft_cap soft_cap logit_cap", "softcap",
                "Scores are cap · tanh(scores / cap).", {"softcap": 0.7, "spread": 3.0}, [{}]),
    "bias": ("bias attn_bias position_bias", "bias", "The bias is added to the scaled scores.",
             {"bias": "drawn"}, [{}, {"t": 80}]),
    "slopes": ("slopes alibi_slopes", "slopes", "A bias of −slope times the distance.",
               {"causal": True, "slopes": "drawn"}, [{"t": 4, "s": 4}]),
    "lengths": ("lengths key_lengths key_value_seq_lengths seq_lens valid_lens", "key lengths",
                "Keys from a length on are not seen.", {"lengths": "drawn"}, [{}]),
    "cu_seqlens": ("cu_seqlens cu_seqlens_q", "packed sequences",
                   "A query sees its own sequence alone, of three and an empty one.",
                   {"cu_seqlens": "drawn"}, [{"t": 9, "s": 9}]),
    "groups": ("", "", "", {"heads": 4, "kv": 2}, []),
    "dropout": ("dropout dropout_p dropout_rate", "", "", {}, []),
}  # fmt: skip
PAIRED = {name: case for name, (*_, case, _) in OPTIONS.items() if name not in ("0/1", "dropout")}
BLOCKS = [  # T, S, d, B, H, heads of keys
    (1, 257, 64, 1, 2, 0), (17, 17, 16, 3, 8, 2), (65, 65, 80, 2, 2, 0), (17, 64, 128, 1, 2, 1),
    (64, 17, 16, 3, 12, 0), (130, 130, 64, 1, 1, 0), (65, 257, 16, 1, 2, 1), (257, 65, 16, 1, 1, 0),
    (300, 300, 16, 1, 1, 0), (5, 7, 64, 5, 16, 2),
]  # fmt: skip


def _has(u: Subject, words: Any) -> bool:
    known = {*u.spelled, *u.facts["always"]} | ({"causal"} if "window" in words else set())
    return {*words} & {*u.operator.names} <= known


def _blocks(u: Subject) -> list[Any]:
    options: Any = ({}, {"causal": True}, {"causal": True, "window": 40},
               {"causal": True, "window": 70}, {"mask": "some"}, {"lengths": "drawn"})  # fmt: skip
    groups = u.facts["rank"] > 2 and not u.facts["groups"]
    shapes = [*BLOCKS[: 2 if u.compiles else None],
              *((*size, 1, 2, 0) for size in u.operator.sizes)]  # fmt: skip
    return [{"t": t, "s": s, "d": d, "b": b, "heads": h, "kv": kv * groups, **G, **more}
            for t, s, d, b, h, kv in shapes for more in options
            if _has(u, more) and more.get("window", 0) < s]  # fmt: skip


def _pairs(t: int, s: int, u: Subject) -> list[Any]:
    if u.compiles and not 1 < t < s:  # each case is compiled: one shape has to do
        return []
    both = [PAIRED[a] | PAIRED[b] for a, b in combinations(PAIRED, 2)
            if {a, b} not in ({"mask", "graded"}, {"lengths", "cu_seqlens"})
            and not ({a, b} & {"cu_seqlens", "offset"} and t != s)]  # fmt: skip
    words = {"t": t, "s": s, "seed": 1, **({} if u.half and not u.alone else G)}
    alone = [] if u.compiles else [*PAIRED.values()]
    return [words | one for one in (*alone, *both) if _has(u, one)]


def _dropout(u: Subject, case: Case) -> Iterator[Finding]:
    refuse(u.library == "jax", "JAX draws random numbers from a key alone")
    state = np.random.get_state()  # noqa: NPY002  # fn may draw from it
    with ExitStack() as stack:
        stack.callback(np.random.set_state, state)  # noqa: NPY002
        if u.library == "torch":
            stack.enter_context(sys.modules["torch"].random.fork_rng(devices=[]))
        outputs = np.stack([u.observe(case)["output"] for _ in range(N_DROPOUTS)])
    deviation = np.std(outputs, axis=0) / np.sqrt(N_DROPOUTS) + 1e-6
    one = u.expect(case)["output"]
    one = one._replace(allowed=one.allowed + deviation * DEVIATIONS / u.limit)
    yield u.measure(case, "output", outputs.mean(0), one)


class Attention(Operator):
    """A function of queries, keys, values and options."""

    kind, positional, laid_out = "attention", ("query", "key", "value"), 3
    floats = ("query", "key", "value", "sink", "bias")
    integers = "int32"
    taken = ("max_seqlen_q", "max_seqlen_k", "cu_seqlens_k")
    expected_arrays = "query, key and value (…, T, d) to (…, T, e)"
    lines = {"dsink": "gradients of sink and bias", "dbias": "gradients of sink and bias",
             "dparameter": "gradient of the parameter"}  # fmt: skip
    gradient_line = "gradients"
    names = {name: tuple(names.split()) for name, (names, *_) in OPTIONS.items() if names}
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
        Property("widths", "Keys 40, 72, 128, 192 and 256 wide.", lambda u: [
            {"t": 5, "s": 7, "d": d, "b": b, **G} for d, b in (
                (40, 1), (72, 1), (128, 3), (192, 1), (256, 2)) if d in u.facts["widths"]],
            refusable=True),
        Property("grouped heads", "Neighbouring query heads share a head of keys.", [
            {"heads": n, "kv": kv, **G} for n, kv in ((4, 2), (6, 2), (3, 1), (16, 2))],
            refusable=True, core=True),
        *(Property(name, says, [{**G, **case, **more} for more in cases], option=True,
                   core="masks" in name)
          for _, name, says, case, cases in OPTIONS.values() if name),
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
        Property("dropout", "The mean over many calls with dropout is the output without.", [
            {"dropout": 0.5}], _dropout, option=True,
            cause="dropout is not rescaled: divide the weights that stay by 1 − rate"),
        Property("gradients", "Those in query, key and value, in all cases; for any g.", [
            {**G, "upstream": how, "fixed": True} for how in ("scaled", "expanded", "zero")],
            core=True),
        Property("gradients of sink and bias", "A sink and a bias have their own."),
        Property("gradient of the parameter", "That in α, if fn takes it as an array.", [
            {**G, "learned": True}, {**G, "learned": True, "causal": True}], refusable="always"),
        *of_calls([{}, {"t": 17, "s": 17}], [{"t": 3, "s": 5}, {"t": 17, "s": 17, "b": 3, "d": 64}],
                  [{"t": 3, "s": 5}, {"t": 17, "s": 17}], [{"mask": "some"}],
                  [{"sink": "drawn"}, {"bias": "drawn"}, {"lengths": "drawn"}]),
    )  # fmt: skip

    def __init__(self, layout: str | None = None, always: Any = None, masks: str | None = None,
                 causal: str | None = None, sizes: Any = ()) -> None:  # fmt: skip
        self.layout, self.always, self.masks = layout, dict(always or {}), masks
        self.causal, self.sizes = causal, tuple(sizes)

    def axes(self, u: Subject, words: Any) -> int:
        """The axes of fn's arrays."""
        return int(u.facts["rank"])

    # --- what is found out ------------------------------------------------------------------------
    def forms(self, u: Subject) -> Iterator[dict[str, Any]]:
        """Axes, layouts, widths and sizes; last a single query, with its axis or without."""
        no = ("newest", "pair", "equal", "packed", "turned", "one", "extra", "groups")
        facts = {**dict.fromkeys(no, 0), "aligned": "", "mask_axes": 4, "widths": WIDTHS,
                 "always": self.always,
                 "kinds": (self.masks,) if self.masks else KINDS[:2]}  # fmt: skip
        layouts = (self.layout,) if self.layout else LAYOUTS
        axes = [(rank, form) for rank in (4, 3) for form in layouts] + [(2, "BHTd")]
        sizes = (*((size, "") for size in SIZES), (SIZES[0], "one"), (SIZES[0], "none"))
        for ((m, d), single), (rank, form), wider in product(sizes, axes, (1, 0)):
            yield facts | {"rank": rank, "layout": form, "wider": wider, "least": d,
                           "multiple": m, "single": single}  # fmt: skip

    def settle(self, u: Subject) -> None:
        """A table of facts: each is the candidate with the least error for a case."""
        f, n, heads = u.facts, max(3, u.facts["multiple"]), u.facts["rank"] > 2
        window = {"t": 6, "s": 6, "causal": True, "window": 2}
        if heads:
            ways = product((self.layout,) if self.layout else LAYOUTS, (False, True))
            forms = [{"layout": x, "turned": y} for x, y in ways if not (y and self.layout)]
            found = any(u.nearest(forms, True, t=t, s=t, heads=4) <= 1 for t in (n, 1))  # p = 1
            if not found and u.error(t=n, s=n, heads=4):
                u.nearest(forms, False, t=n, s=n, heads=4)
        if "causal" not in u.spelled and "causal" not in self.always:
            both = [{"always": self.always | more} for more in ({}, {"causal": True})]
            u.nearest(both, True, t=6, s=6)
        f["widths"] = tuple(d for d in WIDTHS[: 3 if u.compiles else None]
                            if not u.error(t=2, s=2, d=d))  # fmt: skip
        f["one"] = f["multiple"] == 1 or not u.having(one=True).error(t=1, s=4)
        f["equal"] = bool(not f["single"] and u.error(t=3, s=5) and u.error(t=5, s=3))
        f["groups"] = u.error(t=4, s=4, heads=4, kv=2) if heads else ""
        if "window" in u.spelled:
            default = getattr(u.known.get(u.spelled["window"]), "default", None)
            refused = u.error(**window) and not u.having(pair=True).error(**window)
            f["pair"] = isinstance(default, tuple) or bool(refused)
            u.nearest([{"extra": 0}, {"extra": 1}], True, **window)
        for t, s in ((3, 9), (9, 3)) if not f["equal"] else ():
            if not f["aligned"]:
                corners = [{"aligned": x} for x in ALIGNMENTS]
                u.nearest(corners, False, t=t, s=s, causal=True, edge=True)
        if f["aligned"] == ALIGNMENTS[1] and not self.causal:
            u.nearest([{"newest": False}, {"newest": True}], True, t=1, s=5, causal=True)
        if "cu_seqlens" in u.spelled and heads:
            words = {"t": 9, "s": 9, "cu_seqlens": "drawn"}
            f["packed"] = u.having(packed=True).off(**words) <= 1 or bool(u.error(**words))
        if f["wider"] and any(u.error(**one) and not u.having(wider=0).error(**one)
                              for one in PAIRED.values()):  # fmt: skip
            f["wider"] = 0
        if "mask" in u.spelled:
            self._masks(u)
        self._say(u)

    def _masks(self, u: Subject) -> None:
        """The kinds of mask that fn takes, and their axes; one taken otherwise is a fault."""
        kinds = (self.masks,) if self.masks else KINDS
        for axes in (4, 3, 2):
            one = u.having(mask_axes=axes, kinds=kinds)
            off = {kind: one.off(mask=kind) for kind in kinds}
            if min(off.values()) < np.inf:
                break
        right = [kind for kind in kinds if off[kind] <= 1]
        # A boolean mask that counts as 0 and 1 is both; 0 and 1 that are added are neither.
        right = [kind for kind in right if kind != "0/1" or right == ["0/1"]]
        if 1 < off.get("boolean", 0) < np.inf and one.off(mask="boolean", added=True) > 1:
            right = ["boolean", *right]  # not added as 1 and 0: so it was meant as a mask
        slips = ("NameError", "AttributeError")  # of the pen, not another convention
        refused = [kind for kind in kinds[:2] if off[kind] == np.inf]
        right += [kind for kind in refused if one.error(mask=kind).startswith(slips)]
        known = [kind for kind in kinds[:2] if kind not in refused]
        u.facts["mask_axes"] = axes
        found = kinds if self.masks else right or known or KINDS[:1]
        u.facts["kinds"] = tuple(dict.fromkeys(found))

    def _say(self, u: Subject) -> None:
        f = u.facts
        axes = {4: "(B, T, H, d)", 3: "(T, H, d)", 2: ""}[f["rank"]]
        shape = {3: "(B, 1, T, S)", 2: "(T, S)"}.get(f["mask_axes"], "")
        refused = [str(d) for d in WIDTHS if d not in f["widths"]]
        for true, words in (
            (f["layout"] == "BTHd" and not f["turned"],
             f'its arrays are {axes}; layout="BTHd" declares it'),
            (f["turned"], f"of {f['layout']} it gives {LAYOUTS[f['layout'] == 'BHTd']}, as "
                          "transformers' attention does"),
            (f["always"] != self.always,
             'it is causal always; always={"causal": True} declares it'),
            (f["single"], "it takes one query alone"
                          + ", without its axis" * (f["single"] == "none")),
            (refused and not u.compiles, f"keys {', '.join(refused)} wide are refused"),
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
        f = u.facts
        packed = "cu_seqlens" in options and f["packed"]
        rank, k = 3 if packed else f["rank"], u.parameters.get("k", 0)
        known = ("hidden", "gradients", "upstream", "layout", "edge", "learned", "added")
        extra = {name: options.pop(name) for name in known if name in options}
        kind, how = options.get("mask", ""), extra.get("upstream", "")
        refuse("learned" in extra and not u.learned, "no parameter of the mapping may be learned")
        unknown = [x for x in options if x in self.names and x not in (*u.spelled, *f["always"])]
        refuse(not _has(u, options), f"no parameter {', '.join(unknown)}")
        other = [x for x, y in f["always"].items() if not np.array_equal(options.get(x, y), y)]
        refuse(other, f"{', '.join(other)} is built in, as always= says")
        refuse(kv and rank < 3, "fn's arrays have no heads")
        refuse(kv and f["groups"], f"fewer heads of keys raised {f['groups']}")
        if t != s and f["equal"]:
            refuse(unequal or (options and (t, s) != (3, 5)), "T and S have to be equal")
            t = s = min(max(t, s), 300)
        refuse(t > s and f["single"], "it takes one query alone")
        t = 1 if f["single"] else t
        kinds = ("", "empty", "some", *f["kinds"], "graded"[: 6 * ("additive" in f["kinds"])])
        refuse(kind not in kinds, f"its masks are {' or '.join(f['kinds'])}")
        u.drop_gradients(extra, fixed or "learned" in extra or how)
        if u.compiles and max(t, s) < 10:  # few shapes, since each is compiled
            t, s = 1 if t == 1 else 3 if t < s else 7, 3 if s < t else 7
        t, s = (self._size(u, n) for n in (t, s))
        widest = max(f["widths"], default=f["least"])
        d = max(d, f["least"]) if d < 16 else d if d in f["widths"] else widest
        refuse(t != s and "cu_seqlens" in options, "packed sequences have T = S")
        refuse(s < k, f"fewer keys than k = {k}")
        rng = np.random.default_rng(u.settings.seed + seed)
        batch = ((), (heads,), (b, heads))[rank - 2]
        keys, e = (*batch[:-1], kv) if kv else batch, d + f["wider"]

        def draw(*shape: int, size: float = 1.0) -> Array:
            return u.rounded(size * rng.standard_normal(shape))

        corner = ALIGNMENTS[0] if f["newest"] and t == 1 else (
            self.causal or f["aligned"] or ALIGNMENTS[0])  # fmt: skip
        case = Case(query=draw(*batch, t, d, size=spread), key=draw(*keys, s, d),
                    value=draw(*keys, s, e), g=draw(*batch, t, e), alignment=corner,
                    extra=f["extra"], packed=packed, **f["always"] | options | extra)  # fmt: skip
        case["g"] *= {"scaled": 3.0, "zero": 0.0}.get(how, 1.0)
        case["g"] = np.ones_like(case.g) if how == "expanded" else case.g
        words = [f"T = {t}, S = {s}", f"d = {d}" * (d != 4),
                 f"B = {b}, H = {heads}" * ((b, heads) != (2, 2) and len(batch) > 1),
                 f"{kv} of {heads} heads have keys" * bool(kv)]  # fmt: skip
        words += [name if x is True else f"{name} = {x}" for name, x in (options | extra).items()
                  if name not in ("gradients", "edge")]  # fmt: skip
        case["words"] = ", ".join(filter(None, words))
        if kind:
            self._mask(u, case, kind, (*batch, t, s), rng)
        n = (1, heads, b)[rank - 2]
        one = [1] * (rank == 4) if case.bias == "broadcast" else batch[:-1]
        lengths = [max(1, s // 2), s, max(1, s - 1)]
        for name, values in {
            "bias": lambda: draw(*one, *batch[-1:], t, s), "sink": lambda: draw(*batch[-1:]),
            "slopes": lambda: u.rounded(2.0 ** -np.arange(1, heads + 1)),
            "lengths": lambda: np.resize(lengths[-n:] if n > 1 else lengths, n),
            "cu_seqlens": lambda: np.array([0, t // 3, t // 3, (2 * t - 1) // 3, t]),
        }.items():  # fmt: skip
            if name in options:
                case[name] = values()
        nothing = ~np.broadcast_to(visible(case, t, s), (*batch, t, s)).any(-1, keepdims=True)
        if nothing.any():
            case["nothing"] = nothing
            if not case.edge:  # gradients beside such rows are a property of their own
                case.pop("gradients", None)
        case.update(cost=float(case.query.size * s), long=s * u.epsilon > LONG_SUM)
        u.count(T=t, S=s, d=d, B=b, H=heads)
        return case

    def _size(self, u: Subject, n: int) -> int:
        """The number of queries or keys for n, if fn takes multiples only."""
        m = u.facts["multiple"]
        if m == 1 or (n == 1 and u.facts["one"]):
            return n
        return int(m * (max(1, n // 2) if n < m and n < 10 else -(-n // m)))

    def _mask(self, u: Subject, case: Case, kind: str, shape: tuple[int, ...], rng: Any) -> None:
        """A random mask of a kind; every query keeps the first key, and its own at both corners."""
        (t, s), axes = shape[-2:], u.facts["mask_axes"]
        shape = shape if axes == 4 else shape[-2:]
        if axes == 3 and case.query.ndim == 4:
            shape = (case.query.shape[0], 1, t, s)
        keep, i = rng.random(shape) < 0.6, np.arange(t)
        keep[..., 0] = True
        for offset in (0, s - t):
            keep[..., i, np.clip(i + offset, 0, s - 1)] = True
        if kind == "empty":
            keep[..., min(1, t - 1), :] = False
        if (x := case.pop("hidden", None)) is not None:
            hidden = ~keep.reshape(-1, t, s).any((0, 1))
            hidden[-1], keep[..., -1] = True, False
            case.key[..., hidden, :] = case.value[..., hidden, :] = x
        if kind == "graded":
            kind, drawn = "additive", u.rounded(rng.standard_normal(shape))
            case["graded"] = np.where(keep, drawn, 0)
        case.update(mask=keep, kind=kind if kind in KINDS else u.facts["kinds"][0])

    def _options(self, u: Subject, case: Case) -> dict[str, Any]:
        """The options of a case that fn is passed, and what it has to have, by its names."""
        f, (*batch, t, _), (s, d) = u.facts, case.query.shape, case.key.shape[-2:]
        options = {name: case[name] for name in self.names
                   if name in case and name in u.spelled and name not in f["always"]}  # fmt: skip
        neutral = {
            "causal": False, "scale": d**-0.5, "dropout": 0.0, "offset": s - t, "softcap": 0.0,
            "mask": np.ones((t, s), bool), "bias": np.zeros((t, s)), "window": t + s,
            "sink": np.full(batch[-1:], -1e4), "slopes": np.zeros(batch[-1:]),
            "lengths": np.full(batch[:1], s), "cu_seqlens": np.array([0, t]),
        }  # fmt: skip
        for name, value in neutral.items():
            one: Any = u.known.get(u.spelled.get(name, ""))
            if one and name not in options and name not in f["always"]:
                needed = one.default is one.empty and one.kind.value in (1, 3)
                if needed or (name == "causal" and one.default is True):
                    options[name] = value
        if "mask" in options and (kind := case.kind or f["kinds"][0]) != "boolean":
            keep = options["mask"]
            zero = case.get("graded", 0.0)
            options["mask"] = np.where(keep, zero, -np.inf) if kind == KINDS[1] else keep * 1.0
        if f["pair"] and options.get("window") is not None:
            options["window"] = (options["window"] - 1, 0)
        own = dict(u.passed)
        if case.learned:
            own[u.learned] = np.asarray(float(own[u.learned]))
        if "cu_seqlens" in options:  # FlashAttention's has those of the keys and the longest, too
            ends = {"q": options["cu_seqlens"], "k": case.get("cu_seqlens", np.array([0, s]))}
            more = {f"cu_seqlens_{x}": y for x, y in ends.items()} | {
                f"max_seqlen_{x}": int(np.diff(y).max()) for x, y in ends.items()}  # fmt: skip
            own |= {name: x for name, x in more.items() if name in u.known}
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
        turn = (u.facts["layout"] == "BTHd") ^ (out and u.facts["turned"])
        return np.swapaxes(x, -2, -3) if (case.packed or turn) and x.ndim > 2 else x

    def _t_axis(self, u: Subject, case: Case, out: bool = False) -> int:
        return -3 if self._turned(u, case, np.zeros((1, 2, 3)), out).shape[1] == 1 else -2

    def shape(self, u: Subject, case: Case) -> tuple[int, ...]:
        """Queries of values."""
        return (*case.query.shape[:-1], case.value.shape[-1])

    def back(self, u: Subject, case: Case, name: str, x: Array) -> Array:
        """Heads before positions."""
        if u.facts["single"] == "none" and name in ("", "query"):
            x = np.expand_dims(x, self._t_axis(u, case, not name))
        return self._turned(u, case, x, not name) if name in ("", *self.positional) else x

    def toward(self, u: Subject, case: Case, g: Array) -> Array:
        """As fn's output."""
        g = self._turned(u, case, g, True)
        return np.squeeze(g, self._t_axis(u, case, True)) if u.facts["single"] == "none" else g

    def finish(self, u: Subject, case: Case, found: dict[str, Array]) -> None:
        """Zero the rows that see no key: a property of its own asks them for zeros, or NaN."""
        for name in {"output", "dquery"} & {*found} if "nothing" in case else ():
            x = found[name]
            zero = case.nothing & (not case.edge or np.isnan(x).all(-1, keepdims=True))
            found[name] = np.where(zero, 0, x)

    def own_vjp(self, u: Subject, case: Case, native: Any, options: Any) -> dict[str, Any]:
        """Call the VJP of fn: gradients in query, key and value."""
        more = {name: x for name, x in native.items() if name not in self.positional} | options
        accepts(u.own_vjp, {*more})
        assert u.own_vjp is not None
        g = u.array(self._turned(u, case, case.g, True))
        grads = u.own_vjp(*(native[name] for name in self.positional), g, **more)
        return dict(zip(self.positional, grads, strict=False))

    # --- what is right ----------------------------------------------------------------------------
    def truth(self, u: Subject, case: Case) -> tuple[V, dict[str, V]]:
        """The output, on a tape."""
        leaves = {name: V(np.where(np.isfinite(case[name]), case[name], 0)) for name in
                  (*self.floats, "slopes") if isinstance(case.get(name), np.ndarray)}  # fmt: skip
        more = {"parameter": V(u.parameters[u.learned])} if case.learned else {}
        out, scores = weighted(case, u.values(more.get("parameter")), u.record, leaves)
        case["largest"] = float(np.max(np.abs(scores.x), initial=0))
        leaves.pop("slopes", None)
        return out, leaves | more

    def expected(self, u: Subject, case: Case, value: Array, grads: Any) -> dict[str, Expected]:
        """Rounding of the scores may move the output and its gradients."""
        arrays = [case[name] for name in (*self.positional, "g")]
        size = [float(np.max(np.abs(x), initial=0, where=np.isfinite(x))) for x in arrays]
        unit = case.get("epsilon", u.epsilon) * size[2] * (1 + case.get("largest", 0)) / 4
        rows = max(1.0, (case.query.shape[-2] / 16) ** 0.5)
        if "nothing" in case and not case.edge:
            value = np.where(case.nothing, 0, value)
        most = {name: float(np.max(np.abs(x), initial=0)) for name, x in grads.items()}
        least = WRONG * max(most.values(), default=0.0)  # dquery is 0 for one key
        return {"output": Expected(value, unit)} | {
            self.gradient(name): Expected(x, unit * max(size) ** 2 * rows or u.epsilon, max(
                least, most[name])) for name, x in grads.items()}  # fmt: skip
