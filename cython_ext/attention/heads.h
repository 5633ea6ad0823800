/* How NumPy hands the operands of several heads to the kernels of attention, whose signatures have
 * more axes than the one of a row: by byte strides, all of them behind each other.
 *
 * A kernel spells the axes of its operands, as in "c hm hmd hnd". Those of a head (h), of a row of
 * queries (m) and of a key (n) may be any distance apart. Any other axis, if it is an operand's
 * last, is of numbers side by side, of int32 where an i follows, of bytes where a 1 does. The same
 * letter has one size.
 */
#ifndef PYENTMAX_ATTENTION_HEADS_H
#define PYENTMAX_ATTENTION_HEADS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "gufunc/operands.h"

enum { MOST_OPERANDS = 13, ALPHABET = 26 };

/* The heads of all turns of NumPy's outer loop follow each other. */
typedef struct {
    char **args;
    ptrdiff_t heads, count;                             /* in a turn, in all */
    ptrdiff_t turn[MOST_OPERANDS], head[MOST_OPERANDS]; /* bytes from one to the next, */
    ptrdiff_t row[MOST_OPERANDS], key[MOST_OPERANDS];   /* 0 without such an axis */
    ptrdiff_t size[ALPHABET];
} Heads;

/* An inner loop has no return value; NumPy looks for an exception. Called without the GIL. */
static inline void value_error(const char *message) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_SetString(PyExc_ValueError, message);
    PyGILState_Release(state);
}

static inline ptrdiff_t axis_size(const Heads *all, char axis) {
    return all->size[axis - 'a'];
}

/* Read the strides; false with an error if numbers that should lie side by side do not. */
static bool read_heads(Heads *all, const char *axes, size_t real, char **args,
                       const ptrdiff_t *dims, const ptrdiff_t *steps) {
    int operands = 1;
    for (const char *at = axes; *at; at++) operands += *at == ' ';
    *all = (Heads){.args = args};
    const ptrdiff_t *own = steps + operands, *next_size = dims + 1;
    bool fits = true, seen[ALPHABET] = {false};
    for (int k = 0; k < operands; k++, axes++) {
        all->turn[k] = steps[k];
        for (; *axes != ' ' && *axes != '\0'; axes++) {
            if (*axes == 'i' || *axes == '1') continue;
            if (!seen[*axes - 'a']) all->size[*axes - 'a'] = *next_size++;
            seen[*axes - 'a'] = true;
            const bool last = strchr(" i1", axes[1]) != NULL; /* its end, too */
            const ptrdiff_t step = *own++, wide = (ptrdiff_t)real;
            const ptrdiff_t item = axes[1] == 'i' ? 4 : axes[1] == '1' ? 1 : wide;
            if (*axes == 'h')
                all->head[k] = step;
            else if (*axes == 'n')
                all->key[k] = step;
            else if (*axes == 'm' || !last)
                all->row[k] = step;
            else /* NumPy gives a single number the step 0 */
                fits &= step == item || axis_size(all, *axes) <= 1;
        }
    }
    all->heads = seen['h' - 'a'] ? axis_size(all, 'h') : 1;
    all->count = dims[0] * all->heads;
    if (!fits) value_error("attention: what lies along a row must be contiguous");
    return fits;
}

/* An operand of the i-th head: its first row, the next of which is row[operand] bytes away. */
static inline char *of_head(const Heads *all, int operand, ptrdiff_t i) {
    return all->args[operand] + i / all->heads * all->turn[operand]
           + i % all->heads * all->head[operand];
}

#endif
