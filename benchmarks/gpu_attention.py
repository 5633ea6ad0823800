"""Sparse attention on a GPU compared with PyTorch's dense attention and AdaSplash.

    python benchmarks/gpu_attention.py [--quick] > experiments/measurements/gpu_attention.md

Prints Markdown, a row as soon as it is measured. A number is a median over interleaved rounds, from
the call to where the device has done it. Queries, keys and values are normal, queries times the
scale, so that scores have about that; training is output and gradients. A peer that is not
installed is left out.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyentmax
from pyentmax.engine.calls.devices import device_module

HEADS, D = 8, 64
LENGTHS, QUICK = [1024, 4096, 16384], [128]
SCALES = [1.0, 3.0]
ALPHAS = [1.5, 2.0]
COLUMNS = ["tokens", "scale", "α", "dtype", "support", "largest error"]
RUNS = ["pyentmax", "pyentmax trained", "torch", "torch trained", "adasplash", "adasplash trained"]


def main(arguments: list[str] | None = None) -> None:
    """Print a table with a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="interleaved runs (default: 20)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} tokens only")
    args = parser.parse_args(arguments)
    cupy = device_module("cuda")
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    if torch is not None and not torch.cuda.is_available():
        torch = None
    print("# Sparse attention on a GPU, measured\n")
    print(f"`python benchmarks/gpu_attention.py`, {datetime.date.today()}, {pyentmax.__version__}:")
    print(f"{HEADS} heads of {D} features, medians of {args.rounds} interleaved rounds, in ms.\n")
    print(f"| {' | '.join(COLUMNS + RUNS)} |\n|{' --- |' * len(COLUMNS + RUNS)}", flush=True)
    for length in QUICK if args.quick else LENGTHS:
        for dtype in (np.float32, np.float16):
            for scale in SCALES:
                for alpha in ALPHAS:
                    cells = row(cupy, torch, length, scale, alpha, np.dtype(dtype), args.rounds)
                    print(f"| {' | '.join(cells)} |", flush=True)


def row(
    cupy: Any, torch: Any, length: int, scale: float, alpha: float, dtype: Any, rounds: int
) -> list[str]:
    """The cells of a case."""
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal((1, HEADS, length, D), np.float32) for _ in range(4)]
    drawn[0] *= scale
    query, key, value, g = (cupy.asarray(x.astype(dtype)) for x in drawn)
    output, weights = pyentmax.attention(query, key, value, alpha, return_weights=True)
    some = [np.asarray(x[:, :1], dtype).astype(np.float64) for x in drawn]
    expected = pyentmax.attention(some[0][:, :, :8], some[1], some[2], alpha)
    error = np.abs(cupy.asnumpy(output)[:, :1, :8] - expected).max()

    def trained() -> object:
        output, weights = pyentmax.attention(query, key, value, alpha, return_weights=True)
        return output, pyentmax.attention_vjp(weights, query, key, value, g, alpha)

    runs: dict[str, Callable[[], object]] = {
        "pyentmax": lambda: pyentmax.attention(query, key, value, alpha),
        "pyentmax trained": trained,
    }
    if torch is not None:
        tensors = [torch.from_dlpack(x) for x in (query, key, value, g)]
        runs |= peers(torch, tensors, alpha)
    taken = medians(cupy, runs, rounds)
    support = f"{float(weights.support_sizes.mean()):.0f} ({weights.density:.2%})"
    cells = [f"{length:,}", f"{scale:g}", f"{alpha:g}", dtype.name, support, f"{error:.1e}"]
    return cells + [f"{taken[name]:.3f}" if name in taken else "–" for name in RUNS]


def peers(torch: Any, tensors: list[Any], alpha: float) -> dict[str, Callable[[], object]]:
    """What computes attention there: PyTorch's own, with softmax, and AdaSplash's with α-entmax."""
    *inputs, g = tensors
    dense = torch.nn.functional.scaled_dot_product_attention
    functions: dict[str, Callable[..., Any]] = {"torch": dense}
    if importlib.util.find_spec("adasplash"):
        splash = importlib.import_module("adasplash").adasplash
        functions["adasplash"] = lambda q, k, v: splash(q, k, v, alpha=alpha, is_causal=False)

    def trained(function: Callable[..., Any]) -> object:
        leaves = [x.detach().requires_grad_(True) for x in inputs]
        return torch.autograd.grad(function(*leaves), leaves, g)

    def forward(function: Callable[..., Any]) -> object:
        with torch.no_grad():
            return function(*inputs)

    runs: dict[str, Callable[[], object]] = {}
    for name, function in functions.items():
        runs[name] = lambda function=function: forward(function)
        runs[f"{name} trained"] = lambda function=function: trained(function)
    return runs


def medians(cupy: Any, runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of each, taken in turns."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for warm in (True, *(False,) * rounds):
        for name, run in runs.items():
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            run()
            cupy.cuda.Device().synchronize()
            if not warm:
                taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(each) for name, each in taken.items()}


if __name__ == "__main__":
    main()
