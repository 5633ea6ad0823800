/* Logarithms of probabilities, -inf where those are 0, for one floating type: a template. The NumPy twin is
 * pyentmax/log_probabilities.py.
 *
 * A probability near 1 says little of its logarithm: that comes from what the others have left.
 */
#if IS_DOUBLE
#define MANTISSA_BITS 52
#define LN2_HIGH 0.693145751953125 /* 16 bits, so that its multiples by exponents are exact */
#define LN2_LOW 1.42860682030941723212e-6
#else
#define MANTISSA_BITS 23
#define LN2_HIGH 0.693359375f /* 9 bits */
#define LN2_LOW (-2.12194440054690583e-4f)
#endif
#define SURE ((REAL)0.75) /* at most one probability of a row is above it */

/* log((1 + a)/(1 - a)) = 2 artanh a for |a| <= 0.1716, by Taylor's series: what it leaves out is
 * below 0.1716^12/11 = 6e-11 of it after a^9, and 0.1716^24/23 = 2e-20 after a^21. */
static inline REAL TYPED(log_of_ratio)(REAL a) {
    const REAL s = a * a;
#if IS_DOUBLE
    REAL y = s * (1.0 / 21) + 1.0 / 19;
    y = y * s + 1.0 / 17;
    y = y * s + 1.0 / 15;
    y = y * s + 1.0 / 13;
    y = y * s + 1.0 / 11;
    y = y * s + 1.0 / 9;
#else
    REAL y = (REAL)(1.0 / 9);
#endif
    y = y * s + (REAL)(1.0 / 7);
    y = y * s + (REAL)(1.0 / 5);
    y = y * s + (REAL)(1.0 / 3);
    return 2 * a + 2 * a * (s * y);
}

/* log u of a normal u > 0: u = 2^e m with m between sqrt(1/2) and sqrt 2, m = (1 + a)/(1 - a). */
static inline REAL TYPED(natural_log)(REAL u) {
    const REAL middle = (REAL)0.70710678118654752;
    BITS bits, from;
    memcpy(&bits, &u, sizeof bits);
    memcpy(&from, &middle, sizeof from);
    const BITS exponent = (bits - from) >> MANTISSA_BITS;
    bits -= exponent * ((BITS)1 << MANTISSA_BITS);
    REAL m;
    memcpy(&m, &bits, sizeof m);
    const REAL e = (REAL)exponent, a = (m - 1) / (m + 1);
    return e * LN2_HIGH + (TYPED(log_of_ratio)(a) + e * LN2_LOW);
}

/* The sum of the entries up to SURE; n is at most LEAF. */
static double TYPED(unsure)(const REAL *p, ptrdiff_t n) {
    REAL sum[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += p[i + j] > SURE ? (REAL)0 : p[i + j];
    for (int j = 0; i + j < n; j++) sum[j] += p[i + j] > SURE ? (REAL)0 : p[i + j];
    return TYPED(lane_sum)(sum);
}

/* Probabilities to logarithms, in place. Where one is sure, log p = log(1 - o) of the others' sum o. */
static void TYPED(take_logs)(REAL *p, ptrdiff_t n) {
    double sum = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK)
        sum += TYPED(unsure)(p + start, n - start < CHUNK ? n - start : CHUNK);
    const REAL o = sum < 1 - SURE ? (REAL)sum : 1 - SURE, sure = TYPED(log_of_ratio)((0 - o) / (2 - o));

    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (!TYPED(any_nonzero)(p + start, end - start)) {
            TYPED(fill)(p + start, end - start, -(REAL)INFINITY);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i++) {
            const REAL unsure = TYPED(natural_log)(p[i]);
            const REAL log_p = p[i] > SURE ? sure : unsure;
            p[i] = p[i] == 0 ? -(REAL)INFINITY : p[i] > 0 ? log_p : p[i]; /* a NaN stays */
        }
    }
}

#define LOG_ROWS(name) \
    static void TYPED(log_##name##_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, \
                                        REAL *restrict scratch) { \
        TYPED(name).row(z, p, n, scratch); \
        TYPED(take_logs)(p, n); \
    } \
    static void TYPED(log_##name##_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], \
                                          int count, ptrdiff_t n, REAL *restrict scratch) { \
        TYPED(name).block(z, p, count, n, scratch); \
        for (int j = 0; j < count; j++) TYPED(take_logs)(p[j], n); \
    } \
    static const TYPED(Forward) TYPED(log_##name) = {TYPED(log_##name##_row), \
                                                     TYPED(log_##name##_block)};
LOG_ROWS(sparsemax)
LOG_ROWS(entmax15)
#undef LOG_ROWS

/* The scaled exponentials of all gaps but 0, and the number of those. */
static double TYPED(exponentials_below)(const REAL *z, ptrdiff_t n, REAL largest, double *ties) {
    if (n > LEAF) {
        const ptrdiff_t half = half_of(n);
        return TYPED(exponentials_below)(z, half, largest, ties)
               + TYPED(exponentials_below)(z + half, n - half, largest, ties);
    }
    const REAL unit = TYPED(scaled_exp)(0); /* taken off, not chosen against: that stays scalar */
    REAL sum[LANES] = {0}, zeros[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const REAL x = z[i + j] - largest, tie = x == 0 ? (REAL)1 : (REAL)0;
            sum[j] += TYPED(scaled_exp)(x) - tie * unit;
            zeros[j] += tie;
        }
    for (int j = 0; i + j < n; j++) {
        const REAL x = z[i + j] - largest, tie = x == 0 ? (REAL)1 : (REAL)0;
        sum[j] += TYPED(scaled_exp)(x) - tie * unit;
        zeros[j] += tie;
    }
    *ties += TYPED(lane_sum)(zeros);
    return TYPED(lane_sum)(sum);
}

/* log p = x - log sum exp x: no probability underflows on the way. */
static void TYPED(log_softmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                   REAL *restrict scratch) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(is_settled)(p, n, largest)) {
        if (largest < 0) TYPED(fill)(p, n, -(REAL)INFINITY);
        return;
    }
    double ties = 0;
    const double below = TYPED(exponentials_below)(z, n, largest, &ties);
    const REAL log_sum = (REAL)log1p(ties - 1 + below / TYPED(scaled_exp)(0));
    for (ptrdiff_t i = 0; i < n; i++) p[i] = (z[i] - largest) - log_sum;
}

static const TYPED(Forward) TYPED(log_softmax) = {TYPED(log_softmax_row), NULL};

#undef MANTISSA_BITS
#undef LN2_HIGH
#undef LN2_LOW
#undef SURE
