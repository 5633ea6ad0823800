"""``python -m pyentmax``: train models of inflection, use them, and the demonstration.

Every command begins with a line that says what computes the mappings, ends with exit code 0 if it
did what it was asked for, and otherwise prints one line that says what was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import __version__
from ._devices import DEVICES
from ._dispatch import describe_backend
from .data import (
    SPLITS,
    Example,
    compounds_of,
    conll2018_files,
    conll2018_languages,
    hold_out,
    language_of,
    read_examples,
    source_tokens,
)
from .inflection import load_word_decoder, train_inflector
from .nn.attention import LEARNED, SCORES
from .reports import describe, describe_forced, draw, draw_forced
from .training import TrainingConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        print(f"pyentmax runs {describe_backend()}", flush=True)
        return args.run(args)
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, FloatingPointError, ImportError) as error:
        print(f"pyentmax {args.command}: {_message(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"pyentmax {args.command}: stopped", file=sys.stderr)
        return 130


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyentmax",
        description="Sparse attention and sparse sequence-to-sequence models.",
    )
    parser.add_argument("--version", action="version", version=f"pyentmax {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo", help="train on English verbs; list every form of 'draw'", formatter_class=Formatter
    )
    demo.add_argument("--seed", type=int, default=0, help="fixes the result")
    demo.add_argument(
        "--out", type=Path, default="pyentmax-demo", help="folder for model and pictures"
    )
    demo.add_argument("--device", choices=DEVICES, default="cpu", help="where to compute")
    demo.set_defaults(run=_demo)

    train = commands.add_parser("train", help="train a model").add_subparsers(
        dest="model", required=True, metavar="MODEL"
    )
    seq2seq = train.add_parser(
        "seq2seq",
        help="a recurrent model of inflection",
        description="Train a recurrent sequence-to-sequence model (Peters et al. 2019). A file has "
        "a line an example: lemma TAB form TAB tags;joined;by;semicolons. Writes DIR/best.npz, the "
        "model with the best accuracy of greedy decoding on the development files, and "
        "DIR/last.npz, from which --resume goes on with all other options as they were.",
        formatter_class=Formatter,
    )
    add = seq2seq.add_argument
    add("--train", nargs="+", type=Path, required=True, metavar="FILE", help="to learn from")
    add("--dev", nargs="+", type=Path, required=True, metavar="FILE", help="to validate on")
    add("--out", type=Path, default="run", metavar="DIR", help="folder of the run")
    add("--resume", action="store_true", help="go on from DIR/last.npz")
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
    add("--fertility", type=float, metavar="F", help="most attention a source token gets in all")
    add("--loss", default="1.5", metavar="MAPPING", help="of the output: α, or a mapping's name")
    add("--hidden", type=int, default=128, help="width of embeddings and hidden states")
    add("--layers", type=int, default=1, help="of encoder and decoder")
    add("--dropout", type=float, default=0.3, help="rate")
    add("--updates", type=int, default=3000, help="steps of Adam")
    add("--batch-size", type=int, default=32, help="examples a step")
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
    add("--seed", type=int, default=0, help="fixes the result")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add("--quiet", action="store_true", help="no progress")
    seq2seq.set_defaults(run=_train_seq2seq)

    inflect = commands.add_parser(
        "inflect", help="every form that a model finds possible", formatter_class=Formatter
    )
    add = inflect.add_argument
    _add_models(inflect)
    add("lemma", help="the word")
    add("tags", help="separated by semicolons, such as 'V;V.PTCP;PST'")
    add("--language", help="of the word, for a model trained with --multilingual")
    add(
        "--search",
        choices=("beam", "exact"),
        default="beam",
        help="exact: from the best prefix on, until the answer is proved",
    )
    add("--beam", type=int, default=5, help="open prefixes that the beam keeps at each step")
    add("--best", type=int, metavar="N", help="exact: prove the N best forms; all if not given")
    add("--budget", type=int, default=1000, help="exact: most prefixes to expand")
    add("--max-length", type=int, help="longest form; from the lemma's length if not given")
    add("--pictures", type=Path, metavar="DIR", help="draw the tree and the attention there")
    inflect.set_defaults(run=_inflect)

    _add_data(commands)
    _add_force(commands)
    _add_analyse(commands)
    experiments = commands.add_parser(
        "reproduce", help="an experiment of the papers"
    ).add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    _add_table1(experiments)
    _add_figure4(experiments)
    _add_figure6(experiments)
    return parser


def _add_data(commands: Any) -> None:
    conll2018 = (
        commands.add_parser("data", help="fetch a data set")
        .add_subparsers(dest="data", required=True, metavar="DATASET")
        .add_parser(
            "conll2018",
            help="morphological inflection in 103 languages",
            description="The files of the CoNLL-SIGMORPHON 2018 shared task 1, downloaded into the "
            "user's cache with their checksums verified, or found in a folder. Prints their paths; "
            "without --languages, the languages that there are.",
            formatter_class=Formatter,
        )
    )
    add = conll2018.add_argument
    add("--languages", nargs="+", default=[], metavar="NAME", help="or 'all'")
    add("--split", nargs="+", choices=SPLITS, default=["train-medium", "dev"], help="which files")
    _add_folder(conll2018, "--folder")
    conll2018.set_defaults(run=_data_conll2018)


def _add_folder(parser: Any, option: str) -> None:
    parser.add_argument(
        option,
        type=Path,
        metavar="DIR",
        help="folder that holds conll2018/; if not given, that in PYENTMAX_DATA, or a download",
    )


def _add_force(commands: Any) -> None:
    force = commands.add_parser(
        "force",
        help="what a model finds possible at each step of a given form",
        description="Forced decoding (Peters et al. 2019, Figure 2): the form is fed to the model, "
        "and every step shows what it finds possible there.",
        formatter_class=Formatter,
    )
    add = force.add_argument
    _add_models(force)
    add("lemma", help="the word")
    add("tags", help="separated by semicolons, such as 'V;V.PTCP;PST'")
    add("form", help="to force, possible or not")
    add("--language", help="of the word, for a model trained with --multilingual")
    add("--pictures", type=Path, metavar="DIR", help="draw the steps and the attention there")
    force.set_defaults(run=_force)


def _add_analyse(commands: Any) -> None:
    analyse = commands.add_parser(
        "analyse",
        help="how right, sparse, exact and calibrated a model is",
        description="Statistics of Peters et al. (2019, §4): how often one sequence holds all "
        "probability, how often beam search is exact, and how many source positions and tokens "
        "have a probability above zero, under forced decoding of the references; and the "
        "calibration error of the listed probabilities, in ten bins.",
        formatter_class=Formatter,
    )
    _add_models(analyse)
    add = analyse.add_argument
    add("--examples", nargs="+", type=Path, required=True, metavar="FILE", help="as for train")
    add("--multilingual", action="store_true", help="mark examples with their file's language")
    add("--beam", type=int, default=10, help="of the search, and the widest one of the table")
    add("--budget", type=int, default=1000, help="of the exact search where a beam of 5 is not")
    add("--out", type=Path, metavar="DIR", help="write numbers and pictures there")
    add("--quiet", action="store_true", help="no progress")
    analyse.set_defaults(run=_analyse)


def _add_models(parser: Any) -> None:
    parser.add_argument(
        "models",
        nargs="+",
        type=Path,
        metavar="MODEL",
        help="best.npz, or the folder of a run; the probabilities of several are averaged",
    )


def _add_table1(experiments: Any) -> None:
    table1 = experiments.add_parser(
        "table1",
        help="multilingual inflection with each loss and attention",
        description="Table 1 of Peters et al. (2019). Trains one multilingual model for each loss, "
        "attention and seed, one after another, then the ensembles of each pair's seeds, and "
        "writes accuracies and edit distances beside the paper's. The same command goes on where "
        "it was stopped; more losses, attentions and seeds can be asked for later. Defaults are "
        "the paper's where it tells; its accuracies are of the test files, these of dev.",
        formatter_class=Formatter,
    )
    add = table1.add_argument
    add("--setting", choices=("high", "medium", "low"), default="medium", help="training files")
    add("--languages", nargs="+", default=["all"], metavar="NAME", help="or 'all'")
    _add_folder(table1, "--data")
    add("--out", type=Path, metavar="DIR", help="table1-SETTING if not given")
    add("--loss", nargs="+", default=["1", "1.5", "2"], metavar="MAPPING", help="α, or names")
    add("--attention", nargs="+", default=["1", "1.5", "2"], metavar="MAPPING", help="the same")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--hidden", type=int, default=300, help="width of embeddings and hidden states")
    add("--layers", type=int, default=2, help="of encoder and decoder")
    add("--dropout", type=float, default=0.3, help="rate")
    add("--score", choices=SCORES, default="bilinear", help="how attention compares states")
    add("--epochs", type=int, metavar="N", help="30 (high), 100 (medium) or 300 (low)")
    add("--validate-every", type=int, metavar="EPOCHS", help="1 (high), 10 (medium), 100 (low)")
    add("--batch-size", type=int, default=64, help="examples a step")
    add("--rate", type=float, default=1e-3, help="Adam's step size at the start")
    add("--schedule", choices=("linear", "halve"), default="halve", help="as for train")
    add("--beam", type=int, default=5, help="of the search that makes the predictions")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask cluster, each worker of which trains a model at a time; the workers must "
        "see the same folders, and should have one thread each",
    )
    add("--quiet", action="store_true", help="no progress")
    table1.set_defaults(run=_table1)


def _add_figure4(experiments: Any) -> None:
    figure4 = experiments.add_parser(
        "figure4",
        help="accuracy against α, for the attention and for the output",
        description="Figure 4 of Peters et al. (2019), on the inflection of one language. Trains "
        "a model for each α in each of the two roles, the other mapping being 1.5-entmax, writes "
        "their accuracies and draws them with standard errors over the seeds. The same command "
        "goes on where it was stopped; more values and seeds can be asked for later.",
        formatter_class=Formatter,
    )
    alphas = ["1", "1.25", "1.5", "1.75", "2"]
    figure4.add_argument("--alpha", nargs="+", default=alphas, metavar="A", help="of 1 or more")
    _add_small_runs(figure4, "medium", layers=2, updates=1200, batch_size=16, validations=2)
    figure4.set_defaults(run=_figure4)


def _add_figure6(experiments: Any) -> None:
    figure6 = experiments.add_parser(
        "figure6",
        help="training time against accuracy: softmax, exact 1.5-entmax, bisection",
        description="Figure 6 of Peters et al. (2019), on the inflection of one language. Trains "
        "a model with each mapping as attention and as output, and draws the accuracy at each "
        "validation against the CPU seconds of training until then. With PYENTMAX_BACKEND="
        "reference all mappings are plain NumPy, as bisection is; the same --out can hold both.",
        formatter_class=Formatter,
    )
    figure6.add_argument(
        "--mapping",
        nargs="+",
        default=["1", "1.5", "bisection:1.5"],
        help="α, a mapping's name, or bisection:ALPHA",
    )
    _add_small_runs(figure6, "high", layers=1, updates=3100, batch_size=32, validations=10)
    figure6.set_defaults(run=_figure6)


def _add_small_runs(
    parser: argparse.ArgumentParser,
    setting: str,
    *,
    layers: int,
    updates: int,
    batch_size: int,
    validations: int,
) -> None:
    """The options that experiments on one language share."""
    add = parser.add_argument
    _add_folder(parser, "--data")
    add("--out", type=Path, metavar="DIR", help="the figure's name if not given")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--language", default="english", help="as the shared task names its files")
    add("--setting", choices=("high", "medium", "low"), default=setting, help="training file")
    add("--hidden", type=int, default=128, help="width of embeddings and hidden states")
    add("--layers", type=int, default=layers, help="of encoder and decoder")
    add("--updates", type=int, default=updates, help="steps of Adam")
    add("--batch-size", type=int, default=batch_size, help="examples a step")
    add("--rate", type=float, default=3e-3, help="Adam's step size at the start")
    add("--validations", type=int, default=validations, help="in all")
    add("--quiet", action="store_true", help="no progress")


class Formatter(argparse.HelpFormatter):
    """Help that shows the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        quiet = action.default in (None, False, [], argparse.SUPPRESS)
        return action.help if quiet else f"{action.help} (default: %(default)s)"


def _train_seq2seq(args: argparse.Namespace) -> int:
    languages = [language_of(path) for path in args.train] if args.multilingual else None
    dev_languages = [language_of(path) for path in args.dev] if args.multilingual else None
    examples = read_examples(args.train, languages=languages)
    dev = read_examples(args.dev, languages=dev_languages)
    _note_unknown(examples, dev)
    if args.hold_out:
        lemmas = {example.lemma for example in examples}
        held: set[str] = set()
        for lemma in args.hold_out:
            found = {lemma, *compounds_of(lemma, lemmas)} & lemmas if lemma else set()
            if not found:
                raise ValueError(f"--hold-out: no training lemma is or ends in {lemma!r}")
            held |= found
        examples, left_out = hold_out(examples, held)
        print(f"held out of training: {len(left_out)} forms of {', '.join(sorted(held))}")
    config = TrainingConfig(
        updates=args.updates,
        batch_size=args.batch_size,
        rate=args.rate,
        schedule=args.schedule,
        clip=args.clip,
        validate_every=args.validate_every,
        patience=args.patience,
        seed=args.seed,
    )
    last = args.out / "last.npz"
    if last.exists() and not args.resume:
        raise ValueError(
            f"{args.out} already holds a run: give --resume to go on with it, or another --out"
        )
    inflector, history = train_inflector(
        examples,
        dev,
        config,
        directory=args.out,
        resume=args.resume,
        progress=not args.quiet,
        hidden=args.hidden,
        layers=args.layers,
        dropout=args.dropout,
        attention=args.attention,
        output=args.loss,
        score=args.score,
        fertility=args.fertility,
        device=args.device,
    )
    if history.interrupted:
        print(f"interrupted; go on with the same command and --resume ({last})")
        return 130
    learned = args.attention == LEARNED
    alpha = f"attention α {inflector.model.attention_alpha:.2f}, " if learned else ""
    print(
        f"{history.update[-1]} updates in {history.seconds[-1]:.0f} s; best dev accuracy "
        f"{100 * history.best_accuracy:.1f}% (greedy), {alpha}model in {args.out / 'best.npz'}"
    )
    return 0


def _note_unknown(examples: Sequence[Example], dev: Sequence[Example]) -> None:
    """Say how much of the development data no model of this training data can get right."""
    known = {token for e in examples for token in (*source_tokens(e), *e.form)}
    strange = [e for e in dev if not known.issuperset((*source_tokens(e), *e.form))]
    if strange:
        share = len(strange) / len(dev)
        print(
            f"note: {len(strange)} of {len(dev)} development examples ({share:.0%}) have "
            f"characters or tags that training never shows, such as {strange[0].lemma!r}"
        )


def _inflect(args: argparse.Namespace) -> int:
    inflector = load_word_decoder(args.models)
    result = inflector.inflect(
        args.lemma,
        args.tags,
        args.language,
        search=args.search,
        beam=args.beam,
        best=args.best,
        budget=args.budget,
        max_length=args.max_length,
    )
    print(describe(inflector, args.lemma, args.tags, result))
    if args.pictures is not None:
        for path in draw(inflector, args.lemma, args.tags, result, args.pictures, args.language):
            print(f"picture: {path}")
    return 0


def _data_conll2018(args: argparse.Namespace) -> int:
    if not args.languages:
        has = {split: conll2018_languages(split, args.folder) for split in SPLITS}
        for language in sorted({name for names in has.values() for name in names}):
            print(f"{language:24}", *(split for split in SPLITS if language in has[split]))
        return 0
    for split in args.split:
        names = args.languages
        if names == ["all"]:
            names = conll2018_languages(split, args.folder)
        print(*conll2018_files(names, split, args.folder), sep="\n")
    return 0


def _table1(args: argparse.Namespace) -> int:
    from .experiments import table1
    from .experiments.table1_report import write_report

    names = args.languages
    if names == ["all"]:
        names = conll2018_languages(f"train-{args.setting}", args.data)
    settings = table1.Settings(
        setting=args.setting,
        languages=tuple(sorted(set(names))),
        epochs=args.epochs,
        validate_every=args.validate_every,
        hidden=args.hidden,
        layers=args.layers,
        dropout=args.dropout,
        score=args.score,
        batch_size=args.batch_size,
        rate=args.rate,
        schedule=args.schedule,
        beam=args.beam,
    )
    cells = table1.grid(args.loss, args.attention, args.seed)
    out = args.out or Path(f"table1-{args.setting}")
    data = table1.read_data(args.data, settings)
    table1.open_table(out, settings)
    print(
        f"{len(settings.languages)} languages, {len(data.train):,} examples to learn from, "
        f"{len(data.dev):,} to measure on; {len(cells)} models in {out}",
        flush=True,
    )
    if args.scheduler is None:
        code = _cells_here(args, out, cells, settings, data)
    else:
        code = _cells_on_cluster(args, out, cells, settings)
    if code:
        return code
    table1.run_ensembles(out, cells, settings, data)
    print(f"\n{write_report(out, settings)}\n\nwritten: {out}/cells.csv, languages.csv, table.md")
    return 0


def _cells_here(
    args: argparse.Namespace, out: Path, cells: Sequence[Any], settings: Any, data: Any
) -> int:
    from .experiments import table1
    from .experiments.table1_report import write_report

    for number, cell in enumerate(cells, start=1):
        state = " (finished)" if table1.is_finished(out, cell) else ""
        print(f"model {number} of {len(cells)}: {cell}{state}", flush=True)
        if not table1.run_cell(
            out, cell, settings, data, device=args.device, progress=not args.quiet
        ):
            print("interrupted; the same command goes on")
            return 130
        write_report(out, settings)
    return 0


def _cells_on_cluster(
    args: argparse.Namespace, out: Path, cells: Sequence[Any], settings: Any
) -> int:
    from .experiments.cluster import run_on_cluster
    from .experiments.table1_report import write_report

    failed = 0
    outcomes = run_on_cluster(args.scheduler, out, cells, settings, args.data, device=args.device)
    for number, (cell, error) in enumerate(outcomes, start=1):
        state = "finished" if error is None else f"failed: {error}"
        print(f"model {number} of {len(cells)}: {cell} {state}", flush=True)
        failed += error is not None
        write_report(out, settings)
    if failed:
        print(f"{failed} of {len(cells)} models failed; the same command tries them again")
    return 1 if failed else 0


def _force(args: argparse.Namespace) -> int:
    inflector = load_word_decoder(args.models)
    decoding = inflector.force(args.lemma, args.tags, args.form, args.language)
    print(describe_forced(inflector, args.lemma, args.tags, args.form, decoding))
    if args.pictures is not None:
        word = (args.lemma, args.tags, args.form)
        for path in draw_forced(inflector, *word, decoding, args.pictures, args.language):
            print(f"picture: {path}")
    return 0


def _analyse(args: argparse.Namespace) -> int:
    from .experiments import sparsity

    languages = [language_of(path) for path in args.examples] if args.multilingual else None
    examples = read_examples(args.examples, languages=languages)
    report = sparsity.measure(
        load_word_decoder(args.models),
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


def _figure4(args: argparse.Namespace) -> int:
    from .experiments import figure4

    out = args.out or Path("figure4")
    return _small_runs(args, figure4, figure4.grid(args.alpha, args.seed), out, out)


def _figure6(args: argparse.Namespace) -> int:
    from .experiments import figure6

    out = args.out or Path("figure6")
    cells = figure6.grid(args.mapping, args.seed)
    return _small_runs(args, figure6, cells, out, out / figure6.backend())


def _small_runs(
    args: argparse.Namespace, figure: Any, cells: Sequence[Any], out: Path, folder: Path
) -> int:
    """Train what is missing of an experiment on one language, and draw its figure."""
    from .experiments import one_language
    from .experiments._records import open_folder
    from .plotting._figures import require_matplotlib

    require_matplotlib()  # known before an hour of training, not after it
    settings = one_language.Settings(
        language=args.language,
        setting=args.setting,
        hidden=args.hidden,
        layers=args.layers,
        updates=args.updates,
        batch_size=args.batch_size,
        rate=args.rate,
        validations=args.validations,
    )
    data = one_language.read_data(args.data, settings)
    open_folder(out, asdict(settings))
    for number, cell in enumerate(cells, start=1):
        state = " (finished)" if one_language.is_finished(folder, cell) else ""
        print(
            f"model {number} of {len(cells)}: loss {cell.loss}, attention {cell.attention}, "
            f"seed {cell.seed}{state}",
            flush=True,
        )
        if not one_language.run_cell(folder, cell, settings, data, progress=not args.quiet):
            print("interrupted; the same command goes on")
            return 130
        figure.write_report(out)
    print(f"picture: {figure.draw(out)}; numbers: {out / (args.experiment + '.csv')}")
    return 0


def _demo(args: argparse.Namespace) -> int:
    from .demo import run_demo

    return run_demo(args.out, args.seed, args.device)
