"""Training throughput of the sequence-to-sequence model beside PyTorch, in one run.

    python benchmarks/seq2seq.py [--hidden 128] [--layers 1] [--batch-size 64] [--threads 1]

Both train the same architecture (encoder of two half-width LSTMs, input feeding, bilinear
attention, dropout 0.3, Adam, clipping at 5) on the same batches of the bundled verbs. The two take
turns, a block of batches each, and the ratio is taken block by block, so that a drift of the
machine's speed hits both.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from pathlib import Path


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--block", type=int, default=12, help="batches a block")
    parser.add_argument("--attention", default="1.5", choices=("1", "1.5", "2"))
    parser.add_argument("--loss", default="1.5", choices=("1", "1.5", "2"))
    args = parser.parse_args()
    # BLAS reads these when NumPy is imported, which is why the imports come below.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    compare(args)


def compare(args: argparse.Namespace) -> None:
    """Time blocks of training steps of both models in turn."""
    import numpy as np
    import torch

    sys.path.insert(0, str(Path(__file__).parent))
    from torch_seq2seq import TorchSeq2Seq

    import pyentmax
    from pyentmax.autograd import Tensor
    from pyentmax.data import bucketed_batches, english_verbs, make_batch
    from pyentmax.inflection import Inflector
    from pyentmax.nn.optim import Adam, clip_gradients

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    examples = english_verbs()
    inflector = Inflector.untrained(
        examples,
        np.random.default_rng(0),
        hidden=args.hidden,
        layers=args.layers,
        dropout=0.3,
        attention=args.attention,
        output=args.loss,
    )
    model, rng = inflector.model, np.random.default_rng(1)
    pairs = inflector.pairs(examples)
    order = bucketed_batches(pairs, args.batch_size, rng)
    batches = [make_batch(pairs, index) for index in order if len(index) == args.batch_size]
    optimizer = Adam(model.params)

    theirs = TorchSeq2Seq(
        len(inflector.source),
        len(inflector.target),
        args.hidden,
        args.layers,
        0.3,
        args.attention,
        args.loss,
    )
    torch_optimizer = torch.optim.Adam(theirs.parameters(), lr=3e-3, fused=True)
    torch_batches = [
        [
            torch.from_numpy(x)
            for x in (b.source, b.source_mask, b.target_in, b.target_out, b.target_mask)
        ]
        for b in batches
    ]

    def ours_step(i: int) -> float:
        batch = batches[i]
        params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
        loss = model.loss(
            params,
            batch.source,
            batch.source_mask,
            batch.target_in,
            batch.target_out,
            batch.target_mask,
            rng,
        )
        loss.backward()
        gradients = {name: tensor.grad for name, tensor in params.items()}
        clip_gradients(gradients, 5.0)
        optimizer.step(gradients, 3e-3)
        return loss.item()

    def theirs_step(i: int) -> float:
        torch_optimizer.zero_grad()
        loss = theirs(*torch_batches[i])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 5.0)
        torch_optimizer.step()
        return loss.item()

    speeds: dict[str, list[float]] = {"pyentmax": [], "PyTorch + entmax": []}
    losses: dict[str, float] = {}
    position = 0
    for block in range(args.blocks + 1):
        chosen = [(position + k) % len(batches) for k in range(args.block)]
        position += args.block
        for name, step in zip(speeds, (ours_step, theirs_step), strict=True):
            started = time.perf_counter()
            losses[name] = statistics.mean(step(i) for i in chosen)
            seconds = time.perf_counter() - started
            if block:  # the first block warms up
                speeds[name].append(args.block * args.batch_size / seconds)
    ratios = [a / b for a, b in zip(*speeds.values(), strict=True)]
    blas = np.__config__.CONFIG["Build Dependencies"]["blas"]
    print(
        f"{platform.machine()} {platform.system()}, Python {platform.python_version()}, "
        f"NumPy {np.__version__} ({blas['name']} {blas['version']}), PyTorch {torch.__version__}, "
        f"pyentmax {pyentmax.__version__}, {time.strftime('%Y-%m-%d')}"
    )
    print(
        f"hidden {args.hidden}, layers {args.layers}, batch {args.batch_size}, "
        f"{args.threads} thread(s), attention {args.attention}, loss {args.loss}; "
        f"{args.blocks} interleaved blocks of {args.block} batches"
    )
    for name, values in speeds.items():
        print(
            f"{name:<18} {statistics.median(values):8.0f} examples/s "
            f"(min {min(values):.0f}, max {max(values):.0f}; last loss {losses[name]:.3f})"
        )
    print(
        f"ratio              {statistics.median(ratios):8.2f} "
        f"(min {min(ratios):.2f}, max {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main()
