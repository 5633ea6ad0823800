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
 * out again. scratch is for WORKSPACE n doubles, n in whole lanes. */
typedef struct {
    void (*smooth)(REAL *z, ptrdiff_t n, double strength, double *restrict scratch);
} TYPED(SmoothedSparsemax);

/* The rows smoothed one by one, then sparsemax of all. */
static void TYPED(run_smoothed)(TYPED(Rows) *rows, void *context) {
    const TYPED(SmoothedSparsemax) *mapping = context;
    const ptrdiff_t n = rows->n;
    double *scratch = rows->scratch;
    REAL *row_scratch = (REAL *)(scratch + WORKSPACE * whole_lanes(n));
    REAL *smoothed = row_scratch + scratch_size(n);
    const TYPED(RowContext) with = {.ahead = &(Ahead){0}, .scratch = row_scratch};
    for (int j = 0; j < rows->count; j++) {
        const REAL strength = (REAL)rows->number[0][j];
        if (strength > 0) {
            REAL *row = smoothed + (rows->by_block ? j : 0) * n;
            memcpy(row, rows->in[0][j], (size_t)n * sizeof(REAL));
            mapping->smooth(row, n, strength, scratch);
            rows->in[0][j] = row;
        }
        if (!rows->by_block) TYPED(sparsemax).row(rows->in[0][j], rows->out[j], n, &with);
    }
    if (!rows->by_block) return;
    for (int j = rows->count; j < BLOCK; j++) rows->in[0][j] = rows->in[0][0];
    TYPED(sparsemax).block(rows->in[0], rows->out, rows->count, n, &with);
}

/* (n),(n),()->(n): scores, mask and a strength to sparsemax of smoothed scores; data is the
 * SmoothedSparsemax. */
ROW_LOOP(smoothed_sparsemax_loop, "rmd>r", TYPED(run_smoothed),
         TYPED(goes_by_block)(&TYPED(sparsemax), n),
         workspace_bytes(n)
             + (scratch_size(n) + (n <= LONGEST_SHORT ? BLOCK : 1) * n) * sizeof(REAL))

#endif
