#define KERNELS x86_64_v4_floats
#define FOR_DOUBLE 0
#include "builds/x86_64_v4.h"
