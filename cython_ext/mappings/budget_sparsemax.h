/* budget sparsemax, the projection onto what sums to a budget and is at most 1 each: a template.
 * The NumPy twin is pyentmax/reference/mappings/budget_sparsemax.py.
 */
#ifndef PYENTMAX_MAPPINGS_BUDGET_SPARSEMAX_H
#define PYENTMAX_MAPPINGS_BUDGET_SPARSEMAX_H

#include "mappings/_separable_jvp.h"
#include "mappings/csparsemax.h"

#define TEMPLATE "mappings/budget_sparsemax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

PARAMETRIC_MAPPING(budget_sparsemax, "budget")
JVP(budget_sparsemax, "budget sparsemax")

#elif defined(REAL)

static void TYPED(budget_sparsemax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                        const TYPED(RowContext) *with) {
    REAL *ones = (REAL *)((double *)with->scratch + (WORKSPACE - 1) * whole_lanes(n));
    TYPED(fill)(ones, n, 1);
    TYPED(water_fill)(z, ones, with->number[0], false, p, n, with->scratch);
}

static const TYPED(Mapping)
    TYPED(budget_sparsemax) = {A_PARAMETER, TYPED(budget_sparsemax_row), NULL, 0};

ALWAYS_INLINE REGISTER TYPED(budget_sparsemax_inverse_curvature)(REGISTER p) {
    const REGISTER none = {0}, one = none + 1;
    return TYPED(choose_above)(p, none, TYPED(choose_above)(one, p, one, none), p);
}
SEPARABLE_JVP(budget_sparsemax, false)

#endif
