"""Launching the kernels of a built library over NumPy arrays."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

IN_ORDER, REVERSED = 0, -1
MOST_SHARED = 232448  # bytes a block may have on Hopper: 227 KB


class KernelError(RuntimeError):
    """A kernel, or its launch, broke a rule of CUDA; says which, and where."""


class Library:
    """The kernels of one ``.cu`` file.

    Attributes
    ----------
    names : list of str
        the kernels: names of functions and of instances of templates
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.names = list(names)
        self._path = path
        self._functions = ctypes.CDLL(str(path))
        for function in ("emulation_signature", "emulation_report"):
            getattr(self._functions, function).restype = ctypes.c_char_p

    def signature(self, name: str) -> list[str]:
        """The kernel's parameters: ``in:f4`` for const float *, ``i8`` for long long, …"""
        text: bytes = self._functions.emulation_signature(self.names.index(name))
        return text.decode().split()

    def launch(
        self,
        name: str,
        grid: int,
        block: int,
        arguments: Sequence[Any],
        *,
        arrays: Sequence[np.ndarray] = (),
        shared: int = 0,
        schedule: int = IN_ORDER,
        flush_subnormals: bool = False,
    ) -> dict[str, int]:
        """Run a kernel to its end.

        Parameters
        ----------
        name : str
            one of `names`
        grid, block : int
            blocks, and threads in each
        arguments : sequence
            an array or None (the null pointer) for a pointer, a NumPy scalar for a number; the
            types must be the kernel's, which CUDA itself does not check
        arrays : sequence of array
            memory that the kernel reaches through pointers inside the structs among its arguments
        shared : int
            bytes of dynamic shared memory
        schedule : int
            in which order threads and blocks advance: `IN_ORDER`, `REVERSED`, or a positive seed
        flush_subnormals : bool
            treat subnormal numbers as zeros, as ``-ftz=true`` does for float32

        Returns
        -------
        dict
            how many ``barriers`` and ``collectives`` were completed

        Raises
        ------
        KernelError
            for a launch that CUDA would refuse or misread, and for what the emulator finds
        """
        if not (grid >= 1 and 1 <= block <= 1024 and 0 <= shared <= MOST_SHARED):
            raise KernelError(
                f"{name} cannot have a grid of {grid}, a block of {block}, {shared} bytes shared"
            )
        pointers, reached = self._converted(name, arguments)
        reached += [(f"array {position}", array) for position, array in enumerate(arrays)]
        bounds = [np.lib.array_utils.byte_bounds(array) for _, array in reached]
        count = len(reached)
        failed = self._functions.emulation_launch(
            ctypes.c_int(self.names.index(name)),
            ctypes.c_uint(grid),
            ctypes.c_uint(block),
            ctypes.c_size_t(shared),
            ctypes.c_int(schedule),
            ctypes.c_int(flush_subnormals),
            (ctypes.c_void_p * len(pointers))(*(p.ctypes.data for p in pointers)),
            ctypes.c_int(count),
            (ctypes.c_void_p * count)(*(begin for begin, _ in bounds)),
            (ctypes.c_void_p * count)(*(end for _, end in bounds)),
            (ctypes.c_char_p * count)(*(label.encode() for label, _ in reached)),
        )
        if failed:
            raise KernelError(f"{name}, {self._with_lines(self._functions.emulation_report())}")
        counts = (ctypes.c_long * 2)()
        self._functions.emulation_counts(counts)
        return {"barriers": counts[0], "collectives": counts[1]}

    def _converted(
        self, name: str, arguments: Sequence[Any]
    ) -> tuple[list[np.ndarray], list[tuple[str, np.ndarray]]]:
        """The arguments' values, each in memory of its own, and the arrays among them."""
        signature = self.signature(name)
        if len(arguments) != len(signature):
            raise KernelError(f"{name} takes {len(signature)} arguments, got {len(arguments)}")
        values, arrays = [], []
        for position, (wanted, argument) in enumerate(zip(signature, arguments, strict=True)):
            where = f"{name}, argument {position}"
            if ":" not in wanted:
                if not isinstance(argument, np.generic) or argument.dtype.str[1:] != wanted:
                    raise KernelError(f"{where} is a {wanted}, got {argument!r}")
                values.append(np.asarray(argument).reshape(1))
                continue
            if argument is None:
                values.append(np.zeros(1, np.uintp))
                continue
            kind, wanted = wanted.split(":")
            if not isinstance(argument, np.ndarray) or not _same(argument.dtype, wanted):
                got = getattr(argument, "dtype", type(argument).__name__)
                raise KernelError(f"{where} points to {wanted}, got {got}")
            if kind == "out" and not argument.flags.writeable:
                raise KernelError(f"{where} is written to, got a read-only array")
            values.append(np.array([argument.ctypes.data], np.uintp))
            arrays.append((f"argument {position}", argument))
        return values, arrays

    def _with_lines(self, report: bytes) -> str:
        """The report with file:line in place of offsets into the library."""

        def line(match: re.Match[str]) -> str:
            command = ["addr2line", "-e", str(self._path), match.group(1)]
            done = subprocess.run(command, capture_output=True, text=True)
            return Path(done.stdout.split(" ")[0].strip() or match.group()).name

        return re.sub(r"@([0-9a-f]+)@", line, report.decode())


def _same(dtype: np.dtype[Any], wanted: str) -> bool:
    # bool and unsigned char, both of one byte, stand for each other.
    return dtype.str[1:] == wanted or {dtype.str[1:], wanted} == {"b1", "u1"}
