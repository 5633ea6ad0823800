/* What the C side offers to _cpu.pyx: tables of kernels, one table per instruction set. */
#ifndef PYENTMAX_GUFUNC_KERNEL_H
#define PYENTMAX_GUFUNC_KERNEL_H

#include <stddef.h>

/* A NumPy inner loop; npy_intp is the pointer-sized integer, as ptrdiff_t is. */
typedef void inner_loop(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data);

enum { MAX_OPERANDS = 13 };

/* One generalised ufunc with a float and a double loop, in this order; in a table of one type
 * (builds/table.h) that type's loop alone, in the first place. */
typedef struct {
    const char *name, *signature, *doc;
    int inputs, outputs;
    char types[2 * MAX_OPERANDS]; /* NumPy's type numbers, loop by loop */
    inner_loop *loops[2];
    void *data[2]; /* what the loops get as their last argument */
} Kernel;

/* A row of the table, in kernels.h. `operands` is a macro that lists type numbers given that of the
 * floating type, `loop` and `record`, what it gets as data, are names without a type's suffix,
 * which LOOP gives them. */
// clang-format off
#define KERNEL(name, signature, doc, inputs, outputs, operands, loop, record) \
    {name, signature, doc, inputs, outputs, {operands(NPY_REAL)}, \
     {LOOP(loop)}, {(void *)&LOOP(record)}},
#define KERNEL_WITHOUT_RECORD(name, signature, doc, inputs, outputs, operands, loop) \
    {name, signature, doc, inputs, outputs, {operands(NPY_REAL)}, \
     {LOOP(loop)}, {NULL}},
// clang-format on

/* The same kernels compiled for one instruction set; a Kernel without a name ends the list. */
typedef struct {
    const char *instruction_set;
    const Kernel *kernels;
} Build;

/* The builds that this machine can run, the fastest first and the baseline last; a Build without
 * an instruction set ends the list. */
const Build *builds(void);

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#ifndef BUILD_FLAGS
#define BUILD_FLAGS "unknown flags"
#endif

#endif
