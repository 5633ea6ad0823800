/* The falling sequence nearest to each row, an isotonic regression: a template. The NumPy twin is
 * `falling_rows` in pyentmax/reference/mappings/_fused.py; soft sorting, ranks and top-k are made
 * of it.
 */
#ifndef PYENTMAX_MAPPINGS_FALLING_ROWS_H
#define PYENTMAX_MAPPINGS_FALLING_ROWS_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/row_loop.h"
#include "smoothing/isotonic.h"

#define FALLING_OPERANDS(real) real, real

#define TEMPLATE "mappings/falling_rows.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("falling_rows", "(n)->(n)", "The falling sequence nearest to each row.", 1, 1,
                      FALLING_OPERANDS, falling_rows_loop)

#elif defined(REAL)

static void TYPED(run_falling)(TYPED(Rows) *rows, void *context) {
    (void)context;
    const ptrdiff_t n = rows->n;
    double *y = rows->scratch; /* the row, and three for its pools */
    for (int j = 0; j < rows->count; j++) {
        for (ptrdiff_t i = 0; i < n; i++) y[i] = rows->in[0][j][i];
        pool_adjacent_violators(y, n, (Pool *)(y + n));
        for (ptrdiff_t i = 0; i < n; i++) rows->out[j][i] = (REAL)y[i];
    }
}

ROW_LOOP(falling_rows_loop, "r>r", TYPED(run_falling), false, 4 * n * sizeof(double))

#endif
