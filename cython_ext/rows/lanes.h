/* What is done across the LANES of a vector: a template.
 *
 * Sums and maxima are taken by halves, which compilers turn into a few shuffles. Only to keep some
 * lanes and drop the others has no form in C that they recognise, so that one is written out for
 * the instruction sets that have a way to do it.
 */
#ifndef PYENTMAX_ROWS_LANES_H
#define PYENTMAX_ROWS_LANES_H

#include "rows/sizes.h"

#define TEMPLATE "rows/lanes.h"
#include "float_and_double.h"

#elif defined(REAL)

static inline REAL TYPED(lane_sum)(const REAL *lane) {
    REAL half[LANES / 2], quarter[LANES / 4];
    for (int j = 0; j < LANES / 2; j++) half[j] = lane[j] + lane[j + LANES / 2];
    for (int j = 0; j < LANES / 4; j++) quarter[j] = half[j] + half[j + LANES / 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

static inline REAL TYPED(pair_sum)(const REAL *pair) {
    REAL lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = pair[j] + pair[j + LANES];
    return TYPED(lane_sum)(lane);
}

/* 1 for u < 0, 0 for u > 0. An entry at the threshold, u = 0, may count either way. A float's sign
 * bit costs less than a comparison; to shift doubles to the right, sign and all, few vector units
 * can. */
static inline BITS TYPED(is_negative)(REAL u) {
#if IS_DOUBLE
    return u < 0;
#else
    BITS bits;
    memcpy(&bits, &u, sizeof bits);
    return -(bits >> (8 * (int)sizeof bits - 1));
#endif
}

static inline REAL TYPED(larger)(REAL a, REAL b) {
    return a > b ? a : b;
}

static inline REAL TYPED(smaller)(REAL a, REAL b) {
    return a < b ? a : b;
}

static inline REAL TYPED(lane_max)(const REAL *lane) {
    REAL half[LANES / 2], quarter[LANES / 4];
    for (int j = 0; j < LANES / 2; j++) half[j] = TYPED(larger)(lane[j], lane[j + LANES / 2]);
    for (int j = 0; j < LANES / 4; j++) quarter[j] = TYPED(larger)(half[j], half[j + LANES / 4]);
    return TYPED(larger)(TYPED(larger)(quarter[0], quarter[2]),
                         TYPED(larger)(quarter[1], quarter[3]));
}

/* Copy those of x[0 .. LANES) that exceed floor to the front of `to`, in order; return their
 * number. What lies behind them, up to LANES values from `to` on, is overwritten. `to` may be x or
 * lie before it. */
static inline ptrdiff_t TYPED(keep_above)(const REAL *x, REAL floor, REAL *to);

/* The same, with the indices of what is kept, from `indices`. `to` and `indices_to` lie
 * apart from x and indices. */
static inline ptrdiff_t TYPED(keep_with_indices)(const REAL *x, REAL floor, const int32_t *indices,
                                                 REAL *to, int32_t *indices_to);

/* The reverse: write the values at `from`, in order, to where x exceeds floor, and 0 elsewhere;
 * return how many were taken. Up to LANES values are read. */
static inline ptrdiff_t TYPED(put_above)(const REAL *x, REAL floor, const REAL *from, REAL *to);

/* Is any of x[0 .. LANES) above floor? A NaN is not, and hides no other lane. */
static inline bool TYPED(any_above)(const REAL *x, REAL floor);

#if HAS_AVX512 && !IS_DOUBLE

static inline ptrdiff_t TYPED(keep_above)(const REAL *x, REAL floor, REAL *to) {
    const __m512 lanes = _mm512_loadu_ps(x);
    const __mmask16 above = _mm512_cmp_ps_mask(lanes, _mm512_set1_ps(floor), _CMP_GT_OQ);
    if (above == 0xffff) { /* much the faster, and a dense row is made of it */
        _mm512_storeu_ps(to, lanes);
        return LANES;
    }
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(above, lanes));
    return __builtin_popcount(above);
}

static inline ptrdiff_t TYPED(keep_with_indices)(const REAL *x, REAL floor, const int32_t *indices,
                                                 REAL *to, int32_t *indices_to) {
    const __m512 lanes = _mm512_loadu_ps(x);
    const __mmask16 above = _mm512_cmp_ps_mask(lanes, _mm512_set1_ps(floor), _CMP_GT_OQ);
    if (above == 0) return 0;
    const __m512i kept_from = _mm512_loadu_si512(indices);
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(above, lanes));
    _mm512_storeu_si512(indices_to, _mm512_maskz_compress_epi32(above, kept_from));
    return __builtin_popcount(above);
}

static inline ptrdiff_t TYPED(put_above)(const REAL *x, REAL floor, const REAL *from, REAL *to) {
    const __mmask16 above = _mm512_cmp_ps_mask(_mm512_loadu_ps(x), _mm512_set1_ps(floor),
                                               _CMP_GT_OQ);
    _mm512_storeu_ps(to, _mm512_maskz_expand_ps(above, _mm512_loadu_ps(from)));
    return __builtin_popcount(above);
}

static inline bool TYPED(any_above)(const REAL *x, REAL floor) {
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(x), _mm512_set1_ps(floor), _CMP_GT_OQ) != 0;
}

#elif HAS_AVX512

static inline ptrdiff_t TYPED(keep_above)(const REAL *x, REAL floor, REAL *to) {
    const __m512d bound = _mm512_set1_pd(floor);
    const __m512d low = _mm512_loadu_pd(x), high = _mm512_loadu_pd(x + LANES / 2);
    const __mmask8 low_above = _mm512_cmp_pd_mask(low, bound, _CMP_GT_OQ);
    const __mmask8 high_above = _mm512_cmp_pd_mask(high, bound, _CMP_GT_OQ);
    const ptrdiff_t low_count = __builtin_popcount(low_above);
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(low_above, low));
    _mm512_storeu_pd(to + low_count, _mm512_maskz_compress_pd(high_above, high));
    return low_count + __builtin_popcount(high_above);
}

static inline ptrdiff_t TYPED(keep_with_indices)(const REAL *x, REAL floor, const int32_t *indices,
                                                 REAL *to, int32_t *indices_to) {
    const __m512d bound = _mm512_set1_pd(floor);
    const __m512d low = _mm512_loadu_pd(x), high = _mm512_loadu_pd(x + LANES / 2);
    const __mmask8 low_above = _mm512_cmp_pd_mask(low, bound, _CMP_GT_OQ);
    const __mmask8 high_above = _mm512_cmp_pd_mask(high, bound, _CMP_GT_OQ);
    if ((low_above | high_above) == 0) return 0;
    const __mmask16 above = (__mmask16)(low_above | (unsigned)high_above << 8);
    const ptrdiff_t low_count = __builtin_popcount(low_above);
    const __m512i kept_from = _mm512_loadu_si512(indices);
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(low_above, low));
    _mm512_storeu_pd(to + low_count, _mm512_maskz_compress_pd(high_above, high));
    _mm512_storeu_si512(indices_to, _mm512_maskz_compress_epi32(above, kept_from));
    return __builtin_popcount(above);
}

static inline bool TYPED(any_above)(const REAL *x, REAL floor) {
    const __m512d bound = _mm512_set1_pd(floor);
    return (_mm512_cmp_pd_mask(_mm512_loadu_pd(x), bound, _CMP_GT_OQ)
            | _mm512_cmp_pd_mask(_mm512_loadu_pd(x + LANES / 2), bound, _CMP_GT_OQ))
           != 0;
}

#elif HAS_AVX2 && !IS_DOUBLE

/* Where the lanes that a mask keeps come from, a byte each: pdep makes a byte of ones of each bit
 * of the mask, pext collects the indices of those lanes. */
static inline __m256i TYPED(kept_lanes)(unsigned mask) {
    const uint64_t bytes = _pdep_u64(mask, 0x0101010101010101u) * 0xff;
    return _mm256_cvtepu8_epi32(
        _mm_cvtsi64_si128((long long)_pext_u64(0x0706050403020100u, bytes)));
}

static inline ptrdiff_t TYPED(keep_above)(const REAL *x, REAL floor, REAL *to) {
    const __m256 bound = _mm256_set1_ps(floor);
    const __m256 low = _mm256_loadu_ps(x), high = _mm256_loadu_ps(x + 8);
    const unsigned low_above = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(low, bound, _CMP_GT_OQ));
    const unsigned high_above = (unsigned)_mm256_movemask_ps(
        _mm256_cmp_ps(high, bound, _CMP_GT_OQ));
    if ((low_above | high_above) == 0) return 0;
    if ((low_above & high_above) == 0xff) { /* much the faster, and a dense row is made of it */
        _mm256_storeu_ps(to, low);
        _mm256_storeu_ps(to + 8, high);
        return LANES;
    }
    const ptrdiff_t low_count = __builtin_popcount(low_above);
    _mm256_storeu_ps(to, _mm256_permutevar8x32_ps(low, TYPED(kept_lanes)(low_above)));
    _mm256_storeu_ps(to + low_count, _mm256_permutevar8x32_ps(high, TYPED(kept_lanes)(high_above)));
    return low_count + __builtin_popcount(high_above);
}

static inline ptrdiff_t TYPED(keep_with_indices)(const REAL *x, REAL floor, const int32_t *indices,
                                                 REAL *to, int32_t *indices_to) {
    const __m256 bound = _mm256_set1_ps(floor);
    ptrdiff_t size = 0;
    for (int j = 0; j < LANES; j += 8) {
        const __m256 lanes = _mm256_loadu_ps(x + j);
        const __m256i kept_from = _mm256_loadu_si256((const __m256i *)(indices + j));
        const unsigned above = (unsigned)_mm256_movemask_ps(
            _mm256_cmp_ps(lanes, bound, _CMP_GT_OQ));
        if (above == 0) continue;
        const __m256i kept = TYPED(kept_lanes)(above);
        _mm256_storeu_ps(to + size, _mm256_permutevar8x32_ps(lanes, kept));
        _mm256_storeu_si256((__m256i *)(indices_to + size),
                            _mm256_permutevar8x32_epi32(kept_from, kept));
        size += __builtin_popcount(above);
    }
    return size;
}

static inline ptrdiff_t TYPED(put_above)(const REAL *x, REAL floor, const REAL *from, REAL *to) {
    ptrdiff_t size = 0;
    for (int j = 0; j < LANES; j += 8) {
        const __m256 above = _mm256_cmp_ps(_mm256_loadu_ps(x + j), _mm256_set1_ps(floor),
                                           _CMP_GT_OQ);
        const unsigned mask = (unsigned)_mm256_movemask_ps(above);
        /* the place in `from` of each lane that is kept: 0, 1, ... where the mask has a byte of
         * ones */
        const uint64_t bytes = _pdep_u64(mask, 0x0101010101010101u) * 0xff;
        const uint64_t places = _pdep_u64(0x0706050403020100u, bytes);
        const __m256i lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)places));
        const __m256 values = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from + size), lanes);
        _mm256_storeu_ps(to + j, _mm256_and_ps(values, above));
        size += __builtin_popcount(mask);
    }
    return size;
}

static inline bool TYPED(any_above)(const REAL *x, REAL floor) {
    const __m256 bound = _mm256_set1_ps(floor);
    const __m256 low = _mm256_cmp_ps(_mm256_loadu_ps(x), bound, _CMP_GT_OQ);
    const __m256 high = _mm256_cmp_ps(_mm256_loadu_ps(x + 8), bound, _CMP_GT_OQ);
    return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
}

#else

#if HAS_AVX2

static inline bool TYPED(any_above)(const REAL *x, REAL floor) {
    const __m256d bound = _mm256_set1_pd(floor);
    __m256d above = _mm256_cmp_pd(_mm256_loadu_pd(x), bound, _CMP_GT_OQ);
    for (int j = 4; j < LANES; j += 4)
        above = _mm256_or_pd(above, _mm256_cmp_pd(_mm256_loadu_pd(x + j), bound, _CMP_GT_OQ));
    return _mm256_movemask_pd(above) != 0;
}

#else

static inline bool TYPED(any_above)(const REAL *x, REAL floor) {
    REAL lifted[LANES]; /* without a NaN, whose maximum with a number depends on their order */
    for (int j = 0; j < LANES; j++) lifted[j] = TYPED(larger)(x[j], floor);
    return TYPED(lane_max)(lifted) > floor;
}

#endif

static inline ptrdiff_t TYPED(keep_above)(const REAL *x, REAL floor, REAL *to) {
    if (!TYPED(any_above)(x, floor)) return 0; /* in a long row, most often */
    ptrdiff_t size = 0;
    for (int j = 0; j < LANES; j++) {
        const REAL entry = x[j];
        to[size] = entry;
        size += entry > floor;
    }
    return size;
}

#endif

#if !HAS_AVX512 && (!HAS_AVX2 || IS_DOUBLE)

static inline ptrdiff_t TYPED(keep_with_indices)(const REAL *x, REAL floor, const int32_t *indices,
                                                 REAL *to, int32_t *indices_to) {
    if (!TYPED(any_above)(x, floor)) return 0;
    ptrdiff_t size = 0;
    for (int j = 0; j < LANES; j++) {
        to[size] = x[j];
        indices_to[size] = indices[j];
        size += x[j] > floor;
    }
    return size;
}

#endif

#if (!HAS_AVX512 && !HAS_AVX2) || IS_DOUBLE

static inline ptrdiff_t TYPED(put_above)(const REAL *x, REAL floor, const REAL *from, REAL *to) {
    if (!TYPED(any_above)(x, floor)) { /* in a long row, most often */
        for (int j = 0; j < LANES; j++) to[j] = 0;
        return 0;
    }
    ptrdiff_t size = 0;
    for (int j = 0; j < LANES; j++) {
        const REAL value = from[size];
        to[j] = x[j] > floor ? value : (REAL)0;
        size += x[j] > floor;
    }
    return size;
}

#endif

#endif
