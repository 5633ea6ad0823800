/* Fenchel-Young losses of labels, L = Ω*(z) + Ω(label) − z_label, with the gradient p − label. The
 * NumPy twin is pyentmax/reference/losses/definition.py; kernels and their arguments: losses.cuh; the
 * parameter is the mapping's.
 *
 * Ω*(z) = p·g − Ω(p) with gaps g = z − max z, a sum over the support for all but softmax and
 * normmax.
 */
#include "losses.cuh"
#include "entmax.cu"
#include "entmax15.cu"
#include "normmax.cu"
#include "softmax.cu"
#include "topk_sparsemax.cu"

/* Ω* = log Σ e^g. The largest entries, g = 0, are counted and the others summed, so that these keep
 * their digits beside them. */
template <typename C> __device__ inline void weigh_exponential(C g, C (&sums)[2]) {
    sums[0] += g < 0 ? exp(g) : (C)0;
    sums[1] += g < 0 ? (C)0 : (C)1;
}
template <typename C> __device__ inline C log_sum_exp(const C (&sums)[2]) {
    return log1p((sums[1] - 1) + sums[0]);
}

template <typename C> struct SoftmaxLoss : Softmax<C> {
    using Softmax<C>::Softmax;
    __device__ void weigh(C g, C, C (&sums)[2]) const { weigh_exponential(g, sums); }
    __device__ C conjugate(const C (&sums)[2]) const { return log_sum_exp(sums); }
};

/* −Ω(p) = ½ Σ p (1 − p) */
template <typename C, class Mapping> struct GiniLoss : Mapping {
    using Mapping::Mapping;
    __device__ void weigh(C g, C p, C (&sums)[2]) const { sums[0] += p * (g + (1 - p) / 2); }
    __device__ C conjugate(const C (&sums)[2]) const { return sums[0]; }
};
template <typename C> using SparsemaxLoss = GiniLoss<C, Sparsemax<C>>;
template <typename C> using TopkSparsemaxLoss = GiniLoss<C, TopkSparsemax<C>>;

/* −Ω(p) = 4/3 Σ (p − p^{3/2}) */
template <typename C> struct Entmax15Loss : Entmax15<C> {
    using Entmax15<C>::Entmax15;
    __device__ void weigh(C g, C p, C (&sums)[2]) const {
        sums[0] += p * (g + (1 - sqrt(p)) * (C)(4. / 3));
    }
    __device__ C conjugate(const C (&sums)[2]) const { return sums[0]; }
};

/* −Ω(p) = Σ (p − p^α)/(αβ), which is 0 at α = ∞; p^β − 1 as expm1, which keeps its digits near β =
 * 0. */
template <typename C> struct EntmaxLoss : Entmax<C> {
    using Entmax<C>::Entmax;
    __device__ void weigh(C g, C p, C (&sums)[2]) const {
        const C beta = this->low.beta;
        if (beta == 0)
            weigh_exponential(g, sums);
        else if (beta == infinity<C>())
            sums[0] += p * g;
        else
            sums[0] += p * (g - expm1(beta * log(p)) / (beta * (1 + beta)));
    }
    __device__ C conjugate(const C (&sums)[2]) const {
        return this->low.beta == 0 ? log_sum_exp(sums) : sums[0];
    }
};

/* Ω(p) = ‖p‖, 1 for a label. As p = q/Σq and ‖q‖ = 1 it is 1/Σq. */
template <typename C> struct NormmaxLoss : Normmax<C> {
    using Normmax<C>::Normmax;
    __device__ void weigh(C g, C p, C (&sums)[2]) const { sums[0] += p * g; }
    __device__ C conjugate(const C (&sums)[2]) const { return sums[0] + (1 - this->share); }
};
