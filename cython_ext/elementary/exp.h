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

/* (2^g - 1)/g for |g| <= 1/2, of a number or a register of them. */
#define EXP2_SLOPE_F32(g) \
    ((((1.33813025373207962e-3f * (g) + 9.66636851538544831e-3f) * (g) + 0.0555038101379645743f) \
          * (g) \
      + 0.240223490380203614f) \
         * (g) \
     + 0.693147180559945309f)
#define EXP2_SLOPE_F64(g) \
    ((((((((((4.45496059818651839e-10 * (g) + 7.0725859492692237e-9) * (g) \
             + 1.01780624458457735e-7) \
                * (g) \
            + 1.32154425879216897e-6) \
               * (g) \
           + 1.52527338298361184e-5) \
              * (g) \
          + 1.54035304417360502e-4) \
             * (g) \
         + 1.33335581464169353e-3) \
            * (g) \
        + 9.61812910760688853e-3) \
           * (g) \
       + 0.0555041086648215943) \
          * (g) \
      + 0.240226506959100982) \
         * (g) \
     + 0.693147180559945309)

#define TEMPLATE "elementary/exp.h"
#include "float_and_double.h"

#elif defined(REAL)

/* From here down e^x is 0, and so is a sum of any number of them: 2^SHIFT e^x is just normal. */
#define LOWEST ((REAL)(IS_DOUBLE ? -1060 : -131))

/* e^x 2^SHIFT for x <= 0: with k the integer nearest to x/log 2, it is 2^(k + SHIFT) e^r with |r|
 * at most log(2)/2. The rest of the series after 1 + r is r^2 times the polynomial whose largest
 * error is the least (tools/kernel_coefficients.py): 3.1e-9 of e^r for degree 6 in all and 3.6e-18
 * for degree 11, a fraction of a unit in the last place. Below LOWEST it is 0 once the scale is
 * taken out. */
static inline REAL TYPED(scaled_exp)(REAL x) {
    x = x > LOWEST ? x : LOWEST;
    const REAL rounded = x * (REAL)1.44269504088896340736 + ROUNDER, k = rounded - ROUNDER;
    const REAL r = (x - k * LN2_HIGH) - k * LN2_LOW;
#if IS_DOUBLE
    REAL y = UNIT * 2.50000740079080712e-8 * r + UNIT * 2.76302328096986801e-7;
    y = y * r + UNIT * 2.75575862531492865e-6;
    y = y * r + UNIT * 2.48014931392484255e-5;
    y = y * r + UNIT * 1.98412695068040771e-4;
    y = y * r + UNIT * 1.38888889435948597e-3;
    y = y * r + UNIT * 8.33333333349431719e-3;
    y = y * r + UNIT * 0.041666666666530276;
    y = y * r + UNIT * 0.166666666666664128;
    y = y * r + UNIT * 0.500000000000001062;
#else
    REAL y = UNIT * 1.38146232469665142e-3F * r + UNIT * 8.36870977497495844e-3F;
    y = y * r + UNIT * 0.0416683872040090442F;
    y = y * r + UNIT * 0.166665206905360055F;
    y = y * r + UNIT * 0.499999934521694606F;
#endif
    y = y * r + UNIT;
    y = y * r + UNIT;
    return TYPED(times_power_of_2)(y, rounded);
}

static inline REAL TYPED(exp2_slope)(REAL g) {
#if IS_DOUBLE
    return EXP2_SLOPE_F64(g);
#else
    return EXP2_SLOPE_F32(g);
#endif
}

/* 2^x 2^SHIFT; from the lowest exponent down a number that nothing but 0 is left of at the end. */
static inline REAL TYPED(scaled_exp2)(REAL x) {
    const REAL lowest = 2 - EXPONENT_BIAS - SHIFT;
    x = x > lowest ? x : lowest;
    const REAL rounded = x + ROUNDER, g = x - (rounded - ROUNDER);
    return TYPED(times_power_of_2)(TYPED(exp2_slope)(g) * (g * UNIT) + UNIT, rounded);
}

/* 2^x for x between -EXPONENT_BIAS and EXPONENT_BIAS. */
static inline REAL TYPED(exp2_of)(REAL x) {
    const REAL rounded = x + ROUNDER, g = x - (rounded - ROUNDER);
    return (TYPED(exp2_slope)(g) * g + 1) * TYPED(power_of_2)(rounded, 0);
}

/* 2^x - 1 for such x, with no digit lost near 0. */
static inline REAL TYPED(exp2_less_1)(REAL x) {
    const REAL rounded = x + ROUNDER, g = x - (rounded - ROUNDER);
    const REAL power = TYPED(power_of_2)(rounded, 0);
    return power * (TYPED(exp2_slope)(g) * g) + (power - 1);
}

#undef LOWEST

#endif
