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

/* The Mapping NAME, and its logarithm, from the SparseMapping NAME_parts. */
#define SPARSE_MAPPING(name) \
    static void TYPED(name##_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, \
                                  const TYPED(RowContext) *with) { \
        TYPED(sparse_row)(&TYPED(name##_parts), z, p, n, with->scratch); \
    } \
    static void TYPED(name##_tile)(const REAL *const z[BLOCK], ptrdiff_t n, Ahead *ahead, \
                                   REAL *restrict x, REAL *restrict largest, \
                                   TYPED(SparseColumns) *restrict c) { \
        TYPED(sparse_tile)(&TYPED(name##_parts), z, n, ahead, x, largest, c); \
    } \
    static void TYPED(name##_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count, \
                                    ptrdiff_t n, const TYPED(RowContext) *with) { \
        REAL largest[BLOCK]; \
        TYPED(SparseColumns) c; \
        TYPED(name##_tile)(z, n, with->ahead, with->scratch, largest, &c); \
        TYPED(sparse_entries)(&TYPED(name##_parts), z, p, count, n, largest, &c, with); \
    } \
    static const TYPED(Mapping) \
        TYPED(name) = {NOTHING_ELSE, TYPED(name##_row), TYPED(name##_block), SHORT_SEARCHED}; \
    LOG_MAPPING(name, SHORT_SEARCHED)

#define TEMPLATE "mappings/_sparse_mapping.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Where the search stands in every column of a tile: t and what it lacks, bounds on the root, the
 * size of the support at the last pass, and whether t was rounded past the root. */
typedef struct {
    REAL t[BLOCK], rest[BLOCK], lower[BLOCK], upper[BLOCK], size_before[BLOCK], past[BLOCK];
} TYPED(SparseColumns);

/* What such a mapping is made of. A constant: functions that take it are inlined, and so are those
 * that it names. */
typedef struct {
    REAL scale;   /* of the gaps */
    bool squared; /* are squares among the moments that it takes? */
    TYPED(Solver) *solve;
    double (*lacks)(Moments at_t); /* what t lacks, by the moments there */
    TYPED(Entry) *entry;
    bool (*step)(const TYPED(BlockMoments) *restrict m, TYPED(SparseColumns) *restrict c);
    /* moves each t, given its moments, and tells whether any moved; */
    void (*settle)(const REAL *restrict x, ptrdiff_t n, TYPED(SparseColumns) *restrict c);
    /* and corrects what the steps leave, unless NULL */
} TYPED(SparseMapping);

ALWAYS_INLINE void TYPED(sparse_row)(const TYPED(SparseMapping) *of, const REAL *restrict z,
                                     REAL *restrict p, ptrdiff_t n, REAL *restrict scratch) {
    TYPED(Search) found;
    if (!TYPED(search)(z, p, n, of->scale, of->solve, scratch, &found)) return;
    const REAL largest = found.largest, t = found.t, rest = (REAL)of->lacks(found.at_t);
    found.t = TYPED(reach)(t);
    ptrdiff_t start = TYPED(next_live)(&found, p, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        for (ptrdiff_t i = start; i < end; i++)
            p[i] = of->entry((z[i] - largest) * of->scale, t, rest);
        start = TYPED(next_live)(&found, p, end, n);
    }
}

ALWAYS_INLINE void TYPED(step_columns)(const TYPED(SparseMapping) *of, const REAL *restrict x,
                                       ptrdiff_t n, int passes, Ahead *ahead,
                                       TYPED(SparseColumns) *restrict c) {
    TYPED(BlockMoments) m;
    for (int j = 0; j < BLOCK; j++) c->lower[j] = c->size_before[j] = c->past[j] = 0;
    for (int pass = 0; pass < passes; pass++) {
        TYPED(block_moments)(x, n, c->t, of->squared, ahead, &m);
        if (!of->step(&m, c)) break;
    }
}

/* Short rows to a tile of gaps, and the thresholds of its columns. */
ALWAYS_INLINE void TYPED(sparse_tile)(const TYPED(SparseMapping) *of, const REAL *const z[BLOCK],
                                      ptrdiff_t n, Ahead *ahead, REAL *restrict x,
                                      REAL *restrict largest, TYPED(SparseColumns) *restrict c) {
    for (int j = 0; j < BLOCK; j++) c->t[j] = c->upper[j] = 1;
    if (n >= WORTH_GROUPS) {
        REAL groups[LONGEST_SHORT / GROUP * BLOCK];
        const ptrdiff_t size = TYPED(interleave_groups)(z, n, of->scale, x, largest, groups);
        TYPED(step_columns)(of, groups, size, 2, ahead, c);
        for (int j = 0; j < BLOCK; j++) c->upper[j] = TYPED(reach)(c->upper[j]);
        if (!of->squared) memcpy(c->t, c->upper, sizeof c->t); /* which is to fall to the root */
    } else {
        TYPED(interleave)(z, n, of->scale, x, largest);
    }
    TYPED(step_columns)(of, x, n, MAX_PASSES, ahead, c);
    if (of->settle) of->settle(x, n, c);
}

/* p of the first rows of such a tile, which is in the scratch. */
ALWAYS_INLINE void TYPED(sparse_entries)(const TYPED(SparseMapping) *of, const REAL *const z[BLOCK],
                                         REAL *const p[BLOCK], int count, ptrdiff_t n,
                                         const REAL *restrict largest,
                                         const TYPED(SparseColumns) *restrict c,
                                         const TYPED(RowContext) *with) {
    TYPED(entries_of_rows)(of->entry, z, p, count, n, of->scale, largest, c->t, c->rest,
                           with->ahead, with->scratch);
    for (int j = 0; j < count; j++) TYPED(fill_degenerate_row)(p[j], n, largest[j]);
}

#endif
