/* Sparsemax of smoothed scores, which fusedmax and oscarmax are: a template. */
#ifndef PYENTMAX_MAPPINGS__SMOOTHED_SPARSEMAX_H
#define PYENTMAX_MAPPINGS__SMOOTHED_SPARSEMAX_H

#include "gufunc/mapping_loops.h"
#include "mappings/sparsemax.h"

/* A row of the table, in kernels.h. */
#define SMOOTHED_SPARSEMAX(name) \
    KERNEL(#name, "(n),(n),()->(n)", "Scores, mask and strength to probabilities of " #name ".", \
           3, 1, PARAMETRIC_MAPPING_OPERANDS, smoothed_sparsemax_loop, name)

#define TEMPLATE "mappings/_smoothed_sparsemax.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A mapping: smooth a row of scores in place, with a strength above 0; -inf, which stands for
 * masked, stays. Of the result only differences count: what is the same for all, sparsemax takes
 * out again. scratch is for WORKSPACE n doubles. */
typedef struct {
    void (*smooth)(REAL *z, ptrdiff_t n, double strength, double *restrict scratch);
} TYPED(SmoothedSparsemax);

/* (n),(n),()->(n): scores, mask and a strength to sparsemax of smoothed scores; data is the
 * SmoothedSparsemax. Short rows are smoothed one by one and then share a block, as in mapping_loop.
 */
static void TYPED(smoothed_sparsemax_loop)(char **args, const ptrdiff_t *dims,
                                           const ptrdiff_t *steps, void *data) {
    const TYPED(SmoothedSparsemax) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], p_stride = steps[6];
    if (rows == 0 || n == 0) return;
    const int at_once = n <= TYPED(sparsemax).longest ? BLOCK : 1;
    double *scratch = scratch_or_error(WORKSPACE * n, sizeof(double));
    REAL *row_scratch = scratch_or_error(scratch_size(n) + 2 * at_once * n, sizeof(REAL));
    if (scratch == NULL || row_scratch == NULL) {
        free(scratch);
        free(row_scratch);
        return;
    }
    for (ptrdiff_t start = 0; start < rows; start += at_once) {
        const REAL *u[BLOCK];
        REAL *p[BLOCK];
        const int count = rows - start < at_once ? (int)(rows - start) : at_once;
        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            REAL *row = row_scratch + scratch_size(n) + 2 * j * n;
            const REAL *z = TYPED(masked)(args[0] + r * steps[0], steps[4], args[1] + r * steps[1],
                                          steps[5], n, row);
            const REAL strength = (REAL) * (const double *)(args[2] + r * steps[2]);
            if (strength > 0) {
                if (z != row) memcpy(row, z, (size_t)n * sizeof(REAL));
                mapping->smooth(row, n, strength, scratch);
                z = row;
            }
            u[j] = z;
            p[j] = TYPED(target)(args[3] + r * steps[3], p_stride, row + n);
        }
        for (int j = count; j < at_once; j++) { /* fills up the block */
            u[j] = u[0];
            p[j] = row_scratch + scratch_size(n) + (2 * j + 1) * n;
        }
        if (at_once > 1)
            TYPED(sparsemax).block(u, p, count, n, &(Ahead){0}, row_scratch);
        else
            TYPED(sparsemax).row(u[0], p[0], n, &(Ahead){0}, row_scratch);
        for (int j = 0; j < count; j++)
            TYPED(deliver)(p[j], args[3] + (start + j) * steps[3], p_stride, n);
    }
    free(scratch);
    free(row_scratch);
    leave_no_float_flags();
}

#endif
