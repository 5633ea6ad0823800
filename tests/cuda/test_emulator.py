"""The emulator tells a kernel's mistakes: planted in small ones, and in the library's own."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import truth
from emulation import IN_ORDER, REVERSED, KernelError, Library, compiled, unavailable
from test_kernels import BLOCK, COLUMNS, LENGTHS, STREAM, called, held_by, scores
from test_values import assert_right

import pyentmax as pe
from pyentmax.engine.backends.cuda import launch

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

# Bodies of kernels over 64 threads, in one library since a compiler takes long to start, and what
# is said of each. The first line of each is line 1 of a file of the body's own name.
MISTAKES = {
    "returned": ("this barrier cannot end: thread 32 has returned",
                 "if (i < 32) __syncthreads();"),
    "divergent": ("thread 0, divergent:1: divergent barriers: thread 32 .* divergent:2",
                  "if (i < 32) __syncthreads();\nelse __syncthreads();"),
    "outside": ("a thread outside the mask takes part", "__syncwarp(0x0000fffeu);"),
    "elsewhere": ("thread 9 is in another collective, at elsewhere:2",
                  "if (i % 32 < 9) __syncwarp(M);\nelse __syncwarp(M);"),
    "endless": ("the block does not end", "for (;;) __syncthreads();"),
    "too_much": ("240000 bytes of shared memory", "__shared__ double s[30000]; s[0] = i;"),
    "crossing": ("race: .*nothing orders", "y[i] = i; y[63 - i] = i;"),
    "late": ("race: .*nothing orders", "__shared__ float s[64]; s[i] = i; __syncthreads();"
             " if (i == 40) s[3] = 0; y[i] = s[3];"),
    # The lanes of a warp need ordering too, and neither a shuffle nor a vote gives it.
    "shuffle": ("nothing orders|nothing has written",
                "__shared__ float s[64]; s[i] = i; __shfl_sync(M, i, 0); y[i] = s[i ^ 1];"),
    # A warp synchronises itself alone, and only the lanes that its mask names.
    "half": ("nothing orders|nothing has written", "__shared__ float s[64]; s[i] = i;"
             " if (i % 32 < 16) __syncwarp(0xffff); y[i] = s[i ^ 16];"),
    "atomic": ("nothing orders", "__shared__ int c; if (i == 0) c = 0; __syncthreads();"
               " atomicAdd(&c, 1); y[i] = c;"),
    "past": ("thread 63, past:1: overrun: this writes 4 bytes, .* past the end of argument 1",
             "y[i + 1] = 0;"),
    "past_shared": ("thread 32, .* past the end of s",
                    "__shared__ float s[32], r[99]; r[i] = 0; float *t = s; t[i] = r[i];"),
    "unwritten": ("reads s .byte 0., which nothing has written",
                  "__shared__ float s[64]; y[i] = s[i];"),
    "index": ("an index outside its array",
              "float s[4] = {};\nfor (int k = 0; k < n; k++) s[k] = x[k]; y[i] = s[2];"),
    "alignment": ("an address that its type's alignment",
                  "*(double *)(y + 1) = *(const double *)x;"),
    "overflow": ("a signed product that overflows", "y[i] = n * n * n * n * n * n;"),
}  # fmt: skip
ORDERED = {
    "barrier": "__shared__ float s[64]; s[i] = i; __syncthreads(); y[i] = s[63 - i];",
    "warp": "__shared__ float s[64]; s[i] = i; __syncwarp(M); y[i ^ 1] = s[i ^ 1];",
    "counted": "__shared__ int c; if (i == 0) c = 0; __syncthreads(); atomicAdd(&c, i);"
               " __syncthreads(); y[i] = n;",
}  # fmt: skip


@functools.cache
def library() -> Library:
    bodies = {name: body for name, (_, body) in MISTAKES.items()} | ORDERED
    kernels = (
        f'extern "C" __global__ void {name}_kernel(const float *x, float *y, int n) {{\n'
        f'const int i = threadIdx.x;\n#line 1 "{name}"\n{body}\n}}\n'
        for name, body in bodies.items()
    )
    return compiled("const unsigned M = 0xffffffffu;\n" + "".join(kernels), checked=True)


def run(name: str, schedule: int = IN_ORDER, grid: int = 1) -> None:
    x, y = np.arange(64, dtype=np.float32), np.full(64, -1, np.float32)
    library().launch(f"{name}_kernel", grid, 64, [x, y, np.int32(64)], schedule=schedule)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told(name: str) -> None:
    for schedule in (IN_ORDER, REVERSED, 1):
        with pytest.raises(KernelError, match=None if schedule else MISTAKES[name][0]):
            run(name, schedule)
        run("barrier", schedule)  # and the next launch is sound


def test_what_is_ordered_is_no_race_and_blocks_are_not() -> None:
    for name in ORDERED:
        for schedule in (IN_ORDER, REVERSED, 1, 2):
            run(name, schedule)
    with pytest.raises(KernelError, match=r"block 1, .*race: this writes argument 1 .*block 0, "):
        run("barrier", grid=2)


BARRIER = r"\b__syncthreads(?:_\w+)?\([^()]*\);"
SLIPS = [  # layout, what the kernels' text says, what it might have said, how that is reported
    (BLOCK, "line.whole_packs && i + PACK<T> <= n", "line.whole_packs", "overrun|race"),
    (STREAM, "x > bound && at < room", "x > bound && at <= room", "overrun|race"),
    (BLOCK, " && (unsigned long long)at % 16 == 0", "", "alignment"),
    (BLOCK, "slot ^= 1;", "", "race"),
    (COLUMNS, "i < n; i += THREADS", "i <= n; i += THREADS", "overrun|race"),
    (COLUMNS, BARRIER, ";", "race|nothing has written"),
    (STREAM, "pack[j] = i + j < n ?", "pack[j] = i + j <= n ?", "overrun|race|AssertionError"),
    (STREAM, BARRIER, ";", "race|nothing has written"),
]


def solve(layout: launch.RowLayout, z: np.ndarray) -> None:
    p = called(layout, pe.entmax, z, 1.25)
    assert_right(("entmax", 1.25), p, truth.forward("entmax", z, 1.25), z)


@pytest.mark.parametrize(("layout", "says", "instead", "report"), SLIPS)
def test_slips_in_kernels_are_told(
    layout: launch.RowLayout, says: str, instead: str, report: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = launch.source
    said = says if says is BARRIER else re.escape(says)
    assert re.search(said, real("entmax.cu")), "this slip cannot be made any more: choose another"
    monkeypatch.setattr(launch, "source", lambda file: re.sub(said, instead, real(file)))
    z = scores(("entmax", 1.25), LENGTHS[layout][-2], np.float32)[1]
    with held_by(layout, checked=True, room=8) as gpu:
        gpu.together = lambda name: (name,)
        with pytest.raises((KernelError, AssertionError)) as error:
            solve(layout, z)
    assert re.search(report, f"{error.type.__name__}: {error.value}")
