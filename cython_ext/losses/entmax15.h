/* The loss of 1.5-entmax: a template. The NumPy twin is pyentmax/reference/losses/definition.py. */
#ifndef PYENTMAX_LOSSES_ENTMAX15_H
#define PYENTMAX_LOSSES_ENTMAX15_H

#include "losses/_sparse_losses.h"
#include "mappings/entmax15.h"

/* alpha = 1.5, p = u^2 and x half gaps: L = 2/3 (o^2 (2 + u_y) + sum of other p^1.5), and twice how
 * far y is, where o (1 + u_y) = 1 - p_y. */
static inline double entmax15_loss_of_label(double u, Others others, double *missing) {
    const double positive = u > 0 ? u : 0, lacks = *missing = u > 0 ? others.mass : 1;
    const double o = lacks / (1 + positive);
    return (o * o * (2 + positive) + others.powers) * 2 / 3 + (u < 0 ? -2 * u : 0);
}

#define TEMPLATE "losses/entmax15.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

LOSS(entmax15, "1.5-entmax")
LOSS_AND_GRAD(entmax15)

#elif defined(REAL)

ALWAYS_INLINE REAL TYPED(entmax15_share)(REAL h, REAL t, REAL rest, REAL weight, REAL *mass,
                                         REAL *powers) {
    const REAL p = TYPED(entmax15_entry)(h, t, rest), u = (h + t) + rest;
    *mass += p;
    *powers += p * (u > 0 ? u : (REAL)0);
    return p * weight;
}

SPARSE_LOSS(entmax15)

#endif
