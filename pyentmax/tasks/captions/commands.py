"""The command of captions."""

from __future__ import annotations

import argparse

from pyentmax.models.grid_transformer import GridTransformerConfig
from pyentmax.tasks.captions.training import (
    COUNT,
    HELD_OUT,
    MODEL,
    TRAINING,
    draw_data,
    train_captioner,
)
from pyentmax.tasks.command_line import (
    Commands,
    add_run,
    fields_from,
    report_training,
    run_options,
)
from pyentmax.training import TrainingConfig


def add_commands(commands: Commands) -> None:
    """Add it to the command line."""
    parser = commands.add(
        "train captions",
        run=_train,
        help="a Transformer that captions images drawn here",
        description="Train a model of captions on images that the library draws itself: coloured "
        "shapes in a grid of 8 × 8 cells. The caption names the two with a frame. "
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
    add_run(parser, "runs/captions")


def _train(args: argparse.Namespace) -> int:
    options = run_options(args)
    data = draw_data(args.images, max(args.images * HELD_OUT // COUNT, 1))
    captioner, history = train_captioner(
        data,
        TrainingConfig(**TRAINING | fields_from(args, TrainingConfig)),
        options,
        device=args.device,
        **MODEL | fields_from(args, GridTransformerConfig),
    )
    if history.interrupted:
        return report_training(args, history, "")
    dev, test = history.best_accuracy, captioner.validate(*data.test).accuracy
    accuracy = f"dev {100 * dev:.1f}%, test {100 * test:.1f}%"
    return report_training(args, history, f"captions right in every word: {accuracy}")
