/* The threshold of α-entmax, and p, for any α > 1: a template. The NumPy twins are `halley_norm` in
 * pyentmax/thresholds/halley.py for α <= 2 and `newton_p_last` in
 * pyentmax/thresholds/newton_steep.py beyond.
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

/* BLOCK searches, a column for each: of as many short rows, or of one row in the first. */
typedef struct {
    REAL beta[BLOCK], b[BLOCK];
    REAL steepness[BLOCK]; /* 1/t, */
    REAL least[BLOCK];     /* and the least that it can be; */
    REAL move[BLOCK];      /* by which part of itself 1/t still has to grow; */
    REAL factor[BLOCK];    /* what the powers then take to sum to 1 */
    int whole;             /* the whole_power() of all columns */
} TYPED(EntmaxColumns);

/* P, D and E of each column, times 2^SHIFT. */
typedef struct {
    REAL p[BLOCK], d[BLOCK], e[BLOCK];
} TYPED(EntmaxSums);

/* Newton's method where p is steep: t = anchor + beyond, which is as fine as need be close to an
 * anchor; what the root is known to be between; and by how much t is still too large. */
typedef struct {
    REAL anchor[BLOCK], beyond[BLOCK], low[BLOCK], high[BLOCK], shift[BLOCK];
} TYPED(EntmaxNewton);

/* sum p and sum p/u, u = x + t, at a t, and the lowest gap of the support. */
typedef struct {
    REAL p[BLOCK], s[BLOCK], last[BLOCK];
} TYPED(NewtonSums);

/* b where it is 4 or 10, of α = 1.25 and 1.1, whose powers are a few products; 0 for any other. */
static inline int TYPED(whole_power)(double alpha) {
    const REAL b = (REAL)(1 / (alpha - 1));
    return b == 4 ? 4 : b == 10 ? 10 : 0;
}

/* Searches before their first step, from a t at or above the roots; all of one whole_power(). */
static void TYPED(start_entmax_columns)(TYPED(EntmaxColumns) *restrict columns,
                                        const double alpha[BLOCK], REAL t) {
    for (int j = 0; j < BLOCK; j++) {
        const double beta = alpha[j] - 1;
        columns->beta[j] = (REAL)beta;
        columns->b[j] = (REAL)(1 / beta);
        columns->steepness[j] = columns->least[j] = 1 / t;
    }
    columns->whole = TYPED(whole_power)(alpha[0]);
}

/* g, w and w^exponent 2^SHIFT of `count` registers of gaps that lie so far apart; off the support
 * -1, 0 and 0. */
ALWAYS_INLINE void TYPED(powers_of_gaps)(const REAL *restrict x, ptrdiff_t apart,
                                         TYPED(Register) steepness, TYPED(Register) exponent,
                                         const int whole, const int count, TYPED(Register) *g,
                                         TYPED(Register) *w, TYPED(Register) *q) {
    const TYPED(Register) none = {0};
    if (whole) { /* an exponent of whole - 2 */
        const TYPED(Register) scale = none + TYPED(power_of_2)(ROUNDER, SHIFT);
        for (int k = 0; k < count; k++) {
            g[k] = TYPED(load_register)(x + k * apart) * steepness;
            w[k] = TYPED(at_least)(1 + g[k], 0);
            g[k] = TYPED(at_least)(g[k], -1);
            const TYPED(Register) square = w[k] * w[k], fourth = square * square;
            q[k] = whole == 4 ? scale * square : scale * fourth * fourth;
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

/* Of a group of columns, or of a part of a row, in registers; and what P loses of its terms. */
typedef struct {
    TYPED(Register) p, lost, d, e;
} TYPED(RegisterSums);

/* Add to the sums `count` registers of entries, and write their q. */
ALWAYS_INLINE void TYPED(add_entries)(const REAL *restrict x, ptrdiff_t apart,
                                      TYPED(Register) steepness, TYPED(Register) exponent,
                                      const int whole, REAL *restrict q, ptrdiff_t q_apart,
                                      const int count, const bool keep_lost,
                                      TYPED(RegisterSums) *sums) {
    TYPED(Register) g[ABREAST], w[ABREAST], power[ABREAST];
    TYPED(powers_of_gaps)(x, apart, steepness, exponent, whole, count, g, w, power);
    for (int k = 0; k < count; k++) {
        const TYPED(Register) slope = power[k] * w[k], term = slope * w[k], next = sums->p + term;
        if (keep_lost) sums->lost += term - (next - sums->p);
        sums->p = next;
        sums->d += slope * g[k];
        sums->e += power[k] * g[k] * g[k];
        TYPED(store_register)(power[k], q + k * q_apart);
    }
}

/* The sums of the columns from `column` on that fit a register, and every entry's q, but where that
 * is NULL. In order, and
 * with what P loses of its terms: entries that are no part of the support change no bit of it, so
 * that it does not matter whether a tile holds them. */
ALWAYS_INLINE void TYPED(add_columns)(const REAL *restrict x, ptrdiff_t n, int column,
                                      const TYPED(EntmaxColumns) *restrict at, const int whole,
                                      Ahead *ahead, REAL *restrict q,
                                      TYPED(EntmaxSums) *restrict sums) {
    const TYPED(Register) none = {0};
    const TYPED(Register) steepness = TYPED(load_register)(at->steepness + column);
    const TYPED(Register) exponent = TYPED(load_register)(at->b + column) - 2;
    TYPED(RegisterSums) these = {none, none, none, none};
    REAL unused[TYPED(WIDTH)], *to = q ? q + column : unused;
    const ptrdiff_t step = q ? BLOCK : 0;
    Ahead mine = *ahead;
    ptrdiff_t i = column;
    for (; i + (ABREAST - 1) * BLOCK < n; i += ABREAST * BLOCK, to += ABREAST * step) {
        ask_lines_ahead(&mine, ABREAST);
        TYPED(add_entries)(x + i, BLOCK, steepness, exponent, whole, to, step, ABREAST, true,
                           &these);
    }
    for (; i < n; i += BLOCK, to += step)
        TYPED(add_entries)(x + i, BLOCK, steepness, exponent, whole, to, step, 1, true, &these);
    TYPED(store_register)(these.p + these.lost, sums->p + column);
    TYPED(store_register)(these.d, sums->d + column);
    TYPED(store_register)(these.e, sums->e + column);
    *ahead = mine;
}

static void TYPED(sums_of_columns)(const REAL *x, ptrdiff_t n, int column,
                                   const TYPED(EntmaxColumns) *at, Ahead *ahead, REAL *q,
                                   TYPED(EntmaxSums) *sums) {
    if (at->whole == 4)
        TYPED(add_columns)(x, n, column, at, 4, ahead, q, sums);
    else if (at->whole == 10)
        TYPED(add_columns)(x, n, column, at, 10, ahead, q, sums);
    else
        TYPED(add_columns)(x, n, column, at, 0, ahead, q, sums);
}

static double TYPED(sum_of_register)(TYPED(Register) a) {
    REAL lane[TYPED(WIDTH)];
    double sum = 0;
    TYPED(store_register)(a, lane);
    for (int j = 0; j < TYPED(WIDTH); j++) sum += lane[j];
    return sum;
}

/* The sums of a row of whole pairs of lanes, in the first column, and every entry's q; as much as
 * is read is asked for from `next` on. */
ALWAYS_INLINE void TYPED(add_row)(const REAL *restrict x, ptrdiff_t n,
                                  const TYPED(EntmaxColumns) *restrict at, const int whole,
                                  const REAL *next, REAL *restrict q,
                                  TYPED(EntmaxSums) *restrict sums) {
    enum { WIDTH = TYPED(WIDTH), STEP = PAIR / WIDTH < ABREAST ? PAIR / WIDTH : ABREAST };
    const TYPED(Register) none = {0}, steepness = none + at->steepness[0];
    const TYPED(Register) exponent = none + (at->b[0] - 2);
    REAL unused[WIDTH], *to = q ? q : unused;
    const ptrdiff_t step = q ? WIDTH : 0;
    double p = 0, d = 0, e = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        TYPED(RegisterSums) these = {none, none, none, none};
        for (ptrdiff_t i = start; i < end; i += STEP * WIDTH) {
            for (int j = 0; j < STEP * WIDTH; j += LINE / (int)sizeof(REAL)) ASK_FOR(next + i + j);
            TYPED(add_entries)(x + i, WIDTH, steepness, exponent, whole, to, step, STEP, false,
                               &these);
            to += STEP * step;
        }
        p += TYPED(sum_of_register)(these.p);
        d += TYPED(sum_of_register)(these.d);
        e += TYPED(sum_of_register)(these.e);
    }
    sums->p[0] = (REAL)p;
    sums->d[0] = (REAL)d;
    sums->e[0] = (REAL)e;
}

static void TYPED(sums_of_row)(const REAL *x, ptrdiff_t n, const TYPED(EntmaxColumns) *at,
                               const REAL *next, REAL *q, TYPED(EntmaxSums) *sums) {
    if (at->whole == 4)
        TYPED(add_row)(x, n, at, 4, next, q, sums);
    else if (at->whole == 10)
        TYPED(add_row)(x, n, at, 10, next, q, sums);
    else
        TYPED(add_row)(x, n, at, 0, next, q, sums);
}

/* The sums of every column of a tile of n entries of which any moves, or of a row. */
static void TYPED(entmax_sums)(const REAL *x, ptrdiff_t n, bool one_row,
                               const TYPED(EntmaxColumns) *at, const BITS moving[BLOCK],
                               Ahead *ahead, REAL *q, TYPED(EntmaxSums) *sums) {
    if (one_row) {
        TYPED(sums_of_row)(x, n, at, next_or(ahead, x), q, sums);
        return;
    }
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        BITS of_these = 0;
        for (int k = 0; k < TYPED(WIDTH); k++) of_these |= moving[j + k];
        if (of_these) TYPED(sums_of_columns)(x, n, j, at, ahead, q, sums);
    }
}

/* Halley's step of the first columns, from sums of which one entry counts for `weight`; tells which
 * took one, as it is more than `reaches`, by which part times b. Of columns that end here,
 * `crowded` says which neither a step nor a parabola fits. */
ALWAYS_INLINE BITS TYPED(halley_step)(TYPED(EntmaxColumns) *restrict at,
                                      const TYPED(EntmaxSums) *restrict sums, REAL weight,
                                      REAL reaches, bool tangents_only, BITS moving[BLOCK],
                                      BITS crowded[BLOCK], const int columns) {
    const REAL unscale = TYPED(power_of_2)(ROUNDER, -SHIFT) * weight;
    const REAL least_denominator = tangents_only ? (REAL)INFINITY : (REAL)0;
    REAL part[BLOCK];
    for (int j = 0; j < columns; j++) {
        const REAL now = at->steepness[j], b = at->b[j], d = sums->d[j] / sums->p[j], a = 1 - d;
        const REAL e = sums->e[j] / sums->p[j];
        const REAL h = 1
                       - now * TYPED(exp2_of)(-at->beta[j] * TYPED(log2_of)(sums->p[j] * unscale));
        const REAL twice = 2 * a, denominator = twice * a - h * ((b - 1) * (e - d * d));
        const REAL safe = TYPED(larger)(a * a, least_denominator); /* twice a tangent at most */
        const REAL step = denominator > safe ? twice * h / denominator : h / a;
        part[j] = TYPED(smaller)(step, (REAL)0.9);
    }
    BITS any = 0;
    for (int j = 0; j < columns; j++) {
        const REAL now = at->steepness[j], b = at->b[j], m = part[j] / (1 - part[j]);
        const REAL d = sums->d[j] / sums->p[j], e = sums->e[j] / sums->p[j];
        const REAL length = FABS(part[j]), of_b = TYPED(smaller)(b, 64); /* gaps are 64/b at most */
        const REAL next = TYPED(larger)(now + now * m, at->least[j]);
        const REAL tangent = b * m * d, curve = b * (b - 1) / 2 * e * m * m;
        /* What a parabola leaves out, at least: by Cauchy and Schwarz, sum |g|^3 w^(b-3) is E^2/|D|
         * or more. Much where a crowd is at the threshold. */
        const REAL left_out = (b - 2) / 3 * curve * (m * e), enough = -d * (EPSILON / 2);
        const BITS is_crowded = (left_out > enough) | (-left_out > enough);
        const REAL reach = b < 2 ? reaches / 50 : reaches; /* below, E is not smooth */
        const BITS far = (length * of_b > TYPED(larger)(reach, of_b * (4 * EPSILON)))
                         | (is_crowded & (length > ENTMAX_ROUNDING));
        const BITS was_moving = moving[j], moves = was_moving & far; /* what has ended stays */
        const REAL factor = 1 / (sums->p[j] + sums->p[j] * (tangent + curve));
        at->steepness[j] = moves ? next : now;
        at->move[j] = was_moving ? m : at->move[j];
        at->factor[j] = was_moving ? factor : at->factor[j];
        crowded[j] = was_moving ? is_crowded : crowded[j];
        moving[j] = moves;
        any |= moves;
    }
    return any;
}

NEVER_INLINE bool TYPED(step_of_columns)(TYPED(EntmaxColumns) *at, const TYPED(EntmaxSums) *sums,
                                         bool tangents_only, BITS moving[BLOCK],
                                         BITS crowded[BLOCK]) {
    return TYPED(halley_step)(at, sums, 1, PARABOLA_REACHES, tangents_only, moving, crowded, BLOCK)
           != 0;
}

NEVER_INLINE bool TYPED(step_of_row)(TYPED(EntmaxColumns) *at, const TYPED(EntmaxSums) *sums,
                                     REAL weight, REAL reaches, bool tangents_only,
                                     BITS moving[BLOCK], BITS crowded[BLOCK]) {
    return TYPED(halley_step)(at, sums, weight, reaches, tangents_only, moving, crowded, 1) != 0;
}

/* From q to p in its place; with the sums of p, if asked for. */
ALWAYS_INLINE void TYPED(finish_register)(const REAL *restrict x, TYPED(Register) steepness,
                                          TYPED(Register) b, TYPED(Register) move,
                                          TYPED(Register) factor, TYPED(Register) close_2,
                                          REAL *restrict q, TYPED(Register) *sum,
                                          TYPED(Register) *lost) {
    const TYPED(Register) none = {0}, tangent = b * move, curve = tangent * (tangent - move) / 2;
    const TYPED(Register) gap = TYPED(load_register)(x) * steepness, base = 1 + gap;
    TYPED(Register) power = (base + tangent * gap) * base + curve * (gap * gap);
    power *= TYPED(load_register)(q);
    const TYPED(Register) beyond = base * base - close_2;
    if (TYPED(any_below)(beyond, 0)) {
        const TYPED(Register) moved = base + move * gap;
        TYPED(Register) exact = TYPED(at_least)(moved, EPSILON / 4), more = gap + move * gap;
        TYPED(power_of_registers)(&exact, &more, b, 1);
        exact = TYPED(choose_above)(moved, none, exact, none);
        power = TYPED(where_below)(beyond, 0, exact, power);
    }
    power = TYPED(at_least)(power * factor, 0);
    const TYPED(Register) next = *sum + power;
    *lost += power - (next - *sum);
    *sum = next;
    TYPED(store_register)(power, q);
}

/* How close to the threshold an entry is, w^2, of which a parabola in the move leaves out more than
 * the contract allows: b^3 move^3/(6 w^3) of p, of 16 ε/(t w). */
ALWAYS_INLINE TYPED(Register)
    TYPED(too_close)(TYPED(Register) b, TYPED(Register) move, TYPED(Register) steepness) {
    const TYPED(Register) length = TYPED(larger_of)(move, -move);
    const TYPED(Register) of_b = -TYPED(at_least)(-b, -64), bent = of_b * length;
    return bent * bent * bent / (48 * EPSILON * steepness) + 64 * length * length;
}

static void TYPED(finish_columns)(const REAL *restrict x, ptrdiff_t n,
                                  const TYPED(EntmaxColumns) *restrict at, REAL *restrict q,
                                  REAL sum_p[BLOCK]) {
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        const TYPED(Register) steepness = TYPED(load_register)(at->steepness + j);
        const TYPED(Register) b = TYPED(load_register)(at->b + j);
        const TYPED(Register) move = TYPED(load_register)(at->move + j);
        const TYPED(Register) factor = TYPED(load_register)(at->factor + j);
        const TYPED(Register) close_2 = TYPED(too_close)(b, move, steepness);
        TYPED(Register) sum = {0}, lost = {0};
        for (ptrdiff_t i = j; i < n; i += BLOCK)
            TYPED(finish_register)(x + i, steepness, b, move, factor, close_2, q + i, &sum, &lost);
        TYPED(store_register)(sum + lost, sum_p + j);
    }
}

static double TYPED(finish_row)(const REAL *restrict x, ptrdiff_t n,
                                const TYPED(EntmaxColumns) *restrict at, REAL *restrict q) {
    const TYPED(Register) none = {0}, steepness = none + at->steepness[0], b = none + at->b[0];
    const TYPED(Register) move = none + at->move[0], factor = none + at->factor[0];
    const TYPED(Register) close_2 = TYPED(too_close)(b, move, steepness);
    double total = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        TYPED(Register) sum = none, lost = none;
        for (ptrdiff_t i = start; i < end; i += TYPED(WIDTH))
            TYPED(finish_register)(x + i, steepness, b, move, factor, close_2, q + i, &sum, &lost);
        total += TYPED(sum_of_register)(sum);
    }
    return total;
}

/* The least u of an entry of the support: so small a one may be summed as p/u. Closer ones tie. */
#define LEAST_U ((REAL)(IS_DOUBLE ? 0x1p-900 : 0x1p-100))

/* One step of some columns from the sums at t; those whose next one a tangent of each p replaces,
 * or is no longer than `enough` of t down to the root, stay. Tells whether any goes on.
 *
 * With u of the last entry of the support, v = u^b its p and e = sum p/u, sum p is convex in v for
 * β > 1: one of the norms of order β of v and something else for each entry. So tangents in v end
 * at or above the root, v (1 - (sum p - 1)/(u e)), if the support is right. A tangent below 0 tells
 * that the last entry is no part of it; then t jumps to what the slope of log sum p in log t aims
 * at, or halfway down to a known bound, but not above where that entry enters. For β <= 1, sum p is
 * convex in t itself. */
ALWAYS_INLINE bool TYPED(newton_step)(const TYPED(EntmaxColumns) *restrict at,
                                      const TYPED(NewtonSums) *restrict sums, int pass, REAL enough,
                                      TYPED(EntmaxNewton) *restrict c, BITS moving[BLOCK],
                                      const int first, const int columns) {
    const REAL most = EXPONENT_BIAS - 1, halfway = pass % 3 == 2 ? (REAL)1 : (REAL)0;
    BITS any = 0;
    for (int j = first; j < first + columns; j++) {
        const REAL beta = at->beta[j], p = sums->p[j], s = sums->s[j], over = p - 1;
        const REAL t = c->anchor[j] + c->beyond[j], kink = -sums->last[j];
        const REAL u = TYPED(larger)((c->anchor[j] - kink) + c->beyond[j], LEAST_U);
        const REAL shift = over / s, part = shift / u;
        const BITS steep = at->b[j] < 1, fits = (part < 1) | !steep, is_low = p < 1;
        const REAL base = fits ? 1 - part : p, exponent = fits ? beta : -beta * p / (t * s);
        const REAL log_ratio = exponent * TYPED(log2_of)(base);
        const REAL ratio = TYPED(exp2_of)(TYPED(smaller)(TYPED(larger)(log_ratio, -most), most));
        const REAL low = is_low ? TYPED(larger)(c->low[j], t) : c->low[j];
        const REAL high = is_low ? c->high[j] : fits ? t : kink;
        const REAL aimed = halfway > 0 ? SQRT(low) * SQRT(kink) : t * ratio;
        const REAL jump = TYPED(smaller)(TYPED(larger)(aimed, low * (1 + 2 * EPSILON)), kink);
        const REAL further = steep ? TYPED(larger)(u * ratio, LEAST_U) : u - beta * shift;
        const REAL anchor = fits ? kink : jump, beyond = fits ? further : 0;
        const BITS above = is_low & steep & (anchor + beyond >= high);
        const REAL left = over * over * (steep ? beta - 1 : beta * beta / (s * u));
        const REAL length = FABS(steep ? over : beta * shift * (32 / t));
        const BITS is_close = (left <= 2 * EPSILON * (s * u)) | (u - further <= enough * t)
                              | (steep & (u <= LEAST_U));
        const BITS there = (is_close & fits & !is_low) | (length <= 4 * EPSILON);
        const BITS was_moving = moving[j], moves = was_moving & !there & (p > 0);
        c->shift[j] = was_moving ? shift : c->shift[j];
        c->low[j] = was_moving ? low : c->low[j];
        c->high[j] = was_moving ? high : c->high[j];
        c->anchor[j] = !moves ? c->anchor[j] : above ? high : anchor;
        c->beyond[j] = !moves ? c->beyond[j] : above ? (REAL)0 : beyond;
        moving[j] = moves;
        any |= moves;
    }
    return any != 0;
}

NEVER_INLINE bool TYPED(newton_step_of_columns)(const TYPED(EntmaxColumns) *at,
                                                const TYPED(NewtonSums) *sums, int pass,
                                                REAL enough, TYPED(EntmaxNewton) *newton,
                                                BITS moving[BLOCK], int first) {
    return TYPED(newton_step)(at, sums, pass, enough, newton, moving, first, TYPED(WIDTH));
}

NEVER_INLINE bool TYPED(newton_step_of_row)(const TYPED(EntmaxColumns) *at,
                                            const TYPED(NewtonSums) *sums, int pass, REAL enough,
                                            TYPED(EntmaxNewton) *newton, BITS moving[BLOCK]) {
    return TYPED(newton_step)(at, sums, pass, enough, newton, moving, 0, 1);
}

/* Of a group of columns in registers: sum p and what it loses of its terms, sum p/u, and how far
 * the last entry of the support is from the largest. */
typedef struct {
    TYPED(Register) p, lost, s, farthest;
} TYPED(SumsBeside);

/* Add to the sums `count` registers of entries, and write their p where `some` is positive. */
ALWAYS_INLINE void TYPED(add_beside)(const REAL *restrict x, TYPED(Register) anchor,
                                     TYPED(Register) beyond, TYPED(Register) exponent,
                                     TYPED(Register) some, const int count, REAL *restrict p,
                                     TYPED(SumsBeside) *sums) {
    const TYPED(Register) none = {0};
    TYPED(Register) u[ABREAST], q[ABREAST], less_1[ABREAST];
    for (int k = 0; k < count; k++) {
        u[k] = (TYPED(load_register)(x + k * BLOCK) + anchor) + beyond;
        q[k] = TYPED(at_least)(u[k], LEAST_U);
        less_1[k] = q[k] - 1;
    }
    TYPED(power_of_registers)(q, less_1, exponent, count);
    for (int k = 0; k < count; k++) {
        const TYPED(Register) gap = TYPED(load_register)(x + k * BLOCK);
        const TYPED(Register) power = q[k] * TYPED(power_of_2)(ROUNDER, -SHIFT);
        const TYPED(Register) term = TYPED(choose_above)(u[k], none, power, none);
        const TYPED(Register) next = sums->p + term;
        sums->lost += term - (next - sums->p);
        sums->p = next;
        sums->s += term / TYPED(at_least)(u[k], LEAST_U);
        sums->farthest = TYPED(larger_of)(TYPED(choose_above)(u[k], none, -gap, none),
                                          sums->farthest);
        if (p == NULL) continue;
        const TYPED(Register) before = TYPED(load_register)(p + k * BLOCK);
        TYPED(store_register)(TYPED(choose_above)(some, none, term, before), p + k * BLOCK);
    }
}

/* The sums over the columns from `column` on that fit a register, and p of those wanted, if any
 * are. */
static void TYPED(sums_beside)(const REAL *restrict x, ptrdiff_t n, int column,
                               const TYPED(EntmaxColumns) *restrict at,
                               const TYPED(EntmaxNewton) *restrict newton, const REAL wanted[BLOCK],
                               REAL *restrict p, TYPED(NewtonSums) *restrict sums) {
    const TYPED(Register) none = {0}, exponent = TYPED(load_register)(at->b + column);
    const TYPED(Register) anchor = TYPED(load_register)(newton->anchor + column);
    const TYPED(Register) beyond = TYPED(load_register)(newton->beyond + column);
    const TYPED(Register) some = TYPED(load_register)(wanted + column);
    TYPED(SumsBeside) these = {none, none, none, none};
    ptrdiff_t i = column;
    for (; i + (ABREAST - 1) * BLOCK < n; i += ABREAST * BLOCK)
        TYPED(add_beside)(x + i, anchor, beyond, exponent, some, ABREAST, p ? p + i : NULL, &these);
    for (; i < n; i += BLOCK)
        TYPED(add_beside)(x + i, anchor, beyond, exponent, some, 1, p ? p + i : NULL, &these);
    TYPED(store_register)(these.p + these.lost, sums->p + column);
    TYPED(store_register)(these.s, sums->s + column);
    TYPED(store_register)(-these.farthest, sums->last + column);
}

/* Where to begin: for α <= 2 where the search has come to; beyond, where entries of the support of
 * the highest t would have the root if they were all as large as the mean of them. `longest` is the
 * most entries that a row can have. */
static void TYPED(start_newton)(const REAL *restrict x, ptrdiff_t n, bool one_row,
                                ptrdiff_t longest, const TYPED(EntmaxColumns) *restrict at,
                                TYPED(EntmaxNewton) *restrict c) {
    const TYPED(Register) none = {0};
    const REAL lowest = (REAL)(IS_DOUBLE ? -900 : -100), most = TYPED(log2_of)((REAL)longest);
    REAL size[BLOCK], sum[BLOCK];
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        const TYPED(Register) floor = -1 / TYPED(load_register)(at->least + j);
        TYPED(Register) sizes = none, sums = none;
        for (ptrdiff_t i = j; i < n; i += BLOCK) {
            const TYPED(Register) gap = TYPED(load_register)(x + i);
            sizes += TYPED(choose_above)(gap, floor, none + 1, none);
            sums += TYPED(choose_above)(gap, floor, gap, none);
        }
        TYPED(store_register)(sizes, size + j);
        TYPED(store_register)(sums, sum + j);
    }
    if (one_row) {
        size[0] = TYPED(pair_sum)(size);
        sum[0] = TYPED(pair_sum)(sum);
    }
    for (int j = 0; j < BLOCK; j++) {
        const REAL high = 1 / at->least[j];
        const REAL low = TYPED(larger)(-at->beta[j] * most - ENTMAX_ROUNDING, lowest);
        const REAL own = TYPED(larger)(-at->beta[j] * TYPED(log2_of)(size[j]), lowest);
        const REAL mean = TYPED(exp2_of)(own) - sum[j] / size[j];
        c->low[j] = TYPED(smaller)(TYPED(exp2_of)(low), high);
        c->high[j] = high;
        c->anchor[j] = at->b[j] < 1 ? TYPED(smaller)(TYPED(larger)(mean, c->low[j]), high)
                                    : 1 / at->steepness[j];
        c->beyond[j] = c->shift[j] = 0;
    }
}

/* Newton's method for a row, until a step is no longer than `enough` of t; and p, if wanted. */
static void TYPED(newton_row)(const REAL *x, ptrdiff_t n, REAL enough,
                              const TYPED(EntmaxColumns) *at, TYPED(EntmaxNewton) *newton,
                              REAL *p) {
    TYPED(NewtonSums) sums;
    REAL all[BLOCK];
    BITS moving[BLOCK] = {1};
    TYPED(fill)(all, BLOCK, 1);
    TYPED(start_newton)(x, n, true, n, at, newton);
    for (int pass = 0; pass < 2 * MAX_PASSES; pass++) {
        TYPED(fill)(newton->anchor, BLOCK, newton->anchor[0]);
        TYPED(fill)(newton->beyond, BLOCK, newton->beyond[0]);
        for (int j = 0; j < BLOCK; j += TYPED(WIDTH))
            TYPED(sums_beside)(x, n, j, at, newton, all, p, &sums);
        sums.p[0] = TYPED(pair_sum)(sums.p);
        sums.s[0] = TYPED(pair_sum)(sums.s);
        for (int j = 1; j < BLOCK; j++) sums.last[0] = TYPED(smaller)(sums.last[0], sums.last[j]);
        if (!TYPED(newton_step_of_row)(at, &sums, pass, enough, newton, moving)) break;
    }
    TYPED(fill)(newton->shift, BLOCK, newton->shift[0]);
}

/* The same for the wanted columns of a tile of n entries. */
static void TYPED(newton_columns)(const REAL *x, ptrdiff_t n, const BITS wanted[BLOCK], REAL enough,
                                  const TYPED(EntmaxColumns) *at, Ahead *ahead,
                                  TYPED(EntmaxNewton) *newton, REAL *p) {
    TYPED(NewtonSums) sums;
    REAL some[BLOCK];
    BITS moving[BLOCK];
    memcpy(moving, wanted, sizeof moving);
    for (int j = 0; j < BLOCK; j++) some[j] = (REAL)wanted[j];
    /* not n, which depends on other rows */
    TYPED(start_newton)(x, n, false, LONGEST_SHORT, at, newton);
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        BITS any = 0;
        for (int k = 0; k < TYPED(WIDTH); k++) any |= wanted[j + k];
        for (int pass = 0; any && pass < 2 * MAX_PASSES; pass++) {
            ask_ahead(ahead);
            TYPED(sums_beside)(x, n, j, at, newton, some, p, &sums);
            any = TYPED(newton_step_of_columns)(at, &sums, pass, enough, newton, moving, j);
        }
    }
}

/* Take what t is still too large by off the p of wanted columns, or of a row, by their tangents.
 * The sum is then 1, but for rounding where t would be below LEAST_U: there ties share what is
 * left. */
static void TYPED(take_off_shift)(const REAL *restrict x, ptrdiff_t n, bool one_row,
                                  const BITS wanted[BLOCK],
                                  const TYPED(EntmaxNewton) *restrict newton, REAL *restrict p) {
    const TYPED(Register) none = {0};
    REAL shifts[BLOCK], sum_p[BLOCK], factor[BLOCK];
    bool any_off = false;
    for (int j = 0; j < BLOCK; j++) shifts[j] = wanted[one_row ? 0 : j] ? newton->shift[j] : 0;
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        const TYPED(Register) anchor = TYPED(load_register)(newton->anchor + j);
        const TYPED(Register) beyond = TYPED(load_register)(newton->beyond + j);
        const TYPED(Register) shift = TYPED(load_register)(shifts + j);
        TYPED(Register) sum = none;
        for (ptrdiff_t i = j; i < n; i += BLOCK) {
            const TYPED(Register) u = (TYPED(load_register)(x + i) + anchor) + beyond;
            const TYPED(Register) own = TYPED(load_register)(p + i);
            const TYPED(Register) move = shift / TYPED(at_least)(u, LEAST_U);
            const TYPED(Register) moved = TYPED(at_least)(own - own * move, 0);
            TYPED(store_register)(moved, p + i);
            sum += moved;
        }
        TYPED(store_register)(sum, sum_p + j);
    }
    if (one_row) TYPED(fill)(sum_p, BLOCK, TYPED(pair_sum)(sum_p));
    for (int j = 0; j < BLOCK; j++) {
        const REAL u = newton->anchor[j] + newton->beyond[j], own = sum_p[j];
        const bool is_off = u <= 2 * LEAST_U && own > 0 && wanted[one_row ? 0 : j];
        factor[j] = is_off ? 1 / own : (REAL)1;
        any_off |= is_off;
    }
    for (ptrdiff_t i = 0; any_off && i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) p[i + j] *= factor[j];
}

/* From searches that have begun to p: of the columns of a tile of n entries, or of a row of n. */
static void TYPED(entmax_finish)(const REAL *restrict x, ptrdiff_t n, bool one_row,
                                 TYPED(EntmaxColumns) *at, Ahead *ahead, REAL *restrict p) {
    TYPED(EntmaxNewton) newton;
    TYPED(EntmaxSums) sums;
    BITS moving[BLOCK], off[BLOCK];
    for (int j = 0; j < BLOCK; j++) moving[j] = off[j] = 1;
    bool any_off = at->b[0] < 1;
    if (!any_off) { /* α <= 2 */
        for (int pass = 0; pass < MAX_PASSES; pass++) {
            TYPED(entmax_sums)(x, n, one_row, at, moving, ahead, p, &sums);
            if (!(one_row
                      ? TYPED(step_of_row)(at, &sums, 1, PARABOLA_REACHES, pass >= 8, moving, off)
                      : TYPED(step_of_columns)(at, &sums, pass >= 8, moving, off)))
                break;
        }
        REAL sum_p[BLOCK];
        if (one_row)
            sum_p[0] = (REAL)TYPED(finish_row)(x, n, at, p);
        else
            TYPED(finish_columns)(x, n, at, p, sum_p);
        /* Nor does it know of entries that the last move brings into the support. */
        for (int j = 0; j < (one_row ? 1 : BLOCK); j++) {
            const BITS is_off = off[j] | (FABS(sum_p[j] - 1) > (at->b[j] < 2 ? 8 : 16) * EPSILON);
            off[j] = is_off & (sum_p[j] > 0);
            any_off |= off[j] != 0;
        }
    }
    if (!any_off) return;
    if (one_row)
        TYPED(newton_row)(x, n, 0, at, &newton, p);
    else
        TYPED(newton_columns)(x, n, off, 0, at, ahead, &newton, p);
    TYPED(take_off_shift)(x, n, one_row, off, &newton, p);
}

#undef LEAST_U

#endif
