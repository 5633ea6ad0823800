/* The threshold of α-entmax, and p, for any α > 1: a template. The NumPy twins are `halley_norm` in
 * pyentmax/thresholds/halley.py for α <= 2 and `secant_p_max` in pyentmax/thresholds/secant.py
 * beyond.
 *
 * With β = α - 1 and b = 1/β, scores are kept as gaps x = β (z - max z) <= 0 and the threshold as
 * t = -tau, so that
 *
 *     p_i = [x_i + t]+^b = t^b w_i^b,   w_i = [1 + x_i/t]+,   sum_i p_i = 1,   d^-β <= t <= 1,
 *
 * the lower bound because no entry has more than the largest, t^b. All there is to know of a row at
 * a t are, with g = w - 1, P = sum w^b, D = sum g w^(b-1) and E = sum g^2 w^(b-2), of which one
 * power of each entry, its q = w^(b-2), tells the terms. 1/t is called the steepness.
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
 * that one ulp of t may be a large part of 1. So t is enclosed. From the upper end of a bracket it
 * is seen at which t the last entry of the support there leaves it, the kink. Where that is inside
 * the bracket, steps of log sum p by log t go on, or it is tried itself; where it is not, nothing
 * enters or leaves inside, and sum p is a smooth function of the last entry's p, of which tangents
 * from above and chords take few steps. The two ends of the last bracket are mixed such that the
 * sum is 1: each p^β is then between its values at the ends, a few ε of t apart. Where a crowd of
 * entries is right at the threshold for α <= 2, its columns are solved in this way, too.
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

/* A bracket of t in each column, the point between that is next, and sum p at both ends: 0 at a low
 * one that was not reached yet. Of the high one also from where on its last entry has p > 0, and
 * sum w^(b-1)/P. */
typedef struct {
    REAL at[BLOCK], low[BLOCK], high[BLOCK], sum_low[BLOCK], sum_high[BLOCK], kink[BLOCK],
        steep[BLOCK];
} TYPED(EntmaxBracket);

/* P and D at a t, and how far inside the support its last entry is. */
typedef struct {
    REAL p[BLOCK], d[BLOCK], nearest[BLOCK];
} TYPED(BracketSums);

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

/* Brackets of roots of columns, or of a row, of n entries. */
static void TYPED(start_bracket)(TYPED(EntmaxBracket) *restrict bracket,
                                 const TYPED(EntmaxColumns) *restrict at, ptrdiff_t n) {
    const REAL most = TYPED(log2_of)((REAL)n), lowest = 4 - EXPONENT_BIAS;
    for (int j = 0; j < BLOCK; j++) {
        const REAL low = TYPED(larger)(-at->beta[j] * most - ENTMAX_ROUNDING, lowest);
        bracket->at[j] = bracket->high[j] = 1 / at->least[j];
        bracket->low[j] = TYPED(smaller)(TYPED(exp2_of)(low), bracket->high[j]);
        bracket->sum_low[j] = 0;
        bracket->sum_high[j] = 1;
        bracket->kink[j] = bracket->steep[j] = 1;
    }
}

/* Narrow the brackets of some columns, and go on from a step between; tells whether any goes on. */
ALWAYS_INLINE bool TYPED(narrow)(const TYPED(EntmaxColumns) *restrict at,
                                 const TYPED(BracketSums) *restrict sums, int pass, REAL enough,
                                 TYPED(EntmaxBracket) *restrict c, BITS moving[BLOCK],
                                 const int first, const int columns) {
    const REAL unscale = TYPED(power_of_2)(ROUNDER, -SHIFT),
               tiny = TYPED(power_of_2)(ROUNDER, -SHIFT);
    const REAL by_chord = pass % 2 ? (REAL)1 : (REAL)0,
               by_secant = pass % 3 == 1 ? (REAL)1 : (REAL)0;
    const bool at_kink = pass % 3 == 2;
    REAL far[BLOCK], near[BLOCK];
    BITS any = 0;
    for (int j = first; j < first + columns; j++) {
        const REAL now = c->at[j], log_p = TYPED(log2_of)(sums->p[j] * unscale);
        const REAL sum = TYPED(exp2_of)(log_p + at->b[j] * TYPED(log2_of)(now));
        const BITS lowers = moving[j] & (sum >= 1 - 2 * EPSILON);
        const BITS raises = moving[j] & (sum <= 1 + 2 * EPSILON);
        c->high[j] = lowers ? now : c->high[j];
        c->sum_high[j] = lowers ? sum : c->sum_high[j];
        c->kink[j] = lowers ? now - sums->nearest[j] : c->kink[j];
        c->steep[j] = lowers ? (sums->p[j] - sums->d[j]) / sums->p[j] : c->steep[j];
        c->low[j] = raises ? now : c->low[j];
        c->sum_low[j] = raises ? sum : c->sum_low[j];
    }
    for (int j = first; j < first + columns;
         j++) { /* log sum p by log t: a tangent at the high end, a secant */
        const REAL low = c->low[j], high = c->high[j], most = EXPONENT_BIAS - 1;
        const REAL log_high = TYPED(log2_of)(c->sum_high[j]);
        const REAL log_low = TYPED(log2_of)(TYPED(larger)(c->sum_low[j], tiny));
        const REAL by = TYPED(smaller)(at->beta[j] * log_high / c->steep[j], most);
        const REAL part = TYPED(smaller)(log_high / (log_high - log_low), (REAL)0.9);
        const REAL share = c->sum_low[j] > 0 ? TYPED(larger)(part, (REAL)0.1) : (REAL)0.5;
        const REAL tangent = high * TYPED(exp2_of)(-by);
        const REAL secant = high * TYPED(exp2_of)(share * TYPED(log2_of)(low / high));
        const REAL own = by_secant * c->sum_low[j] > 0 ? low : tangent;
        far[j] = TYPED(smaller)(own > low ? tangent : secant, c->kink[j]);
    }
    for (int j = first; j < first + columns;
         j++) { /* sum p by the least p, where there is no kink between */
        const REAL high = c->high[j], kink = c->kink[j], room = TYPED(larger)(high - kink, tiny);
        const REAL over = c->sum_high[j] - 1, least_w = room / high;
        const REAL tangent = 1 - over / (c->sum_high[j] * c->steep[j] * least_w);
        const REAL of_low = TYPED(larger)((c->low[j] - kink) / room, tiny);
        const REAL low = TYPED(exp2_of)(at->b[j] * TYPED(log2_of)(of_low));
        const REAL secant = 1 - over * (1 - low) / (c->sum_high[j] - c->sum_low[j]);
        const REAL y = TYPED(larger)(by_chord > 0 ? secant : tangent, tiny);
        const REAL by = TYPED(larger)(at->beta[j] * TYPED(log2_of)(y), 1 - EXPONENT_BIAS);
        near[j] = kink + room * TYPED(exp2_of)(by);
    }
    for (int j = first; j < first + columns; j++) {
        const REAL low = c->low[j], high = c->high[j], ulp = EPSILON * high;
        const REAL across = at_kink ? c->kink[j] : far[j];
        const REAL wish = c->kink[j] > low ? across : near[j];
        const REAL next = TYPED(larger)(TYPED(smaller)(wish, high - ulp), low + ulp);
        const BITS open = (high - low > TYPED(larger)(enough * high, 3 * ulp));
        const BITS moves = moving[j] & open & (sums->p[j] > 0);
        c->at[j] = moves ? next : c->at[j];
        moving[j] = moves;
        any |= moves;
    }
    return any != 0;
}

NEVER_INLINE bool TYPED(narrow_columns)(const TYPED(EntmaxColumns) *at,
                                        const TYPED(BracketSums) *sums, int pass, REAL enough,
                                        TYPED(EntmaxBracket) *bracket, BITS moving[BLOCK],
                                        int first) {
    return TYPED(narrow)(at, sums, pass, enough, bracket, moving, first, TYPED(WIDTH));
}

NEVER_INLINE bool TYPED(narrow_row)(const TYPED(EntmaxColumns) *at, const TYPED(BracketSums) *sums,
                                    int pass, REAL enough, TYPED(EntmaxBracket) *bracket,
                                    BITS moving[BLOCK]) {
    return TYPED(narrow)(at, sums, pass, enough, bracket, moving, 0, 1);
}

/* w and w^exponent 2^SHIFT of `count` registers at a t, whose difference from a gap is exact where
 * the two are close; 0 off the support. */
ALWAYS_INLINE void TYPED(powers_at)(const REAL *restrict x, ptrdiff_t apart, TYPED(Register) t,
                                    TYPED(Register) steepness, TYPED(Register) exponent,
                                    const int count, TYPED(Register) *u, TYPED(Register) *w,
                                    TYPED(Register) *q) {
    const TYPED(Register) none = {0};
    TYPED(Register) gap[ABREAST];
    for (int k = 0; k < count; k++) {
        const TYPED(Register) entry = TYPED(load_register)(x + k * apart);
        gap[k] = entry * steepness;
        u[k] = entry + t;
        w[k] = TYPED(at_least)(u[k] * steepness, 0);
        q[k] = TYPED(at_least)(w[k], EPSILON * EPSILON);
    }
    TYPED(power_of_registers)(q, gap, exponent, count);
    for (int k = 0; k < count; k++) q[k] = TYPED(choose_above)(u[k], none, q[k], none);
}

/* Of the registers of a group: P, D, and how far the nearest entry of the support is inside. */
typedef struct {
    TYPED(Register) p, lost, d, nearest;
} TYPED(NarrowSums);

ALWAYS_INLINE void TYPED(add_at)(const REAL *restrict x, ptrdiff_t apart, TYPED(Register) t,
                                 TYPED(Register) steepness, TYPED(Register) exponent,
                                 const int count, TYPED(NarrowSums) *sums) {
    TYPED(Register) u[ABREAST], w[ABREAST], s[ABREAST];
    TYPED(powers_at)(x, apart, t, steepness, exponent, count, u, w, s);
    for (int k = 0; k < count; k++) {
        const TYPED(Register) none = {0}, term = s[k] * w[k], next = sums->p + term;
        const TYPED(Register) inside = TYPED(choose_above)(u[k], none, -u[k], none - 2);
        sums->lost += term - (next - sums->p);
        sums->p = next;
        sums->d += term - s[k];
        sums->nearest = TYPED(larger_of)(inside, sums->nearest);
    }
}

/* The sums at t and an exponent b - 1 over the columns from `column` on that fit a register. */
static void TYPED(sums_at)(const REAL *restrict x, ptrdiff_t n, int column, TYPED(Register) t,
                           TYPED(Register) exponent, TYPED(BracketSums) *restrict sums) {
    const TYPED(Register) none = {0}, steepness = 1 / t;
    TYPED(NarrowSums) these = {none, none, none, none - 2};
    ptrdiff_t i = column;
    for (; i + (ABREAST - 1) * BLOCK < n; i += ABREAST * BLOCK)
        TYPED(add_at)(x + i, BLOCK, t, steepness, exponent, ABREAST, &these);
    for (; i < n; i += BLOCK) TYPED(add_at)(x + i, BLOCK, t, steepness, exponent, 1, &these);
    TYPED(store_register)(these.p + these.lost, sums->p + column);
    TYPED(store_register)(these.d, sums->d + column);
    TYPED(store_register)(-these.nearest, sums->nearest + column);
}

/* Enclose the root of a row until its bracket is `enough` of itself wide or has no number inside.
 */
static void TYPED(enclose_row)(const REAL *x, ptrdiff_t n, REAL enough,
                               const TYPED(EntmaxColumns) *at, TYPED(EntmaxBracket) *bracket) {
    const TYPED(Register) none = {0}, exponent = none + (at->b[0] - 1);
    TYPED(BracketSums) sums;
    BITS moving[BLOCK] = {1};
    TYPED(start_bracket)(bracket, at, n);
    for (int pass = 0; pass < 2 * MAX_PASSES; pass++) {
        for (int j = 0; j < BLOCK; j += TYPED(WIDTH))
            TYPED(sums_at)(x, n, j, none + bracket->at[0], exponent, &sums);
        sums.p[0] = TYPED(pair_sum)(sums.p);
        sums.d[0] = TYPED(pair_sum)(sums.d);
        for (int j = 1; j < BLOCK; j++)
            sums.nearest[0] = TYPED(smaller)(sums.nearest[0], sums.nearest[j]);
        if (!TYPED(narrow_row)(at, &sums, pass, enough, bracket, moving)) break;
    }
}

/* The same of the wanted columns of a tile of n entries. */
static void TYPED(enclose_columns)(const REAL *x, ptrdiff_t n, const BITS wanted[BLOCK],
                                   REAL enough, const TYPED(EntmaxColumns) *at, Ahead *ahead,
                                   TYPED(EntmaxBracket) *bracket) {
    TYPED(BracketSums) sums;
    BITS moving[BLOCK];
    memcpy(moving, wanted, sizeof moving);
    TYPED(start_bracket)(bracket, at, LONGEST_SHORT); /* not n, which hangs on other rows */
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        const TYPED(Register) exponent = TYPED(load_register)(at->b + j) - 1;
        BITS any = 0;
        for (int k = 0; k < TYPED(WIDTH); k++) any |= wanted[j + k];
        for (int pass = 0; any && pass < 2 * MAX_PASSES; pass++) {
            ask_ahead(ahead);
            TYPED(sums_at)(x, n, j, TYPED(load_register)(bracket->at + j), exponent, &sums);
            any = TYPED(narrow_columns)(at, &sums, pass, enough, bracket, moving, j);
        }
    }
}

/* The p of wanted columns, or of a row, from the ends of their brackets, mixed so that they sum to
 * 1. */
static void TYPED(mix_ends)(const REAL *restrict x, ptrdiff_t n, bool one_row,
                            const BITS wanted[BLOCK], const TYPED(EntmaxColumns) *restrict at,
                            const TYPED(EntmaxBracket) *restrict bracket, REAL *restrict p) {
    const REAL unscale = TYPED(power_of_2)(ROUNDER, -SHIFT);
    const TYPED(Register) none = {0};
    REAL t[2][BLOCK], factor[2][BLOCK], on[BLOCK], b[BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        const int from = one_row ? 0 : j;
        const REAL low = bracket->sum_low[from], high = bracket->sum_high[from];
        const bool both = low > 0 && high > low; /* the lower end is known */
        const REAL part = (1 - low) / (high - low), share = part < 1 ? part : (REAL)1;
        const REAL shares[2] = {both ? 1 - share : (REAL)0, both ? share : 1 / high};
        on[j] = (REAL)wanted[from];
        b[j] = at->b[from];
        t[0][j] = bracket->low[from];
        t[1][j] = bracket->high[from];
        for (int k = 0; k < 2; k++)
            factor[k][j] = shares[k] * unscale * TYPED(exp2_of)(b[j] * TYPED(log2_of)(t[k][j]));
    }
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        const TYPED(Register) some = TYPED(load_register)(on + j);
        const TYPED(Register) exponent = TYPED(load_register)(b + j);
        for (ptrdiff_t i = j; i < n; i += BLOCK) {
            TYPED(Register) mixed = none, u, w, q;
            for (int k = 0; k < 2; k++) {
                const TYPED(Register) own_t = TYPED(load_register)(t[k] + j);
                TYPED(powers_at)(x + i, 0, own_t, 1 / own_t, exponent, 1, &u, &w, &q);
                mixed += q * TYPED(load_register)(factor[k] + j);
            }
            const TYPED(Register) before = TYPED(load_register)(p + i);
            TYPED(store_register)(TYPED(choose_above)(some, none, mixed, before), p + i);
        }
    }
}

/* From searches that have begun to p: of the columns of a tile of n entries, or of a row of n. */
static void TYPED(entmax_finish)(const REAL *restrict x, ptrdiff_t n, bool one_row,
                                 TYPED(EntmaxColumns) *at, Ahead *ahead, REAL *restrict p) {
    TYPED(EntmaxBracket) bracket;
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
        TYPED(enclose_row)(x, n, 0, at, &bracket);
    else
        TYPED(enclose_columns)(x, n, off, 0, at, ahead, &bracket);
    TYPED(mix_ends)(x, n, one_row, off, at, &bracket, p);
}

#endif
