"""``python -m pyentmax demo``: inflection from training to pictures, in half a minute on a laptop.

Trains a small sparse sequence-to-sequence model on the bundled English verbs, with *draw* and its
compounds held out, and lists the past participles of *draw* that it finds possible: every one, if
the beam search proves its list complete, as it says.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.seq2seq.inflection.examples import Example, compounds_of, english_verbs, hold_out
from pyentmax.seq2seq.inflection.inflector import Inflector, train_inflector
from pyentmax.seq2seq.inflection.reports import describe, draw
from pyentmax.seq2seq.plotting._figures import require_matplotlib
from pyentmax.seq2seq.training import History, RunOptions, TrainingConfig

LEMMA, TAGS = "draw", "V;V.PTCP;PST"
DEV_SHARE = 0.05
# As accurate, over three seeds, as 2,000 updates at 3e-3 with dropout of 0.3.
UPDATES, RATE, DROPOUT = 1400, 5e-3, 0.2


def demo_split(seed: int) -> tuple[list[Example], list[Example], list[Example]]:
    """Training verbs, development verbs, and *draw* with its compounds, without a common verb."""
    if seed < 0:
        raise ValueError(f"seed: expected a number from 0 up, got {seed}")
    examples = english_verbs()
    lemmas = sorted({example.lemma for example in examples})
    rest, family = hold_out(examples, {LEMMA, *compounds_of(LEMMA, lemmas)})
    others = sorted({example.lemma for example in rest})
    rng = np.random.default_rng(seed)
    chosen = rng.choice(others, size=round(DEV_SHARE * len(others)), replace=False)
    train, dev = hold_out(rest, set(chosen.tolist()))
    return train, dev, family


def train_demo(seed: int, options: RunOptions) -> tuple[Inflector, History]:
    """Train the model of the demonstration; returns it with its history."""
    train, dev, _ = demo_split(seed)
    config = TrainingConfig(updates=UPDATES, rate=RATE, seed=seed, validate_every=UPDATES // 4)
    return train_inflector(train, dev, config, options, hidden=128, dropout=DROPOUT)


def run_demo(out: Path, seed: int) -> None:
    """Train, decode, print and draw."""
    require_matplotlib()  # rather an error now than after the training
    options = RunOptions(out, demonstration="demo")
    options.check_directory()
    train, dev, family = demo_split(seed)
    held = sorted({example.lemma for example in family})
    print(
        f"""
Training a sparse sequence-to-sequence model on {_count(train)}, seed {seed}.
Held out: {", ".join(held)} ({len(family)} forms),
so the model has never seen any form of "{LEMMA}"; and {_count(dev)}
to measure its accuracy.
Attention and output are 1.5-entmax: both can give probabilities that are exactly zero.
""",
        flush=True,
    )
    started = time.perf_counter()
    inflector, history = train_demo(seed, options)
    if history.interrupted:
        raise KeyboardInterrupt
    print(f"trained in {time.perf_counter() - started:.0f} s\n")

    word = Example(LEMMA, "", tuple(TAGS.split(";")))
    result = inflector.inflect(word.lemma, word.tags)
    which = "Every past participle" if result.exact else "The likeliest past participles"
    print(f'{which} of "{LEMMA}" that the model finds possible:\n')
    print(describe(inflector, word.title(), result))

    results, of_family = inflector.predict(dev), inflector.predict(family)
    exact = np.array([result.exact for result in results])
    single = exact & [len(result.hypotheses) == 1 for result in results]
    print(
        f"""
Verbs never seen: {_accuracy(inflector, dev, results)}; all mass on one string for
{single.mean():.0%} of the forms, and the beam of 5 proved complete for {exact.mean():.0%}.
{LEMMA.capitalize()} and its compounds: {_accuracy(inflector, family, of_family)}."""
    )

    files = draw(
        inflector, word.title(), inflector.source_tokens(word), result, out, word.file_name()
    )
    print("\nPictures:", *(f"  {path}" for path in files), sep="\n")
    folder = shlex.quote(str(out))
    python = os.path.relpath(sys.executable) if ".venv" in sys.executable else "python"
    print(
        f"""
Try next:
  {python} -m pyentmax inflect {folder} withdraw "{TAGS}"
  {python} -m pyentmax inflect {folder} gloop "V;PST" --pictures {folder}
  {python} -m pyentmax demo --seed {seed + 1}"""
    )


def _count(examples: Sequence[Example]) -> str:
    return f"{len(examples):,} forms of {len({e.lemma for e in examples}):,} verbs"


def _accuracy(inflector: Inflector, examples: Sequence[Example], results: Any) -> str:
    right = sum(
        inflector.form(r.best.tokens) == e.form for r, e in zip(results, examples, strict=True)
    )
    return f"{right} of {len(examples)} forms right ({right / len(examples):.1%})"
