/* Rows that lie across the memory, beside each other as columns do: along axis 0 of an array, say.
 *
 * To gather one entry after the other would read a whole line of memory for each, and again for the
 * next row. So the rows of a few lines are copied side by side, the kernel's loop runs on them as
 * on any rows, and what it wrote goes back the same way.
 */
#ifndef PYENTMAX_GUFUNC_COLUMNS_H
#define PYENTMAX_GUFUNC_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"

enum {
    AT_A_TIME = 16,     /* rows whose entries a line of memory holds, of float */
    MOVED = 1 << 16,    /* bytes of an operand that are copied before the loop runs, */
    FEWEST_COLUMNS = 4, /* but not for fewer rows than this */
    CACHE_LINE = 64,
};

/* A loop and what is to be known of its operands. */
typedef struct {
    inner_loop *loop;
    void *data;
    int inputs, operands, size[MAX_OPERANDS]; /* of an entry, in bytes */
    bool is_row[MAX_OPERANDS];                /* or a number per row */
} RowLoop;

/* Where the entries of rows are: those of a row, and the rows themselves, so many bytes apart. */
typedef struct {
    char *first;
    ptrdiff_t entry, row;
} Places;

/* Copy rows of n entries of a type, those that share a line of memory together. */
#define COPY_ROWS(type) \
    for (ptrdiff_t start = 0; start < rows; start += AT_A_TIME) { \
        const ptrdiff_t end = rows - start < AT_A_TIME ? rows : start + AT_A_TIME; \
        for (ptrdiff_t i = 0; i < n; i++) { \
            const char *read = from.first + i * from.entry; \
            char *write = to.first + i * to.entry; \
            for (ptrdiff_t j = start; j < end; j++) \
                memcpy(write + j * to.row, read + j * from.row, sizeof(type)); \
        } \
    }

static void copy_rows(Places from, Places to, ptrdiff_t rows, ptrdiff_t n, int size) {
    if (size == 1) {
        COPY_ROWS(uint8_t)
    } else if (size == 4) {
        COPY_ROWS(uint32_t)
    } else {
        COPY_ROWS(uint64_t)
    }
}
#undef COPY_ROWS

/* The inner loop of a RowLoop, its data. */
static void by_columns(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data) {
    const RowLoop *row_loop = data;
    const ptrdiff_t rows = dims[0], n = dims[1];
    const int operands = row_loop->operands;
    ptrdiff_t apart[MAX_OPERANDS] = {0}, step[MAX_OPERANDS], room = 0;
    bool moved[MAX_OPERANDS] = {false};
    int row_operands = 0, largest = 1;
    for (int k = 0; k < operands; k++) {
        step[k] = steps[k];
        if (!row_loop->is_row[k]) continue;
        const int size = row_loop->size[k];
        apart[k] = steps[operands + row_operands++];
        moved[k] = steps[k] == size && apart[k] != size && apart[k] != 0;
        if (moved[k] && size > largest) largest = size;
    }
    ptrdiff_t at_once = n > 0 ? MOVED / largest / n / AT_A_TIME * AT_A_TIME : rows;
    if (at_once < AT_A_TIME) at_once = AT_A_TIME;
    for (int k = 0; k < operands; k++) {
        if (!moved[k]) continue;
        /* An odd number of lines: rows a power of 2 apart would share their places in the cache. */
        step[k] = ((n * row_loop->size[k] / CACHE_LINE + 1) | 1) * CACHE_LINE;
        room += at_once * step[k];
    }
    char *memory = room > 0 && n > 1 && rows >= FEWEST_COLUMNS ? malloc((size_t)room) : NULL;
    if (memory == NULL) {
        row_loop->loop(args, dims, steps, row_loop->data);
        return;
    }

    ptrdiff_t some_steps[2 * MAX_OPERANDS], some_dims[2] = {0, n};
    row_operands = 0;
    for (int k = 0; k < operands; k++) {
        some_steps[k] = step[k];
        if (row_loop->is_row[k])
            some_steps[operands + row_operands++] = moved[k] ? row_loop->size[k] : apart[k];
    }
    for (ptrdiff_t start = 0; start < rows; start += some_dims[0]) {
        char *some[MAX_OPERANDS], *next = memory;
        some_dims[0] = rows - start < at_once ? rows - start : at_once;
        for (int k = 0; k < operands; k++) {
            some[k] = args[k] + start * steps[k];
            if (!moved[k]) continue;
            const int size = row_loop->size[k];
            if (k < row_loop->inputs)
                copy_rows((Places){some[k], apart[k], size}, (Places){next, size, step[k]},
                          some_dims[0], n, size);
            some[k] = next;
            next += at_once * step[k];
        }
        row_loop->loop(some, some_dims, some_steps, row_loop->data);
        for (int k = row_loop->inputs; k < operands; k++) {
            const int size = row_loop->size[k];
            char *back = args[k] + start * steps[k];
            if (moved[k])
                copy_rows((Places){some[k], size, step[k]}, (Places){back, apart[k], size},
                          some_dims[0], n, size);
        }
    }
    free(memory);
}

/* The bytes of an operand's entry; 0 for a type that no kernel of rows has. */
static int size_of_type(char type) {
    switch (type) {
        case NPY_BOOL:
            return 1;
        case NPY_FLOAT:
            return 4;
        case NPY_DOUBLE:
        case NPY_INT64:
            return 8;
        default:
            return 0;
    }
}

/* What a signature such as "(n),(n),()->(n)" says of the operands; false for one with other rows
 * than of n entries, or none at all. */
static bool read_signature(const char *signature, RowLoop *row_loop) {
    bool any_row = false;
    row_loop->operands = 0;
    for (const char *at = strchr(signature, '('); at != NULL; at = strchr(at + 1, '(')) {
        const bool is_row = strncmp(at, "(n)", 3) == 0;
        if (!is_row && at[1] != ')') return false;
        row_loop->is_row[row_loop->operands++] = is_row;
        any_row |= is_row;
    }
    return any_row;
}

/* The same kernel for rows that may lie across the memory. What it needs stays for ever, as NumPy
 * keeps the pointers; without memory for it, or rows, the kernel as it was. */
static Kernel in_columns(Kernel kernel) {
    RowLoop common;
    if (!read_signature(kernel.signature, &common)) return kernel;
    RowLoop *both = malloc(2 * sizeof *both);
    if (both == NULL) return kernel;
    common.inputs = kernel.inputs;
    for (int type = 0; type < 2; type++) {
        both[type] = common;
        both[type].loop = kernel.loops[type];
        both[type].data = kernel.data[type];
        for (int k = 0; k < common.operands; k++) {
            both[type].size[k] = size_of_type(kernel.types[type * common.operands + k]);
            if (both[type].size[k] == 0) {
                free(both);
                return kernel;
            }
        }
    }
    for (int type = 0; type < 2; type++) {
        kernel.loops[type] = by_columns;
        kernel.data[type] = both + type;
    }
    return kernel;
}

/* All kernels of a table so. */
static const Kernel *all_in_columns(const Kernel *kernels) {
    size_t count = 0;
    while (kernels[count].name != NULL) count++;
    Kernel *all = malloc((count + 1) * sizeof *all);
    if (all == NULL) return kernels;
    for (size_t i = 0; i < count; i++) all[i] = in_columns(kernels[i]);
    all[count] = kernels[count];
    return all;
}

#endif
