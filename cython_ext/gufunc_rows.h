/* Moving one row between NumPy's strides and contiguous memory, for one floating type: a template
 *. */

/* The row at `from`, contiguous: itself if it is so already, otherwise a copy in `room`. */
static const REAL *TYPED(contiguous)(const char *from, ptrdiff_t stride, ptrdiff_t n, REAL *room) {
    if (stride == (ptrdiff_t)sizeof(REAL)) return (const REAL *)from;
    for (ptrdiff_t i = 0; i < n; i++) room[i] = *(const REAL *)(from + i * stride);
    return room;
}

/* The row at `from` with -inf where the mask is false: no copy where one true mask rules the row. */
static const REAL *TYPED(masked)(const char *from, ptrdiff_t stride, const char *mask,
                                 ptrdiff_t mask_stride, ptrdiff_t n, REAL *room) {
    if (mask_stride == 0 && *mask) return TYPED(contiguous)(from, stride, n, room);
    for (ptrdiff_t i = 0; i < n; i++)
        room[i] = mask[i * mask_stride] ? *(const REAL *)(from + i * stride) : -(REAL)INFINITY;
    return room;
}

/* Where to compute a row that belongs at `to`: there if it is contiguous, otherwise in `room`. */
static REAL *TYPED(target)(char *to, ptrdiff_t stride, REAL *room) {
    return stride == (ptrdiff_t)sizeof(REAL) ? (REAL *)to : room;
}

static void TYPED(deliver)(const REAL *row, char *to, ptrdiff_t stride, ptrdiff_t n) {
    if ((const char *)row == to) return;
    for (ptrdiff_t i = 0; i < n; i++) *(REAL *)(to + i * stride) = row[i];
}

/* (n),(n)->(n): scores and mask to probabilities; data is the Forward. */
static void TYPED(forward_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                void *data) {
    const TYPED(Forward) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1], z_stride = steps[3], mask_stride = steps[4];
    const ptrdiff_t p_stride = steps[5];
    if (rows == 0 || n == 0) return;
    const int at_once = mapping->block && n <= SHORT ? BLOCK : 1;
    REAL *scratch = scratch_or_error(scratch_size(n) + 2 * at_once * n, sizeof(REAL));
    if (scratch == NULL) return;
    REAL *room = scratch + scratch_size(n);

    for (ptrdiff_t start = 0; start < rows; start += at_once) {
        const REAL *z[BLOCK];
        REAL *p[BLOCK];
        const int count = rows - start < at_once ? (int)(rows - start) : at_once;
        for (int j = 0; j < count; j++) {
            const ptrdiff_t r = start + j;
            z[j] = TYPED(masked)(args[0] + r * steps[0], z_stride, args[1] + r * steps[1],
                                 mask_stride, n, room + 2 * j * n);
            p[j] = TYPED(target)(args[2] + r * steps[2], p_stride, room + (2 * j + 1) * n);
        }
        for (int j = count; j < at_once; j++) { /* fills up the block */
            z[j] = z[0];
            p[j] = room + (2 * j + 1) * n;
        }
        if (at_once > 1)
            mapping->block(z, p, count, n, scratch);
        else
            mapping->row(z[0], p[0], n, scratch);
        for (int j = 0; j < count; j++)
            TYPED(deliver)(p[j], args[2] + (start + j) * steps[2], p_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}

/* (n),(n)->(n): probabilities and a direction to the Jacobian's product with it; data is the Jvp. */
static void TYPED(jvp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data) {
    const TYPED(Jvp) *mapping = data;
    const ptrdiff_t rows = dims[0], n = dims[1];
    const ptrdiff_t p_stride = steps[3], v_stride = steps[4], out_stride = steps[5];
    if (rows == 0 || n == 0) return;
    REAL *scratch = scratch_or_error(3 * n, sizeof(REAL));
    if (scratch == NULL) return;

    for (ptrdiff_t r = 0; r < rows; r++) {
        char *to = args[2] + r * steps[2];
        const REAL *p = TYPED(contiguous)(args[0] + r * steps[0], p_stride, n, scratch);
        const REAL *v = TYPED(contiguous)(args[1] + r * steps[1], v_stride, n, scratch + n);
        REAL *out = TYPED(target)(to, out_stride, scratch + 2 * n);
        mapping->row(p, v, out, n);
        TYPED(deliver)(out, to, out_stride, n);
    }
    free(scratch);
    leave_no_float_flags();
}
