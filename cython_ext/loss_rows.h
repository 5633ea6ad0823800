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
    bool with_gradient;
} TYPED(Loss);

/* sum u, u^2 and u^3 over the support. */
typedef struct {
    double sum, squares, cubes;
} TYPED(Powers);

/* The powers of u = x + t + rest, those at or above limit left out; n is a whole number of lanes. */
static TYPED(Powers) TYPED(powers_below)(const REAL *x, ptrdiff_t n, REAL t, REAL rest,
                                         REAL limit) {
    if (n > LEAF) {
        const ptrdiff_t half = half_of(n);
        const TYPED(Powers) a = TYPED(powers_below)(x, half, t, rest, limit);
        const TYPED(Powers) b = TYPED(powers_below)(x + half, n - half, t, rest, limit);
        return (TYPED(Powers)){a.sum + b.sum, a.squares + b.squares, a.cubes + b.cubes};
    }
    REAL sum[LANES] = {0}, squares[LANES] = {0}, cubes[LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            REAL u = (x[i + j] + t) + rest;
            u = u > 0 ? u : (REAL)0;
            u = u < limit ? u : (REAL)0;
            sum[j] += u;
            squares[j] += u * u;
            cubes[j] += u * u * u;
        }
    return (TYPED(Powers)){TYPED(fold)(sum), TYPED(fold)(squares), TYPED(fold)(cubes)};
}

/* The powers over the support without one entry, u. Where it has most of the row's probability, no other
 * is as large, and leaving out by size leaves out just that one; elsewhere subtracting costs no more
 * than two bits. */
static TYPED(Powers) TYPED(powers_of_others)(const TYPED(Search) *found, REAL rest, REAL u,
                                             bool dominates) {
    TYPED(Powers) all = TYPED(powers_below)(found->kept, found->size, found->t, rest,
                                            dominates ? u : (REAL)INFINITY);
    const double out = dominates ? 0 : u;
    return (TYPED(Powers)){all.sum - out, all.squares - out * out, all.cubes - out * out * out};
}

/* A row with nothing left counts nothing; a spoilt one is NaN. */
static bool TYPED(settled_loss)(const REAL *gradient, double *loss) {
    *loss = gradient[0];
    return gradient[0] != 0;
}

/* p_i = u_i: L = (o^2 + sum of other u^2)/2 + distance, o = sum of other u. */
static bool TYPED(sparsemax_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                      ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                      double *loss) {
    TYPED(Search) found;
    if (!TYPED(search)(z, gradient, n, 1, TYPED(michelot), NULL, scratch, &found))
        return TYPED(settled_loss)(gradient, loss);

    const REAL largest = found.largest, t = found.t;
    const REAL rest = (REAL)((1 - found.at_t.sum) / found.at_t.size);
    const REAL reach = ((z[label] - largest) + t) + rest, u = reach > 0 ? reach : (REAL)0;
    const TYPED(Powers) others = TYPED(powers_of_others)(&found, rest, u, u > (REAL)0.75);
    const double sum = others.sum + u, missing = others.sum / sum;
    *loss = (missing * missing + others.squares) / 2 + (reach < 0 ? -(double)reach : 0);

    const REAL excess = (REAL)((1 - sum) / sum);
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (found.maxima[start / CHUNK] < found.floor) {
            TYPED(fill)(gradient + start, end - start, 0);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i++) {
            REAL v = ((z[i] - largest) + t) + rest;
            v = v > 0 ? v : (REAL)0;
            gradient[i] = (v + v * excess) * weight;
        }
    }
    gradient[label] = (REAL)(0 - missing * weight);
    return true;
}

/* p_i = u_i^2, x half gaps: L = 2/3 (o^2 (2 + u_y) + sum of other u^3) + 2 distance, where
 * o (1 + u_y) = 1 - p_y = sum of other u^2. */
static bool TYPED(entmax15_loss_row)(const REAL *restrict z, REAL *restrict gradient, ptrdiff_t n,
                                     ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                     double *loss) {
    TYPED(Search) found;
    if (!TYPED(search)(z, gradient, n, (REAL)0.5, TYPED(entmax15_solve), NULL, scratch, &found))
        return TYPED(settled_loss)(gradient, loss);

    const REAL largest = found.largest, t = found.t;
    const REAL rest = (REAL)TYPED(quadratic_step)(found.at_t);
    const REAL reach = ((z[label] - largest) * (REAL)0.5 + t) + rest;
    const REAL u = reach > 0 ? reach : (REAL)0;
    const TYPED(Powers) others = TYPED(powers_of_others)(&found, rest, u, u * u > (REAL)0.75);
    const double squares = others.squares + (double)u * u, missing = others.squares / squares;
    const double o = missing / (1 + (double)u);
    *loss = (o * o * (2 + (double)u) + others.cubes) * 2 / 3 + (reach < 0 ? -2 * (double)reach : 0);

    const REAL excess = (REAL)((1 - squares) / squares);
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (found.maxima[start / CHUNK] < found.floor) {
            TYPED(fill)(gradient + start, end - start, 0);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i++) {
            REAL v = ((z[i] - largest) * (REAL)0.5 + t) + rest;
            v = v > 0 ? v : (REAL)0;
            const REAL q = v * v;
            gradient[i] = (q + q * excess) * weight;
        }
    }
    gradient[label] = (REAL)(0 - missing * weight);
    return true;
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
                                ptrdiff_t label, REAL weight, REAL *restrict scratch,
                                double *loss) {
    (void)label, (void)weight;
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
    REAL *scratch = scratch_or_error(scratch_size(n) + 2 * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + scratch_size(n);

    for (ptrdiff_t r = 0; r < rows; r++) {
        const int64_t label = *(const int64_t *)(args[2] + r * steps[2]);
        const REAL weight = *(const REAL *)(args[3] + r * steps[3]);
        char *to = kernel->with_gradient ? args[6] + r * steps[6] : NULL;
        REAL *gradient = to ? TYPED(target)(to, stride, room + n) : room + n;
        double loss = 0;
        bool counts = false;
        if (weight == 0) {
            TYPED(fill)(gradient, n, 0);
        } else {
            const REAL *z = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                          mask_stride, n, room);
            TYPED(LossRow) *row = label < 0 || label >= n ? TYPED(no_label_row) : kernel->row;
            counts = row(z, gradient, n, (ptrdiff_t)label, weight, scratch, &loss);
        }
        *(REAL *)(args[4] + r * steps[4]) = (REAL)(counts ? loss * weight : 0);
        *(bool *)(args[5] + r * steps[5]) = counts;
        if (to) TYPED(deliver)(gradient, to, stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

#define LOSS_ROWS(name) \
    static const TYPED(Loss) TYPED(name##_loss) = {TYPED(name##_loss_row), false}; \
    static const TYPED(Loss) TYPED(name##_loss_and_grad) = {TYPED(name##_loss_row), true};
LOSS_ROWS(softmax)
LOSS_ROWS(sparsemax)
LOSS_ROWS(entmax15)
#undef LOSS_ROWS
