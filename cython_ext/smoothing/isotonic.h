/* Isotonic regression, the first step of oscarmax once scores are sorted: the falling sequence
 * nearest to a given one. All of it is in double; where it comes from is in
 * pyentmax/reference/mappings/oscarmax.py, whose textbook pools as this does.
 */
#ifndef PYENTMAX_SMOOTHING_ISOTONIC_H
#define PYENTMAX_SMOOTHING_ISOTONIC_H

#include "rows/doubles.h"

/* A key to sort by, and where it stood. */
typedef struct {
    uint64_t key;
    ptrdiff_t place;
} Ranked;

/* Sort so that keys of so many bytes rise, a byte at a time from the last, and skip those that are
 * the same in all: O(n) whatever the order. spare is for n; returns whichever of the two holds the
 * result. */
static Ranked *sort_by_key(Ranked *entries, ptrdiff_t n, int bytes, Ranked *spare) {
    ptrdiff_t counts[8][256];
    memset(counts, 0, (size_t)bytes * sizeof counts[0]);
    for (ptrdiff_t i = 0; i < n; i++)
        for (int b = 0; b < bytes; b++) counts[b][entries[i].key >> 8 * b & 255]++;
    for (int b = 0; b < bytes; b++) {
        ptrdiff_t *place = counts[b], sum = 0;
        if (n == 0 || place[entries[0].key >> 8 * b & 255] == n) continue;
        for (int digit = 0; digit < 256; digit++) {
            const ptrdiff_t count = place[digit];
            place[digit] = sum;
            sum += count;
        }
        for (ptrdiff_t i = 0; i < n; i++)
            spare[place[entries[i].key >> 8 * b & 255]++] = entries[i];
        Ranked *sorted = spare;
        spare = entries;
        entries = sorted;
    }
    return entries;
}

/* Adjacent entries pooled, from start on, and their mean. */
typedef struct {
    double mean, size;
    ptrdiff_t start;
} Pool;

/* The falling sequence nearest to y, in place: a block whose mean lies above that of the block
 * before is pooled with it, in whatever order. Each entry is pooled once: O(n). spare is for n. */
static void pool_adjacent_violators(double *restrict y, ptrdiff_t n, Pool *restrict pools) {
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        Pool pool = {y[i], 1, i};
        for (; count > 0 && pool.mean > pools[count - 1].mean; count--) {
            const Pool before = pools[count - 1];
            const double size = pool.size + before.size;
            pool.mean = before.mean + (pool.mean - before.mean) * (pool.size / size);
            pool.size = size;
            pool.start = before.start;
        }
        pools[count++] = pool;
    }
    for (ptrdiff_t k = 0; k < count; k++) {
        const ptrdiff_t start = pools[k].start, end = k + 1 < count ? pools[k + 1].start : n;
        const double mean = sum_of(y + start, end - start) / (double)(end - start);
        for (ptrdiff_t i = start; i < end; i++) y[i] = mean;
    }
}

#endif
