/* Where a row lies: in arrays of any strides, and on the chip.
 *
 * An array is cut into rows along its last axis; the launcher has moved the axis there and folded the
 * others into at most three (outer, middle, last). A thread takes a row's entries in packs of 16 bytes,
 * which one instruction moves where the row is contiguous and aligned.
 */
#pragma once
#include "teams.cuh"

/* An array; `inner` is the step along a row. All steps count entries, and may be 0 or negative.
 * `at` is null where there is no such array. */
template <typename T> struct Operand {
    T *at;
    long long outer, middle, last, inner;
};

/* A number for each row, or one for all of them. */
struct Parameter {
    const double *at; /* null: it is `value` for all */
    long long outer, middle, last;
    double value;
};

/* rows = (outer axis) × middle × last, of n entries each. */
struct Batch {
    unsigned rows, n, middle, last;
};

/* A row's place in the batch. */
struct Place {
    unsigned outer, middle, last;

    __device__ Place(const Batch &batch, unsigned row) {
        last = row % batch.last;
        middle = row / batch.last % batch.middle;
        outer = row / batch.last / batch.middle;
    }
    template <typename A> __device__ long long in(const A &array) const {
        return outer * array.outer + middle * array.middle + last * array.last;
    }
};

__device__ inline double value_at(const Parameter &parameter, const Place &place) {
    return parameter.at ? parameter.at[place.in(parameter)] : parameter.value;
}

template <typename T> constexpr int PACK = 16 / sizeof(T);

template <typename T> struct alignas(16) Packed {
    T entry[PACK<T>];
};

/* One row of an array. */
template <typename T> struct Line {
    T *at;
    long long step;
    bool whole_packs;

    __device__ Line(const Operand<T> &array, const Place &place)
        : at(array.at ? array.at + place.in(array) : nullptr),
          step(array.inner),
          whole_packs(step == 1 && (unsigned long long)at % 16 == 0) {}
};

/* Entries i, i + 1, … of a row, as numbers to compute with; `beyond` behind the row's end. */
template <typename T, typename C>
__device__ inline void load_pack(const Line<const T> &line, unsigned i, unsigned n, C beyond,
                                 C (&pack)[PACK<T>]) {
    if (line.whole_packs && i + PACK<T> <= n) {
        const Packed<T> loaded = *reinterpret_cast<const Packed<T> *>(line.at + i);
#pragma unroll
        for (int j = 0; j < PACK<T>; j++) pack[j] = to_compute(loaded.entry[j]);
    } else {
#pragma unroll
        for (int j = 0; j < PACK<T>; j++)
            pack[j] = i + j < n ? (C)to_compute(line.at[(i + j) * line.step]) : beyond;
    }
}

template <typename T, typename C>
__device__ inline void store_pack(const Line<T> &line, unsigned i, unsigned n,
                                  const C (&pack)[PACK<T>]) {
    if (line.whole_packs && i + PACK<T> <= n) {
        Packed<T> stored;
#pragma unroll
        for (int j = 0; j < PACK<T>; j++) stored.entry[j] = from_compute<T>(pack[j]);
        *reinterpret_cast<Packed<T> *>(line.at + i) = stored;
    } else {
#pragma unroll
        for (int j = 0; j < PACK<T>; j++)
            if (i + j < n) line.at[(i + j) * line.step] = from_compute<T>(pack[j]);
    }
}

/* Scores, −∞ where the mask is False and behind the row's end. */
template <typename T, typename C>
__device__ inline void load_scores(const Line<const T> &z, const Line<const bool> &mask, unsigned i,
                                   unsigned n, C (&pack)[PACK<T>]) {
    load_pack<T>(z, i, n, -infinity<C>(), pack);
    if (!mask.at) return;
#pragma unroll
    for (int j = 0; j < PACK<T>; j++)
        if (i + j < n && !mask.at[(i + j) * mask.step]) pack[j] = -infinity<C>();
}

/* A row held in its team's registers: thread r of a team of s has packs r, r + s, r + 2s, … */
template <typename T, class Team, int ITEMS> struct Registers {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>;
    static_assert(ITEMS % V == 0, "a thread holds whole packs");
    const Line<const T> z;
    const Line<const bool> mask;
    const unsigned n, first;
    C x[ITEMS];

    __device__ Registers(const Team &team, const Line<const T> &z, const Line<const bool> &mask,
                         unsigned n)
        : z(z), mask(mask), n(n), first(team.rank * V) {}

    /* Read the row; returns the largest score of this thread. */
    __device__ C read(C) {
        C largest = -infinity<C>();
#pragma unroll
        for (int k = 0; k < ITEMS; k += V) {
            C pack[V];
            load_scores<T>(z, mask, first + k * Team::SIZE, n, pack);
#pragma unroll
            for (int j = 0; j < V; j++) {
                x[k + j] = pack[j];
                largest = Larger()(largest, pack[j]);
            }
        }
        return largest;
    }
    /* From scores to gaps, scale (z − top) ≤ 0. */
    __device__ void centre(C top, C scale, C) {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) x[k] = (x[k] - top) * scale;
    }
    /* Visit the gaps that this thread holds. */
    template <class Visit> __device__ void each(Visit visit) const {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) visit(x[k]);
    }
    /* Write value(gap) for each entry. */
    template <class Value> __device__ void write(const Line<T> &p, Value value) const {
#pragma unroll
        for (int k = 0; k < ITEMS; k += V) {
            C pack[V];
#pragma unroll
            for (int j = 0; j < V; j++) pack[j] = value(x[k + j]);
            store_pack<T>(p, first + k * Team::SIZE, n, pack);
        }
    }
};

/* What a block keeps on the chip of a row too long for its registers; sizes chosen by the launcher. */
struct Storage {
    unsigned room;  /* gaps that each warp has room for */
    unsigned words; /* of 32 marks each; 0 for a row so long that nothing is marked */
};

/* A row that stays in memory, for a block of WARPS warps. Every warp looks after the packs that it reads.
 *
 * While it reads, it marks packs with a score less than `reach` below the largest one so far: a sparse
 * mapping can give probability to no other. What is marked is then gathered, as gaps, into the warp's
 * part of shared memory, in the order in which it was read, so that sums come out the same at every
 * run. Where it does not fit, visits read the marked packs again. Nothing here crosses from warp to
 * warp, so that it takes no barriers. */
template <typename T, int WARPS> struct Streamed {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>, STRIDE = 32 * WARPS * V;
    const Line<const T> z;
    const Line<const bool> mask;
    const unsigned n, lane, warp;
    const Storage storage;
    C *const kept;
    unsigned *const marks;
    unsigned count;
    C top, scale;

    __device__ Streamed(const Line<const T> &z, const Line<const bool> &mask, unsigned n,
                        Storage storage, unsigned char *shared)
        : z(z),
          mask(mask),
          n(n),
          lane(threadIdx.x % 32),
          warp(threadIdx.x / 32),
          storage(storage),
          kept(reinterpret_cast<C *>(shared) + warp * storage.room),
          marks(reinterpret_cast<unsigned *>(reinterpret_cast<C *>(shared) + WARPS * storage.room)) {}

    __device__ C read(C reach) {
        C largest = -infinity<C>();
        unsigned word = warp;
        for (unsigned start = warp * 32 * V; start < n; start += STRIDE, word += WARPS) {
            C pack[V];
            load_scores<T>(z, mask, start + lane * V, n, pack);
            C here = pack[0];
#pragma unroll
            for (int j = 1; j < V; j++) here = Larger()(here, pack[j]);
            largest = Larger()(largest, butterfly<32>(here, Larger()));
            const unsigned marked = __ballot_sync(ALL_LANES, !(here - largest <= -reach));
            if (lane == 0 && word < storage.words) marks[word] = marked;
        }
        __syncwarp(ALL_LANES);
        return largest;
    }
    __device__ unsigned marked_in(unsigned word) const {
        return word < storage.words ? marks[word] : ALL_LANES;
    }
    __device__ void load_gaps(unsigned start, C (&pack)[V]) const {
        load_scores<T>(z, mask, start + lane * V, n, pack);
#pragma unroll
        for (int j = 0; j < V; j++) pack[j] = (pack[j] - top) * scale;
    }
    __device__ void centre(C top_, C scale_, C reach) {
        top = top_;
        scale = scale_;
        count = 0;
        unsigned word = warp;
        for (unsigned start = warp * 32 * V; start < n; start += STRIDE, word += WARPS) {
            if (!marked_in(word)) continue;
            C pack[V];
            load_gaps(start, pack);
#pragma unroll
            for (int j = 0; j < V; j++) {
                const bool keep = pack[j] > -reach * scale;
                const unsigned keeping = __ballot_sync(ALL_LANES, keep);
                const unsigned at = count + __popc(keeping & ((1u << lane) - 1));
                if (keep && at < storage.room) kept[at] = pack[j];
                count += __popc(keeping);
            }
        }
        __syncwarp(ALL_LANES);
    }
    template <class Visit> __device__ void each(Visit visit) const {
        if (count <= storage.room) {
            for (unsigned i = lane; i < count; i += 32) visit(kept[i]);
            return;
        }
        unsigned word = warp;
        for (unsigned start = warp * 32 * V; start < n; start += STRIDE, word += WARPS) {
            if (!(marked_in(word) >> lane & 1)) continue;
            C pack[V];
            load_gaps(start, pack);
#pragma unroll
            for (int j = 0; j < V; j++) visit(pack[j]);
        }
    }
    template <class Value> __device__ void write(const Line<T> &p, Value value) const {
        unsigned word = warp;
        for (unsigned start = warp * 32 * V; start < n; start += STRIDE, word += WARPS) {
            C pack[V];
            if (marked_in(word) >> lane & 1) {
                load_gaps(start, pack);
            } else {
#pragma unroll
                for (int j = 0; j < V; j++) pack[j] = -infinity<C>();
            }
#pragma unroll
            for (int j = 0; j < V; j++) pack[j] = value(pack[j]);
            store_pack<T>(p, start + lane * V, n, pack);
        }
    }
};
