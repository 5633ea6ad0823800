"""Operands that keep none of the promises that callers of a kernel make, at the edge of memory.

As a script it runs kernels over such operands, and dies where one of them leaves its rows: a
process of its own, since that is what such a kernel takes down.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

ROWS = 35  # more than a block of short rows
SHORT = [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 100]
LONG = [129, 255, 256, 257, 300, 384, 385, 512, 513, 777, 1025, 2500]
KINDS = 13
PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)


def broken_row(rng: np.random.Generator, n: int, dtype: Any, kind: int) -> np.ndarray:
    """n numbers of one of the KINDS: few of them are probabilities, or scores worth a search."""
    info, uniform = np.finfo(dtype), rng.random(n)
    least = float(info.smallest_subnormal)
    special = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny, least]
    special += [-least, 1 - info.epsneg, 1 + info.eps]
    bits = rng.integers(0, 256, n * np.dtype(dtype).itemsize, np.uint8).view(dtype)
    if kind == 0:
        row = bits
    elif kind == 1:
        row = np.where(uniform < 0.1, bits, 0)
    elif kind == 2:
        row = rng.choice(special, n)
    elif kind == 3:
        row = np.where(uniform < 0.9, uniform / uniform.sum(), rng.choice(special, n))
    elif kind == 4:
        row = rng.standard_normal(n)
    elif kind == 5:
        row = -uniform
    elif kind == 6:
        row = np.log(uniform / uniform.sum())  # the logarithms of probabilities
    elif kind == 7:
        row = rng.integers(-3, 4, n) * least
    elif kind == 8:
        row = uniform * 10.0 ** rng.integers(-40, 40, n)  # any sum
    elif kind == 9:
        row = np.full(n, rng.choice(special))
    elif kind == 10:
        row = np.where(np.arange(n) == rng.integers(n), rng.choice(special), 0)
    elif kind == 11:
        row = np.where(np.arange(n) == rng.integers(n), -1e-20, 0)
    else:
        row = np.maximum(uniform - 0.7, 0)
        row /= max(row.sum(), 1e-9)  # a distribution, or nothing left
    with np.errstate(all="ignore"):
        return np.asarray(row).astype(dtype)


def operand(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], n: int) -> Any:
    """What a kernel gets as rows, as masks, or as a parameter of each row."""
    if dtype.kind == "b":
        share = rng.choice([0, 0.1, 0.5, 0.9, 1], (shape[0], 1))
        return rng.random(shape) < share
    if dtype.kind == "i":  # labels, and k
        far = rng.integers(-(1 << 62), 1 << 62, shape)
        return np.where(rng.random(shape) < 0.9, rng.integers(-2, n + 3, shape), far)
    if len(shape) == 1:
        usual = [1, 1 + 1e-9, 1.1, 1.3, 1.5, 1.9, 2, 2.5, 4, 20, 300, 1e10, 1e30]
        unusual = [np.inf, -np.inf, np.nan, 0, -0.0, -1, 0.5, 1e-30]
        return rng.choice(np.array(usual + unusual), shape).astype(dtype)
    kinds = rng.integers(0, KINDS, int(np.prod(shape[:-1])))
    some = [broken_row(rng, shape[-1], dtype, int(kind)) for kind in kinds]
    return np.array(some).reshape(shape)


def at_the_edge(array: np.ndarray, end: bool) -> np.ndarray:
    """A copy that ends or begins where memory does: beyond it the process may not even read."""
    size = -(-array.nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, size + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + PAGE + size):
        if LIBC.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect failed")
    offset = PAGE + (size - array.nbytes if end else 0)
    copy: np.ndarray = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


SIZES = {"n": lambda n: (n,), "4,n": lambda n: (4, n), "": lambda n: ()}


def shapes(kernel: Any) -> list[str]:
    """The core dimensions of each operand, as the kernel's signature has them.

    One that goes entry by entry has none, and takes rows of anything.
    """
    if kernel.signature is None:
        return ["n"] * int(kernel.nin)
    return re.findall(r"\(([^)]*)\)", kernel.signature.split("->")[0])


def takes_rows(kernel: Any) -> bool:
    """Whether it takes rows and numbers; those of compressed rows have tests of their own."""
    return bool(shapes(kernel)) and set(shapes(kernel)) <= SIZES.keys()


def operands(kernel: Any, dtype: Any, n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Of each row of a batch, what the kernel's signature asks for."""
    loop = kernel.types[0 if np.dtype(dtype) == np.float32 else 1].split("->")[0]
    return [
        operand(rng, np.dtype(code), (ROWS, *SIZES[shape](n)), n)
        for code, shape in zip(loop, shapes(kernel), strict=True)
    ]


def results(kernel: Any, given: Sequence[np.ndarray], end: bool) -> list[np.ndarray]:
    """What a kernel makes of operands at the edge of memory, written there too."""
    given = [at_the_edge(array, end) for array in given]
    found = kernel(*given)
    out = [at_the_edge(array, end) for array in (found if kernel.nout > 1 else [found])]
    kernel(*given, out=tuple(out))
    return out


def strided(array: np.ndarray) -> np.ndarray:
    """The same values where no two neighbours touch, so that kernels copy rows."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    wide[..., 1::2] = array
    return wide[..., 1::2]


def check(builds: dict[str, dict[str, Any]], name: str, dtype: Any, n: int, seed: int) -> None:
    """Run one kernel over a batch; rows may get anything but what depends on where they are."""
    rng = np.random.default_rng((seed, n))
    first = next(iter(builds.values()))[name]
    n = min(n, 100) if "n,n" in (first.signature or "") else n  # which writes n² numbers
    given = operands(first, dtype, n, rng)
    before = [array.copy() for array in given]
    rows = rng.permutation(ROWS)[: ROWS // 2]
    for build, kernels in builds.items():
        kernel, told = kernels[name], f"{name}, {np.dtype(dtype)}, n = {n}, seed = {seed}: {build}"
        expected = results(kernel, given, end=True)
        for result, same in zip(results(kernel, given, end=False), expected, strict=True):
            np.testing.assert_array_equal(result, same, err_msg=told)
        for layout, change in (("strided", strided), ("some rows", lambda array: array[rows])):
            found = kernel(*map(change, given))
            for result, same in zip(found if len(expected) > 1 else [found], expected, strict=True):
                same = same[rows] if layout == "some rows" else same
                np.testing.assert_array_equal(result, same, err_msg=f"{told}: {layout}")
    for array, same in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, same, err_msg=f"{told}: an operand was changed")


def main() -> None:
    """Run some kernels, or all of them, over rows of some lengths."""
    from pyentmax import _cpu

    parser = argparse.ArgumentParser()
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--lengths", type=int, nargs="+", default=SHORT)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    every = next(iter(_cpu.BUILDS.values()))
    names = asked.kernels or [name for name, kernel in every.items() if takes_rows(kernel)]
    for name in names:
        print(name, file=sys.stderr, flush=True)  # the last one printed is the one that crashed
        for seed in range(asked.seeds):
            for n in asked.lengths:
                for dtype in (np.float32, np.float64):
                    check(_cpu.BUILDS, name, dtype, n, seed)


if __name__ == "__main__":
    main()
