/* The loss of sparsemax: a template. The NumPy twin is pyentmax/losses/definition.py. */
#ifndef PYENTMAX_LOSSES_SPARSEMAX_H
#define PYENTMAX_LOSSES_SPARSEMAX_H

#include "losses/_sparse_losses.h"
#include "mappings/sparsemax.h"

#define TEMPLATE "losses/sparsemax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

LOSS(sparsemax, "sparsemax")
LOSS_AND_GRAD(sparsemax)

#elif defined(REAL)

/* One entry of sparsemax, its share in two lanes of sums, and its part of the gradient. */
static inline REAL TYPED(sparsemax_share)(REAL z, TYPED(Threshold) at, REAL weight, REAL *mass,
                                          REAL *powers) {
    REAL p = ((z - at.largest) + at.t) + at.rest;
    p = p > 0 ? p : (REAL)0;
    *mass += p;
    *powers += p * p;
    return p * weight;
}

static void TYPED(sparsemax_part)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                  TYPED(Threshold) at, REAL weight, TYPED(Others) *others) {
    REAL mass[LANES] = {0}, powers[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            gradient[i + j] = TYPED(sparsemax_share)(z[i + j], at, weight, mass + j, powers + j);
    for (int j = 0; i + j < n; j++)
        gradient[i + j] = TYPED(sparsemax_share)(z[i + j], at, weight, mass + j, powers + j);
    others->mass += TYPED(lane_sum)(mass);
    others->powers += TYPED(lane_sum)(powers);
}

/* alpha = 2, p = u: L = (o^2 + sum of other p^2)/2 + distance. */
static bool TYPED(sparsemax_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                      ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                      double *loss) {
    TYPED(Search) found;
    if (!TYPED(search)(z, gradient, n, 1, TYPED(michelot), NULL, scratch, &found))
        return TYPED(settled_loss)(gradient, loss);

    const REAL rest = (REAL)((1 - found.at_t.sum) / found.at_t.size);
    const TYPED(Threshold) at = {found.largest, found.t, rest};
    found.t = TYPED(reach)(at.t);
    const TYPED(Others) others = TYPED(gradient_of_others)(TYPED(sparsemax_part), &found, z,
                                                           gradient, n, label, at, weight);
    const double u = (double)(z[label] - at.largest) + at.t + at.rest;
    const double o = u > 0 ? others.mass : 1;
    *loss = (o * o + others.powers) / 2 + (u < 0 ? -u : 0);
    gradient[label] = (REAL)(0 - o * weight);
    return true;
}

static bool TYPED(sparsemax_loss_of_p)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                       ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                       double *loss) {
    return TYPED(loss_of_p)(z, p, n, label, weight, scratch, false, loss);
}

BLOCK_OF_P(sparsemax)
LOSS_RECORDS(sparsemax)

#endif
