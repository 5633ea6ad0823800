/* Fenchel-Young losses of one row and a label y, with their gradients p - e_y: a template. The
 * NumPy twin is pyentmax/losses/definition.py.
 *
 * The loss at threshold t is the dual objective, so that an error in t counts only squared. What
 * cancels in it is taken out by hand: with u_y = [x_y + t]+ and o = 1 - u_y, sparsemax
 * and 1.5-entmax both have
 *
 *     L = D(u_y) + sum over i != y of a power of u_i + how far y is from the support,
 *
 * where D, the divergence of one entry from 1, is o^2 times a positive factor. No term is negative,
 * and o follows from sum p = 1 and the other entries: small losses have as many digits as large
 * ones.
 */
#ifndef PYENTMAX_LOSSES__SPARSE_LOSSES_H
#define PYENTMAX_LOSSES__SPARSE_LOSSES_H

#include "gufunc/loss_loop.h"
#include "thresholds/search.h"

#define TEMPLATE "losses/_sparse_losses.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Of the entries other than y: sum p = 1 - p_y, and sum p^alpha. */
typedef struct {
    double mass, powers;
} TYPED(Others);

/* Where a row's threshold lies: t as found, and what its rounding took off it. */
typedef struct {
    REAL largest, t, rest;
} TYPED(Threshold);

/* Write weight p for some entries in a row, and add them to the others. */
typedef void TYPED(LossPart)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                             TYPED(Threshold) at, REAL weight, TYPED(Others) *others);

/* Write weight p, except at the label, and add up the others, in the chunks that reach the
 * support. */
static TYPED(Others) TYPED(gradient_of_others)(TYPED(LossPart) *part, const TYPED(Search) *found,
                                               const REAL *z, REAL *gradient, ptrdiff_t n,
                                               ptrdiff_t label, TYPED(Threshold) at, REAL weight) {
    TYPED(Others) others = {0, 0};
    ptrdiff_t start = TYPED(next_live)(found, gradient, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        const ptrdiff_t stop = start <= label && label < end ? label : end;
        part(z + start, gradient + start, stop - start, at, weight, &others);
        if (stop < end)
            part(z + stop + 1, gradient + stop + 1, end - stop - 1, at, weight, &others);
        start = TYPED(next_live)(found, gradient, end, n);
    }
    return others;
}

/* One entry's share in two lanes of sums, and in the largest. */
ALWAYS_INLINE void TYPED(add_share)(REAL p, bool root, REAL *mass, REAL *powers, REAL *largest) {
    *mass += p;
    *powers += root ? p * SQRT(p) : p * p;
    *largest = TYPED(larger)(p, *largest);
}

/* alpha = 2 or, with `root`, 1.5. The row's largest p tells t: there u = t. */
ALWAYS_INLINE bool TYPED(loss_of_p)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, REAL *restrict scratch, bool root,
                                    double *loss) {
    const REAL own = p[label];
    if (own != own) return TYPED(settled_loss)(p, loss);
    p[label] = 0; /* leaves the others */
    REAL mass[LANES] = {0}, powers[LANES] = {0}, largest[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            TYPED(add_share)(p[i + j], root, mass + j, powers + j, largest + j);
    for (int j = 0; i + j < n; j++)
        TYPED(add_share)(p[i + j], root, mass + j, powers + j, largest + j);
    const double others = TYPED(lane_sum)(mass), power = TYPED(lane_sum)(powers);
    if (own == 0 && others == 0) return false;

    const double u = root ? sqrt((double)own) : own, missing = own > 0 ? others : 1;
    const double o = root ? missing / (1 + u) : missing;
    *loss = root ? (o * o * (2 + u) + power) * 2 / 3 : (o * o + power) / 2;
    if (own == 0) {
        const double gap = TYPED(chunk_maxima)(z, n, scratch) - z[label];
        const double t = TYPED(lane_max)(largest), reach = root ? 2 * sqrt(t) : t;
        *loss += gap > reach ? gap - reach : 0;
    }
    for (i = 0; i < n; i++) p[i] *= weight;
    p[label] = (REAL)(0 - missing * weight);
    return true;
}

#endif
