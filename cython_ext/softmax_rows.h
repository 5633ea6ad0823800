/* Softmax of one row, for one floating type: a template. The NumPy twin is
 * pyentmax/mappings/softmax.py.
 *
 * Exponentials are kept times 2^SHIFT, which the division by their sum takes out again. So the smallest
 * of them are ordinary numbers, and a probability that underflows is rounded once, at the end.
 */
#if IS_DOUBLE
#define LOWEST (-746) /* e^x is below half the smallest subnormal, hence 0, from here down */
#define SHIFT 512
#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1023
#define ROUNDER 6755399441055744.0 /* 1.5 x 2^52: adding it leaves the integer in the low bits */
#define LN2_HIGH 0.693145751953125 /* 16 bits, so that its multiples by up to 2^37 are exact */
#define LN2_LOW 1.42860682030941723212e-6
#else
#define LOWEST (-104)
#define SHIFT 64
#define MANTISSA_BITS 23
#define EXPONENT_BIAS 127
#define ROUNDER 12582912.0f /* 1.5 x 2^23 */
#define LN2_HIGH 0.693359375f /* 9 bits: multiples by up to 2^15 are exact */
#define LN2_LOW (-2.12194440054690583e-4f)
#endif

/* e^x 2^SHIFT for x <= 0: with k the integer nearest to x/log 2, it is 2^(k + SHIFT) e^r, and Taylor's
 * series for |r| <= log(2)/2 = 0.3466 leaves 0.3466^8/8! = 5e-9 after degree 7 and
 * 0.3466^14/14! = 4e-18 after degree 13: a fraction of a unit in the last place. */
static inline REAL TYPED(scaled_exp)(REAL x) {
    x = x > LOWEST ? x : (REAL)LOWEST;
    const REAL rounded = x * (REAL)1.44269504088896340736 + ROUNDER, k = rounded - ROUNDER;
    const REAL r = (x - k * LN2_HIGH) - k * LN2_LOW;
#if IS_DOUBLE
    REAL y = r * (1.0 / 6227020800) + 1.0 / 479001600;
    y = y * r + 1.0 / 39916800;
    y = y * r + 1.0 / 3628800;
    y = y * r + 1.0 / 362880;
    y = y * r + 1.0 / 40320;
    y = y * r + 1.0 / 5040;
#else
    REAL y = (REAL)(1.0 / 5040);
#endif
    y = y * r + (REAL)(1.0 / 720);
    y = y * r + (REAL)(1.0 / 120);
    y = y * r + (REAL)(1.0 / 24);
    y = y * r + (REAL)(1.0 / 6);
    y = y * r + (REAL)0.5;
    y = y * r + (REAL)1;
    y = y * r + (REAL)1;

    BITS exponent, offset;
    const REAL rounder = ROUNDER;
    memcpy(&exponent, &rounded, sizeof exponent);
    memcpy(&offset, &rounder, sizeof offset);
    exponent = (exponent - offset + (SHIFT + EXPONENT_BIAS)) * ((BITS)1 << MANTISSA_BITS);
    REAL power;
    memcpy(&power, &exponent, sizeof power);
    return y * power;
}

/* Write the exponentials and return their sum. */
static double TYPED(exponentials)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                  REAL largest) {
    if (n > LEAF) {
        ptrdiff_t half = half_of(n);
        return TYPED(exponentials)(z, p, half, largest)
               + TYPED(exponentials)(z + half, p + half, n - half, largest);
    }
    REAL sum[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            p[i + j] = TYPED(scaled_exp)(z[i + j] - largest);
            sum[j] += p[i + j];
        }
    for (int j = 0; i + j < n; j++) {
        p[i + j] = TYPED(scaled_exp)(z[i + j] - largest);
        sum[j] += p[i + j];
    }
    return TYPED(lane_sum)(sum);
}

static void TYPED(softmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                               REAL *restrict scratch) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(is_settled)(p, n, largest)) return;

    const REAL share = (REAL)(1 / TYPED(exponentials)(z, p, n, largest));
    for (ptrdiff_t i = 0; i < n; i++) p[i] *= share;
}

static const TYPED(Forward) TYPED(softmax) = {TYPED(softmax_row), NULL};

#undef LOWEST
#undef SHIFT
#undef MANTISSA_BITS
#undef EXPONENT_BIAS
#undef ROUNDER
#undef LN2_HIGH
#undef LN2_LOW
