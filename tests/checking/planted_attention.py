"""A right attention with every option, and faults: a change of its text, a verdict and a cause."""

from __future__ import annotations

from typing import Any

import numpy as np

import pyentmax as pe

RIGHT = """
def attention(query, key, value, mask=None, causal=False, scale=None, bias=None, sink=None,
              softcap=None, window=None, offset=None, lengths=None, cu_seqlens=None):
    t, s, d = query.shape[-2], key.shape[-2], query.shape[-1]
    if query.ndim > 2 and key.shape[-3] != query.shape[-3]:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (np.repeat(x, groups, axis=-3) for x in (key, value))
    scale = d ** -0.5 if scale is None else scale
    scores = (query * query.dtype.type(scale)) @ np.swapaxes(np.nan_to_num(key), -1, -2)
    if softcap is not None:
        scores = scores.dtype.type(softcap) * np.tanh(scores / scores.dtype.type(softcap))
    if bias is not None:
        scores = scores + bias
    i, j = np.indices((t, s))
    i = i + (s - t if offset is None else offset)
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
    return weights @ np.nan_to_num(value)
"""


def build(source: str, mapping: Any = pe.softmax, name: str = "attention") -> Any:
    namespace: dict[str, Any] = {"np": np, "mapping": mapping, "pe": pe}
    exec(source, namespace)
    return namespace[name]


def vjp(query: Any, key: Any, value: Any, g: Any) -> tuple[Any, Any, Any]:
    """The gradients without options or groups."""
    scale = query.shape[-1] ** -0.5
    p = pe.softmax(scale * query @ np.swapaxes(key, -1, -2))
    at_scores = pe.softmax.vjp(p, g @ np.swapaxes(value, -1, -2))
    return (
        scale * at_scores @ key,
        scale * np.swapaxes(at_scores, -1, -2) @ query,
        np.swapaxes(p, -1, -2) @ g,
    )


VISIBLE = "see = see & (mask if mask.dtype == bool else np.isfinite(mask))"
AT_THE_END = RIGHT[RIGHT.index("    scores = np.where(see") :]
FAULTS: dict[str, tuple[tuple[str, str], str, str]] = {
    name: (change, verdict, name)
    for name, change, verdict in (
        ("scores not scaled", ("d ** -0.5 if scale is None else scale", "1.0"), "wrong"),
        ("scale ignored", ("d ** -0.5 if scale is None else scale", "d ** -0.5"), "wrong"),
        ("scaled by 1/d", ("d ** -0.5 if", "1 / d if"), "wrong"),
        ("scaled twice", ("type(scale))", "type(scale**2))"), "wrong"),
        ("rows and columns confused", ("mapping(scores)", "mapping(scores, axis=-2)"), "wrong"),
        ("heads tiled", ("np.repeat(x, groups, axis=-3)",
                         "np.concatenate([x] * groups, axis=-3)"), "wrong"),
        ("causal ignored", ("if causal", "if False"), "wrong"),
        ("own key hidden", ("i = i + (s - t", "i = i - 1 + (s - t"), "wrong"),
        ("next key seen", ("i = i + (s - t", "i = i + 1 + (s - t"), "wrong"),
        ("offset ignored", ("offset is None else offset", "True else offset"), "wrong"),
        ("window ignored", ("window is not None", "False"), "wrong"),
        ("window too narrow", ("i - window", "i - window + 1"), "wrong"),
        ("mask ignored", ("mask is not None", "False"), "wrong"),
        ("mask inverted", (VISIBLE, VISIBLE.replace("(mask if", "(~mask if")), "wrong"),
        ("masked after the mapping", (AT_THE_END, AT_THE_END.replace(
            "    scores = np.where(see, scores, -np.inf)\n", "").replace(
            "    return weights", "    weights = np.where(see, weights, 0)\n    return weights")),
         "wrong"),
        ("mean of all values in rows that see nothing", ("-np.inf)", "-1e4)"), "edges"),
        ("sink ignored", ("if sink is not", "sink = None\n    if sink is not"), "wrong"),
        ("softcap ignored", ("softcap is not None", "False"), "wrong"),
        ("softcap after the bias", ("    if softcap", "    scores = scores + (0 if bias is None "
                                    "else bias)\n    bias = None\n    if softcap"), "wrong"),
        ("bias ignored", ("bias is not None", "False"), "wrong"),
        ("bias scaled", ("scores + bias", "scores + bias * bias.dtype.type(scale)"), "wrong"),
        ("lengths ignored", ("lengths is not None", "False"), "wrong"),
        ("sequences mixed", ("cu_seqlens is not None", "False"), "wrong"),
        ("causal aligned at the other corner", ("(s - t if", "(0 if"), "wrong"),
        ("heads tiled if causal", ("np.repeat(x, groups, axis=-3)",
                                   "(np.concatenate([x] * groups, axis=-3) if causal else "
                                   "np.repeat(x, groups, axis=-3))"), "wrong"),
        ("window counted from the first key", ("i - window", "i - (s - t) - window"), "wrong"),
        ("masked before the softcap", (
            "np.where(see, scores, -np.inf)",
            "np.where(see, scores, -np.inf if softcap is None else -softcap)"), "wrong"),
        ("finite entries of the mask hide", (
            VISIBLE, VISIBLE.replace("np.isfinite(mask)", "mask == 0")), "wrong"),
        ("bias subtracted", ("scores + bias", "scores - bias"), "wrong"),
        ("one key past the length seen", ("j < lengths", "j <= lengths"), "wrong"),
        ("sequences begin one late", ('side="right"', 'side="left"'), "wrong"),
        ("keys after whole blocks of 80 skipped", (
            "    if causal", "    see = see & ((j < s // 80 * 80) | (s < 80))\n    if causal"),
         "wrong"),
        ("keys after whole blocks of 16 skipped", (
            "    if causal", "    see = see & ((j < s // 16 * 16) | (s < 16))\n    if causal"),
         "wrong"),
        ("causal ignored where mask is given", ("if causal", "if causal and mask is None"),
         "wrong"),
        ("sink ignored where window is given", (
            "if sink is not", "sink = None if window is not None else sink\n    if sink is not"),
         "wrong"),
        ("lengths ignored where causal is given", (
            "if lengths is not None", "if lengths is not None and not causal"), "wrong"),
        ("scaled by a width that is rounded up", (
            "d ** -0.5 if", "(2 ** np.ceil(np.log2(d))) ** -0.5 if"), "wrong"),
    )
}  # fmt: skip
UNNAMED: dict[str, tuple[str, str, str]] = {
    "sparsemax": ("mapping(scores)", "pe.sparsemax(scores)", "wrong"),
    "values cut off at 128 keys": ("np.nan_to_num(value)",
                                   "(np.nan_to_num(value) * (np.arange(s) < 128)[:, None])",
                                   "wrong"),
    "nearly right, correlation 0.99": ("weights @ ", "(weights + weights.dtype.type(0.01)) @ ",
                                       "wrong"),
    "1e-6 in the sum": ("mapping(scores)", "mapping(scores) * scores.dtype.type(1 - 1e-6)",
                        "imprecise"),
    "causal one block late beyond 64 queries": (
        "see & (j <= i)", "see & (j <= i + (t > 64) * (i >= 64))", "wrong"),
    "the last block of keys left out": (
        "    if causal", "    see = see & ((j < s - 64) | (s <= 128))\n    if causal", "wrong"),
    "decoding without the newest key": (
        "    if causal", "    see = see & ((j < s - 1) | (t > 1) | (s == 1))\n    if causal",
        "wrong"),
    "the third batch is zero": (
        "weights @ ", "(weights if query.ndim < 4 else weights * (np.arange(len(query)) != 2)"
        "[:, None, None, None]) @ ", "wrong"),
    "the seventh head is zero": (
        "weights @ ", "(weights if query.ndim < 3 else weights * (np.arange(query.shape[-3]) != 6)"
        "[:, None, None]) @ ", "wrong"),
    "bias doubled if causal": ("scores + bias", "scores + bias * (1 + causal)", "wrong"),
    "causal raises an error": (
        "    if causal", "    if causal:\n        raise RuntimeError\n    if causal", "edges"),
    "NaN of hidden values": ("weights @ np.nan_to_num(value)", "weights @ value", "edges"),
    "writes into the query": ("(query * query.dtype.type(scale))",
                              "np.multiply(query, query.dtype.type(scale), out=query)", "edges"),
}  # fmt: skip

BACKWARD = """
def vjp(query, key, value, g, causal=False, window=None, lengths=None, softcap=None):
    t, s, scale = query.shape[-2], key.shape[-2], query.shape[-1] ** -0.5
    groups = query.shape[-3] // key.shape[-3] if query.ndim > 2 else 1
    k, v = (np.repeat(x, groups, axis=-3) if groups > 1 else x for x in (key, value))
    i, j = np.indices((t, s))
    i = i + s - t
    without_window = see = (j <= i) | (not causal)
    without_lengths = see = see & (j > i - (window or s + t))
    if lengths is not None:
        short = j < lengths[:, None, None, None]
        without_window, see = without_window & short, see & short
    raw = scale * query @ np.swapaxes(k, -1, -2)
    bent = raw if softcap is None else softcap * np.tanh(raw / softcap)
    total = np.log(np.sum(np.where(see, np.exp(bent), 0), axis=-1, keepdims=True))
    at, kept = see, np.isfinite(total)
    p = np.where(at & kept, np.exp(bent - np.where(kept, total, 0)), 0)
    out = np.where(see & kept, p, 0) @ v
    delta = np.sum(g * out, axis=-1, keepdims=True)
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
BACKWARD_FAULTS: dict[str, tuple[str, str]] = {
    "window missing backwards": ("at, kept = see,", "at, kept = without_window,"),
    "lengths missing backwards": ("at, kept = see,", "at, kept = without_lengths,"),
    "one head of a group in dkey and dvalue": (SUM, "x.reshape(*shape, -1)[..., 0, :, :]"),
    "δ left out of the gradient": ("swapaxes(v, -1, -2) - delta", "swapaxes(v, -1, -2)"),
    "softcap without its slope in the gradient": ("if softcap is None else at_scores *",
                                                  "if True else at_scores *"),
    "dkey of the first block of 64 alone": (
        "scale * np.swapaxes(at_scores, -1, -2) @ query",
        "scale * np.swapaxes(at_scores[..., :64, :], -1, -2) @ query[..., :64, :]"),
    "dquery of the last block of 64 alone": (
        "scale * at_scores @ k",
        "scale * at_scores[..., (s - 1) // 64 * 64 :] @ k[..., (s - 1) // 64 * 64 :, :]"),
    "dkey not scaled": ("scale * np.swapaxes(at_scores", "np.swapaxes(at_scores"),
    "upstream gradient unused": ("    i = i + s - t", "    i, g = i + s - t, np.ones_like(g)"),
}  # fmt: skip
