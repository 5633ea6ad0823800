/* Scores to doubles of a size that smoothing can add up without overflow, and back: a template. */
#ifndef PYENTMAX_SMOOTHING_SCALING_H
#define PYENTMAX_SMOOTHING_SCALING_H

#include "rows/doubles.h"

/* A power of two to divide n scores by, so that no sum that smoothing takes of them overflows: with
 * weights held to n times the range of the scores, none of n terms exceeds 16 n^2 times it. */
static double headroom(ptrdiff_t n) {
    double scale = 16;
    for (ptrdiff_t power = 1; power < n; power *= 2) scale *= 4;
    return scale;
}

#define TEMPLATE "smoothing/scaling.h"
#include "float_and_double.h"

#elif defined(REAL)

/* x = (z - largest)/scale, but no lower than floor/scale, and -inf where z is; returns the least.
 *
 * Divided before they are subtracted, finite scores have finite gaps: -inf is only what is ruled
 * out, and where entries are fused a score counts however low it is. */
static double TYPED(scaled_down)(const REAL *z, ptrdiff_t n, REAL largest, double floor,
                                 double scale, double *x) {
    double least[LANES] = {0};
    const double part = 1 / scale, top = largest * part, bottom = floor * part;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double gap = z[i] * part - top, raised = gap > bottom ? gap : bottom;
        x[i] = z[i] > -(REAL)INFINITY ? raised : -(double)INFINITY;
    }
    const double nothing = -(double)INFINITY;
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            least[j] = smaller_f64(x[i + j] > nothing ? x[i + j] : 0, least[j]);
    for (; i < n; i++) least[0] = smaller_f64(x[i] > nothing ? x[i] : 0, least[0]);
    return smallest_of(least, LANES);
}

/* u, of which differences to the largest count, back to the size and type of scores. */
static void TYPED(scaled_up)(const double *u, ptrdiff_t n, double scale, REAL *z) {
    double largest = -(double)INFINITY;
    for (ptrdiff_t i = 0; i < n; i++) largest = u[i] > largest ? u[i] : largest;
    for (ptrdiff_t i = 0; i < n; i++) z[i] = (REAL)((u[i] - largest) * scale);
}

#endif
