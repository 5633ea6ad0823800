/* Top-k softmax of one row: a template. The NumPy twin is
 * pyentmax/reference/mappings/topk_softmax.py.
 *
 *     p_i = e^x_i / sum over the same of e^x_j   for z_i not below the k-th largest, ties included
 */
#ifndef PYENTMAX_MAPPINGS_TOPK_SOFTMAX_H
#define PYENTMAX_MAPPINGS_TOPK_SOFTMAX_H

#include "elementary/exp.h"
#include "gufunc/mapping_loops.h"
#include "rows/steps.h"
#include "rows/tiles.h"
#include "thresholds/kth_largest.h"

#define TEMPLATE "mappings/topk_softmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

TOPK_MAPPING(topk_softmax, "top-k softmax")

#elif defined(REAL)

/* Write the exponentials of scores down to the cut, 0 for the rest of the chunk; return their sum.
 */
static double TYPED(exponentials_above)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                        REAL largest, REAL cut) {
    REAL sum[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const REAL x = z[i + j] - largest, e = TYPED(scaled_exp)(x);
            p[i + j] = z[i + j] >= cut ? e : (REAL)0;
            sum[j] += p[i + j];
        }
    for (int j = 0; i + j < n; j++) {
        const REAL x = z[i + j] - largest, e = TYPED(scaled_exp)(x);
        p[i + j] = z[i + j] >= cut ? e : (REAL)0;
        sum[j] += p[i + j];
    }
    return TYPED(lane_sum)(sum);
}

/* Scores are compared, not gaps, of which rounding makes different scores tie. */
static void TYPED(topk_softmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    const TYPED(RowContext) *with) {
    const ptrdiff_t k = at_most(with->number[0], n);
    REAL *maxima = with->scratch, *room = maxima + maxima_of(n);
    const REAL largest = TYPED(chunk_maxima)(z, n, maxima);
    if (TYPED(fill_degenerate_row)(p, n, largest)) return;

    const REAL cut = k < n ? TYPED(kth_score)(z, n, k, maxima, room) : -(REAL)INFINITY;
    double sum = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t count = n - start < CHUNK ? n - start : CHUNK;
        if (TYPED(lane_max)(maxima + start / CHUNK * LANES) < cut)
            TYPED(fill)(p + start, count, 0);
        else
            sum += TYPED(exponentials_above)(z + start, p + start, count, largest, cut);
    }
    const REAL share = (REAL)(1 / sum);
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (TYPED(lane_max)(maxima + start / CHUNK * LANES) < cut) continue;
        for (ptrdiff_t i = start; i < end; i++) p[i] *= share;
    }
}

/* The k-th largest score of each column of a tile, -inf where k is n, and the largest: NaN for a
 * column that has one. `best` has room for n rows, and holds the largest of each column in order:
 * each entry passes down them and takes the place of the first that is smaller, which goes on. */
static void TYPED(kth_of_columns)(const REAL *restrict x, ptrdiff_t n, const ptrdiff_t k[BLOCK],
                                  REAL *restrict best, REAL *restrict cut, REAL *restrict largest) {
    ptrdiff_t most = 1;
    for (int j = 0; j < BLOCK; j++) most = k[j] < n && k[j] > most ? k[j] : most;
    for (ptrdiff_t m = 0; m < most * BLOCK; m++) best[m] = -(REAL)INFINITY;
    REAL nans[BLOCK] = {0};
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL entry[BLOCK];
        for (int j = 0; j < BLOCK; j++) {
            entry[j] = x[i * BLOCK + j];
            nans[j] += entry[j] * TINY_SCALE;
        }
        for (ptrdiff_t m = 0; m <= i && m < most; m++)
            for (int j = 0; j < BLOCK; j++) {
                const REAL before = best[m * BLOCK + j];
                best[m * BLOCK + j] = TYPED(larger)(before, entry[j]);
                entry[j] = TYPED(smaller)(before, entry[j]);
            }
    }
    for (int j = 0; j < BLOCK; j++) {
        largest[j] = nans[j] != nans[j] ? nans[j] : best[j];
        cut[j] = k[j] < n ? (REAL)INFINITY : -(REAL)INFINITY; /* k < 1 keeps nothing */
        if (0 < k[j] && k[j] < n) cut[j] = best[(k[j] - 1) * BLOCK + j];
    }
}

/* The same for short rows side by side. */
static void TYPED(topk_softmax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                      ptrdiff_t n, const TYPED(RowContext) *with) {
    REAL *restrict x = with->scratch, *restrict best = x + scratch_size(n);
    ptrdiff_t k[BLOCK];
    for (int j = 0; j < BLOCK; j++) k[j] = at_most(with->number[j], n);
    REAL cut[BLOCK], largest[BLOCK], share[BLOCK] = {0};
    TYPED(to_tile)(z, n, x);
    TYPED(kth_of_columns)(x, n, k, best, cut, largest);
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t end = n - start < LANES ? n : start + LANES;
        REAL sum[BLOCK] = {0};
        prefetch_some(with->ahead);
        prefetch_some(with->ahead);
        for (ptrdiff_t i = start; i < end; i++)
            for (int j = 0; j < BLOCK; j++) {
                const REAL score = x[i * BLOCK + j], e = TYPED(scaled_exp)(score - largest[j]);
                const REAL kept = score >= cut[j] ? e : (REAL)0;
                x[i * BLOCK + j] = kept;
                sum[j] += kept;
            }
        for (int j = 0; j < BLOCK; j++) share[j] += sum[j];
    }
    for (int j = 0; j < BLOCK; j++) share[j] = 1 / share[j];
    for (ptrdiff_t i = 0; i < n; i++)
        for (int j = 0; j < BLOCK; j++) x[i * BLOCK + j] *= share[j];
    TYPED(separate)(x, n, p);
    for (int j = 0; j < count; j++) TYPED(fill_degenerate_row)(p[j], n, largest[j]);
}

static const TYPED(Mapping)
    TYPED(topk_softmax) = {A_K, TYPED(topk_softmax_row), TYPED(topk_softmax_block), NARROW_TOPK};

#endif
