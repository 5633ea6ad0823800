/* The inner loops of mappings: scores and a mask, and for some kinds a parameter or bounds, to
 * probabilities. A template.
 */
#ifndef PYENTMAX_GUFUNC_MAPPING_LOOPS_H
#define PYENTMAX_GUFUNC_MAPPING_LOOPS_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/operands.h"
#include "gufunc/workspace.h"
#include "rows/ahead.h"

/* Rows of the table, in kernels.h, for mappings of each kind; `text` is the mapping's name in
 * prose. */
#define MAPPING_OPERANDS(real) real, NPY_BOOL, real
#define MAPPING(name, text) \
    KERNEL(#name, "(n),(n)->(n)", "Scores and mask to probabilities of " text ".", 2, 1, \
           MAPPING_OPERANDS, mapping_loop, name)

#define PARAMETRIC_MAPPING_OPERANDS(real) real, NPY_BOOL, NPY_DOUBLE, real
#define PARAMETRIC_MAPPING(name, parameter) \
    KERNEL(#name, "(n),(n),()->(n)", \
           "Scores, mask and " parameter " to probabilities of " #name ".", 3, 1, \
           PARAMETRIC_MAPPING_OPERANDS, parametric_mapping_loop, name)

#define TOPK_MAPPING_OPERANDS(real) real, NPY_BOOL, NPY_INT64, real
#define TOPK_MAPPING(name, text) \
    KERNEL(#name, "(n),(n),()->(n)", "Scores, mask and k to probabilities of " text ".", 3, 1, \
           TOPK_MAPPING_OPERANDS, topk_loop, name)

#define BOUNDED_MAPPING_OPERANDS(real) real, NPY_BOOL, real, real
#define BOUNDED_MAPPING(name) \
    KERNEL(#name, "(n),(n),(n)->(n)", "Scores, mask and bounds to probabilities of " #name ".", 3, \
           1, BOUNDED_MAPPING_OPERANDS, bounded_mapping_loop, name)

/* The longest rows whose k largest are sorted in a tile, which takes n k steps. */
#define NARROW_TOPK 64

#define TEMPLATE "gufunc/mapping_loops.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A mapping: scores z to probabilities p. -inf excludes an entry; nothing left gives zeros; a NaN
 * or +inf gives NaN throughout. p may be where z is, if a caller's `out` is its input: an entry is
 * written once z is no longer needed there. scratch holds scratch_size(n) values. block, if there
 * is one, does BLOCK rows of at most `longest` entries at once, each as if it were alone; the first
 * count are wanted, and `ahead` says where the next ones are. */
typedef struct {
    void (*row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, Ahead *ahead,
                REAL *restrict scratch);
    void (*block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count, ptrdiff_t n,
                  Ahead *ahead, REAL *restrict scratch);
    ptrdiff_t longest;
} TYPED(Mapping);

/* (n),(n)->(n): scores and mask to probabilities; data is the Mapping. */
static void TYPED(mapping_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                void *data) {
    const TYPED(Mapping) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], z_stride = steps[3], mask_stride = steps[4];
    const ptrdiff_t p_stride = steps[5];
    if (rows == 0 || n == 0) return;
    const int at_once = mapping->block && n <= mapping->longest ? BLOCK : 1;
    REAL *scratch = scratch_or_error(scratch_size(n) + 2 * at_once * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + scratch_size(n);

    for (ptrdiff_t start = 0; start < rows; start += at_once) {
        const REAL *z[BLOCK];
        REAL *p[BLOCK];
        const int count = rows - start < at_once ? (int)(rows - start) : at_once;
        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            z[j] = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                 mask_stride, n, room + 2 * j * n);
            p[j] = TYPED(target)(args[2] + r * steps[2], p_stride, room + (2 * j + 1) * n);
        }
        for (int j = count; j < at_once; j++) { /* fills up the block */
            z[j] = z[0];
            p[j] = room + (2 * j + 1) * n;
        }
        const ptrdiff_t next = start + count, left = rows - next < at_once ? rows - next : at_once;
        Ahead ahead = ahead_of(args[0] + next * steps[0], steps[0], args[2] + next * steps[2],
                               steps[2], n * (ptrdiff_t)sizeof(REAL), left);
        if (at_once > 1)
            mapping->block(z, p, count, n, &ahead, scratch);
        else
            mapping->row(z[0], p[0], n, &ahead, scratch);
        for (int j = 0; j < count; j++)
            TYPED(deliver)(p[j], args[2] + (start + j) * steps[2], p_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

/* A mapping that keeps k of the n scores, k <= n; scratch holds scratch_size(n) + n values. block,
 * if there is one, does BLOCK rows of at most NARROW_TOPK entries as that of a Mapping does, each
 * with its k; its scratch holds BLOCK n values more. */
typedef struct {
    void (*row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, ptrdiff_t k,
                REAL *restrict scratch);
    void (*block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count, ptrdiff_t n,
                  const ptrdiff_t k[BLOCK], Ahead *ahead, REAL *restrict scratch);
} TYPED(TopkMapping);

/* (n),(n),()->(n): scores, mask and k to probabilities; data is the TopkMapping. */
static void TYPED(topk_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                             void *data) {
    const TYPED(TopkMapping) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1];
    const ptrdiff_t z_stride = steps[4], mask_stride = steps[5], p_stride = steps[6];
    if (rows == 0 || n == 0) return;
    const int at_once = mapping->block && n <= NARROW_TOPK ? BLOCK : 1;
    const ptrdiff_t size = scratch_size(n) + at_once * n;
    REAL *scratch = scratch_or_error(size + 2 * at_once * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + size;

    for (ptrdiff_t start = 0; start < rows; start += at_once) {
        const REAL *z[BLOCK];
        REAL *p[BLOCK];
        ptrdiff_t k[BLOCK];
        const int count = rows - start < at_once ? (int)(rows - start) : at_once;
        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            const int64_t wanted = *(const int64_t *)(args[2] + r * steps[2]);
            k[j] = wanted < n ? (ptrdiff_t)wanted : n;
            z[j] = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                 mask_stride, n, room + 2 * j * n);
            p[j] = TYPED(target)(args[3] + r * steps[3], p_stride, room + (2 * j + 1) * n);
        }
        for (int j = count; j < at_once; j++) { /* fills up the block */
            z[j] = z[0];
            k[j] = k[0];
            p[j] = room + (2 * j + 1) * n;
        }
        if (at_once > 1) {
            const ptrdiff_t next = start + count,
                            left = rows - next < at_once ? rows - next : at_once;
            Ahead ahead = ahead_of(args[0] + next * steps[0], steps[0], args[3] + next * steps[3],
                                   steps[3], n * (ptrdiff_t)sizeof(REAL), left);
            mapping->block(z, p, count, n, k, &ahead, scratch);
        } else
            mapping->row(z[0], p[0], n, k[0], scratch);
        for (int j = 0; j < count; j++)
            TYPED(deliver)(p[j], args[3] + (start + j) * steps[3], p_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

/* A mapping with a parameter; scratch is for WORKSPACE n doubles, n in whole lanes. */
typedef struct {
    void (*row)(const REAL *restrict z, double parameter, REAL *restrict p, ptrdiff_t n,
                double *restrict scratch);
} TYPED(ParametricMapping);

/* (n),(n),()->(n): scores, mask and a parameter to probabilities; data is the
 * ParametricMapping. */
static void TYPED(parametric_mapping_loop)(char **args, const ptrdiff_t *dims,
                                           const ptrdiff_t *steps, void *data) {
    const TYPED(ParametricMapping) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], p_stride = steps[6];
    if (rows == 0 || n == 0) return;
    double *scratch = scratch_or_error(WORKSPACE * whole_lanes(n) + 2 * n, sizeof(double));
    if (scratch == NULL) return;
    REAL *row = (REAL *)(scratch + WORKSPACE * whole_lanes(n));

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const REAL *z = TYPED(masked)(args[0] + r * steps[0], steps[4], args[1] + r * steps[1],
                                      steps[5], n, row);
        REAL *p = TYPED(target)(to, p_stride, row + n);
        mapping->row(z, *(const double *)(args[2] + r * steps[2]), p, n, scratch);
        TYPED(deliver)(p, to, p_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

/* A mapping with upper bounds; scratch is for WORKSPACE n doubles, n in whole lanes. */
typedef struct {
    void (*row)(const REAL *restrict z, const REAL *restrict upper, REAL *restrict p, ptrdiff_t n,
                double *restrict scratch);
} TYPED(BoundedMapping);

/* (n),(n),(n)->(n): scores, mask and bounds to probabilities; data is the BoundedMapping. */
static void TYPED(bounded_mapping_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                        void *data) {
    const TYPED(BoundedMapping) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], p_stride = steps[7];
    if (rows == 0 || n == 0) return;
    double *scratch = scratch_or_error(WORKSPACE * whole_lanes(n) + 3 * n, sizeof(double));
    if (scratch == NULL) return;
    REAL *row = (REAL *)(scratch + WORKSPACE * whole_lanes(n));

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const REAL *z = TYPED(masked)(args[0] + r * steps[0], steps[4], args[1] + r * steps[1],
                                      steps[5], n, row);
        const REAL *upper = TYPED(contiguous)(args[2] + r * steps[2], steps[6], n, row + n);
        REAL *p = TYPED(target)(to, p_stride, row + 2 * n);
        mapping->row(z, upper, p, n, scratch);
        TYPED(deliver)(p, to, p_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

#endif
