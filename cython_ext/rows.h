/* What the kernels of every mapping share: how to run along a row fast, in portable C.
 *
 * C does not let a compiler reorder floating-point sums, so a plain loop `sum += u[i]` stays scalar.
 * These loops therefore spell out the order that suits vector units: LANES independent
 * accumulators, each taking every LANES-th entry. Compilers turn the fixed inner loops into vector
 * code at any instruction set without -ffast-math, and the result does not depend on which one.
 */
#ifndef PYENTMAX_ROWS_H
#define PYENTMAX_ROWS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    LANES = 16, /* four SSE or NEON registers of float, two of AVX: enough to hide an add's latency */
    LEAF = 256, /* entries summed in the row's own precision before a sum moves on to double */
};

/* Rows that the kernels copy are padded to whole lanes, with a value that no support contains. */
static inline ptrdiff_t whole_lanes(ptrdiff_t n) {
    return (n + LANES - 1) / LANES * LANES;
}

/* Where to split a long sum: in half, on a whole leaf. Halving makes rounding grow with log n. */
static inline ptrdiff_t half_of(ptrdiff_t n) {
    return (n / 2 + LEAF - 1) / LEAF * LEAF;
}

/* Fills gaps up to whole lanes: any value below -1, which is as low as t <= 1 reaches. */
#define OUTSIDE (-2)

/* Never reached: a search for t takes ten passes at the most that the tests ever see, and gains at
 * least a digit or an entry in each. It keeps a rounding cycle from being an endless loop, and the
 * step that follows the search makes up for a last one not taken. */
#define MAX_PASSES 64

/* Of [x + t]+ over a row: the sums of squares and of values, and how many are positive. */
typedef struct {
    double squares, sum, size;
} Moments;

/* sum s v and sum s. */
typedef struct {
    double product, weight;
} Weighted;

#endif
