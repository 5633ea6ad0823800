/* What is done across the LANES of a vector: a template.
 *
 * Sums and maxima are taken by halves, which compilers turn into a few shuffles. Some lanes are
 * kept and the others dropped by a register where the instruction set has a way to do it, and
 * otherwise one by one.
 */
#ifndef PYENTMAX_ROWS_LANES_H
#define PYENTMAX_ROWS_LANES_H

#include "rows/vectors.h"

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

/* Is any of x[0 .. LANES) above floor? A NaN is not, and hides no other lane. */
static inline bool TYPED(any_above)(const REAL *x, REAL floor) {
    MASK any = {0};
    for (int j = 0; j < LANES; j += WIDTH) any |= TYPED(load_register)(x + j) > floor;
    return TYPED(any_lane)(any);
}

/* Copy those of x[0 .. LANES) that exceed floor to the front of `to`, in order; return their
 * number. What lies behind them, up to LANES values from `to` on, is overwritten. `to` may be x or
 * lie before it. */
static inline ptrdiff_t TYPED(keep_above)(const REAL *x, REAL floor, REAL *to) {
    ptrdiff_t size = 0;
#if HAS_AVX512 || HAS_AVX2
    const unsigned all_lanes = (1U << WIDTH) - 1;
    REGISTER lanes[REGISTERS];
    unsigned above[REGISTERS], any = 0, all = all_lanes;
    for (int k = 0; k < REGISTERS; k++) {
        lanes[k] = TYPED(load_register)(x + k * WIDTH);
        above[k] = TYPED(bits_above)(lanes[k], floor - (REGISTER){0});
        any |= above[k];
        all &= above[k];
    }
    if (REGISTERS > 1 && any == 0) return 0;
    if (all == all_lanes) { /* much the faster, and a dense row is made of it */
        for (int k = 0; k < REGISTERS; k++) TYPED(store_register)(lanes[k], to + k * WIDTH);
        return LANES;
    }
    for (int k = 0; k < REGISTERS; k++) {
        TYPED(store_register)(TYPED(to_front)(lanes[k], above[k]), to + size);
        size += __builtin_popcount(above[k]);
    }
#else
    if (!TYPED(any_above)(x, floor)) return 0; /* in a long row, most often */
    for (int j = 0; j < LANES; j++) {
        const REAL entry = x[j];
        to[size] = entry;
        size += entry > floor;
    }
#endif
    return size;
}

/* The same, with the indices of what is kept, from `indices`. `to` and `indices_to` lie
 * apart from x and indices. */
static inline ptrdiff_t TYPED(keep_with_indices)(const REAL *x, REAL floor, const int32_t *indices,
                                                 REAL *to, int32_t *indices_to) {
    ptrdiff_t size = 0;
#if HAS_AVX512 || (HAS_AVX2 && !IS_DOUBLE)
    for (int j = 0; j < LANES; j += WIDTH) {
        const REGISTER lanes = TYPED(load_register)(x + j);
        const unsigned above = TYPED(bits_above)(lanes, floor - (REGISTER){0});
        if (above == 0) continue;
        const void *from = indices + j;
        int32_t *kept = indices_to + size;
        TYPED(store_register)(TYPED(to_front)(lanes, above), to + size);
#if IS_DOUBLE
        _mm256_storeu_si256((void *)kept,
                            _mm256_maskz_compress_epi32(above, _mm256_loadu_si256(from)));
#elif HAS_AVX512
        _mm512_storeu_si512(kept, _mm512_maskz_compress_epi32(above, _mm512_loadu_si512(from)));
#else
        REGISTER numbers; /* which are moved, not looked at */
        memcpy(&numbers, from, sizeof numbers);
        numbers = TYPED(to_front)(numbers, above);
        memcpy(kept, &numbers, sizeof numbers);
#endif
        size += __builtin_popcount(above);
    }
#else
    if (!TYPED(any_above)(x, floor)) return 0;
    for (int j = 0; j < LANES; j++) {
        to[size] = x[j];
        indices_to[size] = indices[j];
        size += x[j] > floor;
    }
#endif
    return size;
}

/* The reverse: write the values at `from`, in order, to where x exceeds floor, and 0 elsewhere;
 * return how many were taken. Up to LANES values are read. */
static inline ptrdiff_t TYPED(put_above)(const REAL *x, REAL floor, const REAL *from, REAL *to) {
    ptrdiff_t size = 0;
#if HAS_AVX512 || HAS_AVX2
    for (int j = 0; j < LANES; j += WIDTH) {
        const unsigned above = TYPED(bits_above)(TYPED(load_register)(x + j),
                                                 floor - (REGISTER){0});
        const REGISTER values = TYPED(load_register)(from + size);
        TYPED(store_register)(TYPED(from_front)(values, above), to + j);
        size += __builtin_popcount(above);
    }
#else
    if (!TYPED(any_above)(x, floor)) { /* in a long row, most often */
        for (int j = 0; j < LANES; j++) to[j] = 0;
        return 0;
    }
    for (int j = 0; j < LANES; j++) {
        const REAL value = from[size];
        to[j] = x[j] > floor ? value : (REAL)0;
        size += x[j] > floor;
    }
#endif
    return size;
}

#endif
