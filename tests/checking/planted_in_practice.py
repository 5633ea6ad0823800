"""Faults of practice, written down before the cases of the judge were read: verdicts, causes.

Each is a change of a right text: of a tiled attention, its backward pass, a softmax, a sparsemax
and a cross-entropy. The cause is the start of its name; "" where none of the known ones is meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pyentmax as pe

TILED = """
def attention(query, key, value, mask=None, causal=False, scale=None, bias=None, window=None,
              softcap=None, sink=None, lengths=None):
    dtype, block = query.dtype, 64
    up = np.float32 if dtype == np.float16 else dtype.type
    q, k, v = (np.nan_to_num(x.astype(up)) for x in (query, key, value))
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        groups = q.shape[-3] // k.shape[-3]
        k, v = (np.repeat(x, groups, axis=-3) for x in (k, v))
    t, s, d = q.shape[-2], k.shape[-2], q.shape[-1]
    scale = up(1 / np.sqrt(d)) if scale is None else up(scale)
    offset = s - t
    i = np.arange(t)[:, None] + offset
    m = np.full((*q.shape[:-1], 1), -np.inf, up)
    total, acc = np.zeros_like(m), np.zeros((*q.shape[:-1], v.shape[-1]), up)
    if sink is not None:
        m = np.broadcast_to(sink.astype(up).reshape(-1, 1, 1), m.shape)
        total = np.ones_like(total)
    for start in range(0, s, block):
        part = slice(start, start + block)
        k_b, v_b, j = k[..., part, :], v[..., part, :], np.arange(s)[part]
        scores = q @ np.swapaxes(k_b, -1, -2) * scale
        if softcap is not None:
            scores = up(softcap) * np.tanh(scores / up(softcap))
        if bias is not None:
            scores = scores + bias[..., part].astype(up)
        keep = np.ones((t, len(j)), bool)
        if causal:
            keep = keep & (j <= i)
        if window is not None:
            keep = keep & (j > i - window)
        if lengths is not None:
            keep = keep & (j < lengths[:, None, None, None])
        if mask is not None and mask.dtype == bool:
            keep = keep & mask[..., part]
        elif mask is not None:
            keep = keep & (mask[..., part] > -np.inf)
            scores = scores + np.where(mask[..., part] > -np.inf, mask[..., part], 0).astype(up)
        scores = np.where(keep, scores, -np.inf)
        new = np.maximum(m, scores.max(-1, keepdims=True))
        top = np.where(new == -np.inf, 0, new)
        p, alpha = np.exp(scores - top), np.exp(m - top)
        total = total * alpha + p.sum(-1, keepdims=True)
        acc = acc * alpha + p @ v_b
        m = new
    out = acc / np.where(total == 0, 1, total)
    return out.astype(dtype)
"""
SUMS = "total = total * alpha + p.sum(-1, keepdims=True)"
PLAIN = "causal or window or softcap or any(x is not None for x in (mask, bias, sink, lengths))"
ATTENTION: dict[str, tuple[tuple[str, ...], str, str]] = {
    "accumulator not rescaled": (("acc * alpha + p @ v_b", "acc + p @ v_b"), "wrong",
                                 "the values not rescaled, blocks of 64"),
    "denominator not rescaled": ((SUMS, SUMS.replace(" * alpha", "")), "wrong",
                                  "the sum not rescaled, blocks of 64"),
    "padding of the last tile counted": (
        (SUMS, SUMS + " + np.exp(-top) * ((block - len(j)) % block)"), "wrong",
        "padding to blocks of 64 counted"),
    "powers of 2": (("np.exp(scores - top), np.exp(m - top)",
                     "np.exp2(scores - top), np.exp2(m - top)"), "wrong", "powers of 2"),
    "scale of the model's width": (
        ("np.sqrt(d)", "np.sqrt(d * (q.shape[-3] if q.ndim > 2 else 1))"), "wrong",
        "scaled by the width of all heads"),
    "group by remainder": (("np.repeat(x, groups, axis=-3)",
                            "np.concatenate([x] * groups, axis=-3)"), "wrong", "heads tiled"),
    "decoding sees the first key alone": (
        ("offset = s - t", "offset = s - t if t > 1 else 0"), "wrong",
        "one query stands at the first key"),
    "decoding one key short": (("offset = s - t", "offset = s - t - (t == 1 < s)"), "wrong",
                               "one query without the newest key"),
    "the block on the diagonal skipped": (("(j <= i)", "(j // block < i // block)"), "wrong",
                                      "the block of 64 on the diagonal skipped"),
    "softcap before the scale": (
        ("up(softcap) * np.tanh(scores / up(softcap))",
         "scale * up(softcap) * np.tanh(scores / scale / up(softcap))"), "wrong",
        "softcap before the scale"),
    "bias scaled": (("bias[..., part].astype(up)", "scale * bias[..., part].astype(up)"), "wrong",
                    "bias scaled"),
    "half of the window": (("i - window", "i - window // 2"), "wrong", "half of the window"),
    "lengths of the first sequence": (("lengths[:, None, None, None]", "lengths[0]"), "wrong",
                                      "lengths of the first sequence"),
    "mask after the weights": (
        ("scores = np.where(keep, scores, -np.inf)", "pass", "p @ v_b", "(p * keep) @ v_b"),
        "wrong", "masked after the mapping"),
    "−50 hides": (("np.where(keep, scores, -np.inf)", "np.where(keep, scores, up(-50))"), "edges",
                  "mean of all values in rows that see nothing"),
    "heads and positions reshaped": (
        ("    return out", "    out = np.swapaxes(out, -2, -3).reshape(out.shape) if out.ndim > 2 "
         "else out\n    return out"), "wrong", "heads and positions confused in the output"),
    "weights of each query's column": (
        ("    return out", f"    if t == s > 1 and not ({PLAIN}):\n"
         "        e = np.exp(scale * q @ np.swapaxes(k, -1, -2))\n"
         "        out = e / e.sum(-2, keepdims=True) @ v\n    return out"), "wrong",
        ""),
}  # fmt: skip

# Of the backward pass of `planted_attention`; the cause is the name where it is a known one.
BACKWARD: dict[str, tuple[str, str, str]] = {
    "dquery of the last block of 64 alone": (
        "scale * at_scores @ k",
        "scale * at_scores[..., (s - 1) // 64 * 64 :] @ k[..., (s - 1) // 64 * 64 :, :]", "wrong"),
    "δ of the upstream gradient alone": ("np.sum(g * out,", "np.sum(g,", "wrong"),
    "weights without options": (
        "np.swapaxes(p, -1, -2) @ g", "np.swapaxes(np.exp(raw) / np.exp(raw).sum(-1, keepdims=True)"
        ", -1, -2) @ g", "wrong"),
    "dkey and dvalue swapped": ("return at_query, at_key, at_value",
                                "return at_query, at_value, at_key", "wrong"),
    "upstream gradient rounded to a half type": (
        "    i = i + s - t", "    i, g = i + s - t, g.astype(np.float16).astype(g.dtype)",
        "imprecise"),
}  # fmt: skip


def ratio(e: Any, more: float = 0.0) -> Any:
    return e / (e.sum(-1, keepdims=True) + e.dtype.type(more))


def shifted(z: Any) -> Any:
    return z - z.max(-1, keepdims=True)


def without_tail(z: Any, n: int = 4) -> Any:
    d = z.shape[-1]
    return ratio(np.exp(shifted(z)) * (np.arange(d) < max(d // n, d < n) * n).astype(z.dtype))


def in_place(z: Any) -> Any:
    z -= z.max(-1, keepdims=True)
    return ratio(np.exp(z))


def support_one_short(z: Any) -> Any:
    p = pe.sparsemax(z)
    size = np.maximum((p > 0).sum(-1, keepdims=True) - 1, 1)
    falling = -np.sort(-shifted(z), axis=-1)
    tau = np.take_along_axis((np.cumsum(falling, axis=-1) - 1), size - 1, axis=-1) / size
    return np.maximum(shifted(z) - tau.astype(z.dtype), 0)


MAPPING: dict[str, tuple[Any, str, Any, str, str]] = {  # fn, claim, vjp, verdict, cause
    "no maximum": (lambda z: ratio(np.exp(z)), "softmax", None, "edges",
                   "the maximum is not subtracted"),
    "maximum of the whole array": (lambda z: ratio(np.exp(z - z.max())), "softmax", None, "edges",
                                   "the maximum of the whole array"),
    "written into the scores": (in_place, "softmax", None, "edges", ""),
    "1e-6 in the denominator": (lambda z: ratio(np.exp(shifted(z)), 1e-6), "softmax", None,
                                "imprecise", "a constant in the sum"),
    "tail of four": (without_tail, "softmax", None, "wrong",
                     "scores after whole blocks of 4 left out"),
    "exponentials in float16": (lambda z: ratio(np.exp(shifted(z).astype("f2")).astype(z.dtype)),
                                "softmax", None, "imprecise", "rounded to a half type"),
    "support one short": (support_one_short, "sparsemax", None, "wrong", "the threshold is off"),
    "mean over the row": (pe.sparsemax, "sparsemax", lambda p, v: (p > 0) * (
        v - np.mean((p > 0) * v, axis=-1, keepdims=True)), "wrong",
        "the sum over the support divided by the length of the row"),
}  # fmt: skip


def nll(p: Any, y: Any) -> Any:
    return -np.log(np.take_along_axis(p, y[..., None], -1)[..., 0])


LOSS: dict[str, tuple[Any, Any, str, str]] = {  # fn, gradient, verdict, cause; of softmax
    "label 0 ignored": (lambda z, y: nll(pe.softmax(z), y) * (y != 0), None, "wrong",
                        "rows of label 0 ignored"),
    "log of p + 1e-8": (lambda z, y: nll(pe.softmax(z) + z.dtype.type(1e-8), y), None, "imprecise",
                        "log of p + 1e-08"),
    "softmax twice": (lambda z, y: nll(pe.softmax(pe.softmax(z)), y), None, "wrong",
                      "the mapping applied twice"),
    "gradient clipped": (
        lambda z, y: pe.softmax.loss(z, y, reduction="none"),
        lambda z, y: np.clip(pe.softmax.loss_and_grad(z, y, reduction="none")[1], -0.5, 0.5),
        "wrong", ""),
}  # fmt: skip
