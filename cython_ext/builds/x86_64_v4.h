/* For x86-64-v4, servers since 2017 and AMD's since 2022: sixteen floats to a register. */
#include "builds/builds.h"

#if HAS_X86_64_BUILDS
#define HAS_AVX512 1
#if defined(__clang__)
#define TARGET "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi2"
#else
#define TARGET "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi2,prefer-vector-width=512"
#endif
#include "builds/target.h"
#endif
