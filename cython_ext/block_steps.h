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

/* Swap the rows and columns of a square of QUAD entries a side. Where four fit a register that every vector
 * unit has, the rows are loaded, interleaved twice, and stored. */
#if defined(__GNUC__) && !IS_DOUBLE
#define QUAD 4
typedef REAL TYPED(Quad) __attribute__((vector_size(QUAD * sizeof(REAL))));
#if defined(__clang__)
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef BITS TYPED(Places) __attribute__((vector_size(QUAD * sizeof(REAL))));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (TYPED(Places)){__VA_ARGS__})
#endif
static inline void TYPED(transpose)(const REAL *const from[QUAD], REAL *const to[QUAD]) {
    TYPED(Quad) a, b, c, d;
    memcpy(&a, from[0], sizeof a);
    memcpy(&b, from[1], sizeof b);
    memcpy(&c, from[2], sizeof c);
    memcpy(&d, from[3], sizeof d);
    const TYPED(Quad) ab_low = PICK(a, b, 0, 4, 1, 5), ab_high = PICK(a, b, 2, 6, 3, 7);
    const TYPED(Quad) cd_low = PICK(c, d, 0, 4, 1, 5), cd_high = PICK(c, d, 2, 6, 3, 7);
    a = PICK(ab_low, cd_low, 0, 1, 4, 5);
    b = PICK(ab_low, cd_low, 2, 3, 6, 7);
    c = PICK(ab_high, cd_high, 0, 1, 4, 5);
    d = PICK(ab_high, cd_high, 2, 3, 6, 7);
    memcpy(to[0], &a, sizeof a);
    memcpy(to[1], &b, sizeof b);
    memcpy(to[2], &c, sizeof c);
    memcpy(to[3], &d, sizeof d);
}
#undef PICK
#else
#define QUAD 2
static inline void TYPED(transpose)(const REAL *const from[QUAD], REAL *const to[QUAD]) {
    const REAL a = from[0][0], b = from[0][1], c = from[1][0], d = from[1][1];
    to[0][0] = a;
    to[0][1] = c;
    to[1][0] = b;
    to[1][1] = d;
}
#endif

/* Rows to a tile of gaps scale (z - max z), and their maxima: NaN for a row that has one, whose column
 * then holds NaN, which every comparison leaves out. */
static void TYPED(interleave)(const REAL *const z[BLOCK], ptrdiff_t n, REAL scale,
                              REAL *restrict tile, REAL *restrict largest) {
    for (int j = 0; j < BLOCK; j += QUAD) {
        ptrdiff_t i = 0;
        for (; i + QUAD <= n; i += QUAD) {
            const REAL *from[QUAD];
            REAL *to[QUAD];
            for (int k = 0; k < QUAD; k++) {
                from[k] = z[j + k] + i;
                to[k] = tile + (i + k) * BLOCK + j;
            }
            TYPED(transpose)(from, to);
        }
        for (; i < n; i++)
            for (int k = 0; k < QUAD; k++) tile[i * BLOCK + j + k] = z[j + k][i];
    }

    for (ptrdiff_t half = 0; half < BLOCK; half += LANES) {
        REAL top[LANES], nans[LANES] = {0};
        for (int j = 0; j < LANES; j++) top[j] = -(REAL)INFINITY;
        for (ptrdiff_t i = 0; i < n; i++)
            for (int j = 0; j < LANES; j++) {
                const REAL entry = tile[i * BLOCK + half + j];
                top[j] = TYPED(larger)(entry, top[j]);
                nans[j] += entry * MINUTE;
            }
        for (int j = 0; j < LANES; j++)
            largest[half + j] = top[j] = nans[j] != nans[j] ? nans[j] : top[j];
        for (ptrdiff_t i = 0; i < n; i++)
            for (int j = 0; j < LANES; j++)
                tile[i * BLOCK + half + j] = (tile[i * BLOCK + half + j] - top[j]) * scale;
    }
}

/* A tile back to rows. */
static void TYPED(separate)(const REAL *restrict tile, ptrdiff_t n, REAL *const p[BLOCK]) {
    for (int j = 0; j < BLOCK; j += QUAD) {
        ptrdiff_t i = 0;
        for (; i + QUAD <= n; i += QUAD) {
            const REAL *from[QUAD];
            REAL *to[QUAD];
            for (int k = 0; k < QUAD; k++) {
                from[k] = tile + (i + k) * BLOCK + j;
                to[k] = p[j + k] + i;
            }
            TYPED(transpose)(from, to);
        }
        for (; i < n; i++)
            for (int k = 0; k < QUAD; k++) p[j + k][i] = tile[i * BLOCK + j + k];
    }
}

#undef QUAD

/* The support size, sum [u]+ and, if asked for, sum [u]+^2 for u = x + t, each column with its own t. Sums
 * over LANES entries are added up apart, so that rounding grows with n/LANES. The two halves of a block are
 * written out, for only arrays of one vector are sure to stay in registers. */
ALWAYS_INLINE void TYPED(block_moments)(const REAL *restrict tile, ptrdiff_t n,
                                        const REAL *restrict t, const bool squared,
                                        TYPED(BlockMoments) *restrict total) {
    *total = (TYPED(BlockMoments)){{0}, {0}, {0}};
    for (ptrdiff_t start = 0; start < n; start += LANES) {
        const ptrdiff_t end = n - start < LANES ? n : start + LANES;
        REAL squares[LANES] = {0}, sum[LANES] = {0}, more_squares[LANES] = {0}, more_sum[LANES] = {0};
        BITS outside[LANES] = {0}, more_outside[LANES] = {0};
        for (ptrdiff_t i = start; i < end; i++)
            for (int j = 0; j < LANES; j++) {
                REAL u = tile[i * BLOCK + j] + t[j], w = tile[i * BLOCK + LANES + j] + t[LANES + j];
                outside[j] += TYPED(is_negative)(u);
                more_outside[j] += TYPED(is_negative)(w);
                u = u > 0 ? u : (REAL)0;
                w = w > 0 ? w : (REAL)0;
                sum[j] += u;
                more_sum[j] += w;
                if (squared) squares[j] += u * u;
                if (squared) more_squares[j] += w * w;
            }
        for (int j = 0; j < LANES; j++) {
            total->size[j] += (REAL)((BITS)(end - start) - outside[j]);
            total->size[LANES + j] += (REAL)((BITS)(end - start) - more_outside[j]);
            total->sum[j] += sum[j];
            total->sum[LANES + j] += more_sum[j];
            if (squared) total->squares[j] += squares[j];
            if (squared) total->squares[LANES + j] += more_squares[j];
        }
    }
}
