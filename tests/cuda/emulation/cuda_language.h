// What CUDA adds to C++, as far as the kernels of pyentmax use it, for g++.
//
// `__shared__` is missing: emulation/build.py rewrites its declarations as references obtained from
// shared_variable() and dynamic_shared_memory(), because no macro can stand for a storage class
// that has one copy a block.
#pragma once
#include <math.h>  // and not cmath: CUDA has its functions for float too
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

#define threadIdx (::emulation::here.thread)
#define blockIdx (::emulation::here.block)
#define blockDim (::emulation::here.block_size)
#define gridDim (::emulation::here.grid_size)

// --- shared memory -------------------------------------------------------------------------------

namespace emulation {
// What `__shared__ T name` becomes. `Key` is the type of a lambda, so each declaration has its own,
// in each instantiation of the function it stands in.
template <typename T, typename Key>
__attribute__((no_sanitize("thread"))) T &shared(const char *name, Key) {
    static const char key = 0;
    return *static_cast<T *>(shared_variable(name, &key, sizeof(T), alignof(T)));
}
}  // namespace emulation

// --- synchronisation and warp collectives --------------------------------------------------------

// Evaluated where the call stands, as a default argument is: the line to report.
#define EMULATION_PLACE ::emulation::Place place = {__builtin_FILE(), __builtin_LINE()}

inline void __syncthreads(EMULATION_PLACE) { emulation::barrier(false, place); }
inline int __syncthreads_count(int p, EMULATION_PLACE) { return emulation::barrier(p != 0, place); }
inline int __syncthreads_or(int p, EMULATION_PLACE) {
    return emulation::barrier(p != 0, place) != 0;
}
inline int __syncthreads_and(int p, EMULATION_PLACE) {
    return emulation::barrier(p == 0, place) == 0;
}

inline void __syncwarp(unsigned mask = ~0u, EMULATION_PLACE) {
    emulation::collective({emulation::Collective::sync_warp, mask, nullptr, 0, 0, 32, place});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATION_PLACE) {
    unsigned vote = predicate != 0;
    emulation::collective({emulation::Collective::ballot, mask, &vote, sizeof vote, 0, 32, place});
    return vote;
}
inline int __any_sync(unsigned mask, int predicate, EMULATION_PLACE) {
    return __ballot_sync(mask, predicate, place) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATION_PLACE) {
    return __ballot_sync(mask, predicate, place) == mask;
}

namespace emulation {
template <typename T>
T shuffled(Collective kind, unsigned mask, T value, int argument, int width, Place place) {
    static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= 8,
                  "CUDA shuffles numbers of up to 8 bytes");
    collective({kind, mask, &value, sizeof value, argument, width, place});
    return value;
}
}  // namespace emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMULATION_PLACE) {
    return emulation::shuffled(emulation::Collective::shuffle, mask, value, lane, width, place);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATION_PLACE) {
    return emulation::shuffled(emulation::Collective::shuffle_xor, mask, value, bits, width, place);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATION_PLACE) {
    return emulation::shuffled(emulation::Collective::shuffle_up, mask, value, by, width, place);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATION_PLACE) {
    return emulation::shuffled(emulation::Collective::shuffle_down, mask, value, by, width, place);
}

// --- atomics: threads only change places at collectives and barriers -----------------------------

// Not instrumented as an ordinary access: note_atomic tells the checks what it is.
template <typename T>
__attribute__((noinline, no_sanitize("thread"))) T atomicAdd(T *address, T value) {
#ifdef __SANITIZE_THREAD__
    emulation::note_atomic(address, sizeof(T), __builtin_return_address(0));
#endif
    const T before = *address;
    *address = before + value;
    return before;
}

// --- numbers -------------------------------------------------------------------------------------

template <typename To, typename From>
To emulation_bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x) { return emulation_bits_as<int>(x); }
inline float __int_as_float(int x) { return emulation_bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return emulation_bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return emulation_bits_as<double>(x); }

inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
