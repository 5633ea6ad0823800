#define KERNELS x86_64_v3_doubles
#define FOR_DOUBLE 1
#include "builds/x86_64_v3.h"
