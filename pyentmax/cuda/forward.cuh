/* From scores to probabilities: the kernels that all mappings of one row of scores share.
 *
 *     forward_lanes<M, T, LANES, ITEMS>(z, mask, p, batch, parameter)
 *         rows of at most LANES × ITEMS entries, one to LANES lanes of a warp; THREADS threads a block,
 *         grid ⌈rows LANES / THREADS⌉
 *     forward_block<M, T, WARPS, ITEMS>(z, mask, p, batch, parameter)
 *         rows of at most 32 WARPS ITEMS entries, one to a block of 32 WARPS threads; grid: rows
 *     forward_stream<M, T, WARPS>(z, mask, p, batch, parameter, storage)
 *         rows of any length, one to a block of 32 WARPS threads; grid: rows; dynamic shared memory:
 *         WARPS storage.room numbers of type Compute<T>, then storage.words marks of 4 bytes
 *
 * z and p: Operand of T, p may be z; mask: Operand of bool, `at` null for none; parameter: the mapping's
 * own, ignored where it has none. M is the mapping, a struct template over the type to compute in:
 *
 *     M(parameter)                  of this row
 *     valid()                       whether the parameter is; if not, the row is NaN
 *     scale(), reach()              gaps are x = scale (z − max z); no entry with z ≤ max z − reach
 *                                   can get probability, −∞ never does
 *     solve(team, row, sound)       find what probability() needs; nothing is asked where not sound
 *     probability(x)                of an entry with gap x
 *
 * A row with a NaN or +∞ is NaN, a row of nothing but −∞ is zeros: neither is sound.
 */
#pragma once
#include "rows.cuh"

constexpr int THREADS = 128;

/* Passes that a search may take. Newton's steps on a convex sum g, from the side from which they do
 * not overshoot, obey g₊/g + g'₊/g' ≤ 1 and so divide g |g'| by 4 or more: from at most n² to ε takes
 * log₂ n + ½ log₂ 1/ε, which is 58 for the longest row of doubles. Few take a tenth of that. */
constexpr int MAX_PASSES = 64;

template <class M, typename T, class Team, class Row>
__device__ inline void forward(Team &team, Row &row, const Line<T> &p, M &mapping) {
    typedef Compute<T> C;
    const C top = team.largest(row.read(mapping.reach()));
    const bool sound = is_finite(top) && mapping.valid();
    row.centre(top, mapping.scale(), mapping.reach());
    mapping.solve(team, row, sound);
    const C instead = top == -infinity<C>() ? (C)0 : not_a_number<C>();
    row.write(p, [&](C x) { return sound ? mapping.probability(x) : instead; });
}

template <template <typename> class M, typename T, int LANES, int ITEMS>
__global__ void __launch_bounds__(THREADS)
    forward_lanes(Operand<const T> z, Operand<const bool> mask, Operand<T> p, Batch batch,
                  Parameter parameter) {
    Lanes<LANES> team;
    const unsigned own = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    /* Teams behind the last row keep step with their warp, on a row of no entries. */
    const Place place(batch, own < batch.rows ? own : 0);
    Registers<T, Lanes<LANES>, ITEMS> row(team, {z, place}, {mask, place},
                                          own < batch.rows ? batch.n : 0);
    M<Compute<T>> mapping(value_at(parameter, place));
    forward<M<Compute<T>>, T>(team, row, {p, place}, mapping);
}

template <template <typename> class M, typename T, int WARPS, int ITEMS>
__global__ void __launch_bounds__(32 * WARPS)
    forward_block(Operand<const T> z, Operand<const bool> mask, Operand<T> p, Batch batch,
                  Parameter parameter) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    Team team(parts);
    const Place place(batch, blockIdx.x);
    Registers<T, Team, ITEMS> row(team, {z, place}, {mask, place}, batch.n);
    M<Compute<T>> mapping(value_at(parameter, place));
    forward<M<Compute<T>>, T>(team, row, {p, place}, mapping);
}

template <template <typename> class M, typename T, int WARPS>
__global__ void __launch_bounds__(32 * WARPS)
    forward_stream(Operand<const T> z, Operand<const bool> mask, Operand<T> p, Batch batch,
                   Parameter parameter, Storage storage) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ unsigned char dynamic[];
    Team team(parts);
    const Place place(batch, blockIdx.x);
    Streamed<T, WARPS> row({z, place}, {mask, place}, batch.n, storage, dynamic);
    M<Compute<T>> mapping(value_at(parameter, place));
    forward<M<Compute<T>>, T>(team, row, {p, place}, mapping);
}
