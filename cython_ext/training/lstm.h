/* The gates of an LSTM cell and their derivative: a template. The NumPy twin, with the formulas, is
 * pyentmax/seq2seq/nn/lstm_cell.py.
 *
 * A row is one example: the gates i, f, o, g of its n units stand one behind the other.
 */
#ifndef PYENTMAX_TRAINING_LSTM_H
#define PYENTMAX_TRAINING_LSTM_H

#include <numpy/ndarraytypes.h>

#include "elementary/tanh.h"
#include "gufunc/kernel.h"
#include "gufunc/operands.h"

#define LSTM_OPERANDS(real) real, real, real, real, real, real, real

#define TEMPLATE "training/lstm.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD(
    "lstm_cell", "(4,n),(4,n),(n)->(4,n),(n),(n),(n)",
    "Two summands of pre-activations and the cell to gates, new cell, its tanh, hidden state.", 3,
    4, LSTM_OPERANDS, lstm_loop)
KERNEL_WITHOUT_RECORD(
    "lstm_cell_vjp", "(n),(n),(4,n),(n),(n)->(4,n),(n)",
    "Gradients of hidden state and cell to those of pre-activations and the cell before.", 5, 2,
    LSTM_OPERANDS, lstm_vjp_loop)

#elif defined(REAL)

static void TYPED(lstm_row)(const REAL *restrict a, const REAL *restrict b, const REAL *restrict c,
                            REAL *restrict gates, REAL *restrict new_c, REAL *restrict tanh_c,
                            REAL *restrict h, ptrdiff_t n) {
    for (ptrdiff_t j = 0; j < 3 * n; j++) gates[j] = TYPED(sigmoid_of)(a[j] + b[j]);
    for (ptrdiff_t j = 3 * n; j < 4 * n; j++) gates[j] = TYPED(tanh_of)(a[j] + b[j]);
    const REAL *i = gates, *f = gates + n, *o = gates + 2 * n, *g = gates + 3 * n;
    for (ptrdiff_t j = 0; j < n; j++) new_c[j] = f[j] * c[j] + i[j] * g[j];
    for (ptrdiff_t j = 0; j < n; j++) {
        tanh_c[j] = TYPED(tanh_of)(new_c[j]);
        h[j] = o[j] * tanh_c[j];
    }
}

static void TYPED(lstm_vjp_row)(const REAL *restrict dh, const REAL *restrict dc,
                                const REAL *restrict gates, const REAL *restrict tanh_c,
                                const REAL *restrict c, REAL *restrict da, REAL *restrict dc_before,
                                ptrdiff_t n) {
    const REAL *i = gates, *f = gates + n, *o = gates + 2 * n, *g = gates + 3 * n;
    REAL *restrict da_i = da, *restrict da_f = da + n;
    REAL *restrict da_o = da + 2 * n, *restrict da_g = da + 3 * n;
    for (ptrdiff_t j = 0; j < n; j++) {
        const REAL t = tanh_c[j], through_h = dh[j] * o[j];
        const REAL d = dc[j] + through_h - through_h * t * t;
        da_i[j] = d * g[j] * (i[j] - i[j] * i[j]);
        da_f[j] = d * c[j] * (f[j] - f[j] * f[j]);
        da_o[j] = dh[j] * t * (o[j] - o[j] * o[j]);
        const REAL d_g = d * i[j];
        da_g[j] = d_g - d_g * g[j] * g[j];
        dc_before[j] = d * f[j];
    }
}

/* A row of k blocks of n entries, contiguous: itself if it is so already, otherwise a copy in
 * `room`. */
static const REAL *TYPED(contiguous_blocks)(const char *from, ptrdiff_t block_stride,
                                            ptrdiff_t stride, ptrdiff_t k, ptrdiff_t n,
                                            REAL *room) {
    const ptrdiff_t size = (ptrdiff_t)sizeof(REAL);
    if (stride == size && block_stride == n * size) return (const REAL *)from;
    for (ptrdiff_t b = 0; b < k; b++)
        for (ptrdiff_t j = 0; j < n; j++)
            room[b * n + j] = *(const REAL *)(from + b * block_stride + j * stride);
    return room;
}

static REAL *TYPED(blocks_target)(char *to, ptrdiff_t block_stride, ptrdiff_t stride, ptrdiff_t n,
                                  REAL *room) {
    const ptrdiff_t size = (ptrdiff_t)sizeof(REAL);
    return stride == size && block_stride == n * size ? (REAL *)to : room;
}

static void TYPED(deliver_blocks)(const REAL *row, char *to, ptrdiff_t block_stride,
                                  ptrdiff_t stride, ptrdiff_t k, ptrdiff_t n) {
    if ((const char *)row == to) return;
    for (ptrdiff_t b = 0; b < k; b++) TYPED(deliver)(row + b * n, to + b * block_stride, stride, n);
}

/* (4,n),(4,n),(n)->(4,n),(n),(n),(n): two summands of the pre-activations and the cell to the
 * gates, the new cell, its tanh and the hidden state. */
static void TYPED(lstm_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                             void *data) {
    (void)data;
    const ptrdiff_t rows = dims[0], k = dims[1], n = dims[2], *core = steps + 7;
    if (rows == 0 || n == 0) return;
    REAL *room = scratch_or_error(16 * n, sizeof(REAL));
    if (room == NULL) return;
    for (ptrdiff_t r = 0; r < rows; r++) {
        char *at[7];
        for (int j = 0; j < 7; j++) at[j] = args[j] + r * steps[j];
        const REAL *a = TYPED(contiguous_blocks)(at[0], core[0], core[1], k, n, room);
        const REAL *b = TYPED(contiguous_blocks)(at[1], core[2], core[3], k, n, room + 4 * n);
        const REAL *c = TYPED(contiguous)(at[2], core[4], n, room + 8 * n);
        REAL *gates = TYPED(blocks_target)(at[3], core[5], core[6], n, room + 9 * n);
        REAL *out[3];
        for (int j = 0; j < 3; j++)
            out[j] = TYPED(target)(at[4 + j], core[7 + j], room + (13 + j) * n);
        TYPED(lstm_row)(a, b, c, gates, out[0], out[1], out[2], n);
        TYPED(deliver_blocks)(gates, at[3], core[5], core[6], k, n);
        for (int j = 0; j < 3; j++) TYPED(deliver)(out[j], at[4 + j], core[7 + j], n);
    }
    free(room);
    leave_no_float_flags();
}

/* (n),(n),(4,n),(n),(n)->(4,n),(n): gradients of the hidden state and the cell, gates, tanh of the
 * new cell and the cell before to the gradients of the pre-activations and of the cell before. */
static void TYPED(lstm_vjp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                 void *data) {
    (void)data;
    const ptrdiff_t rows = dims[0], n = dims[1], k = dims[2], *core = steps + 7;
    if (rows == 0 || n == 0) return;
    REAL *room = scratch_or_error(13 * n, sizeof(REAL));
    if (room == NULL) return;
    for (ptrdiff_t r = 0; r < rows; r++) {
        char *at[7];
        for (int j = 0; j < 7; j++) at[j] = args[j] + r * steps[j];
        const REAL *dh = TYPED(contiguous)(at[0], core[0], n, room);
        const REAL *dc = TYPED(contiguous)(at[1], core[1], n, room + n);
        const REAL *gates = TYPED(contiguous_blocks)(at[2], core[2], core[3], k, n, room + 2 * n);
        const REAL *tanh_c = TYPED(contiguous)(at[3], core[4], n, room + 6 * n);
        const REAL *c = TYPED(contiguous)(at[4], core[5], n, room + 7 * n);
        REAL *da = TYPED(blocks_target)(at[5], core[6], core[7], n, room + 8 * n);
        REAL *before = TYPED(target)(at[6], core[8], room + 12 * n);
        TYPED(lstm_vjp_row)(dh, dc, gates, tanh_c, c, da, before, n);
        TYPED(deliver_blocks)(da, at[5], core[6], core[7], k, n);
        TYPED(deliver)(before, at[6], core[8], n);
    }
    free(room);
    leave_no_float_flags();
}

#endif
