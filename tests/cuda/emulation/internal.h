// What the emulator's own files share, and what the launches of a library are made of.
#pragma once
#include <string>
#include <vector>

#include "runtime.h"

namespace emulation {

constexpr int IN_ORDER = 0, REVERSED = -1;  // and positive: the seed of a random schedule

struct Launch {
    const Kernel *kernel;
    unsigned grid, block;
    std::size_t dynamic_shared;
    int schedule;
    bool flush_subnormals;
    void **arguments;
};

extern bool in_kernel;  // or in code of the library that Python called

struct Region {
    const char *begin, *end;
    std::string name;
};
extern std::vector<Region> shared_regions;  // of the running block
extern std::vector<Region> global_regions;  // the arrays handed to the launch

// The first fault of a launch, and its end.
void fail(unsigned thread, const std::string &where, const std::string &what);
// The same from inside a kernel: does not return to it.
void fail_here(const std::string &where, const std::string &what);
bool on_own_stack(const char *address);

inline bool operator==(Place a, Place b) {
    return a.line == b.line && !__builtin_strcmp(a.file, b.file);
}
inline bool operator!=(Place a, Place b) { return !(a == b); }

// checks.cpp: the order that barriers and __syncwarp make between accesses to memory.
void start_checks_of_launch(const char *shared_arena, std::size_t size);
void start_checks_of_block();
void order_block();
void order_lanes(unsigned warp, unsigned mask);

}  // namespace emulation
