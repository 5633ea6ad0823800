/* Top-k softmax of one row, for one floating type: a template. The NumPy twin is
 * pyentmax/mappings/topk_softmax.py.
 *
 * The k-th largest score is found without a sort. The k-th largest of the chunks' maxima is at or below
 * it, having k scores at or above itself, so only the scores beyond that bound are looked at: most of
 * a long row is not. Among them the digits of the k-th are found from the highest on.
 */
#if IS_DOUBLE
#define KEY uint64_t
#else
#define KEY uint32_t
#endif
#define DIGIT 8 /* bits of a key that one pass settles */

/* A float's bits as a number that grows with the float: those of negative ones are reversed. */
static inline KEY TYPED(key)(REAL value) {
    const KEY sign = (KEY)1 << (8 * sizeof(KEY) - 1);
    KEY bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & sign ? ~bits : bits | sign;
}

/* The k-th largest of the values, 1 <= k <= n, which are moved about. Each pass counts how often each
 * digit occurs and keeps the values that share the digit of the k-th: linear whatever the values. */
static REAL TYPED(kth_largest)(REAL *values, ptrdiff_t n, ptrdiff_t k) {
    for (int shift = 8 * sizeof(KEY) - DIGIT; shift >= 0 && n > 1; shift -= DIGIT) {
        ptrdiff_t count[1 << DIGIT] = {0};
        for (ptrdiff_t i = 0; i < n; i++)
            count[TYPED(key)(values[i]) >> shift & ((1 << DIGIT) - 1)]++;
        KEY digit = (1 << DIGIT) - 1;
        for (; k > count[digit]; digit--) k -= count[digit];
        if (count[digit] == n) continue;
        ptrdiff_t size = 0;
        for (ptrdiff_t i = 0; i < n; i++) {
            const REAL value = values[i];
            values[size] = value;
            size += (TYPED(key)(value) >> shift & ((1 << DIGIT) - 1)) == digit;
        }
        n = size;
    }
    return values[0];
}

/* The k-th largest score of a row; -inf if fewer than k are above that. */
static REAL TYPED(kth_score)(const REAL *restrict z, ptrdiff_t n, ptrdiff_t k,
                             const REAL *restrict maxima, REAL *restrict room) {
    REAL bound = -(REAL)INFINITY;
    if (k <= maxima_of(n)) {
        memcpy(room, maxima, (size_t)maxima_of(n) * sizeof(REAL));
        bound = TYPED(kth_largest)(room, maxima_of(n), k);
    }
    ptrdiff_t size = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        if (!TYPED(any_above)(maxima + start / CHUNK * LANES, bound)) continue;
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        ptrdiff_t i = start;
        for (; i + LANES <= end; i += LANES) size += TYPED(keep_above)(z + i, bound, room + size);
        for (; i < end; i++) {
            room[size] = z[i];
            size += z[i] > bound;
        }
    }
    return size < k ? bound : TYPED(kth_largest)(room, size, k);
}

/* Write the exponentials of gaps down to the cut, 0 for the rest of the chunk; return their sum. */
static double TYPED(exponentials_above)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                        REAL largest, REAL cut) {
    REAL sum[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const REAL x = z[i + j] - largest, e = TYPED(scaled_exp)(x);
            p[i + j] = x >= cut ? e : (REAL)0;
            sum[j] += p[i + j];
        }
    for (int j = 0; i + j < n; j++) {
        const REAL x = z[i + j] - largest, e = TYPED(scaled_exp)(x);
        p[i + j] = x >= cut ? e : (REAL)0;
        sum[j] += p[i + j];
    }
    return TYPED(lane_sum)(sum);
}

/* Gaps are compared, not scores: two scores of one rounded gap are tied, as in the NumPy twin. */
static void TYPED(topk_softmax_row)(const REAL *restrict z, REAL *restrict p, ptrdiff_t n,
                                    ptrdiff_t k, REAL *restrict scratch) {
    REAL *maxima = scratch, *room = scratch + maxima_of(n);
    const REAL largest = TYPED(chunk_maxima)(z, n, maxima);
    if (TYPED(is_settled)(p, n, largest)) return;

    const REAL cut = (k < n ? TYPED(kth_score)(z, n, k, maxima, room) : -(REAL)INFINITY) - largest;
    double sum = 0;
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t count = n - start < CHUNK ? n - start : CHUNK;
        if (TYPED(lane_max)(maxima + start / CHUNK * LANES) - largest < cut)
            TYPED(fill)(p + start, count, 0);
        else
            sum += TYPED(exponentials_above)(z + start, p + start, count, largest, cut);
    }
    const REAL share = (REAL)(1 / sum);
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (TYPED(lane_max)(maxima + start / CHUNK * LANES) - largest < cut) continue;
        for (ptrdiff_t i = start; i < end; i++) p[i] *= share;
    }
}

/* (n),(n),()->(n): scores, mask and k to probabilities. */
static void TYPED(topk_softmax_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                     void *data) {
    (void)data;
    const ptrdiff_t rows = dims[0], n = dims[1];
    const ptrdiff_t z_stride = steps[4], mask_stride = steps[5], p_stride = steps[6];
    if (rows == 0 || n == 0) return;
    REAL *scratch = scratch_or_error(scratch_size(n) + 2 * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + scratch_size(n);

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const REAL *z = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                      mask_stride, n, room);
        const int64_t k = *(const int64_t *)(args[2] + r * steps[2]);
        REAL *p = TYPED(target)(to, p_stride, room + n);
        TYPED(topk_softmax_row)(z, p, n, k < n ? (ptrdiff_t)k : n, scratch);
        TYPED(deliver)(p, to, p_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

#undef KEY
#undef DIGIT
