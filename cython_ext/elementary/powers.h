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
 *
 * An exponent for many floats is prepared: (1 + f)^b is a polynomial, with no logarithm, and 2^(b
 * e) is looked up.
 */
#ifndef PYENTMAX_ELEMENTARY_POWERS_H
#define PYENTMAX_ELEMENTARY_POWERS_H

#include "elementary/exp.h"
#include "elementary/log.h"
#include "rows/vectors.h"

enum {
    POWER_NODES = 8, /* points that a prepared power's polynomial goes through */
    BINADES = 32,    /* the powers of 2 that look_up() holds */
    EXPONENTS = 8,   /* that are prepared side by side */
    LIFT = 24,       /* 2^LIFT times a denormal float is a normal one */
};

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

/* An exponent for many u between 0 and 1. */
typedef struct {
    double exponent;                /* -1 before any is prepared */
    REAL coefficients[POWER_NODES]; /* of (1 + f)^exponent in f, */
    REAL of_2[BINADES];             /* and 2^(exponent e) 2^SHIFT, at e modulo BINADES */
} TYPED(PreparedPower);

#if !IS_DOUBLE

/* The polynomials through points of (1 + f)^exponent at Chebyshev's nodes of |f| <= 1/3: for
 * exponents from 0 to 5.5 they are off by a third of ε at most. */
static void TYPED(power_polynomials)(const double exponent[EXPONENTS],
                                     double polynomial[POWER_NODES][EXPONENTS]) {
    static const double cosines[POWER_NODES] = {
        0.98078528040323045,  0.83146961230254524,  0.55557023301960222,  0.19509032201612827,
        -0.19509032201612827, -0.55557023301960222, -0.83146961230254524, -0.98078528040323045};
    double f[POWER_NODES], newton[POWER_NODES][EXPONENTS];
    for (int i = 0; i < POWER_NODES; i++) {
        f[i] = cosines[i] / 3;
        const double log2_u = log2_of_f64(1 + f[i]);
        for (int j = 0; j < EXPONENTS; j++) {
            newton[i][j] = exp2_of_f64(exponent[j] * log2_u);
            polynomial[i][j] = 0;
        }
    }
    for (int order = 1; order < POWER_NODES; order++) /* divided differences */
        for (int i = POWER_NODES - 1; i >= order; i--) {
            const double per_apart = 1 / (f[i] - f[i - order]);
            for (int j = 0; j < EXPONENTS; j++)
                newton[i][j] = (newton[i][j] - newton[i - 1][j]) * per_apart;
        }
    for (int k = POWER_NODES - 1; k >= 0; k--) { /* polynomial (f - f_k) + newton_k */
        for (int i = POWER_NODES - 1; i > 0; i--)
            for (int j = 0; j < EXPONENTS; j++)
                polynomial[i][j] = polynomial[i - 1][j] - f[k] * polynomial[i][j];
        for (int j = 0; j < EXPONENTS; j++)
            polynomial[0][j] = newton[k][j] - f[k] * polynomial[0][j];
    }
}

static void TYPED(prepare_power)(TYPED(PreparedPower) *power, double exponent) {
    double exponents[EXPONENTS], polynomial[POWER_NODES][EXPONENTS];
    for (int j = 0; j < EXPONENTS; j++) exponents[j] = exponent;
    TYPED(power_polynomials)(exponents, polynomial);
    for (int i = 0; i < POWER_NODES; i++) power->coefficients[i] = (REAL)polynomial[i][0];

    memset(power->of_2, 0, sizeof power->of_2);
    const double half = exp2_of_f64(-exponent);
    double of_2 = power_of_2_f64(6755399441055744.0, SHIFT);
    for (int e = 0; e <= MANTISSA_BITS + 1; e++, of_2 *= half)
        power->of_2[-e & (BINADES - 1)] = (REAL)of_2;
    power->exponent = exponent;
}

/* For `count` registers of u = 2^e (1 + f) between ε/4 and 1, in their place, u^exponent 2^SHIFT: 0
 * for what is below ε/2, which is as close as 1 + r comes to 0. Half the work of powers(). */
ALWAYS_INLINE void TYPED(prepared_power)(const TYPED(PreparedPower) *power, TYPED(Register) *u,
                                         const int count) {
    const REAL *c = power->coefficients;
    TYPED(Register) f[ABREAST], y[ABREAST];
    TYPED(LaneMask) e[ABREAST];
    for (int k = 0; k < count; k++) f[k] = TYPED(split_register)(u[k], e + k);
    for (int k = 0; k < count; k++) y[k] = f[k] * c[POWER_NODES - 1] + c[POWER_NODES - 2];
    for (int i = POWER_NODES - 3; i >= 0; i--)
        for (int k = 0; k < count; k++) y[k] = y[k] * f[k] + c[i];
    for (int k = 0; k < count; k++) u[k] = y[k] * TYPED(look_up)(power->of_2, e[k]);
}

/* An exponent between -1 and 1 for many u > 0 of any size, denormal or beyond 1: 2^e is 2^(e mod
 * 32) times a power of 2^32, and each has its own table. */
typedef struct {
    double exponent;                /* -1 before any is prepared */
    REAL coefficients[POWER_NODES]; /* of (1 + f)^exponent in f, */
    REAL of_2[BINADES];             /* 2^(exponent (e - BINADES)) for e from 0 on, */
    REAL of_all[BINADES / 2]; /* and 2^(exponent (BINADES (k + 1) - LIFT)), at k modulo 8, twice: it
                               * reaches from 2^-120 to 2^104, where a float is normal */
} TYPED(WidePower);

/* Up to EXPONENTS of them. */
static void TYPED(prepare_wide_powers)(TYPED(WidePower) *powers, const double *exponents,
                                       int count) {
    double exponent[EXPONENTS], polynomial[POWER_NODES][EXPONENTS], step[EXPONENTS],
        of_2[EXPONENTS], of_all[8][EXPONENTS];
    for (int j = 0; j < EXPONENTS; j++) exponent[j] = exponents[j < count ? j : 0];
    TYPED(power_polynomials)(exponent, polynomial);
    for (int j = 0; j < EXPONENTS; j++) {
        step[j] = exp2_of_f64(exponent[j]);
        of_2[j] = exp2_of_f64(-BINADES * exponent[j]);
    }
    for (int k = -4; k < 4; k++)
        for (int j = 0; j < EXPONENTS; j++)
            of_all[k & 7][j] = exp2_of_f64(exponent[j] * (BINADES * (k + 1) - LIFT));
    for (int e = 0; e < BINADES; e++) {
        for (int j = 0; j < count; j++) powers[j].of_2[e] = (REAL)of_2[j];
        for (int j = 0; j < EXPONENTS; j++) of_2[j] *= step[j];
    }
    for (int j = 0; j < count; j++) {
        powers[j].exponent = exponent[j];
        for (int i = 0; i < POWER_NODES; i++) powers[j].coefficients[i] = (REAL)polynomial[i][j];
        for (int k = 0; k < 8; k++)
            powers[j].of_all[k] = powers[j].of_all[k + 8] = (REAL)of_all[k][j];
    }
}

/* u^exponent of `count` registers, in their place; 1 where u is not positive, which takes no time
 * as a denormal would, and meaningless above 2^(EXPONENT_BIAS - LIFT). */
ALWAYS_INLINE void TYPED(wide_power)(const TYPED(WidePower) *power, TYPED(Register) *u,
                                     const int count) {
    const REAL *c = power->coefficients;
    TYPED(Register) f[ABREAST], y[ABREAST];
    TYPED(LaneMask) e[ABREAST];
    const TYPED(Register) zero = {0}, one = zero + 1;
    for (int k = 0; k < count; k++) {
        u[k] = TYPED(choose_above)(u[k], zero, u[k], one);
        f[k] = TYPED(split_register)(u[k] * TYPED(power_of_2)(ROUNDER, LIFT), e + k);
    }
    for (int k = 0; k < count; k++) y[k] = f[k] * c[POWER_NODES - 1] + c[POWER_NODES - 2];
    for (int i = POWER_NODES - 3; i >= 0; i--)
        for (int k = 0; k < count; k++) y[k] = y[k] * f[k] + c[i];
    for (int k = 0; k < count; k++) y[k] *= TYPED(look_up)(power->of_2, e[k]);
    for (int k = 0; k < count; k++) u[k] = y[k] * TYPED(look_up_8)(power->of_all, e[k] >> 5);
}

/* An exponent for each column of a tile: the same powers, to the last bit. */
typedef struct {
    REAL coefficients[POWER_NODES][BLOCK], of_2[BINADES][BLOCK];
} TYPED(PreparedColumns);

static void TYPED(prepare_columns)(TYPED(PreparedColumns) *columns, const double exponent[BLOCK]) {
    for (int start = 0; start < BLOCK; start += EXPONENTS) {
        double polynomial[POWER_NODES][EXPONENTS], half[EXPONENTS], of_2[EXPONENTS];
        TYPED(power_polynomials)(exponent + start, polynomial);
        for (int i = 0; i < POWER_NODES; i++)
            for (int j = 0; j < EXPONENTS; j++)
                columns->coefficients[i][start + j] = (REAL)polynomial[i][j];
        for (int j = 0; j < EXPONENTS; j++) {
            half[j] = exp2_of_f64(-exponent[start + j]);
            of_2[j] = power_of_2_f64(6755399441055744.0, SHIFT);
        }
        for (int e = 0; e < BINADES; e++)
            for (int j = 0; j < EXPONENTS; j++) {
                columns->of_2[-e & (BINADES - 1)][start + j] = e <= MANTISSA_BITS + 1
                                                                   ? (REAL)of_2[j]
                                                                   : (REAL)0;
                of_2[j] *= half[j];
            }
    }
}

/* prepared_power() in the columns from `column` on. */
ALWAYS_INLINE void TYPED(power_in_columns)(const TYPED(PreparedColumns) *columns, int column,
                                           TYPED(Register) *u, const int count) {
    TYPED(Register) c[POWER_NODES], f[ABREAST], y[ABREAST];
    TYPED(LaneMask) e[ABREAST];
    for (int i = 0; i < POWER_NODES; i++)
        c[i] = TYPED(load_register)(columns->coefficients[i] + column);
    for (int k = 0; k < count; k++) f[k] = TYPED(split_register)(u[k], e + k);
    for (int k = 0; k < count; k++) y[k] = f[k] * c[POWER_NODES - 1] + c[POWER_NODES - 2];
    for (int i = POWER_NODES - 3; i >= 0; i--)
        for (int k = 0; k < count; k++) y[k] = y[k] * f[k] + c[i];
    for (int k = 0; k < count; k++) {
        BITS at[TYPED(WIDTH)];
        REAL of_2[TYPED(WIDTH)];
        memcpy(at, e + k, sizeof at);
        for (int j = 0; j < TYPED(WIDTH); j++)
            of_2[j] = columns->of_2[at[j] & (BINADES - 1)][column + j];
        u[k] = y[k] * TYPED(load_register)(of_2);
    }
}

#endif

#endif
