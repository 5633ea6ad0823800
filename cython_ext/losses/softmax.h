/* The loss of softmax, the cross-entropy: a template. The NumPy twin is
 * pyentmax/losses/definition.py. */
#ifndef PYENTMAX_LOSSES_SOFTMAX_H
#define PYENTMAX_LOSSES_SOFTMAX_H

#include "gufunc/loss_loop.h"
#include "mappings/softmax.h"

#define TEMPLATE "losses/softmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

LOSS(softmax, "softmax")
LOSS_AND_GRAD(softmax)

#elif defined(REAL)

/* L = log sum exp(x) - x_y. The others' exponentials are added up apart from y's: what is lost
 * beside a 1 is all there is of a small loss. */
static bool TYPED(softmax_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                    double *loss) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(is_settled)(gradient, n, largest)) return TYPED(settled_loss)(gradient, loss);

    const ptrdiff_t next = label + 1;
    double others = TYPED(exponentials)(z, gradient, label, largest);
    others += TYPED(exponentials)(z + next, gradient + next, n - next, largest);
    const double unit = TYPED(scaled_exp)(0), x = z[label] - largest;
    const double sum = others + TYPED(scaled_exp)(z[label] - largest);
    *loss = x == 0 ? log1p(others / unit) : log(sum / unit) - x;

    const REAL share = (REAL)(weight / sum);
    for (ptrdiff_t i = 0; i < n; i++) gradient[i] *= share;
    gradient[label] = (REAL)(0 - others / sum * weight);
    return true;
}

LOSS_RECORDS(softmax, NULL)

#endif
