/* XLA hands its operands over in a call frame, whose layout is a stable binary interface: xla/ffi/
 * api/c_api.h, of which the structures here are the beginnings that are read. Declared here, since
 * the kernels are built without JAX. XLA asks for the version when the handler is registered, and
 * refuses one that it no longer supports: pyentmax.jax then goes without kernels. */
#include "xla/handler.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <numpy/ndarraytypes.h>

enum { MAJOR = 0, MINOR = 3 }; /* of the interface */
enum { METADATA = 1, EXECUTE = 3, FLOAT64 = 12 };
enum { INVALID_ARGUMENT = 3, RESOURCE_EXHAUSTED = 8 };

typedef struct Extension {
    size_t struct_size;
    int type;
    struct Extension *next;
} Extension;

typedef struct {
    size_t struct_size;
    Extension *extensions;
    int major, minor;
} Version;

typedef struct {
    Extension base;
    struct {
        size_t struct_size;
        Version version;
        uint32_t traits;
    } *metadata;
} MetadataExtension;

typedef struct {
    size_t struct_size;
    Extension *extensions;
    int type;
    void *data;
    int64_t rank, *dims;
} Buffer;

typedef struct {
    size_t struct_size;
    Extension *extensions;
    int64_t size;
    int *types;
    Buffer **buffers;
} Buffers;

typedef struct {
    const char *text;
    size_t length;
} Span;

typedef struct {
    size_t struct_size;
    Extension *extensions;
    int64_t size;
    int *types;
    Span **names;
    Span **values;
} Attributes;

typedef struct {
    size_t struct_size;
    Extension *extensions;
    const char *message;
    int code;
} ErrorArguments;

typedef struct {
    size_t struct_size;
    Extension *extensions;
    Version version;
    const void *internal;
    void *(*create_error)(ErrorArguments *);
} Api;

struct XlaFrame {
    size_t struct_size;
    Extension *extensions;
    const Api *api;
    void *context;
    int stage;
    Buffers arguments, results;
    Attributes attributes;
};

static const Kernel *served;

void xla_serve(const Kernel *kernels) {
    served = kernels;
}

static void *error(const XlaFrame *frame, int code, const char *message) {
    ErrorArguments arguments = {sizeof arguments, NULL, message, code};
    return frame->api->create_error(&arguments);
}

static const Kernel *kernel_named(const Span *name) {
    for (const Kernel *kernel = served; kernel->name != NULL; kernel++)
        if (strlen(kernel->name) == name->length
            && memcmp(kernel->name, name->text, name->length) == 0)
            return kernel;
    return NULL;
}

/* A parameter of each row, in the type that the kernel takes: NPY_DOUBLE or NPY_INT64. */
static void *converted(const Buffer *parameter, char type, ptrdiff_t rows) {
    union {
        double real;
        int64_t whole;
    } *each = malloc((size_t)(rows > 0 ? rows : 1) * sizeof *each);
    if (each == NULL) return NULL;
    for (ptrdiff_t r = 0; r < rows; r++) {
        const double value = parameter->type == FLOAT64 ? ((const double *)parameter->data)[r]
                                                        : ((const float *)parameter->data)[r];
        if (type == NPY_INT64)
            each[r].whole = (int64_t)value;
        else
            each[r].real = value;
    }
    return each;
}

/* Contiguous rows along the last axis, and for some kernels a parameter of each, to a result of the
 * rows' shape. A kernel's mask is not among them. The attribute, the only one, names the kernel. */
void *xla_handler(XlaFrame *frame) {
    if (frame->extensions != NULL && frame->extensions->type == METADATA) {
        Version *version = &((MetadataExtension *)frame->extensions)->metadata->version;
        const int theirs = frame->api != NULL ? frame->api->version.minor : MINOR;
        version->major = MAJOR;
        version->minor = theirs < MINOR ? theirs
                                        : MINOR; /* which lacks nothing that is read here */
        return NULL;
    }
    if (frame->stage != EXECUTE) return NULL;

    const Kernel *kernel = frame->attributes.size == 1 ? kernel_named(frame->attributes.values[0])
                                                       : NULL;
    const int inputs = kernel != NULL ? kernel->inputs : 0;
    int expected = 0;
    for (int i = 0; i < inputs; i++) expected += kernel->types[i] != NPY_BOOL;
    if (kernel == NULL || kernel->outputs != 1 || frame->arguments.size != expected)
        return error(frame, INVALID_ARGUMENT, "pyentmax: no kernel of this name and operands");
    const Buffer *first = frame->arguments.buffers[0], *result = frame->results.buffers[0];
    const int is_double = first->type == FLOAT64;
    const ptrdiff_t size = is_double ? sizeof(double) : sizeof(float);
    const ptrdiff_t n = (ptrdiff_t)first->dims[first->rank - 1];
    ptrdiff_t rows = 1;
    for (int64_t i = 0; i + 1 < first->rank; i++) rows *= (ptrdiff_t)first->dims[i];
    if (rows == 0) return NULL;

    char all = 1; /* a mask, of stride 0 */
    char *operands[MAX_OPERANDS];
    ptrdiff_t steps[2 * MAX_OPERANDS]; /* from row to row, then from entry to entry */
    ptrdiff_t *within = steps + inputs + 1;
    const char *types = kernel->types + is_double * (inputs + 1), *signature = kernel->signature;
    void *parameter = NULL; /* of which no kernel has two */
    Buffer **next = frame->arguments.buffers;
    for (int i = 0; i < inputs; i++) {
        const int is_row = signature[1] == 'n'; /* of "(n),(),…" */
        signature += is_row ? 4 : 3;
        if (types[i] == NPY_BOOL) {
            operands[i] = &all, steps[i] = 0, *within++ = 0;
        } else if (is_row) {
            operands[i] = (*next++)->data, steps[i] = n * size, *within++ = size;
        } else {
            parameter = converted(*next++, types[i], rows);
            if (parameter == NULL) return error(frame, RESOURCE_EXHAUSTED, "pyentmax: no memory");
            operands[i] = parameter, steps[i] = sizeof(double);
        }
    }
    operands[inputs] = result->data, steps[inputs] = n * size, *within = size;
    const ptrdiff_t dims[2] = {rows, n};
    /* A loop that finds no memory writes nothing: no result has all bits set. */
    static const unsigned char nothing[sizeof(double)] = {255, 255, 255, 255, 255, 255, 255, 255};
    memcpy(result->data, nothing, (size_t)size);
    kernel->loops[is_double](operands, dims, steps, kernel->data[is_double]);
    free(parameter);
    if (memcmp(result->data, nothing, (size_t)size) != 0) return NULL;
    return error(frame, RESOURCE_EXHAUSTED, "pyentmax: no memory for a row");
}
