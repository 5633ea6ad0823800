/* The steps that the mappings of a row share, for one floating type: a template. */

/* A mapping: scores z to probabilities p, in the manner of entmax15_row. */
typedef struct {
    void (*row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, REAL *restrict scratch);
} TYPED(Forward);

/* The product of a mapping's Jacobian at p with v. */
typedef struct {
    void (*row)(const REAL *restrict p, const REAL *restrict v, REAL *restrict out, ptrdiff_t n);
} TYPED(Jvp);

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

static void TYPED(fill)(REAL *p, ptrdiff_t n, REAL value) {
    for (ptrdiff_t i = 0; i < n; i++) p[i] = value;
}

/* A row with nothing but -inf, or with +inf or only NaN, is settled: zeros, or NaN throughout. */
static bool TYPED(has_no_maximum)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                  REAL largest) {
    if (largest > -(REAL)INFINITY && largest < (REAL)INFINITY) return false;
    REAL value = largest > 0 ? (REAL)NAN : (REAL)0;
    for (ptrdiff_t i = 0; i < n; i++) value = z[i] != z[i] ? z[i] : value;
    TYPED(fill)(p, n, value);
    return true;
}

/* Scores to gaps scale (z - largest), in place; true if one of them is NaN. Scaling by 1 or 1/2 is
 * exact, the difference is rounded once, and -inf stays -inf, which no threshold lets in. */
static bool TYPED(to_gaps)(REAL *z, ptrdiff_t n, REAL largest, REAL scale) {
    int nans = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL x = (z[i] - largest) * scale;
        nans |= x != x;
        z[i] = x;
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

/* Copy every score that may be in the support, scale (z - largest) > -t, to the front of kept, as gaps
 * padded to whole lanes; return their padded number, or -1 if there is a NaN. scale is a power of 2.
 *
 * The test is made on the raw score. Rounding is monotone: z > largest - t/scale implies that z is at
 * least the rounded right-hand side, so nothing is lost, and !(z < floor) keeps a NaN as well. */
static ptrdiff_t TYPED(gather)(const REAL *restrict z, ptrdiff_t n, REAL largest, REAL scale,
                               REAL t, REAL *restrict kept) {
    const REAL floor = largest - t / scale;
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
    if (TYPED(to_gaps)(kept, size, largest, scale)) return -1;
    const ptrdiff_t padded = whole_lanes(size);
    for (i = size; i < padded; i++) kept[i] = OUTSIDE;
    return padded;
}
