"""``reproduce captions``: dense and sparse attention over the cells of an image."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.calls.devices import DEVICES
from pyentmax.plotting._figures import require_matplotlib
from pyentmax.tasks.captions.experiment import (
    ROWS,
    check_row,
    do_run,
    draw_looks,
    experiment_data,
    held_out,
    is_finished,
    write_report,
)
from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.runs import RESULT, asked_for, is_paused
from pyentmax.training import BEST


def add_reproduce(commands: Commands) -> None:
    """Add the `reproduce captions` command."""
    parser = commands.add(
        "reproduce captions",
        run=_reproduce,
        help="captions with dense and with sparse attention",
        description="Trains a model of captions for each mapping and seed, measures how many "
        "captions of held-out images are right and how often the attended cell is the right one, "
        "and draws where the models look. The same command continues where it was stopped. "
        f"Rows: {', '.join(ROWS)}.",
    )
    add = parser.add_argument
    add("--row", nargs="+", default=list(ROWS), metavar="NAME", help="mappings")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--out", type=Path, default="captions", metavar="DIR", help="a folder per run is there")
    add("--updates", type=int, metavar="N", help="instead of the experiment's")
    add("--images", type=int, metavar="N", help="in all, instead of the experiment's")
    add("--pause-after", type=int, metavar="N", help="updates; the same command goes on without it")
    add("--picture", type=int, default=0, metavar="N", help="which image of the test part is drawn")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add("--quiet", action="store_true", help="no progress")


def _reproduce(args: argparse.Namespace) -> int:
    for name in args.row:
        check_row(name)  # before anything is trained
    runs = asked_for(args.row, args.seed, args.updates, args.pause_after)
    shown = held_out(args.images)
    if not 0 <= args.picture < shown:
        raise ValueError(f"--picture: expected a number from 0 to {shown - 1}, got {args.picture}")
    require_matplotlib()  # rather an error now than after the trainings
    stopped = 0
    for number, run in enumerate(runs, start=1):
        state = " (finished)" if is_finished(args.out, run, args.updates) else ""
        print(f"model {number} of {len(runs)}: {run.folder}{state}", flush=True)
        finished = do_run(
            args.out,
            run,
            updates=args.updates,
            count=args.images,
            pause_after=args.pause_after,
            device=args.device,
            progress=not args.quiet,
        )
        if not finished and not is_paused(args.out, run, args.pause_after):
            print("interrupted; the same command continues")
            return 130
        stopped += not finished
    if stopped:
        print(f"{stopped} of {len(runs)} models not finished; the same command continues them")
        return 0
    print(f"\n{write_report(args.out)}\n")
    first = [run for run in runs if run.seed == args.seed[0]]
    there = [run for run in first if (args.out / run.folder / BEST).exists()]
    for run in (run for run in first if run not in there):
        print(
            f"{args.out / run.folder / BEST} is gone, and the picture goes without it; the same "
            f"command trains it again where {RESULT} is removed, too"
        )
    written = [args.out / "table.md"]
    if there:
        test = experiment_data(args.images).test
        written.append(draw_looks(args.out, there, test, args.picture))
    print(f"written: {', '.join(map(str, written))}")
    return 0
