/* α-sigmoid, entry by entry: a template. The NumPy twins, with the derivations of all ways, are
 * `_logistic`, `_square`, `_linear`, `_below_2` and `_above_2` in
 * pyentmax/reference/mappings/entmax_sigmoid.py.
 *
 * All is computed from a = |z| and β = α - 1, and is q, the smaller of p and 1 - p. The entries go
 * CHUNK at a time, and each step is a loop over all of them.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_SIGMOID_H
#define PYENTMAX_MAPPINGS_ENTMAX_SIGMOID_H

#include <numpy/ndarraytypes.h>

#include "elementary/exp.h"
#include "elementary/log.h"
#include "gufunc/kernel.h"
#include "gufunc/operands.h"
#include "rows/sizes.h"

#define SIGMOID_OPERANDS(real) real, real, real

/* Below it β changes the logistic sigmoid by less than a rounding, by β a²/2 of what is not 0, and
 * a quotient by β would be more than a float. */
#define SHANNON_BETA 1e-25

/* β has a way of its own at 0, 1/2, 1 and 2. */
typedef enum { LOGISTIC, SQUARE, LINEAR, BELOW_2, ABOVE_2 } SigmoidWay;

#define TEMPLATE "mappings/entmax_sigmoid.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_sigmoid", "(),()->()",
                      "Scores and alpha - 1 to probabilities of alpha-sigmoid.", 2, 1,
                      SIGMOID_OPERANDS, sigmoid_loop)

#elif defined(REAL)

#define LEAST ((REAL)(IS_DOUBLE ? DBL_MIN : FLT_MIN))
#define MOST ((REAL)(IS_DOUBLE ? DBL_MAX : FLT_MAX))

static inline SigmoidWay TYPED(sigmoid_way)(REAL beta) {
    if (beta == (REAL)0.5) return SQUARE;
    if (beta == 1 || beta == 2) return LINEAR;
    if (beta < (REAL)SHANNON_BETA) return LOGISTIC;
    return beta < 1 ? BELOW_2 : ABOVE_2;
}

static inline REAL TYPED(sigmoid_logistic)(REAL a) {
    const REAL e = TYPED(scaled_exp)(-a) * (1 / UNIT);
    return e / (1 + e);
}

static inline REAL TYPED(sigmoid_square)(REAL a) {
    const REAL half = a / 2, t = half < 1 ? half : (REAL)1;
    const REAL root = (1 - t) * (1 + t) / (SQRT(2 - t * t) + t);
    return root * root;
}

static inline REAL TYPED(sigmoid_linear)(REAL a, REAL beta) {
    const REAL x = 1 - beta * (a < 1 ? a : (REAL)1);
    return (x > 0 ? x : (REAL)0) / 2;
}

/* log2 of r = (1 - βv)^{1/β}, with *x = -βv, of which no logarithm is that of 0. */
static inline REAL TYPED(sigmoid_log_ratio)(REAL v, REAL beta, REAL *x) {
    const REAL lowest = EPSILON / 2 - 1;
    *x = -beta * v > lowest ? -beta * v : lowest;
    return TYPED(log2_of_1_plus)(*x) / beta;
}

static inline REAL TYPED(sigmoid_ratio)(REAL v, REAL beta, REAL *x) {
    const REAL log = TYPED(sigmoid_log_ratio)(v, beta, x), least = 2 - EXPONENT_BIAS;
    return TYPED(exp2_of)(log > least ? log : least);
}

/* 0 < β < 1: steps of Newton's for v. */
static void TYPED(sigmoid_below_2)(const REAL *restrict a, const REAL *restrict beta, ptrdiff_t n,
                                   REAL *restrict q) {
    REAL v[CHUNK];
    for (ptrdiff_t i = 0; i < n; i++) v[i] = beta[i] * a[i] < 1 ? a[i] : (REAL)0;
    for (int step = 0; step < (IS_DOUBLE ? 5 : 4); step++)
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL within = beta[i] * a[i] < 1 ? a[i] : (REAL)0;
            REAL x;
            const REAL r = TYPED(sigmoid_ratio)(v[i], beta[i], &x);
            const REAL norm = within * TYPED(exp2_of)(beta[i] * TYPED(log2_of_1_plus)(r));
            v[i] += (norm - v[i]) / (1 + beta[i] * norm * (r / (1 + x)) / (1 + r));
        }
    const REAL scale = 1 / UNIT;
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL x;
        const REAL log = TYPED(sigmoid_log_ratio)(v[i], beta[i], &x);
        const REAL r = TYPED(scaled_exp2)(log) * scale;
        q[i] = beta[i] * a[i] < 1 ? r / (1 + r) : (REAL)0;
    }
}

/* p = w^{1/β} and, to the last digits of a small one, 1 - p; w is from 2^-β to 1, or β so large
 * that this does not matter. */
static inline REAL TYPED(sigmoid_from_power)(REAL w, REAL inverse, REAL *p) {
    const REAL log = TYPED(log2_of)(w) * inverse, rounded = log + ROUNDER, k = rounded - ROUNDER;
    const REAL g = log - k, excess = TYPED(exp2_slope)(g) * g;
    *p = (excess + 1) * TYPED(power_of_2)(rounded, 0);
    const REAL q = k == 0 ? -excess : 1 - *p;
    return q > LEAST ? q : LEAST;
}

/* β > 1: steps of Newton's for w. */
static void TYPED(sigmoid_above_2)(const REAL *restrict a, const REAL *restrict beta, ptrdiff_t n,
                                   REAL *restrict q) {
    const REAL lowest = 2 - EXPONENT_BIAS;
    REAL s[CHUNK], w[CHUNK], inverse[CHUNK];
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL b = beta[i] < MOST ? beta[i] : MOST;
        inverse[i] = 1 / beta[i];
        s[i] = a[i] < inverse[i] ? b * a[i] : (REAL)0;
        const REAL half = TYPED(exp2_of)(-b > lowest ? -b : lowest);
        const REAL start = half + s[i] / 2;
        w[i] = start > s[i] ? start : s[i];
    }
    for (int step = 0; step < (IS_DOUBLE ? 4 : 3); step++)
        for (ptrdiff_t i = 0; i < n; i++) {
            REAL p;
            const REAL now = TYPED(sigmoid_from_power)(w[i], inverse[i], &p);
            const REAL log = TYPED(log2_of)(now) * (beta[i] < MOST ? beta[i] : MOST);
            const REAL rest = TYPED(exp2_of)(log > lowest ? log : lowest);
            const REAL next = w[i] + (s[i] - w[i] + rest) / (1 + rest / w[i] * (p / now));
            const REAL high = next < 1 ? next : (REAL)1;
            w[i] = high > LEAST ? high : LEAST;
        }
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL p;
        const REAL last = TYPED(sigmoid_from_power)(w[i], inverse[i], &p);
        const REAL low = last < (REAL)0.5 ? last : (REAL)0.5;
        q[i] = a[i] < inverse[i] ? low : (REAL)0;
    }
}

static void TYPED(sigmoid_smaller)(const REAL *restrict a, const REAL *restrict beta, ptrdiff_t n,
                                   SigmoidWay way, REAL *restrict q) {
    if (way == LOGISTIC)
        for (ptrdiff_t i = 0; i < n; i++) q[i] = TYPED(sigmoid_logistic)(a[i]);
    else if (way == SQUARE)
        for (ptrdiff_t i = 0; i < n; i++) q[i] = TYPED(sigmoid_square)(a[i]);
    else if (way == LINEAR)
        for (ptrdiff_t i = 0; i < n; i++) q[i] = TYPED(sigmoid_linear)(a[i], beta[i]);
    else if (way == BELOW_2)
        TYPED(sigmoid_below_2)(a, beta, n, q);
    else
        TYPED(sigmoid_above_2)(a, beta, n, q);
}

/* Each entry of n <= CHUNK by its way; those that follow each other with one way go together. */
static void TYPED(sigmoid_entries)(const REAL *restrict z, const REAL *restrict beta, ptrdiff_t n,
                                   bool one_for_all, REAL *restrict p) {
    REAL a[CHUNK], q[CHUNK];
    for (ptrdiff_t i = 0; i < n; i++) { /* NaN is taken care of in the end */
        const REAL size = FABS(z[i]);
        a[i] = size < MOST ? size : MOST;
    }
    for (ptrdiff_t start = 0, stop; start < n; start = stop) {
        const SigmoidWay way = TYPED(sigmoid_way)(beta[start]);
        stop = one_for_all ? n : start + 1;
        while (stop < n && TYPED(sigmoid_way)(beta[stop]) == way) stop++;
        TYPED(sigmoid_smaller)(a + start, beta + start, stop - start, way, q + start);
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL smaller = z[i] == 0 ? (REAL)0.5 : q[i], larger = 1 - smaller;
        const REAL chosen = z[i] > 0 ? larger : smaller;
        p[i] = z[i] == z[i] && beta[i] == beta[i] ? chosen : (REAL)NAN;
    }
}

/* (),()->(): scores and β to probabilities. As results may lie where scores are, the work is done
 * on a few entries at a time. */
static void TYPED(sigmoid_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                void *data) {
    (void)data;
    const bool one_for_all = steps[1] == 0;
    REAL beta[CHUNK];
    for (ptrdiff_t start = 0; start < dims[0]; start += CHUNK) {
        const ptrdiff_t n = dims[0] - start < CHUNK ? dims[0] - start : CHUNK;
        REAL z[CHUNK], p[CHUNK];
        for (ptrdiff_t i = 0; i < n; i++) z[i] = *(const REAL *)(args[0] + (start + i) * steps[0]);
        if (start == 0 || !one_for_all)
            for (ptrdiff_t i = 0; i < n; i++)
                beta[i] = *(const REAL *)(args[1] + (start + i) * steps[1]);
        TYPED(sigmoid_entries)(z, beta, n, one_for_all, p);
        TYPED(deliver)(p, args[2] + start * steps[2], steps[2], n);
    }
    leave_no_float_flags();
}

#undef LEAST
#undef MOST

#endif
