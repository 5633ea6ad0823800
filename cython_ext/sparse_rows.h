/* How a sparse mapping finds its threshold in one pass over the row, for one floating type: a template.
 *
 * Scores are kept as gaps x = scale (z - max z) <= 0, and the threshold as t = -tau, with
 *
 *     f(t) = sum_i g(x_i + t) = 1,   0 < t <= 1,   g increasing, 0 up to 0, and g(1) = 1,
 *
 * so that the largest entry alone, x = 0, bounds t by 1. Any part of the row bounds it better: leaving
 * entries out can only lower f, so the t that solves for the part is at or above the row's.
 */

/* A mapping's way to solve f(t) = 1 over whole lanes of gaps, from a start at or above the root;
 * context holds its parameters, if it has any. Leaves what it knows about f at t in *at_t. */
typedef REAL TYPED(Solver)(const REAL *x, ptrdiff_t n, REAL t, const void *context, Moments *at_t);

/* A row after the search: scores below floor are not in the support, and the gaps of all others are in
 * kept, padded to size whole lanes. */
typedef struct {
    REAL largest, floor, t;
    Moments at_t;
    const REAL *maxima, *kept;
    ptrdiff_t size;
} TYPED(Search);

/* Scores to gaps, in place, and padded to whole lanes; returns the padded number. Scaling by a power of
 * 2 is exact, the difference is rounded once, and -inf stays -inf, which no threshold lets in. */
static ptrdiff_t TYPED(to_gaps)(REAL *z, ptrdiff_t n, REAL largest, REAL scale) {
    const ptrdiff_t padded = whole_lanes(n);
    for (ptrdiff_t i = 0; i < n; i++) z[i] = (z[i] - largest) * scale;
    for (ptrdiff_t i = n; i < padded; i++) z[i] = OUTSIDE;
    return padded;
}

/* Copy every score that is not below floor to the front of kept; return their number. */
static ptrdiff_t TYPED(gather)(const REAL *restrict z, ptrdiff_t n, REAL floor,
                               const REAL *restrict maxima, REAL *restrict kept) {
    ptrdiff_t size = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        if (maxima[start / CHUNK] < floor) continue; /* most of a long row ends here */
        const ptrdiff_t count = n - start < CHUNK ? n - start : CHUNK;
        const REAL *chunk = z + start;
        BITS inside = 0;
        for (ptrdiff_t i = 0; i < count; i++) inside += chunk[i] >= floor;
        if (inside == count) { /* and of a dense row here, a vector at a time */
            memcpy(kept + size, chunk, (size_t)count * sizeof(REAL));
            size += count;
        } else {
            for (ptrdiff_t i = 0; i < count; i++) {
                kept[size] = chunk[i];
                size += chunk[i] >= floor;
            }
        }
    }
    return size;
}

/* Find t; false if the row has no threshold, and p is written already.
 *
 * The chunks' maxima are solved first, as a part of the row that holds most of what matters. Its t is
 * rounded, by a few units of the last place; an entry lost to that has a g as small. Rounding is
 * monotone: x > -t implies that z is at least the rounded largest - t/scale. */
static bool TYPED(search)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, REAL scale,
                          TYPED(Solver) *solve, const void *context, REAL *restrict scratch,
                          TYPED(Search) *found) {
    const ptrdiff_t chunks = chunks_in(n);
    REAL *maxima = scratch, *kept = scratch + whole_lanes(chunks);
    const REAL largest = TYPED(chunk_maxima)(z, n, maxima);
    if (TYPED(is_settled)(p, n, largest)) return false;

    memcpy(kept, maxima, (size_t)chunks * sizeof(REAL));
    ptrdiff_t size = TYPED(to_gaps)(kept, chunks, largest, scale);
    REAL t = solve(kept, size, 1, context, &found->at_t);

    const REAL floor = largest - t / scale;
    size = TYPED(gather)(z, n, floor, maxima, kept);
    size = TYPED(to_gaps)(kept, size, largest, scale);
    t = solve(kept, size, t, context, &found->at_t);
    found->largest = largest;
    found->floor = floor;
    found->t = t;
    found->maxima = maxima;
    found->kept = kept;
    found->size = size;
    return true;
}
