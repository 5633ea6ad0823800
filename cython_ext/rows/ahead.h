/* Memory that will be wanted soon, asked for while there is something to compute.
 *
 * Processors notice rows that are read one after the other. A tile takes a piece of each of its
 * rows in turn, which looks like no order at all, and what it writes is new to the caches: after
 * other work, half of the time of a call on short rows went into waiting. So each pass over a tile
 * asks for a part of what the next tile will read and where it will write. A request is a hint:
 * it changes no result, and one beyond the end of an array is ignored.
 */
#ifndef PYENTMAX_ROWS_AHEAD_H
#define PYENTMAX_ROWS_AHEAD_H

#include <stdbool.h>
#include <stddef.h>

enum {
    LINE = 64,         /* bytes that come from memory together, on nearly all processors */
    LINES_AT_ONCE = 8, /* of each array: more at once wait for each other */
};

#if defined(__GNUC__)
#define ASK_FOR(place) __builtin_prefetch(place)
#else
#define ASK_FOR(place) ((void)(place))
#endif

/* What is left of the next rows to ask for: `bytes` from each place on. */
typedef struct {
    const char *read, *write;
    ptrdiff_t bytes;
} Ahead;

/* The next rows, if they lie one after the other; otherwise nothing. */
static inline Ahead ahead_of(const char *read, ptrdiff_t read_step, const char *write,
                             ptrdiff_t write_step, ptrdiff_t row_bytes, ptrdiff_t rows) {
    const bool side_by_side = read_step == row_bytes && write_step == row_bytes && rows > 0;
    return (Ahead){read, write, side_by_side ? rows * row_bytes : 0};
}

/* Ask for a few lines more. */
static inline void ask_ahead(Ahead *ahead) {
    for (int k = 0; k < LINES_AT_ONCE && ahead->bytes > 0; k++) {
        ASK_FOR(ahead->read);
        ASK_FOR(ahead->write);
        ahead->read += LINE;
        ahead->write += LINE;
        ahead->bytes -= LINE;
    }
}

#endif
