"""The choice of a kernel for rows of a length, and its launch."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from pyentmax.engine.backends.cuda.operands import launches

OPTIONS = ("-std=c++17",)
TYPES = {"float16": "__half", "bfloat16": "BFloat16", "float32": "float", "float64": "double"}
PACK = 16  # bytes that a thread reads at once
SECTOR = 32  # bytes that memory moves at least
THREADS = 128  # of a block in which warps, or parts of them, have rows of their own
STORAGE = np.dtype([("room", "u4"), ("words", "u4")])
ROW_THREADS = 64  # of a block in which each thread has a row
MOST_BLOCKS = 1024  # of a kernel whose blocks go from row to row
MOST_WORDS = 4096  # of marks: 16 KB, enough for rows of half a million float32
STATIC_SHARED = 2048  # bytes of shared memory to leave for what a kernel declares, and the driver
UNASKED_SHARED = 48 * 1024 - STATIC_SHARED  # bytes that a block gets without asking
# Of each of two blocks that share a multiprocessor's registers, by the bytes of an entry.
TWO_BLOCKS_WARPS = {2: 16, 4: 16, 8: 8}
MOST_PACKS = 32  # of a row in shared memory, that a thread looks after: a bit each


class Limits(NamedTuple):
    """The shared memory of a device, in bytes: for a block, and for a multiprocessor."""

    block: int
    multiprocessor: int


class Kernel(NamedTuple):
    """A family of kernels, the member that a template argument chooses, and where it is.

    `gathers` says whether a kernel that has the row in registers takes shared memory for it too.
    """

    family: str  # "forward", "derivative", "bounded", "loss": a .cuh file says what arguments
    member: str
    file: str
    gathers: bool = False

    def form(self, n: int, itemsize: int, limits: Limits) -> RowLayout:
        """The layout for rows of n entries of `itemsize` bytes."""
        if self.family == "bounded":
            return cached_form(n, itemsize)
        # Threads that hold two numbers of each entry take twice the registers.
        most_warps = TWO_BLOCKS_WARPS[8 if self.family == "derivative" else itemsize]
        most_numbers = 8 if itemsize == 8 else 32 if self.family == "forward" else 16
        form = register_form(n, itemsize, most_warps, most_numbers)
        if form.kind != "stream":
            return form
        return shared_form(n, itemsize, limits, self.arrays, self.gathers) or form

    @property
    def arrays(self) -> int:
        """Rows that a kernel holds in shared memory together: p and v for a derivative."""
        return 2 if self.family == "derivative" else 1

    def name(self, form: RowLayout, dtype: np.dtype[Any]) -> str:
        """The name expression of the instance."""
        arguments = [self.member, TYPES[dtype.name], *map(str, form.sizes)]
        return f"{self.family}_{form.kind}<{', '.join(arguments)}>"


class RowLayout(NamedTuple):
    """The layout of a row in a kernel: lanes of a warp, a block, shared memory, or streamed.

    "columns" are rows for lanes whose neighbours lie side by side.

    `sizes` are the template's last arguments: lanes or warps, and numbers for each thread.
    """

    kind: str
    sizes: tuple[int, ...]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return THREADS if self.kind in ("lanes", "columns") else 32 * self.sizes[0]

    def rows(self, itemsize: int) -> int:
        """Rows of a block."""
        teams = THREADS // self.sizes[0]
        return {"lanes": teams, "columns": max(teams, SECTOR // itemsize)}.get(self.kind, 1)

    def grid(self, rows: int, itemsize: int) -> int:
        """The number of blocks for this number of rows."""
        return -(-rows // self.rows(itemsize))


def register_form(n: int, itemsize: int, most_warps: int = 16, most_numbers: int = 32) -> RowLayout:
    """The smallest layout that holds rows of n entries of `itemsize` bytes in registers.

    A row of up to 1024 entries stays in a warp or part of one, which needs no barriers, if a lane
    may hold 32 numbers. Longer ones get a block, of at most `most_warps` warps so that a
    multiprocessor's registers are enough for two: one reads or writes while the other searches.
    Rows that are too long for that are streamed.

    Examples
    --------
    >>> register_form(50, 4)
    RowLayout(kind='lanes', sizes=(8, 8))
    >>> register_form(32000, 4)
    RowLayout(kind='stream', sizes=(16,))
    """
    pack = PACK // itemsize
    for lanes, packs in ((8, 1), (8, 2), (16, 2), (32, 2), (32, 4), (32, 8)):
        if n <= lanes * packs * pack and packs * pack <= most_numbers:
            return RowLayout("lanes", (lanes, packs * pack))
    numbers = 8 if itemsize == 8 else 16
    for warps in (4, 8, 16):
        if n <= 32 * numbers * warps and warps <= most_warps:
            return RowLayout("block", (warps, numbers))
    return RowLayout("stream", (TWO_BLOCKS_WARPS[itemsize],))


def shared_form(
    n: int, itemsize: int, limits: Limits, arrays: int = 1, gathers: bool = False
) -> RowLayout | None:
    """The form for rows too long for registers, if shared memory holds them, of so many arrays.

    Two blocks share a multiprocessor if they can; for a kernel that gathers, with room for a
    quarter of the row. A block that has it to itself gets as many threads as the two.

    Examples
    --------
    >>> hopper = Limits(232448, 233472)
    >>> for n in (20000, 57000, 58000):
    ...     print(shared_form(n, 4, hopper))
    RowLayout(kind='held', sizes=(16,))
    RowLayout(kind='held', sizes=(32,))
    None
    """
    row, warps = arrays * row_bytes(n, itemsize), TWO_BLOCKS_WARPS[itemsize]
    if row + gathers * (n // 4 * max(itemsize, 4)) > block_bytes(itemsize, warps, limits):
        warps *= 2
    most = min(block_bytes(itemsize, warps, limits), arrays * 32 * warps * MOST_PACKS * PACK)
    return RowLayout("held", (warps,)) if row <= most else None


def block_bytes(itemsize: int, warps: int, limits: Limits) -> int:
    """Dynamic shared memory of a block that has a multiprocessor to itself, or shares it."""
    shares = warps <= TWO_BLOCKS_WARPS[itemsize]
    most = min(limits.block, limits.multiprocessor // 2) if shares else limits.block
    return most - STATIC_SHARED


def row_bytes(n: int, itemsize: int) -> int:
    """The bytes of shared memory that a row takes, in whole packs."""
    return -(-n * itemsize // PACK) * PACK


def cached_form(n: int, itemsize: int) -> RowLayout:
    """The form for rows that stay in memory and its caches: a thread reads few packs of them.

    Examples
    --------
    >>> cached_form(50, 4), cached_form(5000, 4)
    (RowLayout(kind='lanes', sizes=(8,)), RowLayout(kind='block', sizes=(4,)))
    """
    for lanes, most in ((8, 64), (16, 256), (32, 1024)):
        if n <= most:
            return RowLayout("lanes", (lanes,))
    return RowLayout("block", (4,) if n <= 8192 else (8,) if itemsize == 8 else (16,))


def storage(n: int, itemsize: int, warps: int, limits: Limits) -> tuple[int, int]:
    """Room for gaps in each warp and words of marks, for two blocks on a multiprocessor.

    Examples
    --------
    >>> storage(100000, 4, 16, Limits(232448, 233472))
    (1743, 784)
    """
    pack, gap = PACK // itemsize, max(itemsize, 4)
    words = min(-(-n // (32 * warps * pack)) * warps, MOST_WORDS)
    most = block_bytes(itemsize, warps, limits) - 4 * words
    return min(_share(n, itemsize, warps), most // (warps * gap)), words


def room_beside(n: int, itemsize: int, warps: int, limits: Limits) -> int:
    """Room for gaps in each warp next to a row in shared memory.

    Examples
    --------
    >>> room_beside(40000, 4, 32, Limits(232448, 233472))
    550
    """
    free = block_bytes(itemsize, warps, limits) - row_bytes(n, itemsize)
    return min(_share(n, itemsize, warps), free // (warps * max(itemsize, 4)))


def _share(n: int, itemsize: int, warps: int) -> int:
    """The most entries of a row that a warp looks after."""
    pack = PACK // itemsize
    return -(-n // (32 * warps * pack)) * 32 * pack


def shared_memory(
    kernel: Kernel, form: RowLayout, n: int, itemsize: int, limits: Limits
) -> tuple[int, tuple[np.ndarray, ...]]:
    """Bytes of dynamic shared memory, and the arguments that tell the kernel about them."""
    warps, gap = form.sizes[0], max(itemsize, 4)
    if form.kind == "held" and kernel.family == "derivative":
        return kernel.arrays * row_bytes(n, itemsize), ()
    if form.kind == "held":
        room = room_beside(n, itemsize, warps, limits) if kernel.gathers else 0
        return row_bytes(n, itemsize) + warps * room * gap, (np.array(room, np.uint32),)
    if form.kind == "stream":
        room, words = storage(n, itemsize, warps, limits)
        if kernel.family in ("forward", "loss"):
            return warps * room * gap + 4 * words, (np.array((room, words), STORAGE),)
        return 4 * words, (np.array(words, np.uint32),)
    shared = form.threads * form.sizes[-1] * gap if kernel.gathers else 0
    if form.kind == "columns":
        packs = row_bytes(n, itemsize) // PACK | 1  # an odd number, against conflicts of banks
        shared += kernel.arrays * form.rows(itemsize) * packs * PACK
    return shared, ()


def launch(kernel: Kernel, like: Any, operands: Sequence[Any], parameters: Sequence[Any]) -> None:
    """Run a kernel over the rows of its operands, along the last axis.

    Parameters
    ----------
    kernel : Kernel
    like : array
        whose shape, dtype and device are the call's
    operands, parameters : sequence
        in the order of the kernel's arguments
    """
    n, itemsize = like.shape[-1], like.dtype.itemsize
    limits = _limits(like.device.id)
    usual = kernel.form(n, itemsize, limits)
    with like.device:
        for rows, batch, arrays, numbers in launches(like.shape, operands, parameters):
            form = usual
            if usual.kind == "lanes" and kernel.family in ("forward", "derivative"):
                if _side_by_side(arrays[0]):
                    form = usual._replace(kind="columns")
            shared, extra = shared_memory(kernel, form, n, itemsize, limits)
            compiled = _instance(kernel, form, like.dtype, shared, like.device.id)
            arguments = (*arrays, batch, *numbers, *extra)
            grid = form.grid(rows, itemsize)
            compiled((grid,), (form.threads,), arguments, shared_mem=shared)


def prepared(kernel: Kernel, n: int, dtype: np.dtype[Any], device: int) -> Any:
    """Compile what contiguous rows of n entries need, before the first of them comes.

    NVRTC is the slowest part of a first call; several threads may have it work for them at once.
    """
    limits = _limits(device)
    form = kernel.form(n, dtype.itemsize, limits)
    shared, _ = shared_memory(kernel, form, n, dtype.itemsize, limits)
    return _instance(kernel, form, dtype, shared, device)


def _instance(
    kernel: Kernel, form: RowLayout, dtype: np.dtype[Any], shared: int, device: int
) -> Any:
    return _compiled(kernel.file, kernel.name(form, dtype), shared > UNASKED_SHARED, device)


def _side_by_side(rows: np.ndarray) -> bool:
    """Whether neighbouring rows are nearer to each other in memory than entries of one."""
    return bool(0 < abs(rows["last"]) < abs(rows["inner"]))


def rescale(rows: Any, factor: Any) -> None:
    """Multiply an array by a number on the device, in place; nothing is read where that is 1."""
    name = f"rescale<{TYPES[rows.dtype.name]}>"
    with rows.device:
        compiled = _compiled("losses.cu", name, False, rows.device.id)
        for count, batch, arrays, numbers in launches(rows.shape, (rows,), (factor,)):
            compiled((min(count, MOST_BLOCKS),), (THREADS,), (*arrays, batch, *numbers))


def launch_rows(name: str, like: Any, operands: Sequence[Any], parameters: Sequence[Any]) -> None:
    """Run a kernel of fused.cu, which has a row for each thread."""
    name = f"{name}<{TYPES[like.dtype.name]}>"
    with like.device:
        compiled = _compiled("fused.cu", name, False, like.device.id)
        for count, batch, arrays, numbers in launches(like.shape, operands, parameters):
            grid = -(-count // ROW_THREADS)
            compiled((grid,), (ROW_THREADS,), (*arrays, batch, *numbers))


@functools.cache
def source(file: str) -> str:
    """The text of a ``.cu`` file with the files of this folder that it includes in their places.

    CuPy's cache goes by the text, so that the text has to hold everything.

    Examples
    --------
    >>> "struct Softmax" in source("softmax.cu") and "struct Batch" in source("softmax.cu")
    True
    """
    included: set[str] = set()

    def read(name: str) -> str:
        text = (resources.files("pyentmax.engine.backends.cuda") / PurePath(name).name).read_text(
            "utf-8"
        )
        lines = [f'#line 1 "{name}"']
        for number, line in enumerate(text.splitlines(), 1):
            match = re.fullmatch(r'#include "(.*)"', line)
            if match is None:
                lines.append("" if line == "#pragma once" else line)
            elif match[1] not in included:
                included.add(match[1])
                lines += [read(match[1]), f'#line {number + 1} "{name}"']
        return "\n".join(lines)

    return read(file) + "\n"


@functools.cache
def _compiled(file: str, name: str, much_shared: bool, device: int) -> Any:
    """The kernel; on the device it may use all of the shared memory, if it needs so much."""
    cupy = importlib.import_module("cupy")
    module = cupy.RawModule(code=source(file), options=OPTIONS, name_expressions=[name])
    kernel = module.get_function(name)
    if much_shared:
        kernel.max_dynamic_shared_size_bytes = _limits(device).block - STATIC_SHARED
    return kernel


@functools.cache
def _limits(device: int) -> Limits:
    attributes = importlib.import_module("cupy").cuda.Device(device).attributes
    return Limits(
        attributes["MaxSharedMemoryPerBlockOptin"], attributes["MaxSharedMemoryPerMultiprocessor"]
    )
