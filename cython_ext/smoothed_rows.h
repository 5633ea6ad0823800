/* fusedmax and oscarmax: sparsemax of smoothed scores, for one floating type: a template. The NumPy twins
 * are pyentmax/mappings/fusedmax.py and oscarmax.py.
 */

/* A mapping: smooth a row of scores in place, with a strength above 0; -inf, which stands for masked,
 * stays. Of the result only differences count: what is the same for all, sparsemax takes out again.
 * room is for ROOM n doubles. */
typedef struct {
    void (*smooth)(REAL *z, ptrdiff_t n, double strength, double *restrict room);
} TYPED(Smoothed);

/* A mapping with a parameter; room is for ROOM n doubles, n in whole lanes. */
typedef struct {
    void (*row)(const REAL *restrict z, double parameter, REAL *restrict p, ptrdiff_t n,
                double *restrict room);
} TYPED(Parametric);

/* The product of a mapping's Jacobian at p with v, given its parameter; room is for ROOM n doubles. */
typedef struct {
    void (*row)(const REAL *p, const REAL *v, double parameter, REAL *out, ptrdiff_t n,
                double *restrict room);
} TYPED(Product);

/* The largest of the row, or NaN if it holds one. */
static REAL TYPED(top_score)(const REAL *z, ptrdiff_t n) {
    REAL top = -(REAL)INFINITY;
    bool spoilt = false;
    for (ptrdiff_t i = 0; i < n; i++) {
        top = z[i] > top ? z[i] : top;
        spoilt |= z[i] != z[i];
    }
    return spoilt ? (REAL)NAN : top;
}

/* x = (z - top)/scale, but no lower than floor/scale, and -inf where z is; returns the least.
 *
 * A finite score never becomes -inf, which is only what is ruled out: where all is fused it counts
 * however low it is. */
static double TYPED(scaled_down)(const REAL *z, ptrdiff_t n, REAL top, double floor, double scale,
                                 double *x) {
    double least = 0;
    const double part = 1 / scale;
    floor = floor > -DBL_MAX ? floor : -DBL_MAX;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double gap = (double)z[i] - top, raised = (gap > floor ? gap : floor) * part;
        x[i] = z[i] > -(REAL)INFINITY ? raised : -(double)INFINITY;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        least = x[i] < least && x[i] > -(double)INFINITY ? x[i] : least;
    return least;
}

/* u, of which differences to the largest count, back to the size and type of scores. */
static void TYPED(scaled_up)(const double *u, ptrdiff_t n, double scale, REAL *z) {
    double top = -(double)INFINITY;
    for (ptrdiff_t i = 0; i < n; i++) top = u[i] > top ? u[i] : top;
    for (ptrdiff_t i = 0; i < n; i++) z[i] = (REAL)((u[i] - top) * scale);
}

/* A weight above n times the range of the scores does nothing that this much does not: it fuses all.
 *
 * Two edges move a score by 2 strength at most. So max u >= -2 strength, tau >= -1 - 2 strength, and a score
 * at or below -1 - 4 strength gets nothing. To its neighbour that is an edge |p_j - 0| = p_j: the
 * neighbour scores less by the strength, and the chain is cut. Scores on two sides of a masked
 * entry are no neighbours either: what is left between is a chain of its own. */
static void TYPED(smooth_fused)(REAL *z, ptrdiff_t n, double strength, double *restrict room) {
    const REAL top = TYPED(top_score)(z, n);
    if (!(top > -(REAL)INFINITY && top < (REAL)INFINITY)) return; /* sparsemax knows what to do */
    const double scale = headroom(n), nothing = -(double)INFINITY;
    const double floor = -1 - 4 * strength, bottom = floor / scale;
    double *x = room;
    const double least = TYPED(scaled_down)(z, n, top, floor, scale, x);
    const double most = -least * (double)n, asked = strength / scale;
    const double weight = asked < most ? asked : most;
    for (ptrdiff_t start = 0, end; start < n; start = end) {
        for (end = start; end < n && x[end] > bottom; end++) {}
        if (end == start) {
            end++;
            continue;
        }
        if (start > 0 && x[start - 1] > nothing) x[start] -= weight;
        if (end < n && x[end] > nothing) x[end - 1] -= weight;
        if (end - start > 1 && weight > 0) smooth_chain(x + start, end - start, weight, room + n);
    }
    for (ptrdiff_t i = 0; i < n; i++) x[i] = x[i] > bottom ? x[i] : nothing;
    TYPED(scaled_up)(x, n, scale, z);
}

/* A key that rises as a number falls: the bits of a float, read as an integer, rise with it if it is
 * positive and fall if it is negative. */
static inline uint64_t TYPED(falling_key)(REAL number) {
    BITS bits;
    memcpy(&bits, &number, sizeof bits);
    const uint64_t all = IS_DOUBLE ? UINT64_MAX : UINT32_MAX, sign = all / 2 + 1;
    return bits < 0 ? (uint64_t)bits & all : all - sign - (uint64_t)bits;
}

/* Sorted so that scores fall, adding strength times the place makes the pairs' pull linear, and what
 * is wanted the falling sequence nearest to that.
 *
 * Scores below -1 - n strength may be raised to that: fewer than n edges of weight strength/2 move u by
 * less than n strength/2, so tau > -1 - n strength/2, and what lies as much lower again still gets
 * nothing. The least are then alike, need no sorting, and are pooled in any case. Where rounding could
 * make up for the difference, as with strength nearly 0, it is another 1. */
static void TYPED(smooth_oscar)(REAL *z, ptrdiff_t n, double strength, double *restrict room) {
    const REAL top = TYPED(top_score)(z, n);
    if (!(top > -(REAL)INFINITY && top < (REAL)INFINITY)) return;
    const double scale = headroom(n);
    double *x = room, *y = room + n;
    Ranked *entries = (Ranked *)(room + 2 * n); /* n, and n more to sort them in */
    const double floor = -2 - (double)n * strength;
    const double least = TYPED(scaled_down)(z, n, top, floor, scale, x);
    const double asked = strength / scale, weight = asked < -least ? asked : -least;

    ptrdiff_t higher = 0, live = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (x[i] > least) entries[higher++] = (Ranked){TYPED(falling_key)(z[i]), i};
        live += x[i] > -(double)INFINITY;
    }
    const Ranked *sorted = sort_by_key(entries, higher, sizeof(REAL), entries + n);
    const double middle = (double)(live - 1) / 2;
    for (ptrdiff_t i = 0; i < live; i++)
        y[i] = (i < higher ? x[sorted[i].place] : least) + weight * ((double)i - middle);
    pool_rises(y, live, (Pool *)(room + 6 * n));
    for (ptrdiff_t i = 0; i < n; i++) x[i] = x[i] == least ? y[higher] : x[i];
    for (ptrdiff_t i = 0; i < higher; i++) x[sorted[i].place] = y[i];
    TYPED(scaled_up)(x, n, scale, z);
}

/* v where p is not 0, else 0: off the support it may hold anything. A NaN in p stays one. */
static inline double TYPED(on_support)(REAL p, REAL v) {
    return p != p ? (double)p : p != 0 ? (double)v : 0;
}

/* J v: v's mean over each fused run, less that over the support. */
static void TYPED(fusedmax_product)(const REAL *p, const REAL *v, double strength, REAL *out,
                                    ptrdiff_t n, double *restrict room) {
    double *key = room, *along = room + n;
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        key[i] = p[i];
        along[i] = TYPED(on_support)(p[i], v[i]);
        size += p[i] != 0;
    }
    subtract_mean(key, along, n, size, strength > 0);
    for (ptrdiff_t i = 0; i < n; i++) out[i] = (REAL)along[i];
}

/* The same with groups anywhere: sorting p makes runs of them. */
static void TYPED(oscarmax_product)(const REAL *p, const REAL *v, double strength, REAL *out,
                                    ptrdiff_t n, double *restrict room) {
    double *key = room, *along = room + n;
    Ranked *entries = (Ranked *)(room + 2 * n);
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        if (p[i] != 0) entries[size++] = (Ranked){TYPED(falling_key)(p[i]), i};
    const Ranked *sorted = sort_by_key(entries, size, sizeof(REAL), entries + n);
    for (ptrdiff_t k = 0; k < size; k++) {
        const ptrdiff_t i = sorted[k].place;
        key[k] = p[i];
        along[k] = TYPED(on_support)(p[i], v[i]);
    }
    subtract_mean(key, along, size, size, strength > 0);
    TYPED(fill)(out, n, 0);
    for (ptrdiff_t k = 0; k < size; k++) out[sorted[k].place] = (REAL)along[k];
}

static const TYPED(Smoothed) TYPED(fusedmax) = {TYPED(smooth_fused)};
static const TYPED(Smoothed) TYPED(oscarmax) = {TYPED(smooth_oscar)};
static const TYPED(Product) TYPED(fusedmax_jvp) = {TYPED(fusedmax_product)};
static const TYPED(Product) TYPED(oscarmax_jvp) = {TYPED(oscarmax_product)};
