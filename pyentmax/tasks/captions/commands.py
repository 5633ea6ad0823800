"""The command of captions."""

from __future__ import annotations

import argparse
from typing import Any

from pyentmax.models.grid_transformer import GridTransformerConfig
from pyentmax.tasks import command_line
from pyentmax.tasks.captions.captioner import train_captioner
from pyentmax.tasks.captions.scenes import draw_data
from pyentmax.tasks.command_line import Commands
from pyentmax.training import TrainingConfig

UNCHANGED: dict[str, Any] = {"inner": 128, "dropout": 0.0, "norm": "pre"}
"""Fields of the model without an option."""


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
    add("--images", type=int, default=5000, metavar="N", help="a tenth to choose by, one to test")
    add("--attention", default="1.5", metavar="MAPPING", help="an α or a name, topk_softmax:4 say")
    add("--heads", type=int, default=4, metavar="N", help="heads per attention")
    add("--layers", type=int, default=2, metavar="N", help="layers of the decoder")
    add("--width", type=int, default=64, metavar="N", help="of embeddings and layers")
    add("--updates", type=int, default=1200, metavar="N", help="updates in all")
    parser.add_seed()
    parser.add_run("runs/captions")


def _train(args: argparse.Namespace) -> None:
    options = command_line.run_options(args)
    data = draw_data(args.images)
    training = command_line.fields_from(args, TrainingConfig)
    captioner, history = train_captioner(
        data,
        TrainingConfig(**training, rate=2e-3, validate_every=200),
        options,
        device=args.device,
        **UNCHANGED,
        **command_line.fields_from(args, GridTransformerConfig),
    )
    command_line.check_finished(args, history)
    dev, test = history.best_accuracy, captioner.validate(*data.test).accuracy
    accuracy = f"dev {100 * dev:.1f}%, test {100 * test:.1f}%"
    command_line.report_training(args, history, f"captions right in every word: {accuracy}")
