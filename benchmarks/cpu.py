"""The CPU kernels compared with PyTorch, the entmax package, SciPy and a plain copy.

    python benchmarks/cpu.py [TABLE ...] [--rounds 30] > experiments/measurements/cpu.md

Prints Markdown, a row as soon as it is measured. A number is a median over rounds in which all that
a row compares takes its turn, mostly as a multiple of a yardstick in the same round, so that other
work on the machine, or a change of its clock, affects all alike. One thread on either side, except
in the last table.

Two numbers in a cell are two regimes. Hot: nothing but the calls compared, so that their data and
code are in the caches. Cold: before each call, outside the timing, other code reads and writes 64
MiB of other data, as the rest of a training step does.

Freed memory stays with the process, for all that is compared: whether the C library returns memory
to the system and gets it zeroed again depends on what a process did before, costs more than a short
call, and says nothing about a kernel.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import entmax
import numpy as np
import scipy
import torch
from scipy.special import softmax as scipy_softmax

import pyentmax
from pyentmax import _cpu

SHAPES = [(2048, 64), (512, 4096), (128, 32000)]
LENGTHS = [8, 16, 64, 256, 1000, 4096, 16_000, 32_000, 100_000, 1_000_000]
ALPHAS = [1.1, 1.25, 1.33, 1.75]
LOSS_ALPHAS = [1.25, 1.33]
EXACT = ["softmax", "sparsemax", "entmax15"]

Run = Callable[[], object]


def main() -> None:
    """Print the stamp and the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all")
    parser.add_argument("--rounds", type=int, default=30, help="interleaved runs (default: 30)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument(
        "--shape", nargs=2, type=int, metavar=("ROWS", "SCORES"), help="only this one, not three"
    )
    args = parser.parse_args()
    if args.shape:
        SHAPES[:] = [tuple(args.shape)]
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no such table: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    keep_memory()
    with pyentmax.set_workers(1):
        print_stamp(args)
        for name in args.tables or TABLES:
            TABLES[name](np.dtype(args.dtype), args.rounds)


def print_stamp(args: argparse.Namespace) -> None:
    """What was measured, on what, when."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"""# The CPU kernels, measured

`python benchmarks/cpu.py`, {datetime.date.today()}, commit {commit or "unknown"}: {args.dtype},
medians of {args.rounds} interleaved rounds, one thread.

| | |
| --- | --- |
| processor | {processor()} |
| pyentmax | {pyentmax.__version__}, {_cpu.INSTRUCTION_SET}; {_cpu.BUILD_INFO} |
| PyTorch | {torch.__version__}, {torch.backends.cpu.get_cpu_capability()} |
| others | NumPy {np.__version__}, SciPy {scipy.__version__}, entmax {entmax.__version__} |
| Python, system | {platform.python_version()}, {platform.platform()} |""")


def keep_memory() -> None:
    """Let the C library keep what is freed, where it is one that can be told (glibc)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    trim_threshold, mmap_threshold = -1, -3  # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    mallopt(trim_threshold, 1 << 30)
    mallopt(mmap_threshold, 1 << 30)


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def forward(dtype: np.dtype, rounds: int) -> None:
    """Scores to probabilities, on rows of every kind."""
    columns = ["copy", *EXACT, *(f"α = {alpha}" for alpha in ALPHAS)]
    print_header(
        "Forward: multiples of `torch.softmax`, hot / cold",
        ["shape", "rows", "torch, µs per row", *columns],
    )
    for shape in SHAPES:
        for kind, z in rows_of_every_kind(shape, dtype):
            runs: dict[Any, Run] = {"torch": partial(torch.softmax, torch.from_numpy(z), -1)}
            runs["copy"] = z.copy
            runs |= {name: partial(getattr(pyentmax, name), z) for name in EXACT}
            runs |= {alpha: partial(pyentmax.entmax, z, alpha) for alpha in ALPHAS}
            print_multiples([size(shape), kind], runs, rounds, shape[0])


def layouts(dtype: np.dtype, rounds: int) -> None:
    """Scores of which a mask hides a fifth, and rows that lie across the memory."""
    print_header(
        "Masks and axes: multiples of PyTorch's time for `softmax` of the same, hot / cold",
        ["shape", "rows", "torch, µs per row", *EXACT, *(f"α = {alpha}" for alpha in ALPHAS)],
    )
    for shape in SHAPES:
        rng = np.random.default_rng(0)
        z = rng.standard_normal(shape).astype(dtype)
        mask, across = rng.random(shape) < 0.8, z.T.copy()
        bias = torch.from_numpy(np.where(mask, 0, -np.inf).astype(dtype))
        scores, columns = torch.from_numpy(z), torch.from_numpy(across)
        for kind, array, options, theirs in (
            ("masked", z, {"mask": mask}, partial(torch_masked_softmax, scores, bias)),
            ("along axis 0", across, {"axis": 0}, partial(torch.softmax, columns, 0)),
        ):
            runs: dict[Any, Run] = {"torch": theirs}
            runs |= {name: partial(getattr(pyentmax, name), array, **options) for name in EXACT}
            runs |= {a: partial(pyentmax.entmax, array, a, **options) for a in ALPHAS}
            print_multiples([size(shape), kind], runs, rounds, shape[0])


def products(dtype: np.dtype, rounds: int) -> None:
    """The Jacobian at p times a vector: forward and reverse mode alike."""
    columns = ["multiply", *EXACT, *(f"α = {alpha}" for alpha in ALPHAS)]
    print_header(
        "Jacobian products: multiples of the backward pass of `torch.softmax`, hot / cold",
        ["shape", "rows", "torch, µs per row", *columns],
    )
    for shape in SHAPES:
        for scale in (0.1, 1, 5):
            z = (scale * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
            v, p = np.flip(z).copy(), pyentmax.softmax(z)
            runs: dict[Any, Run] = {"torch": torch_softmax_backward(p, v)}
            runs["multiply"] = partial(np.multiply, p, v)
            for name in EXACT:
                p = getattr(pyentmax, name)(z)
                runs[name] = partial(getattr(pyentmax, name).vjp, p, v)
            for alpha in ALPHAS:
                runs[alpha] = partial(pyentmax.entmax.vjp, pyentmax.entmax(z, alpha), v, alpha)
            print_multiples([size(shape), f"scale {scale}"], runs, rounds, shape[0])


def losses(dtype: np.dtype, rounds: int) -> None:
    """Loss and gradient for one label a row."""
    print_header(
        "Loss and gradient: multiples of `torch.nn.functional.cross_entropy` and its backward, "
        "hot / cold",
        ["shape", "rows", "torch, µs per row", *EXACT, *(f"α = {alpha}" for alpha in LOSS_ALPHAS)],
    )
    for shape in SHAPES:
        y = np.random.default_rng(1).integers(0, shape[1], shape[0])
        for kind, z in rows_of_every_kind(shape, dtype):
            runs: dict[Any, Run] = {"torch": partial(torch_loss_and_grad, z, y)}
            runs |= {n: partial(getattr(pyentmax, n).loss_and_grad, z, y) for n in EXACT}
            for alpha in LOSS_ALPHAS:
                runs[alpha] = partial(pyentmax.entmax.loss_and_grad, z, y, alpha)
            print_multiples([size(shape), kind], runs, rounds, shape[0])


def peers(dtype: np.dtype, rounds: int) -> None:
    """The package that people use today, forward."""
    theirs: dict[str, Callable[[torch.Tensor], object]] = {
        "sparsemax": partial(entmax.sparsemax, dim=-1),
        "entmax15": partial(entmax.entmax15, dim=-1),
        "α = 1.25": partial(entmax.entmax_bisect, alpha=1.25, dim=-1),
    }
    ours: dict[str, Callable[[np.ndarray], object]] = {
        "sparsemax": pyentmax.sparsemax,
        "entmax15": pyentmax.entmax15,
        "α = 1.25": partial(pyentmax.entmax, alpha=1.25),
    }
    print_header(
        "The `entmax` package: its time as a multiple of ours, forward",
        ["shape", "rows", *theirs],
    )
    for shape in SHAPES:
        for scale in (0.1, 1, 5):
            z = (scale * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
            cells = []
            for name, their in theirs.items():
                runs = {"their": partial(their, torch.from_numpy(z)), "our": partial(ours[name], z)}
                taken = medians(runs, max(3, rounds // 5))
                cells.append(f"{taken['their'] / taken['our']:.0f}")
            print_row([size(shape), f"scale {scale}", *cells])


def growth(dtype: np.dtype, rounds: int) -> None:
    """Cost with the length of a row, the number of scores being the same."""
    columns = ["copy", "torch.softmax", *EXACT, "α = 1.25"]
    print_header(
        "Length of a row: nanoseconds per score, a million standard normal scores in all",
        ["length", *columns],
    )
    for n in LENGTHS:
        z = np.random.default_rng(0).standard_normal((max(1, 1_000_000 // n), n)).astype(dtype)
        runs: dict[Any, Run] = {"copy": z.copy}
        runs["torch"] = partial(torch.softmax, torch.from_numpy(z), -1)
        runs |= {name: partial(getattr(pyentmax, name), z) for name in EXACT}
        runs["entmax"] = partial(pyentmax.entmax, z, 1.25)
        taken = medians(runs, rounds)
        print_row([f"{n:,}", *(f"{t / z.size * 1e9:.3f}" for t in taken.values())])


def supports(dtype: np.dtype, rounds: int) -> None:
    """Cost with the number of scores that get probability."""
    shape = (128, 32000)
    columns = [f"{name}: {unit}" for name in EXACT[1:] for unit in ("support", "multiple")]
    print_header(
        "Size of the support: multiples of `torch.softmax`, 128×32000",
        ["scale", *columns],
    )
    for scale in (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10):
        z = (scale * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
        runs: dict[Any, Run] = {"torch": partial(torch.softmax, torch.from_numpy(z), -1)}
        runs |= {name: partial(getattr(pyentmax, name), z) for name in EXACT[1:]}
        taken = medians(runs, rounds)
        cells = []
        for name in EXACT[1:]:
            support = (getattr(pyentmax, name)(z) > 0).sum(axis=-1).mean()
            cells += [f"{support:,.0f}", f"{taken[name] / taken['torch']:.2f}"]
        print_row([str(scale), *cells])


def small(dtype: np.dtype, rounds: int) -> None:
    """What a call costs, whatever it does."""
    z = np.random.default_rng(0).standard_normal((1, 8)).astype(dtype)
    runs: dict[Any, Run] = {
        "scipy.special.softmax": partial(scipy_softmax, z, axis=-1),
        "torch.softmax": partial(torch.softmax, torch.from_numpy(z), -1),
    }
    runs |= {name: partial(getattr(pyentmax, name), z) for name in EXACT}
    runs["entmax, α = 1.25"] = partial(pyentmax.entmax, z, 1.25)
    calls = 1000
    taken = medians({name: partial(repeat, run, calls) for name, run in runs.items()}, rounds)
    print_header("One row of 8 scores: microseconds a call", list(runs))
    print_row([f"{t / calls * 1e6:.2f}" for t in taken.values()])


def with_threads(
    workers: int, function: Callable[..., object], z: np.ndarray, out: np.ndarray
) -> None:
    """One call on that number of threads."""
    with pyentmax.set_workers(workers):
        function(z, out=out)


def threads(dtype: np.dtype, rounds: int) -> None:
    """What a second thread gains, writing to the same array."""
    print_header("Two threads: the time of one, divided by theirs", ["shape", *EXACT, "α = 1.25"])
    functions = {name: getattr(pyentmax, name) for name in EXACT}
    functions["entmax"] = partial(pyentmax.entmax, alpha=1.25)
    for shape in SHAPES:
        z = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        out = np.empty_like(z)
        runs = {
            (name, workers): partial(with_threads, workers, function, z, out)
            for name, function in functions.items()
            for workers in (1, 2)
        }
        taken = medians(runs, rounds)
        print_row([size(shape), *(f"{taken[n, 1] / taken[n, 2]:.2f}" for n in functions)])


TABLES = {
    "forward": forward,
    "layouts": layouts,
    "products": products,
    "losses": losses,
    "peers": peers,
    "growth": growth,
    "supports": supports,
    "small": small,
    "threads": threads,
}


def torch_masked_softmax(scores: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The faster way to mask in PyTorch, up to five times: −∞ is added, not filled in."""
    return torch.softmax(scores + bias, -1)


def torch_softmax_backward(p: np.ndarray, v: np.ndarray) -> Run:
    """What PyTorch's autograd calls for softmax; the arrays are not copied."""
    product = torch.ops.aten._softmax_backward_data
    probabilities = torch.from_numpy(p)
    return partial(product, torch.from_numpy(v), probabilities, -1, probabilities.dtype)


def torch_loss_and_grad(z: np.ndarray, y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy and its gradient by PyTorch's autograd; the arrays are not copied."""
    scores = torch.from_numpy(z).requires_grad_()
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y))
    loss.backward()
    return loss, scores.grad


def rows_of_every_kind(shape: tuple[int, int], dtype: np.dtype) -> Iterator[tuple[str, np.ndarray]]:
    """Random rows at three scales, then rows sorted, constant, tied, with an outlier."""
    z = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    for scale in (0.1, 1, 5):
        yield f"scale {scale}", z * dtype.type(scale)
    yield "ascending", np.sort(z, axis=-1)
    yield "descending", np.sort(z, axis=-1)[:, ::-1].copy()
    yield "constant", np.zeros_like(z)
    yield "tied", np.round(z)
    outlier = z.copy()
    outlier[:, shape[1] // 2] = 30
    yield "outlier", outlier


def repeat(run: Run, calls: int) -> None:
    """Call it so many times."""
    for _ in range(calls):
        run()


class OtherWork:
    """What a program does between two calls of a mapping: other code, on 64 MiB of other data."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._weights = rng.standard_normal(1 << 24, dtype=np.float32)
        self._matrix = rng.standard_normal((256, 256), dtype=np.float32)
        self._row = torch.from_numpy(self._weights[: 1 << 16])

    def __call__(self) -> None:
        np.multiply(self._weights, np.float32(-1), out=self._weights)
        np.matmul(self._matrix, self._matrix)
        np.sort(self._matrix, axis=0)
        torch.cumsum(torch.tanh(self._row), 0)


def medians(runs: dict[Any, Run], rounds: int, between: Run = lambda: None) -> dict[Any, float]:
    """Seconds of each run: the median over rounds in which each takes its turn, after a first.

    `between` runs before each of them, untimed.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            between()
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(taken)) for name, taken in seconds.items()}


def size(shape: tuple[int, int]) -> str:
    """A shape as people write it."""
    return f"{shape[0]}×{shape[1]}"


def print_header(title: str, columns: list[str]) -> None:
    """A heading and the head of a table."""
    print(f"\n## {title}\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)


def print_multiples(labels: list[str], runs: dict[Any, Run], rounds: int, rows: int) -> None:
    """The yardstick, which comes first, in microseconds a row; the others as multiples of it."""
    cells = []
    for taken in (medians(runs, rounds), medians(runs, rounds, OtherWork())):
        unit, *others = taken.values()
        cells.append([f"{unit / rows * 1e6:.3f}", *(f"{t / unit:.2f}" for t in others)])
    print_row([*labels, *(f"{hot} / {cold}" for hot, cold in zip(*cells, strict=True))])


def print_row(cells: list[str]) -> None:
    """A row of a table."""
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
