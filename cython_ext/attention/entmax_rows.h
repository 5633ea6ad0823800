/* Scores of attention to the non-zeros of α-entmax, row by row: a template. What the
 * kernel takes stands in pyentmax/sparse_attention/compressed_rows.py.
 *
 * As in thresholds/search.h, the maxima of a row's chunks bound the threshold, and the few entries
 * within that bound are gathered, here with their columns. What is not among them is never looked
 * at again, and no zero is written. A sink is one more score at the end of a row, whose probability
 * is taken from the others.
 */
#ifndef PYENTMAX_ATTENTION_ENTMAX_ROWS_H
#define PYENTMAX_ATTENTION_ENTMAX_ROWS_H

#include <numpy/ndarraytypes.h>

#include "attention/heads.h"
#include "gufunc/kernel.h"
#include "mappings/entmax.h"

#define ROWS_ENTMAX_OPERANDS(real) \
    real, NPY_BOOL, NPY_INT64, NPY_DOUBLE, real, real, NPY_INT32, NPY_INT64, real

#define TEMPLATE "attention/entmax_rows.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD(
    "rows_entmax", "(h,m,n),(h,m,n),(m),(h),(h)->(c),(c),(h,m),(h,m)",
    "Scores, mask, columns to look at, alpha and sink to the non-zeros of entmax, "
    "their columns, where each row ends, and the sink's probability.",
    5, 4, ROWS_ENTMAX_OPERANDS, rows_entmax_loop)

#elif defined(REAL)

/* Memory for a row of up to n scores and a sink, in whole lanes and PAIR more. */
typedef struct {
    REAL *scratch;            /* for entmax_row(), since a query may see fewer keys */
    REAL *masked, *x, *p;     /* n; and what is kept of a row, as gaps and as probabilities, */
    int32_t *columns, *every; /* with its columns; and every column */
} TYPED(RowRoom);

/* Where the non-zeros of a row go, and their columns. */
typedef struct {
    REAL *values;
    int32_t *columns;
} TYPED(NonZeros);

/* keep_within() in room->x, with the columns; returns how many these are, in whole lanes. */
static ptrdiff_t TYPED(keep_columns_within)(const REAL *restrict z, ptrdiff_t n, REAL bound,
                                            const TYPED(RowRoom) *room, TYPED(Search) *found) {
    found->t = TYPED(reach)(bound);
    return TYPED(pad)(room->x, TYPED(gather)(z, n, found->largest, found->scale, found->t,
                                             found->maxima, room->x, room->every, room->columns));
}

/* The candidates below for such a mapping. */
ALWAYS_INLINE ptrdiff_t TYPED(sparse_candidates)(const TYPED(SparseMapping) *of, const REAL *z,
                                                 ptrdiff_t n, REAL largest,
                                                 const TYPED(RowRoom) *room) {
    TYPED(Search) found;
    TYPED(begin_search)(n, largest, of->scale, room->scratch, &found);
    const REAL bound = of->solve(found.kept, found.size, 1, &found.at_t);
    const ptrdiff_t size = TYPED(keep_columns_within)(z, n, bound, room, &found);
    memcpy(found.kept, room->x, (size_t)size * sizeof(REAL)); /* a solver may drop some */
    const REAL t = of->solve(found.kept, size, found.t, &found.at_t);
    const REAL rest = (REAL)of->lacks(found.at_t);
    for (ptrdiff_t i = 0; i < size; i++) room->p[i] = of->entry(room->x[i], t, rest);
    return size;
}

/* Candidates for the non-zeros of a row whose largest score is finite, in whole lanes: their
 * probabilities in room->p, and their columns. */
static ptrdiff_t TYPED(candidates)(const REAL *z, ptrdiff_t n, REAL largest, double alpha,
                                   TYPED(EntmaxKept) *kept, const TYPED(RowRoom) *room) {
    const TYPED(Mapping) *mapping = TYPED(mapping_for)(alpha);
    TYPED(Search) found;
    ptrdiff_t size;
    if (mapping == &TYPED(sparsemax)) {
        size = TYPED(sparse_candidates)(&TYPED(sparsemax_parts), z, n, largest, room);
    } else if (mapping == &TYPED(entmax15)) {
        size = TYPED(sparse_candidates)(&TYPED(entmax15_parts), z, n, largest, room);
    } else if (mapping == &TYPED(general_entmax)) {
        TYPED(begin_search)(n, largest, (REAL)(alpha - 1), room->scratch, &found);
        const REAL bound = TYPED(bound_entmax)(found.kept, found.size, alpha);
        size = TYPED(keep_columns_within)(z, n, bound, room, &found);
        TYPED(solve_entmax)(room->x, size, found.t, alpha, kept, &(Ahead){0}, room->p);
    } else { /* the whole row */
        size = whole_lanes(n);
        mapping->row(z, room->p, n,
                     &(TYPED(RowContext)){.ahead = &(Ahead){0}, .scratch = room->scratch});
        for (ptrdiff_t i = n; i < size; i++) room->p[i] = 0;
        memcpy(room->columns, room->every, (size_t)n * sizeof *room->columns);
    }
    return size;
}

/* The non-zeros of such a row. */
static ptrdiff_t TYPED(nonzeros)(const REAL *z, ptrdiff_t n, REAL largest, double alpha,
                                 TYPED(EntmaxKept) *kept, const TYPED(RowRoom) *room,
                                 TYPED(NonZeros) to) {
    const ptrdiff_t size = TYPED(candidates)(z, n, largest, alpha, kept, room);
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < size; i += LANES)
        count += TYPED(keep_with_indices)(room->p + i, 0, room->columns + i, to.values + count,
                                          to.columns + count);
    return count;
}

/* The same of any row of n scores, behind which lies a sink's unless it is −∞: NaN in every column
 * that the mask lets through, if there is a NaN. */
static ptrdiff_t TYPED(nonzeros_and_sink)(const REAL *z, const char *mask, ptrdiff_t mask_stride,
                                          ptrdiff_t n, double alpha, REAL *sink,
                                          TYPED(EntmaxKept) *kept, const TYPED(RowRoom) *room,
                                          TYPED(NonZeros) to) {
    const ptrdiff_t length = n + (*sink != -(REAL)INFINITY);
    *sink = 0;
    if (length == 0) return 0;
    const REAL largest = TYPED(chunk_maxima)(z, length, room->scratch);
    ptrdiff_t count = 0;
    if (largest == -(REAL)INFINITY) return 0;
    if (largest < (REAL)INFINITY) {
        count = TYPED(nonzeros)(z, length, largest, alpha, kept, room, to);
        if (count > 0 && to.columns[count - 1] == n) *sink = to.values[--count];
        return count;
    }
    if (length > n) *sink = (REAL)NAN;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (!mask[i * mask_stride]) continue;
        to.values[count] = (REAL)NAN;
        to.columns[count++] = (int32_t)i;
    }
    return count;
}

/* Scores, mask, how many columns of a row there are to look at, each head's α and sink, to values,
 * columns, the end of each row, and its sink's value. There has to be room for all entries, a sink
 * and LANES more. */
static void TYPED(rows_entmax_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "hmn hmn m h h c ci hm hm", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t n = axis_size(&all, 'n'), padded = whole_lanes(n + 1) + PAIR;
    if (axis_size(&all, 'c') < all.heads * axis_size(&all, 'm') * n + 1 + LANES) {
        value_error("rows_entmax: results must have room for all entries");
        return;
    }
    const ptrdiff_t of_rows = TYPED(entmax_scratch_size)(n + 1) + padded;
    REAL *scratch = scratch_or_error(of_rows + 3 * padded, sizeof(REAL));
    int32_t *numbers = scratch_or_error(2 * padded, sizeof(int32_t));
    if (scratch == NULL || numbers == NULL) {
        free(scratch);
        free(numbers);
        return;
    }
    REAL *after = scratch + of_rows;
    const TYPED(RowRoom) room = {scratch, after,           after + padded, after + 2 * padded,
                                 numbers, numbers + padded};
    for (ptrdiff_t i = 0; i < padded; i++) room.every[i] = (int32_t)i;

    TYPED(EntmaxKept) kept = {.alpha = 0};
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        REAL *values = (REAL *)of_head(&all, 5, i);
        int32_t *columns = (int32_t *)of_head(&all, 6, i);
        const double alpha = *(const double *)of_head(&all, 3, i);
        const REAL sink = *(const REAL *)of_head(&all, 4, i);
        const char *scores = of_head(&all, 0, i), *masks = of_head(&all, 1, i);
        const char *seen_by = of_head(&all, 2, i);
        char *ends = of_head(&all, 7, i), *sinks = of_head(&all, 8, i);
        if (i % all.heads == 0) count = 0;
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const char *mask = masks + r * all.row[1];
            int64_t visible = *(const int64_t *)(seen_by + r * all.row[2]);
            visible = visible > n ? n : visible > 0 ? visible : 0;
            const REAL *row = TYPED(masked)(scores + r * all.row[0], all.key[0], mask, all.key[1],
                                            (ptrdiff_t)visible, room.masked);
            REAL last = sink;
            if (sink != -(REAL)INFINITY) {
                if (row != room.masked) memcpy(room.masked, row, (size_t)visible * sizeof *row);
                room.masked[visible] = sink;
                row = room.masked;
            }
            const TYPED(NonZeros) to = {values + count, columns + count};
            count += TYPED(nonzeros_and_sink)(row, mask, all.key[1], (ptrdiff_t)visible, alpha,
                                              &last, &kept, &room, to);
            *(int64_t *)(ends + r * all.row[7]) = count;
            *(REAL *)(sinks + r * all.row[8]) = last;
        }
    }
    free(scratch);
    free(numbers);
    leave_no_float_flags();
}

#endif
