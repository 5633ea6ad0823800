/* α-entmax of rows, for one floating type: a template. The threshold is entmax_root.h's.
 */

#define WORTH_A_SAMPLE 2048 /* entries */

/* What the search needs to know of the mapping, and where it leaves what it finds. */
typedef struct {
    double alpha;
    REAL *s, *start;
    TYPED(Lanes) *lanes;
} TYPED(Entmax);

/* A start from a sixteenth of the entries, here and there, as if the others were like them: off by a per
 * cent or so, from where one pass over all of them reaches the root. room holds n values. */
static void TYPED(start_from_sample)(const REAL *x, ptrdiff_t n, TYPED(Lanes) *lanes, REAL *room) {
    const ptrdiff_t size = n / 16 / PAIR * PAIR, groups = size / LANES, apart = n / groups;
    const REAL *middle = x + (apart - LANES) / 2; /* of the first; sorted rows are in the benchmark */
    for (ptrdiff_t g = 0; g < groups; g++)
        memcpy(room + g * LANES, middle + g * apart, LANES * sizeof(REAL));
    TYPED(find_root)(room, size, true, (double)n / (double)size, (REAL)0.01, lanes, room + size);
}

/* The Solver. The first time, for the largest entries, it only bounds t: by a tangent. */
static REAL TYPED(entmax_solve)(REAL *x, ptrdiff_t n, REAL t, const void *context, Moments *at_t) {
    const TYPED(Entmax) *entmax = context;
    TYPED(Lanes) *lanes = entmax->lanes;
    (void)at_t;
    double alpha[BLOCK];
    for (int j = 0; j < BLOCK; j++) alpha[j] = entmax->alpha;
    TYPED(start_lanes)(lanes, alpha, n, t);
    if (*entmax->start == 0) {
        TYPED(find_root)(x, n, true, 1, (REAL)0.03, lanes, entmax->s);
        const REAL part = lanes->rest[0] * lanes->beta[0];
        t = (1 - part) / lanes->steepness[0] * (1 + 2 * ROUNDING);
        t = t < 1 ? t : (REAL)1;
    } else {
        if (n >= WORTH_A_SAMPLE) TYPED(start_from_sample)(x, n, lanes, entmax->s);
        TYPED(find_root)(x, n, true, 1, ROUNDING, lanes, entmax->s);
    }
    *entmax->start = t;
    return t;
}

/* scratch holds scratch_size(n) values and room for a row. */
static void TYPED(entmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                              REAL *restrict scratch) {
    TYPED(Search) found;
    TYPED(Lanes) lanes;
    REAL start = 0, *kept_p = scratch + scratch_size(n);
    const TYPED(Entmax) entmax = {alpha, kept_p, &start, &lanes};
    if (!TYPED(search)(z, p, n, (REAL)(alpha - 1), TYPED(entmax_solve), &entmax, scratch, &found))
        return;
    found.t = start;
    TYPED(finish)(found.kept, found.size, &lanes, kept_p);
    TYPED(spread)(z, n, (REAL)(alpha - 1), &found, kept_p, p);
}

/* Each row with its own α. */
static void TYPED(entmax_block)(const REAL *const z[BLOCK], REAL *const p[BLOCK], int count,
                                ptrdiff_t n, const double alpha[BLOCK], REAL *restrict scratch) {
    REAL *const x = scratch, *const tile_p = scratch + scratch_size(n);
    TYPED(Lanes) lanes;
    REAL largest[BLOCK];
    TYPED(interleave)(z, n, 1, x, largest);
    TYPED(start_lanes)(&lanes, alpha, n, 1);
    for (ptrdiff_t i = 0; i < n * BLOCK; i += BLOCK)
        for (int j = 0; j < BLOCK; j++) x[i + j] *= lanes.beta[j];
    TYPED(find_root)(x, n * BLOCK, false, 1, ROUNDING, &lanes, tile_p);
    TYPED(finish)(x, n * BLOCK, &lanes, tile_p);
    TYPED(separate)(tile_p, n, p);
    for (int j = 0; j < count; j++) TYPED(is_settled)(p[j], n, largest[j]);
}

/* α = ∞: the largest share alike. */
static void TYPED(argmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                              REAL *restrict scratch) {
    (void)alpha;
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(is_settled)(p, n, largest)) return;
    ptrdiff_t ties = 0;
    for (ptrdiff_t i = 0; i < n; i++) ties += z[i] == largest;
    const REAL share = 1 / (REAL)ties;
    for (ptrdiff_t i = 0; i < n; i++) p[i] = z[i] == largest ? share : (REAL)0;
}

/* No α at all. */
static void TYPED(nan_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                           REAL *restrict scratch) {
    (void)z, (void)alpha, (void)scratch;
    TYPED(fill)(p, n, (REAL)NAN);
}

/* What to run for an α: one of the mappings that have code of their own, or rows with their α, which
 * may go by the block. */
typedef struct {
    const TYPED(Forward) *own;
    void (*row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n, double alpha,
                REAL *restrict scratch);
    bool by_block;
} TYPED(Choice);

/* Scores within 1/β of the largest matter. Beyond β = 2/ε, below their rounding, only ties do. */
static TYPED(Choice) TYPED(choice_for)(double alpha) {
    if (alpha == 1) return (TYPED(Choice)){.own = &TYPED(softmax)};
    if (alpha == 1.5) return (TYPED(Choice)){.own = &TYPED(entmax15)};
    if (alpha == 2) return (TYPED(Choice)){.own = &TYPED(sparsemax)};
    if (alpha > 1 && alpha < 2)
        return (TYPED(Choice)){.row = TYPED(entmax_row), .by_block = true};
    if (alpha > 2 && alpha < (IS_DOUBLE ? 9e15 : 1.6e7))
        return (TYPED(Choice)){.row = TYPED(steep_row)};
    return (TYPED(Choice)){.row = alpha > 2 ? TYPED(argmax_row) : TYPED(nan_row)};
}

/* (n),(n),()->(n): scores, mask and α to probabilities. Neighbours that run the same code go together. */
static void TYPED(entmax_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data) {
    (void)data;
    const ptrdiff_t rows = dims[0], n = dims[1], z_stride = steps[4], mask_stride = steps[5];
    const ptrdiff_t p_stride = steps[6];
    if (rows == 0 || n == 0) return;
    const int at_most = n <= SHORT ? BLOCK : 1;
    const ptrdiff_t size = scratch_size(n) + (n <= SHORT ? BLOCK * SHORT : whole_lanes(n) + PAIR);
    REAL *scratch = scratch_or_error(size + 2 * at_most * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + size;

    int count = 0;
    for (ptrdiff_t start = 0; start < rows; start += count) {
        const REAL *z[BLOCK];
        REAL *p[BLOCK];
        double alpha[BLOCK];
        TYPED(Choice) run = {0};
        for (count = 0; count < at_most && start + count < rows; count++) {
            const ptrdiff_t r = start + count;
            alpha[count] = *(const double *)(args[2] + r * steps[2]);
            const TYPED(Choice) choice = TYPED(choice_for)(alpha[count]);
            if (count > 0 && (choice.own != run.own || choice.row != run.row)) break;
            run = choice;
            z[count] = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                     mask_stride, n, room + 2 * count * n);
            p[count] = TYPED(target)(args[3] + r * steps[3], p_stride, room + (2 * count + 1) * n);
        }
        for (int j = count; j < at_most; j++) { /* fills up the block */
            z[j] = z[0];
            p[j] = room + (2 * j + 1) * n;
            alpha[j] = alpha[0];
        }
        if (at_most > 1 && run.by_block)
            TYPED(entmax_block)(z, p, count, n, alpha, scratch);
        else if (at_most > 1 && run.own && run.own->block)
            run.own->block(z, p, count, n, scratch);
        else
            for (int j = 0; j < count; j++) {
                if (run.own)
                    run.own->row(z[j], p[j], n, scratch);
                else
                    run.row(z[j], p[j], n, alpha[j], scratch);
            }
        for (int j = 0; j < count; j++)
            TYPED(deliver)(p[j], args[3] + (start + j) * steps[3], p_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}
#undef WORTH_A_SAMPLE
