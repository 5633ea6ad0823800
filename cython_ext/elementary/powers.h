/* u^b for registers of u, each with a b of its own: a template.
 *
 * With log2 u from log.h,
 *
 *     u^b = 2^k 2^g,    k the integer nearest to b log2 u,    |g| <= 1/2.
 *
 * artanh(a)/a in a^2 <= 0.0295, for float log2(1 + f)/f, and (2^g - 1)/g are Chebyshev polynomials
 * on these intervals (tools/kernel_coefficients.py). Their errors, of 2 ε and 1 ε for float and a
 * tenth of 3 ε for double, are the same for neighbours and so mostly divided out.
 *
 * A power takes some thirty instructions, each waiting for the one before: so several registers go
 * through them side by side.
 */
#ifndef PYENTMAX_ELEMENTARY_POWERS_H
#define PYENTMAX_ELEMENTARY_POWERS_H

#include "elementary/exp.h"
#include "elementary/log.h"
#include "rows/vectors.h"

#define TEMPLATE "elementary/powers.h"
#include "float_and_double.h"

#elif defined(REAL)

#define BITS_OF_1 ((WORD)EXPONENT_BIAS << MANTISSA_BITS)
#if IS_DOUBLE
#define BITS_OF_ROOT_HALF 0x3fe6a09e667f3bcdU
#else
#define BITS_OF_ROOT_HALF 0x3f3504f3U
#endif

/* m and, in *e, e of normal u = 2^e m > 0 with m between sqrt(1/2) and sqrt 2. */
ALWAYS_INLINE REGISTER TYPED(split_register)(REGISTER u, REGISTER *e) {
    const WORD of_2 = (WORD)(EXPONENT_BIAS + MANTISSA_BITS) << MANTISSA_BITS; /* bits of 2^those */
    const REAL offset = (REAL)((WORD)1 << MANTISSA_BITS) + EXPONENT_BIAS;
    TYPED(LaneWords) bits, exponent;
    memcpy(&bits, &u, sizeof bits);
    exponent = bits + (BITS_OF_1 - BITS_OF_ROOT_HALF);
    bits = bits - (exponent & ~(((WORD)1 << MANTISSA_BITS) - 1)) + BITS_OF_1;
    exponent = (exponent >> MANTISSA_BITS) | of_2;
    memcpy(e, &exponent, sizeof exponent);
    *e -= offset;
    memcpy(&u, &bits, sizeof bits);
    return u;
}

/* log2 of what was split to 2^e (1 + f). */
ALWAYS_INLINE REGISTER TYPED(log2_of_register)(REGISTER f, REGISTER e) {
#if IS_DOUBLE
    const REGISTER a = f / (f + 2), q = a * a;
    return LOG2_FROM_REDUCED_F64(a, q, e);
#else
    return LOG2_FROM_REDUCED_F32(f, e);
#endif
}

/* 2^(k + g) unit, where that is normal, for k that is given as k + ROUNDER; unit is a power of 2.
 */
ALWAYS_INLINE REGISTER TYPED(exp2_of_register)(REGISTER whole, REGISTER g, REAL unit) {
#if IS_DOUBLE
    REGISTER y = EXP2_SLOPE_F64(g) * (g * unit) + unit;
#else
    REGISTER y = EXP2_SLOPE_F32(g) * (g * unit) + unit;
#endif
    TYPED(LaneWords) bits, k;
    memcpy(&bits, &y, sizeof bits);
    memcpy(&k, &whole, sizeof k);
    bits += k << MANTISSA_BITS; /* what is left of ROUNDER is 0 */
    memcpy(&y, &bits, sizeof bits);
    return y;
}

/* log2 u of normal u > 0. */
ALWAYS_INLINE REGISTER TYPED(log2_of_each)(REGISTER u) {
    REGISTER e;
    const REGISTER m = TYPED(split_register)(u, &e);
    return TYPED(log2_of_register)(m - 1, e);
}

/* 2^x for x between -EXPONENT_BIAS and EXPONENT_BIAS. */
ALWAYS_INLINE REGISTER TYPED(exp2_of_each)(REGISTER x) {
    const REGISTER whole = x + ROUNDER;
    return TYPED(exp2_of_register)(whole, x - (whole - ROUNDER), 1);
}

/* log2(1 + r) of r > -1, and 2^x - 1 for such x, with no digit lost near 0. */
ALWAYS_INLINE REGISTER TYPED(log2_of_1_plus_each)(REGISTER r) {
    REGISTER e;
    const REGISTER m = TYPED(split_register)(1 + r, &e);
    return TYPED(log2_of_register)(TYPED(choose)(e == 0, r, m - 1), e);
}

ALWAYS_INLINE REGISTER TYPED(exp2_less_1_of_each)(REGISTER x) {
    const REGISTER whole = x + ROUNDER, g = x - (whole - ROUNDER), none = {0};
    const REGISTER power = TYPED(exp2_of_register)(whole, none, 1);
#if IS_DOUBLE
    return power * (EXP2_SLOPE_F64(g) * g) + (power - 1);
#else
    return power * (EXP2_SLOPE_F32(g) * g) + (power - 1);
#endif
}

/* u^b 2^SHIFT of `count` registers, in their place, where u = 1 + r is positive, normal and at most
 * 1. r tells more of a u near 1; for b < 0 it is left out, so that the same u has the same power,
 * and u^2 u^b rises with u. b log2 u may be EXPONENT_BIAS - SHIFT at most; what is too small comes
 * out next to 0. */
ALWAYS_INLINE void TYPED(power_of_registers)(REGISTER *u, const REGISTER *r, REGISTER b,
                                             const int count) {
    const REGISTER none = {0};
    const REGISTER near_1 = TYPED(choose)(b < 0, 2 - none, (REAL)0.75 - none);
    const REAL lowest = 2 - EXPONENT_BIAS - SHIFT;
    REGISTER e[UNROLL], f[UNROLL];
    for (int k = 0; k < count; k++) {
        const REGISTER m = TYPED(split_register)(u[k], e + k);
        f[k] = TYPED(choose_above)(u[k], near_1, r[k], m - 1);
    }
    for (int k = 0; k < count; k++)
        f[k] = TYPED(at_least)(b * TYPED(log2_of_register)(f[k], e[k]), lowest);
    for (int k = 0; k < count; k++) {
        const REGISTER whole = f[k] + ROUNDER;
        u[k] = TYPED(exp2_of_register)(whole, f[k] - (whole - ROUNDER), UNIT);
    }
}

/* u^b of positive u between the least denormal and 2^(EXPONENT_BIAS - LIFT), as is the power, for b
 * between -1 and 1. With b in two parts, the first times an exponent e is exact, so that nothing is
 * lost of a large b log2 u. Whether a product is fused with an addition then changes no bit. */
ALWAYS_INLINE void TYPED(wide_power_of_registers)(REGISTER *u, double exponent, const int count) {
    enum { LIFT = MANTISSA_BITS + 1, PART = IS_DOUBLE ? 40 : 14 }; /* 2^LIFT u is normal */
    const REAL part = 3 * TYPED(power_of_2)(ROUNDER, MANTISSA_BITS - PART - 1);
    const REAL b = (REAL)exponent, high = (b + part) - part, low = (REAL)(exponent - high);
    REGISTER e[UNROLL], f[UNROLL];
    for (int k = 0; k < count; k++)
        f[k] = TYPED(split_register)(u[k] * TYPED(power_of_2)(ROUNDER, LIFT), e + k) - 1;
    for (int k = 0; k < count; k++) {
        const REGISTER log2_m = TYPED(log2_of_register)(f[k], (REGISTER){0});
        f[k] = TYPED(at_least)(b * log2_m, -2); /* which keeps it as a number of its own */
        e[k] -= LIFT;
    }
    for (int k = 0; k < count; k++) {
        const REGISTER of_e = high * e[k], whole = of_e + f[k] + ROUNDER;
        const REGISTER g = (of_e - (whole - ROUNDER)) + (low * e[k] + f[k]);
        u[k] = TYPED(exp2_of_register)(whole, g, TYPED(power_of_2)(ROUNDER, LIFT))
               * TYPED(power_of_2)(ROUNDER, -LIFT);
    }
}

#undef BITS_OF_1
#undef BITS_OF_ROOT_HALF

#endif
