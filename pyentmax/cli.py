"""``python -m pyentmax``: train models of inflection, use them, and the demonstration.

Every command begins with a line that says what computes the mappings, ends with exit code 0 if it
did what it was asked for, and otherwise prints one line that says what was wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from ._dispatch import describe_backend
from .data import compounds_of, hold_out, language_of, read_examples
from .inflection import Inflector, train_inflector
from .reports import describe, draw
from .training import TrainingConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    args = _parser().parse_args(argv)
    print(f"pyentmax runs {describe_backend()}", flush=True)
    try:
        return args.run(args)
    except (ValueError, OSError, FloatingPointError, ImportError) as error:
        print(f"pyentmax {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"pyentmax {args.command}: stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyentmax",
        description="Sparse attention and sparse sequence-to-sequence models.",
    )
    parser.add_argument("--version", action="version", version=f"pyentmax {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train on English verbs; list every form of 'draw'")
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument(
        "--out", type=Path, default=Path("pyentmax-demo"), help="folder for model and pictures"
    )
    demo.set_defaults(run=_demo)

    train = commands.add_parser("train", help="train a model").add_subparsers(
        dest="model", required=True, metavar="MODEL"
    )
    seq2seq = train.add_parser("seq2seq", help="a recurrent model of inflection")
    seq2seq.add_argument(
        "--train",
        nargs="+",
        type=Path,
        required=True,
        metavar="FILE",
        help="lines of lemma, form, tags, separated by tabs",
    )
    seq2seq.add_argument("--dev", nargs="+", type=Path, required=True, metavar="FILE")
    seq2seq.add_argument(
        "--out",
        type=Path,
        default=Path("run"),
        metavar="DIR",
        help="folder for best.npz and last.npz (default: run)",
    )
    seq2seq.add_argument(
        "--multilingual",
        action="store_true",
        help="put each file's language, from its name, before its examples",
    )
    seq2seq.add_argument(
        "--hold-out",
        nargs="+",
        default=[],
        metavar="LEMMA",
        help="leave these lemmas, and words that end in them, out of training",
    )
    seq2seq.add_argument("--hidden", type=int, default=128)
    seq2seq.add_argument("--layers", type=int, default=1)
    seq2seq.add_argument("--dropout", type=float, default=0.3)
    seq2seq.add_argument(
        "--attention",
        default="1.5",
        metavar="MAPPING",
        help="α, or a mapping's name (default: 1.5)",
    )
    seq2seq.add_argument(
        "--loss",
        default="1.5",
        metavar="MAPPING",
        help="α, or a mapping's name, of the output layer (default: 1.5)",
    )
    seq2seq.add_argument("--updates", type=int, default=3000)
    seq2seq.add_argument("--batch-size", type=int, default=32)
    seq2seq.add_argument("--rate", type=float, default=3e-3)
    seq2seq.add_argument("--schedule", choices=("linear", "halve"), default="linear")
    seq2seq.add_argument("--clip", type=float, default=5.0)
    seq2seq.add_argument("--validate-every", type=int, default=None, metavar="UPDATES")
    seq2seq.add_argument("--patience", type=int, default=None, metavar="VALIDATIONS")
    seq2seq.add_argument("--seed", type=int, default=0)
    seq2seq.add_argument("--resume", action="store_true", help="go on from DIR/last.npz")
    seq2seq.add_argument("--quiet", action="store_true", help="no progress bar")
    seq2seq.set_defaults(run=_train_seq2seq)

    inflect = commands.add_parser("inflect", help="every form that a model finds possible")
    inflect.add_argument(
        "model_file", type=Path, metavar="MODEL", help="best.npz, or the folder of a run"
    )
    inflect.add_argument("lemma")
    inflect.add_argument("tags", help="separated by semicolons, such as 'V;V.PTCP;PST'")
    inflect.add_argument("--language", default=None)
    inflect.add_argument("--beam", type=int, default=5)
    inflect.add_argument("--max-length", type=int, default=None)
    inflect.add_argument(
        "--pictures",
        type=Path,
        default=None,
        metavar="DIR",
        help="draw the tree and the attention there",
    )
    inflect.set_defaults(run=_inflect)
    return parser


def _train_seq2seq(args: argparse.Namespace) -> int:
    languages = [language_of(path) for path in args.train] if args.multilingual else None
    dev_languages = [language_of(path) for path in args.dev] if args.multilingual else None
    examples = read_examples(args.train, languages=languages)
    dev = read_examples(args.dev, languages=dev_languages)
    if args.hold_out:
        lemmas = {example.lemma for example in examples}
        held = {word for lemma in args.hold_out for word in (lemma, *compounds_of(lemma, lemmas))}
        examples, left_out = hold_out(examples, held)
        print(f"held out of training: {len(left_out)} forms of {', '.join(sorted(held & lemmas))}")
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
    )
    if history.interrupted:
        print(f"interrupted; go on with the same command and --resume ({last})")
        return 130
    print(
        f"{history.update[-1]} updates in {history.seconds[-1]:.0f} s; best dev accuracy "
        f"{100 * history.best_accuracy:.1f}% (greedy), model in {args.out / 'best.npz'}"
    )
    return 0


def _inflect(args: argparse.Namespace) -> int:
    inflector = Inflector.load(args.model_file)
    result = inflector.inflect(
        args.lemma, args.tags, args.language, beam=args.beam, max_length=args.max_length
    )
    print(describe(inflector, args.lemma, args.tags, result))
    if args.pictures is not None:
        for path in draw(inflector, args.lemma, args.tags, result, args.pictures, args.language):
            print(f"picture: {path}")
    return 0


def _demo(args: argparse.Namespace) -> int:
    from .demo import run_demo

    return run_demo(args.out, args.seed)
