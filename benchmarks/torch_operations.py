"""pyentmax.torch compared with entmax and torch.softmax: forward, backward, and a training run.

    python benchmarks/torch_operations.py [--rounds 9] > experiments/measurements/torch.md

Prints Markdown. All that a row compares takes its turn in each round, and a number is a median over
rounds; one thread. The training is that of a small Transformer, twice from the same parameters on
the same batches: with entmax's operations in its attention and loss, and with ours.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import entmax
import torch
from cpu import keep_memory, processor
from torch import Tensor, nn

import pyentmax
import pyentmax.torch
from pyentmax.torch import entmax as ours

SHAPES = [(128, 32000), (512, 4096), (2048, 64), (1, 8)]
MAPPINGS: dict[str, Callable[[Any], Callable[[Tensor], Tensor]]] = {
    "sparsemax": lambda package: package.sparsemax,
    "1.5-entmax": lambda package: package.entmax15,
    "α = 1.25": lambda package: lambda z: package.entmax_bisect(z, 1.25),
}


def main() -> None:
    """Print the stamp, the tables and the training."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=300, help="of the training (default: 300)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    with pyentmax.set_workers(1):
        print_stamp(args)
        operations(args.rounds)
        over_and_over(args.rounds)
        training(args.steps)


def print_stamp(args: argparse.Namespace) -> None:
    """What was measured, on what, when."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"""# In PyTorch, measured

`python benchmarks/torch_operations.py`, {datetime.date.today()}, commit {commit or "unknown"}:
float32, medians of {args.rounds} interleaved rounds, one thread of an {processor()};
PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}),
entmax {entmax.__version__}, Python {platform.python_version()}.
""")


def operations(rounds: int) -> None:
    """Forward, and forward and backward."""
    print("""## Operations

Standard normal scores times a scale. Milliseconds forward, and forward and backward; then how many
times as long entmax takes, and our multiple of `torch.softmax`, both forward and backward.

| shape | scale | mapping | entmax | ours | entmax / ours | ours / softmax |
| --- | --- | --- | --- | --- | --- | --- |""")
    generator = torch.Generator().manual_seed(0)
    for shape in SHAPES:
        for scale in (1, 4):
            z = (scale * torch.randn(shape, generator=generator)).requires_grad_()
            g = torch.randn(shape, generator=generator)
            for name, choose in MAPPINGS.items():
                softmax: Callable[[Tensor], Tensor] = lambda z: torch.softmax(z, -1)  # noqa: E731
                functions = [choose(entmax), choose(ours), softmax]
                calls = 1 if shape[0] > 1 else 100
                forward, both = measured(functions, z, g, rounds, calls)
                print(
                    f"| {shape[0]}×{shape[1]} | {scale} | {name} "
                    f"| {forward[0]:.3g}, {both[0]:.3g} | {forward[1]:.3g}, {both[1]:.3g} "
                    f"| {both[0] / both[1]:.3g} | {both[1] / both[2]:.2f} |",
                    flush=True,
                )


def over_and_over(rounds: int) -> None:
    """Short rows with nothing in between: forward, and forward and backward."""
    print("""
## Called over and over

2,048 rows of 64 as above, but each function 20 times in a row, so that its code and data are in the
caches. Microseconds forward, and forward and backward; then as above.

| mapping | entmax | ours | torch.softmax | entmax / ours | ours / softmax |
| --- | --- | --- | --- | --- | --- |""")
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2048, 64, generator=generator).requires_grad_()
    g = torch.randn(2048, 64, generator=generator)
    for name in ("sparsemax", "1.5-entmax"):
        choose = MAPPINGS[name]
        softmax: Callable[[Tensor], Tensor] = lambda z: torch.softmax(z, -1)  # noqa: E731
        forward, both = measured([choose(entmax), choose(ours), softmax], z, g, rounds, 20)
        cells = " | ".join(
            f"{1e3 * a:.0f}, {1e3 * b:.0f}" for a, b in zip(forward, both, strict=True)
        )
        print(
            f"| {name} | {cells} | {both[0] / both[1]:.3g} | {both[1] / both[2]:.2f} |", flush=True
        )


def measured(
    functions: list[Callable[[Tensor], Tensor]], z: Tensor, g: Tensor, rounds: int, calls: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of each function, forward alone and with its backward."""
    forward: list[list[float]] = [[] for _ in functions]
    both: list[list[float]] = [[] for _ in functions]
    still = z.detach()
    for _ in range(rounds + 1):  # the first warms up
        for i, function in enumerate(functions):
            start = time.perf_counter()
            for _ in range(calls):
                function(still)
            middle = time.perf_counter()
            for _ in range(calls):
                torch.autograd.grad(function(z), z, g)
            forward[i].append((middle - start) / calls * 1e3)
            both[i].append((time.perf_counter() - middle) / calls * 1e3)
    return (
        [statistics.median(times[1:]) for times in forward],
        [statistics.median(times[1:]) for times in both],
    )


class Transformer(nn.Module):
    """A language model with one layer of causal attention, its mapping and loss a package's."""

    def __init__(self, package: ModuleType, words: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.map, self.loss = heads, package.entmax15, package.Entmax15Loss()
        self.embedding = nn.Embedding(words, width)
        self.positions = nn.Parameter(0.1 * torch.randn(64, width))
        self.project = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.output = nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        """The loss of each word after those before it."""
        before, after = words[:, :-1], words[:, 1:]
        x = self.embedding(before) + self.positions[: before.shape[1]]
        b, t, n = x.shape
        parts = self.project(self.norms[0](x)).view(b, t, 3, self.heads, n // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / (n // self.heads) ** 0.5
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = self.map(scores.masked_fill(future, -torch.inf))
        x = x + self.mixed((weights @ value).transpose(1, 2).reshape(b, t, n))
        x = x + self.feed(self.norms[1](x))
        scores = self.output(self.norms[2](x))
        return self.loss(scores.reshape(b * t, -1), after.reshape(b * t))


def training(steps: int) -> None:
    """The same training with either package."""
    found: dict[str, tuple[list[float], float]] = {}
    for name, package in (("entmax", entmax), ("ours", ours)):
        torch.manual_seed(0)
        model = Transformer(package, words=2000, width=64, heads=4)
        adam = torch.optim.Adam(model.parameters(), 1e-3)
        generator = torch.Generator().manual_seed(1)
        losses, start = [], time.perf_counter()
        for _ in range(steps):
            # Counting from a random word on, in steps of 1 to 3: to be learned by looking back.
            first = torch.randint(1900, (16, 1), generator=generator)
            step = torch.randint(1, 4, (16, 1), generator=generator)
            loss = model(first + step * torch.arange(33))
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
        found[name] = losses, time.perf_counter() - start
    (theirs, their_time), (mine, my_time) = found["entmax"], found["ours"]
    apart = max(abs(a - b) for a, b in zip(theirs, mine, strict=True))
    print(f"""
## A training

A Transformer of one layer (2,000 words, width 64, 4 heads, 16 sequences of 32 words), 1.5-entmax in
attention and loss, {steps} updates of Adam, float32, both times from the same parameters.

| | entmax | ours |
| --- | --- | --- |
| seconds | {their_time:.1f} | {my_time:.1f} |
| loss of the first update | {theirs[0]:.6f} | {mine[0]:.6f} |
| loss of the last update | {theirs[-1]:.6f} | {mine[-1]:.6f} |

At no update are the two losses further apart than {apart:.0e}.""")


if __name__ == "__main__":
    main()
