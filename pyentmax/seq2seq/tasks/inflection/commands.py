"""The commands of inflection."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

from pyentmax.seq2seq.analysis import (
    calibration,
    exactness_statistics,
    listed_predictions,
    support_sizes,
    word_accuracy,
)
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2SeqConfig
from pyentmax.seq2seq.nn.attention import LEARNED, SCORES
from pyentmax.seq2seq.tasks import command_line, reports
from pyentmax.seq2seq.tasks.analyse import Analysis
from pyentmax.seq2seq.tasks.command_line import Commands, Parser, user_path
from pyentmax.seq2seq.tasks.inflection.conll2018 import SPLITS, conll2018_files, conll2018_languages
from pyentmax.seq2seq.tasks.inflection.demo import run_demo
from pyentmax.seq2seq.tasks.inflection.examples import (
    Example,
    compounds_of,
    first_words,
    hold_out,
    language_of,
    read_examples,
    source_tokens,
    split_tags,
)
from pyentmax.seq2seq.tasks.inflection.inflector import Inflector, train_inflector
from pyentmax.seq2seq.tasks.inflection.line_by_line import inflect_lines, record_from
from pyentmax.seq2seq.tasks.lines import FORMATS, Notes, Results, is_input
from pyentmax.seq2seq.training import TrainingConfig


def add_commands(commands: Commands) -> None:
    """Add all of them, in the order in which the help text lists them."""
    parser = commands.add(
        "demo",
        run=lambda args: run_demo(args.out, args.seed, args.device),
        help="train on English verbs; list every form of 'draw'",
    )
    parser.add_demonstration("pyentmax-demo")

    parser = commands.add(
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
    parser.add_data("to learn from", "to validate on", required=True)
    add("--multilingual", action="store_true", help="mark examples with their file's language")
    add(
        "--hold-out",
        nargs="+",
        default=[],
        metavar="LEMMA",
        help="leave these lemmas, and words that end in them, out of training",
    )
    add("--attention", default="1.5", metavar="MAPPING", help="α, a mapping's name, or 'learned'")
    add("--score", choices=SCORES, default="bilinear", help="how attention compares states")
    add("--fertility", type=float, metavar="F", help="most attention that a source token gets")
    add("--loss", default="1.5", metavar="MAPPING", help="of the output: α, or a mapping's name")
    add("--hidden", type=int, default=128, help="width of embeddings and hidden states")
    add("--layers", type=int, default=1, help="of encoder and decoder")
    add("--dropout", type=float, default=0.3, help="rate")
    add("--label-smoothing", type=float, default=0.0, help="target's share for all tokens alike")
    help = "steps of Adam; with --resume and --schedule halve, more of them make the run longer"
    add("--updates", type=int, default=3000, help=help)
    add("--batch-size", type=int, default=32, help="examples per update")
    add("--rate", type=float, default=3e-3, help="Adam's step size at the start")
    add(
        "--schedule",
        choices=("linear", "halve"),
        default="linear",
        help="linear: to zero over all updates; halve: when the validation loss rises",
    )
    add("--clip", type=float, default=5.0, help="largest norm of the gradient")
    add("--validate-every", type=int, metavar="UPDATES", help="ten times in all if not given")
    add("--patience", type=int, metavar="N", help="stop after N validations without a better one")
    parser.add_seed()
    parser.add_run("runs/inflection")

    parser = commands.add(
        "inflect",
        run=_inflect,
        help="every form that a model finds possible, or the best one for each line of a file",
        description="Every form of a word that a model finds possible; or, for each line of a file "
        "(lemma TAB tags, or three columns with form and tags in either order), the best form in "
        "the file's own layout, with the accuracy if forms are given. The probabilities of several "
        "models are averaged.",
    )
    parser.usage = "%(prog)s MODEL [MODEL ...] (LEMMA TAGS | FILE | -) [options]"
    help = "best.npz, or the folder of a run; then LEMMA TAGS such as 'V;V.PTCP;PST', FILE or -"
    parser.add_argument("words", nargs="+", metavar="MODEL", help=help)
    parser.add_argument("--language", help="of the words, for a model trained with --multilingual")
    parser.add_lines(FORMATS)
    parser.add_search()
    help = "longest form; from the lemma's length if not given"
    parser.add_argument("--max-length", type=int, help=help)
    parser.add_pictures("draw the tree and the attention there")

    parser = commands.add(
        "force",
        run=_force,
        help="what a model finds possible at each step of a given form",
        description="Forced decoding (Peters et al. 2019, Figure 2): the form is fed to the model, "
        "and each step shows what the model finds possible there.",
    )
    _add_word(parser)
    parser.add_argument("form", help="the form to feed, possible or not")
    parser.add_pictures("draw the steps and the attention there")

    parser = commands.add(
        "data conll2018",
        run=_data,
        computes=False,
        help="morphological inflection in 103 languages",
        description="The files of the CoNLL-SIGMORPHON 2018 shared task 1, downloaded into the "
        "user's cache with their checksums verified, or found in a folder. Prints their paths; "
        "without --languages, the languages that there are.",
    )
    add = parser.add_argument
    add("--languages", nargs="+", default=[], metavar="NAME", help="or 'all'")
    add("--split", nargs="+", choices=SPLITS, default=["train-medium", "dev"], help="which files")
    add(
        "--folder",
        type=user_path,
        metavar="DIR",
        help="folder that holds conll2018/; if not given, that in PYENTMAX_DATA, or a download",
    )


def _add_word(parser: Parser) -> None:
    """Add the models, and the word whose form is asked for."""
    parser.add_models("the probabilities of several are averaged")
    add = parser.add_argument
    add("lemma", help="the word")
    add("tags", help="separated by semicolons, such as 'V;V.PTCP;PST'")
    add("--language", help="of the word, for a model trained with --multilingual")


def _train(args: argparse.Namespace) -> None:
    options = command_line.run_options(args)
    examples = read_marked(args.train, args.multilingual)
    dev = read_marked(args.dev, args.multilingual)
    known = {token for e in examples for token in (*source_tokens(e), *e.form)}
    note_unknown(known, dev, "development examples")
    if args.hold_out:
        lemmas = {example.lemma for example in examples}
        held: set[str] = set()
        for lemma in args.hold_out:
            compounds = compounds_of(lemma, lemmas)
            if not compounds:
                raise ValueError(f"--hold-out: no training lemma is or ends in {lemma!r}")
            held.update(compounds)
        examples, held_out = hold_out(examples, held)
        print(f"held out of training: {len(held_out)} forms of {', '.join(sorted(held))}")
    inflector, history = train_inflector(
        examples,
        dev,
        TrainingConfig(**command_line.fields_from(args, TrainingConfig)),
        options,
        batch_size=args.batch_size,
        device=args.device,
        output=args.loss,
        **command_line.fields_from(args, RNNSeq2SeqConfig),
    )
    command_line.check_finished(args, history)
    learned = args.attention == LEARNED
    alpha = f", attention α {inflector.model.attention_alpha:.2f}" if learned else ""
    accuracy = f"best dev accuracy {100 * history.best_accuracy:.1f}% (greedy)"
    command_line.report_training(args, history, accuracy + alpha)
    if history.best_accuracy < 0.2:
        print(
            f"note: few of the development forms are right, after {len(examples)} examples; on "
            "little data see the guide on morphology, docs/guide/morphology.md",
            file=sys.stderr,
        )


def _inflect(args: argparse.Namespace) -> None:
    *models, last = args.words
    on_lines = is_input(last) and bool(models) and all(Path(model).exists() for model in models)
    if not on_lines:
        if len(args.words) < 3:
            raise ValueError(
                f"expected MODEL LEMMA TAGS, or MODEL FILE; got {' '.join(args.words)}"
            )
        *models, args.lemma, args.tags = args.words
    no_picture = on_lines or args.format is not None
    command_line.expect(args, "pictures", not no_picture, "LEMMA TAGS, and no --format")
    command_line.expect(args, "strict", on_lines, "a file or -")
    options = command_line.search_options(args) | {"max_length": args.max_length}
    inflector, results = Inflector.load_ensemble(models), Results(args.format)
    if on_lines:
        inflect_lines(inflector, last, args.language, results, Notes(args.strict), **options)
        return
    options["keep_attention"] = args.pictures is not None  # of a long lemma it takes gigabytes
    result = inflector.inflect(args.lemma, args.tags, args.language, **options)
    if note := inflector.note(split_tags(args.tags)):
        print(f"note: {note}", file=sys.stderr)
    if args.format is None:
        _show(args, inflector, "", result)
    else:
        entry = {"lemma": args.lemma, "tags": args.tags}
        results.write([], entry | record_from(inflector, result, args.best))
        results.finish()


def _force(args: argparse.Namespace) -> None:
    inflector = Inflector.load_ensemble(args.models)
    decoding = inflector.force(args.lemma, args.tags, args.form, args.language)
    _show(args, inflector, args.form, decoding)


def _show(args: argparse.Namespace, inflector: Inflector, form: str, result: Any) -> None:
    word = Example(args.lemma, form, split_tags(args.tags), args.language)
    source = inflector.source_tokens(word)
    reports.show(inflector, word.title(), source, result, args.pictures, word.file_name())


def _data(args: argparse.Namespace) -> None:
    if not args.languages:
        known = {split: conll2018_languages(split, args.folder) for split in SPLITS}
        for language in sorted({name for names in known.values() for name in names}):
            print(f"{language:24}", *(split for split in SPLITS if language in known[split]))
    for split in args.split if args.languages else ():
        names = args.languages
        if names == ["all"]:
            names = conll2018_languages(split, args.folder)
        print(*conll2018_files(names, split, args.folder), sep="\n")


def read_marked(paths: Sequence[Path], multilingual: bool) -> list[Example]:
    """Read examples, if ``multilingual`` marked with the language that their file's name tells."""
    languages = [language_of(path) for path in paths] if multilingual else None
    return read_examples(paths, languages=languages)


def note_unknown(known: Set[str], examples: Sequence[Example], what: str) -> None:
    """Print which share of the examples has tokens that the training data lacks."""
    strange = [e for e in examples if not known >= {*source_tokens(e), *e.form}]
    if strange:
        share = len(strange) / len(examples)
        print(
            f"note: {len(strange)} of {len(examples)} {what} ({share:.0%}) have characters or tags "
            f"that the training data lacks, such as {strange[0].lemma!r}"
        )


class InflectionAnalysis(Analysis):
    """`analyse` of inflection models: how accurate, sparse, exact and calibrated."""

    kind = Inflector.kind
    description = (
        "Of inflection models, whose probabilities are averaged, statistics of Peters et al. "
        "(2019, §4): how often one sequence has all the probability, how often beam search is "
        "exact, and how many source positions and tokens have a probability above zero under "
        "forced decoding of the references; and the calibration error of the listed "
        "probabilities, in ten bins."
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what only inflection has."""
        add = parser.add_argument_group("inflection").add_argument
        add("--multilingual", action="store_true", help="mark examples with their file's language")
        add("--beam", type=int, default=10, help="width of the search")

    def measure(self, args: argparse.Namespace) -> tuple[str, Callable[[Path], list[Path]]]:
        """The statistics of the models."""
        inflector = Inflector.load_ensemble(args.models)
        examples = first_words(read_marked(args.examples, args.multilingual), args.first)
        note_unknown({*inflector.source.tokens, *inflector.target.tokens}, examples, "examples")
        statistics = _statistics(inflector, examples, args.beam, progress=not args.quiet)
        width = max(map(len, statistics))
        text = "\n".join(f"  {name:{width}}  {value:>10.4g}" for name, value in statistics.items())

        def write(out: Path) -> list[Path]:
            out.mkdir(parents=True, exist_ok=True)
            path = out / "statistics.json"
            path.write_text(json.dumps(statistics, indent=1) + "\n", "utf-8")
            return [path]

        return text, write


def _statistics(
    inflector: Inflector, examples: Sequence[Example], beam: int, *, progress: bool
) -> dict[str, float]:
    results = inflector.predict(examples, beam=beam, progress=progress)
    references = [example.form for example in examples]
    forms = [inflector.form(result.best.tokens) for result in results]
    exactness = exactness_statistics(results)
    supports = support_sizes(said for _, said in inflector.force_all(examples, progress=progress))
    claims, right = listed_predictions(results, references, inflector.form)
    errors = (
        {"calibration error of listed strings": calibration(claims, right).error} if claims else {}
    )
    return {
        "examples": exactness.count,
        f"share right, beam {beam}": word_accuracy(forms, references),
        "share with one possible sequence": exactness.single,
        f"share for which beam {beam} is exact": exactness.exact,
        "strings listed, mean": exactness.mean_hypotheses,
        "their total probability, mean": exactness.mean_mass,
        "source positions, mean": float(supports.source_lengths.mean()),
        "source positions attended, mean": supports.mean_attention,
        "tokens of the vocabulary": supports.vocabulary,
        "tokens possible next, mean": supports.mean_output,
        **errors,
    }
