/* The steps along one row that mappings share: a template. */
#ifndef PYENTMAX_ROWS_STEPS_H
#define PYENTMAX_ROWS_STEPS_H

#include "rows/ahead.h"
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

/* Gaps of a row of at most LONGEST_SHORT scores, and OUTSIDE up to whole lanes. */
static inline void TYPED(short_gaps)(const REAL *restrict z, ptrdiff_t n, REAL largest, REAL scale,
                                     REAL *restrict x) {
    for (ptrdiff_t i = 0; i < n; i++) x[i] = (z[i] - largest) * scale;
    for (ptrdiff_t i = n; i < n + LANES; i++) x[i] = OUTSIDE;
}

/* The gaps of a row above floor; returns their number. */
static inline ptrdiff_t TYPED(keep_of_row)(const REAL *restrict z, ptrdiff_t n, REAL largest,
                                           REAL scale, REAL floor, REAL *restrict kept) {
    REAL x[LONGEST_SHORT + LANES];
    TYPED(short_gaps)(z, n, largest, scale, x);
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < n; i += LANES) size += TYPED(keep_above)(x + i, floor, kept + size);
    return size;
}

/* The reverse: values of what was kept of a row to their places, and zeros elsewhere; returns what
 * follows them. `kept` has room for LANES more. */
static inline const REAL *TYPED(spread_row)(const REAL *restrict z, ptrdiff_t n, REAL largest,
                                            REAL scale, REAL floor, const REAL *restrict kept,
                                            REAL *restrict p) {
    REAL x[LONGEST_SHORT + LANES], last[LANES];
    TYPED(short_gaps)(z, n, largest, scale, x);
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES) kept += TYPED(put_above)(x + i, floor, kept, p + i);
    if (i == n) return kept;
    kept += TYPED(put_above)(x + i, floor, kept, last);
    memcpy(p + i, last, (size_t)(n - i) * sizeof(REAL));
    return kept;
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

/* Moments of the columns of a tile. */
typedef struct {
    REAL squares[BLOCK], sum[BLOCK], size[BLOCK];
} TYPED(BlockMoments);

/* The support size, sum [u]+ and, if asked for, sum [u]+^2 for u = x + t, each column with its own
 * t. Sums over LANES entries are added up apart, so that rounding grows with n/LANES. */
ALWAYS_INLINE void TYPED(block_moments)(const REAL *restrict tile, ptrdiff_t n,
                                        const REAL *restrict t, const bool squared, Ahead *ahead,
                                        TYPED(BlockMoments) *restrict total) {
    const REGISTER none = {0};
    REGISTER all_squares[TILE_REGISTERS], all_sum[TILE_REGISTERS];
    MASK outside[TILE_REGISTERS];
    Ahead mine = ahead ? *ahead : (Ahead){0};
    for (int k = 0; k < TILE_REGISTERS; k++) {
        all_squares[k] = all_sum[k] = none;
        outside[k] = (MASK){0};
    }
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t end = n - start < LANES ? n : start + LANES;
        REGISTER squares[TILE_REGISTERS], sum[TILE_REGISTERS];
        for (int k = 0; k < TILE_REGISTERS; k++) squares[k] = sum[k] = none;
        for (ptrdiff_t i = start; i < end; i++) {
            if (ahead && i & 1) prefetch_lines(&mine, 1); /* asking more often gains nothing */
            for (int k = 0; k < TILE_REGISTERS; k++) {
                REGISTER u = TYPED(load_register)(tile + i * BLOCK + k * WIDTH)
                             + TYPED(load_register)(t + k * WIDTH);
                /* An entry at the threshold may count either way. A float's sign bit costs less
                 * than a comparison; few vector units can shift that of doubles. */
                outside[k] += IS_DOUBLE ? u < none : (MASK)u >> 31;
                u = TYPED(at_least)(u, 0);
                sum[k] += u;
                if (squared) squares[k] += u * u;
            }
        }
        for (int k = 0; k < TILE_REGISTERS; k++) {
            all_sum[k] += sum[k];
            if (squared) all_squares[k] += squares[k];
        }
    }
    for (int k = 0; k < TILE_REGISTERS; k++) {
        BITS less[WIDTH];
        memcpy(less, outside + k, sizeof less);
        TYPED(store_register)(all_sum[k], total->sum + k * WIDTH);
        TYPED(store_register)(all_squares[k], total->squares + k * WIDTH);
        for (int j = 0; j < WIDTH; j++) total->size[k * WIDTH + j] = (REAL)((BITS)n + less[j]);
    }
    if (ahead) *ahead = mine;
}

/* The same of a row of whole pairs of lanes, as a tile whose columns are then added up: rounding
 * grows with LEAF, LANES of its entries, and LEAVES, of which the sums are, not with n. */
ALWAYS_INLINE Moments TYPED(moments)(const REAL *x, ptrdiff_t n, REAL t, const bool squared) {
    REAL each_t[BLOCK];
    Moments all = {0, 0, 0};
    for (int j = 0; j < BLOCK; j++) each_t[j] = t;
    for (ptrdiff_t from = 0; from < n; from += LEAVES * LEAF) {
        const ptrdiff_t count = n - from < LEAVES * LEAF ? n - from : LEAVES * LEAF;
        TYPED(BlockMoments) some;
        TYPED(block_moments)(x + from, count / BLOCK, each_t, squared, NULL, &some);
        if (squared) all.squares += TYPED(pair_sum)(some.squares);
        all.sum += TYPED(pair_sum)(some.sum);
        all.size += TYPED(pair_sum)(some.size);
    }
    return all;
}

#endif
