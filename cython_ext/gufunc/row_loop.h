/* The loop over operands that all kernels of rows share: a template.
 *
 * A kind of kernels says by letters what it takes and gives, one for each operand in the order of
 * its signature, results behind '>': r is a row, and behind an input, m its mask; i, d and w are a
 * number of each row, as int64, double and REAL, and b is a truth value. t is a row to work in,
 * which is not an operand.
 *
 * Some rows at a time are taken: contiguous, with -inf where they are masked, and the numbers as
 * doubles. Then the kind's function runs on them, and what it wrote is handed out.
 *
 * Rows may lie across the memory, next to each other as columns do: along axis 0 of an array, say.
 * To gather one entry after the other would read a whole line of memory for each, and again for the
 * next row. So the rows of a few lines are copied together, and what was written goes back the same
 * way.
 */
#ifndef PYENTMAX_GUFUNC_ROW_LOOP_H
#define PYENTMAX_GUFUNC_ROW_LOOP_H

#include "gufunc/operands.h"
#include "rows/ahead.h"

enum {
    MOST_ROWS = 4, /* operands of each kind */
    MOST_NUMBERS = 3,
    MOST_RESULTS = 2,
    PER_LINE = 16, /* rows whose entries a line of memory holds, of float */
};

/* Where the operand of each row is, so many bytes apart, and for a row its entries. */
typedef struct {
    char type, *first;
    ptrdiff_t row, entry;
} RowOperand;

/* The operand of the j-th row. */
static inline char *of_row(RowOperand x, ptrdiff_t j) {
    return x.first + j * x.row;
}

/* Pointers to the operand of each of some rows, of whatever type. */
static inline void of_rows(RowOperand x, int rows, void *pointers) {
    for (int j = 0; j < rows; j++) {
        const char *place = x.first + j * x.row;
        memcpy((char **)pointers + j, &place, sizeof place);
    }
}

/* Do rows lie across the memory? */
static inline bool lies_across(RowOperand x, ptrdiff_t size) {
    return x.row == size && x.entry != size && x.entry != 0;
}

/* May the mask be false anywhere? */
static inline bool may_hide(RowOperand mask) {
    return mask.first != NULL && (mask.row != 0 || mask.entry != 0 || !*mask.first);
}

/* The operand from some row on. */
static inline RowOperand row_at(RowOperand x, ptrdiff_t row) {
    x.first += row * x.row;
    return x;
}

/* The operands of a call. */
typedef struct {
    ptrdiff_t rows, n;
    int inputs, numbers, results;
    RowOperand in[MOST_ROWS], mask, out, number[MOST_NUMBERS], result[MOST_RESULTS];
} Call;

/* NumPy's arguments of an inner loop for operands with these letters. */
static Call call_of(const char *letters, char **args, const ptrdiff_t *dims,
                    const ptrdiff_t *steps) {
    Call call = {.rows = dims[0], .n = dims[1]};
    const ptrdiff_t *strides = steps;
    for (const char *letter = letters; *letter; letter++)
        strides += *letter != '>' && *letter != 't';
    bool gives = false;
    for (; *letters; letters++) {
        RowOperand operand = {.type = *letters};
        if (*letters == '>') {
            gives = true;
            continue;
        }
        if (*letters != 't') {
            operand.first = *args++;
            operand.row = *steps++;
        }
        if (*letters == 'r' || *letters == 'm') operand.entry = *strides++;
        if (*letters == 'm')
            call.mask = operand;
        else if (*letters == 't' || (gives && *letters == 'r'))
            call.out = operand;
        else if (*letters == 'r')
            call.in[call.inputs++] = operand;
        else if (gives)
            call.result[call.results++] = operand;
        else
            call.number[call.numbers++] = operand;
    }
    return call;
}

/* The inner loop of a kind of kernels: its letters, its function, for which rows that takes a
 * block, and the bytes of scratch that it needs, given a row's n and `record`, the kernel's data.
 */
#define ROW_LOOP(name, letters, run, by_block, scratch) \
    static void TYPED(name)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, \
                            void *record) { \
        const ptrdiff_t n = dims[1]; \
        if (n > 0) TYPED(row_loop)(args, dims, steps, letters, run, by_block, scratch, record); \
    }

#define TEMPLATE "gufunc/row_loop.h"
#include "float_and_double.h"

#elif defined(REAL)

/* Some rows of a call. */
typedef struct {
    ptrdiff_t n;
    int count;
    bool by_block; /* filled up with the first of them to BLOCK rows */
    const REAL *in[MOST_ROWS][BLOCK];
    REAL *out[BLOCK]; /* may be where a row of `in` with its number is */
    double number[MOST_NUMBERS][BLOCK], result[MOST_RESULTS][BLOCK];
    Ahead ahead; /* the rows behind them */
    void *scratch;
    REAL *spare; /* a row for results that are not wanted */
} TYPED(Rows);

/* What a kind of kernels does with some rows; context is the kernel's data. */
typedef void TYPED(Run)(TYPED(Rows) *rows, void *context);

/* Rows of n entries from one place to another; those that share a line of memory go together, which
 * those that lie anywhere never do. */
static void TYPED(copy_rows)(RowOperand from, RowOperand to, int rows, ptrdiff_t n) {
    const bool across = lies_across(from, sizeof(REAL)) || lies_across(to, sizeof(REAL));
    const int together = across ? PER_LINE : 1;
    for (int start = 0; start < rows; start += together) {
        const int count = rows - start < together ? rows - start : together;
        const char *read = of_row(from, start);
        char *write = of_row(to, start);
        for (ptrdiff_t i = 0; i < n; i++, read += from.entry, write += to.entry)
            for (int j = 0; j < count; j++)
                memcpy(write + j * to.row, read + j * from.row, sizeof(REAL));
    }
}

/* Contiguous rows: where they are, or, `pitch` entries apart, copied to room. */
static void TYPED(take_rows)(RowOperand from, int count, ptrdiff_t n, REAL *room, ptrdiff_t pitch,
                             const REAL *in[BLOCK]) {
    const ptrdiff_t size = sizeof(REAL);
    const bool copied = from.entry != size && n > 1;
    const RowOperand taken = {'r', (char *)room, pitch * size, size};
    if (copied) TYPED(copy_rows)(from, taken, count, n);
    of_rows(copied ? taken : from, count, in);
}

/* Copied to room with -inf where they are masked, but for a row for which one true mask holds. */
static void TYPED(mask_rows)(RowOperand mask, int count, ptrdiff_t n, REAL *room, ptrdiff_t pitch,
                             const REAL *in[BLOCK]) {
    const bool across = lies_across(mask, 1);
    for (int j = 0; j < count; j++) {
        const char *own = of_row(mask, j);
        const REAL *z = in[j];
        REAL *masked = room + j * pitch;
        if (mask.entry == 0 && *own) continue;
        if (across) {
            if (z != masked) memcpy(masked, z, (size_t)n * sizeof(REAL));
        } else if (mask.entry == 1) {
            for (ptrdiff_t i = 0; i < n; i++) {
                const REAL score = z[i]; /* vectors, if read always */
                masked[i] = own[i] ? score : -(REAL)INFINITY;
            }
        } else {
            for (ptrdiff_t i = 0; i < n; i++)
                masked[i] = own[i * mask.entry] ? z[i] : -(REAL)INFINITY;
        }
        in[j] = masked;
    }
    for (ptrdiff_t i = 0; across && i < n; i++)
        for (int j = 0; j < count; j++)
            if (!mask.first[i * mask.entry + j]) room[j * pitch + i] = -(REAL)INFINITY;
}

static void TYPED(take_numbers)(RowOperand from, int count, double number[BLOCK]) {
    for (int j = 0; j < count; j++) {
        const char *place = of_row(from, j);
        number[j] = from.type == 'i'   ? (double)*(const int64_t *)place
                    : from.type == 'd' ? *(const double *)place
                                       : (double)*(const REAL *)place;
    }
}

static void TYPED(give_results)(RowOperand to, int count, const double result[BLOCK]) {
    for (int j = 0; j < count; j++)
        if (to.type == 'b')
            *(bool *)of_row(to, j) = result[j] != 0;
        else
            *(REAL *)of_row(to, j) = (REAL)result[j];
}

/* What lies behind the j-th of some rows. */
static Ahead TYPED(ahead_of_row)(const TYPED(Rows) *rows, int j) {
    if (j + 1 == rows->count) return rows->ahead;
    const ptrdiff_t size = sizeof(REAL), n = rows->n;
    const REAL *z = rows->in[0][j + 1];
    REAL *p = rows->out[j + 1];
    return ahead_of((const char *)z, (z - rows->in[0][j]) * size, (char *)p,
                    (p - rows->out[j]) * size, n * size, 1);
}

static void TYPED(fill_up)(TYPED(Rows) *rows, int inputs, int numbers) {
    for (int k = 0; k < inputs; k++)
        for (int j = rows->count; j < BLOCK; j++) rows->in[k][j] = rows->in[k][0];
    for (int k = 0; k < numbers; k++)
        for (int j = rows->count; j < BLOCK; j++) rows->number[k][j] = rows->number[k][0];
    for (int j = rows->count; j < BLOCK; j++) rows->out[j] = rows->spare;
}

/* Run on those rows of a block of scores by themselves that are alike in a number. */
static void TYPED(run_alike)(TYPED(Rows) *rows, int number, bool (*alike)(double a, double b),
                             TYPED(Run) *run, void *context) {
    const double *numbers = rows->number[number];
    bool done[BLOCK] = {false}, same = true;
    for (int j = 1; j < rows->count; j++) same &= numbers[j] == numbers[0];
    if (same) {
        run(rows, context);
        return;
    }
    for (int first = 0; first < rows->count; first++) {
        if (done[first]) continue;
        int place[BLOCK];
        TYPED(Rows) some;
        some.n = rows->n;
        some.count = 0;
        some.by_block = rows->by_block;
        some.scratch = rows->scratch;
        some.spare = rows->spare;
        some.ahead = first == 0 ? rows->ahead : (Ahead){0};
        for (int j = first; j < rows->count; j++) {
            if (done[j] || !(numbers[j] == numbers[first] || alike(numbers[j], numbers[first])))
                continue;
            done[j] = true;
            some.in[0][some.count] = rows->in[0][j];
            some.out[some.count] = rows->out[j];
            for (int k = 0; k < MOST_NUMBERS; k++) some.number[k][some.count] = rows->number[k][j];
            place[some.count++] = j;
        }
        TYPED(fill_up)(&some, 1, MOST_NUMBERS);
        run(&some, context);
        for (int j = 0; j < some.count; j++)
            for (int k = 0; k < MOST_RESULTS; k++) rows->result[k][place[j]] = some.result[k][j];
    }
}

/* How a call's rows are taken: so many at once, and of the operands which are copied, the last of
 * them the result, with rows `pitch` entries apart. */
typedef struct {
    Call call;
    bool by_block, hides, copied[MOST_ROWS + 1];
    int copies, at_once;
    ptrdiff_t pitch;
} TYPED(Plan);

static TYPED(Plan) TYPED(plan_for)(Call call, bool by_block) {
    const ptrdiff_t n = call.n, size = sizeof(REAL);
    TYPED(Plan) plan = {.call = call, .by_block = by_block, .hides = may_hide(call.mask)};
    bool across = false;
    for (int k = 0; k <= call.inputs; k++) {
        const RowOperand row = k < call.inputs ? call.in[k] : call.out;
        plan.copied[k] = (row.entry != size && n > 1) || row.type == 't' || (k == 0 && plan.hides);
        plan.copies += plan.copied[k];
        across |= lies_across(row, size) && n > 1;
    }
    /* An odd number of lines: rows a power of 2 apart would share their places in the cache. */
    plan.pitch = ((n * size / LINE + 1) | 1) * LINE / size;
    const bool some = by_block || plan.copies == 0 || n <= LEAF; /* together fit the caches */
    plan.at_once = some ? BLOCK : across ? PER_LINE : 1;
    return plan;
}

/* The rows from `start` on, and what lies behind them; the spare row is followed by room. */
static void TYPED(take_some)(const TYPED(Plan) *plan, ptrdiff_t start, TYPED(Rows) *rows) {
    const Call *call = &plan->call;
    const ptrdiff_t n = call->n, size = sizeof(REAL), pitch = plan->pitch;
    const ptrdiff_t left = call->rows - start, behind = plan->by_block ? BLOCK : 1;
    const int count = rows->count = left < plan->at_once ? (int)left : plan->at_once;
    REAL *room = rows->spare + (plan->by_block ? pitch : 0);
    rows->by_block = plan->by_block;
    for (int k = 0; k < call->inputs; k++) {
        TYPED(take_rows)(row_at(call->in[k], start), count, n, room, pitch, rows->in[k]);
        if (k == 0 && plan->hides)
            TYPED(mask_rows)(row_at(call->mask, start), count, n, room, pitch, rows->in[k]);
        if (plan->copied[k]) room += plan->at_once * pitch;
    }
    for (int k = 0; k < call->numbers; k++)
        TYPED(take_numbers)(row_at(call->number[k], start), count, rows->number[k]);
    const bool own = plan->copied[call->inputs];
    const RowOperand given = {'r', (char *)room, pitch * size, size};
    of_rows(own ? given : row_at(call->out, start), count, rows->out);
    if (plan->by_block) TYPED(fill_up)(rows, call->inputs, call->numbers);
    const RowOperand read = row_at(call->in[0], start + count);
    const RowOperand write = own ? read : row_at(call->out, start + count);
    rows->ahead = ahead_of(read.first, read.row, write.first, write.row, n * size,
                           left - count < behind ? left - count : behind);
}

/* What was written goes where it belongs. */
static void TYPED(give_some)(const TYPED(Plan) *plan, ptrdiff_t start, const TYPED(Rows) *rows) {
    const Call *call = &plan->call;
    const ptrdiff_t size = sizeof(REAL);
    const RowOperand given = {'r', (char *)rows->out[0], plan->pitch * size, size};
    if (plan->copied[call->inputs] && call->out.type == 'r')
        TYPED(copy_rows)(given, row_at(call->out, start), rows->count, call->n);
    for (int k = 0; k < call->results; k++)
        TYPED(give_results)(row_at(call->result[k], start), rows->count, rows->result[k]);
}

/* What NumPy calls, by a ROW_LOOP, for rows of some length. */
static void TYPED(row_loop)(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                            const char *letters, TYPED(Run) *run, bool by_block, ptrdiff_t scratch,
                            void *context) {
    const TYPED(Plan) plan = TYPED(plan_for)(call_of(letters, args, dims, steps), by_block);
    const ptrdiff_t scratch_bytes = (scratch + LINE - 1) / LINE * LINE;
    const ptrdiff_t room = (plan.copies * plan.at_once + by_block) * plan.pitch;
    if (plan.call.rows == 0) return;
    char *memory = scratch_or_error(scratch_bytes + room * (ptrdiff_t)sizeof(REAL) + LINE, 1);
    if (memory == NULL) return;
    TYPED(Rows) rows;
    rows.n = plan.call.n;
    rows.scratch = memory + (LINE - (uintptr_t)memory % LINE);
    rows.spare = (REAL *)((char *)rows.scratch + scratch_bytes);
    for (ptrdiff_t start = 0; start < plan.call.rows; start += plan.at_once) {
        TYPED(take_some)(&plan, start, &rows);
        run(&rows, context);
        TYPED(give_some)(&plan, start, &rows);
    }
    free(memory);
    leave_no_float_flags();
}

#endif
