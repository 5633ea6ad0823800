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
 * Two edges move a score by 2 strength at most, and so a score at or below -1 - 4 strength, which
 * gets nothing, may be raised to a little less than that. Scores on two sides of a masked entry are
 * no neighbours: what lies between is a chain of its own. Of a chain only the parts count that lie
 * above max u - 1, most often a few entries: to these, what lies below is an edge that goes down.
 * What rounding does to a level is taken off it. */
static void TYPED(smooth_fused)(REAL *z, ptrdiff_t n, double strength, double *restrict scratch) {
    const REAL largest = TYPED(chunk_maxima)(z, n, (REAL *)scratch);
    if (!(largest > -(REAL)INFINITY && largest < (REAL)INFINITY)) return;
    const double scale = headroom(n), nothing = -(double)INFINITY;
    double *x = scratch, *lead = scratch + n;
    Run *runs = (Run *)(scratch + 2 * n); /* n, as large as 2 n doubles */
    const double least = TYPED(scaled_down)(z, n, largest, -1 - 5 * strength, scale, x);
    const double most = -least * (double)n, asked = strength / scale;
    const double weight = asked < most ? asked : most;
    const double least_top = strength > 0.25 ? reached(x, n, weight) : -2 * weight; /* as near */
    const double level = least_top - 1 / scale - 1e-9 * (weight - least);
    ptrdiff_t count = 0;
    for (ptrdiff_t start = 0, end; start < n; start = end + 1) {
        for (end = start; end < n && x[end] > nothing; end++) {}
        lead_of_chain(x + start, end - start, level, weight, lead + start);
        bool above = false;
        for (ptrdiff_t i = start, from = start; i <= end; i++) {
            const double bar = i > start ? weight : 0;
            const bool now = i < end && lead[i] > (above ? -bar : bar);
            if (above && !now)
                count += smooth_chain(x + from, i - from, weight, from > start, i < end,
                                      runs + count, scratch + 4 * n);
            from = above ? from : i;
            above = now;
            if (i < end && !now) x[i] = nothing;
        }
    }
    Run highest = runs[0];
    for (ptrdiff_t r = 1; r < count; r++)
        if (height_above(&runs[r], &highest, weight) > 0) highest = runs[r];
    for (ptrdiff_t i = 0; i < n;) {
        if (!(x[i] > nothing)) {
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
