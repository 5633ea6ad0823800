"""The commands of inflection: ``demo``, ``train seq2seq``, ``inflect`` and ``force``."""

from __future__ import annotations

import argparse
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.data.text_files import decode, numbered, numbered_lines, printable
from pyentmax.seq2seq.inflection.demo import run_demo
from pyentmax.seq2seq.inflection.examples import (
    Example,
    language_of,
    read_examples,
    source_tokens,
    split_tags,
)
from pyentmax.seq2seq.inflection.inflector import Inflector, train_inflector
from pyentmax.seq2seq.inflection.reports import show
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2SeqConfig
from pyentmax.seq2seq.nn.attention import LEARNED, SCORES
from pyentmax.seq2seq.training import BEST, LAST, RunOptions, TrainingConfig


def add_commands(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add all of them by `Commands.add`, in the order in which the help text lists them."""
    parser = add_command(
        "demo",
        run=lambda args: run_demo(args.out, args.seed),
        help="train on English verbs; list every form of 'draw'",
    )
    parser.add_argument("--seed", type=int, default=0, help="fixes the result")
    help = "folder for model and pictures"
    parser.add_argument("--out", type=user_path, default="pyentmax-demo", help=help)
    _add_train(add_command)
    _add_inflect(add_command)

    parser = add_command(
        "force",
        run=_force,
        help="what a model finds possible at each step of a given form",
        description="Forced decoding (Peters et al. 2019, Figure 2): the form is fed to the model, "
        "and each step shows what the model finds possible there.",
    )
    add = parser.add_argument
    help = "best.npz, or the folder of a run; the probabilities of several are averaged"
    add("models", nargs="+", type=user_path, metavar="MODEL", help=help)
    add("lemma", help="the word")
    add("tags", help="separated by semicolons, such as 'V;V.PTCP;PST'")
    add("form", help="the form to feed, possible or not")
    add("--language", help="of the word, for a model trained with --multilingual")
    add("--pictures", type=user_path, metavar="DIR", help="draw the steps and the attention there")


def _add_train(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    parser = add_command(
        "train seq2seq",
        run=_train,
        help="a recurrent model of inflection",
        description="Train a recurrent sequence-to-sequence model (Peters et al. 2019). A file of "
        "data has one example per line: lemma TAB form TAB tags;joined;by;semicolons, or the tags "
        "before the form. Writes "
        "DIR/best.npz, the model with the best accuracy of greedy decoding on the development "
        "files, and DIR/last.npz, from which --resume continues if all other options are the same.",
    )
    add = parser.add_argument
    for name, help in (("--train", "to learn from"), ("--dev", "to validate on")):
        add(name, nargs="+", type=user_path, required=True, metavar="FILE", help=help)
    add("--multilingual", action="store_true", help="mark examples with their file's language")
    add("--attention", default="1.5", metavar="MAPPING", help="α, a mapping's name, or 'learned'")
    add("--score", choices=SCORES, default="bilinear", help="how attention compares states")
    add("--loss", default="1.5", metavar="MAPPING", help="of the output: α, or a mapping's name")
    add("--hidden", type=int, default=128, help="width of embeddings and hidden states")
    add("--layers", type=int, default=1, help="of encoder and decoder")
    add("--dropout", type=float, default=0.3, help="rate")
    add("--updates", type=int, default=3000, help="steps of Adam")
    add("--batch-size", type=int, default=32, help="examples per update")
    add("--rate", type=float, default=3e-3, help="Adam's step size at the start, 0 at the end")
    add("--validate-every", type=int, metavar="UPDATES", help="ten times in all if not given")
    add("--patience", type=int, metavar="N", help="stop after N validations without a better one")
    add("--seed", type=int, default=0, help="fixes the result")
    add("--out", type=user_path, default="runs/inflection", metavar="DIR", help="folder of the run")
    add("--resume", action="store_true", help=f"continue from DIR/{LAST}")
    add("--quiet", action="store_true", help="no progress")


def _add_inflect(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    parser = add_command(
        "inflect",
        run=_inflect,
        help="every form that a model finds possible, or the best one for each line of a file",
        description="Every form of a word that a model finds possible; or, for each line of a file "
        "or of standard input (lemma TAB tags, or three columns with form and tags in either "
        "order), the best form in the file's own layout, with the accuracy if forms are given. The "
        "probabilities of several models are averaged.",
    )
    parser.usage = "%(prog)s MODEL [MODEL ...] (LEMMA TAGS | FILE | -) [options]"
    add = parser.add_argument
    help = "best.npz, or the folder of a run; then LEMMA TAGS such as 'V;V.PTCP;PST', FILE or -"
    add("words", nargs="+", metavar="MODEL", help=help)
    add("--language", help="of the words, for a model trained with --multilingual")
    help = "beam if not given; exact: expand the best prefix first, until the result is proved"
    add("--search", choices=("beam", "exact"), help=help)
    add("--beam", type=int, metavar="N", help="open prefixes kept at each step, 5 if not given")
    help = "stop at the N best; all if not given"
    add("--n-best", "--best", dest="n_best", type=int, metavar="N", help=help)
    help = "exact: most prefixes to expand, 1000 if not given"
    add("--budget", type=int, metavar="N", help=help)
    add("--max-length", type=int, help="longest form; from the lemma's length if not given")
    help = "draw the tree and the attention there"
    add("--pictures", type=user_path, metavar="DIR", help=help)


def user_path(text: str) -> Path:
    """A path as it was typed: a shell does not replace the ~ of ``--out=~/run``."""
    return Path(os.path.expanduser(text))


# --- train ----------------------------------------------------------------------------------------
def _train(args: argparse.Namespace) -> None:
    options = RunOptions(args.out, resume=args.resume, progress=not args.quiet)
    options.check_directory()
    examples = read_marked(args.train, args.multilingual)
    dev = read_marked(args.dev, args.multilingual)
    _note_unknown({token for e in examples for token in (*source_tokens(e), *e.form)}, dev)
    inflector, history = train_inflector(
        examples,
        dev,
        TrainingConfig(**_fields(args, TrainingConfig)),
        options,
        batch_size=args.batch_size,
        output=args.loss,
        **_fields(args, RNNSeq2SeqConfig),
    )
    if history.interrupted:
        print(f"interrupted; continue with the same command and --resume ({args.out / LAST})")
        raise KeyboardInterrupt
    learned = args.attention == LEARNED
    alpha = f", attention α {inflector.model.attention_alpha:.2f}" if learned else ""
    print(
        f"{history.update[-1]} updates in {history.seconds[-1]:.0f} s; best dev accuracy "
        f"{100 * history.best_accuracy:.1f}% (greedy){alpha}; model in {args.out / BEST}"
    )
    if history.best_accuracy < 0.2:
        _note(
            f"few of the development forms are right, after {len(examples)} examples; on "
            "little data see the guide on morphology, docs/guide/morphology.md"
        )


def _fields(args: argparse.Namespace, settings: Any) -> dict[str, Any]:
    """The values of the options that are named like fields of a dataclass."""
    return {
        field.name: getattr(args, field.name) for field in fields(settings) if field.name in args
    }


def read_marked(paths: Sequence[Path], multilingual: bool) -> list[Example]:
    """Read examples, if ``multilingual`` marked with the language that their file's name tells."""
    languages = [language_of(path) for path in paths] if multilingual else None
    return read_examples(paths, languages=languages)


def _note_unknown(known: Set[str], dev: Sequence[Example]) -> None:
    """Print which share of the examples has tokens that the training data lacks."""
    strange = [e for e in dev if not known >= {*source_tokens(e), *e.form}]
    if strange:
        print(
            f"note: {len(strange)} of {len(dev)} development examples "
            f"({len(strange) / len(dev):.0%}) have characters or tags that the training data "
            f"lacks, such as {strange[0].lemma!r}"
        )


# --- inflect, force -------------------------------------------------------------------------------
def _inflect(args: argparse.Namespace) -> None:
    *models, last = args.words
    # A pipe is a file, too: `<(command)` of a shell, /dev/stdin.
    is_input = last == "-" or (os.path.exists(last) and not os.path.isdir(last))
    on_lines = is_input and models and all(map(os.path.exists, models))
    if not on_lines:
        if len(args.words) < 3:
            raise ValueError(
                f"expected MODEL LEMMA TAGS, or MODEL FILE; got {' '.join(args.words)}"
            )
        *models, args.lemma, args.tags = args.words
    for name, wrong, expected in (
        ("beam", args.search == "exact", "without --search exact, where it has no effect"),
        ("budget", args.search != "exact", "--search exact with it"),
        ("pictures", on_lines, "LEMMA TAGS"),
    ):
        if wrong and getattr(args, name) is not None:
            raise ValueError(f"--{name}: expected {expected}")
    chosen = {name: getattr(args, name) for name in ("search", "beam", "n_best", "budget")}
    options = {name: value for name, value in chosen.items() if value is not None}
    options["max_length"] = args.max_length
    inflector = Inflector.load_ensemble(models)
    if on_lines:
        _inflect_lines(inflector, last, args.language, **options)
        return
    options["keep_attention"] = args.pictures is not None  # of a long lemma it takes gigabytes
    result = inflector.inflect(args.lemma, args.tags, args.language, **options)
    if note := inflector.note(split_tags(args.tags)):
        _note(note)
    _show(args, inflector, "", result)


def _inflect_lines(
    inflector: Inflector, name: str, language: str | None, *, n_best: int = 1, **options: Any
) -> None:
    """Write each line of a file, or of standard input, with the forms that the model predicts.

    A line that cannot be used is named, and an empty one stands in its place.
    """
    known, noted = set(inflector.known_tags()), set[str]()
    parsed: dict[int, tuple[list[str], int, Example]] = {}
    lines = [*(_standard_input() if name == "-" else numbered_lines(name))]
    for i, (where, line) in enumerate(lines):
        try:
            if line.strip():
                parsed[i] = _parse(line, where, inflector, known, language)
                _note_unseen(inflector, where, parsed[i][2], noted)
        except DataError as error:
            _note(str(error))
    if not parsed:
        raise DataError(f"{name}: expected lines of lemma TAB tags, none can be used")
    results = inflector.predict([asked for *_, asked in parsed.values()], n_best=n_best, **options)
    by_line = dict(zip(parsed, results, strict=True))
    for i in range(len(lines)):
        if i not in parsed:
            print()
            continue
        columns, place, _ = parsed[i]
        for hypothesis in by_line[i].hypotheses[:n_best]:
            row = [*columns, ""][:3]
            row[3 - place] = inflector.form(hypothesis.tokens)
            print(printable("\t".join(row), keep="\t"))
    forms = {i: asked.form for i, (*_, asked) in parsed.items() if asked.form}
    if forms:
        right = sum(inflector.form(by_line[i].best.tokens) == form for i, form in forms.items())
        _note(f"{right} of {len(forms)} forms are right, {right / len(forms):.1%}")


def _standard_input() -> Iterator[tuple[str, str]]:
    name = "standard input"
    return numbered(decode(sys.stdin.buffer.read(), name), name)


def _parse(
    line: str, where: str, inflector: Inflector, known: Set[str], language: str | None
) -> tuple[list[str], int, Example]:
    """The columns of a line, that of the tags, and what is asked for."""
    columns, place = line.split("\t"), 1
    if len(columns) != 2:
        if len(columns) != 3:
            expected = "lemma TAB tags, or three columns with the form"
            raise DataError(f"{where}: expected {expected}, got {line!r}")
        second, third = (set(split_tags(text)) for text in columns[1:])
        # Where both or neither are known tags, the one with more of them, or else the last.
        place = 1 if (known >= second, len(second)) > (known >= third, len(third)) else 2
    form = columns[3 - place] if len(columns) == 3 else ""
    asked = Example(columns[0], form, split_tags(columns[place]), language)
    try:
        inflector.check(asked.lemma, asked.tags, language)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    return columns, place, asked


def _note_unseen(inflector: Inflector, where: str, asked: Example, noted: set[str]) -> None:
    """Say what of an example the model has not seen, once for each bundle of tags."""
    note = inflector.note(asked.tags)
    if note and note not in noted:
        noted.add(note)
        _note(f"{where}: {note}")
    strange = [c for c in dict.fromkeys(asked.lemma) if c not in inflector.source]
    if strange:
        composed = unicodedata.normalize("NFC", asked.lemma)
        nfc = "; in Unicode's form NFC it would" * all(c in inflector.source for c in composed)
        letters = " ".join(map(repr, strange))
        _note(f"{where}: the model does not know {letters} of {asked.lemma!r}{nfc}")


def _force(args: argparse.Namespace) -> None:
    inflector = Inflector.load_ensemble(args.models)
    decoding = inflector.force(args.lemma, args.tags, args.form, args.language)
    _show(args, inflector, args.form, decoding)


def _show(args: argparse.Namespace, inflector: Inflector, form: str, result: Any) -> None:
    word = Example(args.lemma, form, split_tags(args.tags), args.language)
    source = inflector.source_tokens(word)
    show(inflector, word.title(), source, result, args.pictures, word.file_name())


def _note(text: str) -> None:
    print(printable(f"note: {text}", keep=""), file=sys.stderr)
