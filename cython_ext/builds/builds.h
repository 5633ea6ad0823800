/* Which builds of the kernels exist: baseline.c always, the others where a compiler can switch
 * targets. */
#ifndef PYENTMAX_BUILDS_BUILDS_H
#define PYENTMAX_BUILDS_BUILDS_H

#include "gufunc/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_X86_64_BUILDS 1
#else
#define HAS_X86_64_BUILDS 0
#endif

extern const Kernel baseline_kernels[], x86_64_v3_kernels[], x86_64_v4_kernels[];

#endif
