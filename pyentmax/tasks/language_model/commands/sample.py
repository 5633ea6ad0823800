"""``sample``: a trained language model writes."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from pyentmax.data import DataError
from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.language_model.writer import Writer


def add_sample(commands: Commands) -> None:
    """Add the `sample` command."""
    parser = commands.add(
        "sample",
        run=_sample,
        writes_text=True,
        help="let a language model write",
        description="Write how a text goes on, character by character. A model whose output is "
        "sparse draws from its support only; temperature, top-k and nucleus are there to compare.",
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="best.npz, or the folder of a run")
    add("--beginning", default="\n", help="what the text begins with; a new line if not given")
    add("--length", type=int, default=500, help="characters to write")
    add("--samples", type=int, default=1, metavar="N", help="how many")
    add("--temperature", type=float, default=1.0, help="below 1: closer to the most probable")
    add("--top-k", type=int, metavar="K", help="draw among the K most probable")
    add("--nucleus", type=float, metavar="MASS", help="draw among the fewest with this mass")
    add("--seed", type=int, default=0, help="fixes the result")


def _sample(args: argparse.Namespace) -> int:
    for name in ("samples", "length"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name}: expected at least 1, got {getattr(args, name)}")
    if args.seed < 0:
        raise ValueError(f"--seed: expected a number from 0 up, got {args.seed}")
    writer, rng = Writer.load(args.model), np.random.default_rng(args.seed)
    for character in args.beginning:
        if character not in writer.vocabulary:
            known = "".join(t for t in writer.vocabulary.tokens if len(t) == 1)
            raise DataError(
                f"--beginning: the model's text has no {character!r}; expected one or more of "
                f"{known!r}"
            )
    for number in range(args.samples):
        if number:
            print("-" * 20)
        print(
            writer.write(
                args.beginning,
                args.length,
                rng,
                temperature=args.temperature,
                top_k=args.top_k,
                nucleus=args.nucleus,
            )
        )
    return 0
