/* A screen of keys by their 8-bit copies: which of them may have a weight in α-entmax: a template.
 * The NumPy twin of `quantize_rows`, and the proof of the bounds, stand in
 * pyentmax/sparse_attention/screened_rows.py.
 *
 * A copy is c m, with integers |m_j| <= 127 in whole STEPs of bytes, behind which are zeros, and
 * three numbers bound its error: c, ‖k - c m‖ and ‖c m‖ + ‖k - c m‖, the last two from above. Of a
 * query there are 15 bits, or as many as keep the sums of products in 32.
 */
#ifndef PYENTMAX_ATTENTION_SCREEN_H
#define PYENTMAX_ATTENTION_SCREEN_H

#include <numpy/ndarraytypes.h>

#include "attention/few_queries.h"
#include "thresholds/kth_largest.h"

#define QUANTIZE_ROWS_OPERANDS(real) real, NPY_INT8, real
#define SCREEN_ROWS_OPERANDS(real) \
    real, NPY_INT8, real, NPY_BOOL, NPY_DOUBLE, real, real, NPY_INT32, NPY_INT64
#define SCREEN_BEST_OPERANDS(real) \
    real, NPY_INT8, real, NPY_INT64, NPY_DOUBLE, real, NPY_INT32, NPY_INT64

enum { STEP = 32, MOST_OF_8_BITS = 127, MOST_OF_16_BITS = 32767 };

/* Copies outside of this have no bound: their products might be subnormal, or infinite. */
#define LEAST_UNIT 0x1p-40
#define MOST_UNIT 0x1p40

/* What a bound may lack for roundings of a threshold, in its scale: see there. */
#define SLACK (64 * EPSILON)

/* The largest integer of a query of d features: its products with bytes sum to below 2^31. */
static inline int most_of_query(ptrdiff_t d) {
    const ptrdiff_t most = INT32_MAX / MOST_OF_8_BITS / (d > 0 ? d : 1);
    return most < MOST_OF_16_BITS ? (int)most : MOST_OF_16_BITS;
}

/* to[i] = Σ_j q_j k_ij of four rows of bytes, in whole STEPs. */
ALWAYS_INLINE void byte_dots(const int16_t *restrict q, const int8_t *const k[4], ptrdiff_t width,
                             int32_t *restrict to) {
#if HAS_AVX512 || HAS_AVX2
    __m256i sum[4];
#if HAS_AVX512
    __m512i wide[4];
    for (int i = 0; i < 4; i++) wide[i] = _mm512_setzero_si512();
    for (ptrdiff_t j = 0; j < width; j += STEP) {
        const __m512i some = _mm512_loadu_si512(q + j);
        for (int i = 0; i < 4; i++) {
            const __m256i bytes = _mm256_loadu_si256((const void *)(k[i] + j));
            const __m512i products = _mm512_madd_epi16(_mm512_cvtepi8_epi16(bytes), some);
            wide[i] = _mm512_add_epi32(wide[i], products);
        }
    }
    for (int i = 0; i < 4; i++)
        sum[i] = _mm256_add_epi32(_mm512_castsi512_si256(wide[i]),
                                  _mm512_extracti64x4_epi64(wide[i], 1));
#else
    for (int i = 0; i < 4; i++) sum[i] = _mm256_setzero_si256();
    for (ptrdiff_t j = 0; j < width; j += STEP / 2) {
        const __m256i some = _mm256_loadu_si256((const void *)(q + j));
        for (int i = 0; i < 4; i++) {
            const __m128i bytes = _mm_loadu_si128((const void *)(k[i] + j));
            const __m256i products = _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), some);
            sum[i] = _mm256_add_epi32(sum[i], products);
        }
    }
#endif
    const __m256i pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]),
                                            _mm256_hadd_epi32(sum[2], sum[3]));
    _mm_storeu_si128((void *)to, _mm_add_epi32(_mm256_castsi256_si128(pairs),
                                               _mm256_extracti128_si256(pairs, 1)));
#else
    for (int i = 0; i < 4; i++) {
        const int8_t *row = k[i];
        int32_t sum = 0;
        for (ptrdiff_t j = 0; j < width; j++) sum += q[j] * row[j];
        to[i] = sum;
    }
#endif
}

#define TEMPLATE "attention/screen.h"
#include "float_and_double.h"

#elif defined(KERNEL_TABLE)

KERNEL_WITHOUT_RECORD("quantize_rows", "(n,d)->(n,w),(t,n)",
                      "Rows to their copies of 8 bits, and what bounds the error of each.", 1, 2,
                      QUANTIZE_ROWS_OPERANDS, quantize_rows_loop)
KERNEL_WITHOUT_RECORD("screen_rows", "(m,d),(n,w),(t,n),(m,n),(m),(m),(m,n)->(k),(m)",
                      "Queries, copies of keys and their bounds, mask, alpha, sink and bias to the "
                      "columns that may have a weight, and where each row ends.",
                      7, 2, SCREEN_ROWS_OPERANDS, screen_rows_loop)
KERNEL_WITHOUT_RECORD("screen_best", "(m,d),(n,w),(t,n),(m),(m),(m,n)->(k),(m)",
                      "Queries, copies of keys and their bounds, how many are best, a margin and "
                      "bias to the columns that may be best, and where each row ends.",
                      6, 2, SCREEN_BEST_OPERANDS, screen_best_loop)

#elif defined(REAL)

/* c, a bound of ‖x - c m‖, and one of ‖c m‖ and ‖x‖; all are 0 for a row of zeros, and the last two
 * infinite where there is no bound. */
typedef struct {
    double unit, error, size;
} TYPED(Copied);

/* The integers m of x, at most `most`, with what bounds their error. */
static TYPED(Copied)
    TYPED(quantize)(const REAL *restrict x, ptrdiff_t d, int most, int16_t *restrict m) {
    REAL largest = 0, not_finite = 0;
    for (ptrdiff_t j = 0; j < d; j++) {
        largest = TYPED(larger)(FABS(x[j]), largest);
        not_finite += x[j] * 0; /* NaN of infinities, too */
    }
    const REAL unit = largest / (REAL)most;
    const bool bounded = unit >= (REAL)LEAST_UNIT && unit <= (REAL)MOST_UNIT && not_finite == 0;
    if (!bounded) {
        for (ptrdiff_t j = 0; j < d; j++) m[j] = 0;
        const double error = largest == 0 && not_finite == 0 ? 0 : (double)INFINITY;
        return (TYPED(Copied)){0, error, error};
    }
    const REAL each = 1 / unit;
    double error = 0, size = 0;
    for (ptrdiff_t j = 0; j < d; j++) {
        const REAL steps = x[j] * each;
        int whole = (int)(steps + (steps < 0 ? (REAL)-0.5 : (REAL)0.5));
        whole = whole > most ? most : whole < -most ? -most : whole;
        m[j] = (int16_t)whole;
        const double copy = (double)unit * whole, rest = (double)x[j] - copy;
        error += rest * rest;
        size += copy * copy;
    }
    const double above = 1 + (double)(d + 8) * DBL_EPSILON;
    size = sqrt(size) * above;
    error = sqrt(error) * above + 2 * DBL_EPSILON * size;
    return (TYPED(Copied)){unit, error, error + size};
}

static void TYPED(quantize_rows_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                      void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "nd nw1 tn", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t d = axis_size(&all, 'd'), width = axis_size(&all, 'w');
    int16_t *m = scratch_or_error(d + 1, sizeof(int16_t));
    if (m == NULL) return;
    if (width < d || axis_size(&all, 't') != 3)
        value_error("quantize_rows: results must have room for a copy and three bounds");
    else
        for (ptrdiff_t i = 0; i < all.count; i++)
            for (ptrdiff_t n = 0; n < axis_size(&all, 'n'); n++) {
                const REAL *row = (const REAL *)(of_head(&all, 0, i) + n * all.key[0]);
                const TYPED(Copied) own = TYPED(quantize)(row, d, MOST_OF_8_BITS, m);
                int8_t *to = (int8_t *)(of_head(&all, 1, i) + n * all.key[1]);
                for (ptrdiff_t j = 0; j < width; j++) to[j] = (int8_t)(j < d ? m[j] : 0);
                char *bounds = of_head(&all, 2, i) + n * all.key[2];
                const double three[] = {own.unit, own.error, own.size};
                for (int t = 0; t < 3; t++) /* rounded up, as far as they are bounds */
                    *(REAL *)(bounds
                              + t * all.row[2]) = (REAL)(three[t] * (t ? 1 + 2 * EPSILON : 1));
            }
    free(m);
    leave_no_float_flags();
}

/* What the bounds of a query's scores take. */
typedef struct {
    REAL unit, by_error, by_size;
} TYPED(Screened);

static TYPED(Screened) TYPED(screened_query)(TYPED(Copied) own, ptrdiff_t d) {
    const double above = 1 + 16 * (double)EPSILON, gamma = (double)(d + 16) * EPSILON;
    return (TYPED(Screened)){(REAL)own.unit, (REAL)(own.size * above),
                             (REAL)((own.error + gamma * own.size) * above)};
}

/* Lower and upper bounds of the scores of a query, before its bias, with `size` keys that follow
 * each other, CHUNK at most. bounds[t] are those of the keys. */
static void TYPED(score_bounds)(const int16_t *restrict q, TYPED(Screened) query,
                                const char *copies, ptrdiff_t step, ptrdiff_t width,
                                const REAL *const bounds[3], ptrdiff_t size, REAL *restrict low,
                                REAL *restrict high) {
    const REAL *units = bounds[0], *errors = bounds[1], *sizes = bounds[2];
    int32_t products[CHUNK];
    for (ptrdiff_t i = 0; i < size; i += 4) {
        const int8_t *rows[4];
        for (int k = 0; k < 4; k++) /* the last one again where there are no more */
            rows[k] = (const int8_t *)(copies + (i + k < size ? i + k : size - 1) * step);
        /* Wide rows side by side are too many streams for a processor to see by itself. */
        for (ptrdiff_t line = 0; line < 4 * width; line += 64)
            __builtin_prefetch(copies + (i + 8) * step + line);
        byte_dots(q, rows, width, products + i);
    }
    for (ptrdiff_t i = 0; i < size; i++) {
        const REAL middle = (REAL)products[i] * (query.unit * units[i]);
        const REAL error = query.by_error * errors[i] + query.by_size * sizes[i];
        low[i] = middle - error;
        high[i] = middle + error;
    }
}

/* Which of n keys may have a weight, in order, given bounds of their scores; low[n] is the score of
 * a sink. Both rows are overwritten. */
static ptrdiff_t TYPED(keep_candidates)(REAL *low, REAL *high, const char *mask,
                                        ptrdiff_t mask_step, ptrdiff_t n, double alpha,
                                        TYPED(FewRows) *few, TYPED(NonZeros) to) {
    for (ptrdiff_t j = 0; j < n; j++) { /* nothing is known where there is a NaN */
        low[j] = low[j] > -(REAL)INFINITY ? low[j] : -(REAL)INFINITY;
        high[j] = high[j] < (REAL)INFINITY ? high[j] : (REAL)INFINITY;
    }
    TYPED(masked)((const char *)low, sizeof(REAL), mask, mask_step, n, low);
    TYPED(masked)((const char *)high, sizeof(REAL), mask, mask_step, n, high);
    const char everywhere = 1;
    REAL p_sink = low[n], largest = low[n], top = 0;
    const ptrdiff_t found = TYPED(nonzeros_and_sink)(low, &everywhere, 0, n, alpha, &p_sink,
                                                     &few->kept, &few->of_row, to);
    if (p_sink > 0) top = p_sink;
    for (ptrdiff_t j = 0; j < found; j++) {
        largest = TYPED(larger)(low[to.columns[j]], largest);
        top = TYPED(larger)(to.values[j], top);
    }
    REAL floor = -(REAL)INFINITY;
    if (top > 0) { /* no probability is above that of the largest score, t^(1/(α - 1)) */
        const double t = pow((double)top, alpha - 1);
        floor = (REAL)(-(t + SLACK) / (alpha - 1) * (1 + 2 * EPSILON));
        for (ptrdiff_t j = 0; j < n; j++) high[j] -= largest;
    }
    ptrdiff_t count = 0;
    for (int j = 0; j < PAIR; j++) high[n + j] = -(REAL)INFINITY;
    for (ptrdiff_t j = 0; j < n; j += LANES)
        count += TYPED(keep_with_indices)(high + j, floor, few->of_row.every + j, to.values,
                                          to.columns + count);
    return count;
}

/* Add a bias, and what the sum and the rounding of the bias may be off by; nothing is known from a
 * NaN. */
static void TYPED(bias_bounds)(const char *bias, ptrdiff_t step, ptrdiff_t n, REAL *restrict low,
                               REAL *restrict high) {
    const REAL infinite = (REAL)INFINITY, slack = 4 * EPSILON;
    for (ptrdiff_t j = 0; j < n; j++) {
        const REAL b = *(const REAL *)(bias + j * step), least = low[j] + b, most = high[j] + b;
        const REAL under = least - slack * (FABS(least) + FABS(b));
        const REAL over = most + slack * (FABS(most) + FABS(b));
        low[j] = under > -infinite ? under : -infinite;
        high[j] = most == -infinite ? most : over < infinite ? over : infinite;
    }
}

/* Which of n keys may be among the `count` best, or at most `margin` below the last of them, in
 * order, given bounds of their scores. Both rows are overwritten. */
static ptrdiff_t TYPED(keep_best)(const REAL *low, REAL *high, ptrdiff_t n, int64_t count,
                                  double margin, TYPED(FewRows) *few, TYPED(NonZeros) to) {
    REAL floor = -(REAL)INFINITY;
    const REAL largest = TYPED(chunk_maxima)(low, n, few->of_row.scratch);
    if (count <= n && FABS(largest) < (REAL)INFINITY) {
        const double least = TYPED(kth_score)(low, n, count, few->of_row.scratch, few->of_row.p);
        floor = (REAL)(least - margin - 4 * EPSILON * (fabs(least) + margin));
    }
    ptrdiff_t kept = 0;
    for (int j = 0; j < PAIR; j++) high[n + j] = -(REAL)INFINITY;
    for (ptrdiff_t j = 0; j < n; j += LANES)
        kept += TYPED(keep_with_indices)(high + j, floor, few->of_row.every + j, to.values,
                                         to.columns + kept);
    return kept;
}

/* The bounds of up to AT_ONCE queries from the r-th of the i-th head on, in rows `apart` from one
 * another. */
static void TYPED(bounds_of_few)(const Heads *all, ptrdiff_t i, ptrdiff_t r, int16_t *q, REAL *low,
                                 REAL *high, ptrdiff_t apart) {
    const ptrdiff_t n = axis_size(all, 'n'), d = axis_size(all, 'd'), width = axis_size(all, 'w');
    const int count = axis_size(all, 'm') - r < AT_ONCE ? (int)(axis_size(all, 'm') - r) : AT_ONCE;
    TYPED(Screened) queries[AT_ONCE];
    for (int k = 0; k < count; k++) {
        const REAL *query = (const REAL *)(of_head(all, 0, i) + (r + k) * all->row[0]);
        int16_t *own = q + k * width;
        for (ptrdiff_t j = d; j < width; j++) own[j] = 0;
        queries[k] = TYPED(screened_query)(TYPED(quantize)(query, d, most_of_query(d), own), d);
    }
    const char *copies = of_head(all, 1, i), *bounds = of_head(all, 2, i);
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        const REAL *some[3];
        for (int t = 0; t < 3; t++) some[t] = (const REAL *)(bounds + t * all->row[2]) + start;
        for (int k = 0; k < count; k++)
            TYPED(score_bounds)(q + k * width, queries[k], copies + start * all->key[1],
                                all->key[1], width, some, n - start < CHUNK ? n - start : CHUNK,
                                low + k * apart + start, high + k * apart + start);
    }
}

/* Whether a screen's operands fit, an error if not, and memory for the bounds of AT_ONCE queries.
 */
static bool TYPED(screen_room)(const Heads *all, TYPED(FewRows) *few, int16_t **q) {
    const ptrdiff_t m = axis_size(all, 'm'), n = axis_size(all, 'n');
    const ptrdiff_t d = axis_size(all, 'd'), width = axis_size(all, 'w');
    if (width < d || width % STEP || axis_size(all, 't') != 3 || most_of_query(d) < 1
        || axis_size(all, 'k') < m * n + 1 + LANES || (n > 1 && all->key[2] != sizeof(REAL))) {
        value_error("screen_rows: copies, bounds or results have the wrong shape");
        return false;
    }
    *q = scratch_or_error(AT_ONCE * width + 1, sizeof(int16_t));
    if (*q != NULL && TYPED(few_rows)(few, n, 2 * AT_ONCE + 1)) return true;
    free(*q);
    return false;
}

/* Queries, copies and bounds of keys, mask, α, sink and bias to the columns of the keys that may
 * have a weight, and where each row of them ends. There has to be room for all of them and LANES
 * more. */
static void TYPED(screen_rows_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "md nw1 tn mn m m mn ki m", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t m = axis_size(&all, 'm'), n = axis_size(&all, 'n');
    TYPED(FewRows) few;
    int16_t *q;
    if (!TYPED(screen_room)(&all, &few, &q)) return;
    REAL *low = few.rows, *high = low + AT_ONCE * few.padded, *values = high + AT_ONCE * few.padded;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        ptrdiff_t end = 0;
        for (ptrdiff_t r = 0; r < m; r++) {
            const int at = (int)(r % AT_ONCE);
            if (at == 0) TYPED(bounds_of_few)(&all, i, r, q, low, high, few.padded);
            REAL *lows = low + at * few.padded, *highs = high + at * few.padded;
            const char *bias = of_head(&all, 6, i) + r * all.row[6];
            TYPED(add_bias)(bias, all.key[6], n, lows);
            TYPED(add_bias)(bias, all.key[6], n, highs);
            lows[n] = *(const REAL *)(of_head(&all, 5, i) + r * all.row[5]);
            const TYPED(NonZeros) to = {values, (int32_t *)of_head(&all, 7, i) + end};
            const double alpha = *(const double *)(of_head(&all, 4, i) + r * all.row[4]);
            end += TYPED(keep_candidates)(lows, highs, of_head(&all, 3, i) + r * all.row[3],
                                          all.key[3], n, alpha, &few, to);
            *(int64_t *)(of_head(&all, 8, i) + r * all.row[8]) = end;
        }
    }
    free(q);
    TYPED(free_rows)(&few);
    leave_no_float_flags();
}

/* Queries, copies and bounds of keys, how many are best, by how much others may be below the last
 * of them, and bias, to the same for the best. */
static void TYPED(screen_best_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                                    void *data) {
    (void)data;
    Heads all;
    if (!read_heads(&all, "md nw1 tn m m mn ki m", sizeof(REAL), args, dims, steps)) return;
    const ptrdiff_t m = axis_size(&all, 'm'), n = axis_size(&all, 'n');
    TYPED(FewRows) few;
    int16_t *q;
    if (!TYPED(screen_room)(&all, &few, &q)) return;
    REAL *low = few.rows, *high = low + AT_ONCE * few.padded, *values = high + AT_ONCE * few.padded;
    for (ptrdiff_t i = 0; i < all.count; i++) {
        ptrdiff_t end = 0;
        for (ptrdiff_t r = 0; r < m; r++) {
            const int at = (int)(r % AT_ONCE);
            if (at == 0) TYPED(bounds_of_few)(&all, i, r, q, low, high, few.padded);
            REAL *lows = low + at * few.padded, *highs = high + at * few.padded;
            TYPED(bias_bounds)(of_head(&all, 5, i) + r * all.row[5], all.key[5], n, lows, highs);
            const int64_t count = *(const int64_t *)(of_head(&all, 3, i) + r * all.row[3]);
            const double margin = *(const double *)(of_head(&all, 4, i) + r * all.row[4]);
            const TYPED(NonZeros) to = {values, (int32_t *)of_head(&all, 6, i) + end};
            end += TYPED(keep_best)(lows, highs, n, count, margin, &few, to);
            *(int64_t *)(of_head(&all, 7, i) + r * all.row[7]) = end;
        }
    }
    free(q);
    TYPED(free_rows)(&few);
    leave_no_float_flags();
}

#endif
