/* The inner loops of mappings with a parameter, for one floating type: a template. */

/* (n),(n),()->(n): scores, mask and a strength to sparsemax of smoothed scores; data is the Smoothed.
 * Short rows are smoothed one by one and then share a block, as in forward_loop. */
static void TYPED(smoothed_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                 void *data) {
    const TYPED(Smoothed) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], p_stride = steps[6];
    if (rows == 0 || n == 0) return;
    const int at_once = n <= SHORT ? BLOCK : 1;
    double *room = scratch_or_error(ROOM * n, sizeof(double));
    REAL *scratch = scratch_or_error(scratch_size(n) + 2 * at_once * n, sizeof(REAL));
    if (room == NULL || scratch == NULL) {
        free(room);
        free(scratch);
        return;
    }
    for (ptrdiff_t start = 0; start < rows; start += at_once) {
        const REAL *u[BLOCK];
        REAL *p[BLOCK];
        const int count = rows - start < at_once ? (int)(rows - start) : at_once;
        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            REAL *row = scratch + scratch_size(n) + 2 * j * n;
            const REAL *z = TYPED(masked)(args[0] + r * steps[0], steps[4],
                                          args[1] + r * steps[1], steps[5], n, row);
            const REAL strength = (REAL) * (const double *)(args[2] + r * steps[2]);
            if (strength > 0) {
                if (z != row) memcpy(row, z, (size_t)n * sizeof(REAL));
                mapping->smooth(row, n, strength, room);
                z = row;
            }
            u[j] = z;
            p[j] = TYPED(target)(args[3] + r * steps[3], p_stride, row + n);
        }
        for (int j = count; j < at_once; j++) { /* fills up the block */
            u[j] = u[0];
            p[j] = scratch + scratch_size(n) + (2 * j + 1) * n;
        }
        if (at_once > 1)
            TYPED(sparsemax).block(u, p, count, n, scratch);
        else
            TYPED(sparsemax).row(u[0], p[0], n, scratch);
        for (int j = 0; j < count; j++)
            TYPED(deliver)(p[j], args[3] + (start + j) * steps[3], p_stride, n);
    }
    free(room);
    free(scratch);
    leave_no_float_flags();
}

/* (n),(n),()->(n): probabilities, a direction and a parameter to a Jacobian's product; data is the
 * Product. */
static void TYPED(product_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                void *data) {
    const TYPED(Product) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], out_stride = steps[6];
    if (rows == 0 || n == 0) return;
    double *room = scratch_or_error((ROOM + 3) * n, sizeof(double));
    if (room == NULL) return;
    REAL *row = (REAL *)(room + ROOM * n);

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const REAL *p = TYPED(contiguous)(args[0] + r * steps[0], steps[4], n, row);
        const REAL *v = TYPED(contiguous)(args[1] + r * steps[1], steps[5], n, row + n);
        REAL *out = TYPED(target)(to, out_stride, row + 2 * n);
        mapping->row(p, v, *(const double *)(args[2] + r * steps[2]), out, n, room);
        TYPED(deliver)(out, to, out_stride, n);
    }
    free(room);
    leave_no_float_flags();
}

/* (n),(n),()->(n): scores, mask and a parameter to probabilities; data is the Parametric. */
static void TYPED(parametric_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                   void *data) {
    const TYPED(Parametric) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], p_stride = steps[6];
    if (rows == 0 || n == 0) return;
    double *room = scratch_or_error(ROOM * whole_lanes(n) + 2 * n, sizeof(double));
    if (room == NULL) return;
    REAL *row = (REAL *)(room + ROOM * whole_lanes(n));

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[3] + r * steps[3];
        const REAL *z = TYPED(masked)(args[0] + r * steps[0], steps[4], args[1] + r * steps[1],
                                      steps[5], n, row);
        REAL *p = TYPED(target)(to, p_stride, row + n);
        mapping->row(z, *(const double *)(args[2] + r * steps[2]), p, n, room);
        TYPED(deliver)(p, to, p_stride, n);
    }
    free(room);
    leave_no_float_flags();
}
