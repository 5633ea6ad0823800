/* The Jacobian of α-entmax at p times v, and derivatives in α: a template. The NumPy twins are
 * `entmax_jvp`, `entmax_vjps` and `entmax_grad_alpha` in pyentmax/reference/mappings/entmax.py, and
 * _simplex.py.
 *
 * On the support s = 1/Omega''(p) = p^(2-α): proposition 1 of Peters, Niculae and Martins (2019).
 *
 * The scores are z = ∇Ω(p) + a constant. Let b = ∂∇Ω(p)/∂α, which says how they would have to move
 * for p to stay as α grows. They do not move, so that ∂p/∂α = -J b, which is proposition 1 of
 * Correia, Niculae and Martins (2019). With β = α - 1, l = log p and x = -β l,
 *
 *     b = (p^β (β l - 1) + 1)/β² = l² χ(x),    χ(x) = (1 - (1 + x) e^-x)/x²,
 *
 * whose limit at α = 1 is l²/2. The powers s of J take log p too, and e^-x = p^β is p/s. Above
 * α = 2, where s may overflow, the published form is J b with s ∘ p^β = p put in. As J is
 * symmetric, the gradient in α is a sum over the product J v that the gradient in z is:
 *
 *     Σ v ∘ ∂p/∂α = -Σ b ∘ J v.
 *
 * Rows of one α that together fill a leaf go side by side: powers want more than a short row of
 * them at a time.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_JVP_H
#define PYENTMAX_MAPPINGS_ENTMAX_JVP_H

#include <numpy/ndarraytypes.h>

#include "elementary/powers.h"
#include "gufunc/jvp_loops.h"
#include "mappings/_separable_jvp.h"
#include "mappings/entmax15.h"
#include "mappings/softmax.h"
#include "mappings/sparsemax.h"

#define GRAD_ALPHA_OPERANDS(real) real, NPY_DOUBLE, real
#define VJPS_OPERANDS(real) real, real, NPY_DOUBLE, real, real
#define VJP_ALPHA_OPERANDS(real) real, real, NPY_DOUBLE, real
#define PRODUCTS_SCRATCH (3 * rows_of_a_leaf(n) * n * (ptrdiff_t)sizeof(REAL))
#define BELOW_ALL (-(REAL)1e7) /* any -b, which is -log²p/2 or closer to 0 */

/* How many rows share a leaf; 1 if they do not. */
static inline int rows_of_a_leaf(ptrdiff_t n) {
    return n > KEPT_ROW ? 1 : LEAF / n < BLOCK ? (int)(LEAF / n) : BLOCK;
}

#define TEMPLATE "mappings/entmax_jvp.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax_jvp", "(n),(n),()->(n)",
                      "Jacobian of alpha-entmax at probabilities p, times v.", 3, 1,
                      PARAMETRIC_JVP_OPERANDS, entmax_jvp_loop)
KERNEL_WITHOUT_RECORD("entmax_vjps", "(n),(n),()->(n),()",
                      "Gradients of alpha-entmax in scores and alpha, from that in p.", 3, 2,
                      VJPS_OPERANDS, entmax_vjps_loop)
KERNEL_WITHOUT_RECORD("entmax_vjp_alpha", "(n),(n),()->()",
                      "Gradient of alpha-entmax in alpha, from that in p.", 3, 1,
                      VJP_ALPHA_OPERANDS, entmax_vjp_alpha_loop)
KERNEL_WITHOUT_RECORD("entmax_grad_alpha", "(n),()->(n)",
                      "Derivative of alpha-entmax by alpha at probabilities p.", 2, 1,
                      GRAD_ALPHA_OPERANDS, entmax_grad_alpha_loop)

#elif defined(REAL)

/* 2 - α, but never so large that times a logarithm it would overflow. */
static inline REAL TYPED(power_of_curvature)(double alpha) {
    const double most = IS_DOUBLE ? 1e304 : 1e34;
    return (REAL)(2 - (alpha < most ? alpha : most));
}

/* p^exponent of n entries; 1 where p is not positive, which takes no time as a denormal would. p
 * and power may be one. */
static void TYPED(curvature_powers)(const REAL *p, ptrdiff_t n, double exponent, REAL *power) {
    const REGISTER none = {0}, one = none + 1;
    for (ptrdiff_t i = 0; i < n; i += UNROLL * WIDTH) {
        REGISTER u[UNROLL];
        for (int k = 0; k < UNROLL; k++) {
            u[k] = TYPED(load_first)(p + i + k * WIDTH, n - i - k * WIDTH);
            u[k] = TYPED(choose_above)(u[k], none, u[k], one);
        }
        TYPED(wide_power_of_registers)(u, exponent, UNROLL);
        for (int k = 0; k < UNROLL; k++)
            TYPED(store_first)(u[k], power + i + k * WIDTH, n - i - k * WIDTH);
    }
}

/* The same of positive entries alone; 0 for the others of whole lanes. */
static void TYPED(curvature_powers_of_positive)(const REAL *restrict p, ptrdiff_t n,
                                                double exponent, REAL *restrict power) {
    REAL positive[LEAF + LANES];
    const ptrdiff_t whole = n / LANES * LANES, rest = n - whole;
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < whole; i += LANES)
        size += TYPED(keep_above)(p + i, 0, positive + size);
    memcpy(positive + size, p + whole, (size_t)rest * sizeof(REAL));
    TYPED(curvature_powers)(positive, size + rest, exponent, positive);
    const REAL *from = positive;
    for (ptrdiff_t i = 0; i < whole; i += LANES)
        from += TYPED(put_above)(p + i, 0, from, power + i);
    memcpy(power + whole, from, (size_t)rest * sizeof(REAL));
}

/* Does it pay to take powers of positive entries alone? Of dense rows that takes longer. */
static bool TYPED(is_sparse)(const REAL *x, ptrdiff_t n) {
    BITS positive = 0;
    for (ptrdiff_t i = 0; i < n; i++) positive += x[i] > 0;
    return 2 * positive < n;
}

/* s = p^(2-α) of n <= LEAF entries for α <= 2: 0 where p is 0, NaN where p is. */
static void TYPED(inverse_curvature)(const REAL *restrict p, ptrdiff_t n, double alpha,
                                     REAL *restrict s) {
    if (alpha == 1) {
        memcpy(s, p, (size_t)n * sizeof(REAL));
    } else if (alpha == 1.5) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = SQRT(p[i]);
    } else if (alpha == 2) {
        for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? (REAL)1 : p[i];
    } else {
        if (TYPED(is_sparse)(p, n))
            TYPED(curvature_powers_of_positive)(p, n, 2 - alpha, s);
        else
            TYPED(curvature_powers)(p, n, 2 - alpha, s);
        for (ptrdiff_t i = 0; i < n; i++) s[i] = p[i] > 0 ? s[i] : p[i];
    }
}

#define LOG2_E ((REAL)1.44269504088896340736)
#define LN_2 ((REAL)0.693147180559945309417)

/* χ(x) for x >= 0, given e^-x. Below 0.5, where it would cancel, by its Taylor series
 * Σ (-x)^k/(k! (k + 2)). */
static inline REAL TYPED(chi)(REAL x, REAL e) {
#if IS_DOUBLE
    REAL y = x * (1.0 / 1394852659200) - 1.0 / 93405312000; /* 0.5^15/(15! 17) is 1e-18 */
    y = y * x + 1.0 / 6706022400;
    y = y * x - 1.0 / 518918400;
    y = y * x + 1.0 / 43545600;
    y = y * x - 1.0 / 3991680;
    y = y * x + 1.0 / 403200;
    y = y * x - 1.0 / 45360;
#else
    REAL y = x * (1 / (REAL)403200) - 1 / (REAL)45360; /* 0.5^9/(9! 11) is 5e-10 */
#endif
    y = y * x + 1 / (REAL)5760;
    y = y * x - 1 / (REAL)840;
    y = y * x + 1 / (REAL)144;
    y = y * x - 1 / (REAL)30;
    y = y * x + 1 / (REAL)8;
    y = y * x - 1 / (REAL)3;
    y = y * x + (REAL)0.5;
    const REAL direct = (1 - (1 + x) * e) / (x * x);
    return x < (REAL)0.5 ? y : direct;
}

/* s = p^(2-α) for α <= 2 and, unless NULL, -b; BELOW_ALL off the support. */
static void TYPED(weights_and_slopes)(const REAL *restrict p, ptrdiff_t n, double alpha,
                                      REAL *restrict s, REAL *restrict slope) {
    const REAL beta = (REAL)(alpha - 1);
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        REAL log2_p[LEAF];
        if (n > LEAF && !TYPED(any_nonzero)(p + start, end - start)) {
            TYPED(fill)(s + start, end - start, 0);
            if (slope) TYPED(fill)(slope + start, end - start, BELOW_ALL);
            continue;
        }
        TYPED(inverse_curvature)(p + start, end - start, alpha, s + start);
        if (slope == NULL) continue;
        TYPED(log2_of_row)(p + start, end - start, log2_p);
        for (ptrdiff_t i = start; i < end; i++) {
            const REAL l = log2_p[i - start] * LN_2;
            const REAL b = l * l * TYPED(chi)(-beta * l, p[i] / s[i]);
            slope[i] = p[i] > 0 ? -b : BELOW_ALL;
        }
    }
}

/* For 2 < α < ∞, with weights as powers of p/min p; k is where p is largest. room holds two rows.
 */
static void TYPED(grad_alpha_above_2)(const REAL *restrict p, ptrdiff_t n, ptrdiff_t k,
                                      double alpha, REAL *restrict room, REAL *restrict out) {
    REAL *const log_p = room, *const share = room + n, lowest = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF)
        TYPED(log2_of_row)(p + start, n - start < LEAF ? n - start : LEAF, log_p + start);
    for (ptrdiff_t i = 0; i < n; i++) {
        log_p[i] = p[i] > 0 ? log_p[i] * LN_2 : (REAL)0;
        lowest = TYPED(smaller)(log_p[i], lowest);
    }
    const REAL beta = (REAL)(alpha - 1), log_top = log_p[k];
    const REAL slope = TYPED(power_of_curvature)(alpha) * LOG2_E;
    double weight = 0, mean = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL exponent = slope * (log_p[i] - lowest);
        share[i] = TYPED(exp2_of)(exponent > -EXPONENT_BIAS ? exponent : (REAL)-EXPONENT_BIAS);
        share[i] = p[i] > 0 ? share[i] : (REAL)0;
        weight += share[i];
        mean += (double)p[i] * (log_p[i] - log_top);
    }
    const REAL total = (REAL)weight, center = (REAL)mean;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL part = share[i] / total, apart = p[i] - part, dl = log_p[i] - log_top;
        out[i] = p[i] == 0
                     ? (REAL)0
                     : apart / beta / beta - ((p[i] * dl - part * center) + log_top * apart) / beta;
    }
}

/* room holds two rows. */
static void TYPED(grad_alpha_row)(const REAL *restrict p, REAL *restrict out, ptrdiff_t n,
                                  double alpha, REAL *restrict room) {
    ptrdiff_t k = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] != p[i]) {
            TYPED(fill)(out, n, p[i]);
            return;
        }
        if (p[i] > p[k]) k = i;
    }
    if (p[k] == 0 || (REAL)alpha == INFINITY) /* nothing left, or nothing that moves */
        TYPED(fill)(out, n, 0);
    else if (alpha > 2)
        TYPED(grad_alpha_above_2)(p, n, k, alpha, room, out);
    else { /* J b, b taken less that of the largest p, which may have nearly all of the weight */
        TYPED(weights_and_slopes)(p, n, alpha, out, room);
        const REAL origin = room[k];
        for (ptrdiff_t i = 0; i < n; i++) room[i] -= origin;
        TYPED(product_from_weights)(out, room, n);
    }
}

static void TYPED(run_grad_alpha)(TYPED(Rows) *rows, void *context) {
    (void)context;
    for (int j = 0; j < rows->count; j++) {
        const double alpha = rows->number[0][j];
        if (alpha >= 1)
            TYPED(grad_alpha_row)(rows->in[0][j], rows->out[j], rows->n, alpha, rows->scratch);
        else
            TYPED(fill)(rows->out[j], rows->n, (REAL)NAN);
    }
}

/* (n),()->(n): probabilities and α to the derivative by α. */
ROW_LOOP(entmax_grad_alpha_loop, "rd>r", TYPED(run_grad_alpha), false, 2 * n * sizeof(REAL))

#undef LOG2_E
#undef LN_2

/* The product where v_i = v_k, k being where p is least, in a row with an s beyond floats: where it
 * is that of i or the sum along the others, -s_i/Σs Σ s_j (v_j - v_k), by logarithms of base 2. */
NEVER_INLINE void TYPED(entmax_jvp_beyond)(const REAL *restrict p, const REAL *restrict v,
                                           REAL *restrict out, ptrdiff_t n, ptrdiff_t k,
                                           double slope, double weight, double mean) {
    double least = (double)INFINITY, along = 0; /* slope < 0 */
    for (ptrdiff_t j = 0; j < n; j++)
        if (p[j] > 0 && v[j] != v[k]) least = fmin(least, log2(p[j]));
    for (ptrdiff_t j = 0; j < n; j++)
        if (p[j] > 0 && v[j] != v[k])
            along += exp2(slope * (log2(p[j]) - least)) * ((double)v[j] - v[k]);
    const double log_least = log2(p[k]), log_weight = log2(weight);
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] == 0 || v[i] != v[k]) continue;
        const double s = exp2(slope * ((log2(p[i]) - log_least) + least) - log_weight);
        if (i != k && out[i] < INFINITY)
            out[i] *= (REAL)-mean;
        else
            out[i] = along == 0 ? (REAL)0 : (REAL)(-along * s);
    }
}

/* The product for α > 2, where s grows as p nears 0 and may overflow: weights are powers of p/min p
 * then. What is beyond floats is ∞, and 0 of it is 0. */
static void TYPED(entmax_jvp_above_2_row)(const REAL *restrict p, const REAL *restrict v,
                                          REAL *restrict out, ptrdiff_t n, double alpha) {
    const REAL slope = TYPED(power_of_curvature)(alpha), most = EXPONENT_BIAS + 1; /* 2^most is ∞ */
    ptrdiff_t k = -1;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] != p[i]) { /* which makes its row NaN, but for zeros off the support */
            for (ptrdiff_t j = 0; j < n; j++) out[j] = p[j] == 0 ? (REAL)0 : (REAL)NAN;
            return;
        }
        if (p[i] > 0 && (k < 0 || p[i] < p[k])) k = i;
    }
    if (k < 0 || (REAL)alpha == INFINITY) { /* p only ever jumps */
        TYPED(fill)(out, n, 0);
        return;
    }
    for (ptrdiff_t start = 0; start < n; start += LEAF)
        TYPED(log2_of_row)(p + start, n - start < LEAF ? n - start : LEAF, out + start);

    const REAL lowest = out[k];
    double weight = 1, mean = 0, along = v[k] - v[k]; /* a NaN if v_k is infinite or a NaN */
    bool beyond = false;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (p[i] == 0 || i == k) continue;
        REAL share = slope * (out[i] - lowest), s = slope * out[i];
        const REAL apart = v[i] - v[k];
        share = TYPED(exp2_of)(share > -EXPONENT_BIAS ? share : (REAL)-EXPONENT_BIAS);
        s = s < most ? s : most;
        s = TYPED(exp2_of)(s > -EXPONENT_BIAS ? s : (REAL)-EXPONENT_BIAS); /* p may be above 1 */
        weight += share;
        mean += (double)share * apart;
        along += apart == 0 ? 0 : (double)s * apart;
        beyond |= s == INFINITY;
        out[i] = s;
    }
    mean /= weight;
    out[k] = 0;
    if (beyond && mean == mean)
        TYPED(entmax_jvp_beyond)(p, v, out, n, k, slope, weight, mean);
    else
        out[k] = (REAL)(-along / weight);
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL rest = (REAL)((v[i] - v[k]) - mean);
        if (p[i] == 0)
            out[i] = 0;
        else if (i != k && !(beyond && v[i] == v[k] && mean == mean))
            out[i] = rest == 0 ? (REAL)0 : out[i] * rest;
    }
}

/* Σ slope ∘ J v. Since ΣJ v = 0, slopes may be taken less the largest, that of the largest p, so
 * that the gradient in α of a uniform row is exactly 0. */
static REAL TYPED(along_slopes)(const REAL *restrict slope, const REAL *restrict product,
                                ptrdiff_t n) {
    REAL tops[LANES];
    ptrdiff_t i = 0;
    TYPED(fill)(tops, LANES, BELOW_ALL);
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) tops[j] = TYPED(larger)(slope[i + j], tops[j]);
    for (int j = 0; i + j < n; j++) tops[j] = TYPED(larger)(slope[i + j], tops[j]);
    const REAL top = TYPED(lane_max)(tops);
    double total = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        REAL sum[LANES] = {0};
        for (i = start; i + LANES <= end; i += LANES)
            for (int j = 0; j < LANES; j++) sum[j] += (slope[i + j] - top) * product[i + j];
        for (int j = 0; i + j < end; j++) sum[j] += (slope[i + j] - top) * product[i + j];
        total += TYPED(lane_sum)(sum);
    }
    return (REAL)total;
}

/* Products of rows of one α <= 2 by its `own` Jvp or, if that is NULL, by their weights s. of_alpha
 * may be NULL. room holds three of each row, of which those longer than KEPT_ROW come one by one.
 */
static void TYPED(products_below_2)(const TYPED(JvpRows) *rows, const TYPED(Jvp) *own, double alpha,
                                    double *of_alpha, REAL *room) {
    const ptrdiff_t n = rows->n, all = rows->count * n;
    REAL *s = n > KEPT_ROW && !own ? rows->out[0] : room + all, *slope = room + 2 * all;
    const REAL *p = rows->p[0], *given[BLOCK];
    bool adjacent = true;
    for (int j = 0; j < rows->count; j++) {
        given[j] = own ? rows->p[j] : s + j * n;
        adjacent &= rows->p[j] == p + j * n;
    }
    for (int j = 0; !adjacent && j < rows->count; j++)
        memcpy(room + j * n, rows->p[j], (size_t)n * sizeof(REAL));
    if (of_alpha || !own)
        TYPED(weights_and_slopes)(adjacent ? p : room, all, alpha, s, of_alpha ? slope : NULL);
    (own ? own : &TYPED(weights_jvp))
        ->products(&(TYPED(JvpRows)){given, rows->v, rows->out, rows->count, n});
    for (int j = 0; of_alpha && j < rows->count; j++)
        of_alpha[j] = TYPED(along_slopes)(slope + j * n, rows->out[j], n);
}

/* Those of a row of another α. room holds three rows. */
static void TYPED(product_of_other)(const REAL *p, const REAL *v, REAL *of_z, ptrdiff_t n,
                                    double alpha, double *of_alpha, REAL *room) {
    if (!(alpha > 2)) {
        TYPED(fill)(of_z, n, (REAL)NAN);
        if (of_alpha) *of_alpha = NAN;
        return;
    }
    TYPED(entmax_jvp_above_2_row)(p, v, of_z, n, alpha);
    if (!of_alpha) return;
    TYPED(grad_alpha_row)(p, room, n, alpha, room + n);
    double total = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        if (p[i] != 0) total += (double)room[i] * v[i];
    *of_alpha = total;
}

/* Neighbours of one α together, as many as share a leaf. */
static void TYPED(entmax_products)(TYPED(Rows) *rows, const bool with_alpha) {
    const ptrdiff_t n = rows->n;
    const int most = rows_of_a_leaf(n);
    for (int j = 0, count; j < rows->count; j += count) {
        const int left = rows->count - j < most ? rows->count - j : most;
        const double *all = rows->number[0] + j, alpha = all[0];
        double *of_alpha = with_alpha ? rows->result[0] + j : NULL;
        for (count = 1; count < left && all[count] == alpha;) count++;
        const TYPED(JvpRows) group = {rows->in[0] + j, rows->in[1] + j, rows->out + j, count, n};
        const TYPED(Jvp) *own = alpha == 1     ? &TYPED(softmax_jvp)
                                : alpha == 1.5 ? &TYPED(entmax15_jvp)
                                : alpha == 2   ? &TYPED(sparsemax_jvp)
                                               : NULL;
        if (alpha >= 1 && alpha <= 2) {
            TYPED(products_below_2)(&group, own, alpha, of_alpha, rows->scratch);
        } else {
            for (int k = 0; k < count; k++)
                TYPED(product_of_other)(group.p[k], group.v[k], group.out[k], n, alpha,
                                        of_alpha ? of_alpha + k : NULL, rows->scratch);
        }
    }
}

static void TYPED(run_entmax_jvp)(TYPED(Rows) *rows, void *context) {
    (void)context;
    TYPED(entmax_products)(rows, false);
}

static void TYPED(run_entmax_vjps)(TYPED(Rows) *rows, void *context) {
    (void)context;
    TYPED(entmax_products)(rows, true);
}

/* (n),(n),()->(n): probabilities, a direction and α to the Jacobian's product; (n),(n),()->(n),():
 * and to the gradient in α; and (n),(n),()->(), of which that alone is wanted. */
ROW_LOOP(entmax_jvp_loop, "rrd>r", TYPED(run_entmax_jvp), false, PRODUCTS_SCRATCH)
ROW_LOOP(entmax_vjps_loop, "rrd>rw", TYPED(run_entmax_vjps), false, PRODUCTS_SCRATCH)
ROW_LOOP(entmax_vjp_alpha_loop, "rrd>tw", TYPED(run_entmax_vjps), false, PRODUCTS_SCRATCH)

#endif
