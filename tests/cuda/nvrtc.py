"""NVRTC, CUDA's run-time compiler, from its PyPI wheels: it needs neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

WHEELS = "nvidia-cuda-nvrtc nvidia-cuda-runtime"
# The last one is what CuPy adds for every RawModule.
OPTIONS = ("-std=c++17", "--ptxas-options=-v", "-ftz=true")


class Used(NamedTuple):
    """What the assembler says that an instance of a kernel takes; all but registers in bytes."""

    registers: int
    stack: int
    spilled: int
    shared: int


@functools.cache
def unavailable() -> str:
    """Why nothing can be compiled here; empty if it can."""
    if _library_path() is None or _headers() is None:
        return f"compiling CUDA kernels needs NVRTC and its headers: pip install {WHEELS}"
    return ""


def compiled(code: str, names: Sequence[str], arch: str, file_name: str) -> dict[str, Used]:
    """Compile instances of a text's kernels to machine code for an architecture such as "sm_90".

    Raises
    ------
    RuntimeError
        with the compiler's words, where it refuses
    """
    return _compile(code, names, arch, file_name)[0]


def ptx(code: str, names: Sequence[str], arch: str, file_name: str) -> str:
    """The intermediate text of the same."""
    return _compile(code, names, arch, file_name)[1]


def _compile(
    code: str, names: Sequence[str], arch: str, file_name: str
) -> tuple[dict[str, Used], str]:
    library = ctypes.CDLL(str(_library_path()))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    program = ctypes.c_void_p()

    def call(function: str, *arguments: object) -> None:
        status = getattr(library, function)(*arguments)
        if status:
            words = library.nvrtcGetErrorString(status).decode()
            raise RuntimeError(f"{function}: {words}\n{text('ProgramLog') if program else ''}")

    def text(what: str) -> str:
        size = ctypes.c_size_t()
        getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{what}")(program, buffer)
        return buffer.value.decode()

    name = file_name.encode()
    call("nvrtcCreateProgram", ctypes.byref(program), code.encode(), name, 0, None, None)
    try:
        for expression in names:
            call("nvrtcAddNameExpression", program, expression.encode())
        options = [*OPTIONS, f"-arch={arch}", f"-I{_headers()}"]
        encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        call("nvrtcCompileProgram", program, len(options), encoded)
        lowered = {}
        for expression in names:
            mangled = ctypes.c_char_p()
            call("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(mangled))
            assert mangled.value is not None
            lowered[mangled.value.decode()] = expression
        used = {lowered[k]: v for k, v in _report(text("ProgramLog")).items() if k in lowered}
        return used, text("PTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _report(log: str) -> dict[str, Used]:
    """What `--ptxas-options=-v` wrote, by mangled name."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:

        def number(pattern: str, part: str = part) -> int:
            match = re.search(pattern, part)
            return int(match[1]) if match else 0

        found[part.partition("'")[0]] = Used(
            registers=number(r"Used (\d+) registers"),
            stack=number(r"(\d+) bytes stack frame"),
            spilled=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
            shared=number(r"(\d+) bytes smem"),
        )
    return found


def _wheels() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [Path(place) for place in spec.submodule_search_locations or []] if spec else []


@functools.cache
def _library_path() -> Path | None:
    found = [path for wheel in _wheels() for path in sorted(wheel.glob("*/lib/libnvrtc.so.*"))]
    return next((path for path in found if re.fullmatch(r"libnvrtc\.so\.\d+", path.name)), None)


@functools.cache
def _headers() -> Path | None:
    found = [path for wheel in _wheels() for path in sorted(wheel.glob("*/include/cuda_fp16.h"))]
    return found[0].parent if found else None
