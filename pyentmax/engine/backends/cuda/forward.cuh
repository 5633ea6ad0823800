/* From scores to probabilities: the kernels that all mappings of one row of scores share.
 *
 *     forward_lanes<M, T, LANES, ITEMS>(z, mask, p, batch, parameter)
 *         rows of at most LANES × ITEMS entries, one to LANES lanes of a warp; THREADS threads a
 *         block, grid ⌈rows LANES / THREADS⌉
 *     forward_columns<M, T, LANES, ITEMS>(z, mask, p, batch, parameter)
 *         the same for rows whose neighbours lie side by side; grid ⌈rows / ROWS_ABREAST⌉
 *     forward_block<M, T, WARPS, ITEMS>(z, mask, p, batch, parameter)
 *         rows of at most 32 WARPS ITEMS entries, one to a block of 32 WARPS threads; grid: rows
 *     forward_held<M, T, WARPS>(z, mask, p, batch, parameter, room)
 *         rows that shared memory holds, of at most 32 packs of 16 bytes for each thread, one to a
 *         block of 32 WARPS threads; grid: rows
 *     forward_stream<M, T, WARPS>(z, mask, p, batch, parameter, storage)
 *         rows of any length, one to a block of 32 WARPS threads; grid: rows
 *
 * z and p: Operand of T, p may be z; mask: Operand of bool, `at` null for none; parameter: the
 * mapping's own, ignored where it has none. Dynamic shared memory, in numbers of type Compute<T>:
 * forward_stream takes WARPS storage.room of them, then storage.words marks of 4 bytes; forward_held
 * takes the row's packs, then WARPS room numbers if M::COSTLY; the others take ITEMS for each thread
 * if M::COSTLY, else none, and forward_columns then the rows (columns.cuh). M is the mapping, a
 * struct template over the type to compute in:
 *
 *     COSTLY                        whether a visit costs so much that the entries in reach, of which
 *                                   there may be few, are better gathered
 *     BY_RANK                       whether it looks at scores and their indices, not at gaps
 *     M(parameter)                  of this row
 *     valid()                       whether the parameter is; if not, the row is NaN
 *     scale(), reach()              gaps are x = scale (z − max z); an entry with z ≤ max z − reach,
 *                                   or −∞, cannot get probability
 *     solve(team, row, n, sound)    find what probability() needs; nothing is asked where not sound
 *     probability(x)                of an entry with gap x
 *
 * If BY_RANK there are, instead of the last two,
 *
 *     solve(team, row, top, n, sound)
 *     gap(score), probability(score, i)
 *
 * A row with a NaN or +∞ is NaN, a row of nothing but −∞ is zeros: neither is sound.
 */
#pragma once
#include "columns.cuh"

/* Passes that a search may take. Newton's steps on a convex sum g, from the side from which they do
 * not overshoot, obey g₊/g + g'₊/g' ≤ 1 and so divide g |g'| by 4 or more: from at most n² to ε
 * takes log₂ n + ½ log₂ 1/ε, which is 58 for the longest row of doubles. Few take a tenth. */
constexpr int MAX_PASSES = 64;

/* The shared memory behind a row of n entries held in it. */
template <typename T> __device__ inline Compute<T> *behind(Packed<T> *row, unsigned n) {
    return reinterpret_cast<Compute<T> *>(row + (n + PACK<T> - 1) / PACK<T>);
}

/* What a block keeps on the chip of a row too long for it. */
struct Storage {
    unsigned room;  /* gaps that each warp can gather */
    unsigned words; /* of 32 marks each, one for a pack */
};

/* Read a row, have the mapping solve it, and finish(row, mapping, top, sound) what the kernel is
 * for: `row` is then what the mapping looks at, the row itself or what was gathered of it. */
template <template <typename> class M, class Team, class Row, typename C, class Finish>
__device__ inline void solved(Team &team, Row &row, unsigned n, double parameter, C *shared,
                              unsigned room, Finish finish) {
    M<C> mapping(parameter);
    const C top = team.largest(row.read(mapping.reach()));
    const bool sound = is_finite(top) && mapping.valid();
    if constexpr (M<C>::BY_RANK) {
        row.keep_scores(top);
        mapping.solve(team, row, top, n, sound);
        finish(row, mapping, top, sound);
    } else if constexpr (M<C>::COSTLY || !Row::ON_CHIP) {
        row.centre(top, mapping.scale());
        const Gathered<Row> gathered(row, -mapping.reach() * mapping.scale(), shared, room);
        mapping.solve(team, gathered, n, sound);
        finish(gathered, mapping, top, sound);
    } else {
        row.centre(top, mapping.scale());
        mapping.solve(team, row, n, sound);
        finish(row, mapping, top, sound);
    }
}

/* visit(gap, p) each entry that this thread looks after, p being its probability. */
template <class Row, class M, class Visit>
__device__ inline void each_probability(const Row &row, const M &mapping, Visit visit) {
    typedef typename Row::C C;
    if constexpr (M::BY_RANK)
        row.each_at([&](C score, unsigned i) {
            visit(mapping.gap(score), mapping.probability(score, i));
        });
    else
        row.each([&](C x) { visit(x, mapping.probability(x)); });
}

/* Write finish(p, i) for each entry i, where p is its probability, or `instead` if not sound. */
template <typename T, class Row, class M, class Finish>
__device__ inline void write_probabilities(const Row &row, const Line<T> &out, const M &mapping,
                                           bool sound, Compute<T> instead, Finish finish) {
    typedef Compute<T> C;
    if constexpr (M::BY_RANK)
        row.write(
            out, [](C score) { return score; },
            [&](C score, unsigned i) {
                return finish(sound ? mapping.probability(score, i) : instead, i);
            });
    else
        row.write(out, [&](C x) { return sound ? mapping.probability(x) : instead; }, finish);
}

template <typename T> struct WriteProbabilities {
    typedef Compute<T> C;
    const Line<T> p;

    template <class Row, class M>
    __device__ void operator()(const Row &row, const M &mapping, C top, bool sound) const {
        const C instead = top == -infinity<C>() ? (C)0 : not_a_number<C>();
        write_probabilities(row, p, mapping, sound, instead,
                            [](C value, unsigned) { return value; });
    }
};

template <template <typename> class M, typename T, int LANES, int ITEMS>
__global__ void __launch_bounds__(THREADS, blocks_with(MORE_REGISTERS<Compute<T>>, THREADS))
    forward_lanes(Operand<const T> z, Operand<const bool> mask, Operand<T> p, Batch batch,
                  Parameter parameter) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    Lanes<LANES> team;
    const unsigned own = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    /* Teams behind the last row keep step with their warp, on a row of no entries. */
    const Place place(batch, own < batch.rows ? own : 0);
    const unsigned n = own < batch.rows ? batch.n : 0;
    Registers<T, Lanes<LANES>, ITEMS> row(team, {z, place}, {mask, place}, n);
    solved<M>(team, row, batch.n, value_at(parameter, place),
              reinterpret_cast<Compute<T> *>(dynamic), LANES * ITEMS,
              WriteProbabilities<T>{{p, place}});
}

/* The longest rows of half types under a mapping with powers need more than two blocks can have. */
template <class Mapping, typename T, int ITEMS>
constexpr int COLUMN_REGISTERS = Mapping::COSTLY && sizeof(T) == 2 && ITEMS >= 32 ? 255 : 128;

template <template <typename> class M, typename T, int LANES, int ITEMS>
__global__ void __launch_bounds__(THREADS,
                                  blocks_with(COLUMN_REGISTERS<M<Compute<T>>, T, ITEMS>, THREADS))
    forward_columns(Operand<const T> z, Operand<const bool> mask, Operand<T> p, Batch batch,
                    Parameter parameter) {
    typedef Compute<T> C;
    constexpr int ROWS = ROWS_ABREAST<T, LANES>;
    extern __shared__ __align__(16) unsigned char dynamic[];
    C *const kept = reinterpret_cast<C *>(dynamic);
    const Columns<T, ROWS> rows(reinterpret_cast<T *>(kept + (M<C>::COSTLY ? THREADS * ITEMS : 0)),
                                batch.n);
    const unsigned copied = rows.copied();
    const Place outside(batch, copied < batch.rows ? copied : 0);
    if (copied < batch.rows) {
        const Line<const T> from(z, outside);
        const Line<const bool> allowed(mask, outside);
        rows.read([&](unsigned i) {
            const bool masked = allowed.at && !allowed.at[i * allowed.step];
            return masked ? from_compute<T>(-infinity<C>()) : from.at[i * from.step];
        });
    }
    __syncthreads();
    Lanes<LANES> team;
#pragma unroll 1
    for (unsigned own = threadIdx.x / LANES; own < ROWS; own += THREADS / LANES) {
        const unsigned number = blockIdx.x * ROWS + own;
        const Place place(batch, number < batch.rows ? number : 0);
        const Line<T> line = rows.line(own);
        Registers<T, Lanes<LANES>, ITEMS> row(team, Line<const T>(line.at),
                                              Line<const bool>(nullptr),
                                              number < batch.rows ? batch.n : 0);
        solved<M>(team, row, batch.n, value_at(parameter, place), kept, LANES * ITEMS,
                  WriteProbabilities<T>{line});
        __syncwarp(ALL_LANES);
    }
    __syncthreads();
    if (copied < batch.rows) rows.write({p, outside});
}

template <template <typename> class M, typename T, int WARPS, int ITEMS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(REGISTERS<Compute<T>>, 32 * WARPS))
    forward_block(Operand<const T> z, Operand<const bool> mask, Operand<T> p, Batch batch,
                  Parameter parameter) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ __align__(16) unsigned char dynamic[];
    Team team(parts);
    const Place place(batch, blockIdx.x);
    Registers<T, Team, ITEMS> row(team, {z, place}, {mask, place}, batch.n);
    solved<M>(team, row, batch.n, value_at(parameter, place),
              reinterpret_cast<Compute<T> *>(dynamic), 32 * ITEMS,
              WriteProbabilities<T>{{p, place}});
}

template <template <typename> class M, typename T, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(REGISTERS<Compute<T>>, 32 * WARPS))
    forward_held(Operand<const T> z, Operand<const bool> mask, Operand<T> p, Batch batch,
                 Parameter parameter, unsigned room) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ __align__(16) unsigned char dynamic[];
    Team team(parts);
    const Place place(batch, blockIdx.x);
    Packed<T> *const packs = reinterpret_cast<Packed<T> *>(dynamic);
    Held<T, WARPS, M<Compute<T>>::COSTLY> row({z, place}, {mask, place}, batch.n, packs);
    solved<M>(team, row, batch.n, value_at(parameter, place), behind(packs, batch.n), room,
              WriteProbabilities<T>{{p, place}});
}

template <template <typename> class M, typename T, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(REGISTERS<Compute<T>>, 32 * WARPS))
    forward_stream(Operand<const T> z, Operand<const bool> mask, Operand<T> p, Batch batch,
                   Parameter parameter, Storage storage) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ __align__(16) unsigned char dynamic[];
    Compute<T> *const kept = reinterpret_cast<Compute<T> *>(dynamic);
    unsigned *const marks = reinterpret_cast<unsigned *>(kept + WARPS * storage.room);
    Team team(parts);
    const Place place(batch, blockIdx.x);
    typedef M<Compute<T>> Mapping;
    Streamed<T, WARPS, Mapping::COSTLY || Mapping::BY_RANK> row({z, place}, {mask, place}, batch.n,
                                                                marks, storage.words);
    solved<M>(team, row, batch.n, value_at(parameter, place), kept, storage.room,
              WriteProbabilities<T>{{p, place}});
}
