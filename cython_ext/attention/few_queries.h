/* Few queries before many keys, as in decoding, to the non-zeros of α-entmax: a template. What
 * kernels take stands in pyentmax/sparse_attention/few_queries.py.
 *
 * Keys are read where they lie, once for up to AT_ONCE queries; what they are copied for in a tile
 * of many queries, registers full of sums, would cost more here than it saves. The scores of a row
 * stay in the cache until its threshold is found, as in attention/entmax_rows.h.
 */
#ifndef PYENTMAX_ATTENTION_FEW_QUERIES_H
#define PYENTMAX_ATTENTION_FEW_QUERIES_H

#include <numpy/ndarraytypes.h>

#include "attention/compressed_rows.h"
#include "attention/entmax_rows.h"

enum { AT_ONCE = 8 }; /* queries that go over the keys together */
enum { AHEAD = 16 };  /* keys that are on their way while one is multiplied */

#define FEW_QUERIES_OPERANDS(real) \
    real, real, NPY_BOOL, NPY_DOUBLE, real, real, real, NPY_INT32, NPY_INT64, real
#define CANDIDATES_OPERANDS(real) \
    real, real, NPY_INT32, NPY_INT32, NPY_INT64, NPY_BOOL, NPY_DOUBLE, real, real, real, \
        NPY_INT32, NPY_INT64, real

#define TEMPLATE "attention/few_queries.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("few_queries", "(m,d),(n,d),(m,n),(m),(m),(m,n)->(c),(c),(m),(m)",
                      "Queries, keys, mask, alpha, sink and bias to the non-zeros of entmax, their "
                      "columns, where each row ends, and the sink's probability.",
                      6, 4, FEW_QUERIES_OPERANDS, few_queries_loop)
KERNEL_WITHOUT_RECORD("candidates", "(m,d),(r,d),(k),(k),(m),(m,n),(m),(m),(m,n)->(c),(c),(m),(m)",
                      "Queries, keys, the columns of each row's candidates, the places of their "
                      "keys, where they end, mask, alpha, sink and bias to the same.",
                      9, 4, CANDIDATES_OPERANDS, candidates_loop)

#elif defined(REAL)

/* Memory for rows of up to n scores, a sink and what vectors overrun, and for AT_ONCE of them. */
typedef struct {
    TYPED(RowRoom) of_row;
    ptrdiff_t padded;
    REAL *rows;
    TYPED(EntmaxKept) kept;
} TYPED(FewRows);

/* False with an error where there is no memory; `more` rows are for the caller. */
static bool TYPED(few_rows)(TYPED(FewRows) *few, ptrdiff_t n, int more) {
    const ptrdiff_t padded = few->padded = whole_lanes(n + 1) + PAIR;
    const ptrdiff_t searched = TYPED(entmax_scratch_size)(n + 1) + padded;
    REAL *reals = scratch_or_error(searched + (2 + more) * padded, sizeof(REAL));
    int32_t *numbers = reals == NULL ? NULL : scratch_or_error(2 * padded, sizeof(int32_t));
    if (numbers == NULL) {
        free(reals);
        return false;
    }
    for (ptrdiff_t i = 0; i < padded; i++) numbers[padded + i] = (int32_t)i;
    REAL *x = reals + searched;
    few->of_row = (TYPED(RowRoom)){reals, NULL, x, x + padded, numbers, numbers + padded};
    few->rows = x + 2 * padded;
    few->kept.alpha = 0;
    return true;
}

static void TYPED(free_rows)(const TYPED(FewRows) *few) {
    free(few->of_row.scratch);
    free(few->of_row.columns);
}

/* Add what `from` has for each of n scores. */
static void TYPED(add_bias)(const char *from, ptrdiff_t step, ptrdiff_t n, REAL *restrict z) {
    if (step == sizeof(REAL)) {
        const REAL *bias = (const REAL *)from;
        for (ptrdiff_t i = 0; i < n; i++) z[i] += bias[i];
    } else if (step != 0 || *(const REAL *)from != 0) {
        for (ptrdiff_t i = 0; i < n; i++) z[i] += *(const REAL *)(from + i * step);
    }
}

/* The scores of up to AT_ONCE queries, `apart` from one another. */
static void TYPED(scores_of_few)(const char *query, ptrdiff_t query_step, int queries,
                                 const char *key, ptrdiff_t key_step, ptrdiff_t n, ptrdiff_t d,
                                 REAL *z, ptrdiff_t apart) {
    ptrdiff_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const REAL *rows[4];
        for (int k = 0; k < 4; k++) {
            rows[k] = (const REAL *)(key + (i + k) * key_step);
            /* Rows side by side are too many streams for a processor to see by itself. */
            for (ptrdiff_t line = 0; line < d * (ptrdiff_t)sizeof(REAL); line += 64)
                __builtin_prefetch((const char *)rows[k] + AHEAD * key_step + line);
        }
        for (int r = 0; r < queries; r++)
            TYPED(dots)((const REAL *)(query + r * query_step), rows, 4, d, z + r * apart + i);
    }
    for (; i < n; i++) {
        const REAL *row = (const REAL *)(key + i * key_step);
        for (int r = 0; r < queries; r++)
            TYPED(dots)((const REAL *)(query + r * query_step), &row, 1, d, z + r * apart + i);
    }
}

static void TYPED(few_queries_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "md nd mn m m mn c ci m m", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t m = axis_size(&all, 'm'), n = axis_size(&all, 'n');
    if (axis_size(&all, 'c') < m * n + 1 + LANES) {
        value_error("few_queries: results must have room for all entries");
        return;
    }
    TYPED(FewRows) few;
    if (!TYPED(few_rows)(&few, n, AT_ONCE)) return;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        TYPED(NonZeros) to = {(REAL *)of_head(&all, 6, i), (int32_t *)of_head(&all, 7, i)};
        ptrdiff_t end = 0;
        for (ptrdiff_t r = 0; r < m; r++) {
            const int at = (int)(r % AT_ONCE);
            REAL *row = few.rows + at * few.padded;
            if (at == 0)
                TYPED(scores_of_few)(of_head(&all, 0, i) + r * all.row[0], all.row[0],
                                     m - r < AT_ONCE ? (int)(m - r) : AT_ONCE, of_head(&all, 1, i),
                                     all.key[1], n, axis_size(&all, 'd'), row, few.padded);
            const char *mask = of_head(&all, 2, i) + r * all.row[2];
            REAL last = *(const REAL *)(of_head(&all, 4, i) + r * all.row[4]);
            TYPED(add_bias)(of_head(&all, 5, i) + r * all.row[5], all.key[5], n, row);
            TYPED(masked)((const char *)row, sizeof(REAL), mask, all.key[2], n, row);
            row[n] = last;
            const double alpha = *(const double *)(of_head(&all, 3, i) + r * all.row[3]);
            const ptrdiff_t count = TYPED(nonzeros_and_sink)(row, mask, all.key[2], n, alpha, &last,
                                                             &few.kept, &few.of_row, to);
            to = (TYPED(NonZeros)){to.values + count, to.columns + count};
            *(int64_t *)(of_head(&all, 8, i) + r * all.row[8]) = end += count;
            *(REAL *)(of_head(&all, 9, i) + r * all.row[9]) = last;
        }
    }
    TYPED(free_rows)(&few);
    leave_no_float_flags();
}

/* The same of keys that a screen has left, of which all others have a weight of 0. The key of a
 * candidate has a place of its own, as keys of half types are widened for candidates alone. Scores
 * that are not finite make NaN of all keys that the mask lets through. */
static void TYPED(candidates_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                   void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "md rd ki ki m mn m m mn c ci m m", sizeof(REAL), args, dims, steps))
        return;
    const ptrdiff_t m = axis_size(&all, 'm'), n = axis_size(&all, 'n');
    const ptrdiff_t most = axis_size(&all, 'k');
    if (axis_size(&all, 'c') < m * n + 1 + LANES) {
        value_error("candidates: results must have room for all entries");
        return;
    }
    TYPED(FewRows) few;
    if (!TYPED(few_rows)(&few, n, 1)) return;
    const char everywhere = 1;
    bool fit = true;
    for (ptrdiff_t i = 0; fit && i < all.count; i++) {
        TYPED(NonZeros) to = {(REAL *)of_head(&all, 9, i), (int32_t *)of_head(&all, 10, i)};
        const int32_t *columns = (const int32_t *)of_head(&all, 2, i);
        const int32_t *places = (const int32_t *)of_head(&all, 3, i);
        ptrdiff_t start = 0, end = 0;
        for (ptrdiff_t r = 0; r < m; r++) {
            const ptrdiff_t stop = *(const int64_t *)(of_head(&all, 4, i) + r * all.row[4]);
            const ptrdiff_t count = stop - start;
            fit = count >= 0 && count <= n && stop <= most && columns_fit(columns, count, 0, n)
                  && columns_fit(places, count, 0, axis_size(&all, 'r'));
            if (!fit) {
                value_error("candidates: a row or a column lies outside of the matrix");
                break;
            }
            TYPED(row_dots)((const REAL *)(of_head(&all, 0, i) + r * all.row[0]), places, count,
                            of_head(&all, 1, i), all.row[1], axis_size(&all, 'd'), few.rows);
            const char *bias = of_head(&all, 8, i) + r * all.row[8];
            for (ptrdiff_t j = 0; j < count; j++)
                few.rows[j] += *(const REAL *)(bias + columns[j] * all.key[8]);
            REAL last = few.rows[count] = *(const REAL *)(of_head(&all, 7, i) + r * all.row[7]);
            const double alpha = *(const double *)(of_head(&all, 6, i) + r * all.row[6]);
            ptrdiff_t kept = TYPED(nonzeros_and_sink)(few.rows, &everywhere, 0, count, alpha, &last,
                                                      &few.kept, &few.of_row, to);
            for (ptrdiff_t j = 0; j < kept; j++) to.columns[j] = columns[to.columns[j]];
            const char *mask = of_head(&all, 5, i) + r * all.row[5];
            if (kept > 0 && isnan(to.values[0])) {
                kept = 0;
                for (ptrdiff_t j = 0; j < n; j++) {
                    if (!mask[j * all.key[5]]) continue;
                    to.values[kept] = (REAL)NAN;
                    to.columns[kept++] = (int32_t)j;
                }
            }
            to = (TYPED(NonZeros)){to.values + kept, to.columns + kept};
            *(int64_t *)(of_head(&all, 11, i) + r * all.row[11]) = end += kept;
            *(REAL *)(of_head(&all, 12, i) + r * all.row[12]) = last;
            columns += count;
            places += count;
            start = stop;
        }
    }
    TYPED(free_rows)(&few);
    leave_no_float_flags();
}

#endif
