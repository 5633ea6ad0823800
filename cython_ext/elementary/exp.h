/* Exponentials to base e and 2: a template.
 *
 * Both split x log2 of the base into an integer k, which becomes the exponent, and a rest, of which
 * the power is a polynomial. They are kept times 2^SHIFT where they may be small, which a division
 * by their sum, or a last factor, takes out again. So the smallest of them are ordinary numbers,
 * and a probability that underflows is rounded once, at the end.
 */
#ifndef PYENTMAX_ELEMENTARY_EXP_H
#define PYENTMAX_ELEMENTARY_EXP_H

#include "elementary/bits.h"

#define TEMPLATE "elementary/exp.h"
#include "float_and_double.h"

#elif defined(REAL)

/* From here down e^x is 0, and so is a sum of any number of them: 2^SHIFT e^x is just normal. */
#define LOWEST ((REAL)(IS_DOUBLE ? -1060 : -131))

/* e^x 2^SHIFT for x <= 0: with k the integer nearest to x/log 2, it is 2^(k + SHIFT) e^r, and
 * Taylor's series for |r| <= log(2)/2 = 0.3466 leaves 0.3466^8/8! = 5e-9 after degree 7 and
 * 0.3466^14/14! = 4e-18 after degree 13: a fraction of a unit in the last place. Below LOWEST it is
 * 0 once the scale is taken out. */
static inline REAL TYPED(scaled_exp)(REAL x) {
    x = x > LOWEST ? x : LOWEST;
    const REAL rounded = x * (REAL)1.44269504088896340736 + ROUNDER, k = rounded - ROUNDER;
    const REAL r = (x - k * LN2_HIGH) - k * LN2_LOW;
#if IS_DOUBLE
    REAL y = r * (1.0 / 6227020800) + 1.0 / 479001600;
    y = y * r + 1.0 / 39916800;
    y = y * r + 1.0 / 3628800;
    y = y * r + 1.0 / 362880;
    y = y * r + 1.0 / 40320;
    y = y * r + 1.0 / 5040;
#else
    REAL y = (REAL)(1.0 / 5040);
#endif
    y = y * r + (REAL)(1.0 / 720);
    y = y * r + (REAL)(1.0 / 120);
    y = y * r + (REAL)(1.0 / 24);
    y = y * r + (REAL)(1.0 / 6);
    y = y * r + (REAL)0.5;
    y = y * r + (REAL)1;
    y = y * r + (REAL)1;
    return y * TYPED(power_of_2)(rounded, SHIFT);
}

/* (2^g - 1)/g for |g| <= 1/2. */
static inline REAL TYPED(exp2_slope)(REAL g) {
#if IS_DOUBLE
    REAL y = (REAL)4.45496059818651839e-10 * g + (REAL)7.0725859492692237e-9;
    y = y * g + (REAL)1.01780624458457735e-7;
    y = y * g + (REAL)1.32154425879216897e-6;
    y = y * g + (REAL)1.52527338298361184e-5;
    y = y * g + (REAL)1.54035304417360502e-4;
    y = y * g + (REAL)1.33335581464169353e-3;
    y = y * g + (REAL)9.61812910760688853e-3;
    y = y * g + (REAL)0.0555041086648215943;
    y = y * g + (REAL)0.240226506959100982;
    return y * g + (REAL)0.693147180559945309;
#else
    REAL y = (REAL)1.33813025373207962e-3 * g + (REAL)9.66636851538544831e-3;
    y = y * g + (REAL)0.0555038101379645743;
    y = y * g + (REAL)0.240223490380203614;
    return y * g + (REAL)0.693147180559945309;
#endif
}

/* 2^x 2^SHIFT; from the lowest exponent down a number that nothing but 0 is left of at the end. */
static inline REAL TYPED(scaled_exp2)(REAL x) {
    const REAL lowest = 2 - EXPONENT_BIAS - SHIFT;
    x = x > lowest ? x : lowest;
    const REAL rounded = x + ROUNDER, g = x - (rounded - ROUNDER);
    return (TYPED(exp2_slope)(g) * g + 1) * TYPED(power_of_2)(rounded, SHIFT);
}

/* 2^x for x between -EXPONENT_BIAS and EXPONENT_BIAS. */
static inline REAL TYPED(exp2_of)(REAL x) {
    const REAL rounded = x + ROUNDER, g = x - (rounded - ROUNDER);
    return (TYPED(exp2_slope)(g) * g + 1) * TYPED(power_of_2)(rounded, 0);
}

#undef LOWEST

#endif
