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

/* One entry of sparsemax, its share in two sums, and its part of the gradient. */
ALWAYS_INLINE REAL TYPED(sparsemax_share)(REAL x, REAL t, REAL rest, REAL weight, REAL *mass,
                                          REAL *powers) {
    REAL p = (x + t) + rest;
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
            gradient[i + j] = TYPED(sparsemax_share)(z[i + j] - at.largest, at.t, at.rest, weight,
                                                     mass + j, powers + j);
    for (int j = 0; i + j < n; j++)
        gradient[i + j] = TYPED(sparsemax_share)(z[i + j] - at.largest, at.t, at.rest, weight,
                                                 mass + j, powers + j);
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

/* The same for short rows side by side. */
static void TYPED(sparsemax_loss_block)(const REAL *const z[BLOCK], REAL *const gradient[BLOCK],
                                        int count, ptrdiff_t n, const ptrdiff_t label[BLOCK],
                                        const REAL weight[BLOCK], Ahead *ahead, REAL *restrict x,
                                        double loss[BLOCK], bool counts[BLOCK]) {
    TYPED(LossTile) at;
    REAL at_label[BLOCK];
    TYPED(sparsemax_tile)(z, n, ahead, x, at.largest, at.t, at.rest);
    TYPED(take_labels)(x, label, at.own);
    TYPED(tile_to_gradient)(x, n, weight, TYPED(sparsemax_share), ahead, &at);
    for (int j = 0; j < BLOCK; j++) {
        const double u = (double)at.own[j] + at.t[j] + at.rest[j], mass = at.mass[j];
        const double o = u > 0 ? mass : 1;
        loss[j] = (o * o + at.powers[j]) / 2 + (u < 0 ? -u : 0);
        at_label[j] = (REAL)(0 - o * weight[j]);
    }
    TYPED(deliver_gradients)(x, n, gradient, count, label, at_label, at.largest, loss, counts);
}

LOSS_RECORDS(sparsemax, SHORT_SEARCHED)

#endif
