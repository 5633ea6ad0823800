/* s = 1/Omega''(p) = p^(2-α) of α-entmax on the support: proposition 1 of Peters, Niculae and
 * Martins (2019). A template.
 */
#ifndef PYENTMAX_MAPPINGS__INVERSE_CURVATURE_H
#define PYENTMAX_MAPPINGS__INVERSE_CURVATURE_H

#include "elementary/exp.h"
#include "elementary/log.h"

#define TEMPLATE "mappings/_inverse_curvature.h"
#include "float_and_double.h"

#elif defined(REAL)

/* 2 - α, but never so large that times a logarithm it would overflow. */
static inline REAL TYPED(power_of_curvature)(double alpha) {
    const double most = IS_DOUBLE ? 1e304 : 1e34;
    return (REAL)(2 - (alpha < most ? alpha : most));
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
        TYPED(log2_of_row)(p, n, s);
        for (ptrdiff_t i = 0; i < n; i++) s[i] = TYPED(scaled_exp2)(exponent * s[i]);
        for (ptrdiff_t i = 0; i < n; i++) s[i] = (p[i] > 0 ? s[i] : p[i]) * unscale;
    }
}

#endif
