/* Normmax, with an α for each row. The NumPy twin, with the derivation, is
 * pyentmax/reference/mappings/normmax.py, and for the search `newton` in pyentmax/reference/thresholds/newton.py;
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

/* J v = t − p Σt with t = s ∘ (v − p·v), s = p (‖p‖/p)^{α−1}/(α−1), which is 0 at α = ∞. s is kept
 * as a part of the largest, which may be beyond floats. v is taken relative to v_k where p is
 * largest, as J1 = 0; if nothing else is as large, 1 − p_k and what is left of Σt are sums over the
 * others, and nothing cancels there. */
template <typename C> struct NormmaxJvp {
    static constexpr bool PAIRED = true;
    double alpha;
    C log_power, exponent, largest, at_largest, log_norm, top, mean, total, others, apart;
    bool jumps, alone;

    __device__ explicit NormmaxJvp(double alpha)
        : alpha(alpha),
          log_power((C)-log(alpha - 1)),
          exponent((C)(alpha - 1 < most() ? alpha - 1 : most())),
          jumps((C)alpha == infinity<C>()) {}
    __device__ static double most() { return sizeof(C) == 8 ? 1e304 : 1e34; }
    __device__ bool valid() const { return alpha > 1; }
    __device__ C key(C p) const { return p; }

    __device__ C log_s(C p) const {
        const C log_p = log(p);
        return log_p + (log_norm - log_p) * exponent;
    }
    __device__ C t(C p, C v) const { return exp(log_s(p) - top) * ((v - at_largest) - mean); }

    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, C largest_p) {
        largest = largest_p;
        C v_there = -infinity<C>();
        row.each([&](C p, C v) { v_there = p == largest ? Larger()(v_there, v) : v_there; });
        at_largest = team.largest(v_there);
        C sums[4] = {0, 0, 0, 0};
        row.each([&](C p, C v) {
            sums[0] += pow(p / largest, (C)alpha);
            sums[1] += p * (v - at_largest);
            sums[2] += p == largest ? (C)0 : p;
            sums[3] += p == largest ? (C)1 : (C)0;
        });
        team.sum(sums);
        log_norm = log(largest) + log(sums[0]) / (C)alpha;
        mean = sums[1];
        alone = sums[3] == 1;
        apart = sums[2];
        C highest = -infinity<C>();
        row.each([&](C p, C) { highest = Larger()(highest, log_s(p)); });
        top = team.largest(highest);
        C moved[2] = {0, 0};
        row.each([&](C p, C v) {
            const C here = t(p, v);
            moved[0] += here;
            moved[1] += p == largest ? (C)0 : here;
        });
        team.sum(moved);
        total = moved[0];
        others = moved[1];
    }
    __device__ C value(C p, C v) const {
        if (jumps) return p != p ? p : (C)0;
        const C here = t(p, v);
        const C moved = p == largest && alone ? here * apart - p * others : here - p * total;
        return moved == 0 ? (C)0 : exp(top + log_power) * moved;
    }
};
