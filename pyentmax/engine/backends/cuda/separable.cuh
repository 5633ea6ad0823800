/* The Jacobian that all mappings with a separable Ω share, times v: s ∘ (v − (s·v)/Σs). The NumPy
 * twin, with the derivation, is pyentmax/reference/mappings/_simplex.py.
 *
 * As there, v is taken relative to its value at the entry k that dominates s, so that nothing
 * cancels where that one is nearly all of Σs. A Curvature is a struct template over the type to
 * compute in:
 *
 *     Curvature(parameter), valid()
 *     key(p)                     largest where s is
 *     s(p)                       1/Ω''(p), for p ≠ 0; a NaN for a NaN
 *     relative(p, largest)       s up to a factor, the same for the row, that keeps it finite
 *     STEEP                      whether s may be beyond floats; then also
 *     together(p, q, largest)    s(p) s(q)/s(largest), of keys q and largest
 *
 * What is beyond floats is ∞, and 0 of it is 0.
 */
#pragma once
#include "derivatives.cuh"

template <typename C, class Curvature> struct Product {
    static constexpr bool PAIRED = true;
    Curvature curvature;
    C largest, at_largest, total, mean, along, second = 0, parts = 0;

    __device__ explicit Product(double parameter) : curvature(parameter) {}
    __device__ bool valid() const { return curvature.valid(); }
    __device__ C key(C p) const { return curvature.key(p); }

    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, C largest_key) {
        largest = largest_key;
        C v_there = -infinity<C>();
        row.each([&](C p, C v) {
            v_there = curvature.key(p) == largest ? Larger()(v_there, v) : v_there;
        });
        at_largest = team.largest(v_there);
        C sums[3] = {0, 0, 0};
        row.each([&](C p, C v) {
            const C difference = v - at_largest, relative = curvature.relative(p, largest);
            sums[0] += relative;
            sums[1] += relative * difference;
            sums[2] += difference == 0 ? (C)0 : curvature.s(p) * difference;
        });
        team.sum(sums);
        total = sums[0];
        mean = sums[1] / sums[0];
        along = sums[2];
        if constexpr (Curvature::STEEP)
            if (team.any(!is_finite(along))) relate_to_second(team, row);
    }
    /* The sum along once more, as a part of the largest s in it. */
    template <class Team, class Row> __device__ void relate_to_second(Team &team, const Row &row) {
        second = -infinity<C>();
        row.each([&](C p, C v) {
            second = v != at_largest ? Larger()(second, curvature.key(p)) : second;
        });
        second = team.largest(second);
        C sum[1] = {0};
        row.each([&](C p, C v) {
            const C difference = v - at_largest;
            sum[0] += difference == 0 ? (C)0 : curvature.relative(p, second) * difference;
        });
        team.sum(sum);
        parts = sum[0];
    }
    /* Where v is what it is at k, s times the mean is written as a share of Σ s (v − v_k): s itself
     * may be beyond floats there. */
    __device__ C value(C p, C v) const {
        const C difference = v - at_largest;
        if constexpr (Curvature::STEEP) {
            const C s = curvature.s(p), rest = difference - mean;
            const bool at_k = curvature.key(p) == largest;
            const bool beyond = !is_finite(at_k ? along : s);
            if (difference == 0 && beyond)
                return parts == 0 ? (C)0 : -parts * (curvature.together(p, second, largest) / total);
            if (difference != 0 || !at_k) return rest == 0 ? (C)0 : s * rest;
        }
        if (difference == 0) return -(curvature.relative(p, largest) / total) * along;
        return curvature.s(p) * (difference - mean);
    }
};

/* For curvatures that rise with p and stay at most 1. */
template <typename C> struct RisingCurvature {
    static constexpr bool STEEP = false;
    __device__ explicit RisingCurvature(double) {}
    __device__ bool valid() const { return true; }
    __device__ C key(C p) const { return p; }
};
