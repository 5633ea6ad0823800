/* Sparsemax. The NumPy twins are pyentmax/mappings/sparsemax.py, with the derivation, and for the
 * search `newton_sparsemax` in pyentmax/thresholds/newton.py; kernels and their arguments:
 * forward.cuh.
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
    C t = 1, rest = 0, excess = 0;

    __device__ explicit Sparsemax(double) {}
    __device__ bool valid() const { return true; }
    __device__ C scale() const { return 1; }
    __device__ C reach() const { return 1; }

    /* f is convex and piecewise linear, so the root of its tangent is at or above the root wanted,
     * and is that root as soon as no entry leaves the support on the way there (Michelot 1986). t
     * is then the root but rounded; what is missing from the sum goes to `rest`, shared by all of
     * the support, and what that leaves is divided out. */
    template <class Team, class Row>
    __device__ void search(Team &team, const Row &row, bool moving) {
        C size_before = 0;
        for (int pass = 0; pass < MAX_PASSES && team.any(moving); pass++) {
            C sum_size[2] = {0, 0};
            row.each([&](C x) {
                const C u = x + t;
                sum_size[0] += positive(u);
                sum_size[1] += u > 0 ? (C)1 : (C)0;
            });
            team.sum(sum_size);
            if (!moving) continue;
            rest = (1 - sum_size[0]) / sum_size[1];
            moving = sum_size[1] != size_before;
            size_before = sum_size[1];
            if (moving) t += rest;
        }
    }
    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, unsigned, bool sound) {
        search(team, row, sound);
        /* A crowd within the rounding of t of the threshold may enter or leave the support by
         * `rest`: the tangents then go on there, where digits are enough, lest the largest entry
         * pay for the crowd. */
        bool moving = sound;
        C size_before = -1;
        for (int pass = 0; pass < MAX_PASSES && team.any(moving); pass++) {
            C sum_size[2] = {0, 0};
            row.each([&](C x) {
                const C u = above(x);
                sum_size[0] += u;
                sum_size[1] += u > 0 ? (C)1 : (C)0;
            });
            team.sum(sum_size);
            if (!moving) continue;
            moving = sum_size[1] != size_before && pass < MAX_PASSES - 1;
            size_before = sum_size[1];
            if (moving)
                rest += (1 - sum_size[0]) / sum_size[1];
            else
                excess = (1 - sum_size[0]) / sum_size[0];
        }
    }
    __device__ C above(C x) const { return positive((x + t) + rest); }
    __device__ C probability(C x) const {
        const C u = above(x);
        return u + u * excess;
    }
};
