/* Normmax, with an α for each row. The NumPy twin, with the derivation, is
 * pyentmax/mappings/normmax.py, and for the search `newton` in pyentmax/thresholds/newton.py;
 * kernels and their arguments: forward.cuh and derivatives.cuh; the parameter is α.
 *
 * q = p/‖p‖ has q_i = [z_i − τ]+^{1/(α−1)}, and q^α is the (1 + β)-entmax of z/β, β = 1 − 1/α: so
 * gaps are taken of z/β, and newton.cuh finds the threshold.
 */
#include "derivatives.cuh"
#include "newton.cuh"

template <typename C> struct Normmax {
    static constexpr bool COSTLY = true, BY_RANK = false;
    Newton<C> found;
    C power, share = 0;
    bool right;

    __device__ explicit Normmax(double alpha)
        : found(1 / (1 + 1 / (alpha - 1))), power((C)(1 / (alpha - 1))), right(alpha > 1) {}
    __device__ bool valid() const { return right; }
    __device__ C scale() const { return found.inverse; }
    __device__ C reach() const { return 1; }

    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, unsigned, bool sound) {
        found.search(team, row, sound);
        C total[1] = {0};
        row.each([&](C x) { total[0] += q(x); });
        team.sum(total);
        share = 1 / total[0];
    }
    /* βd is z − τ − 1: accurate where z − τ is near 1. */
    __device__ C q(C x) const {
        const C w = found.beta * found.distance(x);
        return w > -1 ? exp(power * log1p(w)) : (C)0;
    }
    __device__ C probability(C x) const { return q(x) * share; }
};

/* J v = t − p Σt with t = s ∘ (v − p·v), s = p (‖p‖/p)^{α−1}/(α−1), which is 0 at α = ∞. */
template <typename C> struct NormmaxJvp {
    static constexpr bool PAIRED = true;
    double alpha;
    C power, log_norm, mean, total;

    __device__ explicit NormmaxJvp(double alpha) : alpha(alpha), power((C)(1 / (alpha - 1))) {}
    __device__ bool valid() const { return alpha > 1; }
    __device__ C key(C p) const { return p; }

    __device__ C t(C p, C v) const {
        const C exponent = power == 0 ? (C)0 : (C)(alpha - 1);
        return power * p * exp((log_norm - log(p)) * exponent) * (v - mean);
    }
    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, C largest) {
        C sums[2] = {0, 0};
        row.each([&](C p, C v) {
            sums[0] += pow(p / largest, (C)alpha);
            sums[1] += p * v;
        });
        team.sum(sums);
        log_norm = log(largest) + log(sums[0]) / (C)alpha;
        mean = sums[1];
        C moved[1] = {0};
        row.each([&](C p, C v) { moved[0] += t(p, v); });
        team.sum(moved);
        total = moved[0];
    }
    __device__ C value(C p, C v) const { return t(p, v) - p * total; }
};
