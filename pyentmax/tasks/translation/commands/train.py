"""``train rnn`` and ``train transformer``: models of translation, from a configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyentmax.calls.devices import DEVICES
from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.translation.configuration import read_experiment
from pyentmax.tasks.translation.training import train_translator
from pyentmax.training import LAST, RunOptions, TrainingConfig

_DESCRIPTION = (
    "Train a model of translation as a TOML file says. [data] has train and dev, each two files "
    "of parallel text, or one with source TAB target, or 'toy-german', which is bundled; subwords, "
    "a number or a sentencepiece model (words without it); tokens or batch_size. [model] and "
    "[training] hold the fields of {config} and TrainingConfig. Writes DIR/best.npz, the model "
    "with the most tokens right on dev, and DIR/last.npz, from which --resume continues."
)


def add_train(commands: Commands) -> None:
    """Add the `train rnn` and `train transformer` commands."""
    for architecture, help, config in (
        ("rnn", "a recurrent model of translation", "RNNSeq2SeqConfig"),
        ("transformer", "a Transformer of translation", "TransformerConfig"),
    ):
        parser = commands.add(
            f"train {architecture}",
            run=_train,
            help=help,
            description=_DESCRIPTION.format(config=config),
        )
        add = parser.add_argument
        add("--config", required=True, metavar="FILE", help=f"such as toy-{architecture}, bundled")
        add("--out", type=Path, default="run", metavar="DIR", help="folder of the run")
        add("--resume", action="store_true", help="continue from DIR/last.npz")
        add("--seed", type=int, help="instead of the configuration's")
        add("--updates", type=int, help="instead of the configuration's")
        add("--device", choices=DEVICES, default="cpu", help="where to compute; cuda needs CuPy")
        add("--quiet", action="store_true", help="no progress")


def _train(args: argparse.Namespace) -> int:
    experiment = read_experiment(args.config, args.model)
    given = {"seed": args.seed, "updates": args.updates}
    settings = experiment.training | {k: v for k, v in given.items() if v is not None}
    try:
        training = TrainingConfig(**settings)
    except (TypeError, ValueError) as error:
        from_options = tuple(name for name, value in given.items() if value is not None)
        where = "" if str(error).startswith(from_options) else f"{args.config}, [training] "
        raise ValueError(f"{where}{error}") from error
    last = args.out / LAST
    options = RunOptions(args.out, resume=args.resume, progress=not args.quiet)
    options.check_directory()
    train, dev = experiment.pairs()
    translator, history = train_translator(
        args.model,
        train,
        dev,
        training,
        options,
        segmenter=experiment.segmenter(train),
        tokens=experiment.data.get("tokens", 2048),
        batch_size=experiment.data.get("batch_size"),
        device=args.device,
        **experiment.model,
    )
    if history.interrupted:
        print(f"interrupted; continue with the same command and --resume ({last})")
        return 130
    print(
        f"{history.update[-1]} updates in {history.seconds[-1]:.0f} s; best dev accuracy "
        f"{100 * history.best_accuracy:.1f}% of the tokens, model in {args.out / 'best.npz'}"
    )
    return 0
