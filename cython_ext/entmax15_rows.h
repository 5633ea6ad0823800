/* 1.5-entmax of one row, for one floating type: a template.
 *
 * The NumPy twin, with the derivation, is pyentmax/mappings/entmax15.py; the equations are section 3.3
 * and appendix C of Peters, Niculae and Martins (2019).
 *
 * Scores are kept as half gaps h = (z - max z)/2 <= 0, and the threshold as t = -tau > 0, so that
 *
 *     p_i = [h_i + t]+^2   with   f(t) = sum_i [h_i + t]+^2 = 1   and   0 < t <= 1,
 *
 * the upper bound because the largest entry alone, h = 0, contributes t^2 to the sum.
 */

/* sum [u]+^2, sum [u]+ and the support size for u = h + t + rest; n is a whole number of lanes. */
static Moments TYPED(moments)(const REAL *h, ptrdiff_t n, REAL t, REAL rest) {
    if (n > LEAF) {
        ptrdiff_t half = half_of(n);
        Moments a = TYPED(moments)(h, half, t, rest);
        Moments b = TYPED(moments)(h + half, n - half, t, rest);
        return (Moments){a.squares + b.squares, a.sum + b.sum, a.size + b.size};
    }
    REAL squares[LANES] = {0}, sum[LANES] = {0}, size[LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            REAL u = (h[i + j] + t) + rest;
            size[j] += u > 0 ? (REAL)1 : (REAL)0;
            u = u > 0 ? u : (REAL)0;
            sum[j] += u;
            squares[j] += u * u;
        }
    return (Moments){TYPED(fold)(squares), TYPED(fold)(sum), TYPED(fold)(size)};
}

/* How far t has to move for sum (h + t)^2 = 1 over a fixed support: the larger root of
 * size d^2 + 2 sum d + squares - 1 = 0, in the form that does not cancel. A negative
 * discriminant means that no t does it, and the vertex of the parabola comes closest. */
static inline double TYPED(quadratic_step)(Moments m) {
    double excess = m.squares - 1, discriminant = m.sum * m.sum - m.size * excess;
    return -excess / (m.sum + sqrt(discriminant > 0 ? discriminant : 0));
}

/* Find t with f(t) = 1, from a start in (0, 1]; leave f's moments at t in *at_t.
 *
 * Each pass takes two steps from t. The square root of f, the norm of [h + t]+, is convex in t, so
 * the root of its tangent is at or above the root wanted: the tangent step always gives an upper
 * bound. If the support is right already, f is a quadratic around t, and the quadratic's own root
 * is exact: that step is taken when it lies within the bounds known so far. Supports are nested in
 * t, so two passes in a row that count the same size saw the same support, and the root is found.
 */
static REAL TYPED(solve)(REAL *h, ptrdiff_t n, REAL t, Moments *at_t) {
    double lower = 0, upper = 1, size_before = 0;
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        Moments m = *at_t = TYPED(moments)(h, n, t, 0);
        if (m.size == size_before) break;

        double norm = sqrt(m.squares), tangent = t + (1 - norm) * norm / m.sum;
        if (m.squares < 1 && t > lower) lower = t;
        if (m.squares >= 1 && t < upper) upper = t;
        if (tangent < upper) upper = tangent;

        double exact = t + TYPED(quadratic_step)(m);
        bool trust = lower < exact && exact <= upper;
        REAL next = (REAL)(trust ? exact : upper);
        if (next == t) break;
        size_before = trust ? m.size : 0;
        t = next;
    }
    return t;
}

/* The mapping: scores z to probabilities p. -inf excludes an entry; nothing left gives zeros; a NaN
 * or +inf gives NaN throughout. scratch holds whole_lanes(n) values. */
static void TYPED(entmax15_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                REAL *restrict scratch) {
    REAL top[LANES];
    const REAL largest = TYPED(lane_maxima)(z, n, top);
    if (TYPED(has_no_maximum)(z, p, n, largest)) return;

    /* The lanes' maxima are a part of the row, and leaving entries out can only lower f: the t that
     * solves for them alone is at or above the row's. A few cheap passes over LANES numbers thus
     * tell which scores cannot matter. (t is rounded, by a few units of its last place; an entry lost
     * to that has [h + t]+ as small, and a probability that is the square of it.) */
    Moments m;
    TYPED(to_gaps)(top, LANES, largest, (REAL)0.5);
    REAL t = TYPED(solve)(top, LANES, 1, &m);

    const ptrdiff_t size = TYPED(gather)(z, n, largest, (REAL)0.5, t, scratch);
    if (size < 0) {
        TYPED(fill)(p, n, (REAL)NAN);
        return;
    }
    t = TYPED(solve)(scratch, size, t, &m);

    /* t is the root rounded to REAL, and all entries would share that error, which many small ones
     * add up to something visible. The last step of the quadratic, too small to matter in t itself, is
     * therefore added to h + t: (h + t) + rest is right to a few units of its own last place.
     *
     * What is then left of the sum's distance from 1 is divided out: 1/squares = 1 + excess, and
     * q + q excess is rounded as if excess were exact. Ties share alike, two of them 1/2 each. */
    const REAL rest = (REAL)TYPED(quadratic_step)(m);
    m = TYPED(moments)(scratch, size, t, rest);
    const REAL excess = (REAL)((1 - m.squares) / m.squares);
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL u = ((z[i] - largest) * (REAL)0.5 + t) + rest;
        u = u > 0 ? u : (REAL)0;
        REAL q = u * u;
        p[i] = q + q * excess;
    }
}

static const TYPED(Forward) TYPED(entmax15) = {TYPED(entmax15_row)};
