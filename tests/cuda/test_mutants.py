"""Every barrier of the kernels is needed: without it, the emulation finds something wrong.

A barrier whose mutant passes all trials orders nothing, and is to be deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from emulation import REVERSED, KernelError, unavailable
from kernel_arguments import SOURCES
from kernel_runs import DERIVATIVES, FORMS, FORWARD, Kernel
from number_types import FLOAT32
from score_rows import score_rows

import pyentmax

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

BARRIER = re.compile(r"\b__sync(?:threads|warp)(?:_\w+)?\([^()]*\);")


BARRIERS = [
    (path.name, number)
    for path in sorted(SOURCES.glob("*.cu*"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if BARRIER.search(line)
]


def forward_trial(name: str) -> Callable[[Path], None]:
    def trial(sources: Path) -> None:
        for form in FORMS:
            for n, room in [(form.lengths[-2], 1000), (form.lengths[-1], 8)]:
                z = score_rows(n)[:8].astype(np.float32)
                p = np.empty_like(z)
                FORWARD[name].run(form, FLOAT32, [z, None, p], parameter=1.25, room=room,
                                  schedule=REVERSED, checked=True, sources=sources)  # fmt: skip
                expected = pyentmax.entmax.reference(z.astype(float), ALPHAS[name])
                np.testing.assert_allclose(p, expected, rtol=0, atol=1e-6)

    return trial


def derivative_trial(name: str) -> Callable[[Path], None]:
    def trial(sources: Path) -> None:
        for form in FORMS:
            z = score_rows(form.lengths[-1])[:8]
            p = pyentmax.sparsemax.reference(z).astype(np.float32)
            out = np.empty_like(p)
            DERIVATIVES[name].run(form, FLOAT32, [p, z.astype(np.float32), None, None, out],
                          parameter=1.25, schedule=REVERSED, checked=True,
                          sources=sources)  # fmt: skip

    return trial


ALPHAS = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5, "entmax": 1.25}
# Those that need least compiling come first.
TRIALS: list[tuple[Kernel, Callable[[Path], None]]] = [
    (FORWARD["sparsemax"], forward_trial("sparsemax")),
    (FORWARD["entmax"], forward_trial("entmax")),
    (DERIVATIVES["sparsemax_jvp"], derivative_trial("sparsemax_jvp")),
]


def included(file: str) -> set[str]:
    """The files that a file is made of."""
    names = re.findall(r'#include "(\w+\.cuh)"', (SOURCES / file).read_text())
    return {file}.union(*map(included, names))


def killer(sources: Path, file: str) -> str:
    """The kernel in which a change of the file shows; empty if in none."""
    for kernel, trial in TRIALS:
        if file not in included(kernel.file):
            continue
        try:
            trial(sources)
        except (KernelError, AssertionError):
            return str(kernel)
    return ""


@pytest.mark.parametrize(("kernel", "trial"), TRIALS, ids=[str(k) for k, _ in TRIALS])
def test_the_kernels_as_they_are_pass_the_trials(
    kernel: Kernel, trial: Callable[[Path], None]
) -> None:
    trial(SOURCES)


@pytest.mark.parametrize(("file", "line"), BARRIERS)
def test_no_barrier_can_be_missing(file: str, line: int, tmp_path: Path) -> None:
    for path in SOURCES.glob("*.cu*"):
        lines = path.read_text().splitlines(keepends=True)
        if path.name == file:
            lines[line - 1] = BARRIER.sub(";", lines[line - 1])
        (tmp_path / path.name).write_text("".join(lines))
    assert killer(tmp_path, file), f"the barrier at {file}:{line} is not needed: delete it"
