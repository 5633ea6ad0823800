/* All kernels and the table of their loops for one type: what is compiled once per instruction set
 * and type, so that two processors share the work of a build. The including file defines KERNELS,
 * the table's name, and FOR_DOUBLE; everything else stays static in it, and what the other type's
 * loops alone need is dropped. */
#ifndef PYENTMAX_BUILDS_TABLE_H
#define PYENTMAX_BUILDS_TABLE_H

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

#include "builds/builds.h"
#include "kernels.h"

#if FOR_DOUBLE
#define LOOP(name) name##_f64
#define NPY_REAL NPY_DOUBLE
#else
#define LOOP(name) name##_f32
#define NPY_REAL NPY_FLOAT
#endif

const Kernel KERNELS[] = {
#define KERNEL_TABLE
#include "kernels.h"
#undef KERNEL_TABLE
    {.name = NULL},
};
_Static_assert(sizeof KERNELS / sizeof *KERNELS <= MOST_KERNELS, "too many kernels for builds.c");

#endif
