"""An output layer's loss and gradients: `pyentmax.torch.linear_loss` compared with cross-entropy.

    python benchmarks/output_layer.py [--rounds 3] [--threads 1] [--rows 1024] [--deviations 0.5 1]

Prints Markdown. A row of the table is one standard deviation of the scores, which says how sharp a
model is: an untrained one has some 0.02. All that a row compares takes its turn in each round, and
the first round warms up. A number is a median over rounds, of forward and backward pass, divided by
that of `torch.nn.functional.cross_entropy` of all scores. With --memory, a process of its own
prints by how many MB it grew at its largest, less the gradients.
"""

from __future__ import annotations

import argparse
import datetime
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cpu import keep_memory, processor
from torch import Tensor
from torch.nn import functional

import pyentmax
import pyentmax.torch as pt

WIDTH = 512
Losses = dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]
LOSSES: Losses = {
    "cross_entropy": lambda x, rows, y: functional.cross_entropy(x @ rows.T, y),
    "entmax15_loss": lambda x, rows, y: pt.entmax15_loss(x @ rows.T, y),
    "linear_loss": lambda x, rows, y: pt.linear_loss(x, rows, y),
    "linear_loss, softmax": lambda x, rows, y: pt.linear_loss(x, rows, y, "softmax"),
}


def main() -> None:
    """Print the stamp and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--classes", type=int, nargs="+", default=[32000])
    parser.add_argument("--deviations", type=float, nargs="+", default=[0.002, 0.02, 0.5, 1, 4])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--memory", choices=LOSSES, help="print only the memory of this loss")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with pyentmax.set_workers(args.threads):
        if args.memory:
            print(round(memory(args)))
            return
        keep_memory()
        print_table(args)


def layer(args: argparse.Namespace, classes: int, deviation: float) -> tuple[Tensor, ...]:
    """Inputs, rows and labels whose scores have that standard deviation."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((classes, WIDTH), np.float32) / np.sqrt(np.float32(WIDTH))
    x = np.float32(deviation) * rng.standard_normal((args.rows, WIDTH), np.float32)
    dtype = getattr(torch, args.dtype)
    given = [torch.from_numpy(array).to(dtype).requires_grad_() for array in (x, rows)]
    return *given, torch.from_numpy(rng.integers(0, classes, args.rows))


def both_passes(loss: Any, x: Tensor, rows: Tensor, y: Tensor) -> float:
    """Seconds of a forward and a backward pass."""
    x.grad = rows.grad = None
    start = time.perf_counter()
    loss(x, rows, y).backward()
    return time.perf_counter() - start


def memory(args: argparse.Namespace) -> float:
    """MB that a process grows by in both passes, without the gradients."""
    x, rows, y = layer(args, args.classes[0], args.deviations[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    both_passes(LOSSES[args.memory], x, rows, y)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return grown - sum(t.numel() * t.element_size() for t in (x, rows)) / 2**20


def print_table(args: argparse.Namespace) -> None:
    """The ratios, each beside what it is of."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {processor()}, PyTorch "
        f"{torch.__version__}, NumPy {np.__version__}, pyentmax {commit}; ({args.rows}, {WIDTH}), "
        f"{args.dtype}, {args.threads} thread(s), median of {args.rounds}\n"
    )
    others = list(LOSSES)[1:]
    print(f"| classes | deviation | density | cross_entropy | {' | '.join(others)} |")
    print("| --- " * (4 + len(others)) + "|")
    for classes in args.classes:
        for deviation in args.deviations:
            x, rows, y = layer(args, classes, deviation)
            with torch.no_grad():
                density = (pt.entmax15(x[:64].float() @ rows.float().T) > 0).float().mean().item()
            seconds: dict[str, list[float]] = {name: [] for name in LOSSES}
            for turn in range(-1, args.rounds):  # the first is a warm-up
                for name, loss in LOSSES.items():
                    taken = both_passes(loss, x, rows, y)
                    seconds[name] += [taken] * (turn >= 0)
            base, *rest = (statistics.median(each) for each in seconds.values())
            ratios = " | ".join(f"{each / base:.2f}" for each in rest)
            print(f"| {classes:,} | {deviation:g} | {density:.2g} | {base:.2f} s | {ratios} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
