"""A language model of 4 million parameters, with softmax and with 1.5-entmax: what is lost?

A decoder-only Transformer in PyTorch reads Multi30k's captions, each in German and then in English,
in 8,000 sub-words, 512 at a time: softmax in heads and output; 1.5-entmax in both; and 1.5-entmax
in heads alone, whose cross-entropy can be compared directly. The others are compared by what
`docs/guide/report.md` recommends. Then the heads of the softmax models get an α of 1.05, 1.25 and
1.5, without and with a short training.

What came out (240 updates, far from converged, three seeds): 1.5-entmax in heads alone is 0.010 ±
0.001 nats a token better than softmax, seed by seed, and attends to 38 of 256 keys; in the output,
too, it gets as many tokens right. α = 1.05 can be put into a trained softmax model for nothing,
1.25 for 0.04 nats and 1.5 for 0.12; a short training takes all of that back, but for 0.01 at 1.5
(`docs/results/what-it-saves.md`). Four minutes a model on an idle core.

    python -m experiments.own.two_ways --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import Experiment, Line, Options, Settings, Unready, folder_of
from experiments.tables import grouped, markdown, mean, spread, values
from pyentmax.engine.system.files import replacing
from pyentmax.seq2seq.analysis import epsilon_perplexity, jensen_shannon, sparsemax_score

ROWS = {"softmax": (1.0, 1.0), "1.5-entmax": (1.5, 1.5), "1.5-entmax heads": (1.5, 1.0)}
"""Row → α of the heads and of the output."""
SHAPE: Settings = {"width": 256, "heads": 4, "layers": 3}
VOCABULARY, CONTEXT, RATE = 8000, 512, 1e-3
SWAPS = (1.0, 1.05, 1.25, 1.5)
MEASURED = 32  # texts of so many tokens
SHARES = 8  # of a training: after each, speed and supports are noted, and the model is saved


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--row", nargs="+", choices=ROWS, default=list(ROWS))
    add("--seed", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="one model each")
    add("--updates", type=int, default=400, help="of a training, 512 tokens each (default: 400)")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """The trainings, seed by seed; then another α in the heads of the softmax models."""
    shared = {"updates": args.updates, "model": SHAPE, "context": CONTEXT}
    trained = [{**shared, "row": row, "seed": n} for n in args.seed for row in args.row]
    softmax = [settings for settings in trained if settings["row"] == "softmax"]
    more = max(1, args.updates // 10)
    return [trained, [{**one, "alpha": a, "more": more} for one in softmax for a in SWAPS]]


def corpus(options: Options, out: Path) -> tuple[Any, Any]:
    """The sub-words of the text to learn from, and of that to measure on, kept in a folder."""
    kept = out / f"tokens-{VOCABULARY}.npz"
    if not kept.exists():
        from experiments.tasks.translation.parallel import read_multi30k
        from experiments.tasks.translation.segmentation import Subwords

        data = read_multi30k(options.data_folder("multi30k/tok"))
        texts = [[side for pair in part for side in pair] for part in data[:2]]
        subwords = Subwords.learn(texts[0], VOCABULARY, algorithm="bpe")
        words, known = subwords.vocabulary(), set(subwords.vocabulary().tokens)
        train, held_out = (
            [
                piece if piece in known else "<unk>"
                for line in text
                for piece in (*subwords.split(line), "</s>")
            ]
            for text in texts
        )
        with replacing(kept) as file:
            np.savez(file, train=words.encode(train), held_out=words.encode(held_out))
    with np.load(kept) as arrays:
        return arrays["train"], arrays["held_out"]


def batch_of(tokens: Any, *seed: int) -> tuple[Any, Any]:
    """A stretch of the text at a random place, and what follows each of its tokens."""
    import torch

    start = np.random.default_rng(seed).integers(len(tokens) - CONTEXT)
    stretch = torch.from_numpy(tokens[None, start : start + CONTEXT + 1])
    return stretch[:, :-1], stretch[:, 1:]


def decoder(settings: Settings) -> Any:
    """A model as it begins."""
    import torch

    from experiments.own.torch_decoder import Decoder

    torch.manual_seed(settings["seed"])
    return Decoder(VOCABULARY, *ROWS[settings["row"]], **settings["model"])


class Training:
    """A model and its optimizer; `update` takes one step of AdamW."""

    def __init__(self, model: Any) -> None:
        import torch

        self.parameters, self.loss = list(model.parameters()), model.loss
        self.optimizer = torch.optim.AdamW(self.parameters, betas=(0.9, 0.95), fused=True)
        self.clip = torch.nn.utils.clip_grad_norm_

    def update(self, tokens: Any, labels: Any, share: float) -> float:
        """Take a step at a rate that rises for a tenth of the training and falls from there."""
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * min(10 * share, (1 - share) / 0.9)
        loss = self.loss(tokens, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.clip(self.parameters, 1.0)
        self.optimizer.step()
        return float(loss.detach())


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model, or put another α into a trained one; then measure it."""
    import torch

    torch.set_num_threads(1)
    train, held_out = corpus(options, folder.parent)
    model, result = decoder(settings), {"torch": torch.__version__}
    if "alpha" not in settings:
        result["curve"] = trained(model, settings, folder, train, options)
        return {**result, **measured(model, held_out)}
    source = {name: x for name, x in settings.items() if name not in ("alpha", "more")}
    final = folder_of(folder.parent, source) / f"model-{settings['updates']}.pt"
    if not final.exists():
        raise Unready(f"expected the trained model {final}")
    model.load_state_dict(torch.load(final))
    for block in model.blocks:
        block.alpha = settings["alpha"]
    result["before"] = measured(model, held_out)
    training, updates = Training(model), settings["more"]
    for update in range(updates):
        # The last third of the schedule: from a third of the highest rate down to 0.
        batch = batch_of(train, settings["seed"], settings["updates"] + update)
        training.update(*batch, 0.7 + 0.3 * (update + 1) / updates)
    return {**result, **measured(model, held_out)}


def trained(model: Any, settings: Settings, folder: Path, train: Any, options: Options) -> Any:
    """Train, or go on; after each part of it: loss, CPU milliseconds an update, keys attended."""
    import torch

    training, updates, done = Training(model), settings["updates"], 0
    times: list[float] = []
    losses: list[float] = []
    curve: dict[str, list[Any]] = {"update": [], "loss": [], "ms": [], "attended": []}
    checkpoint = folder / "last.pt"
    folder.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])
        curve, done = state["curve"], len(state["curve"]["update"]) and state["curve"]["update"][-1]
    else:
        torch.save(model.state_dict(), folder / "model-0.pt")
    for update in range(done, updates):
        # Batches depend on seed and update alone: a run goes on with those it would have had.
        batch = batch_of(train, settings["seed"], update)
        started = time.process_time()
        losses.append(training.update(*batch, (update + 1) / updates))
        times.append(time.process_time() - started)
        if (update + 1) * SHARES // updates == update * SHARES // updates:
            continue
        supports: list[float] = []
        with torch.no_grad():
            model(batch_of(train, 0)[0], supports=supports)
        added: Any = (update + 1, np.mean(losses), 1e3 * np.median(times), np.mean(supports))
        for name, number in zip(curve, added, strict=True):
            curve[name].append(round(float(number), 3))
        if not options.quiet:
            print({name: numbers[-1] for name, numbers in curve.items()}, flush=True)
        times, losses = [], []
        torch.save(model.state_dict(), folder / f"model-{update + 1}.pt")
        state = {"model": model.state_dict(), "optimizer": training.optimizer.state_dict()}
        with replacing(checkpoint) as file:
            torch.save({**state, "curve": curve}, file)
    return curve


def measured(model: Any, held_out: Any) -> dict[str, Any]:
    """Per token of the held-out text: what the guide's page on reports recommends."""
    import torch

    sums: dict[str, list[float]] = {}
    for start in range(0, len(held_out) - CONTEXT, CONTEXT)[:MEASURED]:
        text = torch.from_numpy(held_out[start : start + CONTEXT + 1])
        supports: list[float] = []
        with torch.no_grad():
            p = model.probabilities(model(text[None, :-1], supports=supports)[0]).numpy()
        y = text[1:].numpy()
        of_label = p[np.arange(CONTEXT), y].astype(float)
        found = {
            "right": (p.argmax(-1) == y).mean(),
            "ruled_out": (of_label == 0).mean(),
            "possible": (p > 0).sum(-1).mean(),
            "sparsemax_score": sparsemax_score(p, y),
            "jensen_shannon": jensen_shannon(p, y),
            "nats_e4": np.log(epsilon_perplexity(p, y, 1e-4)),
            "nats_e6": np.log(epsilon_perplexity(p, y, 1e-6)),
            "attended": np.mean(supports),
        }
        if model.output == 1:
            found["nats"] = -np.log(of_label).mean()
        for name, number in found.items():
            sums.setdefault(name, []).append(float(number))
    return {name: round(float(np.mean(numbers)), 4) for name, numbers in sums.items()}


# --- report ---------------------------------------------------------------------------------------
def by(lines: list[Line], name: str) -> dict[Any, list[Line]]:
    """The trainings by ``row``, or what was swapped by ``alpha``."""
    some = (line for line in lines if ("alpha" in line["settings"]) == (name == "alpha"))
    return {key: own for (key,), own in grouped(some, name).items()}


def difference(lines: list[Line], others: list[Line], *path: str) -> str:
    """By how much a number differs from that of the others, seed by seed."""
    ordered = (
        sorted(own, key=lambda line: int(line["settings"]["seed"])) for own in (lines, others)
    )
    own, other = (np.array(values(each, *path)) for each in ordered)
    return spread(list(own - other), 3).replace("-", "−")


def say_quality(lines: list[Line]) -> str:
    """What 1.5-entmax in heads and output gets right, rules out and attends to."""
    softmax, both = (by(lines, "row")[row] for row in ("softmax", "1.5-entmax"))
    right, dense = (spread([100 * x for x in values(own, "right")]) for own in (both, softmax))
    return (
        f"{right}% of the next tokens right, softmax {dense}%; rules out "
        f"{mean([100 * x for x in values(both, 'ruled_out')])}% of the references, finds "
        f"{mean(values(both, 'possible'), 0)} of {mean(values(softmax, 'possible'), 0)} possible, "
        f"and attends to {mean(values(both, 'attended'))} of "
        f"{mean(values(softmax, 'attended'))} keys"
    )


def say_heads(lines: list[Line]) -> str:
    """What 1.5-entmax in the heads alone changes: their cross-entropies can be compared."""
    softmax, heads = (by(lines, "row")[row] for row in ("softmax", "1.5-entmax heads"))
    keys = [np.mean(values(own, "attended")) for own in (heads, softmax)]
    return (
        f"{difference(heads, softmax, 'nats')} nats a token, "
        f"attending to {keys[0]:.0f} of {keys[1]:.0f} keys"
    )


def say_swap(lines: list[Line]) -> str:
    """What the swap costs, model by model, for the guide."""
    swaps, parts = by(lines, "alpha"), []
    for alpha in SWAPS[1:]:
        at_once, after = (
            difference(swaps[alpha], swaps[1.0], *path) for path in (["before", "nats"], ["nats"])
        )
        parts.append(f"α = {alpha:g} {at_once}, {after}")
    settings = swaps[1.0][0]["settings"]
    share = settings["more"] / settings["updates"]
    return f"nats a token at once, and after {share:.0%} more updates: {'; '.join(parts)}"


def say_speed(lines: list[Line]) -> str:
    """CPU time of updates over the training, and the keys attended."""
    softmax, both = (by(lines, "row")[row] for row in ("softmax", "1.5-entmax"))
    ms = [np.mean(values(own, "curve", "ms"), axis=0) for own in (both, softmax)]
    first, *_, last = ms[0] / ms[1]
    keys = np.mean(values(both, "curve", "attended"), axis=0)
    return (
        f"{first:.2f} of softmax's processor time in the first eighth of the training, "
        f"{last:.2f} in the last; the keys that a query attends to fell from {keys[0]:.0f} to "
        f"{keys[-1]:.0f} of {(CONTEXT + 1) / 2:.0f}"
    )


def report(lines: list[Line]) -> str:
    """Quality by row, then what the swap costs."""
    cells = {
        "nats a token": lambda own: spread(values(own, "nats"), 3) if values(own, "nats") else "∞",
        "right": lambda own: spread([100 * x for x in values(own, "right")]) + "%",
        "sparsemax score": lambda own: spread(values(own, "sparsemax_score"), 4),
        "Jensen-Shannon": lambda own: mean(values(own, "jensen_shannon"), 4),
        "log ε-perplexity, 10⁻⁴": lambda own: mean(values(own, "nats_e4"), 3),
        "10⁻⁶": lambda own: mean(values(own, "nats_e6"), 3),
        "ruled out": lambda own: mean([100 * x for x in values(own, "ruled_out")]) + "%",
        "possible": lambda own: mean(values(own, "possible"), 0),
        "keys attended": lambda own: mean(values(own, "attended")),
    }
    rows = [
        [row, len(own), *(cell(own) for cell in cells.values())]
        for row, own in by(lines, "row").items()
    ]
    parts = [markdown(["model", "seeds", *cells], rows)]
    swapped = [
        [
            f"{alpha:g}",
            *(spread(values(own, *path, "nats"), 3) for path in (["before"], [])),
            *(mean(values(own, *path, "attended")) for path in (["before"], [])),
        ]
        for alpha, own in by(lines, "alpha").items()
    ]
    columns = ["α put into the heads of softmax models", "nats a token at once", "after training"]
    parts += [markdown([*columns, "keys attended at once", "after training"], swapped)]
    return "\n\n".join(parts)


EXPERIMENT = Experiment("own/two_ways", __doc__, runs, work, report, None, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
