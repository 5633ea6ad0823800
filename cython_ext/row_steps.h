/* The steps that the mappings of a row share, for one floating type: a template. */

/* A mapping: scores z to probabilities p. -inf excludes an entry; nothing left gives zeros; a NaN or
 * +inf gives NaN throughout. scratch holds scratch_size(n) values. block, if there is one, does
 * count <= BLOCK rows of at most SHORT entries at once, each as if it were alone; all of z are rows. */
typedef struct {
    void (*row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, REAL *restrict scratch);
    void (*block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count, ptrdiff_t n,
                  REAL *restrict scratch);
} TYPED(Forward);

/* The product of a mapping's Jacobian at p with v. */
typedef struct {
    void (*row)(const REAL *restrict p, const REAL *restrict v, REAL *restrict out, ptrdiff_t n);
} TYPED(Jvp);

/* The largest of twice as many lanes as usual, which a comparison and a choice take to overlap. */
static inline REAL TYPED(largest_lane)(const REAL *lane) {
    REAL largest = lane[0];
    for (int j = 1; j < 2 * LANES; j++) largest = lane[j] > largest ? lane[j] : largest;
    return largest;
}

static void TYPED(fill)(REAL *p, ptrdiff_t n, REAL value) {
    for (ptrdiff_t i = 0; i < n; i++) p[i] = value;
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

/* The largest entry of each CHUNK of the row, and of all of them returned: NaN if there is one.
 *
 * A comparison passes over a NaN, a sum does not: sums of entries so scaled down that finite ones cannot
 * overflow become NaN by a NaN, or by +inf beside -inf, and +inf spoils a row as well. */
static REAL TYPED(chunk_maxima)(const REAL *restrict z, ptrdiff_t n, REAL *restrict maxima) {
    REAL largest = -(REAL)INFINITY, nans[2 * LANES] = {0}, lane[2 * LANES];
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        for (int j = 0; j < 2 * LANES; j++) lane[j] = -(REAL)INFINITY;
        ptrdiff_t i = start;
        for (; i + 2 * LANES <= end; i += 2 * LANES)
            for (int j = 0; j < 2 * LANES; j++) {
                REAL entry = z[i + j];
                lane[j] = entry > lane[j] ? entry : lane[j];
                nans[j] += entry * MINUTE;
            }
        for (; i < end; i++) {
            lane[0] = z[i] > lane[0] ? z[i] : lane[0];
            nans[0] += z[i] * MINUTE;
        }
        const REAL top = maxima[start / CHUNK] = TYPED(largest_lane)(lane);
        largest = top > largest ? top : largest;
    }
    for (int j = 0; j < 2 * LANES; j++) largest = nans[j] != nans[j] ? nans[j] : largest;
    return largest;
}

/* A row with nothing but -inf gives zeros, one with +inf or NaN gives NaN. */
static bool TYPED(is_settled)(REAL *restrict p, ptrdiff_t n, REAL largest) {
    if (largest > -(REAL)INFINITY && largest < (REAL)INFINITY) return false;
    TYPED(fill)(p, n, largest < 0 ? (REAL)0 : (REAL)NAN);
    return true;
}

/* sum [u]+^2, sum [u]+ and the support size for u = x + t + rest; n is a whole number of lanes. */
static Moments TYPED(moments)(const REAL *x, ptrdiff_t n, REAL t, REAL rest) {
    if (n > LEAF) {
        ptrdiff_t half = half_of(n);
        Moments a = TYPED(moments)(x, half, t, rest);
        Moments b = TYPED(moments)(x + half, n - half, t, rest);
        return (Moments){a.squares + b.squares, a.sum + b.sum, a.size + b.size};
    }
    REAL squares[LANES] = {0}, sum[LANES] = {0}, size[LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            REAL u = (x[i + j] + t) + rest;
            size[j] += u > 0 ? (REAL)1 : (REAL)0;
            u = u > 0 ? u : (REAL)0;
            sum[j] += u;
            squares[j] += u * u;
        }
    return (Moments){TYPED(fold)(squares), TYPED(fold)(sum), TYPED(fold)(size)};
}
