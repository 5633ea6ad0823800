/* Products with a matrix in compressed sparse rows: a template. What each kernel takes
 * stands in pyentmax/sparse_attention/compressed_rows.py.
 *
 * Row r has the weights w[start .. end) in the columns at the same places, which rise. Sums over a
 * row go from left to right, those over a column from top to bottom, each entry of a result by
 * itself; so they have the same bits however rows or columns are shared among threads.
 */
#ifndef PYENTMAX_ATTENTION_COMPRESSED_ROWS_H
#define PYENTMAX_ATTENTION_COMPRESSED_ROWS_H

#include <numpy/ndarraytypes.h>

#include "attention/heads.h"
#include "gufunc/kernel.h"
#include "mappings/entmax_jvp.h"
#include "rows/lanes.h"
#include "rows/vectors.h"

#define ROWS_DOTS_OPERANDS(real) NPY_INT32, NPY_INT64, NPY_INT64, real, real, real
#define ROWS_PRODUCT_OPERANDS(real) real, NPY_INT32, NPY_INT64, NPY_INT64, real, real
#define COLUMNS_PRODUCT_OPERANDS(real) real, NPY_INT32, NPY_INT64, NPY_INT64, real, NPY_INT64, real
#define ROWS_JVP_OPERANDS(real) real, real, NPY_INT64, NPY_INT64, NPY_DOUBLE, real, real
#define ROWS_VJP_OPERANDS(real) \
    real, NPY_INT32, NPY_INT64, NPY_INT64, real, real, real, NPY_DOUBLE, real, real, real, real
#define ROWS_VJP_ALPHA_OPERANDS(real) real, real, NPY_INT64, NPY_INT64, NPY_DOUBLE, real, real
#define ROWS_TRANSPOSED_OPERANDS(real) \
    real, real, NPY_INT32, NPY_INT64, NPY_INT64, NPY_INT64, NPY_INT32, real, real
#define ROWS_SPREAD_OPERANDS(real) real, NPY_INT32, NPY_INT64, NPY_INT64, NPY_INT64, real

/* Where the entries of some rows begin and end. */
typedef struct {
    const char *starts, *ends;
    ptrdiff_t start_step, end_step;
} RowEnds;

/* Those of the i-th head, of two operands that follow each other. */
static inline RowEnds row_ends(const Heads *all, int starts, ptrdiff_t i) {
    return (RowEnds){of_head(all, starts, i), of_head(all, starts + 1, i), all->row[starts],
                     all->row[starts + 1]};
}

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

/* The first of columns[start .. end) that is not below `least`, or end: mostly one of both. */
static inline ptrdiff_t first_column(const int32_t *columns, ptrdiff_t start, ptrdiff_t end,
                                     int64_t least) {
    if (start == end || columns[start] >= least) return start;
    if (columns[end - 1] < least) return end;
    while (start < end) {
        const ptrdiff_t middle = start + (end - start) / 2;
        if (columns[middle] < least)
            start = middle + 1;
        else
            end = middle;
    }
    return start;
}

enum { MOST_AHEAD = 16 };

/* Ask for the rows of x in the first of some columns, whose turn comes after the row at hand: where
 * rows have few entries, nothing else would run ahead of them. */
static inline void prefetch_rows(const int32_t *columns, ptrdiff_t count, const char *x,
                                 ptrdiff_t step) {
    const ptrdiff_t ahead = count < MOST_AHEAD ? count : MOST_AHEAD;
    for (ptrdiff_t i = 0; i < ahead; i++) __builtin_prefetch(x + columns[i] * step);
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
KERNEL_WITHOUT_RECORD("rows_jvp", "(c),(c),(h,m),(h,m),(h),(h,m)->(c)",
                      "Weights, v, starts and ends of rows, alpha and weights of a sink to the "
                      "products of entmax's Jacobian with v.",
                      6, 1, ROWS_JVP_OPERANDS, rows_jvp_loop)
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
KERNEL_WITHOUT_RECORD("rows_transposed", "(c),(c),(c),(m),(m)->(n),(c),(c),(c)",
                      "Two weights of each entry, columns, starts and ends of rows to where each "
                      "column ends, and the rows and weights of its entries.",
                      5, 4, ROWS_TRANSPOSED_OPERANDS, rows_transposed_loop)

#elif defined(REAL)

/* As many registers as are in use at once: more do not fit a vector unit of 16, and fewer wait for
 * their sums. */
#define MOST_PARTS (4 * REGISTERS < 8 ? 4 * REGISTERS : 8)
#define WIDE (MOST_PARTS * WIDTH)

/* The products of g with `rows` rows v, whose additions overlap; each is the same for any number of
 * them. */
ALWAYS_INLINE void TYPED(dots)(const REAL *restrict g, const REAL *const *v, const int rows,
                               ptrdiff_t width, REAL *restrict to) {
    enum { PARTS = REGISTERS < 2 ? 1 : 2, STEP = PARTS * WIDTH };
    REGISTER sum[4][PARTS];
    for (int k = 0; k < rows; k++)
        for (int j = 0; j < PARTS; j++) sum[k][j] = (REGISTER){0};
    ptrdiff_t at = 0;
    for (; at + STEP <= width; at += STEP)
        for (int j = 0; j < PARTS; j++) {
            const ptrdiff_t place = at + j * WIDTH;
            const REGISTER some = TYPED(load_register)(g + place);
            for (int k = 0; k < rows; k++) sum[k][j] += some * TYPED(load_register)(v[k] + place);
        }
    for (int k = 0; k < rows; k++) {
        REAL rest = 0;
        for (int j = 1; j < PARTS; j++) sum[k][0] += sum[k][j];
        for (ptrdiff_t i = at; i < width; i++) rest += g[i] * v[k][i];
        to[k] = TYPED(sum_across)(sum[k][0]) + rest;
    }
}

/* to[i] = g · v[columns[i]], rows of v being `step` bytes apart. */
static void TYPED(row_dots)(const REAL *restrict g, const int32_t *restrict columns,
                            ptrdiff_t count, const char *restrict v, ptrdiff_t step,
                            ptrdiff_t width, REAL *restrict to) {
    ptrdiff_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const REAL *rows[4];
        for (int k = 0; k < 4; k++) rows[k] = (const REAL *)(v + columns[i + k] * step);
        TYPED(dots)(g, rows, 4, width, to + i);
    }
    for (; i < count; i++) {
        const REAL *row = (const REAL *)(v + columns[i] * step);
        TYPED(dots)(g, &row, 1, width, to + i);
    }
}

/* to[0 .. parts) = sum_i w[i] x[columns[i]], `parts` registers of each. */
ALWAYS_INLINE void TYPED(combine_parts)(const REAL *restrict w, const int32_t *restrict columns,
                                        ptrdiff_t count, const char *restrict x, ptrdiff_t step,
                                        REAL *restrict to, const int parts) {
    REGISTER sum[MOST_PARTS];
    for (int k = 0; k < parts; k++) sum[k] = (REGISTER){0};
    for (ptrdiff_t i = 0; i < count; i++) {
        const REAL *row = (const REAL *)(x + columns[i] * step);
        const REAL weight = w[i];
        for (int k = 0; k < parts; k++) sum[k] += weight * TYPED(load_register)(row + k * WIDTH);
    }
    for (int k = 0; k < parts; k++) TYPED(store_register)(sum[k], to + k * WIDTH);
}

/* to[0 .. width) = sum_i w[i] x[columns[i]], rows of x being `step` bytes apart. */
static void TYPED(combine)(const REAL *restrict w, const int32_t *restrict columns, ptrdiff_t count,
                           const char *restrict x, ptrdiff_t step, ptrdiff_t width,
                           REAL *restrict to) {
    ptrdiff_t at = 0;
    for (; at + WIDE <= width; at += WIDE)
        TYPED(combine_parts)(w, columns, count, x + at * (ptrdiff_t)sizeof(REAL), step, to + at,
                             MOST_PARTS);
    for (; at + WIDTH <= width; at += WIDTH)
        TYPED(combine_parts)(w, columns, count, x + at * (ptrdiff_t)sizeof(REAL), step, to + at, 1);
    for (ptrdiff_t j = at; j < width; j++) to[j] = 0;
    for (ptrdiff_t i = 0; at < width && i < count; i++) {
        const REAL *row = (const REAL *)(x + columns[i] * step);
        for (ptrdiff_t j = at; j < width; j++) to[j] += w[i] * row[j];
    }
}

/* Add w[i] x to the rows columns[i] - first of `to`, while x stays in registers. */
ALWAYS_INLINE void TYPED(distribute_parts)(const REAL *restrict w, const int32_t *restrict columns,
                                           ptrdiff_t count, const REAL *restrict x, int64_t first,
                                           char *restrict to, ptrdiff_t step, const int parts) {
    REGISTER kept[4 * REGISTERS];
    for (int k = 0; k < parts; k++) kept[k] = TYPED(load_register)(x + k * WIDTH);
    for (ptrdiff_t i = 0; i < count; i++) {
        REAL *row = (REAL *)(to + (columns[i] - first) * step);
        const REAL weight = w[i];
        for (int k = 0; k < parts; k++) {
            REAL *place = row + k * WIDTH;
            TYPED(store_register)(TYPED(load_register)(place) + weight * kept[k], place);
        }
    }
}

static void TYPED(distribute)(const REAL *restrict w, const int32_t *restrict columns,
                              ptrdiff_t count, const REAL *restrict x, ptrdiff_t width,
                              int64_t first, char *restrict to, ptrdiff_t step) {
    ptrdiff_t at = 0;
    for (; at + 4 * LANES <= width; at += 4 * LANES)
        TYPED(distribute_parts)(w, columns, count, x + at, first, to + at * (ptrdiff_t)sizeof(REAL),
                                step, 4 * REGISTERS);
    for (; at + WIDTH <= width; at += WIDTH)
        TYPED(distribute_parts)(w, columns, count, x + at, first, to + at * (ptrdiff_t)sizeof(REAL),
                                step, 1);
    for (ptrdiff_t i = 0; at < width && i < count; i++) {
        REAL *row = (REAL *)(to + (columns[i] - first) * step);
        for (ptrdiff_t j = at; j < width; j++) row[j] += w[i] * x[j];
    }
}

static void TYPED(rows_dots_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                  void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "ci hm hm hme hne c", sizeof(REAL), args, dims, steps)) return;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        const int32_t *columns = (const int32_t *)of_head(&all, 0, i);
        const RowEnds rows = row_ends(&all, 1, i);
        const char *g = of_head(&all, 3, i), *v = of_head(&all, 4, i);
        REAL *out = (REAL *)of_head(&all, 5, i);
        if (!rows_fit(&rows, axis_size(&all, 'm'), axis_size(&all, 'c'), columns,
                      axis_size(&all, 'n')))
            return;
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const ptrdiff_t start = row_start(&rows, r);
            TYPED(row_dots)((const REAL *)(g + r * all.row[3]), columns + start,
                            row_end(&rows, r) - start, v, all.key[4], axis_size(&all, 'e'),
                            out + start);
        }
    }
    leave_no_float_flags();
}

static void TYPED(rows_product_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                     void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "c ci m m ne me", sizeof(REAL), args, dims, steps)) return;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        const REAL *w = (const REAL *)of_head(&all, 0, i);
        const int32_t *columns = (const int32_t *)of_head(&all, 1, i);
        const RowEnds rows = row_ends(&all, 2, i);
        const char *x = of_head(&all, 4, i);
        char *to = of_head(&all, 5, i);
        if (!rows_fit(&rows, axis_size(&all, 'm'), axis_size(&all, 'c'), columns,
                      axis_size(&all, 'n')))
            return;
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const ptrdiff_t start = row_start(&rows, r), end = row_end(&rows, r);
            prefetch_rows(columns + end, axis_size(&all, 'c') - end, x, all.key[4]);
            TYPED(combine)(w + start, columns + start, end - start, x, all.key[4],
                           axis_size(&all, 'e'), (REAL *)(to + r * all.row[5]));
        }
    }
    leave_no_float_flags();
}

static void TYPED(columns_product_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                        void *data) {
    (void)data;
    Heads all;
    /* n: the columns of this block */
    if (!read_heads(&all, "c ci m m me  ne", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t width = axis_size(&all, 'e'), block = axis_size(&all, 'n');
    for (ptrdiff_t i = 0; i < all.count; i++) {
        const REAL *w = (const REAL *)of_head(&all, 0, i);
        const int32_t *columns = (const int32_t *)of_head(&all, 1, i);
        const RowEnds rows = row_ends(&all, 2, i);
        const int64_t first = *(const int64_t *)of_head(&all, 5, i);
        const char *x = of_head(&all, 4, i);
        char *to = of_head(&all, 6, i);
        /* Its columns are looked at below. */
        if (!rows_fit(&rows, axis_size(&all, 'm'), axis_size(&all, 'c'), NULL, 0)) return;
        for (ptrdiff_t j = 0; j < block; j++)
            memset(to + j * all.key[6], 0, (size_t)width * sizeof(REAL));
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const ptrdiff_t end_of_row = row_end(&rows, r);
            const ptrdiff_t start = first_column(columns, row_start(&rows, r), end_of_row, first);
            const ptrdiff_t end = first_column(columns, start, end_of_row, first + block);
            if (!columns_fit(columns + start, end - start, first, block)) {
                value_error("columns_product: the columns of a row must rise");
                return;
            }
            TYPED(distribute)(w + start, columns + start, end - start,
                              (const REAL *)(x + r * all.row[4]), width, first, to, all.key[6]);
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
        for (ptrdiff_t start = 0; start < n; start += LEAF)
            TYPED(inverse_curvature)(p + start, n - start < LEAF ? n - start : LEAF, alpha,
                                     out + start);
        TYPED(product_from_weights)(out, v, n);
    }
}

/* The same of a row behind which lies a sink, with the weight p_sink and 0 in v; returns its entry
 * of J v. room holds 3 (n + 1) values. */
static REAL TYPED(sink_row_jvp)(const REAL *restrict p, const REAL *restrict v, REAL *restrict out,
                                ptrdiff_t n, double alpha, REAL p_sink, REAL *restrict room) {
    if (p_sink == 0) {
        TYPED(sparse_row_jvp)(p, v, out, n, alpha);
        return 0;
    }
    REAL *longer_p = room, *longer_v = room + n + 1, *longer_out = room + 2 * (n + 1);
    const size_t size = (size_t)n * sizeof(REAL);
    memcpy(longer_p, p, size);
    memcpy(longer_v, v, size);
    longer_p[n] = p_sink;
    longer_v[n] = 0;
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

static void TYPED(rows_jvp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                 void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "c c hm hm h hm c", sizeof(REAL), args, dims, steps)) return;
    REAL *room = NULL;
    ptrdiff_t most = 0;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        const REAL *p = (const REAL *)of_head(&all, 0, i), *v = (const REAL *)of_head(&all, 1, i);
        const RowEnds rows = row_ends(&all, 2, i);
        const double alpha = *(const double *)of_head(&all, 4, i);
        const char *p_sink = of_head(&all, 5, i);
        REAL *out = (REAL *)of_head(&all, 6, i);
        if (!rows_fit(&rows, axis_size(&all, 'm'), axis_size(&all, 'c'), NULL, 0)) break;
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const ptrdiff_t start = row_start(&rows, r), n = row_end(&rows, r) - start;
            room = TYPED(grown)(room, 3 * (n + 1), &most);
            if (room == NULL) return;
            TYPED(sink_row_jvp)(p + start, v + start, out + start, n, alpha,
                                *(const REAL *)(p_sink + r * all.row[5]), room);
        }
    }
    free(room);
    leave_no_float_flags();
}

/* rows_dots, rows_jvp and rows_product in one, row after row, while a row's entries lie in the
 * nearest cache. */
static void TYPED(rows_vjp_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                 void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "c ci hm hm hme hne hnd h hm c hmd hm", sizeof(REAL), args, dims, steps))
        return;
    REAL *room = NULL;
    ptrdiff_t most = 0;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        const REAL *p = (const REAL *)of_head(&all, 0, i);
        const int32_t *columns = (const int32_t *)of_head(&all, 1, i);
        const RowEnds rows = row_ends(&all, 2, i);
        const double alpha = *(const double *)of_head(&all, 7, i);
        const char *g = of_head(&all, 4, i), *v = of_head(&all, 5, i), *k = of_head(&all, 6, i);
        const char *p_sink = of_head(&all, 8, i);
        REAL *g_scores = (REAL *)of_head(&all, 9, i);
        char *g_query = of_head(&all, 10, i), *g_sink = of_head(&all, 11, i);
        if (!rows_fit(&rows, axis_size(&all, 'm'), axis_size(&all, 'c'), columns,
                      axis_size(&all, 'n')))
            break;
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const ptrdiff_t start = row_start(&rows, r), size = row_end(&rows, r) - start;
            room = TYPED(grown)(room, size + 3 * (size + 1), &most);
            if (room == NULL) return;
            const int32_t *next = columns + start + size;
            const ptrdiff_t remaining = axis_size(&all, 'c') - start - size;
            prefetch_rows(next, remaining, v, all.key[5]);
            prefetch_rows(next, remaining, k, all.key[6]);
            TYPED(row_dots)((const REAL *)(g + r * all.row[4]), columns + start, size, v,
                            all.key[5], axis_size(&all, 'e'), room);
            *(REAL *)(g_sink + r * all.row[11]) = TYPED(sink_row_jvp)(
                p + start, room, g_scores + start, size, alpha,
                *(const REAL *)(p_sink + r * all.row[8]), room + size);
            TYPED(combine)(g_scores + start, columns + start, size, k, all.key[6],
                           axis_size(&all, 'd'), (REAL *)(g_query + r * all.row[10]));
        }
    }
    free(room);
    leave_no_float_flags();
}

static void TYPED(rows_vjp_alpha_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                       void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "c c hm hm h hm hm", sizeof(REAL), args, dims, steps)) return;
    REAL *room = NULL;
    ptrdiff_t most = 0;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        const REAL *p = (const REAL *)of_head(&all, 0, i), *g = (const REAL *)of_head(&all, 1, i);
        const RowEnds rows = row_ends(&all, 2, i);
        const double alpha = *(const double *)of_head(&all, 4, i);
        const char *sinks = of_head(&all, 5, i);
        char *sums = of_head(&all, 6, i);
        if (!rows_fit(&rows, axis_size(&all, 'm'), axis_size(&all, 'c'), NULL, 0)) break;
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const ptrdiff_t start = row_start(&rows, r), n = row_end(&rows, r) - start;
            const REAL p_sink = *(const REAL *)(sinks + r * all.row[5]);
            const ptrdiff_t length = n + (p_sink != 0);
            room = TYPED(grown)(room, 4 * (n + 1), &most);
            if (room == NULL) return;
            const REAL *whole = p + start, *others = g + start;
            REAL *slope = room + n + 1, sum = 0;
            if (p_sink != 0) {
                memcpy(room, whole, (size_t)n * sizeof(REAL));
                room[n] = p_sink;
                whole = room;
            }
            if (n > 0) {
                TYPED(grad_alpha_row)(whole, slope, length, alpha, slope + length);
                TYPED(dots)(slope, &others, 1, n, &sum);
            }
            *(REAL *)(sums + r * all.row[6]) = sum;
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

static void TYPED(rows_spread_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "c ci m m  mb", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t block = axis_size(&all, 'b');
    for (ptrdiff_t i = 0; i < all.count; i++) {
        const REAL *w = (const REAL *)of_head(&all, 0, i);
        const int32_t *columns = (const int32_t *)of_head(&all, 1, i);
        const RowEnds rows = row_ends(&all, 2, i);
        const int64_t first = *(const int64_t *)of_head(&all, 4, i);
        char *to = of_head(&all, 5, i);
        if (!rows_fit(&rows, axis_size(&all, 'm'), axis_size(&all, 'c'), NULL, 0)) return;
        for (ptrdiff_t r = 0; r < axis_size(&all, 'm'); r++) {
            const ptrdiff_t end_of_row = row_end(&rows, r);
            const ptrdiff_t start = first_column(columns, row_start(&rows, r), end_of_row, first);
            const ptrdiff_t end = first_column(columns, start, end_of_row, first + block);
            if (!TYPED(place)(w + start, columns + start, end - start, first, block,
                              (REAL *)(to + r * all.row[5]))) {
                value_error("rows_spread: the columns of a row must rise");
                return;
            }
        }
    }
}

/* Entries column after column, those of a column from top to bottom. */
static void TYPED(rows_transposed_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                        void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "c c ci m m n ci c c", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t m = axis_size(&all, 'm'), n = axis_size(&all, 'n');
    for (ptrdiff_t i = 0; i < all.count; i++) {
        const REAL *w = (const REAL *)of_head(&all, 0, i), *x = (const REAL *)of_head(&all, 1, i);
        const int32_t *columns = (const int32_t *)of_head(&all, 2, i);
        const RowEnds rows = row_ends(&all, 3, i);
        int32_t *places = (int32_t *)of_head(&all, 6, i);
        REAL *to_w = (REAL *)of_head(&all, 7, i), *to_x = (REAL *)of_head(&all, 8, i);
        char *ends = of_head(&all, 5, i); /* while entries are placed: where the next one goes */
        ptrdiff_t first = 0;
        if (!rows_fit(&rows, m, axis_size(&all, 'c'), columns, n)) return;
        for (ptrdiff_t j = 0; j < n; j++) *(int64_t *)(ends + j * all.key[5]) = 0;
        for (ptrdiff_t r = 0, before = 0; r < m; r++) {
            if (row_start(&rows, r) < before) {
                value_error("rows_transposed: rows must follow each other");
                return;
            }
            before = row_end(&rows, r);
            for (ptrdiff_t k = row_start(&rows, r); k < before; k++)
                ++*(int64_t *)(ends + columns[k] * all.key[5]);
        }
        for (ptrdiff_t j = 0; j < n; j++) {
            int64_t *at = (int64_t *)(ends + j * all.key[5]);
            const ptrdiff_t count = (ptrdiff_t)*at;
            *at = first;
            first += count;
        }
        for (ptrdiff_t r = 0; r < m; r++)
            for (ptrdiff_t k = row_start(&rows, r), stop = row_end(&rows, r); k < stop; k++) {
                const int64_t to = (*(int64_t *)(ends + columns[k] * all.key[5]))++;
                places[to] = (int32_t)r;
                to_w[to] = w[k];
                to_x[to] = x[k];
            }
    }
}

#endif
