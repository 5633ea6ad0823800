/* Probabilities with upper bounds, of one row, by filling up to a common level: a template. In
 * NumPy `water_fill` in pyentmax/reference/thresholds finds the same by a sort, and the shifts are
 * those of `solve_shifted` in pyentmax/reference/mappings/_bounded.py.
 *
 * p_i = clip(raised(a_i, t), 0, u_i) with the level t > 0 at which they sum to a total. What no row
 * can be too hard for goes in double, whatever the scores are.
 */
#ifndef PYENTMAX_THRESHOLDS_WATER_FILLING_H
#define PYENTMAX_THRESHOLDS_WATER_FILLING_H

#include "elementary/exp.h"
#include "rows/doubles.h"
#include "rows/steps.h"
#include "thresholds/level.h"

/* p at the level where it sums to the total, in value; a is all.a.
 *
 * A level is rounded for all entries alike, and where it ends between two floats, or some entries
 * are so near to it that not even the rest is theirs alike, thousands add that up. So what is not
 * scaled and does not sum up is filled again, from a little below: there the level has all its
 * digits. A search that began at a sample's level, too high, may have ended there, since what the
 * sum had too much was less than two of that level's roundings: then a little below is too high as
 * well, and the level is looked for further down. */
static void fill_to(Vessels_f64 all, double *restrict a, double total, double *restrict value) {
    const ptrdiff_t n = all.n;
    const Level found = level_f64(all, total, value);
    double t = found.t, rest = found.rest;
    const double sum = filled_f64(all, t, rest, value);
    if (all.scaled || fabs(sum - total) <= DBL_EPSILON * sqrt((double)n) * total) return;
    double below = t * (1 - 4 * DBL_EPSILON);
    for (int lower = 0; lower < 4 && at_level_f64(all, below).sum > total; lower++) {
        t = find_level_f64(all, total, below / 2, below, &rest);
        below = t * (1 - 4 * DBL_EPSILON);
    }
    for (ptrdiff_t i = 0; i < n; i++) a[i] = all.u[i] > 0 ? a[i] + below : 0;
    t = find_level_f64(all, total, t - below, found.highest - below, &rest);
    filled_f64(all, t, rest, value);
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
        fill_to((Vessels_f64){a, u, n, scaled}, a, left > 0 ? left : 0, spare);
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

/* p of rows as most are, in their own precision: an entry shares with others only if it lies at
 * most 16 below the largest, so that its gap has its digits, and the sum is right in the end. False
 * for all other rows. */
static bool TYPED(fill_ordinary)(const REAL *restrict z, const REAL *restrict upper, REAL largest,
                                 double total, bool scaled, REAL *restrict p, ptrdiff_t n,
                                 REAL *restrict scratch) {
    const ptrdiff_t padded = (n + LANES - 1) / LANES * LANES;
    REAL *a = scratch, *u = scratch + padded, *value = scratch + 2 * padded;
    const REAL nothing = !scaled ? -64 : IS_DOUBLE ? -1060 : -131; /* is what p has so far below */
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL gap = z[i] - largest, bound = upper[i];
        u[i] = gap > nothing ? bound : 0;
        a[i] = gap > nothing ? gap : 0;
    }
    for (ptrdiff_t i = n; i < padded; i++) a[i] = u[i] = 0;
    for (ptrdiff_t i = 0; scaled && i < n; i++) a[i] = u[i] > 0 ? TYPED(scaled_exp)(a[i]) : 0;
    const TYPED(Vessels) all = {a, u, padded, scaled};
    const Level found = TYPED(level)(all, total, value);
    const double sum = TYPED(filled)(all, found.t, found.rest, value), root = sqrt((double)n);
    /* Where all bounds are needed, these are full, exactly. */
    if (!(found.bounds > (1 + 64 * EPSILON * root) * total
          && fabs(sum - total) <= 3 * (double)EPSILON * root * total
          && found.t * (scaled ? TYPED(scaled_exp)(-16) : 1) <= (scaled ? 1 : 16)))
        return false;
    memcpy(p, value, (size_t)n * sizeof(REAL));
    return true;
}

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
    if (TYPED(fill_ordinary)(z, upper, largest, total, scaled, p, n, (REAL *)scratch)) return;
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
