"""What each attention and loss costs beside softmax, in training and in use, one thread, in turns.

    python benchmarks/translation_mappings.py [--rounds 20] [--tokens 1200] [--alone]

The Transformer of `reproduce translation` has softmax, 1.5-entmax, sparsemax, the 8 largest, or an
α per head that is learned, with the same parameters and batches. Each round does an update and a
greedy search of 64 sentences with each, in an order that turns with the round. The recurrent
network has one α for attention and loss. Beside them PyTorch trains the Transformer with softmax,
and with the bisection of the `entmax` package where α is learned. Printed are medians, and the
medians of the ratios within a round: speeds as multiples of softmax's, in tables of Markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from transformer import Ours, Theirs, corpus  # which sets one thread before NumPy is there

# isort: split
import numpy as np

from pyentmax.data import TokenBatches
from pyentmax.decoding import greedy_search
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.models.transformer import Transformer, TransformerConfig
from pyentmax.system.memory import keep_freed_memory

ATTENTIONS = {
    "softmax": "softmax",
    "1.5-entmax": "1.5",
    "sparsemax": "2",
    "the 8 largest": "topk_softmax:8",
    "α learned per head": "learned",
}
VOCABULARY, SENTENCES, STEPS = 4000, 64, 16


class Side(NamedTuple):
    """What takes a turn in each round."""

    update: Callable[[Any], None]
    decode: Callable[[], Any] | None


def transformer(attention: str) -> Transformer:
    """The model of `reproduce translation`, with random parameters."""
    config = TransformerConfig(
        VOCABULARY,
        VOCABULARY,
        width=128,
        layers=3,
        heads=4,
        inner=512,
        norm="pre",
        dropout=0.3,
        attention=attention,
        output="softmax",
        tied="output",
    )
    return Transformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)


def recurrent(alpha: str) -> RNNSeq2Seq:
    """The recurrent one with an α for attention and loss."""
    config = RNNSeq2SeqConfig(
        VOCABULARY, VOCABULARY, hidden=256, layers=1, dropout=0.3, attention=alpha, output=alpha
    )
    return RNNSeq2Seq.initialize(config, np.random.default_rng(0), bos=1, eos=2)


def ours(model: Any) -> Side:
    """Updates and greedy search with this library."""
    rng = np.random.default_rng(3)
    source = rng.integers(4, VOCABULARY, (SENTENCES, STEPS))
    mask = np.ones_like(source, bool)
    # The search has parameters of its own, which no update moves: it does the same in each round.
    kept = type(model)(
        model.config, {k: x.copy() for k, x in model.params.items()}, model.bos, model.eos
    )
    return Side(Ours(model).update, lambda: greedy_search(kept, source, mask, max_length=STEPS))


def theirs(attention: str) -> Side:
    """Updates with PyTorch."""
    side = Theirs(transformer(attention), attention)
    side.model.train()
    return Side(side.update, None)


def seconds(work: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(sides: dict[str, Side], batches: list[Any], rounds: int) -> dict[str, np.ndarray]:
    """Seconds (rounds, 2) of an update and of a search by each side, NaN where it has none."""
    for side in sides.values():
        side.update(batches[0])
        if side.decode:
            side.decode()
    found = {name: np.full((rounds, 2), np.nan) for name in sides}
    names = list(sides)
    for i in range(rounds):
        turned = names[i % len(names) :] + names[: i % len(names)]
        batch = batches[i % len(batches)]
        for name in turned:
            found[name][i, 0] = seconds(partial(sides[name].update, batch))
        for name in turned:
            decode = sides[name].decode
            if decode:
                found[name][i, 1] = seconds(decode)
    return found


def table(found: dict[str, np.ndarray], first: str, title: str) -> str:
    """Medians, and speeds as multiples of the first one's."""
    lines = [
        f"| {title} | update (ms) | training × softmax | search (ms) | search × softmax |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, times in found.items():
        ms = [f"{1000 * t:.1f}" if np.isfinite(t) else "–" for t in np.median(times, axis=0)]
        ratios = np.median(found[first] / times, axis=0)
        share = [f"{r:.2f}" if np.isfinite(r) else "–" for r in ratios]
        lines.append(f"| {name} | {ms[0]} | {share[0]} | {ms[1]} | {share[1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rounds", type=int, default=20)
    add("--tokens", type=int, default=1200, help="of a batch, padding included")
    add("--alone", action="store_true", help="without PyTorch")
    add("--recurrent", type=int, metavar="N", help="rounds of the recurrent network; as many")
    args = parser.parse_args()
    keep_freed_memory()
    cut = TokenBatches(corpus(VOCABULARY), args.tokens)
    batches = list(islice(cut.epoch(np.random.default_rng(2)), 64))
    sides = {name: ours(transformer(attention)) for name, attention in ATTENTIONS.items()}
    if not args.alone:
        sides["PyTorch, softmax"] = theirs("softmax")
        sides["PyTorch, α learned, bisection"] = theirs("learned")
    found = measure(sides, batches, args.rounds)
    print(table(found, "softmax", "Transformer"))
    if not args.alone:
        for attention, other in (
            ("softmax", "PyTorch, softmax"),
            ("α learned per head", "PyTorch, α learned, bisection"),
        ):
            ratio = np.median(found[other][:, 0] / found[attention][:, 0])
            print(f"\n{attention}: {ratio:.2f} × the speed of training of {other}")
    rounds = args.rounds if args.recurrent is None else args.recurrent
    if rounds:
        sides = {f"α = {alpha} for both": ours(recurrent(alpha)) for alpha in ("1", "1.5", "2")}
        found = measure(sides, batches, rounds)
        print("\n" + table(found, "α = 1 for both", "recurrent network"))


if __name__ == "__main__":
    main()
