/* α-entmax of rows: a template. The NumPy twin is pyentmax/mappings/entmax.py; the thresholds are
 * those of thresholds/entmax_below_2.h and entmax_above_2.h.
 */
#ifndef PYENTMAX_MAPPINGS_ENTMAX_H
#define PYENTMAX_MAPPINGS_ENTMAX_H

#include "mappings/_entmax_dense_row.h"
#include "mappings/_entmax_tile.h"
#include "mappings/entmax15.h"
#include "mappings/softmax.h"
#include "mappings/sparsemax.h"
#include "thresholds/entmax_above_2.h"
#include "thresholds/entmax_below_2.h"
#include "thresholds/entmax_start.h"

enum {
    WINDOW = 8 * BLOCK, /* short rows that are done in the order of α, */
    SHADES = 512,       /* of which so many are told apart */
};

/* The order of `count` rows by α, where equals stay in order: neighbours then mostly share the code
 * that runs and what it prepares for their α. Is it another order? */
static bool order_by_alpha(const double *restrict alpha, int count, int *restrict order) {
    bool same = true;
    for (int r = 0; r < count; r++) {
        order[r] = r;
        same &= alpha[r] == alpha[0];
    }
    if (same || count < 2) return false;
    int16_t end[SHADES + 1] = {0}, shade[WINDOW];
    for (int r = 0; r < count; r++) {
        const double above_1 = (alpha[r] - 1) * SHADES;
        shade[r] = above_1 < SHADES - 1 ? (int16_t)(above_1 > 0 ? above_1 : 0)
                                        : SHADES - 1; /* a NaN with the largest */
        end[shade[r] + 1]++;
    }
    for (int k = 0; k < SHADES; k++) end[k + 1] += end[k];
    for (int r = 0; r < count; r++) order[end[shade[r]]++] = r;
    return true;
}

#define TEMPLATE "mappings/entmax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("entmax", "(n),(n),()->(n)",
                      "Scores, mask and alpha to probabilities of alpha-entmax.", 3, 1,
                      PARAMETRIC_MAPPING_OPERANDS, entmax_loop)

#elif defined(REAL)

/* What is prepared for an α, and kept for the next rows. */
typedef struct {
    TYPED(PreparedPower) power;
    TYPED(EntmaxStart) start;
    double start_alpha; /* for which start is prepared, or 0 */
} TYPED(EntmaxKept);

/* The start for the columns of a block. */
static const TYPED(EntmaxStart) *TYPED(start_for)(const double alpha[BLOCK],
                                                  TYPED(EntmaxKept) *kept) {
    bool same = true;
    for (int j = 1; j < BLOCK; j++) same &= alpha[j] == alpha[0];
    if (!same || kept->start_alpha != alpha[0]) TYPED(prepare_start)(&kept->start, alpha);
    kept->start_alpha = same ? alpha[0] : 0;
    return &kept->start;
}

/* What the search needs to know of the mapping, and where it leaves what it finds. */
typedef struct {
    double alpha;
    const TYPED(PreparedPower) *power;
    REAL *s, *start;
    TYPED(EntmaxColumns) *columns;
    Ahead *ahead;
} TYPED(EntmaxBelow2);

/* A start from a sixteenth of the entries, here and there, as if the others were like them: off by
 * a per cent or so, from where one pass over all of them reaches the root. room holds n values. */
static void TYPED(start_from_sample)(const REAL *x, ptrdiff_t n, TYPED(EntmaxColumns) *columns,
                                     REAL *room) {
    const ptrdiff_t size = n / 16 / PAIR * PAIR, groups = size / LANES, apart = n / groups;
    /* The middle of each part, as rows may be sorted. */
    const REAL *middle = x + (apart - LANES) / 2;
    for (ptrdiff_t g = 0; g < groups; g++)
        memcpy(room + g * LANES, middle + g * apart, LANES * sizeof(REAL));
    TYPED(entmax_find_root)(room, size, true, (double)n / (double)size, (REAL)0.01, columns,
                            &(Ahead){0}, room + size);
    TYPED(forget_beyond)(columns, n);
}

/* The Solver. The first time, for the largest entries, it only bounds t: by a tangent. */
static REAL TYPED(entmax_below_2_solve)(REAL *x, ptrdiff_t n, REAL t, const void *context,
                                        Moments *at_t) {
    const TYPED(EntmaxBelow2) *wanted = context;
    TYPED(EntmaxColumns) *columns = wanted->columns;
    (void)at_t;
    double alpha[BLOCK];
    for (int j = 0; j < BLOCK; j++) alpha[j] = wanted->alpha;
    TYPED(start_entmax_columns)(columns, alpha, wanted->power, n, t);
    if (*wanted->start == 0) {
        TYPED(entmax_find_root)(x, n, true, 1, (REAL)0.03, columns, &(Ahead){0}, wanted->s);
        const REAL part = columns->rest[0] * columns->beta[0];
        t = (1 - part) / columns->steepness[0] * (1 + 2 * ENTMAX_ROUNDING);
        t = t < 1 ? t : (REAL)1;
    } else {
        if (n >= WORTH_A_SAMPLE) TYPED(start_from_sample)(x, n, columns, wanted->s);
        TYPED(entmax_find_root)(x, n, true, 1, ENTMAX_ROUNDING, columns, wanted->ahead, wanted->s);
    }
    *wanted->start = t;
    return t;
}

/* Scores to p, by products, once the threshold is found: for b >= 2, of which entmax_finish() has
 * nothing to mend. found->t reaches all of the support. */
static void TYPED(finish_from_scores)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                      REAL scale, const TYPED(Search) *found,
                                      const TYPED(EntmaxColumns) *restrict at) {
    const REAL largest = found->largest;
    ptrdiff_t start = TYPED(next_live)(found, p, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        REAL x[CHUNK], last[CHUNK];
        for (ptrdiff_t i = start; i < end; i++) x[i - start] = (z[i] - largest) * scale;
        if (end - start == CHUNK) {
            TYPED(finish_row)(x, CHUNK, at, p + start);
        } else {
            for (ptrdiff_t i = end - start; i < whole_lanes(end - start); i++) x[i] = OUTSIDE;
            TYPED(finish_row)(x, whole_lanes(end - start), at, last);
            memcpy(p + start, last, (size_t)(end - start) * sizeof(REAL));
        }
        start = TYPED(next_live)(found, p, end, n);
    }
}

/* Find the threshold of a row whose largest entries chunk_maxima() left in scratch: where it lies
 * goes to found and columns. scratch holds scratch_size(n) values, room those of a row. */
static void TYPED(find_entmax_below_2)(const REAL *restrict z, ptrdiff_t n, REAL largest,
                                       double alpha, const TYPED(PreparedPower) *power,
                                       Ahead *ahead, REAL *restrict scratch, REAL *restrict room,
                                       TYPED(Search) *found, TYPED(EntmaxColumns) *columns) {
    REAL start = 0;
    const TYPED(EntmaxBelow2) wanted = {alpha, power, room, &start, columns, ahead};
    TYPED(search_below)(z, n, largest, (REAL)(alpha - 1), TYPED(entmax_below_2_solve), &wanted,
                        scratch, found);
    found->t = start;
}

/* The power of b - 2, prepared, if it serves a row of n and this α, or NULL. */
static const TYPED(PreparedPower) *TYPED(power_for)(double alpha, ptrdiff_t n,
                                                    TYPED(PreparedPower) *kept) {
#if IS_DOUBLE
    (void)alpha, (void)n, (void)kept;
    return NULL;
#else
    const double b = 1 / (alpha - 1);
    if (n <= SHORT_OF_POWERS || b <= 1 || b > 7) return NULL;
    if (kept->exponent != b - 2) TYPED(prepare_power)(kept, b - 2);
    return kept;
#endif
}

/* scratch holds scratch_size(n) values and room for a row; kept is kept from row to row. */
static void TYPED(entmax_below_2_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                      double alpha, TYPED(EntmaxKept) *kept, Ahead *ahead,
                                      REAL *restrict scratch) {
    TYPED(Search) found;
    TYPED(EntmaxColumns) columns;
    REAL *kept_p = scratch + scratch_size(n);
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(is_settled)(p, n, largest)) return;
    const TYPED(PreparedPower) *by = TYPED(short_power)(alpha)
                                         ? NULL
                                         : TYPED(power_for)(alpha, n, &kept->power);
    if (TYPED(entmax_dense_row)(z, p, n, largest, alpha, by, ahead, kept_p)) return;
    TYPED(find_entmax_below_2)(z, n, largest, alpha, by, ahead, scratch, kept_p, &found, &columns);
    if (columns.twice_b > 3) {
        TYPED(finish_from_scores)(z, p, n, (REAL)(alpha - 1), &found, &columns);
        return;
    }
    TYPED(entmax_finish)(found.kept, found.size, true, &columns, kept_p);
    TYPED(spread)(z, n, (REAL)(alpha - 1), &found, kept_p, p);
}

/* What a loss makes of a tile before it goes back to rows: n entries of gaps times β, and their p,
 * of the columns that are wanted. place is where each one's label is, n if not in the tile. */
typedef struct TYPED(TileUse) {
    void (*take)(struct TYPED(TileUse) *use, const REAL *restrict x, REAL *restrict p, ptrdiff_t n,
                 const ptrdiff_t place[BLOCK], const bool wanted[BLOCK]);
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
        before += TYPED(is_negative)(floor - (z[i] - largest) * scale);
    return (z[entry] - largest) * scale > floor ? (ptrdiff_t)before : n;
}

/* What a loss makes of a tile of whole rows, or of what is above floor in them. */
static void TYPED(use_rows)(TYPED(TileUse) *use, const REAL *const z[BLOCK],
                            const REAL largest[BLOCK], const TYPED(EntmaxColumns) *columns,
                            const REAL *floor, const REAL *restrict x, ptrdiff_t n,
                            REAL *restrict tile_p) {
    ptrdiff_t place[BLOCK];
    bool wanted[BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        const ptrdiff_t label = use->label[j];
        use->gap[j] = z[j][label] - largest[j];
        place[j] = floor ? TYPED(place_among_kept)(z[j], n, label, largest[j], columns->beta[j],
                                                   floor[j])
                         : label;
        wanted[j] = true;
    }
    use->take(use, x, tile_p, n, place, wanted);
}

/* Rows that each have their own α, all of one short_power(); for a loss if there is a use. */
static void TYPED(entmax_products_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK],
                                         int count, ptrdiff_t n, const double alpha[BLOCK],
                                         TYPED(EntmaxKept) *kept, Ahead *ahead,
                                         REAL *restrict scratch, TYPED(TileUse) *use) {
    REAL *const x = scratch, *const tile_p = scratch + scratch_size(n);
    TYPED(EntmaxColumns) columns;
    REAL largest[BLOCK];
    (void)kept;
    TYPED(start_entmax_columns)(&columns, alpha, NULL, n, 1);
    TYPED(interleave_scaled)(z, n, columns.beta, x, largest);
    TYPED(entmax_find_root)(x, n * BLOCK, false, 1, ENTMAX_ROUNDING, &columns, ahead, tile_p);
    TYPED(entmax_finish)(x, n * BLOCK, false, &columns, tile_p);
    if (use) TYPED(use_rows)(use, z, largest, &columns, NULL, x, n, tile_p);
    TYPED(separate)(tile_p, n, p);
    TYPED(settle_rows)(p, count, n, largest, use);
}

/* A tile that is on its way, where powers have a polynomial. */
typedef struct {
    TYPED(EntmaxColumns) columns;
    REAL largest[BLOCK], floor[BLOCK];
    REAL *x, *p, *packed[BLOCK]; /* the tile, as gaps and as p, and what is kept of its rows, */
    ptrdiff_t few;               /* of at most so many entries; 0 if all are in the tile */
} TYPED(Tile);

static void TYPED(begin_tile)(TYPED(Tile) *tile, ptrdiff_t n, const double alpha[BLOCK],
                              REAL *scratch) {
    TYPED(start_entmax_columns)(&tile->columns, alpha, NULL, n, 1);
    tile->x = scratch;
    tile->p = scratch + scratch_size(n);
    for (int j = 0; j < BLOCK; j++) tile->packed[j] = tile->p + BLOCK * n + j * TYPED(kept_step)(n);
    tile->few = 0;
}

/* If no row has more than `most` entries that can get probability, by what is known of its root,
 * put these alone into the tile. The rows' largest scores may have to be found first. */
static bool TYPED(pack_tile)(TYPED(Tile) *tile, const REAL *const z[BLOCK], ptrdiff_t n,
                             ptrdiff_t most, bool find_largest) {
    for (int j = 0; j < BLOCK; j++) tile->floor[j] = -(1 + 4 * EPSILON) / tile->columns.least[j];
    tile->few = TYPED(keep_few_of_rows)(z, n, most, find_largest, tile->largest, tile->columns.beta,
                                        tile->floor, tile->packed[0]);
    if (tile->few) TYPED(to_tile)((const REAL *const *)tile->packed, tile->few, tile->x);
    return tile->few > 0;
}

/* From a start close to the roots to p of the rows. */
static void TYPED(end_tile)(TYPED(Tile) *tile, const REAL *const z[BLOCK], REAL *const p[BLOCK],
                            int count, ptrdiff_t n, const double alpha[BLOCK],
                            TYPED(EntmaxKept) *kept, Ahead *ahead, TYPED(TileUse) *use) {
    const ptrdiff_t size = tile->few ? tile->few : n;
    const TYPED(EntmaxColumns) *columns = &tile->columns;
    TYPED(entmax_tile)(tile->x, size * BLOCK, alpha, &kept->power, &tile->columns, ahead, tile->p);
    if (use)
        TYPED(use_rows)(use, z, tile->largest, columns, tile->few ? tile->floor : NULL, tile->x,
                        size, tile->p);
    TYPED(separate)(tile->p, size, tile->few ? tile->packed : p);
    for (int j = 0; tile->few && j < count; j++)
        TYPED(spread_row)(z[j], n, tile->largest[j], columns->beta[j], tile->floor[j],
                          tile->packed[j], p[j]);
    TYPED(settle_rows)(p, count, n, tile->largest, use);
}

/* The same where powers have a polynomial. */
static void TYPED(entmax_polynomials_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK],
                                            int count, ptrdiff_t n, const double alpha[BLOCK],
                                            TYPED(EntmaxKept) *kept, Ahead *ahead,
                                            REAL *restrict scratch, TYPED(TileUse) *use) {
    const TYPED(EntmaxStart) *start = TYPED(start_for)(alpha, kept);
    const bool is_long = n >= WORTH_GROUPS;
    TYPED(Tile) tile;
    TYPED(begin_tile)(&tile, n, alpha, scratch);
    if (!is_long || !TYPED(pack_tile)(&tile, z, n, n * 3 / 4, true))
        TYPED(interleave_scaled)(z, n, tile.columns.beta, tile.x, tile.largest);
    TYPED(entmax_start)(tile.x, (tile.few ? tile.few : n) * BLOCK, start, 2, true, ahead,
                        &tile.columns);
    if (is_long && !tile.few) TYPED(pack_tile)(&tile, z, n, n / 2, false);
    TYPED(end_tile)(&tile, z, p, count, n, alpha, kept, ahead, use);
}

/* The same for α > 1.5, where few entries get probability: the largest ones bound t, so that most
 * rows are packed before anything is done with all of their entries. */
static void TYPED(entmax_sparse_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                       ptrdiff_t n, const double alpha[BLOCK],
                                       TYPED(EntmaxKept) *kept, Ahead *ahead,
                                       REAL *restrict scratch, TYPED(TileUse) *use) {
    const TYPED(EntmaxStart) *start = TYPED(start_for)(alpha, kept);
    const int groups = n <= WORTH_MORE_GROUPS ? LANES : PAIR;
    TYPED(Tile) tile;
    TYPED(begin_tile)(&tile, n, alpha, scratch);
    if (n < WORTH_GROUPS) {
        TYPED(interleave_scaled)(z, n, tile.columns.beta, tile.x, tile.largest);
        TYPED(entmax_start)(tile.x, n * BLOCK, start, 2, true, ahead, &tile.columns);
    } else {
        TYPED(interleave_maxima)(z, n, groups, tile.columns.beta, tile.p, tile.largest);
        TYPED(entmax_start)(tile.p, groups * BLOCK, start, 2, false, ahead, &tile.columns);
        if (!TYPED(pack_tile)(&tile, z, n, n * 3 / 4, false))
            TYPED(interleave_gaps)(z, n, tile.columns.beta, tile.largest, tile.x);
        TYPED(entmax_start)(tile.x, (tile.few ? tile.few : n) * BLOCK, start, 1, true, ahead,
                            &tile.columns);
        if (!tile.few) TYPED(pack_tile)(&tile, z, n, n / 2, false);
    }
    TYPED(end_tile)(&tile, z, p, count, n, alpha, kept, ahead, use);
}

/* How many gaps of each column of a tile are above its floor. */
static void TYPED(count_above)(const REAL *restrict x, ptrdiff_t n, const REAL *restrict floor,
                               BITS *restrict count) {
    for (int j = 0; j < BLOCK; j++) count[j] = 0;
    for (ptrdiff_t i = 0; i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) count[j] += TYPED(is_negative)(floor[j] - x[i + j]);
}

/* The same for any α, by logarithms. Rows of which the start leaves three quarters or less are
 * taken apart from the others, and exact powers of what is left alone. */
static void TYPED(entmax_logarithms_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK],
                                           int count, ptrdiff_t n, const double alpha[BLOCK],
                                           TYPED(EntmaxKept) *kept, Ahead *ahead,
                                           REAL *restrict scratch, TYPED(TileUse) *use) {
    REAL *const x = scratch, *const tile_p = x + scratch_size(n),
                *const packed = tile_p + BLOCK * n;
    TYPED(EntmaxColumns) columns;
    const TYPED(EntmaxStart) *start = TYPED(start_for)(alpha, kept);
    REAL largest[BLOCK], floor[BLOCK];
    TYPED(start_entmax_columns)(&columns, alpha, NULL, n, 1);
    TYPED(interleave_scaled)(z, n, columns.beta, x, largest);
    /* Of double, logarithms cost more than in float, and a step more is worth it. */
    TYPED(entmax_start)(x, n * BLOCK, start, 2, IS_DOUBLE, ahead, &columns);
    for (int j = 0; j < BLOCK; j++) floor[j] = -(1 + 4 * EPSILON) / columns.least[j];
    BITS left[BLOCK];
    TYPED(count_above)(x, n * BLOCK, floor, left);

    REAL *rows[BLOCK], *to[BLOCK];
    bool sparse[BLOCK], dense[BLOCK], any_sparse = false, any_dense = false;
    for (int j = 0; j < BLOCK; j++) {
        rows[j] = packed + j * TYPED(kept_step)(n);
        sparse[j] = 4 * left[j] <= 3 * n;
        to[j] = sparse[j] ? rows[j] : p[j];
        dense[j] = !sparse[j];
        any_sparse |= sparse[j];
        any_dense |= dense[j];
        if (use) use->gap[j] = z[j][use->label[j]] - largest[j];
    }
    if (any_dense) {
        TYPED(EntmaxColumns) all = columns;
        TYPED(entmax_find_root)(x, n * BLOCK, false, 1, ENTMAX_ROUNDING, &all, ahead, tile_p);
        TYPED(entmax_finish)(x, n * BLOCK, false, &all, tile_p);
        if (use) use->take(use, x, tile_p, n, use->label, dense);
        TYPED(separate)(tile_p, n, to);
    }
    if (any_sparse) {
        for (int j = 0; j < BLOCK; j++)
            if (!sparse[j]) floor[j] = 1; /* above all: nothing of it is kept */
        const ptrdiff_t size = TYPED(keep_of_rows)(z, n, largest, columns.beta, floor, packed);
        TYPED(to_tile)((const REAL *const *)rows, size, x);
        TYPED(entmax_find_root)(x, size * BLOCK, false, 1, ENTMAX_ROUNDING, &columns, ahead,
                                tile_p);
        TYPED(entmax_finish)(x, size * BLOCK, false, &columns, tile_p);
        if (use) {
            ptrdiff_t place[BLOCK];
            for (int j = 0; j < BLOCK; j++)
                place[j] = sparse[j]
                               ? TYPED(place_among_kept)(z[j], size, use->label[j], largest[j],
                                                         columns.beta[j], floor[j])
                               : size;
            use->take(use, x, tile_p, size, place, sparse);
        }
        TYPED(separate)(tile_p, size, rows);
        for (int j = 0; j < count; j++)
            if (sparse[j])
                TYPED(spread_row)(z[j], n, largest[j], columns.beta[j], floor[j], rows[j], p[j]);
    }
    TYPED(settle_rows)(p, count, n, largest, use);
}

/* The same for α > 2. */
static void TYPED(entmax_above_2_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                      double alpha, TYPED(EntmaxKept) *kept, Ahead *ahead,
                                      REAL *restrict scratch) {
    (void)kept, (void)ahead;
    TYPED(Search) found;
    TYPED(Trial) low, high;
    REAL start, *kept_p = scratch + scratch_size(n);
    const TYPED(EntmaxAbove2) wanted = {alpha - 1, &start, &low, &high};
    if (!TYPED(search)(z, p, n, (REAL)(alpha - 1), TYPED(entmax_above_2_solve), &wanted, scratch,
                       &found))
        return;
    const double gap = high.sum - low.sum, part = gap > 0 ? (1 - low.sum) / gap : 0;
    const REAL share = (REAL)(part < 0 ? 0 : part < 1 ? part : 1);
    for (ptrdiff_t start = 0; start < found.size; start += LEAF) {
        const ptrdiff_t count = found.size - start < LEAF ? found.size - start : LEAF;
        REAL upper[LEAF], *lower = kept_p + start;
        TYPED(below_p_max)(found.kept + start, count, alpha - 1, low.q, lower);
        TYPED(below_p_max)(found.kept + start, count, alpha - 1, high.q, upper);
        for (ptrdiff_t i = 0; i < count; i++) lower[i] += share * (upper[i] - lower[i]);
    }
    found.t = start;
    TYPED(spread)(z, n, (REAL)(alpha - 1), &found, kept_p, p);
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
    int twice_b; /* its short_power(), on which the code depends, too */
} TYPED(Choice);

/* Scores within 1/β of the largest matter. Beyond β = 2/ε, below their rounding, only ties do. */
static TYPED(Choice) TYPED(choice_for)(double alpha) {
    if (alpha == 1) return (TYPED(Choice)){.own = &TYPED(softmax)};
    if (alpha == 1.5) return (TYPED(Choice)){.own = &TYPED(entmax15)};
    if (alpha == 2) return (TYPED(Choice)){.own = &TYPED(sparsemax)};
    if (alpha > 1 && alpha < 2) {
        const int twice_b = TYPED(short_power)(alpha);
        TYPED(Choice) run = {.row = TYPED(entmax_below_2_row), .twice_b = twice_b};
        run.block = twice_b                   ? TYPED(entmax_products_block)
                    : !TYPED(has_tile)(alpha) ? TYPED(entmax_logarithms_block)
                    : alpha > 1.5             ? TYPED(entmax_sparse_block)
                                              : TYPED(entmax_polynomials_block);
        return run;
    }
    if (alpha > 2 && alpha < (IS_DOUBLE ? 9e15 : 1.6e7))
        return (TYPED(Choice)){.row = TYPED(entmax_above_2_row)};
    return (TYPED(Choice)){.row = alpha > 2 ? TYPED(argmax_row) : TYPED(nan_row)};
}

/* Do they run the same code, so that neighbours can go together? */
static inline bool TYPED(same_choice)(TYPED(Choice) a, TYPED(Choice) b) {
    return a.own == b.own && a.row == b.row && a.block == b.block && a.twice_b == b.twice_b;
}

/* Room for a row or block of whatever α. */
static inline ptrdiff_t TYPED(entmax_scratch_size)(ptrdiff_t n) {
    return scratch_size(n)
           + (n <= SHORT_OF_POWERS ? BLOCK * (n + TYPED(kept_step)(n)) : whole_lanes(n) + PAIR);
}

/* (n),(n),()->(n): scores, mask and α to probabilities. Short rows of a window that run the same
 * code go together. */
static void TYPED(entmax_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                               void *data) {
    (void)data;
    const ptrdiff_t rows = dims[0], n = dims[1], z_stride = steps[4], mask_stride = steps[5];
    const ptrdiff_t p_stride = steps[6];
    if (rows == 0 || n == 0) return;
    const bool is_short = n <= SHORT_OF_POWERS;
    const int at_most = is_short ? BLOCK : 1, window = is_short ? WINDOW : 1;
    const ptrdiff_t size = TYPED(entmax_scratch_size)(n);
    REAL *scratch = scratch_or_error(size + 2 * at_most * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + size;
    TYPED(EntmaxKept) kept = {.power.exponent = -1};

    for (ptrdiff_t start = 0; start < rows; start += window) {
        const int in_window = rows - start < window ? (int)(rows - start) : window;
        double alphas[WINDOW];
        int order[WINDOW], count = 0;
        for (int r = 0; r < in_window; r++)
            alphas[r] = *(const double *)(args[2] + (start + r) * steps[2]);
        const bool moved = order_by_alpha(alphas, in_window, order);
        for (int done = 0; done < in_window; done += count) {
            const REAL *z[BLOCK];
            REAL *p[BLOCK];
            double alpha[BLOCK];
            TYPED(Choice) run = {0};
            for (count = 0; count < at_most && done + count < in_window; count++) {
                const ptrdiff_t r = start + order[done + count];
                alpha[count] = alphas[order[done + count]];
                const bool same = count > 0 && alpha[count] == alpha[count - 1];
                const TYPED(Choice) choice = same ? run : TYPED(choice_for)(alpha[count]);
                if (count > 0 && !TYPED(same_choice)(choice, run)) break;
                run = choice;
                z[count] = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                         mask_stride, n, room + 2 * count * n);
                p[count] = TYPED(target)(args[3] + r * steps[3], p_stride,
                                         room + (2 * count + 1) * n);
            }
            for (int j = count; j < at_most; j++) { /* fills up the block */
                z[j] = z[0];
                p[j] = room + (2 * j + 1) * n;
                alpha[j] = alpha[0];
            }
            const ptrdiff_t next = start + done + count, left = moved ? 0 : rows - next;
            Ahead ahead = ahead_of(args[0] + next * steps[0], steps[0], args[3] + next * steps[3],
                                   steps[3], n * (ptrdiff_t)sizeof(REAL),
                                   left < at_most ? left : at_most);
            if (at_most > 1 && run.block)
                run.block(z, p, count, n, alpha, &kept, &ahead, scratch, NULL);
            else if (at_most > 1 && run.own && run.own->block && n <= run.own->longest)
                run.own->block(z, p, count, n, &ahead, scratch);
            else
                for (int j = 0; j < count; j++) {
                    if (run.own)
                        run.own->row(z[j], p[j], n, &ahead, scratch);
                    else
                        run.row(z[j], p[j], n, alpha[j], &kept, &ahead, scratch);
                }
            for (int j = 0; j < count; j++)
                TYPED(deliver)(p[j], args[3] + (start + order[done + j]) * steps[3], p_stride, n);
        }
    }
    free(scratch);
    leave_no_float_flags();
}

#endif
