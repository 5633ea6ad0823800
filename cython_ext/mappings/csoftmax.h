/* csoftmax, softmax with upper bounds, and its derivatives: a template. The NumPy twin is
 * pyentmax/reference/mappings/csoftmax.py.
 *
 *     p = min(u, e^z t),   full at the level t = u e^-z
 */
#ifndef PYENTMAX_MAPPINGS_CSOFTMAX_H
#define PYENTMAX_MAPPINGS_CSOFTMAX_H

#include "gufunc/jvp_loops.h"
#include "gufunc/mapping_loops.h"
#include "mappings/_vjp_upper.h"
#include "mappings/softmax.h"
#include "thresholds/water_filling.h"

#define TEMPLATE "mappings/csoftmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

BOUNDED_MAPPING(csoftmax)
BOUNDED_JVP(csoftmax, softmax)
KERNEL("csoftmax_vjp_upper", "(n),(n),(n)->(n)", "Gradient in p to gradient in the bounds.", 3, 1,
       BOUNDED_JVP_OPERANDS, vjp_upper_loop, csoftmax_vjp_upper)

#elif defined(REAL)

static void TYPED(csoftmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                const TYPED(RowContext) *with) {
    TYPED(water_fill)(z, with->upper, 1, true, p, n, with->scratch);
}

static const TYPED(Mapping) TYPED(csoftmax) = {BOUNDS, TYPED(csoftmax_row), NULL, 0};
static const TYPED(BoundsVjp) TYPED(csoftmax_vjp_upper) = {false, false};

#endif
