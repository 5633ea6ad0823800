/* Many short rows at once: a template.
 *
 * A sum along a short row is mostly the sum of its lanes at the end, which no vector unit does
 * well. So BLOCK rows are interleaved in a tile, entry i of row j at tile[i BLOCK + j]: every
 * operation is then on BLOCK rows side by side, and each column runs its own search. What a column
 * finds does not depend on its neighbours, so a row's result does not depend on where it is in a
 * batch.
 */
#ifndef PYENTMAX_ROWS_TILES_H
#define PYENTMAX_ROWS_TILES_H

#include "rows/ahead.h"
#include "rows/lanes.h"
#include "rows/steps.h"

#define TEMPLATE "rows/tiles.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Swap the rows and columns of a square of entries. */
typedef void TYPED(Square)(const REAL *const from[], REAL *const to[]);

static inline void TYPED(transpose_1)(const REAL *const from[], REAL *const to[]) {
    to[0][0] = from[0][0];
}

#if !IS_DOUBLE
#define HAS_TRANSPOSE_4 1

/* Four floats fit a register that every vector unit has: rows are interleaved twice. */
#if defined(__clang__)
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef BITS TYPED(Places) __attribute__((vector_size(4 * sizeof(REAL))));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (TYPED(Places)){__VA_ARGS__})
#endif

static inline void TYPED(transpose_4)(const REAL *const from[], REAL *const to[]) {
    TYPED(Quarter) a, b, c, d;
    memcpy(&a, from[0], sizeof a);
    memcpy(&b, from[1], sizeof b);
    memcpy(&c, from[2], sizeof c);
    memcpy(&d, from[3], sizeof d);
    const TYPED(Quarter) ab_low = PICK(a, b, 0, 4, 1, 5), ab_high = PICK(a, b, 2, 6, 3, 7);
    const TYPED(Quarter) cd_low = PICK(c, d, 0, 4, 1, 5), cd_high = PICK(c, d, 2, 6, 3, 7);
    a = PICK(ab_low, cd_low, 0, 1, 4, 5);
    b = PICK(ab_low, cd_low, 2, 3, 6, 7);
    c = PICK(ab_high, cd_high, 0, 1, 4, 5);
    d = PICK(ab_high, cd_high, 2, 3, 6, 7);
    memcpy(to[0], &a, sizeof a);
    memcpy(to[1], &b, sizeof b);
    memcpy(to[2], &c, sizeof c);
    memcpy(to[3], &d, sizeof d);
}
#undef PICK
#endif

#if HAS_AVX512 && !IS_DOUBLE
#define HAS_TRANSPOSE_16 1

/* The same in each quarter of four wider registers, and then once more with the quarters as
 * entries. */
static inline void TYPED(transpose_16)(const REAL *const from[], REAL *const to[]) {
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int k = 0; k < 16; k++) a[k] = _mm512_loadu_ps(from[k]);
#pragma GCC unroll 8
    for (int k = 0; k < 16; k += 2) {
        b[k] = _mm512_unpacklo_ps(a[k], a[k + 1]);
        b[k + 1] = _mm512_unpackhi_ps(a[k], a[k + 1]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 16; k += 4) {
        const __m512d low_even = _mm512_castps_pd(b[k]), high_even = _mm512_castps_pd(b[k + 1]);
        const __m512d low_odd = _mm512_castps_pd(b[k + 2]), high_odd = _mm512_castps_pd(b[k + 3]);
        a[k] = _mm512_castpd_ps(_mm512_unpacklo_pd(low_even, low_odd));
        a[k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low_even, low_odd));
        a[k + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high_even, high_odd));
        a[k + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high_even, high_odd));
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) { /* 0x88 picks quarters 0 and 2 of both operands, 0xdd 1 and 3 */
        const __m512 low_even = _mm512_shuffle_f32x4(a[k], a[k + 4], 0x88);
        const __m512 low_odd = _mm512_shuffle_f32x4(a[k], a[k + 4], 0xdd);
        const __m512 high_even = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0x88);
        const __m512 high_odd = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0xdd);
        _mm512_storeu_ps(to[k], _mm512_shuffle_f32x4(low_even, high_even, 0x88));
        _mm512_storeu_ps(to[k + 4], _mm512_shuffle_f32x4(low_odd, high_odd, 0x88));
        _mm512_storeu_ps(to[k + 8], _mm512_shuffle_f32x4(low_even, high_even, 0xdd));
        _mm512_storeu_ps(to[k + 12], _mm512_shuffle_f32x4(low_odd, high_odd, 0xdd));
    }
}
#endif

/* Move whole squares of `side` entries, from entry `start` of all rows on, to the tile or back;
 * returns the first entry that did not fill a square. */
ALWAYS_INLINE ptrdiff_t TYPED(move_squares)(REAL *const rows[BLOCK], REAL *tile, ptrdiff_t start,
                                            ptrdiff_t n, const bool back, TYPED(Square) *transpose,
                                            const int side) {
    for (; start + side <= n; start += side)
        for (int j = 0; j < BLOCK; j += side) {
            REAL *of_rows[LANES], *of_tile[LANES];
            for (int k = 0; k < side; k++) {
                of_rows[k] = rows[j + k] + start;
                of_tile[k] = tile + (start + k) * BLOCK + j;
            }
            transpose((const REAL *const *)(back ? of_tile : of_rows), back ? of_rows : of_tile);
        }
    return start;
}

ALWAYS_INLINE void TYPED(move_tile)(REAL *const rows[BLOCK], REAL *tile, ptrdiff_t n,
                                    const bool back) {
    ptrdiff_t moved = 0;
#if HAS_TRANSPOSE_16
    moved = TYPED(move_squares)(rows, tile, moved, n, back, TYPED(transpose_16), 16);
#endif
#if HAS_TRANSPOSE_4
    moved = TYPED(move_squares)(rows, tile, moved, n, back, TYPED(transpose_4), 4);
#endif
    TYPED(move_squares)(rows, tile, moved, n, back, TYPED(transpose_1), 1);
}

#undef HAS_TRANSPOSE_4
#undef HAS_TRANSPOSE_16

/* Rows to a tile as they are. */
static void TYPED(to_tile)(const REAL *const z[BLOCK], ptrdiff_t n, REAL *restrict tile) {
    TYPED(move_tile)((REAL *const *)z, tile, n, false);
}

/* A tile back to rows. */
static void TYPED(separate)(const REAL *restrict tile, ptrdiff_t n, REAL *const p[BLOCK]) {
    TYPED(move_tile)(p, (REAL *)tile, n, true);
}

/* Half of the columns of a tile to gaps scale (z - top). */
static inline void TYPED(gaps_of_half)(REAL *restrict half, ptrdiff_t n, const REAL *restrict scale,
                                       const REAL *restrict top) {
    for (ptrdiff_t i = 0; i < n * BLOCK; i += BLOCK)
        for (int j = 0; j < LANES; j++) half[i + j] = (half[i + j] - top[j]) * scale[j];
}

/* A tile to gaps scale (z - top). */
static inline void TYPED(gaps_of_tile)(REAL *restrict tile, ptrdiff_t n, const REAL *restrict scale,
                                       const REAL *restrict top) {
    for (ptrdiff_t half = 0; half < BLOCK; half += LANES)
        TYPED(gaps_of_half)(tile + half, n, scale + half, top + half);
}

/* Rows to a tile as they are, and their maxima: NaN for a row that has one. */
static void TYPED(interleave_scores)(const REAL *const z[BLOCK], ptrdiff_t n, REAL *restrict tile,
                                     REAL *restrict largest) {
    TYPED(to_tile)(z, n, tile);
    for (ptrdiff_t half = 0; half < BLOCK; half += LANES) {
        REAL top[LANES], nans[LANES] = {0};
        for (int j = 0; j < LANES; j++) top[j] = -(REAL)INFINITY;
        for (ptrdiff_t i = 0; i < n; i++)
            for (int j = 0; j < LANES; j++) {
                const REAL entry = tile[i * BLOCK + half + j];
                top[j] = TYPED(larger)(entry, top[j]);
                nans[j] += entry * TINY_SCALE;
            }
        for (int j = 0; j < LANES; j++) largest[half + j] = nans[j] != nans[j] ? nans[j] : top[j];
    }
}

/* Rows to a tile of gaps scale (z - max z), each row with its scale, and their maxima. The column
 * of a row with a NaN holds NaN, which every comparison leaves out. */
static void TYPED(interleave_scaled)(const REAL *const z[BLOCK], ptrdiff_t n,
                                     const REAL scale[BLOCK], REAL *restrict tile,
                                     REAL *restrict largest) {
    TYPED(interleave_scores)(z, n, tile, largest);
    TYPED(gaps_of_tile)(tile, n, scale, largest);
}

/* Rows to such a tile where their maxima are known. */
static void TYPED(interleave_gaps)(const REAL *const z[BLOCK], ptrdiff_t n, const REAL scale[BLOCK],
                                   const REAL *restrict largest, REAL *restrict tile) {
    TYPED(to_tile)(z, n, tile);
    TYPED(gaps_of_tile)(tile, n, scale, largest);
}

/* interleave_scaled() with one scale for all. */
static void TYPED(interleave)(const REAL *const z[BLOCK], ptrdiff_t n, REAL scale,
                              REAL *restrict tile, REAL *restrict largest) {
    REAL scales[BLOCK];
    for (int j = 0; j < BLOCK; j++) scales[j] = scale;
    TYPED(interleave_scaled)(z, n, scales, tile, largest);
}

/* The same, and the largest gap of each of `groups`, a tile of as many rows; returns their number,
 * a GROUPth of n >= WORTH_GROUPS. Groups lie across the row, every so many entries: in a sorted
 * row, the largest would fill a few groups of neighbours. */
static ptrdiff_t TYPED(interleave_groups)(const REAL *const z[BLOCK], ptrdiff_t n, REAL scale,
                                          REAL *restrict tile, REAL *restrict largest,
                                          REAL *restrict groups) {
    TYPED(to_tile)(z, n, tile);
    REAL scales[LANES];
    for (int j = 0; j < LANES; j++) scales[j] = scale;
    const ptrdiff_t count = (n + GROUP - 1) / GROUP, apart = count * BLOCK;
    const ptrdiff_t whole = n - (GROUP - 1) * count; /* the others have their first for the last */
    for (ptrdiff_t half = 0; half < BLOCK; half += LANES) {
        REAL top[LANES], nans[LANES] = {0};
        for (int j = 0; j < LANES; j++) top[j] = -(REAL)INFINITY;
        const REAL *x = tile + half;
        REAL *maxima = groups + half;
        for (ptrdiff_t g = 0; g < count; g++, x += BLOCK, maxima += BLOCK) {
            const REAL *last = x + (g < whole ? (GROUP - 1) * apart : 0);
            for (int j = 0; j < LANES; j++) {
                const REAL a = x[j], b = x[apart + j], c = x[2 * apart + j], d = last[j];
                const REAL of_group = TYPED(larger)(TYPED(larger)(a, b), TYPED(larger)(c, d));
                nans[j] += (a * TINY_SCALE + b * TINY_SCALE) + (c * TINY_SCALE + d * TINY_SCALE);
                top[j] = TYPED(larger)(of_group, top[j]);
                maxima[j] = of_group;
            }
        }
        for (int j = 0; j < LANES; j++)
            largest[half + j] = top[j] = nans[j] != nans[j] ? nans[j] : top[j];
        TYPED(gaps_of_half)(tile + half, n, scales, top);
        TYPED(gaps_of_half)(groups + half, count, scales, top);
    }
    return count;
}

/* An entry of p, of its gap and of its row's t and rest. */
typedef REAL TYPED(Entry)(REAL gap, REAL t, REAL rest);

/* The rows of p, of their scores: to read these once more takes less than to bring a tile back. The
 * last lanes overlap those before them, so they are read first, as p may be where z is, which is
 * why nothing is `restrict` here. Rows too short for that come from the tile of gaps. */
ALWAYS_INLINE void TYPED(entries_of_rows)(TYPED(Entry) *entry, const REAL *const z[BLOCK],
                                          REAL *const p[BLOCK], int count, ptrdiff_t n, REAL scale,
                                          const REAL *restrict largest, const REAL *restrict t,
                                          const REAL *restrict rest, Ahead *ahead,
                                          REAL *restrict tile) {
    if (n < WORTH_READING_AGAIN) {
        for (ptrdiff_t i = 0; i < n * BLOCK; i += BLOCK)
            for (int j = 0; j < BLOCK; j++) tile[i + j] = entry(tile[i + j], t[j], rest[j]);
        TYPED(separate)(tile, n, p);
        return;
    }
    for (int j = 0; j < count; j++) {
        const REAL *const from = z[j], top = largest[j], tj = t[j], rj = rest[j];
        REAL *const to = p[j], last[LANES], some[LANES];
        prefetch_some(ahead);
        for (int k = 0; k < LANES; k++)
            last[k] = entry((from[n - LANES + k] - top) * scale, tj, rj);
        for (ptrdiff_t i = 0; i < n - LANES; i += LANES) {
            for (int k = 0; k < LANES; k++) some[k] = entry((from[i + k] - top) * scale, tj, rj);
            memcpy(to + i, some, sizeof some);
        }
        memcpy(to + n - LANES, last, sizeof last);
    }
}

/* How far apart the rows of keep_few_of_rows() lie: a row, and what keep_above() and put_above() go
 * beyond it. */
static inline ptrdiff_t TYPED(kept_step)(ptrdiff_t n) {
    return whole_lanes(n) + LANES;
}

/* Fill up rows kept_step(n) apart with OUTSIDE to the length of the longest, or a little more;
 * returns that. */
static ptrdiff_t TYPED(fill_kept)(const ptrdiff_t sizes[BLOCK], ptrdiff_t longest, ptrdiff_t n,
                                  REAL *restrict kept) {
    const ptrdiff_t squares = (longest + 3) / 4 * 4; /* whole squares are moved faster */
    const ptrdiff_t size = squares < n ? squares : n, step = TYPED(kept_step)(n);
    for (int j = 0; j < BLOCK; j++)
        for (ptrdiff_t i = sizes[j]; i < size; i++) kept[j * step + i] = OUTSIDE;
    return size;
}

/* The largest scores of a row in `groups` groups, LANES or PAIR of them and the row no shorter:
 * that of every groups-th entry from the g-th on; NaN for a group that has one. */
ALWAYS_INLINE void TYPED(group_maxima)(const REAL *restrict z, ptrdiff_t n, REAL *restrict maxima,
                                       const int groups) {
    const ptrdiff_t whole = n / groups * groups;
    REAL top[PAIR] = {0}, nans[PAIR] = {0}; /* written below, which compilers miss */
    for (int j = 0; j < groups; j++) top[j] = z[j];
    for (int j = 0; j < groups; j++) nans[j] = z[j] * TINY_SCALE;
    for (ptrdiff_t i = groups; i < whole; i += groups)
        for (int j = 0; j < groups; j++) {
            top[j] = TYPED(larger)(z[i + j], top[j]);
            nans[j] += z[i + j] * TINY_SCALE;
        }
    for (ptrdiff_t i = whole; i < n; i++) {
        top[i - whole] = TYPED(larger)(z[i], top[i - whole]);
        nans[i - whole] += z[i] * TINY_SCALE;
    }
    for (int j = 0; j < groups; j++) maxima[j] = nans[j] != nans[j] ? nans[j] : top[j];
}

/* A tile of the group maxima of rows, LANES or PAIR of them, as gaps times each row's scale, and
 * the rows' maxima. */
static void TYPED(interleave_maxima)(const REAL *const z[BLOCK], ptrdiff_t n, int groups,
                                     const REAL *restrict scale, REAL *restrict tile,
                                     REAL *restrict largest) {
    REAL tops[BLOCK][PAIR];
    const REAL *rows[BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        rows[j] = tops[j];
        if (groups == LANES)
            TYPED(group_maxima)(z[j], n, tops[j], LANES);
        else
            TYPED(group_maxima)(z[j], n, tops[j], PAIR);
    }
    TYPED(interleave_scaled)(rows, groups, scale, tile, largest);
}

/* The gaps above floor of each row, to rows kept_step(n) apart, all filled up to the length of the
 * longest, at most n; returns that, or 0 where a row keeps more than `most`. */
static ptrdiff_t TYPED(keep_few_of_rows)(const REAL *const z[BLOCK], ptrdiff_t n, ptrdiff_t most,
                                         const REAL *restrict largest, const REAL *restrict scale,
                                         const REAL *restrict floor, REAL *restrict kept) {
    const ptrdiff_t step = TYPED(kept_step)(n);
    ptrdiff_t sizes[BLOCK], longest = 1;
    for (int j = 0; j < BLOCK; j++) {
        sizes[j] = TYPED(keep_of_row)(z[j], n, largest[j], scale[j], floor[j], kept + j * step);
        if (sizes[j] > most) return 0;
        longest = sizes[j] > longest ? sizes[j] : longest;
    }
    return TYPED(fill_kept)(sizes, longest, n, kept);
}

#endif
