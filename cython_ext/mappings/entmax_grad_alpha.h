/* ∂p/∂α of α-entmax at p: a template. The NumPy twin is `entmax_grad_alpha` in
 * pyentmax/mappings/entmax.py; proposition 1 of Correia, Niculae and Martins (2019).
 *
 * The scores are z = ∇Ω(p) + a constant. Let b = ∂∇Ω(p)/∂α, which says how they would have to move
 * for p to stay as α grows. They do not move, so that ∂p/∂α = -J b. With β = α - 1, l = log p and
 * x = -β l,
 *
 *     b = (p^β (β l - 1) + 1)/β² = l² χ(x),    χ(x) = (1 - (1 + x) e^-x)/x²,
 *
 * whose limit at α = 1 is l²/2. The powers s of J take log p too, and e^-x = p^β is p/s. Above
 * α = 2, where s may overflow, the published form is J b with s ∘ p^β = p put in.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_GRAD_ALPHA_H
#define PYENTMAX_MAPPINGS_ENTMAX_GRAD_ALPHA_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/row_loop.h"
#include "mappings/_inverse_curvature.h"
#include "mappings/_separable_jvp.h"
#include "rows/steps.h"

#define GRAD_ALPHA_OPERANDS(real) real, NPY_DOUBLE, real
#define BELOW_ALL (-(REAL)1e7) /* any -b, which is -log²p/2 or closer to 0 */

#define TEMPLATE "mappings/entmax_grad_alpha.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_grad_alpha", "(n),()->(n)",
                      "Derivative of alpha-entmax by alpha at probabilities p.", 2, 1,
                      GRAD_ALPHA_OPERANDS, entmax_grad_alpha_loop)

#elif defined(REAL)

#define LOG2_E ((REAL)1.44269504088896340736)
#define LN_2 ((REAL)0.693147180559945309417)

/* χ(x) for x >= 0, given e^-x. Below 0.5, where it would cancel, by its Taylor series
 * Σ (-x)^k/(k! (k + 2)). */
static inline REAL TYPED(chi)(REAL x, REAL e) {
#if IS_DOUBLE
    REAL y = x * (1.0 / 1394852659200) - 1.0 / 93405312000; /* 0.5^15/(15! 17) is 1e-18 */
    y = y * x + 1.0 / 6706022400;
    y = y * x - 1.0 / 518918400;
    y = y * x + 1.0 / 43545600;
    y = y * x - 1.0 / 3991680;
    y = y * x + 1.0 / 403200;
    y = y * x - 1.0 / 45360;
#else
    REAL y = x * (1 / (REAL)403200) - 1 / (REAL)45360; /* 0.5^9/(9! 11) is 5e-10 */
#endif
    y = y * x + 1 / (REAL)5760;
    y = y * x - 1 / (REAL)840;
    y = y * x + 1 / (REAL)144;
    y = y * x - 1 / (REAL)30;
    y = y * x + 1 / (REAL)8;
    y = y * x - 1 / (REAL)3;
    y = y * x + (REAL)0.5;
    const REAL direct = (1 - (1 + x) * e) / (x * x);
    return x < (REAL)0.5 ? y : direct;
}

/* s = p^(2-α) of n <= LEAF entries for α <= 2, and -b; BELOW_ALL off the support. */
static void TYPED(curvature_and_slope)(const REAL *restrict p, ptrdiff_t n, double alpha,
                                       REAL *restrict s, REAL *restrict slope) {
    const REAL beta = (REAL)(alpha - 1);
    REAL log2_p[LEAF];
    TYPED(log2_of_row)(p, n, log2_p);
    TYPED(inverse_curvature)(p, n, alpha, s);
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL l = log2_p[i] * LN_2, b = l * l * TYPED(chi)(-beta * l, p[i] / s[i]);
        slope[i] = p[i] > 0 ? -b : BELOW_ALL;
    }
}

/* For 2 < α < ∞, with weights as powers of p/min p; k is where p is largest. room holds two rows.
 */
static void TYPED(grad_alpha_above_2)(const REAL *restrict p, ptrdiff_t n, ptrdiff_t k,
                                      double alpha, REAL *restrict room, REAL *restrict out) {
    REAL *const log_p = room, *const share = room + n, lowest = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF)
        TYPED(log2_of_row)(p + start, n - start < LEAF ? n - start : LEAF, log_p + start);
    for (ptrdiff_t i = 0; i < n; i++) {
        log_p[i] = p[i] > 0 ? log_p[i] * LN_2 : (REAL)0;
        lowest = TYPED(smaller)(log_p[i], lowest);
    }
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

/* For α <= 2: the product J b of a row, b taken less that of the largest p, which may have nearly
 * all of the weight. slope has room for a row. */
static void TYPED(grad_alpha_below_2)(const REAL *restrict p, ptrdiff_t n, ptrdiff_t k,
                                      double alpha, REAL *restrict slope, REAL *restrict out) {
    for (ptrdiff_t start = 0; start < n; start += LEAF)
        TYPED(curvature_and_slope)(p + start, n - start < LEAF ? n - start : LEAF, alpha,
                                   out + start, slope + start);
    const REAL origin = slope[k];
    for (ptrdiff_t i = 0; i < n; i++) slope[i] -= origin;
    TYPED(product_from_weights)(out, slope, n);
}

/* room holds two rows. */
static void TYPED(grad_alpha_row)(const REAL *restrict p, REAL *restrict out, ptrdiff_t n,
                                  double alpha, REAL *restrict room) {
    ptrdiff_t k = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] != p[i]) {
            TYPED(fill)(out, n, p[i]);
            return;
        }
        if (p[i] > p[k]) k = i;
    }
    if (p[k] == 0 || (REAL)alpha == INFINITY) /* nothing left, or nothing that moves */
        TYPED(fill)(out, n, 0);
    else if (alpha <= 2)
        TYPED(grad_alpha_below_2)(p, n, k, alpha, room, out);
    else
        TYPED(grad_alpha_above_2)(p, n, k, alpha, room, out);
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

#endif
