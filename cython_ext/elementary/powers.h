/* u^b for many u at once: a template.
 *
 * With log2 u from log.h,
 *
 *     u^b = 2^k 2^g,    k the integer nearest to b log2 u,    |g| <= 1/2.
 *
 * artanh(a)/a in a^2 <= 0.0295, for float log2(1 + f)/f, and (2^g - 1)/g are polynomials with the
 * coefficients of mpmath.chebyfit on these intervals. Their errors, of 2 ε and 1 ε for float and a
 * tenth of 3 ε for double, are the same for neighbours and so mostly divided out.
 *
 * A power takes some fifty instructions, each waiting for the one before. A processor overlaps as
 * many entries as fit its window, so the work goes in short loops over a LEAF, which fit more
 * often.
 */
#ifndef PYENTMAX_ELEMENTARY_POWERS_H
#define PYENTMAX_ELEMENTARY_POWERS_H

#include "elementary/exp.h"
#include "elementary/log.h"

#define TEMPLATE "elementary/powers.h"
#include "float_and_double.h"

#elif defined(REAL)

/* u^b 2^SHIFT for n <= LEAF entries, whole pairs of lanes, with a b to each; u = 1 + r is positive
 * and normal, and b log2 u at most EXPONENT_BIAS - SHIFT. r is overwritten. */
static void TYPED(powers)(const REAL *restrict u, REAL *restrict r, ptrdiff_t n,
                          const REAL *restrict b, REAL *restrict power) {
    for (ptrdiff_t i = 0; i < n; i++) r[i] = TYPED(reduce_for_log)(u[i], r[i], power + i);
    for (ptrdiff_t i = 0; i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++)
            r[i + j] = b[j] * TYPED(log2_from_reduced)(r[i + j], power[i + j]);
    for (ptrdiff_t i = 0; i < n; i++) power[i] = TYPED(scaled_exp2)(r[i]);
}

#endif
