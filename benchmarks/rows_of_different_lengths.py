"""Rows of different lengths: `by_rows` compared with dense rows and with NumPy's `reduceat`.

    python benchmarks/rows_of_different_lengths.py [--rounds 15]

One thread, float32, 100,000 rows of 1 to 64 scores: the time relative to a dense call on as many
entries in rows of 32, and to a softmax by `numpy.ufunc.reduceat`, interleaved medians.
"""

from __future__ import annotations

import argparse
import datetime
import platform
from collections.abc import Callable
from functools import partial

import numpy as np
from structured import medians

import pyentmax

ROWS, LONGEST, DENSE = 100_000, 64, 32


def main() -> None:
    """Print the stamp and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="interleaved runs (default: 15)")
    args = parser.parse_args()
    print(f"{datetime.date.today()}, float32, {platform.platform()}")
    pyentmax.show_config()
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, LONGEST + 1, ROWS))])
    z = rng.standard_normal(offsets[-1]).astype(np.float32)
    dense = z[: len(z) // DENSE * DENSE].reshape(-1, DENSE)
    functions: dict[str, Callable[..., object]] = {
        "softmax": pyentmax.softmax,
        "sparsemax": pyentmax.sparsemax,
        "entmax15": pyentmax.entmax15,
        "entmax 1.25": partial(pyentmax.entmax, alpha=1.25),
    }
    runs: dict[str, Callable[[], object]] = {"reduceat": lambda: by_reduceat(z, offsets)}
    for name, function in functions.items():
        runs[f"{name} by rows"] = partial(pyentmax.by_rows, function, (z,), offsets)
        runs[f"{name} dense"] = partial(function, dense)
    with pyentmax.set_workers(1):
        taken = medians(runs, args.rounds)
    print(f"\n{'':>12} {'ms':>7} {'/ dense':>8} {'/ reduceat':>10}")
    for name in functions:
        seconds = taken[f"{name} by rows"]
        ratios = (seconds / taken[f"{name} dense"], seconds / taken["reduceat"])
        print(f"{name:>12} {seconds * 1e3:7.2f} {ratios[0]:8.2f} {ratios[1]:10.2f}")


def by_reduceat(z: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Softmax of rows without a loop, as NumPy has it; no row may be empty."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    e = np.exp(z - np.repeat(np.maximum.reduceat(z, starts), lengths))
    return e / np.repeat(np.add.reduceat(e, starts), lengths)


if __name__ == "__main__":
    main()
