/* As baseline_float.c. */
#define KERNELS baseline_doubles
#define FOR_DOUBLE 1
#include "builds/table.h"
