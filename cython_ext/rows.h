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

#endif
