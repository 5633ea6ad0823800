/* The Fenchel-Young loss of α-entmax and a label y: a template. The NumPy twin is
 * pyentmax/reference/losses/definition.py.
 *
 * With β = α - 1, x = z - max z <= 0 and u_i = p_i^β on the support, all thresholds are told by the
 * largest probability: (1 - u_i)/β = c - x_i for c = (1 - p_max^β)/β, which is -log p_max at β = 0.
 * In g = c - x_y, which is above 1/β for a y off the support, the loss is
 *
 *     L = sum over i != y of p_i u_i/α + D,    D = g - (1 - p_y u_y)/α = integral from p_y to 1 of
 *                                                                        s^(β-1) (1 - s) ds.
 */
#ifndef PYENTMAX_LOSSES_ENTMAX_H
#define PYENTMAX_LOSSES_ENTMAX_H

#include "losses/entmax15.h"
#include "losses/softmax.h"
#include "losses/sparsemax.h"
#include "mappings/entmax.h"

/* Losses of so many rows are worked out together. */
enum { TOGETHER = 8 };

/* D for l = log p_y near 0, where g and the rest cancel: sum of ((1 + β)^k - β^k) l^(k+1)/(k+1)!
 * over k >= 1, of which α |l| <= 1 needs 18 terms. The difference of powers is (1 + β) times the
 * one before and β^(k-1); times l^k nothing of it overflows, nor cancels, however large β is. */
static void small_divergences(const double beta[TOGETHER], const double l[TOGETHER],
                              double divergence[TOGETHER]) {
    double x[TOGETHER], y[TOGETHER], total[TOGETHER] = {0}, apart[TOGETHER], power[TOGETHER];
    double factor = 1;
    for (int j = 0; j < TOGETHER; j++) {
        power[j] = x[j] = beta[j] * l[j];
        y[j] = x[j] + l[j];
        apart[j] = l[j];
    }
    for (int k = 0; k < 18; k++) {
        factor /= k + 2;
        for (int j = 0; j < TOGETHER; j++) {
            total[j] += apart[j] * (l[j] * factor);
            apart[j] = y[j] * apart[j] + power[j] * l[j];
            power[j] *= x[j];
        }
    }
    memcpy(divergence, total, sizeof total);
}

static double small_divergence(double beta, double l) {
    double all_beta[TOGETHER], all_l[TOGETHER], divergence[TOGETHER];
    for (int j = 0; j < TOGETHER; j++) {
        all_beta[j] = beta;
        all_l[j] = l;
    }
    small_divergences(all_beta, all_l, divergence);
    return divergence[0];
}

/* A row's loss from its parts, where p_y is not most of it. */
static inline double large_loss(double alpha, double powers, double g, double own) {
    const double u = 1 - (alpha - 1) * g,
                 loss = powers / alpha + g - (1 - (u > 0 ? own * u : 0)) / alpha;
    return loss > 0 ? loss : 0; /* by rounding, where α is too large for p to tell c */
}

/* Is it most, and the loss that of small_divergence()? */
static inline bool is_small_loss(double alpha, double own, double l) {
    return alpha * -l <= 1 && own > 0.5;
}

/* c by the largest p, and in *t 1 - β c. */
static inline double level_of(double alpha, double top, double *t) {
    const double exponent = (alpha - 1) * log2_of_f64(top);
    const double power = exp2_less_1_f64(exponent > -1000 ? exponent : -1000);
    *t = 1 + power;
    return -power / (alpha - 1);
}

/* As for the other losses, with an alpha behind the weight. */
#define ALPHA_LOSS_OPERANDS(real) real, NPY_BOOL, NPY_INT64, real, NPY_DOUBLE, real, NPY_BOOL
#define ALPHA_LOSS_AND_GRAD_OPERANDS(real) ALPHA_LOSS_OPERANDS(real), real

#define TEMPLATE "losses/entmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL("entmax_loss", "(n),(n),(),(),()->(),()", "As softmax_loss, with alpha behind the weight.",
       5, 2, ALPHA_LOSS_OPERANDS, entmax_loss_loop, entmax_loss)
KERNEL("entmax_loss_and_grad", "(n),(n),(),(),()->(),(),(n)",
       "As softmax_loss_and_grad, with alpha behind the weight.", 5, 3,
       ALPHA_LOSS_AND_GRAD_OPERANDS, entmax_loss_loop, entmax_loss_and_grad)

#elif defined(REAL)

/* Where a gap is, which is one of x: n if it is not. */
static ptrdiff_t TYPED(place_of_gap)(const REAL *x, ptrdiff_t n, REAL gap) {
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        BITS here = 0;
        for (int j = 0; j < LANES; j++) here |= x[i + j] == gap;
        for (int j = 0; here && j < LANES; j++)
            if (x[i + j] == gap) return i + j;
    }
    return n;
}

/* The largest p of each of LANES columns, `apart` entries from row to row. */
static void TYPED(tops_of_columns)(const REAL *restrict p, ptrdiff_t n, ptrdiff_t apart,
                                   REAL top[LANES]) {
    REAL largest[LANES] = {0};
    for (ptrdiff_t i = 0; i < n * apart; i += apart)
        for (int j = 0; j < LANES; j++) largest[j] = TYPED(larger)(p[i + j], largest[j]);
    memcpy(top, largest, sizeof largest);
}

/* The p of such columns to weight p, and Σ p and Σ p u. In order, and with what a sum loses of its
 * terms, which are many: entries that are no part of the support then change no bit. */
static void TYPED(weigh_columns)(const REAL *restrict x, REAL *restrict p, ptrdiff_t n,
                                 ptrdiff_t apart, const REAL t[LANES], const REAL weight[LANES],
                                 REAL mass[LANES], REAL powers[LANES]) {
    REAL sum[LANES] = {0}, power[LANES] = {0}, lost[LANES] = {0}, lost_power[LANES] = {0};
    for (ptrdiff_t i = 0; i < n * apart; i += apart)
        for (int j = 0; j < LANES; j++) {
            const REAL u = x[i + j] + t[j], q = p[i + j];
            const REAL term = q * (u > 0 ? u : (REAL)0);
            const REAL next = sum[j] + q, next_power = power[j] + term;
            lost[j] += q - (next - sum[j]);
            lost_power[j] += term - (next_power - power[j]);
            sum[j] = next;
            power[j] = next_power;
            /* 0 stays 0, as where it is left out of the tile, whatever the weight. Multiplied
             * first, since GCC does not take lanes together where only some load a weight. */
            const REAL weighted = q * weight[j];
            p[i + j] = q == 0 ? q : weighted;
        }
    for (int j = 0; j < LANES; j++) {
        mass[j] = sum[j] + lost[j];
        powers[j] = power[j] + lost_power[j];
    }
}

/* The loss of a row from what the search kept of it, as columns that are then added up. Of
 * entries with the label's score any one will do for the label's. */
static bool TYPED(entmax_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                   ptrdiff_t label, REAL weight, double alpha,
                                   TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict scratch,
                                   double *loss) {
    TYPED(Search) found;
    REAL *restrict p = scratch + scratch_size(n);
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(fill_degenerate_row)(gradient, n, largest))
        return TYPED(degenerate_loss)(gradient, loss);
    TYPED(find_entmax)(z, n, largest, alpha, kept, ahead, scratch, p, &found);
    const REAL gap = z[label] - found.largest, scaled = gap * found.scale, *x = found.kept;
    const ptrdiff_t place = scaled > -found.t ? TYPED(place_of_gap)(x, found.size, scaled)
                                              : found.size;
    REAL tops[LANES], t[LANES], weights[LANES], mass[LANES], powers[LANES], own = 0;
    TYPED(tops_of_columns)(p, found.size / LANES, LANES, tops);
    double level;
    const double c = level_of(alpha, TYPED(lane_max)(tops), &level);
    for (int j = 0; j < LANES; j++) {
        t[j] = (REAL)level;
        weights[j] = weight;
    }
    if (place < found.size) {
        own = p[place];
        p[place] = 0; /* leaves the others */
    }
    TYPED(weigh_columns)(x, p, found.size / LANES, LANES, t, weights, mass, powers);
    const REAL others = TYPED(lane_sum)(mass), sum = TYPED(lane_sum)(powers);
    if (place < found.size) p[place] = own * weight; /* perhaps another's, of the same score */
    TYPED(spread)(z, n, &found, p, gradient);
    const double l = log1p(-(others < (REAL)0.5 ? (double)others : 0.5)); /* of p_y, if most */
    *loss = is_small_loss(alpha, own, l) ? sum / alpha + small_divergence(alpha - 1, l)
                                         : large_loss(alpha, sum, c - gap, own);
    gradient[label] = (REAL)(0 - (own > 0 ? others : 1) * weight);
    return true;
}

/* Where an entry goes when those above floor are kept: n if it does not. */
static ptrdiff_t TYPED(place_among_kept)(const REAL *restrict z, ptrdiff_t n, ptrdiff_t entry,
                                         REAL largest, REAL scale, REAL floor) {
    BITS before = 0;
    for (ptrdiff_t i = 0; i < entry; i++)
        before += (z[i] - largest) * scale > floor; /* rounded as in what was kept */
    return (z[entry] - largest) * scale > floor ? (ptrdiff_t)before : n;
}

/* The same of short rows side by side. */
static void TYPED(entmax_loss_block)(const REAL *const z[BLOCK], REAL *const gradient[BLOCK],
                                     int count, ptrdiff_t n, const TYPED(RowContext) *with,
                                     TYPED(Labels) *restrict at) {
    const double *alpha = with->number;
    TYPED(Tile) tile;
    double c[BLOCK], l[BLOCK], small[BLOCK] = {0};
    bool any_small = false;
    REAL t[BLOCK], tops[BLOCK], mass[BLOCK], powers[BLOCK], own[BLOCK], at_label[BLOCK];
    ptrdiff_t place[BLOCK];
    TYPED(find_tile)(z, n, with, &tile);
    for (int half = 0; half < BLOCK; half += LANES)
        TYPED(tops_of_columns)(tile.p + half, tile.size, BLOCK, tops + half);
    for (int j = 0; j < BLOCK; j++) {
        double level;
        c[j] = level_of(alpha[j], tops[j], &level);
        t[j] = (REAL)level;
    }
    for (int j = 0; j < BLOCK; j++) { /* leaves the others */
        place[j] = tile.few ? TYPED(place_among_kept)(z[j], n, at->label[j], tile.largest[j],
                                                      tile.beta[j], tile.floor[j])
                            : at->label[j];
        own[j] = place[j] < tile.size ? tile.p[place[j] * BLOCK + j] : (REAL)0;
        if (place[j] < tile.size) tile.p[place[j] * BLOCK + j] = 0;
    }
    for (int half = 0; half < BLOCK; half += LANES)
        TYPED(weigh_columns)(tile.x + half, tile.p + half, tile.size, BLOCK, t + half,
                             at->weight + half, mass + half, powers + half);
    for (int j = 0; j < BLOCK; j++) {
        const double others = mass[j] < (REAL)0.5 ? (double)mass[j] : 0.5;
        l[j] = log2_of_1_plus_f64(-others) * 0.69314718055994530942;
    }
    for (int j = 0; j < BLOCK; j++) any_small |= is_small_loss(alpha[j], own[j], l[j]);
    for (int j = 0; any_small && j < BLOCK; j += TOGETHER) {
        double beta[TOGETHER];
        for (int k = 0; k < TOGETHER; k++) beta[k] = alpha[j + k] - 1;
        small_divergences(beta, l + j, small + j);
    }
    for (int j = 0; j < BLOCK; j++) {
        const REAL gap = z[j][at->label[j]] - tile.largest[j];
        at->loss[j] = is_small_loss(alpha[j], own[j], l[j])
                          ? powers[j] / alpha[j] + small[j]
                          : large_loss(alpha[j], powers[j], c[j] - gap, own[j]);
        at_label[j] = (REAL)(0 - (own[j] > 0 ? (double)mass[j] : 1) * at->weight[j]);
    }
    TYPED(deliver_tile)(&tile, z, gradient, count, n);
    TYPED(finish_gradients)(gradient, count, n, at_label, tile.largest, at);
}

/* α = ∞: L = max z - z_y. */
static bool TYPED(argmax_loss_of_p)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                    double *loss) {
    const REAL own = p[label], largest = TYPED(chunk_maxima)(z, n, scratch);
    if (own != own) return TYPED(degenerate_loss)(p, loss);
    if (largest == -(REAL)INFINITY) return false;
    *loss = (double)largest - z[label];
    for (ptrdiff_t i = 0; i < n; i++) p[i] *= weight;
    p[label] = (own - 1) * weight;
    return true;
}

/* The losses with code of their own, for some α. */
static const TYPED(Loss) *TYPED(own_loss)(double alpha) {
    return alpha == 1     ? &TYPED(softmax_loss)
           : alpha == 1.5 ? &TYPED(entmax15_loss)
           : alpha == 2   ? &TYPED(sparsemax_loss)
                          : NULL;
}

/* The loss of one row with its α. */
static bool TYPED(general_loss_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, double alpha,
                                    TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict scratch,
                                    double *loss) {
    const TYPED(Mapping) *mapping = TYPED(mapping_for)(alpha);
    if (mapping == &TYPED(general_entmax))
        return TYPED(entmax_loss_row)(z, p, n, label, weight, alpha, kept, ahead, scratch, loss);
    mapping->row(z, p, n, &(TYPED(RowContext)){.scratch = scratch});
    if (alpha > 2) return TYPED(argmax_loss_of_p)(z, p, n, label, weight, scratch, loss);
    return TYPED(degenerate_loss)(p, loss); /* no α */
}

/* Rows that run the same code, if they are short. */
static void TYPED(run_loss_choice)(TYPED(Rows) *rows, void *context) {
    const ptrdiff_t n = rows->n;
    const double *alpha = rows->number[2];
    const TYPED(Loss) *own = TYPED(own_loss)(alpha[0]);
    if (own) {
        rows->by_block = n <= own->longest;
        TYPED(run_loss)(rows, (void *)own);
        return;
    }
    TYPED(Labels) at;
    const bool by_block = TYPED(goes_by_block)(TYPED(mapping_for)(alpha[0]), n);
    TYPED(read_labels)(rows, &at);
    if (by_block) {
        const TYPED(RowContext) with = {alpha, NULL, &rows->ahead, rows->scratch, context};
        TYPED(entmax_loss_block)(rows->in[0], rows->out, rows->count, n, &with, &at);
    }
    for (int j = 0; !by_block && j < rows->count; j++) {
        Ahead ahead = TYPED(ahead_of_row)(rows, j);
        if (TYPED(is_wanted)(&at, j))
            at.counts[j] = TYPED(general_loss_row)(rows->in[0][j], rows->out[j], n, at.label[j],
                                                   at.weight[j], alpha[j], context, &ahead,
                                                   rows->scratch, at.loss + j);
    }
    TYPED(give_losses)(rows, &at);
}

static void TYPED(run_entmax_loss)(TYPED(Rows) *rows, void *context) {
    TYPED(run_alike)(rows, 2, TYPED(same_code), TYPED(run_loss_choice), context);
}

/* (n),(n),(),(),()->(),(),(n): as loss_loop, with an α for each row behind its weight. */
static void TYPED(entmax_loss_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    const ptrdiff_t n = dims[1];
    TYPED(EntmaxKept) kept = {.alpha = 0};
    if (n > 0)
        TYPED(row_loop)(args, dims, steps, *(const bool *)data ? "rmiwd>wbr" : "rmiwd>wbt",
                        TYPED(run_entmax_loss), n <= SHORT_OF_POWERS,
                        TYPED(entmax_scratch_size)(n) * sizeof(REAL), &kept);
}

/* Data of the loop: with the gradient? */
static const bool TYPED(entmax_loss) = false, TYPED(entmax_loss_and_grad) = true;

#endif
