/* The falling sequence nearest to each row, an isotonic regression: a template. The NumPy twin is
 * `falling_rows` in pyentmax/mappings/_fused.py; soft sorting, ranks and top-k are made of it.
 */
#ifndef PYENTMAX_MAPPINGS_FALLING_ROWS_H
#define PYENTMAX_MAPPINGS_FALLING_ROWS_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/operands.h"
#include "smoothing/isotonic.h"

#define FALLING_OPERANDS(real) real, real

#define TEMPLATE "mappings/falling_rows.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("falling_rows", "(n)->(n)", "The falling sequence nearest to each row.", 1, 1,
                      FALLING_OPERANDS, falling_rows_loop)

#elif defined(REAL)

static void TYPED(falling_rows_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                     void *data) {
    (void)data;
    const ptrdiff_t rows = dims[0], n = dims[1];
    if (rows == 0 || n == 0) return;
    double *y = scratch_or_error(4 * n, sizeof(double)); /* the row, and three for its pools */
    if (y == NULL) return;
    for (ptrdiff_t r = 0; r < rows; r++) {
        const char *from = args[0] + r * steps[0];
        char *to = args[1] + r * steps[1];
        for (ptrdiff_t i = 0; i < n; i++) y[i] = *(const REAL *)(from + i * steps[2]);
        pool_adjacent_violators(y, n, (Pool *)(y + n));
        for (ptrdiff_t i = 0; i < n; i++) *(REAL *)(to + i * steps[3]) = (REAL)y[i];
    }
    free(y);
    leave_no_float_flags();
}

#endif
