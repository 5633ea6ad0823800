// What a library of kernels asks of the emulator, and how the emulator knows its kernels.
#pragma once
#include <cstddef>

namespace emulation {

// One dimension is all that the kernels use; .y and .z do not compile.
struct Index {
    unsigned x;
};

// Where the running thread stands: CUDA's built-in variables.
struct Coordinates {
    Index thread, block, block_size, grid_size;
};
extern Coordinates here;

// A line of the kernel's source, for reports.
struct Place {
    const char *file;
    int line;
};

enum class Collective { sync_warp, ballot, shuffle, shuffle_xor, shuffle_up, shuffle_down };

// Waits for the whole block; returns how many of its threads came with a true predicate.
int barrier(bool predicate, Place place);

// Waits for the lanes in `mask`, then replaces *value by the collective's result for this lane.
struct Request {
    Collective kind;
    unsigned mask;
    void *value;
    std::size_t size;
    int argument, width;
    Place place;
};
void collective(const Request &request);

// The block's one copy of a __shared__ variable; `key` tells the variables of a kernel apart.
void *shared_variable(const char *name, const void *key, std::size_t size, std::size_t alignment);
// The block's `extern __shared__` memory.
void *dynamic_shared_memory();

// Tells the checks, in a build that has them, about an atomic operation.
void note_atomic(void *address, std::size_t size, const void *where);

// A parameter as NumPy writes its type, kind and size, a struct being V for void; of a pointer, the
// type that it points to.
enum class Role : int { value, input, output };
struct Parameter {
    Role role;
    char kind;
    unsigned size;
};

// A kernel of the library under its CUDA name; build.py writes the table.
struct Kernel {
    const char *name;
    void (*function)();
    void (*call)(void (*function)(), void **arguments);
    const Parameter *parameters;
    int count;
};
extern const Kernel *const kernels;

}  // namespace emulation
