/* Sparsemax of one row, for one floating type: a template. The NumPy twin, with the derivation, is
 * pyentmax/mappings/sparsemax.py.
 *
 * Scores are kept as gaps x = z - max z <= 0, and the threshold as t = -tau > 0, so that
 *
 *     p_i = [x_i + t]+   with   f(t) = sum_i [x_i + t]+ = 1   and   0 < t <= 1,
 *
 * the upper bound because the largest entry alone, x = 0, contributes t to the sum.
 */

/* Find t with f(t) = 1, from a start at or above it (Michelot's algorithm).
 *
 * f is convex and piecewise linear, so the root of its tangent is at or above the root wanted, and is that
 * root as soon as no entry leaves the support on the way there. */
static REAL TYPED(michelot)(const REAL *x, ptrdiff_t n, REAL t, const void *context,
                             Moments *at_t) {
    (void)context;
    double size_before = 0;
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        Moments m = *at_t = TYPED(moments)(x, n, t, 0);
        if (m.size == size_before) break;
        size_before = m.size;
        t = (REAL)(t + (1 - m.sum) / m.size);
    }
    return t;
}

/* t is the root but rounded: what is missing from the sum, shared by all of the support, makes
 * (x + t) + rest right to a few units of its own last place. What is then left is divided out. */
static void TYPED(sparsemax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                 REAL *restrict scratch) {
    TYPED(Search) found;
    if (!TYPED(search)(z, p, n, 1, TYPED(michelot), NULL, scratch, &found)) return;

    const REAL largest = found.largest, t = found.t;
    const REAL rest = (REAL)((1 - found.at_t.sum) / found.at_t.size);
    const double sum = TYPED(moments)(found.kept, found.size, t, rest).sum;
    const REAL excess = (REAL)((1 - sum) / sum);
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (found.maxima[start / CHUNK] < found.floor) {
            TYPED(fill)(p + start, end - start, 0);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i++) {
            REAL u = ((z[i] - largest) + t) + rest;
            u = u > 0 ? u : (REAL)0;
            p[i] = u + u * excess;
        }
    }
}

/* Michelot's algorithm in every column of a block until none of them moves. */
static void TYPED(sparsemax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                   ptrdiff_t n, REAL *restrict tile) {
    REAL largest[BLOCK], t[BLOCK], rest[BLOCK], size_before[BLOCK] = {0};
    TYPED(BlockMoments) m;
    TYPED(interleave)(z, n, 1, tile, largest);
    for (int j = 0; j < BLOCK; j++) t[j] = 1;
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        TYPED(block_moments)(tile, n, t, &m);
        BITS moving = 0;
        for (int j = 0; j < BLOCK; j++) {
            const bool done = m.size[j] == size_before[j];
            rest[j] = (1 - m.sum[j]) / m.size[j];
            size_before[j] = m.size[j];
            t[j] = done ? t[j] : t[j] + rest[j];
            moving |= !done;
        }
        if (!moving) break;
    }
    for (int j = 0; j < count; j++) {
        if (TYPED(is_settled)(p[j], n, largest[j])) continue;
        const REAL top = largest[j], threshold = t[j], little = rest[j];
        for (ptrdiff_t i = 0; i < n; i++) {
            REAL u = ((z[j][i] - top) + threshold) + little;
            p[j][i] = u > 0 ? u : (REAL)0;
        }
        const REAL excess = TYPED(missing_share)(p[j], n);
        for (ptrdiff_t i = 0; i < n; i++) p[j][i] += p[j][i] * excess;
    }
}

static const TYPED(Forward) TYPED(sparsemax) = {TYPED(sparsemax_row), TYPED(sparsemax_block)};
