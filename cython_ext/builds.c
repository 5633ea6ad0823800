/* The choice of instruction set, made when the module is imported. */
#include "builds.h"

/* What the compiler was allowed to use in baseline.c. */
#if defined(__AVX2__)
#define BASELINE "x86-64 with AVX2 (by compiler flags)"
#elif defined(__x86_64__) || defined(_M_X64)
#define BASELINE "x86-64 baseline (SSE2)"
#elif defined(__aarch64__) || defined(_M_ARM64)
#define BASELINE "AArch64 (NEON)"
#else
#define BASELINE "portable C"
#endif

static const Build every_build[] = {
#if HAS_AVX2_BUILD
    {"x86-64-v3 (AVX2, FMA)", avx2_kernels},
#endif
    {BASELINE, baseline_kernels},
    {NULL, NULL},
};

const Build *builds(void) {
#if HAS_AVX2_BUILD
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return every_build + 1;
#endif
    return every_build;
}
