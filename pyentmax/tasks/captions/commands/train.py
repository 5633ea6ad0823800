"""``train captions``: a model that says what an image shows."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.calls.devices import DEVICES
from pyentmax.tasks.captions.experiment import MODEL, TRAINING
from pyentmax.tasks.captions.training import COUNT, HELD_OUT, draw_data, train_captioner
from pyentmax.tasks.command_line import Commands
from pyentmax.training import BEST, LAST, RunOptions, TrainingConfig


def add_train(commands: Commands) -> None:
    """Add the `train captions` command."""
    parser = commands.add(
        "train captions",
        run=_train,
        help="a Transformer that captions images drawn here",
        description="Train a model of captions on images that the library draws itself: coloured "
        "shapes in a grid of 8 × 8 cells, of which the caption names the two that are framed. "
        "Writes DIR/best.npz, the model with the most dev captions right, and DIR/last.npz, from "
        "which --resume continues.",
    )
    add = parser.add_argument
    add("--attention", default="1.5", metavar="MAPPING", help="an α or a name, topk_softmax:4 say")
    add("--heads", type=int, default=MODEL["heads"], metavar="N", help="heads per attention")
    add("--layers", type=int, default=MODEL["layers"], metavar="N", help="layers of the decoder")
    add("--width", type=int, default=MODEL["width"], metavar="N", help="of embeddings and layers")
    add("--images", type=int, default=COUNT, metavar="N", help="a tenth to choose by, one to test")
    add("--updates", type=int, default=TRAINING["updates"], metavar="N", help="updates in all")
    add("--seed", type=int, default=0, metavar="N", help="fixes the result")
    add("--out", type=Path, default="captions", metavar="DIR", help="folder of the run")
    add("--resume", action="store_true", help="continue from DIR/last.npz")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add("--quiet", action="store_true", help="no progress")


def _train(args: argparse.Namespace) -> int:
    options = RunOptions(args.out, resume=args.resume, progress=not args.quiet)
    options.check_directory()
    model = MODEL | {name: vars(args)[name] for name in ("attention", "heads", "layers", "width")}
    data = draw_data(args.images, max(args.images * HELD_OUT // COUNT, 1))
    captioner, history = train_captioner(
        data,
        TrainingConfig(**TRAINING | {"updates": args.updates, "seed": args.seed}),
        options,
        device=args.device,
        **model,
    )
    if history.interrupted:
        print(f"interrupted; continue with the same command and --resume ({args.out / LAST})")
        return 130
    print(
        f"{history.update[-1]} updates in {history.seconds[-1]:.0f} s; captions right in every "
        f"word: dev {100 * history.best_accuracy:.1f}%, "
        f"test {100 * captioner.validate(*data.test).accuracy:.1f}%; model in {args.out / BEST}"
    )
    return 0
