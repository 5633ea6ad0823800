/* ∂p/∂α of α-entmax at p: a template. The NumPy twin, with the derivation of both forms, is
 * `entmax_grad_alpha` in pyentmax/mappings/entmax.py; proposition 1 of Correia, Niculae and Martins
 * (2019).
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_GRAD_ALPHA_H
#define PYENTMAX_MAPPINGS_ENTMAX_GRAD_ALPHA_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/row_loop.h"
#include "mappings/_inverse_curvature.h"
#include "rows/steps.h"

#define GRAD_ALPHA_OPERANDS(real) real, NPY_DOUBLE, real

#define TEMPLATE "mappings/entmax_grad_alpha.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_grad_alpha", "(n),()->(n)",
                      "Derivative of alpha-entmax by alpha at probabilities p.", 2, 1,
                      GRAD_ALPHA_OPERANDS, entmax_grad_alpha_loop)

#elif defined(REAL)

#define LOG2_E ((REAL)1.44269504088896340736)
#define LN_2 ((REAL)0.693147180559945309417)
/* e to this, times factors of up to e^8, is finite. */
#define LARGEST_EXPONENT ((REAL)(IS_DOUBLE ? 700 : 80))

/* (e^x - 1 - x)/x^2 for 0 <= x <= LARGEST_EXPONENT, its Taylor series sum x^k/(k + 2)! below 0.3,
 * where it would cancel. */
static inline REAL TYPED(phi)(REAL x) {
#if IS_DOUBLE
    REAL y = x * (1.0 / 87178291200) + 1.0 / 6227020800; /* 0.3^13/15! is 1e-19 */
    y = y * x + 1.0 / 479001600;
    y = y * x + 1.0 / 39916800;
    y = y * x + 1.0 / 3628800;
    y = y * x + 1.0 / 362880;
    y = y * x + 1.0 / 40320;
    y = y * x + 1.0 / 5040;
#else
    REAL y = x * (1 / (REAL)40320) + 1 / (REAL)5040; /* 0.3^7/9! is 6e-10 */
#endif
    y = y * x + 1 / (REAL)720;
    y = y * x + 1 / (REAL)120;
    y = y * x + 1 / (REAL)24;
    y = y * x + 1 / (REAL)6;
    y = y * x + (REAL)0.5;
    const REAL direct = ((TYPED(exp2_of)(x * LOG2_E) - 1) - x) / (x * x);
    return x < (REAL)0.3 ? y : direct;
}

/* For β = α - 1 <= 1 and -β log p <= LARGEST_EXPONENT, from p and log p; k is where p is largest. a
 * has room for a row. */
static void TYPED(grad_alpha_small)(const REAL *restrict p, const REAL *restrict log_p, ptrdiff_t n,
                                    ptrdiff_t k, double alpha, REAL *restrict a,
                                    REAL *restrict out) {
    const REAL beta = (REAL)(alpha - 1);
    double q[LANES] = {0}, h[LANES] = {0}, weight[LANES] = {0};
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t count = n - start < LEAF ? n - start : LEAF;
        TYPED(inverse_curvature)(p + start, count, alpha, out + start);
        for (ptrdiff_t i = start; i < start + count; i++)
            a[i] = log_p[i] * log_p[i] * TYPED(phi)(-beta * log_p[i]);
    }
    const REAL a_top = a[k], log_top = log_p[k];
    ptrdiff_t whole = 0;
    for (; whole + LANES <= n; whole += LANES)
        for (int j = 0; j < LANES; j++) {
            const ptrdiff_t i = whole + j;
            q[j] += (double)p[i] * (a[i] - a_top);
            h[j] -= (double)p[i] * (log_p[i] - log_top);
            weight[j] += out[i];
        }
    for (int j = 0; whole + j < n; j++) {
        const ptrdiff_t i = whole + j;
        q[j] += (double)p[i] * (a[i] - a_top);
        h[j] -= (double)p[i] * (log_p[i] - log_top);
        weight[j] += out[i];
    }
    for (int j = 1; j < LANES; j++) {
        q[0] += q[j];
        h[0] += h[j];
        weight[0] += weight[j];
    }
    const REAL big_q = (REAL)q[0], big_h = (REAL)h[0], total = (REAL)weight[0];
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL da = a[i] - a_top, dl = log_p[i] - log_top;
        const REAL bracket =
            (big_q - da) - beta * (((big_q * log_p[i] + big_h * a[i]) + a_top * dl) - log_top * da);
        /* Not p / total first: a denormal p would lose its digits. */
        out[i] = p[i] == 0 ? (REAL)0 : p[i] * (bracket / total);
    }
}

/* For β < ∞ that is not small: the published form, with weights as powers of p/min p. `share` has
 * room for a row. */
static void TYPED(grad_alpha_large)(const REAL *restrict p, const REAL *restrict log_p, ptrdiff_t n,
                                    ptrdiff_t k, double alpha, REAL lowest, REAL *restrict share,
                                    REAL *restrict out) {
    const REAL beta = (REAL)(alpha - 1), log_top = log_p[k];
    const REAL slope = TYPED(power_of_curvature)(alpha) * LOG2_E;
    double weight = 0, mean = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL exponent = slope * (log_p[i] - lowest);
        share[i] = TYPED(exp2_of)(exponent > -EXPONENT_BIAS ? exponent : (REAL)-EXPONENT_BIAS);
        share[i] = p[i] > 0 ? share[i] : (REAL)0;
        weight += share[i];
        mean += (double)p[i] * (log_p[i] - log_top);
    }
    const REAL total = (REAL)weight, center = (REAL)mean;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL part = share[i] / total, apart = p[i] - part, dl = log_p[i] - log_top;
        out[i] = p[i] == 0
                     ? (REAL)0
                     : apart / beta / beta - ((p[i] * dl - part * center) + log_top * apart) / beta;
    }
}

/* room holds two rows. */
static void TYPED(grad_alpha_row)(const REAL *restrict p, REAL *restrict out, ptrdiff_t n,
                                  double alpha, REAL *restrict room) {
    REAL *const log_p = room, *const more = room + n;
    ptrdiff_t k = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] != p[i]) {
            TYPED(fill)(out, n, p[i]);
            return;
        }
        if (p[i] > p[k]) k = i;
    }
    if (p[k] == 0 || (REAL)alpha == INFINITY) { /* nothing left, or nothing that moves */
        TYPED(fill)(out, n, 0);
        return;
    }
    REAL lowest = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t count = n - start < LEAF ? n - start : LEAF;
        TYPED(log2_of_row)(p + start, count, log_p + start);
        for (ptrdiff_t i = start; i < start + count; i++) {
            log_p[i] = p[i] > 0 ? log_p[i] * LN_2 : (REAL)0;
            lowest = log_p[i] < lowest ? log_p[i] : lowest;
        }
    }
    /* Where α is nearly 2, a denormal p has a larger exponent. */
    if (alpha <= 2 && (REAL)(1 - alpha) * lowest <= LARGEST_EXPONENT)
        TYPED(grad_alpha_small)(p, log_p, n, k, alpha, more, out);
    else
        TYPED(grad_alpha_large)(p, log_p, n, k, alpha, lowest, more, out);
}

static void TYPED(run_grad_alpha)(TYPED(Rows) *rows, void *context) {
    (void)context;
    for (int j = 0; j < rows->count; j++) {
        const double alpha = rows->number[0][j];
        if (alpha >= 1)
            TYPED(grad_alpha_row)(rows->in[0][j], rows->out[j], rows->n, alpha, rows->scratch);
        else
            TYPED(fill)(rows->out[j], rows->n, (REAL)NAN);
    }
}

/* (n),()->(n): probabilities and α to the derivative by α. */
ROW_LOOP(entmax_grad_alpha_loop, "rd>r", TYPED(run_grad_alpha), false, 2 * n * sizeof(REAL))

#undef LOG2_E
#undef LN_2
#undef LARGEST_EXPONENT

#endif
