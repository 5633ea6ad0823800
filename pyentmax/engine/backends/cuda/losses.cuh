/* From scores and labels to losses and their gradients, in one pass over the scores: the kernels.
 *
 *     loss_lanes<L, T, LANES, ITEMS>(z, mask, label, gradient, loss, counted, batch, parameter,
 *                                    weight)
 *     loss_block<L, T, WARPS, ITEMS>(the same)
 *     loss_held<L, T, WARPS>(the same, room)
 *     loss_stream<L, T, WARPS>(the same, storage)
 *     rescale<T>(gradient, batch, factor)
 *         a grid of any size, THREADS threads a block
 *
 * Rows, grids, blocks and shared memory are those of forward.cuh. z and mask: as there; label:
 * Operand of long long; gradient: Operand of T, `at` null for none; loss and counted: Operand of
 * double; of these three the row's first entry is meant. weight: what each row counts, a NaN for a
 * wrong one. L is a mapping of forward.cuh that knows its loss, with gaps g = z − max z:
 *
 *     weigh(g, p, sums)   add an entry's part to the two sums that make Ω*(z)
 *     conjugate(sums)     Ω*(z) + Ω(label) where the largest score is 0
 *
 * `counted` gets the weight, 0 for a row of nothing but −∞, which costs nothing. A label out of
 * range, on a row that counts, makes its loss and gradient NaN; one on a masked entry costs ∞.
 */
#pragma once
#include "forward.cuh"

template <typename T, class Team> struct WriteLoss {
    typedef Compute<T> C;
    Team &team;
    const long long *label;
    double *loss, *counted;
    const double weight;
    const Line<T> gradient;
    const unsigned n;
    const bool there;

    __device__ WriteLoss(Team &team, const Place &place, const Operand<const long long> &label,
                         const Operand<T> &gradient, const Operand<double> &loss,
                         const Operand<double> &counted, const Parameter &weight, unsigned n,
                         bool there)
        : team(team),
          label(label.at + place.in(label)),
          loss(loss.at + place.in(loss)),
          counted(counted.at + place.in(counted)),
          weight(value_at(weight, place)),
          gradient(gradient, place),
          n(n),
          there(there) {}

    template <class Row, class L>
    __device__ void operator()(const Row &row, const L &mapping, C top, bool sound) const {
        C sums[2] = {0, 0};
        const C unscaled = 1 / mapping.scale();
        each_probability(row, mapping, [&](C x, C p) {
            if (p > 0) mapping.weigh(x * unscaled, p, sums);
        });
        team.sum(sums);
        const bool counts = weight != 0 && top != -infinity<C>();
        const bool right = *label >= 0 && *label < n;
        const C scale = right ? (C)weight : not_a_number<C>();
        const unsigned place = right ? (unsigned)*label : 0;
        if (there && team.rank == 0) {
            const C value = mapping.conjugate(sums) - (row.score(place) - top);
            const C kept = !sound ? not_a_number<C>() : value < 0 ? (C)0 : value; /* rounding */
            *loss = counts ? (double)(kept * scale) : 0;
            *counted = counts ? weight : 0;
        }
        if (!gradient.at) return;
        write_probabilities(
            row, gradient, mapping, sound, not_a_number<C>(),
            [&](C p, unsigned i) { return counts ? (i == place ? p - 1 : p) * scale : (C)0; });
    }
};

template <template <typename> class L, typename T, int LANES, int ITEMS>
__global__ void __launch_bounds__(THREADS, blocks_with(MORE_REGISTERS<Compute<T>>, THREADS))
    loss_lanes(Operand<const T> z, Operand<const bool> mask, Operand<const long long> label,
               Operand<T> gradient, Operand<double> loss, Operand<double> counted, Batch batch,
               Parameter parameter, Parameter weight) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    typedef Lanes<LANES> Team;
    Team team;
    const unsigned own = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const bool there = own < batch.rows;
    const Place place(batch, there ? own : 0);
    Registers<T, Team, ITEMS> row(team, {z, place}, {mask, place}, there ? batch.n : 0);
    const WriteLoss<T, Team> write(team, place, label, gradient, loss, counted, weight, batch.n,
                                   there);
    solved<L>(team, row, batch.n, value_at(parameter, place),
              reinterpret_cast<Compute<T> *>(dynamic), LANES * ITEMS, write);
}

template <template <typename> class L, typename T, int WARPS, int ITEMS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(REGISTERS<Compute<T>>, 32 * WARPS))
    loss_block(Operand<const T> z, Operand<const bool> mask, Operand<const long long> label,
               Operand<T> gradient, Operand<double> loss, Operand<double> counted, Batch batch,
               Parameter parameter, Parameter weight) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ __align__(16) unsigned char dynamic[];
    Team team(parts);
    const Place place(batch, blockIdx.x);
    Registers<T, Team, ITEMS> row(team, {z, place}, {mask, place}, batch.n);
    const WriteLoss<T, Team> write(team, place, label, gradient, loss, counted, weight, batch.n,
                                   true);
    solved<L>(team, row, batch.n, value_at(parameter, place),
              reinterpret_cast<Compute<T> *>(dynamic), 32 * ITEMS, write);
}

template <template <typename> class L, typename T, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(REGISTERS<Compute<T>>, 32 * WARPS))
    loss_held(Operand<const T> z, Operand<const bool> mask, Operand<const long long> label,
              Operand<T> gradient, Operand<double> loss, Operand<double> counted, Batch batch,
              Parameter parameter, Parameter weight, unsigned room) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ __align__(16) unsigned char dynamic[];
    Team team(parts);
    const Place place(batch, blockIdx.x);
    Packed<T> *const packs = reinterpret_cast<Packed<T> *>(dynamic);
    Held<T, WARPS, L<Compute<T>>::COSTLY> row({z, place}, {mask, place}, batch.n, packs);
    const WriteLoss<T, Team> write(team, place, label, gradient, loss, counted, weight, batch.n,
                                   true);
    solved<L>(team, row, batch.n, value_at(parameter, place), behind(packs, batch.n), room, write);
}

template <template <typename> class L, typename T, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(REGISTERS<Compute<T>>, 32 * WARPS))
    loss_stream(Operand<const T> z, Operand<const bool> mask, Operand<const long long> label,
                Operand<T> gradient, Operand<double> loss, Operand<double> counted, Batch batch,
                Parameter parameter, Parameter weight, Storage storage) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ __align__(16) unsigned char dynamic[];
    Compute<T> *const kept = reinterpret_cast<Compute<T> *>(dynamic);
    unsigned *const marks = reinterpret_cast<unsigned *>(kept + WARPS * storage.room);
    Team team(parts);
    const Place place(batch, blockIdx.x);
    Streamed<T, WARPS, true> row({z, place}, {mask, place}, batch.n, marks, storage.words);
    const WriteLoss<T, Team> write(team, place, label, gradient, loss, counted, weight, batch.n,
                                   true);
    solved<L>(team, row, batch.n, value_at(parameter, place), kept, storage.room, write);
}

/* Multiply all rows by a factor, which nearly always is 1: then nothing is read. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    rescale(Operand<T> gradient, Batch batch, Parameter factor) {
    const Compute<T> by = (Compute<T>)value_at(factor, Place(batch, 0));
    if (by == 1) return;
    for (unsigned row = blockIdx.x; row < batch.rows; row += gridDim.x) {
        const Line<T> line(gradient, Place(batch, row));
        for (unsigned i = threadIdx.x; i < batch.n; i += THREADS) {
            T &entry = line.at[i * line.step];
            entry = from_compute<T>(to_compute(entry) * by);
        }
    }
}
