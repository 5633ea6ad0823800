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

/* Rows to a tile of gaps scale (z - max z), and their maxima: NaN for a row that has one, whose column
 * then holds NaN, which every comparison leaves out. */
static void TYPED(interleave)(const REAL *const z[BLOCK], ptrdiff_t n, REAL scale,
                              REAL *restrict tile, REAL *restrict largest) {
    for (int j = 0; j < BLOCK; j++) {
        const REAL *row = z[j];
        for (ptrdiff_t i = 0; i < n; i++) tile[i * BLOCK + j] = row[i];
    }
    REAL top[BLOCK], nans[BLOCK] = {0};
    for (int j = 0; j < BLOCK; j++) top[j] = -(REAL)INFINITY;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL *entry = tile + i * BLOCK;
        for (int j = 0; j < BLOCK; j++) top[j] = entry[j] > top[j] ? entry[j] : top[j];
        for (int j = 0; j < BLOCK; j++) nans[j] += entry[j] * MINUTE;
    }
    for (int j = 0; j < BLOCK; j++) largest[j] = top[j] = nans[j] != nans[j] ? nans[j] : top[j];
    for (ptrdiff_t i = 0; i < n; i++)
        for (int j = 0; j < BLOCK; j++)
            tile[i * BLOCK + j] = (tile[i * BLOCK + j] - top[j]) * scale;
}

/* sum [u]+^2, sum [u]+ and the support size for u = x + t, each column with its own t. Sums
 * over LANES entries are added up apart, so that rounding grows with n/LANES. */
static void TYPED(block_moments)(const REAL *restrict tile, ptrdiff_t n,
                                 const REAL *restrict t,
                                 TYPED(BlockMoments) *restrict total) {
    *total = (TYPED(BlockMoments)){0};
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t end = n - start < LANES ? n : start + LANES;
        REAL squares[BLOCK] = {0}, sum[BLOCK] = {0}, size[BLOCK] = {0};
        for (ptrdiff_t i = start; i < end; i++)
            for (int j = 0; j < BLOCK; j++) {
                REAL u = tile[i * BLOCK + j] + t[j];
                size[j] += u > 0 ? (REAL)1 : (REAL)0;
                u = u > 0 ? u : (REAL)0;
                sum[j] += u;
                squares[j] += u * u;
            }
        for (int j = 0; j < BLOCK; j++) {
            total->squares[j] += squares[j];
            total->sum[j] += sum[j];
            total->size[j] += size[j];
        }
    }
}

/* What part of itself each entry of a short row has to grow by, for the row to sum to 1. */
static REAL TYPED(missing_share)(const REAL *p, ptrdiff_t n) {
    REAL lane[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += p[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += p[i + j];
    const double sum = TYPED(fold)(lane);
    return (REAL)((1 - sum) / sum);
}
