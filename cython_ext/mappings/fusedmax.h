/* fusedmax: sparsemax of scores smoothed along a chain: a template. The NumPy twin is
 * pyentmax/reference/mappings/fusedmax.py.
 */
#ifndef PYENTMAX_MAPPINGS_FUSEDMAX_H
#define PYENTMAX_MAPPINGS_FUSEDMAX_H

#include "gufunc/jvp_loops.h"
#include "mappings/_smoothed_sparsemax.h"
#include "smoothing/chain.h"
#include "smoothing/groups.h"
#include "smoothing/scaling.h"

#define TEMPLATE "mappings/fusedmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

SMOOTHED_SPARSEMAX(fusedmax)
PARAMETRIC_JVP(fusedmax, "strength")

#elif defined(REAL)

/* A weight above n times the range of the scores does nothing that this much does not: it fuses
 * all.
 *
 * Two edges move a score by 2 strength at most. So max u >= -2 strength, tau >= -1 - 2 strength,
 * and a score at or below -1 - 4 strength gets nothing; from -1 - 5 strength on, that is so where
 * the strength swamps the 1, too, and a score of -4 strength may tie with the peaks. To its
 * neighbour it is an edge |p_j - 0| = p_j: the neighbour scores less by the strength, and the chain
 * is cut. Scores on two sides of a masked entry are no neighbours either: what is left between is a
 * chain of its own. */
static void TYPED(smooth_fused)(REAL *z, ptrdiff_t n, double strength, double *restrict scratch) {
    const REAL largest = TYPED(chunk_maxima)(z, n, (REAL *)scratch);
    if (!(largest > -(REAL)INFINITY && largest < (REAL)INFINITY)) return;
    const double scale = headroom(n), nothing = -(double)INFINITY;
    const double floor = -1 - 5 * strength, bottom = floor / scale;
    double *x = scratch;
    Run *runs = (Run *)(scratch + n); /* n, as large as 2 n doubles */
    const double least = TYPED(scaled_down)(z, n, largest, floor, scale, x);
    const double most = -least * (double)n, asked = strength / scale;
    const double weight = asked < most ? asked : most;
    ptrdiff_t count = 0;
    for (ptrdiff_t start = 0, end; start < n; start = end + 1) {
        for (end = start; end < n && x[end] > bottom; end++) {}
        if (end == start) continue;
        const bool before = start > 0 && x[start - 1] > nothing,
                   behind = end < n && x[end] > nothing;
        count += smooth_chain(x + start, end - start, weight, before, behind, runs + count,
                              scratch + 3 * n);
    }
    Run highest = runs[0];
    for (ptrdiff_t r = 1; r < count; r++)
        if (height_above(&runs[r], &highest, weight) > 0) highest = runs[r];
    for (ptrdiff_t i = 0; i < n;) {
        if (!(x[i] > bottom)) {
            z[i++] = -(REAL)INFINITY;
            continue;
        }
        const REAL u = (REAL)(height_above(runs, &highest, weight) * scale);
        for (const ptrdiff_t end = i + (ptrdiff_t)runs->size; i < end; i++) z[i] = u;
        runs++;
    }
}

static const TYPED(SmoothedSparsemax) TYPED(fusedmax) = {TYPED(smooth_fused)};

/* J v: v's mean over each fused run, less that over the support. */
static void TYPED(fusedmax_product)(const REAL *p, const REAL *v, double strength, REAL *out,
                                    ptrdiff_t n, double *restrict scratch) {
    double *key = scratch, *along = scratch + n;
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        key[i] = p[i];
        along[i] = TYPED(on_support)(p[i], v[i]);
        size += p[i] != 0;
    }
    subtract_mean(key, along, n, size, strength > 0);
    for (ptrdiff_t i = 0; i < n; i++) out[i] = (REAL)along[i];
}

static const TYPED(ParametricJvp) TYPED(fusedmax_jvp) = {TYPED(fusedmax_product)};

#endif
