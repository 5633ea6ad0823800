"""How much of an update of the recurrent model is matrix products, and how much everything else.

An update is timed, and after it the bare products that it has to make: the same number of products
of the same shapes, one after another, into arrays that are there already, operands contiguous, by
one thread. What an update takes beyond that is everything else: attention, gates, dropout, Adam,
the tape, and products that lie less well in memory.

What came out (words of 102 languages as in Table 1, hidden 300, two layers, batch 64, AMD EPYC Zen
5): 286 examples a second, 224 ms an update, of which the bare products take 159: 1.36 times (1.24
to 1.68) as long as these. A profile finds 74% of an update in BLAS. It takes twenty seconds.

    python -m experiments.own.update_share --languages all --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peters2019.inflection import read_words
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import markdown
from experiments.timing import seconds, updater
from pyentmax.engine.system.memory import keep_freed_memory, peak_memory
from pyentmax.seq2seq.data import bucketed_batches, make_batch
from pyentmax.seq2seq.inflection import Inflector, english_verbs
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--languages", nargs="+", metavar="NAME", help="or 'all'; the bundled verbs if not given")
    add("--hidden", type=int, default=300)
    add("--layers", type=int, default=2)
    add("--batch-size", type=int, default=64)
    add("--alpha", default="1", help="of attention and output")
    add("--rounds", type=int, default=20)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """One measurement."""
    names = "hidden layers batch_size alpha rounds".split()
    languages = "all" if args.languages == ["all"] else args.languages
    settings = {name: getattr(args, name) for name in names} | {"languages": languages}
    return [[{**settings, "size": "medium"}]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Time updates and their bare products, turn by turn."""
    keep_freed_memory()
    words = read_words(settings, options)[0] if settings["languages"] else english_verbs()
    rng = np.random.default_rng(0)
    shape = {name: settings[name] for name in ("hidden", "layers")}
    mappings = {"attention": settings["alpha"], "output": settings["alpha"]}
    inflector = Inflector.untrained(words, rng, **shape, **mappings)
    pairs = inflector.pairs(words)
    batches = bucketed_batches(pairs, settings["batch_size"], rng)
    update = updater(inflector.model, clip=5.0)
    times, count = [], 0
    for turn in range(settings["rounds"] + 2):
        batch = make_batch(pairs, batches[turn % len(batches)])
        lengths = batch.source.shape[1], batch.target_in.shape[1]
        multiply = products(inflector.model, len(batch), *lengths)
        clock = time.process_time  # what other processes take is not counted
        measured = seconds(update, batch, clock=clock), seconds(multiply, clock=clock)
        if turn >= 2:  # the first ones warm up
            times.append(measured)
            count += len(batch)
    whole, bare = np.array(times).T
    ratios = whole / bare
    return {
        "examples_per_second": round(count / whole.sum()),
        "update_ms": round(1e3 * whole.mean()),
        "products_ms": round(1e3 * bare.mean()),
        "ratio": [round(float(f(ratios)), 2) for f in (np.median, np.min, np.max)],
        "memory_mb": peak_memory(),
    }


def products(model: RNNSeq2Seq, batch: int, source: int, target: int) -> Callable[[], None]:
    """The bare products of an update by such a batch: forward, and both of each one's gradients."""
    n, half, size = model.config.hidden, model.config.hidden // 2, model.config.target_size
    forward: list[tuple[int, int, int, int]] = []  # times, rows each time, inputs, outputs
    for _ in range(model.config.layers):
        forward += 2 * [(1, source * batch, n, 4 * half), (source, batch, half, 4 * half)]
        forward += [(target, batch, 2 * n, 4 * n)]
    forward += [(1, source * batch, n, n), (1, target * batch, n, 4 * n)]
    forward += [(target, batch, 2 * n, n), (1, target * batch, n, size)]
    shapes = []
    for times, rows, inputs, outputs in forward:
        shapes += [(times, rows, inputs, outputs), (times, rows, outputs, inputs)]
        shapes += [(1, inputs, times * rows, outputs)]
    rng = np.random.default_rng(2)
    operands = []
    for times, rows, inner, columns in shapes:
        a, b = (rng.standard_normal(s, np.float32) for s in ((rows, inner), (inner, columns)))
        operands.append((times, a, b, np.empty((rows, columns), np.float32)))

    def multiply() -> None:
        for times, a, b, out in operands:
            for _ in range(times):
                np.matmul(a, b, out=out)

    multiply()  # warms up
    return multiply


def report(lines: list[Line]) -> str:
    """A row for each measurement."""
    rows = []
    for line in lines:
        settings, result = line["settings"], line["result"]
        shape = [settings[name] for name in ("hidden", "layers", "batch_size", "alpha")]
        median, least, most = result["ratio"]
        rows.append(
            [
                *shape,
                result["examples_per_second"],
                f"{result['update_ms']} ms",
                f"{result['products_ms']} ms",
                f"{median} ({least}–{most})",
                f"{result['memory_mb']:.0f} MB",
            ]
        )
    columns = "hidden layers batch α examples/s update products ratio memory".split()
    return markdown(columns, rows)


EXPERIMENT = Experiment("own/update_share", __doc__, runs, work, report, None, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
