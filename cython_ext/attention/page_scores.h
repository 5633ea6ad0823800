/* Scores of queries with some pages of a cache of keys, of which the large ones are kept: a
 * template. The NumPy twin is `rows_page_scores` in pyentmax/sparse_attention/compressed_rows.py.
 *
 * In a page the keys lie side by side, feature after feature, so that a vector holds the scores of
 * as many keys and nothing is summed across it. Each score is the sum over features from the first
 * to the last, whatever its neighbours.
 */
#ifndef PYENTMAX_ATTENTION_PAGE_SCORES_H
#define PYENTMAX_ATTENTION_PAGE_SCORES_H

#include <numpy/ndarraytypes.h>

#include "attention/compressed_rows.h"
#include "gufunc/kernel.h"
#include "gufunc/operands.h"

#define PAGE_SCORES_OPERANDS(real) real, real, NPY_BOOL, NPY_INT64, real, real, NPY_INT32, NPY_INT64

#define TEMPLATE "attention/page_scores.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("rows_page_scores", "(h,r,d),(h,n,d,s),(h,r,n),(h,r),(h,r)->(c),(c),(h,r)",
                      "Queries, pages of keys, which to look at, how many keys a query sees and "
                      "the least score to keep, to the scores kept, their columns, and where each "
                      "row ends.",
                      5, 3, PAGE_SCORES_OPERANDS, rows_page_scores_loop)

#elif defined(REAL)

/* to[0 .. size) = sum_i q[i] page[i size ..]. Arrays of one vector stay in registers. */
static void TYPED(page_scores)(const REAL *restrict q, ptrdiff_t d, const REAL *restrict page,
                               ptrdiff_t size, REAL *restrict to) {
    ptrdiff_t at = 0;
    for (; at + 4 * LANES <= size; at += 4 * LANES) {
        REAL a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0}, e[LANES] = {0};
        for (ptrdiff_t i = 0; i < d; i++) {
            const REAL *row = page + i * size + at;
            for (int j = 0; j < LANES; j++) a[j] += q[i] * row[j];
            for (int j = 0; j < LANES; j++) b[j] += q[i] * row[LANES + j];
            for (int j = 0; j < LANES; j++) c[j] += q[i] * row[2 * LANES + j];
            for (int j = 0; j < LANES; j++) e[j] += q[i] * row[3 * LANES + j];
        }
        for (int j = 0; j < LANES; j++) {
            to[at + j] = a[j];
            to[at + LANES + j] = b[j];
            to[at + 2 * LANES + j] = c[j];
            to[at + 3 * LANES + j] = e[j];
        }
    }
    for (; at + LANES <= size; at += LANES) {
        REAL a[LANES] = {0};
        for (ptrdiff_t i = 0; i < d; i++)
            for (int j = 0; j < LANES; j++) a[j] += q[i] * page[i * size + at + j];
        for (int j = 0; j < LANES; j++) to[at + j] = a[j];
    }
    for (ptrdiff_t j = at; j < size; j++) to[j] = 0;
    for (ptrdiff_t i = 0; i < d; i++)
        for (ptrdiff_t j = at; j < size; j++) to[j] += q[i] * page[i * size + j];
}

/* Keep of the scores z[0 .. n) those that are not below `least`, a NaN too; returns how many. */
static ptrdiff_t TYPED(keep_scores)(const REAL *restrict z, ptrdiff_t n, REAL least, int32_t first,
                                    REAL *restrict to, int32_t *restrict columns) {
    int any = 0;
    for (ptrdiff_t i = 0; i < n; i++) any |= !(z[i] < least);
    if (!any) return 0;
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (z[i] < least) continue;
        to[count] = z[i];
        columns[count++] = first + (int32_t)i;
    }
    return count;
}

/* (h,r,d),(h,n,d,s),(h,r,n),(h,r),(h,r)->(c),(c),(h,r). There has to be room for all keys of the
 * pages to look at. */
static void TYPED(rows_page_scores_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                         void *data) {
    (void)data;
    const ptrdiff_t heads = dims[1], rows = dims[2], d = dims[3], n = dims[4], size = dims[5];
    const ptrdiff_t room = dims[6];
    const ptrdiff_t *own = steps + 8; /* h r d, h n d s, h r n, h r, h r, c, c, h r */
    const ptrdiff_t real = sizeof(REAL);
    if (!is_contiguous(own[2], d, sizeof(REAL)) || !is_contiguous(own[6], size, sizeof(REAL))
        || (d > 1 && own[5] != size * real) || !is_contiguous(own[14], room, sizeof(REAL))
        || !is_contiguous(own[15], room, sizeof(int32_t)) || n * size > INT32_MAX) {
        value_error("rows_page_scores: queries, pages and results must be contiguous");
        return;
    }
    REAL *scores = scratch_or_error(size, sizeof(REAL));
    if (scores == NULL) return;
    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        REAL *to = (REAL *)(args[5] + turn * steps[5]);
        int32_t *columns = (int32_t *)(args[6] + turn * steps[6]);
        ptrdiff_t count = 0;
        for (ptrdiff_t h = 0; h < heads; h++) {
            for (ptrdiff_t r = 0; r < rows; r++) {
                const REAL *query = (const REAL *)(args[0] + turn * steps[0] + h * own[0]
                                                   + r * own[1]);
                const char *pages = args[1] + turn * steps[1] + h * own[3];
                const char *look = args[2] + turn * steps[2] + h * own[7] + r * own[8];
                const int64_t visible = *(const int64_t *)(args[3] + turn * steps[3] + h * own[10]
                                                           + r * own[11]);
                const REAL least = *(const REAL *)(args[4] + turn * steps[4] + h * own[12]
                                                   + r * own[13]);
                for (ptrdiff_t page = 0; page < n && page * size < visible; page++) {
                    if (!look[page * own[9]]) continue;
                    const ptrdiff_t left = (ptrdiff_t)visible - page * size;
                    const ptrdiff_t seen = left < size ? left : size;
                    if (room - count < seen) {
                        value_error("rows_page_scores: no room for all keys to look at");
                        free(scores);
                        return;
                    }
                    TYPED(page_scores)(query, d, (const REAL *)(pages + page * own[4]), size,
                                       scores);
                    count += TYPED(keep_scores)(scores, seen, least, (int32_t)(page * size),
                                                to + count, columns + count);
                }
                *(int64_t *)(args[7] + turn * steps[7] + h * own[16] + r * own[17]) = count;
            }
        }
    }
    free(scores);
    leave_no_float_flags();
}

#endif
