/* The inner loops of mappings: scores and a mask, and for some kinds a parameter or bounds, to
 * probabilities. A template.
 */
#ifndef PYENTMAX_GUFUNC_MAPPING_LOOPS_H
#define PYENTMAX_GUFUNC_MAPPING_LOOPS_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/row_loop.h"
#include "gufunc/workspace.h"

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

static void TYPED(run_mapping)(TYPED(Rows) *rows, void *context) {
    const TYPED(Mapping) *mapping = context;
    if (rows->by_block)
        mapping->block(rows->in[0], rows->out, rows->count, rows->n, &rows->ahead, rows->scratch);
    for (int j = 0; !rows->by_block && j < rows->count; j++) {
        Ahead ahead = TYPED(ahead_of_row)(rows, j);
        mapping->row(rows->in[0][j], rows->out[j], rows->n, &ahead, rows->scratch);
    }
}

/* Has it a block for such rows? */
static inline bool TYPED(goes_by_block)(const TYPED(Mapping) *mapping, ptrdiff_t n) {
    return mapping->block && n <= mapping->longest;
}

/* (n),(n)->(n): scores and mask to probabilities; data is the Mapping. */
ROW_LOOP(mapping_loop, "rm>r", TYPED(run_mapping), TYPED(goes_by_block)(record, n),
         scratch_size(n) * sizeof(REAL))

/* A mapping that keeps k of the n scores, k <= n; scratch holds scratch_size(n) + n values. block,
 * if there is one, does BLOCK rows of at most NARROW_TOPK entries as that of a Mapping does, each
 * with its k; its scratch holds BLOCK n values more. */
typedef struct {
    void (*row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, ptrdiff_t k,
                REAL *restrict scratch);
    void (*block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count, ptrdiff_t n,
                  const ptrdiff_t k[BLOCK], Ahead *ahead, REAL *restrict scratch);
} TYPED(TopkMapping);

static void TYPED(run_topk)(TYPED(Rows) *rows, void *context) {
    const TYPED(TopkMapping) *mapping = context;
    const ptrdiff_t n = rows->n;
    ptrdiff_t k[BLOCK];
    for (int j = 0; j < (rows->by_block ? BLOCK : rows->count); j++)
        k[j] = rows->number[0][j] < (double)n ? (ptrdiff_t)rows->number[0][j] : n;
    if (rows->by_block)
        mapping->block(rows->in[0], rows->out, rows->count, n, k, &rows->ahead, rows->scratch);
    for (int j = 0; !rows->by_block && j < rows->count; j++)
        mapping->row(rows->in[0][j], rows->out[j], n, k[j], rows->scratch);
}

/* (n),(n),()->(n): scores, mask and k to probabilities; data is the TopkMapping. */
ROW_LOOP(topk_loop, "rmi>r", TYPED(run_topk),
         ((const TYPED(TopkMapping) *)record)->block &&n <= NARROW_TOPK,
         (scratch_size(n) + (n <= NARROW_TOPK ? BLOCK : 1) * n) * sizeof(REAL))

/* A mapping with a parameter; scratch is for WORKSPACE n doubles, n in whole lanes. */
typedef struct {
    void (*row)(const REAL *restrict z, double parameter, REAL *restrict p, ptrdiff_t n,
                double *restrict scratch);
} TYPED(ParametricMapping);

static void TYPED(run_parametric)(TYPED(Rows) *rows, void *context) {
    const TYPED(ParametricMapping) *mapping = context;
    for (int j = 0; j < rows->count; j++)
        mapping->row(rows->in[0][j], rows->number[0][j], rows->out[j], rows->n, rows->scratch);
}

/* (n),(n),()->(n): scores, mask and a parameter to probabilities; data is the ParametricMapping. */
ROW_LOOP(parametric_mapping_loop, "rmd>r", TYPED(run_parametric), false, workspace_bytes(n))

/* A mapping with upper bounds; scratch is for WORKSPACE n doubles, n in whole lanes. */
typedef struct {
    void (*row)(const REAL *restrict z, const REAL *restrict upper, REAL *restrict p, ptrdiff_t n,
                double *restrict scratch);
} TYPED(BoundedMapping);

static void TYPED(run_bounded)(TYPED(Rows) *rows, void *context) {
    const TYPED(BoundedMapping) *mapping = context;
    for (int j = 0; j < rows->count; j++)
        mapping->row(rows->in[0][j], rows->in[1][j], rows->out[j], rows->n, rows->scratch);
}

/* (n),(n),(n)->(n): scores, mask and bounds to probabilities; data is the BoundedMapping. */
ROW_LOOP(bounded_mapping_loop, "rmr>r", TYPED(run_bounded), false, workspace_bytes(n))

#endif
