/* csparsemax, sparsemax with upper bounds, and its derivatives: a template. The NumPy twin is
 * pyentmax/reference/mappings/csparsemax.py.
 *
 *     p = clip(z + t, 0, u),   full at the level t = u - z
 */
#ifndef PYENTMAX_MAPPINGS_CSPARSEMAX_H
#define PYENTMAX_MAPPINGS_CSPARSEMAX_H

#include "gufunc/jvp_loops.h"
#include "gufunc/mapping_loops.h"
#include "mappings/_vjp_upper.h"
#include "mappings/sparsemax.h"
#include "thresholds/water_filling.h"

#define VJP_UPPER_OPERANDS(real) real, real, real, real, real /* the fourth is the scores */

#define TEMPLATE "mappings/csparsemax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

BOUNDED_MAPPING(csparsemax)
BOUNDED_JVP(csparsemax, sparsemax)
KERNEL("csparsemax_vjp_upper", "(n),(n),(n),(n)->(n)", "Gradient in p to gradient in the bounds.",
       4, 1, VJP_UPPER_OPERANDS, vjp_upper_loop, csparsemax_vjp_upper)

#elif defined(REAL)

static void TYPED(csparsemax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                  const TYPED(RowContext) *with) {
    TYPED(water_fill)(z, with->upper, 1, false, p, n, with->scratch);
}

static const TYPED(Mapping) TYPED(csparsemax) = {BOUNDS, TYPED(csparsemax_row), NULL, 0};
static const TYPED(BoundsVjp) TYPED(csparsemax_vjp_upper) = {true, true};

#endif
