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

/* Rows of up to so many entries stay in registers, where there are so many. */
enum { LANES_KEPT = 8, KEPT_ROW = LANES_KEPT * LANES };

#define TEMPLATE "gufunc/jvp_loops.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Rows of n entries side by side, and how many bytes the next row is away. */
typedef struct {
    const char *p, *v;
    char *out;
    ptrdiff_t p_step, v_step, out_step, count, n;
} TYPED(JvpRows);

/* The product of a mapping's Jacobian at p with v: of a row, and of many that are KEPT_ROW or
 * shorter, which differ in the order of their sums. */
typedef struct {
    void (*row)(const REAL *restrict p, const REAL *restrict v, REAL *restrict out, ptrdiff_t n);
    void (*short_rows)(const TYPED(JvpRows) *rows);
} TYPED(Jvp);

/* The product of one row, of any length. */
static void TYPED(jvp_of_row)(const TYPED(Jvp) *jvp, const REAL *p, const REAL *v, REAL *out,
                              ptrdiff_t n) {
    if (n > KEPT_ROW) {
        jvp->row(p, v, out, n);
    } else {
        const TYPED(JvpRows) row = {(const char *)p, (const char *)v, (char *)out, 0, 0, 0, 1, n};
        jvp->short_rows(&row);
    }
}

/* From row to row, in bytes. */
static ptrdiff_t TYPED(step_between)(const REAL *const *row, int count) {
    return count > 1 ? (const char *)row[1] - (const char *)row[0] : 0;
}

/* `count` rows from the j-th on. */
static TYPED(JvpRows) TYPED(jvp_rows)(const TYPED(Rows) *rows, int j, int count) {
    const REAL *const *p = rows->in[0] + j, *const *v = rows->in[1] + j;
    REAL *const *out = rows->out + j;
    return (TYPED(JvpRows)){(const char *)*p,
                            (const char *)*v,
                            (char *)*out,
                            TYPED(step_between)(p, count),
                            TYPED(step_between)(v, count),
                            TYPED(step_between)((const REAL *const *)out, count),
                            count,
                            rows->n};
}

static void TYPED(run_jvp)(TYPED(Rows) *rows, void *context) {
    const TYPED(Jvp) *jvp = context;
    if (rows->n <= KEPT_ROW && !rows->anywhere) {
        const TYPED(JvpRows) all = TYPED(jvp_rows)(rows, 0, rows->count);
        jvp->short_rows(&all);
        return;
    }
    for (int j = 0; j < rows->count; j++)
        TYPED(jvp_of_row)(jvp, rows->in[0][j], rows->in[1][j], rows->out[j], rows->n);
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

/* It is the same on the entries that are not full. */
static void TYPED(run_bounded_jvp)(TYPED(Rows) *rows, void *context) {
    REAL *free_p = rows->scratch;
    for (int j = 0; j < rows->count; j++) {
        const REAL *p = rows->in[0][j], *upper = rows->in[2][j];
        for (ptrdiff_t i = 0; i < rows->n; i++) {
            const REAL value = p[i];
            free_p[i] = value >= upper[i] ? (REAL)0 : value;
        }
        TYPED(jvp_of_row)(context, free_p, rows->in[1][j], rows->out[j], rows->n);
    }
}

/* (n),(n),(n)->(n): probabilities, a direction and bounds to the Jacobian's product; data is the
 * Jvp of the mapping without bounds. */
ROW_LOOP(bounded_jvp_loop, "rrr>r", TYPED(run_bounded_jvp), false, n * sizeof(REAL))

#endif
