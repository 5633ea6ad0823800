"""The CPU kernels beside torch.softmax: one thread, float32, medians of interleaved runs.

    python benchmarks/cpu.py [--rounds 30] [--dtype float32] [--threads 1]

Every number is a multiple of what torch.softmax took on the same rows in the same run, so that a
machine shared with other work, or one that changes its clock, disturbs both alike. Jacobian
products are multiples of np.multiply(p, v, out=…). Rows are random at three scales, and of the
kinds that defeat shortcuts.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

import pyentmax

SHAPES = [(2048, 64), (512, 4096), (128, 32000)]
NAMES = ["softmax", "sparsemax", "entmax15"]


def main() -> None:
    """Print the stamp and the tables, with as many threads on either side."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="interleaved runs (default: 30)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=1, help="for all but the last table")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with pyentmax.set_workers(args.threads):
        print_tables(args)
    print_gain_of_two_threads(args)


def print_tables(args: argparse.Namespace) -> None:
    """Forward, Jacobian product and loss, each beside its yardstick."""
    print(f"{datetime.date.today()}, {args.dtype}, torch {torch.__version__} with")
    print(f"  {torch.backends.cpu.get_cpu_capability()}, {platform.platform()}")
    pyentmax.show_config()
    header = f"{'shape':>10} {'rows':>10} {'torch':>10}" + "".join(f"{n:>10}" for n in NAMES)

    print("\nforward, as a multiple of torch.softmax (µs a row)")
    print(header)
    for shape in SHAPES:
        for kind, z in rows_of_every_kind(shape, np.dtype(args.dtype)):
            tensor, out = torch.from_numpy(z), np.empty_like(z)
            runs = {"torch": lambda t=tensor: torch.softmax(t, -1)}
            runs |= {n: lambda n=n, z=z: getattr(pyentmax, n)(z) for n in NAMES}
            report(shape, kind, medians(runs, args.rounds))

    print("\nJacobian product, as a multiple of np.multiply(p, v, out=…) (µs a row)")
    print(header.replace("torch", " mult"))
    for shape in SHAPES:
        z = np.random.default_rng(0).standard_normal(shape).astype(args.dtype)
        v, out = np.flip(z).copy(), np.empty_like(z)
        p = {n: getattr(pyentmax, n)(z) for n in NAMES}
        runs = {"multiply": lambda v=v, p=p["softmax"], o=out: np.multiply(p, v, out=o)}
        runs |= {n: lambda n=n, p=p[n], v=v: getattr(pyentmax, f"{n}_jvp")(p, v) for n in NAMES}
        report(shape, "random", medians(runs, args.rounds))

    print("\nloss and gradient of labels, as a multiple of torch's cross_entropy and backward")
    print(header)
    for shape in SHAPES:
        y = np.random.default_rng(1).integers(0, shape[1], shape[0])
        for kind, z in rows_of_every_kind(shape, np.dtype(args.dtype)):
            runs = {"torch": lambda z=z, y=y: torch_loss_and_grad(z, y)}
            runs |= {
                n: lambda n=n, z=z, y=y: getattr(pyentmax, f"{n}_loss_and_grad")(z, y)
                for n in NAMES
            }
            report(shape, kind, medians(runs, args.rounds))


def print_gain_of_two_threads(args: argparse.Namespace) -> None:
    """How many times as fast two threads are as one, writing to the same array."""
    print("\ntwo threads: the time of one, divided by theirs (µs a row of softmax on one)")
    print(f"{'shape':>10} {'':>10} {'':>10}" + "".join(f"{n:>10}" for n in NAMES))
    for shape in SHAPES:
        z = np.random.default_rng(0).standard_normal(shape).astype(args.dtype)
        out = np.empty_like(z)
        runs = {
            (n, workers): partial(getattr(pyentmax, n), z, out=out, workers=workers)
            for n in NAMES
            for workers in (1, 2)
        }
        taken = medians(runs, args.rounds)
        gains = "".join(f"{taken[n, 1] / taken[n, 2]:10.2f}" for n in NAMES)
        one = taken["softmax", 1] / shape[0] * 1e6
        print(f"{shape[0]:>4}×{shape[1]:<5} {'forward':>10} {one:10.3f}{gains}", flush=True)


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


def medians(runs: dict[Any, Callable[[], object]], rounds: int) -> dict[Any, float]:
    """Seconds of each run: the median over rounds in which each takes its turn."""
    seconds: dict[Any, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(taken)) for name, taken in seconds.items()}


def report(shape: tuple[int, int], kind: str, taken: dict[str, float]) -> None:
    """One line: the unit in microseconds a row, then the ratios to it."""
    unit, *others = taken.values()
    ratios = "".join(f"{seconds / unit:10.2f}" for seconds in others)
    print(
        f"{shape[0]:>4}×{shape[1]:<5} {kind:>10} {unit / shape[0] * 1e6:10.3f}{ratios}", flush=True
    )


if __name__ == "__main__":
    main()
