/* α-entmax, with an α for each row. The NumPy twin is pyentmax/reference/mappings/entmax.py; kernels and
 * their arguments: forward.cuh and derivatives.cuh; the parameter is α.
 *
 * With gaps y = z − max z ≤ 0 and β = α − 1 there are two searches:
 *
 *     β ≤ 1   for c with Σ exp_β(y_i − c) = 1, by Newton's method (newton.cuh);
 *     β > 1   for the largest probability q, p_i = q [1 + βy_i/q^β]+^{1/β}, by bisection: the
 *             twin is `bisect_p_max` in pyentmax/reference/thresholds/bisection.py.
 *
 * In both, an entry with y ≤ −1/β gets nothing. Powers cost much more than reading does, so the
 * search looks at the others only.
 */
#include "newton.cuh"
#include "separable.cuh"

template <typename C> struct Entmax {
    static constexpr bool COSTLY = true, BY_RANK = false;
    Newton<C> low;
    C left = 0; /* β ≤ 1: the step that takes the sum to 1, too small to be added to c */
    C q_low = 0, q_high = 1, factor_low = 0, factor_high = 1, share = 0; /* β > 1 */
    bool right;

    __device__ explicit Entmax(double alpha) : low(alpha - 1), right(alpha >= 1) {}
    __device__ bool valid() const { return right; }
    __device__ C scale() const { return 1; }
    __device__ C reach() const { return low.reach(); }

    /* Teams of one warp may need different searches; all of them go through both. */
    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, unsigned n, bool sound) {
        const bool rising = sound && low.beta <= 1, steep = sound && low.beta > 1;
        if (team.any(rising)) {
            low.search(team, row, rising);
            settle(team, row, rising);
        }
        if (team.any(steep)) bisect(team, row, steep, n);
    }

    /* A crowd may lie within the rounding of c of the threshold: what the sum lacks is found in
     * `rest`, lest the largest entry pay for the crowd. From the second on, steps come from where
     * the sum is 1 or more: one that falls no longer is rounding. */
    template <class Team, class Row>
    __device__ void settle(Team &team, const Row &row, bool moving) {
        C before = infinity<C>();
        for (int pass = 0; pass < MAX_PASSES && team.any(moving); pass++) {
            C sums[2] = {0, 0};
            row.each([&](C y) {
                const auto here = low.at(y);
                sums[0] += here.p;
                sums[1] += here.slope;
            });
            team.sum(sums);
            if (!moving) continue;
            left = (1 - sums[0]) / sums[1];
            moving = fabs(1 - sums[0]) > 4 * epsilon<C>() && (pass < 2 || sums[0] < before);
            before = sums[0];
            if (moving) low.rest -= left;
        }
    }

    /* p of an entry where that of the largest is q, given β/q^β. */
    __device__ C below(C y, C q, C factor) const {
        const C r = y == 0 ? (C)0 : y * factor;
        return r > -1 ? q * exp(log1p(r) * low.inverse) : (C)0;
    }
    /* β/q^β. The power is off by an ε for each doubling in it: in scores, by less than an ε. */
    __device__ C factor(C q) const {
        return q < 1 ? low.beta / exp2(log2(q) * low.beta) : low.beta;
    }

    /* Between neighbouring floats q a small p may jump by much. So the last bracket's two ends are
     * mixed such that the sum is 1: p is then exact for scores moved by a few ε. */
    template <class Team, class Row>
    __device__ void bisect(Team &team, const Row &row, bool moving, unsigned n) {
        C bottom = 1 / (C)n, top = 1;
        for (int pass = 0; pass < 2 * MAX_PASSES && team.any(moving); pass++) {
            const C q = bottom + (top - bottom) / 2, now = factor(q);
            C sum[1] = {0};
            row.each([&](C y) { sum[0] += below(y, q, now); });
            team.sum(sum);
            if (!moving) continue;
            moving = bottom < q && q < top;
            if (sum[0] >= 1)
                top = q;
            else
                bottom = q;
        }
        q_low = bottom;
        q_high = top;
        factor_low = factor(bottom);
        factor_high = factor(top);
        C sums[2] = {0, 0};
        row.each([&](C y) {
            sums[0] += below(y, q_low, factor_low);
            sums[1] += below(y, q_high, factor_high);
        });
        team.sum(sums);
        const C gap = sums[1] - sums[0], part = gap > 0 ? (1 - sums[0]) / gap : (C)0;
        share = part < 0 ? (C)0 : part > 1 ? (C)1 : part;
    }

    __device__ C probability(C y) const {
        if (low.beta <= 1) {
            const auto here = low.at(y);
            const C p = here.p + here.slope * left;
            return p < 0 ? (C)0 : p;
        }
        const C p = below(y, q_low, factor_low);
        return p + share * (below(y, q_high, factor_high) - p);
    }
};

/* s = p^{1−β}: it rises with p up to β = 1, falls above, and is 0 at β = ∞, where p only jumps. */
template <typename C> struct EntmaxCurvature {
    static constexpr bool STEEP = true;
    C exponent;
    bool right, jumps;

    __device__ explicit EntmaxCurvature(double alpha)
        : exponent((C)(2 - alpha)), right(alpha >= 1), jumps((C)alpha == infinity<C>()) {}
    __device__ bool valid() const { return right; }
    __device__ C key(C p) const { return exponent >= 0 ? p : -p; }
    __device__ C s(C p) const {
        if (p != p) return p;
        return jumps ? (C)0 : pow(p, exponent);
    }
    __device__ C relative(C p, C largest) const {
        if (p != p) return p;
        if (exponent >= 0) return pow(p, exponent);
        return jumps ? (C)1 : pow(p / -largest, exponent);
    }
    __device__ C together(C p, C q, C largest) const { return pow(p * (q / largest), exponent); }
};
template <typename C> using EntmaxJvp = Product<C, EntmaxCurvature<C>>;
