/* The threshold of α-entmax for 1 < α < 2: a template. The NumPy twin is `halley_norm` in
 * pyentmax/thresholds/halley.py.
 *
 * With β = α - 1 and b = 1/β, scores are kept as gaps x = β (z - max z) <= 0 and the threshold as
 * t = -tau, so that
 *
 *     p_i = [x_i + t]+^b = t^b w_i^b,   w_i = [1 + x_i/t]+,   sum_i p_i = 1,   d^-β <= t <= 1,
 *
 * the lower bound because no entry has more than the largest, t^b. That factor is left to the
 * division by the sum. So a t that is right to a few ε will do, near α = 1 too, where it is 1 but
 * for β times the logarithm of the sum: it scales all gaps by as much, and p is exact for scores
 * moved by a few ε |z - max z|.
 */
#ifndef PYENTMAX_THRESHOLDS_ENTMAX_BELOW_2_H
#define PYENTMAX_THRESHOLDS_ENTMAX_BELOW_2_H

#include "elementary/powers.h"
#include "rows/ahead.h"
#include "thresholds/search.h"

/* 2^-400 or 2^-60: keeps w = 0 in the domain of powers(). */
#define POSITIVE ((REAL)(IS_DOUBLE ? 3.872591914849318e-121 : 8.673617379884035e-19))

/* 16 ε: a step that is left to entmax_finish(). */
#define ENTMAX_ROUNDING ((REAL)(IS_DOUBLE ? 3.6e-15 : 1.9e-6))

/* So much of t is left to a tangent of every p, where that is taken. */
#define TANGENT_REACHES ((REAL)1e-4)

#define TEMPLATE "thresholds/entmax_below_2.h"
#include "float_and_double.h"

#elif defined(REAL)

/* BLOCK searches, a column for each: of as many short rows, or of one row in all of them. */
typedef struct {
    REAL beta[BLOCK], b[BLOCK], b_less_2[BLOCK];
    REAL steepness[BLOCK]; /* 1/t, */
    REAL least[BLOCK];     /* the least that it can be, */
    REAL beyond[BLOCK];    /* and the least value that is known to be too large; */
    REAL rest[BLOCK];      /* the part of t, a few ε, that it is still too large by, times b */
    REAL factor[BLOCK];    /* what the powers then take to sum to 1 */
    int twice_b;           /* 2b if all columns' powers are products and roots, otherwise 0 */
    const TYPED(PreparedPower) *power; /* of b - 2, if all columns' powers are by it, or NULL */
} TYPED(EntmaxColumns);

/* sum w^b, sum s for s = w^(b - 1), and sum w^(b - 2) over the support, times 2^SHIFT. */
typedef struct {
    double p[BLOCK], s[BLOCK], bend[BLOCK];
} TYPED(PowerSums);

/* 2b for the b whose powers are a few products and at most a root: those of α = 5/3, 7/5, 4/3, 5/4,
 * 6/5 and 11/10. Half of them are no floating-point numbers: an α may miss one by so little that no
 * power in this precision tells. 0 for any other. */
static inline int TYPED(short_power)(double alpha) {
    const double twice_b = 2 / (alpha - 1), whole = floor(twice_b + 0.5);
    const bool is_whole = fabs(twice_b - whole) <= whole * EPSILON / 8;
    const bool known = whole == 3 || whole == 5 || whole == 6 || whole == 8 || whole == 10
                       || whole == 20;
    return is_whole && known ? (int)whole : 0;
}

/* Forget what is known to be too large: of n entries, 1/t is n^β at most. */
static void TYPED(forget_beyond)(TYPED(EntmaxColumns) *restrict columns, ptrdiff_t n) {
    const REAL log2_n = TYPED(log2_of)((REAL)n);
    for (int j = 0; j < BLOCK; j++)
        columns->beyond[j] = TYPED(exp2_of)(columns->beta[j] * log2_n) * (1 + ENTMAX_ROUNDING);
}

/* Searches for n entries before their first step, from a t at or above the roots. */
static void TYPED(start_entmax_columns)(TYPED(EntmaxColumns) *restrict columns,
                                        const double alpha[BLOCK],
                                        const TYPED(PreparedPower) *power, ptrdiff_t n, REAL t) {
    for (int j = 0; j < BLOCK; j++) {
        const double beta = alpha[j] - 1, b = 1 / beta;
        columns->beta[j] = (REAL)beta;
        columns->b[j] = (REAL)b;
        columns->b_less_2[j] = (REAL)(b - 2);
        columns->steepness[j] = 1 / t;
        columns->least[j] = 1;
    }
    columns->twice_b = TYPED(short_power)(alpha[0]);
    columns->power = power;
    TYPED(forget_beyond)(columns, n);
}

/* w^(b - 2) 2^SHIFT for one of short_power()'s 2b, and 0 for w = 0. The scale comes in before what
 * underflows. */
ALWAYS_INLINE REAL TYPED(bend_of)(REAL w, const int twice_b) {
    const REAL scale = TYPED(power_of_2)(ROUNDER, SHIFT), square = w * w, fourth = square * square;
    switch (twice_b) {
        case 3:
            return scale * SQRT(w) / (w + POSITIVE);
        case 5:
            return scale * SQRT(w);
        case 6:
            return scale * w;
        case 8:
            return scale * square;
        case 10:
            return scale * square * w;
        default:
            return scale * fourth * fourth;
    }
}

/* Add to the sums those over n <= LEAF entries, whole pairs of lanes; keep every entry's s times
 * 2^SHIFT if asked to. */
ALWAYS_INLINE void TYPED(add_short_powers)(const REAL *restrict x, ptrdiff_t n,
                                           const REAL *restrict steepness, const int twice_b,
                                           const bool keep, const REAL *next, REAL *restrict s,
                                           TYPED(PowerSums) *restrict total) {
    const REAL zero = (REAL)(next == NULL); /* as in moments */
    REAL sum_p[BLOCK] = {0}, sum_s[BLOCK] = {0}, bend[BLOCK] = {0};
    for (ptrdiff_t i = 0; i < n; i += BLOCK) {
        if (!keep)
            for (int j = 0; j < BLOCK; j += LINE / (int)sizeof(REAL)) ASK_FOR(next + i + j);
        for (int j = 0; j < BLOCK; j++) {
            const REAL gap = x[i + j] * steepness[j], base = 1 + gap;
            const REAL w = TYPED(larger)(base, zero), q = TYPED(bend_of)(w, twice_b);
            const REAL slope = q * w;
            bend[j] += q;
            sum_s[j] += slope;
            sum_p[j] += slope * w;
            if (keep) s[i + j] = slope;
        }
    }
    for (int j = 0; j < BLOCK; j++) {
        total->p[j] += sum_p[j];
        total->s[j] += sum_s[j];
        total->bend[j] += bend[j];
    }
}

#if !IS_DOUBLE
/* The same for a b that is prepared, and every entry's s times 2^SHIFT. */
static void TYPED(add_prepared_powers)(const REAL *restrict x, ptrdiff_t n,
                                       const TYPED(EntmaxColumns) *restrict at, const REAL *next,
                                       REAL *restrict s, TYPED(PowerSums) *restrict total) {
    enum { PARTS = BLOCK / TYPED(WIDTH) };
    TYPED(Register) sum_p[PARTS], sum_s[PARTS], bend[PARTS];
    for (int k = 0; k < PARTS; k++) sum_p[k] = sum_s[k] = bend[k] = (TYPED(Register)){0};
    for (ptrdiff_t i = 0; i < n; i += BLOCK) {
        for (int j = 0; j < BLOCK; j += LINE / (int)sizeof(REAL)) ASK_FOR(next + i + j);
        for (int start = 0; start < PARTS; start += ABREAST) {
            const int size = PARTS - start < ABREAST ? PARTS - start : ABREAST;
            TYPED(Register) w[ABREAST], q[ABREAST];
            for (int k = 0; k < size; k++) {
                const ptrdiff_t j = (start + k) * TYPED(WIDTH);
                const TYPED(Register) steepness = TYPED(load_register)(at->steepness + j);
                const TYPED(Register) base = 1 + TYPED(load_register)(x + i + j) * steepness;
                q[k] = w[k] = TYPED(at_least)(base, EPSILON / 4);
            }
            TYPED(prepared_power)(at->power, q, size);
            for (int k = 0; k < size; k++) {
                const TYPED(Register) slope = q[k] * w[k];
                bend[start + k] += q[k];
                sum_s[start + k] += slope;
                sum_p[start + k] += slope * w[k];
                TYPED(store_register)(slope, s + i + (start + k) * TYPED(WIDTH));
            }
        }
    }
    REAL p_of[BLOCK], s_of[BLOCK], bend_of[BLOCK];
    memcpy(p_of, sum_p, sizeof p_of);
    memcpy(s_of, sum_s, sizeof s_of);
    memcpy(bend_of, bend, sizeof bend_of);
    for (int j = 0; j < BLOCK; j++) {
        total->p[j] += p_of[j];
        total->s[j] += s_of[j];
        total->bend[j] += bend_of[j];
    }
}
#endif

/* The same for any b, by logarithms, and every entry's s times 2^SHIFT. */
static void TYPED(add_powers)(const REAL *restrict x, ptrdiff_t n,
                              const TYPED(EntmaxColumns) *restrict at, const REAL *next,
                              REAL *restrict s, TYPED(PowerSums) *restrict total) {
    REAL u[LEAF], r[LEAF], q[LEAF];
    if (n <= 0) return; /* never, but compilers miss that u is written otherwise */
    const REAL zero = (REAL)(next == NULL); /* as in moments */
    for (ptrdiff_t i = 0; i < n; i += BLOCK) {
        for (int j = 0; j < BLOCK; j += LINE / (int)sizeof(REAL)) ASK_FOR(next + i + j);
        for (int j = 0; j < BLOCK; j++) {
            const REAL gap = x[i + j] * at->steepness[j], base = 1 + gap;
            r[i + j] = gap;
            u[i + j] = TYPED(larger)(base, zero) + POSITIVE;
        }
    }
    TYPED(powers)(u, r, n, at->b_less_2, q);

    REAL sum_p[BLOCK] = {0}, sum_s[BLOCK] = {0}, bend[BLOCK] = {0};
    for (ptrdiff_t i = 0; i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) {
            const REAL base = u[i + j] - POSITIVE, slope = q[i + j] * base;
            bend[j] += base > 0 ? q[i + j] : (REAL)0;
            sum_s[j] += slope;
            sum_p[j] += slope * base;
            s[i + j] = slope;
        }
    for (int j = 0; j < BLOCK; j++) {
        total->p[j] += sum_p[j];
        total->s[j] += sum_s[j];
        total->bend[j] += bend[j];
    }
}

ALWAYS_INLINE void TYPED(add_any_powers)(const REAL *restrict x, ptrdiff_t n,
                                         const TYPED(EntmaxColumns) *restrict at, const bool keep,
                                         const REAL *next, REAL *restrict s,
                                         TYPED(PowerSums) *restrict total) {
    const REAL *steepness = at->steepness;
    switch (at->twice_b) { /* each with a loop of its own, in which there is no choice left */
        case 3:
            TYPED(add_short_powers)(x, n, steepness, 3, keep, next, s, total);
            break;
        case 5:
            TYPED(add_short_powers)(x, n, steepness, 5, keep, next, s, total);
            break;
        case 6:
            TYPED(add_short_powers)(x, n, steepness, 6, keep, next, s, total);
            break;
        case 8:
            TYPED(add_short_powers)(x, n, steepness, 8, keep, next, s, total);
            break;
        case 10:
            TYPED(add_short_powers)(x, n, steepness, 10, keep, next, s, total);
            break;
        case 20:
            TYPED(add_short_powers)(x, n, steepness, 20, keep, next, s, total);
            break;
        default:
#if !IS_DOUBLE
            if (at->power) {
                TYPED(add_prepared_powers)(x, n, at, next, s, total);
                break;
            }
#endif
            TYPED(add_powers)(x, n, at, next, s, total);
    }
}

NEVER_INLINE void TYPED(add_powers_of_tile)(const REAL *restrict x, ptrdiff_t n,
                                            const TYPED(EntmaxColumns) *restrict at,
                                            REAL *restrict s, TYPED(PowerSums) *restrict total) {
    TYPED(add_any_powers)(x, n, at, true, x, s, total);
}

/* Of a row, which is longer, products are not kept: to take them again costs less than to write and
 * read them. As much as is read is asked for from `next` on. */
NEVER_INLINE void TYPED(add_powers_of_row)(const REAL *restrict x, ptrdiff_t n,
                                           const TYPED(EntmaxColumns) *restrict at,
                                           const REAL *next, REAL *restrict s,
                                           TYPED(PowerSums) *restrict total) {
    TYPED(add_any_powers)(x, n, at, false, next, s, total);
}

/* The sum of the columns, by halves. */
static inline double TYPED(sum_of_columns)(const double *column) {
    double part[BLOCK / 2];
    for (int j = 0; j < BLOCK / 2; j++) part[j] = column[j] + column[j + BLOCK / 2];
    for (int j = 0; j < BLOCK / 4; j++) part[j] += part[j + BLOCK / 4];
    for (int j = 0; j < BLOCK / 8; j++) part[j] += part[j + BLOCK / 8];
    return (part[0] + part[2]) + (part[1] + part[3]);
}

/* The sums of one row, of which each column holds a part, in every column, times a weight. */
static void TYPED(add_up_columns)(TYPED(PowerSums) *sums, double weight) {
    const double power = weight * TYPED(sum_of_columns)(sums->p);
    const double slope = weight * TYPED(sum_of_columns)(sums->s);
    const double bend = weight * TYPED(sum_of_columns)(sums->bend);
    for (int j = 0; j < BLOCK; j++) {
        sums->p[j] = power;
        sums->s[j] = slope;
        sums->bend[j] = bend;
    }
}

/* Each column's sums; or of one row, the row's in every column, times a weight. */
static void TYPED(power_sums)(const REAL *x, ptrdiff_t n, bool one_row, double weight,
                              const TYPED(EntmaxColumns) *at, Ahead *ahead, REAL *s,
                              TYPED(PowerSums) *sums) {
    const REAL *next = next_or(ahead, x);
    *sums = (TYPED(PowerSums)){0};
    for (ptrdiff_t i = 0; i < n; i += LEAF) {
        const ptrdiff_t count = n - i < LEAF ? n - i : LEAF;
        if (one_row) {
            TYPED(add_powers_of_row)(x + i, count, at, next + i, s + i, sums);
        } else {
            ask_ahead(ahead);
            TYPED(add_powers_of_tile)(x + i, count, at, s + i, sums);
        }
    }
    if (one_row) TYPED(add_up_columns)(sums, weight);
}

/* Move the first columns towards their roots; false if none had to.
 *
 * N = t (sum w^b)^β, the norm of the x + t of order b, is convex in t since b >= 1, and close to a
 * straight line: exactly for a row of ties. With h = (N - 1)/N, a = t N'/N = sum s/sum w^b and
 * v = t^2 N''/N = (b - 1) (sum w^(b-2)/sum w^b - a^2), Newton's step is -t h/a, which ends at or
 * above the root, and Halley's, of third order, -2 t h a/(2 a^2 - h v). It is taken if it stays
 * above all t known to be below the root; tangents alone, which cannot fail, finish what takes it
 * too long.
 *
 * A step of a few ε is not taken, but left to entmax_finish(). Many equal entries near the
 * threshold would otherwise add up what rounding does to t. */
ALWAYS_INLINE bool TYPED(entmax_step)(TYPED(EntmaxColumns) *restrict at,
                                      const TYPED(PowerSums) *restrict sums, REAL tolerance,
                                      bool tangents_only, const int columns) {
    const REAL unscale = TYPED(power_of_2)(ROUNDER, -SHIFT);
    const BITS is_last = tolerance == ENTMAX_ROUNDING; /* no start */
    BITS moving = 0;
    for (int j = 0; j < columns; j++) {
        const REAL sum = (REAL)sums->p[j] * unscale, now = at->steepness[j];
        const REAL a = (REAL)(sums->s[j] / sums->p[j]), bend = (REAL)(sums->bend[j] / sums->p[j]);
        const REAL h = 1 - now * TYPED(exp2_of)(-at->beta[j] * TYPED(log2_of)(sum));
        const REAL v = (at->b[j] - 1) * (bend - a * a), denominator = 2 * a * a - h * v;
        const REAL tangent = h / a, halley = 2 * h * a / denominator;

        /* t shrinks by these parts of itself. */
        const REAL beyond = h < 0 && now < at->beyond[j] ? now : at->beyond[j];
        const BITS trust = (denominator > 0) & (now < beyond * (1 - halley)) & !tangents_only;
        const REAL part = trust ? halley : tangent, length = part > 0 ? part : -part;
        /* Rounding may take a tangent beyond the root, and out of a crowd that is right at it. */
        const REAL aimed = now / (1 - part);
        const REAL most = now < beyond ? beyond * (1 - EPSILON) : (REAL)INFINITY;
        const REAL next = aimed < most ? aimed : most;
        /* What a tangent leaves out of the sum: much where a crowd is at the threshold. */
        const REAL curve = (at->b[j] - 1) * at->b[j] / 2 * (part * part);
        const REAL left_out = curve * (1 - 2 * a + bend);
        const BITS crowded = (left_out > EPSILON) & (length > EPSILON) & is_last;
        const BITS moves = (length > tolerance) | crowded;
        const double rest = at->b[j] * tangent;
        at->beyond[j] = beyond;
        at->steepness[j] = moves ? (next > at->least[j] ? next : at->least[j]) : now;
        at->rest[j] = (REAL)rest;
        at->factor[j] = (REAL)(1 / (sums->p[j] + rest * (sums->p[j] - sums->s[j])));
        moving |= moves;
    }
    return moving;
}

NEVER_INLINE bool TYPED(step_of_columns)(TYPED(EntmaxColumns) *restrict at,
                                         const TYPED(PowerSums) *restrict sums, REAL tolerance,
                                         bool tangents_only) {
    return TYPED(entmax_step)(at, sums, tolerance, tangents_only, BLOCK);
}

/* The same where all columns are of one row: what fills a register of doubles is done, and the
 * others are told. */
NEVER_INLINE bool TYPED(step_of_row)(TYPED(EntmaxColumns) *restrict at,
                                     const TYPED(PowerSums) *restrict sums, REAL tolerance,
                                     bool tangents_only) {
    const bool moving = TYPED(entmax_step)(at, sums, tolerance, tangents_only, 4);
    for (int j = 4; j < BLOCK; j++) {
        at->steepness[j] = at->steepness[0];
        at->beyond[j] = at->beyond[0];
        at->rest[j] = at->rest[0];
        at->factor[j] = at->factor[0];
    }
    return moving;
}

/* Steps until no column moves. s holds every entry's s times 2^SHIFT then, but for one row by
 * products. */
static void TYPED(entmax_find_root)(const REAL *x, ptrdiff_t n, bool one_row, double weight,
                                    REAL tolerance, TYPED(EntmaxColumns) *columns, Ahead *ahead,
                                    REAL *s) {
    TYPED(PowerSums) sums;
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        TYPED(power_sums)(x, n, one_row, weight, columns, ahead, s, &sums);
        const bool tangents_only = pass >= 8;
        if (!(one_row ? TYPED(step_of_row)(columns, &sums, tolerance, tangents_only)
                      : TYPED(step_of_columns)(columns, &sums, tolerance, tangents_only)))
            return;
    }
}

/* Add to the sums w^b and s at the steepness 1/t (1 + rest), and write w^b, all times 2^SHIFT, for
 * n <= LEAF entries. */
NEVER_INLINE void TYPED(add_powers_beside)(const REAL *restrict x, ptrdiff_t n,
                                           const TYPED(EntmaxColumns) *restrict at,
                                           REAL *restrict power, TYPED(PowerSums) *restrict total) {
    REAL u[LEAF], r[LEAF];
    if (n <= 0) return; /* as above */
    for (ptrdiff_t i = 0; i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) {
            const REAL gap = x[i + j] * at->steepness[j], move = at->rest[j] * gap;
            const REAL base = (1 + gap) + move;
            r[i + j] = gap + move;
            u[i + j] = (base > 0 ? base : (REAL)0) + POSITIVE;
        }
    TYPED(powers)(u, r, n, at->b_less_2, power);
    for (ptrdiff_t i = 0; i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) {
            const REAL base = u[i + j] - POSITIVE, slope = power[i + j] * base;
            power[i + j] = slope * base;
            total->s[j] += slope;
            total->p[j] += slope * base;
        }
}

/* The probabilities of the columns that are off, from Newton's steps once more. They go into the
 * rest, which is as fine as need be: by what t is rounded, a crowd of entries would add up to far
 * too much or too little. */
NEVER_INLINE void TYPED(entmax_refine)(const REAL *restrict x, ptrdiff_t n, bool one_row,
                                       const bool off[BLOCK],
                                       TYPED(EntmaxColumns) *restrict columns, REAL *restrict p) {
    REAL power[LEAF];
    for (int j = 0; j < BLOCK; j++) columns->rest[j] = 0;
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        TYPED(PowerSums) sums = {0};
        bool moving = false;
        for (ptrdiff_t i = 0; i < n; i += LEAF)
            TYPED(add_powers_beside)(x + i, n - i < LEAF ? n - i : LEAF, columns, power, &sums);
        if (one_row) TYPED(add_up_columns)(&sums, 1);
        for (int j = 0; j < BLOCK; j++) {
            const double sum = ldexp(sums.p[j], -SHIFT), a = sums.s[j] / sums.p[j];
            const double rest = columns->rest[j], now = columns->steepness[j] * (1 + rest);
            const double h = 1 - now * exp2_of_f64(-columns->beta[j] * log2_of_f64(sum));
            /* After the first, steps come from above: what is below the root is rounding. */
            const bool moves = off[j]
                               && (pass > 0 ? h : fabs(h))
                                      > ENTMAX_ROUNDING / 16 * columns->beta[j];
            columns->factor[j] = (REAL)(1 / sums.p[j]);
            if (moves) columns->rest[j] = (REAL)((rest + h / a) / (1 - h / a));
            moving |= moves;
        }
        if (!moving) break;
    }
    for (ptrdiff_t i = 0; i < n; i += LEAF) {
        const ptrdiff_t count = n - i < LEAF ? n - i : LEAF;
        TYPED(PowerSums) sums = {0};
        TYPED(add_powers_beside)(x + i, count, columns, power, &sums);
        for (ptrdiff_t k = 0; k < count; k++)
            if (off[k % BLOCK]) p[i + k] = power[k] * columns->factor[k % BLOCK];
    }
}

/* Which columns do not sum to 1 but for rounding. The contract allows a long row much more, but not
 * each of a few leading entries, where a crowd beside the threshold made the last step too short.
 */
static bool TYPED(any_column_off)(const REAL *p, ptrdiff_t n, bool one_row, bool off[BLOCK]) {
    double total[BLOCK] = {0}, whole = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        REAL sum[BLOCK] = {0};
        for (ptrdiff_t i = start; i < end; i += BLOCK)
            for (int j = 0; j < BLOCK; j++) sum[j] += p[i + j];
        for (int j = 0; j < BLOCK; j++) total[j] += sum[j];
    }
    for (int j = 0; j < BLOCK; j++) whole += total[j];
    const double allowed = EPSILON * fmin(8, 4 + sqrt((double)(one_row ? n : n / BLOCK)));
    bool any = false;
    for (int j = 0; j < BLOCK; j++) {
        const double sum = one_row ? whole : total[j];
        off[j] = sum > 0 && fabs(sum - 1) > allowed; /* not a NaN, nor a column of nothing */
        any |= off[j];
    }
    return any;
}

/* Gaps to p, by products, for whole pairs of lanes. The rest of the last step changes w by
 * part (w - 1), and p by that times b s. */
ALWAYS_INLINE void TYPED(finish_short_powers)(const REAL *restrict x, ptrdiff_t n,
                                              const TYPED(EntmaxColumns) *restrict at,
                                              const int twice_b, REAL *restrict p) {
    const REAL zero = (REAL)(p == NULL);
    for (ptrdiff_t i = 0; i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) {
            const REAL gap = x[i + j] * at->steepness[j], base = 1 + gap;
            const REAL w = TYPED(larger)(base, zero), slope = TYPED(bend_of)(w, twice_b) * w;
            const REAL power = slope * (base + at->rest[j] * gap);
            p[i + j] = TYPED(larger)(power * at->factor[j], zero);
        }
}

/* The same for any b, and for a tile: s, where that was kept, to p in its place. */
static void TYPED(finish_powers)(const REAL *restrict x, ptrdiff_t n,
                                 const TYPED(EntmaxColumns) *restrict at, REAL *restrict s) {
    const REAL zero = (REAL)(s == NULL);
    for (ptrdiff_t i = 0; i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) {
            const REAL gap = x[i + j] * at->steepness[j];
            const REAL base = (1 + gap) + at->rest[j] * gap, power = s[i + j] * base;
            s[i + j] = TYPED(larger)(power * at->factor[j], zero);
        }
}

static void TYPED(finish_row)(const REAL *restrict x, ptrdiff_t n,
                              const TYPED(EntmaxColumns) *restrict at, REAL *restrict p) {
    switch (at->twice_b) {
        case 3:
            TYPED(finish_short_powers)(x, n, at, 3, p);
            break;
        case 5:
            TYPED(finish_short_powers)(x, n, at, 5, p);
            break;
        case 6:
            TYPED(finish_short_powers)(x, n, at, 6, p);
            break;
        case 8:
            TYPED(finish_short_powers)(x, n, at, 8, p);
            break;
        case 10:
            TYPED(finish_short_powers)(x, n, at, 10, p);
            break;
        case 20:
            TYPED(finish_short_powers)(x, n, at, 20, p);
            break;
        default:
            TYPED(finish_powers)(x, n, at, p);
    }
}

/* Gaps and, by logarithms, s to p. The rest of the last step is not all where many entries cross
 * the threshold with it: up to α = 1.5 an s of those is as small as the step, but near α = 2 it
 * is 1. */
static void TYPED(entmax_finish)(const REAL *restrict x, ptrdiff_t n, bool one_row,
                                 TYPED(EntmaxColumns) *restrict at, REAL *restrict s) {
    bool steep = false, off[BLOCK];
    if (one_row)
        TYPED(finish_row)(x, n, at, s);
    else
        TYPED(finish_powers)(x, n, at, s);
    for (int j = 0; j < BLOCK; j++) steep |= at->b_less_2[j] < 0;
    if (steep && TYPED(any_column_off)(s, n, one_row, off))
        TYPED(entmax_refine)(x, n, one_row, off, at, s);
}

#endif
