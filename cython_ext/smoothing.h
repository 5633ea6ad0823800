/* The first step of fusedmax and oscarmax, u = argmin 1/2 |u - x|^2 + sum over edges of w |u_i - u_j|, for
 * the two graphs they use. Where it comes from is in pyentmax/mappings/_fused.py and its users.
 *
 * All of it is in double, whatever the scores are. Which entries are fused is decided by rounded running
 * sums; their common value is then the mean over the group, once for all of it, to the last bit.
 */
#ifndef PYENTMAX_SMOOTHING_H
#define PYENTMAX_SMOOTHING_H

#include <float.h>

#include "rows.h"

/* A place where f bends, and by how much its slope changes there. */
typedef struct {
    double place, bend;
} Knot;

/* A key to sort by, and where it stood. */
typedef struct {
    uint64_t key;
    ptrdiff_t place;
} Ranked;

/* Doubles per score that smoothing works in: the scores themselves, sorted, and what sorting (twice two)
 * and pooling (three) take, or the chain's two levels and two knots. */
enum { ROOM = 9 };

/* A power of two to divide n scores by, so that no sum that smoothing takes of them overflows: with
 * weights held to n times the range of the scores, none of n terms exceeds 16 n^2 times it. */
static double headroom(ptrdiff_t n) {
    double scale = 16;
    for (ptrdiff_t power = 1; power < n; power *= 2) scale *= 4;
    return scale;
}

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

/* --- the chain: neighbours are joined -------------------------------------------------------------- */

/* Where f crosses its level, coming from one side (1 from the left, -1 from the right), its slope there
 * and the end of the queue. t is where it would cross if it went on with slope 1, as it does beyond the
 * knots. Each knot before that bends f: to the next, it makes good slope times the distance of the
 * height that is missing. Slopes count entries, and are at least 1 even where rounding swaps two knots. */
static inline double crossing(double t, int side, const Knot *knots, ptrdiff_t *end,
                              ptrdiff_t stop, double *slope) {
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

/* Smooth x in place along a chain whose edges all have one weight: Johnson's (2013) dynamic program, as
 * derived in pyentmax/mappings/fusedmax.py.
 *
 * f_j is the derivative of the best value of the terms up to j, given u_j; it reaches -weight at low_j
 * and weight at high_j, and u_j = clip(u_{j+1}, low_j, high_j). Each step adds a knot at either end of
 * the queue, and a knot is taken off once: O(n), whatever x holds. room is for 6 n doubles. */
static void smooth_chain(double *restrict x, ptrdiff_t n, double weight, double *restrict room) {
    double *low = room, *high = room + n;
    Knot *knots = (Knot *)(room + 2 * n); /* 2 n, begun in the middle */
    ptrdiff_t first = n, last = n - 1;
    double before = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        const double after = j < n - 1 ? weight : 0;
        double slope;
        low[j] = crossing(x[j] + before - after, 1, knots, &first, last + 1, &slope);
        knots[--first] = (Knot){low[j], slope};
        high[j] = crossing(x[j] - before + after, -1, knots, &last, first, &slope);
        knots[++last] = (Knot){high[j], -slope};
        before = after;
    }
    double *u = low;
    for (ptrdiff_t j = n - 2; j >= 0; j--) {
        u[j] = u[j + 1] > low[j] ? u[j + 1] : low[j];
        u[j] = u[j] < high[j] ? u[j] : high[j];
    }
    for (ptrdiff_t start = 0, end; start < n; start = end) {
        for (end = start + 1; end < n && u[end] == u[start]; end++) {}
        double pull = 0; /* from the run before and the run after, up or down */
        if (start > 0) pull += u[start - 1] > u[start] ? weight : -weight;
        if (end < n) pull += u[end] > u[start] ? weight : -weight;
        const double mean = (sum_of(x + start, end - start) + pull) / (double)(end - start);
        for (ptrdiff_t i = start; i < end; i++) x[i] = mean;
    }
}

/* --- all pairs are joined --------------------------------------------------------------------------- */

/* Sort so that keys of so many bytes rise, a byte at a time from the last, and skip those that are the
 * same in all: O(n) whatever the order. room is for n; returns whichever of the two holds the result. */
static Ranked *sort_by_key(Ranked *entries, ptrdiff_t n, int bytes, Ranked *room) {
    ptrdiff_t counts[8][256];
    memset(counts, 0, (size_t)bytes * sizeof counts[0]);
    for (ptrdiff_t i = 0; i < n; i++)
        for (int b = 0; b < bytes; b++) counts[b][entries[i].key >> 8 * b & 255]++;
    for (int b = 0; b < bytes; b++) {
        ptrdiff_t *place = counts[b], sum = 0;
        if (n == 0 || place[entries[0].key >> 8 * b & 255] == n) continue;
        for (int digit = 0; digit < 256; digit++) {
            const ptrdiff_t count = place[digit];
            place[digit] = sum;
            sum += count;
        }
        for (ptrdiff_t i = 0; i < n; i++)
            room[place[entries[i].key >> 8 * b & 255]++] = entries[i];
        Ranked *sorted = room;
        room = entries;
        entries = sorted;
    }
    return entries;
}

/* Adjacent entries pooled, from start on, and their mean. */
typedef struct {
    double mean, size;
    ptrdiff_t start;
} Pool;

/* The falling sequence nearest to y, in place: a block whose mean lies above that of the block before is
 * pooled with it, in whatever order. Each entry is pooled once: O(n). room is for n. */
static void pool_rises(double *restrict y, ptrdiff_t n, Pool *restrict pools) {
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        Pool pool = {y[i], 1, i};
        for (; count > 0 && pool.mean > pools[count - 1].mean; count--) {
            const Pool before = pools[count - 1];
            const double size = pool.size + before.size;
            pool.mean = before.mean + (pool.mean - before.mean) * (pool.size / size);
            pool.size = size;
            pool.start = before.start;
        }
        pools[count++] = pool;
    }
    for (ptrdiff_t k = 0; k < count; k++) {
        const ptrdiff_t start = pools[k].start, end = k + 1 < count ? pools[k + 1].start : n;
        const double mean = sum_of(y + start, end - start) / (double)(end - start);
        for (ptrdiff_t i = start; i < end; i++) y[i] = mean;
    }
}

/* --- the derivative ------------------------------------------------------------------------------- */

/* v's mean over each run of equal p > 0, less that over all of them, in place; size of the n entries
 * are such, v is 0 at the others. A run that is all there is gives 0 exactly. */
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

#endif
