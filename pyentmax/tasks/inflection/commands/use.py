"""``inflect``, ``force`` and their part of ``analyse``: commands that use a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.plotting._figures import require_matplotlib
from pyentmax.tasks.command_line import (
    DEFAULT_BEAM,
    DEFAULT_BUDGET,
    Commands,
    add_models,
    refuse_idle_of_search,
)
from pyentmax.tasks.inflection import sparsity
from pyentmax.tasks.inflection.commands.options import note_unknown, read_marked
from pyentmax.tasks.inflection.examples import Example, first_words
from pyentmax.tasks.inflection.inflector import load_word_decoder
from pyentmax.tasks.inflection.reports import describe, describe_forced, draw, draw_forced


def add_inflect(commands: Commands) -> None:
    """Add the `inflect` command."""
    inflect = commands.add("inflect", run=_inflect, help="every form that a model finds possible")
    add = inflect.add_argument
    add_models(inflect)
    add("lemma", help="the word")
    add("tags", help="separated by semicolons, such as 'V;V.PTCP;PST'")
    add("--language", help="of the word, for a model trained with --multilingual")
    add(
        "--search",
        choices=("beam", "exact"),
        default="beam",
        help="exact: expand the best prefix first, until the answer is proved",
    )
    add("--beam", type=int, metavar="N", help="open prefixes kept at each step, 5 if not given")
    add("--best", type=int, metavar="N", help="stop at the N best forms; all if not given")
    add("--budget", type=int, metavar="N", help="exact: most prefixes to expand, 1000 if not given")
    add("--max-length", type=int, help="longest form; from the lemma's length if not given")
    add("--pictures", type=Path, metavar="DIR", help="draw the tree and the attention there")


def _inflect(args: argparse.Namespace) -> int:
    refuse_idle_of_search(args)
    inflector = load_word_decoder(args.models)
    result = inflector.inflect(
        args.lemma,
        args.tags,
        args.language,
        search=args.search,
        beam=DEFAULT_BEAM if args.beam is None else args.beam,
        n_best=args.best,
        budget=DEFAULT_BUDGET if args.budget is None else args.budget,
        max_length=args.max_length,
        keep_attention=args.pictures is not None,  # of a long lemma it takes gigabytes
    )
    word = Example(args.lemma, "", tuple(args.tags.split(";")), args.language)
    print(describe(inflector, word, result))
    if args.pictures is not None:
        for path in draw(inflector, word, result, args.pictures):
            print(f"picture: {path}")
    return 0


def add_force(commands: Commands) -> None:
    """Add the `force` command."""
    force = commands.add(
        "force",
        run=_force,
        help="what a model finds possible at each step of a given form",
        description="Forced decoding (Peters et al. 2019, Figure 2): the form is fed to the model, "
        "and each step shows what the model finds possible there.",
    )
    add = force.add_argument
    add_models(force)
    add("lemma", help="the word")
    add("tags", help="separated by semicolons, such as 'V;V.PTCP;PST'")
    add("form", help="the form to feed, possible or not")
    add("--language", help="of the word, for a model trained with --multilingual")
    add("--pictures", type=Path, metavar="DIR", help="draw the steps and the attention there")


def _force(args: argparse.Namespace) -> int:
    inflector = load_word_decoder(args.models)
    decoding = inflector.force(args.lemma, args.tags, args.form, args.language)
    word = Example(args.lemma, args.form, tuple(args.tags.split(";")), args.language)
    print(describe_forced(inflector, word, decoding))
    if args.pictures is not None:
        for path in draw_forced(inflector, word, decoding, args.pictures):
            print(f"picture: {path}")
    return 0


class SparsityAnalysis:
    """`analyse` of inflection models: how accurate, sparse, exact and calibrated."""

    description = (
        "Of inflection models, whose probabilities are averaged, statistics of Peters et al. "
        "(2019, §4): how often one sequence has all the probability, how often beam search is "
        "exact, and how many source positions and tokens have a probability above zero under "
        "forced decoding of the references; and the calibration error of the listed "
        "probabilities, in ten bins."
    )

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        """Add what only inflection has."""
        add = parser.add_argument_group("inflection").add_argument
        add("--multilingual", action="store_true", help="mark examples with their file's language")
        add("--beam", type=int, default=10, help="width of the search, the widest in the table")
        add("--budget", type=int, default=1000, help="of exact search where beam 5 is not exact")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Measure, print and draw."""
        if args.out is not None:
            require_matplotlib()  # rather an error now than after all the work
        decoder = load_word_decoder(args.models)
        examples = first_words(read_marked(args.examples, args.multilingual), args.first)
        note_unknown({*decoder.source.tokens, *decoder.target.tokens}, examples, "examples")
        report = sparsity.measure(
            decoder,
            examples,
            beam=args.beam,
            budget=args.budget,
            progress=not args.quiet,
        )
        print(sparsity.describe(report))
        if args.out is not None:
            for path in sparsity.write(report, args.out) + sparsity.draw(report, args.out):
                print(f"written: {path}")
        return 0
