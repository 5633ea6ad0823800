/* The steps along one row that mappings share: a template. */
#ifndef PYENTMAX_ROWS_STEPS_H
#define PYENTMAX_ROWS_STEPS_H

#include "rows/lanes.h"

/* Of [x + t]+ over a row: the sums of squares and of values, and how many are positive. */
typedef struct {
    double squares, sum, size;
} Moments;

#define TEMPLATE "rows/steps.h"
#include "float_and_double.h"

#elif defined(REAL)

static void TYPED(fill)(REAL *p, ptrdiff_t n, REAL value) {
    for (ptrdiff_t i = 0; i < n; i++) p[i] = value;
}

/* The largest entries of the row, LANES for each CHUNK of it: lane j has that of every LANES-th
 * entry from the j-th on. Returns the largest of all, or NaN if there is one.
 *
 * A comparison passes over a NaN, a sum does not: sums of entries so scaled down that finite ones
 * cannot overflow become NaN by a NaN, or by +inf and -inf, and +inf makes a row NaN as well. */
static REAL TYPED(chunk_maxima)(const REAL *restrict z, ptrdiff_t n, REAL *restrict maxima) {
    REAL largest[LANES], nans[2 * LANES] = {0};
    for (int j = 0; j < LANES; j++) largest[j] = -(REAL)INFINITY;
    for (ptrdiff_t start = 0; start < n; start += CHUNK, maxima += LANES) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        REAL top[2 * LANES];
        for (int j = 0; j < 2 * LANES; j++) top[j] = -(REAL)INFINITY;
        ptrdiff_t i = start;
        for (; i + 2 * LANES <= end; i += 2 * LANES)
            for (int j = 0; j < 2 * LANES; j++) { /* two of each lane, so that they overlap */
                const REAL entry = z[i + j];
                top[j] = TYPED(larger)(entry, top[j]);
                nans[j] += entry * TINY_SCALE;
            }
        for (; i < end; i++) {
            const ptrdiff_t j = (i - start) % LANES;
            top[j] = TYPED(larger)(z[i], top[j]);
            nans[j] += z[i] * TINY_SCALE;
        }
        for (int j = 0; j < LANES; j++) {
            maxima[j] = TYPED(larger)(top[j], top[j + LANES]);
            largest[j] = TYPED(larger)(maxima[j], largest[j]);
        }
    }
    for (int j = 0; j < LANES; j++) nans[j] += nans[j + LANES];
    const REAL nan = TYPED(lane_sum)(nans);
    return nan != nan ? nan : TYPED(lane_max)(largest);
}

/* A row with nothing but -inf gives zeros, one with +inf or NaN gives NaN. */
static bool TYPED(fill_degenerate_row)(REAL *restrict p, ptrdiff_t n, REAL largest) {
    if (largest > -(REAL)INFINITY && largest < (REAL)INFINITY) return false;
    TYPED(fill)(p, n, largest < 0 ? (REAL)0 : (REAL)NAN);
    return true;
}

/* Is there anything but zeros, a NaN say? Most rows tell at once. */
static inline bool TYPED(any_nonzero)(const REAL *x, ptrdiff_t n) {
    for (ptrdiff_t start = 0; start < n; start += 4 * LANES) {
        const ptrdiff_t end = n - start < 4 * LANES ? n : start + 4 * LANES;
        BITS found = 0;
        for (ptrdiff_t i = start; i < end; i++) found |= x[i] != 0;
        if (found) return true;
    }
    return false;
}

/* The support size, sum [u]+ and, if asked for, sum [u]+^2 for u = x + t; n is a whole number of
 * lanes. Each LEAF of entries is added up apart, and each LEAVES of these, so that rounding grows
 * with LEAF and LEAVES, not with n. */
ALWAYS_INLINE Moments TYPED(moments)(const REAL *x, ptrdiff_t n, REAL t, const bool squared) {
    BITS outside[PAIR] = {0};
    Moments all = {0, 0, 0};
    const REAL zero = (REAL)(n < 0); /* a literal 0 makes two AVX-512 instructions of one maximum */
    for (ptrdiff_t from = 0; from < n; from += LEAVES * LEAF) {
        const ptrdiff_t to = n - from < LEAVES * LEAF ? n : from + LEAVES * LEAF;
        REAL all_squares[PAIR] = {0}, all_sum[PAIR] = {0};
        for (ptrdiff_t start = from; start < to; start += LEAF) {
            const ptrdiff_t end = to - start < LEAF ? to : start + LEAF;
            REAL squares[PAIR] = {0}, sum[PAIR] = {0};
            for (ptrdiff_t i = start; i < end; i += PAIR)
                for (int j = 0; j < PAIR; j++) {
                    REAL u = x[i + j] + t;
                    outside[j] += TYPED(is_negative)(u);
                    u = TYPED(larger)(u, zero);
                    sum[j] += u;
                    if (squared) squares[j] += u * u;
                }
            for (int j = 0; j < PAIR; j++) {
                all_sum[j] += sum[j];
                if (squared) all_squares[j] += squares[j];
            }
        }
        all.squares += TYPED(pair_sum)(all_squares);
        all.sum += TYPED(pair_sum)(all_sum);
    }
    ptrdiff_t size = n;
    for (int j = 0; j < PAIR; j++) size -= outside[j];
    all.size = (double)size;
    return all;
}

#endif
