/* Products of whole matrices, out = x y: a template.
 *
 * Attention multiplies tiles that fit a cache, on threads of its own. BLAS would share each product
 * among threads of its own, or in pieces too small for that lose a third of its speed.
 *
 * y is packed into panels of a few registers' width. TALL rows of x times a panel stay in registers
 * for up to DEEP steps: a step reads one row of the panel, and a number of each row of x.
 */
#ifndef PYENTMAX_ATTENTION_PRODUCT_H
#define PYENTMAX_ATTENTION_PRODUCT_H

#include <numpy/ndarraytypes.h>

#include "gufunc/kernel.h"
#include "gufunc/operands.h"
#include "rows/vectors.h"

#define PRODUCT_OPERANDS(real) real, real, real

#if HAS_AVX512
#define TALL 8 /* rows of x whose sums are in registers, PANEL of them each */
#else
#define TALL 4
#endif

enum {
    PANEL = 2,
    DEEP = 256,       /* rows of a panel, and */
    BROAD = 512,      /* columns of y that are packed at a time: half a megabyte of floats */
    HIGH = 16 * TALL, /* rows of x, if these have to be packed, too, */
    APART = 4,        /* with so much between them */
};

#define TEMPLATE "attention/product.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("product", "(m,k),(k,n)->(m,n)", "Matrices x and y to x y.", 2, 1,
                      PRODUCT_OPERANDS, product_loop)

#elif defined(REAL)

#define ACROSS (PANEL * WIDTH)

/* A matrix, its strides counted in numbers. */
typedef struct {
    const REAL *at;
    ptrdiff_t down, right;
} TYPED(Matrix);

static inline TYPED(Matrix) TYPED(part)(TYPED(Matrix) x, ptrdiff_t row, ptrdiff_t column) {
    x.at += row * x.down + column * x.right;
    return x;
}

/* Rows of x times a panel of depth rows, to `columns` numbers of each row of out, or added. */
ALWAYS_INLINE void TYPED(multiply_panel)(const REAL *restrict x, const ptrdiff_t down,
                                         const ptrdiff_t right, const int rows,
                                         const REAL *restrict panel, ptrdiff_t depth, REAL *out,
                                         ptrdiff_t step, ptrdiff_t columns, bool add) {
    REGISTER sum[TALL][PANEL];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < PANEL; j++) sum[r][j] = (REGISTER){0};
    for (ptrdiff_t k = 0; k < depth; k++) {
        REGISTER y[PANEL];
        for (int j = 0; j < PANEL; j++) y[j] = TYPED(load_register)(panel + k * ACROSS + j * WIDTH);
        for (int r = 0; r < rows; r++) {
            const REAL factor = x[r * down + k * right];
            for (int j = 0; j < PANEL; j++) sum[r][j] += factor * y[j];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < PANEL; j++) {
            REAL *to = out + r * step + j * WIDTH;
            const ptrdiff_t count = columns - j * WIDTH;
            if (count <= 0) break;
            if (add) sum[r][j] += TYPED(load_first)(to, count);
            TYPED(store_first)(sum[r][j], to, count);
        }
}

/* The same of any number of rows, each TALL of which are `apart` times their number apart. */
ALWAYS_INLINE void TYPED(multiply_rows)(const REAL *x, ptrdiff_t apart, const ptrdiff_t down,
                                        const ptrdiff_t right, ptrdiff_t rows, const REAL *panel,
                                        ptrdiff_t depth, REAL *out, ptrdiff_t step,
                                        ptrdiff_t columns, bool add) {
    const ptrdiff_t whole = rows / TALL * TALL;
    for (ptrdiff_t r = 0; r < whole; r += TALL)
        TYPED(multiply_panel)(x + r * apart, down, right, TALL, panel, depth, out + r * step, step,
                              columns, add);
    for (ptrdiff_t r = whole; r < rows; r++)
        TYPED(multiply_panel)(x + whole * apart + (r - whole) * down, down, right, 1, panel, depth,
                              out + r * step, step, columns, add);
}

/* Rows of x whose numbers do not lie side by side: TALL rows after the other, those of a column
 * side by side. Blocks of TALL are a little more than depth apart: powers of 2 would share one set
 * of the cache. */
static void TYPED(pack_rows)(TYPED(Matrix) x, ptrdiff_t rows, ptrdiff_t depth, REAL *restrict to) {
    for (ptrdiff_t k = 0; k < depth; k++)
        for (ptrdiff_t r = 0; r < rows; r += TALL) {
            REAL *block = to + r * (depth + APART) + k * TALL;
            const REAL *from = x.at + r * x.down + k * x.right;
            if (x.down == 1 && r + TALL <= rows)
                memcpy(block, from, TALL * sizeof(REAL));
            else
                for (ptrdiff_t i = 0; i < TALL && r + i < rows; i++) block[i] = from[i * x.down];
        }
}

/* y[0 .. depth)[0 .. columns) as panels, the last filled up with zeros. */
static void TYPED(pack_panels)(TYPED(Matrix) y, ptrdiff_t depth, ptrdiff_t columns,
                               REAL *restrict to) {
    for (ptrdiff_t j = 0; j < columns; j += ACROSS) {
        const ptrdiff_t own = columns - j < ACROSS ? columns - j : ACROSS;
        const TYPED(Matrix) from = TYPED(part)(y, 0, j);
        for (ptrdiff_t k = 0; k < depth; k++, to += ACROSS) {
            if (from.right == 1 && own == ACROSS) {
                memcpy(to, from.at + k * from.down, sizeof(REAL) * ACROSS);
                continue;
            }
            for (ptrdiff_t c = 0; c < ACROSS; c++)
                to[c] = c < own ? from.at[k * from.down + c * from.right] : 0;
        }
    }
}

static void TYPED(product)(TYPED(Matrix) x, TYPED(Matrix) y, REAL *out, ptrdiff_t step, ptrdiff_t m,
                           ptrdiff_t k, ptrdiff_t n, REAL *panels, REAL *rows) {
    for (ptrdiff_t first = 0; first < n; first += BROAD)
        for (ptrdiff_t top = 0; top < k; top += DEEP) {
            const ptrdiff_t depth = k - top < DEEP ? k - top : DEEP;
            const ptrdiff_t columns = n - first < BROAD ? n - first : BROAD;
            TYPED(pack_panels)(TYPED(part)(y, top, first), depth, columns, panels);
            for (ptrdiff_t row = 0; row < m; row += HIGH) {
                const ptrdiff_t high = m - row < HIGH ? m - row : HIGH;
                const TYPED(Matrix) own = TYPED(part)(x, row, top);
                const bool lies = own.right == 1;
                if (!lies) TYPED(pack_rows)(own, high, depth, rows);
                for (ptrdiff_t j = 0; j < columns; j += ACROSS) {
                    const REAL *panel = panels + j * depth;
                    REAL *to = out + row * step + first + j;
                    if (lies)
                        TYPED(multiply_rows)(own.at, own.down, own.down, 1, high, panel, depth, to,
                                             step, columns - j, top > 0);
                    else
                        TYPED(multiply_rows)(rows, depth + APART, 1, TALL, high, panel, depth, to,
                                             step, columns - j, top > 0);
                }
            }
        }
}

static void TYPED(product_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                void *data) {
    (void)data;
    const ptrdiff_t m = dims[1], k = dims[2], n = dims[3], size = sizeof(REAL);
    const ptrdiff_t broad = n < BROAD ? n : BROAD, room = DEEP * (broad + ACROSS);
    REAL *panels = scratch_or_error(room + (DEEP + APART) * HIGH, sizeof(REAL));
    if (panels == NULL) return;
    for (ptrdiff_t i = 0; i < dims[0]; i++) {
        const TYPED(Matrix) x = {(const REAL *)(args[0] + i * steps[0]), steps[3] / size,
                                 k > 1 ? steps[4] / size : 1};
        const TYPED(Matrix) y = {(const REAL *)(args[1] + i * steps[1]), steps[5] / size,
                                 n > 1 ? steps[6] / size : 1};
        REAL *out = (REAL *)(args[2] + i * steps[2]);
        for (ptrdiff_t r = 0; k == 0 && r < m; r++)
            memset(out + r * (steps[7] / size), 0, (size_t)n * sizeof(REAL));
        TYPED(product)(x, y, out, steps[7] / size, m, k, n, panels, panels + room);
    }
    free(panels);
    leave_no_float_flags();
}

#endif
