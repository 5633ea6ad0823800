/* The choice of instruction set, made when the module is imported. */
#include "builds/builds.h"

#include <string.h>

/* What the compiler was allowed to use in baseline_*.c. */
#if defined(__AVX512F__)
#define BASELINE "x86-64 baseline (AVX-512, by compiler flags)"
#elif defined(__AVX2__)
#define BASELINE "x86-64 baseline (AVX2, by compiler flags)"
#elif defined(__x86_64__) || defined(_M_X64)
#define BASELINE "x86-64 baseline (SSE2)"
#elif defined(__aarch64__) || defined(_M_ARM64)
#define BASELINE "AArch64 baseline (NEON)"
#else
#define BASELINE "portable baseline (C)"
#endif

enum { MOST_BUILDS = 3 };

typedef struct {
    const char *instruction_set;
    const Kernel *floats, *doubles;
} Halves;

/* NumPy wants the loops of a ufunc side by side, and keeps the pointers to them. */
static void join(const Kernel *floats, const Kernel *doubles, Kernel *both) {
    for (; floats->name != NULL; floats++, doubles++, both++) {
        const size_t operands = (size_t)(floats->inputs + floats->outputs);
        *both = *floats;
        memcpy(both->types + operands, doubles->types, operands);
        both->loops[1] = doubles->loops[0];
        both->data[1] = doubles->data[0];
    }
}

const Build *builds(void) {
    static Kernel kernels[MOST_BUILDS][MOST_KERNELS];
    static Build runnable[MOST_BUILDS + 1]; /* and the end of the list */
    Halves halves[MOST_BUILDS];
    int count = 0;
#if HAS_X86_64_BUILDS
    __builtin_cpu_init();
#endif
#if HAS_X86_64_BUILDS && !defined(WITHOUT_X86_64_V4)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl"))
        halves[count++] = (Halves){"x86-64-v4 (AVX-512)", x86_64_v4_floats, x86_64_v4_doubles};
#endif
#if HAS_X86_64_BUILDS && !defined(WITHOUT_X86_64_V3)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
        && __builtin_cpu_supports("bmi2"))
        halves[count++] = (Halves){"x86-64-v3 (AVX2, FMA)", x86_64_v3_floats, x86_64_v3_doubles};
#endif
#if !defined(WITHOUT_BASELINE)
    halves[count++] = (Halves){BASELINE, baseline_floats, baseline_doubles};
#endif
    for (int i = 0; i < count; i++) {
        join(halves[i].floats, halves[i].doubles, kernels[i]);
        runnable[i] = (Build){halves[i].instruction_set, kernels[i]};
    }
    return runnable;
}
