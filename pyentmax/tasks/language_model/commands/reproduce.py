"""``reproduce language-model``: models with each attention on Tiny Shakespeare."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.calls.devices import DEVICES
from pyentmax.plotting._figures import require_matplotlib
from pyentmax.tasks.command_line import Commands, refuse_together
from pyentmax.tasks.language_model.experiments.report import draw_report, write_report
from pyentmax.tasks.language_model.experiments.rows import ROWS, row
from pyentmax.tasks.language_model.experiments.runs import do_run, is_finished
from pyentmax.tasks.language_model.text import read_shakespeare
from pyentmax.tasks.runs import asked_for, check_recorded, is_paused


def add_reproduce(commands: Commands) -> None:
    """Add the `reproduce language-model` command."""
    parser = commands.add(
        "reproduce language-model",
        run=_reproduce,
        help="Transformers that write, with each attention",
        description="Trains the rows of the table of language models one after another, a model "
        "for each seed, and writes bits per character, supports and speeds. The same command "
        "continues where it was stopped; rows and seeds can be added later. Rows: "
        f"{', '.join(ROWS)}.",
    )
    add = parser.add_argument
    add("--row", nargs="+", default=["softmax", "top8"], metavar="NAME", help="models")
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--data", type=Path, metavar="DIR", help="folder with tinyshakespeare; or PYENTMAX_DATA")
    add("--out", type=Path, default="language-model", metavar="DIR", help="a folder per run")
    add("--updates", type=int, help="instead of the row's; a finished run can be made longer")
    add("--pause-after", type=int, metavar="N", help="updates; the same command goes on without it")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add("--report", action="store_true", help="train nothing: table and picture of what there is")
    add("--quiet", action="store_true", help="no progress")


def _reproduce(args: argparse.Namespace) -> int:
    for name in args.row:
        row(name)  # raises if there is no such row, before anything is trained
    if args.report:
        refuse_together(args, "report", "updates", "pause_after")
    runs = asked_for(args.row, args.seed, args.updates, args.pause_after)
    require_matplotlib()  # rather an error now than after hours of training
    if args.report:
        check_recorded(args.out)
        return _report(args.out)
    text = read_shakespeare(args.data)
    stopped = 0
    for number, run in enumerate(runs, start=1):
        state = " (finished)" if is_finished(args.out, run, args.updates) else ""
        print(f"model {number} of {len(runs)}: {run}{state}", flush=True)
        finished = do_run(
            args.out,
            run,
            text,
            updates=args.updates,
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
    return _report(args.out)


def _report(out: Path) -> int:
    """Write and print what the folder tells so far."""
    print(f"\n{write_report(out)}\n")
    print("written:", ", ".join(map(str, [out / "table.md", *draw_report(out)])))
    return 0
