/* The kernels once more, for processors that can do what the including file names in TARGET. Run
 * only where builds() found it.
 *
 * The target is switched here rather than by a flag on that one file, which setuptools has no way
 * to give. Builds agree within the contract of accuracy, no more: each fuses multiplications with
 * additions where its processors can, and sums in the order that suits its registers.
 */

/* What the system declares belongs to no particular target. */
#include <Python.h>
#include <fenv.h>
#include <math.h>
#include <numpy/ndarraytypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PRAGMA_OF(...) _Pragma(#__VA_ARGS__)
#define PRAGMA(...) PRAGMA_OF(__VA_ARGS__)

#if defined(__clang__)
PRAGMA(clang attribute push(__attribute__((target(TARGET))), apply_to = function))
#else
PRAGMA(GCC push_options)
PRAGMA(GCC target(TARGET))
#endif

#include "builds/table.h"

#if defined(__clang__)
PRAGMA(clang attribute pop)
#else
PRAGMA(GCC pop_options)
#endif
