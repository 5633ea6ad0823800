/* A register of numbers: a template.
 *
 * Most loops are left to the compiler. Where several sums and choices have to stay in registers at
 * once, it loses its way; their steps are written with these. Operators, of which one side may be a
 * number, do the same in each lane.
 */
#ifndef PYENTMAX_ROWS_VECTORS_H
#define PYENTMAX_ROWS_VECTORS_H

#include "rows/sizes.h"

#if HAS_AVX512
#define REGISTER_BYTES 64
#elif HAS_AVX2
#define REGISTER_BYTES 32
#else
#define REGISTER_BYTES 16
#endif

#if HAS_AVX2 && !HAS_AVX512
/* For each set of words of a register, the number of the word that comes to each place, a byte for
 * each: the words of the set to the front, and back. Tables, since instructions that would move the
 * bytes (pdep, pext) take some hundred cycles on AMD's processors before Zen 3. */
#define HAS(set, i) ((uint64_t)((set) >> (i) & 1))
#define BELOW(set, i) COUNT_OF((set) & ((1 << (i)) - 1))
#define COUNT_OF(set) \
    (PAIR_OF(set) + PAIR_OF((set) >> 2) + PAIR_OF((set) >> 4) + PAIR_OF((set) >> 6))
#define PAIR_OF(set) (((set) & 1) + ((set) >> 1 & 1))
#define FRONT_WORD(set, i) (HAS(set, i) * (i) << 8 * BELOW(set, i))
#define BACK_WORD(set, i) (HAS(set, i) * (uint64_t)BELOW(set, i) << 8 * (i))
#define EACH_WORD(word, set) \
    (word(set, 0) | word(set, 1) | word(set, 2) | word(set, 3) | word(set, 4) | word(set, 5) \
     | word(set, 6) | word(set, 7))
#define SETS_4(word, set) \
    EACH_WORD(word, set), EACH_WORD(word, (set) + 1), EACH_WORD(word, (set) + 2), \
        EACH_WORD(word, (set) + 3)
#define SETS_16(word, set) \
    SETS_4(word, set), SETS_4(word, (set) + 4), SETS_4(word, (set) + 8), SETS_4(word, (set) + 12)
#define SETS_64(word, set) \
    SETS_16(word, set), SETS_16(word, (set) + 16), SETS_16(word, (set) + 32), \
        SETS_16(word, (set) + 48)
static const uint64_t TO_FRONT[256] = {SETS_64(FRONT_WORD, 0), SETS_64(FRONT_WORD, 64),
                                       SETS_64(FRONT_WORD, 128), SETS_64(FRONT_WORD, 192)};
static const uint64_t FROM_FRONT[256] = {SETS_64(BACK_WORD, 0), SETS_64(BACK_WORD, 64),
                                         SETS_64(BACK_WORD, 128), SETS_64(BACK_WORD, 192)};
#endif

/* The register of REAL, what comparing two of them gives, and its number of lanes; and how many
 * registers LANES fill, and an entry of a tile. */
#define REGISTER TYPED(Register)
#define MASK TYPED(LaneMask)
#define WIDTH TYPED(WIDTH)
#define REGISTERS (LANES / WIDTH)
#define TILE_REGISTERS (BLOCK / WIDTH)

#define TEMPLATE "rows/vectors.h"
#include "float_and_double.h"

#elif defined(REAL)

/* The intrinsic function for a whole register. */
#if HAS_AVX512 && IS_DOUBLE
#define INTRINSIC(operation) _mm512_##operation##_pd
#define COMPARED(a, b, how) _mm512_cmp_pd_mask(a, b, how)
#elif HAS_AVX512
#define INTRINSIC(operation) _mm512_##operation##_ps
#define COMPARED(a, b, how) _mm512_cmp_ps_mask(a, b, how)
#elif HAS_AVX2 && IS_DOUBLE
#define INTRINSIC(operation) _mm256_##operation##_pd
#elif HAS_AVX2
#define INTRINSIC(operation) _mm256_##operation##_ps
#endif

typedef REAL TYPED(Register) __attribute__((vector_size(REGISTER_BYTES)));
typedef BITS TYPED(LaneMask) __attribute__((vector_size(REGISTER_BYTES)));
typedef WORD TYPED(LaneWords) __attribute__((vector_size(REGISTER_BYTES)));
typedef REAL TYPED(Quarter) __attribute__((vector_size(16)));

enum { WIDTH = REGISTER_BYTES / sizeof(REAL) };

ALWAYS_INLINE REGISTER TYPED(load_register)(const REAL *x) {
    REGISTER a;
    memcpy(&a, x, sizeof a);
    return a;
}

ALWAYS_INLINE void TYPED(store_register)(REGISTER a, REAL *to) {
    memcpy(to, &a, sizeof a);
}

#if HAS_AVX512
#define FIRST_LANES(count) ((1U << ((count) > 0 ? (count) : 0)) - 1)
#elif HAS_AVX2
/* All ones in the first count lanes, and 0 in the others. */
ALWAYS_INLINE __m256i TYPED(first_lanes)(ptrdiff_t count) {
    WORD number[WIDTH];
    for (int j = 0; j < WIDTH; j++) number[j] = (WORD)j;
    TYPED(LaneWords) numbers;
    memcpy(&numbers, number, sizeof numbers);
    return (__m256i)((MASK)numbers < (BITS)count - (MASK){0});
}
#endif

/* The first count lanes, and 0 in the others; count may be any number. */
ALWAYS_INLINE REGISTER TYPED(load_first)(const REAL *x, ptrdiff_t count) {
    if (count >= WIDTH) return TYPED(load_register)(x);
#if HAS_AVX512
    return INTRINSIC(maskz_loadu)(FIRST_LANES(count), x);
#elif HAS_AVX2
    return INTRINSIC(maskload)(x, TYPED(first_lanes)(count));
#else
    REAL some[WIDTH] = {0};
    for (ptrdiff_t j = 0; j < count; j++) some[j] = x[j];
    return TYPED(load_register)(some);
#endif
}

ALWAYS_INLINE void TYPED(store_first)(REGISTER a, REAL *to, ptrdiff_t count) {
    if (count >= WIDTH) {
        TYPED(store_register)(a, to);
        return;
    }
#if HAS_AVX512
    INTRINSIC(mask_storeu)(to, FIRST_LANES(count), a);
#elif HAS_AVX2
    INTRINSIC(maskstore)(to, TYPED(first_lanes)(count), a);
#else
    for (ptrdiff_t j = 0; j < count; j++) to[j] = a[j];
#endif
}
#undef FIRST_LANES

ALWAYS_INLINE REGISTER TYPED(root)(REGISTER a) {
#if HAS_AVX512 || HAS_AVX2
    return INTRINSIC(sqrt)(a);
#else
    for (int j = 0; j < WIDTH; j++) a[j] = SQRT(a[j]);
    return a;
#endif
}

/* x in the lanes of the mask, y in the others; a > b is such a mask. */
ALWAYS_INLINE REGISTER TYPED(choose)(MASK mask, REGISTER x, REGISTER y) {
    return (REGISTER)((mask & (MASK)x) | (~mask & (MASK)y));
}

/* x where a > b, y elsewhere. */
ALWAYS_INLINE REGISTER TYPED(choose_above)(REGISTER a, REGISTER b, REGISTER x, REGISTER y) {
#if HAS_AVX512
    return INTRINSIC(mask_blend)(COMPARED(a, b, _CMP_GT_OQ), y, x);
#elif HAS_AVX2
    return INTRINSIC(blendv)(y, x, INTRINSIC(cmp)(a, b, _CMP_GT_OQ));
#else
    return TYPED(choose)(a > b, x, y);
#endif
}

/* x where s is not 0, and 0 elsewhere. */
ALWAYS_INLINE REGISTER TYPED(where_nonzero)(REGISTER s, REGISTER x) {
    const REGISTER none = {0};
#if HAS_AVX512
    return INTRINSIC(maskz_mov)(COMPARED(s, none, _CMP_NEQ_UQ), x);
#else
    return (REGISTER)((MASK)x & (s != none));
#endif
}

/* a where it is above b, and b elsewhere, also where a is NaN. */
ALWAYS_INLINE REGISTER TYPED(larger_of)(REGISTER a, REGISTER b) {
#if HAS_AVX512 || HAS_AVX2
    return INTRINSIC(max)(a, b);
#else
    return TYPED(choose)(a > b, a, b);
#endif
}

ALWAYS_INLINE REGISTER TYPED(at_least)(REGISTER a, REAL bound) {
    return TYPED(larger_of)(a, bound - (REGISTER){0});
}

ALWAYS_INLINE bool TYPED(any_lane)(MASK mask) {
#if HAS_AVX512
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif HAS_AVX2
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#else
    BITS any = 0;
    for (int j = 0; j < WIDTH; j++) any |= mask[j];
    return any != 0;
#endif
}

#if HAS_AVX512 || HAS_AVX2
/* A bit for each lane, the first the lowest: is a above b? */
ALWAYS_INLINE unsigned TYPED(bits_above)(REGISTER a, REGISTER b) {
#if HAS_AVX512
    return COMPARED(a, b, _CMP_GT_OQ);
#else
    return (unsigned)INTRINSIC(movemask)(INTRINSIC(cmp)(a, b, _CMP_GT_OQ));
#endif
}
#endif

/* Is any of them below bound? */
ALWAYS_INLINE bool TYPED(any_below)(REGISTER a, REAL bound) {
#if HAS_AVX512 || HAS_AVX2
    return TYPED(bits_above)(bound - (REGISTER){0}, a) != 0;
#else
    return TYPED(any_lane)(a < bound);
#endif
}

/* b where it is below a, and a elsewhere. */
ALWAYS_INLINE REGISTER TYPED(smaller_of)(REGISTER a, REGISTER b) {
#if HAS_AVX512 || HAS_AVX2
    return INTRINSIC(min)(b, a);
#else
    return TYPED(choose)(b < a, b, a);
#endif
}

/* |a| */
ALWAYS_INLINE REGISTER TYPED(size_of)(REGISTER a) {
    return TYPED(larger_of)(a, -a);
}

/* The sum of all lanes, by halves. */
ALWAYS_INLINE REAL TYPED(sum_across)(REGISTER a) {
    enum { QUARTERS = REGISTER_BYTES / 16 };
    TYPED(Quarter) q[QUARTERS];
    memcpy(q, &a, sizeof q);
    for (int half = QUARTERS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) q[k] += q[k + half];
#if IS_DOUBLE
    return q[0][0] + q[0][1];
#else
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
#endif
}

#if HAS_AVX512 || HAS_AVX2

/* The lanes whose bit is set at the front, in order; what follows may be anything. And back: the
 * first lanes to where a bit is set, and 0 elsewhere. */
ALWAYS_INLINE REGISTER TYPED(to_front)(REGISTER a, unsigned bits);
ALWAYS_INLINE REGISTER TYPED(from_front)(REGISTER a, unsigned bits);

#if HAS_AVX512

ALWAYS_INLINE REGISTER TYPED(to_front)(REGISTER a, unsigned bits) {
    return INTRINSIC(maskz_compress)(bits, a);
}

ALWAYS_INLINE REGISTER TYPED(from_front)(REGISTER a, unsigned bits) {
    return INTRINSIC(maskz_expand)(bits, a);
}

#else

/* A register is eight words, and a lane one or two of them: bits of words for those of lanes. */
ALWAYS_INLINE unsigned TYPED(words_of)(unsigned bits) {
#if IS_DOUBLE
    bits = (bits | bits << 2) & 0x33;
    bits = (bits | bits << 1) & 0x55;
    bits |= bits << 1;
#endif
    return bits;
}

/* A register of the words whose numbers are given as bytes. */
ALWAYS_INLINE REGISTER TYPED(permuted)(REGISTER a, uint64_t numbers) {
    const __m256i places = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)numbers));
    return (REGISTER)_mm256_permutevar8x32_ps((__m256)a, places);
}

ALWAYS_INLINE REGISTER TYPED(to_front)(REGISTER a, unsigned bits) {
    return TYPED(permuted)(a, TO_FRONT[TYPED(words_of)(bits)]);
}

ALWAYS_INLINE REGISTER TYPED(from_front)(REGISTER a, unsigned bits) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i words = _mm256_set1_epi32((int)TYPED(words_of)(bits));
    const __m256i on = _mm256_cmpeq_epi32(_mm256_and_si256(words, bit), bit);
    a = TYPED(permuted)(a, FROM_FRONT[TYPED(words_of)(bits)]);
    return (REGISTER)((MASK)a & (MASK)on);
}

#endif

#endif

#undef INTRINSIC
#undef COMPARED

#endif
