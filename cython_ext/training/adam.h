/* One step of Adam: a template. The NumPy twin, with the formulas, is pyentmax/seq2seq/nn/optim.py.
 * Both take the same operations in the same order, so their bits agree.
 */
#ifndef PYENTMAX_TRAINING_ADAM_H
#define PYENTMAX_TRAINING_ADAM_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/operands.h"
#include "rows/sizes.h"

#define ADAM_OPERANDS(real) \
    real, real, real, real, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE, real, real, real

#define TEMPLATE "training/adam.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("adam_step", "(),(),(),(),(),(),(),()->(),(),()",
                      "Value, moments, gradient, step size, epsilon, decays to value and moments.",
                      8, 3, ADAM_OPERANDS, adam_loop)

#elif defined(REAL)

typedef struct {
    REAL size, eps, keep1, take1, keep2, take2;
} TYPED(AdamStep);

static inline TYPED(AdamStep)
    TYPED(adam_step)(double size, double eps, double beta1, double beta2) {
    return (TYPED(AdamStep)){(REAL)size,        (REAL)eps,   (REAL)beta1,
                             (REAL)(1 - beta1), (REAL)beta2, (REAL)(1 - beta2)};
}

/* x, m, v are overwritten, and do not overlap with each other. */
static void TYPED(adam_entries)(REAL *restrict x, REAL *restrict m, REAL *restrict v,
                                const REAL *restrict g, ptrdiff_t n, TYPED(AdamStep) s) {
    for (ptrdiff_t i = 0; i < n; i++) {
        m[i] = m[i] * s.keep1 + s.take1 * g[i];
        v[i] = v[i] * s.keep2 + g[i] * g[i] * s.take2;
        x[i] -= m[i] / (SQRT(v[i]) + s.eps) * s.size;
    }
}

/* Value, both moments, gradient, step size, epsilon and decays to value and moments, entry by
 * entry. As results may lie where operands are, the work is done on copies of a few entries. */
static void TYPED(adam_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                             void *data) {
    (void)data;
    const bool one_for_all = steps[4] == 0 && steps[5] == 0 && steps[6] == 0 && steps[7] == 0;
    const ptrdiff_t at_once = one_for_all ? CHUNK : 1;
    for (ptrdiff_t start = 0; start < dims[0]; start += at_once) {
        const ptrdiff_t n = dims[0] - start < at_once ? dims[0] - start : at_once;
        REAL room[4][CHUNK];
        double number[4];
        for (int k = 0; k < 4; k++) {
            const REAL *from = TYPED(contiguous)(args[k] + start * steps[k], steps[k], n, room[k]);
            if (from != room[k]) memcpy(room[k], from, n * sizeof(REAL));
            number[k] = *(const double *)(args[4 + k] + start * steps[4 + k]);
        }
        TYPED(adam_entries)(room[0], room[1], room[2], room[3], n,
                            TYPED(adam_step)(number[0], number[1], number[2], number[3]));
        for (int k = 0; k < 3; k++) {
            char *to = args[8 + k] + start * steps[8 + k];
            if (steps[8 + k] == (ptrdiff_t)sizeof(REAL))
                memcpy(to, room[k], n * sizeof(REAL));
            else
                TYPED(deliver)(room[k], to, steps[8 + k], n);
        }
    }
    leave_no_float_flags();
}

#endif
