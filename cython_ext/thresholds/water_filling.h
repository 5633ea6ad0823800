/* Probabilities with upper bounds, of one row, by filling up to a common level: a template. The
 * NumPy twins are `newton_water_fill` in tests/search_twins.py, and for
 * the shifts `solve_shifted` in pyentmax/reference/mappings/_bounded.py.
 *
 * p_i = clip(raised(a_i, t), 0, u_i) with the level t > 0 at which they sum to a total. Each is
 * linear in t from where it starts to where it is full, so their sum is piecewise linear, and
 * rises. No sort is needed to find t: Newton's step is exact if it crosses no breakpoint, and a
 * bracket keeps it from cycling. A long row starts from the level of every sixteenth entry. All of
 * it is in double, whatever the scores are.
 */
#ifndef PYENTMAX_THRESHOLDS_WATER_FILLING_H
#define PYENTMAX_THRESHOLDS_WATER_FILLING_H

#include "elementary/exp.h"
#include "elementary/sort_keys.h"
#include "rows/doubles.h"
#include "rows/steps.h"

enum {
    SAMPLE_STEP = 16,     /* one entry in so many is sampled, */
    WORTH_A_LEVEL = 1024, /* in rows from this length on */
    MOST_LEVELS = 150,
};

/* n entries, in whole lanes, that rise with the level t from a to a + t, or, scaled, from 0 to a t,
 * up to their bounds u; a and u are 0 where there is nothing to fill. */
typedef struct {
    const double *a, *u;
    ptrdiff_t n;
    bool scaled;
} Vessels;

/* At one level: the sum, and its slope. */
typedef struct {
    double sum, slope;
} Filled;

static Filled at_level(Vessels all, double t) {
    const double factor = all.scaled ? t : 1, offset = all.scaled ? 0 : t; /* exact, as are those */
    const double steep = all.scaled ? 1 : 0, even = 1 - steep;
    const Register_f64 none = {0};
    Filled total = {0, 0};
    for (ptrdiff_t start = 0; start < all.n; start += LEAF) {
        const ptrdiff_t end = all.n - start < LEAF ? all.n : start + LEAF;
        Register_f64 sum[REGISTERS_f64], slope[REGISTERS_f64];
        double lanes[LANES];
        for (int k = 0; k < REGISTERS_f64; k++) sum[k] = slope[k] = none;
        for (ptrdiff_t i = start; i < end; i += LANES)
            for (int k = 0; k < REGISTERS_f64; k++) {
                const Register_f64 a = load_register_f64(all.a + i + k * WIDTH_f64);
                const Register_f64 u = load_register_f64(all.u + i + k * WIDTH_f64);
                const Register_f64 value = at_least_f64(a * factor + offset, 0);
                const Register_f64 on = choose_above_f64(value, none, a * steep + even, none);
                sum[k] += choose_above_f64(u, value, value, u);
                slope[k] += choose_above_f64(u, value, on, none);
            }
        for (int k = 0; k < REGISTERS_f64; k++) store_register_f64(sum[k], lanes + k * WIDTH_f64);
        total.sum += lane_sum_f64(lanes);
        for (int k = 0; k < REGISTERS_f64; k++) store_register_f64(slope[k], lanes + k * WIDTH_f64);
        total.slope += lane_sum_f64(lanes);
    }
    return total;
}

/* Halfway between low <= high in the order of floating-point numbers. */
static inline double middle_float(double low, double high) {
    const uint64_t sign = (uint64_t)1 << 63, from = rising_key_f64(low);
    const uint64_t key = from + (rising_key_f64(high) - from) / 2;
    return from_bits_f64((int64_t)(key & sign ? key ^ sign : ~key));
}

/* The level where the sum is `total`, and in *rest what of it rounding takes away, from a guess;
 * all is full at the highest level.
 *
 * Where a step leaves the bracket, its middle is tried. From the twentieth pass on every other one
 * halves the bracket in the order of floating-point numbers, of which there are fewer than 2^63
 * above 0: 150 passes at most, whatever the row holds. */
static double find_level(Vessels all, double total, double t, double highest, double *rest) {
    double lowest = 0;
    *rest = 0;
    for (int pass = 0; pass < MOST_LEVELS; pass++) {
        const Filled now = at_level(all, t);
        const double lacks = total - now.sum, step = lacks / now.slope;
        if (fabs(lacks) <= 2 * DBL_EPSILON * total || fabs(step) <= 2 * DBL_EPSILON * t) {
            *rest = now.slope > 0 ? step : 0;
            break;
        }
        *(now.sum < total ? &lowest : &highest) = t;
        double next = t + step;
        if (pass >= 20 && pass % 2 == 0)
            next = middle_float(lowest, highest);
        else if (!(lowest < next && next < highest))
            next = lowest + (highest - lowest) / 2;
        if (next == t) break;
        t = next;
    }
    return t;
}

/* p at a level, and its sum: rest is what the level lacks. Where that is far above a bound, a rest
 * could be infinite as well. */
static double filled(Vessels all, double t, double rest, double *restrict value) {
    for (ptrdiff_t i = 0; i < all.n; i++) {
        const double a = all.a[i], raised = all.scaled ? a * t : a + t;
        double p = raised + (all.scaled ? a * rest : rest);
        p = raised < 2 * all.u[i] ? p : raised;
        p = p > 0 ? p : 0;
        value[i] = p < all.u[i] ? p : all.u[i];
    }
    return sum_of(value, all.n);
}

/* p at the level where it sums to the total, in value; a is all.a.
 *
 * The first level: without bounds it were the whole of what is scaled. Otherwise at most what the
 * largest entry alone takes, and at most the mean that is left over any of the entries. A long row
 * begins with that of a sample, which has its share of the total.
 *
 * A level is rounded for all entries alike, and where it ends between two floats, or some entries
 * are so near to it that not even the rest is theirs alike, thousands add that up. So what is not
 * scaled and does not sum up is filled again, from a little below: there the level has all its
 * digits. A search that began at a sample's level, too high, may have ended there, since what the
 * sum had too much was less than two of that level's roundings: then a little below is too high as
 * well, and the level is looked for further down. */
static void fill_to(Vessels all, double *restrict a, double total, double *restrict value) {
    const ptrdiff_t n = all.n, size = n / (SAMPLE_STEP * LANES) * LANES;
    const double sum_a = sum_of(a, n);
    double rest, highest = DBL_MAX, t = total / sum_a;
    if (!all.scaled) {
        for (ptrdiff_t i = 0; i < n; i++) value[i] = all.u[i] > 0 ? 1 : 0;
        const double mean = (total - sum_a) / sum_of(value, n);
        for (ptrdiff_t i = 0; i < n; i++) value[i] = all.u[i] - a[i];
        highest = largest_of(value, n);
        t = fmin(fmin(total, mean), highest);
    }
    if (n >= WORTH_A_LEVEL) {
        const double part = total * ((double)size / (double)n);
        for (ptrdiff_t i = 0; i < size; i++) {
            value[i] = a[i * SAMPLE_STEP];
            value[size + i] = all.u[i * SAMPLE_STEP];
        }
        if (sum_of(value + size, size) > part)
            t = find_level((Vessels){value, value + size, size, all.scaled}, part, t, highest,
                           &rest);
    }
    t = find_level(all, total, t, highest, &rest);
    const double sum = filled(all, t, rest, value);
    if (all.scaled || fabs(sum - total) <= DBL_EPSILON * sqrt((double)n) * total) return;
    double below = t * (1 - 4 * DBL_EPSILON);
    for (int lower = 0; lower < 4 && at_level(all, below).sum > total; lower++) {
        t = find_level(all, total, below / 2, below, &rest);
        below = t * (1 - 4 * DBL_EPSILON);
    }
    for (ptrdiff_t i = 0; i < n; i++) a[i] = all.u[i] > 0 ? a[i] + below : 0;
    t = find_level(all, total, t - below, highest - below, &rest);
    filled(all, t, rest, value);
}

/* The sum of the bounds of scores from z on. */
static double bounds_from(double z, const double *restrict score, const double *restrict bound,
                          ptrdiff_t n, double *restrict room) {
    for (ptrdiff_t i = 0; i < n; i++) room[i] = score[i] >= z ? bound[i] : 0;
    return sum_of(room, n);
}

/* The largest score that matters, if bounds far above have no room for the total.
 *
 * Say that scores down to z_c have just bounds enough for it. An entry that is not full leaves
 * nothing to those `reach` below it, but for what rounding hides. So were it `reach` above z_c, all
 * would have to come from scores above z_c, whose bounds do not suffice. Hence what is `reach`
 * above z_c is full.
 *
 * It is z_c that is bracketed, not its gap to the largest score: that is no more than a rounding of
 * the largest, where this is far above. */
static double first_shift(const double *score, const double *bound, ptrdiff_t n, double total,
                          double reach, double *room) {
    const double largest = largest_of(score, n);
    double low = -DBL_MAX, high = largest - reach;
    if (bounds_from(high, score, bound, n, room) >= total) return largest;
    for (int pass = 0; pass < 64 && high - low > 1; pass++) { /* each takes a bit off the bracket */
        const double z = middle_float(low, high);
        if (z == low) break;
        if (bounds_from(z, score, bound, n, room) >= total)
            low = z;
        else
            high = z;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        room[i] = score[i] - high <= reach ? score[i] : -(double)INFINITY;
    return largest_of(room, n);
}

/* p of scores and bounds, -inf and 0 where there is nothing to fill, that sum to more than the
 * total. `far` is how far below another a score may be before p shows the digits that its gap has
 * lost. room is for 3 n.
 *
 * Which entries are full is seen in p: so solve once, and again as long as the largest score at 0
 * turns out to be full and far above all that are not. What scores higher than these is full, and
 * stays so. */
static void fill_bounded(const double *score, const double *bound, ptrdiff_t n, double total,
                         double far, bool scaled, double *restrict p, double *restrict room) {
    double *a = room, *u = room + n, *spare = room + 2 * n;
    /* What is left to entries so far below one that is not full, p does not show. */
    const double reach = scaled ? 100 : 100 + total;
    double shift = first_shift(score, bound, n, total, reach, spare);
    for (int shifts = 0; shifts < 4; shifts++) {
        for (ptrdiff_t i = 0; i < n; i++) spare[i] = score[i] > shift ? bound[i] : 0;
        const double left = total - sum_of(spare, n);
        /* Of entries that only round to their bounds the rest, however little, is as it was. */
        if (scaled && shifts > 0 && !(left > 0)) return;
        for (ptrdiff_t i = 0; i < n; i++) {
            const bool there = score[i] <= shift && score[i] > -(double)INFINITY;
            const double gap = score[i] - shift, held = gap > -DBL_MAX ? gap : -DBL_MAX;
            a[i] = there ? held : scaled ? -DBL_MAX : 0;
            u[i] = there ? bound[i] : 0;
        }
        for (ptrdiff_t i = 0; scaled && i < n; i++) a[i] = u[i] > 0 ? scaled_exp_f64(a[i]) : 0;
        fill_to((Vessels){a, u, n, scaled}, a, left > 0 ? left : 0, spare);
        for (ptrdiff_t i = 0; i < n; i++) {
            const double value = spare[i];
            p[i] = score[i] > shift ? bound[i] : value;
            spare[i] = p[i] < bound[i] ? score[i] : -(double)INFINITY;
        }
        const double largest_open = largest_of(spare, n);
        if (!(largest_open > -(double)INFINITY && shift - largest_open > far)) return;
        shift = largest_open;
    }
}

#define TEMPLATE "thresholds/water_filling.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A row of scores and bounds to p; scratch is for WORKSPACE n doubles, n in whole lanes. */
static void TYPED(water_fill)(const REAL *restrict z, const REAL *restrict upper, double total,
                              bool scaled, REAL *restrict p, ptrdiff_t n,
                              double *restrict scratch) {
    const REAL largest = TYPED(chunk_maxima)(z, n, (REAL *)scratch);
    const bool sound = largest > -(REAL)INFINITY && largest < (REAL)INFINITY;
    if (!(sound && total > 0)) {
        const bool nothing = total >= 0 && (sound || largest < 0);
        TYPED(fill)(p, n, nothing ? (REAL)0 : (REAL)NAN);
        return;
    }
    const ptrdiff_t padded = (n + LANES - 1) / LANES * LANES;
    double *score = scratch, *bound = scratch + padded, *value = scratch + 2 * padded;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double here = z[i], most = upper[i];
        bound[i] = here > -(double)INFINITY ? most : 0;
        score[i] = most > 0 ? here : -(double)INFINITY;
    }
    for (ptrdiff_t i = n; i < padded; i++) score[i] = -(double)INFINITY, bound[i] = 0;
    if (sum_of(bound, n) <= total * (1 + (double)EPSILON)) /* all are full, but for rounding */
        value = bound;
    else
        fill_bounded(score, bound, padded, total, IS_DOUBLE ? 1 : 100, scaled, value,
                     value + padded);
    for (ptrdiff_t i = 0; i < n; i++) p[i] = (REAL)value[i];
}

#endif
