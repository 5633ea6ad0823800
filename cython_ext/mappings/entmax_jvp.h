/* The Jacobian of α-entmax at p times v: a template. The NumPy twins are
 * pyentmax/mappings/entmax.py and _simplex.py.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_JVP_H
#define PYENTMAX_MAPPINGS_ENTMAX_JVP_H

#include "mappings/_inverse_curvature.h"
#include "mappings/_separable_jvp.h"
#include "mappings/entmax15.h"
#include "mappings/softmax.h"
#include "mappings/sparsemax.h"

#define TEMPLATE "mappings/entmax_jvp.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_jvp", "(n),(n),()->(n)",
                      "Jacobian of alpha-entmax at probabilities p, times v.", 3, 1,
                      PARAMETRIC_JVP_OPERANDS, entmax_jvp_loop)

#elif defined(REAL)

/* p^(2-α); the context is the exponent. */
ALWAYS_INLINE void TYPED(entmax_inverse_curvature)(TYPED(Lanes) *s, int count,
                                                   const void *context) {
    TYPED(Lanes) power[LANES_KEPT];
    for (int k = 0; k < count; k++) power[k] = s[k];
    TYPED(curvature_power)(power, count, *(const double *)context);
    for (int k = 0; k < count; k++) s[k] = TYPED(where_above)(s[k], TYPED(all)(0), power[k], s[k]);
}

static void TYPED(entmax_jvp_below_2_row)(const REAL *restrict p, const REAL *restrict v,
                                          REAL *restrict out, ptrdiff_t n, double alpha) {
    const double power = 2 - alpha;
    TYPED(Balance) all = {0};
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t count = n - start < LEAF ? n - start : LEAF;
        if (!TYPED(any_nonzero)(p + start, count)) {
            TYPED(fill)(out + start, count, 0);
        } else if (IS_DOUBLE || TYPED(is_sparse)(p + start, count)) {
            TYPED(inverse_curvature)(p + start, count, alpha, out + start);
            TYPED(add_weights)(out + start, v + start, count, 0, &all);
        } else {
            TYPED(balance)(p + start, v + start, count, TYPED(entmax_inverse_curvature), &power,
                           true, out + start, &all);
        }
    }
    TYPED(jacobian_product)(out, v, n, &all);
}

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

/* The same for α > 2, where s grows as p nears 0 and may overflow: weights are powers of p/min p
 * then. What is beyond floats is ∞, and 0 of it is 0. */
static void TYPED(entmax_jvp_above_2_row)(const REAL *restrict p, const REAL *restrict v,
                                          REAL *restrict out, ptrdiff_t n, double alpha) {
    const REAL slope = TYPED(power_of_curvature)(alpha), most = EXPONENT_BIAS + 1; /* 2^most is ∞ */
    ptrdiff_t k = -1;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] != p[i]) { /* which spoils its row, but nothing off the support */
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
    double weight = 1, mean = 0, along = v[k] - v[k]; /* a NaN if v_k is no number */
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

/* The products of short rows of one α. Where few entries are positive, powers are taken of these
 * alone, of several rows at a time; so are logarithms, for double. */
static void TYPED(entmax_jvp_short_rows)(const TYPED(JvpRows) *rows, double alpha) {
    const double power = 2 - alpha;
    const ptrdiff_t n = rows->n, row_bytes = n * (ptrdiff_t)sizeof(REAL);
    TYPED(JvpRows) some = *rows;
    for (ptrdiff_t r = 0; r < rows->count; r += some.count) {
        REAL s[LEAF];
        some.count = LEAF / n < rows->count - r ? LEAF / n : rows->count - r;
        some.p = rows->p + r * rows->p_step;
        some.v = rows->v + r * rows->v_step;
        some.out = rows->out + r * rows->out_step;
        const REAL *p = (const REAL *)some.p;
        const bool side_by_side = some.count == 1 || rows->p_step == row_bytes;
        if (side_by_side && (IS_DOUBLE || TYPED(is_sparse)(p, some.count * n))) {
            TYPED(inverse_curvature)(p, some.count * n, alpha, s);
            some.p = (const char *)s;
            some.p_step = row_bytes;
            TYPED(products_from_weights)(&some);
            some.p_step = rows->p_step;
        } else {
            TYPED(short_products)(&some, TYPED(entmax_inverse_curvature), &power, true);
        }
    }
}

/* The product of the mapping that an α is, if it has its own. */
static inline const TYPED(Jvp) *TYPED(own_jvp)(double alpha) {
    return alpha == 1     ? &TYPED(softmax_jvp)
           : alpha == 1.5 ? &TYPED(entmax15_jvp)
           : alpha == 2   ? &TYPED(sparsemax_jvp)
                          : NULL;
}

/* The products of rows of one α. */
static void TYPED(entmax_jvp_rows)(const TYPED(JvpRows) *rows, double alpha) {
    const bool is_short = rows->n <= KEPT_ROW, below_2 = alpha >= 1 && alpha <= 2;
    const TYPED(Jvp) *own = TYPED(own_jvp)(alpha);
    if (below_2 && is_short) {
        if (own)
            own->short_rows(rows);
        else
            TYPED(entmax_jvp_short_rows)(rows, alpha);
        return;
    }
    for (ptrdiff_t r = 0; r < rows->count; r++) {
        const REAL *p = (const REAL *)(rows->p + r * rows->p_step);
        const REAL *v = (const REAL *)(rows->v + r * rows->v_step);
        REAL *out = (REAL *)(rows->out + r * rows->out_step);
        if (own)
            own->row(p, v, out, rows->n);
        else if (below_2)
            TYPED(entmax_jvp_below_2_row)(p, v, out, rows->n, alpha);
        else if (alpha > 2)
            TYPED(entmax_jvp_above_2_row)(p, v, out, rows->n, alpha);
        else
            TYPED(fill)(out, rows->n, (REAL)NAN);
    }
}

/* Neighbours of one α together. */
static void TYPED(run_entmax_jvp)(TYPED(Rows) *rows, void *context) {
    (void)context;
    int count = 0;
    for (int j = 0; j < rows->count; j += count) {
        const double *alpha = rows->number[0] + j;
        for (count = 1; j + count < rows->count && alpha[count] == alpha[0];) count++;
        const TYPED(JvpRows) same = TYPED(jvp_rows)(rows, j, count);
        TYPED(entmax_jvp_rows)(&same, alpha[0]);
    }
}

/* (n),(n),()->(n): probabilities, a direction and α to the Jacobian's product. */
ROW_LOOP(entmax_jvp_loop, "rrd>r", TYPED(run_entmax_jvp), false, 0)

#endif
