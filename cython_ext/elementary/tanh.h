/* The hyperbolic tangent and the logistic function: a template. */
#ifndef PYENTMAX_ELEMENTARY_TANH_H
#define PYENTMAX_ELEMENTARY_TANH_H

#include "elementary/exp.h"

#define TEMPLATE "elementary/tanh.h"
#include "float_and_double.h"

#elif defined(REAL)

/* tanh x = 1 - 2/(2^t + 1) with t = 2x/log 2 is rounded to 1 from here on. */
#define FAR ((REAL)(IS_DOUBLE ? 64 : 32))

/* tanh x = m/(m + 2) with m = e^(2x) - 1 = 2^k (2^g - 1) + (2^k - 1), k the integer nearest to t:
 * no digit is lost near 0, where k = 0. A NaN stays one, through g; k is a number all the same. */
static inline REAL TYPED(tanh_of)(REAL x) {
    const REAL twice = x * (REAL)2.88539008177792681;
    const REAL capped = twice > FAR ? FAR : twice;
    const REAL t = capped < -FAR ? -FAR : capped;
    const REAL known = t > -FAR ? t : -FAR;
    const REAL rounded = known + ROUNDER, g = t - (rounded - ROUNDER);
    const REAL power = TYPED(power_of_2)(rounded, 0);
    const REAL m = power * (TYPED(exp2_slope)(g) * g) + (power - 1);
    return m / (m + 2);
}

/* The logistic function: through tanh neither end overflows. */
static inline REAL TYPED(sigmoid_of)(REAL x) {
    return (REAL)0.5 * TYPED(tanh_of)((REAL)0.5 * x) + (REAL)0.5;
}

#undef FAR

#endif
