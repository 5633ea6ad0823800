/* α-entmax of one row for α > 2, for one floating type: a template. The NumPy twin, with the derivation, is
 * bisect_largest in pyentmax/thresholds/halving.py.
 *
 * The sum is neither convex nor concave in the threshold here, and p leaves 0 so steeply that one ulp of
 * the threshold may be a large part of 1. So the largest probability q is enclosed, with
 *
 *     p_i(q) = q [1 + x_i/q^β]+^{1/β},   x = β (z - max z),   sum_i p_i(q) = 1,   1/d <= q <= 1,
 *
 * all p_i increasing in q, and the two ends of the last bracket are mixed such that the sum is 1: each
 * p_i^β is then between its values at the ends, a few ε of q^β apart.
 */

typedef struct {
    double q, sum;
} TYPED(Largest);

typedef struct {
    double beta;
    REAL *start;
    TYPED(Largest) *low, *high;
} TYPED(Steep);

/* t = q^β, though never so small that 1/t overflows, 0 times which would be a NaN. Its rounding,
 * β ε |log q|, is that of gaps x no larger than t: for the scores x/β, some ε. */
static REAL TYPED(power_of_largest)(double q, double beta) {
    const REAL exponent = (REAL)beta * TYPED(log2_of)((REAL)q), least = 2 - EXPONENT_BIAS;
    return TYPED(exp2_of)(exponent > least ? exponent : least);
}

/* p_i(q) of n <= LEAF gaps, whole pairs of lanes. */
static void TYPED(below_largest)(const REAL *restrict x, ptrdiff_t n, double beta, double q,
                                 REAL *restrict p) {
    REAL u[LEAF] = {0}, r[LEAF], b[BLOCK];
    const REAL steepness = 1 / TYPED(power_of_largest)(q, beta);
    const REAL largest = (REAL)q * TYPED(power_of_2)(ROUNDER, -SHIFT);
    for (int j = 0; j < BLOCK; j++) b[j] = (REAL)(1 / beta);
    for (ptrdiff_t i = 0; i < n; i++) {
        r[i] = x[i] * steepness;
        const REAL base = 1 + r[i];
        u[i] = (base > 0 ? base : (REAL)0) + POSITIVE;
    }
    TYPED(powers)(u, r, n, b, p);
    for (ptrdiff_t i = 0; i < n; i++) p[i] = u[i] > POSITIVE ? p[i] * largest : (REAL)0;
}

static TYPED(Largest) TYPED(try_largest)(const REAL *x, ptrdiff_t n, double beta, double q) {
    double total = 0;
    for (ptrdiff_t start = 0; start < n; start += LEAF) {
        const ptrdiff_t count = n - start < LEAF ? n - start : LEAF;
        REAL p[LEAF], sum[LANES] = {0};
        TYPED(below_largest)(x + start, count, beta, q, p);
        for (ptrdiff_t i = 0; i < count; i += LANES)
            for (int j = 0; j < LANES; j++) sum[j] += p[i + j];
        total += TYPED(lane_sum)(sum);
    }
    return (TYPED(Largest)){q, total};
}

/* The Solver: secants, each of them followed by a halving unless it halved the bracket itself. */
static REAL TYPED(steep_solve)(REAL *x, ptrdiff_t n, REAL start, const void *context,
                               Moments *at_t) {
    const TYPED(Steep) *steep = context;
    const double beta = steep->beta, narrow = IS_DOUBLE ? 4.5e-16 : 2.4e-7; /* 2 ε */
    TYPED(Largest) low = TYPED(try_largest)(x, n, beta, 1 / (double)n);
    TYPED(Largest) high = TYPED(try_largest)(x, n, beta, 1);
    (void)at_t;
    *steep->start = start;
    bool halve = false;
    while (high.q - low.q > narrow * high.q) {
        const double width = high.q - low.q, middle = low.q + width / 2;
        const double secant = low.q + (1 - low.sum) / (high.sum - low.sum) * width;
        const double least = narrow / 3 * high.q; /* a step that can be seen */
        double q = secant > low.q + least ? secant : low.q + least;
        q = q < high.q - least ? q : high.q - least;
        const TYPED(Largest) now = TYPED(try_largest)(x, n, beta, halve ? middle : q);
        if (now.sum >= 1) high = now;
        else low = now;
        halve = !halve && high.q - low.q > width / 2;
    }
    *steep->low = low;
    *steep->high = high;
    /* Up by what its rounding may have taken off: a gap that t barely reaches can hold a tenth of the sum. */
    const REAL root = TYPED(power_of_largest)(high.q, beta);
    const REAL above = root * (1 + ROUNDING * (1 - TYPED(log2_of)(root)));
    return above < 1 ? above : (REAL)1;
}

static void TYPED(steep_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                             REAL *restrict scratch) {
    TYPED(Search) found;
    TYPED(Largest) low, high;
    REAL start, *kept_p = scratch + scratch_size(n);
    const TYPED(Steep) steep = {alpha - 1, &start, &low, &high};
    if (!TYPED(search)(z, p, n, (REAL)(alpha - 1), TYPED(steep_solve), &steep, scratch, &found))
        return;
    const double gap = high.sum - low.sum, part = gap > 0 ? (1 - low.sum) / gap : 0;
    const REAL share = (REAL)(part < 0 ? 0 : part < 1 ? part : 1);
    for (ptrdiff_t start = 0; start < found.size; start += LEAF) {
        const ptrdiff_t count = found.size - start < LEAF ? found.size - start : LEAF;
        REAL upper[LEAF], *lower = kept_p + start;
        TYPED(below_largest)(found.kept + start, count, alpha - 1, low.q, lower);
        TYPED(below_largest)(found.kept + start, count, alpha - 1, high.q, upper);
        for (ptrdiff_t i = 0; i < count; i++) lower[i] += share * (upper[i] - lower[i]);
    }
    found.t = start;
    TYPED(spread)(z, n, (REAL)(alpha - 1), &found, kept_p, p);
}
