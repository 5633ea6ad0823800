/* 1.5-entmax of one row, for one floating type: a template.
 *
 * Included once per type, with REAL the type and TYPED(name) giving functions its suffix. The NumPy
 * twin, with the derivation, is pyentmax/mappings/entmax15.py; the equations are section 3.3 and
 * appendix C of Peters, Niculae and Martins (2019).
 *
 * Scores are kept as half gaps h = (z - max z)/2 <= 0, and the threshold as t = -tau > 0, so that
 *
 *     p_i = [h_i + t]+^2   with   f(t) = sum_i [h_i + t]+^2 = 1   and   0 < t <= 1,
 *
 * the upper bound because the largest entry alone, h = 0, contributes t^2 to the sum.
 */

/* The largest entry of each lane into top, the largest of all returned. The comparison is false for
 * a NaN, which is passed over here and found by gather() below. */
static REAL TYPED(lane_maxima)(const REAL *restrict z, ptrdiff_t n, REAL *restrict top) {
    REAL lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = -(REAL)INFINITY;
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = z[i + j] > lane[j] ? z[i + j] : lane[j];
    for (int j = 0; i + j < n; j++) lane[j] = z[i + j] > lane[j] ? z[i + j] : lane[j];

    REAL largest = lane[0];
    for (int j = 0; j < LANES; j++) {
        top[j] = lane[j];
        largest = lane[j] > largest ? lane[j] : largest;
    }
    return largest;
}

/* Scores to half gaps, in place; true if one of them is NaN. Halving is exact, the difference is
 * rounded once, and -inf stays -inf, which no threshold lets into the support. */
static bool TYPED(to_half_gaps)(REAL *z, ptrdiff_t n, REAL largest) {
    int nans = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL h = (z[i] - largest) * (REAL)0.5;
        nans |= h != h;
        z[i] = h;
    }
    return nans != 0;
}

/* The sum of the lanes: to a quarter of them with vector adds, the rest in double. */
static inline double TYPED(fold)(const REAL *lane) {
    REAL quarter[LANES / 4];
    for (int j = 0; j < LANES / 4; j++)
        quarter[j] = (lane[j] + lane[j + LANES / 4])
                     + (lane[j + LANES / 2] + lane[j + 3 * (LANES / 4)]);
    double total = 0;
    for (int j = 0; j < LANES / 4; j++) total += quarter[j];
    return total;
}

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

        double exact = t + quadratic_step(m);
        bool trust = lower < exact && exact <= upper;
        REAL next = (REAL)(trust ? exact : upper);
        if (next == t) break;
        size_before = trust ? m.size : 0;
        t = next;
    }
    return t;
}

/* Copy every score that may be in the support, h > -t, to the front of kept, as half gaps padded
 * to whole lanes; return their padded number, or -1 if there is a NaN.
 *
 * The test is made on the raw score. Rounding is monotone: z > largest - 2t implies that z is at
 * least the rounded right-hand side, so nothing is lost, and !(z < floor) keeps a NaN as well. */
static ptrdiff_t TYPED(gather)(const REAL *restrict z, ptrdiff_t n, REAL largest, REAL t,
                               REAL *restrict kept) {
    const REAL floor = largest - 2 * t;
    ptrdiff_t size = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        int any = 0;
        for (int j = 0; j < LANES; j++) any |= !(z[i + j] < floor);
        if (!any) continue; /* most of a long row ends here */
        for (int j = 0; j < LANES; j++) {
            kept[size] = z[i + j];
            size += !(z[i + j] < floor);
        }
    }
    for (; i < n; i++) {
        kept[size] = z[i];
        size += !(z[i] < floor);
    }
    if (TYPED(to_half_gaps)(kept, size, largest)) return -1;
    const ptrdiff_t padded = whole_lanes(size);
    for (i = size; i < padded; i++) kept[i] = OUTSIDE;
    return padded;
}

static void TYPED(fill)(REAL *p, ptrdiff_t n, REAL value) {
    for (ptrdiff_t i = 0; i < n; i++) p[i] = value;
}

/* The mapping: scores z to probabilities p. -inf excludes an entry; nothing left gives zeros; a NaN
 * or +inf gives NaN throughout. scratch holds whole_lanes(n) values. */
static void TYPED(entmax15_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                REAL *restrict scratch) {
    REAL top[LANES];
    const REAL largest = TYPED(lane_maxima)(z, n, top);
    if (largest == -(REAL)INFINITY) { /* nothing but -inf and NaN */
        REAL value = 0;
        for (ptrdiff_t i = 0; i < n; i++) value = z[i] != z[i] ? z[i] : value;
        TYPED(fill)(p, n, value);
        return;
    }
    if (largest == (REAL)INFINITY) {
        TYPED(fill)(p, n, (REAL)NAN);
        return;
    }

    /* The lanes' maxima are a part of the row, and leaving entries out can only lower f: the t that
     * solves for them alone is at or above the row's. A few cheap passes over LANES numbers thus
     * tell which scores cannot matter. (t is rounded, by a few units of its last place; an entry lost
     * to that has [h + t]+ as small, and a probability that is the square of it.) */
    Moments m;
    TYPED(to_half_gaps)(top, LANES, largest);
    REAL t = TYPED(solve)(top, LANES, 1, &m);

    const ptrdiff_t size = TYPED(gather)(z, n, largest, t, scratch);
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
    const REAL rest = (REAL)quadratic_step(m);
    m = TYPED(moments)(scratch, size, t, rest);
    const REAL excess = (REAL)((1 - m.squares) / m.squares);
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL u = ((z[i] - largest) * (REAL)0.5 + t) + rest;
        u = u > 0 ? u : (REAL)0;
        REAL q = u * u;
        p[i] = q + q * excess;
    }
}

/* sum s v and sum s over the support, s = sqrt(p). */
static Weighted TYPED(weigh)(const REAL *p, const REAL *v, ptrdiff_t n) {
    if (n > LEAF) {
        ptrdiff_t half = half_of(n);
        Weighted a = TYPED(weigh)(p, v, half), b = TYPED(weigh)(p + half, v + half, n - half);
        return (Weighted){a.product + b.product, a.weight + b.weight};
    }
    REAL product[LANES] = {0}, weight[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            REAL s = SQRT(p[i + j]), along = v[i + j];
            weight[j] += s;
            product[j] += s == 0 ? (REAL)0 : s * along;
        }
    for (int j = 0; i + j < n; j++) {
        REAL s = SQRT(p[i + j]), along = v[i + j];
        weight[j] += s;
        product[j] += s == 0 ? (REAL)0 : s * along;
    }
    return (Weighted){TYPED(fold)(product), TYPED(fold)(weight)};
}

/* The Jacobian at p times v: s * (v - (s.v)/sum s) with s = sqrt(p), proposition 1 of the paper. Off
 * the support the answer is 0 whatever v holds there; without any support it is all zeros. */
static void TYPED(entmax15_jvp_row)(const REAL *restrict p, const REAL *restrict v,
                                    REAL *restrict out, ptrdiff_t n) {
    const Weighted w = TYPED(weigh)(p, v, n);
    const REAL mean = (REAL)(w.product / w.weight);
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL s = SQRT(p[i]), along = v[i]; /* read always, or the loop stays scalar */
        out[i] = s == 0 ? (REAL)0 : s * (along - mean);
    }
}
