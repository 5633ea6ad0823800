"""Does PyTorch learn as much? The softmax row of `language_model.py`, trained there.

The same parameters at the start, batches, schedule and number of updates; draws of dropout differ.

What came out (PyTorch 2.13, one seed, 2,000 updates): 2.807 bits per character there, 2.780 here
(2.795 on average of three seeds): within the 0.03 that were allowed. Six minutes on one core; a run
that is cut off begins anew.

    python -m experiments.own.pytorch --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.own.language_model import UPDATES, read_shakespeare, settings_of
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import markdown
from experiments.tasks.writer import VALIDATED, Writer
from pyentmax.seq2seq.data import Segments, cut
from pyentmax.seq2seq.nn.schedules import inverse_square_root


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--updates", type=int, default=UPDATES)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """The softmax row with each seed."""
    rows = [settings_of("softmax", seed, args.updates) for seed in args.seed]
    return [[{**row, "library": "PyTorch"} for row in rows]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train in PyTorch, and measure the best of the validations."""
    import torch

    from experiments.own.torch_language_model import TorchLanguageModel

    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    text, training, context = (
        read_shakespeare(options),
        settings["training"],
        settings["context"],
    )
    rng = np.random.default_rng(settings["seed"])
    writer = Writer.untrained(text.train + text.held_out, rng, context, **settings["model"])
    model: Any = TorchLanguageModel(writer.model)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=training["rate"], betas=tuple(training["betas"]), fused=True
    )
    pieces = Segments(writer.encode(text.train), context, settings["batch_size"])
    batches = endless(pieces, settings["seed"])
    held_out = writer.encode(text.held_out)
    curve: dict[str, list[float]] = {"update": [], "bits": [], "dev_accuracy": []}
    seconds, best, state = 0.0, -1.0, model.state_dict()
    for update in range(settings["updates"]):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = inverse_square_root(training["rate"], training["warmup"], update)
        optimizer.zero_grad()
        model.loss(next(batches)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training["clip"])
        optimizer.step()
        seconds += time.perf_counter() - started
        if (update + 1) % training["validate_every"] and update + 1 < settings["updates"]:
            continue
        bits, accuracy = measure(model, held_out[: VALIDATED + 1], context)
        for name, value in zip(
            curve, (update + 1, round(bits, 4), round(accuracy, 6)), strict=True
        ):
            curve[name].append(value)
        if accuracy > best:
            best, state = accuracy, {name: x.clone() for name, x in model.state_dict().items()}
    model.load_state_dict(state)
    count = settings["updates"] * settings["batch_size"] * context
    return {
        "bits": round(measure(model, held_out, context)[0], 4),
        "torch": torch.__version__,
        "train_seconds": round(seconds, 1),
        "per_second": round(count / seconds),
        "curve": curve,
    }


def endless(source: Segments, seed: int) -> Iterator[Any]:
    """The batches of the training loop, in its order."""
    order, _ = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(order)
    while True:
        yield from source.epoch(rng)


def measure(model: Any, tokens: np.ndarray, context: int) -> tuple[float, float]:
    """Bits per character and the share that is right, in pieces of the context, as ours."""
    import torch

    model.eval()
    bits, right, count = 0.0, 0, 0
    starts = np.arange(len(tokens) - context - 1, -1, -context)[::-1]
    with torch.inference_mode():
        for i in range(0, len(starts), 32):
            batch = cut(tokens, starts[i : i + 32], context)
            scores = model.scores(torch.from_numpy(batch.tokens_in)).flatten(0, 1)
            labels = torch.from_numpy(batch.tokens_out).flatten()
            nats = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
            bits += float(nats) / np.log(2)
            right += int((scores.argmax(dim=-1) == labels).sum())
            count += len(labels)
    model.train()
    return bits / count, right / count


def report(lines: list[Line]) -> str:
    """Bits per character of each run."""
    rows = [
        [line["settings"]["seed"], line["settings"]["updates"], line["result"]["bits"]]
        for line in lines
    ]
    return markdown(["seed", "updates", "bits per character in PyTorch"], rows)


EXPERIMENT = Experiment("own/pytorch", __doc__, runs, work, report, None, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
