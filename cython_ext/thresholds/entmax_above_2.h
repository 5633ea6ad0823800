/* The threshold of α-entmax for α > 2: a template. The NumPy twin is `secant_p_max` in
 * pyentmax/thresholds/secant.py; the derivation is that of `bisect_p_max` in
 * pyentmax/thresholds/bisection.py.
 *
 * The sum is neither convex nor concave in the threshold here, and p leaves 0 so steeply that one
 * ulp of the threshold may be a large part of 1. So the largest probability q is enclosed, with
 *
 *     p_i(q) = q [1 + x_i/q^β]+^{1/β},   x = β (z - max z),   sum_i p_i(q) = 1,   1/d <= q <= 1,
 *
 * all p_i increasing in q, and the two ends of the last bracket are mixed such that the sum is 1:
 * each p_i^β is then between its values at the ends, a few ε of q^β apart.
 */
#ifndef PYENTMAX_THRESHOLDS_ENTMAX_ABOVE_2_H
#define PYENTMAX_THRESHOLDS_ENTMAX_ABOVE_2_H

#include "thresholds/entmax_below_2.h"

#define TEMPLATE "thresholds/entmax_above_2.h"
#include "float_and_double.h"

#elif defined(REAL)

typedef struct {
    double q, sum;
} TYPED(Trial);

typedef struct {
    double beta;
    REAL *start;
    TYPED(Trial) *low, *high;
} TYPED(EntmaxAbove2);

/* t = q^β, though never so small that 1/t overflows, 0 times which would be a NaN. Its rounding,
 * β ε |log q|, is that of gaps x no larger than t: for the scores x/β, some ε. */
static REAL TYPED(power_of_p_max)(double q, double beta) {
    const REAL exponent = (REAL)beta * TYPED(log2_of)((REAL)q), least = 2 - EXPONENT_BIAS;
    return TYPED(exp2_of)(exponent > least ? exponent : least);
}

/* p_i(q) of n <= LEAF gaps, whole pairs of lanes. */
static void TYPED(below_p_max)(const REAL *restrict x, ptrdiff_t n, double beta, double q,
                               REAL *restrict p) {
    REAL u[LEAF] = {0}, r[LEAF], b[BLOCK];
    const REAL steepness = 1 / TYPED(power_of_p_max)(q, beta);
    const REAL largest = (REAL)q * TYPED(power_of_2)(ROUNDER, -SHIFT);
    for (int j = 0; j < BLOCK; j++) b[j] = (REAL)(1 / beta);
    for (ptrdiff_t i = 0; i < n; i++) {
        r[i] = x[i] * steepness;
        const REAL base = 1 + r[i];
        u[i] = (base > 0 ? base : (REAL)0) + POSITIVE;
    }
    TYPED(powers)(u, r, n, b, p);
    for (ptrdiff_t i = 0; i < n; i++) p[i] = u[i] > POSITIVE ? p[i] * largest : (REAL)0;
}

static TYPED(Trial) TYPED(try_p_max)(const REAL *x, ptrdiff_t n, double beta, double q) {
    double total = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t count = n - start < LEAF ? n - start : LEAF;
        REAL p[LEAF], sum[LANES] = {0};
        TYPED(below_p_max)(x + start, count, beta, q, p);
        for (ptrdiff_t i = 0; i < count; i += LANES)
            for (int j = 0; j < LANES; j++) sum[j] += p[i + j];
        total += TYPED(lane_sum)(sum);
    }
    return (TYPED(Trial)){q, total};
}

/* The Solver: secants, each of them followed by a halving unless it halved the bracket itself. Two
 * passes halve it, and log2 n + log2(1/ε) times two are enough: 166 of doubles for 2^31 entries. */
static REAL TYPED(entmax_above_2_solve)(REAL *x, ptrdiff_t n, REAL start, const void *context,
                                        Moments *at_t) {
    const TYPED(EntmaxAbove2) *wanted = context;
    const double beta = wanted->beta, narrow = IS_DOUBLE ? 4.5e-16 : 2.4e-7; /* 2 ε */
    TYPED(Trial) low = TYPED(try_p_max)(x, n, beta, 1 / (double)n);
    TYPED(Trial) high = TYPED(try_p_max)(x, n, beta, 1);
    (void)at_t;
    *wanted->start = start;
    bool halve = false;
    for (int pass = 0; pass < 2 * MAX_PASSES && high.q - low.q > narrow * high.q; pass++) {
        const double width = high.q - low.q, middle = low.q + width / 2;
        const double secant = low.q + (1 - low.sum) / (high.sum - low.sum) * width;
        const double least = narrow / 3 * high.q; /* a step that can be seen */
        double q = secant > low.q + least ? secant : low.q + least;
        q = q < high.q - least ? q : high.q - least;
        const TYPED(Trial) now = TYPED(try_p_max)(x, n, beta, halve ? middle : q);
        if (now.sum >= 1)
            high = now;
        else
            low = now;
        halve = !halve && high.q - low.q > width / 2;
    }
    *wanted->low = low;
    *wanted->high = high;
    /* Up by what its rounding may have taken off: a gap that t barely reaches can hold a tenth of
     * the sum. */
    const REAL root = TYPED(power_of_p_max)(high.q, beta);
    const REAL above = root * (1 + ENTMAX_ROUNDING * (1 - TYPED(log2_of)(root)));
    return above < 1 ? above : (REAL)1;
}

#endif
