/* The Jacobian of α-entmax at p times v, and its gradient in α: a template. The NumPy twins are
 * `entmax_jvp` and `entmax_vjps` in pyentmax/mappings/entmax.py, and _simplex.py.
 *
 * J is symmetric, and ∂p/∂α = -J b (entmax_grad_alpha.h), so that
 *
 *     Σ v ∘ ∂p/∂α = -Σ b ∘ J v:
 *
 * a sum over the product J v that the gradient in z is. Rows of one α that together fill a leaf go
 * side by side: powers want more than a short row of them at a time.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_JVP_H
#define PYENTMAX_MAPPINGS_ENTMAX_JVP_H

#include <numpy/ndarraytypes.h>

#include "gufunc/jvp_loops.h"
#include "mappings/_inverse_curvature.h"
#include "mappings/_separable_jvp.h"
#include "mappings/entmax15.h"
#include "mappings/entmax_grad_alpha.h"
#include "mappings/softmax.h"
#include "mappings/sparsemax.h"

#define VJPS_OPERANDS(real) real, real, NPY_DOUBLE, real, real
#define VJP_ALPHA_OPERANDS(real) real, real, NPY_DOUBLE, real
#define PRODUCTS_SCRATCH (3 * rows_of_a_leaf(n) * n * (ptrdiff_t)sizeof(REAL))

/* How many rows share a leaf; 1 if they do not. */
static inline int rows_of_a_leaf(ptrdiff_t n) {
    return n > KEPT_ROW ? 1 : LEAF / n < BLOCK ? (int)(LEAF / n) : BLOCK;
}

#define TEMPLATE "mappings/entmax_jvp.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_jvp", "(n),(n),()->(n)",
                      "Jacobian of alpha-entmax at probabilities p, times v.", 3, 1,
                      PARAMETRIC_JVP_OPERANDS, entmax_jvp_loop)
KERNEL_WITHOUT_RECORD("entmax_vjps", "(n),(n),()->(n),()",
                      "Gradients of alpha-entmax in scores and alpha, from that in p.", 3, 2,
                      VJPS_OPERANDS, entmax_vjps_loop)
KERNEL_WITHOUT_RECORD("entmax_vjp_alpha", "(n),(n),()->()",
                      "Gradient of alpha-entmax in alpha, from that in p.", 3, 1,
                      VJP_ALPHA_OPERANDS, entmax_vjp_alpha_loop)

#elif defined(REAL)

/* The product where v_i = v_k, k being where p is least, in a row with an s beyond floats: where it
 * is that of i or the sum along the others, -s_i/Σs Σ s_j (v_j - v_k), by logarithms of base 2. */
NEVER_INLINE void TYPED(entmax_jvp_beyond)(const REAL *restrict p, const REAL *restrict v,
                                           REAL *restrict out, ptrdiff_t n, ptrdiff_t k,
                                           double slope, double weight, double mean) {
    double least = (double)INFINITY, along = 0; /* slope < 0 */
    for (ptrdiff_t j = 0; j < n; j++)
        if (p[j] > 0 && v[j] != v[k]) least = fmin(least, log2(p[j]));
    for (ptrdiff_t j = 0; j < n; j++)
        if (p[j] > 0 && v[j] != v[k])
            along += exp2(slope * (log2(p[j]) - least)) * ((double)v[j] - v[k]);
    const double log_least = log2(p[k]), log_weight = log2(weight);
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] == 0 || v[i] != v[k]) continue;
        const double s = exp2(slope * ((log2(p[i]) - log_least) + least) - log_weight);
        if (i != k && out[i] < INFINITY)
            out[i] *= (REAL)-mean;
        else
            out[i] = along == 0 ? (REAL)0 : (REAL)(-along * s);
    }
}

/* The product for α > 2, where s grows as p nears 0 and may overflow: weights are powers of p/min p
 * then. What is beyond floats is ∞, and 0 of it is 0. */
static void TYPED(entmax_jvp_above_2_row)(const REAL *restrict p, const REAL *restrict v,
                                          REAL *restrict out, ptrdiff_t n, double alpha) {
    const REAL slope = TYPED(power_of_curvature)(alpha), most = EXPONENT_BIAS + 1; /* 2^most is ∞ */
    ptrdiff_t k = -1;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] != p[i]) { /* which makes its row NaN, but for zeros off the support */
            for (ptrdiff_t j = 0; j < n; j++) out[j] = p[j] == 0 ? (REAL)0 : (REAL)NAN;
            return;
        }
        if (p[i] > 0 && (k < 0 || p[i] < p[k])) k = i;
    }
    if (k < 0 || (REAL)alpha == INFINITY) { /* p only ever jumps */
        TYPED(fill)(out, n, 0);
        return;
    }
    for (ptrdiff_t start = 0; start < n; start += LEAF)
        TYPED(log2_of_row)(p + start, n - start < LEAF ? n - start : LEAF, out + start);

    const REAL lowest = out[k];
    double weight = 1, mean = 0, along = v[k] - v[k]; /* a NaN if v_k is infinite or a NaN */
    bool beyond = false;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] == 0 || i == k) continue;
        REAL share = slope * (out[i] - lowest), s = slope * out[i];
        const REAL apart = v[i] - v[k];
        share = TYPED(exp2_of)(share > -EXPONENT_BIAS ? share : (REAL)-EXPONENT_BIAS);
        s = s < most ? s : most;
        s = TYPED(exp2_of)(s > -EXPONENT_BIAS ? s : (REAL)-EXPONENT_BIAS); /* p may be above 1 */
        weight += share;
        mean += (double)share * apart;
        along += apart == 0 ? 0 : (double)s * apart;
        beyond |= s == INFINITY;
        out[i] = s;
    }
    mean /= weight;
    out[k] = 0;
    if (beyond && mean == mean)
        TYPED(entmax_jvp_beyond)(p, v, out, n, k, slope, weight, mean);
    else
        out[k] = (REAL)(-along / weight);
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL rest = (REAL)((v[i] - v[k]) - mean);
        if (p[i] == 0)
            out[i] = 0;
        else if (i != k && !(beyond && v[i] == v[k] && mean == mean))
            out[i] = rest == 0 ? (REAL)0 : out[i] * rest;
    }
}

/* Σ slope ∘ J v. Since ΣJ v = 0, slopes may be taken less the largest, that of the largest p, so
 * that the gradient in α of a uniform row is exactly 0. */
static REAL TYPED(along_slopes)(const REAL *restrict slope, const REAL *restrict product,
                                ptrdiff_t n) {
    REAL tops[LANES];
    ptrdiff_t i = 0;
    TYPED(fill)(tops, LANES, BELOW_ALL);
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) tops[j] = TYPED(larger)(slope[i + j], tops[j]);
    for (int j = 0; i + j < n; j++) tops[j] = TYPED(larger)(slope[i + j], tops[j]);
    const REAL top = TYPED(lane_max)(tops);
    double total = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        REAL sum[LANES] = {0};
        for (i = start; i + LANES <= end; i += LANES)
            for (int j = 0; j < LANES; j++) sum[j] += (slope[i + j] - top) * product[i + j];
        for (int j = 0; i + j < end; j++) sum[j] += (slope[i + j] - top) * product[i + j];
        total += TYPED(lane_sum)(sum);
    }
    return (REAL)total;
}

/* What makes a product of p itself for an α that has its own, and of p^(2-α) for any other. */
static inline const TYPED(Jvp) *TYPED(jvp_for)(double alpha) {
    return alpha == 1     ? &TYPED(softmax_jvp)
           : alpha == 1.5 ? &TYPED(entmax15_jvp)
           : alpha == 2   ? &TYPED(sparsemax_jvp)
                          : &TYPED(weights_jvp);
}

/* Products of rows of one α <= 2: of p one after the other, of the others at one distance from each
 * other, and only one that is longer than KEPT_ROW. of_alpha may be NULL. room holds two of each.
 */
static void TYPED(products_below_2)(const REAL *p, const TYPED(JvpRows) *rows, double alpha,
                                    double *of_alpha, REAL *room) {
    const ptrdiff_t n = rows->n, all = rows->count * n;
    const TYPED(Jvp) *jvp = TYPED(jvp_for)(alpha);
    const bool own = jvp != &TYPED(weights_jvp);
    REAL *s = n > KEPT_ROW && !own ? (REAL *)rows->out : room, *slope = room + all;
    for (ptrdiff_t start = 0; start < all && (of_alpha || !own); start += LEAF) {
        const ptrdiff_t size = all - start < LEAF ? all - start : LEAF;
        if (all > LEAF && !TYPED(any_nonzero)(p + start, size)) {
            TYPED(fill)(s + start, size, 0);
            TYPED(fill)(slope + start, size, BELOW_ALL);
        } else if (of_alpha) {
            TYPED(curvature_and_slope)(p + start, size, alpha, s + start, slope + start);
        } else {
            TYPED(inverse_curvature)(p + start, size, alpha, s + start);
        }
    }
    TYPED(JvpRows) given = *rows;
    given.p = (const char *)(own ? p : s);
    given.p_step = n * (ptrdiff_t)sizeof(REAL);
    if (n <= KEPT_ROW)
        jvp->short_rows(&given);
    else if (own)
        jvp->row(p, (const REAL *)rows->v, (REAL *)rows->out, n);
    else
        TYPED(product_from_weights)(s, (const REAL *)rows->v, n);
    for (ptrdiff_t j = 0; of_alpha && j < rows->count; j++)
        of_alpha[j] = TYPED(along_slopes)(slope + j * n,
                                          (const REAL *)(rows->out + j * rows->out_step), n);
}

/* Those of a row of another α. room holds three rows. */
static void TYPED(product_of_other)(const REAL *p, const REAL *v, REAL *of_z, ptrdiff_t n,
                                    double alpha, double *of_alpha, REAL *room) {
    if (!(alpha > 2)) {
        TYPED(fill)(of_z, n, (REAL)NAN);
        if (of_alpha) *of_alpha = NAN;
        return;
    }
    TYPED(entmax_jvp_above_2_row)(p, v, of_z, n, alpha);
    if (!of_alpha) return;
    TYPED(grad_alpha_row)(p, room, n, alpha, room + n);
    double total = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        if (p[i] != 0) total += (double)room[i] * v[i];
    *of_alpha = total;
}

/* Neighbours of one α together, as many as share a leaf. */
static void TYPED(entmax_products)(TYPED(Rows) *rows, const bool with_alpha) {
    const ptrdiff_t n = rows->n;
    const int most = rows->anywhere ? 1 : rows_of_a_leaf(n);
    REAL *copies = rows->scratch, *room = copies + most * n;
    for (int j = 0, count; j < rows->count; j += count) {
        const int left = rows->count - j < most ? rows->count - j : most;
        const double *alpha = rows->number[0] + j;
        double *of_alpha = with_alpha ? rows->result[0] + j : NULL;
        for (count = 1; count < left && alpha[count] == alpha[0];) count++;
        const REAL *const *p = rows->in[0] + j, *first = p[0];
        if (!(alpha[0] >= 1 && alpha[0] <= 2)) {
            for (int k = 0; k < count; k++)
                TYPED(product_of_other)(p[k], rows->in[1][j + k], rows->out[j + k], n, alpha[0],
                                        of_alpha ? of_alpha + k : NULL, copies);
            continue;
        }
        if (count > 1 && p[1] != p[0] + n) {
            for (int k = 0; k < count; k++) memcpy(copies + k * n, p[k], (size_t)n * sizeof(REAL));
            first = copies;
        }
        const TYPED(JvpRows) group = TYPED(jvp_rows)(rows, j, count);
        TYPED(products_below_2)(first, &group, alpha[0], of_alpha, room);
    }
}

static void TYPED(run_entmax_jvp)(TYPED(Rows) *rows, void *context) {
    (void)context;
    TYPED(entmax_products)(rows, false);
}

static void TYPED(run_entmax_vjps)(TYPED(Rows) *rows, void *context) {
    (void)context;
    TYPED(entmax_products)(rows, true);
}

/* (n),(n),()->(n): probabilities, a direction and α to the Jacobian's product; (n),(n),()->(n),():
 * and to the gradient in α; and (n),(n),()->(), of which that alone is wanted. */
ROW_LOOP(entmax_jvp_loop, "rrd>r", TYPED(run_entmax_jvp), false, PRODUCTS_SCRATCH)
ROW_LOOP(entmax_vjps_loop, "rrd>rw", TYPED(run_entmax_vjps), false, PRODUCTS_SCRATCH)
ROW_LOOP(entmax_vjp_alpha_loop, "rrd>tw", TYPED(run_entmax_vjps), false, PRODUCTS_SCRATCH)

#endif
