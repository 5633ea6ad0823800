/* The kernels of mappings and of their products for JAX: one handler of XLA's foreign function
 * interface runs them all. */
#ifndef PYENTMAX_XLA_HANDLER_H
#define PYENTMAX_XLA_HANDLER_H

#include "gufunc/kernel.h"

/* Name the table that `xla_handler` takes kernels from; once, before its first call. */
void xla_serve(const Kernel *kernels);

/* What XLA calls, with its call frame, and what it gets: NULL, or an error of its own making. */
typedef struct XlaFrame XlaFrame;
void *xla_handler(XlaFrame *frame);

#endif
