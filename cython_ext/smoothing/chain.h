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

/* A level that max u reaches. Edges pull entries i to j down by 2 weight in all, at most: so max u
 * is at least (x_i + ... + x_j - 2 weight)/(j - i + 1), and it is the largest of these. A step of
 * Dinkelbach's, from the largest x, 0, alone, comes near it. */
NEVER_INLINE double reached(const double *x, ptrdiff_t n, double weight) {
    const double level = -2 * weight;
    double sum = 0, most = 2 * weight;
    ptrdiff_t start = 0, size = 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        start = sum > 0 ? start : i;
        sum = larger_f64(sum, 0) + (x[i] - level);
        if (sum > most) most = sum, size = i + 1 - start;
    }
    return level + (most - 2 * weight) / (double)size;
}

/* How much less it costs an entry to have its u above a level than not, given those behind it,
 * which lead the edge to the entry before by no more than its weight. u is above where the entry
 * before is and the lead above -weight, or it is not and the lead above weight. */
NEVER_INLINE void lead_of_chain(const double *restrict x, ptrdiff_t n, double level, double weight,
                                double *restrict lead) {
    double behind = 0;
    for (ptrdiff_t i = n - 1; i >= 0; i--) {
        lead[i] = behind + (x[i] - level);
        behind = larger_f64(smaller_f64(lead[i], weight), -weight);
    }
}

/* A straight piece of a string: over so many entries, and how far it rises. */
typedef struct {
    double entries, rise;
} Piece;

static inline bool no_steeper(Piece a, Piece b) {
    return a.rise * b.entries <= b.rise * a.entries;
}

static inline void append(Piece *a, Piece b, int sign) {
    a->entries += sign * b.entries;
    a->rise += sign * b.rise;
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

/* Smooth x, part of a chain whose edges all have one weight. `before` and `behind` say whether a
 * further edge, at that end, goes down. Writes the runs, and returns how many there are.
 *
 * With y_j the pull of the edge behind entry j, u_j = x_j + y_j - y_(j-1), and u_1 + ... + u_j is
 * the height of a string through the tube of half-width `weight` around the running sums of x. The
 * solution is the taut string (Davies & Kovac 2001): it bends up only where it touches the upper
 * wall, and down at the lower. From its last bend on, `over` is the steepest way below the upper
 * wall that only bends up, and `under` the flattest above the lower wall that only bends down. Once
 * one of the two is straight and leaves the other behind, the first piece of the other is the
 * string's. Each entry adds a piece to either, and a piece is taken off once: O(n), whatever x
 * holds. scratch is for 4 n doubles. */
static ptrdiff_t smooth_chain(const double *restrict x, ptrdiff_t n, double weight, bool before,
                              bool behind, Run *restrict runs, double *restrict scratch) {
    Piece *over = (Piece *)scratch, *under = over + n;
    Piece *over_end = over, *under_end = under;
    ptrdiff_t count = 0, left = n;
    for (ptrdiff_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && x[next] == x[i]; next++) {} /* which are fused */
        const Piece alike = {(double)(next - i), (double)(next - i) * x[i]};
        Piece high = alike, low = alike;
        if (i == 0 || next == n) { /* the string's ends are fixed; what is huge cancels first */
            const double from = before ? weight : 0, to = behind ? -weight : 0;
            high.rise += (next < n ? weight : to) - (i > 0 ? weight : from);
            low.rise += (next < n ? -weight : to) - (i > 0 ? -weight : from);
        }
        while (over_end > over && no_steeper(high, over_end[-1])) append(&high, *--over_end, 1);
        while (under_end > under && no_steeper(under_end[-1], low)) append(&low, *--under_end, 1);
        *over_end++ = high;
        *under_end++ = low;
        if (over_end == over + 1)
            for (; under_end > under + 1 && !no_steeper(*under, *over); under++) {
                append(over, *under, -1);
                runs[count++] = (Run){0, (int64_t)under->entries, -1};
            }
        if (under_end == under + 1)
            for (; over_end > over + 1 && !no_steeper(*under, *over); over++) {
                append(under, *over, -1);
                runs[count++] = (Run){0, (int64_t)over->entries, 1};
            }
    }
    for (ptrdiff_t r = 0; r < count; r++) left -= runs[r].size;
    runs[count++] = (Run){0, left, -behind};
    int from = before;
    for (Run *run = runs; run < runs + count;
         run++) { /* the wall at its end, to what pulls at it */
        const int to = run->pull;
        *run = (Run){mean_of(x, run->size), run->size, to - from};
        from = to;
        x += run->size;
    }
    return count;
}

#endif
