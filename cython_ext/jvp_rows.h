/* The Jacobian of a separable mapping times a vector, for one row: a template on the floating type and
 * on the mapping, that is on CURVATURE, and JVP_NAMED, which gives functions the mapping's name. Both
 * are forgotten at the end. The NumPy twin is pyentmax/mappings/_simplex.py.
 */

/* sum s v and sum s over the support. */
static Weighted JVP_NAMED(weigh)(const REAL *p, const REAL *v, ptrdiff_t n) {
    if (n > LEAF) {
        ptrdiff_t half = half_of(n);
        Weighted a = JVP_NAMED(weigh)(p, v, half);
        Weighted b = JVP_NAMED(weigh)(p + half, v + half, n - half);
        return (Weighted){a.product + b.product, a.weight + b.weight};
    }
    REAL product[LANES] = {0}, weight[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            REAL s = CURVATURE(p[i + j]), along = v[i + j];
            weight[j] += s;
            product[j] += s == 0 ? (REAL)0 : s * along;
        }
    for (int j = 0; i + j < n; j++) {
        REAL s = CURVATURE(p[i + j]), along = v[i + j];
        weight[j] += s;
        product[j] += s == 0 ? (REAL)0 : s * along;
    }
    return (Weighted){TYPED(fold)(product), TYPED(fold)(weight)};
}

/* s * (v - (s.v)/sum s): proposition 1 of Peters, Niculae and Martins (2019). Off the support the
 * answer is 0 whatever v holds there; without any support it is all zeros. */
static void JVP_NAMED(jvp_row)(const REAL *restrict p, const REAL *restrict v, REAL *restrict out,
                               ptrdiff_t n) {
    const Weighted w = JVP_NAMED(weigh)(p, v, n);
    const REAL mean = (REAL)(w.product / w.weight);
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL s = CURVATURE(p[i]), along = v[i]; /* read always, or the loop stays scalar */
        out[i] = s == 0 ? (REAL)0 : s * (along - mean);
    }
}

static const TYPED(Jvp) JVP_NAMED(jvp) = {JVP_NAMED(jvp_row)};

#undef JVP_NAMED
#undef CURVATURE
