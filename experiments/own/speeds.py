"""What does a mapping cost in training and in search? Compared with softmax, on one thread.

The Transformer and the recurrent network of the tables of translation, the language model at two
lengths, and one layer of self-attention at three, all with random parameters and the same batches.
Each round does an update and, of translation, a greedy search of 64 sentences with each mapping, in
an order that turns with the round. (Heads that were trained are sparser, and cheaper: `--trained
RUN` of the language model.)

What came out (an idle AMD EPYC): of translation training at 1.00 × softmax's speed with
1.5-entmax and sparsemax, 0.99 with the 8 largest, 0.96 with α learned; search 0.96 to 1.00. Peters
et al.'s Figure 6, Correia et al.'s §4 and Zhao et al.'s Table 4 are about this: the last says that
sparsemax and α-entmax are far slower, which is not reproduced. Trained language models: 1.5-entmax
1.30 × at 256 characters and 2.47 × at 1,024, top-8 1.11 and 1.78 ×. One layer of attention to 4,096
positions: top-8 9.9 ×, α learned 11.6, 1.5-entmax 12.6, sparsemax 17.5. Two minutes.

    python -m experiments.own.speeds
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from experiments.own import language_model
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import markdown
from experiments.tasks.writer import Writer
from experiments.timing import seconds, updater
from experiments.translation import MODELS
from pyentmax.engine.system.memory import keep_freed_memory
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.data import Segments, TokenBatches
from pyentmax.seq2seq.decoding import greedy_search
from pyentmax.seq2seq.models.language_model import LanguageModel, LanguageModelConfig
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.nn.attention import (
    LearnedEntmax,
    init_learned_alpha,
    init_multi_head_attention,
    multi_head_attention,
)
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

MAPPINGS = {
    "transformer": ("1", "1.5", "2", "topk_softmax:8", "learned"),
    "rnn": ("1", "1.5", "2"),
    "language-model": ("1", "1.5", "topk_softmax:8", "learned"),
    "attention": ("1", "1.5", "2", "topk_softmax:8", "learned"),
}
VOCABULARY, SENTENCES, STEPS, CHARACTERS = 4000, 64, 16, 69


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--model", nargs="+", default=list(MAPPINGS), choices=MAPPINGS)
    add("--rounds", type=int, default=20)
    add("--tokens", type=int, default=1200, help="of a batch of translation, padding included")
    add("--context", nargs="+", type=int, default=[256, 1024], help="of the language model")
    add("--positions", nargs="+", type=int, default=[256, 1024, 4096], help="of attention")
    add("--trained", type=Path, metavar="RUN", help="parameters of a trained language model")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """A comparison of all mappings for each model, and each length of the language model."""
    stage: list[Settings] = []
    for name in args.model:
        if name == "language-model":
            trained = {"trained": args.trained.name} if args.trained else {}
            place = {"path": str(args.trained)} if args.trained else {}
            sizes: list[Settings] = [{"context": n, **trained, **place} for n in args.context]
        elif name == "attention":
            sizes = [{"positions": n} for n in args.positions]
        else:
            sizes = [{"tokens": args.tokens}]
        stage += [{"row": name, "rounds": args.rounds, **size} for size in sizes]
    return [stage]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Time updates and searches with each mapping, in turns; the median of each."""
    keep_freed_memory()
    batches, make = {
        "transformer": _translation,
        "rnn": _translation,
        "language-model": _language_model,
        "attention": _attention,
    }[settings["row"]](settings, options)
    sides = {name: make(name) for name in MAPPINGS[settings["row"]]}
    names, times = list(sides), []
    for i in range(-1, settings["rounds"]):  # one round to warm up
        turned = names[i % len(names) :] + names[: i % len(names)]
        batch = batches[i % len(batches)]
        latest = {}
        for name in turned:
            update, search = sides[name]
            # Of one thread, whose CPU time is that of an idle machine, more or less.
            times_of = partial(seconds, clock=time.process_time)
            latest[name] = [times_of(update, batch), times_of(search) if search else np.nan]
        if i >= 0:
            times.append([latest[name] for name in names])
    measured = np.array(times)  # (rounds, mappings, 2)
    low, ratios, high = np.percentile(measured[:, :1] / measured, [25, 50, 75], axis=0)
    middle = [
        [round(float(x), 2) for x in pair] for pair in zip(low[:, 0], high[:, 0], strict=True)
    ]
    result: dict[str, Any] = {}
    for name, median, ratio, half in zip(
        names, np.median(measured, axis=0), ratios, middle, strict=True
    ):
        result[name] = {"update_ms": round(1e3 * median[0], 1), "training": round(ratio[0], 3)}
        result[name]["training_half"] = half  # of the rounds lies between these
        if np.isfinite(median[1]):
            result[name] |= {"search_ms": round(1e3 * median[1], 1), "search": round(ratio[1], 3)}
    return result


def _translation(settings: Settings, options: Options) -> Any:
    """Batches with sentences about as long as Multi30k's, and a model's update and search."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.gamma(9.0, 1.7, 4000), 4, 45).astype(int)
    others = np.clip(lengths + rng.integers(-3, 4, len(lengths)), 3, 45)
    pairs = [
        (rng.integers(4, VOCABULARY, n), rng.integers(4, VOCABULARY, m))
        for n, m in zip(lengths, others, strict=True)
    ]
    batches = TokenBatches(pairs, settings["tokens"]).epoch(np.random.default_rng(2))
    source = rng.integers(4, VOCABULARY, (SENTENCES, STEPS))
    mask = np.ones_like(source, bool)
    shape = MODELS[settings["row"]]

    def make(mapping: str) -> Any:
        def model() -> Any:
            start = np.random.default_rng(0)
            if settings["row"] == "rnn":
                both = {"attention": mapping, "output": mapping}
                recurrent = RNNSeq2SeqConfig(VOCABULARY, VOCABULARY, **{**shape, **both})
                return RNNSeq2Seq.initialize(recurrent, start, bos=1, eos=2)
            attention = {"attention": mapping}
            config = TransformerConfig(VOCABULARY, VOCABULARY, **{**shape, **attention})
            return Transformer.initialize(config, start, bos=1, eos=2)

        unmoved = model()  # no update moves its parameters: the search is the same in each round
        search = lambda: greedy_search(unmoved, source, mask, max_length=STEPS)  # noqa: E731
        return updater(model(), 1.0), search

    return list(islice(batches, 64)), make


def _language_model(settings: Settings, options: Options) -> Any:
    """Batches of some thousand characters, and a model's update; it has no search."""
    context = settings["context"]
    size = max(1, 1024 // context)
    config = LanguageModelConfig(CHARACTERS, **language_model.MODEL)
    model = LanguageModel.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    tokens = np.random.default_rng(0).integers(4, CHARACTERS, 40 * context * size)
    if "path" in settings:
        writer = Writer.load(settings["path"])
        model = writer.model
        tokens = writer.encode(language_model.read_shakespeare(options).train)
    batches = Segments(tokens, context, size).epoch(np.random.default_rng(1))

    def make(mapping: str) -> Any:
        params = {name: x.copy() for name, x in model.params.items()}
        changed = replace(model.config, attention=mapping, inference_attention=None)
        if mapping == "learned":  # which has parameters that the others lack
            other = LanguageModel.initialize(changed, np.random.default_rng(0), bos=1, eos=2)
            params = other.params | params
        return updater(LanguageModel(changed, params, model.bos, model.eos), 1.0), None

    return list(islice(batches, 20)), make


def _attention(settings: Settings, options: Options) -> Any:
    """Texts of 4,096 tokens in all, and self-attention of 4 heads, forwards and backwards."""
    n, width, heads = settings["positions"], 128, 4
    rng = np.random.default_rng(0)
    texts = rng.standard_normal((max(1, 4096 // n), n, width)).astype(np.float32)
    params = init_multi_head_attention(rng, "self", width)
    params |= init_learned_alpha("self", (heads, 1))

    def make(mapping: str) -> Any:
        def update(x: Any) -> None:
            tensors = {name: Tensor(p, requires_grad=True) for name, p in params.items()}
            learned = mapping == "learned"
            chosen = LearnedEntmax(tensors, "self") if learned else choose_mapping(mapping)
            x = Tensor(x, requires_grad=True)
            options: Any = {"heads": heads, "need_weights": False}
            y, _ = multi_head_attention(tensors, "self", x, x, x, chosen, **options)
            (y * y).sum().backward()

        return update, None

    return [texts], make


def report(lines: list[Line]) -> str:
    """Times, and speeds as multiples of softmax's, a table for each model."""
    parts = []
    for line in lines:
        sizes = {k: v for k, v in line["settings"].items() if k not in ("row", "rounds", "path")}
        size = ", ".join(f"{name} {value}" for name, value in sizes.items())
        rows = [
            [
                name,
                times.get("update_ms", "–"),
                times["training"],
                " to ".join(map(str, times.get("training_half", "–"))),
                *(times.get(x, "–") for x in ("search_ms", "search")),
            ]
            for name, times in line["result"].items()
        ]
        title = f"{line['settings']['row']}, {size}"
        columns = [title, "update (ms)", "training × softmax", "half of the rounds"]
        columns += ["search (ms)", "search × softmax"]
        parts.append(markdown(columns, rows))
    return "\n\n".join(parts)


EXPERIMENT = Experiment("own/speeds", __doc__, runs, work, report, None, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
