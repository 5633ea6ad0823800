"""The CUDA kernels beside a copy of the same memory, torch.softmax and the peers: one command.

    python benchmarks/gpu.py [--quick] [--rounds 20] | tee docs/results/gpu.md

Prints Markdown. A kernel's share is the bytes it has to move (scores in, probabilities out; p, v
and the product for a Jacobian product) over its time, as a part of what a plain copy of as many
bytes reaches in the same run. Times are medians of interleaved runs, taken with CUDA events on the
stream that both libraries use. A peer that is not installed is left out, and said to be.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import statistics
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pyentmax
from pyentmax._devices import device_module

LENGTHS = [64, 128, 256, 512, 1024, 4096, 8192, 16384, 32000, 57000, 128000]
TOTALS = [64 << 20, 1 << 30, 4 << 30]  # bytes of scores
ALPHAS = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5, "entmax 1.25": 1.25}
PEERS_ACCURACY = 1e-6
BYTES_CHECKED = 1 << 20  # of scores, whose probabilities are compared with the NumPy body's


def main() -> None:
    """Print the stamp and the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="interleaved runs (default: 20)")
    parser.add_argument("--quick", action="store_true", help="one total, few lengths")
    args = parser.parse_args()
    cupy = device_module("cuda")
    torch = torch_on_gpu()
    print_stamp(cupy, torch)
    lengths = [64, 1024, 32000] if args.quick else LENGTHS
    for total in TOTALS[:1] if args.quick else TOTALS:
        for dtype in (np.float32, np.float16):
            title = f"{total >> 20} MB of {np.dtype(dtype).name}"
            print(
                f"\n## Forward, {title}: share of the copy's bandwidth, time over torch.softmax\n"
            )
            print_forward(cupy, torch, lengths, total, np.dtype(dtype), args.rounds)
            print(f"\n## Jacobian product, {title}: share of the copy's bandwidth\n")
            print_products(cupy, lengths, total, np.dtype(dtype), args.rounds)
    print("\n## Largest error against the NumPy body in float64\n")
    print_errors(cupy, lengths)
    if torch is not None:
        torch.set_grad_enabled(False)
        print("\n## Peers, 256 MB of float32: time over ours (error)\n")
        print_peers(cupy, torch, lengths, args.rounds)


def torch_on_gpu() -> Any:
    """PyTorch, if it is here and has the GPU."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def print_stamp(cupy: Any, torch: Any) -> None:
    """Device, driver, versions, date and commit."""
    here = Path(__file__).parent
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True
    ).stdout.strip()
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    print(f"# CUDA kernels on {properties['name'].decode()}\n")
    runtime = cupy.cuda.runtime
    print(f"{datetime.date.today()}, commit {commit}, pyentmax {pyentmax.__version__},")
    print(f"CuPy {cupy.__version__}, CUDA {runtime.runtimeGetVersion()},", end=" ")
    print(f"driver {runtime.driverGetVersion()},", end=" ")
    print(f"torch {torch.__version__}" if torch is not None else "no torch with a GPU")


def scores(cupy: Any, rows: int, n: int, dtype: np.dtype[Any], scale: float = 1.0) -> Any:
    """Normal scores on the GPU."""
    generator = cupy.random.default_rng(0)
    return (scale * generator.standard_normal((rows, n), dtype=np.float32)).astype(dtype)


def medians(cupy: Any, runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each run, the runs of a round one after the other."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():  # compiled, and warm
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            run()
            end.record()
            end.synchronize()
            times[name].append(cupy.cuda.get_elapsed_time(start, end) / 1000)
    return {name: statistics.median(values) for name, values in times.items()}


def forwards(z: Any, out: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each mapping, writing to `out`."""
    for name, alpha in ALPHAS.items():
        if name in pyentmax.MAPPINGS:
            yield name, partial(getattr(pyentmax, name), z, out=out)
        else:
            yield name, partial(pyentmax.entmax, z, alpha, out=out)


def print_forward(
    cupy: Any, torch: Any, lengths: list[int], total: int, dtype: np.dtype[Any], rounds: int
) -> None:
    """A row for each length."""
    print("| length | copy GB/s | " + " | ".join(ALPHAS) + " |")
    print("| ---: " * (2 + len(ALPHAS)) + "|")
    for n in lengths:
        z = scores(cupy, total // (n * dtype.itemsize), n, dtype)
        out = cupy.empty_like(z)
        runs = {"copy": partial(cupy.copyto, out, z), **dict(forwards(z, out))}
        if torch is not None:
            tensor = torch.from_dlpack(z)
            runs["torch"] = partial(torch.softmax, tensor, -1)
        taken = medians(cupy, runs, rounds)
        cells = [f"{2 * z.nbytes / taken['copy'] / 1e9:.0f}"]
        for name in ALPHAS:
            beside = f", {taken[name] / taken['torch']:.2f}×" if torch is not None else ""
            cells.append(f"{taken['copy'] / taken[name]:.0%}{beside}")
        print(f"| {n} | " + " | ".join(cells) + " |", flush=True)


def print_products(
    cupy: Any, lengths: list[int], total: int, dtype: np.dtype[Any], rounds: int
) -> None:
    """Three arrays are moved for a product, two for a copy."""
    names = ["softmax", "sparsemax", "entmax15"]
    print("| length | " + " | ".join(names) + " |")
    print("| ---: " * (1 + len(names)) + "|")
    for n in lengths:
        z = scores(cupy, total // (n * dtype.itemsize), n, dtype)
        v, cells = scores(cupy, *z.shape, dtype, 2.0), []
        for name in names:
            p = getattr(pyentmax, name)(z)
            runs = {
                "copy": partial(cupy.copyto, z, v),
                "product": partial(getattr(pyentmax, f"{name}_vjp"), p, v),
            }
            taken = medians(cupy, runs, rounds)
            cells.append(f"{1.5 * taken['copy'] / taken['product']:.0%}")
        print(f"| {n} | " + " | ".join(cells) + " |", flush=True)


def print_errors(cupy: Any, lengths: list[int]) -> None:
    """In units of the last place of 1 for half types, absolute for float32."""
    print("| length | type | " + " | ".join(ALPHAS) + " |")
    print("| ---: | --- " + "| ---: " * len(ALPHAS) + "|")
    for n in lengths:
        for dtype in (np.dtype(np.float32), np.dtype(np.float16)):
            z = scores(cupy, max(1, BYTES_CHECKED // (n * 4)), n, dtype)
            out = cupy.empty_like(z)
            host, cells = z.get().astype(np.float64), []
            for name, run in forwards(z, out):
                run()
                alpha = ALPHAS[name]
                cells.append(f"{np.abs(out.get() - pyentmax.entmax(host, alpha)).max():.1e}")
            print(f"| {n} | {dtype.name} | " + " | ".join(cells) + " |", flush=True)


def print_peers(cupy: Any, torch: Any, lengths: list[int], rounds: int) -> None:
    """entmax 1.3, and adasplash with as many iterations as our accuracy takes."""
    peers = [name for name in ("entmax", "adasplash") if installed(name)]
    missing = {"entmax", "adasplash"} - set(peers)
    if missing:
        print(f"Not installed: {', '.join(sorted(missing))}.\n")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in peers]
    print("| length | α | " + " | ".join(versions) + " |")
    print("| ---: | ---: " + "| ---: " * len(peers) + "|")
    for n in lengths:
        z = scores(cupy, (256 << 20) // (4 * n), n, np.dtype(np.float32))
        tensor, out = torch.from_dlpack(z), cupy.empty_like(z)
        for alpha in (2.0, 1.5, 1.25):
            exact = torch.from_dlpack(pyentmax.entmax(z[:64].astype(np.float64), alpha))
            ours = {2.0: pyentmax.sparsemax, 1.5: pyentmax.entmax15}.get(
                alpha, partial(pyentmax.entmax, alpha=alpha)
            )
            runs: dict[str, Callable[[], Any]] = {"ours": partial(ours, z, out=out)}
            cells = []
            for name in peers:
                run, error = peer(name, alpha, tensor, exact)
                taken = medians(cupy, {**runs, "peer": run}, max(3, rounds // 4))
                cells.append(f"{taken['peer'] / taken['ours']:.1f}× ({error:.0e})")
            print(f"| {n} | {alpha} | " + " | ".join(cells) + " |", flush=True)


def installed(name: str) -> bool:
    """Whether a package can be imported."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def peer(name: str, alpha: float, tensor: Any, exact: Any) -> tuple[Callable[[], Any], float]:
    """A peer's function on the tensor, and its error on the first rows."""
    module = importlib.import_module(name)
    if name == "entmax":
        function = {2.0: module.sparsemax, 1.5: module.entmax15}.get(
            alpha, partial(module.entmax_bisect, alpha=alpha)
        )
        choices = [partial(function, tensor, dim=-1)]
        heads = [partial(function, tensor[:64], dim=-1)]
    else:  # the fewest iterations that are accurate enough
        function = partial(module.triton_entmax, alpha=alpha)
        choices = [partial(function, tensor, n_iter=i) for i in range(2, 31)]
        heads = [partial(function, tensor[:64], n_iter=i) for i in range(2, 31)]
    for choice, head in zip(choices, heads, strict=True):  # noqa: B007
        error = float((head().double() - exact).abs().max())
        if error <= PEERS_ACCURACY:
            break
    return choice, error


if __name__ == "__main__":
    main()
