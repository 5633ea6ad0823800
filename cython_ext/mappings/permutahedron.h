/* Projections onto the permutahedron, which soft sorting, ranks and top-k are, and their
 * derivatives: a template. The NumPy twins are `permutahedron` and `permutahedron_product` in
 * pyentmax/sorting.py, with the derivation.
 */
#ifndef PYENTMAX_MAPPINGS_PERMUTAHEDRON_H
#define PYENTMAX_MAPPINGS_PERMUTAHEDRON_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/row_loop.h"
#include "gufunc/workspace.h"
#include "rows/steps.h"
#include "smoothing/isotonic.h"

#define PERMUTAHEDRON_OPERANDS(real) real, NPY_DOUBLE, NPY_DOUBLE, real
#define PERMUTAHEDRON_PRODUCT_OPERANDS(real) real, real, NPY_DOUBLE, NPY_DOUBLE, real

/* What k says, if it is not how many of the largest count. */
enum { RANKS = 0, SORTED = -1, SORTED_TRANSPOSED = -2 };

#define TEMPLATE "mappings/permutahedron.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("permutahedron", "(n),(),()->(n)",
                      "Scores, k and strength to soft top-k, ranks (k = 0), or sorted scores (-1).",
                      3, 1, PERMUTAHEDRON_OPERANDS, permutahedron_loop)
KERNEL_WITHOUT_RECORD("permutahedron_product", "(n),(n),(),()->(n)",
                      "Scores, a direction, k and strength to the product of J, or J^T (k = -2).",
                      4, 1, PERMUTAHEDRON_PRODUCT_OPERANDS, permutahedron_product_loop)

#elif defined(REAL)

/* x and w, both falling, of sorted scores, and the pools of x - w; returns their number.
 *
 * Where two neighbours are farther apart than w's first and last entry, a block ends between them,
 * and how much farther does not matter: gaps are limited to somewhat more than that, and no digits
 * are lost to blocks far away. */
static ptrdiff_t TYPED(pool_sorted)(const REAL *z, ptrdiff_t n, const TYPED(Ranked) *sorted,
                                    double k, double strength, double *restrict x,
                                    double *restrict w, Pool *restrict pools) {
    const double spread = k == RANKS ? (double)(n - 1) : k < (double)n ? 1 : 0;
    const double limit = 2 * spread + 1;
    double here = 0, before = z[sorted[0].place];
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double score = z[sorted[i].place], gap = (before - score) / strength;
        here -= gap < limit ? gap : limit;
        before = score;
        x[i] = k < 0 ? (double)(n - i) / strength : here;
        w[i] = k < 0 ? score : k == RANKS ? (double)(n - i) : (double)i < k ? 1 : 0;
        count = add_pool((Pool){x[i] - w[i], 1, i}, pools, count);
    }
    return count;
}

/* p = x - mean x + mean w over each block; or, of a direction v, what its mean there and the rest
 * of it make of p. If all ranks are one block, no order is needed. */
static void TYPED(permutahedron_row)(const REAL *z, const REAL *v, double k, double strength,
                                     REAL *restrict out, ptrdiff_t n, double *restrict scratch) {
    double *x = scratch, *w = scratch + n;
    TYPED(Ranked) *entries = (TYPED(Ranked) *)(scratch + 2 * n); /* n, and n more */
    const TYPED(Ranked) *sorted = entries;
    Pool *pools = (Pool *)(scratch + 6 * n);
    const double largest = TYPED(chunk_maxima)(z, n, (REAL *)scratch);
    REAL wrong[LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i++) {
        const double gap = (z[i] - largest) / strength;
        wrong[i % LANES] += z[i] * 0;
        entries[i] = TYPED(ranked)(z[i], i);
        x[i] = gap > -1e200 ? gap : -1e200;
        w[i] = 0.5 * (double)(n + 1);
    }
    if (TYPED(lane_sum)(wrong) != 0) {
        TYPED(fill)(out, n, (REAL)NAN);
        return;
    }
    ptrdiff_t count = 1;
    pools[0] = (Pool){0, (double)n, 0};
    if (k != RANKS || !pools_all(x, n, 1)) {
        sorted = TYPED(sort_by_key)(entries, n, entries + n);
        count = TYPED(pool_sorted)(z, n, sorted, k, strength, x, w, pools);
    }
    for (ptrdiff_t i = 0; v != NULL && i < n; i++)
        x[i] = v[k == SORTED_TRANSPOSED ? n - 1 - i : (ptrdiff_t)sorted[i].place];
    for (ptrdiff_t b = 0; b < count; b++) {
        const ptrdiff_t start = pools[b].start, end = b + 1 < count ? pools[b + 1].start : n;
        const double mean = mean_of(x + start, end - start);
        const double mean_w = v == NULL ? mean_of(w + start, end - start) : 0;
        for (ptrdiff_t i = start; i < end; i++) {
            const double rest = x[i] - mean;
            const double value = v == NULL ? rest + mean_w : k < 0 ? mean : rest / strength;
            out[k == SORTED ? n - 1 - i : (ptrdiff_t)sorted[i].place] = (REAL)value;
        }
    }
}

static void TYPED(run_permutahedron)(TYPED(Rows) *rows, void *context) {
    (void)context;
    for (int j = 0; j < rows->count; j++)
        TYPED(permutahedron_row)(rows->in[0][j], NULL, rows->number[0][j], rows->number[1][j],
                                 rows->out[j], rows->n, rows->scratch);
}

static void TYPED(run_permutahedron_product)(TYPED(Rows) *rows, void *context) {
    (void)context;
    for (int j = 0; j < rows->count; j++)
        TYPED(permutahedron_row)(rows->in[0][j], rows->in[1][j], rows->number[0][j],
                                 rows->number[1][j], rows->out[j], rows->n, rows->scratch);
}

ROW_LOOP(permutahedron_loop, "rdd>r", TYPED(run_permutahedron), false, workspace_bytes(n))
ROW_LOOP(permutahedron_product_loop, "rrdd>r", TYPED(run_permutahedron_product), false,
         workspace_bytes(n))

#endif
