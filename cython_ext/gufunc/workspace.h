/* How much memory rows are worked on in that go to double. */
#ifndef PYENTMAX_GUFUNC_WORKSPACE_H
#define PYENTMAX_GUFUNC_WORKSPACE_H

/* Doubles per score: for smoothing, which takes most, the scores themselves, sorted, and what
 * sorting (twice two) and pooling (three) take, or the chain's two levels and two knots. */
enum { WORKSPACE = 9 };

#endif
