/* Top-k softmax, with a k for each row. The NumPy twins are pyentmax/mappings/topk_softmax.py, and
 * for the search `bisect_kth_largest` in pyentmax/thresholds/selection.py; kernels and their
 * arguments: forward.cuh; the parameter is k. The Jacobian is softmax's.
 *
 * No sort: the bits of a float that is not negative are in the order of the floats. So the k-th
 * smallest distance from the top is found by halving a bracket of integers (selection.cuh).
 */
#include "selection.cuh"

template <typename C> struct TopkSoftmax {
    static constexpr bool COSTLY = false, BY_RANK = false;
    typedef decltype(bits_of((C)0)) Bits;
    C k, share;
    Bits farthest = bits_of(infinity<C>());
    bool right;

    __device__ explicit TopkSoftmax(double k) : k((C)k), right(k >= 1 && k == floor(k)) {}
    __device__ bool valid() const { return right; }
    __device__ C scale() const { return 1; }
    __device__ C reach() const { return infinity<C>(); }

    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, unsigned n, bool sound) {
        farthest = selected(team, k, (Bits)0, farthest, sound && k < n, [&](Bits distance) {
            C within = 0;
            row.each([&](C x) { within += bits_of(fabs(x)) <= distance ? (C)1 : (C)0; });
            return within;
        });
        C total[1] = {0};
        row.each([&](C x) { total[0] += kept(x); });
        team.sum(total);
        share = 1 / total[0];
    }
    __device__ C kept(C x) const { return bits_of(fabs(x)) <= farthest ? exp(x) : (C)0; }
    __device__ C probability(C x) const { return kept(x) * share; }
};
