/* All kernels for float and double, and their table: everything that is compiled once per instruction
 * set. The including file defines KERNELS, the table's name; everything else stays static in it. */
#include "gufunc.h"
#include "kernels.h"
#include "rows.h"

#include <numpy/ndarraytypes.h>

/* Fills half gaps up to whole lanes: any value below -1, which is as low as t <= 1 reaches. */
#define OUTSIDE (-2)

/* Never reached: a tangent step at least squares the relative error, once close, and the passes
 * before that are few (ten is the most the tests ever see). It keeps a rounding cycle from
 * being an endless loop, and after it the last step of the quadratic is a Newton step all the same. */
#define MAX_PASSES 64

/* Of [h + t]+ over a row: the sums of squares and of values, and how many are positive. */
typedef struct {
    double squares, sum, size;
} Moments;

/* sum s v and sum s. */
typedef struct {
    double product, weight;
} Weighted;

/* How far t has to move for sum (h + t)^2 = 1 over a fixed support: the larger root of
 * size d^2 + 2 sum d + squares - 1 = 0, in the form that does not cancel. A negative
 * discriminant means that no t does it, and the vertex of the parabola comes closest. */
static inline double quadratic_step(Moments m) {
    double excess = m.squares - 1, discriminant = m.sum * m.sum - m.size * excess;
    return -excess / (m.sum + sqrt(discriminant > 0 ? discriminant : 0));
}

#define REAL float
#define SQRT sqrtf
#define TYPED(name) name##_f32
#include "entmax15_rows.h"
#include "gufunc_rows.h"
#undef REAL
#undef SQRT
#undef TYPED

#define REAL double
#define SQRT sqrt
#define TYPED(name) name##_f64
#include "entmax15_rows.h"
#include "gufunc_rows.h"
#undef REAL
#undef SQRT
#undef TYPED

/* Operands of a mapping (scores, mask, probabilities) and of a Jacobian product (p, v, product). */
#define FORWARD_TYPES {NPY_FLOAT, NPY_BOOL, NPY_FLOAT, NPY_DOUBLE, NPY_BOOL, NPY_DOUBLE}
#define JVP_TYPES {NPY_FLOAT, NPY_FLOAT, NPY_FLOAT, NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE}

extern const Kernel KERNELS[];
const Kernel KERNELS[] = {
    {"entmax15", "(n),(n)->(n)", "Scores and mask to probabilities of 1.5-entmax.", 2,
     FORWARD_TYPES, {entmax15_loop_f32, entmax15_loop_f64}},
    {"entmax15_jvp", "(n),(n)->(n)", "Jacobian of 1.5-entmax at probabilities p, times v.", 2,
     JVP_TYPES, {entmax15_jvp_loop_f32, entmax15_jvp_loop_f64}},
    {.name = NULL},
};
