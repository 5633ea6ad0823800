"""Copy and sort beyond the lengths of training, with and without scales (Vasylenko et al. 2025).

A decoder with NAPE reads symbols and a separator, then writes them again, or in order. It is
trained on 24 to 64 tokens in all, and writes up to 2,048, symbol after symbol.

What came out (three seeds, symbols right at 2,048 tokens, each after the right ones before it):
sorting carries over better with every sparse mapping. 1.5-entmax has 0.42 and softmax 0.08,
with s log n 0.39 and 0.16, ASEntmax 0.43. Copying does not: 0.63 and 0.68, with s log n
0.70 and 0.94, ASEntmax 0.69. By itself no model gets beyond a few times its training length.

A minute a model on one core, 45 minutes in all; a run that is cut off goes on at its last
checkpoint. Rates are chosen of three, for each task and mapping, by the loss at training lengths
after a third of the updates. `--size paper` has the paper's order of magnitude, for a GPU.

    python -m experiments.vasylenko2025.length
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.pictures import panels, points, save
from experiments.runner import RESULTS, Experiment, Line, Options, Settings, Unready, read_lines
from experiments.tables import grouped, markdown, values
from pyentmax.engine.system.files import replacing

TASKS = ("copy", "sort")
ROWS = (
    "softmax",
    "softmax · s log n",
    "softmax · (δ + β (log n)^γ)",
    "1.5-entmax",
    "1.5-entmax · s log n",
    "ASEntmax",
)
RATES = (1e-3, 3e-3, 1e-2)
SYMBOLS = 32
SIZES: dict[str, Settings] = {
    "small": {
        "model": {"width": 64, "heads": 4, "layers": 2},
        "training": {"batch": 32, "lengths": [24, 64], "updates": 2000},
        "tests": {"64": 64, "128": 32, "256": 32, "512": 32, "1024": 32, "2048": 16},
    },
    "paper": {
        "model": {"width": 256, "heads": 8, "layers": 4},
        "training": {"batch": 128, "lengths": [24, 128], "updates": 78_000},
        "tests": {str(2**k): 256 for k in range(7, 14)},
    },
}
CHECKPOINT = 400
"""Updates between checkpoints."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--task", nargs="+", choices=TASKS, default=list(TASKS))
    add("--row", nargs="+", choices=ROWS, default=list(ROWS))
    add("--seed", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="one model each")
    add("--size", choices=SIZES, default="small")
    add("--updates", type=int, help="of a training; 2,000 for the small size")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """Trainings with each rate, a third as long; then those with the best of them, of each seed."""
    size = SIZES[args.size]
    updates: Any = args.updates or size["training"]["updates"]
    choices, models = [], []
    for task in args.task:
        for row in args.row:
            shared = {"row": f"{task}-{ROWS.index(row)}", "task": task, "mapping": row, **size}
            third = {**shared, "training": {**size["training"], "updates": -(-updates // 3)}}
            choices += [{**third, "tests": {}, "seed": 0, "rate": rate} for rate in RATES]
            full = {**shared, "training": {**size["training"], "updates": updates}}
            models += [{**full, "seed": seed, "rate": "chosen"} for seed in args.seed]
    models.sort(key=lambda settings: args.seed.index(settings["seed"]))
    return [choices, models]


def chosen_rate(out: Path, settings: Settings) -> float:
    """The rate with the least loss after a third of the updates; Unready before all are there."""
    same = ("task", "mapping", "model")
    lines = [
        line
        for line in read_lines(out / RESULTS)
        if line["settings"]["rate"] != "chosen"
        and all(line["settings"][name] == settings[name] for name in same)
        and line["settings"]["training"]["updates"] == -(-settings["training"]["updates"] // 3)
    ]
    if len(lines) < len(RATES):
        raise Unready(f"expected trainings with {len(RATES)} rates, found {len(lines)}")
    best = min(lines, key=lambda line: line["result"]["loss"])
    return float(best["settings"]["rate"])


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a decoder, then measure its loss at training lengths, and what it writes beyond."""
    import torch

    from experiments.vasylenko2025.decoder import Decoder

    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    chosen = settings["rate"] == "chosen"
    rate = chosen_rate(folder.parent, settings) if chosen else settings["rate"]
    training, task = settings["training"], settings["task"]
    model: Any = Decoder(SYMBOLS + 1, settings["mapping"], **settings["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.0)
    curve, seconds, done = [], 0.0, 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        curve, seconds, done = state["curve"], state["seconds"], state["done"]
    updates = training["updates"]
    for update in range(done, updates):
        started = time.process_time()
        # Batches depend on seed and update alone: a run goes on with those it would have had.
        rng = np.random.default_rng((settings["seed"], update))
        tokens, target = batch(task, rng, training["batch"], training["lengths"])
        share = (update + 1) / updates
        for group in optimizer.param_groups:
            group["lr"] = rate * min(10 * share, 0.5 * (1 + math.cos(math.pi * share)))
        loss = forced_loss(model, tokens, target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds += time.process_time() - started
        if (update + 1) % CHECKPOINT == 0 or update + 1 == updates:
            curve.append([update + 1, round(float(loss.detach()), 4)])
            if not options.quiet:
                print(f"{update + 1} of {updates}: loss {curve[-1][1]}", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            with replacing(checkpoint) as file:
                torch.save({**state, "curve": curve, "seconds": seconds, "done": update + 1}, file)
    model.eval()
    started = time.process_time()
    result = {
        "rate": rate,
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": held_out(model, task, training["lengths"]),
        "curve": curve,
        "tests": {n: measured(model, task, int(n), m) for n, m in settings["tests"].items()},
        "learned": learned(model),
        "train_seconds": round(seconds, 1),
        "torch": torch.__version__,
    }
    return {**result, "test_seconds": round(time.process_time() - started, 1)}


def sequences(task: str, rng: np.random.Generator, size: int, n: int) -> tuple[Any, Any]:
    """Sequences of up to n tokens: what is read, of shape (size, m + 1), and what is to be written.

    Examples
    --------
    >>> read, written = sequences("sort", np.random.default_rng(0), 1, 8)
    >>> print(read, written)
    [[27 20 16 32]] [[16 20 27]]
    """
    source = rng.integers(SYMBOLS, size=(size, (n - 1) // 2))
    target = source if task == "copy" else np.sort(source, axis=1)
    return np.concatenate([source, np.full((size, 1), SYMBOLS)], axis=1), target


def batch(task: str, rng: np.random.Generator, size: int, lengths: list[int]) -> tuple[Any, Any]:
    """Sequences of one length, drawn from those of training."""
    return sequences(task, rng, size, int(rng.integers(lengths[0], lengths[1] + 1)))


def forced_scores(model: Any, read: Any, target: Any) -> Any:
    """Scores of each symbol to be written, after the right ones before it."""
    import torch

    return model(torch.from_numpy(np.concatenate([read, target[:, :-1]], 1)), target.shape[1])


def forced_loss(model: Any, read: Any, target: Any) -> Any:
    """Nats per symbol to be written."""
    import torch

    scores = forced_scores(model, read, target).flatten(0, 1)
    return torch.nn.functional.cross_entropy(scores, torch.from_numpy(target).flatten())


def held_out(model: Any, task: str, lengths: list[int]) -> float:
    """The loss at nine training lengths, of 64 sequences each that no training has."""
    import torch

    rng = np.random.default_rng(2025)
    with torch.inference_mode():
        sizes = np.linspace(lengths[0], lengths[1], 9).astype(int)
        losses = [float(forced_loss(model, *sequences(task, rng, 64, n))) for n in sizes]
    return round(float(np.mean(losses)), 5)


def measured(model: Any, task: str, n: int, count: int) -> dict[str, float]:
    """Of sequences of n tokens: the share of symbols right, and of sequences wholly right, written
    by the model itself; and of symbols right after the right ones before (``forced``)."""
    import torch

    rng = np.random.default_rng((2025, n))
    right, exact, forced = [], [], []
    for _ in range(-(-count // 32)):
        read, target = sequences(task, rng, min(32, count), n)
        hits = model.generate(torch.from_numpy(read), target.shape[1]).numpy() == target
        right.append(hits.mean())
        exact.append(hits.all(axis=1).mean())
        with torch.inference_mode():
            forced.append((forced_scores(model, read, target).argmax(-1).numpy() == target).mean())
    means = {"right": right, "exact": exact, "forced": forced}
    return {name: round(float(np.mean(shares)), 4) for name, shares in means.items()}


def learned(model: Any) -> dict[str, list[list[float]]]:
    """By layer, of each head without positions: s, or β and γ at an input of zeros."""
    import torch

    found: dict[str, list[list[float]]] = {}
    for block in model.blocks:
        attention = block.attention
        free = attention.free[:, 0] > 0
        if attention.scaled == "log":
            found.setdefault("s", []).append(attention.s.detach()[free, 0].tolist())
        elif attention.scaled == "power":
            beta, gamma = attention.beta_gamma.bias.detach().chunk(2)
            softplus = torch.nn.functional.softplus(beta[free])
            found.setdefault("beta", []).append(softplus.tolist())
            found.setdefault("gamma", []).append((2 * torch.tanh(gamma[free])).tolist())
    return {name: [[round(x, 3) for x in row] for row in rows] for name, rows in found.items()}


def _share(shares: list[float]) -> str:
    low, high = min(shares), max(shares)
    mean = f"{np.mean(shares):.2f}"
    return mean if f"{low:.2f}" == f"{high:.2f}" else f"{mean} ({low:.2f} to {high:.2f})"


def report(lines: list[Line]) -> str:
    """Shares right by length, means of the seeds (least to largest), a table for each task."""
    parts = []
    models = [line for line in lines if line["settings"]["rate"] == "chosen"]
    titles = {
        "right": "symbols right, written by the model",
        "exact": "sequences wholly right, written by the model",
        "forced": "symbols right, after the right ones",
    }
    for (task,), group in grouped(models, "task").items():
        lengths = list(group[0]["settings"]["tests"])
        for name, title in titles.items():
            rows = []
            for (mapping,), own in grouped(group, "mapping").items():
                shares = [_share(values(own, "tests", n, name)) for n in lengths]
                rates = "/".join(f"{x:g}" for x in sorted(set(values(own, "rate"))))
                rows.append([mapping, rates, len(own), *shares])
            parts.append(f"{task}: {title}")
            parts.append(markdown(["mapping", "rate", "seeds", *lengths], rows))
    return "\n\n".join(parts)


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw the symbols right after the right ones against the length, a panel for each task."""
    models = [line for line in lines if line["settings"]["rate"] == "chosen"]
    tasks = grouped(models, "task")
    axes = panels(len(tasks))
    for ax, ((task,), group) in zip(axes, tasks.items(), strict=True):
        by_length: dict[str, dict[float, list[float]]] = {
            mapping: {
                int(n): values(own, "tests", n, "forced") for n in own[0]["settings"]["tests"]
            }
            for (mapping,), own in grouped(group, "mapping").items()
        }
        points(ax, by_length, "tokens", "symbols right")
        ax.set(title=task, ylim=(0, 1))
        ax.set_xscale("log", base=2)
        lengths = [int(n) for n in group[0]["settings"]["tests"]]
        ax.set_xticks(lengths, [f"{n:,}" for n in lengths])
    return [save(axes, folder / "length.png")]


EXPERIMENT = Experiment("vasylenko2025/length", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
