"""``reproduce translation``: models with each attention and loss on Multi30k."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.calls.devices import DEVICES
from pyentmax.plotting._figures import require_matplotlib
from pyentmax.tasks.command_line import Commands, refuse_together
from pyentmax.tasks.runs import Run, asked_for, check_recorded, is_paused
from pyentmax.tasks.translation.experiments.cluster import run_on_cluster
from pyentmax.tasks.translation.experiments.report import (
    draw_pictures,
    draw_starts,
    write_report,
)
from pyentmax.tasks.translation.experiments.rows import DIRECTIONS, ROWS, directed, row
from pyentmax.tasks.translation.experiments.runs import do_run, is_finished


def add_reproduce(commands: Commands) -> None:
    """Add the `reproduce translation` command."""
    parser = commands.add(
        "reproduce translation",
        run=_reproduce,
        help="recurrent networks and Transformers with each attention and loss",
        description="Trains the rows of the table of translation one after another, a model for "
        "each seed, translates val with the best on dev, and writes BLEU, supports and speeds. The "
        "same command continues where it was stopped; rows and seeds can be added later. Rows: "
        f"{', '.join(ROWS)}.",
    )
    add = parser.add_argument
    add("--row", nargs="+", default=["transformer-1", "rnn-1.5-1.5"], metavar="NAME", help="models")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add(
        "--direction",
        choices=DIRECTIONS,
        default=DIRECTIONS[0],
        help="en-de: the rows' names end in .reversed then",
    )
    add("--data", type=Path, metavar="DIR", help="folder that holds multi30k/tok; or PYENTMAX_DATA")
    add("--out", type=Path, default="translation", metavar="DIR", help="a folder per run is there")
    add("--updates", type=int, help="instead of the row's; a finished run can be made longer")
    add("--pause-after", type=int, metavar="N", help="updates; the same command goes on without it")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask cluster, whose workers train one model each at a time; they must see the "
        "same folders, and should have one thread each",
    )
    add("--report", action="store_true", help="train nothing: table and curves of what there is")
    add(
        "--pictures",
        type=int,
        metavar="N",
        help="train nothing: draw forced decoding of dev sentence N (from 0) with the rows' models",
    )
    add("--quiet", action="store_true", help="no progress")


def _reproduce(args: argparse.Namespace) -> int:
    reverse = args.direction == "en-de"
    names = [directed(name, reverse=reverse) for name in args.row]
    for name in names:
        row(name).experiment()  # raises if there is no such row, before anything is trained
    if args.pictures is not None:
        refuse_together(args, "pictures", "report", "updates", "pause_after", "scheduler")
    if args.report:
        refuse_together(args, "report", "updates", "pause_after", "scheduler")
    if args.scheduler is not None:
        refuse_together(args, "scheduler", "pause_after")
    runs = asked_for(names, args.seed, args.updates, args.pause_after)
    require_matplotlib()  # rather an error now than after hours of training
    if args.pictures is not None:
        for run in runs:
            for path in draw_pictures(args.out, run, args.data, args.pictures):
                print(f"picture: {path}")
        return 0
    if args.report:
        check_recorded(args.out)
        return _report(args.out, args.data)
    if args.scheduler is not None:
        return _on_cluster(args, runs)
    stopped = 0
    for number, run in enumerate(runs, start=1):
        state = " (finished)" if is_finished(args.out, run, args.updates) else ""
        print(f"model {number} of {len(runs)}: {run}{state}", flush=True)
        finished = do_run(
            args.out,
            run,
            args.data,
            updates=args.updates,
            pause_after=args.pause_after,
            device=args.device,
            progress=not args.quiet,
        )
        if not finished and not is_paused(args.out, run, args.pause_after):
            print("interrupted; the same command continues")
            return 130
        stopped += not finished
        write_report(args.out, args.data)
    if stopped:
        print(f"{stopped} of {len(runs)} models not finished; the same command continues them")
    return _report(args.out, args.data)


def _on_cluster(args: argparse.Namespace, runs: list[Run]) -> int:
    """Train the runs on the workers of a cluster, with a report after each."""
    failed = 0
    outcomes = run_on_cluster(
        args.scheduler, args.out, runs, args.data, updates=args.updates, device=args.device
    )
    for number, (run, error) in enumerate(outcomes, start=1):
        state = "finished" if error is None else f"failed: {error}"
        print(f"model {number} of {len(runs)}: {run} {state}", flush=True)
        failed += error is not None
        write_report(args.out, args.data)
    if failed:
        print(f"{failed} of {len(runs)} models failed; the same command tries them again")
        return 1
    return _report(args.out, args.data)


def _report(out: Path, data: Path | None) -> int:
    """Write and print what the folder tells so far."""
    print(f"\n{write_report(out, data)}\n")
    picture = draw_starts(out)
    print(f"written: {out / 'table.md'}" + (f", {picture}" if picture else ""))
    return 0
