/* The inner loops that _cpu.pyx wraps, and what this build is. */
#ifndef PYENTMAX_KERNELS_H
#define PYENTMAX_KERNELS_H

#include <stddef.h>

/* A NumPy inner loop; npy_intp is the pointer-sized integer, as ptrdiff_t is. */
typedef void inner_loop(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data);

inner_loop entmax15_loop_f32, entmax15_loop_f64;
inner_loop entmax15_jvp_loop_f32, entmax15_jvp_loop_f64;

/* The instruction set that the compiler was allowed to use. */
#if defined(__AVX512F__)
#define INSTRUCTION_SET "x86-64 with AVX-512"
#elif defined(__AVX2__)
#define INSTRUCTION_SET "x86-64 with AVX2"
#elif defined(__x86_64__) || defined(_M_X64)
#define INSTRUCTION_SET "x86-64 baseline (SSE2)"
#elif defined(__aarch64__) || defined(_M_ARM64)
#define INSTRUCTION_SET "AArch64 (NEON)"
#else
#define INSTRUCTION_SET "portable C"
#endif

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

#ifndef BUILD_FLAGS
#define BUILD_FLAGS "unknown flags"
#endif

#endif
