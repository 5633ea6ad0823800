/* Gradients in upper bounds, for csoftmax and csparsemax: a template. The NumPy twin is
 * pyentmax/reference/mappings/_bounded.py.
 */
#ifndef PYENTMAX_MAPPINGS__VJP_UPPER_H
#define PYENTMAX_MAPPINGS__VJP_UPPER_H

#include "gufunc/kernel.h"
#include "gufunc/row_loop.h"
#include "rows/doubles.h"

#define TEMPLATE "mappings/_vjp_upper.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Which derivative in the bounds: are slopes 1 on the support, or p; and does p = 0 at a bound of 0
 * say that the bound holds it down, or are scores needed to tell? */
typedef struct {
    bool unit_slopes, needs_scores;
} TYPED(BoundsVjp);

/* Where a bound holds p down, p moves with it one to one, and the free entries make room in
 * proportion to their slopes s: g less the mean of g under s. As z - p is tau on the free entries
 * and more on the full, tau is its least value on the support; a bound of 0 holds down what scores
 * above it. */
static void TYPED(vjp_upper_row)(const TYPED(BoundsVjp) *kind, const REAL *p, const REAL *g,
                                 const REAL *upper, const REAL *z, REAL *out, ptrdiff_t n,
                                 double *restrict scratch) {
    double *s = scratch, *along = scratch + n, least = 0, tau = -(double)INFINITY;
    bool alive = false;
    for (ptrdiff_t i = 0; i < n; i++) {
        s[i] = p[i] >= upper[i] ? 0 : kind->unit_slopes && p[i] > 0 ? 1 : p[i];
        along[i] = s[i] != 0 ? s[i] * g[i] : 0;
        alive |= p[i] > 0;
    }
    const double weight = sum_of(s, n), mean = weight != 0 ? sum_of(along, n) / weight : 0;
    if (kind->needs_scores) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? z[i] : (double)INFINITY;
        least = smallest_of(s, n); /* near tau: relative to it, a full entry costs no digits */
        for (ptrdiff_t i = 0; i < n; i++)
            s[i] = p[i] > 0 ? ((double)z[i] - least) - p[i] : (double)INFINITY;
        tau = smallest_of(s, n);
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        const bool holds = alive && p[i] >= upper[i]
                           && (!kind->needs_scores || (double)z[i] - least > tau);
        out[i] = p[i] != p[i] ? p[i] : holds ? (REAL)(g[i] - mean) : (REAL)0;
    }
}

static void TYPED(run_vjp_upper)(TYPED(Rows) *rows, void *context) {
    for (int j = 0; j < rows->count; j++)
        TYPED(vjp_upper_row)(context, rows->in[0][j], rows->in[1][j], rows->in[2][j],
                             rows->in[3][j], rows->out[j], rows->n, rows->scratch);
}

/* (n),(n),(n)->(n) or (n),(n),(n),(n)->(n): probabilities, a gradient in them, bounds and, if
 * needed, scores to the gradient in the bounds; data is the BoundsVjp. */
ROW_LOOP(vjp_upper_loop, ((const TYPED(BoundsVjp) *)record)->needs_scores ? "rrrr>r" : "rrr>r",
         TYPED(run_vjp_upper), false, 2 * n * sizeof(double))

#endif
