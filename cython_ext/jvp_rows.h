/* The Jacobian of a separable mapping times a vector, for one row: a template on the floating type and
 * on the mapping, that is on CURVATURE, and JVP_NAMED, which gives functions the mapping's name. Both
 * are forgotten at the end.
 *
 * CURVATURE(p) is 1/Omega''(p) for p > 0, and p otherwise: 0, or NaN. Chunks without any support are
 * skipped, v unread.
 */

static void JVP_NAMED(jvp_row)(const REAL *restrict p, const REAL *restrict v, REAL *restrict out,
                               ptrdiff_t n) {
    TYPED(Balance) all = {0};
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK;
        if (n > CHUNK && !TYPED(any_nonzero)(p + start, end - start)) {
            TYPED(fill)(out + start, end - start, 0);
            continue;
        }
        for (ptrdiff_t i = start; i < end; i++) out[i] = CURVATURE(p[i]);
        TYPED(add_weights)(out + start, v + start, end - start, 0, &all);
    }
    TYPED(jacobian_product)(out, v, n, &all);
}

static const TYPED(Jvp) JVP_NAMED(jvp) = {JVP_NAMED(jvp_row)};

#undef JVP_NAMED
#undef CURVATURE
