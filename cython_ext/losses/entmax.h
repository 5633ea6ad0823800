/* The Fenchel-Young loss of α-entmax and a label y: a template. The NumPy twin is
 * pyentmax/losses/definition.py.
 *
 * With β = α - 1, x = z - max z <= 0 and u_i = p_i^β on the support, all thresholds are told by the
 * largest probability: (1 - u_i)/β = c - x_i for c = (1 - p_max^β)/β, which is -log p_max at β = 0.
 * In g = c - x_y, which is above 1/β for a y off the support, the loss is
 *
 *     L = sum over i != y of p_i u_i/α + D,    D = g - (1 - p_y u_y)/α = integral from p_y to 1 of
 *                                                                        s^(β-1) (1 - s) ds.
 */
#ifndef PYENTMAX_LOSSES_ENTMAX_H
#define PYENTMAX_LOSSES_ENTMAX_H

#include "losses/entmax15.h"
#include "losses/softmax.h"
#include "losses/sparsemax.h"
#include "mappings/entmax.h"

/* D for l = log p_y near 0, where g and the rest cancel: sum of ((1 + β)^k - β^k) l^(k+1)/(k+1)!
 * over k >= 1, of which α |l| <= 1 needs 18 terms. The difference of powers is (1 + β) times the
 * one before and β^(k-1); times l^k nothing of it overflows, nor cancels, however large β is. */
static double small_divergence(double beta, double l) {
    const double x = beta * l, y = x + l;
    double total = 0, apart = l, power = x, factor = l;
    for (int k = 1; k <= 18; k++) {
        factor /= k + 1;
        total += apart * factor;
        apart = y * apart + power * l;
        power *= x;
    }
    return total;
}

/* As for the other losses, with an alpha behind the weight. */
#define ALPHA_LOSS_OPERANDS(real) real, NPY_BOOL, NPY_INT64, real, NPY_DOUBLE, real, NPY_BOOL
#define ALPHA_LOSS_AND_GRAD_OPERANDS(real) ALPHA_LOSS_OPERANDS(real), real

#define TEMPLATE "losses/entmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL("entmax_loss", "(n),(n),(),(),()->(),()", "As softmax_loss, with alpha behind the weight.",
       5, 2, ALPHA_LOSS_OPERANDS, entmax_loss_loop, entmax_loss)
KERNEL("entmax_loss_and_grad", "(n),(n),(),(),()->(),(),(n)",
       "As softmax_loss_and_grad, with alpha behind the weight.", 5, 3,
       ALPHA_LOSS_AND_GRAD_OPERANDS, entmax_loss_loop, entmax_loss_and_grad)

#elif defined(REAL)

/* The score where p is largest, from the first chunk that has it. A score elsewhere may be above by
 * what rounds to the same p. */
static REAL TYPED(score_of_largest)(const REAL *z, const REAL *p, ptrdiff_t n, const REAL *maxima,
                                    REAL largest_p) {
    ptrdiff_t i = 0;
    while (i + CHUNK < n && TYPED(lane_max)(maxima + i / CHUNK * LANES) < largest_p) i += CHUNK;
    while (i < n - 1 && p[i] < largest_p) i++;
    const ptrdiff_t end = n - i < CHUNK ? n : i + CHUNK;
    REAL largest = z[i];
    for (; i < end; i++)
        if (p[i] == largest_p) largest = TYPED(larger)(z[i], largest);
    return largest;
}

/* The loss of a row from z and p, which is replaced by the gradient. */
static bool TYPED(entmax_loss_of_p)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, double alpha,
                                    REAL *restrict scratch, double *loss) {
    const REAL own = p[label];
    if (own != own) return TYPED(settled_loss)(p, loss);
    const REAL largest_p = TYPED(chunk_maxima)(p, n, scratch);
    if (largest_p == 0) return false;
    const REAL largest = TYPED(score_of_largest)(z, p, n, scratch, largest_p),
               beta = (REAL)(alpha - 1);
    const double exact_beta = alpha - 1, log_largest = log((double)largest_p);
    const double c = alpha == 1 ? -log_largest : -expm1(exact_beta * log_largest) / exact_beta;
    const double g = c - (z[label] - largest), u = 1 - exact_beta * g;
    const REAL t = (REAL)(1 - exact_beta * c);

    p[label] = 0; /* leaves the others */
    double others = 0, powers = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        if (!TYPED(any_above)(scratch + start / CHUNK * LANES, 0)) continue;
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        REAL mass[LANES] = {0}, power[LANES] = {0};
        ptrdiff_t i = start;
        for (; i + LANES <= end; i += LANES)
            for (int j = 0; j < LANES; j++) {
                const REAL power_of_p = beta * (z[i + j] - largest) + t, q = p[i + j];
                mass[j] += q;
                power[j] += q * (power_of_p > 0 ? power_of_p : (REAL)0);
                p[i + j] = q * weight;
            }
        for (int j = 0; i + j < end; j++) {
            const REAL power_of_p = beta * (z[i + j] - largest) + t, q = p[i + j];
            mass[j] += q;
            power[j] += q * (power_of_p > 0 ? power_of_p : (REAL)0);
            p[i + j] = q * weight;
        }
        others += TYPED(lane_sum)(mass);
        powers += TYPED(lane_sum)(power);
    }

    const double l = log1p(-(others < 0.5 ? others : 0.5)); /* of p_y, if it has most */
    if (alpha * -l <= 1 && own > (REAL)0.5)
        *loss = powers / alpha + small_divergence(exact_beta, l);
    else
        *loss = powers / alpha + g - (1 - (u > 0 ? own * u : 0)) / alpha;
    if (*loss < 0) *loss = 0; /* by rounding, where α is too large for p to tell c */
    p[label] = (REAL)(0 - (own > 0 ? others : 1) * weight);
    return true;
}

/* α = ∞: L = max z - z_y. */
static bool TYPED(argmax_loss_of_p)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                    double *loss) {
    const REAL own = p[label], largest = TYPED(chunk_maxima)(z, n, scratch);
    if (own != own) return TYPED(settled_loss)(p, loss);
    if (largest == -(REAL)INFINITY) return false;
    *loss = (double)largest - z[label];
    for (ptrdiff_t i = 0; i < n; i++) p[i] *= weight;
    p[label] = (own - 1) * weight;
    return true;
}

/* The losses with code of their own, for some α. */
static const TYPED(Loss) *TYPED(own_loss)(double alpha, bool with_gradient) {
    if (alpha == 1) return with_gradient ? &TYPED(softmax_loss_and_grad) : &TYPED(softmax_loss);
    if (alpha == 1.5) return with_gradient ? &TYPED(entmax15_loss_and_grad) : &TYPED(entmax15_loss);
    if (alpha == 2) return with_gradient ? &TYPED(sparsemax_loss_and_grad) : &TYPED(sparsemax_loss);
    return NULL;
}

/* (n),(n),(),(),()->(),(),(n): as loss_loop, with an α for each row behind its weight. Neighbours
 * go together to the loop of their own loss, or to that of α-entmax for their p. */
static void TYPED(entmax_loss_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    const bool with_gradient = *(const bool *)data;
    const ptrdiff_t rows = dims[0], n = dims[1], operands = with_gradient ? 8 : 7;
    const ptrdiff_t z_stride = steps[operands], mask_stride = steps[operands + 1];
    const ptrdiff_t stride = with_gradient ? steps[operands + 2] : 0;
    if (rows == 0 || n == 0) return;
    const ptrdiff_t at_most = n <= SHORT ? BLOCK : 1;
    REAL *scratch = scratch_or_error(scratch_size(n) + (at_most + 1) * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + scratch_size(n), *z_room = room + at_most * n;

    ptrdiff_t count = 0;
    for (ptrdiff_t start = 0; start < rows; start += count) {
        char *at[8];
        for (int k = 0; k < operands; k++) at[k] = args[k] + start * steps[k];
        const TYPED(Loss) *own = TYPED(own_loss)(*(const double *)at[4], with_gradient);
        for (count = 1; start + count < rows && (own || count < at_most); count++)
            if (TYPED(own_loss)(*(const double *)(at[4] + count * steps[4]), with_gradient) != own)
                break;
        const ptrdiff_t some[] = {count, n};
        if (own) {
            char *own_args[] = {
                at[0], at[1], at[2], at[3], at[5], at[6], with_gradient ? at[7] : NULL};
            ptrdiff_t own_steps[10] = {steps[0], steps[1], steps[2], steps[3], steps[5], steps[6]};
            if (with_gradient) own_steps[6] = steps[7];
            memcpy(own_steps + operands - 1, steps + operands,
                   (with_gradient ? 3 : 2) * sizeof *steps);
            TYPED(loss_loop)(own_args, some, own_steps, (void *)own);
            continue;
        }
        const bool direct = with_gradient && stride == (ptrdiff_t)sizeof(REAL);
        char *p = direct ? at[7] : (char *)room;
        const ptrdiff_t p_step = direct ? steps[7] : n * (ptrdiff_t)sizeof(REAL);
        char *p_args[] = {at[0], at[1], at[4], p};
        const ptrdiff_t p_steps[] = {
            steps[0], steps[1], steps[4], p_step, z_stride, mask_stride, (ptrdiff_t)sizeof(REAL)};
        TYPED(entmax_loop)(p_args, some, p_steps, NULL);

        for (ptrdiff_t j = 0; j < count; j++) {
            const int64_t label = *(const int64_t *)(at[2] + j * steps[2]);
            const REAL weight = *(const REAL *)(at[3] + j * steps[3]);
            const double alpha = *(const double *)(at[4] + j * steps[4]);
            const REAL *z = TYPED(masked)(at[0] + j * steps[0], z_stride, at[1] + j * steps[1],
                                          mask_stride, n, z_room);
            REAL *gradient = (REAL *)(p + j * p_step);
            double loss = 0;
            bool counts = false;
            if (weight == 0)
                TYPED(fill)(gradient, n, 0);
            else if (label < 0 || label >= n)
                counts = TYPED(no_label_row)(z, gradient, n, scratch, &loss);
            else if (alpha == (double)INFINITY)
                counts = TYPED(argmax_loss_of_p)(z, gradient, n, label, weight, scratch, &loss);
            else
                counts = TYPED(entmax_loss_of_p)(z, gradient, n, label, weight, alpha, scratch,
                                                 &loss);
            *(REAL *)(at[5] + j * steps[5]) = (REAL)(counts ? loss * weight : 0);
            *(bool *)(at[6] + j * steps[6]) = counts;
            if (with_gradient) TYPED(deliver)(gradient, at[7] + j * steps[7], stride, n);
        }
    }
    free(scratch);
    leave_no_float_flags();
}

/* Data of the loop: with the gradient? */
static const bool TYPED(entmax_loss) = false, TYPED(entmax_loss_and_grad) = true;

#endif
