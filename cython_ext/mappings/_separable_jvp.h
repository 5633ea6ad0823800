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
#include "rows/vectors.h"

/* The Jvp of a mapping from the function NAME_inverse_curvature; may an entry have most of the
 * weight, with others left? Not where all weights are equal. And does an s take
 * few instructions? */
#define SEPARABLE_JVP(name, may_dominate, is_cheap) \
    static void TYPED(name##_jvp_row)(const REAL *restrict p, const REAL *restrict v, \
                                      REAL *restrict out, ptrdiff_t n) { \
        if (is_cheap) \
            TYPED(cheap_jvp_row)(p, v, out, n, TYPED(name##_inverse_curvature), may_dominate); \
        else \
            TYPED(separable_jvp_row)(p, v, out, n, TYPED(name##_inverse_curvature), may_dominate); \
    } \
    static void TYPED(name##_jvp_short_rows)(const TYPED(JvpRows) *rows) { \
        TYPED(short_products)(rows, TYPED(name##_inverse_curvature), NULL, may_dominate); \
    } \
    static const TYPED(Jvp) \
        TYPED(name##_jvp) = {TYPED(name##_jvp_row), TYPED(name##_jvp_short_rows)};

#define TEMPLATE "mappings/_separable_jvp.h"
#include "float_and_double.h"

#elif defined(REAL)

typedef struct {
    double along, weight; /* sum s (v - origin) and sum s */
    REAL largest;         /* s */
} TYPED(Balance);

/* From `count` lanes of p to 1/Omega''(p) for p > 0, and p otherwise: 0, or NaN. The context is the
 * mapping's own. */
typedef void TYPED(InverseCurvature)(TYPED(Lanes) *s, int count, const void *context);

/* s that are given themselves. */
ALWAYS_INLINE void TYPED(as_given)(TYPED(Lanes) *s, int count, const void *context) {
    (void)s, (void)count, (void)context;
}

/* Add the sums over at most LEAF entries of x, of which s is made and written to `kept` if asked
 * for. v off the support may be anything, and counts as 0. */
ALWAYS_INLINE void TYPED(balance)(const REAL *x, const REAL *v, ptrdiff_t n,
                                  TYPED(InverseCurvature) *inverse_curvature, const void *context,
                                  const bool keep, REAL *kept, TYPED(Balance) *total) {
    enum {
        WIDTH = TYPED(WIDTH),
        PER_LANES = TYPED(REGISTERS),
        PARTS = 2 * PER_LANES,
        AT_ONCE = ABREAST > PER_LANES ? ABREAST / PER_LANES : 1, /* lanes */
        STEP = (AT_ONCE > 2 ? AT_ONCE : 2) * LANES,
    };
    TYPED(Register) weights[PARTS], sums[PARTS], tops[PARTS];
    for (int k = 0; k < PARTS; k++) weights[k] = sums[k] = tops[k] = (TYPED(Register)){0};
    ptrdiff_t i = 0;
    for (; i + STEP <= n; i += STEP)
        for (int at = 0; at < STEP; at += AT_ONCE * LANES) {
            TYPED(Lanes) s[AT_ONCE];
            for (int l = 0; l < AT_ONCE; l++) s[l] = TYPED(load)(x + i + at + l * LANES);
            inverse_curvature(s, AT_ONCE, context);
            for (int l = 0; l < AT_ONCE; l++) {
                const ptrdiff_t place = i + at + l * LANES;
                if (keep) TYPED(store)(s[l], kept + place);
                for (int r = 0; r < PER_LANES; r++) {
                    const int k = (at / LANES + l) % 2 * PER_LANES + r;
                    const TYPED(Register) s_r = s[l].part[r];
                    const TYPED(Register) v_r = TYPED(load_register)(v + place + r * WIDTH);
                    weights[k] += s_r;
                    sums[k] += TYPED(beside_nonzero)(s_r, s_r * v_r);
                    tops[k] = TYPED(larger_of)(s_r, tops[k]);
                }
            }
        }
    for (int odd = 0; i < n; i += LANES, odd ^= 1) { /* what fills less */
        const ptrdiff_t count = n - i < LANES ? n - i : LANES;
        TYPED(Lanes) s = TYPED(load_some)(x + i, count);
        const TYPED(Lanes) beside = TYPED(load_some)(v + i, count);
        inverse_curvature(&s, 1, context);
        if (keep) TYPED(store_some)(s, kept + i, count);
        for (int r = 0; r < PER_LANES; r++) {
            const int k = odd * PER_LANES + r;
            const TYPED(Register) s_r = s.part[r];
            weights[k] += s_r;
            sums[k] += TYPED(beside_nonzero)(s_r, s_r * beside.part[r]);
            tops[k] = TYPED(larger_of)(s_r, tops[k]);
        }
    }
    REAL along[PAIR], weight[PAIR], top[PAIR];
    for (int k = 0; k < PARTS; k++) {
        TYPED(store_register)(weights[k], weight + k * WIDTH);
        TYPED(store_register)(sums[k], along + k * WIDTH);
        TYPED(store_register)(tops[k], top + k * WIDTH);
    }
    for (int j = 0; j < LANES; j++) top[j] = TYPED(larger)(top[j], top[j + LANES]);
    total->along += TYPED(pair_sum)(along);
    total->weight += TYPED(pair_sum)(weight);
    total->largest = TYPED(larger)(TYPED(lane_max)(top), total->largest);
}

/* The same of s that are given: lanes of doubles fill the registers of AVX2, and more.
 */
static void TYPED(add_weights)(const REAL *restrict s, const REAL *restrict v, ptrdiff_t n,
                               REAL origin, TYPED(Balance) *total) {
    enum { WIDTH = TYPED(WIDTH), PARTS = PAIR / WIDTH };
    const TYPED(Register) none = {0};
    TYPED(Register) weights[PARTS], sums[PARTS], tops[PARTS];
    for (int k = 0; k < PARTS; k++) weights[k] = sums[k] = tops[k] = none;
    ptrdiff_t i = 0;
    for (; i + PAIR <= n; i += PAIR) {
        for (int k = 0; k < PARTS; k++) {
            const TYPED(Register) s_k = TYPED(load_register)(s + i + k * WIDTH);
            const TYPED(Register) apart = TYPED(load_register)(v + i + k * WIDTH) - origin;
            weights[k] += s_k;
            sums[k] += TYPED(beside_nonzero)(s_k, s_k * apart);
            tops[k] = TYPED(choose_above)(s_k, tops[k], s_k, tops[k]);
        }
    }
    REAL along[PAIR], weight[PAIR], top[PAIR];
    for (int k = 0; k < PARTS; k++) {
        TYPED(store_register)(weights[k], weight + k * WIDTH);
        TYPED(store_register)(sums[k], along + k * WIDTH);
        TYPED(store_register)(tops[k], top + k * WIDTH);
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

/* s (v - origin - mean), in place of s; 0 where s is a zero of either sign. */
static void TYPED(center)(REAL *restrict s, const REAL *restrict v, ptrdiff_t n, REAL origin,
                          REAL mean) {
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (n > CHUNK && !TYPED(any_nonzero)(s + start, end - start)) {
            TYPED(fill)(s + start, end - start, 0);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i++) {
            const REAL s_i = s[i], v_i = v[i]; /* read always, or the loop stays scalar */
            s[i] = s_i == 0 ? (REAL)0 : s_i * ((v_i - origin) - mean);
        }
    }
}

/* The same of the s that is made of x. */
ALWAYS_INLINE void TYPED(center_from)(const REAL *restrict x, const REAL *restrict v,
                                      REAL *restrict out, ptrdiff_t n, REAL mean,
                                      TYPED(InverseCurvature) *inverse_curvature) {
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (n > CHUNK && !TYPED(any_nonzero)(x + start, end - start)) {
            TYPED(fill)(out + start, end - start, 0);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i += LANES) {
            const ptrdiff_t count = end - i < LANES ? end - i : LANES;
            TYPED(Lanes) s = TYPED(load_some)(x + i, count);
            inverse_curvature(&s, 1, NULL);
            TYPED(Lanes) moved = TYPED(load_some)(v + i, count);
            for (int r = 0; r < TYPED(REGISTERS); r++)
                moved.part[r] = s.part[r] * (moved.part[r] - mean);
            TYPED(store_some)(TYPED(where_nonzero)(s, moved), out + i, count);
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

/* Has one entry most of the weight? Neither a NaN has nor an s that is not positive, which only p
 * that are no probabilities have. */
static inline bool TYPED(is_dominated)(const TYPED(Balance) *all) {
    return all->largest > 0 && all->largest > all->weight * 0.6;
}

/* J v from s, in its place: the mean over the whole row. */
static void TYPED(jacobian_product)(REAL *restrict s, const REAL *restrict v, ptrdiff_t n,
                                    const TYPED(Balance) *all) {
    if (TYPED(is_dominated)(all))
        TYPED(center_dominated)(s, v, n, all);
    else
        TYPED(center)(s, v, n, 0, (REAL)(all->along / all->weight));
}

/* s of n entries. */
ALWAYS_INLINE void TYPED(make_weights)(const REAL *restrict p, ptrdiff_t n,
                                       TYPED(InverseCurvature) *inverse_curvature,
                                       REAL *restrict s) {
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const ptrdiff_t count = n - i < LANES ? n - i : LANES;
        TYPED(Lanes) lanes = TYPED(load_some)(p + i, count);
        inverse_curvature(&lanes, 1, NULL);
        TYPED(store_some)(lanes, s + i, count);
    }
}

/* The whole product of a row. Chunks without any support are skipped, v unread. */
ALWAYS_INLINE void TYPED(separable_jvp_row)(const REAL *restrict p, const REAL *restrict v,
                                            REAL *restrict out, ptrdiff_t n,
                                            TYPED(InverseCurvature) *inverse_curvature,
                                            const bool may_dominate) {
    TYPED(Balance) all = {0};
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t count = n - start < CHUNK ? n - start : CHUNK;
        if (n > CHUNK && !TYPED(any_nonzero)(p + start, count)) {
            TYPED(fill)(out + start, count, 0);
        } else {
#if IS_DOUBLE && !HAS_AVX512
            TYPED(make_weights)(p + start, count, inverse_curvature, out + start);
            TYPED(add_weights)(out + start, v + start, count, 0, &all);
#else
            TYPED(balance)(p + start, v + start, count, inverse_curvature, NULL, true, out + start,
                           &all);
#endif
        }
    }
    if (may_dominate)
        TYPED(jacobian_product)(out, v, n, &all);
    else
        TYPED(center)(out, v, n, 0, (REAL)(all.along / all.weight));
}

/* The same where an s takes few instructions: it is made twice, since to write it in between costs
 * more. */
ALWAYS_INLINE void TYPED(cheap_jvp_row)(const REAL *restrict p, const REAL *restrict v,
                                        REAL *restrict out, ptrdiff_t n,
                                        TYPED(InverseCurvature) *inverse_curvature,
                                        const bool may_dominate) {
#if IS_DOUBLE && !HAS_AVX512
    TYPED(separable_jvp_row)(p, v, out, n, inverse_curvature, may_dominate); /* too few registers */
#else
    TYPED(Balance) all = {0};
    enum { STEP = IS_DOUBLE ? CHUNK : LEAF }; /* one or two chunks, any of which may be 0 */
    for (ptrdiff_t start = 0; start < n; start += STEP) {
        const ptrdiff_t end = n - start < STEP ? n : start + STEP;
        const ptrdiff_t middle = end - start < CHUNK ? end : start + CHUNK;
        const bool first = n <= CHUNK || TYPED(any_nonzero)(p + start, middle - start);
        const bool second = TYPED(any_nonzero)(p + middle, end - middle);
        const ptrdiff_t from = first ? start : middle, to = second ? end : middle;
        if (from < to)
            TYPED(balance)(p + from, v + from, to - from, inverse_curvature, NULL, false, NULL,
                           &all);
    }
    if (may_dominate && TYPED(is_dominated)(&all)) {
        TYPED(make_weights)(p, n, inverse_curvature, out);
        TYPED(center_dominated)(out, v, n, &all);
    } else {
        TYPED(center_from)(p, v, out, n, (REAL)(all.along / all.weight), inverse_curvature);
    }
#endif
}

/* The product of a row that fills `count` lanes, the last of them perhaps in part; out may be x.
 *
 * Of a distribution and α <= 2, s >= p sums to 1 at least, so that an entry with most of the weight
 * has an s above 0.7. v is taken relative to the v beside such an s: then the entry adds nothing to
 * the sum, of which its product is the share -w_k, and nothing cancels. */
ALWAYS_INLINE void TYPED(short_product)(const REAL *x, const REAL *v, REAL *out, ptrdiff_t n,
                                        TYPED(InverseCurvature) *inverse_curvature,
                                        const void *context, const bool may_dominate,
                                        const int count) {
    const REAL most = (REAL)0.7;
    const ptrdiff_t last = n - (count - 1) * LANES;
    TYPED(Lanes) s[LANES_KEPT], apart[LANES_KEPT];
    for (int k = 0; k < count; k++) {
        const ptrdiff_t size = k < count - 1 ? LANES : last;
        s[k] = TYPED(load_some)(x + k * LANES, size);
        apart[k] = TYPED(load_some)(v + k * LANES, size);
    }
    inverse_curvature(s, count, context);
    if (may_dominate) {
        TYPED(Lanes) top = TYPED(all)(0);
        for (int k = 0; k < count; k++) top = TYPED(where_above)(s[k], top, s[k], top);
        if (TYPED(any_lane_above)(top, most)) {
            const TYPED(Lanes) bound = TYPED(all)(most), lowest = TYPED(all)(-(REAL)INFINITY);
            TYPED(Lanes) beside = lowest;
            for (int k = 0; k < count; k++) {
                const TYPED(Lanes) v_k = TYPED(where_above)(s[k], bound, apart[k], lowest);
                beside = TYPED(where_above)(v_k, beside, v_k, beside);
            }
            const TYPED(Lanes) origin = TYPED(all)(TYPED(max_across)(beside));
            for (int k = 0; k < count; k++) apart[k] = TYPED(minus)(apart[k], origin);
        }
    }
    TYPED(Lanes) weight = TYPED(all)(0), along = TYPED(all)(0);
    for (int k = 0; k < count; k++) {
        weight = TYPED(plus)(weight, s[k]);
        along = TYPED(plus)(along, TYPED(where_nonzero)(s[k], TYPED(times)(s[k], apart[k])));
    }
    const TYPED(Lanes) mean = TYPED(all)(TYPED(sum_across)(along) / TYPED(sum_across)(weight));
    for (int k = 0; k < count; k++) {
        const TYPED(Lanes) moved = TYPED(times)(s[k], TYPED(minus)(apart[k], mean));
        TYPED(store_some)(TYPED(where_nonzero)(s[k], moved), out + k * LANES,
                          k < count - 1 ? LANES : last);
    }
}

/* The products of rows that fill `filled` lanes. */
ALWAYS_INLINE void TYPED(products_of_rows)(const TYPED(JvpRows) *rows,
                                           TYPED(InverseCurvature) *inverse_curvature,
                                           const void *context, const bool may_dominate,
                                           const int filled) {
    for (ptrdiff_t r = 0; r < rows->count; r++)
        TYPED(short_product)((const REAL *)(rows->p + r * rows->p_step),
                             (const REAL *)(rows->v + r * rows->v_step),
                             (REAL *)(rows->out + r * rows->out_step), rows->n, inverse_curvature,
                             context, may_dominate, filled);
}

/* The products of rows of at most KEPT_ROW entries. A length that the compiler knows is what lets
 * it keep them in registers, where there are enough. */
ALWAYS_INLINE void TYPED(short_products)(const TYPED(JvpRows) *rows, TYPED(InverseCurvature) *s,
                                         const void *context, const bool may_dominate) {
    const int filled = (int)((rows->n + LANES - 1) / LANES);
#if HAS_AVX512 || HAS_AVX2
    switch (filled) {
        case 1:
            TYPED(products_of_rows)(rows, s, context, may_dominate, 1);
            return;
        case 2:
            TYPED(products_of_rows)(rows, s, context, may_dominate, 2);
            return;
        case 4:
            TYPED(products_of_rows)(rows, s, context, may_dominate, 4);
            return;
        case LANES_KEPT:
            TYPED(products_of_rows)(rows, s, context, may_dominate, LANES_KEPT);
            return;
    }
#endif
    TYPED(products_of_rows)(rows, s, context, may_dominate, filled);
}

/* The products of rows that hold s in the place of p. */
static void TYPED(products_from_weights)(const TYPED(JvpRows) *rows) {
    TYPED(short_products)(rows, TYPED(as_given), NULL, true);
}

#endif
