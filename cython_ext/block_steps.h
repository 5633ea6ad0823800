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

/* A row that makes the tile's number of rows even, for block_moments takes two at a time. */
static void TYPED(make_even)(REAL *tile, ptrdiff_t n) {
    if (n % 2) TYPED(fill)(tile + n * BLOCK, BLOCK, OUTSIDE);
}

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
    REAL top[BLOCK], nans[BLOCK] = {0};
    for (int j = 0; j < BLOCK; j++) top[j] = -(REAL)INFINITY;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL *entry = tile + i * BLOCK;
        for (int j = 0; j < BLOCK; j++) top[j] = TYPED(larger)(entry[j], top[j]);
        for (int j = 0; j < BLOCK; j++) nans[j] += entry[j] * MINUTE;
    }
    for (int j = 0; j < BLOCK; j++) largest[j] = top[j] = nans[j] != nans[j] ? nans[j] : top[j];
    for (ptrdiff_t i = 0; i < n; i++)
        for (int j = 0; j < BLOCK; j++)
            tile[i * BLOCK + j] = (tile[i * BLOCK + j] - top[j]) * scale;
    TYPED(make_even)(tile, n);
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
