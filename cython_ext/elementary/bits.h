/* Floating-point numbers as their bits, and powers of two made of these: a template. */
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
    const BITS k = TYPED(bits_of)(rounded) - TYPED(bits_of)(ROUNDER);
    return TYPED(from_bits)((k + (shift + EXPONENT_BIAS)) * ((BITS)1 << MANTISSA_BITS));
}

#endif
