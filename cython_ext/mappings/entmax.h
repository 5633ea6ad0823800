/* α-entmax of rows: a template. The NumPy twin is pyentmax/reference/mappings/entmax.py;
 * thresholds/entmax.h has the search for the threshold.
 *
 * A long row goes through thresholds/search.h: its largest entries bound the threshold, what the
 * bound reaches is gathered and solved, and written back. Short rows go through a tile, BLOCK of
 * them side by side: the largest entry of each of some groups bounds the thresholds, and where no
 * row has many entries within its bound, these alone are put into the tile.
 *
 * For α <= 2 a tile's search starts from sums of whole powers (thresholds/entmax_start.h), which
 * take up to a third off; a long row's only where powers are high, for from α = 1.25 on its bound
 * is so close that they would add up to a sixth (AVX2).
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_H
#define PYENTMAX_MAPPINGS_ENTMAX_H

#include "mappings/entmax15.h"
#include "mappings/softmax.h"
#include "mappings/sparsemax.h"
#include "thresholds/entmax_start.h"

#define TEMPLATE "mappings/entmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax", "(n),(n),()->(n)",
                      "Scores, mask and alpha to probabilities of alpha-entmax.", 3, 1,
                      PARAMETRIC_MAPPING_OPERANDS, entmax_loop)

#elif defined(REAL)

/* What is prepared for an α, and kept for the next rows; or for those of a tile, with an α each. */
typedef struct {
    TYPED(EntmaxStart) start[TILE_REGISTERS];
    double alpha; /* for which the first is prepared, or 0 where all are */
} TYPED(EntmaxKept);

/* The start for each register of a block's searches. */
static void TYPED(prepare_starts)(const double alpha[BLOCK], TYPED(EntmaxKept) *kept) {
    bool same = true;
    for (int j = 1; j < BLOCK; j++) same &= alpha[j] == alpha[0];
    if (!same || kept->alpha != alpha[0])
        for (int g = 0; g < (same ? 1 : TILE_REGISTERS); g++)
            TYPED(prepare_start)(kept->start + g, alpha + g * WIDTH);
    kept->alpha = same ? alpha[0] : 0;
}

static inline const TYPED(EntmaxStart) *TYPED(start_of)(const TYPED(EntmaxKept) *kept, int group) {
    return kept->start + (kept->alpha ? 0 : group);
}

/* Raise the least that 1/t can be, for α > 2, from a part of the entries. */
static void TYPED(bound_above_2)(const TYPED(Gaps) *gaps, REAL enough, TYPED(EntmaxSearch) *at) {
    const TYPED(EntmaxNewton) newton = TYPED(newton)(gaps, at, ~(MASK){0}, enough, NULL);
    at->least = TYPED(at_least)((1 - 2 * ENTMAX_ROUNDING) / newton.high, 1);
}

/* A bound on t from a part of a row, whole lanes of gaps. */
static REAL TYPED(bound_entmax)(const REAL *x, ptrdiff_t n, double alpha) {
    const TYPED(Gaps) part = TYPED(gaps_of_row)(x, n, &(Ahead){0});
    TYPED(EntmaxSearch) at;
    double each[WIDTH];
    REAL least[WIDTH];
    for (int j = 0; j < WIDTH; j++) each[j] = alpha;
    TYPED(start_search)(&at, each, 1);
    if (at.above_2)
        TYPED(bound_above_2)(&part, (REAL)0.02, &at);
    else
        TYPED(bound_by_tangent)(&part, &at);
    TYPED(store_register)(at.least, least);
    return least[0] > 1 ? 1 / least[0] : (REAL)1; /* a NaN, too */
}

/* p of all that t, a bound, reaches of a row. */
static void TYPED(solve_entmax)(const REAL *x, ptrdiff_t n, REAL t, double alpha,
                                TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict p) {
    const TYPED(Gaps) row = TYPED(gaps_of_row)(x, n, ahead);
    TYPED(EntmaxSearch) at;
    double each[BLOCK];
    for (int j = 0; j < BLOCK; j++) each[j] = alpha;
    TYPED(start_search)(&at, each, t);
    if (alpha < 1.25) { /* for any other the bound is close enough */
        TYPED(prepare_starts)(each, kept);
        TYPED(entmax_start)(&row, TYPED(start_of)(kept, 0), 1, true, &at);
    }
    TYPED(finish_searches)(&row, &at, p, 1);
}

/* Find the threshold of a row whose largest entries chunk_maxima() left in scratch, and p of what
 * is kept of it. scratch holds scratch_size(n) values, kept_p those of a row. */
static void TYPED(find_entmax)(const REAL *restrict z, ptrdiff_t n, REAL largest, double alpha,
                               TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict scratch,
                               REAL *restrict kept_p, TYPED(Search) *found) {
    TYPED(begin_search)(n, largest, (REAL)(alpha - 1), scratch, found);
    TYPED(keep_within)(z, n, TYPED(bound_entmax)(found->kept, found->size, alpha), found);
    TYPED(solve_entmax)(found->kept, found->size, found->t, alpha, kept, ahead, kept_p);
}

/* scratch holds scratch_size(n) values and room for a row. */
static void TYPED(entmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                              const TYPED(RowContext) *with) {
    TYPED(Search) found;
    const double alpha = *with->number;
    REAL *restrict scratch = with->scratch, *kept_p = scratch + scratch_size(n);
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(fill_degenerate_row)(p, n, largest)) return;
    TYPED(find_entmax)(z, n, largest, alpha, with->kept, with->ahead, scratch, kept_p, &found);
    TYPED(spread)(z, n, &found, kept_p, p);
}

/* A tile that is on its way to p. */
typedef struct {
    TYPED(EntmaxSearch) at[TILE_REGISTERS];
    REAL beta[BLOCK], largest[BLOCK], floor[BLOCK];
    REAL *x, *p, *packed[BLOCK]; /* the tile, as gaps and as p, and what is kept of its rows, */
    ptrdiff_t few;               /* of at most so many entries; 0 if all are in the tile, */
    ptrdiff_t size;              /* which has so many */
} TYPED(Tile);

static void TYPED(begin_tile)(TYPED(Tile) *tile, ptrdiff_t n, const double alpha[BLOCK],
                              REAL *scratch) {
    for (int g = 0; g < TILE_REGISTERS; g++)
        TYPED(start_search)(tile->at + g, alpha + g * WIDTH, 1);
    tile->x = scratch;
    tile->p = scratch + scratch_size(n);
    for (int j = 0; j < BLOCK; j++) {
        tile->beta[j] = (REAL)(alpha[j] - 1);
        tile->packed[j] = tile->p + BLOCK * n + j * TYPED(kept_step)(n);
    }
    tile->few = 0;
}

/* If no row has more than `most` entries that can get probability, by what is known of its root,
 * put these alone into the tile. */
static bool TYPED(pack_tile)(TYPED(Tile) *tile, const REAL *const z[BLOCK], ptrdiff_t n,
                             ptrdiff_t most) {
    for (int g = 0; g < TILE_REGISTERS; g++)
        TYPED(store_register)(-(1 + 4 * EPSILON) / tile->at[g].least, tile->floor + g * WIDTH);
    tile->few = TYPED(keep_few_of_rows)(z, n, most, tile->largest, tile->beta, tile->floor,
                                        tile->packed[0]);
    if (tile->few) TYPED(to_tile)((const REAL *const *)tile->packed, tile->few, tile->x);
    return tile->few > 0;
}

/* Bring the searches of a tile close to their roots, or only bound these, from n entries of each
 * row. */
static void TYPED(start_tile)(TYPED(Tile) *tile, const REAL *x, ptrdiff_t n,
                              const TYPED(EntmaxKept) *kept, int passes, bool settle,
                              Ahead *ahead) {
    for (int g = 0; g < TILE_REGISTERS; g++) {
        const TYPED(Gaps) gaps = TYPED(gaps_of_columns)(x, n, g * WIDTH, ahead);
        TYPED(EntmaxSearch) *at = tile->at + g;
        if (!at->above_2)
            TYPED(entmax_start)(&gaps, TYPED(start_of)(kept, g), passes, settle, at);
        else if (!settle)
            TYPED(bound_above_2)(&gaps, (REAL)0.1, at);
    }
}

/* The p of rows that each have their own α, all on one side of 2, in a tile. */
static void TYPED(find_tile)(const REAL *const z[BLOCK], ptrdiff_t n, const TYPED(RowContext) *with,
                             TYPED(Tile) *tile) {
    TYPED(EntmaxKept) *kept = with->kept;
    Ahead *ahead = with->ahead;
    TYPED(begin_tile)(tile, n, with->number, with->scratch);
    if (!tile->at->above_2) TYPED(prepare_starts)(with->number, kept);
    /* Exact sums of products cost as little as any, those with a root do not. */
    const bool cheap = tile->at->simple > 3;
    if (n < WORTH_GROUPS || cheap) {
        TYPED(interleave_scaled)(z, n, tile->beta, tile->x, tile->largest);
        if (!cheap) TYPED(start_tile)(tile, tile->x, n, kept, 2, true, ahead);
    } else {
        const int groups = n <= WORTH_MORE_GROUPS ? LANES : PAIR;
        TYPED(interleave_maxima)(z, n, groups, tile->beta, tile->p, tile->largest);
        TYPED(start_tile)(tile, tile->p, groups, kept, 1, false, ahead);
        if (!TYPED(pack_tile)(tile, z, n, n * 3 / 4))
            TYPED(interleave_gaps)(z, n, tile->beta, tile->largest, tile->x);
        TYPED(start_tile)(tile, tile->x, tile->few ? tile->few : n, kept, 1, true, ahead);
        if (!tile->few) TYPED(pack_tile)(tile, z, n, n / 2);
    }
    TYPED(Gaps) gaps[TILE_REGISTERS];
    tile->size = tile->few ? tile->few : n;
    for (int g = 0; g < TILE_REGISTERS; g++)
        gaps[g] = TYPED(gaps_of_columns)(tile->x, tile->size, g * WIDTH, ahead);
    TYPED(finish_searches)(gaps, tile->at, tile->p, TILE_REGISTERS);
}

/* What stands in the place of p in the tile to the first rows. */
static void TYPED(deliver_tile)(const TYPED(Tile) *tile, const REAL *const z[BLOCK],
                                REAL *const p[BLOCK], int count, ptrdiff_t n) {
    TYPED(separate)(tile->p, tile->size, tile->few ? tile->packed : p);
    for (int j = 0; tile->few && j < count; j++)
        TYPED(spread_row)(z[j], n, tile->largest[j], tile->beta[j], tile->floor[j], tile->packed[j],
                          p[j]);
}

static void TYPED(entmax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                ptrdiff_t n, const TYPED(RowContext) *with) {
    TYPED(Tile) tile;
    TYPED(find_tile)(z, n, with, &tile);
    TYPED(deliver_tile)(&tile, z, p, count, n);
    for (int j = 0; j < count; j++) TYPED(fill_degenerate_row)(p[j], n, tile.largest[j]);
}

/* α = ∞: the largest share alike. */
static void TYPED(argmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                              const TYPED(RowContext) *with) {
    const REAL largest = TYPED(chunk_maxima)(z, n, with->scratch);
    if (TYPED(fill_degenerate_row)(p, n, largest)) return;
    ptrdiff_t ties = 0;
    for (ptrdiff_t i = 0; i < n; i++) ties += z[i] == largest;
    const REAL share = 1 / (REAL)ties;
    for (ptrdiff_t i = 0; i < n; i++) p[i] = z[i] == largest ? share : (REAL)0;
}

/* No α at all. */
static void TYPED(nan_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                           const TYPED(RowContext) *with) {
    (void)z, (void)with;
    TYPED(fill)(p, n, (REAL)NAN);
}

static const TYPED(Mapping)
    TYPED(general_entmax) = {A_PARAMETER, TYPED(entmax_row), TYPED(entmax_block), SHORT_OF_POWERS},
    TYPED(argmax) = {A_PARAMETER, TYPED(argmax_row), NULL, 0},
    TYPED(no_mapping) = {A_PARAMETER, TYPED(nan_row), NULL, 0};

/* What to run for an α. Scores within 1/β of the largest matter. Beyond β = 2/ε, below their
 * rounding, only ties do. */
static const TYPED(Mapping) *TYPED(mapping_for)(double alpha) {
    if (alpha == 1) return &TYPED(softmax);
    if (alpha == 1.5) return &TYPED(entmax15);
    if (alpha == 2) return &TYPED(sparsemax);
    if (alpha > 1 && alpha < (IS_DOUBLE ? 9e15 : 1.6e7)) return &TYPED(general_entmax);
    return alpha > 2 ? &TYPED(argmax) : &TYPED(no_mapping);
}

/* Room for a row or block of whatever α. */
static inline ptrdiff_t TYPED(entmax_scratch_size)(ptrdiff_t n) {
    return scratch_size(n)
           + (n <= SHORT_OF_POWERS ? BLOCK * (n + TYPED(kept_step)(n)) : whole_lanes(n) + PAIR);
}

/* Do they run the same code, so that neighbours can go together? */
static bool TYPED(same_code)(double alpha, double other) {
    return TYPED(mapping_for)(alpha) == TYPED(mapping_for)(other)
           && TYPED(is_above_2)(alpha) == TYPED(is_above_2)(other)
           && TYPED(simple_power)(alpha) == TYPED(simple_power)(other);
}

static void TYPED(run_same_code)(TYPED(Rows) *rows, void *kept) {
    const TYPED(Mapping) *mapping = TYPED(mapping_for)(rows->number[0][0]);
    rows->by_block = TYPED(goes_by_block)(mapping, rows->n);
    TYPED(run_keeping)(rows, mapping, kept);
}

static void TYPED(run_entmax)(TYPED(Rows) *rows, void *context) {
    TYPED(run_alike)(rows, 0, TYPED(same_code), TYPED(run_same_code), context);
}

/* (n),(n),()->(n): scores, mask and α to probabilities. */
static void TYPED(entmax_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                               void *data) {
    (void)data;
    const ptrdiff_t n = dims[1];
    TYPED(EntmaxKept) kept = {.alpha = 0};
    if (n > 0)
        TYPED(row_loop)(args, dims, steps, "rmd>r", TYPED(run_entmax), n <= SHORT_OF_POWERS,
                        TYPED(entmax_scratch_size)(n) * sizeof(REAL), &kept);
}

#endif
