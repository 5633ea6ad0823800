/* The loss of 1.5-entmax: a template. The NumPy twin is pyentmax/losses/definition.py. */
#ifndef PYENTMAX_LOSSES_ENTMAX15_H
#define PYENTMAX_LOSSES_ENTMAX15_H

#include "losses/_sparse_losses.h"
#include "mappings/entmax15.h"

#define TEMPLATE "losses/entmax15.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

LOSS(entmax15, "1.5-entmax")
LOSS_AND_GRAD(entmax15)

#elif defined(REAL)

/* One entry, a half gap, its share in two sums, and its part of the gradient. */
ALWAYS_INLINE REAL TYPED(entmax15_share)(REAL h, REAL t, REAL rest, REAL weight, REAL *mass,
                                         REAL *powers) {
    const REAL p = TYPED(entmax15_entry)(h, t, 2 * rest);
    REAL u = (h + t) + rest;
    u = u > 0 ? u : (REAL)0;
    *mass += p;
    *powers += p * u;
    return p * weight;
}

static void TYPED(entmax15_part)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                 TYPED(Threshold) at, REAL weight, TYPED(Others) *others) {
    REAL mass[LANES] = {0}, powers[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            gradient[i + j] = TYPED(entmax15_share)((z[i + j] - at.largest) * (REAL)0.5, at.t,
                                                    at.rest, weight, mass + j, powers + j);
    for (int j = 0; i + j < n; j++)
        gradient[i + j] = TYPED(entmax15_share)((z[i + j] - at.largest) * (REAL)0.5, at.t, at.rest,
                                                weight, mass + j, powers + j);
    others->mass += TYPED(lane_sum)(mass);
    others->powers += TYPED(lane_sum)(powers);
}

/* alpha = 1.5, p = u^2 and x half gaps: L = 2/3 (o^2 (2 + u_y) + sum of other p^1.5) + 2 distance,
 * where o (1 + u_y) = 1 - p_y. */
static bool TYPED(entmax15_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                     ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                     double *loss) {
    TYPED(Search) found;
    if (!TYPED(search)(z, gradient, n, (REAL)0.5, TYPED(entmax15_solve), NULL, scratch, &found))
        return TYPED(settled_loss)(gradient, loss);

    const REAL rest = (REAL)quadratic_step(found.at_t);
    const TYPED(Threshold) at = {found.largest, found.t, rest};
    const TYPED(Others) others = TYPED(gradient_of_others)(TYPED(entmax15_part), &found, z,
                                                           gradient, n, label, at, weight);
    const double reach = (double)(z[label] - at.largest) * 0.5 + at.t + at.rest;
    const double u = reach > 0 ? reach : 0, missing = reach > 0 ? others.mass : 1;
    const double o = missing / (1 + u);
    *loss = (o * o * (2 + u) + others.powers) * 2 / 3 + (reach < 0 ? -2 * reach : 0);
    gradient[label] = (REAL)(0 - missing * weight);
    return true;
}

/* The same for short rows side by side. */
static void TYPED(entmax15_loss_block)(const REAL *const z[BLOCK], REAL *const gradient[BLOCK],
                                       int count, ptrdiff_t n, const ptrdiff_t label[BLOCK],
                                       const REAL weight[BLOCK], Ahead *ahead, REAL *restrict h,
                                       double loss[BLOCK], bool counts[BLOCK]) {
    TYPED(LossTile) at;
    TYPED(Entmax15Columns) found;
    REAL at_label[BLOCK];
    TYPED(entmax15_tile)(z, n, ahead, h, at.largest, &found);
    memcpy(at.t, found.t, sizeof at.t);
    memcpy(at.rest, found.rest, sizeof at.rest);
    TYPED(take_labels)(h, label, at.own);
    TYPED(tile_to_gradient)(h, n, weight, TYPED(entmax15_share), ahead, &at);
    for (int j = 0; j < BLOCK; j++) {
        const double reach = (double)at.own[j] + at.t[j] + at.rest[j], mass = at.mass[j];
        const double u = reach > 0 ? reach : 0, missing = reach > 0 ? mass : 1;
        const double o = missing / (1 + u);
        loss[j] = (o * o * (2 + u) + at.powers[j]) * 2 / 3 + (reach < 0 ? -2 * reach : 0);
        at_label[j] = (REAL)(0 - missing * weight[j]);
    }
    TYPED(deliver_gradients)(h, n, gradient, count, label, at_label, at.largest, loss, counts);
}

LOSS_RECORDS(entmax15, SHORT_SEARCHED)

#endif
