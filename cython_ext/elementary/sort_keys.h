/* Integers that sort as floating-point numbers do: a template. */
#ifndef PYENTMAX_ELEMENTARY_SORT_KEYS_H
#define PYENTMAX_ELEMENTARY_SORT_KEYS_H

#include "elementary/bits.h"

#define TEMPLATE "elementary/sort_keys.h"
#include "float_and_double.h"

#elif defined(REAL)

#if IS_DOUBLE
typedef uint64_t TYPED(Key);
#else
typedef uint32_t TYPED(Key);
#endif

/* A float's bits as a number that rises with the float: those of negative ones are reversed. */
static inline TYPED(Key) TYPED(rising_key)(REAL value) {
    const TYPED(Key) sign = (TYPED(Key))1 << (8 * sizeof(TYPED(Key)) - 1);
    const TYPED(Key) bits = (TYPED(Key))TYPED(bits_of)(value);
    return bits ^ (sign | (TYPED(Key))-(bits >> (8 * sizeof(TYPED(Key)) - 1))); /* no branch */
}

#endif
