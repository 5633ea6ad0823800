"""Attention of one query, call by call, next to PyTorch's `scaled_dot_product_attention`.

    python benchmarks/short_attention.py [--keys 256 1024 8192] [--rounds 300]

8 heads of 64 features, one thread. Calls alternate; the medians' ratios are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F

import pyentmax as pe
import pyentmax.torch as pt


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[64, 256, 1024, 8192])
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    rng = np.random.default_rng(0)
    with pe.set_workers(1):
        for n in arguments.keys:
            measure(n, arguments.rounds, rng)


def measure(n: int, rounds: int, rng: np.random.Generator) -> None:
    """Measure and print the calls with n keys."""
    key, value = rng.standard_normal((2, 1, 8, n, 64)).astype(np.float32)
    query = rng.standard_normal((1, 8, 1, 64)).astype(np.float32)
    q, k, v = map(torch.from_numpy, (query, key, value))
    screened, rows = pe.ScreenedRows(key), pt.ScreenedRows(k)
    calls = {
        "SDPA": lambda: F.scaled_dot_product_attention(q, k, v),
        "arrays": lambda: pe.attention(query, key, value, 1.5),
        "tensors": lambda: pt.attention(q, k, v, 1.5),
        "screened arrays": lambda: pe.attention(query, screened, value, 1.5),
        "screened tensors": lambda: pt.attention(q, rows, v, 1.5),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    sdpa = {"median": statistics.median(times["SDPA"]), "least": min(times["SDPA"])}
    print(f"{n:,} keys: SDPA {sdpa['median'] * 1e6:.0f} µs", end="")
    for name in list(calls)[1:]:
        ratio = statistics.median(times[name]) / sdpa["median"]
        print(f"; {name} {ratio:.2f} ({min(times[name]) / sdpa['least']:.2f})", end="")
    print(f"; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
