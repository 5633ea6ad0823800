/* How NumPy hands operands to the inner loop of a generalised ufunc, and how a kernel for
 * contiguous rows takes them: a template.
 *
 * NumPy hands an inner loop `dims[0]` rows of `dims[1]` entries, and byte strides: first from row
 * to row for each operand, then within a row. Casting, broadcasting, alignment, byte order and
 * overlap of inputs with outputs are settled before that, and the GIL is released.
 */
#ifndef PYENTMAX_GUFUNC_OPERANDS_H
#define PYENTMAX_GUFUNC_OPERANDS_H

#include <Python.h>
#include <fenv.h>
#include <stddef.h>
#include <stdlib.h>

#include "rows/sizes.h"

/* Called without the GIL. An inner loop has no return value; NumPy looks for an exception. */
static inline void *scratch_or_error(ptrdiff_t count, size_t itemsize) {
    void *memory = malloc((size_t)count * itemsize);
    if (memory == NULL) {
        PyGILState_STATE state = PyGILState_Ensure();
        PyErr_NoMemory();
        PyGILState_Release(state);
    }
    return memory;
}

/* NumPy turns floating-point flags into warnings. Here they say nothing: comparing with a NaN or
 * subtracting from -inf is part of the job, and what comes of it is defined. */
static inline void leave_no_float_flags(void) {
    feclearexcept(FE_ALL_EXCEPT);
}

#define TEMPLATE "gufunc/operands.h"
#include "float_and_double.h"

#elif defined(REAL)

/* The row at `from`, contiguous: itself if it is so already, otherwise a copy in `copy`. */
static const REAL *TYPED(contiguous)(const char *from, ptrdiff_t stride, ptrdiff_t n, REAL *copy) {
    if (stride == (ptrdiff_t)sizeof(REAL)) return (const REAL *)from;
    for (ptrdiff_t i = 0; i < n; i++) copy[i] = *(const REAL *)(from + i * stride);
    return copy;
}

/* The row at `from` with -inf where the mask is false; no copy if one true mask holds for all. */
static const REAL *TYPED(masked)(const char *from, ptrdiff_t stride, const char *mask,
                                 ptrdiff_t mask_stride, ptrdiff_t n, REAL *copy) {
    if (mask_stride == 0 && *mask) return TYPED(contiguous)(from, stride, n, copy);
    if (stride == (ptrdiff_t)sizeof(REAL) && mask_stride == 1) { /* vectors, if read always */
        const REAL *row = (const REAL *)from;
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL score = row[i];
            copy[i] = mask[i] ? score : -(REAL)INFINITY;
        }
        return copy;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        copy[i] = mask[i * mask_stride] ? *(const REAL *)(from + i * stride) : -(REAL)INFINITY;
    return copy;
}

/* Where to compute a row that belongs at `to`: there if it is contiguous, otherwise in `copy`. */
static REAL *TYPED(target)(char *to, ptrdiff_t stride, REAL *copy) {
    return stride == (ptrdiff_t)sizeof(REAL) ? (REAL *)to : copy;
}

static void TYPED(deliver)(const REAL *row, char *to, ptrdiff_t stride, ptrdiff_t n) {
    if ((const char *)row == to) return;
    for (ptrdiff_t i = 0; i < n; i++) *(REAL *)(to + i * stride) = row[i];
}

#endif
