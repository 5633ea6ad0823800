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

/* Whole exponents: the lowest, 1, 2, 4 or 8, and what node_sums() makes of it; none where b is so
 * large that one exact step from t = 1 comes as close. */
enum { NODES = 4 };

#define FAR_STEP ((REAL)0.1) /* a step by more of 1/t than this wants another */

#define TEMPLATE "thresholds/entmax_start.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Where a register of searches begins: the lowest of each one's exponents, 0 for none, and
 * logarithms of sums as weighted sums of those at its four. */
typedef struct {
    REGISTER lowest;
    REGISTER at_b[3][NODES];            /* for b, b - 1 and b - 2, by Lagrange's formula, */
    REGISTER norm[NODES], slope[NODES]; /* and of the first order from b on: the norm, and
                                         * the most that its slope can be */
} TYPED(EntmaxStart);

static void TYPED(prepare_start)(TYPED(EntmaxStart) *restrict start, const double alpha[WIDTH]) {
    static const REAL low_nodes[NODES] = {1, 2, 3, 4}, nodes[NODES] = {2, 3, 4, 8};
    const REGISTER none = {0};
    REAL inverse[WIDTH];
    for (int j = 0; j < WIDTH; j++) inverse[j] = (REAL)(1 / (alpha[j] - 1));
    const REGISTER b = TYPED(load_register)(inverse);
    REGISTER lowest = none, node[NODES];
    for (int most = 24, own = 8; own >= 1; most /= 2, own /= 2)
        lowest = TYPED(choose)(b < (REAL)most, none + (REAL)own, lowest);
    start->lowest = lowest;
    for (int i = 0; i < NODES; i++)
        node[i] = TYPED(choose)(lowest < 2, none + low_nodes[i], lowest * nodes[i] / 2);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < NODES; i++) {
            REGISTER weight = none + 1;
            for (int other = 0; other < NODES; other++)
                if (other != i) weight *= (b - (REAL)k - node[other]) / (node[i] - node[other]);
            start->at_b[k][i] = weight;
        }
    for (int i = 0; i < NODES; i++) start->norm[i] = start->slope[i] = none;
    for (int i = 1; i < NODES; i++) { /* the first node from b on, the lowest never */
        MASK own = ~(MASK){0};
        if (i > 1) own &= b > node[i - 1];
        if (i < NODES - 1) own &= ~(b > node[i]);
        const REGISTER share = 1 / (node[i] - node[i - 1]); /* chord from the node before */
        start->norm[i] = TYPED(choose)(own, 1 / node[i], none);
        start->slope[i] = TYPED(choose)(own, -share, none);
        start->slope[i - 1] = TYPED(choose)(own, share, start->slope[i - 1]);
    }
}

/* The sums of w^e for the exponents 1, 2, 3, 4 of lowest = 1, otherwise 2, 3, 4, 8 times half the
 * lowest: of those searches whose lowest it is. */
ALWAYS_INLINE void TYPED(node_sums)(const TYPED(Gaps) *gaps, const TYPED(EntmaxStart) *start,
                                    REGISTER steepness, const int lowest, REGISTER sums[NODES]) {
    /* From here down the last power would be denormal. The first is below 2^-23 here. */
    const REAL least = lowest == 2 ? (REAL)0x1p-12 : lowest == 4 ? (REAL)0x1p-6 : (REAL)0x1p-3;
    const REGISTER none = {0};
    const MASK own = start->lowest == (REAL)lowest;
    if (!TYPED(any_lane)(own)) return;
    REGISTER first = none, second = none, third = none, last = none;
    const REAL *x = gaps->x;
    for (ptrdiff_t i = 0; i < gaps->count; i++, x += gaps->apart) {
        const REGISTER base = 1 + TYPED(load_register)(x) * steepness;
        const REGISTER w = lowest == 1 ? TYPED(at_least)(base, 0)
                                       : TYPED(choose_above)(base, none + least, base, none);
        const REGISTER w_2 = w * w, u = lowest <= 2 ? w : lowest == 4 ? w_2 : w_2 * w_2;
        const REGISTER u_2 = u * u, u_3 = u_2 * u, u_4 = u_2 * u_2;
        first += lowest == 1 ? u : u_2;
        second += lowest == 1 ? u_2 : u_3;
        third += lowest == 1 ? u_3 : u_4;
        last += lowest == 1 ? u_4 : u_4 * u_4;
    }
    const REGISTER found[NODES] = {first, second, third, last};
    for (int i = 0; i < NODES; i++)
        sums[i] = TYPED(choose)(own, TYPED(total)(gaps, found[i]), sums[i]);
}

/* sum over the nodes of weight times log sum. */
ALWAYS_INLINE REGISTER TYPED(at_nodes)(const REGISTER weight[NODES], const REGISTER logs[NODES]) {
    return (weight[0] * logs[0] + weight[1] * logs[1])
           + (weight[2] * logs[2] + weight[3] * logs[3]);
}

/* 2^x for x between 0 and 32, or what is next to it. */
ALWAYS_INLINE REGISTER TYPED(bounded_exp2)(REGISTER x) {
    return TYPED(exp2_of_each)(-TYPED(at_least)(-TYPED(at_least)(x, 0), -32));
}

/* One step of each search that is far from its root, from the sums at the nodes; the least
 * steepness rises to what is known to be at or below that of the root. Afterwards a search is far
 * if it went far. */
NEVER_INLINE void TYPED(start_step)(const REGISTER sums[NODES], const TYPED(EntmaxStart) *start,
                                    MASK *far, TYPED(EntmaxSearch) *at) {
    const REGISTER none = {0}, now = at->steepness;
    REGISTER logs[NODES];
    for (int i = 0; i < NODES; i++) logs[i] = TYPED(log2_of_each)(sums[i]);
    const REGISTER log_sum = TYPED(at_nodes)(start->at_b[0], logs);
    const REGISTER a = TYPED(bounded_exp2)(TYPED(at_nodes)(start->at_b[1], logs) - log_sum);
    const REGISTER bend = TYPED(bounded_exp2)(TYPED(at_nodes)(start->at_b[2], logs) - log_sum);
    /* The tangent's slope is at least 1, and at most the chord's to the order before. */
    const REGISTER g = 1 - now * TYPED(exp2_of_each)(-TYPED(at_nodes)(start->norm, logs));
    const REGISTER chord = TYPED(exp2_of_each)(TYPED(at_nodes)(start->slope, logs));
    const REGISTER rise = TYPED(choose_above)(g, none, chord, none + 1);
    const REGISTER least = TYPED(larger_of)(now * rise / (rise - g) * (1 - (REAL)1e-4), at->least);
    at->least = TYPED(choose)(*far, least, at->least);

    const REGISTER total = -TYPED(at_least)(-TYPED(at_least)(log_sum, 0), -32);
    const REGISTER h = 1 - now * TYPED(exp2_of_each)(-at->beta * total);
    const REGISTER halley = 2 * a * a - h * ((at->b - 1) * (bend - a * a));
    const REGISTER whole = TYPED(choose_above)(halley, none, halley, a);
    const REGISTER part = TYPED(choose_above)(halley, none, 2 * h * a, h);
    const REGISTER next = now * whole / TYPED(larger_of)(whole - part, whole * (REAL)0.05);
    const REGISTER there = TYPED(larger_of)(next, at->least);
    at->steepness = TYPED(choose)(*far, there, now);
    *far &= TYPED(size_of)(there - now) > now * FAR_STEP;
}

/* Move every search closer to its root, by so many steps; by up to two more where the last one was
 * far, if that has to be settled. The gaps may be a part of the row to begin with. */
static void TYPED(entmax_start)(const TYPED(Gaps) *gaps, const TYPED(EntmaxStart) *start,
                                int passes, bool settle, TYPED(EntmaxSearch) *at) {
    const REGISTER none = {0};
    MASK far = start->lowest > 0;
    for (int pass = 0; pass < passes + (settle ? 2 : 0); pass++) {
        REGISTER sums[NODES] = {none + 1, none + 1, none + 1, none + 1};
        if (pass < passes) far = start->lowest > 0;
        if (!TYPED(any_lane)(far)) break;
        TYPED(node_sums)(gaps, start, at->steepness, 1, sums);
        TYPED(node_sums)(gaps, start, at->steepness, 2, sums);
        TYPED(node_sums)(gaps, start, at->steepness, 4, sums);
        TYPED(node_sums)(gaps, start, at->steepness, 8, sums);
        prefetch_lines(gaps->ahead, 4 * LINES_TOGETHER * WIDTH / BLOCK);
        TYPED(start_step)(sums, start, &far, at);
    }
}

#endif
