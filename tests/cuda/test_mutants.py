"""The emulation bites: kernels with a barrier less, or a slip of the pen, do not pass.

A barrier whose mutant passes all trials orders nothing, and is to be deleted.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from emulation import REVERSED, KernelError, unavailable
from kernel_arguments import SOURCES
from kernel_runs import KERNELS, Kernel
from number_types import FLOAT32
from score_rows import score_rows

import pyentmax

pytestmark = [pytest.mark.deep, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

BARRIER = re.compile(r"\b__sync(?:threads|warp)(?:_\w+)?\([^()]*\);")
BARRIERS = [
    (path.name, number)
    for path in sorted(SOURCES.glob("*.cu*"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if BARRIER.search(line)
]
SLIPS = [  # what a file says, what it might have said, and how that is reported
    ("rows.cuh", "line.whole_packs && i + PACK<T> <= n", "line.whole_packs", "overrun|race"),
    ("rows.cuh", "pack[j] = i + j < n ?", "pack[j] = i + j <= n ?", "overrun|race|AssertionError"),
    ("rows.cuh", " && (unsigned long long)at % 16 == 0", "", "alignment"),
    ("rows.cuh", "x > bound && at < room", "x > bound && at <= room", "overrun|race"),
    ("rows.cuh", "z.whole_packs && n % V == 0", "z.whole_packs", "overrun|AssertionError"),
    ("rows.cuh", "if (pack[j] > -reach * scale)", "if (pack[j] > -1)", "AssertionError"),
    ("rows.cuh", "SIZE + k % V);", "SIZE);", "AssertionError"),
    ("rows.cuh", "        top = 0;\n", "", "AssertionError"),
    ("topk_sparsemax.cu", "i <= last", "i < last", "AssertionError"),
    ("topk_sparsemax.cu", "stay = k - sums[1];", "stay = sums[2];", "AssertionError"),
    ("columns.cuh", "i < n; i += THREADS", "i <= n; i += THREADS", "overrun|race"),
    ("columns.cuh", "blockIdx.x * ROWS + thread", "blockIdx.x + thread", "race|written|Assertion"),
    ("teams.cuh", "slot ^= 1;", "", "race"),
    ("teams.cuh", "[k][lane % WARPS]", "[k][lane]", "outside its array"),
]
# Kernels that between them reach every barrier, those first that need least compiling; and the
# mapping that gives the rows of each.
TRIALS = [
    (KERNELS["sparsemax"], "entmax", 2.0),
    (KERNELS["entmax"], "entmax", 1.25),
    (KERNELS["sparsemax_jvp"], "entmax", 2.0),
    (KERNELS["topk_sparsemax"], "topk_sparsemax", 3),
]


def try_out(kernel: Kernel, mapping: str, parameter: float, sources: Path = SOURCES) -> None:
    """Run a kernel in every form; raises if anything is wrong."""
    for form in kernel.forms:
        for n, room in [(form.lengths[-2], 1000), (form.lengths[-1], 8)]:
            z = score_rows(n)[:12].astype(np.float32)
            p = getattr(pyentmax, mapping).reference(z.astype(float), parameter)
            out = np.empty_like(z)
            if kernel.family == "forward":
                operands, expected = [z, None, out], p
            else:
                operands = [p.astype(np.float32), z, None, None, out]
                expected = getattr(pyentmax, mapping).jvp(p, z.astype(float), parameter)
            kernel.run(form, FLOAT32, operands, parameter=parameter, room=room, schedule=REVERSED,
                       checked=True, sources=sources)  # fmt: skip
            np.testing.assert_allclose(out, expected, rtol=0, atol=1e-4)


def faults(file: str, changed: str, folder: Path) -> str:
    """What the trials find once a file says something else; empty if nothing."""
    for path in SOURCES.glob("*.cu*"):
        (folder / path.name).write_text(changed if path.name == file else path.read_text())
    for kernel, mapping, parameter in TRIALS:
        if file in included(kernel.file):
            try:
                try_out(kernel, mapping, parameter, folder)
            except (KernelError, AssertionError) as error:
                return f"{type(error).__name__}: {error}"
    return ""


def included(file: str) -> set[str]:
    """The files that a file is made of."""
    names = re.findall(r'#include "(\w+\.cuh)"', (SOURCES / file).read_text())
    return {file}.union(*map(included, names))


@pytest.mark.parametrize(("kernel", "mapping", "parameter"), TRIALS, ids=str)
def test_the_kernels_as_they_are_pass_the_trials(
    kernel: Kernel, mapping: str, parameter: float
) -> None:
    try_out(kernel, mapping, parameter)


@pytest.mark.parametrize(("file", "line"), BARRIERS)
def test_no_barrier_can_be_missing(file: str, line: int, tmp_path: Path) -> None:
    lines = (SOURCES / file).read_text().splitlines(keepends=True)
    lines[line - 1] = BARRIER.sub(";", lines[line - 1])
    found = faults(file, "".join(lines), tmp_path)
    assert found, f"the barrier at {file}:{line} is not needed: delete it"


@pytest.mark.parametrize(("file", "says", "instead", "report"), SLIPS)
def test_slips_are_found(file: str, says: str, instead: str, report: str, tmp_path: Path) -> None:
    text = (SOURCES / file).read_text()
    assert says in text, "this slip cannot be made any more: choose another"
    assert re.search(report, faults(file, text.replace(says, instead), tmp_path))
