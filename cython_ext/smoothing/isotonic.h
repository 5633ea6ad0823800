/* Isotonic regression, of which oscarmax, soft sorting, ranks and top-k are made: scores are
 * sorted, and what rises of a sequence is pooled into means. That is all in double; where it comes
 * from is in pyentmax/reference/mappings/oscarmax.py, whose textbook pools as this does. A
 * template.
 */
#ifndef PYENTMAX_SMOOTHING_ISOTONIC_H
#define PYENTMAX_SMOOTHING_ISOTONIC_H

#include "elementary/sort_keys.h"
#include "rows/doubles.h"

/* Up to so many are sorted by counting those that come before each. */
#define SORTED_BY_COUNTING 128

/* Adjacent entries pooled, from start on, and their mean. */
typedef struct {
    double mean, size;
    ptrdiff_t start;
} Pool;

/* Add a pool to a falling sequence of `count`: one whose mean lies above that of the one before is
 * pooled with it, in whatever order. Returns the number of pools. */
static inline ptrdiff_t add_pool(Pool pool, Pool *pools, ptrdiff_t count) {
    for (; count > 0 && pool.mean > pools[count - 1].mean; count--) {
        const Pool before = pools[count - 1];
        const double size = pool.size + before.size;
        pool.mean = before.mean + (pool.mean - before.mean) * (pool.size / size);
        pool.size = size;
        pool.start = before.start;
    }
    pools[count] = pool;
    return count + 1;
}

/* Is all pooled of any live entries of x, finite, once sorted and the weight times the place added?
 *
 * The k largest of n exceed their mean by s sqrt((n - k)/k) on average, at most, s^2 the variance,
 * and places make k of them fall short of it by weight (n - k)/2. No k has the excess if that holds
 * for k = n - 1, where it is s <= weight/2 sqrt(n - 1). (An s^2 that overflows is not below that.)
 */
static bool pools_all(const double *x, ptrdiff_t n, double weight) {
    double sum[LANES] = {0}, squares[LANES] = {0}, live[LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (ptrdiff_t j = 0; j < LANES && i + j < n; j++) {
            const double on = x[i + j] > -(double)INFINITY ? 1 : 0, value = on > 0 ? x[i + j] : 0;
            live[j] += on;
            sum[j] += value;
            squares[j] += value * value;
        }
    const double all = lane_sum_f64(live), mean = lane_sum_f64(sum) / all;
    return lane_sum_f64(squares) / all - mean * mean < 0.25 * weight * weight * (all - 1);
}

#define TEMPLATE "smoothing/isotonic.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A key to sort by, and where it stood. */
typedef struct {
    WORD key, place;
} TYPED(Ranked);

/* The i-th score, to be sorted so that scores fall. */
static inline TYPED(Ranked) TYPED(ranked)(REAL score, ptrdiff_t i) {
    return (TYPED(Ranked)){~TYPED(rising_key)(score + 0), (WORD)i};
}

static TYPED(Ranked) *TYPED(sort_by_counting)(TYPED(Ranked) *entries, ptrdiff_t n,
                                              TYPED(Ranked) *spare) {
    const WORD sign = (WORD)1 << (8 * sizeof sign - 1);
    BITS key[SORTED_BY_COUNTING + LANES] = {0}, number[LANES];
    WORD taken[SORTED_BY_COUNTING] = {0};
    for (ptrdiff_t i = 0; i < n; i++) key[i] = (BITS)(entries[i].key ^ sign);
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        MASK own[REGISTERS], before[REGISTERS];
        memcpy(own, key + i, sizeof own);
        memset(before, 0, sizeof before);
        for (ptrdiff_t j = 0; j < n; j++)
            for (int k = 0; k < REGISTERS; k++) before[k] -= key[j] < own[k];
        memcpy(number, before, sizeof before);
        for (ptrdiff_t j = i; j < n && j < i + LANES; j++) /* equal keys stay in order */
            spare[number[j - i] + taken[number[j - i]]++] = entries[j];
    }
    return spare;
}

/* Sort so that keys rise, and equal ones stay in order: many a byte at a time from the last,
 * without those that are the same in all, O(n) whatever the order. spare is for n; returns
 * whichever of the two holds the result. */
static TYPED(Ranked) *TYPED(sort_by_key)(TYPED(Ranked) *entries, ptrdiff_t n,
                                         TYPED(Ranked) *spare) {
    if (n <= SORTED_BY_COUNTING) return TYPED(sort_by_counting)(entries, n, spare);
    WORD counts[sizeof(REAL)][256];
    memset(counts, 0, sizeof counts);
    for (ptrdiff_t i = 0; i < n; i++)
        for (size_t b = 0; b < sizeof(REAL); b++) counts[b][entries[i].key >> 8 * b & 255]++;
    for (size_t b = 0; b < sizeof(REAL); b++) {
        WORD *place = counts[b], sum = 0;
        if (place[entries[0].key >> 8 * b & 255] == (WORD)n) continue;
        for (int digit = 0; digit < 256; digit++) {
            const WORD count = place[digit];
            place[digit] = sum;
            sum += count;
        }
        for (ptrdiff_t i = 0; i < n; i++)
            spare[place[entries[i].key >> 8 * b & 255]++] = entries[i];
        TYPED(Ranked) *sorted = spare;
        spare = entries;
        entries = sorted;
    }
    return entries;
}

#endif
