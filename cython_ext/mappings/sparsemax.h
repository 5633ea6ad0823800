/* Sparsemax of one row, its logarithm and its Jacobian's product: a template. The NumPy twins are
 * pyentmax/mappings/sparsemax.py, with the derivation, and for the search `newton_sparsemax` in
 * pyentmax/thresholds/newton.py.
 *
 * Scores are kept as gaps x = z - max z <= 0, and the threshold as t = -tau > 0, so that
 *
 *     p_i = [x_i + t]+   with   f(t) = sum_i [x_i + t]+ = 1   and   0 < t <= 1,
 *
 * the upper bound because the largest entry alone, x = 0, contributes t to the sum.
 */
#ifndef PYENTMAX_MAPPINGS_SPARSEMAX_H
#define PYENTMAX_MAPPINGS_SPARSEMAX_H

#include "gufunc/mapping_loops.h"
#include "mappings/_log_probabilities.h"
#include "mappings/_separable_jvp.h"
#include "rows/tiles.h"
#include "thresholds/search.h"

#define TEMPLATE "mappings/sparsemax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

MAPPING(sparsemax, "sparsemax")
MAPPING(log_sparsemax, "sparsemax, as logarithms")
JVP(sparsemax, "sparsemax")

#elif defined(REAL)

/* A sum is above 1 by less through rounding alone; by more where entries at the threshold count in
 * the size, and made the last step too short. */
#define SHOWS (8 * EPSILON)

/* How many gaps are t below 0 exactly. */
static ptrdiff_t TYPED(count_at)(const REAL *x, ptrdiff_t n, REAL t) {
    BITS count[PAIR] = {0};
    for (ptrdiff_t i = 0; i < n; i += PAIR)
        for (int j = 0; j < PAIR; j++) count[j] += x[i + j] == -t;
    ptrdiff_t all = 0;
    for (int j = 0; j < PAIR; j++) all += count[j];
    return all;
}

/* Find t with f(t) = 1, from a start at or above it (Michelot's algorithm).
 *
 * f is convex and piecewise linear, so the root of its tangent is at or above the root wanted, and
 * is that root as soon as no entry leaves the support on the way there.
 *
 * t is rounded, and at_t says what it lacks. Where it was rounded up and thousands of entries are
 * right at it, of which the size holds each, they share in that no longer: they are taken out of
 * the size as soon as the sum would show it. */
static REAL TYPED(michelot)(REAL *x, ptrdiff_t n, REAL t, const void *context, Moments *at_t) {
    (void)context;
    double size_before = 0;
    bool last = false;
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        Moments m = *at_t = TYPED(moments)(x, n, t, false);
        if (m.size == size_before || last) {
            if (m.sum - 1 < SHOWS) break;
            m.size = at_t->size -= (double)TYPED(count_at)(x, n, t);
            const REAL next = (REAL)(t + (1 - m.sum) / m.size);
            if (next == t || last) break;
            last = true;
            t = next;
            continue;
        }
        size_before = m.size;
        t = (REAL)(t + (1 - m.sum) / m.size);
        if (m.size < n / 2) n = TYPED(shrink)(x, n, TYPED(reach)(t));
    }
    return t;
}

/* t is the root but rounded: what is missing from the sum, shared by all of the support, makes
 * (x + t) + rest right to a few units of its own last place. */
ALWAYS_INLINE REAL TYPED(sparsemax_entry)(REAL x, REAL t, REAL rest) {
    const REAL u = (x + t) + rest;
    return u > 0 ? u : (REAL)0;
}

static void TYPED(sparsemax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                 Ahead *ahead, REAL *restrict scratch) {
    TYPED(Search) found;
    (void)ahead; /* most of the time goes into memory as it is */
    if (!TYPED(search)(z, p, n, 1, TYPED(michelot), NULL, scratch, &found)) return;

    const REAL largest = found.largest, t = found.t;
    const REAL rest = (REAL)((1 - found.at_t.sum) / found.at_t.size);
    found.t = TYPED(reach)(t);
    ptrdiff_t start = TYPED(next_live)(&found, p, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        for (ptrdiff_t i = start; i < end; i++)
            p[i] = TYPED(sparsemax_entry)(z[i] - largest, t, rest);
        start = TYPED(next_live)(&found, p, end, n);
    }
}

/* Michelot's algorithm in every column of a tile until none of them moves, or for so many passes.
 * Are there any that `past` tells of? Their t was rounded past the root, and out of a crowd of
 * entries that is right at it; or onto a crowd, which the size counts and the sum does not. */
static bool TYPED(sparsemax_columns)(const REAL *x, ptrdiff_t n, int passes, Ahead *ahead,
                                     REAL *restrict t, REAL *restrict rest, REAL *restrict past) {
    TYPED(BlockMoments) m;
    REAL size_before[BLOCK] = {0};
    for (int j = 0; j < BLOCK; j++) past[j] = 0;
    for (int pass = 0; pass < passes; pass++) {
        TYPED(block_moments)(x, n, t, false, ahead, &m);
        BITS moving = 0;
        for (int j = 0; j < BLOCK; j++) {
            const REAL missing = 1 - m.sum[j];
            const REAL changed = m.size[j] == size_before[j] ? (REAL)0 : (REAL)1;
            const REAL below = missing > 0 ? changed : (REAL)0, moved = changed - below;
            rest[j] = missing / m.size[j];
            t[j] += moved * rest[j];
            past[j] += below;
            size_before[j] = m.size[j];
            moving |= moved != 0;
        }
        if (!moving) break;
    }
    REAL all = 0;
    for (int j = 0; j < BLOCK; j++) past[j] += rest[j] * m.size[j] < -SHOWS ? (REAL)1 : (REAL)0;
    for (int j = 0; j < BLOCK; j++) all += past[j];
    return all > 0;
}

/* Which of such columns have an entry on another side of the threshold t + rest than of t? The
 * others are right: the rest is what the sum of their support lacks. */
NEVER_INLINE bool TYPED(any_crosses)(const REAL *restrict x, ptrdiff_t n, const REAL *restrict t,
                                     const REAL *restrict rest, REAL *restrict past) {
    REAL crossing[BLOCK] = {0}, all = 0;
    for (ptrdiff_t i = 0; i < n * BLOCK; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) {
            const REAL u = x[i + j] + t[j], v = u + rest[j];
            crossing[j] += v > 0 ? (REAL)1 : (REAL)0;
            crossing[j] -= u >= 0 ? (REAL)1 : (REAL)0; /* all cross the same way */
        }
    for (int j = 0; j < BLOCK; j++) past[j] = crossing[j] == 0 ? (REAL)0 : past[j];
    for (int j = 0; j < BLOCK; j++) all += past[j];
    return all > 0;
}

/* The rest of such columns, by the same steps: it has the digits that t has no room for. The first
 * step may come from below; the others come from above, where a sum below 1 is rounding. */
NEVER_INLINE void TYPED(settle_columns)(const REAL *restrict x, ptrdiff_t n, const REAL *restrict t,
                                        const REAL *restrict past, REAL *restrict rest) {
    for (int j = 0; j < BLOCK; j++) {
        if (!(past[j] > 0)) continue;
        rest[j] = 0;
        for (int pass = 0; pass < MAX_PASSES; pass++) {
            /* Beside a sum of 1 a crowd of ε/2 each would be lost whole. */
            double sum = 0, lost = 0, size = 0;
            for (ptrdiff_t i = 0; i < n; i++) {
                const REAL u = (x[i * BLOCK + j] + t[j]) + rest[j];
                const double term = u > 0 ? u : 0, next = sum + term, added = next - sum;
                lost += (sum - (next - added)) + (term - added);
                sum = next;
                size += u > 0;
            }
            const double excess = (sum - 1) + lost;
            if ((pass > 0 ? excess : fabs(excess)) <= EPSILON / 4) break;
            rest[j] -= (REAL)(excess / size);
        }
    }
}

/* Short rows to a tile of gaps, and the thresholds of its columns. The largest of each group, as a
 * part of the row, bound t from above: two passes over these save one or two over all. */
static void TYPED(sparsemax_tile)(const REAL *const z[BLOCK], ptrdiff_t n, Ahead *ahead,
                                  REAL *restrict x, REAL *restrict largest, REAL *restrict t,
                                  REAL *restrict rest) {
    REAL past[BLOCK];
    for (int j = 0; j < BLOCK; j++) t[j] = 1;
    if (n >= WORTH_GROUPS) {
        REAL groups[LONGEST_SHORT / GROUP * BLOCK];
        const ptrdiff_t size = TYPED(interleave_groups)(z, n, 1, x, largest, groups);
        TYPED(sparsemax_columns)(groups, size, 2, ahead, t, rest, past);
        for (int j = 0; j < BLOCK; j++) t[j] = TYPED(reach)(t[j]);
    } else {
        TYPED(interleave)(z, n, 1, x, largest);
    }
    if (TYPED(sparsemax_columns)(x, n, MAX_PASSES, ahead, t, rest, past)
        && TYPED(any_crosses)(x, n, t, rest, past))
        TYPED(settle_columns)(x, n, t, past, rest);
}

static void TYPED(sparsemax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                   ptrdiff_t n, Ahead *ahead, REAL *restrict x) {
    REAL largest[BLOCK], t[BLOCK], rest[BLOCK];
    TYPED(sparsemax_tile)(z, n, ahead, x, largest, t, rest);
    TYPED(entries_of_rows)(TYPED(sparsemax_entry), z, p, count, n, 1, largest, t, rest, ahead, x);
    for (int j = 0; j < count; j++) TYPED(is_settled)(p[j], n, largest[j]);
}

static const TYPED(Mapping)
    TYPED(sparsemax) = {TYPED(sparsemax_row), TYPED(sparsemax_block), SHORT_SEARCHED};
LOG_MAPPING(sparsemax, SHORT_SEARCHED)

ALWAYS_INLINE TYPED(Register) TYPED(sparsemax_inverse_curvature)(TYPED(Register) p) {
    const TYPED(Register) none = {0};
    return TYPED(choose_above)(p, none, none + 1, p);
}
SEPARABLE_JVP(sparsemax, false)

#endif
