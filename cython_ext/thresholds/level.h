/* The level up to which vessels are filled: a template.
 *
 * Each p_i = clip(raised(a_i, t), 0, u_i) is linear in the level t from where it starts to where it
 * is full, so their sum is piecewise linear, and rises. No sort is needed to find t: Newton's step
 * is exact if it crosses no breakpoint, and a bracket keeps it from cycling. A long row starts from
 * the level of every sixteenth entry.
 */
#ifndef PYENTMAX_THRESHOLDS_LEVEL_H
#define PYENTMAX_THRESHOLDS_LEVEL_H

#include "elementary/sort_keys.h"
#include "rows/lanes.h"

enum {
    SAMPLE_STEP = 16,    /* one entry in so many is sampled, */
    WORTH_A_LEVEL = 512, /* in rows from this length on */
    MOST_LEVELS = 150,
};

/* At one level: the sum, and its slope. */
typedef struct {
    double sum, slope;
} Filled;

/* A level, what it lacks, the highest that there is, and what all bounds sum to. */
typedef struct {
    double t, rest, highest, bounds;
} Level;

/* Halfway between low <= high in the order of floating-point numbers. */
static inline double middle_float(double low, double high) {
    const uint64_t sign = (uint64_t)1 << 63, from = rising_key_f64(low);
    const uint64_t key = from + (rising_key_f64(high) - from) / 2;
    return from_bits_f64((int64_t)(key & sign ? key ^ sign : ~key));
}

#define TEMPLATE "thresholds/level.h"
#include "float_and_double.h"

#elif defined(REAL)

/* n entries, in whole lanes, that rise with the level t from a to a + t, or, scaled, from 0 to a t,
 * up to their bounds u; a and u are 0 where there is nothing to fill. */
typedef struct {
    const REAL *a, *u;
    ptrdiff_t n;
    bool scaled;
} TYPED(Vessels);

/* p at the level t, raised by what the level lacks, `rest`, and its sum; it is written to value, if
 * there is one. Where t is far above a bound, the rest could be infinite as well. */
ALWAYS_INLINE Filled TYPED(level_pass)(TYPED(Vessels) all, double t, double rest, REAL *value) {
    const REAL factor = all.scaled ? (REAL)t : 1, offset = all.scaled ? 0 : (REAL)t; /* exact */
    const REAL steep = all.scaled ? 1 : 0, even = 1 - steep, further = (REAL)rest;
    const REGISTER none = {0};
    Filled total = {0, 0};
    for (ptrdiff_t start = 0; start < all.n; start += LEAF) {
        const ptrdiff_t end = all.n - start < LEAF ? all.n : start + LEAF;
        REGISTER sum[REGISTERS], slope[REGISTERS];
        REAL lanes[LANES];
        for (int k = 0; k < REGISTERS; k++) sum[k] = slope[k] = none;
        for (ptrdiff_t i = start; i < end; i += LANES)
            for (int k = 0; k < REGISTERS; k++) {
                const REGISTER a = TYPED(load_register)(all.a + i + k * WIDTH);
                const REGISTER u = TYPED(load_register)(all.u + i + k * WIDTH);
                const REGISTER gain = a * steep + even;
                REGISTER raised = a * factor + offset;
                if (value)
                    raised = TYPED(choose_above)(2 * u, raised, raised + gain * further, raised);
                raised = TYPED(at_least)(raised, 0);
                const MASK open = (raised > none) & (u > raised);
                raised = TYPED(smaller_of)(u, raised);
                sum[k] += raised;
                slope[k] += (REGISTER)(open & (MASK)gain);
                if (value) TYPED(store_register)(raised, value + i + k * WIDTH);
            }
        for (int k = 0; k < REGISTERS; k++) TYPED(store_register)(sum[k], lanes + k * WIDTH);
        total.sum += TYPED(lane_sum)(lanes);
        for (int k = 0; k < REGISTERS; k++) TYPED(store_register)(slope[k], lanes + k * WIDTH);
        total.slope += TYPED(lane_sum)(lanes);
    }
    return total;
}

NEVER_INLINE Filled TYPED(at_level)(TYPED(Vessels) all, double t) {
    return TYPED(level_pass)(all, t, 0, NULL);
}

NEVER_INLINE double TYPED(filled)(TYPED(Vessels) all, double t, double rest, REAL *value) {
    return TYPED(level_pass)(all, t, rest, value).sum;
}

/* The level where the sum is `total`, and in *rest what of it rounding takes away, from a guess;
 * all is full at the highest level.
 *
 * Where a step leaves the bracket, it is cut in proportion to the sums at its ends. From the
 * twentieth pass on every other one halves the bracket in the order of floating-point numbers, of
 * which there are fewer than 2^63 above 0: 150 passes at most, whatever the row holds. */
static double TYPED(find_level)(TYPED(Vessels) all, double total, double t, double highest,
                                double *rest) {
    const double rounding = IS_DOUBLE ? 2 * EPSILON : 8 * EPSILON; /* of a sum, of floats too */
    double lowest = 0, least = 0, most = 2 * total; /* sums there, of which the last is a guess */
    *rest = 0;
    for (int pass = 0; pass < MOST_LEVELS; pass++) {
        const Filled now = TYPED(at_level)(all, t);
        const double lacks = total - now.sum, step = lacks / now.slope;
        if (fabs(lacks) <= rounding * total || fabs(step) <= 2 * EPSILON * t) {
            *rest = now.slope > 0 ? step : 0;
            break;
        }
        *(now.sum < total ? &lowest : &highest) = t;
        *(now.sum < total ? &least : &most) = now.sum;
        double next = t + step;
        if (pass >= 20 && pass % 2 == 0)
            next = middle_float(lowest, highest);
        else if (!(lowest < next && next < highest))
            next = lowest
                   + fmin(fmax((total - least) / (most - least), 0.1), 0.9) * (highest - lowest);
        next = (REAL)next;
        if (next == t) break;
        t = next;
    }
    return t;
}

/* The same from no guess; room is for 2 n/SAMPLE_STEP.
 *
 * The first level: without bounds it were the whole of what is scaled. Otherwise at most what the
 * largest entry alone takes, and at most the mean that is left over any of the entries. A long row
 * begins with that of a sample, which has its share of the total. */
static Level TYPED(level)(TYPED(Vessels) all, double total, REAL *restrict room) {
    const ptrdiff_t n = all.n, size = n / (SAMPLE_STEP * LANES) * LANES;
    REAL sum[LANES] = {0}, count[LANES] = {0}, top[LANES] = {0}, bounds[LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            sum[j] += all.a[i + j];
            count[j] += all.u[i + j] > 0 ? (REAL)1 : (REAL)0;
            bounds[j] += all.u[i + j];
            top[j] = TYPED(larger)(all.u[i + j] - all.a[i + j], top[j]);
        }
    const double sum_a = TYPED(lane_sum)(sum);
    const double mean = (total - sum_a) / TYPED(lane_sum)(count);
    Level found = {0, 0, all.scaled ? DBL_MAX : TYPED(lane_max)(top), TYPED(lane_sum)(bounds)};
    found.t = all.scaled ? total / sum_a : fmin(fmin(total, mean), found.highest);
    if (n >= WORTH_A_LEVEL) {
        const double part = total * ((double)size / (double)n);
        double some = 0;
        for (ptrdiff_t i = 0; i < size; i++) {
            room[i] = all.a[i * SAMPLE_STEP];
            room[size + i] = all.u[i * SAMPLE_STEP];
            some += room[size + i];
        }
        const TYPED(Vessels) sample = {room, room + size, size, all.scaled};
        if (some > part)
            found.t = TYPED(find_level)(sample, part, found.t, found.highest, &found.rest);
    }
    found.t = TYPED(find_level)(all, total, found.t, found.highest, &found.rest);
    return found;
}

#endif
