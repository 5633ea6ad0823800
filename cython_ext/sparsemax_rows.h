/* Sparsemax of one row, for one floating type: a template. The NumPy twin, with the derivation, is
 * pyentmax/mappings/sparsemax.py.
 *
 * Scores are kept as gaps x = z - max z <= 0, and the threshold as t = -tau > 0, so that
 *
 *     p_i = [x_i + t]+   with   f(t) = sum_i [x_i + t]+ = 1   and   0 < t <= 1,
 *
 * the upper bound because the largest entry alone, x = 0, contributes t to the sum.
 */

/* sum [u]+ and the support size for u = x + t + rest; n is a whole number of lanes. */
static Moments TYPED(mass)(const REAL *x, ptrdiff_t n, REAL t, REAL rest) {
    if (n > LEAF) {
        ptrdiff_t half = half_of(n);
        Moments a = TYPED(mass)(x, half, t, rest), b = TYPED(mass)(x + half, n - half, t, rest);
        return (Moments){.sum = a.sum + b.sum, .size = a.size + b.size};
    }
    REAL sum[LANES] = {0}, size[LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            REAL u = (x[i + j] + t) + rest;
            size[j] += u > 0 ? (REAL)1 : (REAL)0;
            sum[j] += u > 0 ? u : (REAL)0;
        }
    return (Moments){.sum = TYPED(fold)(sum), .size = TYPED(fold)(size)};
}

/* Find t with f(t) = 1, from a start at or above it (Michelot's algorithm); leave f at t in *at_t.
 *
 * f is convex and piecewise linear, so the root of its tangent is at or above the root wanted, and it is
 * the root as soon as no entry leaves the support on the way there. Every other step drops one. */
static REAL TYPED(michelot)(const REAL *x, ptrdiff_t n, REAL t, Moments *at_t) {
    double size_before = 0;
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        Moments m = *at_t = TYPED(mass)(x, n, t, 0);
        if (m.size == size_before) break;
        size_before = m.size;
        t = (REAL)(t + (1 - m.sum) / m.size);
    }
    return t;
}

/* The mapping, with the conventions of entmax15_row, and its plan: a bound on t from the lanes' maxima,
 * the candidates above it, the root, its rounding, the rest of the sum. */
static void TYPED(sparsemax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                 REAL *restrict scratch) {
    REAL top[LANES];
    const REAL largest = TYPED(lane_maxima)(z, n, top);
    if (TYPED(has_no_maximum)(z, p, n, largest)) return;

    Moments m;
    TYPED(to_gaps)(top, LANES, largest, 1);
    REAL t = TYPED(michelot)(top, LANES, 1, &m);

    const ptrdiff_t size = TYPED(gather)(z, n, largest, 1, t, scratch);
    if (size < 0) {
        TYPED(fill)(p, n, (REAL)NAN);
        return;
    }
    t = TYPED(michelot)(scratch, size, t, &m);

    const REAL rest = (REAL)((1 - m.sum) / m.size);
    m = TYPED(mass)(scratch, size, t, rest);
    const REAL excess = (REAL)((1 - m.sum) / m.sum);
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL u = ((z[i] - largest) + t) + rest;
        u = u > 0 ? u : (REAL)0;
        p[i] = u + u * excess;
    }
}

static const TYPED(Forward) TYPED(sparsemax) = {TYPED(sparsemax_row)};
