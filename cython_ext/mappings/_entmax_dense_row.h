/* α-entmax of long rows of floats with most of their entries in the support: a template. Forward it
 * is for powers that are no products, which search and finish faster; in a loss for all of them.
 * The NumPy twin is pyentmax/mappings/entmax.py.
 *
 * The time of such a row goes into powers. One of each entry has to be taken; here a second one is
 * hardly ever. In the terms of thresholds/entmax_below_2.h,
 *
 * 1. a sample of the row tells t to some per cent, and its sums of w^b and of two more powers
 * there;
 * 2. how the row's sums differ from the sample's is seen in sums of three whole powers, which are
 *    products. It depends so little on the exponent that what is interpolated between them mends
 *    the sample's other sums, and a step from these ends some 1e-5 from the root;
 * 3. powers of all entries there tell what is left. It moves p along its tangent, except for the
 *    entries close to the threshold: of these powers are taken again.
 */
#ifndef PYENTMAX_MAPPINGS__ENTMAX_DENSE_ROW_H
#define PYENTMAX_MAPPINGS__ENTMAX_DENSE_ROW_H

#include "elementary/powers.h"
#include "rows/ahead.h"
#include "rows/steps.h"
#include "thresholds/entmax_below_2.h"

enum {
    WORTH_A_SAMPLE = 1024, /* entries */
    SAMPLED = 16,          /* one of so many, */
    FIRST_LOOK = 4,        /* and of these again, to see whether a row is dense */
};

#define TEMPLATE "mappings/_entmax_dense_row.h"
#include "float_and_double.h"

#elif defined(REAL)

#if !IS_DOUBLE

/* A row for which 1/t is steepness: w = 1 + scale (z - largest) steepness, and p = t^b w^b. */
typedef struct {
    const TYPED(PreparedPower) *power; /* of b - 2 */
    REAL b, largest, scale, steepness;
} TYPED(DenseRow);

/* sum w^b, sum w^(b - 1) and sum w^(b - 2), times 2^SHIFT. */
typedef struct {
    REAL p, s, bend;
} TYPED(DenseSums);

/* A row is taken LANES scores at a time; `last` is room for what stands for those at its end. */
ALWAYS_INLINE const REAL *TYPED(whole_scores)(const REAL *z, ptrdiff_t i, ptrdiff_t n,
                                              REAL last[LANES]) {
    if (n - i >= LANES) return z + i;
    for (int j = 0; j < LANES; j++) last[j] = i + j < n ? z[i + j] : -(REAL)INFINITY;
    return last;
}

/* Add to the sums those of `count` registers of scores, and write each entry's w^(b - 1) 2^SHIFT.
 */
ALWAYS_INLINE void TYPED(add_dense)(const TYPED(PreparedPower) *power, const REAL *restrict scores,
                                    REAL largest, REAL slope, const int count, REAL *restrict s,
                                    TYPED(Register) sum[3][TYPED(REGISTERS)]) {
    for (int start = 0; start < count; start += ABREAST) {
        const int size = count - start < ABREAST ? count - start : ABREAST;
        TYPED(Register) w[ABREAST], q[ABREAST];
        for (int k = 0; k < size; k++) {
            const ptrdiff_t at = (start + k) * TYPED(WIDTH);
            const TYPED(Register) gap = (TYPED(load_register)(scores + at) - largest) * slope;
            q[k] = w[k] = TYPED(at_least)(1 + gap, EPSILON / 4);
        }
        TYPED(prepared_power)(power, q, size);
        for (int k = 0; k < size; k++) {
            const int r = (start + k) % TYPED(REGISTERS);
            const TYPED(Register) q_w = q[k] * w[k];
            sum[0][r] += q_w * w[k];
            sum[1][r] += q_w;
            sum[2][r] += q[k];
            TYPED(store_register)(q_w, s + (start + k) * TYPED(WIDTH));
        }
    }
}

/* The sums, and each entry's w^(b - 1) 2^SHIFT; as much as is read is asked for from `next` on. */
static TYPED(DenseSums) TYPED(dense_powers)(const TYPED(DenseRow) *row, const REAL *restrict z,
                                            ptrdiff_t n, const REAL *next, REAL *restrict s) {
    enum { STEP = ABREAST * TYPED(WIDTH) > LANES ? ABREAST * TYPED(WIDTH) : LANES };
    const TYPED(PreparedPower) power = *row->power;
    const REAL largest = row->largest, slope = row->scale * row->steepness;
    double all[3] = {0, 0, 0};
    REAL last[LANES], lanes[LANES];
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        TYPED(Register) sum[3][TYPED(REGISTERS)];
        for (int k = 0; k < TYPED(REGISTERS); k++)
            sum[0][k] = sum[1][k] = sum[2][k] = (TYPED(Register)){0};
        ptrdiff_t i = start;
        for (; i + STEP <= end; i += STEP) {
            for (int j = 0; j < STEP; j += LANES) ASK_FOR(next + i + j);
            TYPED(add_dense)(&power, z + i, largest, slope, STEP / TYPED(WIDTH), s + i, sum);
        }
        for (; i < end; i += LANES) {
            const REAL *scores = TYPED(whole_scores)(z, i, n, last);
            ASK_FOR(next + i);
            TYPED(add_dense)(&power, scores, largest, slope, TYPED(REGISTERS), s + i, sum);
        }
        for (int which = 0; which < 3; which++) {
            memcpy(lanes, sum[which], sizeof lanes);
            all[which] += TYPED(lane_sum)(lanes);
        }
    }
    return (TYPED(DenseSums)){(REAL)all[0], (REAL)all[1], (REAL)all[2]};
}

/* w^lowest, for 0 to 5; w^0 is 0 where w is. */
ALWAYS_INLINE TYPED(Register) TYPED(whole_power)(TYPED(Register) w, const int lowest) {
    const TYPED(Register) square = w * w, zero = {0};
    switch (lowest) {
        case 0:
            return TYPED(choose_above)(w, zero, zero + 1, zero);
        case 1:
            return w;
        case 2:
            return square;
        case 3:
            return square * w;
        case 4:
            return square * square;
        default:
            return square * square * w;
    }
}

/* The logarithms of the sums of w^lowest and of the next two whole powers. */
ALWAYS_INLINE void TYPED(log_whole_sums)(const TYPED(DenseRow) *row, const REAL *restrict z,
                                         ptrdiff_t n, const int lowest, REAL logs[3]) {
    const REAL largest = row->largest, slope = row->scale * row->steepness;
    double all[3] = {0, 0, 0};
    REAL last[LANES], lanes[LANES];
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        TYPED(Register) sum[3][TYPED(REGISTERS)];
        for (int k = 0; k < TYPED(REGISTERS); k++)
            sum[0][k] = sum[1][k] = sum[2][k] = (TYPED(Register)){0};
        for (ptrdiff_t i = start; i < end; i += LANES) {
            const REAL *scores = TYPED(whole_scores)(z, i, n, last);
            for (int k = 0; k < TYPED(REGISTERS); k++) {
                const ptrdiff_t j = k * TYPED(WIDTH);
                const TYPED(Register) gap = (TYPED(load_register)(scores + j) - largest) * slope;
                const TYPED(Register) w = TYPED(at_least)(1 + gap, 0);
                TYPED(Register) power = TYPED(whole_power)(w, lowest);
                sum[0][k] += power;
                power *= w;
                sum[1][k] += power;
                sum[2][k] += power * w;
            }
        }
        for (int which = 0; which < 3; which++) {
            memcpy(lanes, sum[which], sizeof lanes);
            all[which] += TYPED(lane_sum)(lanes);
        }
    }
    for (int k = 0; k < 3; k++) logs[k] = TYPED(log2_of)((REAL)all[k]);
}

static void TYPED(log_node_sums)(const TYPED(DenseRow) *row, const REAL *z, ptrdiff_t n, int lowest,
                                 REAL logs[3]) {
    switch (lowest) {
        case 0:
            TYPED(log_whole_sums)(row, z, n, 0, logs);
            break;
        case 1:
            TYPED(log_whole_sums)(row, z, n, 1, logs);
            break;
        case 2:
            TYPED(log_whole_sums)(row, z, n, 2, logs);
            break;
        case 3:
            TYPED(log_whole_sums)(row, z, n, 3, logs);
            break;
        case 4:
            TYPED(log_whole_sums)(row, z, n, 4, logs);
            break;
        default:
            TYPED(log_whole_sums)(row, z, n, 5, logs);
    }
}

/* The part of itself that t is too large by, from sums of which one entry counts for `weight`: by
 * Halley's step, as in entmax_step(). */
static REAL TYPED(dense_part)(const TYPED(DenseRow) *row, TYPED(DenseSums) sums, REAL weight) {
    const REAL sum = sums.p * TYPED(power_of_2)(ROUNDER, -SHIFT) * weight;
    const REAL h = 1 - row->steepness * TYPED(exp2_of)(-TYPED(log2_of)(sum) / row->b);
    const REAL a = sums.s / sums.p, v = (row->b - 1) * (sums.bend / sums.p - a * a);
    return 2 * h * a / (2 * a * a - h * v);
}

/* What a tangent leaves out of the sum of p, as a part of it: much where a crowd of entries lies
 * close to the threshold. */
static REAL TYPED(left_out)(const TYPED(DenseRow) *row, TYPED(DenseSums) sums, REAL part) {
    const REAL curve = row->b * (row->b - 1) / 2 * part * part;
    return curve * (sums.p - 2 * sums.s + sums.bend) / sums.p;
}

/* A sample of scores, each part of which is spread over the row, and their mean gap. */
static REAL TYPED(sample_scores)(const TYPED(DenseRow) *row, const REAL *z, ptrdiff_t n,
                                 ptrdiff_t size, REAL *sample) {
    const ptrdiff_t groups = size / LANES, apart = n / groups;
    const REAL *middle = z + (apart - LANES) / 2; /* rows may be sorted */
    REAL sum[LANES] = {0};
    for (ptrdiff_t g = 0; g < groups; g++) {
        REAL *to = sample + (g % FIRST_LOOK * (groups / FIRST_LOOK) + g / FIRST_LOOK) * LANES;
        memcpy(to, middle + g * apart, LANES * sizeof(REAL));
        for (int j = 0; j < LANES; j++) sum[j] += to[j] - row->largest;
    }
    return TYPED(lane_sum)(sum) / (REAL)size * row->scale;
}

/* Is the mean of the row in its support? Then a t that is right to some per cent, and the sample's
 * sums there. */
static bool TYPED(dense_sample)(TYPED(DenseRow) *row, const REAL *sample, ptrdiff_t size,
                                ptrdiff_t n, REAL mean, REAL *s, TYPED(DenseSums) *sums) {
    if (!(mean > -1)) return false; /* t is 1 at most */
    /* From where all would have the mean gap: above the root, as powers are convex. */
    row->steepness = 1 / (TYPED(exp2_of)(-TYPED(log2_of)((REAL)n) / row->b) - mean);
    ptrdiff_t count = size / FIRST_LOOK;
    for (int pass = 0; pass < 8; pass++, count = size) {
        *sums = TYPED(dense_powers)(row, sample, count, sample, s);
        const REAL part = TYPED(dense_part)(row, *sums, (REAL)n / (REAL)count);
        if (count == size && FABS(part) < (REAL)0.03) return true;
        row->steepness /= 1 - part;
        if (!(row->steepness > 1 && row->steepness * -mean < 1)) return false;
    }
    return false;
}

/* Scores and, in s, w^(b - 1) to p. What is left of the last step moves w by move (w - 1): p by a
 * tangent, except where w is close to 0. Returns the sum of p. */
static double TYPED(finish_dense_row)(const TYPED(DenseRow) *row, const REAL *restrict z,
                                      ptrdiff_t n, const REAL *restrict s, REAL part,
                                      TYPED(DenseSums) sums, REAL *restrict p) {
    const REAL largest = row->largest, slope = row->scale * row->steepness;
    const REAL move = part / (1 - part), rest = row->b * move;
    const REAL factor = 1 / (sums.p + rest * (sums.p - sums.s));
    /* A tangent leaves b^2 move^2/(2 w^2) of p at most, the contract allows 16 ε/(t w). */
    const REAL close = rest * rest / (4 * EPSILON * row->steepness) + 8 * FABS(move);
    REAL last[LANES], last_p[LANES], lanes[LANES];
    double total = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t end = n - start < LEAF ? n : start + LEAF;
        TYPED(Register) sum[TYPED(REGISTERS)];
        for (int k = 0; k < TYPED(REGISTERS); k++) sum[k] = (TYPED(Register)){0};
        for (ptrdiff_t i = start; i < end; i += LANES) {
            const REAL *scores = TYPED(whole_scores)(z, i, n, last);
            REAL *to = n - i >= LANES ? p + i : last_p;
            for (int k = 0; k < TYPED(REGISTERS); k++) {
                const ptrdiff_t j = k * TYPED(WIDTH);
                const TYPED(Register) gap = (TYPED(load_register)(scores + j) - largest) * slope;
                const TYPED(Register) base = 1 + gap, square = base * base;
                TYPED(Register) value = TYPED(load_register)(s + i + j) * (base + rest * gap);
                if (TYPED(any_below)(square, close * close)) {
                    const TYPED(Register) w = TYPED(at_least)(base + move * gap, EPSILON / 4);
                    TYPED(Register) exact = w;
                    TYPED(prepared_power)(row->power, &exact, 1);
                    value = TYPED(where_below)(square, close * close, exact * w * w, value);
                }
                value = TYPED(at_least)(value * factor, 0);
                sum[k] += value;
                TYPED(store_register)(value, to + j);
            }
        }
        memcpy(lanes, sum, sizeof lanes);
        total += TYPED(lane_sum)(lanes);
    }
    if (n % LANES) memcpy(p + n / LANES * LANES, last_p, (size_t)(n % LANES) * sizeof *p);
    return total;
}

/* The sums of the row, from those of the sample, by parabolas through the logarithms of how many
 * times as large its sums of whole powers are. */
static TYPED(DenseSums)
    TYPED(mended_sums)(const TYPED(DenseRow) *row, const REAL *z, ptrdiff_t n, const REAL *sample,
                       ptrdiff_t size, TYPED(DenseSums) sums) {
    const int lowest = row->b < 6 ? (int)row->b - 1 : 5;
    REAL of_sample[3], of_row[3], times[3];
    TYPED(log_node_sums)(row, sample, size, lowest, of_sample);
    TYPED(log_node_sums)(row, z, n, lowest, of_row);
    const REAL first = of_row[0] - of_sample[0], second = of_row[1] - of_sample[1];
    const REAL third = of_row[2] - of_sample[2];
    for (int k = 0; k < 3; k++) {
        const REAL e = row->b - (REAL)(k + lowest), outer = first * (e - 2) + third * e;
        times[k] = TYPED(exp2_of)(outer * (e - 1) / 2 - second * e * (e - 2));
    }
    return (TYPED(DenseSums)){sums.p * times[0], sums.s * times[1], sums.bend * times[2]};
}

/* p of such a row, or false if it is none. room holds whole lanes of the row. */
static bool TYPED(entmax_dense_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    REAL largest, double alpha, const TYPED(PreparedPower) *power,
                                    Ahead *ahead, REAL *restrict room) {
    if (power == NULL || n < WORTH_A_SAMPLE) return false;
    TYPED(DenseRow) row = {power, (REAL)(1 / (alpha - 1)), largest, (REAL)(alpha - 1), 1};
    const ptrdiff_t size = n / SAMPLED / (FIRST_LOOK * LANES) * (FIRST_LOOK * LANES);
    TYPED(DenseSums) sums;
    const REAL mean = TYPED(sample_scores)(&row, z, n, size, room);
    if (!TYPED(dense_sample)(&row, room, size, n, mean, room + size, &sums)) return false;

    sums = TYPED(mended_sums)(&row, z, n, room, size, sums);
    for (int pass = 0; pass < 3; pass++) {
        row.steepness /= 1 - TYPED(dense_part)(&row, sums, 1);
        if (!(row.steepness > 1)) return false;
        sums = TYPED(dense_powers)(&row, z, n, next_or(ahead, z), room);
        const REAL part = TYPED(dense_part)(&row, sums, 1);
        if (FABS(part) < TANGENT_REACHES && TYPED(left_out)(&row, sums, part) < EPSILON) {
            const double sum = TYPED(finish_dense_row)(&row, z, n, room, part, sums, p);
            /* Near α = 2 a crowd that crosses the threshold with the last step is not told of. */
            return alpha <= 1.5 || fabs(sum - 1) <= 8 * EPSILON;
        }
    }
    return false;
}

#else

/* Double has no prepared powers. */
static bool TYPED(entmax_dense_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    REAL largest, double alpha, const TYPED(PreparedPower) *power,
                                    Ahead *ahead, REAL *restrict room) {
    (void)z, (void)p, (void)n, (void)largest, (void)alpha, (void)power, (void)ahead, (void)room;
    return false;
}

#endif

#endif
