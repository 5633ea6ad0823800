/* Includes the header that TEMPLATE names once for float and once for double.
 *
 * C has no templates, so a header that holds for both types includes itself through this one:
 *
 *     #ifndef PYENTMAX_ROWS_LANES_H
 *     #define PYENTMAX_ROWS_LANES_H
 *     #include "rows/sizes.h"                what it needs
 *     #define TEMPLATE "rows/lanes.h"        its own path
 *     #include "float_and_double.h"
 *     #elif defined(REAL)
 *     ...                                    what holds for one type
 *     #endif
 *
 * Seen from outside that is a header like any other, which can be included anywhere and first.
 * Inside, REAL is the type, TYPED(name) the name with the type's suffix, BITS the integer of its
 * size, and WORD the same without a sign.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define REAL float
#define BITS int32_t
#define WORD uint32_t
#define IS_DOUBLE 0
#define TYPED(name) name##_f32
#define SQRT sqrtf
#define FABS fabsf
#define EPSILON FLT_EPSILON
#define MANTISSA_BITS 23
#define EXPONENT_BIAS 127
#define ROUNDER 12582912.0f /* 1.5 x 2^23: adding it leaves the integer in the low bits */
#define SHIFT 64            /* elementary/exp.h keeps powers times 2^SHIFT, a UNIT */
#define UNIT 0x1p64f
/* log 2 in two parts: the first has so few bits that its multiples by integers up to 2^15 are
 * exact. */
#define LN2_HIGH 0.693359375f
#define LN2_LOW (-2.12194440054690583e-4f)
#include TEMPLATE
#undef REAL
#undef BITS
#undef WORD
#undef IS_DOUBLE
#undef TYPED
#undef SQRT
#undef FABS
#undef EPSILON
#undef MANTISSA_BITS
#undef EXPONENT_BIAS
#undef ROUNDER
#undef SHIFT
#undef UNIT
#undef LN2_HIGH
#undef LN2_LOW

#define REAL double
#define BITS int64_t
#define WORD uint64_t
#define IS_DOUBLE 1
#define TYPED(name) name##_f64
#define SQRT sqrt
#define FABS fabs
#define EPSILON DBL_EPSILON
#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1023
#define ROUNDER 6755399441055744.0 /* 1.5 x 2^52 */
#define SHIFT 512
#define UNIT 0x1p512
#define LN2_HIGH 0.693145751953125 /* up to 2^37 */
#define LN2_LOW 1.42860682030941723212e-6
#include TEMPLATE
#undef REAL
#undef BITS
#undef WORD
#undef IS_DOUBLE
#undef TYPED
#undef SQRT
#undef FABS
#undef EPSILON
#undef MANTISSA_BITS
#undef EXPONENT_BIAS
#undef ROUNDER
#undef SHIFT
#undef UNIT
#undef LN2_HIGH
#undef LN2_LOW

#undef TEMPLATE
