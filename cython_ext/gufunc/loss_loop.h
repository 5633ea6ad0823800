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

/* What the loops of losses get of NumPy, and of how many inputs. */
typedef struct {
    char **args;
    const ptrdiff_t *steps;
    ptrdiff_t rows, n;
    int inputs;
    bool with_gradient;
} LossOperands;

#define TEMPLATE "gufunc/loss_loop.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A loss: that of one row, its gradient times weight, and whether any score is left to count. */
typedef bool TYPED(LossRow)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                            ptrdiff_t label, REAL weight, REAL *restrict scratch, double *loss);

/* The same of BLOCK rows of at most `longest` entries at once, of which the first count are wanted.
 */
typedef void TYPED(LossBlock)(const REAL *const z[BLOCK], REAL *const gradient[BLOCK], int count,
                              ptrdiff_t n, const ptrdiff_t label[BLOCK], const REAL weight[BLOCK],
                              Ahead *ahead, REAL *restrict scratch, double loss[BLOCK],
                              bool counts[BLOCK]);

typedef struct {
    TYPED(LossRow) *row;
    TYPED(LossBlock) *block;
    bool with_gradient;
    ptrdiff_t longest;
} TYPED(Loss);

/* A row with nothing left counts nothing; a spoilt one is NaN. */
static bool TYPED(settled_loss)(const REAL *gradient, double *loss) {
    *loss = gradient[0];
    return gradient[0] != 0;
}

/* A label out of range, which only a row without any score may have: NaN shows the caller to
 * others. */
static bool TYPED(no_label_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                REAL *restrict scratch, double *loss) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (!TYPED(is_settled)(gradient, n, largest)) TYPED(fill)(gradient, n, (REAL)NAN);
    return TYPED(settled_loss)(gradient, loss);
}

/* Up to BLOCK rows: where they are, what they came with, and what comes of them. */
typedef struct {
    const REAL *z[BLOCK];
    REAL *gradient[BLOCK], weight[BLOCK];
    ptrdiff_t label[BLOCK];
    double loss[BLOCK];
    bool counts[BLOCK], in_range[BLOCK];
} TYPED(LossRows);

/* Count rows from start on, and the first of them again to fill up a block; room holds 2 at_once n
 * values. */
static void TYPED(take_loss_rows)(const LossOperands *from, ptrdiff_t start, int count, int at_once,
                                  REAL *room, TYPED(LossRows) *restrict rows) {
    char **args = from->args;
    const ptrdiff_t *steps = from->steps, n = from->n;
    const int to = from->inputs + 2, operands = to + from->with_gradient;
    for (int j = 0; j < count; j++) {
        const ptrdiff_t r = start + j;
        const int64_t wanted = *(const int64_t *)(args[2] + r * steps[2]);
        rows->z[j] = TYPED(masked)(args[0] + r * steps[0], steps[operands], args[1] + r * steps[1],
                                   steps[operands + 1], n, room + 2 * j * n);
        rows->gradient[j] = room + (2 * j + 1) * n;
        if (from->with_gradient)
            rows->gradient[j] = TYPED(target)(args[to] + r * steps[to], steps[operands + 2],
                                              rows->gradient[j]);
        rows->in_range[j] = 0 <= wanted && wanted < n;
        rows->label[j] = rows->in_range[j] ? (ptrdiff_t)wanted : 0;
        rows->weight[j] = *(const REAL *)(args[3] + r * steps[3]);
        rows->loss[j] = 0;
        rows->counts[j] = false;
    }
    for (int j = count; j < at_once; j++) { /* fills up the block */
        rows->z[j] = rows->z[0];
        rows->gradient[j] = room + (2 * j + 1) * n;
        rows->label[j] = 0;
        rows->weight[j] = 0;
    }
}

/* The rows behind count from start on, at most at_once. */
static Ahead TYPED(loss_rows_ahead)(const LossOperands *from, ptrdiff_t start, int count,
                                    int at_once) {
    const ptrdiff_t next = start + count;
    const ptrdiff_t left = from->rows - next < at_once ? from->rows - next : at_once;
    const int to = from->with_gradient ? from->inputs + 2 : 0;
    return ahead_of(from->args[0] + next * from->steps[0], from->steps[0],
                    from->args[to] + next * from->steps[to], from->steps[to],
                    from->n * (ptrdiff_t)sizeof(REAL), left);
}

/* Hand out what came of the rows. One whose weight is 0 does not count, whatever the rest of it
 * holds, nor does one with no score left. */
static void TYPED(give_loss_rows)(const LossOperands *to, ptrdiff_t start, int count,
                                  REAL *restrict scratch, TYPED(LossRows) *restrict rows) {
    const int outputs = to->inputs;
    const ptrdiff_t *steps = to->steps, n = to->n;
    for (int j = 0; j < count; j++) {
        const ptrdiff_t r = start + j;
        if (rows->weight[j] == 0) {
            rows->counts[j] = false;
            TYPED(fill)(rows->gradient[j], n, 0);
        } else if (!rows->in_range[j]) {
            rows->counts[j] = TYPED(no_label_row)(rows->z[j], rows->gradient[j], n, scratch,
                                                  rows->loss + j);
        }
        *(REAL *)(to->args[outputs] + r * steps[outputs]) =
            (REAL)(rows->counts[j] ? rows->loss[j] * rows->weight[j] : 0);
        *(bool *)(to->args[outputs + 1] + r * steps[outputs + 1]) = rows->counts[j];
        if (to->with_gradient)
            TYPED(deliver)(rows->gradient[j], to->args[outputs + 2] + r * steps[outputs + 2],
                           steps[outputs + 5], n);
    }
}

/* (n),(n),(),()->(),(),(n): scores, mask, labels and weights to losses and their gradients, both
 * times the weight, and whether the row counts. */
static void TYPED(loss_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                             void *data) {
    const TYPED(Loss) *kernel = data;
    const ptrdiff_t n = dims[1];
    const LossOperands all = {args, steps, dims[0], n, 4, kernel->with_gradient};
    if (all.rows == 0 || n == 0) return;
    const int at_once = n <= kernel->longest ? BLOCK : 1;
    REAL *scratch = scratch_or_error(scratch_size(n) + 2 * at_once * n, sizeof(REAL));
    if (scratch == NULL) return;
    TYPED(LossRows) rows;

    for (ptrdiff_t start = 0; start < all.rows; start += at_once) {
        const int count = all.rows - start < at_once ? (int)(all.rows - start) : at_once;
        TYPED(take_loss_rows)(&all, start, count, at_once, scratch + scratch_size(n), &rows);
        if (at_once > 1) {
            Ahead ahead = TYPED(loss_rows_ahead)(&all, start, count, at_once);
            kernel->block(rows.z, rows.gradient, count, n, rows.label, rows.weight, &ahead, scratch,
                          rows.loss, rows.counts);
        } else if (rows.weight[0] != 0 && rows.in_range[0]) {
            rows.counts[0] = kernel->row(rows.z[0], rows.gradient[0], n, rows.label[0],
                                         rows.weight[0], scratch, rows.loss);
        }
        TYPED(give_loss_rows)(&all, start, count, scratch, &rows);
    }
    free(scratch);
    leave_no_float_flags();
}

#endif
