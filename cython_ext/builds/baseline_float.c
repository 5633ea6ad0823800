/* The kernels for whatever the compiler takes for granted: SSE2 on x86-64, NEON on AArch64. */
#define KERNELS baseline_floats
#define FOR_DOUBLE 0
#include "builds/table.h"
