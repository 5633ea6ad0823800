/* Integers that sort as floating-point numbers do: a template. */
#ifndef PYENTMAX_ELEMENTARY_SORT_KEYS_H
#define PYENTMAX_ELEMENTARY_SORT_KEYS_H

#include "elementary/bits.h"

#define TEMPLATE "elementary/sort_keys.h"
#include "float_and_double.h"

#elif defined(REAL)

/* A float's bits as a number that rises with the float: those of negative ones are reversed. */
static inline WORD TYPED(rising_key)(REAL value) {
    const WORD sign = (WORD)1 << (8 * sizeof(WORD) - 1);
    const WORD bits = (WORD)TYPED(bits_of)(value);
    return bits ^ (sign | (WORD) - (bits >> (8 * sizeof(WORD) - 1))); /* no branch */
}

#endif
