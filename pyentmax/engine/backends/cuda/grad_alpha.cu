/* ∂p/∂α of α-entmax, elementwise. The NumPy twin, with the derivation, is `entmax.parameter_slope` in
 * pyentmax/reference/mappings/entmax.py; kernels and their arguments: derivatives.cuh, without a v; the
 * parameter is α.
 *
 * With β = α − 1, l = log p, s = p^{1−β} and a = l² φ(−βl), φ(x) = (eˣ − 1 − x)/x²,
 *
 *     g = p/Σs ∘ [Q − a − β (Q l + H a)],            Q = Σ p a, H = −Σ p l,      up to β = 1,
 *     g = (p − p̃)/β² − (p l − p̃ Σ p l)/β,            p̃ = s/Σs,       above, or if a overflows,
 *
 * a and l replaced by their differences from the entry with the largest p, which cancel less.
 */
#include "derivatives.cuh"

template <typename C> struct EntmaxGradAlpha {
    static constexpr bool PAIRED = false;
    C beta;
    bool right, jumps, small;
    C log_top, a_top, lowest, total, q, h;

    __device__ explicit EntmaxGradAlpha(double alpha)
        : beta((C)(alpha - 1)), right(alpha >= 1), jumps(alpha == infinity<double>()) {}
    __device__ bool valid() const { return right; }
    __device__ C key(C p) const { return p; }

    /* φ, by its Taylor series Σ xᵏ/(k+2)! near 0, where it cancels. */
    __device__ C phi(C x) const {
        if (x < (C)0.3) {
            C series = 0;
#pragma unroll
            for (int k = 13; k > 2; k--) series = (series + 1) * x * (1 / (C)k);
            return (series + 1) / 2;
        }
        return (expm1(x) - x) / (x * x);
    }
    __device__ C a(C log_p) const { return log_p * log_p * phi(-beta * log_p); }
    /* s up to a factor: at β > 1 the largest s, of the lowest p, counts 1 and nothing overflows. */
    __device__ C relative(C p) const { return pow(beta > 1 ? p / lowest : p, 1 - beta); }

    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, C largest) {
        if (jumps) beta = 1; /* to have numbers: p is constant between its jumps */
        log_top = log(largest);
        a_top = a(log_top);
        lowest = -infinity<C>();
        row.each([&](C p, C) { lowest = Larger()(lowest, -p); });
        lowest = -team.largest(lowest);
        const C most = sizeof(C) == 8 ? (C)700 : (C)80; /* e^most, times e^8, is finite */
        small = beta <= 1 && !(-beta * log(lowest) > most);
        C sums[3] = {0, 0, 0};
        row.each([&](C p, C) {
            const C log_p = log(p);
            sums[0] += relative(p);
            sums[1] += p * (log_p - log_top);
            if (small) sums[2] += p * (a(log_p) - a_top);
        });
        team.sum(sums);
        total = sums[0];
        h = -sums[1];
        q = sums[2];
    }
    __device__ C value(C p, C) const {
        if (jumps) return p != p ? p : (C)0;
        const C log_p = log(p), dl = log_p - log_top;
        if (small) {
            const C a_here = a(log_p), da = a_here - a_top;
            const C shared = q * log_p + h * a_here + a_top * dl - log_top * da;
            return p * ((q - da - beta * shared) / total); /* a denormal p keeps its digits */
        }
        const C share = relative(p) / total, apart = p - share;
        return apart / (beta * beta) - (p * dl + share * h + log_top * apart) / beta;
    }
};
