"""How much of an update of the recurrent model is matrix products, and how much everything else.

    python benchmarks/update_share.py                        hidden 300, two layers, batch 64
    python benchmarks/update_share.py --hidden 128 --layers 1 --batch 128 --alpha 1.5
    python benchmarks/update_share.py --data FOLDER          batches of 102 languages, as in Table 1

An update is timed, and after it the bare products that it has to make: the same number of products
of the same shapes, one after another, into arrays that are there already, operands contiguous, by
one thread. What an update takes beyond that is everything else: attention, gates, dropout, Adam,
the tape, and products that lie less well in memory. With `--data`, words and vocabularies are those
of the medium setting of the CoNLL-SIGMORPHON 2018 shared task.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.autograd import Tensor
from pyentmax.data import bucketed_batches, make_batch
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq
from pyentmax.nn.optim import Adam, clip_gradients
from pyentmax.system.blas import limit_blas
from pyentmax.system.memory import keep_freed_memory, peak_memory
from pyentmax.tasks.inflection import Inflector, english_verbs
from pyentmax.tasks.inflection.conll2018 import conll2018_languages
from pyentmax.tasks.inflection.experiments.cells import read_data

Product = tuple[int, int, int, int]  # so many of (rows, inner) @ (inner, columns)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--hidden", type=int, default=300)
    add("--layers", type=int, default=2)
    add("--batch", type=int, default=64)
    add("--alpha", default="1", help="of attention and output")
    add("--data", type=Path, help="folder that holds conll2018/; the bundled verbs if not given")
    add("--rounds", type=int, default=20)
    args = parser.parse_args()
    keep_freed_memory()
    with limit_blas(1):
        measure(args)


def measure(args: argparse.Namespace) -> None:
    """Time updates and their bare products, turn by turn."""
    rng = np.random.default_rng(0)
    if args.data is None:
        examples = english_verbs()
    else:
        languages = conll2018_languages("train-medium", args.data)
        examples = read_data(args.data, "medium", languages, marked=True).train
    mappings = {"attention": args.alpha, "output": args.alpha}
    inflector = Inflector.untrained(
        examples, rng, hidden=args.hidden, layers=args.layers, **mappings
    )
    pairs = inflector.pairs(examples)
    batches = bucketed_batches(pairs, args.batch, rng)
    update = updater(inflector.model)
    whole, bare, count = [], [], 0
    for turn in range(args.rounds + 2):
        batch = make_batch(pairs, batches[turn % len(batches)])
        shape = *batch.source.shape, batch.target_in.shape[1]
        multiply = products(inflector.model, *shape)
        times = [seconds(lambda: update(batch)), seconds(multiply)]  # noqa: B023  # called at once
        if turn >= 2:  # the first ones warm up
            whole.append(times[0]), bare.append(times[1])
            count += len(batch)
    ratios = [a / b for a, b in zip(whole, bare, strict=True)]
    print(
        f"hidden {args.hidden}, {args.layers} layers, batch {args.batch}, α {args.alpha}: "
        f"{count / sum(whole):.0f} examples/s, {1e3 * statistics.mean(whole):.0f} ms an update, "
        f"bare products {1e3 * statistics.mean(bare):.0f} ms: the whole is "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) times these; "
        f"{peak_memory():.0f} MB"
    )


def seconds(action: Callable[[], Any]) -> float:
    """How long an action takes this process."""
    started = time.process_time()
    action()
    return time.process_time() - started


def updater(model: RNNSeq2Seq) -> Callable[[Any], None]:
    """One update by a batch, as training does it."""
    optimizer, rng = Adam(model.params), np.random.default_rng(1)

    def update(batch: Any) -> None:
        params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
        model.loss(params, batch, rng).backward()
        gradients = {name: x.grad for name, x in params.items() if x.grad is not None}
        clip_gradients(gradients, 5.0)
        optimizer.step(gradients, 1e-4)

    return update


def shapes(model: RNNSeq2Seq, batch: int, source: int, target: int) -> list[Product]:
    """The products of an update: forward, of the inputs' gradients and of the weights'."""
    n, half, size = model.config.hidden, model.config.hidden // 2, model.config.target_size
    forward: list[tuple[int, int, int, int]] = []  # times, rows each time, inputs, outputs
    for _ in range(model.config.layers):
        forward += 2 * [(1, source * batch, n, 4 * half), (source, batch, half, 4 * half)]
        forward += [(target, batch, 2 * n, 4 * n)]
    forward += [(1, source * batch, n, n), (1, target * batch, n, 4 * n)]
    forward += [(target, batch, 2 * n, n), (1, target * batch, n, size)]
    found = []
    for times, rows, inputs, outputs in forward:
        found += [(times, rows, inputs, outputs), (times, rows, outputs, inputs)]
        found += [(1, inputs, times * rows, outputs)]
    return found


def products(model: RNNSeq2Seq, batch: int, source: int, target: int) -> Callable[[], None]:
    """The bare products of an update by such a batch."""
    rng = np.random.default_rng(2)
    operands = []
    for times, rows, inner, columns in shapes(model, batch, source, target):
        a, b = (rng.standard_normal(s, np.float32) for s in ((rows, inner), (inner, columns)))
        operands.append((times, a, b, np.empty((rows, columns), np.float32)))

    def multiply() -> None:
        for times, a, b, out in operands:
            for _ in range(times):
                np.matmul(a, b, out=out)

    multiply()  # warms up
    return multiply


if __name__ == "__main__":
    main()
