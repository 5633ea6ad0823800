/* From probabilities to derivatives: the kernels that all Jacobian products, and ∂p/∂α, share.
 *
 *     derivative_lanes<D, T, LANES, ITEMS>(p, v, upper, mask, out, batch, parameter)
 *     derivative_columns<D, T, LANES, ITEMS>(p, v, upper, mask, out, batch, parameter)
 *     derivative_block<D, T, WARPS, ITEMS>(p, v, upper, mask, out, batch, parameter)
 *     derivative_held<D, T, WARPS>(p, v, upper, mask, out, batch, parameter)
 *     derivative_stream<D, T, WARPS>(p, v, upper, mask, out, batch, parameter, words)
 *
 * Rows, grids and blocks are those of forward.cuh. p, v and out: Operand of T, out may be p or v;
 * upper: Operand of Compute<T>, bounds on p, `at` null for none; mask: Operand of bool, likewise.
 * Dynamic shared memory: the rows of p and then of v for derivative_columns (columns.cuh) and
 * derivative_held (packs), `words` marks of 4 bytes for derivative_stream, else none. D is a struct template over the type to compute
 * in:
 *
 *     PAIRED                      whether there is a v; if not, v is not looked at
 *     D(parameter), valid()       as in forward.cuh
 *     key(p)                      of the entries with p ≠ 0, that with the largest is singled out
 *     solve(team, row, largest)   find what value() needs; `largest` key, −∞ without support
 *     value(p, v)                 of an entry; 0 where p is 0
 *
 * Masked entries, and those at their bounds, do not move: they stand as p = 0. Where p is 0, v
 * plays no part and may hold anything.
 */
#pragma once
#include "columns.cuh"

/* p of a pack, 0 for what does not move. */
template <typename T> struct Moving {
    typedef Compute<T> C;
    const Line<const T> p;
    const Line<const C> upper;
    const Line<const bool> mask;

    __device__ bool stays(C here, unsigned i) const {
        if (mask.at && !mask.at[i * mask.step]) return true;
        /* The bound as p was rounded: p equals the bound that it is at. */
        return upper.at && here >= (C)to_compute(from_compute<T>(upper.at[i * upper.step]));
    }
    __device__ T entry(unsigned i) const {
        const T here = p.at[i * p.step];
        return stays(to_compute(here), i) ? from_compute<T>(0) : here;
    }
    __device__ void load(unsigned i, unsigned n, C (&pack)[PACK<T>]) const {
        load_pack<T>(p, i, n, (C)0, pack);
        if (!upper.at && !mask.at) return;
#pragma unroll
        for (int j = 0; j < PACK<T>; j++)
            if (i + j < n && stays(pack[j], i + j)) pack[j] = 0;
    }
};

/* Rows of p and v, on the chip or in memory, as in rows.cuh. All have
 *
 *     read(visit)         read the row, visiting p alone
 *     each(visit)         visit the pairs (p, v) that this thread looks after, of those with p ≠ 0
 *     write(out, value)   write value(p, v) for each entry, 0 where p is 0
 */
template <typename T, class Team, int ITEMS, bool PAIRED> struct PairsInRegisters {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>;
    static_assert(ITEMS % V == 0, "a thread holds whole packs");
    const unsigned n, first;
    C p[ITEMS], v[PAIRED ? ITEMS : 1];

    __device__ PairsInRegisters(const Team &team, unsigned n) : n(n), first(team.rank * V) {}

    template <class Visit>
    __device__ void read(const Moving<T> &p_at, const Line<const T> &v_at, Visit visit) {
#pragma unroll
        for (int k = 0; k < ITEMS; k += V) {
            const unsigned i = first + k * Team::SIZE;
            C pack[V];
            p_at.load(i, n, pack);
#pragma unroll
            for (int j = 0; j < V; j++) p[k + j] = pack[j];
            if constexpr (PAIRED) {
                load_pack<T>(v_at, i, n, (C)0, pack);
#pragma unroll
                for (int j = 0; j < V; j++) v[k + j] = pack[j];
            }
#pragma unroll
            for (int j = 0; j < V; j++) visit(p[k + j]);
        }
    }
    template <class Visit> __device__ void each(Visit visit) const {
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (p[k] != 0) visit(p[k], v[PAIRED ? k : 0]);
    }
    template <class Value> __device__ void write(const Line<T> &out, Value value) const {
#pragma unroll
        for (int k = 0; k < ITEMS; k += V) {
            C pack[V];
#pragma unroll
            for (int j = 0; j < V; j++)
                pack[j] = p[k + j] != 0 ? value(p[k + j], v[PAIRED ? k + j : 0]) : (C)0;
            store_pack<T>(out, first + k * Team::SIZE, n, pack);
        }
    }
};

/* As in rows.cuh, a thread looks after the packs it has read. Where p is all 0, v is not read. */
template <typename T, int WARPS, bool PAIRED> struct PairsHeld {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>, SIZE = 32 * WARPS;
    static constexpr int AHEAD = 4; /* packs that are loaded before the first is used */
    const unsigned n;
    Packed<T> *const own_p, *const own_v;
    unsigned some = 0; /* a bit for each pack of p that is not all 0 */

    __device__ PairsHeld(unsigned n, Packed<T> *shared)
        : n(n), own_p(shared + threadIdx.x), own_v(own_p + (n + V - 1) / V) {}

    __device__ unsigned start(unsigned k) const { return (k * SIZE + threadIdx.x) * V; }

    template <class Visit> __device__ void look_at(unsigned k, Packed<T> pack, Visit visit) {
        C p[V];
        own_p[k * SIZE] = pack;
        unpack<T>(pack, p);
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (p[j] != 0) some |= 1u << k;
            visit(p[j]);
        }
    }
    template <class Visit>
    __device__ void read(const Moving<T> &p, const Line<const T> &v, Visit visit) {
        if (p.p.whole_packs && n % V == 0 && !p.upper.at && !p.mask.at) {
            for (unsigned k = 0; start(k) < n; k += AHEAD) {
                Packed<T> packs[AHEAD];
#pragma unroll
                for (int a = 0; a < AHEAD; a++)
                    if (start(k + a) < n)
                        packs[a] = *reinterpret_cast<const Packed<T> *>(p.p.at + start(k + a));
#pragma unroll
                for (int a = 0; a < AHEAD; a++)
                    if (start(k + a) < n) look_at(k + a, packs[a], visit);
            }
        } else {
            for (unsigned k = 0; start(k) < n; k++) {
                C pack[V];
                p.load(start(k), n, pack);
                look_at(k, packed<T>(pack), visit);
            }
        }
        if constexpr (PAIRED) read_beside(v);
    }
    __device__ void read_beside(const Line<const T> &v) const {
        if (v.whole_packs && n % V == 0) {
            for (unsigned k = 0; start(k) < n; k += AHEAD) {
                Packed<T> packs[AHEAD];
#pragma unroll
                for (int a = 0; a < AHEAD; a++)
                    if (some >> (k + a) & 1)
                        packs[a] = *reinterpret_cast<const Packed<T> *>(v.at + start(k + a));
#pragma unroll
                for (int a = 0; a < AHEAD; a++)
                    if (some >> (k + a) & 1) own_v[(k + a) * SIZE] = packs[a];
            }
        } else {
            for (unsigned left = some; left; left &= left - 1) {
                const unsigned k = __ffs(left) - 1;
                C pack[V];
                load_pack<T>(v, start(k), n, (C)0, pack);
                own_v[k * SIZE] = packed<T>(pack);
            }
        }
    }
    __device__ void load(unsigned k, C (&p)[V], C (&v)[V]) const {
        unpack<T>(own_p[k * SIZE], p);
        if constexpr (PAIRED) unpack<T>(own_v[k * SIZE], v);
    }
    template <class Visit> __device__ void each(Visit visit) const {
        for (unsigned left = some; left; left &= left - 1) {
            C p[V], v[V] = {0};
            load(__ffs(left) - 1, p, v);
#pragma unroll
            for (int j = 0; j < V; j++)
                if (p[j] != 0) visit(p[j], v[j]);
        }
    }
    template <class Value> __device__ void write(const Line<T> &out, Value value) const {
        for (unsigned k = 0; start(k) < n; k++) {
            C p[V], v[V] = {0}, pack[V] = {0};
            if (some >> k & 1) {
                load(k, p, v);
#pragma unroll
                for (int j = 0; j < V; j++) pack[j] = p[j] != 0 ? value(p[j], v[j]) : (C)0;
            }
            store_pack<T>(out, start(k), n, pack);
        }
    }
};

/* While it reads p, a warp marks packs that are not all 0. The others are not read again. */
template <typename T, int WARPS, bool PAIRED> struct PairsInMemory {
    typedef Compute<T> C;
    static constexpr int V = PACK<T>, STRIDE = 32 * WARPS * V;
    const Moving<T> p_at;
    const Line<const T> v_at;
    const unsigned n, lane, warp, words;
    unsigned *const marks;

    __device__ PairsInMemory(const Moving<T> &p, const Line<const T> &v, unsigned n,
                             unsigned *marks, unsigned words)
        : p_at(p),
          v_at(v),
          n(n),
          lane(threadIdx.x % 32),
          warp(threadIdx.x / 32),
          words(words),
          marks(marks) {}

    template <class Visit>
    __device__ void read(const Moving<T> &, const Line<const T> &, Visit visit) {
        unsigned word = warp;
        for (unsigned start = warp * 32 * V; start < n; start += STRIDE, word += WARPS) {
            C pack[V];
            p_at.load(start + lane * V, n, pack);
            bool some = false;
#pragma unroll
            for (int j = 0; j < V; j++) {
                some |= pack[j] != 0;
                visit(pack[j]);
            }
            const unsigned marked = __ballot_sync(ALL_LANES, some);
            if (lane == 0 && word < words) marks[word] = marked;
        } /* The block compares keys next, and that is the barrier that marks need. */
    }
    __device__ bool load(unsigned start, unsigned word, C (&p)[V], C (&v)[V]) const {
        if (word < words && !(marks[word] >> lane & 1)) return false;
        p_at.load(start + lane * V, n, p);
        if constexpr (PAIRED) load_pack<T>(v_at, start + lane * V, n, (C)0, v);
        return true;
    }
    template <class Visit> __device__ void each(Visit visit) const {
        unsigned word = warp;
        for (unsigned start = warp * 32 * V; start < n; start += STRIDE, word += WARPS) {
            C p[V], v[V] = {0};
            if (!load(start, word, p, v)) continue;
#pragma unroll
            for (int j = 0; j < V; j++)
                if (p[j] != 0) visit(p[j], v[j]);
        }
    }
    template <class Value> __device__ void write(const Line<T> &out, Value value) const {
        unsigned word = warp;
        for (unsigned start = warp * 32 * V; start < n; start += STRIDE, word += WARPS) {
            C p[V], v[V] = {0}, pack[V] = {0};
            if (load(start, word, p, v)) {
#pragma unroll
                for (int j = 0; j < V; j++) pack[j] = p[j] != 0 ? value(p[j], v[j]) : (C)0;
            }
            store_pack<T>(out, start + lane * V, n, pack);
        }
    }
};

template <template <typename> class D, typename T, class Team, class Row>
__device__ inline void derivative(Team &team, Row &row, const Moving<T> &p, const Line<const T> &v,
                                  const Line<T> &out, double parameter) {
    typedef Compute<T> C;
    D<C> rule(parameter);
    C key = -infinity<C>();
    row.read(p, v, [&](C p) { key = p != 0 ? Larger()(key, rule.key(p)) : key; });
    rule.solve(team, row, team.largest(key));
    const bool valid = rule.valid();
    row.write(out, [&](C p, C v) { return valid ? rule.value(p, v) : not_a_number<C>(); });
}

template <template <typename> class D, typename T, int LANES, int ITEMS>
__global__ void __launch_bounds__(THREADS, blocks_with(128, THREADS))
    derivative_lanes(Operand<const T> p, Operand<const T> v, Operand<const Compute<T>> upper,
                     Operand<const bool> mask, Operand<T> out, Batch batch, Parameter parameter) {
    typedef Lanes<LANES> Team;
    Team team;
    const unsigned own = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const Place place(batch, own < batch.rows ? own : 0);
    PairsInRegisters<T, Team, ITEMS, D<Compute<T>>::PAIRED> row(
        team, own < batch.rows ? batch.n : 0);
    derivative<D, T>(team, row, {{p, place}, {upper, place}, {mask, place}}, {v, place},
                     {out, place}, value_at(parameter, place));
}

template <template <typename> class D, typename T, int LANES, int ITEMS>
__global__ void __launch_bounds__(THREADS, blocks_with(128, THREADS))
    derivative_columns(Operand<const T> p, Operand<const T> v, Operand<const Compute<T>> upper,
                       Operand<const bool> mask, Operand<T> out, Batch batch,
                       Parameter parameter) {
    typedef Compute<T> C;
    typedef Lanes<LANES> Team;
    constexpr bool PAIRED = D<C>::PAIRED;
    constexpr int ROWS = ROWS_ABREAST<T, LANES>;
    extern __shared__ __align__(16) unsigned char dynamic[];
    const Columns<T, ROWS> p_rows(reinterpret_cast<T *>(dynamic), batch.n);
    const Columns<T, ROWS> v_rows(p_rows.end(), batch.n);
    const unsigned copied = p_rows.copied();
    const Place outside(batch, copied < batch.rows ? copied : 0);
    if (copied < batch.rows) {
        const Moving<T> moving = {{p, outside}, {upper, outside}, {mask, outside}};
        p_rows.read([&](unsigned i) { return moving.entry(i); });
        if constexpr (PAIRED) {
            const Line<const T> along(v, outside);
            v_rows.read([&](unsigned i) { return along.at[i * along.step]; });
        }
    }
    __syncthreads();
    Team team;
#pragma unroll 1
    for (unsigned own = threadIdx.x / LANES; own < ROWS; own += THREADS / LANES) {
        const unsigned number = blockIdx.x * ROWS + own;
        const Place place(batch, number < batch.rows ? number : 0);
        const Line<T> line = p_rows.line(own);
        PairsInRegisters<T, Team, ITEMS, PAIRED> row(team, number < batch.rows ? batch.n : 0);
        derivative<D, T>(team, row,
                         {Line<const T>(line.at), Line<const C>(nullptr), Line<const bool>(nullptr)},
                         Line<const T>(v_rows.line(own).at), line, value_at(parameter, place));
    }
    __syncthreads();
    if (copied < batch.rows) p_rows.write({out, outside});
}

template <template <typename> class D, typename T, int WARPS, int ITEMS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(128, 32 * WARPS))
    derivative_block(Operand<const T> p, Operand<const T> v, Operand<const Compute<T>> upper,
                     Operand<const bool> mask, Operand<T> out, Batch batch, Parameter parameter) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    Team team(parts);
    const Place place(batch, blockIdx.x);
    PairsInRegisters<T, Team, ITEMS, D<Compute<T>>::PAIRED> row(team, batch.n);
    derivative<D, T>(team, row, {{p, place}, {upper, place}, {mask, place}}, {v, place},
                     {out, place}, value_at(parameter, place));
}

template <template <typename> class D, typename T, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(REGISTERS<Compute<T>>, 32 * WARPS))
    derivative_held(Operand<const T> p, Operand<const T> v, Operand<const Compute<T>> upper,
                    Operand<const bool> mask, Operand<T> out, Batch batch, Parameter parameter) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ __align__(16) unsigned char dynamic[];
    Team team(parts);
    const Place place(batch, blockIdx.x);
    PairsHeld<T, WARPS, D<Compute<T>>::PAIRED> row(batch.n,
                                                   reinterpret_cast<Packed<T> *>(dynamic));
    derivative<D, T>(team, row, {{p, place}, {upper, place}, {mask, place}}, {v, place},
                     {out, place}, value_at(parameter, place));
}

template <template <typename> class D, typename T, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, blocks_with(REGISTERS<Compute<T>>, 32 * WARPS))
    derivative_stream(Operand<const T> p, Operand<const T> v, Operand<const Compute<T>> upper,
                      Operand<const bool> mask, Operand<T> out, Batch batch, Parameter parameter,
                      unsigned words) {
    typedef Block<Compute<T>, WARPS> Team;
    __shared__ typename Team::Parts parts;
    extern __shared__ __align__(16) unsigned char dynamic[];
    Team team(parts);
    const Place place(batch, blockIdx.x);
    const Moving<T> moving = {{p, place}, {upper, place}, {mask, place}};
    PairsInMemory<T, WARPS, D<Compute<T>>::PAIRED> row(
        moving, {v, place}, batch.n, reinterpret_cast<unsigned *>(dynamic), words);
    derivative<D, T>(team, row, moving, {v, place}, {out, place}, value_at(parameter, place));
}
