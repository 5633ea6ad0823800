"""α-entmax attention of PyTorch's tensors on a GPU: Triton, AdaSplash, and softmax.

    python benchmarks/gpu_attention_torch.py [--tokens 1024 4096] [--rows 64 --keys 64 --warps 8]

Prints Markdown, a row as soon as it is measured: milliseconds forward / forward and backward, each
a median over interleaved rounds from the call to where the device has done it, and the largest
difference of Triton's output from α-entmax in double precision, in 8 of the queries. Queries, keys
and values are normal, queries times the scale, so that scores have about that as their standard
deviation. What fails, or is not installed, is named below the table. `--rows`, `--keys`, `--warps`
and `--stages` replace what `triton_attention` chooses for its tiles. Without a GPU nothing is
measured, and that is said; `--device cpu` with TRITON_INTERPRET=1 tries the script itself.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import pyentmax
from pyentmax.torch.attention_problem import TensorProblem

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
ROUTES = ("triton", "adasplash", "sdpa (softmax)")
COLUMNS = ["tokens", "D", "causal", "dtype", "scale", "α", "passes", "largest error", *ROUTES]

Function = Callable[[Any, Any, Any], Any]


def main(arguments: list[str] | None = None) -> None:
    """Print a table with a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096, 8192, 32768])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float16", "bfloat16"])
    parser.add_argument("--scales", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    parser.add_argument("--alphas", type=float, nargs="+", default=[1.5, 2.0])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    for name in ("rows", "keys", "warps", "stages"):
        parser.add_argument(f"--{name}", type=int, help="of a tile; by default chosen for the case")
    args = parser.parse_args(arguments)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("SKIPPED: no CUDA device, so none of", ", ".join(ROUTES), "is measured")
        return
    card = torch.cuda.get_device_name() if args.device == "cuda" else "no GPU"
    tiles = {"ROWS": args.rows, "KEYS": args.keys, "num_warps": args.warps}
    tiles = {k: v for k, v in {**tiles, "num_stages": args.stages}.items() if v is not None}
    if importlib.util.find_spec("triton"):
        importlib.import_module("pyentmax.torch.triton_attention").TILES.update(tiles)
    print("# Attention of PyTorch's tensors on a GPU, measured\n")
    print(
        f"`benchmarks/gpu_attention_torch.py`, {datetime.date.today()}, {card}, {args.heads} heads,"
    )
    print(f"pyentmax {pyentmax.__version__}, {', '.join(map(_version, PACKAGES))};")
    print(f"tiles {tiles or 'as chosen'}; ms forward / with gradients, {args.rounds} rounds.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    failed: dict[str, str] = {}
    cases = (args.tokens, args.sizes, (False, True), args.dtypes, args.scales, args.alphas)
    for case in itertools.product(*cases):
        cells = row(case, args.heads, args.rounds, args.device, failed)
        print(f"| {' | '.join(cells)} |", flush=True)
    for name, why in failed.items():
        print(f"\nSKIPPED: {name}: {why}")


PACKAGES = ("torch", "triton", "adasplash")


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def row(
    case: tuple[Any, ...], heads: int, rounds: int, device: str, failed: dict[str, str]
) -> list[str]:
    """The cells of a case."""
    tokens, size, causal, dtype, scale, alpha = case
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(1, heads, tokens, size, generator=generator) for _ in range(4)]
    drawn[0] *= scale
    *inputs, gradient = (x.to(device, DTYPES[dtype]) for x in drawn)
    cells = [f"{tokens:,}", str(size), str(causal), dtype, f"{scale:g}", f"{alpha:g}"]
    functions = routes(alpha, causal, size**-0.5)
    passes, error = "–", "–"
    runs: dict[str, Callable[[], Any]] = {}
    for name, function in functions.items():
        pair = {name: _forward(function, inputs), f"{name} +": _both(function, inputs, gradient)}
        try:
            output = pair[name]()
            pair[f"{name} +"]()
        except Exception as fault:  # whatever a peer raises, the others are measured
            failed.setdefault(name, f"{type(fault).__name__}: {fault}".splitlines()[0])
            continue
        runs |= pair
        if name == "triton":
            output, counted = output
            passes = f"{counted.float().mean():.1f} to {counted.max()}"
            error = f"{_error(output, inputs, alpha, causal, size**-0.5):.0e}"
    taken = _medians(runs, rounds, device)
    times = [f"{taken[n]:.3f} / {taken[n + ' +']:.3f}" if n in taken else "–" for n in ROUTES]
    return [*cells, passes, error, *times]


def routes(alpha: float, causal: bool, scale: float) -> dict[str, Function]:
    """Attention by each route; Triton's returns its passes, too."""

    def by_triton(query: Any, key: Any, value: Any) -> Any:
        module = importlib.import_module("pyentmax.torch.triton_attention")
        setting = None, None, causal, 0, scale, None, None, "scores", None, None, None
        problem = TensorProblem(query, key, value, "entmax", None, alpha, *setting)
        return module.triton_attention(problem)

    def by_adasplash(query: Any, key: Any, value: Any) -> Any:
        splash = importlib.import_module("adasplash").adasplash
        return splash(query, key, value, alpha=alpha, is_causal=causal)

    def by_softmax(query: Any, key: Any, value: Any) -> Any:
        dense = torch.nn.functional.scaled_dot_product_attention
        return dense(query, key, value, is_causal=causal, scale=scale)

    return dict(zip(ROUTES, (by_triton, by_adasplash, by_softmax), strict=True))


def _forward(function: Function, inputs: list[Any]) -> Callable[[], Any]:
    def run() -> Any:
        with torch.no_grad():
            return function(*inputs)

    return run


def _both(function: Function, inputs: list[Any], gradient: Any) -> Callable[[], Any]:
    def run() -> Any:
        leaves = [x.detach().requires_grad_() for x in inputs]
        output = function(*leaves)
        output = output[0] if isinstance(output, tuple) else output
        return torch.autograd.grad(output, leaves, gradient)

    return run


def _error(output: Any, inputs: list[Any], alpha: float, causal: bool, scale: float) -> float:
    query, key, value = (x[0, 0].double().cpu() for x in inputs)
    places = torch.linspace(0, len(query) - 1, 8).long()
    scores = scale * query[places] @ key.T
    if causal:
        hidden = torch.arange(len(key)) > places[:, None]
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = torch.from_numpy(pyentmax.entmax(scores.numpy(), alpha))
    return float((output[0, 0].double().cpu()[places] - weights @ value).abs().max())


def _medians(runs: dict[str, Callable[[], Any]], rounds: int, device: str) -> dict[str, float]:
    """Milliseconds of each, taken in turns."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _, (name, run) in itertools.product(range(rounds), runs.items()):
        wait()
        start = time.perf_counter()
        run()
        wait()
        taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(each) for name, each in taken.items()}


if __name__ == "__main__":
    main()
