/* Sparsemax of one row, its logarithm and its Jacobian's product: a template. The NumPy twins are
 * pyentmax/reference/mappings/sparsemax.py, with the derivation, and for the search
 * `newton_sparsemax` in notebooks/thresholds.py.
 *
 * Scores are kept as gaps x = z - max z <= 0, and the threshold as t = -tau > 0, so that
 *
 *     p_i = [x_i + t]+   with   f(t) = sum_i [x_i + t]+ = 1   and   0 < t <= 1,
 *
 * the upper bound because the largest entry alone, x = 0, contributes t to the sum.
 */
#ifndef PYENTMAX_MAPPINGS_SPARSEMAX_H
#define PYENTMAX_MAPPINGS_SPARSEMAX_H

#include "mappings/_separable_jvp.h"
#include "mappings/_sparse_mapping.h"

/* What t lacks of the root, shared by all of the support. */
static inline double sparsemax_lacks(Moments at_t) {
    return (1 - at_t.sum) / at_t.size;
}

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
static REAL TYPED(michelot)(REAL *x, ptrdiff_t n, REAL t, Moments *at_t) {
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

/* A pass of Michelot's algorithm in every column. A t that was rounded past the root has a sum
 * below 1, or one above it by more than rounding: an entry right at it counts in the size alone. */
NEVER_INLINE bool TYPED(sparsemax_step)(const TYPED(BlockMoments) *restrict m,
                                        TYPED(SparseColumns) *restrict c) {
    BITS moving = 0;
    for (int j = 0; j < BLOCK; j++) {
        const REAL missing = 1 - m->sum[j];
        const REAL changed = m->size[j] == c->size_before[j] ? (REAL)0 : (REAL)1;
        const REAL below = missing > 0 ? changed : (REAL)0, moved = changed - below;
        c->rest[j] = missing / m->size[j];
        c->t[j] += moved * c->rest[j];
        c->upper[j] = c->t[j];
        c->past[j] += below + (missing < -SHOWS ? 1 - changed : (REAL)0);
        c->size_before[j] = m->size[j];
        moving |= moved != 0;
    }
    return moving != 0;
}

/* Such columns, each as a row. */
static void TYPED(sparsemax_settle)(const REAL *restrict x, ptrdiff_t n,
                                    TYPED(SparseColumns) *restrict c) {
    REAL all = 0;
    for (int j = 0; j < BLOCK; j++) all += c->past[j];
    for (int j = 0; all > 0 && j < BLOCK; j++) {
        if (!(c->past[j] > 0)) continue;
        REAL column[LONGEST_SHORT + 2 * PAIR];
        Moments at_t;
        for (ptrdiff_t i = 0; i < n; i++) column[i] = x[i * BLOCK + j];
        c->t[j] = TYPED(michelot)(column, TYPED(pad)(column, n), TYPED(reach)(c->t[j]), &at_t);
        c->rest[j] = (REAL)sparsemax_lacks(at_t);
    }
}

static const TYPED(SparseMapping) TYPED(sparsemax_parts) = {
    .scale = 1,
    .squared = false,
    .solve = TYPED(michelot),
    .lacks = sparsemax_lacks,
    .entry = TYPED(sparsemax_entry),
    .step = TYPED(sparsemax_step),
    .settle = TYPED(sparsemax_settle),
};
SPARSE_MAPPING(sparsemax)

ALWAYS_INLINE REGISTER TYPED(sparsemax_inverse_curvature)(REGISTER p) {
    const REGISTER none = {0};
    return TYPED(choose_above)(p, none, none + 1, p);
}
SEPARABLE_JVP(sparsemax, false)

#endif
