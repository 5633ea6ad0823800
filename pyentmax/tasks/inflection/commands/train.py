"""``train seq2seq``: a recurrent model of inflection."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.calls.devices import DEVICES
from pyentmax.models.rnn_seq2seq import RNNSeq2SeqConfig
from pyentmax.nn.attention import LEARNED, SCORES
from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.inflection.commands.options import fields_from, note_unknown, read_marked
from pyentmax.tasks.inflection.examples import compounds_of, hold_out, source_tokens
from pyentmax.tasks.inflection.training import train_inflector
from pyentmax.training import RunOptions, TrainingConfig


def add_train(commands: Commands) -> None:
    """Add the `train seq2seq` command."""
    seq2seq = commands.add(
        "train seq2seq",
        run=_train_seq2seq,
        help="a recurrent model of inflection",
        description="Train a recurrent sequence-to-sequence model (Peters et al. 2019). A file has "
        "one example per line: lemma TAB form TAB tags;joined;by;semicolons. Writes DIR/best.npz, "
        "the model with the best accuracy of greedy decoding on the development files, and "
        "DIR/last.npz, from which --resume continues if all other options are the same.",
    )
    add = seq2seq.add_argument
    add("--train", nargs="+", type=Path, required=True, metavar="FILE", help="to learn from")
    add("--dev", nargs="+", type=Path, required=True, metavar="FILE", help="to validate on")
    add("--out", type=Path, default="run", metavar="DIR", help="folder of the run")
    add("--resume", action="store_true", help="continue from DIR/last.npz")
    add("--multilingual", action="store_true", help="mark examples with their file's language")
    add(
        "--hold-out",
        nargs="+",
        default=[],
        metavar="LEMMA",
        help="leave these lemmas, and words that end in them, out of training",
    )
    add("--attention", default="1.5", metavar="MAPPING", help="α, a mapping's name, or 'learned'")
    add("--score", choices=SCORES, default="bilinear", help="how attention compares states")
    add("--fertility", type=float, metavar="F", help="most attention that a source token gets")
    add("--loss", default="1.5", metavar="MAPPING", help="of the output: α, or a mapping's name")
    add("--hidden", type=int, default=128, help="width of embeddings and hidden states")
    add("--layers", type=int, default=1, help="of encoder and decoder")
    add("--dropout", type=float, default=0.3, help="rate")
    add("--label-smoothing", type=float, default=0.0, help="target's share for all tokens alike")
    add("--updates", type=int, default=3000, help="steps of Adam")
    add("--batch-size", type=int, default=32, help="examples per update")
    add("--rate", type=float, default=3e-3, help="Adam's step size at the start")
    add(
        "--schedule",
        choices=("linear", "halve"),
        default="linear",
        help="linear: to zero over all updates; halve: when the validation loss rises",
    )
    add("--clip", type=float, default=5.0, help="largest norm of the gradient")
    add("--validate-every", type=int, metavar="UPDATES", help="ten times in all if not given")
    add("--patience", type=int, metavar="N", help="stop after N validations without a better one")
    add("--seed", type=int, default=0, help="fixes the result")
    add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
    add("--quiet", action="store_true", help="no progress")


def _train_seq2seq(args: argparse.Namespace) -> int:
    options = RunOptions(args.out, resume=args.resume, progress=not args.quiet)
    options.check_directory()
    examples = read_marked(args.train, args.multilingual)
    dev = read_marked(args.dev, args.multilingual)
    known = {token for e in examples for token in (*source_tokens(e), *e.form)}
    note_unknown(known, dev, "development examples")
    if args.hold_out:
        lemmas = {example.lemma for example in examples}
        held: set[str] = set()
        for lemma in args.hold_out:
            found = {lemma, *compounds_of(lemma, lemmas)} & lemmas if lemma else set()
            if not found:
                raise ValueError(f"--hold-out: no training lemma is or ends in {lemma!r}")
            held |= found
        examples, left_out = hold_out(examples, held)
        print(f"held out of training: {len(left_out)} forms of {', '.join(sorted(held))}")
    last = args.out / "last.npz"
    inflector, history = train_inflector(
        examples,
        dev,
        TrainingConfig(**fields_from(args, TrainingConfig)),
        options,
        batch_size=args.batch_size,
        device=args.device,
        output=args.loss,
        **fields_from(args, RNNSeq2SeqConfig),
    )
    if history.interrupted:
        print(f"interrupted; continue with the same command and --resume ({last})")
        return 130
    learned = args.attention == LEARNED
    alpha = f"attention α {inflector.model.attention_alpha:.2f}, " if learned else ""
    print(
        f"{history.update[-1]} updates in {history.seconds[-1]:.0f} s; best dev accuracy "
        f"{100 * history.best_accuracy:.1f}% (greedy), {alpha}model in {args.out / 'best.npz'}"
    )
    return 0
