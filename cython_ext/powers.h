/* u^b for many u at once, for one floating type: a template.
 *
 * With u = 2^e m, m between sqrt(1/2) and sqrt 2, and a = (m - 1)/(m + 1),
 *
 *     log2 u = e + (2/log 2) artanh a,    u^b = 2^k 2^g,    k the integer nearest to b log2 u,
 *
 * and both functions are polynomials: artanh(a)/a in a^2 <= 0.0295, (2^g - 1)/g for |g| <= 1/2. The
 * coefficients are those of mpmath.chebyfit on these intervals. Their errors, of 3 ε and 1 ε for float and
 * a tenth of that for double, are the same for neighbours and so mostly divided out.
 *
 * A power takes some fifty instructions, each waiting for the one before. A processor overlaps as many
 * entries as fit its window, so the work goes in short loops over a LEAF, which fit more often.
 *
 * Powers are kept times 2^SHIFT, so that small ones are ordinary numbers while they are worked with.
 */
#if IS_DOUBLE
#define SHIFT 512
#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1023
#define ROUNDER 6755399441055744.0 /* 1.5 x 2^52: adding it leaves the integer in the low bits */
#else
#define SHIFT 64
#define MANTISSA_BITS 23
#define EXPONENT_BIAS 127
#define ROUNDER 12582912.0f /* 1.5 x 2^23 */
#endif

static inline BITS TYPED(bits_of)(REAL x) {
    BITS bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline REAL TYPED(from_bits)(BITS bits) {
    REAL x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* a and e of u = 1 + r > 0, normal: r itself tells more of u near 1. */
static inline REAL TYPED(log_ratio)(REAL u, REAL r, REAL *e) {
    const BITS above = TYPED(bits_of)(u) - TYPED(bits_of)((REAL)0.70710678118654752);
    const BITS exponent = above >> MANTISSA_BITS;
    const REAL m = TYPED(from_bits)(TYPED(bits_of)(u) - exponent * ((BITS)1 << MANTISSA_BITS));
    const REAL f = exponent == 0 ? r : m - 1;
    *e = TYPED(from_bits)(TYPED(bits_of)(ROUNDER) + exponent) - ROUNDER;
    return f / (f + 2);
}

/* log2 u from its a and e. */
static inline REAL TYPED(log2_from_ratio)(REAL a, REAL e) {
    const REAL q = a * a;
#if IS_DOUBLE
    REAL y = (REAL)0.213658956943192694 * q + (REAL)0.220913084231176796;
    y = y * q + (REAL)0.262334352504183019;
    y = y * q + (REAL)0.320598534913959861;
    y = y * q + (REAL)0.412198585840900534;
    y = y * q + (REAL)0.577078016345520229;
    y = y * q + (REAL)0.961796693925989729;
    y = y * q + (REAL)2.88539008177792681;
#else
    REAL y = (REAL)0.595759606900371939 * q + (REAL)0.961588946694078088;
    y = y * q + (REAL)2.88539042196183265;
#endif
    return a * y + e;
}

/* (2^g - 1)/g for |g| <= 1/2. */
static inline REAL TYPED(exp2_slope)(REAL g) {
#if IS_DOUBLE
    REAL y = (REAL)4.45496059818651839e-10 * g + (REAL)7.0725859492692237e-9;
    y = y * g + (REAL)1.01780624458457735e-7;
    y = y * g + (REAL)1.32154425879216897e-6;
    y = y * g + (REAL)1.52527338298361184e-5;
    y = y * g + (REAL)1.54035304417360502e-4;
    y = y * g + (REAL)1.33335581464169353e-3;
    y = y * g + (REAL)9.61812910760688853e-3;
    y = y * g + (REAL)0.0555041086648215943;
    y = y * g + (REAL)0.240226506959100982;
    return y * g + (REAL)0.693147180559945309;
#else
    REAL y = (REAL)1.33813025373207962e-3 * g + (REAL)9.66636851538544831e-3;
    y = y * g + (REAL)0.0555038101379645743;
    y = y * g + (REAL)0.240223490380203614;
    return y * g + (REAL)0.693147180559945309;
#endif
}

/* 2^(k + shift) for an integer k, given as k + ROUNDER. */
static inline REAL TYPED(power_of_2)(REAL rounded, int shift) {
    const BITS k = TYPED(bits_of)(rounded) - TYPED(bits_of)(ROUNDER);
    return TYPED(from_bits)((k + (shift + EXPONENT_BIAS)) * ((BITS)1 << MANTISSA_BITS));
}

/* 2^x 2^SHIFT; from the lowest exponent down a number that nothing but 0 is left of at the end. */
static inline REAL TYPED(scaled_exp2)(REAL x) {
    const REAL lowest = 2 - EXPONENT_BIAS - SHIFT;
    x = x > lowest ? x : lowest;
    const REAL rounded = x + ROUNDER, g = x - (rounded - ROUNDER);
    return (TYPED(exp2_slope)(g) * g + 1) * TYPED(power_of_2)(rounded, SHIFT);
}

/* 2^x for x between -EXPONENT_BIAS and EXPONENT_BIAS, and log2 u. */
static inline REAL TYPED(exp2_of)(REAL x) {
    const REAL rounded = x + ROUNDER, g = x - (rounded - ROUNDER);
    return (TYPED(exp2_slope)(g) * g + 1) * TYPED(power_of_2)(rounded, 0);
}

static inline REAL TYPED(log2_of)(REAL u) {
    REAL e;
    const REAL a = TYPED(log_ratio)(u, u - 1, &e);
    return TYPED(log2_from_ratio)(a, e);
}

/* u^b 2^SHIFT for n <= LEAF entries, whole pairs of lanes, with a b to each; u = 1 + r is positive
 * and normal, and b log2 u at most EXPONENT_BIAS - SHIFT. r is overwritten. */
static void TYPED(powers)(const REAL *restrict u, REAL *restrict r, ptrdiff_t n,
                          const REAL *restrict b, REAL *restrict power) {
    for (ptrdiff_t i = 0; i < n; i++) r[i] = TYPED(log_ratio)(u[i], r[i], power + i);
    for (ptrdiff_t i = 0; i < n; i += BLOCK)
        for (int j = 0; j < BLOCK; j++)
            r[i + j] = b[j] * TYPED(log2_from_ratio)(r[i + j], power[i + j]);
    for (ptrdiff_t i = 0; i < n; i++) power[i] = TYPED(scaled_exp2)(r[i]);
}
