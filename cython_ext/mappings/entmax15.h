/* 1.5-entmax of one row, its logarithm and its Jacobian's product: a template. The NumPy twin is
 * pyentmax/reference/mappings/entmax15.py, with the derivation; the equations are section 3.3 and
 * appendix C of Peters, Niculae and Martins (2019).
 *
 * Scores are kept as half gaps h = (z - max z)/2 <= 0, and the threshold as t = -tau > 0, so that
 *
 *     p_i = [h_i + t]+^2   with   f(t) = sum_i [h_i + t]+^2 = 1   and   0 < t <= 1,
 *
 * the upper bound because the largest entry alone, h = 0, contributes t^2 to the sum.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX15_H
#define PYENTMAX_MAPPINGS_ENTMAX15_H

#include "mappings/_separable_jvp.h"
#include "mappings/_sparse_mapping.h"

/* How far t has to move for sum (h + t)^2 = 1 over a fixed support: the larger root of
 * size d^2 + 2 sum d + squares - 1 = 0, in the form that does not cancel. A negative
 * discriminant means that no t does it, and the vertex of the parabola comes closest. */
static inline double quadratic_step(Moments m) {
    double excess = m.squares - 1, discriminant = m.sum * m.sum - m.size * excess;
    return -excess / (m.sum + sqrt(discriminant > 0 ? discriminant : 0));
}

#define TEMPLATE "mappings/entmax15.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

MAPPING(entmax15, "1.5-entmax")
MAPPING(log_entmax15, "1.5-entmax, as logarithms")
JVP(entmax15, "1.5-entmax")

#elif defined(REAL)

/* Find t with f(t) = 1, from a start in (0, 1]; leave f's moments at t in *at_t.
 *
 * Each pass takes two steps from t. The square root of f, the norm of [h + t]+, is convex in t, so
 * the root of its tangent is at or above the root wanted: the tangent step always gives an upper
 * bound. If the support is right already, f is a quadratic around t, and the quadratic's own root
 * is exact: that step is taken when it lies within the bounds known so far. Supports are nested in
 * t, so two passes in a row that count the same size saw the same support, and the root is found.
 */
static REAL TYPED(entmax15_solve)(REAL *h, ptrdiff_t n, REAL t, Moments *at_t) {
    double lower = 0, upper = 1, size_before = 0;
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        const Moments m = *at_t = TYPED(moments)(h, n, t, true);
        if (m.size == size_before) break;

        const double norm = sqrt(m.squares), tangent = t + (1 - norm) * norm / m.sum;
        if (m.squares < 1 && t > lower) lower = t;
        if (m.squares >= 1 && t < upper) upper = t;
        if (tangent < upper) upper = tangent;

        const double exact = t + quadratic_step(m);
        const bool trust = lower < exact && exact <= upper;
        const REAL next = (REAL)(trust ? exact : upper);
        if (next == t) break;
        size_before = trust ? m.size : 0;
        t = next;
        if (m.size < n / 2) n = TYPED(shrink)(h, n, (REAL)upper);
    }
    return t;
}

/* [h + t]+^2, and what t lacks: t is the root but rounded, and all entries would share that error,
 * which many small ones add up to something visible. `rest` is the last step of the quadratic, too
 * small to matter in t itself. Adding 2 u rest instead of rest to u makes up for the rounding of
 * the squares too, so that two ties get 1/2 each. */
ALWAYS_INLINE REAL TYPED(entmax15_entry)(REAL h, REAL t, REAL rest) {
    REAL u = h + t;
    u = u > 0 ? u : (REAL)0;
    const REAL q = u * u + u * (2 * rest);
    return q > 0 ? q : (REAL)0;
}

/* One pass of entmax15_solve in every column; tells whether any moved. A column that has arrived
 * stays where it is. A choice to a loop, in a function of its own: of several that depend on each
 * other compilers make branches. */
NEVER_INLINE bool TYPED(entmax15_step)(const TYPED(BlockMoments) *restrict m,
                                       TYPED(SparseColumns) *restrict c) {
    REAL next[BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        const REAL norm = SQRT(m->squares[j]);
        const REAL tangent = c->t[j] + (1 - norm) * norm / m->sum[j];
        c->upper[j] = tangent < c->upper[j] ? tangent : c->upper[j];
    }
    for (int j = 0; j < BLOCK; j++) {
        const REAL sum = m->sum[j], excess = m->squares[j] - 1;
        const REAL discriminant = sum * sum - m->size[j] * excess;
        c->rest[j] = -excess / (sum + SQRT((discriminant + FABS(discriminant)) / 2));
    }
    for (int j = 0; j < BLOCK; j++) {
        const BITS above_lower = (m->squares[j] < 1) & (c->t[j] > c->lower[j]);
        c->lower[j] = above_lower ? c->t[j] : c->lower[j];
    }
    for (int j = 0; j < BLOCK; j++) {
        const REAL exact = c->t[j] + c->rest[j];
        const REAL nearest = exact < c->upper[j] ? exact : c->upper[j];
        next[j] = exact > c->lower[j] ? nearest : c->upper[j];
    }
    BITS moving = 0;
    for (int j = 0; j < BLOCK; j++) {
        const BITS arrived = m->size[j] == c->size_before[j];
        const BITS trusted = next[j] == c->t[j] + c->rest[j];
        moving |= (arrived ^ 1) & (next[j] != c->t[j]);
        c->t[j] = arrived ? c->t[j] : next[j];
        c->size_before[j] = (REAL)(arrived | trusted) * m->size[j];
    }
    return moving != 0;
}

static const TYPED(SparseMapping) TYPED(entmax15_parts) = {
    .scale = (REAL)0.5,
    .squared = true,
    .solve = TYPED(entmax15_solve),
    .lacks = quadratic_step,
    .entry = TYPED(entmax15_entry),
    .step = TYPED(entmax15_step),
};
SPARSE_MAPPING(entmax15)

ALWAYS_INLINE REGISTER TYPED(entmax15_inverse_curvature)(REGISTER p) {
    return TYPED(root)(p);
}
SEPARABLE_JVP(entmax15, true)

#endif
