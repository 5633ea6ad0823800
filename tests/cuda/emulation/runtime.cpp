// Runs a kernel's blocks one after another on this thread, each CUDA thread as a fiber.
//
// A fiber runs until it waits: at a barrier, or in a warp collective for the lanes of its mask.
// Which ready fiber goes on is the schedule's choice, so a result that hangs on the order shows.
// When none is ready, either the block is done, or its barrier is complete, or the kernel is wrong;
// the report then says who waits where, and what for.
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "internal.h"
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace emulation {

Coordinates here;
bool in_kernel = false;
std::vector<Region> shared_regions, global_regions;

namespace {

constexpr unsigned WARP = 32, MOST_THREADS = 1024;
constexpr std::size_t STACK = 128 * 1024, MOST_SHARED = 232448;  // 227 KB: Hopper's limit a block
constexpr long MOST_STEPS = 5'000'000;  // of one block; no honest kernel of the tests comes near

enum class State { ready, at_barrier, in_collective, done };

struct Thread {
    State state;
    bool started;            // its stack holds the kernel, or awaits the next block
    bool predicate;          // at_barrier
    Place place;             // at_barrier, in_collective: where
    const Request *request;  // in_collective, on the fiber's stack
    jmp_buf resume_point;
    ucontext_t entry;
};

Thread threads[MOST_THREADS];
unsigned thread_count;
unsigned ready[MOST_THREADS / WARP], in_collective[MOST_THREADS / WARP];  // bits: lanes
int barrier_result;

jmp_buf scheduler_point;
std::string report;
long barriers, collectives;
Launch launch;

// One arena a block: its dynamic shared memory, then the declared variables as they come up.
alignas(16) char arena[MOST_SHARED + 64 * 256];
std::size_t arena_used, shared_used;
std::vector<const void *> shared_keys;  // of shared_regions, whose first is the dynamic memory

std::string name_of(Place place) {
    return std::string(place.file) + ":" + std::to_string(place.line);
}

std::string name_of(unsigned thread) { return "thread " + std::to_string(thread); }

// --- fibers --------------------------------------------------------------------------------------

// Kept out of line: what a setjmp may clobber is then nothing of the caller's.
__attribute__((noinline)) void back_to_scheduler() {
    if (_setjmp(threads[here.thread.x].resume_point) == 0) _longjmp(scheduler_point, 1);
}

__attribute__((noinline)) void resume(unsigned index) {
    Thread &thread = threads[index];
    here.thread.x = index;
    if (_setjmp(scheduler_point)) return;
    if (thread.started) _longjmp(thread.resume_point, 1);
    thread.started = true;
    setcontext(&thread.entry);  // costs a system call, so once a fiber and not once a block
}

void wait(State state) {
    const unsigned index = here.thread.x;
    threads[index].state = state;
    ready[index / WARP] &= ~(1u << index % WARP);
    back_to_scheduler();
}

void fiber() {
    for (;;) {
        launch.kernel->call(launch.kernel->function, launch.arguments);
        wait(State::done);
    }
}

void prepare_fibers() {
    static char *stacks = nullptr;
    if (!stacks) {
        stacks = static_cast<char *>(mmap(nullptr, STACK * MOST_THREADS, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (stacks == MAP_FAILED) std::abort();
    }
    for (unsigned i = 0; i < thread_count; ++i) {
        Thread &thread = threads[i];
        if (thread.started) continue;
        getcontext(&thread.entry);
        thread.entry.uc_stack.ss_sp = stacks + STACK * i;
        thread.entry.uc_stack.ss_size = STACK;
        thread.entry.uc_link = nullptr;
        makecontext(&thread.entry, fiber, 0);
    }
}

// --- the schedule --------------------------------------------------------------------------------

unsigned random_state;

unsigned random_number() {  // xorshift
    random_state ^= random_state << 13, random_state ^= random_state >> 17;
    return random_state ^= random_state << 5;
}

// The next thread to run, or -1. In order, the first warp runs as far ahead of the others as it
// can; reversed, the last.
int next_thread() {
    const int warps = (thread_count + WARP - 1) / WARP;
    const bool random = launch.schedule > 0;
    const int start = random ? random_number() % warps : 0;
    for (int i = 0; i < warps; ++i) {
        const int warp = launch.schedule == REVERSED ? warps - 1 - i : (start + i) % warps;
        const unsigned lanes = ready[warp];
        if (!lanes) continue;
        if (launch.schedule == REVERSED) return warp * WARP + 31 - __builtin_clz(lanes);
        if (!random) return warp * WARP + __builtin_ctz(lanes);
        const unsigned by = random_number() % WARP;
        const unsigned turned = lanes >> by | lanes << ((WARP - by) % WARP);
        return warp * WARP + (__builtin_ctz(turned) + by) % WARP;
    }
    return -1;
}

void make_ready(unsigned index) {
    threads[index].state = State::ready;
    ready[index / WARP] |= 1u << index % WARP;
}

bool release_barrier() {
    int votes = 0;
    for (unsigned i = 0; i < thread_count; ++i) {
        if (threads[i].state != State::at_barrier) return false;
        if (threads[i].place != threads[0].place) return false;
        votes += threads[i].predicate;
    }
    barrier_result = votes;
    for (unsigned i = 0; i < thread_count; ++i) make_ready(i);
    ++barriers;
    order_block();
    return true;
}

bool all_done() {
    return std::all_of(threads, threads + thread_count,
                       [](const Thread &thread) { return thread.state == State::done; });
}

// What is wrong, once no thread can go on.
void explain_deadlock() {
    const auto why_not = [](unsigned index) -> std::string {
        const Request &mine = *threads[index].request;
        const unsigned first = index / WARP * WARP;
        for (unsigned lane = 0; lane < WARP; ++lane) {
            if (!(mine.mask >> lane & 1)) continue;
            const unsigned other = first + lane;
            const std::string whose = "the mask names lane " + std::to_string(lane) + ", ";
            if (other >= thread_count) return whose + "which the block does not have";
            const Thread &thread = threads[other];
            if (thread.state == State::done)
                return whose + "but " + name_of(other) + " has returned";
            if (thread.state == State::at_barrier)
                return whose + "but " + name_of(other) + " waits at the barrier of " +
                       name_of(thread.place);
            if (thread.request->mask != mine.mask || thread.request->kind != mine.kind ||
                thread.place != threads[index].place)
                return whose + "but " + name_of(other) + " is in another collective, at " +
                       name_of(thread.place);
        }
        return "";
    };
    for (unsigned i = 0; i < thread_count; ++i) {
        if (threads[i].state != State::in_collective) continue;
        const std::string why = why_not(i);
        if (!why.empty())
            return fail(i, name_of(threads[i].place), "this collective cannot end: " + why);
    }
    unsigned waits = 0;
    while (threads[waits].state != State::at_barrier) ++waits;
    for (unsigned i = 0; i < thread_count; ++i) {
        if (threads[i].state == State::done)
            return fail(waits, name_of(threads[waits].place),
                        "this barrier cannot end: " + name_of(i) + " has returned");
        if (threads[i].place != threads[waits].place)
            return fail(waits, name_of(threads[waits].place),
                        "divergent barriers: " + name_of(i) + " waits at that of " +
                            name_of(threads[i].place));
    }
}

void run_block() {
    shared_regions.assign(1, {arena, arena + launch.dynamic_shared, "the dynamic shared memory"});
    shared_keys.assign(1, nullptr);
    shared_used = launch.dynamic_shared;
    arena_used = launch.dynamic_shared + 64;
    std::memset(arena, 0xff, launch.dynamic_shared);  // floating: NaN
    start_checks_of_block();
    prepare_fibers();
    for (unsigned i = 0; i < thread_count; ++i) make_ready(i);
    for (long step = 0; report.empty(); ++step) {
        const int next = next_thread();
        if (next >= 0) {
            if (step > MOST_STEPS) fail(next, "", "the block does not end");
            resume(next);
        } else if (all_done()) {
            return;
        } else if (!release_barrier()) {
            explain_deadlock();
        }
    }
    for (Thread &thread : threads) thread.started = false;  // given up half-way: start anew
    std::fill(std::begin(ready), std::end(ready), 0);
    std::fill(std::begin(in_collective), std::end(in_collective), 0);
}

// --- collectives ---------------------------------------------------------------------------------

unsigned source_lane(const Request &request, unsigned lane) {
    const int width = request.width, first = lane / width * width, argument = request.argument;
    const int from = static_cast<int>(lane);
    switch (request.kind) {
        case Collective::shuffle:
            return first + (argument & (width - 1));
        case Collective::shuffle_xor:
            return (from ^ argument) < first + width ? from ^ argument : from;
        case Collective::shuffle_up:
            return from - argument >= first ? from - argument : from;
        case Collective::shuffle_down:
            return from + argument < first + width ? from + argument : from;
        default:
            return lane;
    }
}

// Every lane of the mask is there, and for the same: hand out the results.
void complete(unsigned first, const Request &request) {
    unsigned long long values[WARP];
    unsigned votes = 0;
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(request.mask >> lane & 1)) continue;
        const Request &its = *threads[first + lane].request;
        values[lane] = 0;
        if (its.value) std::memcpy(&values[lane], its.value, its.size);
        votes |= static_cast<unsigned>(values[lane] & 1) << lane;
    }
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(request.mask >> lane & 1)) continue;
        const Request &its = *threads[first + lane].request;
        if (its.kind == Collective::ballot) {
            std::memcpy(its.value, &votes, sizeof votes);
        } else if (its.value) {
            const unsigned source = source_lane(its, lane);
            if (request.mask >> source & 1) {
                std::memcpy(its.value, &values[source], its.size);
            } else {
                std::memset(its.value, 0xff, its.size);  // undefined on a GPU: NaN shows
            }
        }
        make_ready(first + lane);
    }
    in_collective[first / WARP] &= ~request.mask;
    ++collectives;
    if (request.kind == Collective::sync_warp) order_lanes(first / WARP, request.mask);
}

bool all_agree(unsigned first, const Request &request) {
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(request.mask >> lane & 1)) continue;
        const Request &other = *threads[first + lane].request;
        if (other.mask != request.mask || other.kind != request.kind ||
            other.place != request.place || other.size != request.size)
            return false;
    }
    return true;
}

}  // namespace

// --- what kernels call ---------------------------------------------------------------------------

int barrier(bool predicate, Place place) {
    Thread &thread = threads[here.thread.x];
    thread.predicate = predicate;
    thread.place = place;
    wait(State::at_barrier);
    return barrier_result;
}

void collective(const Request &request) {
    const unsigned index = here.thread.x, warp = index / WARP, lane = index % WARP;
    Thread &thread = threads[index];
    thread.request = &request;
    thread.place = request.place;
    if (!(request.mask >> lane & 1)) {
        fail(index, name_of(request.place),
             "a thread outside the mask takes part in this collective");
        back_to_scheduler();
    }
    in_collective[warp] |= 1u << lane;
    if ((in_collective[warp] & request.mask) == request.mask && all_agree(warp * WARP, request)) {
        complete(warp * WARP, request);
        back_to_scheduler();  // this lane came last: who goes first now is for the schedule
    } else {
        wait(State::in_collective);
    }
}

void *shared_variable(const char *name, const void *key, std::size_t size, std::size_t alignment) {
    for (std::size_t i = 1; i < shared_keys.size(); ++i)
        if (shared_keys[i] == key) return const_cast<char *>(shared_regions[i].begin);
    const std::size_t start = (arena_used + alignment - 1) / alignment * alignment;
    shared_used += size;
    if (shared_used > MOST_SHARED || start + size > sizeof arena)
        fail_here("", "the block needs " + std::to_string(shared_used) +
                          " bytes of shared memory; " + std::to_string(MOST_SHARED) +
                          " are the most");
    arena_used = start + size + 64;  // a gap, so that an overrun meets no neighbour
    std::memset(arena + start, 0xff, size);
    shared_keys.push_back(key);
    shared_regions.push_back({arena + start, arena + start + size, name});
    return arena + start;
}

void *dynamic_shared_memory() { return arena; }

// --- what the checks call ------------------------------------------------------------------------

void fail(unsigned thread, const std::string &where, const std::string &what) {
    if (!report.empty()) return;
    report = "block " + std::to_string(here.block.x) + ", " + name_of(thread) +
             (where.empty() ? "" : ", " + where) + ": " + what;
}

void fail_here(const std::string &where, const std::string &what) {
    fail(here.thread.x, where, what);
    back_to_scheduler();
}

bool on_own_stack(const char *address) {
    const char *stack = static_cast<char *>(threads[here.thread.x].entry.uc_stack.ss_sp);
    return address >= stack && address < stack + STACK;
}

// --- what Python calls ---------------------------------------------------------------------------

// Run `grid` blocks; 0, or 1 where emulation_report says what is wrong.
int run(const Launch &asked) {
    launch = asked;
    random_state = 2654435761u * launch.schedule + 1;
    report.clear();
    barriers = collectives = 0;
    thread_count = here.block_size.x = launch.block;
    here.grid_size.x = launch.grid;
    start_checks_of_launch(arena, sizeof arena);
#ifdef __SSE__
    const unsigned mode = _mm_getcsr();
    if (launch.flush_subnormals) _mm_setcsr(mode | 0x8040);  // FTZ and DAZ
#endif
    std::vector<unsigned> order(launch.grid);
    for (unsigned i = 0; i < launch.grid; ++i) order[i] = i;
    if (launch.schedule == REVERSED) std::reverse(order.begin(), order.end());
    if (launch.schedule > 0)
        for (unsigned i = launch.grid; i > 1; --i)
            std::swap(order[i - 1], order[random_number() % i]);
    in_kernel = true;
    for (unsigned block : order) {
        here.block.x = block;
        run_block();
        if (!report.empty()) break;
    }
    in_kernel = false;
#ifdef __SSE__
    _mm_setcsr(mode);
#endif
    return !report.empty();
}

}  // namespace emulation

#pragma GCC visibility push(default)
extern "C" {

int emulation_launch(int kernel, unsigned grid, unsigned block, std::size_t dynamic_shared,
                     int schedule, int flush_subnormals, void **arguments, int arrays,
                     const char **begins, const char **ends, const char **names) {
    emulation::global_regions.clear();
    for (int i = 0; i < arrays; ++i)
        emulation::global_regions.push_back({begins[i], ends[i], names[i]});
    return emulation::run({&emulation::kernels[kernel], grid, block, dynamic_shared, schedule,
                           flush_subnormals != 0, arguments});
}

const char *emulation_report() { return emulation::report.c_str(); }

// How much waiting the last launch did: a test can see that a path was taken.
void emulation_counts(long *counts) {
    counts[0] = emulation::barriers;
    counts[1] = emulation::collectives;
}

// The kernel's parameters, each followed by a space: in:f4 for const float *, i8 for long long.
const char *emulation_signature(int kernel) {
    static std::string text;
    text.clear();
    for (int i = 0; i < emulation::kernels[kernel].count; ++i) {
        const emulation::Parameter &parameter = emulation::kernels[kernel].parameters[i];
        if (parameter.role != emulation::Role::value)
            text += parameter.role == emulation::Role::input ? "in:" : "out:";
        text += parameter.kind + std::to_string(parameter.size) + " ";
    }
    return text.c_str();
}
}
#pragma GCC visibility pop
