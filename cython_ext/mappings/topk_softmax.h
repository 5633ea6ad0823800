/* Top-k softmax of one row: a template. The NumPy twin is pyentmax/mappings/topk_softmax.py.
 *
 *     p_i = e^x_i / sum over the same of e^x_j   for z_i not below the k-th largest, ties included
 */
#ifndef PYENTMAX_MAPPINGS_TOPK_SOFTMAX_H
#define PYENTMAX_MAPPINGS_TOPK_SOFTMAX_H

#include "elementary/exp.h"
#include "gufunc/mapping_loops.h"
#include "rows/steps.h"
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
                                    ptrdiff_t k, REAL *restrict scratch) {
    REAL *maxima = scratch, *room = scratch + maxima_of(n);
    const REAL largest = TYPED(chunk_maxima)(z, n, maxima);
    if (TYPED(is_settled)(p, n, largest)) return;

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

static const TYPED(TopkMapping) TYPED(topk_softmax) = {TYPED(topk_softmax_row)};

#endif
