/* Which builds of the kernels exist: baseline always, the others where a compiler can switch
 * targets. Each has two tables of the same kernels, one with the loops for float and one for
 * double. WITHOUT_BASELINE, WITHOUT_X86_64_V3 and WITHOUT_X86_64_V4 leave one out (setup.py). */
#ifndef PYENTMAX_BUILDS_BUILDS_H
#define PYENTMAX_BUILDS_BUILDS_H

#include "gufunc/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_X86_64_BUILDS 1
#else
#define HAS_X86_64_BUILDS 0
#endif

enum { MOST_KERNELS = 128 }; /* the end of the list included */

extern const Kernel baseline_floats[], baseline_doubles[];
extern const Kernel x86_64_v3_floats[], x86_64_v3_doubles[];
extern const Kernel x86_64_v4_floats[], x86_64_v4_doubles[];

#endif
