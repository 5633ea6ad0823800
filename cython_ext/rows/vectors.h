/* A register of numbers: a template.
 *
 * Most loops are left to the compiler. Where several sums and choices have to stay in registers at
 * once, it loses its way; their steps are written with these. Operators, of which one side may be a
 * number, do the same in each lane.
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
typedef WORD TYPED(LaneWords) __attribute__((vector_size(REGISTER_BYTES)));
typedef REAL TYPED(Quarter) __attribute__((vector_size(16)));
#else
typedef REAL TYPED(Register);
typedef BITS TYPED(LaneMask);
typedef WORD TYPED(LaneWords);
#endif

enum {
    TYPED(WIDTH) = sizeof(TYPED(Register)) / sizeof(REAL),
    TYPED(REGISTERS) = LANES / TYPED(WIDTH),
};

ALWAYS_INLINE TYPED(Register) TYPED(load_register)(const REAL *x) {
    TYPED(Register) a;
    memcpy(&a, x, sizeof a);
    return a;
}

ALWAYS_INLINE void TYPED(store_register)(TYPED(Register) a, REAL *to) {
    memcpy(to, &a, sizeof a);
}

#if HAS_AVX512
#define FIRST_LANES(count) ((1U << ((count) > 0 ? (count) : 0)) - 1)
#elif HAS_AVX2
/* All ones in the first count lanes, and 0 in the others. */
ALWAYS_INLINE __m256i TYPED(first_lanes)(ptrdiff_t count) {
    WORD number[TYPED(WIDTH)];
    for (int j = 0; j < TYPED(WIDTH); j++) number[j] = (WORD)j;
    TYPED(LaneWords) numbers;
    memcpy(&numbers, number, sizeof numbers);
    return (__m256i)((TYPED(LaneMask))numbers < (BITS)count - (TYPED(LaneMask)){0});
}
#endif

/* The first count lanes, and 0 in the others; count may be any number. */
ALWAYS_INLINE TYPED(Register) TYPED(load_first)(const REAL *x, ptrdiff_t count) {
    if (count >= TYPED(WIDTH)) return TYPED(load_register)(x);
#if HAS_AVX512 && IS_DOUBLE
    return _mm512_maskz_loadu_pd((__mmask8)FIRST_LANES(count), x);
#elif HAS_AVX512
    return _mm512_maskz_loadu_ps((__mmask16)FIRST_LANES(count), x);
#elif HAS_AVX2 && IS_DOUBLE
    return _mm256_maskload_pd(x, TYPED(first_lanes)(count));
#elif HAS_AVX2
    return _mm256_maskload_ps(x, TYPED(first_lanes)(count));
#else
    REAL some[TYPED(WIDTH)] = {0};
    for (ptrdiff_t j = 0; j < count; j++) some[j] = x[j];
    return TYPED(load_register)(some);
#endif
}

ALWAYS_INLINE void TYPED(store_first)(TYPED(Register) a, REAL *to, ptrdiff_t count) {
    if (count >= TYPED(WIDTH)) {
        TYPED(store_register)(a, to);
        return;
    }
#if HAS_AVX512 && IS_DOUBLE
    _mm512_mask_storeu_pd(to, (__mmask8)FIRST_LANES(count), a);
#elif HAS_AVX512
    _mm512_mask_storeu_ps(to, (__mmask16)FIRST_LANES(count), a);
#elif HAS_AVX2 && IS_DOUBLE
    _mm256_maskstore_pd(to, TYPED(first_lanes)(count), a);
#elif HAS_AVX2
    _mm256_maskstore_ps(to, TYPED(first_lanes)(count), a);
#else
    REAL some[TYPED(WIDTH)];
    TYPED(store_register)(a, some);
    for (ptrdiff_t j = 0; j < count; j++) to[j] = some[j];
#endif
}
#undef FIRST_LANES

ALWAYS_INLINE TYPED(Register) TYPED(root)(TYPED(Register) a) {
#if HAS_AVX512 && IS_DOUBLE
    return _mm512_sqrt_pd(a);
#elif HAS_AVX512
    return _mm512_sqrt_ps(a);
#elif HAS_AVX2 && IS_DOUBLE
    return _mm256_sqrt_pd(a);
#elif HAS_AVX2
    return _mm256_sqrt_ps(a);
#else
    REAL x[TYPED(WIDTH)];
    TYPED(store_register)(a, x);
    for (int j = 0; j < TYPED(WIDTH); j++) x[j] = SQRT(x[j]);
    return TYPED(load_register)(x);
#endif
}

/* x where a > b, y elsewhere. */
ALWAYS_INLINE TYPED(Register) TYPED(choose_above)(TYPED(Register) a, TYPED(Register) b,
                                                  TYPED(Register) x, TYPED(Register) y) {
#if HAS_AVX512 && IS_DOUBLE
    return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_GT_OQ), y, x);
#elif HAS_AVX512
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
#elif HAS_AVX2 && IS_DOUBLE
    return _mm256_blendv_pd(y, x, _mm256_cmp_pd(a, b, _CMP_GT_OQ));
#elif HAS_AVX2
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
#elif HAS_VECTOR_TYPES
    const TYPED(LaneMask) above = a > b;
    return (TYPED(Register))((above & (TYPED(LaneMask))x) | (~above & (TYPED(LaneMask))y));
#else
    return a > b ? x : y;
#endif
}

/* x where s is not 0, and 0 elsewhere. */
ALWAYS_INLINE TYPED(Register) TYPED(where_nonzero)(TYPED(Register) s, TYPED(Register) x) {
#if HAS_AVX512 && IS_DOUBLE
    return _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(s, _mm512_setzero_pd(), _CMP_NEQ_UQ), x);
#elif HAS_AVX512
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(s, _mm512_setzero_ps(), _CMP_NEQ_UQ), x);
#elif HAS_VECTOR_TYPES
    return (TYPED(Register))((TYPED(LaneMask))x & (s != (TYPED(Register)){0}));
#else
    return s != 0 ? x : (REAL)0;
#endif
}

/* a where it is above bound, and bound elsewhere, also where a is NaN. */
ALWAYS_INLINE TYPED(Register) TYPED(at_least)(TYPED(Register) a, REAL bound) {
#if HAS_AVX512 && IS_DOUBLE
    return _mm512_max_pd(a, _mm512_set1_pd(bound));
#elif HAS_AVX512
    return _mm512_max_ps(a, _mm512_set1_ps(bound));
#elif HAS_AVX2 && IS_DOUBLE
    return _mm256_max_pd(a, _mm256_set1_pd(bound));
#elif HAS_AVX2
    return _mm256_max_ps(a, _mm256_set1_ps(bound));
#elif HAS_VECTOR_TYPES
    const TYPED(Register) bounds = bound - (TYPED(Register)){0};
    const TYPED(LaneMask) above = a > bounds;
    return (TYPED(Register))((above & (TYPED(LaneMask))a) | (~above & (TYPED(LaneMask))bounds));
#else
    return TYPED(larger)(a, bound);
#endif
}

/* a where it is above b, and b elsewhere, also where a is NaN. */
ALWAYS_INLINE TYPED(Register) TYPED(larger_of)(TYPED(Register) a, TYPED(Register) b) {
#if HAS_AVX512 && IS_DOUBLE
    return _mm512_max_pd(a, b);
#elif HAS_AVX512
    return _mm512_max_ps(a, b);
#elif HAS_AVX2 && IS_DOUBLE
    return _mm256_max_pd(a, b);
#elif HAS_AVX2
    return _mm256_max_ps(a, b);
#else
    return TYPED(choose_above)(a, b, a, b);
#endif
}

/* Is any of them below bound? */
ALWAYS_INLINE bool TYPED(any_below)(TYPED(Register) a, REAL bound) {
#if HAS_AVX512 && !IS_DOUBLE
    return _mm512_cmp_ps_mask(a, _mm512_set1_ps(bound), _CMP_LT_OQ) != 0;
#elif HAS_AVX2 && !IS_DOUBLE
    return _mm256_movemask_ps(_mm256_cmp_ps(a, _mm256_set1_ps(bound), _CMP_LT_OQ)) != 0;
#elif HAS_AVX512
    return _mm512_cmp_pd_mask(a, _mm512_set1_pd(bound), _CMP_LT_OQ) != 0;
#elif HAS_AVX2
    return _mm256_movemask_pd(_mm256_cmp_pd(a, _mm256_set1_pd(bound), _CMP_LT_OQ)) != 0;
#else
    REAL lane[TYPED(WIDTH)];
    BITS below = 0;
    memcpy(lane, &a, sizeof lane);
    for (int j = 0; j < TYPED(WIDTH); j++) below |= lane[j] < bound;
    return below != 0;
#endif
}

/* x where a is below bound, y elsewhere. */
ALWAYS_INLINE TYPED(Register)
    TYPED(where_below)(TYPED(Register) a, REAL bound, TYPED(Register) x, TYPED(Register) y) {
#if HAS_VECTOR_TYPES
    const TYPED(LaneMask) below = a < bound;
    return (TYPED(Register))((below & (TYPED(LaneMask))x) | (~below & (TYPED(LaneMask))y));
#else
    return a < bound ? x : y;
#endif
}

/* All bits of the lanes where a > b, and none of the others; masks are combined by & | ~. */
ALWAYS_INLINE TYPED(LaneMask) TYPED(is_above)(TYPED(Register) a, TYPED(Register) b) {
#if HAS_VECTOR_TYPES
    return a > b;
#else
    return -(BITS)(a > b);
#endif
}

/* x in the lanes of the mask, y in the others. */
ALWAYS_INLINE TYPED(Register)
    TYPED(choose)(TYPED(LaneMask) mask, TYPED(Register) x, TYPED(Register) y) {
#if HAS_VECTOR_TYPES
    return (TYPED(Register))((mask & (TYPED(LaneMask))x) | (~mask & (TYPED(LaneMask))y));
#else
    return mask ? x : y;
#endif
}

ALWAYS_INLINE bool TYPED(any_lane)(TYPED(LaneMask) mask) {
#if HAS_AVX512
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif HAS_AVX2
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#else
    BITS lane[TYPED(WIDTH)], any = 0;
    memcpy(lane, &mask, sizeof lane);
    for (int j = 0; j < TYPED(WIDTH); j++) any |= lane[j];
    return any != 0;
#endif
}

/* b where it is below a, and a elsewhere. */
ALWAYS_INLINE TYPED(Register) TYPED(smaller_of)(TYPED(Register) a, TYPED(Register) b) {
    return -TYPED(larger_of)(-a, -b);
}

/* |a| */
ALWAYS_INLINE TYPED(Register) TYPED(size_of)(TYPED(Register) a) {
    return TYPED(larger_of)(a, -a);
}

/* The sum of all lanes, by halves. */
ALWAYS_INLINE REAL TYPED(sum_across)(TYPED(Register) a) {
#if HAS_VECTOR_TYPES
    enum { QUARTERS = REGISTER_BYTES / 16 };
    TYPED(Quarter) q[QUARTERS];
    memcpy(q, &a, sizeof q);
    for (int half = QUARTERS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) q[k] += q[k + half];
#if IS_DOUBLE
    return q[0][0] + q[0][1];
#else
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
#endif
#else
    return a;
#endif
}

#endif
