/* The inner loops of mappings: scores and a mask, and for some kinds a parameter or bounds, to
 * probabilities. A template.
 */
#ifndef PYENTMAX_GUFUNC_MAPPING_LOOPS_H
#define PYENTMAX_GUFUNC_MAPPING_LOOPS_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/row_loop.h"
#include "gufunc/workspace.h"

/* Rows of the table, in kernels.h, for mappings: of scores alone, and with a parameter, a k or
 * upper bounds for each row; `text` is the mapping's name in prose. */
#define MAPPING_OPERANDS(real) real, NPY_BOOL, real
#define MAPPING(name, text) \
    KERNEL(#name, "(n),(n)->(n)", "Scores and mask to probabilities of " text ".", 2, 1, \
           MAPPING_OPERANDS, mapping_loop, name)

#define PARAMETRIC_MAPPING_OPERANDS(real) real, NPY_BOOL, NPY_DOUBLE, real
#define PARAMETRIC_MAPPING(name, parameter) \
    KERNEL(#name, "(n),(n),()->(n)", \
           "Scores, mask and " parameter " to probabilities of " #name ".", 3, 1, \
           PARAMETRIC_MAPPING_OPERANDS, mapping_loop, name)

#define TOPK_MAPPING_OPERANDS(real) real, NPY_BOOL, NPY_INT64, real
#define TOPK_MAPPING(name, text) \
    KERNEL(#name, "(n),(n),()->(n)", "Scores, mask and k to probabilities of " text ".", 3, 1, \
           TOPK_MAPPING_OPERANDS, mapping_loop, name)

#define BOUNDED_MAPPING_OPERANDS(real) real, NPY_BOOL, real, real
#define BOUNDED_MAPPING(name) \
    KERNEL(#name, "(n),(n),(n)->(n)", "Scores, mask and bounds to probabilities of " #name ".", 3, \
           1, BOUNDED_MAPPING_OPERANDS, mapping_loop, name)

/* The longest rows whose k largest are sorted in a tile, which takes n k steps. */
#define NARROW_TOPK 64

/* What a mapping takes with its scores, as letters of gufunc/row_loop.h. */
#define NOTHING_ELSE "rm>r"
#define A_PARAMETER "rmd>r"
#define A_K "rmi>r"
#define BOUNDS "rmr>r"

/* k of the n scores, or all. */
static inline ptrdiff_t at_most(double k, ptrdiff_t n) {
    return k < (double)n ? (ptrdiff_t)k : n;
}

#define TEMPLATE "gufunc/mapping_loops.h"
#include "float_and_double.h"

#elif defined(REAL)

/* What comes with a row, or a block of rows. */
typedef struct {
    const double *number; /* a parameter or k, of each row */
    const REAL *upper;    /* bounds of a row */
    Ahead *ahead;         /* the next rows */
    void *scratch;
    void *kept; /* from row to row, by mappings/entmax.h */
} TYPED(RowContext);

/* A mapping: scores z to probabilities p. -inf excludes an entry; nothing left gives zeros; a NaN
 * or +inf gives NaN throughout. p may be where z is, if a caller's `out` is its input: an entry is
 * written once z is no longer needed there. block, if there is one, does BLOCK rows of at most
 * `longest` entries at once, each as if it were alone; the first count are wanted. */
typedef struct {
    const char *letters; /* of the operands */
    void (*row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                const TYPED(RowContext) *with);
    void (*block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count, ptrdiff_t n,
                  const TYPED(RowContext) *with);
    ptrdiff_t longest;
} TYPED(Mapping);

/* Bytes of scratch: scratch_size(n) values; with a k, for a row or a tile more; and for the others
 * WORKSPACE n doubles, n in whole lanes. */
static ptrdiff_t TYPED(mapping_scratch)(const TYPED(Mapping) *mapping, ptrdiff_t n) {
    const char second = mapping->letters[2];
    const bool tiles = mapping->block && n <= mapping->longest; /* two of doubles, and places */
    if (second == 'd' && tiles) return 3 * BLOCK * n * (ptrdiff_t)sizeof(double);
    if (second != '>' && second != 'i') return workspace_bytes(n);
    const ptrdiff_t more = second == '>' ? 0 : n <= NARROW_TOPK ? BLOCK * n : n;
    return (scratch_size(n) + more) * (ptrdiff_t)sizeof(REAL);
}

static void TYPED(run_keeping)(TYPED(Rows) *rows, const TYPED(Mapping) *mapping, void *kept) {
    TYPED(RowContext) with = {rows->number[0], NULL, &rows->ahead, rows->scratch, kept};
    if (rows->by_block) {
        mapping->block(rows->in[0], rows->out, rows->count, rows->n, &with);
        return;
    }
    const bool bounded = mapping->letters[2] == 'r';
    for (int j = 0; j < rows->count; j++) {
        Ahead ahead = TYPED(ahead_of_row)(rows, j);
        with.number = rows->number[0] + j;
        with.upper = bounded ? rows->in[1][j] : NULL;
        with.ahead = &ahead;
        mapping->row(rows->in[0][j], rows->out[j], rows->n, &with);
    }
}

static void TYPED(run_mapping)(TYPED(Rows) *rows, void *context) {
    TYPED(run_keeping)(rows, context, NULL);
}

/* Has it a block for such rows? */
static inline bool TYPED(goes_by_block)(const TYPED(Mapping) *mapping, ptrdiff_t n) {
    return mapping->block && n <= mapping->longest;
}

/* Scores, mask and what else a mapping takes to probabilities; data is the Mapping. */
ROW_LOOP(mapping_loop, ((const TYPED(Mapping) *)record)->letters, TYPED(run_mapping),
         TYPED(goes_by_block)(record, n), TYPED(mapping_scratch)(record, n))

#endif
