"""One query against a cache of keys: pages skipped, compared with the full product and PyTorch.

    python benchmarks/attention_cache.py [--rounds 15] > experiments/measurements/attention_cache.md

Prints Markdown, a row as soon as it is measured. A number is a median over rounds in which all that
a row compares takes its turn, on one thread. Keys are either normal, all independent, or follow a
centre for 64 positions, from which they differ with a standard deviation of 0.3 (`--noise`). The
queries are normal with a standard deviation `scale`, so that scores have about that.
"""

from __future__ import annotations

import argparse
import datetime
import platform

import numpy as np
import torch
from attention import keep_memory, medians, processor
from torch.nn.functional import scaled_dot_product_attention

import pyentmax
from pyentmax import attention
from pyentmax.sparse_attention import KeyValueCache

D = 64
LENGTHS = [4096, 32_768, 131_072]
COLUMNS = ["heads", "keys", "which", "scale", "support", "pages skipped", "cache, ms"]
COLUMNS += ["full product q Kᵀ, ms", "PyTorch, ms", "`attention`, ms"]


def main() -> None:
    """Print the stamp and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="interleaved runs (default: 15)")
    parser.add_argument("--noise", type=float, default=0.3, help="around centres (default: 0.3)")
    args = parser.parse_args()
    keep_memory()
    torch.set_num_threads(1)
    print("# One query against a cache, measured\n")
    print(f"`python benchmarks/attention_cache.py`, {datetime.date.today()}: float32, α = 1.5,")
    print(f"{D} features, pages of 64 keys, medians of {args.rounds} interleaved rounds, one")
    print(f"thread, {processor()}, pyentmax {pyentmax.__version__}, PyTorch {torch.__version__},")
    print(f"NumPy {np.__version__}, {platform.platform()}.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    for heads, lengths in ((1, LENGTHS), (8, LENGTHS[:2])):
        for length in lengths:
            for which in ("independent", "clustered"):
                for scale in (1.0, 3.0):
                    noise = args.noise if which == "clustered" else None
                    cells = [f"{heads}", f"{length:,}", which, f"{scale:g}"]
                    cells += row(heads, length, noise, scale, args.rounds)
                    print(f"| {' | '.join(cells)} |", flush=True)


def row(heads: int, length: int, noise: float | None, scale: float, rounds: int) -> list[str]:
    """The measured cells of a case."""
    rng = np.random.default_rng(0)
    key, value = (rng.standard_normal((heads, length, D), np.float32) for _ in range(2))
    if noise is not None:
        centres = rng.standard_normal((heads, length // 64, D), np.float32)
        key = np.repeat(centres, 64, axis=1) + np.float32(noise) * key
    query = np.float32(scale) * rng.standard_normal((heads, 1, D), np.float32)
    cache = KeyValueCache()
    cache.append(key, value)
    tensors = [torch.from_numpy(x)[None] for x in (query, key, value)]
    column = np.ascontiguousarray(query[..., 0, :, None])
    product = np.empty((heads, length, 1), np.float32)

    def dense() -> object:
        with torch.no_grad():
            return scaled_dot_product_attention(*tensors)

    runs = {
        "cache": lambda: cache.attend(query),
        "product": lambda: np.matmul(key, column, out=product),
        "torch": dense,
        "attention": lambda: attention(query, key, value, workers=1),
    }
    taken = medians(runs, rounds)
    report = cache.attend(query)[1]
    cells = [f"{report.weights.support_sizes.mean():.0f}", f"{report.skipped:.0%}"]
    return cells + [f"{1e3 * taken[name]:.2f}" for name in runs]


if __name__ == "__main__":
    main()
