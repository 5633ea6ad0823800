/* Fenchel-Young losses of one row and a label y, with their gradients p - e_y, for one floating type: a
 * template. The NumPy twin is pyentmax/losses/_definition.py.
 *
 * The loss at threshold t is the dual objective, so that an error in t counts only squared. What
 * cancels in it is taken out by hand: with u_y = [x_y + t]+ and o = 1 - u_y, both mappings below have
 *
 *     L = D(u_y) + sum over i != y of a power of u_i + how far y is from the support,
 *
 * where D, the divergence of one entry from 1, is o^2 times a positive factor. No term is negative, and o
 * follows from sum p = 1 and the other entries: small losses have as many digits as large ones.
 */

/* A loss: that of one row, its gradient times weight, and whether any score is left to count. */
typedef bool TYPED(LossRow)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                            ptrdiff_t label, REAL weight, REAL *restrict scratch, double *loss);

typedef struct {
    TYPED(LossRow) *row;
    const TYPED(Forward) *mapping; /* if it has a block, for short rows, */
    TYPED(LossRow) *of_p;          /* with this, which finds p where the gradient goes */
    bool with_gradient;
} TYPED(Loss);

/* Of the entries other than y: sum p = 1 - p_y, and sum p^alpha. */
typedef struct {
    double mass, powers;
} TYPED(Others);

/* Where a row's threshold lies: t as found, and what its rounding took off it. */
typedef struct {
    REAL largest, t, rest;
} TYPED(Threshold);

/* Write weight p for some entries in a row, and add them to the others. */
typedef void TYPED(LossPart)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                             TYPED(Threshold) at, REAL weight, TYPED(Others) *others);

/* Write weight p, except at the label, and add up the others: in the chunks that reach the support. */
static TYPED(Others) TYPED(gradient_of_others)(TYPED(LossPart) *part, const TYPED(Search) *found,
                                               const REAL *z, REAL *gradient, ptrdiff_t n,
                                               ptrdiff_t label, TYPED(Threshold) at, REAL weight) {
    TYPED(Others) others = {0, 0};
    ptrdiff_t start = TYPED(next_live)(found, gradient, 0, n);
    while (start < n) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        const ptrdiff_t stop = start <= label && label < end ? label : end;
        part(z + start, gradient + start, stop - start, at, weight, &others);
        if (stop < end)
            part(z + stop + 1, gradient + stop + 1, end - stop - 1, at, weight, &others);
        start = TYPED(next_live)(found, gradient, end, n);
    }
    return others;
}

/* A row with nothing left counts nothing; a spoilt one is NaN. */
static bool TYPED(settled_loss)(const REAL *gradient, double *loss) {
    *loss = gradient[0];
    return gradient[0] != 0;
}

/* One entry of sparsemax, its share in two lanes of sums, and its part of the gradient. */
static inline REAL TYPED(sparsemax_share)(REAL z, TYPED(Threshold) at, REAL weight, REAL *mass,
                                          REAL *powers) {
    REAL p = ((z - at.largest) + at.t) + at.rest;
    p = p > 0 ? p : (REAL)0;
    *mass += p;
    *powers += p * p;
    return p * weight;
}

static void TYPED(sparsemax_part)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                  TYPED(Threshold) at, REAL weight, TYPED(Others) *others) {
    REAL mass[LANES] = {0}, powers[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            gradient[i + j] = TYPED(sparsemax_share)(z[i + j], at, weight, mass + j, powers + j);
    for (int j = 0; i + j < n; j++)
        gradient[i + j] = TYPED(sparsemax_share)(z[i + j], at, weight, mass + j, powers + j);
    others->mass += TYPED(lane_sum)(mass);
    others->powers += TYPED(lane_sum)(powers);
}

/* alpha = 2, p = u: L = (o^2 + sum of other p^2)/2 + distance. */
static bool TYPED(sparsemax_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                      ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                      double *loss) {
    TYPED(Search) found;
    if (!TYPED(search)(z, gradient, n, 1, TYPED(michelot), NULL, scratch, &found))
        return TYPED(settled_loss)(gradient, loss);

    const REAL rest = (REAL)((1 - found.at_t.sum) / found.at_t.size);
    const TYPED(Threshold) at = {found.largest, found.t, rest};
    found.t = TYPED(reach)(at.t);
    const TYPED(Others) others = TYPED(gradient_of_others)(TYPED(sparsemax_part), &found, z,
                                                           gradient, n, label, at, weight);
    const double u = (double)(z[label] - at.largest) + at.t + at.rest;
    const double o = u > 0 ? others.mass : 1;
    *loss = (o * o + others.powers) / 2 + (u < 0 ? -u : 0);
    gradient[label] = (REAL)(0 - o * weight);
    return true;
}

static inline REAL TYPED(entmax15_share)(REAL z, TYPED(Threshold) at, REAL weight, REAL *mass,
                                         REAL *powers) {
    const REAL h = (z - at.largest) * (REAL)0.5, p = TYPED(entmax15_entry)(h, at.t, 2 * at.rest);
    REAL u = (h + at.t) + at.rest;
    u = u > 0 ? u : (REAL)0;
    *mass += p;
    *powers += p * u;
    return p * weight;
}

static void TYPED(entmax15_part)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                 TYPED(Threshold) at, REAL weight, TYPED(Others) *others) {
    REAL mass[LANES] = {0}, powers[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            gradient[i + j] = TYPED(entmax15_share)(z[i + j], at, weight, mass + j, powers + j);
    for (int j = 0; i + j < n; j++)
        gradient[i + j] = TYPED(entmax15_share)(z[i + j], at, weight, mass + j, powers + j);
    others->mass += TYPED(lane_sum)(mass);
    others->powers += TYPED(lane_sum)(powers);
}

/* alpha = 1.5, p = u^2 and x half gaps: L = 2/3 (o^2 (2 + u_y) + sum of other p^1.5) + 2 distance,
 * where o (1 + u_y) = 1 - p_y. */
static bool TYPED(entmax15_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                     ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                     double *loss) {
    TYPED(Search) found;
    if (!TYPED(search)(z, gradient, n, (REAL)0.5, TYPED(entmax15_solve), NULL, scratch, &found))
        return TYPED(settled_loss)(gradient, loss);

    const REAL rest = (REAL)TYPED(quadratic_step)(found.at_t);
    const TYPED(Threshold) at = {found.largest, found.t, rest};
    const TYPED(Others) others = TYPED(gradient_of_others)(TYPED(entmax15_part), &found, z,
                                                           gradient, n, label, at, weight);
    const double reach = (double)(z[label] - at.largest) * 0.5 + at.t + at.rest;
    const double u = reach > 0 ? reach : 0, missing = reach > 0 ? others.mass : 1;
    const double o = missing / (1 + u);
    *loss = (o * o * (2 + u) + others.powers) * 2 / 3 + (reach < 0 ? -2 * reach : 0);
    gradient[label] = (REAL)(0 - missing * weight);
    return true;
}

/* One entry's share in two lanes of sums, and in the largest. */
ALWAYS_INLINE void TYPED(add_share)(REAL p, bool root, REAL *mass, REAL *powers, REAL *largest) {
    *mass += p;
    *powers += root ? p * SQRT(p) : p * p;
    *largest = TYPED(larger)(p, *largest);
}

/* alpha = 2 or, with `root`, 1.5. The row's largest p tells t: there u = t. */
ALWAYS_INLINE bool TYPED(loss_of_p)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, REAL *restrict scratch, bool root,
                                    double *loss) {
    const REAL own = p[label];
    if (own != own) return TYPED(settled_loss)(p, loss);
    p[label] = 0; /* leaves the others */
    REAL mass[LANES] = {0}, powers[LANES] = {0}, largest[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            TYPED(add_share)(p[i + j], root, mass + j, powers + j, largest + j);
    for (int j = 0; i + j < n; j++)
        TYPED(add_share)(p[i + j], root, mass + j, powers + j, largest + j);
    const double others = TYPED(lane_sum)(mass), power = TYPED(lane_sum)(powers);
    if (own == 0 && others == 0) return false;

    const double u = root ? sqrt((double)own) : own, missing = own > 0 ? others : 1;
    const double o = root ? missing / (1 + u) : missing;
    *loss = root ? (o * o * (2 + u) + power) * 2 / 3 : (o * o + power) / 2;
    if (own == 0) {
        const double gap = TYPED(chunk_maxima)(z, n, scratch) - z[label];
        const double t = TYPED(lane_max)(largest), reach = root ? 2 * sqrt(t) : t;
        *loss += gap > reach ? gap - reach : 0;
    }
    for (i = 0; i < n; i++) p[i] *= weight;
    p[label] = (REAL)(0 - missing * weight);
    return true;
}

static bool TYPED(sparsemax_loss_of_p)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                       ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                       double *loss) {
    return TYPED(loss_of_p)(z, p, n, label, weight, scratch, false, loss);
}

static bool TYPED(entmax15_loss_of_p)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                      ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                      double *loss) {
    return TYPED(loss_of_p)(z, p, n, label, weight, scratch, true, loss);
}

/* L = log sum exp(x) - x_y. The others' exponentials are added up apart from y's: what is lost beside a 1
 * is all there is of a small loss. */
static bool TYPED(softmax_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                    ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                    double *loss) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (TYPED(is_settled)(gradient, n, largest)) return TYPED(settled_loss)(gradient, loss);

    const ptrdiff_t next = label + 1;
    double others = TYPED(exponentials)(z, gradient, label, largest);
    others += TYPED(exponentials)(z + next, gradient + next, n - next, largest);
    const double unit = TYPED(scaled_exp)(0), x = z[label] - largest;
    const double sum = others + TYPED(scaled_exp)(z[label] - largest);
    *loss = x == 0 ? log1p(others / unit) : log(sum / unit) - x;

    const REAL share = (REAL)(weight / sum);
    for (ptrdiff_t i = 0; i < n; i++) gradient[i] *= share;
    gradient[label] = (REAL)(0 - others / sum * weight);
    return true;
}

/* A label out of range, which only a row without any score may have: NaN shows the caller to others. */
static bool TYPED(no_label_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                REAL *restrict scratch, double *loss) {
    const REAL largest = TYPED(chunk_maxima)(z, n, scratch);
    if (!TYPED(is_settled)(gradient, n, largest)) TYPED(fill)(gradient, n, (REAL)NAN);
    return TYPED(settled_loss)(gradient, loss);
}

/* (n),(n),(),()->(),(),(n): scores, mask, labels and weights to losses and their gradients, both times
 * the weight, and whether the row counts: not if its weight is 0, whatever the rest of it holds,
 * nor if no score is left. */
static void TYPED(loss_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                             void *data) {
    const TYPED(Loss) *kernel = data;
    const ptrdiff_t rows = dims[0], n = dims[1], operands = kernel->with_gradient ? 7 : 6;
    const ptrdiff_t z_stride = steps[operands], mask_stride = steps[operands + 1];
    const ptrdiff_t stride = kernel->with_gradient ? steps[operands + 2] : 0;
    if (rows == 0 || n == 0) return;
    const bool side_by_side = kernel->mapping->block && kernel->of_p && n <= SHORT;
    const int at_once = side_by_side ? BLOCK : 1;
    REAL *scratch = scratch_or_error(scratch_size(n) + 2 * at_once * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + scratch_size(n);

    for (ptrdiff_t start = 0; start < rows; start += at_once) {
        const REAL *z[BLOCK];
        REAL *gradient[BLOCK];
        const int count = rows - start < at_once ? (int)(rows - start) : at_once;
        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            z[j] = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                 mask_stride, n, room + 2 * j * n);
            gradient[j] = room + (2 * j + 1) * n;
            if (kernel->with_gradient)
                gradient[j] = TYPED(target)(args[6] + r * steps[6], stride, gradient[j]);
        }
        for (int j = count; j < at_once; j++) { /* fills up the block */
            z[j] = z[0];
            gradient[j] = room + (2 * j + 1) * n;
        }
        if (side_by_side) kernel->mapping->block(z, gradient, count, n, scratch);

        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            const int64_t label = *(const int64_t *)(args[2] + r * steps[2]);
            const REAL weight = *(const REAL *)(args[3] + r * steps[3]);
            double loss = 0;
            bool counts = false;
            if (weight == 0)
                TYPED(fill)(gradient[j], n, 0);
            else if (label < 0 || label >= n)
                counts = TYPED(no_label_row)(z[j], gradient[j], n, scratch, &loss);
            else if (side_by_side)
                counts = kernel->of_p(z[j], gradient[j], n, (ptrdiff_t)label, weight, scratch,
                                      &loss);
            else
                counts = kernel->row(z[j], gradient[j], n, (ptrdiff_t)label, weight, scratch, &loss);
            *(REAL *)(args[4] + r * steps[4]) = (REAL)(counts ? loss * weight : 0);
            *(bool *)(args[5] + r * steps[5]) = counts;
            if (kernel->with_gradient)
                TYPED(deliver)(gradient[j], args[6] + r * steps[6], stride, n);
        }
    }
    free(scratch);
    leave_no_float_flags();
}

#define LOSS_ROWS(name, of_p) \
    static const TYPED(Loss) TYPED(name##_loss) = {TYPED(name##_loss_row), &TYPED(name), of_p, \
                                                   false}; \
    static const TYPED(Loss) TYPED(name##_loss_and_grad) = {TYPED(name##_loss_row), &TYPED(name), \
                                                            of_p, true};
LOSS_ROWS(softmax, NULL)
LOSS_ROWS(sparsemax, TYPED(sparsemax_loss_of_p))
LOSS_ROWS(entmax15, TYPED(entmax15_loss_of_p))
#undef LOSS_ROWS
