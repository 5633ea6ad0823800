"""``reproduce table1``, ``figure4`` and ``figure6``: experiments of Peters et al. (2019)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyentmax.calls.devices import DEVICES
from pyentmax.nn.attention import SCORES
from pyentmax.plotting._figures import require_matplotlib
from pyentmax.tasks.command_line import Commands, refuse_together
from pyentmax.tasks.inflection.commands.options import add_folder, fields_from
from pyentmax.tasks.inflection.conll2018 import conll2018_languages
from pyentmax.tasks.inflection.experiments import cluster, figure4, figure6, one_language, table1
from pyentmax.tasks.inflection.experiments.cells import (
    Cell,
    check_cells,
    check_examples,
    finished_results,
    is_finished,
)
from pyentmax.tasks.inflection.experiments.table1_curves import draw_curves, write_curves
from pyentmax.tasks.inflection.experiments.table1_report import write_report
from pyentmax.tasks.records import SETTINGS, open_folder


def add_table1(commands: Commands) -> None:
    """Add the `reproduce table1` command."""
    parser = commands.add(
        "reproduce table1",
        run=_table1,
        help="multilingual inflection with each loss and attention",
        description="Table 1 of Peters et al. (2019). Trains one multilingual model for each loss, "
        "attention and seed, one after another, then decodes with the ensemble of each pair's "
        "seeds, and writes accuracies and edit distances next to the paper's. The same command "
        "continues where it was stopped; losses, attentions and seeds can be added later. Defaults "
        "are the paper's where it gives them. Its accuracies are on the test files, these on dev.",
    )
    add = parser.add_argument
    add("--setting", choices=("high", "medium", "low"), default="medium", help="training files")
    add("--languages", nargs="+", default=["all"], metavar="NAME", help="or 'all'")
    add_folder(parser, "--data")
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
    add("--validate-on", type=int, metavar="N", help="words of each language; all if not given")
    add("--batch-size", type=int, default=64, help="examples per update")
    add("--rate", type=float, default=1e-3, help="Adam's step size at the start")
    add("--schedule", choices=("linear", "halve"), default="halve", help="as for train")
    add("--beam", type=int, default=5, help="width of the search that makes the predictions")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask cluster, whose workers train one model each at a time; they must see the "
        "same folders, and should have one thread each",
    )
    add("--report", action="store_true", help="train nothing: tables and curves of what there is")
    add("--quiet", action="store_true", help="no progress")


def _table1(args: argparse.Namespace) -> int:
    if args.report:
        refuse_together(args, "report", "scheduler")
    names = args.languages
    if names == ["all"]:
        names = conll2018_languages(f"train-{args.setting}", args.data)
    chosen = fields_from(args, table1.Settings) | {"languages": tuple(sorted(set(names)))}
    settings = table1.Settings(**chosen)
    cells = table1.grid(args.loss, args.attention, args.seed)
    out = args.out or Path(f"table1-{args.setting}")
    require_matplotlib()  # rather an error now than after hours of training
    if args.report:
        if not (out / SETTINGS).exists():
            raise ValueError(f"{out}: expected the folder of a table, there are no runs in it")
        table1.open_table(out, settings)
        return _report_table1(out, settings)
    check_cells(cells, settings, lambda seed: settings.training(1, seed))
    data = table1.read_data(args.data, settings)
    check_examples(finished_results(out), data, out)
    table1.open_table(out, settings)
    print(
        f"{len(settings.languages)} languages, {len(data.train):,} examples to learn from, "
        f"{len(data.dev):,} to measure on; {len(cells)} models in {out}",
        flush=True,
    )
    if args.scheduler is None:
        code = _train_here(
            cells,
            out,
            lambda cell: table1.run_cell(
                out, cell, settings, data, device=args.device, progress=not args.quiet
            ),
            lambda: write_report(out, settings),
        )
    else:
        code = _cells_on_cluster(args, out, cells, settings)
    if code:
        return code
    table1.run_ensembles(out, cells, settings, data)
    return _report_table1(out, settings)


def _report_table1(out: Path, settings: table1.Settings) -> int:
    """Write and print everything that the folder of a table tells so far."""
    print(f"\n{write_report(out, settings)}\n\n{write_curves(out, settings)}\n")
    written = "cells.csv, languages.csv, table.md, families.md, curves.csv, curves.md"
    picture = draw_curves(out, settings)
    print(f"written: {out}/{written}" + (f", {picture.name}" if picture else ""))
    return 0


def _train_here(
    cells: Sequence[Cell], out: Path, run: Callable[[Cell], bool], report: Callable[[], object]
) -> int:
    """Train one cell after another, with a report after each; returns the exit code."""
    for number, cell in enumerate(cells, start=1):
        state = " (finished)" if is_finished(out, cell) else ""
        print(f"model {number} of {len(cells)}: {cell}{state}", flush=True)
        if not run(cell):
            print("interrupted; the same command continues")
            return 130
        report()
    return 0


def _cells_on_cluster(
    args: argparse.Namespace, out: Path, cells: Sequence[Any], settings: Any
) -> int:
    failed = 0
    outcomes = cluster.run_on_cluster(
        args.scheduler, out, cells, settings, args.data, device=args.device
    )
    for number, (cell, error) in enumerate(outcomes, start=1):
        state = "finished" if error is None else f"failed: {error}"
        print(f"model {number} of {len(cells)}: {cell} {state}", flush=True)
        failed += error is not None
        write_report(out, settings)
    if failed:
        print(f"{failed} of {len(cells)} models failed; the same command tries them again")
    return 1 if failed else 0


def add_figure4(commands: Commands) -> None:
    """Add the `reproduce figure4` command."""
    parser = commands.add(
        "reproduce figure4",
        run=_figure4,
        help="accuracy against α, for the attention and for the output",
        description="Figure 4 of Peters et al. (2019), on the inflection of one language. Trains "
        "a model for each α in each of the two roles, the other mapping being 1.5-entmax, writes "
        "the accuracies and draws them with standard errors over the seeds. The same command "
        "continues where it was stopped; values of α and seeds can be added later.",
    )
    add = parser.add_argument
    alphas = list(figure4.ALPHAS)
    add("--alpha", nargs="+", default=alphas, metavar="A", help="numbers of 1 or more")
    _add_small_runs(parser, setting="medium", layers=2, updates=1200, batch_size=16, validations=2)


def _figure4(args: argparse.Namespace) -> int:
    out = args.out or Path("figure4")
    return _small_runs(args, figure4, figure4.grid(args.alpha, args.seed), out, out)


def add_figure6(commands: Commands) -> None:
    """Add the `reproduce figure6` command."""
    parser = commands.add(
        "reproduce figure6",
        run=_figure6,
        help="training time against accuracy: softmax, exact 1.5-entmax, bisection",
        description="Figure 6 of Peters et al. (2019), on the inflection of one language. Trains "
        "a model with each mapping as attention and as output, and draws the accuracy at each "
        "validation against the CPU seconds of training until then. With PYENTMAX_BACKEND="
        "reference all mappings are plain NumPy, as bisection is; the same --out can hold both.",
    )
    add = parser.add_argument
    mappings = list(figure6.MAPPINGS)
    add("--mapping", nargs="+", default=mappings, help="α, a mapping's name, or bisection:ALPHA")
    _add_small_runs(parser, setting="high", layers=1, updates=3100, batch_size=32, validations=10)


def _figure6(args: argparse.Namespace) -> int:
    out = args.out or Path("figure6")
    cells = figure6.grid(args.mapping, args.seed)
    return _small_runs(args, figure6, cells, out, out / figure6.backend())


def _add_small_runs(parser: argparse.ArgumentParser, **defaults: str | int) -> None:
    """The options that experiments on one language share, some with defaults of their own."""
    add = parser.add_argument
    add_folder(parser, "--data")
    add("--out", type=Path, metavar="DIR", help="the figure's name if not given")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--language", default="english", help="as the shared task names its files")
    add("--setting", choices=("high", "medium", "low"), help="training file")
    add("--hidden", type=int, default=128, help="width of embeddings and hidden states")
    add("--layers", type=int, help="of encoder and decoder")
    add("--updates", type=int, help="steps of Adam")
    add("--batch-size", type=int, help="examples per update")
    add("--rate", type=float, default=3e-3, help="Adam's step size at the start")
    add("--validations", type=int, help="how many there are in all")
    add("--quiet", action="store_true", help="no progress")
    parser.set_defaults(**defaults)


def _small_runs(
    args: argparse.Namespace, figure: Any, cells: Sequence[Any], out: Path, folder: Path
) -> int:
    """Train the models that an experiment on one language lacks, and draw its figure."""
    require_matplotlib()  # rather an error now than after an hour of training
    settings = one_language.Settings(**fields_from(args, one_language.Settings))
    check_cells(cells, settings, settings.training)
    data = one_language.read_data(args.data, settings)
    check_examples(figure.results(out), data, out)
    open_folder(out, asdict(settings))
    code = _train_here(
        cells,
        folder,
        lambda cell: one_language.run_cell(folder, cell, settings, data, progress=not args.quiet),
        lambda: figure.write_report(out),
    )
    if code:
        return code
    print(f"picture: {figure.draw(out)}; numbers: {out / (args.experiment + '.csv')}")
    return 0
