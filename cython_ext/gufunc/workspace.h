/* How much memory rows are worked on in that go to double. */
#ifndef PYENTMAX_GUFUNC_WORKSPACE_H
#define PYENTMAX_GUFUNC_WORKSPACE_H

#include "rows/sizes.h"

/* Doubles per score: for smoothing, which takes most, the scores themselves, sorted, and what
 * sorting (twice two) and pooling (three) take, or the chain's two levels and two knots. */
enum { WORKSPACE = 9 };

/* That of a row of n scores, in whole lanes. */
static inline ptrdiff_t workspace_bytes(ptrdiff_t n) {
    return WORKSPACE * whole_lanes(n) * (ptrdiff_t)sizeof(double);
}

#endif
