/* Queries before the keys of their sets, to the non-zeros of α-entmax: a template. The NumPy twin
 * has the same name, in pyentmax/sparse_attention/given_keys.py.
 *
 * Room and time follow the sets: a row has the scores of its own keys, in the cache, and no other.
 */
#ifndef PYENTMAX_ATTENTION_GIVEN_KEYS_H
#define PYENTMAX_ATTENTION_GIVEN_KEYS_H

#include "attention/few_queries.h"

#define GIVEN_KEYS_OPERANDS(real) \
    real, real, NPY_INT32, NPY_INT64, real, NPY_DOUBLE, real, real, NPY_INT32, NPY_INT64, real

#define TEMPLATE "attention/given_keys.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("given_keys", "(m,d),(n,d),(c),(m),(b),(m),(m)->(k),(k),(m),(m)",
                      "Queries, keys, the columns of each row's set, where they end, a bias of "
                      "each or none, alpha and sink to the non-zeros of entmax, their columns, "
                      "where each row ends, and the sink's probability.",
                      7, 4, GIVEN_KEYS_OPERANDS, given_keys_loop)

#elif defined(REAL)

static void TYPED(given_keys_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                   void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "md nd ci m b m m k ki m m", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t m = axis_size(&all, 'm'), entries = axis_size(&all, 'c');
    const bool biased = axis_size(&all, 'b') > 0;
    if (axis_size(&all, 'k') < entries + 1 + LANES || (biased && axis_size(&all, 'b') != entries)) {
        value_error("given_keys: results must have room for all entries, and a bias one for each");
        return;
    }
    ptrdiff_t longest = 0;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        ptrdiff_t start = 0;
        for (ptrdiff_t r = 0; r < m; r++) {
            const ptrdiff_t stop = *(const int64_t *)(of_head(&all, 3, i) + r * all.row[3]);
            if (stop < start || stop > entries) {
                value_error("given_keys: a row lies outside of the set");
                return;
            }
            if (stop - start > longest) longest = stop - start;
            start = stop;
        }
    }
    TYPED(FewRows) few;
    if (!TYPED(few_rows)(&few, longest, 1)) return;
    const char everywhere = 1;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        TYPED(NonZeros) to = {(REAL *)of_head(&all, 7, i), (int32_t *)of_head(&all, 8, i)};
        const int32_t *columns = (const int32_t *)of_head(&all, 2, i);
        const REAL *bias = (const REAL *)of_head(&all, 4, i);
        ptrdiff_t start = 0, end = 0;
        if (!columns_fit(columns, entries, 0, axis_size(&all, 'n'))) {
            value_error("given_keys: a column lies outside of the matrix");
            break;
        }
        for (ptrdiff_t r = 0; r < m; r++) {
            const ptrdiff_t stop = *(const int64_t *)(of_head(&all, 3, i) + r * all.row[3]);
            const ptrdiff_t count = stop - start;
            prefetch_rows(columns + stop, entries - stop, of_head(&all, 1, i), all.key[1]);
            TYPED(row_dots)((const REAL *)(of_head(&all, 0, i) + r * all.row[0]), columns + start,
                            count, of_head(&all, 1, i), all.key[1], axis_size(&all, 'd'), few.rows);
            for (ptrdiff_t j = 0; biased && j < count; j++) few.rows[j] += bias[start + j];
            REAL last = few.rows[count] = *(const REAL *)(of_head(&all, 6, i) + r * all.row[6]);
            const double alpha = *(const double *)(of_head(&all, 5, i) + r * all.row[5]);
            const ptrdiff_t kept = TYPED(nonzeros_and_sink)(few.rows, &everywhere, 0, count, alpha,
                                                            &last, &few.kept, &few.of_row, to);
            for (ptrdiff_t j = 0; j < kept; j++) to.columns[j] = columns[start + to.columns[j]];
            to = (TYPED(NonZeros)){to.values + kept, to.columns + kept};
            *(int64_t *)(of_head(&all, 9, i) + r * all.row[9]) = end += kept;
            *(REAL *)(of_head(&all, 10, i) + r * all.row[10]) = last;
            start = stop;
        }
    }
    TYPED(free_rows)(&few);
    leave_no_float_flags();
}

#endif
