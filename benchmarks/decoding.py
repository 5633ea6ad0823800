"""One query to many keys, and one row of an output layer, compared with PyTorch's softmax.

    python benchmarks/decoding.py [--rounds 15] [--keys 1024 8192 131072] [--half bfloat16]

Prints Markdown. A number is a median over interleaved rounds, on one thread, divided by that of
`scaled_dot_product_attention` in the same rounds (or of product and `torch.softmax`). 8 heads of 64
features in float32; keys and values are normal, and the scale of the queries is the standard
deviation of the scores. "Bytes" are those of keys, values and copies that a query has to read.
With --half, tensors of that type, of which a screen converts what is read alone.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

import pyentmax as pe
import pyentmax.torch as pt

HEADS, D, WORDS, STATE = 8, 64, 32_000, 512


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="interleaved runs (default: 15)")
    parser.add_argument("--keys", type=int, nargs="+", default=[1024, 8192, 131072])
    parser.add_argument("--half", choices=["bfloat16", "float16"], help="a table of tensors only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"pyentmax {pe.__version__}, PyTorch {torch.__version__}, {datetime.date.today()}\n")
    with pe.set_workers(1), torch.no_grad():
        if args.half:
            print(f"| {args.half}: keys, std of scores | SDPA | tensors | `ScreenedRows` |\n"
                  "| --- | --- | --- | --- |")  # fmt: skip
            for keys in args.keys:
                for std in (1.0, 3.0):
                    half_row(keys, std, args.rounds, getattr(torch, args.half))
            return
        print("| keys, std of scores | SDPA | arrays | tensors | `ScreenedRows`, arrays | tensors |"
              " kept for scoring | bytes | made in |\n|" + " --- |" * 9)  # fmt: skip
        for keys in args.keys:
            for std in (1.0, 3.0):
                attention_row(keys, std, args.rounds)
        print("\n| rows, std of scores | product and softmax | `entmax_linear` | scored |\n"
              "| --- | --- | --- | --- |")  # fmt: skip
        for rows in (1, 5):
            for std in (2.0, 4.0):
                linear_row(rows, std, args.rounds)


def medians(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if i:  # the first warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def attention_row(keys: int, std: float, rounds: int) -> None:
    """One query for each head."""
    rng = np.random.default_rng(0)
    key, value = rng.standard_normal((2, 1, HEADS, keys, D)).astype(np.float32)
    query = (std * rng.standard_normal((1, HEADS, 1, D))).astype(np.float32)
    start = time.perf_counter()
    rows = pe.ScreenedRows(key)
    made = time.perf_counter() - start
    tensors = [torch.from_numpy(x) for x in (query, key, value)]
    t_rows = pt.ScreenedRows(tensors[1])
    runs: dict[str, Callable[[], object]] = {
        "sdpa": lambda: scaled_dot_product_attention(*tensors),
        "arrays": lambda: pe.attention(query, key, value),
        "tensors": lambda: pt.attention(*tensors),
        "screened": lambda: pe.attention(query, rows, value),
        "screened tensors": lambda: pt.attention(tensors[0], t_rows, tensors[2]),
    }
    output, weights = pe.attention(query, rows, value, return_weights=True)
    np.testing.assert_allclose(output, pe.attention(query, key, value), rtol=0, atol=1e-5)
    candidates = 0
    for h in range(HEADS):
        own = pe.ScreenedRows(key[0, h])
        _, counts = pe.entmax_linear(query[0, h], own, scale=D**-0.5, return_counts=True)
        candidates += counts[0]
    read = rows.copies.nbytes + rows.bounds.nbytes + 4 * D * (candidates + len(weights.data))
    taken = medians(runs, rounds)
    unit = taken.pop("sdpa")
    ratios = " | ".join(f"{each / unit:.2f}" for each in taken.values())
    print(
        f"| {keys:,}, {std:g} | {1e3 * unit:.2f} ms | {ratios} | {candidates / HEADS:.0f} of "
        f"{keys:,} | {read / (key.nbytes + value.nbytes):.3f} | {made / unit:.1f} queries |",
        flush=True,
    )


def half_row(keys: int, std: float, rounds: int, dtype: torch.dtype) -> None:
    """One query for each head, of a half type."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, HEADS, n, D, generator=generator).to(dtype) for n in (1, keys, keys)
    )
    query, rows = std * query, pt.ScreenedRows(key)
    taken = medians(
        {
            "sdpa": lambda: scaled_dot_product_attention(query, key, value),
            "tensors": lambda: pt.attention(query, key, value),
            "screened": lambda: pt.attention(query, rows, value),
        },
        rounds,
    )
    unit = taken.pop("sdpa")
    ratios = " | ".join(f"{each / unit:.2f}" for each in taken.values())
    print(f"| {keys:,}, {std:g} | {1e3 * unit:.2f} ms | {ratios} |", flush=True)


def linear_row(count: int, std: float, rounds: int) -> None:
    """An output layer of 32,000 words."""
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((WORDS, STATE)) / np.sqrt(STATE)).astype(np.float32)
    x = (std * rng.standard_normal((count, STATE))).astype(np.float32)
    rows, tensors = pe.ScreenedRows(matrix), (torch.from_numpy(x), torch.from_numpy(matrix))
    _, counts = pe.entmax_linear(x, rows, return_counts=True)
    taken = medians(
        {
            "softmax": lambda: torch.softmax(tensors[0] @ tensors[1].T, dim=-1),
            "ours": lambda: pe.entmax_linear(x, rows),
        },
        rounds,
    )
    print(
        f"| {count}, {std:g} | {1e3 * taken['softmax']:.2f} ms | "
        f"{taken['ours'] / taken['softmax']:.2f} | {counts.mean():.0f} of {WORDS:,} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
