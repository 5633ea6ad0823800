/* s = 1/Omega''(p) = p^(2-α) of α-entmax on the support: proposition 1 of Peters, Niculae and
 * Martins (2019). A template.
 */
#ifndef PYENTMAX_MAPPINGS__INVERSE_CURVATURE_H
#define PYENTMAX_MAPPINGS__INVERSE_CURVATURE_H

#include "elementary/exp.h"
#include "elementary/log.h"
#include "rows/lanes.h"

#define TEMPLATE "mappings/_inverse_curvature.h"
#include "float_and_double.h"

#elif defined(REAL)

/* 2 - α, but never so large that times a logarithm it would overflow. */
static inline REAL TYPED(power_of_curvature)(double alpha) {
    const double most = IS_DOUBLE ? 1e304 : 1e34;
    return (REAL)(2 - (alpha < most ? alpha : most));
}

/* x^b 2^SHIFT of n <= LEAF entries; meaningless where x is not positive. x and power may be one. */
static void TYPED(scaled_powers)(const REAL *x, ptrdiff_t n, REAL b, REAL *power) {
    REAL log2_x[LEAF];
    TYPED(log2_of_row)(x, n, log2_x);
    for (ptrdiff_t i = 0; i < n; i++) power[i] = TYPED(scaled_exp2)(b * log2_x[i]);
}

/* The same of positive entries alone; 0 for the others of whole lanes. */
static void TYPED(scaled_powers_of_positive)(const REAL *restrict x, ptrdiff_t n, REAL b,
                                             REAL *restrict power) {
    REAL kept[LEAF + LANES];
    const ptrdiff_t whole = n / LANES * LANES, rest = n - whole;
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < whole; i += LANES) size += TYPED(keep_above)(x + i, 0, kept + size);
    memcpy(kept + size, x + whole, (size_t)rest * sizeof(REAL));
    TYPED(scaled_powers)(kept, size + rest, b, kept);
    const REAL *from = kept;
    for (ptrdiff_t i = 0; i < whole; i += LANES)
        from += TYPED(put_above)(x + i, 0, from, power + i);
    memcpy(power + whole, from, (size_t)rest * sizeof(REAL));
}

/* Does it pay to take powers of positive entries alone? Of dense rows that takes longer. A NaN
 * hides from keep_above what is beside it. */
static bool TYPED(is_sparse)(const REAL *x, ptrdiff_t n) {
    BITS positive = 0, numbers = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        positive += x[i] > 0;
        numbers += x[i] == x[i];
    }
    return numbers == n && 4 * positive < 3 * n;
}

/* s = p^(2-α) of n <= LEAF entries for α <= 2: 0 where p is 0, NaN where p is. */
static void TYPED(inverse_curvature)(const REAL *restrict p, ptrdiff_t n, double alpha,
                                     REAL *restrict s) {
    const REAL exponent = (REAL)(2 - alpha), unscale = TYPED(power_of_2)(ROUNDER, -SHIFT);
    if (alpha == 1) {
        memcpy(s, p, (size_t)n * sizeof(REAL));
    } else if (alpha == 1.5) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = SQRT(p[i]);
    } else if (alpha == 2) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? (REAL)1 : p[i];
    } else {
        if (TYPED(is_sparse)(p, n))
            TYPED(scaled_powers_of_positive)(p, n, exponent, s);
        else
            TYPED(scaled_powers)(p, n, exponent, s);
        for (ptrdiff_t i = 0; i < n; i++) s[i] = (p[i] > 0 ? s[i] : p[i]) * unscale;
    }
}

#endif
