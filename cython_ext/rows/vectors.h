/* LANES numbers as one value: a template.
 *
 * Most loops are left to the compiler. Where several sums and choices have to stay in registers at
 * once, it loses its way; their steps are written with these. Each does the same in every lane, so
 * that all builds agree to the last bit.
 */
#ifndef PYENTMAX_ROWS_VECTORS_H
#define PYENTMAX_ROWS_VECTORS_H

#include "rows/lanes.h"

#if defined(__GNUC__)
#define HAS_VECTOR_TYPES 1
#if HAS_AVX512
#define REGISTER_BYTES 64
#elif HAS_AVX2
#define REGISTER_BYTES 32
#else
#define REGISTER_BYTES 16
#endif
#else
#define HAS_VECTOR_TYPES 0
#endif

#define TEMPLATE "rows/vectors.h"
#include "float_and_double.h"

#elif defined(REAL)

#if HAS_VECTOR_TYPES
typedef REAL TYPED(Register) __attribute__((vector_size(REGISTER_BYTES)));
typedef BITS TYPED(LaneMask) __attribute__((vector_size(REGISTER_BYTES)));
typedef REAL TYPED(Quarter) __attribute__((vector_size(LANES / 4 * sizeof(REAL))));
#else
typedef REAL TYPED(Register);
#endif

enum { TYPED(REGISTERS) = LANES * sizeof(REAL) / sizeof(TYPED(Register)) };

typedef struct {
    TYPED(Register) part[TYPED(REGISTERS)];
} TYPED(Lanes);

ALWAYS_INLINE TYPED(Lanes) TYPED(load)(const REAL *x) {
    TYPED(Lanes) a;
    memcpy(&a, x, sizeof a);
    return a;
}

ALWAYS_INLINE void TYPED(store)(TYPED(Lanes) a, REAL *to) {
    memcpy(to, &a, sizeof a);
}

/* The first count lanes, and 0 in the others. */
ALWAYS_INLINE TYPED(Lanes) TYPED(load_some)(const REAL *x, ptrdiff_t count) {
    if (count == LANES) return TYPED(load)(x);
    REAL some[LANES];
    for (int j = 0; j < LANES; j++) some[j] = j < count ? x[j] : (REAL)0;
    return TYPED(load)(some);
}

ALWAYS_INLINE void TYPED(store_some)(TYPED(Lanes) a, REAL *to, ptrdiff_t count) {
    if (count == LANES) {
        TYPED(store)(a, to);
        return;
    }
    REAL some[LANES];
    TYPED(store)(a, some);
    for (int j = 0; j < LANES; j++)
        if (j < count) to[j] = some[j];
}

/* The same number in every lane. */
ALWAYS_INLINE TYPED(Lanes) TYPED(all)(REAL x) {
    TYPED(Lanes) a;
    for (int k = 0; k < TYPED(REGISTERS); k++) a.part[k] = x - (TYPED(Register)){0};
    return a;
}

ALWAYS_INLINE TYPED(Lanes) TYPED(plus)(TYPED(Lanes) a, TYPED(Lanes) b) {
    for (int k = 0; k < TYPED(REGISTERS); k++) a.part[k] += b.part[k];
    return a;
}

ALWAYS_INLINE TYPED(Lanes) TYPED(minus)(TYPED(Lanes) a, TYPED(Lanes) b) {
    for (int k = 0; k < TYPED(REGISTERS); k++) a.part[k] -= b.part[k];
    return a;
}

ALWAYS_INLINE TYPED(Lanes) TYPED(times)(TYPED(Lanes) a, TYPED(Lanes) b) {
    for (int k = 0; k < TYPED(REGISTERS); k++) a.part[k] *= b.part[k];
    return a;
}

ALWAYS_INLINE TYPED(Lanes) TYPED(root)(TYPED(Lanes) a) {
    for (int k = 0; k < TYPED(REGISTERS); k++) {
#if HAS_AVX512 && IS_DOUBLE
        a.part[k] = _mm512_sqrt_pd(a.part[k]);
#elif HAS_AVX512
        a.part[k] = _mm512_sqrt_ps(a.part[k]);
#elif HAS_AVX2 && IS_DOUBLE
        a.part[k] = _mm256_sqrt_pd(a.part[k]);
#elif HAS_AVX2
        a.part[k] = _mm256_sqrt_ps(a.part[k]);
#else
        REAL x[sizeof a.part[k] / sizeof(REAL)];
        memcpy(x, &a.part[k], sizeof x);
        for (size_t j = 0; j < sizeof x / sizeof *x; j++) x[j] = SQRT(x[j]);
        memcpy(&a.part[k], x, sizeof x);
#endif
    }
    return a;
}

/* x where a > b, y elsewhere. */
ALWAYS_INLINE TYPED(Lanes)
    TYPED(where_above)(TYPED(Lanes) a, TYPED(Lanes) b, TYPED(Lanes) x, TYPED(Lanes) y) {
    for (int k = 0; k < TYPED(REGISTERS); k++) {
#if HAS_AVX512 && IS_DOUBLE
        const __mmask8 above = _mm512_cmp_pd_mask(a.part[k], b.part[k], _CMP_GT_OQ);
        y.part[k] = _mm512_mask_blend_pd(above, y.part[k], x.part[k]);
#elif HAS_AVX512
        const __mmask16 above = _mm512_cmp_ps_mask(a.part[k], b.part[k], _CMP_GT_OQ);
        y.part[k] = _mm512_mask_blend_ps(above, y.part[k], x.part[k]);
#elif HAS_VECTOR_TYPES
        const TYPED(LaneMask) above = a.part[k] > b.part[k];
        y.part[k] = (TYPED(Register))((above & (TYPED(LaneMask))x.part[k])
                                      | (~above & (TYPED(LaneMask))y.part[k]));
#else
        y.part[k] = a.part[k] > b.part[k] ? x.part[k] : y.part[k];
#endif
    }
    return y;
}

/* x where s is not 0, and 0 elsewhere. */
ALWAYS_INLINE TYPED(Lanes) TYPED(where_nonzero)(TYPED(Lanes) s, TYPED(Lanes) x) {
    for (int k = 0; k < TYPED(REGISTERS); k++) {
#if HAS_AVX512 && IS_DOUBLE
        const __mmask8 some = _mm512_cmp_pd_mask(s.part[k], _mm512_setzero_pd(), _CMP_NEQ_UQ);
        x.part[k] = _mm512_maskz_mov_pd(some, x.part[k]);
#elif HAS_AVX512
        const __mmask16 some = _mm512_cmp_ps_mask(s.part[k], _mm512_setzero_ps(), _CMP_NEQ_UQ);
        x.part[k] = _mm512_maskz_mov_ps(some, x.part[k]);
#elif HAS_VECTOR_TYPES
        const TYPED(LaneMask) some = s.part[k] != (TYPED(Register)){0};
        x.part[k] = (TYPED(Register))((TYPED(LaneMask))x.part[k] & some);
#else
        x.part[k] = s.part[k] != 0 ? x.part[k] : (REAL)0;
#endif
    }
    return x;
}

/* Is any lane above bound? */
ALWAYS_INLINE bool TYPED(any_lane_above)(TYPED(Lanes) a, REAL bound) {
#if HAS_AVX512 && !IS_DOUBLE
    return _mm512_cmp_ps_mask(a.part[0], _mm512_set1_ps(bound), _CMP_GT_OQ) != 0;
#else
    REAL lane[LANES];
    TYPED(store)(a, lane);
    return TYPED(any_above)(lane, bound);
#endif
}

/* The sum of all lanes, in the order of lane_sum, and the largest of them. */
#if HAS_VECTOR_TYPES
ALWAYS_INLINE REAL TYPED(sum_across)(TYPED(Lanes) a) {
    TYPED(Quarter) q[4];
    memcpy(q, &a, sizeof a);
    const TYPED(Quarter) sum = (q[0] + q[2]) + (q[1] + q[3]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

ALWAYS_INLINE REAL TYPED(max_across)(TYPED(Lanes) a) {
    typedef BITS Mask __attribute__((vector_size(sizeof(TYPED(Quarter)))));
    TYPED(Quarter) q[4];
    memcpy(q, &a, sizeof a);
    for (int half = 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) {
            const Mask above = q[k] > q[k + half];
            q[k] = (TYPED(Quarter))((above & (Mask)q[k]) | (~above & (Mask)q[k + half]));
        }
    return TYPED(larger)(TYPED(larger)(q[0][0], q[0][2]), TYPED(larger)(q[0][1], q[0][3]));
}
#else
ALWAYS_INLINE REAL TYPED(sum_across)(TYPED(Lanes) a) {
    return TYPED(lane_sum)(a.part);
}

ALWAYS_INLINE REAL TYPED(max_across)(TYPED(Lanes) a) {
    return TYPED(lane_max)(a.part);
}
#endif

#endif
