"""What the experiments on inflection share: the words, a trained model, what is measured of it."""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.certainty import exactness_statistics, word_accuracy
from experiments.peters2019.conll2018 import conll2018_files, conll2018_languages
from experiments.runner import Notes, Options, Settings, finished, run_options
from pyentmax.seq2seq.inflection import Inflector, train_inflector
from pyentmax.seq2seq.inflection.examples import (
    Example,
    compounds_of,
    hold_out,
    read_examples,
)
from pyentmax.seq2seq.training import History, TrainingConfig, fingerprint

SIZES = ("high", "medium", "low")
MODEL = ("hidden", "layers", "dropout", "score", "attention")
"""Settings that are fields of the model's configuration."""

Words = list[Example]


def read_words(settings: Settings, options: Options, *, marked: bool = True) -> tuple[Words, Words]:
    """Words to learn from and to measure on.

    Settings have the ``languages``, a list or "all", and the ``size`` of the training files. Each
    word is marked with its language, unless ``marked`` is False.
    """
    names = settings["languages"]
    split = f"train-{settings['size']}"
    if names == "all":
        names = conll2018_languages(split, options.data)
    train, dev = (
        read_examples(
            conll2018_files(names, part, options.data), languages=names if marked else None
        )
        for part in (split, "dev")
    )
    return train, dev


def first_words(examples: Iterable[Example], count: int | None) -> list[Example]:
    """The first ``count`` examples of each language, or all; files have them in random order.

    Examples
    --------
    >>> examples = [Example(lemma, "", (), language) for language in "xy" for lemma in "abc"]
    >>> [example.language + example.lemma for example in first_words(examples, 2)]
    ['xa', 'xb', 'ya', 'yb']
    """
    if count is None:
        return list(examples)
    per_language: Counter[str | None] = Counter()
    chosen = []
    for example in examples:
        per_language[example.language] += 1
        if per_language[example.language] <= count:
            chosen.append(example)
    return chosen


def fit(
    settings: Settings,
    folder: Path,
    options: Options,
    train: Sequence[Example],
    dev: Sequence[Example],
    training: dict[str, Any],
    keep: str = "best",
) -> tuple[Inflector, History]:
    """Train or resume a model; seconds are those that the process computes.

    Parameters
    ----------
    training : dict
        Fields of `TrainingConfig` but for the seed.
    keep : {"best", "last"}
        As for `RunOptions`.
    """
    clock = time.process_time
    inflector, history = train_inflector(
        train,
        dev,
        TrainingConfig(**training, seed=settings["seed"]),
        run_options(folder, options, keep=keep, clock=clock),
        batch_size=settings["batch_size"],
        output=settings["loss"],
        **{name: settings[name] for name in MODEL if name in settings},
    )
    finished(history)
    return inflector, history


def small_run(
    settings: Settings, folder: Path, options: Options, *, keep: str = "last"
) -> tuple[Inflector, Words, dict[str, Any]]:
    """Train a model of one language and measure it; returns it with the dev words and the result.

    Accuracies are those after the last update, unless ``keep`` is "best". The setting ``held_out``,
    if there is one, is a lemma that is left out of training with its compounds.
    """
    train, dev = read_words(settings, options, marked=False)
    if lemma := settings.get("held_out"):
        train, _ = hold_out(train, {lemma, *compounds_of(lemma, {word.lemma for word in train})})
    training = {
        "updates": settings["updates"],
        "rate": settings["rate"],
        "validate_every": -(-settings["updates"] // settings["validations"]),
    }
    inflector, history = fit(settings, folder, options, train, dev, training, keep=keep)
    result = {
        "accuracy_greedy": 100 * history.dev_accuracy[-1],
        "cpu_seconds": round(history.seconds[-1], 2),
        **measured(inflector, dev, settings["beam"]),
        **fingerprints(train, dev),
        "curve": Notes(folder).curve(history),
    }
    return inflector, dev, result


def levenshtein(a: str, b: str) -> int:
    """The fewest insertions, deletions and substitutions that turn ``a`` into ``b``.

    Examples
    --------
    >>> levenshtein("drawed", "drawn")
    2
    """
    # distance[j] is from the part of a that was read to b[:j]: one row of the usual table.
    distance = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        diagonal, distance[0] = distance[0], i
        for j, y in enumerate(b, start=1):
            best = min(distance[j] + 1, distance[j - 1] + 1, diagonal + (x != y))
            diagonal, distance[j] = distance[j], best
    return distance[-1]


def measured(inflector: Inflector, dev: Sequence[Example], beam: int) -> dict[str, Any]:
    """Accuracy and exactness of a beam search, and accuracies by language.

    ``accuracy`` and ``levenshtein`` are means over the languages, as in the shared task's scorer.
    ``single`` is the share of words for which one sequence has all the probability, ``exact`` that
    for which the beam is proved complete. Shares are in percent.
    """
    started = time.perf_counter()
    results = inflector.predict(dev, beam=beam)
    seconds = time.perf_counter() - started
    forms = [inflector.form(result.best.tokens) for result in results]
    exactness = exactness_statistics(results)
    by_language: dict[str, list[int]] = defaultdict(list)
    for i, example in enumerate(dev):
        by_language[str(example.language)].append(i)
    languages = {}
    for language, places in by_language.items():
        pair = [forms[i] for i in places], [dev[i].form for i in places]
        distances = [levenshtein(*words) for words in zip(*pair, strict=True)]
        languages[language] = {
            "examples": len(places),
            "accuracy": 100 * word_accuracy(*pair),
            "levenshtein": sum(distances) / len(distances),
        }
    means = {
        name: sum(x[name] for x in languages.values()) / len(languages)
        for name in ("accuracy", "levenshtein")
    }
    return {
        **means,
        "single": 100 * exactness.single,
        "exact": 100 * exactness.exact,
        "decode_seconds": round(seconds, 1),
        **({} if list(languages) == ["None"] else {"languages": languages}),
    }


def fingerprints(train: Sequence[Example], dev: Sequence[Example]) -> dict[str, str]:
    """A short text for the words of each split, the same only for the same ones in one order."""
    return {"train": fingerprint(train), "dev": fingerprint(dev)}


def add_shared_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Options of all experiments on inflection, with an experiment's defaults."""
    add = parser.add_argument
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--size", choices=SIZES, help="of the training files")
    add("--hidden", type=int, help="width of embeddings and hidden states")
    add("--layers", type=int, help="of encoder and decoder")
    add("--batch-size", type=int, help="examples per update")
    add("--rate", type=float, help="Adam's step size at the start")
    add("--beam", type=int, default=5, help="width of the search at the end")
    parser.set_defaults(**defaults)


def add_small_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Options of the experiments on one language, with an experiment's defaults."""
    add = parser.add_argument
    add("--language", default="english", help="as the shared task names its files")
    add("--updates", type=int, help="steps of Adam")
    add("--validations", type=int, help="how many there are during training")
    add_shared_options(parser, **{"hidden": 128, "rate": 3e-3, **defaults})


def small_settings(args: argparse.Namespace) -> Settings:
    """The settings that all models of an experiment on one language share."""
    names = "size hidden layers updates batch_size rate validations beam".split()
    shared = {name: getattr(args, name) for name in names}
    return {**shared, "dropout": 0.3, "languages": [args.language]}
