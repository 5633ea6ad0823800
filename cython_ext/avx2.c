/* The kernels once more for x86-64-v3, the level of most machines since 2015: eight floats to a
 * register instead of four. Run only where builds() found AVX2 and FMA.
 *
 * The target is switched here rather than by a flag on this one file, which setuptools has no way to
 * give. Both builds do the same operations in the same order, and nothing is contracted into fused
 * multiply-adds, so they agree to the last bit.
 */
#include "builds.h"

#if HAS_AVX2_BUILD

/* What the system declares belongs to no particular target. */
#include <Python.h>
#include <fenv.h>
#include <math.h>
#include <numpy/ndarraytypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define KERNELS avx2_kernels
#include "all_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else
typedef int a_file_must_declare_something;
#endif
