#define KERNELS x86_64_v3_floats
#define FOR_DOUBLE 0
#include "builds/x86_64_v3.h"
