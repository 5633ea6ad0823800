#define KERNELS x86_64_v4_doubles
#define FOR_DOUBLE 1
#include "builds/x86_64_v4.h"
