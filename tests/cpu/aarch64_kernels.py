"""The kernels compiled for AArch64, run under an emulator.

There is no need for an AArch64 Python: what differs by processor is the inner loops, and
``aarch64/runner.c`` runs them on operands that it is sent. `AArch64Kernels` is the other end.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
INSTALL = "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"

HERE = Path(__file__).parent / "aarch64"
SOURCES = Path(__file__).parents[2] / "cython_ext"


def missing_tools() -> list[str]:
    """What has to be installed first."""
    return [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]


def build(folder: Path, flags: list[str]) -> Path:
    """Compile the kernels of this checkout and the runner into a program."""
    program = folder / "runner"
    sources = [HERE / "runner.c", *sorted(SOURCES.rglob("*.c"))]
    options = [*flags, "-Wall", "-static", f"-I{HERE}", f"-I{SOURCES}", "-o", program]
    subprocess.run([COMPILER, *options, *sources, "-lm"], check=True)
    return program


class AArch64Kernels:
    """The kernels of a program made by `build`, in one process until `close`.

    Attributes
    ----------
    names : list of str
    """

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [EMULATOR, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        (size,) = struct.unpack("<q", self._read(8))
        self.names = self._read(size).decode().split()

    def close(self) -> None:
        """End the process."""
        _pipe(self._process.stdin).close()
        assert self._process.wait(timeout=60) == 0
        _pipe(self._process.stdout).close()

    def __call__(self, kernel: np.ufunc, *inputs: np.ndarray, spread: int = 1) -> list[np.ndarray]:
        """The results of the kernel that has name, signature and loops of a ufunc of the host's.

        Inputs have an axis of rows before those of the signature, any strides, and the types of one
        of the ufunc's loops. Results are written so many places apart.
        """
        signature = kernel.signature or "->".join(
            ",".join(["()"] * count) for count in (kernel.nin, kernel.nout)
        )
        took, gave = (side[1:-1].split("),(") for side in signature.split("->"))
        (loop,) = [
            i for i, types in enumerate(kernel.types)
            if types.partition("->")[0] == "".join(x.dtype.char for x in inputs)
        ]  # fmt: skip
        sizes: dict[str, int] = {}  # of the core dimensions, in the order in which loops get them
        for core, x in zip(took, inputs, strict=True):
            sizes |= zip(core.split(",") if core else (), x.shape[1:], strict=True)
        shapes = [(len(inputs[0]), *(sizes[d] for d in core.split(",") if d)) for core in gave]
        canvases = [
            np.ones((*shape[:-1], shape[-1] * spread), dtype)
            for shape, dtype in zip(shapes, kernel.types[loop].partition("->")[2], strict=True)
        ]
        operands = [_memory(x) for x in inputs]
        operands += [_memory(x, spread) for x in canvases]
        dims = (len(inputs[0]), *sizes.values(), 0, 0)[:3]
        request = [struct.pack("<64s5q", kernel.__name__.encode(), loop, len(operands), *dims)]
        request += [struct.pack("<5q", len(memory), *layout) for memory, *layout in operands]
        request += [memory for memory, *_ in operands]
        _pipe(self._process.stdin).write(b"".join(request))
        _pipe(self._process.stdin).flush()
        answers = [self._read(len(memory)) for memory, *_ in operands]

        for operand, answer in zip(operands, answers[: len(inputs)], strict=False):
            assert operand[0] == answer, "an input was overwritten"
        results = []
        for canvas, answer in zip(canvases, answers[len(inputs) :], strict=True):
            written = np.frombuffer(answer, canvas.dtype).reshape(canvas.shape)
            for between in range(1, spread):
                assert (written[..., between::spread] == 1).all(), "written between the entries"
            results.append(written[..., ::spread])
        return results

    def _read(self, count: int) -> bytes:
        data = _pipe(self._process.stdout).read(count)
        assert len(data) == count, f"the runner ended early, with code {self._process.wait()}"
        return data


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None
    return end


def _memory(array: Any, spread: int = 1) -> tuple[bytes, int, int, int, int]:
    """The bytes that an array spans, where its first entry is, three steps (−1: no such axis)."""
    low, high = byte_bounds(array)
    start = array.__array_interface__["data"][0] - low
    *steps, last = array.strides
    first, second, third = (*steps, last * spread, -1, -1)[:3]
    return ctypes.string_at(low, high - low), start, first, second, third
