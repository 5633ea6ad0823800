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

ALWAYS_INLINE TYPED(Register) TYPED(tile_power)(const TYPED(TilePower) *power, const bool is_same,
                                                int column, TYPED(Register) w) {
    return is_same ? TYPED(prepared_power)(power->same, w)
                   : TYPED(power_in_columns)(&power->each, column, w);
}

/* Add a term, and what the sum loses of it to what it lost so far. */
ALWAYS_INLINE void TYPED(add_term)(TYPED(Register) term, TYPED(Register) *sum,
                                   TYPED(Register) *lost) {
    const TYPED(Register) next = *sum + term;
    *lost += term - (next - *sum);
    *sum = next;
}

/* Each column's sum of w^b and sum of s = w^(b - 1), and every entry's s, all times 2^SHIFT. */
ALWAYS_INLINE void TYPED(tile_sums)(const TYPED(TilePower) *power, const bool is_same,
                                    const REAL *restrict x, ptrdiff_t n,
                                    const REAL *restrict steepness, Ahead *ahead, REAL *restrict s,
                                    REAL sum_p[BLOCK], REAL sum_s[BLOCK]) {
    Ahead mine = *ahead;
    for (int j = 0; j < BLOCK; j += TYPED(WIDTH)) {
        const TYPED(Register) slope = TYPED(load_register)(steepness + j);
        TYPED(Register) p = {0}, lost = {0}, all_s = {0};
        for (ptrdiff_t i = j; i < n; i += BLOCK) {
            ask_lines_ahead(&mine, 1);
            const TYPED(Register) base = 1 + TYPED(load_register)(x + i) * slope;
            const TYPED(Register) w = TYPED(at_least)(base, EPSILON / 4);
            const TYPED(Register) q = TYPED(tile_power)(power, is_same, j, w);
            TYPED(add_term)(q * w, &p, &lost);
            all_s += q;
            TYPED(store_register)(q, s + i);
        }
        TYPED(store_register)(p + lost, sum_p + j);
        TYPED(store_register)(all_s, sum_s + j);
    }
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
                const TYPED(Register) exact = TYPED(tile_power)(power, is_same, j, w) * w;
                value = TYPED(where_below)(beyond, 0, exact, value);
            }
            value = TYPED(at_least)(value * factor, 0);
            if (add_up) TYPED(add_term)(value, &p, &lost);
            TYPED(store_register)(value, s + i);
        }
        TYPED(store_register)(p + lost, sum_p + j);
    }
}

/* Newton's step of every column; false if no column took one. */
static bool TYPED(tile_step)(const REAL sum_p[BLOCK], const REAL sum_s[BLOCK],
                             TYPED(EntmaxColumns) *restrict at) {
    const REAL unscale = TYPED(power_of_2)(ROUNDER, -SHIFT);
    BITS moving = 0;
    for (int j = 0; j < BLOCK; j++) {
        const REAL now = at->steepness[j], a = sum_s[j] / sum_p[j];
        const REAL norm = TYPED(exp2_of)(at->beta[j] * TYPED(log2_of)(sum_p[j] * unscale));
        const REAL part = (1 - now / norm) / a, length = part > 0 ? part : -part;
        const REAL next = now / (1 - part), move = part / (1 - part);
        const BITS moves = length > TANGENT_REACHES;
        at->steepness[j] = moves ? (next > at->least[j] ? next : at->least[j]) : now;
        at->rest[j] = move;
        at->factor[j] = 1 / (sum_p[j] + at->b[j] * move * (sum_p[j] - sum_s[j]));
        moving |= moves;
    }
    return moving;
}

/* Gaps times β of the columns of a tile to p, n entries in all; a row has `length` of them. */
ALWAYS_INLINE void TYPED(tile_of_powers)(const TYPED(TilePower) *power, const bool is_same,
                                         const REAL *restrict x, ptrdiff_t n, ptrdiff_t length,
                                         TYPED(EntmaxColumns) *restrict columns, Ahead *ahead,
                                         REAL *restrict p) {
    REAL sum_p[BLOCK], sum_s[BLOCK];
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        TYPED(tile_sums)(power, is_same, x, n, columns->steepness, ahead, p, sum_p, sum_s);
        if (!TYPED(tile_step)(sum_p, sum_s, columns)) break;
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
    const double allowed = EPSILON * (4 + sqrt((double)length));
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

static void TYPED(entmax_tile)(const REAL *restrict x, ptrdiff_t n, ptrdiff_t length,
                               const double alpha[BLOCK], TYPED(PreparedPower) *kept,
                               TYPED(EntmaxColumns) *restrict columns, Ahead *ahead,
                               REAL *restrict p) {
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
        TYPED(tile_of_powers)(&power, true, x, n, length, columns, ahead, p);
    } else {
        TYPED(prepare_columns)(&power.each, exponent);
        TYPED(tile_of_powers)(&power, false, x, n, length, columns, ahead, p);
    }
}

#else

/* Double has no prepared powers. */
static inline bool TYPED(has_tile)(double alpha) {
    (void)alpha;
    return false;
}

static void TYPED(entmax_tile)(const REAL *restrict x, ptrdiff_t n, ptrdiff_t length,
                               const double alpha[BLOCK], TYPED(PreparedPower) *kept,
                               TYPED(EntmaxColumns) *restrict columns, Ahead *ahead,
                               REAL *restrict p) {
    (void)x, (void)n, (void)length, (void)alpha, (void)kept, (void)columns, (void)ahead, (void)p;
}

#endif

#endif
