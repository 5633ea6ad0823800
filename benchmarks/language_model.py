"""Language models beside the same model in PyTorch, one thread each.

    python benchmarks/language_model.py [--pairs 20] [--context 256] [--attention 1]
    python benchmarks/language_model.py --against 1.5 [--context 1024]
    python benchmarks/language_model.py --anchor FILE --data FOLDER [--updates N] [--minutes M]

The first compares the losses without dropout, then times updates in turns and prints the median of
the ratios of neighbours. The second times our own updates with another attention beside
softmax's; ``--trained RUN`` takes its parameters, so that heads are as sparse as training left
them. The third trains the PyTorch model as `python -m pyentmax reproduce language-model --row
softmax` trains ours (same parameters, batches and settings) and writes bits per character to FILE,
with a checkpoint beside it from which the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from pyentmax.autograd import Tensor  # noqa: E402
from pyentmax.data import Segments, cut  # noqa: E402
from pyentmax.models.language_model import LanguageModel, LanguageModelConfig  # noqa: E402
from pyentmax.nn.optim import Adam, clip_gradients  # noqa: E402
from pyentmax.nn.schedules import InverseSquareRoot  # noqa: E402
from pyentmax.system.memory import keep_freed_memory  # noqa: E402
from pyentmax.tasks.language_model import Writer, read_shakespeare  # noqa: E402
from pyentmax.tasks.language_model.experiments.rows import BATCH, CONTEXT, row  # noqa: E402
from pyentmax.tasks.language_model.training import VALIDATED  # noqa: E402

SIZE = 69  # characters of Tiny Shakespeare, and the four special tokens


class Ours:
    """Updates as the training loop does them."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.optimizer = Adam(model.params, (0.9, 0.98))
        self.rng = np.random.default_rng(1)

    def update(self, batch: Any) -> None:
        params = {name: Tensor(x, requires_grad=True) for name, x in self.model.params.items()}
        loss = self.model.loss(params, batch, self.rng)
        loss.backward()
        gradients = {name: x.grad for name, x in params.items() if x.grad is not None}
        clip_gradients(gradients, 1.0)
        self.optimizer.step(gradients, 1e-6)


class Theirs:
    """The same in PyTorch."""

    def __init__(self, model: LanguageModel, rate: float = 1e-6) -> None:
        import torch
        from torch_language_model import TorchLanguageModel

        torch.set_num_threads(1)
        self.torch, self.model = torch, TorchLanguageModel(model)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=rate, betas=(0.9, 0.98), fused=True
        )

    def update(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.model.loss(batch).backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def untrained(attention: str) -> LanguageModel:
    """The model of the experiments, at its start."""
    config = LanguageModelConfig(SIZE, **row("softmax").config() | {"attention": attention})
    return LanguageModel.initialize(config, np.random.default_rng(0), bos=1, eos=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--pairs", type=int, default=20, help="of updates that are timed")
    add("--context", type=int, default=CONTEXT)
    add("--batch-size", type=int, help="1,024 tokens per batch, if not given")
    add("--attention", default="1", help="of our side, beside softmax in PyTorch")
    add("--against", metavar="ATTENTION", help="our own softmax beside this, without PyTorch")
    add("--trained", type=Path, metavar="RUN", help="of --against: parameters of a trained model")
    add("--anchor", type=Path, metavar="FILE")
    add("--data", type=Path)
    add("--updates", type=int)
    add("--minutes", type=float, default=60.0, help="of --anchor: stop then, to go on later")
    args = parser.parse_args()
    keep_freed_memory()
    if args.anchor is not None:
        anchor(args.anchor, args.data, args.updates, args.minutes)
        return
    size = args.batch_size or max(1, 1024 // args.context)
    tokens = np.random.default_rng(0).integers(4, SIZE, 40 * args.context * size)
    batches = list(islice(Segments(tokens, args.context, size).epoch(np.random.default_rng(1)), 20))
    if args.against is None:
        model = untrained(args.attention)
        ours, theirs = Ours(model), Theirs(model)
        theirs.model.eval()
        own, other = ours.model.loss(ours.model.params, batches[0]), theirs.model.loss(batches[0])
        theirs.model.train()
        print(f"losses without dropout: ours {own.item():.6f}, PyTorch {other.item():.6f}")
        names = (f"ours, {args.attention}", "PyTorch, softmax")
    else:
        models = [untrained("1"), untrained(args.against)]
        if args.trained is not None:
            writer = Writer.load(args.trained)
            batches = real_batches(args.data, writer, args.context, size)
            trained = replace(writer.model.config, inference_attention=None)
            for i, attention in enumerate(("1", args.against)):
                config = replace(trained, attention=attention)
                params = {name: x.copy() for name, x in writer.model.params.items()}
                models[i] = LanguageModel(config, params, 1, 2)
        theirs, ours = (Ours(model) for model in models)
        names = (f"ours, {args.against}", "ours, softmax")
    print(in_turns(ours, theirs, batches, args.pairs, names))


def real_batches(data: Path, writer: Writer, context: int, size: int) -> list[Any]:
    """Some of the batches that a model was trained on, of any length."""
    tokens = writer.encode(read_shakespeare(data).train)
    return list(islice(Segments(tokens, context, size).epoch(np.random.default_rng(1)), 20))


def in_turns(ours: Any, theirs: Any, batches: list[Any], pairs: int, names: Any) -> str:
    """Time updates of both sides alternately."""
    seconds: list[list[float]] = [[], []]
    for i in range(pairs + 2):
        batch = batches[i % len(batches)]
        for side, times in ((ours, seconds[0]), (theirs, seconds[1])):
            start = time.perf_counter()
            side.update(batch)
            times.append(time.perf_counter() - start)
    own, other = (np.array(times[2:]) for times in seconds)  # the first ones warm up
    size = batches[0].tokens_out.size
    return (
        f"{names[0]}: {1000 * np.median(own):.0f} ms per update of {batches[0].tokens_out.shape}, "
        f"{size / np.median(own):,.0f} tokens/s; {names[1]}: {1000 * np.median(other):.0f} ms; "
        f"{np.median(other / own):.2f} × the speed"
    )


def anchor(path: Path, data: Path, updates: int | None, minutes: float) -> None:
    """Train in PyTorch what the row "softmax" trains, and write what it reaches."""
    import torch

    text = read_shakespeare(data)
    settings = row("softmax").settings(seed=0, updates=updates)
    rng = np.random.default_rng(settings.seed)
    writer = Writer.untrained(text.train + text.held_out, rng, CONTEXT, **row("softmax").config())
    assert settings.warmup is not None
    assert settings.validate_every is not None
    schedule = InverseSquareRoot(settings.rate, settings.warmup)
    side = Theirs(writer.model, settings.rate)
    torch.manual_seed(settings.seed)
    batches = endless(Segments(writer.encode(text.train), CONTEXT, BATCH), settings.seed)
    held_out = writer.encode(text.held_out)
    record: dict[str, Any] = {"updates": 0, "seconds": 0.0, "curve": []}
    best = {"accuracy": -1.0, "model": side.model.state_dict()}
    checkpoint = path.with_suffix(".pt")
    if checkpoint.exists():
        there = torch.load(checkpoint, weights_only=True)
        record, best = there["record"], there["best"]
        side.model.load_state_dict(there["model"])
        side.optimizer.load_state_dict(there["optimizer"])
        torch.set_rng_state(there["rng"])
    batches = islice(batches, record["updates"], None)
    started, begun = time.perf_counter(), record["seconds"]
    while record["updates"] < settings.updates:
        for group in side.optimizer.param_groups:
            group["lr"] = schedule.rate(record["updates"])
        side.update(next(batches))
        record["updates"] += 1
        if record["updates"] % settings.validate_every == 0:
            record["seconds"] = begun + time.perf_counter() - started
            bits, accuracy = measure(side, held_out[: VALIDATED + 1])
            entry = {"update": record["updates"], "bits": round(bits, 4)}
            record["curve"].append(entry | {"accuracy": round(100 * accuracy, 2)})
            print(record["updates"], record["curve"][-1], f"{record['seconds']:.0f} s", flush=True)
            if accuracy > best["accuracy"]:
                state = {name: x.clone() for name, x in side.model.state_dict().items()}
                best = {"accuracy": accuracy, "model": state}
            torch.save(
                {
                    "record": record,
                    "best": best,
                    "model": side.model.state_dict(),
                    "optimizer": side.optimizer.state_dict(),
                    "rng": torch.get_rng_state(),
                },
                checkpoint,
            )
            if time.perf_counter() - started > 60 * minutes:
                print("stopped; the same command goes on")
                return
    side.model.load_state_dict(best["model"])
    record["bits"] = round(measure(side, held_out)[0], 4)
    record["tokens_per_second"] = round(
        record["updates"] * BATCH * CONTEXT / max(record["seconds"], 1e-9)
    )
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"bits per character {record['bits']}, written: {path}")


def endless(source: Segments, seed: int) -> Any:
    """The batches of the training loop, in its order."""
    order, _ = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(order)
    while True:
        yield from source.epoch(rng)


def measure(side: Theirs, tokens: np.ndarray) -> tuple[float, float]:
    """Bits per character and the share that is right, in pieces of the context, as ours."""
    side.model.eval()
    bits, right, count = 0.0, 0, 0
    starts = np.arange(len(tokens) - CONTEXT - 1, -1, -CONTEXT)[::-1]
    with side.torch.inference_mode():
        for i in range(0, len(starts), 32):
            batch = cut(tokens, starts[i : i + 32], CONTEXT)
            scores = side.model.scores(side.torch.from_numpy(batch.tokens_in)).flatten(0, 1)
            labels = side.torch.from_numpy(batch.tokens_out).flatten()
            nats = side.torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
            bits += float(nats) / np.log(2)
            right += int((scores.argmax(dim=-1) == labels).sum())
            count += len(labels)
    side.model.train()
    return bits / count, right / count


if __name__ == "__main__":
    main()
