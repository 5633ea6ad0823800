/* For x86-64-v3, the level of most machines since 2015: eight floats in a register, not four. */
#include "builds/builds.h"

#if HAS_X86_64_BUILDS
#define TARGET "avx2,fma,bmi2"
#define HAS_AVX2 1
#include "builds/target.h"
#endif
