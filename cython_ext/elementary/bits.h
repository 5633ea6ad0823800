/* Floating-point numbers as their bits, and powers of two made of these: a template.
 *
 * Numbers that are out of range here come out meaningless, but are computed all the same, where
 * they are chosen away afterwards. Hence WORDs, which wrap around, where a BITS would overflow.
 */
#ifndef PYENTMAX_ELEMENTARY_BITS_H
#define PYENTMAX_ELEMENTARY_BITS_H

#define TEMPLATE "elementary/bits.h"
#include "float_and_double.h"

#elif defined(REAL)

static inline BITS TYPED(bits_of)(REAL x) {
    BITS bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline REAL TYPED(from_bits)(BITS bits) {
    REAL x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^(k + shift) for an integer k, given as k + ROUNDER. */
static inline REAL TYPED(power_of_2)(REAL rounded, int shift) {
    const WORD k = (WORD)TYPED(bits_of)(rounded) - (WORD)TYPED(bits_of)(ROUNDER);
    return TYPED(from_bits)((BITS)((k + (WORD)(shift + EXPONENT_BIAS)) << MANTISSA_BITS));
}

/* y 2^k for an integer k, given as k + ROUNDER, where y and the product are normal: k is added to
 * the exponent of y, for what the shift leaves of ROUNDER is 0. */
static inline REAL TYPED(times_power_of_2)(REAL y, REAL rounded) {
    const WORD k = (WORD)TYPED(bits_of)(rounded) << MANTISSA_BITS;
    return TYPED(from_bits)((BITS)((WORD)TYPED(bits_of)(y) + k));
}

#endif
