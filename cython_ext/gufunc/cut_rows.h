/* Rows of different lengths: an axis that offsets cut, met by the kernels of rows of one length.
 *
 * A kernel does BLOCK short rows of one length side by side, wherever they lie. So some thousands
 * of rows at a time, which the caches hold, are sorted by length, and the kernel's inner loop gets
 * those of each length by their places: nothing is copied. Long rows go one by one.
 */
#ifndef PYENTMAX_GUFUNC_CUT_ROWS_H
#define PYENTMAX_GUFUNC_CUT_ROWS_H

#include <stdbool.h>

#include "gufunc/kernel.h"
#include "rows/sizes.h"

enum {
    SORTED_ROWS = 1 << 13, /* at a time */
    MOST_CUT_OPERANDS = 8,
};

/* An operand of shape (batch, entries), or of (batch, rows) if it has a number for each row. */
typedef struct {
    char *first;
    ptrdiff_t batch, step; /* bytes from one to the next along its axes */
    bool is_row;
} CutOperand;

/* A kernel's call. Row r has the entries starts[r] to starts[r + 1]. */
typedef struct {
    inner_loop *loop;
    void *record;
    int operands;
    CutOperand operand[MOST_CUT_OPERANDS];
    ptrdiff_t batch;
    const ptrdiff_t *starts;
} CutCall;

/* Run the kernel on so many rows of one length, BLOCK at most, by their numbers and batches. */
static void run_cut_block(const CutCall *call, const ptrdiff_t *row, const ptrdiff_t *batch,
                          int count, ptrdiff_t n) {
    ptrdiff_t at[MOST_CUT_OPERANDS][BLOCK], steps[2 * MOST_CUT_OPERANDS];
    char *args[MOST_CUT_OPERANDS];
    int cores = call->operands;
    for (int k = 0; k < call->operands; k++) {
        const CutOperand x = call->operand[k];
        for (int j = 0; j < count; j++)
            at[k][j] = batch[j] * x.batch + (x.is_row ? call->starts[row[j]] : row[j]) * x.step;
        args[k] = x.first;
        steps[k] = x.batch || x.step ? (ptrdiff_t)at[k] : 0;
        if (x.is_row) steps[cores++] = x.step;
    }
    /* A count below 0 says that steps are the places of rows: gufunc/row_loop.h. */
    const ptrdiff_t dims[2] = {-count, n};
    call->loop(args, dims, steps, call->record);
}

/* Run the kernel on the rows from one to another, in every batch. */
static void run_cut_rows(const CutCall *call, ptrdiff_t from, ptrdiff_t to) {
    const ptrdiff_t rows = to - from, all = rows * call->batch;
    /* Entries of all batches side by side, as of columns, share lines of memory. */
    const bool inside = call->operand[0].batch < call->operand[0].step;
    int sorted[SORTED_ROWS], ends[SHORT + 2];
    for (ptrdiff_t start = 0; start < all; start += SORTED_ROWS) {
        const int some = all - start < SORTED_ROWS ? (int)(all - start) : SORTED_ROWS;
        ptrdiff_t row[BLOCK], batch[BLOCK];
        for (int n = 0; n < SHORT + 2; n++) ends[n] = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < some; i++) {
                const ptrdiff_t place = start + i;
                const ptrdiff_t r = from + (inside ? place / call->batch : place % rows);
                const ptrdiff_t n = call->starts[r + 1] - call->starts[r];
                const ptrdiff_t group = n > SHORT ? SHORT + 1 : n;
                if (pass == 0)
                    ends[group]++;
                else
                    sorted[ends[group]++] = i;
            }
            for (int n = 0, sum = 0; pass == 0 && n < SHORT + 2; n++) {
                const int count = ends[n];
                ends[n] = sum;
                sum += count;
            }
        }
        for (int group = 1; group < SHORT + 2; group++) {
            const int at_once = group > SHORT ? 1 : BLOCK;
            for (int i = ends[group - 1]; i < ends[group]; i += at_once) {
                const int count = ends[group] - i < at_once ? ends[group] - i : at_once;
                for (int j = 0; j < count; j++) {
                    const ptrdiff_t place = start + sorted[i + j];
                    row[j] = from + (inside ? place / call->batch : place % rows);
                    batch[j] = inside ? place % call->batch : place / rows;
                }
                run_cut_block(call, row, batch, count,
                              call->starts[row[0] + 1] - call->starts[row[0]]);
            }
        }
    }
}

#endif
