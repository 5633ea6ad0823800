/* α-entmax, with an α for each row. The NumPy twins, with the derivations, are
 * pyentmax/mappings/entmax.py, pyentmax/thresholds/tangents.py (α ≤ 2) and halving.py (above); kernels
 * and their arguments: forward.cuh; the parameter is α.
 *
 * With gaps y = z − max z ≤ 0 and β = α − 1 there are two searches:
 *
 *     β ≤ 1   for c with Σ exp_β(y_i − c) = 1, exp_β(d) = [1 + βd]+^{1/β}, by Newton's method;
 *     β > 1   for the largest probability q, p_i = q [1 + βy_i/q^β]+^{1/β}, by bisection.
 *
 * In both, an entry with y ≤ −1/β gets nothing. Powers cost much more than reading does, so the search
 * looks at the others only, where these can be gathered.
 */
#include "forward.cuh"

template <typename C> struct Entmax {
    static constexpr bool COSTLY = true;
    /* Below this β, exp_β is the exponential to the last bit wherever that is no 0. */
    static constexpr double NO_BETA = 1e-24;
    /* From this β on, 1 + βd is precise enough and its logarithm to base 2 does. */
    static constexpr C MUCH = (C)0.0625;

    C beta, inverse;
    C c = 0, rest = 0, excess = 0;                              /* β ≤ 1 */
    C q_low = 0, q_high = 1, scale_low = 0, scale_high = 1, share = 0; /* β > 1 */
    bool right;

    __device__ explicit Entmax(double alpha)
        : beta((C)(alpha - 1 < NO_BETA ? 0 : alpha - 1)),
          inverse((C)(alpha - 1 < NO_BETA ? 0 : 1 / (alpha - 1))),
          right(alpha >= 1) {}
    __device__ bool valid() const { return right; }
    __device__ C scale() const { return 1; }
    __device__ C reach() const {
        if (beta == 0) return infinity<C>();
        return inverse > (C)1e-37 ? inverse : (C)1e-37; /* at β = ∞ the ties at the top are reached */
    }

    struct Point {
        C p, slope;
    };
    /* exp_β(y − c) and its derivative in y. */
    __device__ Point at(C y) const {
        const C d = (y - c) - rest;
        if (beta == 0) {
            const C p = exp(d);
            return {p, p};
        }
        const C w = beta * d;
        if (!(w > -1)) return {0, 0};
        const C p = beta < MUCH ? exp(log1p(w) * inverse) : exp2(log2(1 + w) * inverse);
        return {p, p / (1 + w)};
    }
    /* p for a largest entry of q, given the factor β/q^β. */
    __device__ C below(C y, C q, C factor) const {
        const C r = y == 0 ? (C)0 : y * factor;
        return r > -1 ? q * exp(log1p(r) * inverse) : (C)0;
    }
    /* β/q^β. The power is off by an ε for each doubling in it: in scores, by less than an ε. */
    __device__ C factor(C q) const { return q < 1 ? beta / exp2(log2(q) * beta) : beta; }

    /* Teams of one warp may need different searches; all of them go through both. */
    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, unsigned n, bool sound) {
        const bool low = sound && beta <= 1, high = sound && beta > 1;
        if (team.any(low)) newton(team, row, low);
        if (team.any(high)) bisect(team, row, high, n);
    }

    /* In c, the 1/β-norm of [1 + β(y − c)]+ is convex, so that Newton's iterates on it rise from c = 0 to
     * the root; the step is Σp (1 − (Σp)^{−β})/β / Σ slope. It ends one step after the first that is
     * lost in the rounding of c. That last one stays out of c: added to y − c it takes the
     * rounding of c off all entries alike. What is left then is divided out. */
    template <class Team, class Row>
    __device__ void newton(Team &team, const Row &row, bool moving) {
        const bool mine = moving;
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
            const C step = total * normalized / sums[1];
            moving = !settled && pass < MAX_PASSES - 1;
            settled = !(fabs(step) > 2 * epsilon<C>() * (1 + c));
            if (moving)
                c += step;
            else
                rest = step;
        }
        C total[1] = {0};
        row.each([&](C y) { total[0] += at(y).p; });
        team.sum(total);
        if (mine) excess = (1 - total[0]) / total[0];
    }

    /* Between neighbouring floats q a small p may jump by much. So the last bracket's two ends are mixed
     * such that the sum is 1: p is then exact for scores moved by a few ε. */
    template <class Team, class Row>
    __device__ void bisect(Team &team, const Row &row, bool moving, unsigned n) {
        const bool mine = moving;
        C low = 1 / (C)n, high = 1;
        for (int pass = 0; pass < 2 * MAX_PASSES && team.any(moving); pass++) {
            const C q = low + (high - low) / 2, now = factor(q);
            C sum[1] = {0};
            row.each([&](C y) { sum[0] += below(y, q, now); });
            team.sum(sum);
            moving = moving && low < q && q < high;
            if (sum[0] >= 1)
                high = q;
            else
                low = q;
        }
        const C factor_low = factor(low), factor_high = factor(high);
        C sums[2] = {0, 0};
        row.each([&](C y) {
            sums[0] += below(y, low, factor_low);
            sums[1] += below(y, high, factor_high);
        });
        team.sum(sums);
        if (!mine) return;
        const C gap = sums[1] - sums[0], part = gap > 0 ? (1 - sums[0]) / gap : (C)0;
        q_low = low;
        q_high = high;
        scale_low = factor_low;
        scale_high = factor_high;
        share = part < 0 ? (C)0 : part > 1 ? (C)1 : part;
    }

    __device__ C probability(C y) const {
        if (beta <= 1) {
            const C p = at(y).p;
            return p + p * excess;
        }
        const C p = below(y, q_low, scale_low);
        return p + share * (below(y, q_high, scale_high) - p);
    }
};
