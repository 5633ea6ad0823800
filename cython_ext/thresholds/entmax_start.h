/* Where to begin the search for the thresholds of α-entmax of many short rows: a template.
 *
 * A power by logarithms takes fifty instructions, a few whole powers take ten. In the exponent e,
 * log sum w^e is smooth and convex, so the polynomial through its values at five whole exponents
 * around b tells the three sums of a step of Halley's to some 1e-4; two or three such steps leave
 * little for exact sums to do. And as the norm of the x + t of a higher order is lower, the t at
 * which it is 1 is a bound from above: entries that it does not reach need no exact power at all.
 */
#ifndef PYENTMAX_THRESHOLDS_ENTMAX_START_H
#define PYENTMAX_THRESHOLDS_ENTMAX_START_H

#include "thresholds/entmax.h"

enum {
    NODES = 4
}; /* whole exponents: the lowest, 1, 2, 4 or 8, and what node_powers() makes of it;
    * none where b is so large that one exact step from t = 1 comes as close */

#define FAR_STEP ((REAL)0.1) /* a step by more of 1/t than this wants another */

#define TEMPLATE "thresholds/entmax_start.h"
#include "float_and_double.h"

#elif defined(REAL)

/* The sums of w^e for the exponents 1, 2, 3, 4 of lowest = 1, otherwise 2, 3, 4, 8 times half
 * the lowest; a w below the least counts as 0. */
ALWAYS_INLINE void TYPED(node_powers)(const REAL *restrict x, ptrdiff_t n,
                                      const REAL *restrict steepness, REAL least, const int lowest,
                                      REAL sums[NODES][BLOCK]) {
    for (int half = 0; half < BLOCK; half += LANES) {
        REAL first[LANES] = {0}, second[LANES] = {0}, third[LANES] = {0}, last[LANES] = {0};
        for (ptrdiff_t i = half; i < n; i += BLOCK)
            for (int j = 0; j < LANES; j++) {
                const REAL base = 1 + x[i + j] * steepness[half + j];
                const REAL w = lowest == 1 ? TYPED(larger)(base, 0) : base > least ? base : (REAL)0;
                const REAL w_2 = w * w, u = lowest <= 2 ? w : lowest == 4 ? w_2 : w_2 * w_2;
                const REAL u_2 = u * u, u_3 = u_2 * u, u_4 = u_2 * u_2;
                first[j] += lowest == 1 ? u : u_2;
                second[j] += lowest == 1 ? u_2 : u_3;
                third[j] += lowest == 1 ? u_3 : u_4;
                last[j] += lowest == 1 ? u_4 : u_4 * u_4;
            }
        memcpy(sums[0] + half, first, sizeof first);
        memcpy(sums[1] + half, second, sizeof second);
        memcpy(sums[2] + half, third, sizeof third);
        memcpy(sums[3] + half, last, sizeof last);
    }
}

/* Where the columns of a tile begin: the lowest of each one's exponents, and logarithms of sums as
 * weighted sums of those at its four. */
typedef struct {
    BITS lowest[BLOCK];
    REAL at_b[3][NODES][BLOCK]; /* for b, b - 1 and b - 2, by Lagrange's formula, */
    REAL norm[NODES][BLOCK], slope[NODES][BLOCK]; /* and of the first order from b on: the norm,
                                                   * and the most that its slope can be */
} TYPED(EntmaxStart);

static void TYPED(prepare_start)(TYPED(EntmaxStart) *restrict start, const double alpha[BLOCK]) {
    static const REAL low_nodes[NODES] = {1, 2, 3, 4}, nodes[NODES] = {2, 3, 4, 8};
    REAL b[BLOCK], node[NODES][BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        const double own = 1 / (alpha[j] - 1); /* from 1 on: there is no start beyond α = 2 */
        const int lowest = own < 1    ? 0
                           : own < 3  ? 1
                           : own < 6  ? 2
                           : own < 12 ? 4
                           : own < 24 ? 8
                                      : 0;
        b[j] = (REAL)own;
        start->lowest[j] = lowest;
        for (int i = 0; i < NODES; i++)
            node[i][j] = lowest == 1 ? low_nodes[i] : nodes[i] * (REAL)lowest / 2;
    }
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < NODES; i++)
            for (int j = 0; j < BLOCK; j++) {
                REAL weight = 1;
                for (int other = 0; other < NODES; other++)
                    if (other != i)
                        weight *= (b[j] - (REAL)k - node[other][j]) / (node[i][j] - node[other][j]);
                start->at_b[k][i][j] = weight;
            }
    for (int j = 0; j < BLOCK; j++) {
        int order = 1; /* the first node from b on, the lowest never */
        while (order < NODES - 1 && b[j] > node[order][j]) order++;
        for (int i = 0; i < NODES; i++) start->norm[i][j] = start->slope[i][j] = 0;
        const REAL share = 1 / (node[order][j] - node[order - 1][j]);
        start->norm[order][j] = 1 / node[order][j];
        start->slope[order][j] = -share; /* of the chord from the node before */
        start->slope[order - 1][j] = share;
    }
}

/* sum over the nodes of weight times log sum. */
static inline REAL TYPED(at_nodes)(const REAL weight[NODES][BLOCK], const REAL logs[NODES][BLOCK],
                                   int j) {
    return (weight[0][j] * logs[0][j] + weight[1][j] * logs[1][j])
           + (weight[2][j] * logs[2][j] + weight[3][j] * logs[3][j]);
}

/* One step of each of the first columns that is far from its root, from the sums at the nodes; the
 * least steepness rises to what is known to be at or below that of the root. Afterwards a column is
 * far if it went far. Tells whether any is. */
ALWAYS_INLINE bool TYPED(start_step)(const REAL sums[NODES][BLOCK],
                                     const TYPED(EntmaxStart) *restrict start, BITS far[BLOCK],
                                     TYPED(EntmaxColumns) *restrict at, const int columns) {
    const REAL most = 32, zero = (REAL)(at == NULL); /* as in moments */
    REAL logs[NODES][BLOCK], sum[BLOCK], slope[BLOCK], bend[BLOCK];
    for (int i = 0; i < NODES; i++)
        for (int j = 0; j < columns; j++) logs[i][j] = TYPED(log2_of)(sums[i][j]);
    for (int j = 0; j < columns; j++) {
        const REAL power = TYPED(at_nodes)(start->at_b[0], logs, j);
        const REAL apart = TYPED(at_nodes)(start->at_b[1], logs, j) - power;
        const REAL farther = TYPED(at_nodes)(start->at_b[2], logs, j) - power;
        sum[j] = TYPED(smaller)(TYPED(larger)(power, zero), most);
        slope[j] = TYPED(exp2_of)(TYPED(smaller)(TYPED(larger)(apart, zero), most));
        bend[j] = TYPED(exp2_of)(TYPED(smaller)(TYPED(larger)(farther, zero), most));
    }
    for (int j = 0; j < columns; j++) {
        /* The tangent's slope is at least 1, and at most the chord's to the order before. */
        const REAL now = at->steepness[j];
        const REAL h = 1 - now * TYPED(exp2_of)(-TYPED(at_nodes)(start->norm, logs, j));
        const REAL chord = TYPED(exp2_of)(TYPED(at_nodes)(start->slope, logs, j));
        const REAL a = h > 0 ? chord : (REAL)1;
        const REAL least = TYPED(larger)(now * a / (a - h) * (1 - (REAL)1e-4), at->least[j]);
        at->least[j] = far[j] ? least : at->least[j];
    }
    BITS any_far = 0;
    for (int j = 0; j < columns; j++) {
        const REAL now = at->steepness[j], h = 1 - now * TYPED(exp2_of)(-at->beta[j] * sum[j]);
        const REAL a = slope[j], v = (at->b[j] - 1) * (bend[j] - a * a), halley = 2 * a * a - h * v;
        const REAL whole = halley > 0 ? halley : a, part = halley > 0 ? 2 * h * a : h;
        const REAL next = now * whole / TYPED(larger)(whole - part, whole * (REAL)0.05);
        const REAL there = TYPED(larger)(next, at->least[j]);
        const REAL apart = there - now;
        at->steepness[j] = far[j] ? there : now;
        far[j] &= (apart > now * FAR_STEP) | (-apart > now * FAR_STEP);
        any_far |= far[j];
    }
    return any_far != 0;
}

NEVER_INLINE bool TYPED(start_step_of_columns)(const REAL sums[NODES][BLOCK],
                                               const TYPED(EntmaxStart) *start, BITS far[BLOCK],
                                               TYPED(EntmaxColumns) *at) {
    return TYPED(start_step)(sums, start, far, at, BLOCK);
}

/* The same where all columns are of one row, of which an entry counts for `weight`. */
NEVER_INLINE bool TYPED(start_step_of_row)(REAL sums[NODES][BLOCK], REAL weight,
                                           const TYPED(EntmaxStart) *start, BITS far[BLOCK],
                                           TYPED(EntmaxColumns) *at) {
    for (int i = 0; i < NODES; i++) sums[i][0] = TYPED(pair_sum)(sums[i]) * weight;
    const bool any = TYPED(start_step)(sums, start, far, at, 1);
    for (int j = 1; j < BLOCK; j++) at->steepness[j] = at->steepness[0];
    return any;
}

/* Put the sums of the columns of one lowest exponent beside those of the others. */
ALWAYS_INLINE void TYPED(add_nodes)(const REAL *x, ptrdiff_t n, const TYPED(EntmaxStart) *start,
                                    const int lowest, const TYPED(EntmaxColumns) *columns,
                                    REAL sums[NODES][BLOCK]) {
    /* From here down the last power would be denormal. The first is below 2^-23 here. */
    const REAL least = lowest == 1   ? (REAL)0
                       : lowest == 2 ? (REAL)0x1p-12
                       : lowest == 4 ? (REAL)0x1p-6
                                     : (REAL)0x1p-3;
    REAL own[NODES][BLOCK];
    BITS any = 0;
    for (int j = 0; j < BLOCK; j++) any |= start->lowest[j] == lowest;
    if (!any) return;
    TYPED(node_powers)(x, n, columns->steepness, least, lowest, own);
    for (int i = 0; i < NODES; i++)
        for (int j = 0; j < BLOCK; j++)
            sums[i][j] = start->lowest[j] == lowest ? own[i][j] : sums[i][j];
}

/* Move every column, or a row, closer to its root, by so many steps; by up to two more where the
 * last one was far, if that has to be settled. x may be a part of the row to begin with, or a
 * sample of which an entry counts for `weight`. */
static void TYPED(entmax_start)(const REAL *x, ptrdiff_t n, bool one_row, REAL weight,
                                const TYPED(EntmaxStart) *start, int passes, bool settle,
                                Ahead *ahead, TYPED(EntmaxColumns) *restrict columns) {
    REAL sums[NODES][BLOCK];
    BITS far[BLOCK];
    for (int i = 0; i < NODES; i++)
        for (int j = 0; j < BLOCK; j++) sums[i][j] = 1;
    for (int pass = 0; pass < passes + (settle ? 2 : 0); pass++) {
        if (pass < passes)
            for (int j = 0; j < BLOCK; j++) far[j] = start->lowest[j] > 0;
        TYPED(add_nodes)(x, n, start, 1, columns, sums);
        TYPED(add_nodes)(x, n, start, 2, columns, sums);
        TYPED(add_nodes)(x, n, start, 4, columns, sums);
        TYPED(add_nodes)(x, n, start, 8, columns, sums);
        for (int k = 0; k < 4 && !one_row; k++) ask_ahead(ahead);
        const bool any = one_row ? TYPED(start_step_of_row)(sums, weight, start, far, columns)
                                 : TYPED(start_step_of_columns)(sums, start, far, columns);
        if (!any && pass >= passes - 1) break;
    }
}

#endif
