/* Which builds of the kernels exist: baseline.c always, avx2.c where a compiler can switch targets. */
#ifndef PYENTMAX_BUILDS_H
#define PYENTMAX_BUILDS_H

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_AVX2_BUILD 1
#else
#define HAS_AVX2_BUILD 0
#endif

extern const Kernel baseline_kernels[], avx2_kernels[];

#endif
