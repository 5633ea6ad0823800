/* Top-k sparsemax, with a k for each row. The NumPy twin is
 * pyentmax/reference/mappings/topk_sparsemax.py; kernels and their arguments: forward.cuh; the
 * parameter is k. The Jacobian is sparsemax's.
 *
 * Where sparsemax has no more than k non-zeros, it is the answer. Where it has more, the k largest
 * entries get less than 1 together at its threshold. So t = −τ has to rise, which takes none of
 * them out of the support, and one tangent leads to its root, Σ (x + t) = 1 over the k.
 *
 * The k are chosen by their scores as they are stored, not by their gaps, of which rounding can
 * make different scores equal; and where scores are equal, by their indices.
 */
#include "selection.cuh"
#include "sparsemax.cuh"

template <typename C> struct TopkSparsemax : Sparsemax<C> {
    static constexpr bool BY_RANK = true;
    /* What stays: scores above `kth`, and those equal to it with an index of `last` at most. */
    C k, top, kth = -infinity<C>();
    unsigned last = ~0u;
    bool right;

    __device__ explicit TopkSparsemax(double k)
        : Sparsemax<C>(0), k((C)k), right(k >= 1 && k == floor(k)) {}
    __device__ bool valid() const { return right; }

    template <class Row> struct Gaps {
        const Row &row;
        const C top;
        template <class Visit> __device__ void each(Visit visit) const {
            const C top_now = anew(top);
            row.each([&](C score) { visit(score - top_now); });
        }
    };

    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, C top_, unsigned n, bool sound) {
        top = top_;
        const Gaps<Row> gaps = {row, top};
        const C size = this->search(team, gaps, sound);
        const bool crowded = sound && size > k;
        if (team.any(crowded)) keep_only_k(team, row, n, crowded);
    }

    /* The k-th score is among those with probability, above top − 1, and so at least top − 2
     * rounded. */
    template <class Team, class Row>
    __device__ void keep_only_k(Team &team, const Row &row, unsigned n, bool crowded) {
        const Bits<C> place =
            selected(team, k, place_of(top), place_of(top - 2), crowded, [&](Bits<C> place) {
                const C least = score_in<C>(place);
                C within = 0;
                row.each([&](C score) { within += score >= least ? (C)1 : (C)0; });
                return within;
            });
        if (crowded) kth = score_in<C>(place);
        C stay = 0, tied = 0; /* of those equal to the k-th: how many may, how many there are */
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) {
            C sums[3] = {0, 0, 0};
            const C top_now = anew(top);
            row.each([&](C score) {
                sums[0] += score > kth ? Sparsemax<C>::probability(score - top_now) : (C)0;
                sums[1] += score > kth ? (C)1 : (C)0;
                sums[2] += score == kth ? (C)1 : (C)0;
            });
            team.sum(sums);
            if (!crowded) continue;
            stay = k - sums[1];
            tied = sums[2];
            const C sum = sums[0] + stay * Sparsemax<C>::probability(kth - top);
            this->move((1 - sum) / k);
        }
        const bool choosing = stay < tied;
        const unsigned index = selected(team, stay, 0u, n - 1, choosing, [&](unsigned index) {
            C within = 0;
            row.each_at([&](C score, unsigned i) {
                within += score == kth && i <= index ? (C)1 : (C)0;
            });
            return within;
        });
        if (choosing) last = index;
    }

    __device__ C gap(C score) const { return score - top; }
    __device__ C probability(C score, unsigned i) const {
        const bool stays = score > kth || (score == kth && i <= last);
        return stays ? Sparsemax<C>::probability(gap(score)) : (C)0;
    }
};
