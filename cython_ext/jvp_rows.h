/* The Jacobian of a separable mapping times a vector, for one row: a template on the floating type and
 * on the mapping, that is on CURVATURE, and JVP_NAMED, which gives functions the mapping's name. Both
 * are forgotten at the end. The NumPy twin is pyentmax/mappings/_simplex.py.
 *
 * CURVATURE(p) is 1/Omega''(p) for p > 0, and p otherwise: 0, or NaN. Off the support the answer is 0 whatever v holds there: such
 * entries of v count as 0. Chunks without any support are skipped, v unread.
 */

/* Write s, and return sum s v and sum s over one chunk. In two loops: with a choice for s and another for
 * the product in one, it would stay scalar. */
static Weighted JVP_NAMED(weigh)(const REAL *restrict p, const REAL *restrict v, REAL *restrict s,
                                 ptrdiff_t n) {
    REAL product[PAIR] = {0}, weight[PAIR] = {0};
    ptrdiff_t i = 0;
    for (; i < n; i++) s[i] = CURVATURE(p[i]);
    for (i = 0; i + PAIR <= n; i += PAIR)
        for (int j = 0; j < PAIR; j++) {
            const REAL curvature = s[i + j], along = v[i + j];
            weight[j] += curvature;
            product[j] += curvature == 0 ? (REAL)0 : curvature * along;
        }
    for (int j = 0; i + j < n; j++) {
        const REAL curvature = s[i + j], along = v[i + j];
        weight[j] += curvature;
        product[j] += curvature == 0 ? (REAL)0 : curvature * along;
    }
    return (Weighted){TYPED(pair_sum)(product), TYPED(pair_sum)(weight)};
}

/* s * (v - (s.v)/sum s), s read from out: proposition 1 of Peters, Niculae and Martins (2019). */
static inline void JVP_NAMED(center)(const REAL *restrict v, Weighted w, REAL *restrict out,
                                     ptrdiff_t n) {
    const REAL mean = (REAL)(w.product / w.weight);
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL s = out[i], along = v[i]; /* read always, or the loop stays scalar */
        out[i] = s == 0 ? (REAL)0 : s * (along - mean);
    }
}

static void JVP_NAMED(jvp_row)(const REAL *restrict p, const REAL *restrict v, REAL *restrict out,
                               ptrdiff_t n) {
    if (n <= CHUNK) { /* not worth a look for what to skip */
        JVP_NAMED(center)(v, JVP_NAMED(weigh)(p, v, out, n), out, n);
        return;
    }
    Weighted total = {0, 0};
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t count = n - start < CHUNK ? n - start : CHUNK;
        if (!TYPED(any_nonzero)(p + start, count)) {
            TYPED(fill)(out + start, count, 0);
            continue;
        }
        const Weighted w = JVP_NAMED(weigh)(p + start, v + start, out + start, count);
        total.product += w.product;
        total.weight += w.weight;
    }
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t count = n - start < CHUNK ? n - start : CHUNK;
        if (TYPED(any_nonzero)(out + start, count))
            JVP_NAMED(center)(v + start, total, out + start, count);
    }
}

static const TYPED(Jvp) JVP_NAMED(jvp) = {JVP_NAMED(jvp_row)};

#undef JVP_NAMED
#undef CURVATURE
