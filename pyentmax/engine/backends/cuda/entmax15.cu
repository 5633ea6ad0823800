/* 1.5-entmax. The NumPy twin is pyentmax/reference/mappings/entmax15.py, with the derivation;
 * kernels and their arguments: forward.cuh.
 *
 * With half gaps x = (z − max z)/2 ≤ 0 and the threshold as t = −τ,
 *
 *     p_i = [x_i + t]+²   with   f(t) = Σ [x_i + t]+² = 1   and   0 < t ≤ 1,
 *
 * the upper bound because the largest entry alone, x = 0, contributes t² to the sum.
 */
#include "forward.cuh"
#include "separable.cuh"

template <typename C> struct Entmax15 {
    static constexpr bool COSTLY = false, BY_RANK = false;
    C t = 1, rest = 0, excess;

    __device__ explicit Entmax15(double) {}
    __device__ bool valid() const { return true; }
    __device__ C scale() const { return (C)0.5; }
    __device__ C reach() const { return 2; }

    /* Each pass takes two steps from t. The norm √f is convex in t, so the root of its tangent is
     * at or above the root wanted. If the support is right already, f is a quadratic around t,
     * whose own root is exact: it is taken where it lies within the bounds known so far. Supports
     * are nested in t, so two passes in a row that count the same size saw the same support: done.
     * As in sparsemax.cu, `rest` and `excess` take the rounding off. */
    template <class Team, class Row>
    __device__ void solve(Team &team, const Row &row, unsigned, bool sound) {
        C lower = 0, upper = 1, size_before = 0;
        bool moving = sound;
        for (int pass = 0; pass < MAX_PASSES && team.any(moving); pass++) {
            C moments[3] = {0, 0, 0}; /* of [x + t]+: squares, sum, how many are positive */
            row.each([&](C x) {
                const C u = positive(x + t);
                moments[0] += u * u;
                moments[1] += u;
                moments[2] += u > 0 ? (C)1 : (C)0;
            });
            team.sum(moments);
            if (!moving) continue;
            const C squares = moments[0], sum = moments[1], size = moments[2], beyond = squares - 1;
            const C norm = sqrt(squares), tangent = t + (1 - norm) * norm / sum;
            if (beyond < 0 && t > lower) lower = t;
            if (beyond >= 0 && t < upper) upper = t;
            if (tangent < upper) upper = tangent;
            rest = -beyond / (sum + sqrt(positive(sum * sum - size * beyond)));
            const bool trusted = lower < t + rest && t + rest <= upper;
            const C next = trusted ? t + rest : upper;
            moving = size != size_before && next != t;
            if (moving) {
                size_before = trusted ? size : (C)0;
                t = next;
            }
        }
        C squares[1] = {0};
        row.each([&](C x) {
            const C u = positive((x + t) + rest);
            squares[0] += u * u;
        });
        team.sum(squares);
        excess = (1 - squares[0]) / squares[0];
    }
    __device__ C probability(C x) const {
        const C u = positive((x + t) + rest), q = u * u;
        return q + q * excess;
    }
};

/* s = √p */
template <typename C> struct Entmax15Curvature : RisingCurvature<C> {
    using RisingCurvature<C>::RisingCurvature;
    __device__ C s(C p) const { return sqrt(p); }
    __device__ C relative(C p, C) const { return s(p); }
};
template <typename C> using Entmax15Jvp = Product<C, Entmax15Curvature<C>>;
