"""A language model over characters: trained, saved, and continuing lines of standard input.

    pip install 'pyentmax[models]'
    python examples/write.py --train TEXT            # minutes for a long text; saves writer.npz
    echo "one dog" | python examples/write.py        # goes on until the line ends
    echo "one dog" | python examples/write.py --temperature 2

The model is a decoder-only Transformer. Heads and output are 1.5-entmax, so that most characters
have a probability of exactly zero, at every temperature: what is drawn is in the support of the
model, and no top-k or nucleus is needed. The last tenth of the text is held out.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pyentmax.seq2seq.data import SPECIALS, DataError, Segments, Vocabulary, cut
from pyentmax.seq2seq.decoding import ancestral_sampling
from pyentmax.seq2seq.models.language_model import LanguageModel, LanguageModelConfig
from pyentmax.seq2seq.training import (
    RunOptions,
    TrainingConfig,
    Validation,
    load_checkpoint,
    save_checkpoint,
    train,
)

KIND = "writer of examples/write.py"
SHAPE = {"attention": "1.5", "output": "1.5", "dropout": 0.0}
TRAINING = {"rate": 3e-3, "schedule": "inverse_sqrt", "warmup": 200, "betas": (0.9, 0.98)}
BATCH, LONGEST = 4, 200  # pieces per update; characters of a continuation


class Writer:
    """A model with its vocabulary of characters, which ends what it writes with a line."""

    def __init__(self, model: LanguageModel, characters: Vocabulary, context: int) -> None:
        self.model, self.characters, self.context = model, characters, context

    @classmethod
    def untrained(cls, text: str, rng: np.random.Generator, context: int, **shape: int) -> Writer:
        """A model with random parameters, of the characters of a text."""
        characters = Vocabulary.build([text, "\n"])
        config = LanguageModelConfig(len(characters), **SHAPE, **shape)
        end = int(characters.encode("\n")[0])
        return cls(LanguageModel.initialize(config, rng, bos=end, eos=end), characters, context)

    def save(self, path: Path) -> None:
        """Write everything needed to use the model to one file, without pickle."""
        about = {"kind": KIND, "config": asdict(self.model.config), "context": self.context}
        about["characters"] = self.characters.to_json()
        save_checkpoint(path, self.model.params, about)

    @classmethod
    def load(cls, path: Path) -> Writer:
        """Read what `save` wrote."""
        params, about = load_checkpoint(path, KIND)
        characters = Vocabulary.from_json(about["characters"])
        end = int(characters.encode("\n")[0])
        model = LanguageModel(LanguageModelConfig(**about["config"]), params, end, end)
        return cls(model, characters, about["context"])

    def validate(self, text: np.ndarray) -> Validation:
        """Mean loss of a character, and the share that the model finds most probable."""
        starts = np.arange(0, len(text) - self.context, self.context)
        pieces, model = cut(text, starts, self.context), self.model
        best = model.scores(model.params, pieces.tokens_in).data.argmax(axis=-1)
        loss = float(model.loss(model.params, pieces).data)
        return Validation(loss, float((best == pieces.tokens_out).mean()))

    def write(self, beginning: str, rng: np.random.Generator, temperature: float) -> str:
        """A beginning, and how the model goes on until the line ends."""
        ids = self.characters.encode("\n" + beginning, what="the beginning")[None]
        options = {"temperature": temperature, "max_length": LONGEST}
        [[drawn]] = ancestral_sampling(self.model, ids, np.ones_like(ids, bool), rng, **options)
        written = [token for token in drawn.tokens if token >= len(SPECIALS)]
        return beginning + "".join(self.characters.decode(written))


def trained(path: Path, updates: int, seed: int, context: int, **shape: int) -> Writer:
    """A model trained on a text but for its last tenth, on which it is validated."""
    text = path.read_text("utf-8")
    writer = Writer.untrained(text, np.random.default_rng(seed), context, **shape)
    ids = writer.characters.encode(text)
    learned, held_out = ids[: -len(ids) // 10], ids[-len(ids) // 10 :]
    if len(held_out) <= context:
        raise SystemExit(f"{path}: expected over {10 * context} characters, got {len(ids)}")
    settings = TrainingConfig(updates=updates, seed=seed, clip=1.0, **TRAINING)
    batches = Segments(learned, context, BATCH)
    some = held_out[: 64 * context + 1]
    history = train(writer.model, batches, settings, lambda _: writer.validate(some), RunOptions())
    print(f"{history.best_accuracy:.1%} of new characters right", file=sys.stderr)
    return writer


def main() -> None:
    """Train if asked to, otherwise answer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--model", type=Path, default="writer.npz", help="where the model is, or is saved")
    add("--train", type=Path, metavar="TEXT", help="a text in UTF-8")
    add("--updates", type=int, default=2000, help="steps of the optimiser")
    add("--context", type=int, default=256, help="characters that are read at once")
    for name, size in (("width", 128), ("layers", 4), ("heads", 4), ("inner", 512)):
        add(f"--{name}", type=int, default=size, help="of the Transformer")
    add("--seed", type=int, default=0)
    add("--temperature", type=float, default=1.0, help="below 1: closer to the most probable")
    args = parser.parse_args()
    if args.train:
        shape = {name: getattr(args, name) for name in ("width", "layers", "heads", "inner")}
        trained(args.train, args.updates, args.seed, args.context, **shape).save(args.model)
        return
    writer, rng = Writer.load(args.model), np.random.default_rng(args.seed)
    for number, line in enumerate(sys.stdin, start=1):
        try:
            print(writer.write(line.rstrip("\n"), rng, args.temperature), flush=True)
        except DataError as error:
            print(f"line {number}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
