/* Scores of queries with some pages of a cache of keys, of which the large ones are kept: a
 * template. The NumPy twin is `rows_page_scores` in pyentmax/sparse_attention/compressed_rows.py.
 *
 * In a page the keys lie side by side, feature after feature, so that a vector holds the scores of
 * as many keys and nothing is summed across it: they are the sum of its rows, of a feature each,
 * with the query as weights.
 */
#ifndef PYENTMAX_ATTENTION_PAGE_SCORES_H
#define PYENTMAX_ATTENTION_PAGE_SCORES_H

#include <numpy/ndarraytypes.h>

#include "attention/compressed_rows.h"
#include "attention/heads.h"
#include "gufunc/kernel.h"

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

/* There has to be room for all keys of the pages to look at. */
static void TYPED(rows_page_scores_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                         void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "hmd hnds hmn hm hm c ci hm", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t d = axis_size(&all, 'd'), size = axis_size(&all, 's');
    const ptrdiff_t n = axis_size(&all, 'n'), room = axis_size(&all, 'c');
    if (n * size > INT32_MAX) {
        value_error("rows_page_scores: columns must be below 2^31");
        return;
    }
    REAL *scores = scratch_or_error(size + 1, sizeof(REAL));
    int32_t *features = scratch_or_error(d + 1, sizeof(int32_t));
    for (ptrdiff_t f = 0; features && f < d; f++) features[f] = (int32_t)f;
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; scores && features && i < all.count; i++) {
        REAL *to = (REAL *)of_head(&all, 5, i);
        int32_t *columns = (int32_t *)of_head(&all, 6, i);
        const char *queries = of_head(&all, 0, i), *pages = of_head(&all, 1, i);
        const char *looks = of_head(&all, 2, i), *seen_by = of_head(&all, 3, i);
        const char *thresholds = of_head(&all, 4, i);
        char *ends = of_head(&all, 7, i);
        if (i % all.heads == 0) count = 0;
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const REAL *query = (const REAL *)(queries + r * all.row[0]);
            const char *look = looks + r * all.row[2];
            const int64_t visible = *(const int64_t *)(seen_by + r * all.row[3]);
            const REAL least = *(const REAL *)(thresholds + r * all.row[4]);
            for (ptrdiff_t page = 0; page < n && page * size < visible; page++) {
                if (!look[page * all.key[2]]) continue;
                const ptrdiff_t left = (ptrdiff_t)visible - page * size;
                const ptrdiff_t seen = left < size ? left : size;
                if (room - count < seen) {
                    value_error("rows_page_scores: no room for all keys to look at");
                    goto end;
                }
                TYPED(combine)(query, features, d, pages + page * all.key[1], all.row[1], size,
                               scores);
                count += TYPED(keep_scores)(scores, seen, least, (int32_t)(page * size), to + count,
                                            columns + count);
            }
            *(int64_t *)(ends + r * all.row[7]) = count;
        }
    }
end:
    free(scores);
    free(features);
    leave_no_float_flags();
}

#endif
