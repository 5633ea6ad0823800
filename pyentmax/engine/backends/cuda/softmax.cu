/* Softmax. The NumPy twin is pyentmax/reference/mappings/softmax.py; kernels and their arguments:
 * forward.cuh.
 *
 * Exponentials are taken twice, for the sum and for the result: on a GPU that is cheaper than
 * keeping them. Reading is all that a long row costs.
 */
#include "forward.cuh"
#include "separable.cuh"

template <typename C> struct Softmax {
    static constexpr bool COSTLY = false, BY_RANK = false;
    C share;

    __device__ explicit Softmax(double) {}
    __device__ bool valid() const { return true; }
    __device__ C scale() const { return 1; }
    __device__ C reach() const { return infinity<C>(); }

    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, unsigned, bool) {
        C total[1] = {0};
        row.each([&](C x) { total[0] += exp(x); });
        team.sum(total);
        share = 1 / total[0];
    }
    __device__ C probability(C x) const { return exp(x) * share; }
};

/* Also top-k softmax's and, with bounds, constrained softmax's. */
template <typename C> struct SoftmaxCurvature : RisingCurvature<C> {
    using RisingCurvature<C>::RisingCurvature;
    __device__ C s(C p) const { return p; }
    __device__ C relative(C p, C) const { return s(p); }
};
template <typename C> using SoftmaxJvp = Product<C, SoftmaxCurvature<C>>;
