/* Total-variation denoising on a chain, the first step of fusedmax:
 *
 *     u = argmin 1/2 |u - x|^2 + weight sum_j |u_j - u_{j+1}|.
 *
 * All of it is in double, whatever the scores are. Which entries are fused is decided by rounded
 * running sums; what they share is then the mean over the run, once for all of it, to the last bit,
 * and how far the edges at its ends move that. Where the problem comes from is in
 * pyentmax/reference/mappings/_fused.py and fusedmax.py.
 */
#ifndef PYENTMAX_SMOOTHING_CHAIN_H
#define PYENTMAX_SMOOTHING_CHAIN_H

#include "rows/doubles.h"

/* A place where f bends, and by how much its slope changes there. */
typedef struct {
    double place, bend;
} Knot;

/* Where f crosses its level, coming from one side (1 from the left, -1 from the right), its slope
 * there and the end of the queue. t is where it would cross if it went on with slope 1, as it does
 * beyond the knots. Each knot before that bends f: to the next, it makes good slope times the
 * distance of the height that is missing. Slopes count entries, and are at least 1 even where
 * rounding swaps two knots. */
static inline double crossing(double t, int side, const Knot *knots, ptrdiff_t *end, ptrdiff_t stop,
                              double *slope) {
    double now = 1, place = knots[*end].place, missing = side * (t - place);
    if (*end != stop && missing > 0) {
        now += side * knots[*end].bend;
        for (*end += side; *end != stop; *end += side) {
            const double next = knots[*end].place, rest = missing - now * (side * (next - place));
            if (!(rest > 0)) break;
            now += side * knots[*end].bend;
            place = next;
            missing = rest;
        }
        t = place + side * (missing / now);
    }
    *slope = now;
    return t;
}

/* Fused entries: u = mean + weight pull/size, pull the edges up less the edges down. Kept apart,
 * since a weight that swamps the scores would round away what parts two peaks, which lie by the
 * same multiple of it below theirs. */
typedef struct {
    double mean;
    int64_t size : 60, pull : 4;
} Run;

/* u of one run less that of another. */
static inline double height_above(const Run *run, const Run *other, double weight) {
    const double size = (double)run->size, others = (double)other->size;
    const double pulls = (double)run->pull * others - (double)other->pull * size;
    return run->mean - other->mean + weight * (pulls / (size * others));
}

/* Smooth x, part of a chain whose edges all have one weight, by Johnson's (2013) dynamic program,
 * as derived in pyentmax/reference/mappings/fusedmax.py. `before` and `behind` say whether a
 * further edge, at that end, goes down. Writes the runs, and returns how many there are.
 *
 * f_j is the derivative of the best value of the terms up to j, given u_j; it reaches -weight at
 * low_j and weight at high_j, and u_j = clip(u_{j+1}, low_j, high_j). Each step adds a knot at
 * either end of the queue, and a knot is taken off once: O(n), whatever x holds. The weights in and
 * out go into x together, and cancel: a huge one after the other would round x away. scratch is for
 * 6 n doubles. */
static ptrdiff_t smooth_chain(const double *restrict x, ptrdiff_t n, double weight, bool before,
                              bool behind, Run *restrict runs, double *restrict scratch) {
    double *low = scratch, *high = scratch + n;
    Knot *knots = (Knot *)(scratch + 2 * n); /* 2 n, begun in the middle */
    ptrdiff_t first = n, last = n - 1;
    double in = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        const int further = (j == 0 && before) + (j == n - 1 && behind);
        const double out = j < n - 1 ? weight : 0, here = x[j] - weight * further;
        double slope;
        low[j] = crossing(here + (in - out), 1, knots, &first, last + 1, &slope);
        knots[--first] = (Knot){low[j], slope};
        high[j] = crossing(here - (in - out), -1, knots, &last, first, &slope);
        knots[++last] = (Knot){high[j], -slope};
        in = out;
    }
    double *u = low;
    for (ptrdiff_t j = n - 2; j >= 0; j--) {
        u[j] = u[j + 1] > low[j] ? u[j + 1] : low[j];
        u[j] = u[j] < high[j] ? u[j] : high[j];
    }
    ptrdiff_t count = 0;
    for (ptrdiff_t start = 0, end; start < n; start = end) {
        end = start + 1; /* equal scores are fused, even where rounding parted their u */
        while (end < n && (u[end] == u[end - 1] || x[end] == x[end - 1])) end++;
        int pull = -(start == 0 && before) - (end == n && behind);
        if (start > 0) pull += u[start - 1] > u[start] ? 1 : -1;
        if (end < n) pull += u[end] > u[end - 1] ? 1 : -1;
        const double mean = sum_of(x + start, end - start) / (double)(end - start);
        runs[count++] = (Run){mean, end - start, pull};
    }
    return count;
}

#endif
