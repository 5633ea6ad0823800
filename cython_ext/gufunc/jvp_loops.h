/* The inner loops of Jacobian products: probabilities and a direction, and for some kinds a
 * parameter or bounds, to J v. A template.
 */
#ifndef PYENTMAX_GUFUNC_JVP_LOOPS_H
#define PYENTMAX_GUFUNC_JVP_LOOPS_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/operands.h"
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

/* (n),(n)->(n): probabilities and a direction v to the product J v; data is the Jvp. */
static void TYPED(jvp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                            void *data) {
    const TYPED(Jvp) *jvp = data;
    const ptrdiff_t rows = dims[0], n = dims[1];
    const ptrdiff_t p_stride = steps[3], v_stride = steps[4], out_stride = steps[5];
    if (rows == 0 || n == 0) return;
    const ptrdiff_t side_by_side = sizeof(REAL);
    if (n <= KEPT_ROW && p_stride == side_by_side && v_stride == side_by_side
        && out_stride == side_by_side) {
        const TYPED(JvpRows) all = {args[0],  args[1],  args[2], steps[0],
                                    steps[1], steps[2], rows,    n};
        jvp->short_rows(&all);
        leave_no_float_flags();
        return;
    }
    REAL *scratch = scratch_or_error(3 * n, sizeof(REAL));
    if (scratch == NULL) return;

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[2] + r * steps[2];
        const REAL *p = TYPED(contiguous)(args[0] + r * steps[0], p_stride, n, scratch);
        const REAL *v = TYPED(contiguous)(args[1] + r * steps[1], v_stride, n, scratch + n);
        REAL *out = TYPED(target)(to, out_stride, scratch + 2 * n);
        TYPED(jvp_of_row)(jvp, p, v, out, n);
        TYPED(deliver)(out, to, out_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

/* The product of a mapping's Jacobian at p with v, given its parameter; scratch is for WORKSPACE n
 * doubles. */
typedef struct {
    void (*row)(const REAL *p, const REAL *v, double parameter, REAL *out, ptrdiff_t n,
                double *restrict scratch);
} TYPED(ParametricJvp);

/* (n),(n),()->(n): probabilities, a direction and a parameter to a Jacobian's product; data is
 * the ParametricJvp. */
static void TYPED(parametric_jvp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                       void *data) {
    const TYPED(ParametricJvp) *jvp = data;
    const ptrdiff_t rows = dims[0], n = dims[1], out_stride = steps[6];
    if (rows == 0 || n == 0) return;
    double *scratch = scratch_or_error((WORKSPACE + 3) * n, sizeof(double));
    if (scratch == NULL) return;
    REAL *row = (REAL *)(scratch + WORKSPACE * n);

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const REAL *p = TYPED(contiguous)(args[0] + r * steps[0], steps[4], n, row);
        const REAL *v = TYPED(contiguous)(args[1] + r * steps[1], steps[5], n, row + n);
        REAL *out = TYPED(target)(to, out_stride, row + 2 * n);
        jvp->row(p, v, *(const double *)(args[2] + r * steps[2]), out, n, scratch);
        TYPED(deliver)(out, to, out_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

/* (n),(n),(n)->(n): probabilities, a direction and bounds to the Jacobian's product; data is the
 * Jvp of the mapping without bounds. It is the same on the entries that are not full. */
static void TYPED(bounded_jvp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    const TYPED(Jvp) *unbounded = data;
    const ptrdiff_t rows = dims[0], n = dims[1], out_stride = steps[7];
    if (rows == 0 || n == 0) return;
    REAL *scratch = scratch_or_error(3 * n, sizeof(REAL)), *free_p = scratch;
    if (scratch == NULL) return;

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const char *p = args[0] + r * steps[0], *upper = args[2] + r * steps[2];
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL value = *(const REAL *)(p + i * steps[4]);
            free_p[i] = value >= *(const REAL *)(upper + i * steps[6]) ? (REAL)0 : value;
        }
        const REAL *v = TYPED(contiguous)(args[1] + r * steps[1], steps[5], n, scratch + n);
        REAL *out = TYPED(target)(to, out_stride, scratch + 2 * n);
        TYPED(jvp_of_row)(unbounded, free_p, v, out, n);
        TYPED(deliver)(out, to, out_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

#endif
