/* α-entmax of a tile of short rows, in floats, for powers that are no products: a template. The
 * NumPy twin is pyentmax/mappings/entmax.py.
 *
 * In the terms of thresholds/entmax_below_2.h: after entmax_start() each pass takes w^(b - 1) of
 * every entry by a polynomial, and a step of Newton's. The last step is not taken: it moves p along
 * its tangent, except for entries close to the threshold, of which powers are taken again.
 *
 * Entries that are no part of the support change no bit of the sums, which are added up in order:
 * so it does not matter whether a tile holds them.
 */
#ifndef PYENTMAX_MAPPINGS__ENTMAX_TILE_H
#define PYENTMAX_MAPPINGS__ENTMAX_TILE_H

#include "elementary/powers.h"
#include "rows/ahead.h"
#include "thresholds/entmax_below_2.h"

#define TEMPLATE "mappings/_entmax_tile.h"
#include "float_and_double.h"

#elif defined(REAL)

#if !IS_DOUBLE

/* Powers of b - 1 for the columns of a tile: prepared for all at once, or for each. */
typedef struct {
    const TYPED(PreparedPower) *same;
    TYPED(PreparedColumns) each;
} TYPED(TilePower);

ALWAYS_INLINE void TYPED(tile_power)(const TYPED(TilePower) *power, const bool is_same, int column,
                                     TYPED(Register) *w, const int count) {
    if (is_same)
        TYPED(prepared_power)(power->same, w, count);
    else
        TYPED(power_in_columns)(&power->each, column, w, count);
}

/* Add a term, and what the sum loses of it to what it lost so far. */
ALWAYS_INLINE void TYPED(add_term)(TYPED(Register) term, TYPED(Register) *sum,
                                   TYPED(Register) *lost) {
    const TYPED(Register) next = *sum + term;
    *lost += term - (next - *sum);
    *sum = next;
}

/* Of a group of columns, in registers. */
typedef struct {
    TYPED(Register) p, lost, s;
} TYPED(TileSums);

/* Add to the sums those of `count` entries of each column, and write their s. */
ALWAYS_INLINE void TYPED(add_entries)(const TYPED(TilePower) *power, const bool is_same, int column,
                                      const REAL *restrict x, TYPED(Register) slope,
                                      REAL *restrict s, const int count, TYPED(TileSums) *sums) {
    TYPED(Register) w[ABREAST], q[ABREAST];
    for (int k = 0; k < count; k++) {
        const TYPED(Register) base = 1 + TYPED(load_register)(x + k * BLOCK) * slope;
        q[k] = w[k] = TYPED(at_least)(base, EPSILON / 4);
    }
    TYPED(tile_power)(power, is_same, column, q, count);
    for (int k = 0; k < count; k++) {
        TYPED(add_term)(q[k] * w[k], &sums->p, &sums->lost);
        sums->s += q[k];
        TYPED(store_register)(q[k], s + k * BLOCK);
    }
}

/* The sums of w^b and of s = w^(b - 1) of the columns from `column` on that fit a register, and
 * every entry's s, all times 2^SHIFT. */
ALWAYS_INLINE void TYPED(tile_sums)(const TYPED(TilePower) *power, const bool is_same, int column,
                                    const REAL *restrict x, ptrdiff_t n,
                                    const REAL *restrict steepness, Ahead *ahead, REAL *restrict s,
                                    REAL sum_p[BLOCK], REAL sum_s[BLOCK]) {
    const TYPED(Register) slope = TYPED(load_register)(steepness + column);
    const TYPED(Register) none = {0};
    TYPED(TileSums) sums = {none, none, none};
    Ahead mine = *ahead;
    ptrdiff_t i = column;
    for (; i + (ABREAST - 1) * BLOCK < n; i += ABREAST * BLOCK) {
        ask_lines_ahead(&mine, ABREAST);
        TYPED(add_entries)(power, is_same, column, x + i, slope, s + i, ABREAST, &sums);
    }
    for (; i < n; i += BLOCK)
        TYPED(add_entries)(power, is_same, column, x + i, slope, s + i, 1, &sums);
    TYPED(store_register)(sums.p + sums.lost, sum_p + column);
    TYPED(store_register)(sums.s, sum_s + column);
    *ahead = mine;
}

/* From s to p in its place, with the rest of each column, the part of w - 1 that is still to be
 * added to w; and each column's sum of p, if asked for. */
ALWAYS_INLINE void TYPED(finish_tile)(const TYPED(TilePower) *power, const bool is_same,
                                      const bool add_up, const REAL *restrict x, ptrdiff_t n,
                                      const TYPED(EntmaxColumns) *restrict at, REAL *restrict s,
                                      REAL sum_p[BLOCK]) {
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        const TYPED(Register) slope = TYPED(load_register)(at->steepness + j);
        const TYPED(Register) move = TYPED(load_register)(at->rest + j);
        const TYPED(Register) tangent = TYPED(load_register)(at->b + j) * move;
        const TYPED(Register) factor = TYPED(load_register)(at->factor + j);
        /* A tangent leaves b^2 move^2/(2 w^2) of p at most, the contract allows 16 ε/(t w). */
        const TYPED(Register) length = TYPED(at_least)(move, 0) + TYPED(at_least)(-move, 0);
        const TYPED(Register) close = tangent * tangent / (8 * EPSILON * slope) + 8 * length;
        const TYPED(Register) close_2 = close * close;
        TYPED(Register) p = {0}, lost = {0};
        for (ptrdiff_t i = j; i < n; i += BLOCK) {
            const TYPED(Register) gap = TYPED(load_register)(x + i) * slope, base = 1 + gap;
            const TYPED(Register) beyond = base * base - close_2;
            TYPED(Register) value = TYPED(load_register)(s + i) * (base + tangent * gap);
            if (TYPED(any_below)(beyond, 0)) {
                const TYPED(Register) w = TYPED(at_least)(base + move * gap, EPSILON / 4);
                TYPED(Register) exact = w;
                TYPED(tile_power)(power, is_same, j, &exact, 1);
                value = TYPED(where_below)(beyond, 0, exact * w, value);
            }
            value = TYPED(at_least)(value * factor, 0);
            if (add_up) TYPED(add_term)(value, &p, &lost);
            TYPED(store_register)(value, s + i);
        }
        TYPED(store_register)(p + lost, sum_p + j);
    }
}

/* Newton's step of every column; tells which took one. */
static void TYPED(tile_step)(const REAL sum_p[BLOCK], const REAL sum_s[BLOCK],
                             TYPED(EntmaxColumns) *restrict at, BITS moving[BLOCK]) {
    const REAL unscale = TYPED(power_of_2)(ROUNDER, -SHIFT);
    for (int j = 0; j < BLOCK; j++) {
        const REAL now = at->steepness[j], a = sum_s[j] / sum_p[j];
        const REAL norm = TYPED(exp2_of)(at->beta[j] * TYPED(log2_of)(sum_p[j] * unscale));
        const REAL part = (1 - now / norm) / a, length = part > 0 ? part : -part;
        const REAL next = now / (1 - part), move = part / (1 - part);
        /* Below b = 2 a crowd of entries near the threshold adds up what the tangent leaves out. */
        const REAL reaches = at->b_less_2[j] < 0 ? TANGENT_REACHES / 5 : TANGENT_REACHES;
        const BITS moves = length > reaches;
        at->steepness[j] = moves ? (next > at->least[j] ? next : at->least[j]) : now;
        at->rest[j] = move;
        at->factor[j] = 1 / (sum_p[j] + at->b[j] * move * (sum_p[j] - sum_s[j]));
        moving[j] = moves;
    }
}

/* Gaps times β of the columns of a tile to p, n entries in all. Columns of which none moves are
 * left as they are. */
ALWAYS_INLINE void TYPED(tile_of_powers)(const TYPED(TilePower) *power, const bool is_same,
                                         const REAL *restrict x, ptrdiff_t n,
                                         TYPED(EntmaxColumns) *restrict columns, Ahead *ahead,
                                         REAL *restrict p) {
    REAL sum_p[BLOCK], sum_s[BLOCK];
    BITS moving[BLOCK], any_moving = 1;
    for (int j = 0; j < BLOCK; j++) moving[j] = 1;
    for (int pass = 0; any_moving && pass < MAX_PASSES; pass++) {
        for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
            BITS of_these = 0;
            for (int k = 0; k < TYPED(WIDTH); k++) of_these |= moving[j + k];
            if (of_these)
                TYPED(tile_sums)(power, is_same, j, x, n, columns->steepness, ahead, p, sum_p,
                                 sum_s);
        }
        TYPED(tile_step)(sum_p, sum_s, columns, moving);
        any_moving = 0;
        for (int j = 0; j < BLOCK; j++) any_moving |= moving[j];
    }
    bool steep = false, any = false, off[BLOCK];
    for (int j = 0; j < BLOCK; j++) steep |= columns->b_less_2[j] < 0;
    if (!steep) {
        TYPED(finish_tile)(power, is_same, false, x, n, columns, p, sum_p);
        return;
    }
    TYPED(finish_tile)(power, is_same, true, x, n, columns, p, sum_p);
    /* The tangent is not all where many entries cross the threshold: up to α = 1.5 an s of those is
     * as small as the step, but near α = 2 it is 1. */
    const double allowed = EPSILON * fmin(8, 4 + sqrt((double)(n / BLOCK)));
    for (int j = 0; j < BLOCK; j++) {
        off[j] = columns->b_less_2[j] < 0 && sum_p[j] > 0 && fabs(sum_p[j] - 1.0) > allowed;
        any |= off[j];
    }
    if (any) TYPED(entmax_refine)(x, n, false, off, columns, p);
}

/* Is that for this α? It has a polynomial. */
static inline bool TYPED(has_tile)(double alpha) {
    const double b = 1 / (alpha - 1);
    return b > 1 && b <= 6.5;
}

static void TYPED(entmax_tile)(const REAL *restrict x, ptrdiff_t n, const double alpha[BLOCK],
                               TYPED(PreparedPower) *kept, TYPED(EntmaxColumns) *restrict columns,
                               Ahead *ahead, REAL *restrict p) {
    TYPED(TilePower) power;
    double exponent[BLOCK];
    bool is_same = true;
    for (int j = 0; j < BLOCK; j++) {
        exponent[j] = 1 / (alpha[j] - 1) - 1;
        is_same &= alpha[j] == alpha[0];
    }
    if (is_same) {
        if (kept->exponent != exponent[0]) TYPED(prepare_power)(kept, exponent[0]);
        power.same = kept;
        TYPED(tile_of_powers)(&power, true, x, n, columns, ahead, p);
    } else {
        TYPED(prepare_columns)(&power.each, exponent);
        TYPED(tile_of_powers)(&power, false, x, n, columns, ahead, p);
    }
}

#else

/* Double has no prepared powers. */
static inline bool TYPED(has_tile)(double alpha) {
    (void)alpha;
    return false;
}

static void TYPED(entmax_tile)(const REAL *restrict x, ptrdiff_t n, const double alpha[BLOCK],
                               TYPED(PreparedPower) *kept, TYPED(EntmaxColumns) *restrict columns,
                               Ahead *ahead, REAL *restrict p) {
    (void)x, (void)n, (void)alpha, (void)kept, (void)columns, (void)ahead, (void)p;
}

#endif

#endif
