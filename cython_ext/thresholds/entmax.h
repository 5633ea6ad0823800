/* The threshold of α-entmax, and p, for any α > 1: a template. In NumPy `newton`, for α <= 2, and
 * `bisect_p_max` beyond, in pyentmax/reference/thresholds, find the same.
 *
 * With β = α - 1 and b = 1/β, scores are kept as gaps x = β (z - max z) <= 0 and the threshold as
 * t = -tau, so that
 *
 *     p_i = [x_i + t]+^b = t^b w_i^b,   w_i = [1 + x_i/t]+,   sum_i p_i = 1,   d^-β <= t <= 1,
 *
 * the lower bound because no entry has more than the largest, t^b. At a t everything follows from
 * three sums of the row, with g = w - 1: P = sum w^b, D = sum g w^(b-1) and E = sum g^2 w^(b-2),
 * whose terms need one power of each entry, q = w^(b-2). 1/t is called the steepness.
 *
 * Up to α = 2, N = t P^β, the norm of the x + t of order b, is convex in t and close to a straight
 * line. With h = (N - 1)/N, a = t N'/N = sum w^(b-1)/P = 1 - D/P and
 * v = t^2 N''/N = (b - 1)(E/P - (D/P)^2), Newton's step makes t smaller by its part h/a and ends at
 * or above the root; Halley's, of third order, by 2 h a/(2 a^2 - h v). The last step is not taken:
 * it moves p along a parabola, but for entries close to the threshold, of which powers are taken
 * again. The common factor of p is left to the division by the sum, so a t that is right to a few ε
 * will do.
 *
 * Beyond α = 2 the sum is neither convex nor concave in the threshold, and p leaves 0 so steeply
 * that one ulp of t may be a large part of 1. But in the p of the last entry of the support it is
 * convex, as long as nothing enters or leaves; and t is kept as the place where that entry enters,
 * its anchor, and what it is beyond that, which has all digits. So Newton's method finds the
 * support and the root in three to six passes, and the last move is a tangent of each p. Where a
 * crowd of entries is right at the threshold for α <= 2, its columns are solved in this way, too.
 *
 * A register holds a search in each lane, those of the columns of a tile; or all lanes hold that of
 * one row, each with a part of its entries. Only total() and largest_total() tell the two apart.
 */
#ifndef PYENTMAX_THRESHOLDS_ENTMAX_H
#define PYENTMAX_THRESHOLDS_ENTMAX_H

#include "elementary/powers.h"
#include "rows/ahead.h"
#include "thresholds/search.h"

/* 16 ε: what a threshold may be off by. */
#define ENTMAX_ROUNDING ((REAL)(IS_DOUBLE ? 3.6e-15 : 1.9e-6))

/* The part of t, times b, that is left to a parabola: the cube of it is some ε. */
#define PARABOLA_REACHES ((REAL)(IS_DOUBLE ? 3e-6 : 2.4e-3))

#define TEMPLATE "thresholds/entmax.h"
#include "float_and_double.h"

#elif defined(REAL)

/* The gaps that a register of searches is about, in registers that lie `apart` entries apart: each
 * lane has a column of a tile, or all of them have one row. */
typedef struct {
    const REAL *x;
    ptrdiff_t count, apart;
    bool one_row;
    Ahead *ahead;
} TYPED(Gaps);

static inline TYPED(Gaps) TYPED(gaps_of_row)(const REAL *x, ptrdiff_t n, Ahead *ahead) {
    return (TYPED(Gaps)){x, n / WIDTH, WIDTH, true, ahead};
}

/* Those of the columns from `first` on of a tile of n entries each. */
static inline TYPED(Gaps)
    TYPED(gaps_of_columns)(const REAL *tile, ptrdiff_t n, int first, Ahead *ahead) {
    return (TYPED(Gaps)){tile + first, n, BLOCK, false, ahead};
}

/* What the lanes summed up: for each column, or for the row in every lane. */
ALWAYS_INLINE REGISTER TYPED(total)(const TYPED(Gaps) *gaps, REGISTER sum) {
    if (!gaps->one_row) return sum;
#if IS_DOUBLE
    const double all = TYPED(sum_across)(sum);
#else
    double lane[WIDTH]; /* for no digit is to be lost here */
    for (int j = 0; j < WIDTH; j++) lane[j] = sum[j];
    const double all = sum_across_f64(load_register_f64(lane)
                                      + load_register_f64(lane + WIDTH_f64));
#endif
    return (REAL)all - (REGISTER){0};
}

ALWAYS_INLINE REGISTER TYPED(largest_total)(const TYPED(Gaps) *gaps, REGISTER top) {
    if (!gaps->one_row) return top;
    REAL lane[WIDTH];
    TYPED(store_register)(top, lane);
    for (int j = 1; j < WIDTH; j++) lane[0] = TYPED(larger)(lane[j], lane[0]);
    return (REGISTER){0} + lane[0];
}

/* A register of searches. */
typedef struct {
    REGISTER beta, b;
    REGISTER steepness; /* 1/t, */
    REGISTER least;     /* and the least that it can be; */
    REGISTER move;      /* by which part of itself 1/t still has to grow; */
    REGISTER factor;    /* what the powers then take to sum to 1 */
    int simple;         /* the simple_power() of all, */
    bool above_2;       /* as all their α are, or none */
} TYPED(EntmaxSearch);

/* P, D and E of each search, times 2^SHIFT; and what P loses of its terms. */
typedef struct {
    REGISTER p, lost, d, e;
} TYPED(EntmaxSums);

/* Newton's method where p is steep: t = anchor + beyond, which is as fine as need be close to an
 * anchor; what the root is known to be between; and by how much t is still too large. */
typedef struct {
    REGISTER anchor, beyond, low, high, shift;
} TYPED(EntmaxNewton);

/* sum p, what it loses of its terms, and sum p/u, u = x + t, at a t; and how far the last entry of
 * the support is from the largest. */
typedef struct {
    REGISTER p, lost, s, farthest;
} TYPED(SumsAtAnchor);

/* Twice b where that is 3, 6, 8 or 20, of α = 5/3, 4/3, 1.25 and 1.1, whose powers are a root or a
 * few products; 0 for any other. (Of the time without: 0.55 to 0.8 for 1.25 and 1.1 on Zen 4, 0.5
 * to 1 for 4/3 and 5/3 with AVX2; the most for rows of few candidates.) */
static inline int TYPED(simple_power)(double alpha) {
    const REAL twice = (REAL)(2 / (alpha - 1));
    const int nearest = 0 < twice && twice < 21 ? (int)(twice + (REAL)0.5) : 0;
    const bool is_simple = nearest == 3 || nearest == 6 || nearest == 8 || nearest == 20;
    return is_simple && FABS(twice - nearest) < 16 * (REAL)DBL_EPSILON ? nearest : 0;
}

/* Is α above 2 as a search sees it, whose power may round to 1? */
static inline bool TYPED(is_above_2)(double alpha) {
    return (REAL)(1 / (alpha - 1)) < 1;
}

/* Searches before their first step, from a t at or above the roots; all of one simple_power(). */
static void TYPED(start_search)(TYPED(EntmaxSearch) *at, const double alpha[WIDTH], REAL t) {
    REAL beta[WIDTH], b[WIDTH];
    for (int j = 0; j < WIDTH; j++) {
        beta[j] = (REAL)(alpha[j] - 1);
        b[j] = (REAL)(1 / (alpha[j] - 1));
    }
    at->beta = TYPED(load_register)(beta);
    at->b = TYPED(load_register)(b);
    at->steepness = at->least = (REGISTER){0} + 1 / t;
    at->simple = TYPED(simple_power)(alpha[0]);
    at->above_2 = TYPED(is_above_2)(alpha[0]);
}

/* g, w and w^exponent 2^SHIFT of `count` registers of gaps that lie so far apart; off the support
 * -1, 0 and 0. */
ALWAYS_INLINE void TYPED(powers_of_gaps)(const REAL *restrict x, ptrdiff_t apart,
                                         REGISTER steepness, REGISTER exponent, const int simple,
                                         const int count, REGISTER *g, REGISTER *w, REGISTER *q) {
    const REGISTER none = {0};
    if (simple) { /* an exponent of simple/2 - 2 */
        const REGISTER scale = none + UNIT;
        for (int k = 0; k < count; k++) {
            g[k] = TYPED(load_register)(x + k * apart) * steepness;
            const REGISTER base = 1 + g[k];
            w[k] = TYPED(at_least)(base, 0);
            g[k] = TYPED(at_least)(g[k], -1);
            const REGISTER square = w[k] * w[k], fourth = square * square;
            q[k] = simple == 20  ? scale * fourth * fourth
                   : simple == 8 ? scale * square
                   : simple == 6 ? scale * w[k]
                                 : scale / TYPED(root)(TYPED(at_least)(base, EPSILON / 4));
            if (simple == 3) q[k] = TYPED(choose_above)(base, none, q[k], none);
        }
        return;
    }
    for (int k = 0; k < count; k++) {
        g[k] = TYPED(load_register)(x + k * apart) * steepness;
        w[k] = 1 + g[k];
        q[k] = TYPED(at_least)(w[k], EPSILON / 4);
        g[k] = TYPED(at_least)(g[k], -1);
    }
    for (int k = 0; k < count; k++) w[k] = TYPED(choose_above)(w[k], none, q[k], none);
    TYPED(power_of_registers)(q, g, exponent, count);
    for (int k = 0; k < count; k++) q[k] = TYPED(choose_above)(w[k], none, q[k], none);
}

/* Add to the sums `count` registers of entries, and write their q. */
ALWAYS_INLINE void TYPED(add_entries)(const REAL *restrict x, ptrdiff_t apart, REGISTER steepness,
                                      REGISTER exponent, const int simple, REAL *restrict q,
                                      ptrdiff_t q_apart, const int count, TYPED(EntmaxSums) *sums) {
    REGISTER g[UNROLL], w[UNROLL], power[UNROLL];
    TYPED(powers_of_gaps)(x, apart, steepness, exponent, simple, count, g, w, power);
    for (int k = 0; k < count; k++) {
        const REGISTER slope = power[k] * w[k], term = slope * w[k], next = sums->p + term;
        sums->lost += term - (next - sums->p);
        sums->p = next;
        sums->d += slope * g[k];
        sums->e += power[k] * g[k] * g[k];
        TYPED(store_register)(power[k], q + k * q_apart);
    }
}

/* The sums, and every entry's q, but where that is NULL. In order, and with what P loses of its
 * terms: entries that are no part of the support change no bit of it, so that it does not matter
 * whether a tile holds them. */
ALWAYS_INLINE TYPED(EntmaxSums)
    TYPED(sums_of_power)(const TYPED(Gaps) *gaps, const TYPED(EntmaxSearch) *at, const int simple,
                         REAL *restrict q) {
    const REGISTER none = {0}, steepness = at->steepness, exponent = at->b - 2;
    const ptrdiff_t apart = gaps->apart, q_apart = q ? apart : 0;
    const REAL *x = gaps->x;
    REAL unused[WIDTH], *to = q ? q : unused;
    TYPED(EntmaxSums) sums = {none, none, none, none};
    Ahead mine = *gaps->ahead;
    ptrdiff_t i = 0;
    for (; i + UNROLL <= gaps->count; i += UNROLL, x += UNROLL * apart, to += UNROLL * q_apart) {
        prefetch_lines(&mine, UNROLL);
        TYPED(add_entries)(x, apart, steepness, exponent, simple, to, q_apart, UNROLL, &sums);
    }
    for (; i < gaps->count; i++, x += apart, to += q_apart)
        TYPED(add_entries)(x, apart, steepness, exponent, simple, to, q_apart, 1, &sums);
    *gaps->ahead = mine;
    sums.p = TYPED(total)(gaps, sums.p + sums.lost);
    sums.d = TYPED(total)(gaps, sums.d);
    sums.e = TYPED(total)(gaps, sums.e);
    return sums;
}

static TYPED(EntmaxSums)
    TYPED(entmax_sums)(const TYPED(Gaps) *gaps, const TYPED(EntmaxSearch) *at, REAL *q) {
    return at->simple == 3    ? TYPED(sums_of_power)(gaps, at, 3, q)
           : at->simple == 6  ? TYPED(sums_of_power)(gaps, at, 6, q)
           : at->simple == 8  ? TYPED(sums_of_power)(gaps, at, 8, q)
           : at->simple == 20 ? TYPED(sums_of_power)(gaps, at, 20, q)
                              : TYPED(sums_of_power)(gaps, at, 0, q);
}

/* Halley's step of searches that move; those move on whose step is more than `reaches`, by which
 * part times b. Of those that end here, `crowded` says which neither a step nor a parabola fits. */
NEVER_INLINE void TYPED(halley_step)(TYPED(EntmaxSearch) *at, const TYPED(EntmaxSums) *sums,
                                     REGISTER reaches, bool tangents_only, MASK *moving,
                                     MASK *crowded) {
    const REGISTER none = {0}, now = at->steepness, b = at->b;
    const REGISTER d = sums->d / sums->p, e = sums->e / sums->p, a = 1 - d;
    const REGISTER log_sum = TYPED(log2_of_each)(sums->p * (1 / UNIT));
    const REGISTER h = 1 - now * TYPED(exp2_of_each)(-at->beta * log_sum);
    const REGISTER denominator = 2 * a * a - h * ((b - 1) * (e - d * d));
    const REGISTER least = tangents_only ? none + (REAL)INFINITY : a * a;
    const REGISTER halley = 2 * a * h / denominator; /* twice a tangent at most */
    const REGISTER step = TYPED(choose_above)(denominator, least, halley, h / a);
    const REGISTER part = -TYPED(at_least)(-step, (REAL)-0.9), m = part / (1 - part);
    const REGISTER length = TYPED(size_of)(part);
    const REGISTER of_b = -TYPED(at_least)(-b, -64); /* gaps are 64/b at most */
    const REGISTER tangent = b * m * d, curve = b * (b - 1) / 2 * e * m * m;
    /* What a parabola leaves out, at least: by Cauchy and Schwarz, sum |g|^3 w^(b-3) is E^2/|D| or
     * more. Much where a crowd is at the threshold. */
    const REGISTER left_out = TYPED(size_of)((b - 2) / 3 * curve * (m * e));
    const MASK is_crowded = left_out > -d * (EPSILON / 2);
    const REGISTER reach = TYPED(choose)(b < 2, reaches / 50, reaches); /* E not smooth */
    const MASK far = (length * of_b > TYPED(larger_of)(reach, of_b * (4 * EPSILON)))
                     | (is_crowded & (length > ENTMAX_ROUNDING));
    const MASK was_moving = *moving; /* what has ended stays */
    const REGISTER factor = 1 / (sums->p + sums->p * (tangent + curve));
    at->move = TYPED(choose)(was_moving, m, at->move);
    at->factor = TYPED(choose)(was_moving, factor, at->factor);
    *crowded = (was_moving & is_crowded) | (~was_moving & *crowded);
    *moving = was_moving & far & (sums->p > 0);
    at->steepness = TYPED(choose)(*moving, TYPED(larger_of)(now + now * m, at->least), now);
}

/* A bound on t from the largest entries of a row: a tangent from the last t above the root. */
static void TYPED(bound_by_tangent)(const TYPED(Gaps) *gaps, TYPED(EntmaxSearch) *at) {
    MASK moving = ~(MASK){0}, crowded = moving;
    TYPED(EntmaxSums) sums;
    int pass = 0;
    do {
        sums = TYPED(entmax_sums)(gaps, at, NULL);
        TYPED(halley_step)(at, &sums, (REAL)0.03 * at->b, pass >= 8, &moving, &crowded);
    } while (++pass < MAX_PASSES && TYPED(any_lane)(moving));
    const REGISTER log_sum = TYPED(log2_of_each)(sums.p * (1 / UNIT));
    const REGISTER h = 1 - at->steepness * TYPED(exp2_of_each)(-at->beta * log_sum);
    const REGISTER rest = 1 - h * sums.p / (sums.p - sums.d);
    at->least = at->steepness / rest * (1 - 2 * ENTMAX_ROUNDING);
}

/* How close to the threshold an entry is, w^2, of which a parabola in the move leaves out more than
 * the contract allows: b^3 move^3/(6 w^3) of p, of 16 ε/(t w). */
ALWAYS_INLINE REGISTER TYPED(too_close)(const TYPED(EntmaxSearch) *at) {
    const REGISTER length = TYPED(size_of)(at->move);
    const REGISTER bent = -TYPED(at_least)(-at->b, -64) * length;
    return bent * bent * bent / (48 * EPSILON * at->steepness) + 64 * length * length;
}

/* From q to p in its place; returns sum p. For b < 2, q falls where w rises, and all else rises: so
 * all else is multiplied first, and rounding q once more takes p down by one unit at most. */
static REGISTER TYPED(move_along_parabola)(const TYPED(Gaps) *gaps, const TYPED(EntmaxSearch) *at,
                                           REAL *restrict q) {
    const REGISTER none = {0}, b = at->b, move = at->move, close_2 = TYPED(too_close)(at);
    /* Of q, 2^SHIFT is left out first, or a short move's curve would be a denormal number. */
    const REAL down = 1 / UNIT;
    const REGISTER factor = at->factor * UNIT;
    const REGISTER tangent = factor * b * move;
    const REGISTER curve = tangent * (b * move - move) / 2;
    REGISTER sum = none, lost = none;
    const REAL *x = gaps->x;
    for (ptrdiff_t i = 0; i < gaps->count; i++, x += gaps->apart, q += gaps->apart) {
        const REGISTER gap = TYPED(load_register)(x) * at->steepness, base = 1 + gap;
        const REGISTER square = base * base, bend = gap * (tangent * base + curve * gap);
        REGISTER p = TYPED(load_register)(q) * down * (factor * square + bend);
        const REGISTER beyond = square - close_2;
        if (TYPED(any_below)(beyond, 0)) {
            const REGISTER moved = base + move * gap;
            REGISTER exact = TYPED(at_least)(moved, EPSILON / 4), more = gap + move * gap;
            TYPED(power_of_registers)(&exact, &more, b, 1);
            exact = TYPED(choose_above)(moved, none, exact * at->factor, none);
            p = TYPED(choose)(beyond < 0, exact, p);
        }
        p = TYPED(at_least)(p, 0);
        const REGISTER next = sum + p;
        lost += p - (next - sum);
        sum = next;
        TYPED(store_register)(p, q);
    }
    return TYPED(total)(gaps, sum + lost);
}

/* The least u of an entry of the support: so small a one may be summed as p/u. Closer ones tie. */
#define LEAST_U ((REAL)(IS_DOUBLE ? 0x1p-900 : 0x1p-100))

/* One step of searches from the sums at t; those whose next one a tangent of each p replaces,
 * or is no longer than `enough` of t down to the root, stay.
 *
 * With u of the last entry of the support, v = u^b its p and e = sum p/u, sum p is convex in v for
 * β > 1: one of the norms of order β of v and something else for each entry. So tangents in v end
 * at or above the root, v (1 - (sum p - 1)/(u e)), if the support is right. A tangent below 0 tells
 * that the last entry is no part of it; then t jumps to what the slope of log sum p in log t aims
 * at, or halfway down to a known bound, but not above where that entry enters. For β <= 1, sum p is
 * convex in t itself. */
NEVER_INLINE void TYPED(newton_step)(const TYPED(EntmaxSearch) *at, const TYPED(SumsAtAnchor) *sums,
                                     int pass, REAL enough, TYPED(EntmaxNewton) *c, MASK *moving) {
    const REGISTER none = {0}, least_u = none + LEAST_U;
    const REGISTER beta = at->beta, p = sums->p, s = sums->s, over = p - 1;
    const REGISTER t = c->anchor + c->beyond, kink = sums->farthest;
    const REGISTER u = TYPED(larger_of)((c->anchor - kink) + c->beyond, least_u);
    const REGISTER shift = over / s, part = shift / u;
    const MASK is_low = p < 1, was_moving = *moving;
    MASK above = {0}, is_tie = above, fits = ~above;
    REGISTER anchor = kink, beyond = u - beta * shift, high = t;
    if (at->above_2) {
        const REAL most = EXPONENT_BIAS - 1;
        fits = part < 1;
        const REGISTER base = TYPED(choose)(fits, 1 - part, p);
        const REGISTER exponent = TYPED(choose)(fits, beta, -beta * p / (t * s));
        const REGISTER log_ratio = TYPED(at_least)(exponent * TYPED(log2_of_each)(base), -most);
        const REGISTER ratio = TYPED(exp2_of_each)(-TYPED(at_least)(-log_ratio, -most));
        const REGISTER aimed = pass % 3 == 2 ? TYPED(root)(c->low) * TYPED(root)(kink) : t * ratio;
        const REGISTER jump = TYPED(larger_of)(aimed, c->low * (1 + 2 * EPSILON));
        anchor = TYPED(choose)(fits, kink, TYPED(smaller_of)(jump, kink));
        beyond = TYPED(choose)(fits, TYPED(larger_of)(u * ratio, least_u), none);
        high = TYPED(choose)(fits, t, kink);
        is_tie = ~(u > least_u);
    }
    const REGISTER further = TYPED(choose)(fits, beyond, u);
    const REGISTER low = TYPED(choose)(is_low, TYPED(larger_of)(c->low, t), c->low);
    high = TYPED(choose)(is_low, c->high, high);
    if (at->above_2) above = is_low & ~(high > anchor + beyond);
    const REGISTER bend = at->above_2 ? beta - 1 : beta * beta / (s * u);
    const REGISTER length = TYPED(size_of)(at->above_2 ? over : beta * shift * (32 / t));
    const MASK is_close = ~(over * over * bend > 2 * EPSILON * (s * u))
                          | ~(u - further > enough * t) | is_tie;
    const MASK there = (is_close & fits & ~is_low) | ~(length > 4 * EPSILON);
    const MASK moves = was_moving & ~there & (p > 0);
    c->shift = TYPED(choose)(was_moving, shift, c->shift);
    c->low = TYPED(choose)(was_moving, low, c->low);
    c->high = TYPED(choose)(was_moving, high, c->high);
    c->anchor = TYPED(choose)(moves, TYPED(choose)(above, high, anchor), c->anchor);
    c->beyond = TYPED(choose)(moves, TYPED(choose)(above, none, beyond), c->beyond);
    *moving = moves;
}

/* Add to the sums `count` registers of entries, and write the p that are wanted. */
ALWAYS_INLINE void TYPED(add_at_anchor)(const REAL *restrict x, ptrdiff_t apart, REGISTER exponent,
                                        const TYPED(EntmaxNewton) *newton, MASK wanted,
                                        const int count, REAL *restrict p,
                                        TYPED(SumsAtAnchor) *sums) {
    const REGISTER none = {0};
    REGISTER u[UNROLL], q[UNROLL], less_1[UNROLL];
    for (int k = 0; k < count; k++) {
        u[k] = (TYPED(load_register)(x + k * apart) + newton->anchor) + newton->beyond;
        q[k] = TYPED(at_least)(u[k], LEAST_U);
        less_1[k] = q[k] - 1;
    }
    TYPED(power_of_registers)(q, less_1, exponent, count);
    for (int k = 0; k < count; k++) {
        const REGISTER gap = TYPED(load_register)(x + k * apart);
        const REGISTER power = q[k] * (1 / UNIT);
        const REGISTER term = TYPED(choose_above)(u[k], none, power, none);
        const REGISTER next = sums->p + term;
        sums->lost += term - (next - sums->p);
        sums->p = next;
        sums->s += term / TYPED(at_least)(u[k], LEAST_U);
        sums->farthest = TYPED(larger_of)(TYPED(choose_above)(u[k], none, -gap, none),
                                          sums->farthest);
        if (p == NULL) continue;
        const REGISTER before = TYPED(load_register)(p + k * apart);
        TYPED(store_register)(TYPED(choose)(wanted, term, before), p + k * apart);
    }
}

/* The sums, and p of the wanted searches unless it is NULL. */
static TYPED(SumsAtAnchor)
    TYPED(sums_at_anchor)(const TYPED(Gaps) *gaps, const TYPED(EntmaxSearch) *at,
                          const TYPED(EntmaxNewton) *newton, MASK wanted, REAL *restrict p) {
    const REGISTER none = {0};
    const ptrdiff_t apart = gaps->apart;
    const REAL *x = gaps->x;
    TYPED(SumsAtAnchor) sums = {none, none, none, none};
    ptrdiff_t i = 0;
    for (; i + UNROLL <= gaps->count; i += UNROLL)
        TYPED(add_at_anchor)(x + i * apart, apart, at->b, newton, wanted, UNROLL,
                             p ? p + i * apart : NULL, &sums);
    for (; i < gaps->count; i++)
        TYPED(add_at_anchor)(x + i * apart, apart, at->b, newton, wanted, 1,
                             p ? p + i * apart : NULL, &sums);
    sums.p = TYPED(total)(gaps, sums.p + sums.lost);
    sums.s = TYPED(total)(gaps, sums.s);
    sums.farthest = TYPED(largest_total)(gaps, sums.farthest);
    return sums;
}

/* Where to begin: for α <= 2 where the search has come to; beyond, where entries of the support of
 * the highest t would have the root if they were all as large as the mean of them. */
static TYPED(EntmaxNewton)
    TYPED(start_newton)(const TYPED(Gaps) *gaps, const TYPED(EntmaxSearch) *at) {
    const REGISTER none = {0}, high = 1 / at->least;
    /* The most entries that a row can have: not those of the tile, which depend on other rows. */
    const ptrdiff_t longest = gaps->one_row ? gaps->count * gaps->apart : LONGEST_SHORT;
    const REAL lowest = (REAL)(IS_DOUBLE ? -900 : -100), log_size = TYPED(log2_of)((REAL)longest);
    REGISTER sizes = none, sum = none;
    for (ptrdiff_t i = 0; i < gaps->count; i++) {
        const REGISTER gap = TYPED(load_register)(gaps->x + i * gaps->apart);
        sizes += TYPED(choose_above)(gap, -high, none + 1, none);
        sum += TYPED(choose_above)(gap, -high, gap, none);
    }
    const REGISTER size = TYPED(total)(gaps, sizes);
    const REGISTER all = TYPED(at_least)(-at->beta * log_size - ENTMAX_ROUNDING, lowest);
    const REGISTER low = TYPED(smaller_of)(TYPED(exp2_of_each)(all), high);
    REGISTER anchor = 1 / at->steepness;
    if (at->above_2) {
        const REGISTER own = TYPED(at_least)(-at->beta * TYPED(log2_of_each)(size), lowest);
        const REGISTER mean = TYPED(exp2_of_each)(own) - TYPED(total)(gaps, sum) / size;
        anchor = TYPED(smaller_of)(TYPED(larger_of)(mean, low), high);
    }
    return (TYPED(EntmaxNewton)){anchor, none, low, high, none};
}

/* Newton's method for the wanted searches, until a step is no longer than `enough` of t; and p,
 * unless it is NULL. */
static TYPED(EntmaxNewton) TYPED(newton)(const TYPED(Gaps) *gaps, const TYPED(EntmaxSearch) *at,
                                         MASK wanted, REAL enough, REAL *p) {
    TYPED(EntmaxNewton) newton = TYPED(start_newton)(gaps, at);
    MASK moving = wanted;
    for (int pass = 0; pass < 2 * MAX_PASSES && TYPED(any_lane)(moving); pass++) {
        if (!gaps->one_row) prefetch_some(gaps->ahead);
        const TYPED(SumsAtAnchor) sums = TYPED(sums_at_anchor)(gaps, at, &newton, wanted, p);
        TYPED(newton_step)(at, &sums, pass, enough, &newton, &moving);
    }
    return newton;
}

/* Take what t is still too large by off the p of wanted searches, by their tangents. The sum is
 * then 1, but for rounding where t would be below LEAST_U: there ties share what is left. */
static void TYPED(take_off_shift)(const TYPED(Gaps) *gaps, const TYPED(EntmaxNewton) *newton,
                                  MASK wanted, REAL *restrict p) {
    const REGISTER none = {0}, one = none + 1;
    const REGISTER shift = TYPED(choose)(wanted, newton->shift, none);
    REGISTER sum = none;
    for (ptrdiff_t i = 0; i < gaps->count * gaps->apart; i += gaps->apart) {
        const REGISTER u = (TYPED(load_register)(gaps->x + i) + newton->anchor) + newton->beyond;
        const REGISTER own = TYPED(load_register)(p + i);
        const REGISTER move = shift / TYPED(at_least)(u, LEAST_U);
        const REGISTER moved = TYPED(at_least)(own - own * move, 0);
        TYPED(store_register)(moved, p + i);
        sum += moved;
    }
    sum = TYPED(total)(gaps, sum);
    const REGISTER t = newton->anchor + newton->beyond;
    const MASK is_off = wanted & ~(t > 2 * LEAST_U) & (sum > 0);
    if (!TYPED(any_lane)(is_off)) return;
    const REGISTER factor = TYPED(choose)(is_off, 1 / sum, one);
    for (ptrdiff_t i = 0; i < gaps->count * gaps->apart; i += gaps->apart)
        TYPED(store_register)(TYPED(load_register)(p + i) * factor, p + i);
}

/* From searches that have begun to p, which lies as the gaps do; `count` registers of them take
 * their steps by turns, so that a processor has more to do at a time than one chain of them. */
static void TYPED(finish_searches)(const TYPED(Gaps) *gaps, TYPED(EntmaxSearch) *at,
                                   REAL *restrict p, const int count) {
    const REGISTER none = {0};
    const MASK all = ~(MASK){0};
    MASK moving[TILE_REGISTERS], off[TILE_REGISTERS], any = all;
    for (int g = 0; g < count; g++) moving[g] = off[g] = all;
    for (int pass = 0; !at->above_2 && pass < MAX_PASSES && TYPED(any_lane)(any); pass++) {
        TYPED(EntmaxSums) sums[TILE_REGISTERS];
        any = all & ~all;
        for (int g = 0; g < count; g++)
            if (TYPED(any_lane)(moving[g]))
                sums[g] = TYPED(entmax_sums)(gaps + g, at + g, p + g * WIDTH);
        for (int g = 0; g < count; g++) {
            if (!TYPED(any_lane)(moving[g])) continue;
            TYPED(halley_step)(at + g, sums + g, none + PARABOLA_REACHES, pass >= 8, moving + g,
                               off + g);
            any |= moving[g];
        }
    }
    for (int g = 0; g < count; g++) {
        if (!at->above_2) {
            const REGISTER sum = TYPED(move_along_parabola)(gaps + g, at + g, p + g * WIDTH);
            /* Nor does it know of entries that the last move brings into the support. */
            const REGISTER most = TYPED(choose)(at[g].b < 2, none + 8, none + 16) * EPSILON;
            off[g] = (off[g] | (TYPED(size_of)(sum - 1) > most)) & (sum > 0);
            if (!TYPED(any_lane)(off[g])) continue;
        }
        const TYPED(EntmaxNewton) newton = TYPED(newton)(gaps + g, at + g, off[g], 0,
                                                         p + g * WIDTH);
        TYPED(take_off_shift)(gaps + g, &newton, off[g], p + g * WIDTH);
    }
}

#undef LEAST_U

#endif
