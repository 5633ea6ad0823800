"""The commands of language modelling."""

from __future__ import annotations

import argparse

import numpy as np

from pyentmax.seq2seq.models.language_model import LanguageModelConfig
from pyentmax.seq2seq.tasks import command_line
from pyentmax.seq2seq.tasks.command_line import Commands, user_path
from pyentmax.seq2seq.tasks.language_model.writer import Writer, read_text, train_writer
from pyentmax.seq2seq.training import TrainingConfig


def add_commands(commands: Commands) -> None:
    """Add all of them, in the order in which the help text lists them."""
    parser = commands.add(
        "train language-model",
        run=_train,
        help="a Transformer that writes, character by character",
        description="Train a decoder-only Transformer on the characters of texts in UTF-8. Writes "
        "DIR/best.npz, the model with the most held-out characters right, and DIR/last.npz, from "
        "which --resume continues.",
    )
    parser.add_data("texts, joined", "held-out texts; if not given, the last tenth of the others")
    add = parser.add_argument
    add("text", nargs="*", type=user_path, help=argparse.SUPPRESS)  # FILE without --train
    add("--attention", default="1.5", help="α, a mapping such as topk_softmax:8, or learned")
    add("--output", default="1", help="α or a mapping, with its own loss; zeros from 1.5 on")
    add("--positions", choices=("sinusoidal", "relative"), default="sinusoidal", help="of tokens")
    add("--memory", type=int, default=0, help="characters before that are attended to: relative")
    add("--width", type=int, default=128, help="of embeddings and layers")
    add("--layers", type=int, default=4, help="depth")
    add("--heads", type=int, default=4, help="per layer")
    add("--inner", type=int, default=512, help="width inside the feed-forward networks")
    add("--dropout", type=float, default=0.1, help="rate")
    add("--context", type=int, default=256, help="characters that are read at once")
    add("--batch-size", type=int, default=4, help="pieces of that length per update")
    add("--updates", type=int, default=2000, help="steps of Adam")
    add("--rate", type=float, default=3e-3, help="its highest step size")
    add("--warmup", type=int, default=200, help="updates until then")
    add("--slow", type=float, metavar="FACTOR", help="of the rate, for queries and keys")
    parser.add_seed()
    parser.add_run("runs/language-model")

    parser = commands.add(
        "sample",
        run=_sample,
        help="let a language model write",
        description="Write how a text goes on, character by character. A model whose output is "
        "sparse draws from its support only; temperature, top-k and nucleus are there to compare.",
    )
    add = parser.add_argument
    add("model", type=user_path, metavar="MODEL", help="best.npz, or the folder of a run")
    add("--beginning", help="of the text; a new line or a space if not given")
    add("--length", type=int, default=500, help="characters to write")
    add("--samples", type=int, default=1, metavar="N", help="number of texts")
    add("--temperature", type=float, default=1.0, help="below 1: closer to the most probable")
    add("--top-k", type=int, metavar="K", help="draw among the K most probable")
    add("--nucleus", type=float, metavar="MASS", help="draw among the fewest with this mass")
    parser.add_keep()
    parser.add_seed()


def _train(args: argparse.Namespace) -> None:
    if not (files := args.train or args.text):
        raise ValueError("--train: expected a file")
    text = read_text(*files, held_out=args.dev or ())
    options = command_line.run_options(args)
    training = TrainingConfig(
        **command_line.fields_from(args, TrainingConfig),
        schedule="inverse_sqrt",
        clip=1.0,
        betas=(0.9, 0.98),
        rate_factors=None if args.slow is None else {"query": args.slow, "key": args.slow},
    )
    _, history = train_writer(
        text,
        training,
        options,
        context=args.context,
        batch_size=args.batch_size,
        device=args.device,
        **command_line.fields_from(args, LanguageModelConfig),
    )
    command_line.check_finished(args, history)
    accuracy = f"{100 * history.best_accuracy:.1f}% of the characters"
    command_line.report_training(args, history, f"best accuracy on held-out text {accuracy}")


def _sample(args: argparse.Namespace) -> None:
    for name in ("samples", "length"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name}: expected at least 1, got {getattr(args, name)}")
    if args.seed < 0:
        raise ValueError(f"--seed: expected a number from 0 up, got {args.seed}")
    writer, rng = Writer.load(args.model), np.random.default_rng(args.seed)
    beginning = writer.usual_beginning() if args.beginning is None else args.beginning
    for number in range(args.samples):
        if number:
            print("-" * 20)
        options = {
            name: getattr(args, name) for name in ("temperature", "top_k", "nucleus", "keep")
        }
        text = writer.write(beginning, args.length, rng, **options)
        print(command_line.printable(text), flush=True)
