"""The emulator itself: each kind of mistake is told, and what is no mistake is not."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from emulation import IN_ORDER, REVERSED, KernelError, Library, compiled, unavailable

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

SCHEDULES = [IN_ORDER, REVERSED, 1, 2]

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
BLOCKS = {
    "ones": "y[blockIdx.x * 32 + i] = 1;",
    "blocks_meet": "y[blockIdx.x + i] = 1; __syncthreads();",
    "blocks_count": "atomicAdd(counts, 1);",
}


@functools.cache
def library(checked: bool) -> Library:
    bodies = {name: body for name, (_, _, body) in {**WAITING_IN_VAIN, **OUTSIDE}.items()}
    bodies |= {**RACES, **ORDERED, **BLOCKS}
    kernels = (
        f'extern "C" __global__ void {name}_kernel'
        "(const float *x, float *y, int *counts, int n) {\n"
        f'const int i = threadIdx.x;\n#line 1 "{name}"\n{body}\n}}\n'
        for name, body in bodies.items()
    )
    return compiled("const unsigned M = 0xffffffffu;\n" + "".join(kernels), checked=checked)


def run(name: str, *, block: int = 64, grid: int = 1, size: int = 64, checked: bool = True,
        schedule: int = IN_ORDER) -> np.ndarray:  # fmt: skip
    x, y = np.arange(size, dtype=np.float32), np.full(size, -1, np.float32)
    counts = np.zeros(size, np.int32)
    arguments = [x, y, counts, np.int32(size)]
    library(checked).launch(f"{name}_kernel", grid, block, arguments, schedule=schedule)
    return y


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
