/* oscarmax: sparsemax of scores smoothed along all pairs: a template. The NumPy twin is
 * pyentmax/reference/mappings/oscarmax.py.
 */
#ifndef PYENTMAX_MAPPINGS_OSCARMAX_H
#define PYENTMAX_MAPPINGS_OSCARMAX_H

#include "gufunc/jvp_loops.h"
#include "mappings/_smoothed_sparsemax.h"
#include "smoothing/groups.h"
#include "smoothing/isotonic.h"
#include "smoothing/scaling.h"

#define TEMPLATE "mappings/oscarmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

SMOOTHED_SPARSEMAX(oscarmax)
PARAMETRIC_JVP(oscarmax, "strength")

#elif defined(REAL)

/* Sorted so that scores fall, adding strength times the place makes the pairs' pull linear, and
 * what is wanted the falling sequence nearest to that.
 *
 * Scores below -1 - n strength may be raised to that: fewer than n edges of weight strength/2 move
 * u by less than n strength/2, so tau > -1 - n strength/2, and what lies as much lower again still
 * gets nothing. The least are then alike, need no sorting, and are pooled in any case. Where
 * rounding could make up for the difference, as with strength nearly 0, it is another 1. */
static void TYPED(smooth_oscar)(REAL *z, ptrdiff_t n, double strength, double *restrict scratch) {
    const REAL largest = TYPED(chunk_maxima)(z, n, (REAL *)scratch);
    if (!(largest > -(REAL)INFINITY && largest < (REAL)INFINITY)) return;
    const double scale = headroom(n);
    double *x = scratch, *y = scratch + n;
    TYPED(Ranked) *entries = (TYPED(Ranked) *)(scratch + 2 * n); /* n, and n more to sort them in */
    Pool *pools = (Pool *)(scratch + 6 * n);
    const double floor = -2 - (double)n * strength;
    const double least = TYPED(scaled_down)(z, n, largest, floor, scale, x);
    const double asked = strength / scale, weight = asked < -least ? asked : -least;

    if (pools_all(x, n, weight)) {
        for (ptrdiff_t i = 0; i < n; i++) z[i] = z[i] > -(REAL)INFINITY ? 0 : -(REAL)INFINITY;
        return;
    }
    ptrdiff_t higher = 0, live = 0, count = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        entries[higher] = TYPED(ranked)(z[i], i);
        higher += x[i] > least;
        live += x[i] > -(double)INFINITY;
    }
    const TYPED(Ranked) *sorted = TYPED(sort_by_key)(entries, higher, entries + n);
    for (ptrdiff_t i = 0; i < higher; i++) { /* places from 0: what leads is not to be rounded */
        y[i] = x[sorted[i].place] + weight * (double)i;
        count = add_pool((Pool){y[i], 1, i}, pools, count);
    }
    const double least_y = least + weight * (0.5 * (double)(higher + live - 1));
    if (live > higher)
        count = add_pool((Pool){least_y, (double)(live - higher), higher}, pools, count);
    for (ptrdiff_t k = 0, end; k < count; k++) {
        const ptrdiff_t start = pools[k].start;
        end = k + 1 < count ? pools[k + 1].start : higher;
        const double some = start < end ? sum_of(y + start, end - start) : 0;
        const double others = pools[k].size - (double)(end - start);
        pools[k].mean = (some + others * least_y) / pools[k].size;
    }
    for (ptrdiff_t i = 0; i < n; i++) x[i] = x[i] == least ? pools[count - 1].mean : x[i];
    for (ptrdiff_t k = 0, i = 0; k < count; k++)
        for (const ptrdiff_t end = k + 1 < count ? pools[k + 1].start : higher; i < end; i++)
            x[sorted[i].place] = pools[k].mean;
    TYPED(scaled_up)(x, n, scale, z);
}

static const TYPED(SmoothedSparsemax) TYPED(oscarmax) = {TYPED(smooth_oscar)};

/* J v: v's mean over each group of equal p, less that over the support; sorting p makes runs of
 * them. */
static void TYPED(oscarmax_product)(const REAL *p, const REAL *v, double strength, REAL *out,
                                    ptrdiff_t n, double *restrict scratch) {
    double *key = scratch, *along = scratch + n;
    TYPED(Ranked) *entries = (TYPED(Ranked) *)(scratch + 2 * n);
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        if (p[i] != 0) entries[size++] = TYPED(ranked)(p[i], i);
    const TYPED(Ranked) *sorted = TYPED(sort_by_key)(entries, size, entries + n);
    for (ptrdiff_t k = 0; k < size; k++) {
        const ptrdiff_t i = (ptrdiff_t)sorted[k].place;
        key[k] = p[i];
        along[k] = TYPED(on_support)(p[i], v[i]);
    }
    subtract_mean(key, along, size, size, strength > 0);
    TYPED(fill)(out, n, 0);
    for (ptrdiff_t k = 0; k < size; k++) out[sorted[k].place] = (REAL)along[k];
}

static const TYPED(ParametricJvp) TYPED(oscarmax_jvp) = {TYPED(oscarmax_product)};

#endif
