/* The Jacobian of α-entmax at p times v: a template. The NumPy twins are
 * pyentmax/mappings/entmax.py and _simplex.py.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_JVP_H
#define PYENTMAX_MAPPINGS_ENTMAX_JVP_H

#include "mappings/_inverse_curvature.h"
#include "mappings/_separable_jvp.h"

#define TEMPLATE "mappings/entmax_jvp.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_jvp", "(n),(n),()->(n)",
                      "Jacobian of alpha-entmax at probabilities p, times v.", 3, 1,
                      PARAMETRIC_JVP_OPERANDS, entmax_jvp_loop)

#elif defined(REAL)

static void TYPED(entmax_jvp_below_2_row)(const REAL *restrict p, const REAL *restrict v,
                                          REAL *restrict out, ptrdiff_t n, double alpha) {
    TYPED(Balance) all = {0};
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t count = n - start < LEAF ? n - start : LEAF;
        if (TYPED(any_nonzero)(p + start, count)) {
            TYPED(inverse_curvature)(p + start, count, alpha, out + start);
            TYPED(add_weights)(out + start, v + start, count, 0, &all);
        } else {
            TYPED(fill)(out + start, count, 0);
        }
    }
    TYPED(jacobian_product)(out, v, n, &all);
}

/* The product where v_i = v_k, k being where p is least, in a row with an s beyond floats: where it
 * is that of i or the sum along the others, -s_i/Σs Σ s_j (v_j - v_k), by logarithms of base 2. */
NEVER_INLINE void TYPED(entmax_jvp_beyond)(const REAL *restrict p, const REAL *restrict v,
                                           REAL *restrict out, ptrdiff_t n, ptrdiff_t k,
                                           double slope, double weight, double mean) {
    double top = -(double)INFINITY, along = 0;
    for (ptrdiff_t j = 0; j < n; j++)
        if (p[j] > 0 && v[j] != v[k]) top = fmax(top, slope * log2(p[j]));
    for (ptrdiff_t j = 0; j < n; j++)
        if (p[j] > 0 && v[j] != v[k])
            along += exp2(slope * log2(p[j]) - top) * ((double)v[j] - v[k]);
    const double log_largest = slope * log2(p[k]), log_weight = log2(weight);
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] == 0 || v[i] != v[k]) continue;
        const double s = exp2(slope * log2(p[i]) - log_largest - log_weight + top);
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

/* Rows of one α that together fill a leaf: powers want more than a short row of them at a time. All
 * rows lie one after the other, those of p without a gap. */
static void TYPED(entmax_jvp_rows)(const REAL *p, const REAL *const *v, REAL *const *out, int count,
                                   ptrdiff_t n, double alpha) {
    REAL s[LEAF];
    TYPED(inverse_curvature)(p, count * n, alpha, s);
    TYPED(products_of_weights)(s, v, out, count, n);
}

/* (n),(n),()->(n): probabilities, a direction and α to the Jacobian's product. */
static void TYPED(entmax_jvp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                   void *data) {
    (void)data;
    const ptrdiff_t rows = dims[0], n = dims[1], out_stride = steps[6];
    if (rows == 0 || n == 0) return;
    const int at_most = n > LEAF ? 1 : LEAF / n < BLOCK ? (int)(LEAF / n) : BLOCK;
    REAL *scratch = scratch_or_error(3 * at_most * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *const room = scratch + at_most * n;

    int count = 0;
    for (ptrdiff_t start = 0; start < rows; start += count) {
        const REAL *p[BLOCK], *v[BLOCK];
        REAL *out[BLOCK];
        const double alpha = *(const double *)(args[2] + start * steps[2]);
        for (count = 0; count < at_most && start + count < rows; count++) {
            const ptrdiff_t r = start + count;
            if (*(const double *)(args[2] + r * steps[2]) != alpha && count > 0) break;
            p[count] = TYPED(contiguous)(args[0] + r * steps[0], steps[4], n, scratch + count * n);
            v[count] = TYPED(contiguous)(args[1] + r * steps[1], steps[5], n, room + 2 * count * n);
            out[count] = TYPED(target)(args[3] + r * steps[3], out_stride,
                                       room + (2 * count + 1) * n);
        }
        if (!(alpha >= 1)) {
            for (int j = 0; j < count; j++) TYPED(fill)(out[j], n, (REAL)NAN);
        } else if (alpha > 2) {
            for (int j = 0; j < count; j++)
                TYPED(entmax_jvp_above_2_row)(p[j], v[j], out[j], n, alpha);
        } else if (at_most > 1) {
            const bool without_gaps = steps[4] != (ptrdiff_t)sizeof(REAL) /* then p are copies */
                                      || steps[0] == n * (ptrdiff_t)sizeof(REAL);
            for (int j = 0; j < count && !without_gaps; j++)
                memcpy(scratch + j * n, p[j], (size_t)n * sizeof(REAL));
            TYPED(entmax_jvp_rows)(without_gaps ? p[0] : scratch, v, out, count, n, alpha);
        } else {
            TYPED(entmax_jvp_below_2_row)(p[0], v[0], out[0], n, alpha);
        }
        for (int j = 0; j < count; j++)
            TYPED(deliver)(out[j], args[3] + (start + j) * steps[3], out_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

#endif
