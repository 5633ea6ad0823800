/* Fenchel-Young losses of one row and a label y, with their gradients p - e_y: a template. The
 * NumPy twin is pyentmax/reference/losses/definition.py.
 *
 * The loss at threshold t is the dual objective, so that an error in t counts only squared. What
 * cancels in it is taken out by hand: with u_i = [x_i + t]+ for a mapping p = u^(1/(alpha - 1)),
 *
 *     L = D(u_y) + sum over i != y of p_i u_i/alpha,
 *
 * where D, the divergence of one entry from 1, follows from the others, since 1 - p_y is their sum.
 * No term is negative, so small losses have as many digits as large ones.
 */
#ifndef PYENTMAX_LOSSES__SPARSE_LOSSES_H
#define PYENTMAX_LOSSES__SPARSE_LOSSES_H

#include "gufunc/loss_loop.h"
#include "mappings/_sparse_mapping.h"
#include "rows/tiles.h"
#include "thresholds/search.h"

/* Of the entries other than y: sum p, which is 1 - p_y, and sum p u. */
typedef struct {
    double mass, powers;
} Others;

/* A loss from the others and x_y + t, which below 0 is how far y is from the support; leaves what
 * p_y lacks of 1. */
typedef double LossOfLabel(double u, Others others, double *missing);

/* The loss of a mapping: with its NAME_parts, NAME_tile for short rows, and NAME_share and
 * NAME_loss_of_label. */
#define SPARSE_LOSS(name) \
    static bool TYPED(name##_loss_row)(const REAL *restrict z, REAL *restrict gradient, \
                                       ptrdiff_t n, ptrdiff_t label, REAL weight, \
                                       REAL *restrict scratch, double *loss) { \
        return TYPED(sparse_loss)(&TYPED(name##_parts), TYPED(name##_share), name##_loss_of_label, \
                                  z, gradient, n, label, weight, scratch, loss); \
    } \
    static void TYPED(name##_loss_block)(const REAL *const z[BLOCK], REAL *const gradient[BLOCK], \
                                         int count, ptrdiff_t n, TYPED(Labels) *restrict at, \
                                         Ahead *ahead, REAL *restrict x) { \
        REAL largest[BLOCK]; \
        TYPED(SparseColumns) c; \
        TYPED(name##_tile)(z, n, ahead, x, largest, &c); \
        TYPED(sparse_losses)(TYPED(name##_share), name##_loss_of_label, x, gradient, count, n, \
                             largest, &c, at, ahead); \
    } \
    LOSS_RECORDS(name, SHORT_SEARCHED)

#define TEMPLATE "losses/_sparse_losses.h"
#include "float_and_double.h"

#elif defined(REAL)

/* One entry's gap to weight p, and its shares in the others. */
typedef REAL TYPED(LossShare)(REAL x, REAL t, REAL rest, REAL weight, REAL *mass, REAL *powers);

/* Write weight p for some entries in a row, and add them to the others. A tile's way, below, in
 * chunks that are copied, took 1.05 to 1.2 of the time at rows of 1,000 entries (AVX2). */
ALWAYS_INLINE void TYPED(add_others)(TYPED(LossShare) *share, const REAL *restrict z,
                                     REAL *restrict gradient, ptrdiff_t n, REAL weight,
                                     REAL largest, REAL scale, REAL t, REAL rest, Others *others) {
    REAL mass[LANES] = {0}, powers[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            gradient[i + j] = share((z[i + j] - largest) * scale, t, rest, weight, mass + j,
                                    powers + j);
    for (int j = 0; i + j < n; j++)
        gradient[i + j] = share((z[i + j] - largest) * scale, t, rest, weight, mass + j,
                                powers + j);
    others->mass += TYPED(lane_sum)(mass);
    others->powers += TYPED(lane_sum)(powers);
}

/* A tile of gaps to weight p, and the sums of the others. Sums over LANES entries are added up
 * apart, as in block_moments. */
ALWAYS_INLINE void TYPED(tile_to_gradient)(TYPED(LossShare) *share, REAL *restrict x, ptrdiff_t n,
                                           const REAL *restrict weight, const REAL *restrict t,
                                           const REAL *restrict rest, Ahead *ahead,
                                           REAL *restrict all_mass, REAL *restrict all_powers) {
    Ahead mine = *ahead;
    for (int half = 0; half < BLOCK; half += LANES) {
        REAL half_mass[LANES] = {0}, half_powers[LANES] = {0};
        for (ptrdiff_t start = 0; start < n; start += LANES) {
            const ptrdiff_t end = n - start < LANES ? n : start + LANES;
            REAL mass[LANES] = {0}, powers[LANES] = {0};
            for (ptrdiff_t i = start; i < end; i++) {
                if (half == 0) prefetch_lines(&mine, 1);
                for (int j = 0; j < LANES; j++) {
                    REAL *entry = x + i * BLOCK + half + j;
                    *entry = share(*entry, t[half + j], rest[half + j], weight[half + j], mass + j,
                                   powers + j);
                }
            }
            for (int j = 0; j < LANES; j++) {
                half_mass[j] += mass[j];
                half_powers[j] += powers[j];
            }
        }
        memcpy(all_mass + half, half_mass, sizeof half_mass);
        memcpy(all_powers + half, half_powers, sizeof half_powers);
    }
    *ahead = mine;
}

/* The loss of any row, and its gradient. Chunks that t does not reach are 0. */
ALWAYS_INLINE bool TYPED(sparse_loss)(const TYPED(SparseMapping) *of, TYPED(LossShare) *share,
                                      LossOfLabel *loss_of_label, const REAL *restrict z,
                                      REAL *restrict gradient, ptrdiff_t n, ptrdiff_t label,
                                      REAL weight, REAL *restrict scratch, double *loss) {
    TYPED(Search) found;
    if (!TYPED(search)(z, gradient, n, of->scale, of->solve, scratch, &found))
        return TYPED(degenerate_loss)(gradient, loss);
    const REAL t = found.t, rest = (REAL)of->lacks(found.at_t);
    Others others = {0, 0};
    double missing;
    found.t = TYPED(reach)(t);
    ptrdiff_t start = TYPED(next_live)(&found, gradient, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        const ptrdiff_t stop = start <= label && label < end ? label : end, next = stop + 1;
        TYPED(add_others)(share, z + start, gradient + start, stop - start, weight, found.largest,
                          of->scale, t, rest, &others);
        if (next < end)
            TYPED(add_others)(share, z + next, gradient + next, end - next, weight, found.largest,
                              of->scale, t, rest, &others);
        start = TYPED(next_live)(&found, gradient, end, n);
    }
    const double gap = (double)(z[label] - found.largest) * of->scale;
    *loss = loss_of_label(gap + t + rest, others, &missing);
    gradient[label] = (REAL)(0 - missing * weight);
    return true;
}

/* What belongs at the labels of gradients, and which of the rows count. */
static void TYPED(finish_gradients)(REAL *const gradient[BLOCK], int count, ptrdiff_t n,
                                    const REAL at_label[BLOCK], const REAL largest[BLOCK],
                                    TYPED(Labels) *at) {
    for (int j = 0; j < count; j++) {
        gradient[j][at->label[j]] = at_label[j];
        at->counts[j] = !TYPED(fill_degenerate_row)(gradient[j], n, largest[j])
                        || TYPED(degenerate_loss)(gradient[j], at->loss + j);
    }
}

/* The losses of short rows side by side, from their tile of gaps and their thresholds. */
ALWAYS_INLINE void TYPED(sparse_losses)(TYPED(LossShare) *share, LossOfLabel *loss_of_label,
                                        REAL *restrict x, REAL *const gradient[BLOCK], int count,
                                        ptrdiff_t n, const REAL *restrict largest,
                                        const TYPED(SparseColumns) *restrict c,
                                        TYPED(Labels) *restrict at, Ahead *ahead) {
    REAL own[BLOCK], mass[BLOCK], powers[BLOCK], at_label[BLOCK], t[BLOCK], rest[BLOCK];
    double loss[BLOCK]; /* with copies, 0.95 of the time in double (AVX2) */
    memcpy(t, c->t, sizeof t);
    memcpy(rest, c->rest, sizeof rest);
    for (int j = 0; j < BLOCK; j++) { /* leaves the others */
        own[j] = x[at->label[j] * BLOCK + j];
        x[at->label[j] * BLOCK + j] = OUTSIDE;
    }
    TYPED(tile_to_gradient)(share, x, n, at->weight, t, rest, ahead, mass, powers);
    for (int j = 0; j < BLOCK; j++) {
        double missing;
        loss[j] = loss_of_label((double)own[j] + t[j] + rest[j], (Others){mass[j], powers[j]},
                                &missing);
        at_label[j] = (REAL)(0 - missing * at->weight[j]);
    }
    memcpy(at->loss, loss, sizeof loss);
    TYPED(separate)(x, n, gradient);
    TYPED(finish_gradients)(gradient, count, n, at_label, largest, at);
}

#endif
