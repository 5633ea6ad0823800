/* The k-th largest score of a row, found without a sort: a template.
 *
 * The k-th largest of the chunks' maxima is at or below it, having k scores at or above itself, so
 * only the scores beyond that bound are looked at: most of a long row is not. Among them the digits
 * of the k-th are found from the highest on: a selection by radix.
 */
#ifndef PYENTMAX_THRESHOLDS_KTH_LARGEST_H
#define PYENTMAX_THRESHOLDS_KTH_LARGEST_H

#include "elementary/sort_keys.h"
#include "rows/steps.h"

#define DIGIT_BITS 8 /* of a key that one pass settles */
#define FEW 32       /* values whose ranks are counted: a pass of the radix costs more */

#define TEMPLATE "thresholds/kth_largest.h"
#include "float_and_double.h"

#elif defined(REAL)

/* The k-th largest of at most FEW values, 1 <= k <= n: the smallest that fewer than k are above. */
static REAL TYPED(kth_of_few)(const REAL *restrict values, ptrdiff_t n, ptrdiff_t k) {
    REAL found = INFINITY;
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t count = n - start < LANES ? n - start : LANES;
        REAL lane[LANES] = {0};
        BITS above[LANES] = {0};
        for (ptrdiff_t j = 0; j < count; j++) lane[j] = values[start + j];
        for (ptrdiff_t i = 0; i < n; i++)
            for (int j = 0; j < LANES; j++) above[j] += values[i] > lane[j];
        for (ptrdiff_t j = 0; j < count; j++)
            found = above[j] < (BITS)k && lane[j] < found ? lane[j] : found;
    }
    return found;
}

/* Are they? Of ties by the thousand all digits are the same, and each pass would go through all. */
static bool TYPED(all_equal)(const REAL *values, ptrdiff_t n) {
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        BITS differ = 0;
        for (ptrdiff_t i = start; i < end; i++) differ |= values[i] != values[0];
        if (differ) return false;
    }
    return true;
}

/* The k-th largest of the values, 1 <= k <= n, which are moved about. Each pass counts how often
 * each digit occurs and keeps the values that share the digit of the k-th: linear whatever the
 * values. */
static REAL TYPED(kth_largest)(REAL *values, ptrdiff_t n, ptrdiff_t k) {
    if (n <= FEW) return TYPED(kth_of_few)(values, n, k);
    for (int shift = 8 * sizeof(WORD) - DIGIT_BITS; shift >= 0 && n > 1; shift -= DIGIT_BITS) {
        if (TYPED(all_equal)(values, n)) break;
        ptrdiff_t count[1 << DIGIT_BITS] = {0};
        for (ptrdiff_t i = 0; i < n; i++)
            count[TYPED(rising_key)(values[i]) >> shift & ((1 << DIGIT_BITS) - 1)]++;
        WORD digit = (1 << DIGIT_BITS) - 1;
        for (; digit > 0 && k > count[digit]; digit--) k -= count[digit];
        if (count[digit] == n) continue;
        ptrdiff_t size = 0;
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL value = values[i];
            values[size] = value;
            size += (TYPED(rising_key)(value) >> shift & ((1 << DIGIT_BITS) - 1)) == digit;
        }
        n = size;
    }
    return values[0];
}

/* The scores above a bound, of chunks with any of their maxima above a floor; returns how many. */
static ptrdiff_t TYPED(keep_scores)(const REAL *restrict z, ptrdiff_t n,
                                    const REAL *restrict maxima, REAL floor, REAL bound,
                                    REAL *restrict kept) {
    ptrdiff_t size = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK, maxima += LANES) {
        if (!TYPED(any_above)(maxima, floor)) continue;
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        ptrdiff_t i = start;
        for (; i + LANES <= end; i += LANES) size += TYPED(keep_above)(z + i, bound, kept + size);
        for (; i < end; i++) {
            kept[size] = z[i];
            size += z[i] > bound;
        }
    }
    return size;
}

/* The k-th largest score of a row; -inf if fewer than k are above that. */
static REAL TYPED(kth_score)(const REAL *restrict z, ptrdiff_t n, ptrdiff_t k,
                             const REAL *restrict maxima, REAL *restrict room) {
    if (n <= FEW) return TYPED(kth_of_few)(z, n, k);
    REAL bound = -(REAL)INFINITY;
    if (k <= maxima_of(n)) {
        memcpy(room, maxima, (size_t)maxima_of(n) * sizeof(REAL));
        bound = TYPED(kth_largest)(room, maxima_of(n), k);
    }
    const ptrdiff_t size = TYPED(keep_scores)(z, n, maxima, bound, bound, room);
    return size < k ? bound : TYPED(kth_largest)(room, size, k);
}

#endif
