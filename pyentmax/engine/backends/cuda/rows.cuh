/* Where a row lies: in arrays of any strides, and on the chip.
 *
 * An array is cut into rows along its last axis; the launcher has moved the axis there and folded
 * the others into at most three (outer, middle, last). A thread takes a row's entries in packs of
 * 16 bytes, which one instruction moves where the row is contiguous and aligned.
 */
#pragma once
#include "teams.cuh"

constexpr int THREADS = 128; /* of a block whose warps, or parts of them, have rows of their own */

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

    __device__ Place(const Batch &batch, unsigned row) : outer(0), middle(0), last(row) {
        if (batch.last == batch.rows) return; /* mostly; and divisions are slow */
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

template <typename T>
__device__ inline void unpack(Packed<T> packed, Compute<T> (&pack)[PACK<T>]) {
#pragma unroll
    for (int j = 0; j < PACK<T>; j++) pack[j] = to_compute(packed.entry[j]);
}

template <typename T> __device__ inline Packed<T> packed(const Compute<T> (&pack)[PACK<T>]) {
    Packed<T> rounded;
#pragma unroll
    for (int j = 0; j < PACK<T>; j++) rounded.entry[j] = from_compute<T>(pack[j]);
    return rounded;
}

/* One row of an array. */
template <typename T> struct Line {
    T *at;
    long long step;
    bool whole_packs;

    __device__ Line(const Operand<T> &array, const Place &place)
        : at(array.at ? array.at + place.in(array) : nullptr),
          step(array.inner),
          whole_packs(step == 1 && (unsigned long long)at % 16 == 0) {}
    /* In one piece, from a multiple of 16 bytes on; or none. */
    __device__ explicit Line(T *at) : at(at), step(1), whole_packs(true) {}
};

/* Entries i, i + 1, … of a row, as numbers to compute with; `beyond` behind the row's end. */
template <typename T, typename C>
__device__ inline void load_pack(const Line<const T> &line, unsigned i, unsigned n, C beyond,
                                 C (&pack)[PACK<T>]) {
    if (line.whole_packs && i + PACK<T> <= n) {
        unpack<T>(*reinterpret_cast<const Packed<T> *>(line.at + i), pack);
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
        *reinterpret_cast<Packed<T> *>(line.at + i) = packed<T>(pack);
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

template <typename T>
__device__ inline Compute<T> score_at(const Line<const T> &z, const Line<const bool> &mask,
                                      unsigned i) {
    const bool masked = mask.at && !mask.at[i * mask.step];
    return masked ? -infinity<Compute<T>>() : (Compute<T>)to_compute(z.at[i * z.step]);
}

/* Rows on the chip. All have
 *
 *     read(reach)              read the row; returns the largest score of this thread
 *     score(i)                 of entry i, as it is in memory
 *     centre(top, scale)       from then on entries are gaps, x = scale (z − top) ≤ 0
 *     keep_scores(top)         or they stay scores, −∞ for some that are out of reach; `gap` below
 *                              then means a score
 *     each(visit)              visit(gap) each that this thread looks after
 *     each_at(visit)           visit(gap, i) likewise, where i is the entry's index
 *     write(out, map, finish)  write finish(map(gap), i) for each entry i
 *
 * and in `write`, and in `each` where it is asked to gather, all lanes of a warp make every call
 * together. IN_REGISTERS: whether there is always room to gather all of it; ON_CHIP: whether a visit
 * reads no memory. */

/* A row held in its team's registers: thread r of a team of s has packs r, r + s, r + 2s, … */
template <typename T, class Team, int ITEMS> struct Registers {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>, UNIT = Team::SIZE < 32 ? Team::SIZE : 32;
    static_assert(ITEMS % V == 0, "a thread holds whole packs");
    static constexpr bool IN_REGISTERS = true, ON_CHIP = true;
    const Line<const T> z;
    const Line<const bool> mask;
    const unsigned n, first;
    C x[ITEMS];

    __device__ Registers(const Team &team, const Line<const T> &z, const Line<const bool> &mask,
                         unsigned n)
        : z(z), mask(mask), n(n), first(team.rank * V) {}

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
    __device__ C score(unsigned i) const { return score_at<T>(z, mask, i); }
    __device__ void centre(C top, C scale) {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) x[k] = (x[k] - top) * scale;
    }
    __device__ void keep_scores(C) {}
    template <class Visit> __device__ void each_at(Visit visit) const {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) visit(x[k], first + k / V * V * Team::SIZE + k % V);
    }
    template <class Visit> __device__ void each(Visit visit) const {
        each_at([&](C gap, unsigned) { visit(gap); });
    }
    template <class Map, class Finish>
    __device__ void write(const Line<T> &out, Map map, Finish finish) const {
#pragma unroll
        for (int k = 0; k < ITEMS; k += V) {
            const unsigned i = first + k * Team::SIZE;
            C pack[V];
#pragma unroll
            for (int j = 0; j < V; j++) pack[j] = finish(map(x[k + j]), i + j);
            store_pack<T>(out, i, n, pack);
        }
    }
};

/* A row held in its block's shared memory, each entry as it is stored. A thread looks after the
 * packs it has read itself, at most 32 of them, so that no thread waits for another; once the
 * largest score is known, it visits those with an entry in reach and no others.
 *
 * Where visits cost much, the row's few entries in reach are gathered, which a warp does in step. */
template <typename T, int WARPS, bool COSTLY> struct Held {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>, UNIT = 32, SIZE = 32 * WARPS;
    static constexpr bool IN_REGISTERS = false, ON_CHIP = true;
    static constexpr int AHEAD = 4; /* packs that are loaded before the first is used */
    const Line<const T> z;
    const Line<const bool> mask;
    const unsigned n;
    Packed<T> *const own; /* this thread's, SIZE apart */
    unsigned in_reach = 0; /* a bit for each of them */
    C reach, top, scale;

    __device__ Held(const Line<const T> &z, const Line<const bool> &mask, unsigned n,
                    Packed<T> *shared)
        : z(z), mask(mask), n(n), own(shared + threadIdx.x) {}

    /* Where the thread's k-th pack begins, and that of its warp's first lane. */
    __device__ unsigned start(unsigned k) const { return (k * SIZE + threadIdx.x) * V; }
    __device__ unsigned warp_start(unsigned k) const {
        return (k * SIZE + threadIdx.x / 32 * 32) * V;
    }

    __device__ C read(C reach_) {
        reach = reach_;
        C largest = -infinity<C>();
        const auto look_at = [&](const C(&scores)[V]) {
#pragma unroll
            for (int j = 0; j < V; j++) largest = Larger()(largest, scores[j]);
        };
        if (z.whole_packs && n % V == 0 && !mask.at) {
            for (unsigned k = 0; start(k) < n; k += AHEAD) {
                Packed<T> packs[AHEAD];
#pragma unroll
                for (int a = 0; a < AHEAD; a++)
                    if (start(k + a) < n)
                        packs[a] = *reinterpret_cast<const Packed<T> *>(z.at + start(k + a));
#pragma unroll
                for (int a = 0; a < AHEAD; a++) {
                    if (!(start(k + a) < n)) continue;
                    C scores[V];
                    own[(k + a) * SIZE] = packs[a];
                    unpack<T>(packs[a], scores);
                    look_at(scores);
                }
            }
        } else {
            for (unsigned k = 0; start(k) < n; k++) {
                C scores[V];
                load_scores<T>(z, mask, start(k), n, scores);
                own[k * SIZE] = packed<T>(scores);
                look_at(scores);
            }
        }
        return largest;
    }
    __device__ C score(unsigned i) const { return score_at<T>(z, mask, i); }
    __device__ void load_gaps(unsigned k, C (&pack)[V]) const {
        unpack<T>(own[k * SIZE], pack);
#pragma unroll
        for (int j = 0; j < V; j++) pack[j] = (pack[j] - top) * scale;
    }
    __device__ void centre(C top_, C scale_) {
        top = top_;
        scale = scale_;
        for (unsigned k = 0; start(k) < n; k++) {
            C pack[V];
            load_gaps(k, pack);
#pragma unroll
            for (int j = 0; j < V; j++)
                if (pack[j] > -reach * scale) in_reach |= 1u << k;
        }
    }
    __device__ void keep_scores(C top_) {
        centre(top_, 1);
        top = 0;
    }
    /* Gaps of pack k, or −∞ where none of them is in reach. */
    __device__ void load(unsigned k, C (&pack)[V]) const {
        if (in_reach >> k & 1) {
            load_gaps(k, pack);
        } else {
#pragma unroll
            for (int j = 0; j < V; j++) pack[j] = -infinity<C>();
        }
    }
    template <class Visit> __device__ void each_at(Visit visit) const {
        const auto visit_pack = [&](unsigned k) {
            C pack[V];
            load(k, pack);
#pragma unroll
            for (int j = 0; j < V; j++) visit(pack[j], start(k) + j);
        };
        if constexpr (COSTLY) {
            for (unsigned k = 0; warp_start(k) < n; k++)
                if (__any_sync(ALL_LANES, in_reach >> k & 1)) visit_pack(k);
        } else {
            for (unsigned left = in_reach; left; left &= left - 1) visit_pack(__ffs(left) - 1);
        }
    }
    template <class Visit> __device__ void each(Visit visit) const {
        each_at([&](C gap, unsigned) { visit(gap); });
    }
    template <class Map, class Finish>
    __device__ void write(const Line<T> &out, Map map, Finish finish) const {
        for (unsigned k = 0; warp_start(k) < n; k++) {
            C pack[V];
            load(k, pack);
#pragma unroll
            for (int j = 0; j < V; j++) pack[j] = finish(map(pack[j]), start(k) + j);
            store_pack<T>(out, start(k), n, pack);
        }
    }
};

/* A row that stays in memory, for a block of WARPS warps. Every warp looks after the packs it
 * reads.
 *
 * While it reads, it marks packs with a score less than `reach` below the largest so far: a sparse
 * mapping can give probability to no other. Later visits read what is marked and nothing else. A
 * row so long that there are not enough words for its marks counts as marked from there on. */
template <typename T, int WARPS, bool COSTLY> struct Streamed {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>, UNIT = 32, STRIDE = 32 * WARPS * V;
    static constexpr bool IN_REGISTERS = false, ON_CHIP = false;
    /* Packs that are loaded before the first is needed. Visits that cost much need no such help,
     * and many copies of their code would take long to compile. */
    static constexpr int AHEAD = V > 4 ? 2 : 4, AHEAD_IN_VISITS = COSTLY ? 1 : AHEAD;
    const Line<const T> z;
    const Line<const bool> mask;
    const unsigned n, lane, warp, words;
    unsigned *const marks;
    C top, scale;

    __device__ Streamed(const Line<const T> &z, const Line<const bool> &mask, unsigned n,
                        unsigned *marks, unsigned words)
        : z(z),
          mask(mask),
          n(n),
          lane(threadIdx.x % 32),
          warp(threadIdx.x / 32),
          words(words),
          marks(marks) {}

    /* Use this warp's packs in order: load(start, word, pack) says whether the pack is to be used,
     * and use(start, word, pack) does. */
    template <int TOGETHER, class Load, class Use>
    __device__ void in_order(Load load, Use use) const {
        unsigned word = warp;
        for (unsigned start = warp * 32 * V; start < n; start += TOGETHER * STRIDE) {
            C packs[TOGETHER][V];
            bool used[TOGETHER];
#pragma unroll
            for (int a = 0; a < TOGETHER; a++)
                used[a] = start + a * STRIDE < n &&
                          load(start + a * STRIDE, word + a * WARPS, packs[a]);
#pragma unroll
            for (int a = 0; a < TOGETHER; a++)
                if (used[a]) use(start + a * STRIDE, word + a * WARPS, packs[a]);
            word += TOGETHER * WARPS;
        }
    }

    __device__ C read(C reach) {
        C largest = -infinity<C>();
        in_order<AHEAD>(
            [&](unsigned start, unsigned, C(&pack)[V]) {
                load_scores<T>(z, mask, start + lane * V, n, pack);
                return true;
            },
            [&](unsigned, unsigned word, const C(&pack)[V]) {
                C here = pack[0];
#pragma unroll
                for (int j = 1; j < V; j++) here = Larger()(here, pack[j]);
                largest = Larger()(largest, butterfly<32>(here, Larger()));
                const unsigned marked = __ballot_sync(ALL_LANES, !(here - largest <= -reach));
                if (lane == 0 && word < words) marks[word] = marked;
            });
        return largest; /* which the team compares, with a barrier, before it looks at the marks */
    }
    __device__ C score(unsigned i) const { return score_at<T>(z, mask, i); }
    __device__ void centre(C top_, C scale_) {
        top = top_;
        scale = scale_;
    }
    __device__ void keep_scores(C) { centre(0, 1); }
    __device__ unsigned marked(unsigned word) const {
        return word < words ? marks[word] : ALL_LANES;
    }
    /* Gaps of this lane's pack; −∞ where it is not marked. */
    __device__ void load_gaps(unsigned start, unsigned word, C (&pack)[V]) const {
        if (marked(word) >> lane & 1) {
            load_scores<T>(z, mask, start + lane * V, n, pack);
#pragma unroll
            for (int j = 0; j < V; j++) pack[j] = (pack[j] - top) * scale;
        } else {
#pragma unroll
            for (int j = 0; j < V; j++) pack[j] = -infinity<C>();
        }
    }
    template <class Visit> __device__ void each_at(Visit visit) const {
        in_order<AHEAD_IN_VISITS>(
            [&](unsigned start, unsigned word, C(&pack)[V]) {
                if (!marked(word)) return false;
                load_gaps(start, word, pack);
                return true;
            },
            [&](unsigned start, unsigned, const C(&pack)[V]) {
#pragma unroll
                for (int j = 0; j < V; j++) visit(pack[j], start + lane * V + j);
            });
    }
    template <class Visit> __device__ void each(Visit visit) const {
        each_at([&](C gap, unsigned) { visit(gap); });
    }
    template <class Map, class Finish>
    __device__ void write(const Line<T> &out, Map map, Finish finish) const {
        in_order<AHEAD_IN_VISITS>(
            [&](unsigned start, unsigned word, C(&pack)[V]) {
                load_gaps(start, word, pack);
                return true;
            },
            [&](unsigned start, unsigned, const C(&pack)[V]) {
                const unsigned i = start + lane * V;
                C finished[V];
#pragma unroll
                for (int j = 0; j < V; j++) finished[j] = finish(map(pack[j]), i + j);
                store_pack<T>(out, i, n, finished);
            });
    }
};

/* The gaps of a row above a bound, gathered in shared memory, while those at or below it all map to
 * what −∞ does. Each warp, or each team where these are smaller, gathers its own, in the order in
 * which it meets them: sums come out the same at every run, and nothing crosses from warp to warp,
 * so that there are no barriers. Where there are more than `room` of them, the row itself is
 * visited. */
template <class Row> struct Gathered {
    typedef typename Row::C C;
    static constexpr unsigned UNIT = Row::UNIT;
    const Row &row;
    const C bound;
    const unsigned rank, first, room;
    C *const kept;
    unsigned count = 0;

    __device__ Gathered(const Row &row, C bound, C *shared, unsigned room)
        : row(row),
          bound(bound),
          rank(threadIdx.x % UNIT),
          first(threadIdx.x % 32 / UNIT * UNIT),
          room(room),
          kept(shared + threadIdx.x / UNIT * room) {
        /* Without a bound, a row that is longer than the room has no chance: not even try. */
        if (!Row::IN_REGISTERS && bound == -infinity<C>() && row.n / (blockDim.x / UNIT) > room) {
            count = room + 1;
            return;
        }
        row.each([&](C x) {
            const unsigned at = next(count, x > bound);
            if (x > bound && at < room) kept[at] = x;
        });
        __syncwarp(ALL_LANES);
    }
    /* Where an entry to be kept belongs, of those that the unit's lanes present together. */
    __device__ unsigned next(unsigned &so_far, bool keep) const {
        const unsigned all = __ballot_sync(ALL_LANES, keep) >> first;
        const unsigned own = UNIT == 32 ? all : all & ((1u << UNIT % 32) - 1);
        const unsigned at = so_far + __popc(own & ((1u << rank) - 1));
        so_far += __popc(own);
        return at;
    }
    __device__ C score(unsigned i) const { return row.score(i); }
    template <class Visit> __device__ void each(Visit visit) const {
        if (Row::IN_REGISTERS || count <= room)
            for (unsigned i = rank; i < count; i += UNIT) visit(kept[i]);
        else
            row.each(visit);
    }
    template <typename T, class Map, class Finish>
    __device__ void write(const Line<T> &out, Map map, Finish finish) const {
        if (Row::IN_REGISTERS || count <= room) {
            for (unsigned i = rank; i < count; i += UNIT) kept[i] = map(kept[i]);
            __syncwarp(ALL_LANES);
            const C nothing = map(-infinity<C>());
            unsigned so_far = 0;
            const auto look_up = [&](C x) {
                const unsigned at = next(so_far, x > bound);
                return x > bound ? kept[at] : nothing;
            };
            row.write(out, look_up, finish);
        } else {
            row.write(out, map, finish);
        }
    }
};
