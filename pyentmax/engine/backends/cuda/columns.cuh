/* Rows whose neighbours lie side by side, as along the first axis of a contiguous array, moved
 * through shared memory: there each row lies in one piece.
 *
 * Memory moves 32 bytes at least. So a block takes as many rows as fill them, and neighbouring
 * threads read and write entries of neighbouring rows. */
#pragma once
#include "rows.cuh"

/* Rows of a block: enough for 32 bytes abreast, and for each team of LANES lanes to have one. */
template <typename T, int LANES>
constexpr int ROWS_ABREAST = 32 / (int)sizeof(T) > THREADS / LANES ? 32 / (int)sizeof(T)
                                                                   : THREADS / LANES;

/* The block's rows in shared memory. An odd number of packs is from one to the next, so that
 * entries of neighbouring rows lie in different banks. */
template <typename T, int ROWS> struct Columns {
    T *const at;
    const unsigned n, pitch;

    __device__ Columns(T *at, unsigned n)
        : at(at), n(n), pitch(((n + PACK<T> - 1) / PACK<T> | 1) * PACK<T>) {}

    __device__ T *end() const { return at + ROWS * pitch; }
    __device__ Line<T> line(unsigned own) const { return Line<T>(at + own * pitch); }

    /* The row that this thread copies entries of, THREADS / ROWS threads each. */
    __device__ static unsigned copied() { return blockIdx.x * ROWS + threadIdx.x % ROWS; }

    template <class Entry> __device__ void read(Entry entry) const {
#pragma unroll 4
        for (unsigned i = threadIdx.x / ROWS; i < n; i += THREADS / ROWS)
            at[threadIdx.x % ROWS * pitch + i] = entry(i);
    }
    __device__ void write(const Line<T> &out) const {
#pragma unroll 4
        for (unsigned i = threadIdx.x / ROWS; i < n; i += THREADS / ROWS)
            out.at[i * out.step] = at[threadIdx.x % ROWS * pitch + i];
    }
};
