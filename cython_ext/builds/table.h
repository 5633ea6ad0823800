/* All kernels and their table: everything that is compiled once per instruction set. The including
 * file defines KERNELS, the table's name; everything else stays static in it. */
#ifndef PYENTMAX_BUILDS_TABLE_H
#define PYENTMAX_BUILDS_TABLE_H

#include "builds/builds.h"
#include "kernels.h"

const Kernel KERNELS[] = {
#define KERNEL_TABLE
#include "kernels.h"
#undef KERNEL_TABLE
    {.name = NULL},
};

#endif
