"""What every mapping gives, in more digits than any backend has; and what a backend may differ by.

Nothing is shared with the library. α-entmax and normmax are bisections of their threshold problems
in wider floats, all others are exact in rational numbers. A loss is Ω*(z) + Ω(q) − q·z with Ω as
the papers print it, and derivatives are differences of the truth itself, so that no Jacobian is
written twice. test_truth.py compares all that with the textbooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Wide = np.longdouble
ALPHAS = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
BOUNDED = ("csoftmax", "csparsemax", "budget_sparsemax")
# Where long doubles are doubles, the truth is rounded to the digits that are under test.
ROUNDINGS = 1 if np.finfo(Wide).eps < np.finfo(np.float64).eps else 2


def widened(x: Any) -> np.ndarray:
    """Doubles for float32 and less, long doubles for doubles."""
    x = np.asarray(x)
    return x.astype(np.float64 if x.dtype.itemsize <= 4 else Wide)


# --- α-entmax and normmax -------------------------------------------------------------------------


def _bisect(falling: Callable[[Any], Any], low: Any, high: Any) -> tuple[Any, Any]:
    """A bracket around the root of Σ falling(t) = 1, halved until it rests."""
    wide = low.dtype
    low, high = low.astype(np.float64), high.astype(np.float64)
    low, high = _halved(falling, low, high, 55)
    if wide == np.float64:
        return low, high
    margin = 1e-12 * (1 + np.abs(low))  # then the last digits
    return _halved(falling, (low - margin).astype(wide), (high + margin).astype(wide), 32)


def _halved(falling: Callable[[Any], Any], low: Any, high: Any, steps: int) -> tuple[Any, Any]:
    for _ in range(steps):
        middle = (low + high) / 2
        above = falling(middle).sum(axis=-1, keepdims=True) >= 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low, high


def entmax(y: Any, alpha: float) -> Any:
    """p_i = [1 + β(y_i − c)]₊^{1/β}, β = α − 1, e^{y_i − c} at β = 0; rows with max y = 0."""
    if np.isinf(alpha):
        return (y == 0) / (y == 0).sum(axis=-1, keepdims=True).astype(y.dtype)
    beta, d = y.dtype.type(alpha) - 1, y.shape[-1]
    highest = np.log(d) + 1 if beta >= 0 else d**-beta / -beta

    def power(c: Any) -> Any:
        gap = y.astype(c.dtype) - c
        if beta == 0:
            return np.exp(gap)
        x = np.maximum(c.dtype.type(beta) * gap, -1)
        inside = x > -1
        return np.where(inside, np.exp(np.log1p(np.where(inside, x, 0)) / c.dtype.type(beta)), 0)

    zero = np.zeros_like(y[:, :1])
    above, below = map(power, _bisect(power, zero, zero + highest))
    # Two neighbouring thresholds differ where a power is steep, and so takes up what is missing.
    total, rest = above.sum(axis=-1, keepdims=True), below.sum(axis=-1, keepdims=True)
    share = np.where(total > rest, (1 - rest) / np.where(total > rest, total - rest, 1), 1)
    return below + share * (above - below)


def normmax(y: Any, alpha: float) -> Any:
    """p = q/Σq with q_i = [y_i − τ]₊^{1/(α−1)} and ‖q‖_α = 1."""
    if np.isinf(alpha):
        on = entmax(y, 2.0) > 0
        return on / on.sum(axis=-1, keepdims=True).astype(y.dtype)
    zero, alpha = np.zeros_like(y[:, :1]), y.dtype.type(alpha)
    power = alpha / (alpha - 1)
    tau, _ = _bisect(lambda tau: np.maximum(y - tau, 0) ** power, zero - 1, zero)
    q = np.maximum(y - tau, 0) ** (1 / (alpha - 1))
    return q / q.sum(axis=-1, keepdims=True)


# --- rational numbers -----------------------------------------------------------------------------


def exact(row: Any) -> list[Fraction]:
    """The numbers of a row, all finite."""
    return [Fraction(*x.as_integer_ratio()) for x in row]


def rounded(values: Sequence[Fraction]) -> np.ndarray:
    """Rational numbers as long doubles."""
    near = [float(x) for x in values]
    rest = [float(x - Fraction(a)) for x, a in zip(values, near, strict=True)]
    return np.array(near, Wide) + np.array(rest, Wide)


def fill(z: list[Fraction], upper: list[Fraction], total: Fraction) -> list[Fraction]:
    """clip(z − τ, 0, u) that sums to the total: sparsemax, with bounds and of any budget.

    Lowering τ starts an entry at z_i and fills it at z_i − u_i.
    """
    upper = [min(u, total) for u in upper]
    events = sorted([(x, 1) for x in z] + [(x - u, -1) for x, u in zip(z, upper, strict=True)])
    tau, mass, growing = events[-1][0], Fraction(0), 0
    for place, change in reversed(events):
        step = growing * (tau - place)
        if growing and mass + step >= total:
            break
        tau, mass, growing = place, mass + step, growing + change
    tau -= (total - mass) / growing if growing else 0
    return [min(max(x - tau, Fraction(0)), u) for x, u in zip(z, upper, strict=True)]


def csoftmax(z: list[Fraction], upper: list[Fraction]) -> Any:
    """min(u, e^{z − τ}): those that fill first are full, the others share what they leave."""
    limits = [Wide(-np.inf) if u == 0 else _log(u) for u in upper]
    order = sorted(range(len(z)), key=lambda i: z[i] - exact([limits[i]])[0] if upper[i] else 0)
    order = [i for i in order if upper[i]][::-1]
    p, rest = np.zeros(len(z), Wide), Fraction(1)
    for full, i in enumerate(order):
        free = order[full:]
        top = max(z[j] for j in free)
        y = rounded([max(z[j] - top, Fraction(-(10**6))) for j in free])  # whose power is 0
        share = np.exp(y) / np.exp(y).sum() * _float(rest)
        if share[0] <= _float(upper[i]):
            p[free] = share
            break
        p[i], rest = _float(upper[i]), rest - upper[i]
        if rest <= 0:
            break
    return p


def _float(x: Fraction) -> Any:
    return rounded([x])[0]


def _log(x: Fraction) -> Any:
    return np.log(_float(x))


def fused(z: list[Fraction], strength: Fraction) -> list[Fraction]:
    """argmin ½‖u − z‖² + λ Σ|u_{j+1} − u_j|: the slopes of a taut string.

    The running sums of u are the shortest path from 0 to Σz whose inner points lie within ±λ of
    the running sums of z.
    """
    n, sums = len(z), [Fraction(0)]
    for score in z:
        sums.append(sums[-1] + score)
    slopes: list[Fraction] = []
    start, height = 0, sums[0]
    while start < n:
        least: tuple[Any, int] = (-np.inf, n)  # slopes that stay inside, and where they touch
        most: tuple[Any, int] = (np.inf, n)
        for k in range(start + 1, n + 1):
            margin = strength if k < n else 0
            rise = (sums[k] - margin - height) / (k - start)
            fall = (sums[k] + margin - height) / (k - start)
            if rise > most[0] or fall < least[0]:  # a bend, where the path touches
                slope, k = most if rise > most[0] else least
                break
            if rise >= least[0]:
                least = rise, k
            if fall <= most[0]:
                most = fall, k
            slope = rise
        height += slope * (k - start)
        slopes += [slope] * (k - start)
        start = k
    return slopes


def clustered(z: list[Fraction], strength: Fraction) -> list[Fraction]:
    """argmin ½‖u − z‖² + λ Σ_{i<j} max(u_i, u_j): sorted, less their weights, pooled to fall."""
    order = sorted(range(len(z)), key=lambda i: -z[i])
    pools: list[tuple[Fraction, int]] = []
    for place, i in enumerate(order):
        total, size = z[i] + strength * place, 1  # but for a constant; the ranks weigh d − 1 … 0
        while pools and total * pools[-1][1] > pools[-1][0] * size:
            before = pools.pop()
            total, size = total + before[0], size + before[1]
        pools.append((total, size))
    u = dict(zip(order, [t / n for t, n in pools for _ in range(n)], strict=True))
    return [u[i] for i in range(len(z))]


def _exact_row(name: str, row: np.ndarray, value: Any) -> Any:
    """p of a row with finite scores, some of which may be −∞."""
    live = np.flatnonzero(row > -np.inf)
    z, p = exact(row[live]), np.zeros(row.shape, Wide)
    if name in ("csoftmax", "csparsemax"):
        upper = exact(np.broadcast_to(np.minimum(np.asarray(value, Wide), 1), row.shape)[live])
        p[live] = csoftmax(z, upper) if name == "csoftmax" else rounded(fill(z, upper, Fraction(1)))
    elif name == "budget_sparsemax":
        p[live] = rounded(fill(z, [Fraction(1)] * len(z), exact([Wide(value)])[0]))
    else:
        strength = exact([Wide(value)])[0]
        if name == "oscarmax":
            u = clustered(z, strength)
        else:  # scores on two sides of a masked entry are not neighbours
            runs = np.split(np.arange(len(z)), np.flatnonzero(np.diff(live) > 1) + 1)
            u = [x for run in runs for x in fused([z[i] for i in run], strength)]
        p[live] = rounded(fill(u, [Fraction(1)] * len(u), Fraction(1)))
    return p


# --- the truth ------------------------------------------------------------------------------------


KNOWN: dict[tuple[Any, ...], np.ndarray] = {}


def forward(name: str, z: Any, value: Any = None, mask: Any = None) -> np.ndarray:
    """p* of rows, in wide floats; one value of the parameter, or bounds for each entry.

    Worked out once for all backends that take the same rows.
    """
    given = [np.asarray(x) for x in (z, value, mask) if x is not None]
    key = (name, value is None, *((x.dtype.str, x.shape, x.tobytes()) for x in given))
    if key not in KNOWN:
        KNOWN[key] = _forward(name, z, value, mask)
        KNOWN[key].setflags(write=False)
    return KNOWN[key]


def _forward(name: str, z: Any, value: Any, mask: Any) -> np.ndarray:
    z = widened(z)
    z = z if mask is None else np.where(mask, z, -np.inf)
    top = z.max(axis=-1, keepdims=True)
    spoilt, nothing = ~(top < np.inf)[:, 0], top[:, 0] == -np.inf
    p = np.where(spoilt, np.nan, np.zeros(len(z)))[:, None] * np.ones_like(z)
    left = ~spoilt & ~nothing
    with np.errstate(all="ignore"):
        y = z[left] - top[left]
        if name in (*BOUNDED, "fusedmax", "oscarmax"):
            values = np.broadcast_to(np.asarray(value, Wide), z.shape)[left]
            for i, row, own in zip(np.flatnonzero(left), z[left], values, strict=True):
                p[i] = _exact_row(name, row, own if name[:2] == "cs" else own[0])
        elif name == "normmax":
            p[left] = normmax(y, value)
        elif name == "topk_softmax":  # all that tie for the last place
            least = -np.sort(-y, axis=-1)[:, : int(min(value, y.shape[-1]))][:, -1:]
            p[left] = entmax(np.where(y >= least, y, -np.inf), 1.0)
        elif name == "topk_sparsemax":  # the first of those that tie
            rank = np.argsort(np.argsort(-y, axis=-1, kind="stable"), axis=-1)
            p[left] = entmax(np.where(rank < value, y, -np.inf), 2.0)
        else:
            p[left] = entmax(y, ALPHAS.get(name, value))
    return p


def omega(name: str, p: Any, value: Any = None, mask: Any = True) -> Any:
    """Ω of rows, as the papers print it; next to a masked entry nothing is a neighbour."""
    p = np.asarray(p).astype(Wide)
    if name == "normmax":
        alpha = Wide(value)
        return p.max(-1) if np.isinf(alpha) else (p**alpha).sum(axis=-1) ** (1 / alpha)
    if name == "fusedmax":
        on = np.broadcast_to(mask, p.shape)
        steps = np.abs(np.diff(p)) * (on[..., 1:] & on[..., :-1])
        return (p**2).sum(axis=-1) / 2 + Wide(value) * steps.sum(axis=-1)
    if name == "oscarmax":
        rank = np.arange(p.shape[-1])  # how often the entry is the larger one
        return (p**2).sum(axis=-1) / 2 + Wide(value) * (np.sort(p) * rank).sum(axis=-1)
    alpha = Wide(2 if name == "topk_sparsemax" else ALPHAS.get(name, value))
    log_p = np.log(np.where(p > 0, p, 1))
    if np.isinf(alpha):
        return 0 * p[..., 0]
    power = log_p if alpha == 1 else np.expm1((alpha - 1) * log_p) / (alpha - 1)
    return (p * power).sum(axis=-1) / alpha  # Σ (p^α − p)/(α(α − 1))


def loss(name: str, z: Any, q: Any, value: Any = None, mask: Any = None) -> Any:
    """Ω*(z) + Ω(q) − q·z of each row, q a distribution."""
    p, z, q = forward(name, z, value, mask), widened(z), np.asarray(q).astype(Wide)
    mask = True if mask is None else mask
    z = np.where(mask, z, -np.inf)
    y = z - z.max(axis=-1, keepdims=True)
    gap = np.where(np.isinf(y), 0, y)
    part = np.where(np.isinf(y), np.where(q > 0, np.inf, 0), (p - q) * gap)
    return part.sum(axis=-1) - omega(name, p, value, mask) + omega(name, q, value, mask)


def slope(function: Callable[[Any], Any], step: float = 1e-4) -> Any:
    """f'(0) of f(t), by differences of fourth order."""
    near, far = (function(Wide(t)) - function(-Wide(t)) for t in (step, 2 * step))
    return (8 * near - far) / (12 * Wide(step))


# --- how far from it is right ---------------------------------------------------------------------


def reach(z: Any, on: Any) -> Any:
    """max(1, how far the entries that share probability lie below the largest of them)."""
    inside = np.where(on, z, np.nan)
    inside[~on.any(axis=-1)] = 0
    spread = np.nanmax(inside, axis=-1, keepdims=True) - np.nanmin(inside, axis=-1, keepdims=True)
    return np.maximum(1, spread)


def wrong(name: str, p: Any, best: Any, z: Any, value: Any = None, mask: Any = None) -> np.ndarray:
    """Which entries break the contract of accuracy: DESIGN's for α-entmax, 64ε × size of others."""
    z = np.where(np.isfinite(z) & (True if mask is None else mask), z, -np.inf).astype(Wide)
    computed = np.finfo(np.float32 if p.dtype.itemsize == 2 else p.dtype)
    e = float(computed.eps) * (ROUNDINGS if p.dtype == np.float64 else 1)
    half = float(np.finfo(p.dtype).eps) / 2 if p.dtype.itemsize == 2 else 0.0
    tiny = max(float(computed.tiny), float(np.finfo(p.dtype).smallest_subnormal))
    p, best = p.astype(Wide), best.astype(Wide)
    with np.errstate(all="ignore"):
        on = best > 0
        alpha = ALPHAS.get(name, value) if name in ALPHAS or name == "entmax" else None
        if alpha is not None and 2 < alpha < np.inf:
            right = _exact_for_moved_scores(p, z, on, alpha) <= 16 * e * reach(z, on) + 2 * half
        elif alpha is not None:
            right = _near_entmax(p, best, reach(z, on), alpha, e, half, tiny)
        else:
            size = _size(name, z, best, value)
            right = np.abs(p - best) <= 64 * e * size + half * best + tiny
    return ~(right | (np.isnan(p) & np.isnan(best)))


def _near_entmax(
    p: Any, best: Any, reach: Any, alpha: float, e: float, half: float, tiny: float
) -> Any:
    """|p − p*| ≤ 4ε p* + 16ε s* reach, s* = p*^{2−α}; or what moved scores give, near τ."""
    on, beta, room = best > 0, Wide(min(alpha, 1e6)) - 1, 16 * e * reach
    digits = 1 - (np.log(np.where(on, best, 1)) if alpha < 1 else 0)
    s = np.where(on, np.where(on, best, 1) ** (1 - beta), 0) * (alpha <= 2)
    close = np.abs(p - best) <= (4 * e * digits + half) * best + room * s + tiny
    moved = np.abs(np.maximum(p, 0) ** beta - best**beta) <= room
    return close | (moved & (best**beta <= room))


def _exact_for_moved_scores(p: Any, z: Any, on: Any, alpha: float) -> Any:
    """How far apart the thresholds are that the entries of a row wish for: y − p^β/β."""
    y, beta = z - z.max(axis=-1, keepdims=True), Wide(alpha) - 1
    wish = np.where(p > 0, y - p**beta / beta, y)
    lowest = np.where(p > 0, wish, np.inf).min(axis=-1, keepdims=True)
    spread = wish.max(axis=-1, keepdims=True) - lowest
    return np.where(np.isnan(spread) | ~on.any(axis=-1, keepdims=True), np.abs(p), spread)


def _size(name: str, z: Any, best: Any, value: Any) -> Any:
    """How far rounding of the scores moves an entry, in units of it."""
    on = best > 0
    if name in BOUNDED:  # what is full, and what has nothing, shares with no other
        on = on & (best < (1 if name[0] == "b" else np.asarray(value, Wide)))
    size = reach(z, on)
    if name in ("fusedmax", "oscarmax"):  # further apart they share nothing
        size = np.minimum(size, 1 + value * (4 if name == "fusedmax" else best.shape[-1]))
    if name in ("csoftmax", "topk_softmax"):
        return size * np.where(best > 0, best, 0) * 2 + (name == "csoftmax")
    if name == "normmax" and not np.isinf(value):
        alpha = Wide(value)
        norm = (best**alpha).sum(axis=-1, keepdims=True) ** ((alpha - 1) / alpha)
        s = np.where(on, np.where(on, best, 1) ** (2 - alpha), 0) * norm / (alpha - 1)
        return np.maximum(size, s + best * s.sum(axis=-1, keepdims=True))
    return np.broadcast_to(size, best.shape)
