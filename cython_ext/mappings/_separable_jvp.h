/* The Jacobian of a separable mapping times v: a template. The NumPy twin is
 * pyentmax/mappings/_simplex.py.
 *
 * With s = 1/Omega''(p), (J v)_i = s_i (v_i - sum_j w_j v_j) and w = s/sum s: proposition 2 of
 * Peters, Niculae and Martins (2019). Where one entry k has most of the weight, v_k less the mean
 * cancels. J 1 = 0, so v may be taken relative to v_k; and then
 * (J v)_k = -w_k sum_{j != k} s_j v_j.
 */
#ifndef PYENTMAX_MAPPINGS__SEPARABLE_JVP_H
#define PYENTMAX_MAPPINGS__SEPARABLE_JVP_H

#include "gufunc/jvp_loops.h"
#include "rows/steps.h"

/* The Jvp of a mapping from the function NAME_inverse_curvature. */
#define SEPARABLE_JVP(name) \
    static void TYPED(name##_jvp_row)(const REAL *restrict p, const REAL *restrict v, \
                                      REAL *restrict out, ptrdiff_t n) { \
        TYPED(separable_jvp_row)(p, v, out, n, TYPED(name##_inverse_curvature)); \
    } \
    static const TYPED(Jvp) TYPED(name##_jvp) = {TYPED(name##_jvp_row)};

#define TEMPLATE "mappings/_separable_jvp.h"
#include "float_and_double.h"

#elif defined(REAL)

typedef struct {
    double along, weight; /* sum s (v - origin) and sum s */
    REAL largest;         /* s */
} TYPED(Balance);

/* v off the support may be anything, and counts as 0. */
static void TYPED(add_weights)(const REAL *restrict s, const REAL *restrict v, ptrdiff_t n,
                               REAL origin, TYPED(Balance) *total) {
    REAL along[PAIR] = {0}, weight[PAIR] = {0}, top[PAIR] = {0};
    ptrdiff_t i = 0;
    for (; i + PAIR <= n; i += PAIR) {
        for (int j = 0; j < PAIR; j++) {
            const REAL s_i = s[i + j], apart = v[i + j] - origin;
            weight[j] += s_i;
            along[j] += s_i == 0 ? (REAL)0 : s_i * apart;
        }
        for (int j = 0; j < PAIR; j++) top[j] = TYPED(larger)(s[i + j], top[j]);
    }
    for (int j = 0; i + j < n; j++) {
        weight[j] += s[i + j];
        along[j] += s[i + j] == 0 ? (REAL)0 : s[i + j] * (v[i + j] - origin);
        top[j] = TYPED(larger)(s[i + j], top[j]);
    }
    for (int j = 0; j < LANES; j++) top[j] = TYPED(larger)(top[j], top[j + LANES]);
    total->along += TYPED(pair_sum)(along);
    total->weight += TYPED(pair_sum)(weight);
    total->largest = TYPED(larger)(TYPED(lane_max)(top), total->largest);
}

/* s (v - origin - mean), in place of s. */
static void TYPED(center)(REAL *restrict s, const REAL *restrict v, ptrdiff_t n, REAL origin,
                          REAL mean) {
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (n > CHUNK && !TYPED(any_nonzero)(s + start, end - start)) continue;
        for (ptrdiff_t i = start; i < end; i++) {
            const REAL s_i = s[i], v_i = v[i]; /* read always, or the loop stays scalar */
            s[i] = s_i == 0 ? (REAL)0 : s_i * ((v_i - origin) - mean);
        }
    }
}

/* J v from s, in its place, where one entry has most of the weight. */
static void TYPED(center_dominated)(REAL *restrict s, const REAL *restrict v, ptrdiff_t n,
                                    const TYPED(Balance) *all) {
    const REAL less = all->largest * (REAL)0.9, below = less < all->largest ? less : (REAL)0;
    ptrdiff_t k = 0; /* its place: nothing else is above 0.9 of it, which rounds up if denormal */
    while (k + LANES <= n && !TYPED(any_above)(s + k, below)) k += LANES;
    while (k < n - 1 && s[k] != all->largest) k++;
    TYPED(Balance) others = {0};
    s[k] = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF)
        TYPED(add_weights)(s + start, v + start, n - start < LEAF ? n - start : LEAF, v[k],
                           &others);
    TYPED(center)(s, v, n, v[k], (REAL)(others.along / all->weight));
    others.along += v[k] - v[k]; /* a NaN if v_k is no number, as 0 times it is */
    s[k] = (REAL)(-all->largest / all->weight * others.along);
}

/* J v from s, in its place: the mean over the whole row. Neither a NaN dominates nor an s that is
 * not positive, which only p that are no probabilities have. */
static void TYPED(jacobian_product)(REAL *restrict s, const REAL *restrict v, ptrdiff_t n,
                                    const TYPED(Balance) *all) {
    if (all->largest > 0 && all->largest > all->weight * 0.6)
        TYPED(center_dominated)(s, v, n, all);
    else
        TYPED(center)(s, v, n, 0, (REAL)(all->along / all->weight));
}

/* The whole product of a row, from a function that gives 1/Omega''(p) for p > 0, and p otherwise:
 * 0, or NaN. Chunks without any support are skipped, v unread. */
ALWAYS_INLINE void TYPED(separable_jvp_row)(const REAL *restrict p, const REAL *restrict v,
                                            REAL *restrict out, ptrdiff_t n,
                                            REAL (*inverse_curvature)(REAL p)) {
    TYPED(Balance) all = {0};
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (n > CHUNK && !TYPED(any_nonzero)(p + start, end - start)) {
            TYPED(fill)(out + start, end - start, 0);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i++) out[i] = inverse_curvature(p[i]);
        TYPED(add_weights)(out + start, v + start, end - start, 0, &all);
    }
    TYPED(jacobian_product)(out, v, n, &all);
}

#endif
