/* Newton's method for the normaliser of α-entmax, 1 ≤ α ≤ 2. The NumPy twin, with the derivation,
 * is `newton` in pyentmax/reference/thresholds/newton.py.
 *
 * With gaps y = z − max z ≤ 0 and β = α − 1 it finds c with
 *
 *     Σ exp_β(y_i − c) = 1,   exp_β(d) = [1 + βd]+^{1/β}, the exponential at β = 0.
 */
#pragma once
#include "forward.cuh"

template <typename C> struct Newton {
    /* Below this β, exp_β is the exponential to the last bit wherever that is no 0. */
    static constexpr double NO_BETA = 1e-24;
    /* From this β on, 1 + βd is precise enough and its logarithm to base 2 does. */
    static constexpr C MUCH = (C)0.0625;

    C beta, inverse, c = 0, rest = 0;

    __device__ explicit Newton(double beta)
        : beta((C)(beta < NO_BETA ? 0 : beta)), inverse((C)(beta < NO_BETA ? 0 : 1 / beta)) {}

    /* How far below the largest score probability can reach. Never 0: at β = ∞ it reaches ties. */
    __device__ C reach() const {
        if (beta == 0) return infinity<C>();
        return inverse > (C)1e-37 ? inverse : (C)1e-37;
    }
    __device__ C distance(C y) const { return (y - c) - rest; }

    struct Point {
        C p, slope;
    };
    /* exp_β(y − c) and its derivative in y. */
    __device__ Point at(C y) const {
        if (beta == 0) {
            const C p = exp(distance(y));
            return {p, p};
        }
        /* Near 0, 1 + w is exact, and what the rest takes off it keeps its digits. */
        const C w = beta * (y - c), last = beta * rest, u = (1 + w) - last;
        if (!(u > 0)) return {0, 0};
        const C p = beta < MUCH ? exp(log1p(w - last) * inverse) : exp2(log2(u) * inverse);
        return {p, p / u};
    }

    /* In c, the 1/β-norm of [1 + β(y − c)]+ is convex, so that Newton's iterates on it rise from c
     * = 0 to the root; the step is Σp (1 − (Σp)^{−β})/β / Σ slope. It ends one step after the first
     * that is lost in the rounding of c. That last one stays out of c, as `rest`: added to y − c it
     * takes the rounding of c off all entries alike. Beyond the root c is by rounding alone, though
     * a whole crowd of entries may be out by it. */
    template <class Team, class Row>
    __device__ void search(Team &team, const Row &row, bool moving) {
        bool settled = false;
        for (int pass = 0; pass < MAX_PASSES && team.any(moving); pass++) {
            C sums[2] = {0, 0};
            row.each([&](C y) {
                const Point here = at(y);
                sums[0] += here.p;
                sums[1] += here.slope;
            });
            team.sum(sums);
            if (!moving) continue;
            const C total = sums[0], logarithm = log(total);
            const C normalized = beta == 0 ? logarithm : -expm1(-beta * logarithm) * inverse;
            const C least = -2 * epsilon<C>() * (1 + c), newton = total * normalized / sums[1];
            const C step = newton < least ? least : newton;
            moving = !settled && pass < MAX_PASSES - 1;
            settled = !(fabs(step) > 2 * epsilon<C>() * (1 + c));
            if (moving)
                c += step;
            else
                rest = step;
        }
    }
};
