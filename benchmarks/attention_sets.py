"""Attention over given keys, next to masked attention and to scatter softmax in plain PyTorch.

    python benchmarks/attention_sets.py [--rounds 3] [--only random window graphs]

Both passes, float32, one thread, CPU time: `pyentmax.torch.attention` with a set of keys as mask,
divided by `scaled_dot_product_attention` with a mask of bools (8 heads, 8,192 queries and keys of
64 features), and by softmax over the edges of a graph from `index_select`, `scatter_reduce` and
`index_add`. Calls alternate; the least of each is printed, and the medians' ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import pyentmax as pe
import pyentmax.torch as pt


def scatter_attention(query: Tensor, key: Tensor, value: Tensor, edges: Tensor) -> Tensor:
    """Softmax over the edges of each node: query, key, value (nodes, heads, d), edges (2, n)."""
    to, start = edges
    scores = (query.index_select(0, to) * key.index_select(0, start)).sum(-1) * key.shape[
        -1
    ] ** -0.5
    at = to[:, None].expand_as(scores)
    largest = torch.full(query.shape[:2], -torch.inf).scatter_reduce(0, at, scores.detach(), "amax")
    weights = (scores - largest.index_select(0, to)).exp()
    sums = torch.zeros(query.shape[:2]).index_add(0, to, weights)
    weights = weights / sums.index_select(0, to)
    terms = weights[..., None] * value.index_select(0, start)
    return torch.zeros(*query.shape[:2], value.shape[-1]).index_add(0, to, terms)


def window(t: int, width: int) -> Tensor:
    """The keys of a window behind each query, -1 where it begins before the first key."""
    return (torch.arange(t)[:, None] - torch.arange(width).flip(0)).clamp(-1)


def dense_cases(names: list[str]) -> Any:
    """Masked attention of 8 heads, and sets of keys."""
    t, heads, d = 8192, 8, 64
    arrays = [torch.randn(1, heads, t, d, requires_grad=True) for _ in range(3)]
    sets = {"random": lambda: torch.rand(t, t).topk(256).indices, "window": lambda: window(t, 256)}
    for name in names:
        if name not in sets:
            continue
        keys = sets[name]()
        mask = torch.zeros(t, t + 1, dtype=torch.bool).scatter(1, keys % (t + 1), True)[:, :t]
        mask = mask.contiguous()
        yield f"8 × 8,192² × 64, {name}, 256 keys", arrays, {
            "SDPA": lambda *x, m=mask: F.scaled_dot_product_attention(*x, m),
            "softmax": lambda *x, k=keys: pt.attention(*x, mapping="softmax", mask=k),
            "α = 1.5": lambda *x, k=keys: pt.attention(*x, mask=k),
        }  # fmt: skip


def graph_cases() -> Any:
    """Graphs whose nodes have equally many random neighbours."""
    for nodes, degree, heads, d in ((10_000, 16, 4, 16), (50_000, 8, 8, 8)):
        keys = torch.randint(nodes, (nodes, 2 * degree))
        keys = torch.stack([x.unique()[torch.randperm(len(x.unique()))[:degree]] for x in keys])
        edges = torch.stack([torch.arange(nodes).repeat_interleave(degree), keys.ravel()])
        arrays = [torch.randn(nodes, heads, d, requires_grad=True) for _ in range(3)]

        def over_sets(*x: Tensor, k: Tensor = keys, **options: Any) -> Tensor:
            return pt.attention(*(y.transpose(0, 1) for y in x), mask=k, **options).transpose(0, 1)

        yield f"{nodes:,} nodes × {degree}, {heads} × {d}", arrays, {
            "scatter softmax": lambda *x, e=edges: scatter_attention(*x, e),
            "softmax": lambda *x, f=over_sets: f(*x, mapping="softmax"),
            "α = 1.5": lambda *x, f=over_sets: f(*x),
        }  # fmt: skip


def measure(
    name: str, arrays: list[Tensor], calls: dict[str, Callable[..., Tensor]], n: int
) -> None:
    """Print the least time of each call, forward and both passes, and its share of the first's."""
    times: dict[str, list[tuple[float, float]]] = {call: [] for call in calls}
    for _ in range(n + 1):
        for call, run in calls.items():
            start = time.process_time()
            output = run(*arrays)
            middle = time.process_time()
            torch.autograd.grad(output, arrays, torch.ones_like(output))
            times[call].append((middle - start, time.process_time() - start))
    times = {call: rows[1:] for call, rows in times.items()}  # the first one warms up
    print(f"{name} (load {os.getloadavg()[0]:.1f})")
    first = next(iter(times.values()))
    for call, rows in times.items():
        forward, both = map(min, zip(*rows, strict=True))
        ratio = statistics.median(x / y for (_, x), (_, y) in zip(rows, first, strict=True))
        print(f"    {call:16} {both * 1e3:8.0f} ms ({forward * 1e3:.0f})  {ratio:.3f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    names = ["random", "window", "graphs"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with pe.set_workers(1):
        if "graphs" in arguments.only:
            for case in graph_cases():
                measure(*case, 5 * arguments.rounds)
        for case in dense_cases(arguments.only):
            measure(*case, arguments.rounds)


if __name__ == "__main__":
    main()
