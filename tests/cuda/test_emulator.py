"""The emulator itself: right kernels run right, and each kind of mistake is told."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from emulation import IN_ORDER, REVERSED, KernelError, Library, compiled, unavailable
from stages import deep

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

SCHEDULES = [IN_ORDER, REVERSED, 1, 2]

# Sums rows: each warp by shuffles, then the first thread over the warps.
TOTAL = """
template <typename T>
__global__ void total(const T *x, T *sums, int n) {
    __shared__ T parts[32];
    T sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[(long long)blockIdx.x * n + i];
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < blockDim.x / 32; warp++) sum += parts[warp];
    sums[blockIdx.x] = sum;
}
"""

# Bodies of kernels over `block` threads, in one library since a compiler takes long to start. The
# first line of each is line 1 of a file of the body's own name.
WAITING_IN_VAIN = {  # name: (block, report, body)
    "returned": (64, "thread 0, returned:1: this barrier cannot end: thread 32 has returned",
                 "if (i < 32) __syncthreads();"),
    "divergent": (64, "thread 0, divergent:1: divergent barriers: thread 32 .* divergent:2",
                  "if (i < 32) __syncthreads();\nelse __syncthreads();"),
    "lane_returned": (32, "mask names lane 7, but thread 7 has returned",
                      "if (i != 7) __syncwarp(M);"),
    "no_such_lane": (20, "the mask names lane 20, which the block does not have",
                     "__syncwarp(M);"),
    "lane_at_barrier": (32, "lane 3, but thread 3 waits at the barrier of lane_at_barrier:1",
                        "if (i == 3) __syncthreads(); else __any_sync(M, i);"),
    "not_in_mask": (32, "thread 0, not_in_mask:1: a thread outside the mask takes part",
                    "__syncwarp(0x0000fffeu);"),
    "other_place": (32, "lane 9, but thread 9 is in another collective, at other_place:2",
                    "if (i < 9) __syncwarp(M);\nelse __syncwarp(M);"),
    "other_kind": (32, "is in another collective",
                   "if (i < 9) __all_sync(M, 1); else __syncwarp(M);"),
    "other_mask": (32, "is in another collective",
                   "__any_sync(i < 9 ? M : M - 1, 1);"),
    "endless": (1024, "the block does not end", "for (;;) __syncthreads();"),
    "too_much": (32, "240000 bytes of shared memory", "__shared__ double s[30000]; s[0] = i;"),
}  # fmt: skip
RACES = {
    "two_write_one": "y[i / 2] = i;",
    "crossing": "y[i] = i; y[63 - i] = i;",
    "late_write": "__shared__ float s[64]; s[i] = i; __syncthreads(); if (i == 40) s[3] = 0;"
                  " y[i] = s[3];",
    "write_after_read": "__shared__ float s[64]; s[i] = i; __syncthreads(); y[i] = s[i ^ 1];"
                        " s[i] = 0;",
    # The lanes of a warp need ordering too, and neither a shuffle nor a vote gives it.
    "shuffle": "__shared__ float s[64]; s[i] = i; __shfl_sync(M, i, 0); y[i] = s[i ^ 1];",
    "vote": "__shared__ float s[64]; s[i] = i; __ballot_sync(M, 1); y[i] = s[i ^ 1];",
    # A warp synchronises itself alone, and only the lanes that its mask names.
    "other_warp": "__shared__ float s[64]; s[i] = i; __syncwarp(M); y[i] = s[i ^ 32];",
    "half_warp": "__shared__ float s[64]; s[i] = i; if (i % 32 < 16) __syncwarp(0xffff);"
                 " y[i] = s[i ^ 16];",
    "atomic_and_plain": "__shared__ int c; if (i == 0) c = 0; __syncthreads(); atomicAdd(&c, 1);"
                        " y[i] = c;",
}  # fmt: skip
ORDERED = {
    "barrier": "__shared__ float s[64]; s[i] = i; __syncthreads(); y[i] = s[63 - i];",
    "warp": "__shared__ float s[64]; s[i] = i; __syncwarp(M); y[i ^ 1] = s[i ^ 1];",
    "part_of_warp": "__shared__ float s[64]; s[i] = i; if (i % 32 < 16) { __syncwarp(0xffff);"
                    " y[i] = s[i ^ 8]; }",
    "atomic": "__shared__ int c; if (i == 0) c = 0; __syncthreads(); atomicAdd(&c, i);"
              " __syncthreads(); y[i] = n;",
    "rounds": "__shared__ double s[8]; for (int k = 0; k < 9; k++) { if (i == 7 * k) s[k % 8] = k;"
              " __syncthreads(); y[i] = s[0]; __syncthreads(); }",
}  # fmt: skip
OUTSIDE = {  # name: (block, report, body)
    "past": (64, "thread 63, past:1: overrun: this writes 4 bytes, .* 4 bytes past the end of argu",
             "y[i + 1] = 0;"),
    "before": (64, "thread 0, .* reads 4 bytes, reaching 8 bytes before the start of argument 0",
               "y[i] = x[i - 2];"),
    "past_shared": (64, "thread 32, .* past the end of s",
                    "__shared__ float s[32], r[99]; r[i] = 0; float *t = s; t[i] = r[i];"),
    "unwritten": (64, "reads s .byte 0., which nothing has written",
                  "__shared__ float s[64]; y[i] = s[i];"),
    "index": (1, "index:2: an index outside its array",
              "float s[4] = {};\nfor (int k = 0; k < n; k++) s[k] = x[k]; y[i] = s[2];"),
    "alignment": (1, "alignment:1: an address that its type's alignment",
                  "*(double *)(y + 1) = *(const double *)x;"),
    "shift": (1, "shift:1: a shift by more", "y[i] = 1 << n;"),
    "overflow": (1, "overflow:1: a signed product that overflows", "y[i] = n * n * n * n * n * n;"),
}  # fmt: skip
SHUFFLES = {
    f"{name}{width}": f"double v = x[i]; y[i] = __{call}, {width});"
    for width in (8, 32)
    for name, call in {
        "index": "shfl_sync(M, v, 3",
        "xor": "shfl_xor_sync(M, v, 5",
        "up": "shfl_up_sync(M, v, 2",
        "down": "shfl_down_sync(M, v, 2",
    }.items()
}
OTHERS = {
    "nothing": "",
    "ones": "y[blockIdx.x * 32 + i] = 1;",
    "blocks_meet": "y[blockIdx.x + i] = 1; __syncthreads();",
    "blocks_count": "atomicAdd(counts, 1);",
    "other_lane": "if (i < 16) y[i] = __shfl_sync(0xffffu, x[i], 20);",
    "votes": """
        const bool odd = i % 2, small = i < 100;
        const int votes = __popc(__ballot_sync(M, odd));
        const int any = __any_sync(M, odd), all = __all_sync(M, odd);
        const int count = __syncthreads_count(odd), either = __syncthreads_or(!small);
        const int both = __syncthreads_and(small);
        if (i == 0) counts[0] = votes, counts[1] = any, counts[2] = all, counts[3] = count,
                    counts[4] = either, counts[5] = both,
                    counts[6] = __ffs(votes), counts[7] = __ffs(0);""",
    "unset": "__shared__ float s[2][64]; if (i < 0) s[1][i] = 0; y[blockIdx.x * 64 + i] = s[1][i];",
    "quarter": "y[i] = x[i] / 4;",
}


@functools.cache
def library(checked: bool) -> Library:
    bodies = {name: body for name, (_, _, body) in {**WAITING_IN_VAIN, **OUTSIDE}.items()}
    bodies |= {**RACES, **ORDERED, **SHUFFLES, **OTHERS}
    kernels = (
        f'extern "C" __global__ void {name}_kernel'
        "(const float *x, float *y, int *counts, int n) {\n"
        f'const int i = threadIdx.x;\n#line 1 "{name}"\n{body}\n}}\n'
        for name, body in bodies.items()
    )
    return compiled("const unsigned M = 0xffffffffu;\n" + "".join(kernels), checked=checked)


def run(name: str, *, block: int = 64, grid: int = 1, size: int = 64, checked: bool = True,
        schedule: int = IN_ORDER) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    x, y = np.arange(size, dtype=np.float32), np.full(size, -1, np.float32)
    counts = np.zeros(size, np.int32)
    arguments = [x, y, counts, np.int32(size)]
    library(checked).launch(f"{name}_kernel", grid, block, arguments, schedule=schedule)
    return y, counts


@pytest.mark.parametrize("checked", [True, *deep(False)])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "float"), (np.float64, "double")])
def test_a_right_kernel_runs_right(dtype: Any, name: str, schedule: int, checked: bool) -> None:
    totals = compiled(TOTAL, ["total<float>", "total<double>"], checked=checked)
    x = np.random.default_rng(0).standard_normal((5, 300)).astype(dtype)
    sums = np.empty(5, dtype)
    done = totals.launch(f"total<{name}>", 5, 128, [x, sums, np.int32(300)], schedule=schedule)
    np.testing.assert_allclose(sums, x.sum(axis=1), rtol=0, atol=100 * np.finfo(dtype).eps)
    assert done == {"barriers": 5, "collectives": 5 * 4 * 5}


def test_a_missing_barrier_changes_values() -> None:
    totals = compiled(TOTAL.replace("__syncthreads();", ""), ["total<double>"])
    x, sums = np.ones((1, 128)), np.empty(1)
    seen = []
    for schedule in SCHEDULES:
        totals.launch("total<double>", 1, 128, [x, sums, np.int32(128)], schedule=schedule)
        seen.append(sums[0])
    assert 128 in seen  # the first thread came last
    assert np.isnan(seen).any()  # it did not: what it read was not written yet


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_missing_barrier_is_reported_by_the_checks(schedule: int) -> None:
    totals = compiled(TOTAL.replace("__syncthreads();", ""), ["total<double>"], checked=True)
    x, sums = np.ones((1, 128)), np.empty(1)
    with pytest.raises(KernelError, match=r"total<double>, block 0, thread \d+, kernels.cu:\d+: "):
        totals.launch("total<double>", 1, 128, [x, sums, np.int32(128)], schedule=schedule)


@pytest.mark.parametrize("name", WAITING_IN_VAIN)
@pytest.mark.parametrize("checked", [False, True])
def test_waiting_in_vain_is_reported(name: str, checked: bool) -> None:
    block, message, _ = WAITING_IN_VAIN[name]
    with pytest.raises(KernelError, match=message):
        run(name, block=block, checked=checked)
    run("ones", checked=checked)  # and the next launch is sound


@pytest.mark.parametrize("name", RACES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_races_are_reported(name: str, schedule: int) -> None:
    with pytest.raises(KernelError, match="race: .*nothing orders the two|nothing has written"):
        run(name, schedule=schedule)


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_ordered_is_no_race(name: str, schedule: int) -> None:
    checked = run(name, schedule=schedule)
    np.testing.assert_array_equal(run(name, schedule=schedule, checked=False), checked)


def test_blocks_have_no_order() -> None:
    run("ones", grid=2, block=32)
    with pytest.raises(KernelError, match=r"block 1, .*race: this writes argument 1 .*block 0, "):
        run("blocks_meet", grid=2, block=32)
    run("blocks_count", grid=2)


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_outside_is_reported(name: str) -> None:
    block, message, _ = OUTSIDE[name]
    with pytest.raises(KernelError, match=message):
        run(name, block=block)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("width", [8, 32])
def test_shuffles(width: int, schedule: int) -> None:
    lane = np.arange(64)
    first, last = lane // width * width, lane // width * width + width - 1
    expected = {
        "index": first + 3,
        "xor": lane ^ 5,
        "up": np.where(lane - 2 >= first, lane - 2, lane),
        "down": np.where(lane + 2 <= last, lane + 2, lane),
    }
    for name, source in expected.items():
        y, _ = run(f"{name}{width}", schedule=schedule)
        np.testing.assert_array_equal(y, source)


def test_a_lane_outside_the_mask_gives_nothing() -> None:
    y, _ = run("other_lane", block=32)
    assert np.isnan(y[:16]).all()
    assert (y[16:] == -1).all()


def test_votes_and_counting_barriers() -> None:
    _, counts = run("votes")
    assert counts[:8].tolist() == [16, 1, 0, 32, 0, 1, 5, 0]


def test_shared_variables_belong_to_the_block_and_start_unknown() -> None:
    y, _ = run("unset", grid=2, size=128, checked=False)
    assert np.isnan(y).all()


@pytest.mark.parametrize("checked", [False, True])
def test_dynamic_shared_memory(checked: bool) -> None:
    code = """
    extern "C" __global__ void reverse(const float *x, float *y) {
        extern __shared__ unsigned char bytes[];
        float *row = reinterpret_cast<float *>(bytes);
        row[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
    }"""
    built = compiled(code, checked=checked)
    x, y = np.arange(96, dtype=np.float32), np.empty(96, np.float32)
    built.launch("reverse", 1, 96, [x, y], shared=4 * 96)
    np.testing.assert_array_equal(y, x[::-1])
    if checked:
        with pytest.raises(KernelError, match="4 bytes past the end of the dynamic shared memory"):
            built.launch("reverse", 1, 96, [x, y], shared=4 * 95)


def test_float16_is_rounded_as_numpy_rounds_it() -> None:
    code = """#include <cuda_fp16.h>
    extern "C" __global__ void widen(const __half *x, float *y) {
        y[blockIdx.x] = __half2float(x[blockIdx.x]);
    }
    extern "C" __global__ void narrow(const float *x, __half *y) {
        y[blockIdx.x] = __float2half_rn(x[blockIdx.x]);
    }"""
    built = compiled(code)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = np.empty(halves.shape, np.float32)
    built.launch("widen", len(halves), 1, [halves, wide])
    np.testing.assert_array_equal(wide, halves.astype(np.float32))

    finite = np.sort(wide[np.isfinite(wide)])
    middles = (finite[1:] + finite[:-1]) / 2  # ties, and what lies just beside them
    cases = np.concatenate(
        [wide, middles, np.nextafter(middles, np.float32(np.inf)), np.float32([65520, 7e4, 1e-9]),
         np.nextafter(middles, np.float32(-np.inf)), np.float32([65519.996, -1e9, 2e-45])]
    )  # fmt: skip
    narrow = np.empty(cases.shape, np.float16)
    built.launch("narrow", len(cases), 1, [cases, narrow])
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(narrow, cases.astype(np.float16))


def test_subnormal_numbers_are_flushed_where_asked() -> None:
    x, y = np.array([np.finfo(np.float32).tiny], np.float32), np.ones(1, np.float32)
    rest = [np.zeros(1, np.int32), np.int32(1)]
    library(False).launch("quarter_kernel", 1, 1, [x, y, *rest])
    assert y[0] == x[0] / 4
    library(False).launch("quarter_kernel", 1, 1, [x, y, *rest], flush_subnormals=True)
    assert y[0] == 0
    assert x[0] / 4 > 0  # here, after the launch


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: np.zeros(64)}, "argument 0 points to f4, got float64"),
        ({0: [1.0]}, "argument 0 points to f4, got list"),
        ({1: np.broadcast_to(np.float32(1), 64)}, "argument 1 is written to, got a read-only"),
        ({3: np.int64(64)}, r"argument 3 is a i4, got np.int64\(64\)"),
        ({3: 64}, "argument 3 is a i4, got 64"),
    ],
)
def test_arguments_must_be_of_the_kernels_types(change: dict[int, Any], message: str) -> None:
    arguments = [np.zeros(64, np.float32), np.zeros(64, np.float32), np.zeros(64, np.int32),
                 np.int32(64)]  # fmt: skip
    for position, value in change.items():
        arguments[position] = value
    with pytest.raises(KernelError, match=message):
        library(False).launch("nothing_kernel", 1, 64, arguments)
    with pytest.raises(KernelError, match="takes 4 arguments, got 3"):
        library(False).launch("nothing_kernel", 1, 64, arguments[:3])
    with pytest.raises(KernelError, match="a block of 2048"):
        library(False).launch("nothing_kernel", 1, 2048, arguments)


def test_what_does_not_compile_is_said() -> None:
    with pytest.raises(RuntimeError, match="kernels.cu:2:.*error"):
        compiled("\n__global__ void f() { undeclared(); }", ["f"])
    with pytest.raises(RuntimeError, match="a shared declaration that the emulation does not read"):
        compiled('extern "C" __global__ void f() { __shared__ int x = 3; }')
