/* Probabilities with upper bounds, of one row, by filling up to a common level: a template. The
 * NumPy twins are `newton_water_fill` in pyentmax/thresholds/water_filling.py, and for the shifts
 * `solve_shifted` in pyentmax/mappings/_bounded.py.
 *
 * p_i = clip(raised(a_i, t), 0, u_i) with the level t > 0 at which they sum to a total. Each is
 * linear in t from where it starts to where it is full, so their sum is piecewise linear, and
 * rises. No sort is needed to find t: Newton's step is exact if it crosses no breakpoint, and a
 * bracket keeps it from cycling. All of it is in double, whatever the scores are.
 */
#ifndef PYENTMAX_THRESHOLDS_WATER_FILLING_H
#define PYENTMAX_THRESHOLDS_WATER_FILLING_H

#include "elementary/sort_keys.h"
#include "rows/doubles.h"
#include "rows/steps.h"

/* How entries rise with the level t: from a to a + t, or from 0 to a t. */
typedef enum { SHIFTED, SCALED } Rise;

/* At one level: the sum, its slope, and how many entries have started, and of them are not full. */
typedef struct {
    double sum, slope, started, open;
} Filled;

ALWAYS_INLINE double raised(double a, double t, const Rise rise) {
    return rise == SCALED ? a * t : a + t;
}

ALWAYS_INLINE double slope_of(double a, const Rise rise) {
    return rise == SCALED ? a : 1;
}

/* The level at which an entry reaches its bound. */
ALWAYS_INLINE double full_at(double a, double bound, const Rise rise) {
    return rise == SCALED ? bound / a : bound - a;
}

/* A level to begin with, which leaves all bounds out of account. With SHIFTED it is then at most
 * what is left, which the largest entry alone takes, and at most the mean of that over any of the
 * entries. */
static inline double first_level(double left, double sum, double count, Rise rise) {
    return rise == SCALED ? left / sum : fmin(left, (left - sum) / count);
}

ALWAYS_INLINE Filled leaf_at_level(const double *a, const double *u, ptrdiff_t n, double t,
                                   const Rise rise) {
    double sum[8] = {0}, slope[8] = {0}, started[8] = {0}, open[8] = {0};
    for (ptrdiff_t i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            const double bound = u[i + j], value = raised(a[i + j], t, rise), left = bound - value;
            const double on = value > 0 ? 1 : 0, moves = left > 0 ? on : 0;
            const double p = value > 0 ? value : 0;
            started[j] += on;
            open[j] += moves;
            slope[j] += moves * slope_of(a[i + j], rise);
            sum[j] += p < bound ? p : bound;
        }
    Filled all = {0, 0, 0, 0};
    for (int j = 0; j < 8; j++) {
        all.sum += sum[j];
        all.slope += slope[j];
        all.started += started[j];
        all.open += open[j];
    }
    return all;
}

static Filled at_level(const double *a, const double *u, ptrdiff_t n, double t, Rise rise) {
    if (n > LEAF) {
        const ptrdiff_t half = half_of(n);
        const Filled x = at_level(a, u, half, t, rise);
        const Filled y = at_level(a + half, u + half, n - half, t, rise);
        return (Filled){x.sum + y.sum, x.slope + y.slope, x.started + y.started, x.open + y.open};
    }
    return rise == SCALED ? leaf_at_level(a, u, n, t, SCALED) : leaf_at_level(a, u, n, t, SHIFTED);
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
 * While the level rises entries only start and become full, so two levels with equally many of
 * either have no breakpoint between them, and the Newton step from one to the other was exact.
 * Where a step leaves the bracket, the secant through its ends is tried, or its middle, by turns.
 * Ten passes are enough for most rows. From the twentieth on every other one halves the bracket in
 * the order of floating-point numbers, of which there are fewer than 2^63 above 0: 150 passes at
 * most, whatever the row holds. */
static double find_level(const double *a, const double *u, ptrdiff_t n, double total, double t,
                         double highest, double most, Rise rise, double *rest) {
    double lowest = 0, least = 0, started = -1, open = -1;
    bool secant = false;
    *rest = 0;
    for (int pass = 0; pass < 150; pass++) {
        const Filled now = at_level(a, u, n, t, rise);
        if (now.sum == total) break;
        const double step = (total - now.sum) / now.slope;
        if (now.started == started && now.open == open) {
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
        const bool newton = now.slope > 0 && lowest < next && next < highest && !halve;
        if (!newton) {
            secant = !secant;
            const double share = secant ? (total - least) / (most - least) : 0.5;
            next = halve ? middle_float(lowest, highest) : lowest + (highest - lowest) * share;
        }
        if (next == t) break;
        started = newton ? now.started : -1;
        open = now.open;
        t = next;
    }
    return t;
}

/* p at a level, and its sum: rest is what the level lacks. */
static double filled(const double *a, const double *u, ptrdiff_t n, double t, double rest,
                     const Rise rise, double *value) {
    for (ptrdiff_t i = 0; i < n; i++) {
        double p = raised(a[i], t, rise) + slope_of(a[i], rise) * rest;
        p = p > 0 ? p : 0;
        value[i] = p < u[i] ? p : u[i];
    }
    return sum_of(value, n);
}

/* p at the level where it sums to the total, from a guess.
 *
 * With SHIFTED, a level is rounded for all entries alike, and where it ends between two floats, or
 * some entries are so near to it that not even the rest is theirs alike, thousands add that up. So
 * what does not sum up is filled again, from a little below: there the level has all its digits. */
static void fill_to(double *a, const double *u, ptrdiff_t n, double total, double guess,
                    double highest, double most, Rise rise, double *value) {
    double rest, t = find_level(a, u, n, total, guess, highest, most, rise, &rest);
    const double sum = filled(a, u, n, t, rest, rise, value);
    if (rise == SCALED || fabs(sum - total) <= DBL_EPSILON * sqrt((double)n) * total) return;
    const double below = t * (1 - 4 * DBL_EPSILON);
    for (ptrdiff_t i = 0; i < n; i++) a[i] = u[i] > 0 ? a[i] + below : 0;
    t = find_level(a, u, n, total, t - below, highest - below, most, rise, &rest);
    filled(a, u, n, t, rest, rise, value);
}

/* The sum of the bounds of scores from z on. */
static double bounds_from(double z, const double *score, const double *bound, ptrdiff_t n,
                          double *scratch) {
    for (ptrdiff_t i = 0; i < n; i++) scratch[i] = score[i] >= z ? bound[i] : 0;
    return sum_of(scratch, n);
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
                          double reach, double *scratch) {
    const double largest = largest_of(score, n);
    double low = -DBL_MAX, high = largest - reach;
    if (bounds_from(high, score, bound, n, scratch) >= total) return largest;
    for (int pass = 0; pass < 64 && high - low > 1; pass++) { /* each takes a bit off the bracket */
        const double z = middle_float(low, high);
        if (z == low) break;
        if (bounds_from(z, score, bound, n, scratch) >= total)
            low = z;
        else
            high = z;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        scratch[i] = score[i] - high <= reach ? score[i] : -(double)INFINITY;
    return largest_of(scratch, n);
}

#define TEMPLATE "thresholds/water_filling.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Which entries are full is seen in p: so solve once, and again as long as the largest score at 0
 * turns out to be full and far above all that are not, which lose digits beside it. What scores
 * higher than these is full, and stays so. gauge is what is kept of a gap, and reach how far below
 * an entry that is not full there still is something to be had. scratch is for WORKSPACE n doubles,
 * n in whole lanes. */
ALWAYS_INLINE void TYPED(water_fill)(const REAL *restrict z, const REAL *restrict upper,
                                     double total, double reach, const Rise rise,
                                     double (*gauge)(double), REAL *restrict p, ptrdiff_t n,
                                     double *restrict scratch) {
    const REAL largest = TYPED(largest_score)(z, n);
    const bool sound = largest > -(REAL)INFINITY && largest < (REAL)INFINITY;
    if (!(sound && total > 0)) {
        const bool nothing = total >= 0 && (sound || largest < 0);
        TYPED(fill)(p, n, nothing ? (REAL)0 : (REAL)NAN);
        return;
    }
    const ptrdiff_t padded = whole_lanes(n);
    double *score = scratch, *bound = scratch + padded, *a = scratch + 2 * padded,
           *u = scratch + 3 * padded;
    double *spare = scratch + 4 * padded;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double here = z[i], most = upper[i];
        bound[i] = here > -(double)INFINITY ? most : 0;
        score[i] = most > 0 ? here : -(double)INFINITY;
    }
    for (ptrdiff_t i = n; i < padded; i++) {
        bound[i] = 0;
        score[i] = -(double)INFINITY;
    }
    if (sum_of(bound, n) <= total * (1 + (double)EPSILON)) { /* all are full, but for rounding */
        for (ptrdiff_t i = 0; i < n; i++) p[i] = (REAL)bound[i];
        return;
    }
    double shift = first_shift(score, bound, padded, total, reach, spare);
    for (int shifts = 0; shifts < 4; shifts++) {
        for (ptrdiff_t i = 0; i < padded; i++) spare[i] = score[i] > shift ? bound[i] : 0;
        const double left = total - sum_of(spare, padded);
        /* Of entries that only round to their bounds the rest, however little, is as it was. */
        if (rise == SCALED && shifts > 0 && !(left > 0)) break;
        for (ptrdiff_t i = 0; i < padded; i++) {
            const double gap = score[i] - shift;
            a[i] = gauge(gap > -DBL_MAX ? gap : -DBL_MAX);
        }
        for (ptrdiff_t i = 0; i < padded; i++) {
            const bool there = score[i] <= shift && score[i] > -(double)INFINITY;
            a[i] = there ? a[i] : 0;
            u[i] = there ? bound[i] : 0;
        }
        for (ptrdiff_t i = 0; i < padded; i++) spare[i] = u[i] > 0 ? full_at(a[i], u[i], rise) : 0;
        const double highest = largest_of(spare, padded);
        for (ptrdiff_t i = 0; i < padded; i++) spare[i] = u[i] > 0 ? 1 : 0;
        const double guess = first_level(left, sum_of(a, padded), sum_of(spare, padded), rise);
        const double first = guess < highest ? guess : highest, most = sum_of(u, padded);
        if (left > 0)
            fill_to(a, u, padded, left, first, highest, most, rise, spare);
        else
            filled(a, u, padded, 0, 0, rise, spare);
        for (ptrdiff_t i = 0; i < n; i++) {
            const double value = score[i] > shift ? bound[i] : spare[i];
            p[i] = (REAL)value;
            spare[i] = value < bound[i] ? score[i] : -(double)INFINITY;
        }
        const double largest_open = largest_of(spare, n);
        if (!(largest_open > -(double)INFINITY && shift - largest_open > 1)) break;
        shift = largest_open;
    }
}

#endif
