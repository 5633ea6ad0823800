"""The CUDA kernels compared with a copy of the same memory, torch.softmax and the peers.

    python benchmarks/gpu.py [--folder FOLDER] [--seconds 540] [--rounds 20] [--quick]

Every case, a row length in a type and a total size, is appended to ``gpu.csv`` as soon as it is
measured, and ``gpu.md`` is written from all cases, with the targets that are met and those that are
not. A run that is interrupted or uses up its seconds continues where it stopped when it is started
again on the same device and commit.

A kernel's share is the bytes it has to move (scores in, probabilities out; p, v and the product for
a Jacobian product) over its time, as a part of what a plain copy of as many bytes reaches beside
it. Times are medians of interleaved runs, taken with CUDA events on the stream that both libraries
use: the device's own, since a copy of some other memory keeps it busy while the host prepares a
run, which then finds none of its arrays in a cache. A peer that is not installed is left out, and
said to be.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib
import importlib.metadata
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pyentmax
from pyentmax.engine.backends.cuda import functions
from pyentmax.engine.backends.cuda.launch import Kernel, prepared
from pyentmax.engine.calls.devices import device_module

MEASUREMENTS = Path(__file__).parents[1] / "experiments" / "measurements"
LENGTHS = [64, 128, 256, 512, 1024, 4096, 8192, 16384, 32000, 57000, 128000]
TOTALS = [1 << 30, 64 << 20, 4 << 30]  # bytes of scores
QUICK = ([64, 1024, 32000], [64 << 20])
DTYPES = [np.dtype(np.float32), np.dtype(np.float16)]
ALPHAS = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5, "entmax 1.25": 1.25}
PRODUCTS = ["softmax", "sparsemax", "entmax15"]
KERNELS = {
    "forward": [functions.SOFTMAX, functions.SPARSEMAX, functions.ENTMAX15, functions.ENTMAX],
    "product": [functions.SOFTMAX_JVP, functions.SPARSEMAX_JVP, functions.ENTMAX15_JVP],
}
PEERS = ["entmax", "adasplash"]
PEERS_ACCURACY = 1e-6
PEERS_BYTES = 256 << 20  # of scores
ITERATIONS = [2, 3, 4, 5, 6, 8, 10, 15, 20, 30]  # of adasplash: the first that are accurate enough
CHECKED_BYTES = 1 << 20  # of scores, whose probabilities are compared with the NumPy body's
AHEAD_BYTES = 2 << 30  # copied ahead of each run: a millisecond, more than a host takes
DRAWN = 1 << 26  # scores that are drawn; larger arrays repeat them

# What is to be shown: of a table and a column, a measure, the side it may not leave, and the limit.
# The rows' candidates fit on the chip at every length here; general α needs all of a row there.
AT_LEAST, AT_MOST = "≥", "≤"
ON_CHIP = 57000 * 4  # bytes of a row
TARGETS = [
    ("forward", "sparsemax", "share", AT_LEAST, 0.8),
    ("forward", "entmax15", "share", AT_LEAST, 0.8),
    ("forward", "entmax 1.25", "share", AT_LEAST, 0.65),
    ("forward", "sparsemax", "of torch", AT_MOST, 1.0),
    ("forward", "entmax15", "of torch", AT_MOST, 1.0),
    ("forward", "entmax 1.25", "of torch", AT_MOST, 1.3),
    *(("product", name, "share", AT_LEAST, 0.8) for name in PRODUCTS),
    *(("error", name, "float32", AT_MOST, 1e-6) for name in ALPHAS),
    *(("error", name, "float16", AT_MOST, 1.0) for name in ALPHAS),
    *(("peers", f"entmax {alpha}", "times", AT_LEAST, 20.0) for alpha in (2.0, 1.5, 1.25)),
    *(("peers", f"adasplash {alpha}", "times", AT_LEAST, 1.0) for alpha in (2.0, 1.5, 1.25)),
]


class Case(NamedTuple):
    """One row of a table."""

    table: str
    length: int
    megabytes: int
    dtype: str


Values = dict[str, float]
Measured = dict[Case, Values]


def main(arguments: list[str] | None = None) -> None:
    """Measure what is not there yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=MEASUREMENTS)
    parser.add_argument("--seconds", type=float, default=540, help="begin no case after (540)")
    parser.add_argument("--rounds", type=int, default=20, help="interleaved runs (20)")
    parser.add_argument("--quick", action="store_true", help="one total, few lengths")
    args = parser.parse_args(arguments)
    end = time.monotonic() + args.seconds
    cupy = device_module("cuda")
    torch = torch_on_gpu()
    stamp = make_stamp(cupy, torch)
    table, page = args.folder / "gpu.csv", args.folder / "gpu.md"
    measured = read(table, stamp)
    lengths, totals = QUICK if args.quick else (LENGTHS, TOTALS)
    left = [case for case in cases(lengths, totals) if case not in measured]
    compile_ahead(cupy, left)
    for case in left:
        if time.monotonic() > end:
            print("The seconds are used up: the same command goes on from here.")
            break
        values = MEASURE[case.table](cupy, torch, case, args.rounds)
        if values:
            measured[case] = values
        append(table, stamp, case, values)
        print(*case, " ".join(f"{name}: {value:.3g}" for name, value in values.items()), flush=True)
    page.write_text(written(stamp, measured), encoding="utf-8")
    print(f"{page}: {verdict(measured)[0]}")


def cases(lengths: list[int], totals: list[int]) -> Iterator[Case]:
    """All rows of the tables."""
    for total in totals:
        for dtype in DTYPES:
            for table in ("forward", "product"):
                for n in lengths:
                    yield Case(table, n, total >> 20, dtype.name)
        if total == totals[0]:
            for n in lengths:
                for dtype in DTYPES:
                    yield Case("error", n, CHECKED_BYTES >> 20, dtype.name)
                yield Case("peers", n, PEERS_BYTES >> 20, "float32")


# --- the machine ----------------------------------------------------------------------------------


def torch_on_gpu() -> Any:
    """PyTorch, if it is here and has the GPU; says so if not."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        print("PyTorch is not installed: its softmax and the peers are left out.")
        return None
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU: its softmax and the peers are left out.")
        return None
    torch.set_grad_enabled(False)
    return torch


def make_stamp(cupy: Any, torch: Any) -> str:
    """Device, driver, versions and commit."""
    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    peers = [f"{peer} {importlib.metadata.version(peer)}" for peer in PEERS if installed(peer)]
    return "; ".join(
        [
            name,
            f"driver {runtime.driverGetVersion()}",
            f"CUDA {runtime.runtimeGetVersion()}",
            f"CuPy {cupy.__version__}",
            f"torch {torch.__version__}" if torch is not None else "no torch with a GPU",
            *(peers or ["no peers"]),
            f"pyentmax {pyentmax.__version__}",
            f"commit {commit()}",
        ]
    )


def commit() -> str:
    """The commit, and whether the package differs from it."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        here = Path(__file__).parents[1]
        return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True)

    try:
        head = git("rev-parse", "--short", "HEAD")
        changed = git("diff", "--quiet", "HEAD", "--", "pyentmax", "benchmarks").returncode
    except OSError:  # no git
        return "unknown"
    return (
        head.stdout.strip() + " with changes" * bool(changed) if not head.returncode else "unknown"
    )


def installed(name: str) -> bool:
    """Whether a package can be imported."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def compile_ahead(cupy: Any, some: list[Case]) -> None:
    """Compile the kernels that cases of the two large tables need, many at once."""
    device = cupy.cuda.Device()
    jobs = {
        (kernel, case.length, np.dtype(case.dtype))
        for case in some
        for kernel in KERNELS.get(case.table, [])
    }

    def compile_one(job: tuple[Kernel, int, np.dtype[Any]]) -> None:
        with device:  # which a new thread has not chosen yet
            prepared(*job, device.id)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, jobs))


def medians(cupy: Any, runs: dict[str, Callable[[], Any]], rounds: int) -> Values:
    """Median seconds of each run, the runs of a round one after the other."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    source, target = (cupy.empty(AHEAD_BYTES, np.uint8) for _ in range(2))
    for run in runs.values():  # compiled, and warm
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            cupy.copyto(target, source)
            start.record()
            run()
            end.record()
            end.synchronize()
            times[name].append(cupy.cuda.get_elapsed_time(start, end) / 1000)
    return {name: statistics.median(values) for name, values in times.items()}


def scores(cupy: Any, rows: int, n: int, dtype: np.dtype[Any], seed: int = 0) -> Any:
    """Standard normal scores on the GPU."""
    drawn = cupy.random.default_rng(seed).standard_normal(min(rows * n, DRAWN), dtype=np.float32)
    drawn = drawn.astype(dtype)
    z = cupy.empty((rows, n), dtype)
    flat = z.reshape(-1)
    for begin in range(0, rows * n, DRAWN):
        flat[begin : begin + DRAWN] = drawn[: min(DRAWN, rows * n - begin)]
    return z


def release(cupy: Any, torch: Any) -> None:
    """Give memory back before the next case."""
    cupy.get_default_memory_pool().free_all_blocks()
    if torch is not None:
        torch.cuda.empty_cache()


# --- the tables -----------------------------------------------------------------------------------


def rows_of(case: Case) -> int:
    """How many rows make the case's size."""
    return max(1, (case.megabytes << 20) // (case.length * np.dtype(case.dtype).itemsize))


def forwards(z: Any, out: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each mapping, writing to `out`."""
    for name, alpha in ALPHAS.items():
        if name in pyentmax.MAPPINGS:
            yield name, partial(getattr(pyentmax, name), z, out=out)
        else:
            yield name, partial(pyentmax.entmax, z, alpha, out=out)


def measure_forward(cupy: Any, torch: Any, case: Case, rounds: int) -> Values:
    """Seconds of the mappings, of a copy and of torch.softmax."""
    z = scores(cupy, rows_of(case), case.length, np.dtype(case.dtype))
    out = cupy.empty_like(z)
    runs = {"copy": partial(cupy.copyto, out, z), **dict(forwards(z, out))}
    if torch is not None:
        runs["torch"] = partial(torch.softmax, torch.from_dlpack(z), -1)
    taken = medians(cupy, runs, rounds)
    release(cupy, torch)
    return taken


def measure_product(cupy: Any, torch: Any, case: Case, rounds: int) -> Values:
    """Seconds of the products, and of a copy: it moves two arrays where they move three."""
    z = scores(cupy, rows_of(case), case.length, np.dtype(case.dtype))
    v = scores(cupy, *z.shape, z.dtype, seed=1)
    runs = {"copy": partial(cupy.copyto, cupy.empty_like(z), v)}
    for name in PRODUCTS:
        runs[name] = partial(getattr(pyentmax, name).vjp, getattr(pyentmax, name)(z), v)
    taken = medians(cupy, runs, rounds)
    release(cupy, torch)
    return taken


def measure_error(cupy: Any, torch: Any, case: Case, rounds: int) -> Values:
    """The largest error against the NumPy body in float64; of half types in units of last place."""
    dtype, found = np.dtype(case.dtype), {}
    z = scores(cupy, rows_of(case), case.length, dtype)
    out, host = cupy.empty_like(z), z.get().astype(np.float64)
    for name, run in forwards(z, out):
        run()
        exact = pyentmax.entmax.reference(host, ALPHAS[name])
        error = np.abs(out.get() - exact)
        if dtype == np.float16:
            error /= np.spacing(exact.astype(dtype)).astype(np.float64)
        found[name] = float(error.max())
    return found


def measure_peers(cupy: Any, torch: Any, case: Case, rounds: int) -> Values:
    """Their time over ours, and their errors; adasplash with as few iterations as it takes."""
    found: Values = {}
    if torch is None:
        return found
    z = scores(cupy, rows_of(case), case.length, np.dtype(case.dtype))
    tensor, out = torch.from_dlpack(z), cupy.empty_like(z)
    for alpha in (2.0, 1.5, 1.25):
        exact = torch.from_dlpack(pyentmax.entmax(z[:64].astype(np.float64), alpha))
        ours = {2.0: pyentmax.sparsemax, 1.5: pyentmax.entmax15}.get(
            alpha, partial(pyentmax.entmax, alpha=alpha)
        )
        for name in filter(installed, PEERS):
            try:
                run, error = peer(name, alpha, tensor, exact)
                taken = medians(cupy, {"ours": partial(ours, z, out=out), "peer": run}, rounds)
            except Exception as failure:  # theirs, and not to end a run of ours
                print(f"{name}, α = {alpha}, {case.length} entries: {failure}")
                continue
            found[f"{name} {alpha}"] = taken["peer"] / taken["ours"]
            found[f"{name} {alpha} error"] = error
    release(cupy, torch)
    return found


def peer(name: str, alpha: float, tensor: Any, exact: Any) -> tuple[Callable[[], Any], float]:
    """A peer's function on the tensor, and its error on the first rows."""
    module = importlib.import_module(name)
    if name == "entmax":
        function = {2.0: module.sparsemax, 1.5: module.entmax15}.get(
            alpha, partial(module.entmax_bisect, alpha=alpha)
        )
        choices = [partial(function, dim=-1)]
    else:
        function = partial(module.triton_entmax, alpha=alpha)
        choices = [partial(function, n_iter=i) for i in ITERATIONS]
    for choice in choices:  # noqa: B007
        error = float((choice(tensor[:64]).double() - exact).abs().max())
        if error <= PEERS_ACCURACY:
            break
    return partial(choice, tensor), error


MEASURE: dict[str, Callable[[Any, Any, Case, int], Values]] = {
    "forward": measure_forward,
    "product": measure_product,
    "error": measure_error,
    "peers": measure_peers,
}


# --- what is kept, and written --------------------------------------------------------------------

FIELDS = ["stamp", *Case._fields, "name", "value"]


def read(table: Path, stamp: str) -> Measured:
    """The cases measured under this stamp; a table of another one is begun anew."""
    found: Measured = {}
    if table.exists():
        with open(table, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["stamp"] == stamp:
                    case = Case(
                        row["table"], int(row["length"]), int(row["megabytes"]), row["dtype"]
                    )
                    found.setdefault(case, {})[row["name"]] = float(row["value"])
    if not found:
        table.parent.mkdir(parents=True, exist_ok=True)
        with open(table, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(FIELDS)
    return found


def append(table: Path, stamp: str, case: Case, values: Values) -> None:
    """Keep one case."""
    with open(table, "a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([stamp, *case, name, value] for name, value in values.items())


def measures(case: Case, values: Values) -> dict[tuple[str, str], float]:
    """What is compared with targets, by column and measure."""
    if case.table in ("error", "peers"):
        kind = case.dtype if case.table == "error" else "times"
        return {(name, kind): value for name, value in values.items() if "error" not in name}
    moved = 1.0 if case.table == "forward" else 1.5
    found = {}
    for name in values.keys() - {"copy", "torch"}:
        found[name, "share"] = moved * values["copy"] / values[name]
        if "torch" in values:
            found[name, "of torch"] = values[name] / values["torch"]
    return found


def judged(measured: Measured) -> Iterator[tuple[Case, tuple[str, str], bool, float]]:
    """Of each number with a target: whether it is met, and how many times over."""
    for case, values in measured.items():
        found = measures(case, values)
        for table, name, measure, side, limit in TARGETS:
            if table != case.table or (name, measure) not in found:
                continue
            if limit == 0.65 and case.length * np.dtype(case.dtype).itemsize > ON_CHIP:
                continue
            value = found[name, measure]
            ratio = value / limit if side == AT_LEAST else limit / max(value, 1e-300)
            yield case, (name, measure), ratio >= 1, ratio


def verdict(measured: Measured) -> list[str]:
    """One line for all targets, and one for each."""
    results = list(judged(measured))
    met = sum(good for _, _, good, _ in results)
    lines = [f"{met} of {len(results)} numbers meet their target"]
    for table, name, measure, side, limit in TARGETS:
        mine = [
            (ratio, good, case)
            for case, key, good, ratio in results
            if key == (name, measure) and case.table == table
        ]
        if not mine:
            lines.append(f"| {table} | {name} | {measure} {side} {limit:g} | – | – |")
            continue
        ratio, _, worst = min(mine, key=lambda item: item[0])
        factor = limit * ratio if side == AT_LEAST else limit / ratio
        count = f"{sum(good for _, good, _ in mine)} of {len(mine)}"
        place = f"{factor:.3g} at {worst.length} ({worst.megabytes} MB, {worst.dtype})"
        lines.append(f"| {table} | {name} | {measure} {side} {limit:g} | {count} | {place} |")
    return lines


def written(stamp: str, measured: Measured) -> str:
    """The page."""
    first, *others = verdict(measured)
    lines = [
        "# CUDA kernels compared with a copy, PyTorch and the peers",
        "",
        f"{datetime.date.today()}; {stamp}. Made by `benchmarks/gpu.py` from `gpu.csv` next to it.",
        f"{first}; ✗ marks those that do not.",
        "",
        "| table | column | target | met | nearest to failing, or farthest off |",
        "| --- | --- | --- | --- | --- |",
        *others,
    ]
    titles = {
        "forward": "Forward: share of the copy's bandwidth, time over torch.softmax",
        "product": "Jacobian products: share of the copy's bandwidth",
        "error": "Largest error against float64 (of float16 in units of the last place)",
        "peers": "Peers: their time over ours, and their error",
    }
    missed = {(case, key) for case, key, good, _ in judged(measured) if not good}
    for table, title in titles.items():
        groups = sorted({(c.megabytes, c.dtype) for c in measured if c.table == table})
        for megabytes, dtype in groups:
            mine = {
                c: v for c, v in measured.items() if c[0] == table and c[2:] == (megabytes, dtype)
            }
            lines += ["", f"## {title}, {megabytes} MB of {dtype}", "", *tabulated(mine, missed)]
    return "\n".join(lines) + "\n"


def tabulated(mine: Measured, missed: set[Any]) -> Iterator[str]:
    """A table with a row for each length."""
    columns: list[str] = []
    for case, values in mine.items():
        names = dict.fromkeys(name for name, _ in measures(case, values))
        wanted = [name for name in values if name in names]
        columns += [name for name in wanted if name not in columns]
    copied = any("copy" in values for values in mine.values())
    yield "| length | " + "copy GB/s | " * copied + " | ".join(columns) + " |"
    yield "| ---: " * (1 + copied + len(columns)) + "|"
    for case, values in sorted(mine.items()):
        found, cells = measures(case, values), []
        if copied:
            moved = 2 * rows_of(case) * case.length * np.dtype(case.dtype).itemsize
            cells.append(f"{moved / values['copy'] / 1e9:.0f}")
        for column in columns:
            parts = [
                shown(measure, value) + " ✗" * ((case, (name, measure)) in missed)
                for (name, measure), value in found.items()
                if name == column
            ]
            if f"{column} error" in values:
                parts.append(f"({values[f'{column} error']:.0e})")
            cells.append(", ".join(parts))
        yield f"| {case.length} | " + " | ".join(cells) + " |"


def shown(measure: str, value: float) -> str:
    """A number as the page gives it."""
    if measure == "share":
        return f"{value:.0%}"
    if measure in ("times", "of torch"):
        return f"{value:.2f}×"
    return f"{value:.1e}" if measure == "float32" else f"{value:.2f}"


if __name__ == "__main__":
    main()
