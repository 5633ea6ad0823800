/* s = 1/Omega''(p) = p^(2-α) of α-entmax on the support: proposition 1 of Peters, Niculae and
 * Martins (2019). A template.
 */
#ifndef PYENTMAX_MAPPINGS__INVERSE_CURVATURE_H
#define PYENTMAX_MAPPINGS__INVERSE_CURVATURE_H

#include "elementary/exp.h"
#include "elementary/log.h"
#include "elementary/powers.h"
#include "rows/lanes.h"
#include "rows/vectors.h"

#define TEMPLATE "mappings/_inverse_curvature.h"
#include "float_and_double.h"

#elif defined(REAL)

/* 2 - α, but never so large that times a logarithm it would overflow. */
static inline REAL TYPED(power_of_curvature)(double alpha) {
    const double most = IS_DOUBLE ? 1e304 : 1e34;
    return (REAL)(2 - (alpha < most ? alpha : most));
}

/* p^exponent of n entries; 1 where p is not positive, which takes no time as a denormal would. p
 * and power may be one. */
static void TYPED(curvature_powers)(const REAL *p, ptrdiff_t n, double exponent, REAL *power) {
    enum { WIDTH = TYPED(WIDTH) };
    const TYPED(Register) none = {0}, one = none + 1;
    for (ptrdiff_t i = 0; i < n; i += UNROLL * WIDTH) {
        TYPED(Register) u[UNROLL];
        for (int k = 0; k < UNROLL; k++) {
            u[k] = TYPED(load_first)(p + i + k * WIDTH, n - i - k * WIDTH);
            u[k] = TYPED(choose_above)(u[k], none, u[k], one);
        }
        TYPED(wide_power_of_registers)(u, exponent, UNROLL);
        for (int k = 0; k < UNROLL; k++)
            TYPED(store_first)(u[k], power + i + k * WIDTH, n - i - k * WIDTH);
    }
}

/* The same of positive entries alone; 0 for the others of whole lanes. */
static void TYPED(curvature_powers_of_positive)(const REAL *restrict p, ptrdiff_t n,
                                                double exponent, REAL *restrict power) {
    REAL positive[LEAF + LANES];
    const ptrdiff_t whole = n / LANES * LANES, rest = n - whole;
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < whole; i += LANES)
        size += TYPED(keep_above)(p + i, 0, positive + size);
    memcpy(positive + size, p + whole, (size_t)rest * sizeof(REAL));
    TYPED(curvature_powers)(positive, size + rest, exponent, positive);
    const REAL *from = positive;
    for (ptrdiff_t i = 0; i < whole; i += LANES)
        from += TYPED(put_above)(p + i, 0, from, power + i);
    memcpy(power + whole, from, (size_t)rest * sizeof(REAL));
}

/* Does it pay to take powers of positive entries alone? Of dense rows that takes longer. */
static bool TYPED(is_sparse)(const REAL *x, ptrdiff_t n) {
    BITS positive = 0;
    for (ptrdiff_t i = 0; i < n; i++) positive += x[i] > 0;
    return 2 * positive < n;
}

/* s of n <= LEAF entries of which few are positive. */
static void TYPED(powers_of_sparse)(const REAL *restrict p, ptrdiff_t n, double exponent,
                                    REAL *restrict s) {
    TYPED(curvature_powers_of_positive)(p, n, exponent, s);
    for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? s[i] : p[i];
}

/* s = p^(2-α) of n <= LEAF entries for α <= 2: 0 where p is 0, NaN where p is. */
static void TYPED(inverse_curvature)(const REAL *restrict p, ptrdiff_t n, double alpha,
                                     REAL *restrict s) {
    if (alpha == 1) {
        memcpy(s, p, (size_t)n * sizeof(REAL));
    } else if (alpha == 1.5) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = SQRT(p[i]);
    } else if (alpha == 2) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? (REAL)1 : p[i];
    } else {
        if (TYPED(is_sparse)(p, n)) {
            TYPED(powers_of_sparse)(p, n, 2 - alpha, s);
        } else {
            TYPED(curvature_powers)(p, n, 2 - alpha, s);
            for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? s[i] : p[i];
        }
    }
}

#endif
