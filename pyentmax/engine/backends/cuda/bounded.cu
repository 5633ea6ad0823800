/* Constrained softmax, constrained sparsemax and budget sparsemax. The NumPy twins, with the
 * derivations, are pyentmax/reference/mappings/{csoftmax,csparsemax,budget_sparsemax}.py; kernels and their
 * arguments: bounded.cuh. The parameter is the least that bounds may sum to, rounding allowed for,
 * and for budget sparsemax the budget. Their Jacobians are those of softmax.cu and sparsemax.cu,
 * with bounds.
 */
#include "bounded.cuh"

/* p = clip(y + t, 0, u) */
template <typename C> struct Boxes {
    __device__ C bottom(C t, C) const { return t; }
    __device__ C full_at(C y, C u) const { return u - y; }
    __device__ C begins_at(C y, C) const { return -y; }
    __device__ C fill(C y, C u, C t) const {
        const C p = positive(y + t);
        return p < u ? p : u;
    }
    __device__ C weigh(C y, C u, C t, bool up) const {
        const C p = y + t, beyond = full_at(y, u) - t;
        const bool moves = up ? p >= 0 && beyond > 0 : p > 0 && beyond >= 0;
        return moves ? (C)1 : (C)0;
    }
    __device__ C step(C t, C missing, C weight) const { return t + missing / weight; }
};

template <typename C> struct Csparsemax : Boxes<C> {
    double least;

    __device__ explicit Csparsemax(double least) : least(least) {}
    __device__ C total() const { return 1; }
    __device__ bool feasible(C sum, C) const { return sum >= (C)least; }
};

template <typename C> struct BudgetSparsemax : Boxes<C> {
    double budget;

    __device__ explicit BudgetSparsemax(double budget) : budget(budget) {}
    __device__ C total() const { return (C)budget; }
    __device__ bool feasible(C, C count) const { return budget >= 0 && budget <= count; }
};

/* p = min(u, e^(y + t)) */
template <typename C> struct Csoftmax {
    double least;

    __device__ explicit Csoftmax(double least) : least(least) {}
    __device__ C total() const { return 1; }
    __device__ bool feasible(C sum, C) const { return sum >= (C)least; }
    /* Σ e^(y + t) is at least 1, and at most `count` times its largest. */
    __device__ C bottom(C t, C count) const { return t - log(count); }
    __device__ C full_at(C y, C u) const { return log(u) - y; }
    __device__ C begins_at(C y, C u) const { return full_at(y, u); }
    __device__ C fill(C y, C u, C t) const {
        const C p = exp(y + t);
        return p < u ? p : u;
    }
    __device__ C weigh(C y, C u, C t, bool up) const {
        const C beyond = full_at(y, u) - t;
        return (up ? beyond > 0 : beyond >= 0) ? exp(y + t) : (C)0;
    }
    /* All that moves becomes (weight + missing)/weight times as much. */
    __device__ C step(C t, C missing, C weight) const { return t + log1p(missing / weight); }
};
