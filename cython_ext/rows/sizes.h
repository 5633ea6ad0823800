/* How many entries of a row are handled together, and why: how to run along a row fast, in portable
 * C.
 *
 * C does not let a compiler reorder floating-point sums, so a plain loop `sum += u[i]` stays
 * scalar. These loops therefore spell out the order that suits vector units: LANES independent
 * accumulators, each taking every LANES-th entry. Compilers turn the fixed inner loops into vector
 * code at any instruction set without -ffast-math.
 *
 * What stops them is control flow. GCC merges two choices on one comparison into a branch where it
 * can, so a NaN is found by arithmetic rather than by a comparison, and the moments that all
 * mappings share are added up in registers.
 */
#ifndef PYENTMAX_ROWS_SIZES_H
#define PYENTMAX_ROWS_SIZES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if !defined(__GNUC__) && !defined(__clang__)
#error "The kernels need the vector types of GCC or Clang: pyentmax goes without them, in NumPy."
#endif
#if HAS_AVX2 || HAS_AVX512
#include <immintrin.h>
#endif

enum {
    LANES = 16,       /* four SSE or NEON registers of float, two of AVX, one of AVX-512 */
    PAIR = 2 * LANES, /* what a sum takes at a time, so that additions overlap */
    LEAF = 512,  /* entries summed in the row's own precision before a sum moves on to double, */
    LEAVES = 32, /* or to a sum of so many, where that is worth it */
    CHUNK = 256, /* entries that are skipped together if the largest of them is out of reach */
    BLOCK = 32,  /* short rows done side by side: two lanes, so that their additions overlap, */
    SHORT = 256, /* and the longest of them, unless a kernel says otherwise, */
    LONGEST_SHORT = 512, /* and of any kernel: longer ones fill the vector units by themselves; */
    GROUP = 4,           /* entries of a short row, of which the largest are searched first */
    WORTH_GROUPS = 32,   /* in rows from this length on, */
    WORTH_MORE_GROUPS = 64, /* of which LANES are enough up to this length */
    UNROLL = 4, /* registers whose long chains of instructions are interleaved in the code: of one
                 * after the other, a processor sees too few at a time to be busy */
};

/* The longest short rows of kernels that pass over a row again and again, for a threshold, and of
 * those that take powers there. A tile of double grows out of the caches first. (Zen 3: longer ones
 * gain in some rows what they lose in others.) */
#define SHORT_SEARCHED (IS_DOUBLE ? SHORT : 384)
#define SHORT_OF_POWERS (IS_DOUBLE ? SHORT : LONGEST_SHORT)

/* The shortest of them that are written from their scores, not from the tile. Of floats, narrow
 * registers take the lanes that overlap in several steps. */
#if HAS_AVX512
#define WORTH_READING_AGAIN PAIR
#else
#define WORTH_READING_AGAIN (IS_DOUBLE ? PAIR : 4 * LANES)
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NEVER_INLINE static __attribute__((noinline))

/* Rows that the kernels copy are padded to whole pairs of lanes, with a value that no support
 * contains. */
static inline ptrdiff_t whole_lanes(ptrdiff_t n) {
    return (n + PAIR - 1) / PAIR * PAIR;
}

/* How many lanes hold the maxima of a row's chunks: LANES for each chunk. */
static inline ptrdiff_t maxima_of(ptrdiff_t n) {
    return (n + CHUNK - 1) / CHUNK * LANES;
}

/* Room for a row's gaps, which padding overruns by up to PAIR, and its chunks' maxima; for a short
 * row also for a tile. */
static inline ptrdiff_t scratch_size(ptrdiff_t n) {
    return (n <= LONGEST_SHORT ? BLOCK * n : 0) + whole_lanes(n) + PAIR + maxima_of(n);
}

/* Where to split a long sum: in half, on a whole leaf. Halving makes rounding grow with log n. */
static inline ptrdiff_t half_of(ptrdiff_t n) {
    return (n / 2 + LEAF - 1) / LEAF * LEAF;
}

/* 2^-64: so many of any finite floats, scaled by it, do not overflow when added up. */
#define TINY_SCALE ((REAL)5.421010862427522e-20)

/* Fills gaps up to whole lanes: below -1, which is as low as a threshold t <= 1 reaches. */
#define OUTSIDE (-2)

#endif
