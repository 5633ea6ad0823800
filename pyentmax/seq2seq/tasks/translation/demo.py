"""``python -m pyentmax demo-translation``: from training to pictures in a minute.

Trains a small Transformer, whose every head learns its own α, on the bundled toy German, and
translates a sentence with the word that has two translations: the complete list of what the model
finds possible, and where it looked for each word.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from pyentmax.seq2seq.plotting import plot_training_curve
from pyentmax.seq2seq.plotting._figures import require_matplotlib
from pyentmax.seq2seq.tasks.reports import describe, draw, save
from pyentmax.seq2seq.tasks.translation.configuration import Experiment, read_experiment
from pyentmax.seq2seq.tasks.translation.parallel import SentencePair
from pyentmax.seq2seq.tasks.translation.translator import train_translator
from pyentmax.seq2seq.training import RunOptions, TrainingConfig

CONFIG = "toy-transformer"
AMBIGUOUS = "die frau hat die alte bank gemalt"
CLEAR = "sucht der onkel in der stadt ein rotes ei ?"


def demo_pairs(experiment: Experiment) -> tuple[list[SentencePair], list[SentencePair]]:
    """The pairs to train on, without the sentences to be shown, and those to validate on."""
    train, dev = experiment.pairs()
    return [pair for pair in train if pair.source not in (AMBIGUOUS, CLEAR)], dev


def run_demo(out: Path, seed: int, device: str = "cpu") -> None:
    """Train, translate, print and draw."""
    require_matplotlib()  # rather an error now than after the training
    options = RunOptions(out, demonstration="demo-translation")
    options.check_directory()
    experiment = read_experiment(CONFIG, "transformer")
    train, dev = demo_pairs(experiment)
    model = experiment.model
    print(
        f"""
Training a Transformer of {model["layers"]} layers with {model["heads"]} heads each on \
{len(train):,} sentence pairs, seed {seed}.
Every head learns its own α between 1 (softmax) and 2 (sparsemax). The output is 1.5-entmax,
so that most words get a probability of exactly zero.
""",
        flush=True,
    )
    started = time.perf_counter()
    translator, history = train_translator(
        "transformer",
        train,
        dev,
        TrainingConfig(**experiment.training | {"seed": seed}),
        options,
        **experiment.batches(),
        device=device,
        **model,
    )
    if history.interrupted:
        raise KeyboardInterrupt
    print(f"trained in {time.perf_counter() - started:.0f} s\n")
    files = []
    for name, sentence in (("ambiguous", AMBIGUOUS), ("clear", CLEAR)):
        result, source = translator.translate(sentence), translator.segmenter.split(sentence)
        print(describe(translator, sentence, result), end="\n\n")
        files += draw(translator, sentence, source, result, out, name)
    translations = translator.translate_all([pair.source for pair in dev])
    right = sum(a == pair.target for a, pair in zip(translations, dev, strict=True))
    print(f"Sentences never seen: {right} of {len(dev)} translated as in the corpus.")
    for kind, alphas in translator.model.alphas().items():
        each = "  ".join(" ".join(f"{alpha:.2f}" for alpha in layer) for layer in alphas)
        print(f"α of the {kind} heads, by layer: {each}")
    files += save({"training": plot_training_curve(vars(history))}, out)
    print("\nPictures:", *(f"  {path}" for path in files), sep="\n")
    folder = shlex.quote(str(out))
    print(
        f"""
Try next:
  python -m pyentmax translate {folder} --list "die frau hat die alte bank im park gemalt"
  python -m pyentmax train rnn --config toy-rnn --out toy-rnn
  python -m pyentmax train transformer --help"""
    )
