/* Teams of threads that work on one row together, and what they tell each other.
 *
 * A team knows its size, its thread's rank in it, and three things that all its threads do at once:
 * sum, largest and any. Everyone gets the same result to the last bit: the partners of a butterfly
 * add the same two numbers, and to the largest 0 is added, which makes −0 of it 0 as well as what
 * the hardware takes for 0. No thread may leave before the others, so loops ask `any` whether to go
 * on.
 */
#pragma once
#include "numbers.cuh"

constexpr unsigned ALL_LANES = 0xffffffffu;

/* Blocks that a multiprocessor should hold at once for its 65,536 registers to be that many for
 * each thread. Told so, the compiler uses them instead of saving more than that takes. */
__host__ __device__ constexpr int blocks_with(int registers, int threads) {
    return 65536 / (registers * threads);
}
/* Half of the threads that can run are there at once with 64, a third with 96; doubles take two
 * registers each. */
template <typename C> constexpr int REGISTERS = sizeof(C) == 8 ? 128 : 64;
template <typename C> constexpr int MORE_REGISTERS = sizeof(C) == 8 ? 128 : 96;

struct Sum {
    template <typename C> __device__ C operator()(C a, C b) const { return a + b; }
};

/* The larger of two; a NaN once met stays. */
struct Larger {
    template <typename C> __device__ C operator()(C a, C b) const {
        return b > a || b != b ? b : a;
    }
};

/* Combine the values of each group of `width` lanes that stand side by side. */
template <int WIDTH, typename C, class Combine>
__device__ inline C butterfly(C value, Combine combine) {
#pragma unroll
    for (int apart = WIDTH / 2; apart > 0; apart /= 2)
        value = combine(value, __shfl_xor_sync(ALL_LANES, value, apart));
    return value;
}

/* LANES neighbours of a warp. The other teams of the warp work on rows of their own in step. */
template <int LANES> struct Lanes {
    static constexpr int SIZE = LANES;
    int rank = threadIdx.x % LANES;

    template <typename C, int K> __device__ void sum(C (&values)[K]) const {
#pragma unroll
        for (int k = 0; k < K; k++) values[k] = butterfly<LANES>(values[k], Sum());
    }
    template <typename C> __device__ C largest(C value) const {
        return butterfly<LANES>(value, Larger()) + 0;
    }
    /* Whether any thread of the warp says so: all of its teams go on until the last has done. */
    __device__ bool any(bool here) const { return __any_sync(ALL_LANES, here); }
};

/* A block of WARPS warps. Partial results meet in shared memory, in two slots by turns: a warp that
 * writes to a slot again has passed the barrier of the call between, which no warp reaches before
 * it has read the slot. So one barrier a call is enough. */
template <typename C, int WARPS> struct Block {
    static constexpr int SIZE = 32 * WARPS, MOST = 4;
    typedef C Parts[2][MOST][WARPS];
    C (*parts)[MOST][WARPS];
    int rank = threadIdx.x, slot = 0;

    __device__ explicit Block(Parts &shared) : parts(shared) {}

    template <int K, class Combine> __device__ void together(C (&values)[K], Combine combine) {
        static_assert(K <= MOST, "more values than the slots hold");
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int k = 0; k < K; k++) {
            values[k] = butterfly<32>(values[k], combine);
            if (lane == 0) parts[slot][k][warp] = values[k];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < K; k++)
            values[k] = butterfly<WARPS>(parts[slot][k][lane % WARPS], combine);
        slot ^= 1;
    }
    template <int K> __device__ void sum(C (&values)[K]) { together(values, Sum()); }
    __device__ C largest(C value) {
        C values[1] = {value};
        together(values, Larger());
        return values[0] + 0;
    }
    /* One row, so that every thread knows the same and there is nobody to ask. */
    __device__ bool any(bool here) const { return here; }
};
