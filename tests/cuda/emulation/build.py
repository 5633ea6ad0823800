"""From the text of a ``.cu`` file to a shared library for this machine's CPU.

Libraries lie under ``build/emulation``, named by a digest of all that went into them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from emulation.shared_library import Library

HERE = Path(__file__).parent
CACHE = HERE.parents[2] / "build" / "emulation"
COMPILER = os.environ.get("CXX", "g++")
# A kernel's text is not C++'s alone: CUDA reads memory through other types, and so may this.
FLAGS = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing"]
KERNEL_FLAGS = ["-O1", "-fno-threadsafe-statics", "-ffp-contract=off", "-Wno-unknown-pragmas"]
# Calls to the sanitizers' run-time libraries, which checks.cpp stands in for.
CHECK_FLAGS = [
    "-g1",
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "-fsanitize=alignment,bool,bounds,integer-divide-by-zero,null,shift,signed-integer-overflow",
]

_ARRAY_OR_SCALAR = r"\w+(?:\s*\[[^\]]*\])*"
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_SHARED = re.compile(
    r"__shared__\s+([\w:<>]+(?:\s+[\w:<>]+)*?)\s+"
    rf"({_ARRAY_OR_SCALAR}(?:\s*,\s*{_ARRAY_OR_SCALAR})*)\s*;"
)
_UNMANGLED = re.compile(
    r'extern\s+"C"\s+__global__\s+(?:__launch_bounds__\([^)]*\)\s+)?void\s+(\w+)'
)


@functools.cache
def unavailable() -> str:
    """Why kernels cannot be emulated here; empty if they can."""
    if shutil.which(COMPILER) is None:
        return f"the emulation of CUDA kernels needs {COMPILER} (Debian: g++); CXX= names another"
    return ""


def compiled(
    code: str,
    name_expressions: Sequence[str] = (),
    *,
    include: Iterable[Path] = (),
    file_name: str = "kernels.cu",
    checked: bool = False,
) -> Library:
    """Build the kernels of a ``.cu`` file.

    Parameters
    ----------
    code : str
        the text of the file
    name_expressions : sequence of str
        the instances of its templates that are wanted, such as ``"scale<float>"``; functions
        declared ``extern "C"`` are always there
    include : iterable of Path
        where its ``#include "…"`` are looked for
    file_name : str
        what reports call the text
    checked : bool
        whether to look for races and accesses outside the kernel's memory; some ten times slower

    Raises
    ------
    RuntimeError
        with the compiler's words, when the text does not compile
    """
    headers = {
        path.name: path.read_text() for place in include for path in sorted(place.glob("*.cu*"))
    }
    names = [*name_expressions, *_UNMANGLED.findall(code)]
    flags = FLAGS + KERNEL_FLAGS + (CHECK_FLAGS if checked else [])
    source = "\n".join(
        [
            '#include "cuda_language.h"',
            f'#line 1 "{file_name}"',
            _without_shared(code),
            '#include "kernel_table.h"',
            # At global scope, so that the names mean the file's own.
            "static const emulation::Kernel emulation_table[] = {",
            *(f'  emulation::kernel("{name}", {name}),' for name in names),
            "};",
            "const emulation::Kernel *const emulation::kernels = emulation_table;",
            "",
        ]
    )
    digest = _digest([source, *headers, *headers.values(), *flags, _own_text()])

    def build(folder: Path) -> None:
        for name, text in headers.items():
            (folder / name).write_text(f'#line 1 "{name}"\n{_without_shared(text)}')
        (folder / "source.cpp").write_text(source)
        places = [f"-I{folder}", f"-I{HERE}"]
        _run([*flags, *places, "-c", "source.cpp", "-o", "kernels.o"], folder)
        linked = ["kernels.o", *map(str, _runtime()), "-ldl", "-o", "made"]
        _run(["-shared", "-Wl,-Bsymbolic,-z,defs", *linked], folder)

    return Library(_made_once(f"{Path(file_name).stem}-{digest}.so", build), names)


def _without_shared(code: str) -> str:
    """Shared declarations as references to what the emulator keeps, line for line."""

    def declared(match: re.Match[str]) -> str:
        kind, declarators = match.groups()
        parts = []
        for declarator in re.findall(_ARRAY_OR_SCALAR, declarators):
            name, extent = re.split(r"\b", declarator, maxsplit=2)[1:]
            parts.append(f'auto &{name} = emulation::shared<{kind}{extent}>("{name}", [] {{}});')
        return " ".join(parts) + "\n" * match.group().count("\n")

    code = _DYNAMIC.sub(r"\1 *\2 = static_cast<\1 *>(emulation::dynamic_shared_memory());", code)
    code = _SHARED.sub(declared, code)
    left = re.search(r"^.*__shared__.*$", re.sub(r"//.*", "", code), re.MULTILINE)
    if left:
        raise RuntimeError(f"a shared declaration that the emulation does not read: {left.group()}")
    return code


def _runtime() -> list[Path]:
    """The emulator itself, compiled once."""
    flags = [*FLAGS, "-O2", "-Wall", "-Wextra"]
    objects = []
    for source in (HERE / "runtime.cpp", HERE / "checks.cpp"):
        command = [*flags, "-c", str(source), "-o", "made"]
        name = f"{source.stem}-{_digest([*flags, _own_text()])}.o"
        objects.append(_made_once(name, functools.partial(_run, command)))
    return objects


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The file of that name in the cache, after `make` has left it as ``made`` in a folder.

    Of several processes that want it at once, one makes it.
    """
    import fcntl  # which Windows lacks

    CACHE.mkdir(parents=True, exist_ok=True)
    target = CACHE / name
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                make(Path(folder))
                os.replace(Path(folder) / "made", target)
    return target


@functools.cache
def _own_text() -> str:
    version = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True)
    files = sorted([*HERE.glob("*.h"), *HERE.glob("*.cpp")])
    return version.stdout + "".join(path.read_text() for path in files)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:20]


def _run(arguments: list[str], folder: Path) -> None:
    done = subprocess.run([COMPILER, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{COMPILER} {' '.join(arguments)} failed:\n{done.stderr}")
