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

/* The records of both, with NAME_loss_row and NAME_loss_block. */
#define LOSS_RECORDS(name) \
    static const TYPED(Loss) \
        TYPED(name##_loss) = {TYPED(name##_loss_row), TYPED(name##_loss_block), false}; \
    static const TYPED(Loss) \
        TYPED(name##_loss_and_grad) = {TYPED(name##_loss_row), TYPED(name##_loss_block), true};

/* NAME_loss_block from the mapping and NAME_loss_of_p, a LossRow for p where the gradient goes. */
#define BLOCK_OF_P(name) \
    static void TYPED(name##_loss_block)( \
        const REAL *const z[BLOCK], REAL *const gradient[BLOCK], int count, ptrdiff_t n, \
        const ptrdiff_t label[BLOCK], const REAL weight[BLOCK], Ahead *ahead, \
        REAL *restrict scratch, double loss[BLOCK], bool counts[BLOCK]) { \
        TYPED(name).block(z, gradient, count, n, ahead, scratch); \
        for (int j = 0; j < count; j++) \
            counts[j] = TYPED(name##_loss_of_p)(z[j], gradient[j], n, label[j], weight[j], \
                                                scratch, loss + j); \
    }

#define TEMPLATE "gufunc/loss_loop.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A loss: that of one row, its gradient times weight, and whether any score is left to count. */
typedef bool TYPED(LossRow)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                            ptrdiff_t label, REAL weight, REAL *restrict scratch, double *loss);

/* The same of BLOCK short rows at once, of which the first count are wanted. */
typedef void TYPED(LossBlock)(const REAL *const z[BLOCK], REAL *const gradient[BLOCK], int count,
                              ptrdiff_t n, const ptrdiff_t label[BLOCK], const REAL weight[BLOCK],
                              Ahead *ahead, REAL *restrict scratch, double loss[BLOCK],
                              bool counts[BLOCK]);

typedef struct {
    TYPED(LossRow) *row;
    TYPED(LossBlock) *block;
    bool with_gradient;
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

/* (n),(n),(),()->(),(),(n): scores, mask, labels and weights to losses and their gradients, both
 * times the weight, and whether the row counts: not if its weight is 0, whatever the rest of it
 * holds, nor if no score is left. */
static void TYPED(loss_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                             void *data) {
    const TYPED(Loss) *kernel = data;
    const ptrdiff_t rows = dims[0], n = dims[1], operands = kernel->with_gradient ? 7 : 6;
    const ptrdiff_t z_stride = steps[operands], mask_stride = steps[operands + 1];
    const ptrdiff_t stride = kernel->with_gradient ? steps[operands + 2] : 0;
    if (rows == 0 || n == 0) return;
    const int at_once = n <= SHORT ? BLOCK : 1;
    REAL *scratch = scratch_or_error(scratch_size(n) + 2 * at_once * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + scratch_size(n);

    for (ptrdiff_t start = 0; start < rows; start += at_once) {
        const REAL *z[BLOCK];
        REAL *gradient[BLOCK];
        const int count = rows - start < at_once ? (int)(rows - start) : at_once;
        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            z[j] = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                 mask_stride, n, room + 2 * j * n);
            gradient[j] = room + (2 * j + 1) * n;
            if (kernel->with_gradient)
                gradient[j] = TYPED(target)(args[6] + r * steps[6], stride, gradient[j]);
        }
        for (int j = count; j < at_once; j++) { /* fills up the block */
            z[j] = z[0];
            gradient[j] = room + (2 * j + 1) * n;
        }
        ptrdiff_t label[BLOCK] = {0};
        REAL weight[BLOCK] = {0};
        double loss[BLOCK] = {0};
        bool counts[BLOCK] = {0}, in_range[BLOCK] = {0};
        for (int j = 0; j < count; j++) {
            const int64_t wanted = *(const int64_t *)(args[2] + (start + j) * steps[2]);
            in_range[j] = 0 <= wanted && wanted < n;
            label[j] = in_range[j] ? (ptrdiff_t)wanted : 0;
            weight[j] = *(const REAL *)(args[3] + (start + j) * steps[3]);
        }
        if (at_once > 1) {
            const ptrdiff_t next = start + count,
                            left = rows - next < at_once ? rows - next : at_once;
            const int to = kernel->with_gradient ? 6 : 0;
            Ahead ahead = ahead_of(args[0] + next * steps[0], steps[0], args[to] + next * steps[to],
                                   steps[to], n * (ptrdiff_t)sizeof(REAL), left);
            kernel->block(z, gradient, count, n, label, weight, &ahead, scratch, loss, counts);
        } else if (weight[0] != 0 && in_range[0]) {
            counts[0] = kernel->row(z[0], gradient[0], n, label[0], weight[0], scratch, loss);
        }

        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            if (weight[j] == 0) {
                counts[j] = false;
                TYPED(fill)(gradient[j], n, 0);
            } else if (!in_range[j]) {
                counts[j] = TYPED(no_label_row)(z[j], gradient[j], n, scratch, loss + j);
            }
            *(REAL *)(args[4] + r * steps[4]) = (REAL)(counts[j] ? loss[j] * weight[j] : 0);
            *(bool *)(args[5] + r * steps[5]) = counts[j];
            if (kernel->with_gradient)
                TYPED(deliver)(gradient[j], args[6] + r * steps[6], stride, n);
        }
    }
    free(scratch);
    leave_no_float_flags();
}

#endif
