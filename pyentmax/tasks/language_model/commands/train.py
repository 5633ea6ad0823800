"""``train language-model``: a language model of the characters of a text."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.calls.devices import DEVICES
from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.language_model.text import read_text
from pyentmax.tasks.language_model.training import train_writer
from pyentmax.training import LAST, RunOptions, TrainingConfig


def add_train(commands: Commands) -> None:
    """Add the `train language-model` command."""
    parser = commands.add(
        "train language-model",
        run=_train,
        help="a Transformer that writes, character by character",
        description="Train a decoder-only Transformer on the characters of a text, whose last "
        "tenth is held out. Writes DIR/best.npz, the model with the most characters right there, "
        "and DIR/last.npz, from which --resume continues.",
    )
    add = parser.add_argument
    add("text", type=Path, metavar="FILE", help="in UTF-8")
    add("--out", type=Path, default="run", metavar="DIR", help="folder of the run")
    add("--resume", action="store_true", help="continue from DIR/last.npz")
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
    add("--seed", type=int, default=0, help="fixes the result")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add("--quiet", action="store_true", help="no progress")


def _train(args: argparse.Namespace) -> int:
    options = RunOptions(args.out, resume=args.resume, progress=not args.quiet)
    options.check_directory()
    training = TrainingConfig(
        updates=args.updates,
        rate=args.rate,
        schedule="inverse_sqrt",
        warmup=args.warmup,
        clip=1.0,
        seed=args.seed,
        betas=(0.9, 0.98),
        rate_factors=None if args.slow is None else {"query": args.slow, "key": args.slow},
    )
    fields = ("attention", "output", "positions", "memory", "width", "layers", "heads", "inner")
    _, history = train_writer(
        read_text(args.text),
        training,
        options,
        context=args.context,
        batch_size=args.batch_size,
        device=args.device,
        dropout=args.dropout,
        **{name: getattr(args, name) for name in fields},
    )
    if history.interrupted:
        print(f"interrupted; continue with the same command and --resume ({args.out / LAST})")
        return 130
    print(
        f"{history.update[-1]} updates in {history.seconds[-1]:.0f} s; best accuracy on what is "
        f"held out {100 * history.best_accuracy:.1f}% of the characters, model in "
        f"{args.out / 'best.npz'}"
    )
    return 0
