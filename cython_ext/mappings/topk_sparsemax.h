/* Sparsemax of the k largest scores of a row: a template. The NumPy twin, with the derivation, is
 * pyentmax/reference/mappings/topk_sparsemax.py; its Jacobian's product is that of sparsemax.
 *
 * Where sparsemax of the whole row reaches at most k entries, that is it. Otherwise the k-th
 * largest score is found, and the threshold once more for the scores above it and so many of its
 * ties as there is room for, the ones of the lowest index.
 */
#ifndef PYENTMAX_MAPPINGS_TOPK_SPARSEMAX_H
#define PYENTMAX_MAPPINGS_TOPK_SPARSEMAX_H

#include "gufunc/mapping_loops.h"
#include "mappings/sparsemax.h"
#include "thresholds/kth_largest.h"
#include "thresholds/search.h"

#define TEMPLATE "mappings/topk_sparsemax.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

TOPK_MAPPING(topk_sparsemax, "top-k sparsemax")

#elif defined(REAL)

/* What keeps an entry: its score is above the k-th largest, `least`, or is one of the first `ties`
 * of that; kth is the gap of it. Where sparsemax itself has at most k entries, both are -inf. */
typedef struct {
    REAL largest, t, rest, kth, least;
    ptrdiff_t ties;
} TYPED(TopkThreshold);

static inline REAL TYPED(topk_entry)(REAL z, const TYPED(TopkThreshold) *at) {
    const REAL p = TYPED(sparsemax_entry)(z - at->largest, at->t, at->rest);
    return z > at->least ? p : (REAL)0;
}

/* What the entries kept are given, and zeros. In one pass, since p may be where z is. */
static void TYPED(write_topk)(const REAL *z, REAL *p, ptrdiff_t n, const TYPED(Search) *found,
                              const TYPED(TopkThreshold) *at) {
    TYPED(Search) reached = *found;
    const REAL kth = TYPED(sparsemax_entry)(at->kth, at->t, at->rest);
    ptrdiff_t ties = at->ties;
    reached.t = TYPED(smaller)(TYPED(reach)(at->t), TYPED(reach)(-at->kth) + EPSILON);
    ptrdiff_t start = TYPED(next_live)(&reached, p, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        BITS any_tie = 0;
        for (ptrdiff_t i = start; ties > 0 && i < end; i++) any_tie |= z[i] == at->least;
        if (any_tie) {
            for (ptrdiff_t i = start; i < end; i++) {
                const bool tie = z[i] == at->least && ties > 0;
                ties -= tie;
                p[i] = tie ? kth : TYPED(topk_entry)(z[i], at);
            }
        } else {
            for (ptrdiff_t i = start; i < end; i++) p[i] = TYPED(topk_entry)(z[i], at);
        }
        start = TYPED(next_live)(&reached, p, end, n);
    }
}

/* How many of the gaps kept are within reach of t: no others can get anything. */
static ptrdiff_t TYPED(count_reached)(const TYPED(Search) *found) {
    const REAL floor = -TYPED(reach)(found->t);
    BITS count = 0;
    for (ptrdiff_t i = 0; i < found->size; i++) count += found->kept[i] >= floor;
    return (ptrdiff_t)count;
}

/* The threshold of the k largest scores, which are within reach of the one found, and at or above
 * the k-th largest of the chunks' maxima. Some more are gathered, for what the bound loses by
 * rounding. room is for n values. */
static void TYPED(restrict_to_kth)(const REAL *z, ptrdiff_t n, ptrdiff_t k, TYPED(Search) *found,
                                   REAL *room, TYPED(TopkThreshold) *at) {
    const REAL top = found->largest;
    REAL *kept = found->kept, floor = -TYPED(reach)(found->t);
    if (k <= maxima_of(n)) {
        memcpy(kept, found->maxima, (size_t)maxima_of(n) * sizeof(REAL));
        floor = TYPED(larger)(TYPED(kth_largest)(kept, maxima_of(n), k), floor);
    }
    const REAL bound = (top + floor) - 4 * EPSILON * (FABS(top) + 1);
    const ptrdiff_t size = TYPED(keep_scores)(z, n, found->maxima, floor - EPSILON, bound, kept);
    ptrdiff_t above = 0;
    memcpy(room, kept, (size_t)size * sizeof(REAL));
    at->least = TYPED(kth_largest)(room, size, k);
    at->kth = at->least - found->largest;
    for (ptrdiff_t i = 0; i < size; i++) {
        const REAL score = kept[i];
        kept[above] = score - found->largest;
        above += score > at->least;
    }
    at->ties = k - above;
    for (ptrdiff_t i = above; i < k; i++) kept[i] = at->kth;
    found->t = TYPED(michelot)(kept, TYPED(pad)(kept, k), 1, &found->at_t);
}

/* p, and what it follows from; false if the row has no threshold, and p is written already. */
static bool TYPED(find_topk_sparsemax)(const REAL *z, REAL *p, ptrdiff_t n, ptrdiff_t k,
                                       REAL *scratch, TYPED(TopkThreshold) *at) {
    TYPED(Search) found;
    if (!TYPED(search)(z, p, n, 1, TYPED(michelot), scratch, &found)) return false;
    at->least = at->kth = -(REAL)INFINITY;
    at->ties = 0;
    if (k < n && TYPED(count_reached)(&found) > k)
        TYPED(restrict_to_kth)(z, n, k, &found, scratch + scratch_size(n), at);
    at->largest = found.largest;
    at->t = found.t;
    at->rest = (REAL)((1 - found.at_t.sum) / found.at_t.size);
    TYPED(write_topk)(z, p, n, &found, at);
    return true;
}

static void TYPED(topk_sparsemax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                      const TYPED(RowContext) *with) {
    const ptrdiff_t k = at_most(with->number[0], n);
    TYPED(TopkThreshold) at;
    if (k < 1)
        TYPED(fill)(p, n, (REAL)NAN);
    else
        TYPED(find_topk_sparsemax)(z, p, n, k, with->scratch, &at);
}

static const TYPED(Mapping) TYPED(topk_sparsemax) = {A_K, TYPED(topk_sparsemax_row), NULL, 0};

#endif
