// Finds races, accesses outside a kernel's memory, and undefined behaviour, in builds made for it.
//
// g++ -fsanitize=thread and -fsanitize=undefined put calls before memory accesses and doubtful
// operations. Their own run-time libraries know nothing of blocks and warps; this one answers the
// calls instead. Two accesses by different threads, one of them a write, need something between
// them that orders memory: __syncthreads, or __syncwarp with both lanes in its mask. Shuffles and
// votes do not order memory, and nothing orders two blocks.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "internal.h"

namespace emulation {
namespace {

constexpr unsigned WARP = 32, WARPS = 32;

enum class Kind : std::uint8_t { none, read, write, atomic };

// An access that a cell remembers. Epochs count what orders memory: the block's barriers, and the
// warp synchronisations of the lane.
struct Event {
    Kind kind;
    std::uint8_t bytes;  // bits: which of the cell's
    std::uint16_t thread;
    std::uint32_t block, barrier, lane_epoch;
    const void *where;
};

// Four bytes of memory. A fifth access displaces the oldest: a race may then be missed, but none is
// made up.
struct Cell {
    std::array<Event, 4> events;
    std::uint32_t written_in;  // shared memory: the block, counted from 1, that `written` speaks of
    std::uint8_t written, next;
};

struct Shadow {
    const char *begin, *end;
    bool is_shared;
    std::vector<Cell> cells;  // made at the first access
};
std::vector<Shadow> shadows;  // first the shared memory of any block, then the arrays

std::uint32_t block_number, barrier_epoch;
// epochs[warp][a][b]: the last epoch of lane b that lane a knows to be over; [a][a] is its own.
std::uint32_t epochs[WARPS][WARP][WARP];

std::string name_of(const void *address) {  // build.py turns the offset into a line
    Dl_info library;
    char text[40] = "?";
    if (dladdr(address, &library))
        std::snprintf(text, sizeof text, "@%lx@",
                      static_cast<unsigned long>(static_cast<const char *>(address) -
                                                 static_cast<const char *>(library.dli_fbase)));
    return text;
}

const char *verb(Kind kind) {
    return kind == Kind::read ? "reads" : kind == Kind::write ? "writes" : "changes (atomically)";
}

bool ordered(const Event &before, const Event &now) {
    if (before.block != now.block) return false;
    if (before.thread == now.thread || before.barrier < now.barrier) return true;
    const unsigned warp = now.thread / WARP;
    return before.thread / WARP == warp &&
           epochs[warp][now.thread % WARP][before.thread % WARP] > before.lane_epoch;
}

bool conflict(const Event &a, const Event &b) {
    if (!(a.bytes & b.bytes) || (a.kind == Kind::read && b.kind == Kind::read)) return false;
    return !(a.kind == Kind::atomic && b.kind == Kind::atomic);
}

void remember(Cell &cell, const Event &event) {
    for (Event &old : cell.events) {
        if (old.kind == Kind::none || (old.thread == event.thread && old.block == event.block &&
                                       old.kind == event.kind && old.bytes == event.bytes)) {
            old = event;
            return;
        }
    }
    cell.events[cell.next++ % cell.events.size()] = event;
}

void check_cell(Cell &cell, const Event &event, const char *address, const Region &region,
                bool is_shared) {
    if (is_shared && cell.written_in != block_number) {  // left by an earlier block
        cell = {};
        cell.written_in = block_number;
    }
    for (const Event &old : cell.events) {
        if (old.kind == Kind::none || !conflict(old, event) || ordered(old, event)) continue;
        const std::string other =
            (old.block == event.block ? "" : "block " + std::to_string(old.block) + ", ") +
            "thread " + std::to_string(old.thread);
        fail_here(name_of(event.where),
                  "race: this " + std::string(verb(event.kind)) + " " + region.name + " (byte " +
                      std::to_string(address - region.begin) + "), which " + other + " " +
                      verb(old.kind) + " at " + name_of(old.where) + "; nothing orders the two");
    }
    if (is_shared && event.kind != Kind::write && (cell.written & event.bytes) != event.bytes)
        fail_here(name_of(event.where), "this reads " + region.name + " (byte " +
                                            std::to_string(address - region.begin) +
                                            "), which nothing has written");
    if (event.kind != Kind::read) cell.written |= event.bytes;
    remember(cell, event);
}

const Region *region_of(const char *address, std::size_t size) {
    for (const std::vector<Region> *regions : {&shared_regions, &global_regions})
        for (const Region &region : *regions)
            if (address >= region.begin && address + size <= region.end) return &region;
    return nullptr;
}

void report_outside(const char *address, std::size_t size, Kind kind, const void *where) {
    std::string nearest = "no memory of the kernel";
    std::ptrdiff_t least = 1 << 20;
    for (const std::vector<Region> *regions : {&shared_regions, &global_regions})
        for (const Region &region : *regions) {
            const std::ptrdiff_t past = address + size - region.end,
                                 before = region.begin - address;
            const std::ptrdiff_t distance = std::max(past, before);
            if (distance <= 0 || distance >= least) continue;
            least = distance;
            nearest = std::to_string(distance) + " bytes " +
                      (past > before ? "past the end" : "before the start") + " of " + region.name;
        }
    fail_here(name_of(where), "overrun: this " + std::string(verb(kind)) + " " +
                                  std::to_string(size) + " bytes, reaching " + nearest);
}

Shadow &shadow_of(const char *address) {
    for (Shadow &shadow : shadows)
        if (address >= shadow.begin && address < shadow.end) return shadow;
    return shadows.front();
}

void check(const void *memory, std::size_t size, Kind kind, const void *where) {
    if (!in_kernel) return;
    const char *address = static_cast<const char *>(memory);
    if (address >= reinterpret_cast<const char *>(&here) &&
        address < reinterpret_cast<const char *>(&here + 1))
        return;  // threadIdx and its kin
    const Region *region = region_of(address, size);
    if (!region) {
        if (!on_own_stack(address)) report_outside(address, size, kind, where);
        return;
    }
    Shadow &shadow = shadow_of(address);
    // Cells lie on addresses divisible by four, whatever the region starts on.
    const std::uintptr_t first_cell = reinterpret_cast<std::uintptr_t>(shadow.begin) / 4;
    if (shadow.cells.empty()) shadow.cells.resize((shadow.end - shadow.begin) / 4 + 2);
    const unsigned thread = here.thread.x, warp = thread / WARP, lane = thread % WARP;
    Event event{kind,
                0,
                static_cast<std::uint16_t>(thread),
                here.block.x,
                barrier_epoch,
                epochs[warp][lane][lane],
                where};
    for (std::size_t done = 0; done < size;) {
        const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(address + done);
        const unsigned offset = at % 4;
        const std::size_t count = std::min<std::size_t>(4 - offset, size - done);
        event.bytes = static_cast<std::uint8_t>(((1u << count) - 1) << offset);
        check_cell(shadow.cells[at / 4 - first_cell], event, address + done, *region,
                   shadow.is_shared);
        done += count;
    }
}

}  // namespace

void start_checks_of_launch(const char *arena, std::size_t arena_size) {
    shadows.resize(1);
    shadows[0].begin = arena;
    shadows[0].end = arena + arena_size;
    shadows[0].is_shared = true;
    std::vector<std::pair<const char *, const char *>>
        spans;  // arrays may overlap: one shadow then
    for (const Region &region : global_regions) spans.push_back({region.begin, region.end});
    std::sort(spans.begin(), spans.end());
    for (const auto &span : spans) {
        if (shadows.size() > 1 && span.first <= shadows.back().end)
            shadows.back().end = std::max(shadows.back().end, span.second);
        else
            shadows.push_back({span.first, span.second, false, {}});
    }
}

void start_checks_of_block() {
    ++block_number;
    barrier_epoch = 0;
    std::memset(epochs, 0, sizeof epochs);
}

void order_block() { ++barrier_epoch; }

void order_lanes(unsigned warp, unsigned mask) {
    std::uint32_t joined[WARP] = {};
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1)) continue;
        ++epochs[warp][lane][lane];
        for (unsigned other = 0; other < WARP; ++other)
            joined[other] = std::max(joined[other], epochs[warp][lane][other]);
    }
    for (unsigned lane = 0; lane < WARP; ++lane)
        if (mask >> lane & 1) std::memcpy(epochs[warp][lane], joined, sizeof joined);
}

void note_atomic(void *address, std::size_t size, const void *where) {
    check(address, size, Kind::atomic, static_cast<const char *>(where) - 1);
}

namespace {

// What every description that -fsanitize=undefined passes begins with.
struct UndefinedAt {
    const char *file;
    unsigned line, column;
};

void report_undefined(const void *description, const char *what) {
    const UndefinedAt *at = static_cast<const UndefinedAt *>(description);
    fail_here(std::string(at->file) + ":" + std::to_string(at->line), what);
}

}  // namespace
}  // namespace emulation

// --- what the instrumented code calls ------------------------------------------------------------

#define CALLER (static_cast<const char *>(__builtin_return_address(0)) - 1)
#define ACCESS(NAME, SIZE, KIND)                                        \
    extern "C" void __tsan_##NAME(void *address) {                      \
        emulation::check(address, SIZE, emulation::Kind::KIND, CALLER); \
    }
#define ACCESSES(SIZE)                       \
    ACCESS(read##SIZE, SIZE, read)           \
    ACCESS(write##SIZE, SIZE, write)         \
    ACCESS(unaligned_read##SIZE, SIZE, read) \
    ACCESS(unaligned_write##SIZE, SIZE, write)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

extern "C" void __tsan_read_range(void *address, unsigned long size) {
    emulation::check(address, size, emulation::Kind::read, CALLER);
}
extern "C" void __tsan_write_range(void *address, unsigned long size) {
    emulation::check(address, size, emulation::Kind::write, CALLER);
}
extern "C" void __tsan_init() {}

#define UNDEFINED(NAME, WHAT)                                  \
    extern "C" void __ubsan_handle_##NAME(void *description) { \
        emulation::report_undefined(description, WHAT);        \
    }
UNDEFINED(out_of_bounds, "an index outside its array")
UNDEFINED(type_mismatch_v1, "an address that its type's alignment, or being null, forbids")
UNDEFINED(shift_out_of_bounds, "a shift by more than the type holds")
UNDEFINED(add_overflow, "a signed sum that overflows")
UNDEFINED(sub_overflow, "a signed difference that overflows")
UNDEFINED(mul_overflow, "a signed product that overflows")
UNDEFINED(negate_overflow, "a negation that overflows")
UNDEFINED(divrem_overflow, "a division by zero, or that overflows")
UNDEFINED(load_invalid_value, "a bool that is neither true nor false")
