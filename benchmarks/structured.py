"""The structured and bounded mappings: kernels compared with softmax's and with NumPy bodies.

    python benchmarks/structured.py [--rounds 7]

First how many times as long as `pyentmax.softmax` each mapping takes, and soft sorting, on normal
float32 scores. Then how many times as long a body takes per row as the kernel, for the mapping and
for its Jacobian's product, at three scales. fusedmax's body takes a Python step per entry, for all
rows at once: it gets only 64 of the long rows, since a run would take half a minute.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyentmax
from pyentmax.sorting import (
    soft_rank,
    soft_rank_vjp,
    soft_sort,
    soft_sort_vjp,
    soft_topk,
    soft_topk_vjp,
)

SHAPES = [(2048, 64), (512, 4096)]
SCALES = [0.1, 1, 5]


def main() -> None:
    """Print the stamp and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="interleaved runs (default: 7)")
    args = parser.parse_args()
    with pyentmax.set_workers(1):
        measure(args.rounds)


def measure(rounds: int) -> None:
    """One thread, every shape, scale and mapping."""
    print(f"{datetime.date.today()}, float32, {platform.platform()}")
    pyentmax.show_config()
    print("\ntimes softmax, normal scores")
    columns = [times_softmax(shape, rounds) for shape in [(1000, 1000), (2048, 64)]]
    print(f"{'':>24}{'1000×1000':>10}{'2048×64':>10}")
    for name in columns[0]:
        print(f"{name:>24}" + "".join(f"{column[name]:10.1f}" for column in columns))
    print("\nbody / kernel, in time a row (µs per row of the kernel)")
    print(f"{'shape':>10} {'scale':>5} {'mapping':>16} {'given':>9} {'forward':>16}{'product':>16}")
    for shape in SHAPES:
        for scale in SCALES:
            z = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            for name, words, parameter in cases(shape):
                report(name, words, z * np.float32(scale), scale, parameter, rounds)


def times_softmax(shape: tuple[int, int], rounds: int) -> dict[str, float]:
    """What each function takes, in units of what softmax takes."""
    z = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    g, tight, loose = z[::-1].copy(), np.full_like(z, 5 / shape[1]), np.full_like(z, 0.5)
    runs: dict[str, Callable[[], object]] = {
        "softmax": lambda: pyentmax.softmax(z),
        "csparsemax, 5/d": lambda: pyentmax.csparsemax(z, tight),
        "csoftmax, 5/d": lambda: pyentmax.csoftmax(z, tight),
        "csparsemax, 0.5": lambda: pyentmax.csparsemax(z, loose),
        "budget_sparsemax, 8": lambda: pyentmax.budget_sparsemax(z, 8),
        "normmax, 2": lambda: pyentmax.normmax(z, 2),
        "fusedmax, 1": lambda: pyentmax.fusedmax(z, 1),
        "oscarmax, 1": lambda: pyentmax.oscarmax(z, 1),
        "oscarmax, 0.1/d": lambda: pyentmax.oscarmax(z, 0.1 / shape[1]),
        "soft_rank, 1": lambda: soft_rank(z),
        "soft_rank, 0.01": lambda: soft_rank(z, 0.01),
        "soft_rank_vjp, 0.01": lambda: soft_rank_vjp(z, g, 0.01),
        "soft_sort, 1": lambda: soft_sort(z),
        "soft_sort_vjp, 1": lambda: soft_sort_vjp(z, g),
        "soft_topk, 8": lambda: soft_topk(z, 8),
        "soft_topk_vjp, 8": lambda: soft_topk_vjp(z, g, 8),
    }
    taken = medians(runs, rounds)
    return {name: seconds / taken["softmax"] for name, seconds in taken.items()}


def cases(shape: tuple[int, int]) -> list[tuple[str, str, Any]]:
    """Mappings, what their parameter is in words, and the parameter."""
    d = shape[1]
    upper = np.random.default_rng(1).uniform(0, 8 / d, shape).astype(np.float32)
    return [
        ("fusedmax", "0.1", 0.1),
        ("oscarmax", f"0.1/{d}", 0.1 / d),
        ("csoftmax", f"to 8/{d}", upper),
        ("csparsemax", f"to 8/{d}", upper),
        ("budget_sparsemax", f"{d // 16}", d // 16),
        ("normmax", "2", 2),
    ]


def report(name: str, words: str, z: np.ndarray, scale: float, parameter: Any, rounds: int) -> None:
    """One line."""
    forward, product = getattr(pyentmax, name), getattr(pyentmax, name).jvp
    p, v = forward(z, parameter), z[::-1].copy()
    few = slice(64 if name == "fusedmax" and z.shape[1] > 1000 else None)
    part = parameter[few] if np.ndim(parameter) else parameter
    runs = {
        "forward": lambda: forward(z, parameter),
        "forward body": lambda: forward.reference(z[few], part),
        "product": lambda: product(p, v, parameter),
        "product body": lambda: product.reference(p[few], v[few], part),
    }
    taken = medians(runs, rounds)
    ratios = []
    for part_name in ("forward", "product"):
        row = taken[part_name] / z.shape[0]
        body = taken[f"{part_name} body"] / z[few].shape[0]
        ratios.append(f"{body / row:7.1f} ({row * 1e6:6.1f})")
    columns = "".join(ratios)
    print(f"{z.shape[0]:>5}×{z.shape[1]:<4} {scale:>5} {name:>16} {words:>9} {columns}", flush=True)


def medians(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Processor seconds of each run: the median over rounds in which each takes its turn."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.thread_time()
            run()
            seconds[name].append(time.thread_time() - start)
    return {name: float(np.median(taken)) for name, taken in seconds.items()}


if __name__ == "__main__":
    main()
