/* The Jacobian of a separable mapping times v: a template. The NumPy twin is
 * pyentmax/reference/mappings/_simplex.py.
 *
 * With s = 1/Omega''(p), (J v)_i = s_i (v_i - sum_j w_j v_j) and w = s/sum s: proposition 2 of
 * Peters, Niculae and Martins (2019). Where one entry k has most of the weight, v_k less the mean
 * cancels. J 1 = 0, so v may be taken relative to v_k, its origin: then the entry adds nothing to
 * the sum, of which its product is the share -w_k.
 *
 * Of a mapping only s(p) is needed, for a register of p > 0; it leaves other p, 0 or NaN, as they
 * are. A row is gone through twice, once for the sums, once for the products. Short rows stay in
 * registers; of the shortest, a register holds an entry of several.
 */
#ifndef PYENTMAX_MAPPINGS__SEPARABLE_JVP_H
#define PYENTMAX_MAPPINGS__SEPARABLE_JVP_H

#include "gufunc/jvp_loops.h"
#include "rows/steps.h"
#include "rows/tiles.h"
#include "rows/vectors.h"

/* Rows of up to so many entries stay in registers, where there are so many. */
enum { LANES_KEPT = 8, KEPT_ROW = LANES_KEPT * LANES };

/* The longest rows whose products are worked out side by side. (Zen 4, AVX-512: a third of the time
 * for 4 entries, 0.65 for 8 floats; rows of 16 fill a register by themselves.) */
#define LONGEST_TILED (IS_DOUBLE ? 4 : 8)

/* The Jvp of a mapping from the function NAME_inverse_curvature; may an entry have most of the
 * weight, with others left? Not where all weights are equal. */
#define SEPARABLE_JVP(name, may_dominate) \
    static void TYPED(name##_products)(const TYPED(JvpRows) *rows) { \
        TYPED(products)(rows, TYPED(name##_inverse_curvature), may_dominate); \
    } \
    static const TYPED(Jvp) TYPED(name##_jvp) = {TYPED(name##_products)};

#define TEMPLATE "mappings/_separable_jvp.h"
#include "float_and_double.h"

#elif defined(REAL)

/* An entry with more than this share makes up for all others. */
#define MOST_OF_WEIGHT ((REAL)0.6)

typedef REGISTER TYPED(InverseCurvature)(REGISTER p);

typedef struct {
    double along, weight; /* sum s (v - origin) and sum s */
    REAL largest;         /* s */
} TYPED(Balance);

/* Add the sums over n <= LEAF entries. v off the support may be anything, and counts as 0. */
ALWAYS_INLINE void TYPED(add_to_balance)(const REAL *p, const REAL *v, ptrdiff_t n, REAL origin,
                                         TYPED(InverseCurvature) *inverse_curvature,
                                         TYPED(Balance) *total) {
    enum { STEP = UNROLL * WIDTH };
    REGISTER weight[UNROLL], along[UNROLL], top[UNROLL];
    for (int k = 0; k < UNROLL; k++) weight[k] = along[k] = top[k] = (REGISTER){0};
    REAL last[2 * STEP];
    for (ptrdiff_t i = 0; i < n; i += STEP) {
        const REAL *p_i = p + i, *v_i = v + i;
        if (n - i < STEP) {
            memset(last, 0, sizeof last);
            memcpy(last, p_i, (size_t)(n - i) * sizeof(REAL));
            memcpy(last + STEP, v_i, (size_t)(n - i) * sizeof(REAL));
            p_i = last;
            v_i = last + STEP;
        }
        for (int k = 0; k < UNROLL; k++) {
            const REGISTER s = inverse_curvature(TYPED(load_register)(p_i + k * WIDTH));
            const REGISTER apart = TYPED(load_register)(v_i + k * WIDTH) - origin;
            weight[k] += s;
            along[k] += TYPED(where_nonzero)(s, s * apart);
            top[k] = TYPED(larger_of)(s, top[k]);
        }
    }
    for (int half = UNROLL / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) {
            weight[k] += weight[k + half];
            along[k] += along[k + half];
            top[k] = TYPED(larger_of)(top[k + half], top[k]);
        }
    REAL tops[WIDTH];
    TYPED(store_register)(top[0], tops);
    for (int k = 0; k < WIDTH; k++) total->largest = TYPED(larger)(tops[k], total->largest);
    total->along += TYPED(sum_across)(along[0]);
    total->weight += TYPED(sum_across)(weight[0]);
}

/* The sums over a row, of which leaves without any support are skipped, v unread. */
ALWAYS_INLINE TYPED(Balance) TYPED(balance)(const REAL *p, const REAL *v, ptrdiff_t n, REAL origin,
                                            TYPED(InverseCurvature) *inverse_curvature) {
    TYPED(Balance) all = {0};
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t count = n - start < LEAF ? n - start : LEAF;
        if (n <= LEAF || TYPED(any_nonzero)(p + start, count))
            TYPED(add_to_balance)(p + start, v + start, count, origin, inverse_curvature, &all);
    }
    return all;
}

/* s (v - origin - mean), 0 where s is; out may be p. */
ALWAYS_INLINE void TYPED(center)(const REAL *p, const REAL *v, REAL *out, ptrdiff_t n, REAL origin,
                                 REAL mean, TYPED(InverseCurvature) *inverse_curvature) {
    enum { STEP = UNROLL * WIDTH };
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        if (n > LEAF && !TYPED(any_nonzero)(p + start, end - start)) {
            TYPED(fill)(out + start, end - start, 0);
            continue;
        }
        ptrdiff_t i = start;
        for (; i + STEP <= end; i += STEP) {
            REGISTER s[UNROLL], apart[UNROLL]; /* all are read before one is written */
            for (int k = 0; k < UNROLL; k++) {
                s[k] = inverse_curvature(TYPED(load_register)(p + i + k * WIDTH));
                apart[k] = (TYPED(load_register)(v + i + k * WIDTH) - origin) - mean;
            }
            for (int k = 0; k < UNROLL; k++)
                TYPED(store_register)(TYPED(where_nonzero)(s[k], s[k] * apart[k]),
                                      out + i + k * WIDTH);
        }
        for (; i < end; i += WIDTH) {
            const REGISTER s = inverse_curvature(TYPED(load_first)(p + i, end - i));
            const REGISTER apart = (TYPED(load_first)(v + i, end - i) - origin) - mean;
            TYPED(store_first)(TYPED(where_nonzero)(s, s * apart), out + i, end - i);
        }
    }
}

/* The place of the entry whose s is above a bound that no other reaches. */
ALWAYS_INLINE ptrdiff_t TYPED(place_above)(const REAL *p, ptrdiff_t n, REAL bound,
                                           TYPED(InverseCurvature) *inverse_curvature) {
    for (ptrdiff_t i = 0; i < n; i += WIDTH) {
        const REGISTER s = inverse_curvature(TYPED(load_first)(p + i, n - i));
        if (!TYPED(any_below)(bound - s, 0)) continue;
        REAL lane[WIDTH];
        TYPED(store_register)(s, lane);
        for (ptrdiff_t j = 0; j < WIDTH && i + j < n; j++)
            if (lane[j] > bound) return i + j;
    }
    return 0; /* never */
}

/* The whole product of a row; out may be p. s rises with p. */
ALWAYS_INLINE void TYPED(product_of_row)(const REAL *p, const REAL *v, REAL *out, ptrdiff_t n,
                                         TYPED(InverseCurvature) *inverse_curvature,
                                         const bool may_dominate) {
    REAL origin = 0;
    TYPED(Balance) all = TYPED(balance)(p, v, n, 0, inverse_curvature);
    if (may_dominate && all.largest > all.weight * MOST_OF_WEIGHT) {
        const REAL bound = (REAL)(all.weight * MOST_OF_WEIGHT);
        origin = v[TYPED(place_above)(p, n, bound, inverse_curvature)];
        all = TYPED(balance)(p, v, n, origin, inverse_curvature);
    }
    TYPED(center)(p, v, out, n, origin, (REAL)(all.along / all.weight), inverse_curvature);
}

/* The product of a row that fills `count` registers, of the last LANES of them perhaps a part; out
 * may be p. */
ALWAYS_INLINE void TYPED(short_product)(const REAL *p, const REAL *v, REAL *out, ptrdiff_t n,
                                        TYPED(InverseCurvature) *inverse_curvature,
                                        const bool may_dominate, const int count) {
    enum { MOST = KEPT_ROW / WIDTH };
    const REGISTER none = {0};
    REGISTER s[MOST], apart[MOST], weights = none, along = none, top = none;
    for (int k = 0; k < count; k++) {
        const ptrdiff_t left = k < count - REGISTERS ? WIDTH : n - k * WIDTH;
        s[k] = inverse_curvature(TYPED(load_first)(p + k * WIDTH, left));
        apart[k] = TYPED(load_first)(v + k * WIDTH, left);
        weights += s[k];
        top = TYPED(larger_of)(s[k], top);
    }
    const REAL weight = TYPED(sum_across)(weights), bound = weight * MOST_OF_WEIGHT;
    if (may_dominate && TYPED(any_below)(bound - top, 0)) {
        REGISTER dominant = none; /* v of the one entry above the bound */
        for (int k = 0; k < count; k++)
            dominant += TYPED(choose_above)(s[k], none + bound, apart[k], none);
        const REAL origin = TYPED(sum_across)(dominant);
        for (int k = 0; k < count; k++) apart[k] -= origin;
    }
    for (int k = 0; k < count; k++) along += TYPED(where_nonzero)(s[k], s[k] * apart[k]);
    const REAL mean = TYPED(sum_across)(along) / weight;
    for (int k = 0; k < count; k++) {
        const ptrdiff_t left = k < count - REGISTERS ? WIDTH : n - k * WIDTH;
        TYPED(store_first)(TYPED(where_nonzero)(s[k], s[k] * (apart[k] - mean)), out + k * WIDTH,
                           left);
    }
}

/* The products of rows that fill `filled` lanes. */
ALWAYS_INLINE void TYPED(short_products)(const TYPED(JvpRows) *rows,
                                         TYPED(InverseCurvature) *inverse_curvature,
                                         const bool may_dominate, const int filled) {
    for (int j = 0; j < rows->count; j++)
        TYPED(short_product)(rows->p[j], rows->v[j], rows->out[j], rows->n, inverse_curvature,
                             may_dominate, filled * REGISTERS);
}

/* The products of rows of at most LONGEST_TILED entries, side by side. */
ALWAYS_INLINE void TYPED(tiled_products)(const TYPED(JvpRows) *rows,
                                         TYPED(InverseCurvature) *inverse_curvature,
                                         const bool may_dominate) {
    const REGISTER none = {0};
    const ptrdiff_t n = rows->n;
    REAL s[LONGEST_TILED * BLOCK], apart[LONGEST_TILED * BLOCK], spare[LONGEST_TILED];
    const REAL *p[BLOCK], *v[BLOCK];
    REAL *out[BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        const int row = j < rows->count ? j : 0;
        p[j] = rows->p[row];
        v[j] = rows->v[row];
        out[j] = j < rows->count ? rows->out[j] : spare;
    }
    TYPED(to_tile)(p, n, s);
    TYPED(to_tile)(v, n, apart);
    for (int j = 0; j < rows->count; j += WIDTH) {
        REGISTER weight = none, along = none, top = none, origin = none;
        for (ptrdiff_t i = j; i < n * BLOCK; i += BLOCK) {
            const REGISTER own = inverse_curvature(TYPED(load_register)(s + i));
            weight += own;
            top = TYPED(larger_of)(own, top);
            TYPED(store_register)(own, s + i);
        }
        const REGISTER bound = weight * MOST_OF_WEIGHT;
        if (may_dominate && TYPED(any_below)(bound - top, 0))
            for (ptrdiff_t i = j; i < n * BLOCK; i += BLOCK)
                origin += TYPED(choose_above)(TYPED(load_register)(s + i), bound,
                                              TYPED(load_register)(apart + i), none);
        for (ptrdiff_t i = j; i < n * BLOCK; i += BLOCK) {
            const REGISTER own = TYPED(load_register)(s + i);
            const REGISTER from_origin = TYPED(load_register)(apart + i) - origin;
            along += TYPED(where_nonzero)(own, own * from_origin);
            TYPED(store_register)(from_origin, apart + i);
        }
        const REGISTER mean = along / weight;
        for (ptrdiff_t i = j; i < n * BLOCK; i += BLOCK) {
            const REGISTER own = TYPED(load_register)(s + i);
            const REGISTER centred = TYPED(load_register)(apart + i) - mean;
            TYPED(store_register)(TYPED(where_nonzero)(own, own * centred), s + i);
        }
    }
    TYPED(separate)(s, n, out);
}

/* The products of rows. A length that the compiler knows is what lets it keep short ones in
 * registers, where there are enough. */
ALWAYS_INLINE void TYPED(products)(const TYPED(JvpRows) *rows, TYPED(InverseCurvature) *s,
                                   const bool may_dominate) {
    const ptrdiff_t n = rows->n, filled = (n + LANES - 1) / LANES;
    if (n <= LONGEST_TILED)
        TYPED(tiled_products)(rows, s, may_dominate);
    else if (n > KEPT_ROW)
        for (int j = 0; j < rows->count; j++)
            TYPED(product_of_row)(rows->p[j], rows->v[j], rows->out[j], n, s, may_dominate);
#if HAS_AVX512 || HAS_AVX2
    else if (filled == 1)
        TYPED(short_products)(rows, s, may_dominate, 1);
    else if (filled == 2)
        TYPED(short_products)(rows, s, may_dominate, 2);
    else if (filled == 4)
        TYPED(short_products)(rows, s, may_dominate, 4);
    else if (filled == LANES_KEPT)
        TYPED(short_products)(rows, s, may_dominate, LANES_KEPT);
#endif
    else
        TYPED(short_products)(rows, s, may_dominate, (int)filled);
}

/* s given in the place of p. */
ALWAYS_INLINE REGISTER TYPED(weights_inverse_curvature)(REGISTER s) {
    return s;
}
SEPARABLE_JVP(weights, true)

/* J v of a row from s, in its place. */
static void TYPED(product_from_weights)(REAL *s, const REAL *v, ptrdiff_t n) {
    TYPED(product_of_row)(s, v, s, n, TYPED(weights_inverse_curvature), true);
}

#undef MOST_OF_WEIGHT

#endif
