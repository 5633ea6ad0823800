/* LANES numbers as one value: a template.
 *
 * Most loops are left to the compiler. Where several sums and choices have to stay in registers at
 * once, it loses its way; their steps are written with these.
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
typedef REAL TYPED(Quarter) __attribute__((vector_size(LANES / 4 * sizeof(REAL))));
#else
typedef REAL TYPED(Register);
typedef BITS TYPED(LaneMask);
typedef WORD TYPED(LaneWords);
#endif

enum {
    TYPED(WIDTH) = sizeof(TYPED(Register)) / sizeof(REAL),
    TYPED(REGISTERS) = LANES / TYPED(WIDTH),
};

typedef struct {
    TYPED(Register) part[TYPED(REGISTERS)];
} TYPED(Lanes);

/* Register by register: what is copied together GCC keeps in memory. */
ALWAYS_INLINE TYPED(Lanes) TYPED(load)(const REAL *x) {
    TYPED(Lanes) a;
    for (int k = 0; k < TYPED(REGISTERS); k++)
        memcpy(&a.part[k], x + k * TYPED(WIDTH), sizeof a.part[k]);
    return a;
}

ALWAYS_INLINE void TYPED(store)(TYPED(Lanes) a, REAL *to) {
    for (int k = 0; k < TYPED(REGISTERS); k++)
        memcpy(to + k * TYPED(WIDTH), &a.part[k], sizeof a.part[k]);
}

#if HAS_AVX2 && !HAS_AVX512
/* All ones in the first count lanes of the k-th register, and 0 in the others. */
ALWAYS_INLINE __m256i TYPED(first_lanes)(ptrdiff_t count, int k) {
    WORD number[TYPED(WIDTH)];
    for (int j = 0; j < TYPED(WIDTH); j++) number[j] = (WORD)(k * TYPED(WIDTH) + j);
    TYPED(LaneWords) numbers;
    memcpy(&numbers, number, sizeof numbers);
    return (__m256i)((TYPED(LaneMask))numbers < (BITS)count - (TYPED(LaneMask)){0});
}
#endif

/* The first count lanes, and 0 in the others. */
ALWAYS_INLINE TYPED(Lanes) TYPED(load_some)(const REAL *x, ptrdiff_t count) {
    if (count == LANES) return TYPED(load)(x);
#if HAS_AVX2 && !HAS_AVX512
    TYPED(Lanes) a;
    for (int k = 0; k < TYPED(REGISTERS); k++) {
        const __m256i some = TYPED(first_lanes)(count, k);
#if IS_DOUBLE
        a.part[k] = _mm256_maskload_pd(x + k * TYPED(WIDTH), some);
#else
        a.part[k] = _mm256_maskload_ps(x + k * TYPED(WIDTH), some);
#endif
    }
    return a;
#else
    REAL some[LANES];
    for (int j = 0; j < LANES; j++) some[j] = j < count ? x[j] : (REAL)0;
    return TYPED(load)(some);
#endif
}

ALWAYS_INLINE void TYPED(store_some)(TYPED(Lanes) a, REAL *to, ptrdiff_t count) {
    if (count == LANES) {
        TYPED(store)(a, to);
        return;
    }
#if HAS_AVX2 && !HAS_AVX512
    for (int k = 0; k < TYPED(REGISTERS); k++) {
        const __m256i some = TYPED(first_lanes)(count, k);
#if IS_DOUBLE
        _mm256_maskstore_pd(to + k * TYPED(WIDTH), some, a.part[k]);
#else
        _mm256_maskstore_ps(to + k * TYPED(WIDTH), some, a.part[k]);
#endif
    }
#else
    REAL some[LANES];
    TYPED(store)(a, some);
    for (int j = 0; j < LANES; j++)
        if (j < count) to[j] = some[j];
#endif
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

ALWAYS_INLINE TYPED(Lanes)
    TYPED(where_above)(TYPED(Lanes) a, TYPED(Lanes) b, TYPED(Lanes) x, TYPED(Lanes) y) {
    for (int k = 0; k < TYPED(REGISTERS); k++)
        y.part[k] = TYPED(choose_above)(a.part[k], b.part[k], x.part[k], y.part[k]);
    return y;
}

/* x where s is not 0, and 0 elsewhere. */
ALWAYS_INLINE TYPED(Register) TYPED(beside_nonzero)(TYPED(Register) s, TYPED(Register) x) {
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

ALWAYS_INLINE TYPED(Lanes) TYPED(where_nonzero)(TYPED(Lanes) s, TYPED(Lanes) x) {
    for (int k = 0; k < TYPED(REGISTERS); k++)
        x.part[k] = TYPED(beside_nonzero)(s.part[k], x.part[k]);
    return x;
}

/* Is any lane above bound? */
ALWAYS_INLINE bool TYPED(any_lane_above)(TYPED(Lanes) a, REAL bound) {
#if HAS_AVX512 && !IS_DOUBLE
    return _mm512_cmp_ps_mask(a.part[0], _mm512_set1_ps(bound), _CMP_GT_OQ) != 0;
#elif HAS_AVX2 && !IS_DOUBLE
    const __m256 bounds = _mm256_set1_ps(bound);
    return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a.part[0], bounds, _CMP_GT_OQ),
                                           _mm256_cmp_ps(a.part[1], bounds, _CMP_GT_OQ)))
           != 0;
#else
    REAL lane[LANES];
    TYPED(store)(a, lane);
    return TYPED(any_above)(lane, bound);
#endif
}

/* A loop that carries several sums along takes the registers of LANES numbers one by one: GCC moves
 * a struct of them through memory. Operators, of which one side may be a number, do the same in
 * each lane. */
ALWAYS_INLINE TYPED(Register) TYPED(load_register)(const REAL *x) {
    TYPED(Register) a;
    memcpy(&a, x, sizeof a);
    return a;
}

ALWAYS_INLINE void TYPED(store_register)(TYPED(Register) a, REAL *to) {
    memcpy(to, &a, sizeof a);
}

/* a where it is above bound, and bound elsewhere, beside a NaN too. */
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

/* a where it is above b, and b elsewhere, beside a NaN too. */
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

/* The sum of all lanes, in the order of lane_sum, and the largest of them: by halves, down to the
 * four numbers of a Quarter. Registers are added while there are several; to copy all of them
 * together would have GCC keep them in memory. */
#if HAS_VECTOR_TYPES
enum {
    TYPED(REGISTERS_LEFT) = TYPED(WIDTH) < LANES / 4 ? LANES / 4 / TYPED(WIDTH) : 1,
    TYPED(QUARTERS_LEFT) = TYPED(WIDTH) < LANES / 4 ? 1 : TYPED(WIDTH) / (LANES / 4),
};

ALWAYS_INLINE REAL TYPED(sum_across)(TYPED(Lanes) a) {
    for (int half = TYPED(REGISTERS) / 2; half >= TYPED(REGISTERS_LEFT); half /= 2)
        for (int k = 0; k < half; k++) a.part[k] += a.part[k + half];
    TYPED(Quarter) q[TYPED(QUARTERS_LEFT)];
    memcpy(q, a.part, sizeof q);
    for (int half = TYPED(QUARTERS_LEFT) / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) q[k] += q[k + half];
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

ALWAYS_INLINE REAL TYPED(max_across)(TYPED(Lanes) a) {
    typedef BITS Mask __attribute__((vector_size(sizeof(TYPED(Quarter)))));
    for (int half = TYPED(REGISTERS) / 2; half >= TYPED(REGISTERS_LEFT); half /= 2)
        for (int k = 0; k < half; k++) {
            const TYPED(Register) other = a.part[k + half];
            a.part[k] = TYPED(choose_above)(a.part[k], other, a.part[k], other);
        }
    TYPED(Quarter) q[TYPED(QUARTERS_LEFT)];
    memcpy(q, a.part, sizeof q);
    for (int half = TYPED(QUARTERS_LEFT) / 2; half > 0; half /= 2)
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
