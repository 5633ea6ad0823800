/* Scores of attention to the non-zeros of α-entmax, row by row: a template. The NumPy twin is
 * `entmax_rows` in pyentmax/sparse_attention/compressed_rows.py.
 *
 * As in thresholds/search.h, the maxima of a row's chunks bound the threshold, and the few entries
 * within that bound are gathered, here with their columns. What is not among them is never looked
 * at again, and no zero is written.
 */
#ifndef PYENTMAX_ATTENTION_ENTMAX_ROWS_H
#define PYENTMAX_ATTENTION_ENTMAX_ROWS_H

#include <numpy/ndarraytypes.h>

#include "attention/compressed_rows.h"
#include "gufunc/kernel.h"
#include "gufunc/operands.h"
#include "mappings/entmax.h"

#define ENTMAX_ROWS_OPERANDS(real) real, NPY_BOOL, NPY_INT64, NPY_DOUBLE, real, NPY_INT32, NPY_INT64

#define TEMPLATE "attention/entmax_rows.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD(
    "entmax_rows", "(h,m,n),(h,m,n),(m),(h)->(c),(c),(h,m)",
    "Scores, mask, columns to look at and alpha to the non-zeros of entmax, their "
    "columns, and where each row ends.",
    4, 3, ENTMAX_ROWS_OPERANDS, entmax_rows_loop)

#elif defined(REAL)

/* Memory to find the non-zeros of a row of up to n scores in. */
typedef struct {
    REAL *scratch; /* largest_scratch_size(n), since a query may see fewer keys */
    REAL *masked;  /* n; and for what is found, n in whole lanes and PAIR more: */
    REAL *x, *p;
    int32_t *columns, *every; /* every column */
} TYPED(RowRoom);

/* The gaps that t reaches, and their columns; as gather in thresholds/search.h. */
static ptrdiff_t TYPED(gather_numbered)(const REAL *restrict z, ptrdiff_t n, REAL largest,
                                        REAL scale, REAL t, const REAL *restrict maxima,
                                        const TYPED(RowRoom) *room) {
    ptrdiff_t size = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK, maxima += LANES) {
        if (!TYPED(any_above)(maxima, -t)) continue;
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        REAL x[CHUNK];
        for (ptrdiff_t i = start; i < end; i++) x[i - start] = (z[i] - largest) * scale;
        for (ptrdiff_t i = end - start; i < whole_lanes(end - start); i++) x[i] = OUTSIDE;
        for (ptrdiff_t i = 0; i < end - start; i += LANES)
            size += TYPED(keep_numbered)(x + i, -t, room->every + start + i, room->x + size,
                                         room->columns + size);
    }
    return TYPED(pad)(room->x, size);
}

/* The search of thresholds/search.h with columns: false if the row has no threshold. */
static bool TYPED(search_numbered)(const REAL *restrict z, ptrdiff_t n, REAL scale,
                                   TYPED(Solver) *solve, const void *context,
                                   const TYPED(RowRoom) *room, TYPED(Search) *found) {
    const ptrdiff_t lanes = maxima_of(n);
    REAL *maxima = room->scratch, *kept = room->scratch + lanes;
    const REAL largest = TYPED(chunk_maxima)(z, n, maxima);
    found->largest = largest;
    if (!(largest > -(REAL)INFINITY && largest < (REAL)INFINITY)) return false;

    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < lanes; i += LANES) {
        for (int j = 0; j < LANES; j++) maxima[i + j] = (maxima[i + j] - largest) * scale;
        size += TYPED(keep_above)(maxima + i, -1, kept + size);
    }
    size = TYPED(pad)(kept, size);
    const REAL bound = TYPED(reach)(solve(kept, size, 1, context, &found->at_t));

    found->size = TYPED(gather_numbered)(z, n, largest, scale, bound, maxima, room);
    memcpy(kept, room->x, (size_t)found->size * sizeof(REAL)); /* a solver may drop some */
    found->t = solve(kept, found->size, bound < 1 ? bound : (REAL)1, context, &found->at_t);
    return true;
}

/* Keep those of `size` values that are positive, and their columns. */
static ptrdiff_t TYPED(keep_positive)(const REAL *p, const int32_t *columns, ptrdiff_t size,
                                      REAL *to, int32_t *columns_to) {
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < size; i += LANES)
        count += TYPED(keep_numbered)(p + i, 0, columns + i, to + count, columns_to + count);
    return count;
}

/* Each returns how many candidates there are, with their probabilities in room->p, or −1 for a row
 * with no threshold. */
static ptrdiff_t TYPED(sparsemax_candidates)(const REAL *z, ptrdiff_t n, double alpha,
                                             const TYPED(RowRoom) *room, REAL *largest) {
    TYPED(Search) found;
    (void)alpha;
    const bool any = TYPED(search_numbered)(z, n, 1, TYPED(michelot), NULL, room, &found);
    *largest = found.largest;
    if (!any) return -1;
    const REAL t = found.t, rest = (REAL)((1 - found.at_t.sum) / found.at_t.size);
    for (ptrdiff_t i = 0; i < found.size; i++) room->p[i] = (room->x[i] + t) + rest;
    return found.size;
}

static ptrdiff_t TYPED(entmax15_candidates)(const REAL *z, ptrdiff_t n, double alpha,
                                            const TYPED(RowRoom) *room, REAL *largest) {
    TYPED(Search) found;
    (void)alpha;
    const bool any = TYPED(search_numbered)(z, n, (REAL)0.5, TYPED(entmax15_solve), NULL, room,
                                            &found);
    *largest = found.largest;
    if (!any) return -1;
    const REAL t = found.t, twice = (REAL)(2 * quadratic_step(found.at_t));
    for (ptrdiff_t i = 0; i < found.size; i++)
        room->p[i] = TYPED(entmax15_entry)(room->x[i], t, twice);
    return found.size;
}

static ptrdiff_t TYPED(entmax_below_2_candidates)(const REAL *z, ptrdiff_t n, double alpha,
                                                  const TYPED(RowRoom) *room, REAL *largest) {
    TYPED(Search) found;
    TYPED(EntmaxColumns) columns;
    REAL start = 0;
    const TYPED(EntmaxBelow2) wanted = {alpha, NULL, room->p, &start, &columns, &(Ahead){0}};
    const bool any = TYPED(search_numbered)(z, n, (REAL)(alpha - 1), TYPED(entmax_below_2_solve),
                                            &wanted, room, &found);
    *largest = found.largest;
    if (!any) return -1;
    TYPED(entmax_finish)(room->x, found.size, true, &columns, room->p);
    return found.size;
}

/* Any other α: the whole row. */
static ptrdiff_t TYPED(whole_row)(const REAL *z, ptrdiff_t n, double alpha,
                                  const TYPED(RowRoom) *room, REAL *largest) {
    const TYPED(Choice) run = TYPED(choice_for)(alpha);
    *largest = TYPED(largest_score)(z, n);
    if (!(*largest > -(REAL)INFINITY && *largest < (REAL)INFINITY)) return -1;
    if (run.own)
        run.own->row(z, room->p, n, &(Ahead){0}, room->scratch);
    else
        run.row(z, room->p, n, alpha, NULL, &(Ahead){0}, room->scratch);
    for (ptrdiff_t i = n; i < whole_lanes(n); i++) room->p[i] = 0;
    memcpy(room->columns, room->every, (size_t)n * sizeof *room->columns);
    return whole_lanes(n);
}

typedef ptrdiff_t TYPED(Candidates)(const REAL *z, ptrdiff_t n, double alpha,
                                    const TYPED(RowRoom) *room, REAL *largest);

static TYPED(Candidates) *TYPED(candidates_for)(double alpha) {
    if (alpha == 1.5) return TYPED(entmax15_candidates);
    if (alpha == 2) return TYPED(sparsemax_candidates);
    return alpha > 1 && alpha < 2 ? TYPED(entmax_below_2_candidates) : TYPED(whole_row);
}

/* The non-zeros of a row of n scores, at least one: NaN in every column that the mask lets through,
 * if there is a NaN. */
static ptrdiff_t TYPED(entmax_row_nonzeros)(const REAL *z, const char *mask, ptrdiff_t mask_stride,
                                            ptrdiff_t n, double alpha,
                                            TYPED(Candidates) *candidates,
                                            const TYPED(RowRoom) *room, REAL *to,
                                            int32_t *columns_to) {
    REAL largest;
    const ptrdiff_t size = candidates(z, n, alpha, room, &largest);
    if (size >= 0) return TYPED(keep_positive)(room->p, room->columns, size, to, columns_to);
    if (largest == -(REAL)INFINITY) return 0;
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (!mask[i * mask_stride]) continue;
        to[count] = (REAL)NAN;
        columns_to[count++] = (int32_t)i;
    }
    return count;
}

/* (h,m,n),(h,m,n),(m),(h)->(c),(c),(h,m): scores, mask, how many columns of a row there are to look
 * at, and each head's α, to values, columns and the end of each row. There has to be room for all
 * entries and LANES more. */
static void TYPED(entmax_rows_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    (void)data;
    const ptrdiff_t heads = dims[1], rows = dims[2], n = dims[3], most = dims[4];
    const ptrdiff_t *z_steps = steps + 7, *mask_steps = steps + 10, *end_steps = steps + 17;
    const ptrdiff_t padded = whole_lanes(n) + PAIR;
    const bool contiguous = is_contiguous(steps[15], most, sizeof(REAL))
                            && is_contiguous(steps[16], most, sizeof(int32_t));
    if (!contiguous || most < heads * rows * n + LANES) {
        value_error("entmax_rows: results must be contiguous, with room for all entries");
        return;
    }
    const ptrdiff_t of_rows = largest_scratch_size(n) + padded; /* which take n more as scratch */
    REAL *scratch = scratch_or_error(of_rows + n + 2 * padded, sizeof(REAL));
    int32_t *numbers = scratch_or_error(2 * padded, sizeof(int32_t));
    if (scratch == NULL || numbers == NULL) {
        free(scratch);
        free(numbers);
        return;
    }
    REAL *after = scratch + of_rows;
    const TYPED(RowRoom) room = {scratch, after,           after + n, after + n + padded,
                                 numbers, numbers + padded};
    for (ptrdiff_t i = 0; i < padded; i++) room.every[i] = (int32_t)i;

    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        REAL *to = (REAL *)(args[4] + turn * steps[4]);
        int32_t *columns_to = (int32_t *)(args[5] + turn * steps[5]);
        ptrdiff_t count = 0;
        for (ptrdiff_t h = 0; h < heads; h++) {
            const double alpha = *(const double *)(args[3] + turn * steps[3] + h * steps[14]);
            TYPED(Candidates) *candidates = TYPED(candidates_for)(alpha);
            for (ptrdiff_t r = 0; r < rows; r++) {
                const char *z = args[0] + turn * steps[0] + h * z_steps[0] + r * z_steps[1];
                const char *mask = args[1] + turn * steps[1] + h * mask_steps[0]
                                   + r * mask_steps[1];
                int64_t visible = *(const int64_t *)(args[2] + turn * steps[2] + r * steps[13]);
                visible = visible < n ? visible : n;
                if (visible > 0) {
                    const REAL *row = TYPED(masked)(z, z_steps[2], mask, mask_steps[2],
                                                    (ptrdiff_t)visible, room.masked);
                    count += TYPED(entmax_row_nonzeros)(row, mask, mask_steps[2],
                                                        (ptrdiff_t)visible, alpha, candidates,
                                                        &room, to + count, columns_to + count);
                }
                *(int64_t *)(args[6] + turn * steps[6] + h * end_steps[0]
                             + r * end_steps[1]) = count;
            }
        }
    }
    free(scratch);
    free(numbers);
    leave_no_float_flags();
}

#endif
