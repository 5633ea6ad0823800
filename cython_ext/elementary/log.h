/* Logarithms to base 2 and e: a template.
 *
 * Both take the same way: u = 2^e m with m between sqrt(1/2) and sqrt 2, and a = (m - 1)/(m + 1),
 * so that log m = 2 artanh a with |a| <= 0.1716, and a^2 <= 0.0295. Only the last step differs.
 * log2 is on the way to powers, where its few ε do and every instruction counts: a polynomial as
 * short as can be, for float in m - 1 rather than a, which would take a division; powers.h says
 * more. The natural logarithm is itself a result, right to
 * its last place: a longer one, with the leading term added last.
 */
#ifndef PYENTMAX_ELEMENTARY_LOG_H
#define PYENTMAX_ELEMENTARY_LOG_H

#include "elementary/bits.h"
#include "rows/sizes.h"

/* log2 of 2^e (1 + f) from what reduce_for_log() makes of f, of numbers or registers of them. */
#define LOG2_FROM_REDUCED_F32(a, e) \
    ((a) \
         * (((((((-0.142759734359919774f * (a) + 0.232652578821136235f) * (a) \
                 - 0.249271822074913675f) \
                    * (a) \
                + 0.287288882373974613f) \
                   * (a) \
               - 0.360225182460989429f) \
                  * (a) \
              + 0.48091670800022001f) \
                 * (a) \
             - 0.721352931362974142f) \
                * (a) \
            + 1.44269499489304656f) \
     + (e))
#define LOG2_FROM_REDUCED_F64(a, q, e) \
    ((a) \
         * (((((((0.213658956943192694 * (q) + 0.220913084231176796) * (q) + 0.262334352504183019) \
                    * (q) \
                + 0.320598534913959861) \
                   * (q) \
               + 0.412198585840900534) \
                  * (q) \
              + 0.577078016345520229) \
                 * (q) \
             + 0.961796693925989729) \
                * (q) \
            + 2.88539008177792681) \
     + (e))

#define TEMPLATE "elementary/log.h"
#include "float_and_double.h"

#elif defined(REAL)

/* m and, in *exponent, e of a normal u > 0. */
static inline REAL TYPED(split)(REAL u, BITS *exponent) {
    const WORD bits = (WORD)TYPED(bits_of)(u),
               half = (WORD)TYPED(bits_of)((REAL)0.70710678118654752);
    *exponent = (BITS)(bits - half) >> MANTISSA_BITS;
    return TYPED(from_bits)((BITS)(bits - ((WORD)*exponent << MANTISSA_BITS)));
}

/* An integer of less than MANTISSA_BITS - 1 bits as a floating-point number. */
static inline REAL TYPED(real_of)(BITS integer) {
    return TYPED(from_bits)((BITS)((WORD)TYPED(bits_of)(ROUNDER) + (WORD)integer)) - ROUNDER;
}

/* What log2_from_reduced() wants of a normal u = 1 + r > 0, and in *e its e: a for double, m - 1
 * for float, of which few powers do without the division. r itself tells more of u near 1. */
static inline REAL TYPED(reduce_for_log)(REAL u, REAL r, REAL *e) {
    BITS exponent;
    const REAL m = TYPED(split)(u, &exponent), f = exponent == 0 ? r : m - 1;
    *e = TYPED(real_of)(exponent);
    return IS_DOUBLE ? f / (f + 2) : f;
}

/* log2 u of that. */
static inline REAL TYPED(log2_from_reduced)(REAL a, REAL e) {
#if IS_DOUBLE
    return LOG2_FROM_REDUCED_F64(a, (a * a), e);
#else
    return LOG2_FROM_REDUCED_F32(a, e);
#endif
}

/* log2 u of a normal u > 0. */
static inline REAL TYPED(log2_of)(REAL u) {
    REAL e;
    const REAL a = TYPED(reduce_for_log)(u, u - 1, &e);
    return TYPED(log2_from_reduced)(a, e);
}

/* log2(1 + x) of x > -1, with no digit lost near 0. */
static inline REAL TYPED(log2_of_1_plus)(REAL x) {
    REAL e;
    const REAL a = TYPED(reduce_for_log)(1 + x, x, &e);
    return TYPED(log2_from_reduced)(a, e);
}

/* log((1 + a)/(1 - a)) = 2 artanh a for |a| <= 0.1716, by Taylor's series: what it leaves out is
 * below 0.1716^12/11 = 6e-11 of it after a^9, and 0.1716^24/23 = 2e-20 after a^21. */
static inline REAL TYPED(log_of_quotient)(REAL a) {
    const REAL s = a * a;
#if IS_DOUBLE
    REAL y = s * (1.0 / 21) + 1.0 / 19;
    y = y * s + 1.0 / 17;
    y = y * s + 1.0 / 15;
    y = y * s + 1.0 / 13;
    y = y * s + 1.0 / 11;
    y = y * s + 1.0 / 9;
#else
    REAL y = (REAL)(1.0 / 9);
#endif
    y = y * s + (REAL)(1.0 / 7);
    y = y * s + (REAL)(1.0 / 5);
    y = y * s + (REAL)(1.0 / 3);
    return 2 * a + 2 * a * (s * y);
}

/* log u of a normal u > 0. */
static inline REAL TYPED(log_of)(REAL u) {
    BITS exponent;
    const REAL f = TYPED(split)(u, &exponent) - 1, e = TYPED(real_of)(exponent);
    return e * LN2_HIGH + (TYPED(log_of_quotient)(f / (f + 2)) + e * LN2_LOW);
}

/* log2 p; finite but meaningless where p is not positive. Times 2^SHIFT p is normal where it is
 * denormal; it overflows where p is above 2^SHIFT, which no probability is. */
static void TYPED(log2_of_row)(const REAL *restrict p, ptrdiff_t n, REAL *restrict log2_p) {
    REAL a[LEAF], e[LEAF];
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL u = p[i] * UNIT;
        a[i] = TYPED(reduce_for_log)(u, u - 1, e + i);
    }
    for (ptrdiff_t i = 0; i < n; i++) log2_p[i] = TYPED(log2_from_reduced)(a[i], e[i] - SHIFT);
}

#endif
