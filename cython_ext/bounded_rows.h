/* csoftmax, csparsemax, budget_sparsemax and their derivatives, for one floating type: a template. The
 * NumPy twins are the files of these names in pyentmax/mappings/ and _bounded.py there.
 */

/* A mapping with upper bounds on a total; room is for ROOM n doubles. */
typedef struct {
    void (*row)(const REAL *restrict z, const REAL *restrict upper, double total, REAL *restrict p,
                ptrdiff_t n, double *restrict room);
} TYPED(Bounded);

#define ROUNDING (IS_DOUBLE ? DBL_EPSILON : FLT_EPSILON)

/* p = min(u, e^z r): full at r = u e^-z. The guess leaves all bounds out of account. */
#define FILLING(name) TYPED(csoftmax_##name)
#define GAUGE(gap) TYPED(scaled_exp)((REAL)(gap))
#define RAISED(a, t) ((a) * (t))
#define PACE(a) (a)
#define FULL_AT(a, u) ((u) / (a))
#define GUESS(left, sum, count) ((left) / (sum))
#define REACH(total) (IS_DOUBLE ? 100.0 : 40.0)
#include "filling_rows.h"

/* p = clip(z - tau, 0, u), t = -tau. Without bounds t is at most the total, which the largest entry alone
 * takes then, and at most its mean over any of the entries. */
#define FILLING(name) TYPED(csparsemax_##name)
#define GAUGE(gap) (gap)
#define RAISED(a, t) ((a) + (t))
#define PACE(a) 1
#define FULL_AT(a, u) ((u) - (a))
#define GUESS(left, sum, count) fmin(left, ((left) - (sum)) / (count))
#define REACH(total) (total)
#include "filling_rows.h"

#undef ROUNDING

/* Of a budget each entry takes 1 at most. */
static void TYPED(budget_row)(const REAL *restrict z, double budget, REAL *restrict p, ptrdiff_t n,
                              double *restrict room) {
    REAL *ones = (REAL *)(room + (ROOM - 1) * whole_lanes(n));
    TYPED(fill)(ones, n, 1);
    TYPED(csparsemax_row)(z, ones, budget, p, n, room);
}

static const TYPED(Parametric) TYPED(budget_sparsemax) = {TYPED(budget_row)};
static const TYPED(Bounded) TYPED(csoftmax) = {TYPED(csoftmax_row)};
static const TYPED(Bounded) TYPED(csparsemax) = {TYPED(csparsemax_row)};

/* (n),(n),(n)->(n): scores, mask and bounds to probabilities; data is the Bounded. */
static void TYPED(bounded_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                void *data) {
    const TYPED(Bounded) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], p_stride = steps[7];
    if (rows == 0 || n == 0) return;
    double *room = scratch_or_error(ROOM * whole_lanes(n) + 3 * n, sizeof(double));
    if (room == NULL) return;
    REAL *row = (REAL *)(room + ROOM * whole_lanes(n));

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const REAL *z = TYPED(masked)(args[0] + r * steps[0], steps[4], args[1] + r * steps[1],
                                      steps[5], n, row);
        const REAL *upper = TYPED(contiguous)(args[2] + r * steps[2], steps[6], n, row + n);
        REAL *p = TYPED(target)(to, p_stride, row + 2 * n);
        mapping->row(z, upper, 1, p, n, room);
        TYPED(deliver)(p, to, p_stride, n);
    }
    free(room);
    leave_no_float_flags();
}

/* (n),(n),(n)->(n): probabilities, a direction and bounds to the Jacobian's product; data is the Jvp of the
 * mapping without bounds. It is the same on the entries that are not full. */
static void TYPED(bounded_jvp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    const TYPED(Jvp) *unbounded = data;
    const ptrdiff_t rows = dims[0], n = dims[1], out_stride = steps[7];
    if (rows == 0 || n == 0) return;
    REAL *room = scratch_or_error(3 * n, sizeof(REAL)), *free_p = room;
    if (room == NULL) return;

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const char *p = args[0] + r * steps[0], *upper = args[2] + r * steps[2];
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL value = *(const REAL *)(p + i * steps[4]);
            free_p[i] = value >= *(const REAL *)(upper + i * steps[6]) ? (REAL)0 : value;
        }
        const REAL *v = TYPED(contiguous)(args[1] + r * steps[1], steps[5], n, room + n);
        REAL *out = TYPED(target)(to, out_stride, room + 2 * n);
        unbounded->row(free_p, v, out, n);
        TYPED(deliver)(out, to, out_stride, n);
    }
    free(room);
    leave_no_float_flags();
}

/* Which derivative in the bounds: are slopes 1 on the support, or p; and does p = 0 at a bound of 0 say that
 * the bound holds it down, or are scores needed to tell? */
typedef struct {
    bool unit_slopes, needs_scores;
} TYPED(InBounds);

/* The smallest of x. */
static double TYPED(bottom_of)(double *x, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) x[i] = -x[i];
    return -top_of(x, n);
}

/* Where a bound holds p down, p moves with it one to one, and the free entries make room in proportion to
 * their slopes s: g less the mean of g under s. As z - p is tau on the free entries and more on the
 * full, tau is its least value on the support; a bound of 0 holds down what scores above it. */
static void TYPED(product_in_bounds)(const TYPED(InBounds) *kind, const REAL *p, const REAL *g,
                                     const REAL *upper, const REAL *z, REAL *out, ptrdiff_t n,
                                     double *restrict room) {
    double *s = room, *along = room + n, least = 0, tau = -(double)INFINITY;
    bool alive = false;
    for (ptrdiff_t i = 0; i < n; i++) {
        s[i] = p[i] >= upper[i] ? 0 : kind->unit_slopes && p[i] > 0 ? 1 : p[i];
        along[i] = s[i] != 0 ? s[i] * g[i] : 0;
        alive |= p[i] > 0;
    }
    const double weight = sum_of(s, n), mean = weight != 0 ? sum_of(along, n) / weight : 0;
    if (kind->needs_scores) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? z[i] : (double)INFINITY;
        least = TYPED(bottom_of)(s, n); /* near tau: beside it no digit is lost to a full entry */
        for (ptrdiff_t i = 0; i < n; i++)
            s[i] = p[i] > 0 ? ((double)z[i] - least) - p[i] : (double)INFINITY;
        tau = TYPED(bottom_of)(s, n);
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        const bool holds = alive && p[i] >= upper[i]
                           && (!kind->needs_scores || (double)z[i] - least > tau);
        out[i] = p[i] != p[i] ? p[i] : holds ? (REAL)(g[i] - mean) : (REAL)0;
    }
}

/* (n),(n),(n)->(n) or (n),(n),(n),(n)->(n): probabilities, a gradient in them, bounds and, if needed, scores
 * to the gradient in the bounds; data is the InBounds. */
static void TYPED(in_bounds_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                  void *data) {
    const TYPED(InBounds) *kind = data;
    const int inputs = kind->needs_scores ? 4 : 3;
    const ptrdiff_t rows = dims[0], n = dims[1], *strides = steps + inputs + 1;
    if (rows == 0 || n == 0) return;
    double *room = scratch_or_error(7 * n, sizeof(double));
    if (room == NULL) return;
    REAL *row = (REAL *)(room + 2 * n);

    for (ptrdiff_t r = 0; r < rows; r++) {
        const REAL *in[4] = {NULL};
        for (int k = 0; k < inputs; k++)
            in[k] = TYPED(contiguous)(args[k] + r * steps[k], strides[k], n, row + k * n);
        char *to = args[inputs] + r * steps[inputs];
        REAL *out = TYPED(target)(to, strides[inputs], row + 4 * n);
        TYPED(product_in_bounds)(kind, in[0], in[1], in[2], in[3], out, n, room);
        TYPED(deliver)(out, to, strides[inputs], n);
    }
    free(room);
    leave_no_float_flags();
}

static const TYPED(InBounds) TYPED(csoftmax_vjp_upper) = {false, false};
static const TYPED(InBounds) TYPED(csparsemax_vjp_upper) = {true, true};
