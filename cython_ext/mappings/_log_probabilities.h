/* Logarithms of probabilities, -inf where those are 0: a template. The NumPy twin is
 * pyentmax/reference/log_probabilities.py.
 *
 * A probability near 1 says little of its logarithm: that comes from what the others have left.
 */
#ifndef PYENTMAX_MAPPINGS__LOG_PROBABILITIES_H
#define PYENTMAX_MAPPINGS__LOG_PROBABILITIES_H

#include "elementary/log.h"
#include "gufunc/mapping_loops.h"
#include "rows/steps.h"

#define SURE ((REAL)0.75) /* at most one probability of a row is above it */

/* The mapping log_NAME, from NAME, whose short rows have at most so many entries. */
#define LOG_MAPPING(name, longest) \
    static void TYPED(log_##name##_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, \
                                        const TYPED(RowContext) *with) { \
        TYPED(name).row(z, p, n, with); \
        TYPED(take_logs)(p, n); \
    } \
    static void TYPED(log_##name##_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], \
                                          int count, ptrdiff_t n, const TYPED(RowContext) *with) { \
        TYPED(name).block(z, p, count, n, with); \
        for (int j = 0; j < count; j++) TYPED(take_logs)(p[j], n); \
    } \
    static const TYPED(Mapping) TYPED(log_##name) = {NOTHING_ELSE, TYPED(log_##name##_row), \
                                                     TYPED(log_##name##_block), longest};

#define TEMPLATE "mappings/_log_probabilities.h"
#include "float_and_double.h"

#elif defined(REAL)

/* The sum of the entries up to SURE; n is at most LEAF. */
static double TYPED(unsure)(const REAL *p, ptrdiff_t n) {
    REAL sum[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += p[i + j] > SURE ? (REAL)0 : p[i + j];
    for (int j = 0; i + j < n; j++) sum[j] += p[i + j] > SURE ? (REAL)0 : p[i + j];
    return TYPED(lane_sum)(sum);
}

/* Probabilities to logarithms, in place. Where one is sure, log p = log(1 - o) of the others' sum
 * o. */
static void TYPED(take_logs)(REAL *p, ptrdiff_t n) {
    double sum = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK)
        sum += TYPED(unsure)(p + start, n - start < CHUNK ? n - start : CHUNK);
    const REAL o = sum < 1 - SURE ? (REAL)sum : 1 - SURE,
               sure = TYPED(log_of_quotient)((0 - o) / (2 - o));

    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (!TYPED(any_nonzero)(p + start, end - start)) {
            TYPED(fill)(p + start, end - start, -(REAL)INFINITY);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i++) {
            const REAL unsure = TYPED(log_of)(p[i]);
            const REAL log_p = p[i] > SURE ? sure : unsure;
            p[i] = p[i] == 0 ? -(REAL)INFINITY : p[i] > 0 ? log_p : p[i]; /* a NaN stays */
        }
    }
}

#endif
