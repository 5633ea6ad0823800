"""Right mappings, losses and attentions, and planted faults: a change, a verdict, a cause.

A fault of a text is what is replaced in it. The cause is the start of a line of the report, and
"" where none of the known ones is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import pyentmax as pe
from pyentmax import check_attention, check_loss, check_mapping


class Plant(NamedTuple):
    """A function, how it is checked, and what has to come out."""

    check: Callable[..., Any]
    fn: Any
    claim: str
    verdict: str
    cause: str = ""
    options: dict[str, Any] = {}

    def report(self, **more: Any) -> Any:
        return self.check(self.fn, self.claim, **{"dtypes": ["float64"], **self.options, **more})


def changed(source: str, *changes: str) -> str:
    """A text with replacements, each of what stands there once."""
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def build(source: str, name: str = "attention", **names: Any) -> Any:
    namespace: dict[str, Any] = {"np": np, "pe": pe, "mapping": pe.softmax, **names}
    exec(source, namespace)
    return namespace[name]


# --- attention ------------------------------------------------------------------------------------
RIGHT = """
def attention(query, key, value, mask=None, causal=False, scale=None, bias=None, sink=None,
              softcap=None, window=None, offset=None, lengths=None, cu_seqlens=None, slopes=None):
    t, s, d = query.shape[-2], key.shape[-2], query.shape[-1]
    if query.ndim > 2 and key.shape[-3] != query.shape[-3]:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (np.repeat(x, groups, axis=-3) for x in (key, value))
    scale = query.dtype.type(d ** -0.5 if scale is None else scale)
    scores = query @ np.swapaxes(np.nan_to_num(key, posinf=0), -1, -2) * scale
    if softcap is not None:
        scores = scores.dtype.type(softcap) * np.tanh(scores / scores.dtype.type(softcap))
    if bias is not None:
        scores = scores + bias
    i, j = np.indices((t, s))
    i = i + (s - t if offset is None else offset)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * np.abs(i - j).astype(scores.dtype)
    see = np.ones((t, s), bool)
    if causal:
        see = see & (j <= i)
    if window is not None:
        see = see & (j > i - window)
    if cu_seqlens is not None:
        of = np.searchsorted(cu_seqlens, np.arange(s), side="right")
        see = see & (of[:, None] == of)
    if lengths is not None:
        see = see & (j < lengths[:, None, None, None])
    if mask is not None:
        see = see & (mask if mask.dtype == bool else np.isfinite(mask))
        scores = scores if mask.dtype == bool else scores + np.where(np.isfinite(mask), mask, 0)
    scores = np.where(see, scores, -np.inf)
    if sink is not None:
        one = np.broadcast_to(np.reshape(sink, (-1, 1, 1)), (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, one.astype(scores.dtype)], axis=-1)
    weights = mapping(scores)
    weights = weights if sink is None else weights[..., :-1]
    return weights @ np.nan_to_num(value, posinf=0)
"""
SEEN = "see = see & (mask if mask.dtype == bool else np.isfinite(mask))"
VALUES = "    return weights @ np.nan_to_num(value, posinf=0)"
REPEAT = "np.repeat(x, groups, axis=-3)"
TILE = "np.concatenate([x] * groups, axis=-3)"
ORDER = "    if softcap is not None:\n"
BLOCKS = """    m, total, acc = np.float64(-np.inf), 0.0, 0.0
    if sink is not None:
        m, total = np.reshape(sink, (-1, 1, 1)).astype(scores.dtype), 1.0
    for at in range(0, scores.shape[-1], 64):
        part, v = scores[..., at:at + 64], np.nan_to_num(value)[..., at:at + 64, :]
        new = np.maximum(m, part.max(-1, keepdims=True))
        top = np.where(new == -np.inf, 0, new)
        p, alpha, m = np.exp(part - top), np.exp(m - top), new
        total, acc = total * alpha + p.sum(-1, keepdims=True), acc * alpha + p @ v
    return (acc / np.where(total == 0, 1, total)).astype(query.dtype)
"""
ONLINE = RIGHT[: RIGHT.index("    if sink is not None")] + BLOCKS
ATTENTION: list[tuple[str, str, str, tuple[str, ...]]] = [  # verdict, cause, what is changed
    ("right", "", RIGHT, ()), ("right", "", ONLINE, ()),
    *(("wrong", cause, RIGHT, change) for cause, *change in (
        ("scores not scaled", "d ** -0.5 if scale is None else scale", "1.0"),
        ("scale ignored", "d ** -0.5 if scale is None else scale", "d ** -0.5"),
        ("scaled by 1/d", "d ** -0.5 if", "1 / d if"),
        ("scaled by the values' width", "d ** -0.5 if", "value.shape[-1] ** -0.5 if"),
        ("scaled by the width of all heads", "d ** -0.5 if", "query[..., :1, :].size ** -0.5 * "
         "len(query) ** 0.5 if query.ndim == 4 and" " scale is None else d ** -0.5 if"),
        ("scaled twice", "* scale\n", "* scale * query.dtype.type(d ** -0.5)\n"),
        ("scaled by a width that is rounded up", "d ** -0.5 if",
         "(2 ** np.ceil(np.log2(d))) ** -0.5 if"),
        ("rows and columns confused", "mapping(scores)", "mapping(scores, axis=-2)"),
        ("heads tiled", REPEAT, TILE),
        ("heads tiled if causal", REPEAT, f"({TILE} if causal else {REPEAT})"),
        ("causal ignored", "if causal", "if False"),
        ("own key hidden", "(j <= i)", "(j < i)"),
        ("next key seen", "(j <= i)", "(j <= i + 1)"),
        ("causal aligned at the other corner", "(s - t if offset", "(0 if offset"),
        ("window ignored", "window is not None", "False"),
        ("window too narrow", "i - window", "i - window + 1"),
        ("half of the window", "i - window", "i - window // 2"),
        ("window counted from the first key", "i - window", "i - (s - t) - window"),
        ("mask ignored", "mask is not None", "False"),
        ("mask inverted", SEEN, SEEN.replace("(mask if", "(~mask if")),
        ("the first head's boolean mask for all", SEEN, SEEN.replace(
            "(mask if", "(mask[..., :1, :, :] if")),
        ("masked after the mapping", "scores = np.where(see, scores, -np.inf)", "pass",
         VALUES, "    weights = np.where(see, weights, 0)\n" + VALUES),
        ("finite entries of the mask hide", SEEN, SEEN.replace("np.isfinite(mask)", "mask == 0")),
        ("sink ignored", "if sink is not", "sink = None\n    if sink is not"),
        ("sink scaled", "np.reshape(sink", "scale * np.reshape(sink"),
        ("the first head's sink for all", "np.reshape(sink", "sink[:1] + 0 * np.reshape(sink"),
        ("softcap ignored", "softcap is not None", "False"),
        ("softcap before the scale", "* scale\n", "\n", "np.tanh(scores /",
         "scale * np.tanh(scores /",
         "    if bias is not None", "    scores = scores * (scale if softcap is None else 1)\n"
         "    if bias is not None"),
        ("softcap after the bias", ORDER, "    scores = scores + (0 if bias is None else bias)\n"
         "    bias = None\n" + ORDER),
        ("masked before the softcap", "scores, -np.inf)",
         "scores, -np.inf if softcap is None else -softcap)"),
        ("bias ignored", "bias is not None", "False"),
        ("bias scaled", "scores + bias", "scores + bias * scale"),
        ("bias subtracted", "scores + bias", "scores - bias"),
        ("slopes with the sign reversed", "scores - slopes", "scores + slopes"),
        ("offset ignored", "offset is None else offset", "True else offset"),
        ("lengths ignored", "lengths is not None", "False"),
        ("one key past the length seen", "j < lengths", "j <= lengths"),
        ("lengths ignored for one query", "if lengths is not None",
         "if lengths is not None and t > 1"),
        ("the first sequence's lengths for all", "lengths[:, None, None, None]", "lengths[0]"),
        ("sequences mixed", "cu_seqlens is not None", "False"),
        ("sequences begin one late", 'side="right"', 'side="left"'),
        ("a sequence sees those before it", "(of[:, None] == of)", "(of[:, None] >= of)"),
        ("the scores of hidden keys are 0", "scores, -np.inf)", "scores, 0.0)"),
        ("causal ignored where mask is given", "if causal", "if causal and mask is None"),
        ("sink ignored where window is given", "if sink is not",
         "sink = None if window is not None else sink\n    if sink is not"),
        ("lengths ignored where causal is given", "if lengths is not None",
         "if lengths is not None and not causal"),
        ("one query stands at the first key", "s - t if offset", "(s - t) * (t > 1) if offset"),
        ("one query without the newest key", "(j <= i)", "(j <= i - (t == 1 < s))"),
        ("heads and positions confused in the output", VALUES, VALUES.replace(
            "return", "out =") + "\n    return np.swapaxes(out, -2, -3).reshape(out.shape) "
         "if out.ndim > 2 else out"),
        *((f"keys after whole blocks of {n} skipped", "    if causal",
           f"    see = see & ((j < s // {n} * {n}) | (s < {n}))\n    if causal") for n in (16, 80)),
        ("128 of the width alone", "query @ ", "query[..., :128] @ ", "posinf=0), -1, -2)",
         "posinf=0)[..., :128], -1, -2)"),
        ("fails only with B from 3 on", VALUES, VALUES.replace("weights @", "weights * (np.arange("
         "len(query)) < 2)[:, None, None, None] @") + " if query.ndim == 4 else weights @ value"),
        ("", "(j <= i)", "(j <= i + (t > 64) * (i >= 64))"),
        ("boolean masks: NameError", SEEN, SEEN.replace("mask if", "maks if")),
        ("offsets: RuntimeError: no", "    i = i + (s", "    if offset is not None:\n        raise "
         "RuntimeError('no')\n    i = i + (s"),
    )),
    *(("wrong", cause, ONLINE, change) for cause, *change in (
        ("the values not rescaled, blocks of 64", "acc * alpha", "acc"),
        ("the sum not rescaled, blocks of 64", "total * alpha", "total"),
        ("padding to blocks of 64 counted", "p.sum(-1, keepdims=True)",
         "p.sum(-1, keepdims=True) + np.exp(-top) * (-part.shape[-1] % 64)"),
        ("powers of 2", "np.exp(part - top), np.exp(m - top)",
         "np.exp2(part - top), np.exp2(m - top)"),
        ("the block of 64 on the diagonal skipped", "(j <= i)", "(j // 64 < i // 64)"),
    )),
    ("edges", "mean of all values in rows that see nothing", RIGHT, ("scores, -np.inf)",
                                                                      "scores, -1e4)")),
    ("edges", "", RIGHT, ("np.nan_to_num(value, posinf=0)", "value")),
    ("edges", "writes into its inputs", RIGHT, (
        "query @ np", "np.multiply(query, 1.5, out=query) / query.dtype.type(1.5) @ np")),
    ("edges", "", RIGHT, ("    i = i + (s", "    if offset is not None:\n        raise "
                          "NotImplementedError('no')\n    i = i + (s")),
    ("imprecise", "", RIGHT, ("mapping(scores)", "mapping(scores) * scores.dtype.type(1 - 1e-6)")),
    ("wrong", "two calls differ", RIGHT, (VALUES, VALUES + " + np.random.random() / 100")),
]  # fmt: skip
BACKWARD = """
def vjp(query, key, value, g, causal=False, window=None, lengths=None, softcap=None):
    t, s, scale = query.shape[-2], key.shape[-2], query.shape[-1] ** -0.5
    groups = query.shape[-3] // key.shape[-3] if query.ndim > 2 else 1
    k, v = (np.repeat(x, groups, axis=-3) if groups > 1 else x for x in (key, value))
    i, j = np.indices((t, s))
    i = i + s - t
    narrow = see = (j <= i) | (not causal)
    wide = see = see & (j > i - (window or s + t))
    if lengths is not None:
        short = j < lengths[:, None, None, None]
        narrow, see = narrow & short, see & short
    raw = scale * query @ np.swapaxes(k, -1, -2)
    bent = raw if softcap is None else softcap * np.tanh(raw / softcap)
    total = np.log(np.sum(np.where(see, np.exp(bent), 0), axis=-1, keepdims=True))
    at, kept = see, np.isfinite(total)
    p = np.where(at & kept, np.exp(bent - np.where(kept, total, 0)), 0)
    delta = np.sum(g * (np.where(see & kept, p, 0) @ v), axis=-1, keepdims=True)
    at_scores = p * (g @ np.swapaxes(v, -1, -2) - delta)
    at_scores = at_scores if softcap is None else at_scores * (1 - (bent / softcap) ** 2)
    at_query = scale * at_scores @ k
    at_key, at_value = scale * np.swapaxes(at_scores, -1, -2) @ query, np.swapaxes(p, -1, -2) @ g
    if groups > 1:
        shape = (*key.shape[:-2], groups, s)
        at_key, at_value = (x.reshape(*shape, -1).sum(-3) for x in (at_key, at_value))
    return at_query, at_key, at_value
"""
SUM = "x.reshape(*shape, -1).sum(-3)"
BACKWARDS: list[tuple[str, ...]] = [
    ("",), ("window missing backwards", "at, kept = see,", "at, kept = narrow,"),
    ("lengths missing backwards", "at, kept = see,", "at, kept = wide,"),
    ("one head of a group in dkey and dvalue", SUM, "x.reshape(*shape, -1)[..., 0, :, :]"),
    ("the mean of a group in dkey and dvalue", SUM, SUM.replace("sum", "mean")),
    ("δ left out of the gradient", "swapaxes(v, -1, -2) - delta", "swapaxes(v, -1, -2)"),
    ("softcap without its slope", "if softcap is None else at_scores", "if True else at_scores"),
    ("dkey of the first block of 64", "np.swapaxes(at_scores, -1, -2) @ query",
     "np.swapaxes(at_scores[..., :64, :], -1, -2) @ query[..., :64, :]"),
    ("dquery of the last block of 64", "scale * at_scores @ k", "scale * at_scores[..., (s - 1) // "
     "64 * 64 :] @ k[..., (s - 1) // 64 * 64 :, :]"),
    ("dkey not scaled", "scale * np.swapaxes(at_scores", "np.swapaxes(at_scores"),
    ("dquery of the first batch alone", "scale * at_scores @ k", "scale * at_scores @ k * ("
     "np.arange(len(query)) < 1).reshape(-1, *[1] * (query.ndim - 1)) ** (query.ndim > 3)"),
    ("upstream gradient unused", "    i = i + s - t", "    i, g = i + s - t, np.ones_like(g)"),
]  # fmt: skip


def attention_of(backward: str) -> Any:
    right = build(RIGHT)

    def attention(query: Any, key: Any, value: Any, causal: bool = False, window: Any = None,
                  lengths: Any = None, softcap: Any = None) -> Any:  # fmt: skip
        return right(query, key, value, causal=causal, softcap=softcap, window=window,
                     lengths=lengths)  # fmt: skip

    return {"fn": attention, "options": {"vjp": build(backward, "vjp")}}


# --- mappings -------------------------------------------------------------------------------------
def total(x: Any) -> Any:
    return np.sum(x, axis=-1, keepdims=True)


def powers(z: Any) -> Any:
    return np.exp(z - z.max(-1, keepdims=True))


def bisected(z: Any, steps: int = 60) -> Any:
    x = (z - z.max(-1, keepdims=True)) / 2
    low, high = np.full_like(x[..., :1], -1), np.full_like(x[..., :1], -(x.shape[-1] ** -0.5))
    for _ in range(steps):
        middle = (low + high) / 2
        more = total(np.maximum(x - middle, 0) ** 2) >= 1
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    p = np.maximum(x - low, 0) ** 2
    return p / total(p)


def without_tail(z: Any, n: int, sums: bool = False) -> Any:
    e, keep = powers(z), np.arange(z.shape[-1]) < max(z.shape[-1] // n, z.shape[-1] < n) * n
    return (e if sums else e * keep) / total(e * keep)


def as_in_memory(z: Any) -> Any:
    if z.size and min(z.strides, default=1) > 0:
        z = np.lib.stride_tricks.as_strided(z, (z.size,), (z.itemsize,)).reshape(z.shape)
    return z


def softpick(z: Any, more: float = 1e-6) -> Any:
    return np.maximum(np.expm1(z), 0) / (total(np.abs(np.expm1(z))) + more)


def mixed(p: Any, v: Any) -> Any:
    return p * (v - np.sum(p * v) / max(1, p.size // p.shape[-1]))


K: Any = {"k": 2}
MAPPINGS: list[tuple[Any, str, str, str, Any]] = [  # fn, claim, verdict, cause, options
    (pe.softmax, "softmax", "right", "", {"vjp": pe.softmax.vjp}),
    (bisected, "entmax15", "right", "", {"vjp": pe.entmax15.vjp}),
    (lambda z: np.exp(z) / total(np.exp(z)), "softmax", "edges", "the maximum is not", {}),
    (lambda z: np.exp(z - z.max()) / total(np.exp(z - z.max())) if z.size else z, "softmax",
     "edges", "the maximum of the whole array", {}),
    (lambda z: powers(z) / (total(powers(z)) + 1e-6), "softmax", "imprecise", "a constant in", {}),
    (lambda z: pe.softmax(z).astype("f2").astype(z.dtype), "softmax", "imprecise",
     "rounded to a half type", {}),
    (lambda z: pe.softmax(z).astype("f4").astype(z.dtype), "softmax", "edges", "", {}),
    (lambda z: pe.softmax(z) + 1e-9, "softmax", "imprecise", "", {}),
    (lambda z: pe.sparsemax(as_in_memory(z)), "sparsemax", "wrong", "strides not used", {}),
    (lambda z: np.exp(z) / (total(np.exp(z)) + 1), "softmax1", "edges", "", {}),
    (softpick, "softpick", "edges", "", {}), (pe.softmax, "softpick", "wrong", "another", {}),
    (pe.softmax, "softmax1", "wrong", "another mapping, softmax", {}),
    (lambda z: pe.sparsemax(z, axis=0), "sparsemax", "wrong", "another axis", {}),
    (lambda z: pe.sparsemax(z.reshape(-1)).reshape(z.shape), "sparsemax", "wrong",
     "the whole array as one row", {}),
    (lambda z: pe.entmax15(2 * z), "entmax15", "wrong", "scores not multiplied by α − 1", {}),
    (lambda z: pe.softmax(1.5 * z), "entmax", "wrong", "softmax(αz)", {"alpha": 1.5}),
    (pe.softmax, "sparsemax", "wrong", "another mapping, softmax", {}),
    (pe.sparsemax, "entmax15", "wrong", "another mapping, sparsemax", {}),
    (lambda z: pe.softmax(z / 2), "softmax", "wrong", "a temperature", {}),
    (lambda z: powers(z) / (1 + total(powers(z))), "softmax1", "wrong", "the 1 is not shifted", {}),
    (lambda z: powers(z) / powers(z).sum(), "softmax", "wrong", "the sum over the batch", {}),
    (lambda z: np.maximum(z, 0) / total(np.maximum(z, 0)), "sparsemax", "wrong", "clip and", {}),
    (lambda z: pe.sparsemax(-np.sort(-z, axis=-1)), "sparsemax", "wrong", "sorted order", {}),
    (lambda z: pe.softmax(np.maximum(z, 0)), "softmax", "wrong", "negative scores clipped", {}),
    (lambda z: pe.softmax(-z), "softmax", "wrong", "negated scores", {}),
    (np.zeros_like, "softmax", "wrong", "zeros", {}),
    *((partial(without_tail, n=n, sums=sums), "softmax", "wrong",
       f"scores after whole blocks of {n} left out{' of the sum' * sums}", {})
      for n in (4, 64) for sums in (False, True)),
    (lambda z: np.log(pe.softmax(z)), "softmax", "wrong", "logarithms returned", {}),
    (lambda z: pe.topk_softmax(z, 3), "topk_softmax", "wrong", "one score too many", K),
    (lambda z: pe.topk_softmax(z, 1), "topk_softmax", "wrong", "one score too few", K),
    *((lambda z, f=f: np.where(pe.topk_softmax(z, 2) > 0, f(z), 0), "topk_softmax", "wrong", cause,
       K)
      for f, cause in ((pe.softmax, "softmax over all scores"), (np.array, "the k scores "),
                       (lambda z: 1 / (1 + np.exp(-z)), "sigmoids of the k scores"))),
    (partial(bisected, steps=9), "entmax15", "wrong", "bisection stopped early", {}),
    (lambda z: pe.softmax(0.9 * z), "softmax", "wrong", "", {}),
    *((pe.entmax15, "entmax15", "wrong", cause, {"vjp": vjp}) for cause, vjp in (
        ("τ taken as a constant", lambda p, v: np.sqrt(p) * v),
        ("τ taken as a constant, then", lambda p, v: np.sqrt(p) * (v - total(p * v))),
        ("the mean over the batch", lambda p, v: np.sqrt(p) * (
            v - np.sum(np.sqrt(p) * v) / np.sum(np.sqrt(p)))),
        ("divided by the largest support", lambda p, v: np.sqrt(p) * (
            v - total(np.sqrt(p) * v) / total(np.sqrt(p)).max())),
        ("the mean over all entries", lambda p, v: np.sqrt(p) * (v - v.mean(-1, keepdims=True))),
        ("the derivative of softmax", pe.softmax.vjp), ("v passed through", lambda p, v: v),
        ("the derivative of sparsemax", pe.sparsemax.vjp),
    )),
    (pe.softmax, "softmax", "wrong", "the mean over the batch", {"vjp": mixed}),
]  # fmt: skip


# --- losses ---------------------------------------------------------------------------------------
def picked(x: Any, y: Any) -> Any:
    return np.take_along_axis(x, y[..., None], -1)[..., 0]


def entropy(z: Any, y: Any) -> Any:
    x = z - z.max(-1, keepdims=True)
    return np.log(np.exp(x).sum(-1)) - picked(x, y)


def sparse(z: Any, y: Any) -> Any:
    p = pe.sparsemax(z)
    x = np.where(p > 0, z - picked(z, y)[..., None], 0)
    return (p * x).sum(-1) + (1 - (p**2).sum(-1)) / 2


def minus(p: Any, y: Any) -> Any:
    return p - np.eye(p.shape[-1])[y].astype(p.dtype)


def soft(z: Any, y: Any) -> Any:
    return minus(pe.softmax(z), y)


def rows(z: Any) -> Any:
    return np.arange(len(z)) < (len(z) // 8 * 8 or len(z))


def smoothed(z: Any, y: Any, label_smoothing: float = 0.0) -> Any:
    rest = pe.softmax.loss(z[..., None, :].repeat(z.shape[-1], -2), np.broadcast_to(
        np.arange(z.shape[-1]), z.shape), reduction="none").sum(-1) - entropy(z, y)  # fmt: skip
    return (1 - label_smoothing) * entropy(z, y) + label_smoothing * rest / (z.shape[-1] - 1)


def counted(z: Any, y: Any, ignore_index: int = -100) -> Any:
    return (entropy(z, np.maximum(y, 0)) * (y != ignore_index)).mean()


LOSSES: list[tuple[Any, str, str, str, Any]] = [  # fn, claim, verdict, cause, gradient
    (entropy, "softmax", "right", "", soft), (sparse, "sparsemax", "right", "", None),
    (lambda z, y: entropy(z, y).mean(), "softmax", "right", "", lambda z, y: soft(z, y) / len(z)),
    (lambda z, y: (pe.sparsemax(z) * z).sum(-1) - picked(z, y) + (
        1 - (pe.sparsemax(z) ** 2).sum(-1)) / 2, "sparsemax", "edges", "", None),  # 0 · ∞
    (lambda z, y: -np.log(picked(pe.sparsemax(z), y)), "sparsemax", "wrong", "−log p_y", None),
    (lambda z, y: entropy(z, y) - z.max(-1), "softmax", "wrong", "shift not taken out", None),
    (lambda z, y: entropy(z, y) + z.max(-1), "softmax", "wrong", "shift taken out twice", None),
    (lambda z, y: sparse(z, y) + 0.5, "sparsemax", "wrong", "Ω(y) of another convention", None),
    (lambda z, y: sparse(z, y) - 0.5, "sparsemax", "wrong", "Ω(y) left out", None),
    (lambda z, y: entropy(z, y) / 2, "softmax", "wrong", "half of the loss", None),
    (lambda z, y: 2 * entropy(z, y), "softmax", "wrong", "twice the loss", None),
    (lambda z, y: -entropy(z, y), "softmax", "wrong", "negated", None),
    (entropy, "sparsemax", "wrong", "the loss of softmax", None),
    (sparse, "entmax15", "wrong", "the loss of sparsemax", None),
    (lambda z, y: entropy(z, y).sum() / z.size, "softmax", "wrong", "the mean over", None),
    (lambda z, y: picked(np.log(np.exp(z).sum(0)) - z, y), "softmax", "wrong", "another", None),
    (lambda z, y: -picked(pe.softmax(z), y), "softmax", "wrong", "−p_y, without", None),
    (lambda z, y: 1 - picked(pe.softmax(z), y), "softmax", "wrong", "1 − p_y", None),
    (lambda z, y: entropy(pe.softmax(z), y), "softmax", "wrong", "the mapping applied twice", None),
    (lambda z, y: entropy(z, y) * (1 - picked(pe.softmax(z), y)) ** 2, "softmax", "wrong",
     "focal, γ = 2", None),
    (lambda z, y: np.logaddexp(0, (1 - 2 * np.eye(z.shape[-1])[y]) * z).sum(-1), "softmax", "wrong",
     "one against all", None),
    (lambda z, y: (soft(z, y) ** 2).sum(-1), "softmax", "wrong", "‖p − y‖²", None),
    (lambda z, y: entropy(z, y) + 0.1 * (picked(z, y) - z.mean(-1)), "softmax", "wrong",
     "labels smoothed by 0.1", None),
    (lambda z, y: entropy(z, y) / np.log(2), "softmax", "wrong", "the logarithm to base 2", None),
    (lambda z, y: -np.log(np.exp(-entropy(z, y)) + 1e-8), "softmax", "imprecise", "log of p", None),
    (lambda z, y: entropy(z, y) * (y != 0), "softmax", "wrong", "rows of label 0 ignored", None),
    (lambda z, y: entropy(z, y) * rows(z), "softmax", "wrong", "rows after whole blocks", None),
    (counted, "softmax", "wrong", "the mean counts ignored rows", None),
    (smoothed, "softmax", "wrong", "smoothing over C − 1 classes", None),
    (sparse, "sparsemax", "wrong", "p without − y", lambda z, y: pe.sparsemax(z)),
    (entropy, "softmax", "wrong", "y − p", lambda z, y: -soft(z, y)),
    (entropy, "softmax", "wrong", "twice the gradient", lambda z, y: 2 * soft(z, y)),
    (lambda z, y: entropy(z, y).mean(), "softmax", "wrong", "not divided by the number", soft),
    (entropy, "softmax", "wrong", "", lambda z, y: np.clip(soft(z, y), -0.5, 0.5)),
]  # fmt: skip


# --- what is kept from call to call, and views ----------------------------------------------------
def reused(fn: Any) -> Any:
    buffers: dict[Any, Any] = {}

    def reusing(*arrays: Any) -> Any:
        out = np.asarray(fn(*arrays))
        buffer = buffers.setdefault((out.shape, out.dtype), np.empty_like(out))
        buffer[...] = out
        return buffer

    return reusing


def cached(fn: Any) -> Any:
    known: dict[Any, Any] = {}

    def caching(*arrays: Any) -> Any:
        key = tuple((x.__array_interface__["data"][0], x.shape, x.dtype) for x in arrays)
        if key not in known:
            known.clear()
            known[key] = arrays, fn(*arrays)  # they live on, so their addresses are their own
        return known[key][1].copy()

    return caching


def four(query: Any, key: Any, value: Any, **options: Any) -> Any:
    return build(RIGHT)(query, key, value, **options)


PLANTED = [
    *(Plant(check_attention, build(changed(source, *change)), "softmax", verdict, cause,
            {"causal": "bottom-right"}) for verdict, cause, source, change in ATTENTION),
    *(Plant(check_attention, claim="softmax", verdict="wrong" if cause else "right", cause=cause,
            **attention_of(changed(BACKWARD, *change))) for cause, *change in BACKWARDS),
    *(Plant(check_mapping, fn, claim, verdict, cause, options)
      for fn, claim, verdict, cause, options in MAPPINGS),
    *(Plant(check_loss, fn, claim, verdict, cause, {"grad": grad})
      for fn, claim, verdict, cause, grad in LOSSES),
    *(Plant(check, wrap(fn), "softmax", verdict, cause) for wrap, verdict, cause in (
        (reused, "edges", "one buffer for all calls"), (cached, "wrong", "a stale result"))
      for check, fn in ((check_mapping, pe.softmax), (check_loss, entropy), (
          check_attention, lambda query, key, value: four(query, key, value)))),
    Plant(check_loss, lambda z, y: entropy(as_in_memory(z), y), "softmax", "wrong"),
    Plant(check_attention, lambda query, key, value, mask=None: four(
        query, key, value, mask=mask if mask is None or mask.dtype != bool else 0.0 * mask),
          "softmax", "wrong", "boolean masks ignored"),
    Plant(check_attention, lambda query, key, value: four(
        query, key, value, causal=True, offset=0), "softmax", "imprecise", "",
          {"always": {"causal": True}, "vjp": partial(build(changed(
              BACKWARD, "np.log(np.sum", "np.log(1e-8 + np.sum", "    i = i + s - t\n", ""), "vjp"),
              causal=True)}),
    *(Plant(check_attention, lambda query, key, value, w=w: four(
        query, key, value, causal=True, window=w), "softmax", verdict, cause,
            {"always": {"causal": True, "window": 17}}) for w, verdict, cause in (
        (17, "right", ""), (16, "wrong", "window too narrow"))),
    Plant(check_attention, lambda query, key, value: four(as_in_memory(query), key, value),
          "softmax", "wrong", "strides of query not used"),
]  # fmt: skip
