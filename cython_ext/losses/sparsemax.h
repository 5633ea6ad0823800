/* The loss of sparsemax: a template. The NumPy twin is pyentmax/reference/losses/definition.py. */
#ifndef PYENTMAX_LOSSES_SPARSEMAX_H
#define PYENTMAX_LOSSES_SPARSEMAX_H

#include "losses/_sparse_losses.h"
#include "mappings/sparsemax.h"

/* alpha = 2, p = u: L = (o^2 + sum of other p^2)/2, o = 1 - p_y, and how far y is. */
static inline double sparsemax_loss_of_label(double u, Others others, double *missing) {
    const double o = *missing = u > 0 ? others.mass : 1;
    return (o * o + others.powers) / 2 + (u < 0 ? -u : 0);
}

#define TEMPLATE "losses/sparsemax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

LOSS(sparsemax, "sparsemax")
LOSS_AND_GRAD(sparsemax)

#elif defined(REAL)

ALWAYS_INLINE REAL TYPED(sparsemax_share)(REAL x, REAL t, REAL rest, REAL weight, REAL *mass,
                                          REAL *powers) {
    const REAL p = TYPED(sparsemax_entry)(x, t, rest);
    *mass += p;
    *powers += p * p;
    return p * weight;
}

SPARSE_LOSS(sparsemax)

#endif
