/* The loss of top-k sparsemax and a label y, with its gradient p - e_y: a template. The NumPy twin
 * is pyentmax/reference/losses/definition.py.
 *
 * With Omega(p) = |p|^2/2 - 1/2 on vectors of at most k entries above 0, and u = x_y + t,
 *
 *     L = p.z - |p|^2/2 + 1/2 - z_y = (|p|^2 + 1)/2 - u.
 *
 * For a y among the k entries it is the loss of sparsemax among these. A y that is not, though its
 * u is above 0, has the loss of the last of the k, and in addition what it scores below that: both
 * are sums of terms that are not negative, so nothing cancels.
 */
#ifndef PYENTMAX_LOSSES_TOPK_SPARSEMAX_H
#define PYENTMAX_LOSSES_TOPK_SPARSEMAX_H

#include "losses/sparsemax.h"
#include "mappings/topk_sparsemax.h"

/* As for the other losses, with a k behind the weight. */
#define TOPK_LOSS_OPERANDS(real) real, NPY_BOOL, NPY_INT64, real, NPY_INT64, real, NPY_BOOL
#define TOPK_LOSS_AND_GRAD_OPERANDS(real) TOPK_LOSS_OPERANDS(real), real

#define TEMPLATE "losses/topk_sparsemax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL("topk_sparsemax_loss", "(n),(n),(),(),()->(),()",
       "As sparsemax_loss, with k behind the weight.", 5, 2, TOPK_LOSS_OPERANDS,
       topk_sparsemax_loss_loop, topk_sparsemax_loss)
KERNEL("topk_sparsemax_loss_and_grad", "(n),(n),(),(),()->(),(),(n)",
       "As sparsemax_loss_and_grad, with k behind the weight.", 5, 3, TOPK_LOSS_AND_GRAD_OPERANDS,
       topk_sparsemax_loss_loop, topk_sparsemax_loss_and_grad)

#elif defined(REAL)

/* Some entry with that p, which is the least of those above 0. */
static ptrdiff_t TYPED(place_of)(const REAL *p, ptrdiff_t n, REAL value) {
    for (ptrdiff_t i = 0; i < n; i++)
        if (p[i] == value) return i;
    return 0;
}

static bool TYPED(topk_sparsemax_loss_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                           ptrdiff_t label, REAL weight, ptrdiff_t k,
                                           REAL *restrict scratch, double *loss) {
    TYPED(TopkThreshold) at;
    if (!TYPED(find_topk_sparsemax)(z, p, n, k, scratch, &at))
        return TYPED(degenerate_loss)(p, loss);
    const REAL own = p[label], x = z[label] - at.largest;
    const REAL last_p = (at.kth + at.t) + at.rest; /* of the k */
    const double u = (double)x + at.t + at.rest;
    const bool left_out = own == 0 && u > 0 && last_p > 0; /* at.kth = -inf: none is */
    const ptrdiff_t apart = left_out ? TYPED(place_of)(p, n, last_p) : label;

    const REAL kept = p[apart];
    Others others = {0, 0};
    p[apart] = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t count = n - start < CHUNK ? n - start : CHUNK;
        REAL weighted[CHUNK];
        if (!TYPED(any_nonzero)(p + start, count)) continue; /* most of a long row */
        TYPED(add_others)(TYPED(sparsemax_share), p + start, weighted, count, weight, 0, 1, 0, 0,
                          &others);
        memcpy(p + start, weighted, (size_t)count * sizeof(REAL));
    }
    const double o = kept > 0 ? others.mass : 1;
    *loss = (o * o + others.powers) / 2 + (left_out ? (double)at.kth - x : u < 0 ? -u : 0);
    p[apart] = kept * weight;
    p[label] = (REAL)(0 - (own > 0 ? others.mass : 1) * weight);
    return true;
}

/* Data of the loop: with the gradient? */
static const bool TYPED(topk_sparsemax_loss) = false, TYPED(topk_sparsemax_loss_and_grad) = true;

static void TYPED(run_topk_loss)(TYPED(Rows) *rows, void *context) {
    (void)context;
    const ptrdiff_t n = rows->n;
    TYPED(Labels) at;
    TYPED(read_labels)(rows, &at);
    for (int j = 0; j < rows->count; j++) {
        const double k = rows->number[2][j];
        if (!TYPED(is_wanted)(&at, j)) continue;
        if (k >= 1) {
            at.counts[j] = TYPED(topk_sparsemax_loss_row)(
                rows->in[0][j], rows->out[j], n, at.label[j], at.weight[j],
                k < (double)n ? (ptrdiff_t)k : n, rows->scratch, at.loss + j);
        } else {
            TYPED(fill)(rows->out[j], n, (REAL)NAN);
            at.counts[j] = TYPED(degenerate_loss)(rows->out[j], at.loss + j);
        }
    }
    TYPED(give_losses)(rows, &at);
}

/* (n),(n),(),(),()->(),(),(n): as loss_loop, with a k for each row behind its weight. */
ROW_LOOP(topk_sparsemax_loss_loop, *(const bool *)record ? "rmiwi>wbr" : "rmiwi>wbt",
         TYPED(run_topk_loss), false, (scratch_size(n) + n) * sizeof(REAL))

#endif
