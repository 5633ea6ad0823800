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
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

#define threadIdx (::emulation::here.thread)
#define blockIdx (::emulation::here.block)
#define blockDim (::emulation::here.block_size)
#define gridDim (::emulation::here.grid_size)
constexpr int warpSize = 32;

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

namespace emulation {
// Not instrumented as an ordinary access: note_atomic tells the checks what it is.
template <typename T, typename F>
__attribute__((noinline, no_sanitize("thread"))) T atomically(T *address, F change) {
    note_atomic(address, sizeof(T), __builtin_return_address(0));
    T before = *address;
    *address = change(before);
    return before;
}
}  // namespace emulation

#define EMULATION_ATOMIC(NAME, RESULT)                                                           \
    template <typename T>                                                                        \
    T NAME(T *address, typename std::common_type<T>::type value) {                               \
        return emulation::atomically(                                                            \
            address, [=](T old) __attribute__((no_sanitize("thread"))) -> T { return RESULT; }); \
    }
EMULATION_ATOMIC(atomicAdd, old + value)
EMULATION_ATOMIC(atomicMax, old < value ? value : old)
EMULATION_ATOMIC(atomicMin, value < old ? value : old)
EMULATION_ATOMIC(atomicOr, old | value)
EMULATION_ATOMIC(atomicAnd, old &value)
EMULATION_ATOMIC(atomicExch, value)
#undef EMULATION_ATOMIC

// --- numbers -------------------------------------------------------------------------------------

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

template <typename To, typename From>
To emulation_bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x) { return emulation_bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return emulation_bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return emulation_bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return emulation_bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return emulation_bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return emulation_bits_as<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }

// As CUDA's, these prefer the number where one argument is a NaN.
inline float max(float a, float b) { return std::fmax(a, b); }
inline float min(float a, float b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
#define EMULATION_ORDER(T)                           \
    inline T max(T a, T b) { return a < b ? b : a; } \
    inline T min(T a, T b) { return b < a ? b : a; }
EMULATION_ORDER(int)
EMULATION_ORDER(unsigned)
EMULATION_ORDER(long long)
EMULATION_ORDER(unsigned long long)
#undef EMULATION_ORDER

template <typename T>
T __ldg(const T *address) {
    return *address;
}
