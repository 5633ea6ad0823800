/* How rows go through a sparse mapping whose threshold has a closed form for a support, which
 * sparsemax and 1.5-entmax are: a template.
 *
 * Scores are kept as gaps x = scale (z - max z) <= 0, and the threshold as t = -tau > 0. A mapping
 * says what an entry of p is, of x + t and what t lacks for its rounding; how far t is from the
 * root while the support stays as it is; and so how to solve for t. A long row is searched by its
 * chunks' maxima (thresholds/search.h). Short rows share a tile, in whose columns the steps are
 * taken side by side; the largest of each group, as a part of the row, bound t from above: two
 * passes over these save one or two over all.
 */
#ifndef PYENTMAX_MAPPINGS__SPARSE_MAPPING_H
#define PYENTMAX_MAPPINGS__SPARSE_MAPPING_H

#include "gufunc/mapping_loops.h"
#include "mappings/_log_probabilities.h"
#include "rows/tiles.h"
#include "thresholds/search.h"

/* The Mapping NAME and its logarithm. Of the mapping: `solve`, a Solver; `lacks`, what t lacks by
 * the moments there; NAME_entry; NAME_step, a StepOfColumns; and NAME_settle, which may correct
 * what the steps leave. */
#define SPARSE_MAPPING(name, scale, squared, solve, lacks) \
    static void TYPED(name##_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, \
                                  const TYPED(RowContext) *with) { \
        TYPED(sparse_row)(z, p, n, scale, solve, lacks, TYPED(name##_entry), with->scratch); \
    } \
    static void TYPED(name##_tile)(const REAL *const z[BLOCK], ptrdiff_t n, Ahead *ahead, \
                                   REAL *restrict x, REAL *restrict largest, REAL *restrict t, \
                                   REAL *restrict rest) { \
        TYPED(SparseColumns) c; \
        TYPED(sparse_tile)(z, n, scale, squared, TYPED(name##_step), ahead, x, largest, &c); \
        TYPED(name##_settle)(x, n, &c); \
        memcpy(t, c.t, sizeof c.t); \
        memcpy(rest, c.rest, sizeof c.rest); \
    } \
    static void TYPED(name##_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count, \
                                    ptrdiff_t n, const TYPED(RowContext) *with) { \
        REAL *restrict x = with->scratch; \
        REAL largest[BLOCK], t[BLOCK], rest[BLOCK]; \
        TYPED(name##_tile)(z, n, with->ahead, x, largest, t, rest); \
        TYPED(entries_of_rows)(TYPED(name##_entry), z, p, count, n, scale, largest, t, rest, \
                               with->ahead, x); \
        for (int j = 0; j < count; j++) TYPED(fill_degenerate_row)(p[j], n, largest[j]); \
    } \
    static const TYPED(Mapping) \
        TYPED(name) = {NOTHING_ELSE, TYPED(name##_row), TYPED(name##_block), SHORT_SEARCHED}; \
    LOG_MAPPING(name, SHORT_SEARCHED)

#define TEMPLATE "mappings/_sparse_mapping.h"
#include "float_and_double.h"

#elif defined(REAL)

ALWAYS_INLINE void TYPED(sparse_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                     REAL scale, TYPED(Solver) *solve, double (*lacks)(Moments),
                                     TYPED(Entry) *entry, REAL *restrict scratch) {
    TYPED(Search) found;
    if (!TYPED(search)(z, p, n, scale, solve, scratch, &found)) return;

    const REAL largest = found.largest, t = found.t, rest = (REAL)lacks(found.at_t);
    found.t = TYPED(reach)(t);
    ptrdiff_t start = TYPED(next_live)(&found, p, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        for (ptrdiff_t i = start; i < end; i++) p[i] = entry((z[i] - largest) * scale, t, rest);
        start = TYPED(next_live)(&found, p, end, n);
    }
}

/* Where the search stands in every column of a tile: t and what it lacks, bounds on the root, the
 * size of the support at the last pass, and whether t was rounded past the root. */
typedef struct {
    REAL t[BLOCK], rest[BLOCK], lower[BLOCK], upper[BLOCK], size_before[BLOCK], past[BLOCK];
} TYPED(SparseColumns);

/* Moves each t, given its moments; tells whether any moved. */
typedef bool TYPED(StepOfColumns)(const TYPED(BlockMoments) *restrict m,
                                  TYPED(SparseColumns) *restrict c);

ALWAYS_INLINE void TYPED(step_columns)(const REAL *restrict x, ptrdiff_t n, int passes,
                                       const bool squared, TYPED(StepOfColumns) *step, Ahead *ahead,
                                       TYPED(SparseColumns) *restrict c) {
    TYPED(BlockMoments) m;
    for (int j = 0; j < BLOCK; j++) c->lower[j] = c->size_before[j] = c->past[j] = 0;
    for (int pass = 0; pass < passes; pass++) {
        TYPED(block_moments)(x, n, c->t, squared, ahead, &m);
        if (!step(&m, c)) break;
    }
}

/* Short rows to a tile of gaps, and the thresholds of its columns. */
ALWAYS_INLINE void TYPED(sparse_tile)(const REAL *const z[BLOCK], ptrdiff_t n, REAL scale,
                                      const bool squared, TYPED(StepOfColumns) *step, Ahead *ahead,
                                      REAL *restrict x, REAL *restrict largest,
                                      TYPED(SparseColumns) *restrict c) {
    for (int j = 0; j < BLOCK; j++) c->t[j] = c->upper[j] = 1;
    if (n >= WORTH_GROUPS) {
        REAL groups[LONGEST_SHORT / GROUP * BLOCK];
        const ptrdiff_t size = TYPED(interleave_groups)(z, n, scale, x, largest, groups);
        TYPED(step_columns)(groups, size, 2, squared, step, ahead, c);
        for (int j = 0; j < BLOCK; j++) c->upper[j] = TYPED(reach)(c->upper[j]);
        if (!squared) memcpy(c->t, c->upper, sizeof c->t); /* which is to fall to the root */
    } else {
        TYPED(interleave)(z, n, scale, x, largest);
    }
    TYPED(step_columns)(x, n, MAX_PASSES, squared, step, ahead, c);
}

#endif
