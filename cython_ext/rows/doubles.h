/* Sums and extremes of rows that are worked on in double, whatever the scores are. */
#ifndef PYENTMAX_ROWS_DOUBLES_H
#define PYENTMAX_ROWS_DOUBLES_H

#include "rows/sizes.h"

/* The sum of x, by halves and lanes, so that rounding grows with log n. */
static double sum_of(const double *x, ptrdiff_t n) {
    if (n > LEAF) {
        const ptrdiff_t half = half_of(n);
        return sum_of(x, half) + sum_of(x + half, n - half);
    }
    double lane[4] = {0};
    ptrdiff_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++) lane[j] += x[i + j];
    for (; i < n; i++) lane[0] += x[i];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/* The largest of x, by lanes. */
static double largest_of(const double *x, ptrdiff_t n) {
    double lane[8], largest = -(double)INFINITY;
    for (int j = 0; j < 8; j++) lane[j] = -(double)INFINITY;
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    for (int j = 0; j < 8; j++) largest = lane[j] > largest ? lane[j] : largest;
    return largest;
}

/* The smallest of x, whose signs are reversed on the way. */
static double smallest_of(double *x, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) x[i] = -x[i];
    return -largest_of(x, n);
}

#endif
