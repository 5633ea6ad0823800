/* Scores of attention to the non-zeros of α-entmax, row by row: a template. The NumPy twin is
 * `rows_entmax` in pyentmax/sparse_attention/compressed_rows.py.
 *
 * As in thresholds/search.h, the maxima of a row's chunks bound the threshold, and the few entries
 * within that bound are gathered, here with their columns. What is not among them is never looked
 * at again, and no zero is written. A sink is one more score at the end of a row, whose probability
 * is taken from the others.
 */
#ifndef PYENTMAX_ATTENTION_ENTMAX_ROWS_H
#define PYENTMAX_ATTENTION_ENTMAX_ROWS_H

#include <numpy/ndarraytypes.h>

#include "attention/compressed_rows.h"
#include "gufunc/kernel.h"
#include "gufunc/operands.h"
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

/* Memory to find the non-zeros of a row of up to n scores in: n in whole lanes and PAIR more. */
typedef struct {
    REAL *scratch; /* but largest_scratch_size(n), since a query may see fewer keys */
    REAL *masked;  /* n; and for what is found: */
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

static ptrdiff_t TYPED(entmax_candidates)(const REAL *z, ptrdiff_t n, double alpha,
                                          const TYPED(RowRoom) *room, REAL *largest) {
    TYPED(Search) found;
    REAL start = 0;
    TYPED(EntmaxKept) kept = {.alpha = 0};
    const TYPED(EntmaxRow) wanted = {alpha, &kept, room->p, &start, &(Ahead){0}};
    const bool any = TYPED(search_numbered)(z, n, (REAL)(alpha - 1), TYPED(entmax_solve), &wanted,
                                            room, &found);
    *largest = found.largest;
    return any ? found.size : -1;
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
    return TYPED(choice_for)(alpha).block ? TYPED(entmax_candidates) : TYPED(whole_row);
}

/* The non-zeros of a row of n scores, behind which lies a sink's unless it is −∞: NaN in every
 * column that the mask lets through, if there is a NaN. */
static ptrdiff_t TYPED(entmax_row_nonzeros)(const REAL *z, const char *mask, ptrdiff_t mask_stride,
                                            ptrdiff_t n, double alpha, REAL *sink,
                                            TYPED(Candidates) *candidates,
                                            const TYPED(RowRoom) *room, REAL *to,
                                            int32_t *columns_to) {
    const ptrdiff_t length = n + (*sink != -(REAL)INFINITY);
    *sink = 0;
    if (length == 0) return 0;
    REAL largest;
    const ptrdiff_t size = candidates(z, length, alpha, room, &largest);
    ptrdiff_t count = 0;
    if (size >= 0) {
        count = TYPED(keep_positive)(room->p, room->columns, size, to, columns_to);
        if (count > 0 && columns_to[count - 1] == n) *sink = to[--count];
        return count;
    }
    if (largest == -(REAL)INFINITY) return 0;
    if (length > n) *sink = (REAL)NAN;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (!mask[i * mask_stride]) continue;
        to[count] = (REAL)NAN;
        columns_to[count++] = (int32_t)i;
    }
    return count;
}

/* (h,m,n),(h,m,n),(m),(h),(h)->(c),(c),(h,m),(h,m): scores, mask, how many columns of a row there
 * are to look at, each head's α and sink, to values, columns, the end of each row, and its sink's
 * value. There has to be room for all entries, a sink and LANES more. */
static void TYPED(rows_entmax_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    (void)data;
    const ptrdiff_t heads = dims[1], rows = dims[2], n = dims[3], most = dims[4];
    const ptrdiff_t *own = steps + 9; /* h m n, h m n, m, h, h, c, c, h m, h m */
    const ptrdiff_t padded = whole_lanes(n + 1) + PAIR;
    const bool contiguous = is_contiguous(own[9], most, sizeof(REAL))
                            && is_contiguous(own[10], most, sizeof(int32_t));
    if (!contiguous || most < heads * rows * n + 1 + LANES) {
        value_error("rows_entmax: results must be contiguous, with room for all entries");
        return;
    }
    const ptrdiff_t of_rows = largest_scratch_size(n + 1)
                              + padded; /* rows take n more as scratch */
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

    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        REAL *to = (REAL *)(args[5] + turn * steps[5]);
        int32_t *columns_to = (int32_t *)(args[6] + turn * steps[6]);
        ptrdiff_t count = 0;
        for (ptrdiff_t h = 0; h < heads; h++) {
            const double alpha = *(const double *)(args[3] + turn * steps[3] + h * own[7]);
            const REAL sink = *(const REAL *)(args[4] + turn * steps[4] + h * own[8]);
            TYPED(Candidates) *candidates = TYPED(candidates_for)(alpha);
            for (ptrdiff_t r = 0; r < rows; r++) {
                const char *z = args[0] + turn * steps[0] + h * own[0] + r * own[1];
                const char *mask = args[1] + turn * steps[1] + h * own[3] + r * own[4];
                int64_t visible = *(const int64_t *)(args[2] + turn * steps[2] + r * own[6]);
                visible = visible > n ? n : visible > 0 ? visible : 0;
                const REAL *row = TYPED(masked)(z, own[2], mask, own[5], (ptrdiff_t)visible,
                                                room.masked);
                REAL last = sink;
                if (sink != -(REAL)INFINITY) {
                    if (row != room.masked) memcpy(room.masked, row, (size_t)visible * sizeof *row);
                    room.masked[visible] = sink;
                    row = room.masked;
                }
                count += TYPED(entmax_row_nonzeros)(row, mask, own[5], (ptrdiff_t)visible, alpha,
                                                    &last, candidates, &room, to + count,
                                                    columns_to + count);
                *(int64_t *)(args[7] + turn * steps[7] + h * own[11] + r * own[12]) = count;
                *(REAL *)(args[8] + turn * steps[8] + h * own[13] + r * own[14]) = last;
            }
        }
    }
    free(scratch);
    free(numbers);
    leave_no_float_flags();
}

#endif
