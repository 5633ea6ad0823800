/* All kernels for float and double, and their table: everything that is compiled once per instruction
 * set. The including file defines KERNELS, the table's name; everything else stays static in it. */
#include "gufunc.h"
#include "kernels.h"
#include "filling.h"
#include "rows.h"
#include "smoothing.h"

#include <numpy/ndarraytypes.h>

#define REAL float
#define BITS int32_t
#define SQRT sqrtf
#define FABS fabsf
#define IS_DOUBLE 0
#define TYPED(name) name##_f32
#include "typed_kernels.h"
#undef REAL
#undef BITS
#undef SQRT
#undef FABS
#undef IS_DOUBLE
#undef TYPED

#define REAL double
#define BITS int64_t
#define SQRT sqrt
#define FABS fabs
#define IS_DOUBLE 1
#define TYPED(name) name##_f64
#include "typed_kernels.h"
#undef REAL
#undef BITS
#undef SQRT
#undef FABS
#undef IS_DOUBLE
#undef TYPED

/* Scores, mask, k, probabilities. */
#define TOPK_TYPES \
    {NPY_FLOAT, NPY_BOOL, NPY_INT64, NPY_FLOAT, NPY_DOUBLE, NPY_BOOL, NPY_INT64, NPY_DOUBLE}

/* Operands of a mapping (scores, mask, probabilities) and of a Jacobian product (p, v, product). */
#define FORWARD_TYPES {NPY_FLOAT, NPY_BOOL, NPY_FLOAT, NPY_DOUBLE, NPY_BOOL, NPY_DOUBLE}
#define JVP_TYPES {NPY_FLOAT, NPY_FLOAT, NPY_FLOAT, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE}

/* The same with a parameter in between. */
#define FORWARD_1_TYPES \
    {NPY_FLOAT, NPY_BOOL, NPY_DOUBLE, NPY_FLOAT, NPY_DOUBLE, NPY_BOOL, NPY_DOUBLE, NPY_DOUBLE}
#define JVP_1_TYPES \
    {NPY_FLOAT, NPY_FLOAT, NPY_DOUBLE, NPY_FLOAT, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE}

/* The same with upper bounds in between. */
#define BOUNDED_TYPES \
    {NPY_FLOAT, NPY_BOOL, NPY_FLOAT, NPY_FLOAT, NPY_DOUBLE, NPY_BOOL, NPY_DOUBLE, NPY_DOUBLE}
#define BOUNDED_JVP_TYPES \
    {NPY_FLOAT, NPY_FLOAT, NPY_FLOAT, NPY_FLOAT, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE}

#define FORWARD(name, text) \
    {#name, "(n),(n)->(n)", "Scores and mask to probabilities of " text ".", 2, 1, FORWARD_TYPES, \
     {forward_loop_f32, forward_loop_f64}, {(void *)&name##_f32, (void *)&name##_f64}}
#define JVP(name, text) \
    {#name "_jvp", "(n),(n)->(n)", "Jacobian of " text " at probabilities p, times v.", 2, 1, \
     JVP_TYPES, {jvp_loop_f32, jvp_loop_f64}, \
     {(void *)&name##_jvp_f32, (void *)&name##_jvp_f64}}

/* Scores, mask, label, weight; loss, whether it counts, gradient: seven operands or, without it, six. */
#define LOSS_OPERANDS(type) type, NPY_BOOL, NPY_INT64, type, type, NPY_BOOL
#define LOSS(name, text) \
    {#name "_loss", "(n),(n),(),()->(),()", \
     "Scores, mask, labels and weights to weighted losses of " text ", and which rows count.", 4, \
     2, {LOSS_OPERANDS(NPY_FLOAT), LOSS_OPERANDS(NPY_DOUBLE)}, {loss_loop_f32, loss_loop_f64}, \
     {(void *)&name##_loss_f32, (void *)&name##_loss_f64}}
#define LOSS_AND_GRAD(name, text) \
    {#name "_loss_and_grad", "(n),(n),(),()->(),(),(n)", \
     "As " #name "_loss, and the weighted gradient.", 4, 3, \
     {LOSS_OPERANDS(NPY_FLOAT), NPY_FLOAT, LOSS_OPERANDS(NPY_DOUBLE), NPY_DOUBLE}, \
     {loss_loop_f32, loss_loop_f64}, \
     {(void *)&name##_loss_and_grad_f32, (void *)&name##_loss_and_grad_f64}}

/* The same with an alpha behind the weight. */
#define ALPHA_LOSS_OPERANDS(type) type, NPY_BOOL, NPY_INT64, type, NPY_DOUBLE, type, NPY_BOOL
static const bool alone = false, with_gradient = true;

#define SMOOTHED(name) \
    {#name, "(n),(n),()->(n)", "Scores, mask and strength to probabilities of " #name ".", 3, 1, \
     FORWARD_1_TYPES, {smoothed_loop_f32, smoothed_loop_f64}, \
     {(void *)&name##_f32, (void *)&name##_f64}}
#define PRODUCT(name, parameter) \
    {#name "_jvp", "(n),(n),()->(n)", \
     "Jacobian of " #name " at probabilities p, times v, for a " parameter ".", 3, 1, \
     JVP_1_TYPES, {product_loop_f32, product_loop_f64}, \
     {(void *)&name##_jvp_f32, (void *)&name##_jvp_f64}}

#define PARAMETRIC(name, parameter) \
    {#name, "(n),(n),()->(n)", "Scores, mask and " parameter " to probabilities of " #name ".", 3, 1, \
     FORWARD_1_TYPES, {parametric_loop_f32, parametric_loop_f64}, \
     {(void *)&name##_f32, (void *)&name##_f64}}
#define BOUNDED(name) \
    {#name, "(n),(n),(n)->(n)", "Scores, mask and bounds to probabilities of " #name ".", 3, 1, \
     BOUNDED_TYPES, {bounded_loop_f32, bounded_loop_f64}, \
     {(void *)&name##_f32, (void *)&name##_f64}}
#define BOUNDED_JVP(name, unbounded) \
    {#name "_jvp", "(n),(n),(n)->(n)", \
     "Jacobian of " #name " at probabilities p, times v, for upper bounds.", 3, 1, \
     BOUNDED_JVP_TYPES, {bounded_jvp_loop_f32, bounded_jvp_loop_f64}, \
     {(void *)&unbounded##_jvp_f32, (void *)&unbounded##_jvp_f64}}

/* So many operands of one type. */
#define SEVEN(type) type, type, type, type, type, type, type
#define ADAM_OPERANDS(type) \
    type, type, type, type, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE, type, type, type

extern const Kernel KERNELS[];
const Kernel KERNELS[] = {
    FORWARD(softmax, "softmax"),
    FORWARD(sparsemax, "sparsemax"),
    FORWARD(entmax15, "1.5-entmax"),
    {"entmax", "(n),(n),()->(n)", "Scores, mask and alpha to probabilities of alpha-entmax.", 3, 1,
     FORWARD_1_TYPES, {entmax_loop_f32, entmax_loop_f64}, {NULL, NULL}},
    {"topk_softmax", "(n),(n),()->(n)", "Scores, mask and k to probabilities of top-k softmax.", 3, 1,
     TOPK_TYPES, {topk_softmax_loop_f32, topk_softmax_loop_f64}, {NULL, NULL}},
    JVP(softmax, "softmax"),
    JVP(sparsemax, "sparsemax"),
    JVP(entmax15, "1.5-entmax"),
    {"entmax_jvp", "(n),(n),()->(n)", "Jacobian of alpha-entmax at probabilities p, times v.", 3, 1,
     JVP_1_TYPES, {entmax_jvp_loop_f32, entmax_jvp_loop_f64}, {NULL, NULL}},
    {"entmax_grad_alpha", "(n),()->(n)", "Derivative of alpha-entmax by alpha at probabilities p.", 2, 1,
     {NPY_FLOAT, NPY_DOUBLE, NPY_FLOAT, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE},
     {entmax_grad_alpha_loop_f32, entmax_grad_alpha_loop_f64}, {NULL, NULL}},
    FORWARD(log_softmax, "softmax, as logarithms"),
    FORWARD(log_sparsemax, "sparsemax, as logarithms"),
    FORWARD(log_entmax15, "1.5-entmax, as logarithms"),
    LOSS(softmax, "softmax"),
    LOSS(sparsemax, "sparsemax"),
    LOSS(entmax15, "1.5-entmax"),
    {"entmax_loss", "(n),(n),(),(),()->(),()", "As softmax_loss, with alpha behind the weight.", 5, 2,
     {ALPHA_LOSS_OPERANDS(NPY_FLOAT), ALPHA_LOSS_OPERANDS(NPY_DOUBLE)},
     {entmax_loss_loop_f32, entmax_loss_loop_f64}, {(void *)&alone, (void *)&alone}},
    {"entmax_loss_and_grad", "(n),(n),(),(),()->(),(),(n)",
     "As softmax_loss_and_grad, with alpha behind the weight.", 5, 3,
     {ALPHA_LOSS_OPERANDS(NPY_FLOAT), NPY_FLOAT, ALPHA_LOSS_OPERANDS(NPY_DOUBLE), NPY_DOUBLE},
     {entmax_loss_loop_f32, entmax_loss_loop_f64},
     {(void *)&with_gradient, (void *)&with_gradient}},
    LOSS_AND_GRAD(softmax, "softmax"),
    LOSS_AND_GRAD(sparsemax, "sparsemax"),
    LOSS_AND_GRAD(entmax15, "1.5-entmax"),
    SMOOTHED(fusedmax),
    SMOOTHED(oscarmax),
    PRODUCT(fusedmax, "strength"),
    PRODUCT(oscarmax, "strength"),
    BOUNDED(csoftmax),
    BOUNDED(csparsemax),
    BOUNDED_JVP(csoftmax, softmax),
    BOUNDED_JVP(csparsemax, sparsemax),
    PARAMETRIC(budget_sparsemax, "budget"),
    PARAMETRIC(normmax, "alpha"),
    PRODUCT(normmax, "alpha"),
    JVP(budget_sparsemax, "budget sparsemax"),
    {"csoftmax_vjp_upper", "(n),(n),(n)->(n)", "Gradient in p to gradient in the bounds.", 3, 1,
     BOUNDED_JVP_TYPES, {in_bounds_loop_f32, in_bounds_loop_f64},
     {(void *)&csoftmax_vjp_upper_f32, (void *)&csoftmax_vjp_upper_f64}},
    {"csparsemax_vjp_upper", "(n),(n),(n),(n)->(n)", "Gradient in p to gradient in the bounds.", 4, 1,
     {NPY_FLOAT, NPY_FLOAT, NPY_FLOAT, NPY_FLOAT, NPY_FLOAT, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE,
      NPY_DOUBLE, NPY_DOUBLE},
     {in_bounds_loop_f32, in_bounds_loop_f64},
     {(void *)&csparsemax_vjp_upper_f32, (void *)&csparsemax_vjp_upper_f64}},
    {"lstm_cell", "(4,n),(4,n),(n)->(4,n),(n),(n),(n)",
     "Two summands of pre-activations and the cell to gates, new cell, its tanh, hidden state.", 3, 4,
     {SEVEN(NPY_FLOAT), SEVEN(NPY_DOUBLE)}, {lstm_loop_f32, lstm_loop_f64}, {NULL, NULL}},
    {"lstm_cell_vjp", "(n),(n),(4,n),(n),(n)->(4,n),(n)",
     "Gradients of hidden state and cell to those of pre-activations and the cell before.", 5, 2,
     {SEVEN(NPY_FLOAT), SEVEN(NPY_DOUBLE)}, {lstm_vjp_loop_f32, lstm_vjp_loop_f64}, {NULL, NULL}},
    {"adam_step", "(),(),(),(),(),(),(),()->(),(),()",
     "Value, moments, gradient, step size, epsilon, decays to value and moments.", 8, 3,
     {ADAM_OPERANDS(NPY_FLOAT), ADAM_OPERANDS(NPY_DOUBLE)}, {adam_loop_f32, adam_loop_f64},
     {NULL, NULL}},
    {.name = NULL},
};
