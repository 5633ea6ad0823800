/* α-entmax of rows: a template. The NumPy twin is pyentmax/mappings/entmax.py; thresholds/entmax.h
 * has the search for the threshold.
 *
 * A long row goes through thresholds/search.h: its largest entries bound the threshold, what the
 * bound reaches is gathered and solved, and written back. Short rows go through a tile, BLOCK of
 * them side by side: the largest entry of each of some groups bounds the thresholds, and where no
 * row has many entries within its bound, these alone are put into the tile.
 *
 * For α <= 2 the search starts from sums of whole powers (thresholds/entmax_start.h): of a tile, or
 * of a sample of a long row and then all of it.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_H
#define PYENTMAX_MAPPINGS_ENTMAX_H

#include "mappings/entmax15.h"
#include "mappings/softmax.h"
#include "mappings/sparsemax.h"
#include "thresholds/entmax_start.h"

enum {
    WORTH_A_SAMPLE = 1024, /* entries of a long row, */
    SAMPLED = 16,          /* one of so many */
};

#define TEMPLATE "mappings/entmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax", "(n),(n),()->(n)",
                      "Scores, mask and alpha to probabilities of alpha-entmax.", 3, 1,
                      PARAMETRIC_MAPPING_OPERANDS, entmax_loop)

#elif defined(REAL)

/* What is prepared for an α, and kept for the next rows. */
typedef struct {
    TYPED(EntmaxStart) start;
    double alpha; /* for which it is prepared, or 0 */
} TYPED(EntmaxKept);

/* The start for the columns of a block. */
static const TYPED(EntmaxStart) *TYPED(start_for)(const double alpha[BLOCK],
                                                  TYPED(EntmaxKept) *kept) {
    bool same = true;
    for (int j = 1; j < BLOCK; j++) same &= alpha[j] == alpha[0];
    if (!same || kept->alpha != alpha[0]) TYPED(prepare_start)(&kept->start, alpha);
    kept->alpha = same ? alpha[0] : 0;
    return &kept->start;
}

/* What the search needs to know of the mapping, and where it leaves what it finds. */
typedef struct {
    double alpha;
    TYPED(EntmaxKept) *kept;
    REAL *p, *start; /* of what is kept of the row; and t, where the last solve began */
    Ahead *ahead;
} TYPED(EntmaxRow);

/* A bound on t from the largest entries: a tangent, or the last t above the root. */
static REAL TYPED(entmax_bound)(const REAL *x, ptrdiff_t n, TYPED(EntmaxColumns) *columns) {
    if (columns->b[0] < 1) {
        TYPED(EntmaxNewton) newton;
        TYPED(newton_row)(x, n, (REAL)0.02, columns, &newton, NULL);
        return newton.high[0] * (1 + 2 * ENTMAX_ROUNDING);
    }
    TYPED(EntmaxSums) sums;
    BITS moving[BLOCK] = {1}, crowded[BLOCK];
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        TYPED(entmax_sums)(x, n, true, columns, moving, &(Ahead){0}, NULL, &sums);
        if (!TYPED(step_of_row)(columns, &sums, 1, (REAL)0.03 * columns->b[0], pass >= 8, moving,
                                crowded))
            break;
    }
    const REAL unscale = TYPED(power_of_2)(ROUNDER, -SHIFT), now = columns->steepness[0];
    const REAL norm = TYPED(exp2_of)(columns->beta[0] * TYPED(log2_of)(sums.p[0] * unscale));
    const REAL tangent = (1 - now / norm) * sums.p[0] / (sums.p[0] - sums.d[0]);
    return (1 - tangent) / now * (1 + 2 * ENTMAX_ROUNDING);
}

/* A start from sums of whole powers: first from a part of the entries, here and there, as if the
 * others were like them. room holds n values. */
static void TYPED(start_of_row)(const REAL *x, ptrdiff_t n, const TYPED(EntmaxStart) *start,
                                TYPED(EntmaxColumns) *columns, REAL *room) {
    if (start->lowest[0] == 0) return;
    if (n >= WORTH_A_SAMPLE) {
        const ptrdiff_t size = n / SAMPLED / PAIR * PAIR, groups = size / LANES, apart = n / groups;
        const REAL least = columns->least[0];
        const REAL *middle = x + (apart - LANES) / 2; /* rows may be sorted */
        for (ptrdiff_t g = 0; g < groups; g++)
            memcpy(room + g * LANES, middle + g * apart, LANES * sizeof(REAL));
        TYPED(entmax_start)(room, size, true, (REAL)n / (REAL)size, start, 1, true, &(Ahead){0},
                            columns);
        columns->least[0] = least;
    }
    TYPED(entmax_start)(x, n, true, 1, start, 1, true, &(Ahead){0}, columns);
}

/* The Solver. The first time, for the largest entries, it only bounds t. */
static REAL TYPED(entmax_solve)(REAL *x, ptrdiff_t n, REAL t, const void *context, Moments *at_t) {
    const TYPED(EntmaxRow) *wanted = context;
    TYPED(EntmaxColumns) columns;
    double alpha[BLOCK];
    (void)at_t;
    for (int j = 0; j < BLOCK; j++) alpha[j] = wanted->alpha;
    TYPED(start_entmax_columns)(&columns, alpha, t);
    if (*wanted->start == 0) {
        t = TYPED(entmax_bound)(x, n, &columns);
        t = t < 1 ? t : (REAL)1; /* a NaN, too */
    } else {
        if (columns.b[0] >= 1) {
            const TYPED(EntmaxStart) *start = TYPED(start_for)(alpha, wanted->kept);
            TYPED(start_of_row)(x, n, start, &columns, wanted->p);
        }
        TYPED(entmax_finish)(x, n, true, &columns, wanted->ahead, wanted->p);
    }
    *wanted->start = t;
    return t;
}

/* Find the threshold of a row whose largest entries chunk_maxima() left in scratch, and p of what
 * is kept of it. scratch holds scratch_size(n) values, kept_p those of a row. */
static void TYPED(find_entmax)(const REAL *restrict z, ptrdiff_t n, REAL largest, double alpha,
                               TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict scratch,
                               REAL *restrict kept_p, TYPED(Search) *found) {
    REAL start = 0;
    const TYPED(EntmaxRow) wanted = {alpha, kept, kept_p, &start, ahead};
    TYPED(search_below)(z, n, largest, (REAL)(alpha - 1), TYPED(entmax_solve), &wanted, scratch,
                        found);
    found->t = start;
}

/* scratch holds scratch_size(n) values and room for a row; kept is kept from row to row. */
static void TYPED(entmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                              TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict scratch) {
    TYPED(Search) found;
    REAL *kept_p = scratch + scratch_size(n);
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(is_settled)(p, n, largest)) return;
    TYPED(find_entmax)(z, n, largest, alpha, kept, ahead, scratch, kept_p, &found);
    TYPED(spread)(z, n, (REAL)(alpha - 1), &found, kept_p, p);
}

/* What a loss makes of a tile before it goes back to rows: n entries of gaps times β, and their p.
 * place is where each one's label is, n if not in the tile. */
typedef struct TYPED(TileUse) {
    void (*take)(struct TYPED(TileUse) *use, const REAL *restrict x, REAL *restrict p, ptrdiff_t n,
                 const ptrdiff_t place[BLOCK]);
    const double *alpha;
    const ptrdiff_t *label;
    const REAL *weight;
    REAL gap[BLOCK];      /* of each label, */
    double loss[BLOCK];   /* the loss, */
    REAL at_label[BLOCK]; /* and its gradient there; */
    bool settled[BLOCK];  /* unless the row has no threshold */
} TYPED(TileUse);

/* Write the rows of a block that have no threshold. */
static void TYPED(settle_rows)(REAL *const p[BLOCK], int count, ptrdiff_t n,
                               const REAL largest[BLOCK], TYPED(TileUse) *use) {
    for (int j = 0; j < count; j++) {
        if (use) p[j][use->label[j]] = use->at_label[j];
        const bool settled = TYPED(is_settled)(p[j], n, largest[j]);
        if (use) use->settled[j] = settled;
    }
}

/* Where an entry goes when those above floor are kept: n if it does not. */
static ptrdiff_t TYPED(place_among_kept)(const REAL *restrict z, ptrdiff_t n, ptrdiff_t entry,
                                         REAL largest, REAL scale, REAL floor) {
    BITS before = 0;
    for (ptrdiff_t i = 0; i < entry; i++)
        before += (z[i] - largest) * scale > floor; /* rounded as in what was kept */
    return (z[entry] - largest) * scale > floor ? (ptrdiff_t)before : n;
}

/* What a loss makes of a tile of whole rows, or of what is above floor in them. */
static void TYPED(use_rows)(TYPED(TileUse) *use, const REAL *const z[BLOCK],
                            const REAL largest[BLOCK], const TYPED(EntmaxColumns) *columns,
                            const REAL *floor, const REAL *restrict x, ptrdiff_t n,
                            REAL *restrict tile_p) {
    ptrdiff_t place[BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        const ptrdiff_t label = use->label[j];
        use->gap[j] = z[j][label] - largest[j];
        place[j] = floor ? TYPED(place_among_kept)(z[j], n, label, largest[j], columns->beta[j],
                                                   floor[j])
                         : label;
    }
    use->take(use, x, tile_p, n, place);
}

/* A tile that is on its way to p. */
typedef struct {
    TYPED(EntmaxColumns) columns;
    REAL largest[BLOCK], floor[BLOCK];
    REAL *x, *p, *packed[BLOCK]; /* the tile, as gaps and as p, and what is kept of its rows, */
    ptrdiff_t few;               /* of at most so many entries; 0 if all are in the tile */
} TYPED(Tile);

static void TYPED(begin_tile)(TYPED(Tile) *tile, ptrdiff_t n, const double alpha[BLOCK],
                              REAL *scratch) {
    TYPED(start_entmax_columns)(&tile->columns, alpha, 1);
    tile->x = scratch;
    tile->p = scratch + scratch_size(n);
    for (int j = 0; j < BLOCK; j++) tile->packed[j] = tile->p + BLOCK * n + j * TYPED(kept_step)(n);
    tile->few = 0;
}

/* If no row has more than `most` entries that can get probability, by what is known of its root,
 * put these alone into the tile. */
static bool TYPED(pack_tile)(TYPED(Tile) *tile, const REAL *const z[BLOCK], ptrdiff_t n,
                             ptrdiff_t most) {
    for (int j = 0; j < BLOCK; j++) tile->floor[j] = -(1 + 4 * EPSILON) / tile->columns.least[j];
    tile->few = TYPED(keep_few_of_rows)(z, n, most, tile->largest, tile->columns.beta, tile->floor,
                                        tile->packed[0]);
    if (tile->few) TYPED(to_tile)((const REAL *const *)tile->packed, tile->few, tile->x);
    return tile->few > 0;
}

/* The least that 1/t can be for α > 2, from a part of each row. */
static void TYPED(bound_columns)(const REAL *x, ptrdiff_t n, Ahead *ahead,
                                 TYPED(EntmaxColumns) *columns) {
    TYPED(EntmaxNewton) newton;
    BITS wanted[BLOCK];
    for (int j = 0; j < BLOCK; j++) wanted[j] = 1;
    TYPED(newton_columns)(x, n, wanted, (REAL)0.1, columns, ahead, &newton, NULL);
    for (int j = 0; j < BLOCK; j++)
        columns->least[j] = TYPED(larger)((1 - 2 * ENTMAX_ROUNDING) / newton.high[j], 1);
}

/* Is α above 2 as the columns of a tile see it, whose power may round to 1? */
static inline bool TYPED(is_above_2)(double alpha) {
    return (REAL)(1 / (alpha - 1)) < 1;
}

/* Rows that each have their own α, all on one side of 2; for a loss if there is a use. */
static void TYPED(entmax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                ptrdiff_t n, const double alpha[BLOCK], TYPED(EntmaxKept) *kept,
                                Ahead *ahead, REAL *restrict scratch, TYPED(TileUse) *use) {
    const bool above_2 = TYPED(is_above_2)(alpha[0]);
    const TYPED(EntmaxStart) *start = above_2 ? NULL : TYPED(start_for)(alpha, kept);
    TYPED(Tile) tile;
    TYPED(begin_tile)(&tile, n, alpha, scratch);
    TYPED(EntmaxColumns) *columns = &tile.columns;
    if (n < WORTH_GROUPS || columns->whole) { /* whose exact sums cost as little as any */
        TYPED(interleave_scaled)(z, n, columns->beta, tile.x, tile.largest);
        if (!above_2 && !columns->whole)
            TYPED(entmax_start)(tile.x, n * BLOCK, false, 1, start, 2, true, ahead, columns);
    } else {
        const int groups = n <= WORTH_MORE_GROUPS ? LANES : PAIR;
        TYPED(interleave_maxima)(z, n, groups, columns->beta, tile.p, tile.largest);
        if (above_2)
            TYPED(bound_columns)(tile.p, groups * BLOCK, ahead, columns);
        else
            TYPED(entmax_start)(tile.p, groups * BLOCK, false, 1, start, 1, false, ahead, columns);
        if (!TYPED(pack_tile)(&tile, z, n, n * 3 / 4))
            TYPED(interleave_gaps)(z, n, columns->beta, tile.largest, tile.x);
        if (!above_2)
            TYPED(entmax_start)(tile.x, (tile.few ? tile.few : n) * BLOCK, false, 1, start, 1, true,
                                ahead, columns);
        if (!tile.few) TYPED(pack_tile)(&tile, z, n, n / 2);
    }
    const ptrdiff_t size = tile.few ? tile.few : n;
    TYPED(entmax_finish)(tile.x, size * BLOCK, false, columns, ahead, tile.p);
    if (use)
        TYPED(use_rows)(use, z, tile.largest, columns, tile.few ? tile.floor : NULL, tile.x, size,
                        tile.p);
    TYPED(separate)(tile.p, size, tile.few ? tile.packed : p);
    for (int j = 0; tile.few && j < count; j++)
        TYPED(spread_row)(z[j], n, tile.largest[j], columns->beta[j], tile.floor[j], tile.packed[j],
                          p[j]);
    TYPED(settle_rows)(p, count, n, tile.largest, use);
}

/* α = ∞: the largest share alike. */
static void TYPED(argmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                              TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict scratch) {
    (void)alpha, (void)kept, (void)ahead;
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(is_settled)(p, n, largest)) return;
    ptrdiff_t ties = 0;
    for (ptrdiff_t i = 0; i < n; i++) ties += z[i] == largest;
    const REAL share = 1 / (REAL)ties;
    for (ptrdiff_t i = 0; i < n; i++) p[i] = z[i] == largest ? share : (REAL)0;
}

/* No α at all. */
static void TYPED(nan_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                           TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict scratch) {
    (void)z, (void)alpha, (void)kept, (void)ahead, (void)scratch;
    TYPED(fill)(p, n, (REAL)NAN);
}

/* What to run for an α: one of the mappings that have code of their own, or rows with their α,
 * which may go by the block. */
typedef struct {
    const TYPED(Mapping) *own;
    void (*row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                TYPED(EntmaxKept) *kept, Ahead *ahead, REAL *restrict scratch);
    void (*block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count, ptrdiff_t n,
                  const double alpha[BLOCK], TYPED(EntmaxKept) *kept, Ahead *ahead,
                  REAL *restrict scratch, TYPED(TileUse) *use);
    bool above_2;
    int whole; /* its whole_power(), on which the code depends, too */
} TYPED(Choice);

/* Scores within 1/β of the largest matter. Beyond β = 2/ε, below their rounding, only ties do. */
static TYPED(Choice) TYPED(choice_for)(double alpha) {
    if (alpha == 1) return (TYPED(Choice)){.own = &TYPED(softmax)};
    if (alpha == 1.5) return (TYPED(Choice)){.own = &TYPED(entmax15)};
    if (alpha == 2) return (TYPED(Choice)){.own = &TYPED(sparsemax)};
    if (alpha > 1 && alpha < (IS_DOUBLE ? 9e15 : 1.6e7))
        return (TYPED(Choice)){.row = TYPED(entmax_row),
                               .block = TYPED(entmax_block),
                               .above_2 = TYPED(is_above_2)(alpha),
                               .whole = TYPED(whole_power)(alpha)};
    return (TYPED(Choice)){.row = alpha > 2 ? TYPED(argmax_row) : TYPED(nan_row)};
}

/* Do they run the same code, so that neighbours can go together? */
static inline bool TYPED(same_choice)(TYPED(Choice) a, TYPED(Choice) b) {
    return a.own == b.own && a.row == b.row && a.above_2 == b.above_2 && a.whole == b.whole;
}

/* Room for a row or block of whatever α. */
static inline ptrdiff_t TYPED(entmax_scratch_size)(ptrdiff_t n) {
    return scratch_size(n)
           + (n <= SHORT_OF_POWERS ? BLOCK * (n + TYPED(kept_step)(n)) : whole_lanes(n) + PAIR);
}

/* Do they run the same code? */
static bool TYPED(same_code)(double alpha, double other) {
    return TYPED(same_choice)(TYPED(choice_for)(alpha), TYPED(choice_for)(other));
}

/* Rows that run the same code, if they are short. */
static void TYPED(run_choice)(TYPED(Rows) *rows, void *context) {
    const ptrdiff_t n = rows->n;
    const double *alpha = rows->number[0];
    const TYPED(Choice) run = TYPED(choice_for)(alpha[0]);
    if (run.block && rows->by_block) {
        run.block(rows->in[0], rows->out, rows->count, n, alpha, context, &rows->ahead,
                  rows->scratch, NULL);
    } else if (run.own) {
        rows->by_block = TYPED(goes_by_block)(run.own, n);
        TYPED(run_mapping)(rows, (void *)run.own);
    } else {
        for (int j = 0; j < rows->count; j++) {
            Ahead ahead = TYPED(ahead_of_row)(rows, j);
            run.row(rows->in[0][j], rows->out[j], n, alpha[j], context, &ahead, rows->scratch);
        }
    }
}

static void TYPED(run_entmax)(TYPED(Rows) *rows, void *context) {
    TYPED(run_alike)(rows, 0, TYPED(same_code), TYPED(run_choice), context);
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
