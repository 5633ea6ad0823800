"""A Transformer that translates: trained, saved, and answering lines of standard input.

    pip install 'pyentmax[models]'
    python examples/translate.py --train examples/toy_german.tsv    # a minute; saves translator.npz
    echo "die frau hat die alte bank gemalt" | python examples/translate.py
    echo "die frau hat die alte bank gemalt" | python examples/translate.py --list

Each line of standard input is a sentence, its words with spaces between them; the answer is the
best translation, or with ``--list`` every one that the model finds possible, as a tree. A line with
a TAB and a translation is answered by what the model finds possible at each step of it (Peters et
al. 2019, Figure 2). Every head learns its own α between 1 (softmax) and 2 (sparsemax), and the
output is 1.5-entmax, so that most words get a probability of exactly zero.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pyentmax.seq2seq.data import BOS, EOS, TokenBatches, Vocabulary, bucketed_batches, make_batch
from pyentmax.seq2seq.decoding import HypothesisTree, beam_search, forced_decoding
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.training import (
    RunOptions,
    TrainingConfig,
    Validation,
    load_checkpoint,
    save_checkpoint,
    train,
)

KIND = "translator of examples/translate.py"
SHAPE = {"width": 64, "layers": 2, "heads": 4, "inner": 128, "dropout": 0.1, "tied": "output"}
SHAPE |= {"attention": "learned", "output": "1.5"}
TRAINING = {"rate": 3e-3, "schedule": "inverse_sqrt", "warmup": 200, "betas": (0.9, 0.98)}
HELD_OUT = 200  # pairs at the end of the file
Words = list[str]


def read_pairs(path: Path) -> list[tuple[Words, Words]]:
    """Sentence pairs of a file, source TAB target on each line, as lists of words."""
    pairs = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        sides = [side.split() for side in line.split("\t")]
        if len(sides) != 2 or not all(sides):
            raise SystemExit(f"{path}, line {number}: expected source TAB target, got {line!r}")
        pairs.append((sides[0], sides[1]))
    if len(pairs) <= HELD_OUT:
        raise SystemExit(f"{path}: expected more than {HELD_OUT} pairs, got {len(pairs)}")
    return pairs


class Translator:
    """A model with its two vocabularies."""

    def __init__(self, model: Transformer, source: Vocabulary, target: Vocabulary) -> None:
        self.model, self.source, self.target = model, source, target

    def save(self, path: Path) -> None:
        """Write everything needed to use the model to one file, without pickle."""
        words = {"source": self.source.to_json(), "target": self.target.to_json()}
        about = {"kind": KIND, "config": asdict(self.model.config), **words}
        save_checkpoint(path, self.model.params, about)

    @classmethod
    def load(cls, path: Path) -> Translator:
        """Read what `save` wrote."""
        params, about = load_checkpoint(path, KIND)
        model = Transformer(TransformerConfig(**about["config"]), params, BOS, EOS)
        return cls(model, *(Vocabulary.from_json(about[side]) for side in ("source", "target")))

    def encode(self, pair: tuple[Words, Words]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of a pair; a word that was never seen becomes <unk>."""
        return (
            self.source.encode(pair[0], unknown="<unk>"),
            self.target.encode(pair[1], unknown="<unk>"),
        )

    def answer(self, line: str, *, list_all: bool = False) -> str:
        """A translation, all of them, or the steps of the one after a TAB."""
        sentence, tab, translation = line.partition("\t")
        ids, target = self.encode((sentence.split(), translation.split()))
        if not ids.size:
            return ""
        source = ids[None], np.ones((1, ids.size), bool)
        word = self.target.tokens.__getitem__
        if tab:
            [forced] = forced_decoding(self.model, *source, [target])
            return forced.text(word, what="translation")
        [result] = beam_search(self.model, *source, beam=5)
        if list_all:
            tree = HypothesisTree.build(result.hypotheses, word, separator=" ")
            return f"{tree}\n{result.reason}\n"
        best = max(result.hypotheses, key=lambda h: h.log_prob / (len(h.tokens) + 1))
        return " ".join(self.target.decode(best.tokens))

    def validate(self, pairs: Sequence[tuple[Words, Words]]) -> Validation:
        """Mean loss of a token, and the share of tokens that the model finds most probable."""
        encoded, loss, right, count = [*map(self.encode, pairs)], 0.0, 0, 0
        for index in bucketed_batches(encoded, 64):
            batch = make_batch(encoded, index)
            arrays = batch.source, batch.source_mask, batch.target_in
            best = self.model.scores(self.model.params, *arrays).data.argmax(axis=-1)
            tokens = int(batch.target_mask.sum())
            loss += tokens * float(self.model.loss(self.model.params, batch).data)
            right += int((best == batch.target_out)[batch.target_mask].sum())
            count += tokens
        return Validation(loss / count, right / count)


def trained(path: Path, updates: int, seed: int) -> Translator:
    """A model trained on all pairs of a file but the last, on which it is validated."""
    pairs = read_pairs(path)
    learned, held_out = pairs[:-HELD_OUT], pairs[-HELD_OUT:]
    source, target = (Vocabulary.build(pair[side] for pair in learned) for side in (0, 1))
    config = TransformerConfig(len(source), len(target), **SHAPE)
    model = Transformer.initialize(config, np.random.default_rng(seed), bos=BOS, eos=EOS)
    translator = Translator(model, source, target)
    batches = TokenBatches([*map(translator.encode, learned)], tokens=512)
    settings = TrainingConfig(updates=updates, seed=seed, clip=1.0, **TRAINING)
    history = train(model, batches, settings, lambda _: translator.validate(held_out), RunOptions())
    print(f"{history.best_accuracy:.1%} of the tokens of new sentences right", file=sys.stderr)
    return translator


def main() -> None:
    """Train if asked to, then answer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--model", type=Path, default="translator.npz", help="where the model is, or is saved")
    add("--train", type=Path, metavar="FILE", help="source TAB target on each line")
    add("--updates", type=int, default=1000, help="steps of the optimiser")
    add("--seed", type=int, default=0)
    add("--list", action="store_true", help="every translation that the model finds possible")
    args = parser.parse_args()
    if args.train:
        trained(args.train, args.updates, args.seed).save(args.model)
        return
    translator = Translator.load(args.model)
    for line in sys.stdin:
        print(translator.answer(line.rstrip("\n"), list_all=args.list), flush=True)


if __name__ == "__main__":
    main()
