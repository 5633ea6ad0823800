/* The Jacobian of fusedmax and oscarmax takes means over groups of fused entries: a template. */
#ifndef PYENTMAX_SMOOTHING_GROUPS_H
#define PYENTMAX_SMOOTHING_GROUPS_H

#include "rows/doubles.h"

/* v's mean over each run of equal p > 0, less that over all of them, in place; size of the n
 * entries are such, v is 0 at the others. A run that is all there is gives 0 exactly. */
static void subtract_mean(const double *restrict p, double *restrict v, ptrdiff_t n, ptrdiff_t size,
                          bool fused) {
    const double overall = sum_of(v, n) / (double)size;
    for (ptrdiff_t start = 0, end; start < n; start = end) {
        for (end = start + 1; fused && end < n && p[end] == p[start]; end++) {}
        if (p[start] == 0) continue;
        const ptrdiff_t length = end - start;
        const double sum = sum_of(v + start, length);
        const double rest = length == size && sum - sum == 0 ? 0 : sum / (double)length - overall;
        for (ptrdiff_t i = start; i < end; i++) v[i] = rest;
    }
}

#define TEMPLATE "smoothing/groups.h"
#include "float_and_double.h"

#elif defined(REAL)

/* v where p is not 0, else 0: off the support it may hold anything. A NaN in p stays one. */
static inline double TYPED(on_support)(REAL p, REAL v) {
    return p != p ? (double)p : p != 0 ? (double)v : 0;
}

#endif
