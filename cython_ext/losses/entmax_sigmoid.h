/* The loss of α-sigmoid and its gradient, entry by entry: a template. The NumPy twin, with the
 * derivation, is `_loss_and_slope` with `_conjugate` and `_entropy` in
 * pyentmax/reference/mappings/entmax_sigmoid.py.
 *
 * With q, the smaller of p and 1 - p, from mappings/entmax_sigmoid.h, the loss is a sum of
 * Ω* at -|z|, in which nothing cancels, of the part of |z| that the target is away from the side of
 * z, and of -H_α at the target.
 */
#ifndef PYENTMAX_LOSSES_ENTMAX_SIGMOID_H
#define PYENTMAX_LOSSES_ENTMAX_SIGMOID_H

#include "mappings/entmax_sigmoid.h"

#define SIGMOID_LOSS_OPERANDS(real) real, real, real, real, real

#define TEMPLATE "losses/entmax_sigmoid.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_sigmoid_loss_and_grad", "(),(),()->(),()",
                      "Scores, targets and alpha - 1 to losses of alpha-sigmoid and gradients.", 3,
                      2, SIGMOID_LOSS_OPERANDS, sigmoid_loss_loop)

#elif defined(REAL)

#define LN_2 ((REAL)0.693147180559945309417)
#define LOG2_E ((REAL)1.44269504088896340736)
#define LEAST ((REAL)(IS_DOUBLE ? DBL_MIN : FLT_MIN))
#define LOWEST ((REAL)(2 - EXPONENT_BIAS))
/* Where (1 + β) q is below SERIES_BELOW, the integral is a series of TERMS: what it leaves out is
 * below SERIES_BELOW^TERMS, and above it no more than ε/SERIES_BELOW cancels in the closed form. */
#define SERIES_BELOW ((REAL)(IS_DOUBLE ? 0.05 : 0.2))
#define TERMS (IS_DOUBLE ? 13 : 11)
/* So large that every power with it is as with infinity, and no product of it with a logarithm is
 * infinite. */
#define LARGEST_BETA ((REAL)(IS_DOUBLE ? DBL_MAX / 1e4 : FLT_MAX / 1e4))

/* Ω*(-a) at the q that belongs to it: q^α/α and the integral; q² at β = 1. */
static void TYPED(sigmoid_conjugate)(const REAL *restrict q, const REAL *restrict beta, ptrdiff_t n,
                                     REAL *restrict loss) {
    REAL power[CHUNK], series[CHUNK];
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL b = beta[i];
        const REAL least = q[i] > LEAST ? q[i] : LEAST, log = (1 + b) * TYPED(log2_of)(least);
        const REAL whole = TYPED(exp2_of)(log > LOWEST ? log : LOWEST) / (1 + b);
        power[i] = b < SHANNON_BETA ? q[i] : q[i] > 0 ? whole : (REAL)0;
        series[i] = 0;
    }
    for (int k = TERMS; k >= 0; k--)
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL b = beta[i];
            const REAL few = (1 + b) * q[i] < SERIES_BELOW ? q[i] : (REAL)0;
            series[i] = 1 / (REAL)(k + 2) + ((REAL)(k + 1) - b) / (REAL)(k + 1) * few * series[i];
        }
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL b = beta[i];
        const bool shannon = b < SHANNON_BETA;
        const REAL divisor = shannon ? (REAL)1 : b;
        const REAL first = TYPED(log2_of_1_plus)(divisor * q[i]) / divisor;
        const REAL half = q[i] < (REAL)0.5 ? q[i] : (REAL)0.5;
        const REAL second = TYPED(log2_of_1_plus)(-half);
        const REAL growth = (shannon ? q[i] * LOG2_E : first) + second;
        const REAL closed = shannon ? growth * LN_2
                                    : TYPED(exp2_less_1)(b * growth > LOWEST ? b * growth : LOWEST)
                                          / divisor;
        const REAL rest = (1 + b) * q[i] < SERIES_BELOW ? q[i] * q[i] * series[i]
                                                        : -closed / (1 + b);
        loss[i] = b == 1 ? q[i] * q[i] : power[i] + rest;
    }
}

/* H_α of y and 1 - y; 0 at 0 and 1. */
static void TYPED(sigmoid_entropy)(const REAL *restrict y, const REAL *restrict beta, ptrdiff_t n,
                                   REAL *restrict entropy) {
    for (ptrdiff_t i = 0; i < n; i++) entropy[i] = 0;
    for (int side = 0; side < 2; side++)
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL b = beta[i];
            const REAL part = side ? 1 - y[i] : y[i], normal = part > LEAST ? part : (REAL)1;
            const REAL log = TYPED(log2_of)(normal), below = log < 0 ? log : (REAL)0;
            const REAL power = b < SHANNON_BETA
                                   ? below * LN_2
                                   : TYPED(exp2_less_1)(b * below > LOWEST ? b * below : LOWEST)
                                         / b;
            entropy[i] -= part * power / (1 + b);
        }
}

static void TYPED(sigmoid_losses)(const REAL *restrict z, const REAL *restrict y,
                                  const REAL *restrict beta, ptrdiff_t n, bool one_for_all,
                                  REAL *restrict loss, REAL *restrict slope) {
    REAL smaller[CHUNK], q[CHUNK], entropy[CHUNK], capped[CHUNK];
    bool between = false;
    for (ptrdiff_t i = 0; i < n; i++) {
        smaller[i] = -FABS(z[i]);
        capped[i] = beta[i] < LARGEST_BETA ? beta[i] : LARGEST_BETA;
        between |= y[i] != 0 && y[i] != 1;
    }
    TYPED(sigmoid_entries)(smaller, beta, n, one_for_all, q);
    for (ptrdiff_t i = 0; i < n; i++) smaller[i] = q[i] == q[i] ? q[i] : (REAL)0;
    TYPED(sigmoid_conjugate)(smaller, capped, n, loss);
    if (between)
        TYPED(sigmoid_entropy)(y, capped, n, entropy);
    else
        memset(entropy, 0, sizeof entropy);
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL away = z[i] > 0 ? 1 - y[i] : y[i];
        const REAL side = away == 0 ? (REAL)0 : away * FABS(z[i]);
        const REAL known = y[i] == 0 || y[i] == 1 ? (REAL)0 : entropy[i]; /* whatever α is */
        const REAL whole = loss[i] + side - known;
        const REAL least = whole < 0 ? (REAL)0 : whole; /* below 0 is rounding */
        loss[i] = q[i] == q[i] ? least : q[i];
        slope[i] = z[i] > 0 ? (1 - y[i]) - q[i] : q[i] - y[i];
    }
}

/* (),(),()->(),(): scores, targets and β to losses and gradients. As results may lie where operands
 * are, the work is done on a few entries at a time. */
static void TYPED(sigmoid_loss_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                     void *data) {
    (void)data;
    for (ptrdiff_t start = 0; start < dims[0]; start += CHUNK) {
        const ptrdiff_t n = dims[0] - start < CHUNK ? dims[0] - start : CHUNK;
        REAL given[3][CHUNK], loss[CHUNK], slope[CHUNK];
        for (int k = 0; k < 3; k++)
            for (ptrdiff_t i = 0; i < n; i++)
                given[k][i] = *(const REAL *)(args[k] + (start + i) * steps[k]);
        TYPED(sigmoid_losses)(given[0], given[1], given[2], n, steps[2] == 0, loss, slope);
        TYPED(deliver)(loss, args[3] + start * steps[3], steps[3], n);
        TYPED(deliver)(slope, args[4] + start * steps[4], steps[4], n);
    }
    leave_no_float_flags();
}

#undef LN_2
#undef LOG2_E
#undef LOWEST
#undef SERIES_BELOW
#undef TERMS
#undef LARGEST_BETA
#undef LEAST

#endif
