/* The numbers that kernels read, compute with and write.
 *
 * Arrays hold T: float, double, __half or BFloat16. All arithmetic is done in Compute<T>, float for
 * the half types and T itself for the others. No kernel knows more of a type than these functions.
 */
#pragma once
#include <cuda_fp16.h>

/* The upper half of a float. Its two conversions are a shift and a rounding, so that no header is
 * needed that not every CUDA installation has. */
struct BFloat16 {
    unsigned short bits;
};

template <typename T> struct ComputeType { typedef float type; };
template <> struct ComputeType<double> { typedef double type; };
template <typename T> using Compute = typename ComputeType<T>::type;

__device__ inline float to_compute(float x) { return x; }
__device__ inline double to_compute(double x) { return x; }
__device__ inline float to_compute(__half x) { return __half2float(x); }
__device__ inline float to_compute(BFloat16 x) { return __int_as_float((int)x.bits << 16); }

template <typename T> __device__ inline T from_compute(Compute<T> x) { return x; }
template <> __device__ inline __half from_compute<__half>(float x) { return __float2half_rn(x); }
template <> __device__ inline BFloat16 from_compute<BFloat16>(float x) {
    const unsigned bits = (unsigned)__float_as_int(x);
    BFloat16 rounded;
    if (x != x)
        rounded.bits = 0x7fff; /* rounding up could carry a NaN over into an infinity */
    else /* ties to even */
        rounded.bits = (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    return rounded;
}

template <typename C> __device__ inline C infinity();
template <> __device__ inline float infinity<float>() { return __int_as_float(0x7f800000); }
template <> __device__ inline double infinity<double>() {
    return __longlong_as_double(0x7ff0000000000000LL);
}

template <typename C> __device__ inline C not_a_number();
template <> __device__ inline float not_a_number<float>() { return __int_as_float(0x7fc00000); }
template <> __device__ inline double not_a_number<double>() {
    return __longlong_as_double(0x7ff8000000000000LL);
}

template <typename C> __device__ inline C epsilon();
template <> __device__ inline float epsilon<float>() { return 1.1920928955078125e-7f; }
template <> __device__ inline double epsilon<double>() { return 2.220446049250313e-16; }

template <typename C> __device__ inline bool is_finite(C x) {
    return x > -infinity<C>() && x < infinity<C>();
}

/* [x]+, 0 for a NaN too. */
template <typename C> __device__ inline C positive(C x) { return x > 0 ? x : (C)0; }

/* x, but the compiler cannot tell: what is computed with it in one pass over a row is computed anew
 * in the next, instead of taking a register for each entry in between. */
#ifdef __CUDA_ARCH__
__device__ inline float anew(float x) {
    asm volatile("" : "+f"(x));
    return x;
}
__device__ inline double anew(double x) {
    asm volatile("" : "+d"(x));
    return x;
}
#else
template <typename C> __device__ inline C anew(C x) { return x; }
#endif

/* Whole numbers in the order of floats that are not negative, and back. */
__device__ inline unsigned bits_of(float x) { return (unsigned)__float_as_int(x); }
__device__ inline unsigned long long bits_of(double x) {
    return (unsigned long long)__double_as_longlong(x);
}
__device__ inline float number_of(unsigned bits) { return __int_as_float((int)bits); }
__device__ inline double number_of(unsigned long long bits) {
    return __longlong_as_double((long long)bits);
}

/* The same for all floats, the largest first. */
template <typename C> using Bits = decltype(bits_of((C)0));
template <typename C> constexpr Bits<C> SIGN = ~(~(Bits<C>)0 >> 1);

template <typename C> __device__ inline Bits<C> place_of(C score) {
    const Bits<C> bits = bits_of(score);
    return bits & SIGN<C> ? bits : ~(bits | SIGN<C>);
}
template <typename C> __device__ inline C score_in(Bits<C> place) {
    return number_of(place & SIGN<C> ? place : ~(place | SIGN<C>));
}

/* Halfway between low <= high in the order of floats. */
template <typename C> __device__ inline C middle_float(C low, C high) {
    const Bits<C> least = place_of(high);
    return score_in<C>(least + (place_of(low) - least) / 2);
}
