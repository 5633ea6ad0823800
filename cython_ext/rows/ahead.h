/* Memory that will be wanted soon, asked for while there is something to compute.
 *
 * Processors notice rows that are read one after the other. A tile takes a piece of each of its
 * rows in turn, which looks like no order at all, and what it writes is new to the caches: after
 * other work, half of the time of a call on short rows went into waiting. So each pass over a tile
 * asks for a part of what the next tile will read and where it will write, a line now and then: in
 * a burst they wait for each other, and the computation with them. A long row that takes much to
 * compute asks in the same way for the next one, to be read. A request is a hint: it changes no
 * result, and one beyond the end of an array is ignored.
 */
#ifndef PYENTMAX_ROWS_AHEAD_H
#define PYENTMAX_ROWS_AHEAD_H

#include <stdbool.h>
#include <stddef.h>

enum {
    LINE = 64,                 /* bytes that come from memory together, on nearly all processors */
    LINES_TOGETHER = 8,        /* of each array, where a loop has no place for one now and then */
    MOST_PREFETCHED = 1 << 18, /* bytes: more would drive out what is being worked on */
};

#define PREFETCH(place) __builtin_prefetch(place)

/* What is left of the next rows to ask for: `bytes` from each place on. */
typedef struct {
    const char *read, *write;
    ptrdiff_t bytes;
} Ahead;

/* The next rows, if they lie one after the other; otherwise nothing. */
static inline Ahead ahead_of(const char *read, ptrdiff_t read_step, const char *write,
                             ptrdiff_t write_step, ptrdiff_t row_bytes, ptrdiff_t rows) {
    const bool side_by_side = read_step == row_bytes && write_step == row_bytes && rows > 0;
    const bool fits = rows * row_bytes <= MOST_PREFETCHED;
    return (Ahead){read, write, side_by_side && fits ? rows * row_bytes : 0};
}

/* Ask for so many lines more. */
static inline void prefetch_lines(Ahead *ahead, int lines) {
    for (int k = 0; k < lines && ahead->bytes > 0; k++) {
        PREFETCH(ahead->read);
        PREFETCH(ahead->write);
        ahead->read += LINE;
        ahead->write += LINE;
        ahead->bytes -= LINE;
    }
}

/* Ask for a few lines more. */
static inline void prefetch_some(Ahead *ahead) {
    prefetch_lines(ahead, LINES_TOGETHER);
}

/* Where a long row's loop asks from as it goes along the row itself: the next row, or, where there
 * is none, the same, which is there already. */
static inline const void *next_row_or(const Ahead *ahead, const void *row) {
    return ahead->bytes > 0 ? ahead->read : row;
}

#endif
