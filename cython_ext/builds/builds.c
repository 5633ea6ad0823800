/* The choice of instruction set, made when the module is imported. */
#include "builds/builds.h"

/* What the compiler was allowed to use in baseline.c. */
#if defined(__AVX512F__)
#define BASELINE "x86-64 with AVX-512 (by compiler flags)"
#elif defined(__AVX2__)
#define BASELINE "x86-64 with AVX2 (by compiler flags)"
#elif defined(__x86_64__) || defined(_M_X64)
#define BASELINE "x86-64 baseline (SSE2)"
#elif defined(__aarch64__) || defined(_M_ARM64)
#define BASELINE "AArch64 (NEON)"
#else
#define BASELINE "portable C"
#endif

enum { MOST_BUILDS = 4 }; /* three, and the end of the list */

const Build *builds(void) {
    static Build runnable[MOST_BUILDS];
    int count = 0;
#if HAS_X86_64_BUILDS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl"))
        runnable[count++] = (Build){"x86-64-v4 (AVX-512)", x86_64_v4_kernels};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
        && __builtin_cpu_supports("bmi2"))
        runnable[count++] = (Build){"x86-64-v3 (AVX2, FMA)", x86_64_v3_kernels};
#endif
    runnable[count++] = (Build){BASELINE, baseline_kernels};
    runnable[count] = (Build){NULL, NULL};
    return runnable;
}
