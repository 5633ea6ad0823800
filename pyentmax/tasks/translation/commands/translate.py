"""``translate``: sentences, with a trained model."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pyentmax.data import DataError
from pyentmax.tasks.command_line import (
    DEFAULT_BEAM,
    DEFAULT_BUDGET,
    Commands,
    refuse_idle_of_search,
    refuse_together,
)
from pyentmax.tasks.output import in_parts
from pyentmax.tasks.translation.reports import (
    describe,
    describe_forced,
    draw,
    draw_forced,
    picture_names,
)
from pyentmax.tasks.translation.translator import SentenceDecoder, load_sentence_decoder
from pyentmax.training import counting


def add_translate(commands: Commands) -> None:
    """Add the `translate` command."""
    parser = commands.add(
        "translate",
        run=_translate,
        writes_text=True,
        help="sentences, or every translation that a model finds possible",
        description="Translate sentences, given here or one per line of standard input: the best "
        "translation of each on a line of its own. With --list, every one that the search finds, "
        "as a tree with its probabilities, and whether that is all there are. With --force, what "
        "it finds possible at each step of a given translation (Peters et al. 2019, Figure 2).",
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="best.npz, or the folder of a run")
    # One at least: an optional list would be taken as empty where an option comes before it.
    add("sentences", nargs="+", metavar="SENTENCE", help="in quotes; or - for standard input")
    add(
        "--ensemble",
        action="append",
        type=Path,
        default=[],
        metavar="MODEL",
        help="one more, whose probabilities are averaged with the first one's; may be repeated",
    )
    add("--list", action="store_true", help="all translations, with probabilities")
    add("--search", choices=("beam", "exact"), default="beam", help="exact: of --list")
    add("--beam", type=int, metavar="N", help="open prefixes kept at each step, 5 if not given")
    add("--best", type=int, metavar="N", help="of --list: stop at the N best")
    add("--budget", type=int, metavar="N", help="exact: most prefixes to expand, 1000 if not given")
    add("--whole", action="store_true", help="compare by the probability of the whole, not by mean")
    add("--force", metavar="TRANSLATION", help="of the one sentence: feed it, step by step")
    add(
        "--pictures",
        type=Path,
        metavar="DIR",
        help="with --list or --force: draw tree or steps there, and the attention",
    )
    add("--quiet", action="store_true", help="no progress")


def _translate(args: argparse.Namespace) -> int:
    _refuse_idle_options(args)
    beam = DEFAULT_BEAM if args.beam is None else args.beam
    decoder = load_sentence_decoder([args.model, *args.ensemble])
    sentences = args.sentences
    if "-" in sentences and len(sentences) > 1:
        raise ValueError("sentences: expected - for standard input alone, got more sentences")
    if sentences == ["-"]:
        # Where it was closed, nothing stands for it, under this name: see __main__.py.
        if getattr(sys.stdin, "name", None) == os.devnull:
            raise ValueError("sentences: expected standard input for -, which is closed")
        # A mark at the beginning of a file that came through a pipe is no part of a word.
        text = sys.stdin.read().removeprefix("\ufeff")
        sentences = text.removesuffix("\n").split("\n") if text else []
    _check_sentences(decoder, sentences)
    if args.force is not None:
        if len(sentences) != 1 or args.list:
            raise ValueError("--force: expected one sentence, and no --list")
        _check_utf8(args.force, "--force")
        decoding = decoder.force(sentences[0], args.force)
        print(describe_forced(decoder, sentences[0], decoding))
        if args.pictures is not None:
            for path in draw_forced(decoder, sentences[0], decoding, args.pictures):
                print(f"picture: {path}")
        return 0
    if args.pictures is not None and not args.list:
        raise ValueError("--pictures: expected --list or --force with it")
    # On a screen, what is written is progress enough, and a bar would stand in between.
    progress = not (args.quiet or sys.stdout.isatty())
    if not args.list:
        blocks = decoder.translate_in_blocks(
            sentences, beam=beam, normalize=not args.whole, progress=progress
        )
        with in_parts(len(sentences), "translations") as write, closing(blocks):
            for block in blocks:
                write("".join(f"{translation}\n" for translation in block), len(block))
        return 0
    bar = counting(len(sentences), "sentence", progress)
    with in_parts(len(sentences), "lists") as write, bar as advance:
        for sentence, name in zip(sentences, picture_names(sentences), strict=True):
            result = decoder.translate(
                sentence,
                search=args.search,
                beam=beam,
                n_best=args.best,
                budget=DEFAULT_BUDGET if args.budget is None else args.budget,
            )
            write(f"{describe(decoder, sentence, result)}\n\n", 1)
            if args.pictures is not None:
                for path in draw(decoder, sentence, result, args.pictures, name):
                    write(f"picture: {path}\n", 0)
            advance(1)
    return 0


def _check_sentences(decoder: SentenceDecoder, sentences: Sequence[str]) -> None:
    """Raise a DataError that names the first sentence of which no token would be left.

    All are looked at before anything is computed, rather than each when its turn comes.
    """
    for number, sentence in enumerate(sentences, start=1):
        if not sentence.split():
            raise DataError(f"sentence {number}: expected at least one word, got an empty one")
        _check_utf8(sentence, f"sentence {number}")
        if not decoder.segmenter.split(sentence):
            raise DataError(
                f"sentence {number}: expected a word or a sub-word, got none of {sentence!r}"
            )


def _check_utf8(text: str, where: str) -> None:
    """Raise a DataError for a byte that is no UTF-8; Python reads it as half a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: expected UTF-8, got byte 0x{ord(text[error.start]) & 0xFF:02x} after "
            f"{text[: error.start]!r}"
        ) from error


def _refuse_idle_options(args: argparse.Namespace) -> None:
    """Raise a ValueError for an option that would have no effect."""
    if not args.list:
        for name, given in (("best", args.best), ("budget", args.budget)):
            if given is not None:
                raise ValueError(f"--{name}: expected --list with it")
        if args.search != "beam":
            raise ValueError(f"--search {args.search}: expected --list with it")
    refuse_idle_of_search(args)
    if args.force is not None:
        refuse_together(args, "force", "beam")
    if args.whole and (args.list or args.force is not None):
        raise ValueError("--whole: is for the best translation; --list and --force always do so")
