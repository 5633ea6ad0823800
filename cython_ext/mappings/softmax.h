/* Softmax of one row, its logarithm and its Jacobian's product: a template. The NumPy twin is
 * pyentmax/reference/mappings/softmax.py.
 *
 *     p_i = e^x_i / sum_j e^x_j,   x = z - max z
 */
#ifndef PYENTMAX_MAPPINGS_SOFTMAX_H
#define PYENTMAX_MAPPINGS_SOFTMAX_H

#include "elementary/exp.h"
#include "gufunc/mapping_loops.h"
#include "mappings/_separable_jvp.h"
#include "rows/steps.h"
#include "rows/tiles.h"

/* Rows up to this many entries gain from a tile. In longer ones the exponentials are nearly all of
 * the work, and a row by itself keeps the vector units as busy. */
#define NARROW 127

#define TEMPLATE "mappings/softmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

MAPPING(softmax, "softmax")
MAPPING(log_softmax, "softmax, as logarithms")
JVP(softmax, "softmax")

#elif defined(REAL)

/* Write the exponentials and return their sum; ask for as much from `next` on. */
static double TYPED(exponentials)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                  REAL largest, const REAL *next) {
    if (n > LEAF) {
        ptrdiff_t half = half_of(n);
        return TYPED(exponentials)(z, p, half, largest, next)
               + TYPED(exponentials)(z + half, p + half, n - half, largest, next + half);
    }
    REAL sum[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j += LINE / (int)sizeof(REAL)) PREFETCH(next + i + j);
        for (int j = 0; j < LANES; j++) {
            p[i + j] = TYPED(scaled_exp)(z[i + j] - largest);
            sum[j] += p[i + j];
        }
    }
    for (int j = 0; i + j < n; j++) {
        p[i + j] = TYPED(scaled_exp)(z[i + j] - largest);
        sum[j] += p[i + j];
    }
    return TYPED(lane_sum)(sum);
}

static void TYPED(softmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                               const TYPED(RowContext) *with) {
    const REAL largest = TYPED(chunk_maxima)(z, n, with->scratch);
    if (TYPED(fill_degenerate_row)(p, n, largest)) return;

    const REAL share = (REAL)(1
                              / TYPED(exponentials)(z, p, n, largest, next_row_or(with->ahead, z)));
    for (ptrdiff_t i = 0; i < n; i++) p[i] *= share;
}

/* A tile of scores to scaled exponentials, and their sums, by LANES entries so that rounding grows
 * with n/LANES. */
static void TYPED(exponential_columns)(REAL *restrict x, ptrdiff_t n, const REAL *restrict largest,
                                       Ahead *ahead, REAL *restrict total) {
    for (int j = 0; j < BLOCK; j++) total[j] = 0;
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t end = n - start < LANES ? n : start + LANES;
        REAL sum[BLOCK] = {0};
        for (ptrdiff_t i = start; i < end; i++) {
            prefetch_lines(ahead, 1);
            for (int j = 0; j < BLOCK; j++) {
                const REAL power = TYPED(scaled_exp)(x[i * BLOCK + j] - largest[j]);
                x[i * BLOCK + j] = power;
                sum[j] += power;
            }
        }
        for (int j = 0; j < BLOCK; j++) total[j] += sum[j];
    }
}

static void TYPED(softmax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                 ptrdiff_t n, const TYPED(RowContext) *with) {
    REAL *restrict x = with->scratch;
    if (n > NARROW) {
        const TYPED(RowContext) alone = {.ahead = &(Ahead){0}, .scratch = x};
        for (int j = 0; j < count; j++) {
            prefetch_some(with->ahead);
            TYPED(softmax_row)(z[j], p[j], n, &alone);
        }
        return;
    }
    REAL largest[BLOCK], share[BLOCK];
    TYPED(interleave_scores)(z, n, x, largest);
    TYPED(exponential_columns)(x, n, largest, with->ahead, share);
    for (int j = 0; j < BLOCK; j++) share[j] = 1 / share[j];
    for (ptrdiff_t i = 0; i < n; i++) {
        prefetch_lines(with->ahead, 1);
        for (int j = 0; j < BLOCK; j++) x[i * BLOCK + j] *= share[j];
    }
    TYPED(separate)(x, n, p);
    for (int j = 0; j < count; j++) TYPED(fill_degenerate_row)(p[j], n, largest[j]);
}

static const TYPED(Mapping)
    TYPED(softmax) = {NOTHING_ELSE, TYPED(softmax_row), TYPED(softmax_block), SHORT};

ALWAYS_INLINE REGISTER TYPED(softmax_inverse_curvature)(REGISTER p) {
    return p;
}
SEPARABLE_JVP(softmax, true)

/* The scaled exponentials of all gaps but 0, and the number of those. */
static double TYPED(exponentials_below)(const REAL *z, ptrdiff_t n, REAL largest, const REAL *next,
                                        double *ties) {
    if (n > LEAF) {
        const ptrdiff_t half = half_of(n);
        return TYPED(exponentials_below)(z, half, largest, next, ties)
               + TYPED(exponentials_below)(z + half, n - half, largest, next + half, ties);
    }
    const REAL unit = TYPED(scaled_exp)(0); /* taken off, not chosen against: that stays scalar */
    REAL sum[LANES] = {0}, zeros[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j += LINE / (int)sizeof(REAL)) PREFETCH(next + i + j);
        for (int j = 0; j < LANES; j++) {
            const REAL x = z[i + j] - largest, tie = x == 0 ? (REAL)1 : (REAL)0;
            sum[j] += TYPED(scaled_exp)(x) - tie * unit;
            zeros[j] += tie;
        }
    }
    for (int j = 0; i + j < n; j++) {
        const REAL x = z[i + j] - largest, tie = x == 0 ? (REAL)1 : (REAL)0;
        sum[j] += TYPED(scaled_exp)(x) - tie * unit;
        zeros[j] += tie;
    }
    *ties += TYPED(lane_sum)(zeros);
    return TYPED(lane_sum)(sum);
}

/* log p = x - log sum exp x: no probability underflows on the way. */
static void TYPED(log_softmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                   const TYPED(RowContext) *with) {
    const REAL largest = TYPED(chunk_maxima)(z, n, with->scratch);
    if (TYPED(fill_degenerate_row)(p, n, largest)) {
        if (largest < 0) TYPED(fill)(p, n, -(REAL)INFINITY);
        return;
    }
    double ties = 0;
    const double below = TYPED(exponentials_below)(z, n, largest, next_row_or(with->ahead, z),
                                                   &ties);
    const REAL log_sum = (REAL)log1p(ties - 1 + below / TYPED(scaled_exp)(0));
    for (ptrdiff_t i = 0; i < n; i++) p[i] = (z[i] - largest) - log_sum;
}

/* exponentials_below() of each column of a tile of scores, summed as by exponential_columns(). */
static void TYPED(columns_below)(const REAL *restrict x, ptrdiff_t n, const REAL *restrict largest,
                                 Ahead *ahead, REAL *restrict below, REAL *restrict ties) {
    const REAL unit = TYPED(scaled_exp)(0);
    for (int j = 0; j < BLOCK; j++) below[j] = ties[j] = 0;
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t end = n - start < LANES ? n : start + LANES;
        REAL sum[BLOCK] = {0};
        for (ptrdiff_t i = start; i < end; i++) {
            prefetch_lines(ahead, 1);
            for (int j = 0; j < BLOCK; j++) {
                const REAL gap = x[i * BLOCK + j] - largest[j], tie = gap == 0 ? (REAL)1 : (REAL)0;
                sum[j] += TYPED(scaled_exp)(gap) - tie * unit;
                ties[j] += tie;
            }
        }
        for (int j = 0; j < BLOCK; j++) below[j] += sum[j];
    }
}

static void TYPED(log_softmax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                     ptrdiff_t n, const TYPED(RowContext) *with) {
    REAL *restrict x = with->scratch;
    if (n > NARROW) {
        const TYPED(RowContext) alone = {.ahead = &(Ahead){0}, .scratch = x};
        for (int j = 0; j < count; j++) {
            prefetch_some(with->ahead);
            TYPED(log_softmax_row)(z[j], p[j], n, &alone);
        }
        return;
    }
    REAL largest[BLOCK], log_sum[BLOCK], ties[BLOCK];
    TYPED(interleave_scores)(z, n, x, largest);
    TYPED(columns_below)(x, n, largest, with->ahead, log_sum, ties);
    for (int j = 0; j < BLOCK; j++)
        log_sum[j] = (REAL)log1p((double)ties[j] - 1 + log_sum[j] / TYPED(scaled_exp)(0));
    for (ptrdiff_t i = 0; i < n; i++) {
        prefetch_lines(with->ahead, 1);
        for (int j = 0; j < BLOCK; j++)
            x[i * BLOCK + j] = (x[i * BLOCK + j] - largest[j]) - log_sum[j];
    }
    TYPED(separate)(x, n, p);
    for (int j = 0; j < count; j++)
        if (TYPED(fill_degenerate_row)(p[j], n, largest[j]) && largest[j] < 0)
            TYPED(fill)(p[j], n, -(REAL)INFINITY);
}

static const TYPED(Mapping)
    TYPED(log_softmax) = {NOTHING_ELSE, TYPED(log_softmax_row), TYPED(log_softmax_block), SHORT};

#endif
