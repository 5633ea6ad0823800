/* Sparsemax. The NumPy twins are pyentmax/reference/mappings/sparsemax.py, with the derivation, and for the
 * search `newton_sparsemax` in notebooks/thresholds.py; kernels and their arguments: forward.cuh.
 *
 * With gaps x = z − max z ≤ 0 and the threshold as t = −τ,
 *
 *     p_i = [x_i + t]+   with   f(t) = Σ [x_i + t]+ = 1   and   0 < t ≤ 1,
 *
 * the upper bound because the largest entry alone, x = 0, contributes t to the sum.
 */
#pragma once
#include "forward.cuh"

template <typename C> struct Sparsemax {
    static constexpr bool COSTLY = false, BY_RANK = false;
    C t = 1, rest = 0;

    __device__ explicit Sparsemax(double) {}
    __device__ bool valid() const { return true; }
    __device__ C scale() const { return 1; }
    __device__ C reach() const { return 1; }

    /* f is convex and piecewise linear, so the root of its tangent is at or above the root wanted,
     * and is that root as soon as no entry leaves the support on the way there (Michelot 1986). A
     * crowd may lie within the rounding of t of the threshold, so the digits that t has no room for
     * are kept in `rest`, lest the largest entry pay for the crowd. Returns the support's size. */
    template <class Team, class Row>
    __device__ C search(Team &team, const Row &row, bool moving) {
        C size = 0;
        for (int pass = 0; pass < MAX_PASSES && team.any(moving); pass++) {
            C sum_size[2] = {0, 0};
            row.each([&](C x) {
                const C u = probability(x);
                sum_size[0] += u;
                sum_size[1] += u > 0 ? (C)1 : (C)0;
            });
            team.sum(sum_size);
            if (!moving) continue;
            const C missing = 1 - sum_size[0];
            const bool there = fabs(missing) <= 4 * epsilon<C>(); /* what a sum is rounded by */
            moving = sum_size[1] != size && !there;
            size = sum_size[1];
            if (!there) move(missing / size);
        }
        return size;
    }
    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, unsigned, bool sound) {
        search(team, row, sound);
    }
    __device__ void move(C by) {
        const C before = t;
        rest += by;
        t += rest;
        rest -= t - before;
    }
    __device__ C probability(C x) const { return positive((x + t) + rest); }
};
