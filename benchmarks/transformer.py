"""Training updates of the Transformer and of the same model in PyTorch, one thread each, in turns.

    python benchmarks/transformer.py [--pairs 40] [--attention softmax] [--width 128] [--profile]

Both sides get the same parameters and the same batches of 2,048 padded tokens, with sentences about
as long as Multi30k's in sub-words. First the losses without dropout are compared, then updates are
timed in turns, and the median of the ratios of neighbours is printed. `--profile` says where our
time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import time
from itertools import islice
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from pyentmax.engine.system.memory import keep_freed_memory  # noqa: E402
from pyentmax.seq2seq.autograd import Tensor  # noqa: E402
from pyentmax.seq2seq.data import TokenBatches  # noqa: E402
from pyentmax.seq2seq.decoding import greedy_search  # noqa: E402
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig  # noqa: E402
from pyentmax.seq2seq.nn.optim import Adam, clip_gradients  # noqa: E402


def corpus(vocabulary: int, count: int = 4000) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of random tokens with lengths like Multi30k's."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.gamma(9.0, 1.7, count), 4, 45).astype(int)
    others = np.clip(lengths + rng.integers(-3, 4, count), 3, 45)
    return [
        (rng.integers(4, vocabulary, n), rng.integers(4, vocabulary, m))
        for n, m in zip(lengths, others, strict=True)
    ]


class Ours:
    """Updates as the training loop does them."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.optimizer = Adam(model.params, (0.9, 0.98))
        self.rng = np.random.default_rng(1)

    def update(self, batch: Any) -> None:
        params = {name: Tensor(x, requires_grad=True) for name, x in self.model.params.items()}
        loss = self.model.loss(params, batch, self.rng)
        loss.backward()
        gradients = {name: x.grad for name, x in params.items() if x.grad is not None}
        clip_gradients(gradients, 1.0)
        self.optimizer.step(gradients, 1e-4)


class Theirs:
    """The same in PyTorch."""

    def __init__(self, model: Transformer, attention: str) -> None:
        import torch
        from torch_transformer import TorchTransformer

        torch.set_num_threads(1)
        mapping = None
        if attention not in ("softmax", "learned"):
            import entmax

            known = {"1.5": entmax.entmax15, "2": entmax.sparsemax}
            mapping = known.get(attention) or (
                lambda z: entmax.entmax_bisect(z, torch.tensor(float(attention)))
            )
        self.torch, self.model = torch, TorchTransformer(model, mapping)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True
        )

    def update(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.model.loss(batch).backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=40, help="of updates, ours and theirs")
    add("--attention", default="softmax", help="theirs: softmax, 1.5, 2, or bisection if learned")
    add("--output", default="softmax")
    add("--width", type=int, default=128)
    add("--tokens", type=int, default=2048)
    add("--vocabulary", type=int, default=4000)
    add("--dropout", type=float, default=0.3)
    add("--tied", default="output")
    add("--alone", action="store_true", help="ours only, for a machine without PyTorch")
    add("--decode", action="store_true", help="greedy search of 64 sentences, too")
    add("--profile", action="store_true", help="where our time goes")
    args = parser.parse_args()
    keep_freed_memory()
    config = TransformerConfig(
        args.vocabulary,
        args.vocabulary,
        width=args.width,
        layers=3,
        heads=4,
        inner=4 * args.width,
        dropout=args.dropout,
        attention=args.attention,
        output=args.output,
        tied=args.tied,
    )
    model = Transformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    batches = TokenBatches(corpus(args.vocabulary), args.tokens)
    chosen = list(islice(batches.epoch(np.random.default_rng(2)), 64))
    ours = Ours(model)
    sides: list[Any] = [ours]
    if not args.alone:
        theirs = Theirs(model, args.attention)
        theirs.model.eval()
        pair = (model.loss(model.params, chosen[0]).item(), theirs.model.loss(chosen[0]).item())
        print(f"loss of the same batch: ours {pair[0]:.6f}, PyTorch's {pair[1]:.6f}")
        theirs.model.train()
        sides.append(theirs)
    for side in sides:
        for batch in chosen[:3]:
            side.update(batch)
    if args.profile:
        with cProfile.Profile() as profile:
            for i in range(args.pairs):
                ours.update(chosen[i % len(chosen)])
        pstats.Stats(profile).sort_stats("tottime").print_stats(28)
        return
    seconds: list[list[float]] = [[] for _ in sides]
    tokens = 0
    for i in range(args.pairs):
        batch = chosen[i % len(chosen)]
        tokens += batches.count(batch)
        for side, times in zip(sides, seconds, strict=True):
            start = time.perf_counter()
            side.update(batch)
            times.append(time.perf_counter() - start)
    for name, times in zip(("ours", "PyTorch"), seconds, strict=False):
        rate = tokens / len(times) / np.median(times)
        print(f"{name:8} {1000 * np.median(times):7.1f} ms per update, {rate:7.0f} target tokens/s")
    if len(sides) > 1:
        ratio = np.median(np.array(seconds[1]) / np.array(seconds[0]))
        print(f"ours / PyTorch: {ratio:.2f} × the speed")
    if args.decode and not args.alone:
        theirs = Theirs(model, args.attention)
        _decode(model, theirs.model, args.pairs)


def _decode(model: Transformer, theirs: Any, pairs: int) -> None:
    """Greedy search in turns, with the untrained models: all strings reach the length limit."""
    theirs.eval()
    rng = np.random.default_rng(3)
    source = rng.integers(4, model.config.source_size, (64, 16))
    mask, steps = np.ones_like(source, bool), 16
    sides = [
        lambda: [x.tolist() for x in greedy_search(model, source, mask, max_length=steps)],
        lambda: theirs.greedy(source, mask, model.bos, model.eos, np.full(64, steps)),
    ]
    seconds: list[list[float]] = [[], []]
    for i in range(pairs // 2 + 1):
        found = []
        for side, times in zip(sides, seconds, strict=True):
            start = time.perf_counter()
            found.append(side())
            times.append(time.perf_counter() - start)
        if not i:
            same = np.mean([a == b for a, b in zip(*found, strict=True)])
            print(f"greedy search: {same:.0%} of the strings are the same")
    ratio = np.median(np.array(seconds[1][1:]) / np.array(seconds[0][1:]))
    ours = 1000 * np.median(seconds[0][1:])
    print(f"ours {ours:.0f} ms for 64 sentences; ours / PyTorch: {ratio:.2f} × the speed")


if __name__ == "__main__":
    main()
