/* What the mappings with upper bounds share, whatever their floating type. */
#ifndef PYENTMAX_FILLING_H
#define PYENTMAX_FILLING_H

#include "smoothing.h" /* sum_of */

/* At one level: the sum, its slope, and how many entries have started, and of them are not full. */
typedef struct {
    double sum, pace, started, open;
} Filled;

/* Halfway between 0 <= low <= high in the order of floating-point numbers, which that of their bits is. */
static inline double middle_float(double low, double high) {
    int64_t from, to;
    memcpy(&from, &low, sizeof from);
    memcpy(&to, &high, sizeof to);
    from += (to - from) / 2;
    memcpy(&low, &from, sizeof low);
    return low;
}

/* The largest of x, by lanes. */
static double top_of(const double *x, ptrdiff_t n) {
    double lane[8], top = -(double)INFINITY;
    for (int j = 0; j < 8; j++) lane[j] = -(double)INFINITY;
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int j = 0; j < 8; j++) top = lane[j] > top ? lane[j] : top;
    return top;
}

/* The sum of the bounds of scores at most so far below the top. */
static double bounds_within(double gap, double top, const double *score, const double *bound,
                            ptrdiff_t n, double *spare) {
    for (ptrdiff_t i = 0; i < n; i++) spare[i] = top - score[i] <= gap ? bound[i] : 0;
    return sum_of(spare, n);
}

#endif
