/* How a kernel for contiguous rows becomes the inner loop of a NumPy generalised ufunc.
 *
 * NumPy hands an inner loop `dims[0]` rows of `dims[1]` entries, and byte strides: first from row to
 * row for each operand, then within a row. Casting, broadcasting, alignment, byte order and overlap
 * of inputs with outputs are settled before that, and the GIL is released.
 */
#ifndef PYENTMAX_GUFUNC_H
#define PYENTMAX_GUFUNC_H

#include <Python.h>
#include <fenv.h>
#include <stddef.h>
#include <stdlib.h>

/* Called without the GIL: an inner loop has no return value, NumPy looks for an exception instead. */
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

#endif
