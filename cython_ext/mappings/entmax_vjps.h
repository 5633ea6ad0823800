/* The gradients of α-entmax in its scores and in α at once, given that of a loss in p: a template.
 * The NumPy twin is `entmax_vjps` in pyentmax/mappings/entmax.py.
 *
 * The scores are z = ∇Ω(p) + a constant. Let b = ∂∇Ω(p)/∂α, which says how they would have to move
 * for p to stay as α grows. They do not move, so that ∂p/∂α = -J b, and by the symmetry of J
 *
 *     Σ v ∘ ∂p/∂α = -Σ b ∘ J v:
 *
 * a sum over the product J v that the gradient in z is. With β = α - 1, l = log p and x = -β l,
 *
 *     b = (p^β (β l - 1) + 1)/β² = l² χ(x),    χ(x) = (1 - (1 + x) e^-x)/x²,
 *
 * whose limit at α = 1 is l²/2. The powers s of J v take log p too, and e^-x = p^β is p/s.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_VJPS_H
#define PYENTMAX_MAPPINGS_ENTMAX_VJPS_H

#include <numpy/ndarraytypes.h>

#include "mappings/_inverse_curvature.h"
#include "mappings/_separable_jvp.h"
#include "mappings/entmax_grad_alpha.h"
#include "mappings/entmax_jvp.h"

#define VJPS_OPERANDS(real) real, real, NPY_DOUBLE, real, real
#define VJP_ALPHA_OPERANDS(real) real, real, NPY_DOUBLE, real

/* How many rows share a leaf; 1 if they do not. */
static inline int rows_of_a_leaf(ptrdiff_t n) {
    return n > LEAF ? 1 : LEAF / n < BLOCK ? (int)(LEAF / n) : BLOCK;
}

#define TEMPLATE "mappings/entmax_vjps.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_vjps", "(n),(n),()->(n),()",
                      "Gradients of alpha-entmax in scores and alpha, from that in p.", 3, 2,
                      VJPS_OPERANDS, entmax_vjps_loop)
KERNEL_WITHOUT_RECORD("entmax_vjp_alpha", "(n),(n),()->()",
                      "Gradient of alpha-entmax in alpha, from that in p.", 3, 1,
                      VJP_ALPHA_OPERANDS, entmax_vjp_alpha_loop)

#elif defined(REAL)

#define LN_2 ((REAL)0.693147180559945309417)
#define BELOW_ALL (-(REAL)1e7) /* any -b, which is -log²p/2 or closer to 0 */

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

ALWAYS_INLINE TYPED(Lanes) TYPED(load_slopes)(const REAL *x, ptrdiff_t count) {
    if (count == LANES) return TYPED(load)(x);
    REAL some[LANES];
    for (int j = 0; j < LANES; j++) some[j] = j < count ? x[j] : BELOW_ALL;
    return TYPED(load)(some);
}

/* Σ slope ∘ J v. Since ΣJ v = 0, slopes may be taken less the largest, so that the gradient in α of
 * a uniform row is exactly 0. */
static REAL TYPED(along_slopes)(const REAL *slope, const REAL *product, ptrdiff_t n) {
    TYPED(Lanes) top = TYPED(all)(BELOW_ALL);
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const TYPED(Lanes) x = TYPED(load_slopes)(slope + i, n - i < LANES ? n - i : LANES);
        top = TYPED(where_above)(x, top, x, top);
    }
    const TYPED(Lanes) origin = TYPED(all)(TYPED(max_across)(top));
    double total = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        TYPED(Lanes) sum = TYPED(all)(0);
        for (ptrdiff_t i = start; i < end; i += LANES) {
            const ptrdiff_t count = end - i < LANES ? end - i : LANES;
            const TYPED(Lanes) x = TYPED(minus)(TYPED(load_slopes)(slope + i, count), origin);
            sum = TYPED(plus)(sum, TYPED(times)(x, TYPED(load_some)(product + i, count)));
        }
        total += TYPED(sum_across)(sum);
    }
    return (REAL)total;
}

/* The products of `count` rows, of which s gives the weights 1/Omega''(p), one row after the other;
 * s is overwritten. */
static void TYPED(products_of_weights)(REAL *s, const REAL *const *v, REAL *const *out, int count,
                                       ptrdiff_t n) {
    if (n <= KEPT_ROW) {
        const int next = count > 1;
        const TYPED(JvpRows) rows = {(const char *)s,
                                     (const char *)v[0],
                                     (char *)out[0],
                                     n * (ptrdiff_t)sizeof(REAL),
                                     (const char *)v[next] - (const char *)v[0],
                                     (char *)out[next] - (char *)out[0],
                                     count,
                                     n};
        TYPED(products_from_weights)(&rows);
        return;
    }
    for (int j = 0; j < count; j++) {
        TYPED(Balance) all = {0};
        TYPED(add_weights)(s + j * n, v[j], n, 0, &all);
        TYPED(jacobian_product)(s + j * n, v[j], n, &all);
        memcpy(out[j], s + j * n, (size_t)n * sizeof(REAL));
    }
}

/* The products of `count` rows of a mapping that has its own. */
static bool TYPED(own_products)(const REAL *p, const REAL *const *v, REAL *const *out, int count,
                                ptrdiff_t n, double alpha) {
    const TYPED(Jvp) *own = TYPED(own_jvp)(alpha);
    for (int j = 0; own && j < count; j++) TYPED(jvp_of_row)(own, p + j * n, v[j], out[j], n);
    return own != NULL;
}

/* Rows of one α <= 2 that together fill a leaf, side by side: powers want more than a short row of
 * them at a time. All rows lie one after the other, those of p without a gap. */
static void TYPED(entmax_vjps_rows)(const REAL *p, const REAL *const *v, REAL *const *of_z,
                                    REAL *of_alpha, int count, ptrdiff_t n, double alpha) {
    REAL s[LEAF], slope[LEAF];
    TYPED(curvature_and_slope)(p, count * n, alpha, s, slope);
    if (!TYPED(own_products)(p, v, of_z, count, n, alpha))
        TYPED(products_of_weights)(s, v, of_z, count, n);
    for (int j = 0; j < count; j++) of_alpha[j] = TYPED(along_slopes)(slope + j * n, of_z[j], n);
}

/* A longer row; slope has room for it. */
static REAL TYPED(entmax_vjps_below_2_row)(const REAL *p, const REAL *v, REAL *of_z, ptrdiff_t n,
                                           double alpha, REAL *restrict slope) {
    TYPED(Balance) all = {0};
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t count = n - start < LEAF ? n - start : LEAF;
        if (TYPED(any_nonzero)(p + start, count)) {
            TYPED(curvature_and_slope)(p + start, count, alpha, of_z + start, slope + start);
            TYPED(add_weights)(of_z + start, v + start, count, 0, &all);
        } else {
            TYPED(fill)(of_z + start, count, 0);
            TYPED(fill)(slope + start, count, BELOW_ALL);
        }
    }
    if (!TYPED(own_products)(p, &v, &of_z, 1, n, alpha)) TYPED(jacobian_product)(of_z, v, n, &all);
    return TYPED(along_slopes)(slope, of_z, n);
}

/* For α > 2, where s may overflow: by ∂p/∂α itself. room holds three rows. */
static REAL TYPED(entmax_vjps_above_2_row)(const REAL *restrict p, const REAL *restrict v,
                                           REAL *restrict of_z, ptrdiff_t n, double alpha,
                                           REAL *restrict room) {
    TYPED(entmax_jvp_above_2_row)(p, v, of_z, n, alpha);
    TYPED(grad_alpha_row)(p, room, n, alpha, room + n);
    double total = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        if (p[i] != 0) total += (double)room[i] * v[i];
    return (REAL)total;
}

/* Neighbours of one α, as many as share a leaf. */
static void TYPED(vjps_of_one_alpha)(const REAL *const *p, const REAL *const *v, REAL *const *of_z,
                                     int count, ptrdiff_t n, double alpha, REAL *scratch,
                                     double *of_alpha) {
    REAL found[BLOCK], *more = scratch + rows_of_a_leaf(n) * n;
    if (!(alpha >= 1)) {
        for (int j = 0; j < count; j++) {
            TYPED(fill)(of_z[j], n, (REAL)NAN);
            found[j] = (REAL)NAN;
        }
    } else if (alpha > 2) {
        for (int j = 0; j < count; j++)
            found[j] = TYPED(entmax_vjps_above_2_row)(p[j], v[j], of_z[j], n, alpha, more);
    } else if (rows_of_a_leaf(n) > 1) {
        const bool without_gaps = count == 1 || p[1] == p[0] + n;
        for (int j = 0; j < count && !without_gaps; j++)
            memcpy(scratch + j * n, p[j], (size_t)n * sizeof(REAL));
        TYPED(entmax_vjps_rows)(without_gaps ? p[0] : scratch, v, of_z, found, count, n, alpha);
    } else {
        found[0] = TYPED(entmax_vjps_below_2_row)(p[0], v[0], of_z[0], n, alpha, more);
    }
    for (int j = 0; j < count; j++) of_alpha[j] = found[j];
}

static void TYPED(run_vjps)(TYPED(Rows) *rows, void *context) {
    (void)context;
    const int at_most = rows_of_a_leaf(rows->n);
    int count = 0;
    for (int j = 0; j < rows->count; j += count) {
        const int left = rows->count - j < at_most ? rows->count - j : at_most;
        const double *alpha = rows->number[0] + j;
        for (count = 1; count < left && alpha[count] == alpha[0];) count++;
        TYPED(vjps_of_one_alpha)(rows->in[0] + j, rows->in[1] + j, rows->out + j, count, rows->n,
                                 alpha[0], rows->scratch, rows->result[0] + j);
    }
}

/* (n),(n),()->(n),(): probabilities, a gradient in them and α to those in the scores and α; and
 * (n),(n),()->(), of which the gradient in α alone is wanted. */
ROW_LOOP(entmax_vjps_loop, "rrd>rw", TYPED(run_vjps), false,
         (rows_of_a_leaf(n) + 3) * n * sizeof(REAL))
ROW_LOOP(entmax_vjp_alpha_loop, "rrd>tw", TYPED(run_vjps), false,
         (rows_of_a_leaf(n) + 3) * n * sizeof(REAL))

#undef LN_2
#undef BELOW_ALL

#endif
