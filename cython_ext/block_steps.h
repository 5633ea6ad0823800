/* Many short rows at once, for one floating type: a template.
 *
 * A sum along a short row is mostly the sum of its lanes at the end, which no vector unit does well. So
 * BLOCK rows are interleaved in a tile, entry i of row j at tile[i BLOCK + j]: every operation
 * is then on BLOCK rows side by side, and each column runs its own search. What a column finds does
 * not depend on its neighbours, so a row's result does not depend on where it is in a batch.
 */

/* Moments of the columns of a tile. */
typedef struct {
    REAL squares[BLOCK], sum[BLOCK], size[BLOCK];
} TYPED(BlockMoments);

/* One shuffle of two packs of cards, on a square of BLOCK rows of LANES: the places of rows k and
 * k + BLOCK/2 become alternating places of rows 2k and 2k + 1. In binary, the place's number is
 * rotated by one bit, so as many shuffles as LANES has bits swap rows with columns. */
static inline void TYPED(shuffle)(const REAL *const from[BLOCK], REAL *const to[BLOCK]) {
    for (int k = 0; k < BLOCK / 2; k++) {
        const REAL *restrict a = from[k], *restrict b = from[k + BLOCK / 2];
        REAL *restrict low = to[2 * k], *restrict high = to[2 * k + 1];
        for (int j = 0; j < LANES / 2; j++) {
            low[2 * j] = a[j];
            low[2 * j + 1] = b[j];
        }
        for (int j = 0; j < LANES / 2; j++) {
            high[2 * j] = a[LANES / 2 + j];
            high[2 * j + 1] = b[LANES / 2 + j];
        }
    }
}

/* Swap rows with columns; room holds two squares. */
static inline void TYPED(transpose)(const REAL *const from[BLOCK], REAL *const to[BLOCK],
                                    REAL *restrict room) {
    REAL *one[BLOCK], *two[BLOCK];
    for (int k = 0; k < BLOCK; k++) {
        one[k] = room + k * LANES;
        two[k] = room + (BLOCK + k) * LANES;
    }
    TYPED(shuffle)(from, one);
    TYPED(shuffle)((const REAL *const *)one, two);
    TYPED(shuffle)((const REAL *const *)two, one);
    TYPED(shuffle)((const REAL *const *)one, to);
}

/* Rows to a tile of gaps scale (z - max z), and their maxima: NaN for a row that has one, whose column
 * then holds NaN, which every comparison leaves out. The tile has whole_lanes(n) rows, room three
 * squares. */
static void TYPED(interleave)(const REAL *const z[BLOCK], ptrdiff_t n, REAL scale,
                              REAL *restrict tile, REAL *restrict room, REAL *restrict largest) {
    const REAL *from[BLOCK];
    REAL *to[BLOCK], *ends = room + 2 * BLOCK * LANES;
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t count = n - start < LANES ? n - start : LANES;
        for (int j = 0; j < BLOCK; j++) {
            from[j] = z[j] + start;
            to[j] = tile + (start + j) * BLOCK;
            if (count == LANES) continue;
            memcpy(ends + j * LANES, from[j], (size_t)count * sizeof(REAL));
            for (ptrdiff_t i = count; i < LANES; i++) ends[j * LANES + i] = -(REAL)INFINITY;
            from[j] = ends + j * LANES;
        }
        TYPED(transpose)(from, to, room);
    }
    REAL top[BLOCK], nans[BLOCK] = {0};
    for (int j = 0; j < BLOCK; j++) top[j] = -(REAL)INFINITY;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL *entry = tile + i * BLOCK;
        for (int j = 0; j < BLOCK; j++) top[j] = TYPED(larger)(entry[j], top[j]);
        for (int j = 0; j < BLOCK; j++) nans[j] += entry[j] * MINUTE;
    }
    for (int j = 0; j < BLOCK; j++) largest[j] = top[j] = nans[j] != nans[j] ? nans[j] : top[j];
    for (ptrdiff_t i = 0; i < n + n % 2; i++) /* block_moments takes two at a time */
        for (int j = 0; j < BLOCK; j++)
            tile[i * BLOCK + j] = (tile[i * BLOCK + j] - top[j]) * scale;
}

/* A tile back to rows, of which there are count. */
static void TYPED(separate)(const REAL *restrict tile, ptrdiff_t n, REAL *const p[BLOCK], int count,
                            REAL *restrict room) {
    const REAL *from[BLOCK];
    REAL *to[BLOCK], *ends = room + 2 * BLOCK * LANES;
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t width = n - start < LANES ? n - start : LANES;
        for (int j = 0; j < BLOCK; j++) {
            from[j] = tile + (start + j) * BLOCK;
            to[j] = width == LANES && j < count ? p[j] + start : ends + j * LANES;
        }
        TYPED(transpose)(from, to, room);
        if (width == LANES) continue;
        for (int j = 0; j < count; j++) memcpy(p[j] + start, to[j], (size_t)width * sizeof(REAL));
    }
}

/* The support size, sum [u]+ and, if asked for, sum [u]+^2 for u = x + t, each column with its own t. Odd and
 * even entries are added up apart, so that they overlap, and so is each PAIR of entries, so
 * that rounding does not grow with n. */
ALWAYS_INLINE void TYPED(block_moments)(const REAL *restrict tile, ptrdiff_t n,
                                        const REAL *restrict t, bool squared,
                                        TYPED(BlockMoments) *restrict total) {
    REAL twice[2 * BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        twice[j] = twice[j + BLOCK] = t[j];
        total->size[j] = total->sum[j] = total->squares[j] = 0;
    }
    for (ptrdiff_t start = 0; start < n; start += PAIR) {
        const ptrdiff_t end = n - start < PAIR ? n : start + PAIR;
        REAL squares[2 * BLOCK] = {0}, sum[2 * BLOCK] = {0}, size[2 * BLOCK] = {0};
        for (ptrdiff_t i = start; i < end; i += 2)
            for (int j = 0; j < 2 * BLOCK; j++) {
                REAL u = tile[i * BLOCK + j] + twice[j];
                size[j] += u > 0 ? (REAL)1 : (REAL)0;
                u = u > 0 ? u : (REAL)0;
                sum[j] += u;
                if (squared) squares[j] += u * u;
            }
        for (int j = 0; j < BLOCK; j++) {
            total->size[j] += size[j] + size[j + BLOCK];
            total->sum[j] += sum[j] + sum[j + BLOCK];
            if (squared) total->squares[j] += squares[j] + squares[j + BLOCK];
        }
    }
}
