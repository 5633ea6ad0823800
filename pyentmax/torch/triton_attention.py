r"""α-entmax attention in Triton: scores, weights and their derivatives tile by tile, for 1 ≤ α ≤ 2.

With β = α − 1, h the largest score s of a row and u = β (s − h) + t, the weights are

    p = [u]₊^{1/β},    F(t) = Σ p = 1,    D = β F'(t) = Σ [u]₊^{1/β − 1},    n^{−β} ≤ t ≤ 1.

**The threshold.** t is first solved for a sample of the keys, one tile wide, each of which stands
for n/64 keys. Then each pass over the scores sums F and D in 64 groups of keys, the columns of a
tile, with the largest score of each group. A group is modelled as that score and one more mass with
what remains of F and D; Newton's method on the model gives the next t, without another pass. Three
or four passes leave F within 1e-4 of 1, five near α = 2, seven in clusters of scores; the step
after the last is not verified, and the pass over the values divides by F.

**Two words for t.** Near α = 2 a threshold has to be precise compared with t, which falls to 1/n;
near α = 1 compared with r = 1 − t, where log u = log(1 + β (s − h) − r) is a series. Both are kept.

**Derivatives.** With s = p^{2−α} and a = G Vᵀ for the gradient G of the output, the scores have
s (a − δ), δ = Σ s a / Σ s (Peters et al. 2019, Proposition 1). Rows keep h, t, r, F and δ; tiles
without a positive weight are skipped. A sink is one more score of a row, without a value.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pyentmax.torch.attention_operations import (
    gradients_of,
    output_like,
    save_problem,
    saved_problem,
)
from pyentmax.torch.attention_problem import SCHEMA, TensorProblem
from pyentmax.torch.registry import (
    Rule,
    not_differentiable,
    one_by_one,
    registered,
)

LEAST_BETA = 1e-6  # stands for 0, which would divide by 0; it moves p by p · 1e-6 (s − h)²/2
MOST_PASSES = tl.constexpr(16)
TINY = tl.constexpr(0.06)  # below it, series of log(1 + x) and e^x − 1 are exact to float32
LOG2_E = tl.constexpr(1.4426950408889634)
TILES: dict[str, int] = {}  # what replaces the choices of `_constants`, for measurements
HUGE = tl.constexpr(1e18)  # sums beyond it come from a sample that missed the row's largest score


# The interpreter multiplies bfloat16 wrongly. Products of half types are exact in float32, in which
# tensor cores, too, sum them.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


# ---------------------------------------------------------------- one score
@triton.jit
def _log1p(x, u):
    """log(1 + x), where u = 1 + x > 0."""
    series = x * (1 - x * (0.5 - x * (0.33333333 - x * (0.25 - x * 0.2))))
    return tl.where(tl.abs(x) < TINY, series, tl.log2(u) / LOG2_E)


@triton.jit
def _expm1(x):
    series = x * (1 + x * (0.5 + x * (0.16666667 + x * 0.041666667)))
    return tl.where(tl.abs(x) < TINY, series, tl.exp2(x * LOG2_E) - 1)


@triton.jit
def _powers(x, t, r, inverse, KIND: tl.constexpr):
    """[u]₊^{1/β − 1} and [u]₊^{1/β} of u = x + t; NaN stays. KIND is 1/β, or 0 unless 1 or 2."""
    u = x + t
    out = u <= 0
    if KIND == 1:
        curvature = tl.where(out, 0.0, u * 0 + 1)
    elif KIND == 2:
        curvature = tl.where(out, 0.0, u)
    else:
        log = _log1p(x - r, tl.where(out, 1.0, u))
        curvature = tl.where(out, 0.0, tl.exp2((inverse - 1) * LOG2_E * log))
    return curvature, tl.where(out, 0.0, curvature * u)


@triton.jit
def _step(total, slope, beta):
    """Newton's step in t for Σ p = 1, on (Σ p)^β, which is all but linear."""
    log = tl.log2(total) / LOG2_E
    return _expm1(-beta * log) * total / slope


@triton.jit
def _moved(t, r, step, least):
    """t and r = 1 − t after a step, in [n^{−β}, 1]."""
    t, r = t + step, r - step
    low, high = t < least, t > 1
    t = tl.where(low, least, tl.where(high, 1.0, t))
    return t, tl.where(low, 1 - least, tl.where(high, 0.0, r))


# ---------------------------------------------------------------- one tile
@triton.jit
def _dot(a, b):
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    # Three products of tf32 keep two halves of each operand: more than the registers hold.
    wide: tl.constexpr = a.shape[1] > 64 or b.shape[1] > 64
    return tl.dot(a, b, input_precision="ieee" if wide else "tf32x3")


@triton.jit
def _inside(rows, unmasked, stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of a tile of rows of a matrix, and the mask of those within its edges."""
    columns = tl.arange(0, BLOCK)
    inside = unmasked[:, None]
    if SIZE != BLOCK:
        inside = inside & (columns[None, :] < SIZE)
    # 64 bits for what strides multiply: an array may have 2³¹ entries.
    return rows.to(tl.int64)[:, None] * stride + columns[None, :], inside


@triton.jit
def _load(base, rows, unmasked, stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    at, inside = _inside(rows, unmasked, stride, SIZE, BLOCK)
    return tl.load(base + at, mask=inside, other=0.0)


@triton.jit
def _store(base, rows, unmasked, tile, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    at, inside = _inside(rows, unmasked, SIZE, SIZE, BLOCK)
    tl.store(base + at, tile.to(base.dtype.element_ty), mask=inside)


@triton.jit
def _unmasked(i, j, setting, MASK, CAUSAL: tl.constexpr):
    """The mask of keys of a tile that its queries see."""
    queries, keys, offset, scale, head, mask_at, mi, mj = setting
    unmasked = (i[:, None] < queries) & (j[None, :] < keys)
    if CAUSAL:
        unmasked = unmasked & (j[None, :] <= i[:, None] + offset)
    if MASK is not None:
        at = i.to(tl.int64)[:, None] * mi + j.to(tl.int64)[None, :] * mj
        unmasked = unmasked & (tl.load(MASK + mask_at + at, mask=unmasked, other=0) != 0)
    return unmasked


@triton.jit
def _scores(q, k, i, j, setting, cap, SLOPES, MASK, CAUSAL: tl.constexpr):
    """Scores of a tile, −∞ where a query sees no key; the softcap's derivative."""
    queries, keys, offset, scale, head, mask_at, mi, mj = setting
    s, bend = _dot(q, tl.trans(k)) * scale, 1.0
    if cap is not None:
        tanh = 2 * tl.sigmoid(2 * s / cap) - 1
        s, bend = cap * tanh, 1 - tanh * tanh
    if SLOPES is not None:
        s -= tl.load(SLOPES + head) * tl.abs(i[:, None] + offset - j[None, :]).to(tl.float32)
    return tl.where(_unmasked(i, j, setting, MASK, CAUSAL), s, float("-inf")), bend


@triton.jit
def _weights(s, h, t, r, beta, KIND: tl.constexpr):
    """D's and F's terms, of scores of a tile or one for each row."""
    if len(s.shape) == 2:
        curvature, p = _powers(beta * (s - h[:, None]), t[:, None], r[:, None], 1 / beta, KIND)
    else:
        curvature, p = _powers(beta * (s - h), t, r, 1 / beta, KIND)
    return curvature, p


@triton.jit
def _some(inside):
    return tl.max(tl.sum(inside.to(tl.int32), 1), 0) > 0


@triton.jit
def _by_scores(g, v, curvature, delta):
    """The gradients of a tile's scores, as they are behind the softcap."""
    a = _dot(g, tl.trans(v))
    return tl.where(curvature > 0, curvature * (a - delta[:, None]), 0.0)


# ---------------------------------------------------------------- a block's place
@triton.jit
def _place(TABLE, block, sequence, BLOCK: tl.constexpr):
    """Places of a sequence's queries and keys, by its row of the table; a block's positions."""
    row = TABLE + sequence * 6
    batch, first_query = tl.load(row).to(tl.int64), tl.load(row + 1).to(tl.int64)
    queries, first_key = tl.load(row + 2), tl.load(row + 3).to(tl.int64)
    keys, offset = tl.load(row + 4), tl.load(row + 5)
    return batch, first_query, queries, first_key, keys, offset, block * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _block_of_queries(
    Q, K, V, TABLE, BETA, SINK, scale, qb, qh, qt, kb, kh, kt, vb, vh, vt, mb, mh, mi, mj,
    total, heads, GROUP: tl.constexpr, CAUSAL: tl.constexpr, SIZE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """A program's queries, where their keys and values are, and what belongs to its head."""
    block, head, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    batch, first_query, queries, first_key, keys, offset, i = _place(TABLE, block, sequence, ROWS)
    here, kv = i < queries, head // GROUP
    q = _load(Q + batch * qb + head * qh + first_query * qt, i, here, qt, SIZE, BLOCK_D)
    end, visible = tl.where(block * ROWS < queries, keys, 0), tl.where(here, keys, 0)
    if CAUSAL:
        end = tl.maximum(tl.minimum(end, tl.minimum((block + 1) * ROWS, queries) + offset), 0)
        visible = tl.minimum(visible, tl.maximum(i + offset + 1, 0))
    sink = tl.full([ROWS], float("-inf"), tl.float32)
    if SINK is not None:
        sink = tl.zeros([ROWS], tl.float32) + tl.load(SINK + head)
    mask_at = batch * mb + head * mh + first_query * mi + first_key * mj
    setting = queries, keys, offset, scale, head, mask_at, mi, mj
    K += batch * kb + kv * kh + first_key * kt
    V += batch * vb + kv * vh + first_key * vt
    row = (batch * heads + head) * total + first_query + i
    return q, K, V, i, here, row, end, visible, setting, tl.load(BETA + head), sink


# ---------------------------------------------------------------- thresholds and outputs
@triton.jit
def _forward(
    Q, K, V, OUT, STATE, TABLE, BETA, SINK, SLOPES, MASK, scale, cap,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, mb, mh, mi, mj, total, heads,
    GROUP: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr, SIZE: tl.constexpr,
    VALUES: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr, TOLERANCE: tl.constexpr,
):  # fmt: skip
    q, K, V, i, here, row, end, visible, setting, beta, sink = _block_of_queries(
        Q, K, V, TABLE, BETA, SINK, scale, qb, qh, qt, kb, kh, kt, vb, vh, vt, mb, mh, mi, mj,
        total, heads, GROUP, CAUSAL, SIZE, ROWS, BLOCK_D,
    )  # fmt: skip
    column = tl.arange(0, KEYS)
    if MASK is not None:
        visible = tl.zeros([ROWS], tl.int32)
        for at in range(0, end, KEYS):
            visible += tl.sum(_unmasked(i, at + column, setting, MASK, CAUSAL).to(tl.int32), 1)
    # The sample: keys at equal distances, each of the weight of those that it stands for.
    stride = tl.maximum((end + KEYS - 1) // KEYS, 1)
    j = stride // 2 + column * stride
    k = _load(K, j, j < end, kt, SIZE, BLOCK_D)
    s, bend = _scores(q, k, i, j, setting, cap, SLOPES, MASK, CAUSAL)
    weight = visible / tl.maximum(tl.sum((s != float("-inf")).to(tl.float32), 1), 1.0)
    top = tl.maximum(tl.max(s, 1), sink)
    h = tl.where(top > float("-inf"), top, 0.0)
    t, r = tl.full([ROWS], 1.0, tl.float32), tl.zeros([ROWS], tl.float32)
    for _ in range(6):
        curvature, p = _weights(s, h, t, r, beta, KIND)
        own_d, own_p = _weights(sink, h, t, r, beta, KIND)
        total_p = weight * tl.sum(p, 1) + own_p
        total_d = weight * tl.sum(curvature, 1) + own_d
        step = tl.where(total_d > 0, _step(total_p, total_d, beta), 0.0)
        t, r = t + step, r - step

    count = tl.maximum(visible + (0 if SINK is None else 1), 1).to(tl.float32)
    least = tl.exp2(-beta * tl.log2(count))
    passes, error = 0, tl.where(end > 0, 1.0, 0.0)
    while (passes < MOST_PASSES) & (error > TOLERANCE):
        group_p = tl.zeros([ROWS, KEYS], tl.float32)
        group_d = tl.zeros([ROWS, KEYS], tl.float32)
        largest = tl.full([ROWS, KEYS], float("-inf"), tl.float32)
        for at in range(0, end, KEYS):
            j = at + column
            k = _load(K, j, j < end, kt, SIZE, BLOCK_D)
            s, bend = _scores(q, k, i, j, setting, cap, SLOPES, MASK, CAUSAL)
            curvature, p = _weights(s, h, t, r, beta, KIND)
            group_p += p
            group_d += curvature
            largest = tl.maximum(largest, s)
        own_d, own_p = _weights(sink, h, t, r, beta, KIND)
        total_p, total_d = tl.sum(group_p, 1) + own_p, tl.sum(group_d, 1) + own_d
        # The model of each group: its largest score, and the rest as one mass at u.
        curvature, p = _weights(largest, h, t, r, beta, KIND)
        rest_d = tl.maximum(group_d - curvature, 0.0)
        rest_p = tl.maximum(group_p - p, 0.0)
        # Without sums of use, the largest scores alone, from t = 1 down.
        top = tl.maximum(tl.max(largest, 1), sink)
        top = tl.where(top > float("-inf"), top, 0.0)
        known = (total_d > 0) & (total_p < HUGE)
        has_rest = (rest_d > 1e-5 * group_d) & (rest_p > 0) & known[:, None]
        u = tl.where(has_rest, rest_p / rest_d, 1.0)
        rest_d = tl.where(has_rest, rest_d, 0.0)
        rise = beta * (top - h)  # to count from the row's largest score
        t, r, h = tl.where(known, t + rise, 1.0), tl.where(known, r - rise, 0.0), top
        far = tl.where(known, tl.abs(total_p - 1), 1.0)
        solvable = (visible > 0) & (total_p == total_p)  # a row with a NaN is not
        error = tl.max(tl.where(solvable, far, 0.0), 0)
        shift = tl.zeros([ROWS], tl.float32)
        for _ in range(2):
            curvature, p = _weights(largest, h, t, r, beta, KIND)
            own_d, own_p = _weights(sink, h, t, r, beta, KIND)
            mass_d, mass_p = _powers(shift[:, None] / u, 1.0, 0.0, 1 / beta, KIND)
            model_d = tl.sum(curvature + rest_d * mass_d, 1) + own_d
            model_p = tl.sum(p + rest_d * u * mass_p, 1) + own_p
            step = tl.where(model_d > 0, _step(model_p, model_d, beta), 1 - t)
            before = t
            t, r = _moved(t, r, step, least)
            shift += t - before
        passes += 1

    output = tl.zeros([ROWS, BLOCK_V], tl.float32)
    own_d, sums = _weights(sink, h, t, r, beta, KIND)
    for at in range(0, end, KEYS):
        j = at + column
        k = _load(K, j, j < end, kt, SIZE, BLOCK_D)
        s, bend = _scores(q, k, i, j, setting, cap, SLOPES, MASK, CAUSAL)
        curvature, p = _weights(s, h, t, r, beta, KIND)
        sums += tl.sum(p, 1)
        if _some(p != 0):
            v = _load(V, j, j < end, vt, VALUES, BLOCK_V)
            if CAUSAL or MASK is not None:  # a key that is hidden may hold anything; 0 · NaN is NaN
                wrong = tl.sum(tl.where(v - v == 0, 0.0, 1.0), 1) > 0
                v = tl.where(wrong[:, None], 0.0, v)
                hurt = tl.sum(tl.where(wrong[None, :] & (p > 0), 1.0, 0.0), 1)
                sums = tl.where(hurt > 0, float("nan"), sums)
            output += _dot(p.to(v.dtype), v)
    alive = visible > 0
    output = tl.where(alive[:, None], output / sums[:, None], 0.0)
    _store(OUT, row, here, output, VALUES, BLOCK_V)
    tl.store(STATE + row * 5, h + (sums - sums), mask=here)  # NaN, so that a row has no gradient
    tl.store(STATE + row * 5 + 1, t, mask=here)
    tl.store(STATE + row * 5 + 2, r, mask=here)
    tl.store(STATE + row * 5 + 3, tl.where(alive, sums, float("inf")), mask=here)
    tl.store(STATE + row * 5 + 4, tl.zeros([ROWS], tl.float32) + passes, mask=here)


# ---------------------------------------------------------------- derivatives
@triton.jit
def _row_state(STATE, row, here):
    """h, t, r and 1/F of a block's rows; beyond the last row no weight is positive."""
    h = tl.load(STATE + row * 5, mask=here, other=0.0)
    t = tl.load(STATE + row * 5 + 1, mask=here, other=0.0)
    r = tl.load(STATE + row * 5 + 2, mask=here, other=1.0)
    return h, t, r, 1 / tl.load(STATE + row * 5 + 3, mask=here, other=1.0)


@triton.jit
def _backward_queries(
    Q, K, V, G, STATE, TABLE, BETA, SINK, SLOPES, MASK, scale, cap,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, mb, mh, mi, mj, total, heads,
    DQ, DELTA, D_BETA, D_SINK, D_SLOPES,
    GROUP: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr, SIZE: tl.constexpr,
    VALUES: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr, WITH_BETA: tl.constexpr,
):  # fmt: skip
    """δ of each row, then the gradient of the queries; of rows also those of β, sink and slope."""
    q, K, V, i, here, row, end, visible, setting, beta, sink = _block_of_queries(
        Q, K, V, TABLE, BETA, SINK, scale, qb, qh, qt, kb, kh, kt, vb, vh, vt, mb, mh, mi, mj,
        total, heads, GROUP, CAUSAL, SIZE, ROWS, BLOCK_D,
    )  # fmt: skip
    g = _load(G, row, here, VALUES, VALUES, BLOCK_V)
    h, t, r, norm = _row_state(STATE, row, here)
    own_d, own_p = _weights(sink, h, t, r, beta, KIND)
    sum_d, sum_da = own_d, tl.zeros([ROWS], tl.float32)
    # For β: Σ p l and Σ p l² φ, alone and with a; l = log p (Correia et al. 2019, Prop. 1).
    own_l, own_q = _log_terms(own_p * norm, beta)
    entropy, square = -own_p * norm * own_l, own_p * norm * own_q
    sum_a = tl.zeros([ROWS], tl.float32)
    sum_la = tl.zeros([ROWS], tl.float32)
    sum_qa = tl.zeros([ROWS], tl.float32)
    for at in range(0, end, KEYS):
        j = at + tl.arange(0, KEYS)
        k = _load(K, j, j < end, kt, SIZE, BLOCK_D)
        s, bend = _scores(q, k, i, j, setting, cap, SLOPES, MASK, CAUSAL)
        curvature, p = _weights(s, h, t, r, beta, KIND)
        if _some(curvature > 0):
            v = _load(V, j, j < end, vt, VALUES, BLOCK_V)
            a = tl.where(curvature > 0, _dot(g, tl.trans(v)), 0.0)
            sum_d += tl.sum(curvature, 1)
            sum_da += tl.sum(curvature * a, 1)
            if WITH_BETA:
                p = p * norm[:, None]
                log, bent = _log_terms(p, beta)
                entropy -= tl.sum(p * log, 1)
                square += tl.sum(p * bent, 1)
                sum_a += tl.sum(p * a, 1)
                sum_la += tl.sum(p * log * a, 1)
                sum_qa += tl.sum(p * bent * a, 1)
    delta = tl.where(sum_d > 0, sum_da / sum_d, 0.0)
    tl.store(DELTA + row, delta, mask=here)
    if SINK is not None:
        tl.store(D_SINK + row, -own_d * delta, mask=here)
    if WITH_BETA:  # of p, whose Σ p^{2−α} is Σ D, up to F to the power 2 − α, all but 1
        along = square * (sum_a - beta * sum_la) - (1 + beta * entropy) * sum_qa
        tl.store(D_BETA + row, tl.where(sum_d > 0, along / sum_d, 0.0), mask=here)

    gradient, by_slope = tl.zeros([ROWS, BLOCK_D], tl.float32), tl.zeros([ROWS], tl.float32)
    for at in range(0, end, KEYS):
        j = at + tl.arange(0, KEYS)
        k = _load(K, j, j < end, kt, SIZE, BLOCK_D)
        s, bend = _scores(q, k, i, j, setting, cap, SLOPES, MASK, CAUSAL)
        curvature, p = _weights(s, h, t, r, beta, KIND)
        if _some(curvature > 0):
            v = _load(V, j, j < end, vt, VALUES, BLOCK_V)
            ds = _by_scores(g, v, curvature, delta)
            if SLOPES is not None:
                distance = tl.abs(i[:, None] + setting[2] - j[None, :]).to(tl.float32)
                by_slope -= tl.sum(ds * distance, 1)
            if CAUSAL or MASK is not None:
                k = tl.where(k - k == 0, k, 0.0)
            gradient += _dot((ds * bend).to(k.dtype), k)
    _store(DQ, row, here, gradient * scale, SIZE, BLOCK_D)
    if SLOPES is not None:
        tl.store(D_SLOPES + row, by_slope, mask=here)


@triton.jit
def _log_terms(p, beta):
    """l = log p and l² φ(−β l), φ(x) = (e^x − 1 − x)/x²; 0 where p is 0."""
    log = tl.where(p > 0, tl.log2(tl.where(p > 0, p, 1.0)) / LOG2_E, 0.0)
    x = -beta * log
    tail = 0.0013888889 + x * (0.00019841270 + x * 0.000024801587)
    series = 0.5 + x * (0.16666667 + x * (0.041666667 + x * (0.0083333333 + x * tail)))
    safe = tl.where(x > 0.5, x, 1.0)
    bent = (tl.exp2(tl.minimum(safe, 60.0) * LOG2_E) - 1 - safe) / (safe * safe)
    return log, log * log * tl.where(x > 0.5, bent, series)


@triton.jit
def _backward_keys(
    Q, K, V, G, STATE, TABLE, BETA, SINK, SLOPES, MASK, scale, cap,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, mb, mh, mi, mj, total, heads, DK, DV, DELTA, total_keys,
    GROUP: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr, SIZE: tl.constexpr,
    VALUES: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and values, over the heads of queries that share it."""
    block, kv, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    batch, first_query, queries, first_key, keys, offset, j = _place(TABLE, block, sequence, KEYS)
    here = j < keys
    k = _load(K + batch * kb + kv * kh + first_key * kt, j, here, kt, SIZE, BLOCK_D)
    v = _load(V + batch * vb + kv * vh + first_key * vt, j, here, vt, VALUES, BLOCK_V)
    dk = tl.zeros([KEYS, BLOCK_D], tl.float32)
    dv = tl.zeros([KEYS, BLOCK_V], tl.float32)
    start = tl.maximum(block * KEYS - offset, 0) // ROWS * ROWS if CAUSAL else 0
    end = tl.where(block * KEYS < keys, queries, 0)
    for head in range(kv * GROUP, (kv + 1) * GROUP):
        beta = tl.load(BETA + head)
        mask_at = batch * mb + head * mh + first_query * mi + first_key * mj
        setting = queries, keys, offset, scale, head, mask_at, mi, mj
        for at in range(start, end, ROWS):
            i = at + tl.arange(0, ROWS)
            there, row = i < queries, (batch * heads + head) * total + first_query + i
            base = Q + batch * qb + head * qh + first_query * qt
            q = _load(base, i, there, qt, SIZE, BLOCK_D)
            h, t, r, norm = _row_state(STATE, row, there)
            s, bend = _scores(q, k, i, j, setting, cap, SLOPES, MASK, CAUSAL)
            curvature, p = _weights(s, h, t, r, beta, KIND)
            if _some(curvature > 0):
                g = _load(G, row, there, VALUES, VALUES, BLOCK_V)
                p = tl.where(curvature > 0, p * norm[:, None], 0.0)
                dv += _dot(tl.trans(p.to(g.dtype)), g)
                delta = tl.load(DELTA + row, mask=there, other=0.0)
                ds = _by_scores(g, v, curvature, delta) * bend
                dk += _dot(tl.trans(ds.to(q.dtype)), q)
    # Contiguous, as the keys of all sequences are.
    row = (batch * tl.num_programs(1) + kv) * total_keys + first_key + j
    _store(DK, row, here, dk * scale, SIZE, BLOCK_D)
    _store(DV, row, here, dv, VALUES, BLOCK_V)


# ---------------------------------------------------------------- as operations
class _Arranged(NamedTuple):
    """Arguments that all kernels take for a problem; each kernel has others of its own."""

    arrays: tuple[Tensor, Tensor, Tensor]
    others: tuple[Any, ...]  # table, β, sinks, slopes, mask, scale and softcap
    strides: tuple[int, ...]
    longest: tuple[int, int]  # queries and keys of a sequence, at most
    constants: dict[str, Any]

    @classmethod
    def of(cls, problem: TensorProblem) -> _Arranged:
        """Arrange the operands of a problem."""
        query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in problem[:3])
        (batch, heads, t, _), s, device = query.shape, key.size(2), query.device
        if problem.cu_queries is None:
            order = torch.arange(batch, device=device)
            zero, queries, keys = (torch.full_like(order, n) for n in (0, t, s))
            columns, longest = [order, zero, queries, zero, keys], (t, s)
        else:
            packed = problem.cu_queries, problem.cu_keys
            starts, lengths = zip(*((c[:-1], c.diff()) for c in packed), strict=True)
            columns = [torch.zeros_like(starts[0]), starts[0], lengths[0], starts[1], lengths[1]]
            most = [int(x.max()) if x.numel() else 0 for x in lengths]
            longest = most[0], most[1]
        # Filled on the device: a copy from the host would wait, and cannot be captured in a graph.
        alpha = problem.alpha
        offset = problem.offset if problem.offsets is None else problem.offsets
        offset, alpha_of_head = (
            x.to(device) if isinstance(x, Tensor) else torch.full((), x, device=device)
            for x in (offset, alpha)
        )
        columns.append(offset.expand_as(columns[0]))
        table = torch.stack([x.to(torch.int32) for x in columns], 1)
        beta = alpha_of_head.float() - 1
        # Looking at a tensor's values would wait for the device.
        beta = torch.where((beta >= 0) & (beta <= 1), beta, torch.nan).clamp(min=LEAST_BETA)
        by_head = (
            None if x is None else x.float().expand(heads).contiguous()
            for x in (beta, problem.sink, problem.bias)
        )  # fmt: skip
        mask = problem.mask
        if mask is not None:
            mask = mask.expand(batch, heads, t, s).view(torch.uint8)
        kind = {1.5: 2, 2.0: 1}.get(alpha, 0) if not isinstance(alpha, Tensor) else 0
        strides = (*(n for x in (query, key, value) for n in x.stride()[:3]),)
        return cls(
            (query, key, value),
            (table, *by_head, mask, problem.scale, problem.softcap),
            (*strides, *((0,) * 4 if mask is None else mask.stride())),
            longest,
            _constants(query, key, value, kind, problem.causal),
        )

    def run(self, kernel: Any, rows: Tensor, state: Tensor, *own: Any, **constants: Any) -> None:
        """Run a kernel on blocks of queries, or of keys: `rows` is what the queries get, or got."""
        constants |= self.constants
        (query, key, _), (table, *_) = self.arrays, self.others
        by_keys = kernel is _backward_keys
        blocks = triton.cdiv(self.longest[by_keys], constants["KEYS" if by_keys else "ROWS"])
        grid = blocks, (key if by_keys else query).size(1), table.size(0)
        if all(grid):
            kernel[grid](
                *self.arrays, rows, state, *self.others, *self.strides, query.size(2),
                query.size(1), *own, **constants,
            )  # fmt: skip


def _constants(
    query: Tensor, key: Tensor, value: Tensor, kind: int, causal: bool
) -> dict[str, Any]:
    """Constants that kernels are compiled for: tiles are so small that sums stay in registers."""
    features, values = (max(16, triton.next_power_of_2(x.size(-1))) for x in (query, value))
    size, single = max(features, values), query.dtype == torch.float32
    side = 32 if size > 128 or single else 64
    if size > 128 and single:
        side = 16
    return {
        "GROUP": query.size(1) // key.size(1),
        "KIND": kind,
        "CAUSAL": causal,
        "SIZE": query.size(-1),
        "VALUES": value.size(-1),
        "ROWS": side,
        "KEYS": side,
        "BLOCK_D": features,
        "BLOCK_V": values,
        "num_warps": 4 if size <= 64 and kind and not single else 8,
        "num_stages": 2,
        **TILES,
    }


def _attention(*operands: Any) -> tuple[Tensor, Tensor]:
    problem = TensorProblem._make(operands)
    output, state = _like(*operands)
    tolerance = 1e-4 if problem.query.dtype == torch.float32 else 1e-3
    _Arranged.of(problem).run(_forward, output.zero_(), state, TOLERANCE=tolerance)
    return output, state


def _like(*operands: Any) -> tuple[Tensor, Tensor]:
    """Empty outputs and states: of each query h, t, r, F and the passes of its block."""
    output = output_like(*operands)
    return output, output.new_empty((*output.shape[:-1], 5), dtype=torch.float32)


def _backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Any, ...]:
    problem, (state,) = saved_problem(ctx)
    needed = TensorProblem._make(ctx.needs_input_grad)
    gradients = _gradients_operation(g, state, *problem, needed.parameter)
    return gradients_of(needed, gradients)


def _gradients(g: Tensor, state: Tensor, *operands: Any) -> tuple[Tensor, ...]:
    *own, with_beta = operands
    problem = TensorProblem._make(own)
    arranged, g = _Arranged.of(problem), g.contiguous()
    by_query, by_key, by_value = (x.new_zeros(x.shape) for x in problem[:3])
    delta, *by_row = state.new_zeros((4, *state.shape[:-1]))
    arranged.run(_backward_queries, g, state, by_query, delta, *by_row, WITH_BETA=with_beta)
    arranged.run(_backward_keys, g, state, by_key, by_value, delta, by_key.size(2))
    learned = problem.parameter, problem.sink, problem.bias
    by_head = (
        state.new_empty(0) if like is None else x.sum((0, 2)).sum_to_size(like.shape).to(like.dtype)
        for x, like in zip(by_row, learned, strict=True)
    )
    return by_query, by_key, by_value, *by_head


def _gradients_like(g: Tensor, state: Tensor, *operands: Any) -> tuple[Tensor, ...]:
    problem = TensorProblem._make(operands[:-1])
    learned = problem.parameter, problem.sink, problem.bias
    by_head = (state.new_empty(0) if x is None else x.new_empty(x.shape) for x in learned)
    return *(x.new_empty(x.shape) for x in problem[:3]), *by_head


_gradients_operation: Rule = registered(
    "triton_attention_gradients",
    f"(Tensor g, Tensor state, {SCHEMA}, bool by_alpha)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    compute=_gradients,
    fake=_gradients_like,
    vmap=one_by_one,
    **not_differentiable("attention has no second derivatives on a GPU"),
)

_operation: Rule = registered(
    "triton_attention",
    f"({SCHEMA}) -> (Tensor, Tensor)",
    compute=_attention,
    fake=_like,
    setup_context=save_problem,
    backward=_backward,
    vmap=one_by_one,
)


def triton_attention(problem: TensorProblem) -> tuple[Tensor, Tensor]:
    """The output of α-entmax attention, with its gradients, and the passes for each threshold.

    Of query (B, H, T, d), key (B, n, S, d) and value (B, n, S, dᵥ), n dividing H, on a GPU, of
    float16, bfloat16 or float32; d and dᵥ at most 256. α, from 1 to 2, sinks and slopes are of
    shape (), (1,) or (H,); a head whose α in a tensor is outside gives NaN. Of packed sequences
    B = 1.
    """
    output, state = _operation(*problem)
    return output, state[..., 4]
