/* Probabilities with upper bounds, of one row, by filling up to a common level: a template. The
 * NumPy twins are `newton_water_fill` in pyentmax/thresholds/water_filling.py, and for the shifts
 * `solve_shifted` in pyentmax/mappings/_bounded.py.
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

/* How entries rise with the level t: from a to a + t, or from 0 to a t. */
typedef enum { SHIFTED, SCALED } Rise;

/* n entries, in whole lanes: a and the bounds u, both 0 where there is nothing to fill. */
typedef struct {
    const double *a, *u;
    ptrdiff_t n;
} Vessels;

/* At one level: the sum, and its slope. */
typedef struct {
    double sum, slope;
} Filled;

ALWAYS_INLINE double raised(double a, double t, const Rise rise) {
    return rise == SCALED ? a * t : a + t;
}

ALWAYS_INLINE double slope_of(double a, const Rise rise) {
    return rise == SCALED ? a : 1;
}

ALWAYS_INLINE Filled at_level(const Vessels *all, double t, const Rise rise) {
    const double *a = all->a, *u = all->u;
    Filled total = {0, 0};
    for (ptrdiff_t start = 0; start < all->n; start += LEAF) {
        const ptrdiff_t end = all->n - start < LEAF ? all->n : start + LEAF;
        double sum[LANES] = {0}, slope[LANES] = {0};
        for (ptrdiff_t i = start; i < end; i += LANES)
            for (int j = 0; j < LANES; j++) {
                const double value = raised(a[i + j], t, rise), left = u[i + j] - value;
                const double on = value > 0 ? slope_of(a[i + j], rise) : 0;
                const double p = value > 0 ? value : 0;
                slope[j] += left > 0 ? on : 0;
                sum[j] += p < u[i + j] ? p : u[i + j];
            }
        total.sum += lane_sum_f64(sum);
        total.slope += lane_sum_f64(slope);
    }
    return total;
}

/* Halfway between low <= high in the order of floating-point numbers. */
static inline double middle_float(double low, double high) {
    const uint64_t sign = (uint64_t)1 << 63, from = rising_key_f64(low);
    const uint64_t key = from + (rising_key_f64(high) - from) / 2;
    const uint64_t bits = key & sign ? key ^ sign : ~key;
    double middle;
    memcpy(&middle, &bits, sizeof middle);
    return middle;
}

/* The level where the sum is `total`, and in *rest what of it rounding takes away, from a guess;
 * all is full at the highest level, and the sum there is `most`.
 *
 * Where a step leaves the bracket, the secant through its ends is tried, or its middle, by turns.
 * From the twentieth pass on every other one halves the bracket in the order of floating-point
 * numbers, of which there are fewer than 2^63 above 0: 150 passes at most, whatever the row holds.
 */
ALWAYS_INLINE double find_level(const Vessels *all, double total, double t, double highest,
                                double most, const Rise rise, double *rest) {
    double lowest = 0, least = 0;
    bool secant = false;
    *rest = 0;
    for (int pass = 0; pass < MOST_LEVELS; pass++) {
        const Filled now = at_level(all, t, rise);
        const double step = (total - now.sum) / now.slope;
        if (now.sum == total) break;
        if (fabs(step) <= 2 * DBL_EPSILON * t) {
            *rest = step;
            break;
        }
        if (now.sum < total) {
            lowest = t;
            least = now.sum;
        } else {
            highest = t;
            most = now.sum;
        }
        double next = t + step;
        const bool halve = pass >= 20 && pass % 2 == 0;
        if (halve || !(lowest < next && next < highest)) {
            secant = !secant;
            const double share = secant ? (total - least) / (most - least) : 0.5;
            next = halve ? middle_float(lowest, highest) : lowest + (highest - lowest) * share;
        }
        if (next == t) break;
        t = next;
    }
    return t;
}

/* p at a level, and its sum: rest is what the level lacks. */
ALWAYS_INLINE double filled(const Vessels *all, double t, double rest, const Rise rise,
                            double *restrict value) {
    for (ptrdiff_t i = 0; i < all->n; i++) {
        double p = raised(all->a[i], t, rise) + slope_of(all->a[i], rise) * rest;
        p = p > 0 ? p : 0;
        value[i] = p < all->u[i] ? p : all->u[i];
    }
    return sum_of(value, all->n);
}

/* A level to begin with. Without bounds, with SHIFTED, it were at most what is left, which the
 * largest entry alone takes, and at most the mean of that over any of the entries. */
ALWAYS_INLINE double first_level(const Vessels *all, double total, const Rise rise) {
    const double sum = sum_of(all->a, all->n);
    double count[LANES] = {0};
    for (ptrdiff_t i = 0; i < all->n; i += LANES)
        for (int j = 0; j < LANES; j++) count[j] += all->u[i + j] > 0 ? 1 : 0;
    return rise == SCALED ? total / sum : fmin(total, (total - sum) / lane_sum_f64(count));
}

/* The highest level that matters, at which all is full. The sum of what is SCALED is concave, so
 * that Newton's steps from below need no bound. */
ALWAYS_INLINE double highest_level(const Vessels *all, const Rise rise, double *restrict room) {
    if (rise == SCALED) return DBL_MAX;
    for (ptrdiff_t i = 0; i < all->n; i++) room[i] = all->u[i] - all->a[i];
    return largest_of(room, all->n);
}

/* The level of a sample of a long row, which has its share of the total. */
ALWAYS_INLINE double sampled_level(const Vessels *all, double total, double t, double highest,
                                   const Rise rise, double *restrict room) {
    const ptrdiff_t size = all->n / (SAMPLE_STEP * LANES) * LANES;
    const Vessels sample = {room, room + size, size};
    for (ptrdiff_t i = 0; i < size; i++) {
        room[i] = all->a[i * SAMPLE_STEP];
        room[size + i] = all->u[i * SAMPLE_STEP];
    }
    double rest;
    const double part = total * ((double)size / (double)all->n), most = sum_of(sample.u, size);
    return most > part ? find_level(&sample, part, t, highest, most, rise, &rest) : t;
}

/* p at the level where it sums to the total.
 *
 * With SHIFTED, a level is rounded for all entries alike, and where it ends between two floats, or
 * some entries are so near to it that not even the rest is theirs alike, thousands add that up. So
 * what does not sum up is filled again, from a little below: there the level has all its digits. */
ALWAYS_INLINE void fill_to(double *restrict a, const double *u, ptrdiff_t n, double total,
                           const Rise rise, double *restrict value) {
    const Vessels all = {a, u, n};
    const double most = sum_of(u, n), highest = highest_level(&all, rise, value);
    double rest, t = fmin(first_level(&all, total, rise), highest);
    if (n >= WORTH_A_LEVEL) t = sampled_level(&all, total, t, highest, rise, value);
    t = find_level(&all, total, t, highest, most, rise, &rest);
    const double sum = filled(&all, t, rest, rise, value);
    if (rise == SCALED || fabs(sum - total) <= DBL_EPSILON * sqrt((double)n) * total) return;
    const double below = t * (1 - 4 * DBL_EPSILON);
    for (ptrdiff_t i = 0; i < n; i++) a[i] = u[i] > 0 ? a[i] + below : 0;
    t = find_level(&all, total, t - below, highest - below, most, rise, &rest);
    filled(&all, t, rest, rise, value);
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
ALWAYS_INLINE void fill_bounded(const double *score, const double *bound, ptrdiff_t n, double total,
                                double far, const Rise rise, double *restrict p,
                                double *restrict room) {
    double *a = room, *u = room + n, *spare = room + 2 * n;
    /* What is left to entries so far below one that is not full, p does not show. */
    const double reach = rise == SCALED ? 100 : 100 + total;
    double shift = first_shift(score, bound, n, total, reach, spare);
    for (int shifts = 0; shifts < 4; shifts++) {
        for (ptrdiff_t i = 0; i < n; i++) spare[i] = score[i] > shift ? bound[i] : 0;
        const double left = total - sum_of(spare, n);
        /* Of entries that only round to their bounds the rest, however little, is as it was. */
        if (rise == SCALED && shifts > 0 && !(left > 0)) return;
        for (ptrdiff_t i = 0; i < n; i++) {
            const bool there = score[i] <= shift && score[i] > -(double)INFINITY;
            const double gap = score[i] - shift, held = gap > -DBL_MAX ? gap : -DBL_MAX;
            const double here = rise == SCALED ? scaled_exp_f64(held) : held;
            a[i] = there ? here : 0;
            u[i] = there ? bound[i] : 0;
        }
        if (left > 0)
            fill_to(a, u, n, left, rise, spare);
        else
            filled(&(Vessels){a, u, n}, 0, 0, rise, spare);
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

NEVER_INLINE void fill_shifted(const double *score, const double *bound, ptrdiff_t n, double total,
                               double far, double *restrict p, double *restrict room) {
    fill_bounded(score, bound, n, total, far, SHIFTED, p, room);
}

NEVER_INLINE void fill_scaled(const double *score, const double *bound, ptrdiff_t n, double total,
                              double far, double *restrict p, double *restrict room) {
    fill_bounded(score, bound, n, total, far, SCALED, p, room);
}

#define TEMPLATE "thresholds/water_filling.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A row of scores and bounds to p; scratch is for WORKSPACE n doubles, n in whole lanes. */
static void TYPED(water_fill)(const REAL *restrict z, const REAL *restrict upper, double total,
                              Rise rise, REAL *restrict p, ptrdiff_t n, double *restrict scratch) {
    const REAL largest = TYPED(chunk_maxima)(z, n, (REAL *)scratch);
    const bool sound = largest > -(REAL)INFINITY && largest < (REAL)INFINITY;
    if (!(sound && total > 0)) {
        const bool nothing = total >= 0 && (sound || largest < 0);
        TYPED(fill)(p, n, nothing ? (REAL)0 : (REAL)NAN);
        return;
    }
    const ptrdiff_t padded = whole_lanes(n);
    double *score = scratch, *bound = scratch + padded, *value = scratch + 2 * padded;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double here = z[i], most = upper[i];
        bound[i] = here > -(double)INFINITY ? most : 0;
        score[i] = most > 0 ? here : -(double)INFINITY;
    }
    for (ptrdiff_t i = n; i < padded; i++) {
        bound[i] = 0;
        score[i] = -(double)INFINITY;
    }
    const double far = IS_DOUBLE ? 1 : 100;
    if (sum_of(bound, n) <= total * (1 + (double)EPSILON)) /* all are full, but for rounding */
        value = bound;
    else if (rise == SCALED)
        fill_scaled(score, bound, padded, total, far, value, value + padded);
    else
        fill_shifted(score, bound, padded, total, far, value, value + padded);
    for (ptrdiff_t i = 0; i < n; i++) p[i] = (REAL)value[i];
}

#endif
