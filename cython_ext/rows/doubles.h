/* Sums and extremes of rows that are worked on in double, whatever the scores are. */
#ifndef PYENTMAX_ROWS_DOUBLES_H
#define PYENTMAX_ROWS_DOUBLES_H

#include "rows/lanes.h"

/* The sum of x, by halves and lanes, so that rounding grows with log n. */
static double sum_of(const double *x, ptrdiff_t n) {
    if (n > LEAF) {
        const ptrdiff_t half = half_of(n);
        return sum_of(x, half) + sum_of(x + half, n - half);
    }
    double few = 0, lane[LANES] = {0};
    ptrdiff_t i = 0;
    for (; n < LANES && i < n; i++) few += x[i];
    if (n < LANES) return few;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += x[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += x[i + j];
    return lane_sum_f64(lane);
}

/* The mean of a run of x, of which many are of one. */
static inline double mean_of(const double *x, ptrdiff_t n) {
    return n == 1 ? x[0] : sum_of(x, n) / (double)n;
}

/* The largest of x, by lanes. */
static double largest_of(const double *x, ptrdiff_t n) {
    double lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = -(double)INFINITY;
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = larger_f64(x[i + j], lane[j]);
    for (int j = 0; i + j < n; j++) lane[j] = larger_f64(x[i + j], lane[j]);
    return lane_max_f64(lane);
}

/* The smallest of x, whose signs are reversed on the way. */
static double smallest_of(double *x, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) x[i] = -x[i];
    return -largest_of(x, n);
}

#endif
