/* The inner loops of Jacobian products: probabilities and a direction, and for some kinds a
 * parameter or bounds, to J v. A template.
 */
#ifndef PYENTMAX_GUFUNC_JVP_LOOPS_H
#define PYENTMAX_GUFUNC_JVP_LOOPS_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/row_loop.h"
#include "gufunc/workspace.h"

/* Rows of the table, in kernels.h, for Jacobian products. That with bounds runs the Jvp of the
 * mapping `unbounded`. */
#define JVP_OPERANDS(real) real, real, real
#define JVP(name, text) \
    KERNEL(#name "_jvp", "(n),(n)->(n)", "Jacobian of " text " at probabilities p, times v.", 2, \
           1, JVP_OPERANDS, jvp_loop, name##_jvp)

#define PARAMETRIC_JVP_OPERANDS(real) real, real, NPY_DOUBLE, real
#define PARAMETRIC_JVP(name, parameter) \
    KERNEL(#name "_jvp", "(n),(n),()->(n)", \
           "Jacobian of " #name " at probabilities p, times v, for a " parameter ".", 3, 1, \
           PARAMETRIC_JVP_OPERANDS, parametric_jvp_loop, name##_jvp)

#define BOUNDED_JVP_OPERANDS(real) real, real, real, real
#define BOUNDED_JVP(name, unbounded) \
    KERNEL(#name "_jvp", "(n),(n),(n)->(n)", \
           "Jacobian of " #name " at probabilities p, times v, for upper bounds.", 3, 1, \
           BOUNDED_JVP_OPERANDS, bounded_jvp_loop, unbounded##_jvp)

#define TEMPLATE "gufunc/jvp_loops.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Some rows of n entries, at most BLOCK; an out may be its p. */
typedef struct {
    const REAL *const *p, *const *v;
    REAL *const *out;
    int count;
    ptrdiff_t n;
} TYPED(JvpRows);

/* The products of a mapping's Jacobian at p with v, each row by itself. */
typedef struct {
    void (*products)(const TYPED(JvpRows) *rows);
} TYPED(Jvp);

static void TYPED(run_jvp)(TYPED(Rows) *rows, void *context) {
    const TYPED(Jvp) *jvp = context;
    jvp->products(&(TYPED(JvpRows)){rows->in[0], rows->in[1], rows->out, rows->count, rows->n});
}

/* (n),(n)->(n): probabilities and a direction v to the product J v; data is the Jvp. */
ROW_LOOP(jvp_loop, "rr>r", TYPED(run_jvp), false, 0)

/* The product of a mapping's Jacobian at p with v, given its parameter; scratch is for WORKSPACE n
 * doubles. */
typedef struct {
    void (*row)(const REAL *p, const REAL *v, double parameter, REAL *out, ptrdiff_t n,
                double *restrict scratch);
} TYPED(ParametricJvp);

static void TYPED(run_parametric_jvp)(TYPED(Rows) *rows, void *context) {
    const TYPED(ParametricJvp) *jvp = context;
    for (int j = 0; j < rows->count; j++)
        jvp->row(rows->in[0][j], rows->in[1][j], rows->number[0][j], rows->out[j], rows->n,
                 rows->scratch);
}

/* (n),(n),()->(n): probabilities, a direction and a parameter to a Jacobian's product; data is
 * the ParametricJvp. */
ROW_LOOP(parametric_jvp_loop, "rrd>r", TYPED(run_parametric_jvp), false, workspace_bytes(n))

/* It is the same on the entries that are not full; short rows go together. */
static void TYPED(run_bounded_jvp)(TYPED(Rows) *rows, void *context) {
    const TYPED(Jvp) *jvp = context;
    const ptrdiff_t n = rows->n, apart = n <= SHORT ? n : 0;
    const REAL *free_p[BLOCK];
    for (int j = 0; j < rows->count; j++) {
        const REAL *p = rows->in[0][j], *upper = rows->in[2][j];
        REAL *own = (REAL *)rows->scratch + j * apart;
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL value = p[i];
            own[i] = value >= upper[i] ? (REAL)0 : value;
        }
        free_p[j] = own;
        if (!apart)
            jvp->products(&(TYPED(JvpRows)){free_p + j, rows->in[1] + j, rows->out + j, 1, n});
    }
    if (apart) jvp->products(&(TYPED(JvpRows)){free_p, rows->in[1], rows->out, rows->count, n});
}

/* (n),(n),(n)->(n): probabilities, a direction and bounds to the Jacobian's product; data is the
 * Jvp of the mapping without bounds. */
ROW_LOOP(bounded_jvp_loop, "rrr>r", TYPED(run_bounded_jvp), false,
         (n <= SHORT ? BLOCK : 1) * n * sizeof(REAL))

#endif
