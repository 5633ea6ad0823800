/* normmax of one row and its Jacobian's product: a template. The NumPy twin, with the derivation,
 * is pyentmax/reference/mappings/normmax.py.
 *
 * With gaps x = z - max z <= 0 and the threshold as s = 1 + tau >= 0, q = [1 + w]+^power, w = x - s
 * and power = 1/(alpha - 1); and q^alpha = [1 + w]+^(1/beta) = q (1 + w) as 1/beta = 1 + power, so
 * that one power gives all. All of it is in double, whatever the scores are.
 */
#ifndef PYENTMAX_MAPPINGS_NORMMAX_H
#define PYENTMAX_MAPPINGS_NORMMAX_H

#include "elementary/powers.h"
#include "gufunc/jvp_loops.h"
#include "gufunc/mapping_loops.h"
#include "rows/doubles.h"
#include "rows/steps.h"

enum {
    LONGEST_NORMMAX = 128
}; /* of short rows: of longer ones, tiles of doubles fill the caches */

/* u = 1 + x - s, exact near 0 and near 1, and u^power, for registers of a row; 0 below 0. */
static void bases_and_powers(const double *x, ptrdiff_t n, double s, double power, double *u,
                             double *q) {
    const Register_f64 none = {0}, far = none - 0.5, exponent = none + power;
    for (ptrdiff_t i = 0; i < n; i += WIDTH_f64) {
        const Register_f64 gap = load_first_f64(x + i, n - i);
        Register_f64 r = gap - s, base = choose_above_f64(gap, far, 1 + r, (1 + gap) - s);
        Register_f64 raised = at_least_f64(base, DBL_MIN);
        power_of_registers_f64(&raised, &r, exponent, 1);
        base = at_least_f64(base, 0);
        raised = choose_above_f64(base, none, raised, none) * 0x1p-512;
        store_first_f64(base, u + i, n - i);
        store_first_f64(raised, q + i, n - i);
    }
}

/* The columns of a tile of gaps, without a largest entry of each, which is taken by itself: s, and
 * what a pass finds there, the step of it included. */
typedef struct {
    double s[BLOCK], power[BLOCK], beta[BLOCK], top[BLOCK], sum[BLOCK], step[BLOCK];
    ptrdiff_t size[BLOCK];
    bool linear; /* all powers are 1 */
} NormColumns;

static void norm_pass(const double *restrict x, double *restrict q, NormColumns *restrict c) {
    const Register_f64 none = {0}, far = none - 0.5;
    const double unit = c->linear ? 1 : 0x1p-512;
    for (int j = 0; j < BLOCK; j += WIDTH_f64) {
        const Register_f64 s = load_register_f64(c->s + j), power = load_register_f64(c->power + j);
        const Register_f64 log_top = log2_of_1_plus_each_f64(-s);
        const Register_f64 raised_top = exp2_of_each_f64(at_least_f64(power * log_top, -1000));
        const Register_f64 top = choose_f64(power == 1, 1 - s, raised_top);
        Register_f64 sum = top;
        Register_f64 excess = exp2_less_1_of_each_f64(at_least_f64((1 + power) * log_top, -1000));
        ptrdiff_t size = 1;
        for (int k = j; k < j + WIDTH_f64; k++) size = c->size[k] > size ? c->size[k] : size;
        for (ptrdiff_t i = j; i < (size - 1) * BLOCK; i += BLOCK) {
            const Register_f64 gap = load_register_f64(x + i), w = gap - s;
            const Register_f64 base = choose_above_f64(gap, far, 1 + w, (1 + gap) - s);
            Register_f64 raised = at_least_f64(base, DBL_MIN);
            if (!c->linear) power_of_registers_f64(&raised, &w, power, 1);
            raised = choose_above_f64(base, none, raised, none) * unit;     /* few underflow */
            raised = choose_f64(power == 1, at_least_f64(base, 0), raised); /* to the last bit */
            store_register_f64(raised, q + i);
            sum += raised;
            excess += raised * at_least_f64(base, 0);
        }
        const Register_f64 log_norm = log2_of_1_plus_each_f64(excess);
        const Register_f64 root = exp2_less_1_of_each_f64(-load_register_f64(c->beta + j)
                                                          * log_norm);
        store_register_f64(top, c->top + j);
        store_register_f64(sum, c->sum + j);
        store_register_f64((1 + excess) * -root / sum, c->step + j);
    }
}

#define TEMPLATE "mappings/normmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

PARAMETRIC_MAPPING(normmax, "alpha")
PARAMETRIC_JVP(normmax, "alpha")

#elif defined(REAL)

#define ROUNDING (IS_DOUBLE ? 8 * DBL_EPSILON : 1e-4)

/* Gaps at x that are above s - 1, and where they stood, to the front; returns their number. */
static ptrdiff_t TYPED(keep_reached)(double *x, ptrdiff_t *place, ptrdiff_t n, double s) {
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        x[size] = x[i];
        place[size] = place[i];
        size += 1 + x[i] > s;
    }
    return size;
}

/* Newton's method on (sum q^alpha)^beta, a norm of [1 + w]+ and so a convex function of s: from the
 * left it rises to where the norm is 1 (`newton` in pyentmax/reference/thresholds/newton.py, which
 * bounds the steps by 60 for rows that memory holds), and what once falls off the support stays
 * off. The start is at the left: by convexity, m entries have sum q^alpha >= m (1 + mean
 * w)^(1/beta).
 *
 * A largest entry comes first, and gives its q^alpha less 1: so what the sum exceeds 1 by keeps its
 * digits however little it is, and near the threshold 1 + x is exact, and so is that less a small
 * s. */
static void TYPED(normmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                               const TYPED(RowContext) *with) {
    const double alpha = with->number[0];
    double *restrict scratch = with->scratch;
    const REAL largest = TYPED(chunk_maxima)(z, n, (REAL *)scratch);
    if (!(largest > -(REAL)INFINITY && largest < (REAL)INFINITY)) {
        TYPED(fill)(p, n, largest < 0 ? (REAL)0 : (REAL)NAN);
        return;
    }
    double *x = scratch, *q = scratch + n, *q_alpha = scratch + 2 * n;
    ptrdiff_t *place = (ptrdiff_t *)(scratch + 3 * n), first = 0, size = 1;
    while (first < n - 1 && z[first] != largest) first++;
    x[0] = 0;
    place[0] = first;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double gap = (double)z[i] - largest;
        if (!(gap > -1) || i == first) continue;
        x[size] = gap;
        place[size++] = i;
    }
    const double power = 1 / (alpha - 1), beta = 1 / (1 + power);
    const double start = 1 + sum_of(x, size) / (double)size
                         - exp2_of_f64(-beta * log2_of_f64((double)size));
    double s = start > 0 ? start : 0, sum = 1;
    for (int pass = 0, last = 60;; pass++) {
        size = TYPED(keep_reached)(x, place, size, s);
        bases_and_powers(x, size, s, power, q_alpha, q);
        if (power == 1) memcpy(q, q_alpha, (size_t)size * sizeof *q); /* to the last bit */
        for (ptrdiff_t i = 0; i < size; i++) q_alpha[i] *= q[i];
        q_alpha[0] = exp2_less_1_f64(fmax((1 + power) * log2_of_1_plus_f64(-s), -1000));
        sum = sum_of(q, size);
        if (pass == last) break;
        const double excess = sum_of(q_alpha, size);
        const double step = (1 + excess) * -exp2_less_1_f64(-beta * log2_of_1_plus_f64(excess))
                            / sum;
        /* One move more than seems needed takes the rounding of the last off s. */
        if (!(fabs(step) > ROUNDING * s) && pass + 2 < last) last = pass + 2;
        s += step;
    }
    TYPED(fill)(p, n, 0);
    for (ptrdiff_t i = 0; i < size; i++) p[place[i]] = (REAL)(q[i] / sum);
}

/* normmax_row() of short rows side by side, each with its gaps above -1 in a column. */
static void TYPED(normmax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                 ptrdiff_t n, const TYPED(RowContext) *with) {
    double *x = with->scratch, *q = x + BLOCK * n;
    int32_t *place = (int32_t *)(q + BLOCK * n);
    REAL largest[BLOCK];
    NormColumns c;
    c.linear = true;
    for (ptrdiff_t i = 0; i < n * BLOCK; i++) x[i] = -INFINITY; /* 0 for whatever s */
    for (int j = 0; j < BLOCK; j++) {
        largest[j] = TYPED(chunk_maxima)(z[j], n, (REAL *)q);
        double sum = 0;
        ptrdiff_t kept = 1, first = -1;
        for (ptrdiff_t i = 0; i < n; i++) {
            const double gap = (double)z[j][i] - largest[j];
            if (!(gap > -1)) continue;
            if (gap == 0 && first < 0) {
                first = i;
                continue;
            }
            x[(kept - 1) * BLOCK + j] = gap;
            place[kept++ * BLOCK + j] = (int32_t)i;
            sum += gap;
        }
        place[j] = (int32_t)first;
        c.size[j] = first < 0 ? 0 : kept;
        c.power[j] = 1 / (with->number[j] - 1);
        c.beta[j] = 1 / (1 + c.power[j]);
        c.linear &= c.power[j] == 1;
        const double above = (double)kept;
        c.s[j] = larger_f64(1 + sum / above - exp2_of_f64(-c.beta[j] * log2_of_f64(above)), 0);
    }
    int more[BLOCK], moving = 60;
    for (int j = 0; j < BLOCK; j++) more[j] = moving;
    for (;;) {
        norm_pass(x, q, &c);
        if (!moving) break;
        moving = 0;
        for (int j = 0; j < BLOCK; j++) { /* a column stops where it would alone */
            if (more[j] > 2 && !(fabs(c.step[j]) > ROUNDING * c.s[j])) more[j] = 2;
            if (more[j] > 0) c.s[j] += c.step[j];
            more[j] -= more[j] > 0;
            moving |= more[j];
        }
    }
    for (int j = 0; j < count; j++) {
        TYPED(fill)(p[j], n, 0);
        for (ptrdiff_t i = 0; i < c.size[j]; i++)
            p[j][place[i * BLOCK + j]] = (REAL)((i == 0 ? c.top[j] : q[(i - 1) * BLOCK + j])
                                                / c.sum[j]);
        TYPED(fill_degenerate_row)(p[j], n, largest[j]);
    }
}

static const TYPED(Mapping)
    TYPED(normmax) = {A_PARAMETER, TYPED(normmax_row), TYPED(normmax_block), LONGEST_NORMMAX};

#undef ROUNDING

/* J v = t - p sum t, t = s (v - p.v), s = p (|p|/p)^(alpha - 1)/(alpha - 1), |p| the alpha-norm,
 * from logarithms: |p|/p may overflow, and s, which is kept as a part of the largest. J 1 = 0, so v
 * may be taken relative to v_k where p is largest, and then nothing cancels there: 1 - p_k is the
 * sum of the others. At alpha = infinity p only ever jumps, and s = 0. */
static void TYPED(normmax_product)(const REAL *p, const REAL *v, double alpha, REAL *out,
                                   ptrdiff_t n, double *restrict scratch) {
    double *log_s = scratch, *share = scratch + n, *apart = scratch + 2 * n, *t = scratch + 3 * n;
    ptrdiff_t *place = (ptrdiff_t *)(scratch + 4 * n), size = 0, k = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        share[size] = p[i];
        apart[size] = v[i];
        place[size] = i;
        size += p[i] != 0;
    }
    TYPED(fill)(out, n, 0);
    const double power = 1 / (alpha - 1), least = 1e-300;
    if (size == 0) return;
    if ((REAL)alpha == INFINITY) {
        for (ptrdiff_t i = 0; i < n; i++) out[i] = p[i] == p[i] ? (REAL)0 : p[i];
        return;
    }
    for (ptrdiff_t i = 0; i < size; i++) {
        log_s[i] = log(share[i]);
        k = share[i] > share[k] ? i : k;
    }
    const double log_top = log_s[k], v_k = apart[k], steepness = power > least ? power : least;
    for (ptrdiff_t i = 0; i < size; i++) t[i] = exp(alpha * (log_s[i] - log_top));
    const double log_norm = log_top + log(sum_of(t, size)) / alpha;
    double top = -(double)INFINITY;
    for (ptrdiff_t i = 0; i < size; i++) {
        log_s[i] += (log_norm - log_s[i]) / steepness;
        top = log_s[i] > top ? log_s[i] : top;
    }
    for (ptrdiff_t i = 0; i < size; i++) {
        apart[i] -= v_k;
        t[i] = share[i] * apart[i];
    }
    const double mean = sum_of(t, size), log_scale = top + log(power), scale = exp(log_scale);
    for (ptrdiff_t i = 0; i < size; i++) t[i] = exp(log_s[i] - top) * (apart[i] - mean);
    const double t_k = t[k], p_k = share[k], sum = sum_of(t, size);
    t[k] = share[k] = 0;
    const double at_k = t_k * sum_of(share, size) - p_k * sum_of(t, size);
    for (ptrdiff_t i = 0; i < size; i++) {
        const double moved = i == k ? at_k : t[i] - share[i] * sum;
        if (scale < (double)INFINITY || !(moved != 0))
            out[place[i]] = moved == 0 ? (REAL)0 : (REAL)(scale * moved);
        else /* of an s beyond floats a small part may not be */
            out[place[i]] = (REAL)copysign(exp(log_scale + log(fabs(moved))), moved);
    }
}

static const TYPED(ParametricJvp) TYPED(normmax_jvp) = {TYPED(normmax_product)};

#endif
