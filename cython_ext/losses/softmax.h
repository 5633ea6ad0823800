/* The loss of softmax, the cross-entropy: a template. The NumPy twin is
 * pyentmax/reference/losses/definition.py. */
#ifndef PYENTMAX_LOSSES_SOFTMAX_H
#define PYENTMAX_LOSSES_SOFTMAX_H

#include "elementary/log.h"
#include "gufunc/loss_loop.h"
#include "mappings/softmax.h"

#define TEMPLATE "losses/softmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

LOSS(softmax, "softmax")
LOSS_AND_GRAD(softmax)

#elif defined(REAL)

/* L = log sum exp(x) - x_y. The others' exponentials are added up apart from y's: a small
 * loss is all in the digits that a sum with y's 1 would lose. */
static bool TYPED(softmax_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                    double *loss) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(fill_degenerate_row)(gradient, n, largest))
        return TYPED(degenerate_loss)(gradient, loss);

    const ptrdiff_t next = label + 1;
    double others = TYPED(exponentials)(z, gradient, label, largest, z);
    others += TYPED(exponentials)(z + next, gradient + next, n - next, largest, z + next);
    if (others <= 2 * (double)n * TYPED(scaled_exp)(-(REAL)INFINITY)) others = 0; /* all of it is */
    const double unit = TYPED(scaled_exp)(0), x = z[label] - largest;
    const double sum = others + TYPED(scaled_exp)(z[label] - largest);
    *loss = x == 0 ? log1p(others / unit) : log(sum / unit) - x;

    const REAL share = (REAL)(1 / sum); /* p first: what is 0 stays so, however large the weight */
    for (ptrdiff_t i = 0; i < n; i++) gradient[i] = gradient[i] * share * weight;
    gradient[label] = (REAL)(0 - others / sum * weight);
    return true;
}

/* log(1 + x) for x >= 0. */
static inline REAL TYPED(log_of_1_plus)(REAL x) {
    const REAL far = TYPED(log_of)(1 + x), near = TYPED(log_of_quotient)(x / (x + 2));
    return x < (REAL)0.4 ? near : far;
}

/* The same for short rows side by side. */
static void TYPED(softmax_loss_block)(const REAL *const z[BLOCK], REAL *const gradient[BLOCK],
                                      int count, ptrdiff_t n, TYPED(Labels) *restrict at,
                                      Ahead *ahead, REAL *restrict x) {
    REAL largest[BLOCK], others[BLOCK], own[BLOCK], share[BLOCK], log_sum[BLOCK];
    const REAL unscale = 1 / UNIT;
    TYPED(interleave_scores)(z, n, x, largest);
    for (int j = 0; j < BLOCK; j++) {
        own[j] = x[at->label[j] * BLOCK + j] - largest[j];
        x[at->label[j] * BLOCK + j] = -(REAL)INFINITY; /* leaves the others */
    }
    TYPED(exponential_columns)(x, n, largest, ahead, others);
    for (int j = 0; j < BLOCK; j++) {
        const REAL power = TYPED(scaled_exp)(own[j]), rest = own[j] == 0 ? (REAL)0 : power;
        share[j] = 1 / (others[j] + power);
        log_sum[j] = TYPED(log_of_1_plus)((others[j] + rest) * unscale - (own[j] == 0 ? 0 : 1));
    }
    for (ptrdiff_t i = 0; i < n; i++)
        for (int j = 0; j < BLOCK; j++)
            x[i * BLOCK + j] = x[i * BLOCK + j] * share[j] * at->weight[j];
    TYPED(separate)(x, n, gradient);
    for (int j = 0; j < count; j++) {
        at->counts[j] = true;
        at->loss[j] = (double)log_sum[j] - own[j];
        gradient[j][at->label[j]] = -others[j] * share[j] * at->weight[j];
        if (TYPED(fill_degenerate_row)(gradient[j], n, largest[j]))
            at->counts[j] = TYPED(degenerate_loss)(gradient[j], at->loss + j);
    }
}

LOSS_RECORDS(softmax, SHORT)

#endif
