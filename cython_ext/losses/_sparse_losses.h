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
#include "rows/tiles.h"
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

/* One entry's gap to weight p, and its shares in the others. */
typedef REAL TYPED(LossShare)(REAL x, REAL t, REAL rest, REAL weight, REAL *mass, REAL *powers);

/* A loss of short rows side by side, from its tile of gaps and their thresholds. */
typedef struct {
    REAL largest[BLOCK], own[BLOCK]; /* the labels' gaps, */
    REAL t[BLOCK], rest[BLOCK];
    REAL mass[BLOCK], powers[BLOCK]; /* and the sums of the others */
} TYPED(LossTile);

/* Take the labels' entries out of a tile. */
static void TYPED(take_labels)(REAL *restrict x, const ptrdiff_t label[BLOCK], REAL *restrict own) {
    for (int j = 0; j < BLOCK; j++) {
        own[j] = x[label[j] * BLOCK + j];
        x[label[j] * BLOCK + j] = OUTSIDE;
    }
}

/* Gaps to weight p, and the sums of the others. Sums over LANES entries are added up apart, as in
 * block_moments. */
ALWAYS_INLINE void TYPED(tile_to_gradient)(REAL *restrict x, ptrdiff_t n,
                                           const REAL *restrict weight, TYPED(LossShare) *share,
                                           Ahead *ahead, TYPED(LossTile) *restrict at) {
    Ahead mine = *ahead;
    for (int half = 0; half < BLOCK; half += LANES) {
        REAL all_mass[LANES] = {0}, all_powers[LANES] = {0};
        for (ptrdiff_t start = 0; start < n; start += LANES) {
            const ptrdiff_t end = n - start < LANES ? n : start + LANES;
            REAL mass[LANES] = {0}, powers[LANES] = {0};
            for (ptrdiff_t i = start; i < end; i++) {
                if (half == 0) ask_lines_ahead(&mine, 1);
                for (int j = 0; j < LANES; j++) {
                    REAL *entry = x + i * BLOCK + half + j;
                    *entry = share(*entry, at->t[half + j], at->rest[half + j], weight[half + j],
                                   mass + j, powers + j);
                }
            }
            for (int j = 0; j < LANES; j++) {
                all_mass[j] += mass[j];
                all_powers[j] += powers[j];
            }
        }
        memcpy(at->mass + half, all_mass, sizeof all_mass);
        memcpy(at->powers + half, all_powers, sizeof all_powers);
    }
    *ahead = mine;
}

/* A tile of gradients to rows, with what belongs at the labels. */
static void TYPED(deliver_gradients)(const REAL *x, ptrdiff_t n, REAL *const gradient[BLOCK],
                                     int count, const ptrdiff_t label[BLOCK],
                                     const REAL at_label[BLOCK], const REAL largest[BLOCK],
                                     double loss[BLOCK], bool counts[BLOCK]) {
    TYPED(separate)(x, n, gradient);
    for (int j = 0; j < count; j++) {
        gradient[j][label[j]] = at_label[j];
        counts[j] = true;
        if (TYPED(is_settled)(gradient[j], n, largest[j]))
            counts[j] = TYPED(settled_loss)(gradient[j], loss + j);
    }
}

#endif
