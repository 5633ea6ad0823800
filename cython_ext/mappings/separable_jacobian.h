/* diag(s) - s s^T / sum s, the Jacobian of mappings with a separable regulariser: a template. The
 * NumPy twin, with the derivation, is `dense` in pyentmax/reference/mappings/_simplex.py.
 *
 * Written for few scores, where NumPy's calls take the time, in one pass over the matrix.
 */
#ifndef PYENTMAX_MAPPINGS_SEPARABLE_JACOBIAN_H
#define PYENTMAX_MAPPINGS_SEPARABLE_JACOBIAN_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/operands.h"

#define JACOBIAN_OPERANDS(real) real, real

#define TEMPLATE "mappings/separable_jacobian.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("separable_jacobian", "(n)->(n,n)",
                      "diag(s) - s s^T / sum(s), for s = 1/g''(p) of a separable sum of g.", 1, 1,
                      JACOBIAN_OPERANDS, jacobian_loop)

#elif defined(REAL)

/* What entries with these s, whose sum is not 0, take from each other. The lesser times the share
 * of the larger, so that J is symmetric to the last bit; a NaN is in the sum. */
static inline REAL TYPED(taken)(REAL s, REAL other, REAL sum) {
    return s < other ? s * (other / sum) : other * (s / sum);
}

/* (n)->(n,n). As J1 = 0, the diagonal is the sum of what the others take. */
static void TYPED(jacobian_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                 void *data) {
    (void)data;
    const ptrdiff_t n = dims[1], next = steps[2], down = steps[3], right = steps[4];
    for (ptrdiff_t row = 0; row < dims[0]; row++) {
        const char *s = args[0] + row * steps[0];
        char *out = args[1] + row * steps[1];
        double total = 0;
        for (ptrdiff_t i = 0; i < n; i++) total += *(const REAL *)(s + i * next);
        const REAL sum = total == 0 ? 1 : (REAL)total;
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL own = *(const REAL *)(s + i * next);
            double others = 0;
            for (ptrdiff_t j = 0; j < n; j++) {
                if (j == i) continue;
                const REAL taken = TYPED(taken)(own, *(const REAL *)(s + j * next), sum);
                *(REAL *)(out + i * down + j * right) = 0 - taken;
                others += taken;
            }
            *(REAL *)(out + i * (down + right)) = (REAL)others;
        }
    }
    leave_no_float_flags();
}

#endif
