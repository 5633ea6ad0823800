/* Sparsemax of the k largest scores of a row: a template. The NumPy twin, with the derivation, is
 * pyentmax/mappings/topk_sparsemax.py; its Jacobian's product is that of sparsemax.
 *
 * Where sparsemax of the whole row has at most k entries above 0, that is it. Otherwise the k
 * largest scores are in its support, and so in the gaps that its search has kept: of these the k-th
 * largest is found, and the threshold once more for what is left. Rounding makes gaps of different
 * scores tie: of those that tie with the k-th the largest scores stay, and where these are equal,
 * too, the ones of the lowest index, so there are never more than k.
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

/* What keeps an entry: its score is above the k-th largest, `least`, or is one of the first ties of
 * that; kth is the gap of it. Where sparsemax itself has at most k entries, both are -inf. */
typedef struct {
    REAL largest, t, rest, kth, least;
    ptrdiff_t ties;
} TYPED(TopkThreshold);

static inline TYPED(TopkThreshold) TYPED(topk_threshold)(const TYPED(Search) *found) {
    const REAL rest = (REAL)((1 - found->at_t.sum) / found->at_t.size);
    const REAL lowest = -(REAL)INFINITY;
    return (TYPED(TopkThreshold)){found->largest, found->t, rest, lowest, lowest, 0};
}

static inline REAL TYPED(topk_entry)(REAL z, TYPED(TopkThreshold) at) {
    const REAL u = ((z - at.largest) + at.t) + at.rest, positive = u > 0 ? u : (REAL)0;
    return z > at.least ? positive : (REAL)0;
}

/* How many entries are above 0; n is at most CHUNK. */
static ptrdiff_t TYPED(count_above_0)(const REAL *z, ptrdiff_t n, TYPED(TopkThreshold) at) {
    BITS count = 0;
    for (ptrdiff_t i = 0; i < n; i++) count += TYPED(topk_entry)(z[i], at) > 0;
    return (ptrdiff_t)count;
}

/* Does any of n <= CHUNK entries tie with the k-th? */
static bool TYPED(any_tie)(const REAL *z, ptrdiff_t n, TYPED(TopkThreshold) at) {
    BITS found = 0;
    for (ptrdiff_t i = 0; i < n; i++) found |= z[i] == at.least;
    return found != 0;
}

/* The same of their gaps. */
static bool TYPED(any_near_tie)(const REAL *z, ptrdiff_t n, TYPED(TopkThreshold) at) {
    BITS found = 0;
    for (ptrdiff_t i = 0; i < n; i++) found |= z[i] - at.largest == at.kth;
    return found != 0;
}

/* What the entries kept are given, and zeros. In one pass, since p may be where z is. */
static void TYPED(write_topk)(const REAL *z, REAL *p, ptrdiff_t n, const TYPED(Search) *found,
                              TYPED(TopkThreshold) at) {
    TYPED(Search) reached = *found;
    reached.t = TYPED(reach)(at.t);
    ptrdiff_t start = TYPED(next_live)(&reached, p, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (at.ties > 0 && TYPED(any_tie)(z + start, end - start, at)) {
            for (ptrdiff_t i = start; i < end; i++) {
                const REAL x = z[i] - at.largest, u = (x + at.t) + at.rest;
                const bool tie = z[i] == at.least && at.ties > 0;
                at.ties -= tie;
                p[i] = (z[i] > at.least || tie) && u > 0 ? u : (REAL)0;
            }
        } else {
            for (ptrdiff_t i = start; i < end; i++) p[i] = TYPED(topk_entry)(z[i], at);
        }
        start = TYPED(next_live)(&reached, p, end, n);
    }
}

/* Are at most k entries above 0? Rounding may have lifted some at the threshold that the search has
 * dropped: if there are more, all are put into found->kept. */
static bool TYPED(at_most_k)(const REAL *z, ptrdiff_t n, ptrdiff_t k, TYPED(Search) *found,
                             TYPED(TopkThreshold) at) {
    ptrdiff_t count = 0, size = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK)
        if (TYPED(any_above)(found->maxima + start / CHUNK * LANES, -TYPED(reach)(at.t)))
            count += TYPED(count_above_0)(z + start, n - start < CHUNK ? n - start : CHUNK, at);
    if (count <= k) return true;
    for (ptrdiff_t i = 0; i < n; i++) {
        found->kept[size] = z[i] - at.largest;
        size += TYPED(topk_entry)(z[i], at) > 0;
    }
    found->size = TYPED(pad)(found->kept, size);
    return false;
}

/* Of the scores with the k-th gap, the least that stays, and how many of its ties do: `left` scores
 * stay in all. room and more are for n values each. */
static void TYPED(choose_scores)(const REAL *z, ptrdiff_t n, ptrdiff_t left,
                                 const TYPED(Search) *found, TYPED(TopkThreshold) *at, REAL *room,
                                 REAL *more) {
    ptrdiff_t size = 0, higher = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (!TYPED(any_above)(found->maxima + start / CHUNK * LANES, -TYPED(reach)(at->t))
            || !TYPED(any_near_tie)(z + start, end - start, *at))
            continue;
        for (ptrdiff_t i = start; i < end; i++) {
            room[size] = z[i];
            size += z[i] - at->largest == at->kth;
        }
    }
    if (size == 0) return; /* never: the k-th gap is that of a score */
    memcpy(more, room, (size_t)size * sizeof(REAL));
    at->least = TYPED(kth_largest)(more, size, left < size ? left : size);
    for (ptrdiff_t i = 0; i < size; i++) higher += room[i] > at->least;
    at->ties = left - higher;
}

/* The threshold of the k largest gaps, of which found->kept holds more: what is left of them after
 * the solver has dropped some ends with the first padding. room is for n values. */
static TYPED(TopkThreshold) TYPED(restrict_to_kth)(const REAL *z, TYPED(Search) *found, ptrdiff_t n,
                                                   ptrdiff_t k, REAL *room) {
    ptrdiff_t size = 0, above = 0;
    while (size < n && size < found->size && found->kept[size] > OUTSIDE) size++;
    k = k < size ? k : size;
    memcpy(room, found->kept, (size_t)size * sizeof(REAL));
    const REAL kth = TYPED(kth_largest)(room, size, k);
    for (ptrdiff_t i = 0; i < size; i += LANES)
        above += TYPED(keep_above)(found->kept + i, kth, found->kept + above);
    for (ptrdiff_t i = above; i < k; i++) found->kept[i] = kth;
    found->t = TYPED(michelot)(found->kept, TYPED(pad)(found->kept, k), 1, NULL, &found->at_t);
    TYPED(TopkThreshold) at = TYPED(topk_threshold)(found);
    at.kth = kth;
    TYPED(choose_scores)(z, n, k - above, found, &at, room, found->kept);
    return at;
}

/* p, and what it follows from; false if the row has no threshold, and p is written already. */
static bool TYPED(find_topk_sparsemax)(const REAL *z, REAL *p, ptrdiff_t n, ptrdiff_t k,
                                       REAL *scratch, TYPED(TopkThreshold) *at) {
    TYPED(Search) found;
    if (!TYPED(search)(z, p, n, 1, TYPED(michelot), NULL, scratch, &found)) return false;
    *at = TYPED(topk_threshold)(&found);
    if (k < n && (found.at_t.size > (double)k || !TYPED(at_most_k)(z, n, k, &found, *at)))
        *at = TYPED(restrict_to_kth)(z, &found, n, k, scratch + scratch_size(n));
    TYPED(write_topk)(z, p, n, &found, *at);
    return true;
}

static void TYPED(topk_sparsemax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                      ptrdiff_t k, REAL *restrict scratch) {
    TYPED(TopkThreshold) at;
    if (k < 1)
        TYPED(fill)(p, n, (REAL)NAN);
    else
        TYPED(find_topk_sparsemax)(z, p, n, k, scratch, &at);
}

static const TYPED(TopkMapping) TYPED(topk_sparsemax) = {TYPED(topk_sparsemax_row)};

#endif
