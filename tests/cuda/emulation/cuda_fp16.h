// Stands in for CUDA's header of this name: float16 as storage, with conversions only, since the
// kernels compute in float32.
#pragma once
#include <cstdint>
#include <cstring>

namespace emulation {

inline std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// To nearest, ties to even; past the largest float16, infinity.
inline std::uint16_t to_float16(float x) {
    const std::uint32_t sign = bits_of(x) >> 16 & 0x8000u, size = bits_of(x) & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;           // NaN
    if (size >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to 2^16
    if (size < 0x38800000u)                          // below 2^-14: a multiple of 2^-24,
        return sign |
               (bits_of(float_of(size) + 0.5f) - bits_of(0.5f));  // which is 0.5f's last place
    return sign | ((size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13);
}

inline float from_float16(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, size = half & 0x7fffu;
    if (size >= 0x7c00u) return float_of(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size < 0x400u) return (sign ? -1.0f : 1.0f) * static_cast<float>(size) * 0x1p-24f;
    return float_of(sign | ((size << 13) + 0x38000000u));
}

}  // namespace emulation

struct __half {
    std::uint16_t bits;
};

inline __half __float2half_rn(float x) { return {emulation::to_float16(x)}; }
inline float __half2float(__half x) { return emulation::from_float16(x.bits); }
