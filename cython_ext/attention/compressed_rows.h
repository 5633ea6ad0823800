/* Products with a matrix in compressed sparse rows: a template. The NumPy twins have the same
 * names, in pyentmax/sparse_attention/compressed_rows.py.
 *
 * Row r has the weights w[start .. end) in the columns at the same places, which rise. Sums over a
 * row go from left to right, those over a column from top to bottom, each entry of a result by
 * itself; so they have the same bits however rows or columns are shared among threads.
 */
#ifndef PYENTMAX_ATTENTION_COMPRESSED_ROWS_H
#define PYENTMAX_ATTENTION_COMPRESSED_ROWS_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/operands.h"
#include "mappings/entmax_grad_alpha.h"
#include "mappings/entmax_jvp.h"
#include "rows/lanes.h"

#define ROWS_DOTS_OPERANDS(real) NPY_INT32, NPY_INT64, NPY_INT64, real, real, real
#define ROWS_PRODUCT_OPERANDS(real) real, NPY_INT32, NPY_INT64, NPY_INT64, real, real
#define COLUMNS_PRODUCT_OPERANDS(real) real, NPY_INT32, NPY_INT64, NPY_INT64, real, NPY_INT64, real
#define ROWS_JVP_OPERANDS(real) real, real, NPY_INT64, NPY_INT64, NPY_DOUBLE, real, real, real
#define ROWS_VJP_OPERANDS(real) \
    real, NPY_INT32, NPY_INT64, NPY_INT64, real, real, real, NPY_DOUBLE, real, real, real, real
#define ROWS_VJP_ALPHA_OPERANDS(real) real, real, NPY_INT64, NPY_INT64, NPY_DOUBLE, real, real
#define ROWS_SPREAD_OPERANDS(real) real, NPY_INT32, NPY_INT64, NPY_INT64, NPY_INT64, real

/* An inner loop has no return value; NumPy looks for an exception. Called without the GIL. */
static inline void value_error(const char *message) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_SetString(PyExc_ValueError, message);
    PyGILState_Release(state);
}

/* Do n entries of a size follow each other? NumPy gives a single one the step 0. */
static inline bool is_contiguous(ptrdiff_t step, ptrdiff_t n, size_t size) {
    return n <= 1 || step == (ptrdiff_t)size;
}

/* Where the entries of some rows begin and end. */
typedef struct {
    const char *starts, *ends;
    ptrdiff_t start_step, end_step;
} RowEnds;

static inline ptrdiff_t row_start(const RowEnds *rows, ptrdiff_t r) {
    return (ptrdiff_t)*(const int64_t *)(rows->starts + r * rows->start_step);
}

static inline ptrdiff_t row_end(const RowEnds *rows, ptrdiff_t r) {
    return (ptrdiff_t)*(const int64_t *)(rows->ends + r * rows->end_step);
}

/* Are `count` columns all within [first, first + block)? */
static bool columns_fit(const int32_t *columns, ptrdiff_t count, int64_t first, ptrdiff_t block) {
    uint32_t wrong = 0;
    for (ptrdiff_t i = 0; i < count; i++)
        wrong |= (uint32_t)columns[i] - (uint32_t)first >= (uint32_t)block;
    return !wrong;
}

/* Are all rows within `entries`, and their columns, if any are given, below n? An error is set
 * otherwise. */
static bool rows_fit(const RowEnds *rows, ptrdiff_t count, ptrdiff_t entries,
                     const int32_t *columns, ptrdiff_t n) {
    const ptrdiff_t limit = n < INT32_MAX ? n : INT32_MAX;
    ptrdiff_t checked = 0, from = 0; /* rows that follow each other are looked at together */
    bool fit = true;
    for (ptrdiff_t r = 0; fit && r < count; r++) {
        const ptrdiff_t start = row_start(rows, r), end = row_end(rows, r);
        fit = start >= 0 && end >= start && end <= entries;
        if (columns == NULL || !fit) continue;
        if (start != checked) {
            fit = columns_fit(columns + from, checked - from, 0, limit);
            from = start;
        }
        checked = end;
    }
    if (fit && columns != NULL) fit = columns_fit(columns + from, checked - from, 0, limit);
    if (!fit) value_error("compressed rows: a row or a column lies outside of the matrix");
    return fit;
}

/* The first of columns[start .. end) that is not below `least`, or end. */
static inline ptrdiff_t first_column(const int32_t *columns, ptrdiff_t start, ptrdiff_t end,
                                     int64_t least) {
    while (start < end) {
        const ptrdiff_t middle = start + (end - start) / 2;
        if (columns[middle] < least)
            start = middle + 1;
        else
            end = middle;
    }
    return start;
}

#define TEMPLATE "attention/compressed_rows.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("rows_dots", "(c),(h,m),(h,m),(h,m,e),(h,n,e)->(c)",
                      "Columns, starts and ends of rows, g and v to the products g_i v_j.", 5, 1,
                      ROWS_DOTS_OPERANDS, rows_dots_loop)
KERNEL_WITHOUT_RECORD("rows_product", "(c),(c),(m),(m),(n,e)->(m,e)",
                      "Weights, columns, starts and ends of rows, and x to the sums w_ij x_j.", 5,
                      1, ROWS_PRODUCT_OPERANDS, rows_product_loop)
KERNEL_WITHOUT_RECORD("columns_product", "(c),(c),(m),(m),(m,e),()->(b,e)",
                      "Weights, columns, starts and ends of rows, x and a first column to the sums "
                      "w_ij x_i.",
                      6, 1, COLUMNS_PRODUCT_OPERANDS, columns_product_loop)
KERNEL_WITHOUT_RECORD("rows_jvp", "(c),(c),(h,m),(h,m),(h),(h,m),(h)->(c)",
                      "Weights, v, starts and ends of rows, alpha, weights and v of a sink to the "
                      "products of entmax's Jacobian with v.",
                      7, 1, ROWS_JVP_OPERANDS, rows_jvp_loop)
KERNEL_WITHOUT_RECORD(
    "rows_vjp", "(c),(c),(h,m),(h,m),(h,m,e),(h,n,e),(h,n,d),(h),(h,m)->(c),(h,m,d),(h,m)",
    "Weights, columns, starts and ends of rows, g, v, k, alpha and weights of a sink to the "
    "gradients of scores, queries and sink.",
    9, 3, ROWS_VJP_OPERANDS, rows_vjp_loop)
KERNEL_WITHOUT_RECORD("rows_vjp_alpha", "(c),(c),(h,m),(h,m),(h),(h,m)->(h,m)",
                      "Weights, g, starts and ends of rows, alpha and weights of a sink to what "
                      "each row contributes to the gradient of alpha.",
                      6, 1, ROWS_VJP_ALPHA_OPERANDS, rows_vjp_alpha_loop)
KERNEL_WITHOUT_RECORD("rows_spread", "(c),(c),(m),(m),()->(m,b)",
                      "Weights, columns, starts and ends of rows, and a first column to all "
                      "entries.",
                      5, 1, ROWS_SPREAD_OPERANDS, rows_spread_loop)

#elif defined(REAL)

static inline REAL TYPED(dot)(const REAL *restrict a, const REAL *restrict b, ptrdiff_t n) {
    REAL sum[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += a[i + j] * b[i + j];
    if (i < n) {
        REAL rest[LANES] = {0};
        for (int j = 0; i + j < n; j++) rest[j] = a[i + j] * b[i + j];
        for (int j = 0; j < LANES; j++) sum[j] += rest[j];
    }
    return TYPED(lane_sum)(sum);
}

/* to[i] = g · v[columns[i]], rows of v being `step` bytes apart: four at a time, whose additions
 * overlap, each with the sum that `dot` has. */
static void TYPED(row_dots)(const REAL *restrict g, const int32_t *restrict columns,
                            ptrdiff_t count, const char *restrict v, ptrdiff_t step,
                            ptrdiff_t width, REAL *restrict to) {
    ptrdiff_t i = 0;
    for (; width % LANES == 0 && i + 4 <= count; i += 4) {
        const REAL *v0 = (const REAL *)(v + columns[i] * step);
        const REAL *v1 = (const REAL *)(v + columns[i + 1] * step);
        const REAL *v2 = (const REAL *)(v + columns[i + 2] * step);
        const REAL *v3 = (const REAL *)(v + columns[i + 3] * step);
        REAL a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0}, d[LANES] = {0};
        for (ptrdiff_t at = 0; at < width; at += LANES) {
            for (int j = 0; j < LANES; j++) a[j] += g[at + j] * v0[at + j];
            for (int j = 0; j < LANES; j++) b[j] += g[at + j] * v1[at + j];
            for (int j = 0; j < LANES; j++) c[j] += g[at + j] * v2[at + j];
            for (int j = 0; j < LANES; j++) d[j] += g[at + j] * v3[at + j];
        }
        to[i] = TYPED(lane_sum)(a);
        to[i + 1] = TYPED(lane_sum)(b);
        to[i + 2] = TYPED(lane_sum)(c);
        to[i + 3] = TYPED(lane_sum)(d);
    }
    for (; i < count; i++) to[i] = TYPED(dot)(g, (const REAL *)(v + columns[i] * step), width);
}

/* (c),(h,m),(h,m),(h,m,e),(h,n,e)->(c) */
static void TYPED(rows_dots_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                  void *data) {
    (void)data;
    const ptrdiff_t entries = dims[1], heads = dims[2], m = dims[3], width = dims[4], n = dims[5];
    const ptrdiff_t *own = steps + 6; /* c, h m, h m, h m e, h n e, c */
    if (!is_contiguous(own[0], entries, sizeof(int32_t))
        || !is_contiguous(own[7], width, sizeof(REAL))
        || !is_contiguous(own[10], width, sizeof(REAL))
        || !is_contiguous(own[11], entries, sizeof(REAL))) {
        value_error("rows_dots: rows must be contiguous");
        return;
    }
    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        const int32_t *columns = (const int32_t *)(args[0] + turn * steps[0]);
        REAL *out = (REAL *)(args[5] + turn * steps[5]);
        for (ptrdiff_t h = 0; h < heads; h++) {
            const RowEnds rows = {args[1] + turn * steps[1] + h * own[1],
                                  args[2] + turn * steps[2] + h * own[3], own[2], own[4]};
            const char *g = args[3] + turn * steps[3] + h * own[5];
            const char *v = args[4] + turn * steps[4] + h * own[8];
            if (!rows_fit(&rows, m, entries, columns, n)) return;
            for (ptrdiff_t r = 0; r < m; r++) {
                const ptrdiff_t start = row_start(&rows, r), size = row_end(&rows, r) - start;
                TYPED(row_dots)((const REAL *)(g + r * own[6]), columns + start, size, v, own[9],
                                width, out + start);
            }
        }
    }
    leave_no_float_flags();
}

/* to[0 .. width) = sum_i w[i] x[columns[i]], rows of x being `step` bytes apart. Arrays of one
 * vector stay in registers. */
static void TYPED(combine)(const REAL *restrict w, const int32_t *restrict columns, ptrdiff_t count,
                           const char *restrict x, ptrdiff_t step, ptrdiff_t width,
                           REAL *restrict to) {
    ptrdiff_t at = 0;
    for (; at + 4 * LANES <= width; at += 4 * LANES) {
        REAL a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0}, d[LANES] = {0};
        for (ptrdiff_t i = 0; i < count; i++) {
            const REAL *row = (const REAL *)(x + columns[i] * step) + at;
            const REAL weight = w[i];
            for (int j = 0; j < LANES; j++) a[j] += weight * row[j];
            for (int j = 0; j < LANES; j++) b[j] += weight * row[LANES + j];
            for (int j = 0; j < LANES; j++) c[j] += weight * row[2 * LANES + j];
            for (int j = 0; j < LANES; j++) d[j] += weight * row[3 * LANES + j];
        }
        for (int j = 0; j < LANES; j++) {
            to[at + j] = a[j];
            to[at + LANES + j] = b[j];
            to[at + 2 * LANES + j] = c[j];
            to[at + 3 * LANES + j] = d[j];
        }
    }
    for (; at + LANES <= width; at += LANES) {
        REAL a[LANES] = {0};
        for (ptrdiff_t i = 0; i < count; i++) {
            const REAL *row = (const REAL *)(x + columns[i] * step) + at;
            for (int j = 0; j < LANES; j++) a[j] += w[i] * row[j];
        }
        for (int j = 0; j < LANES; j++) to[at + j] = a[j];
    }
    if (at == width) return;
    for (ptrdiff_t j = at; j < width; j++) to[j] = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        const REAL *row = (const REAL *)(x + columns[i] * step);
        for (ptrdiff_t j = at; j < width; j++) to[j] += w[i] * row[j];
    }
}

/* (c),(c),(m),(m),(n,e)->(m,e) */
static void TYPED(rows_product_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                     void *data) {
    (void)data;
    const ptrdiff_t entries = dims[1], m = dims[2], n = dims[3], width = dims[4];
    const ptrdiff_t *own = steps + 6; /* c, c, m, m, n e, m e */
    if (!is_contiguous(own[0], entries, sizeof(REAL))
        || !is_contiguous(own[1], entries, sizeof(int32_t))
        || !is_contiguous(own[5], width, sizeof(REAL))
        || !is_contiguous(own[7], width, sizeof(REAL))) {
        value_error("rows_product: rows must be contiguous");
        return;
    }
    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        const REAL *w = (const REAL *)(args[0] + turn * steps[0]);
        const int32_t *columns = (const int32_t *)(args[1] + turn * steps[1]);
        const RowEnds rows = {args[2] + turn * steps[2], args[3] + turn * steps[3], own[2], own[3]};
        if (!rows_fit(&rows, m, entries, columns, n)) return;
        for (ptrdiff_t r = 0; r < m; r++) {
            const ptrdiff_t start = row_start(&rows, r);
            TYPED(combine)(w + start, columns + start, row_end(&rows, r) - start,
                           args[4] + turn * steps[4], own[4], width,
                           (REAL *)(args[5] + turn * steps[5] + r * own[6]));
        }
    }
    leave_no_float_flags();
}

/* Add w[i] x to the rows columns[i] - first of `to`, while x stays in registers. */
static void TYPED(distribute)(const REAL *restrict w, const int32_t *restrict columns,
                              ptrdiff_t count, const REAL *restrict x, ptrdiff_t width,
                              int64_t first, char *restrict to, ptrdiff_t step) {
    ptrdiff_t at = 0;
    for (; at + 4 * LANES <= width; at += 4 * LANES) {
        REAL a[LANES], b[LANES], c[LANES], d[LANES];
        for (int j = 0; j < LANES; j++) {
            a[j] = x[at + j];
            b[j] = x[at + LANES + j];
            c[j] = x[at + 2 * LANES + j];
            d[j] = x[at + 3 * LANES + j];
        }
        for (ptrdiff_t i = 0; i < count; i++) {
            REAL *row = (REAL *)(to + (columns[i] - first) * step) + at;
            const REAL weight = w[i];
            for (int j = 0; j < LANES; j++) row[j] += weight * a[j];
            for (int j = 0; j < LANES; j++) row[LANES + j] += weight * b[j];
            for (int j = 0; j < LANES; j++) row[2 * LANES + j] += weight * c[j];
            for (int j = 0; j < LANES; j++) row[3 * LANES + j] += weight * d[j];
        }
    }
    for (; at + LANES <= width; at += LANES) {
        for (ptrdiff_t i = 0; i < count; i++) {
            REAL *row = (REAL *)(to + (columns[i] - first) * step) + at;
            for (int j = 0; j < LANES; j++) row[j] += w[i] * x[at + j];
        }
    }
    for (ptrdiff_t i = 0; at < width && i < count; i++) {
        REAL *row = (REAL *)(to + (columns[i] - first) * step);
        for (ptrdiff_t j = at; j < width; j++) row[j] += w[i] * x[j];
    }
}

/* (c),(c),(m),(m),(m,e),()->(b,e) */
static void TYPED(columns_product_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                        void *data) {
    (void)data;
    const ptrdiff_t entries = dims[1], m = dims[2], width = dims[3], block = dims[4];
    const ptrdiff_t *own = steps + 7; /* c, c, m, m, m e, b e */
    if (!is_contiguous(own[0], entries, sizeof(REAL))
        || !is_contiguous(own[1], entries, sizeof(int32_t))
        || !is_contiguous(own[5], width, sizeof(REAL))
        || !is_contiguous(own[7], width, sizeof(REAL))) {
        value_error("columns_product: rows must be contiguous");
        return;
    }
    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        const REAL *w = (const REAL *)(args[0] + turn * steps[0]);
        const int32_t *columns = (const int32_t *)(args[1] + turn * steps[1]);
        const RowEnds rows = {args[2] + turn * steps[2], args[3] + turn * steps[3], own[2], own[3]};
        const int64_t first = *(const int64_t *)(args[5] + turn * steps[5]);
        char *to = args[6] + turn * steps[6];
        if (!rows_fit(&rows, m, entries, NULL, 0)) return; /* its columns are looked at below */
        for (ptrdiff_t j = 0; j < block; j++)
            memset(to + j * own[6], 0, (size_t)width * sizeof(REAL));
        for (ptrdiff_t r = 0; r < m; r++) {
            const ptrdiff_t from = row_start(&rows, r), all = row_end(&rows, r);
            const ptrdiff_t start = first_column(columns, from, all, first);
            const ptrdiff_t end = first_column(columns, start, all, first + block);
            if (!columns_fit(columns + start, end - start, first, block)) {
                value_error("columns_product: the columns of a row must rise");
                return;
            }
            TYPED(distribute)(w + start, columns + start, end - start,
                              (const REAL *)(args[4] + turn * steps[4] + r * own[4]), width, first,
                              to, own[6]);
        }
    }
    leave_no_float_flags();
}

/* J v of one row of n non-zeros. */
static void TYPED(sparse_row_jvp)(const REAL *restrict p, const REAL *restrict v,
                                  REAL *restrict out, ptrdiff_t n, double alpha) {
    if (n == 0) return;
    if (alpha > 2) {
        TYPED(entmax_jvp_above_2_row)(p, v, out, n, alpha);
    } else { /* out holds p^(2-α) */
        TYPED(Balance) all = {0};
        for (ptrdiff_t start = 0; start < n; start += LEAF) {
            const ptrdiff_t size = n - start < LEAF ? n - start : LEAF;
            TYPED(inverse_curvature)(p + start, size, alpha, out + start);
            TYPED(add_weights)(out + start, v + start, size, 0, &all);
        }
        TYPED(jacobian_product)(out, v, n, &all);
    }
}

/* The same of a row behind which lies a sink, with the weight p_sink; returns its entry of J v.
 * room holds 3 (n + 1) values. */
static REAL TYPED(sink_row_jvp)(const REAL *restrict p, const REAL *restrict v, REAL *restrict out,
                                ptrdiff_t n, double alpha, REAL p_sink, REAL v_sink,
                                REAL *restrict room) {
    if (p_sink == 0) {
        TYPED(sparse_row_jvp)(p, v, out, n, alpha);
        return 0;
    }
    REAL *longer_p = room, *longer_v = room + n + 1, *longer_out = room + 2 * (n + 1);
    const size_t size = (size_t)n * sizeof(REAL);
    memcpy(longer_p, p, size);
    memcpy(longer_v, v, size);
    longer_p[n] = p_sink;
    longer_v[n] = v_sink;
    TYPED(sparse_row_jvp)(longer_p, longer_v, longer_out, n + 1, alpha);
    memcpy(out, longer_out, size);
    return longer_out[n];
}

/* At least `count` values at `room`, which had *most; NULL with an error if there is no memory. */
static REAL *TYPED(grown)(REAL *room, ptrdiff_t count, ptrdiff_t *most) {
    if (room != NULL && count <= *most) return room;
    free(room);
    *most = count > 2 * *most ? count : 2 * *most;
    return scratch_or_error(*most, sizeof(REAL));
}

/* (c),(c),(h,m),(h,m),(h),(h,m),(h)->(c) */
static void TYPED(rows_jvp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                 void *data) {
    (void)data;
    const ptrdiff_t entries = dims[1], heads = dims[2], m = dims[3];
    const ptrdiff_t *own = steps + 8; /* c, c, h m, h m, h, h m, h, c */
    if (!is_contiguous(own[0], entries, sizeof(REAL))
        || !is_contiguous(own[1], entries, sizeof(REAL))
        || !is_contiguous(own[10], entries, sizeof(REAL))) {
        value_error("rows_jvp: rows must be contiguous");
        return;
    }
    REAL *room = NULL;
    ptrdiff_t most = 0;
    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        const REAL *p = (const REAL *)(args[0] + turn * steps[0]);
        const REAL *v = (const REAL *)(args[1] + turn * steps[1]);
        REAL *out = (REAL *)(args[7] + turn * steps[7]);
        for (ptrdiff_t h = 0; h < heads; h++) {
            const RowEnds rows = {args[2] + turn * steps[2] + h * own[2],
                                  args[3] + turn * steps[3] + h * own[4], own[3], own[5]};
            const double alpha = *(const double *)(args[4] + turn * steps[4] + h * own[6]);
            const char *p_sink = args[5] + turn * steps[5] + h * own[7];
            const REAL v_sink = *(const REAL *)(args[6] + turn * steps[6] + h * own[9]);
            bool fits = rows_fit(&rows, m, entries, NULL, 0);
            for (ptrdiff_t r = 0; fits && r < m; r++) {
                const ptrdiff_t start = row_start(&rows, r), n = row_end(&rows, r) - start;
                room = TYPED(grown)(room, 3 * (n + 1), &most);
                if (room == NULL) return;
                TYPED(sink_row_jvp)(p + start, v + start, out + start, n, alpha,
                                    *(const REAL *)(p_sink + r * own[8]), v_sink, room);
            }
            if (!fits) {
                free(room);
                return;
            }
        }
    }
    free(room);
    leave_no_float_flags();
}

/* (c),(c),(h,m),(h,m),(h,m,e),(h,n,e),(h,n,d),(h),(h,m)->(c),(h,m,d),(h,m): rows_dots, rows_jvp and
 * rows_product in one, row after row, while a row's entries lie in the nearest cache. */
static void TYPED(rows_vjp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                 void *data) {
    (void)data;
    const ptrdiff_t entries = dims[1], heads = dims[2], m = dims[3], n = dims[5];
    const ptrdiff_t g_width = dims[4], width = dims[6];
    const ptrdiff_t *own = steps
                           + 12; /* c, c, h m, h m, h m e, h n e, h n d, h, h m, c, h m d, h m */
    if (!is_contiguous(own[0], entries, sizeof(REAL))
        || !is_contiguous(own[1], entries, sizeof(int32_t))
        || !is_contiguous(own[8], g_width, sizeof(REAL))
        || !is_contiguous(own[11], g_width, sizeof(REAL))
        || !is_contiguous(own[14], width, sizeof(REAL))
        || !is_contiguous(own[18], entries, sizeof(REAL))
        || !is_contiguous(own[21], width, sizeof(REAL))) {
        value_error("rows_vjp: rows must be contiguous");
        return;
    }
    REAL *room = NULL;
    ptrdiff_t most = 0;
    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        const REAL *p = (const REAL *)(args[0] + turn * steps[0]);
        const int32_t *columns = (const int32_t *)(args[1] + turn * steps[1]);
        REAL *g_scores = (REAL *)(args[9] + turn * steps[9]);
        for (ptrdiff_t h = 0; h < heads; h++) {
            const RowEnds rows = {args[2] + turn * steps[2] + h * own[2],
                                  args[3] + turn * steps[3] + h * own[4], own[3], own[5]};
            const char *g = args[4] + turn * steps[4] + h * own[6];
            const char *v = args[5] + turn * steps[5] + h * own[9];
            const char *k = args[6] + turn * steps[6] + h * own[12];
            const double alpha = *(const double *)(args[7] + turn * steps[7] + h * own[15]);
            const char *p_sink = args[8] + turn * steps[8] + h * own[16];
            char *g_query = args[10] + turn * steps[10] + h * own[19];
            char *g_sink = args[11] + turn * steps[11] + h * own[22];
            bool fits = rows_fit(&rows, m, entries, columns, n);
            for (ptrdiff_t r = 0; fits && r < m; r++) {
                const ptrdiff_t start = row_start(&rows, r), size = row_end(&rows, r) - start;
                room = TYPED(grown)(room, size + 3 * (size + 1), &most);
                if (room == NULL) return;
                TYPED(row_dots)((const REAL *)(g + r * own[7]), columns + start, size, v, own[10],
                                g_width, room);
                *(REAL *)(g_sink + r * own[23]) = TYPED(sink_row_jvp)(
                    p + start, room, g_scores + start, size, alpha,
                    *(const REAL *)(p_sink + r * own[17]), 0, room + size);
                TYPED(combine)(g_scores + start, columns + start, size, k, own[13], width,
                               (REAL *)(g_query + r * own[20]));
            }
            if (!fits) {
                free(room);
                return;
            }
        }
    }
    free(room);
    leave_no_float_flags();
}

/* (c),(c),(h,m),(h,m),(h),(h,m)->(h,m) */
static void TYPED(rows_vjp_alpha_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                       void *data) {
    (void)data;
    const ptrdiff_t entries = dims[1], heads = dims[2], m = dims[3];
    const ptrdiff_t *own = steps + 7; /* c, c, h m, h m, h, h m, h m */
    if (!is_contiguous(own[0], entries, sizeof(REAL))
        || !is_contiguous(own[1], entries, sizeof(REAL))) {
        value_error("rows_vjp_alpha: rows must be contiguous");
        return;
    }
    REAL *room = NULL;
    ptrdiff_t most = 0;
    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        const REAL *p = (const REAL *)(args[0] + turn * steps[0]);
        const REAL *g = (const REAL *)(args[1] + turn * steps[1]);
        for (ptrdiff_t h = 0; h < heads; h++) {
            const RowEnds rows = {args[2] + turn * steps[2] + h * own[2],
                                  args[3] + turn * steps[3] + h * own[4], own[3], own[5]};
            const double alpha = *(const double *)(args[4] + turn * steps[4] + h * own[6]);
            bool fits = rows_fit(&rows, m, entries, NULL, 0);
            for (ptrdiff_t r = 0; fits && r < m; r++) {
                const ptrdiff_t start = row_start(&rows, r), n = row_end(&rows, r) - start;
                const REAL p_sink = *(const REAL *)(args[5] + turn * steps[5] + h * own[7]
                                                    + r * own[8]);
                const ptrdiff_t length = n + (p_sink != 0);
                room = TYPED(grown)(room, 4 * (n + 1), &most);
                if (room == NULL) return;
                const REAL *all = p + start;
                if (p_sink != 0) {
                    memcpy(room, all, (size_t)n * sizeof(REAL));
                    room[n] = p_sink;
                    all = room;
                }
                REAL *slope = room + length;
                if (n > 0) TYPED(grad_alpha_row)(all, slope, length, alpha, slope + length);
                *(REAL *)(args[6] + turn * steps[6] + h * own[9]
                          + r * own[10]) = n > 0 ? TYPED(dot)(slope, g + start, n) : (REAL)0;
            }
            if (!fits) {
                free(room);
                return;
            }
        }
    }
    free(room);
    leave_no_float_flags();
}

/* w to its columns, counted from `first`, and zeros elsewhere. */
static bool TYPED(place)(const REAL *restrict w, const int32_t *restrict columns, ptrdiff_t count,
                         int64_t first, ptrdiff_t block, REAL *restrict to) {
    if (!columns_fit(columns, count, first, block)) return false;
    if (count == block) {
        memcpy(to, w, (size_t)count * sizeof(REAL));
        return true;
    }
    memset(to, 0, (size_t)block * sizeof(REAL));
    for (ptrdiff_t i = 0; i < count; i++) to[columns[i] - first] = w[i];
    return true;
}

/* (c),(c),(m),(m),()->(m,b) */
static void TYPED(rows_spread_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    (void)data;
    const ptrdiff_t entries = dims[1], m = dims[2], block = dims[3];
    const ptrdiff_t *own = steps + 6; /* c, c, m, m, m b */
    if (!is_contiguous(own[0], entries, sizeof(REAL))
        || !is_contiguous(own[1], entries, sizeof(int32_t))
        || !is_contiguous(own[5], block, sizeof(REAL))) {
        value_error("rows_spread: rows must be contiguous");
        return;
    }
    for (ptrdiff_t turn = 0; turn < dims[0]; turn++) {
        const REAL *w = (const REAL *)(args[0] + turn * steps[0]);
        const int32_t *columns = (const int32_t *)(args[1] + turn * steps[1]);
        const RowEnds rows = {args[2] + turn * steps[2], args[3] + turn * steps[3], own[2], own[3]};
        const int64_t first = *(const int64_t *)(args[4] + turn * steps[4]);
        if (!rows_fit(&rows, m, entries, NULL, 0)) return;
        for (ptrdiff_t r = 0; r < m; r++) {
            REAL *to = (REAL *)(args[5] + turn * steps[5] + r * own[4]);
            const ptrdiff_t from = row_start(&rows, r), all = row_end(&rows, r);
            const ptrdiff_t start = first_column(columns, from, all, first);
            const ptrdiff_t end = first_column(columns, start, all, first + block);
            if (!TYPED(place)(w + start, columns + start, end - start, first, block, to)) {
                value_error("rows_spread: the columns of a row must rise");
                return;
            }
        }
    }
}

#endif
