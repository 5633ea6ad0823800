/* s = 1/Omega''(p) = p^(2-α) of α-entmax on the support: proposition 1 of Peters, Niculae and
 * Martins (2019). A template.
 */
#ifndef PYENTMAX_MAPPINGS__INVERSE_CURVATURE_H
#define PYENTMAX_MAPPINGS__INVERSE_CURVATURE_H

#include "elementary/exp.h"
#include "elementary/log.h"
#include "elementary/powers.h"
#include "rows/vectors.h"

#define TEMPLATE "mappings/_inverse_curvature.h"
#include "float_and_double.h"

#elif defined(REAL)

/* 2 - α, but never so large that times a logarithm it would overflow. */
static inline REAL TYPED(power_of_curvature)(double alpha) {
    const double most = IS_DOUBLE ? 1e304 : 1e34;
    return (REAL)(2 - (alpha < most ? alpha : most));
}

#if IS_DOUBLE

/* What is prepared for an α: nothing. */
typedef struct {
    double exponent;
} TYPED(Curvature);

static inline void TYPED(prepare_curvature)(TYPED(Curvature) *curvature, double alpha) {
    curvature->exponent = 2 - alpha;
}

/* p^(2-α) of n <= LEAF entries by logarithms; 1 where p is not positive, which takes no time as a
 * denormal would. p and power may be one. */
ALWAYS_INLINE void TYPED(curvature_powers)(const REAL *p, ptrdiff_t n,
                                           const TYPED(Curvature) *curvature, REAL *power) {
    const REAL b = curvature->exponent, unscale = TYPED(power_of_2)(ROUNDER, -SHIFT);
    REAL log2_p[LEAF];
    for (ptrdiff_t i = 0; i < n; i++) power[i] = p[i] > 0 ? p[i] : (REAL)1;
    TYPED(log2_of_row)(power, n, log2_p);
    for (ptrdiff_t i = 0; i < n; i++) power[i] = TYPED(scaled_exp2)(b * log2_p[i]) * unscale;
}

/* The same of `count` lanes, in their place. */
ALWAYS_INLINE void TYPED(curvature_power)(TYPED(Lanes) *p, int count,
                                          const TYPED(Curvature) *curvature) {
    for (int k = 0; k < count; k++) {
        REAL lanes[LANES];
        TYPED(store)(p[k], lanes);
        TYPED(curvature_powers)(lanes, LANES, curvature, lanes);
        p[k] = TYPED(load)(lanes);
    }
}

#else

/* What is prepared for an α. */
typedef TYPED(WidePower) TYPED(Curvature);

static inline void TYPED(prepare_curvature)(TYPED(Curvature) *curvature, double alpha) {
    const double exponent = 2 - alpha;
    if (curvature->exponent != exponent) TYPED(prepare_wide_powers)(curvature, &exponent, 1);
}

/* p^(2-α) of `count` lanes by a polynomial, in their place; 1 where p is not positive. */
ALWAYS_INLINE void TYPED(curvature_power)(TYPED(Lanes) *p, int count,
                                          const TYPED(Curvature) *curvature) {
    enum { REGISTERS = TYPED(REGISTERS) };
    for (int start = 0; start < count * REGISTERS; start += ABREAST) {
        const int left = count * REGISTERS - start, size = left < ABREAST ? left : ABREAST;
        TYPED(Register) u[ABREAST];
        for (int k = 0; k < size; k++)
            u[k] = p[(start + k) / REGISTERS].part[(start + k) % REGISTERS];
        TYPED(wide_power)(curvature, u, size);
        for (int k = 0; k < size; k++)
            p[(start + k) / REGISTERS].part[(start + k) % REGISTERS] = u[k];
    }
}

/* The same of n entries; p and power may be one. */
static void TYPED(curvature_powers)(const REAL *p, ptrdiff_t n, const TYPED(Curvature) *curvature,
                                    REAL *power) {
    const TYPED(Curvature) own = *curvature; /* which nothing that is written can be */
    ptrdiff_t i = 0;
    for (; i + ABREAST * LANES <= n; i += ABREAST * LANES) {
        TYPED(Lanes) lanes[ABREAST];
        for (int k = 0; k < ABREAST; k++) lanes[k] = TYPED(load)(p + i + k * LANES);
        TYPED(curvature_power)(lanes, ABREAST, &own);
        for (int k = 0; k < ABREAST; k++) TYPED(store)(lanes[k], power + i + k * LANES);
    }
    for (; i < n; i += LANES) {
        const ptrdiff_t count = n - i < LANES ? n - i : LANES;
        TYPED(Lanes) lanes = TYPED(load_some)(p + i, count);
        TYPED(curvature_power)(&lanes, 1, &own);
        TYPED(store_some)(lanes, power + i, count);
    }
}

#endif

/* The same of positive entries alone; 0 for the others of whole lanes. */
static void TYPED(curvature_powers_of_positive)(const REAL *restrict p, ptrdiff_t n,
                                                const TYPED(Curvature) *curvature,
                                                REAL *restrict power) {
    REAL positive[LEAF + LANES];
    const ptrdiff_t whole = n / LANES * LANES, rest = n - whole;
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < whole; i += LANES)
        size += TYPED(keep_above)(p + i, 0, positive + size);
    memcpy(positive + size, p + whole, (size_t)rest * sizeof(REAL));
    TYPED(curvature_powers)(positive, size + rest, curvature, positive);
    const REAL *from = positive;
    for (ptrdiff_t i = 0; i < whole; i += LANES)
        from += TYPED(put_above)(p + i, 0, from, power + i);
    memcpy(power + whole, from, (size_t)rest * sizeof(REAL));
}

/* Does it pay to take powers of positive entries alone? Of dense rows that takes longer. */
static bool TYPED(is_sparse)(const REAL *x, ptrdiff_t n) {
    BITS positive = 0;
    for (ptrdiff_t i = 0; i < n; i++) positive += x[i] > 0;
    return 2 * positive < n;
}

/* s of n <= LEAF entries of which few are positive. */
static void TYPED(powers_of_sparse)(const REAL *restrict p, ptrdiff_t n,
                                    const TYPED(Curvature) *curvature, REAL *restrict s) {
    TYPED(curvature_powers_of_positive)(p, n, curvature, s);
    for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? s[i] : p[i];
}

/* s = p^(2-α) of n <= LEAF entries for α <= 2: 0 where p is 0, NaN where p is. */
static void TYPED(inverse_curvature)(const REAL *restrict p, ptrdiff_t n, double alpha,
                                     TYPED(Curvature) *kept, REAL *restrict s) {
    if (alpha == 1) {
        memcpy(s, p, (size_t)n * sizeof(REAL));
    } else if (alpha == 1.5) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = SQRT(p[i]);
    } else if (alpha == 2) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? (REAL)1 : p[i];
    } else {
        TYPED(prepare_curvature)(kept, alpha);
        if (TYPED(is_sparse)(p, n)) {
            TYPED(powers_of_sparse)(p, n, kept, s);
        } else {
            TYPED(curvature_powers)(p, n, kept, s);
            for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? s[i] : p[i];
        }
    }
}

/* What is prepared for the αs of the next rows: those of up to EXPONENTS runs of rows that have one
 * each, since all of them together take little longer than one. */
typedef struct {
    TYPED(Curvature) each[EXPONENTS];
    int count, now;
} TYPED(Curvatures);

/* For the first of so many rows, whose αs lie `step` bytes apart. */
static TYPED(Curvature) *TYPED(curvature_of)(TYPED(Curvatures) *kept, const char *alphas,
                                             ptrdiff_t step, ptrdiff_t rows) {
    const double exponent = 2 - *(const double *)alphas;
    for (int k = 0; k < kept->count; k++) { /* the same or the next one, most often */
        const int which = (kept->now + k) % kept->count;
        if (kept->each[which].exponent != exponent) continue;
        kept->now = which;
        return kept->each + which;
    }
#if IS_DOUBLE
    (void)step, (void)rows;
    kept->count = 1;
    kept->each[0].exponent = exponent;
#else
    double exponents[EXPONENTS] = {exponent};
    kept->count = 1;
    for (ptrdiff_t r = 1; r < rows && kept->count < EXPONENTS; r++) {
        const double next = 2 - *(const double *)(alphas + r * step);
        if (next != exponents[kept->count - 1] && next > 0 && next < 1)
            exponents[kept->count++] = next;
    }
    TYPED(prepare_wide_powers)(kept->each, exponents, kept->count);
#endif
    kept->now = 0;
    return kept->each;
}

#endif
