/* The inner loop of losses of labels, with their gradients: a template. */
#ifndef PYENTMAX_GUFUNC_LOSS_LOOP_H
#define PYENTMAX_GUFUNC_LOSS_LOOP_H

#include "gufunc/mapping_loops.h"
#include "rows/steps.h"

/* Rows of the table, in kernels.h, for losses: scores, mask, label, weight; loss, whether it counts
 * and, for the second kind, the gradient. */
#define LOSS_OPERANDS(real) real, NPY_BOOL, NPY_INT64, real, real, NPY_BOOL
#define LOSS(name, text) \
    KERNEL(#name "_loss", "(n),(n),(),()->(),()", \
           "Scores, mask, labels and weights to weighted losses of " text \
           ", and which rows count.", \
           4, 2, LOSS_OPERANDS, loss_loop, name##_loss)
#define LOSS_AND_GRAD_OPERANDS(real) LOSS_OPERANDS(real), real
#define LOSS_AND_GRAD(name) \
    KERNEL(#name "_loss_and_grad", "(n),(n),(),()->(),(),(n)", \
           "As " #name "_loss, and the weighted gradient.", 4, 3, LOSS_AND_GRAD_OPERANDS, \
           loss_loop, name##_loss_and_grad)

/* The records of both, with NAME_loss_row and NAME_loss_block, for rows of at most `longest`. */
#define LOSS_RECORDS(name, longest) \
    static const TYPED(Loss) \
        TYPED(name##_loss) = {TYPED(name##_loss_row), TYPED(name##_loss_block), false, longest}; \
    static const TYPED(Loss) TYPED(name##_loss_and_grad) = { \
        TYPED(name##_loss_row), TYPED(name##_loss_block), true, longest};

#define TEMPLATE "gufunc/loss_loop.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A loss: that of one row, its gradient times weight, and whether any score is left to count. */
typedef bool TYPED(LossRow)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                            ptrdiff_t label, REAL weight, REAL *restrict scratch, double *loss);

/* What comes with rows, and what comes of them. */
typedef struct {
    ptrdiff_t label[BLOCK];
    REAL weight[BLOCK];
    double loss[BLOCK];
    bool in_range[BLOCK], counts[BLOCK];
} TYPED(Labels);

/* The same of BLOCK rows of at most `longest` entries at once, of which the first count are wanted.
 */
typedef void TYPED(LossBlock)(const REAL *const z[BLOCK], REAL *const gradient[BLOCK], int count,
                              ptrdiff_t n, TYPED(Labels) *restrict at, Ahead *ahead,
                              REAL *restrict scratch);

typedef struct {
    TYPED(LossRow) *row;
    TYPED(LossBlock) *block;
    bool with_gradient;
    ptrdiff_t longest;
} TYPED(Loss);

/* A row without scores does not count; one with a NaN or +inf is NaN. */
static bool TYPED(degenerate_loss)(const REAL *gradient, double *loss) {
    *loss = gradient[0];
    return gradient[0] != 0;
}

/* A label out of range, which only a row without any score may have: NaN shows the caller to
 * others. */
static bool TYPED(no_label_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                REAL *restrict scratch, double *loss) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (!TYPED(fill_degenerate_row)(gradient, n, largest)) TYPED(fill)(gradient, n, (REAL)NAN);
    return TYPED(degenerate_loss)(gradient, loss);
}

/* The labels and weights are the first two numbers of the rows. */
static void TYPED(read_labels)(const TYPED(Rows) *rows, TYPED(Labels) *restrict at) {
    for (int j = 0; j < (rows->by_block ? BLOCK : rows->count); j++) {
        const double label = rows->number[0][j];
        at->in_range[j] = 0 <= label && label < (double)rows->n;
        at->label[j] = at->in_range[j] ? (ptrdiff_t)label : 0;
        at->weight[j] = (REAL)rows->number[1][j];
        at->loss[j] = 0;
        at->counts[j] = false;
    }
}

/* Is there a loss to be worked out? */
static inline bool TYPED(is_wanted)(const TYPED(Labels) *at, int j) {
    return at->weight[j] != 0 && at->in_range[j];
}

/* The weighted losses, and which count. A row whose weight is 0 does not count, whatever the rest
 * of it holds, nor does one with no score left. */
static void TYPED(give_losses)(TYPED(Rows) *rows, TYPED(Labels) *restrict at) {
    for (int j = 0; j < rows->count; j++) {
        if (at->weight[j] == 0) {
            at->counts[j] = false;
            TYPED(fill)(rows->out[j], rows->n, 0);
        } else if (!at->in_range[j]) {
            at->counts[j] = TYPED(no_label_row)(rows->in[0][j], rows->out[j], rows->n,
                                                rows->scratch, at->loss + j);
        }
        rows->result[0][j] = at->counts[j] ? at->loss[j] * at->weight[j] : 0;
        rows->result[1][j] = at->counts[j];
    }
}

static void TYPED(run_loss)(TYPED(Rows) *rows, void *context) {
    const TYPED(Loss) *kernel = context;
    const ptrdiff_t n = rows->n;
    TYPED(Labels) at;
    TYPED(read_labels)(rows, &at);
    if (rows->by_block)
        kernel->block(rows->in[0], rows->out, rows->count, n, &at, &rows->ahead, rows->scratch);
    for (int j = 0; !rows->by_block && j < rows->count; j++)
        if (TYPED(is_wanted)(&at, j))
            at.counts[j] = kernel->row(rows->in[0][j], rows->out[j], n, at.label[j], at.weight[j],
                                       rows->scratch, at.loss + j);
    TYPED(give_losses)(rows, &at);
}

/* (n),(n),(),()->(),(),(n): scores, mask, labels and weights to losses and their gradients, both
 * times the weight, and whether the row counts. */
ROW_LOOP(loss_loop, ((const TYPED(Loss) *)record)->with_gradient ? "rmiw>wbr" : "rmiw>wbt",
         TYPED(run_loss), n <= ((const TYPED(Loss) *)record)->longest,
         scratch_size(n) * sizeof(REAL))

#endif
