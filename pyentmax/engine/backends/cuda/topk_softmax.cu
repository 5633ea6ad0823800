/* Top-k softmax, with a k for each row. The NumPy twin is
 * pyentmax/reference/mappings/topk_softmax.py; kernels and their arguments: forward.cuh; the
 * parameter is k. The Jacobian is softmax's.
 *
 * No sort: the k-th largest score is found by halving a bracket of integers that order scores
 * (selection.cuh). Scores are compared as they are stored, not gaps, of which rounding makes
 * different scores tie.
 */
#include "selection.cuh"

template <typename C> struct TopkSoftmax {
    static constexpr bool COSTLY = false, BY_RANK = true;
    C k, top, share, kth = -infinity<C>();
    bool right;

    __device__ explicit TopkSoftmax(double k) : k((C)k), right(k >= 1 && k == floor(k)) {}
    __device__ bool valid() const { return right; }
    __device__ C scale() const { return 1; }
    __device__ C reach() const { return infinity<C>(); }

    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, C top_, unsigned n, bool sound) {
        top = top_;
        const bool selecting = sound && k < n;
        const Bits<C> place = selected(
            team, k, place_of(top), place_of(-infinity<C>()), selecting, [&](Bits<C> place) {
                const C least = score_in<C>(place);
                C within = 0;
                row.each([&](C score) { within += score >= least ? (C)1 : (C)0; });
                return within;
            });
        if (selecting) kth = score_in<C>(place);
        C total[1] = {0};
        row.each([&](C score) { total[0] += kept(score); });
        team.sum(total);
        share = 1 / total[0];
    }
    __device__ C gap(C score) const { return score - top; }
    __device__ C kept(C score) const { return score >= kth ? exp(gap(score)) : (C)0; }
    __device__ C probability(C score, unsigned) const { return kept(score) * share; }
};
