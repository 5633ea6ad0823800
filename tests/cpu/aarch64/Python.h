/* Stands in for Python's header: the little that the kernels use of it, which is for running out of
 * memory and for operands that cannot be. A program without an interpreter has no exception to set,
 * so it ends. */
#ifndef STAND_IN_PYTHON_H
#define STAND_IN_PYTHON_H

#include <stdlib.h>

typedef int PyGILState_STATE;

static inline PyGILState_STATE PyGILState_Ensure(void) {
    return 0;
}
static inline void PyGILState_Release(PyGILState_STATE state) {
    (void)state;
}
static inline void PyErr_NoMemory(void) {
    abort();
}

#define PyExc_ValueError NULL

static inline void PyErr_SetString(void *error, const char *message) {
    (void)error;
    (void)message;
    abort();
}

#endif
