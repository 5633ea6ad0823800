/* Where to begin the search for the thresholds of α-entmax of many short rows: a template.
 *
 * A power by logarithms takes fifty instructions, a few whole powers take ten. In the exponent e,
 * log sum w^e is smooth and convex, so the cubic through its values at four whole exponents around
 * b tells the three sums of a step of Halley's to some 1e-4; two or three such steps leave little
 * for exact sums to do. And as the norm of the x + t of a higher order is lower, the t at which it
 * is 1 is a bound from above: entries that it does not reach need no exact power at all.
 */
#ifndef PYENTMAX_THRESHOLDS_ENTMAX_START_H
#define PYENTMAX_THRESHOLDS_ENTMAX_START_H

#include "thresholds/entmax_below_2.h"

enum { NODES = 4 }; /* whole exponents: the lowest, and what add_node_powers() makes of it */

#define TEMPLATE "thresholds/entmax_start.h"
#include "float_and_double.h"

#elif defined(REAL)

/* The lowest exponent for an α: 1, 2, 4 or 8, and 0 where b is so large that one exact step from
 * t = 1 comes as close. */
static inline int TYPED(lowest_node)(double alpha) {
    const double b = 1 / (alpha - 1);
    return b < 3 ? 1 : b < 6 ? 2 : b < 12 ? 4 : b < 24 ? 8 : 0;
}

/* The sums of w^e for the exponents 1, 2, 3, 4 of lowest = 1, otherwise 2, 3, 4, 8 times half the
 * lowest; a w below the least counts as 0. */
ALWAYS_INLINE void TYPED(node_powers)(const REAL *restrict x, ptrdiff_t n,
                                      const REAL *restrict steepness, REAL least, const int lowest,
                                      REAL sums[NODES][BLOCK]) {
    for (int half = 0; half < BLOCK; half += LANES) {
        REAL first[LANES] = {0}, second[LANES] = {0}, third[LANES] = {0}, last[LANES] = {0};
        for (ptrdiff_t i = half; i < n; i += BLOCK)
            for (int j = 0; j < LANES; j++) {
                const REAL base = 1 + x[i + j] * steepness[half + j];
                const REAL w = base > least ? base : (REAL)0;
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

/* Logarithms of sums as weighted sums of those at the nodes, by columns. */
typedef struct {
    REAL at_b[3][NODES][BLOCK]; /* for b, b - 1 and b - 2, by Lagrange's formula, */
    REAL norm[NODES][BLOCK], slope[NODES][BLOCK]; /* and of the first order from b on: the norm,
                                                   * and the most that its slope can be */
} TYPED(EntmaxStart);

static void TYPED(prepare_start)(TYPED(EntmaxStart) *restrict start, int lowest,
                                 const REAL b[BLOCK]) {
    REAL node[NODES], over[NODES];
    for (int i = 0; i < NODES; i++)
        node[i] = lowest == 1 ? (REAL)(i + 1) : (REAL)(i == 3 ? 8 : i + 2) * (REAL)lowest / 2;
    for (int i = 0; i < NODES; i++) {
        REAL product = 1;
        for (int other = 0; other < NODES; other++)
            if (other != i) product *= node[i] - node[other];
        over[i] = 1 / product;
    }
    for (int k = 0; k < 3; k++)
        for (int j = 0; j < BLOCK; j++) {
            const REAL e = b[j] - (REAL)k;
            const REAL low = (e - node[0]) * (e - node[1]), high = (e - node[2]) * (e - node[3]);
            start->at_b[k][0][j] = (e - node[1]) * high * over[0];
            start->at_b[k][1][j] = (e - node[0]) * high * over[1];
            start->at_b[k][2][j] = (e - node[3]) * low * over[2];
            start->at_b[k][3][j] = (e - node[2]) * low * over[3];
        }
    REAL is_order[NODES + 1][BLOCK] = {{0}}; /* 1 for the first node from b on, the lowest never */
    for (int j = 0; j < BLOCK; j++) {
        is_order[1][j] = b[j] <= node[1] ? (REAL)1 : (REAL)0;
        is_order[3][j] = b[j] > node[2] ? (REAL)1 : (REAL)0;
        is_order[2][j] = 1 - is_order[1][j] - is_order[3][j];
    }
    for (int i = 0; i < NODES; i++) {
        const REAL share = 1 / node[i], down = i > 0 ? 1 / (node[i] - node[i - 1]) : (REAL)0;
        const REAL up = i < NODES - 1 ? 1 / (node[i + 1] - node[i]) : (REAL)0;
        for (int j = 0; j < BLOCK; j++) {
            start->norm[i][j] = is_order[i][j] * share;
            start->slope[i][j] = is_order[i + 1][j] * up - is_order[i][j] * down;
        }
    }
}

/* sum over the nodes of weight times log sum. */
static inline REAL TYPED(at_nodes)(const REAL weight[NODES][BLOCK], const REAL logs[NODES][BLOCK],
                                   int j) {
    return (weight[0][j] * logs[0][j] + weight[1][j] * logs[1][j])
           + (weight[2][j] * logs[2][j] + weight[3][j] * logs[3][j]);
}

/* One step of every column from the sums at the nodes; the least steepness rises to what is known
 * to be at or below that of the root. */
NEVER_INLINE void TYPED(start_step)(const REAL sums[NODES][BLOCK],
                                    const TYPED(EntmaxStart) *restrict start,
                                    TYPED(EntmaxColumns) *restrict at) {
    const REAL most = 32, zero = (REAL)(at == NULL); /* as in moments */
    REAL logs[NODES][BLOCK], sum[BLOCK], slope[BLOCK], bend[BLOCK];
    for (int i = 0; i < NODES; i++)
        for (int j = 0; j < BLOCK; j++) logs[i][j] = TYPED(log2_of)(sums[i][j]);
    for (int j = 0; j < BLOCK; j++) {
        const REAL power = TYPED(at_nodes)(start->at_b[0], logs, j);
        const REAL apart = TYPED(at_nodes)(start->at_b[1], logs, j) - power;
        const REAL farther = TYPED(at_nodes)(start->at_b[2], logs, j) - power;
        sum[j] = TYPED(smaller)(TYPED(larger)(power, zero), most);
        slope[j] = TYPED(exp2_of)(TYPED(smaller)(TYPED(larger)(apart, zero), most));
        bend[j] = TYPED(exp2_of)(TYPED(smaller)(TYPED(larger)(farther, zero), most));
    }
    for (int j = 0; j < BLOCK; j++) {
        /* The tangent's slope is at least 1, and at most the chord's to the order before. */
        const REAL now = at->steepness[j];
        const REAL h = 1 - now * TYPED(exp2_of)(-TYPED(at_nodes)(start->norm, logs, j));
        const REAL chord = TYPED(exp2_of)(TYPED(at_nodes)(start->slope, logs, j));
        const REAL a = h > 0 ? chord : (REAL)1;
        at->least[j] = TYPED(larger)(now * a / (a - h) * (1 - (REAL)1e-4), at->least[j]);
    }
    for (int j = 0; j < BLOCK; j++) {
        const REAL now = at->steepness[j], h = 1 - now * TYPED(exp2_of)(-at->beta[j] * sum[j]);
        const REAL a = slope[j], v = (at->b[j] - 1) * (bend[j] - a * a), halley = 2 * a * a - h * v;
        const REAL whole = halley > 0 ? halley : a, part = halley > 0 ? 2 * h * a : h;
        const REAL next = now * whole / TYPED(larger)(whole - part, whole * (REAL)0.05);
        at->steepness[j] = TYPED(larger)(TYPED(smaller)(next, at->beyond[j]), at->least[j]);
    }
}

/* Move every column close to its root, from t = 1, as all of one lowest node do. */
static void TYPED(start_from)(const REAL *x, ptrdiff_t n, int lowest, Ahead *ahead,
                              TYPED(EntmaxColumns) *restrict columns) {
    TYPED(EntmaxStart) start;
    TYPED(prepare_start)(&start, lowest, columns->b);
    /* From here down the last power would be denormal. The first is below 2^-23 here. */
    static const REAL smallest[] = {0, (REAL)0x1p-25, (REAL)0x1p-12, 0, (REAL)0x1p-6, 0, 0,
                                    0, (REAL)0x1p-3};
    const REAL least = smallest[lowest];
    const int passes = IS_DOUBLE && lowest == 1 ? 3
                                                : 2; /* logarithms cost more than a polynomial */
    for (int pass = 0; pass < passes; pass++) {
        const REAL *steepness = columns->steepness;
        REAL sums[NODES][BLOCK];
        switch (lowest) {
            case 1:
                TYPED(node_powers)(x, n, steepness, least, 1, sums);
                break;
            case 2:
                TYPED(node_powers)(x, n, steepness, least, 2, sums);
                break;
            case 4:
                TYPED(node_powers)(x, n, steepness, least, 4, sums);
                break;
            default:
                TYPED(node_powers)(x, n, steepness, least, 8, sums);
        }
        for (int k = 0; k < 4; k++) ask_ahead(ahead);
        TYPED(start_step)(sums, &start, columns);
    }
}

/* Move every column close to its root, from t = 1, by the nodes that suit its α. */
static void TYPED(entmax_start)(const REAL *x, ptrdiff_t n, const double alpha[BLOCK], Ahead *ahead,
                                TYPED(EntmaxColumns) *restrict columns) {
    int lowest[BLOCK];
    for (int j = 0; j < BLOCK; j++)
        lowest[j] = j > 0 && alpha[j] == alpha[j - 1] ? lowest[j - 1]
                                                      : TYPED(lowest_node)(alpha[j]);
    for (int node = 1; node <= 8; node *= 2) {
        TYPED(EntmaxColumns) moved = *columns;
        bool any = false;
        for (int j = 0; j < BLOCK; j++) any |= lowest[j] == node;
        if (!any) continue;
        TYPED(start_from)(x, n, node, ahead, &moved);
        for (int j = 0; j < BLOCK; j++) {
            if (lowest[j] != node) continue;
            columns->steepness[j] = moved.steepness[j];
            columns->least[j] = moved.least[j];
        }
    }
}

#endif
