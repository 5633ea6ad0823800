/* From scores and upper bounds to probabilities: the kernels of mappings whose p is filled up to a
 * level.
 *
 *     bounded_lanes<B, T, LANES>(z, mask, upper, p, batch, parameter)
 *         rows of any length, one to LANES lanes of a warp; THREADS threads a block, grid
 *         ⌈rows LANES / THREADS⌉
 *     bounded_block<B, T, WARPS>(z, mask, upper, p, batch, parameter)
 *         rows of any length, one to a block of 32 WARPS threads; grid: rows
 *
 * z and p: Operand of T, p may be z; mask: Operand of bool, `at` null for none; upper: Operand of
 * Compute<T>, `at` null for 1 throughout; no dynamic shared memory. B is a struct template over the
 * type to compute in. With y = z less some shift, p_i(t) does not fall with the level t, from 0 up
 * to u_i:
 *
 *     B(parameter)              of this row
 *     total()                   what the row sums to
 *     bottom(t, count)          a level too low for that, of so many entries with a largest y of −t
 *     feasible(sum, count)      whether bounds with that sum, on so many entries, allow it
 *     full_at(y, u)             the level from which on p is u
 *     begins_at(y, u)           the level to try next where t is lower and no entry moves
 *     fill(y, u, t)             p at level t
 *     weigh(y, u, t, up)        if the entry moves when t rises (up) or falls, its share in step()
 *     step(t, missing, weight)  the level where nothing would be missing if the same entries moved
 *
 * A row with a NaN or +∞ is NaN, so is one whose bounds do not allow it; a row of nothing but −∞ is
 * zeros. In NumPy `water_fill` in pyentmax/reference/thresholds finds the level by a sort, and the
 * shifts are those of `solve_shifted` in pyentmax/reference/mappings/_bounded.py.
 */
#pragma once
#include "rows.cuh"

constexpr int FREE_LEVELS = 20; /* then every other pass halves, in the order of floats: */
constexpr int MAX_LEVELS = FREE_LEVELS + 140; /* fewer than 2^64 doubles lie in a bracket */
constexpr int SHIFTS = 80; /* more than there are scales that full entries can hide */

/* Scores and bounds of a row; a bound of 0 where an entry is ruled out. */
template <typename T> struct Bounded {
    typedef Compute<T> C;
    const Line<const T> z;
    const Line<const bool> mask;
    const Line<const C> upper;

    __device__ void load(unsigned i, unsigned n, C (&scores)[PACK<T>], C (&bounds)[PACK<T>]) const {
        load_scores<T>(z, mask, i, n, scores);
#pragma unroll
        for (int j = 0; j < PACK<T>; j++) {
            bounds[j] = 0;
            if (i + j >= n || scores[j] == -infinity<C>()) continue;
            const C u = upper.at ? upper.at[(i + j) * upper.step] : (C)1;
            bounds[j] = u > 2 ? (C)2 : u; /* all bounds above 1 are alike; a NaN stays */
        }
    }
};

/* A row that stays in memory, and in the caches once read: thread r of a team of s has packs r, r +
 * s, … Two numbers of an entry, and many visits, are too much for registers. */
template <typename T, class Team> struct BoundedRow {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>, STRIDE = Team::SIZE * V;
    const Bounded<T> row;
    const unsigned n, first;

    __device__ BoundedRow(const Team &team, const Bounded<T> &row, unsigned n)
        : row(row), n(n), first(team.rank * V) {}

    template <class Visit> __device__ void scores(Visit visit) const {
        for (unsigned i = first; i < n; i += STRIDE) {
            C scores[V];
            load_scores<T>(row.z, row.mask, i, n, scores);
#pragma unroll
            for (int j = 0; j < V; j++) visit(scores[j]);
        }
    }
    /* Visit z and u of the entries that may get probability. */
    template <class Visit> __device__ void each(Visit visit) const {
        for (unsigned i = first; i < n; i += STRIDE) {
            C scores[V], bounds[V];
            row.load(i, n, scores, bounds);
#pragma unroll
            for (int j = 0; j < V; j++)
                if (bounds[j] != 0) visit(scores[j], bounds[j]);
        }
    }
    template <class Value> __device__ void write(const Line<T> &p, Value value) const {
        for (unsigned i = first; i < n; i += STRIDE) {
            C scores[V], bounds[V], pack[V];
            row.load(i, n, scores, bounds);
#pragma unroll
            for (int j = 0; j < V; j++) pack[j] = value(scores[j], bounds[j]);
            store_pack<T>(p, i, n, pack);
        }
    }
};

/* The level at which a row is filled. */
template <typename C, class Rule> struct Level {
    Rule rule;
    C shift, low = 0, high = 0, share = 0;

    __device__ Level(const Rule &rule, C shift) : rule(rule), shift(shift) {}

    __device__ C relative(C z) const {
        const C most = sizeof(C) == 8 ? (C)1.7e308 : (C)3.4e38, y = z - shift;
        return y > most ? most : y < -most ? -most : y;
    }
    __device__ bool full(C y, C u, C t) const { return rule.full_at(y, u) <= t; }
    __device__ C at(C y, C u, C t) const { return full(y, u, t) ? u : rule.fill(y, u, t); }

    /* Between two levels a few ε apart, p is mixed such that the sum is right. */
    __device__ C p(C z, C u) const {
        const C y = relative(z), below = at(y, u, low), above = at(y, u, high);
        const C mixed = below + share * (above - below);
        return mixed < above ? mixed : above;
    }

    /* The sum rises with t, piecewise smooth, neither convex nor concave. Each pass tries the step
     * that is exact if the right entries move already. Where none moves, the sum is flat: the next
     * level where one begins or ceases to be full is taken. A try outside of what is known, or a
     * bracket that was not halved in two passes, is answered by halving. A step that rounds to
     * nothing ends the search, but for levels so large that all p could change in one rounding. */
    template <class Team, class Row>
    __device__ void search(Team &team, const Row &row, C count, bool moving) {
        C highest = -infinity<C>(), ends = -infinity<C>();
        row.each([&](C z, C u) {
            const C y = relative(z);
            highest = Larger()(highest, y);
            ends = Larger()(ends, rule.full_at(y, u));
        });
        C bottom = rule.bottom(-team.largest(highest), count), top = team.largest(ends);
        top += 2 * epsilon<C>() * fabs(top); /* so that the last level of all is tried, too */
        C t = bottom + 1;
        if (!(t < top)) t = bottom / 2 + top / 2;
        C widths[2] = {infinity<C>(), infinity<C>()};
        for (int pass = 0; pass < MAX_LEVELS && team.any(moving); pass++) {
            C sums[4] = {0, 0, 0, 0};
            row.each([&](C z, C u) {
                const C y = relative(z);
                const bool is_full = full(y, u, t);
                sums[0] += is_full ? u : (C)0;
                sums[1] += is_full ? (C)0 : rule.fill(y, u, t);
                sums[2] += rule.weigh(y, u, t, true);
                sums[3] += rule.weigh(y, u, t, false);
            });
            team.sum(sums);
            const C missing = (rule.total() - sums[0]) - sums[1];
            const C weight = missing > 0 ? sums[2] : sums[3];
            C next = rule.step(t, missing, weight);
            const bool flat = moving && !(weight > 0);
            if (team.any(flat)) {
                C nearest = -infinity<C>();
                row.each([&](C z, C u) {
                    const C y = relative(z);
                    const C level = missing > 0 ? -rule.begins_at(y, u) : rule.full_at(y, u);
                    if (level < (missing > 0 ? -t : t)) nearest = Larger()(nearest, level);
                });
                nearest = team.largest(nearest);
                if (flat) next = missing > 0 ? -nearest : nearest;
            }
            if (!moving) continue;
            if (missing > 0)
                bottom = t;
            else
                top = t;
            const bool coarse = epsilon<C>() * fabs(t) > (C)0.01;
            moving = missing != 0 && (next != t || coarse) && bottom < top;
            if (!moving) continue;
            const C width = top - bottom;
            const bool stalls = width > widths[0] / 2;
            if (!(next > bottom && next < top) || stalls) next = bottom / 2 + top / 2;
            if (pass >= FREE_LEVELS && pass % 2 == 1) next = middle_float(bottom, top);
            widths[0] = widths[1];
            widths[1] = width;
            moving = next > bottom && next < top;
            t = moving ? next : t;
        }
        const C around = 2 * epsilon<C>() * (1 + fabs(t));
        low = t - around;
        high = t + around;
        C sums[4] = {0, 0, 0, 0};
        row.each([&](C z, C u) {
            const C y = relative(z);
            const bool full_low = full(y, u, low);
            sums[0] += full_low ? u : (C)0;
            sums[1] += full_low ? (C)0 : rule.fill(y, u, low);
            const bool full_high = full(y, u, high);
            sums[2] += full_high ? u : (C)0;
            sums[3] += full_high ? (C)0 : rule.fill(y, u, high);
        });
        team.sum(sums);
        const C missing = (rule.total() - sums[0]) - sums[1];
        const C gap = (sums[2] - sums[0]) + (sums[3] - sums[1]);
        const C part = gap > 0 ? missing / gap : (C)0;
        share = part < 0 ? (C)0 : part > 1 ? (C)1 : part;
    }
};

/* Where all that scores more is full, an entry gets probability however low its score, and relative
 * to a full entry it would lose its digits. So the search is repeated, relative to the largest
 * score that is not full, as long as that is more than 1 lower than the last one. */
template <class Rule, typename T, class Team, class Row>
__device__ inline void fill_up(Team &team, const Row &row, const Line<T> &p, const Rule &rule) {
    typedef Compute<T> C;
    C top = -infinity<C>(), highest = -infinity<C>(), sums[3] = {0, 0, 0};
    row.scores([&](C z) { top = Larger()(top, z); });
    row.each([&](C z, C u) {
        highest = Larger()(highest, z);
        sums[0] += u;
        sums[1] += 1;
        sums[2] += u > 0 ? (C)0 : (C)1;
    });
    team.sum(sums);
    top = team.largest(top);
    highest = team.largest(highest);
    const bool sound = is_finite(top) && sums[2] == 0 && rule.feasible(sums[0], sums[1]);
    Level<C, Rule> level(rule, highest);
    bool again = sound && rule.total() > 0;
    for (int round = 0; round <= SHIFTS && team.any(again); round++) {
        Level<C, Rule> found(rule, level.shift);
        found.search(team, row, sums[1], again);
        if (again) level = found;
        C open = -infinity<C>();
        row.each([&](C z, C u) {
            if (level.p(z, u) < u) open = Larger()(open, z);
        });
        open = team.largest(open);
        again = again && open > -infinity<C>() && level.shift - open > 1;
        if (again && round < SHIFTS) level.shift = open;
    }
    const C instead = top == -infinity<C>() ? (C)0 : not_a_number<C>();
    const bool something = rule.total() > 0;
    row.write(p, [&](C z, C u) {
        return !sound ? instead : something && u > 0 ? level.p(z, u) : (C)0;
    });
}

template <template <typename> class B, typename T, class Team>
__device__ inline void bounded(Team &team, const Place &place, unsigned n,
                               const Operand<const T> &z, const Operand<const bool> &mask,
                               const Operand<const Compute<T>> &upper, const Operand<T> &p,
                               const Parameter &parameter) {
    const BoundedRow<T, Team> row(team, {{z, place}, {mask, place}, {upper, place}}, n);
    fill_up<B<Compute<T>>, T>(team, row, {p, place}, B<Compute<T>>(value_at(parameter, place)));
}

template <template <typename> class B, typename T, int LANES>
__global__ void __launch_bounds__(THREADS, blocks_with(MORE_REGISTERS<Compute<T>>, THREADS))
    bounded_lanes(Operand<const T> z, Operand<const bool> mask, Operand<const Compute<T>> upper,
                  Operand<T> p, Batch batch, Parameter parameter) {
    Lanes<LANES> team;
    const unsigned own = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const Place place(batch, own < batch.rows ? own : 0);
    const unsigned n = own < batch.rows ? batch.n : 0;
    bounded<B, T>(team, place, n, z, mask, upper, p, parameter);
}

template <template <typename> class B, typename T, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(MORE_REGISTERS<Compute<T>>, 32 * WARPS))
    bounded_block(Operand<const T> z, Operand<const bool> mask, Operand<const Compute<T>> upper,
                  Operand<T> p, Batch batch, Parameter parameter) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    Team team(parts);
    const Place place(batch, blockIdx.x);
    bounded<B, T>(team, place, batch.n, z, mask, upper, p, parameter);
}
