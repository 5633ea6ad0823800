"""The kernels of pyentmax, each run on the CPU in every form it has, over NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from emulation import IN_ORDER, Library, compiled
from kernel_arguments import SOURCES, Arguments
from number_types import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, TYPES, NumberType

from pyentmax.engine.backends.cuda import functions

LANES_THREADS = 128  # of a block of the kernels …_lanes


@dataclass(frozen=True)
class RowLayout:
    """How a kernel holds a row: by lanes of a warp, by a block, in shared memory, or in memory.

    Attributes
    ----------
    name : str
        what the kernel's name ends in
    sizes : tuple of int
        its template's arguments
    threads : int
        in a block
    lengths : tuple of int
        numbers of entries worth a test, the last one the most where there is a limit
    """

    name: str
    sizes: tuple[int, ...]
    threads: int
    lengths: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}{self.sizes}"

    def abreast(self, itemsize: int) -> int:
        """Rows of a block."""
        teams = LANES_THREADS // self.sizes[0]
        return {"lanes": teams, "columns": max(teams, 32 // itemsize)}.get(self.name, 1)

    def grid(self, rows: int, itemsize: int) -> int:
        """Blocks that so many rows need."""
        return -(-rows // self.abreast(itemsize))


LANES = RowLayout("lanes", (8, 16), LANES_THREADS, (1, 2, 7, 16, 127, 128))
WARP = RowLayout("lanes", (32, 16), LANES_THREADS, (3, 32, 257, 512))
COLUMNS = RowLayout("columns", (32, 16), LANES_THREADS, (3, 32, 257, 512))
BLOCK = RowLayout("block", (4, 16), 128, (1, 513, 2047, 2048))
HELD = RowLayout("held", (2,), 64, (1, 33, 515, 4096))
STREAM = RowLayout("stream", (2,), 64, (1, 33, 515, 4096))
LOSS_FORMS = [LANES, WARP, BLOCK, HELD, STREAM]
FORMS = [*LOSS_FORMS, COLUMNS]
BOUNDED_LANES = RowLayout("lanes", (8,), LANES_THREADS, (1, 2, 7, 16, 127))
BOUNDED_WARP = RowLayout("lanes", (32,), LANES_THREADS, (3, 32, 257, 512))
BOUNDED_BLOCK = RowLayout("block", (4,), 128, (1, 513, 1000, 2048))
BOUNDED_FORMS = [BOUNDED_LANES, BOUNDED_WARP, BOUNDED_BLOCK]

# float32 in all forms, the others where packs of another length meet another form; the rest is for
# the deep run, since compiling takes most of the time.
SHORT = [
    *((form, FLOAT32) for form in (*FORMS, *BOUNDED_FORMS)),
    *((form, FLOAT64) for form in (LANES, BOUNDED_LANES)),
    *((form, FLOAT16) for form in (BLOCK, COLUMNS, BOUNDED_BLOCK)),
    *((form, BFLOAT16) for form in (STREAM, BOUNDED_WARP)),
]
SHORT_CHECKED = [
    *((form, FLOAT32) for form in (*FORMS, *BOUNDED_FORMS)),
    *((form, FLOAT16) for form in (STREAM, BOUNDED_LANES)),
]


@dataclass(frozen=True)
class Kernel:
    """A family of kernels for one mapping.

    Attributes
    ----------
    file : str
        the ``.cu`` file
    family : str
        what the kernels' names begin with
    rule : str
        the struct that says what is computed
    gathers : bool
        whether it wants room for all entries in shared memory
    """

    file: str
    family: str
    rule: str
    gathers: bool = False

    def __str__(self) -> str:
        return self.rule

    @property
    def forms(self) -> list[RowLayout]:
        """The ways it has to hold a row."""
        return {
            "forward": FORMS,
            "derivative": FORMS,
            "loss": LOSS_FORMS,
            "bounded": BOUNDED_FORMS,
        }[self.family]

    def run(self, form: RowLayout, number: NumberType, operands: Sequence[np.ndarray | None], *,
            parameter: Any = 0.0, weight: Any = None, room: int = 64, words: int = 1 << 10,
            schedule: int = IN_ORDER, checked: bool = False,
            sources: Path = SOURCES) -> None:  # fmt: skip
        """Run it over operands that broadcast to the first one's shape.

        Losses take a weight for each row. `room` and `words` are what the kernels of long rows are
        given of shared memory beside the row; `sources` may be a directory with other versions of
        the files, for which float32 alone is built.
        """
        shape = next(operand.shape for operand in operands if operand is not None)
        make = Arguments(shape)
        batch = make.batch()
        arguments = [make.operand(operand) for operand in operands]
        arguments += [batch, make.parameter(parameter)]
        if weight is not None:
            arguments.append(make.parameter(weight))
        itemsize, shared = np.dtype(number.computed).itemsize, 0
        stored = np.dtype(number.stored).itemsize
        row = -(-shape[-1] * stored // 16)  # in packs
        if form.name == "stream":
            if self.family in ("forward", "loss"):
                arguments.append(make.storage(room, words))
                shared = form.threads // 32 * room * itemsize
            else:
                arguments.append(np.uint32(words))
            shared += 4 * words
        elif form.name == "held" and self.family == "derivative":
            shared = 2 * 16 * row
        elif form.name == "held":
            room = room if self.gathers else 0
            arguments.append(np.uint32(room))
            shared = 16 * row + form.threads // 32 * room * itemsize
        elif self.gathers:
            shared = form.threads * form.sizes[-1] * itemsize
        if form.name == "columns":
            arrays = 2 if self.family == "derivative" else 1
            shared += arrays * form.abreast(stored) * 16 * (row | 1)
        part = (form, number) in (SHORT_CHECKED if checked else SHORT)
        library = _library(self, part, checked, sources)
        library.launch(
            self._instance(form, number), form.grid(int(batch["rows"]), stored), form.threads,
            arguments,            arrays=make.arrays, shared=shared, schedule=schedule,
            flush_subnormals=number is not FLOAT64,
        )  # fmt: skip

    def instances(self, short: bool, checked: bool, only: Sequence[NumberType]) -> list[str]:
        """The kernels that the short tests run, or the rest, as CUDA names them."""
        in_short = SHORT_CHECKED if checked else SHORT
        return [
            self._instance(form, number)
            for form in self.forms
            for number in only
            if ((form, number) in in_short) == short
        ]

    def _instance(self, form: RowLayout, number: NumberType) -> str:
        sizes = ", ".join(map(str, form.sizes))
        return f"{self.family}_{form.name}<{self.rule}, {number.cuda}, {sizes}>"


@functools.cache
def _library(kernel: Kernel, short: bool, checked: bool, sources: Path) -> Library:
    path = sources / kernel.file
    names = kernel.instances(short, checked, TYPES if sources == SOURCES else [FLOAT32])
    return compiled(
        path.read_text(), names, include=[sources], file_name=path.name,
        checked=checked,
    )  # fmt: skip


# The Jacobians of bounded mappings are softmax's and sparsemax's, of what is free.
SHARED = {"csoftmax_jvp": "softmax_jvp", "csparsemax_jvp": "sparsemax_jvp"}
SHARED["budget_sparsemax_jvp"] = "sparsemax_jvp"


def twin(name: str) -> Kernel:
    """The kernel that the library launches for a function, by that name or for its derivative."""
    launched = getattr(functions, SHARED.get(name, name).removesuffix("_and_grad").upper())
    return Kernel(launched.file, launched.family, launched.member, launched.gathers)


KERNELS = {
    name: twin(name)
    for name in functions.KERNELS
    if not name.startswith(("fusedmax", "oscarmax")) and not name.endswith("_loss")
}
