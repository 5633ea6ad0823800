/* How a sparse mapping finds its threshold in one pass over the row: a template. The NumPy twin is
 * `prune_chunks` in notebooks/thresholds.py.
 *
 * Scores are kept as gaps x = scale (z - max z) <= 0, and the threshold as t = -tau, with
 *
 *     f(t) = sum_i g(x_i + t) = 1,   0 < t <= 1,   g increasing, 0 up to 0, and g(1) = 1,
 *
 * so that the largest entry alone, x = 0, bounds t by 1. Any part of the row bounds it better:
 * leaving entries out can only lower f, so the t that solves for the part is at or above the row's.
 */
#ifndef PYENTMAX_THRESHOLDS_SEARCH_H
#define PYENTMAX_THRESHOLDS_SEARCH_H

#include "rows/steps.h"

/* Never reached: keeps a rounding cycle from being an endless loop. Newton's steps on a norm are
 * at most log2 n + log2(1/ε)/2, 57 of doubles for 2^31 entries, as
 * pyentmax/reference/thresholds/newton.py proves. So many do for sparsemax, 8 more for
 * α-entmax; 1.5-entmax takes twice as many at most, and took ten at the most in tests. */
#define MAX_PASSES 128

#define TEMPLATE "thresholds/search.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A mapping's way to solve f(t) = 1 over whole lanes of gaps, from a start at or above the root. It
 * may drop gaps, in place, that are out of reach of a t at or above the root. Leaves the moments at
 * t in *at_t. */
typedef REAL TYPED(Solver)(REAL *x, ptrdiff_t n, REAL t, Moments *at_t);

/* A row after the search: the gaps of all entries that may be in the support are in kept, padded to
 * size whole lanes (fewer, where the solver dropped some), and the chunks' maxima are gaps by now.
 */
typedef struct {
    REAL largest, scale, t;
    Moments at_t;
    const REAL *maxima;
    REAL *kept;
    ptrdiff_t count, size; /* how many are kept, and in whole lanes */
} TYPED(Search);

/* Fill up gaps to whole lanes; returns the padded number. */
static inline ptrdiff_t TYPED(pad)(REAL *x, ptrdiff_t n) {
    for (int j = 0; j < PAIR; j++) x[n + j] = OUTSIDE;
    return whole_lanes(n);
}

/* A little more than t, which is rounded: entries right at it have their share of what it lacks,
 * and thousands of such shares are seen in the sum. */
static inline REAL TYPED(reach)(REAL t) {
    const REAL above = t * (1 + 4 * EPSILON);
    return above < 1 ? above : (REAL)1;
}

/* Drop the gaps that t does not reach, in place; n and what is returned are whole lanes. */
static ptrdiff_t TYPED(shrink)(REAL *x, ptrdiff_t n, REAL t) {
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < n; i += LANES) size += TYPED(keep_above)(x + i, -t, x + size);
    return TYPED(pad)(x, size);
}

/* Scores to the gaps that t reaches, chunk by chunk, and their indices, from `indices`, unless
 * NULL; returns how many. Scaling by a power of 2 is exact, and the difference is rounded once:
 * rounding is monotone, so a chunk is rightly skipped. */
ALWAYS_INLINE ptrdiff_t TYPED(gather)(const REAL *restrict z, ptrdiff_t n, REAL largest, REAL scale,
                                      REAL t, const REAL *restrict maxima, REAL *restrict kept,
                                      const int32_t *indices, int32_t *indices_kept) {
    ptrdiff_t size = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK, maxima += LANES) {
        if (!TYPED(any_above)(maxima, -t)) continue; /* most of a long row ends here */
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        REAL x[CHUNK + LANES];
        TYPED(short_gaps)(z + start, end - start, largest, scale, x);
        for (ptrdiff_t i = 0; i < end - start; i += LANES)
            size += indices ? TYPED(keep_with_indices)(x + i, -t, indices + start + i, kept + size,
                                                       indices_kept + size)
                            : TYPED(keep_above)(x + i, -t, kept + size);
    }
    return size;
}

/* Begin with the largest entries, which chunk_maxima() left in scratch: a part of the row that
 * holds most of what matters, whose t bounds the row's. They become gaps, and those above -1 are
 * kept. */
static void TYPED(begin_search)(ptrdiff_t n, REAL largest, REAL scale, REAL *restrict scratch,
                                TYPED(Search) *found) {
    const ptrdiff_t lanes = maxima_of(n);
    REAL *maxima = scratch, *kept = scratch + lanes;
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < lanes; i += LANES) {
        for (int j = 0; j < LANES; j++) maxima[i + j] = (maxima[i + j] - largest) * scale;
        size += TYPED(keep_above)(maxima + i, -1, kept + size);
    }
    found->largest = largest;
    found->scale = scale;
    found->maxima = maxima;
    found->kept = kept;
    found->size = TYPED(pad)(kept, size);
}

/* Keep what a bound on t reaches of the row. */
static void TYPED(keep_within)(const REAL *restrict z, ptrdiff_t n, REAL bound,
                               TYPED(Search) *found) {
    found->t = TYPED(reach)(bound);
    found->count = TYPED(gather)(z, n, found->largest, found->scale, found->t, found->maxima,
                                 found->kept, NULL, NULL);
    found->size = TYPED(pad)(found->kept, found->count);
}

/* Find t of any row, bounded by the same solver; false if it has none, and p is written already. */
static bool TYPED(search)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, REAL scale,
                          TYPED(Solver) *solve, REAL *restrict scratch, TYPED(Search) *found) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(fill_degenerate_row)(p, n, largest)) return false;
    TYPED(begin_search)(n, largest, scale, scratch, found);
    TYPED(keep_within)(z, n, solve(found->kept, found->size, 1, &found->at_t), found);
    found->t = solve(found->kept, found->size, found->t, &found->at_t);
    return true;
}

/* Write zeros from start to the next chunk with anything in the support, and return where that
 * begins. */
static ptrdiff_t TYPED(next_live)(const TYPED(Search) *found, REAL *p, ptrdiff_t start,
                                  ptrdiff_t n) {
    ptrdiff_t live = start;
    while (live < n && !TYPED(any_above)(found->maxima + live / CHUNK * LANES, -found->t))
        live += CHUNK;
    if (live > n) live = n;
    if (live > start) memset(p + start, 0, (size_t)(live - start) * sizeof(REAL));
    return live;
}

/* Put values of what was kept of a row back in their places, and zeros elsewhere, where the last
 * solve dropped nothing and found->t is still the t that kept was gathered with. kept has room for
 * LANES more. */
static void TYPED(spread)(const REAL *restrict z, ptrdiff_t n, const TYPED(Search) *found,
                          const REAL *restrict kept, REAL *restrict p) {
    const REAL largest = found->largest, scale = found->scale, floor = -found->t;
    if (found->count == n) { /* all are in their places */
        memcpy(p, kept, (size_t)n * sizeof(REAL));
        return;
    }
    ptrdiff_t start = TYPED(next_live)(found, p, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        kept = TYPED(spread_row)(z + start, end - start, largest, scale, floor, kept, p + start);
        start = TYPED(next_live)(found, p, end, n);
    }
}

#endif
