"""The part of ``analyse`` for models of translation: what the heads of Transformers do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyentmax.plotting._figures import require_matplotlib
from pyentmax.plotting.comparisons import MOST_LINES
from pyentmax.tasks.translation import heads
from pyentmax.tasks.translation.configuration import BUNDLED, BUNDLED_DEV
from pyentmax.tasks.translation.multi30k import read_multi30k
from pyentmax.tasks.translation.parallel import SentencePair, read_parallel, read_table


class HeadAnalysis:
    """`analyse` of Transformers that translate: their heads, beside each other."""

    description = (
        "Of Transformers that translate, put side by side, what their heads do (Correia et al. "
        "2019, §5): densities, diversity, positional heads, heads that join the pieces of words, "
        "heads that look for a mark, learned α. DATA is a file of source TAB target, two files of "
        "parallel text, a bundled corpus (toy-german, planted-questions), or a folder with "
        "Multi30k, whose dev pairs are read. Name the softmax model first."
    )

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        """Add what only Transformers have."""
        add = parser.add_argument_group("heads of Transformers").add_argument
        add("--reverse", action="store_true", help="swap source and target of the data")
        add(
            "--looking",
            nargs="+",
            metavar="WORD",
            default=heads.QUESTION_WORDS,
            help="source tokens whose weight on the marks is measured; interrogatives if not given",
        )
        add("--marks", nargs="+", metavar="WORD", default=heads.MARKS, help="the question mark")
        add(
            "--k",
            nargs="+",
            metavar="K",
            default=(),
            help="tokens right if heads keep so many weights in use; a number or 'all'",
        )
        add("--translate", type=int, default=0, metavar="N", help="and BLEU of N sentences, greedy")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Measure, print and draw."""
        for k in args.k:
            if k != "all" and not (k.isdecimal() and int(k) > 0):
                raise ValueError(f"k: expected numbers from 1 up, or 'all', got {k!r}")
        if args.translate < 0:
            raise ValueError(f"--translate: expected a number of sentences, got {args.translate}")
        if args.out is not None:
            # Rather an error now than after all the work.
            require_matplotlib()
            if len(args.models) > MOST_LINES:
                raise ValueError(
                    f"expected at most {MOST_LINES} models with --out, whose pictures show no more "
                    f"lines, got {len(args.models)}"
                )
        pairs = read_pairs(args.examples, reverse=args.reverse)[: args.first]
        words = {"looking": set(args.looking), "marks": set(args.marks)}
        found = heads.measure(
            args.models,
            pairs,
            **words,
            ks=args.k,
            translated=args.translate,
            progress=not args.quiet,
        )
        print(heads.describe(found))
        if args.out is not None:
            from pyentmax.tasks.translation.head_pictures import draw

            for path in [heads.write(found, args.out), *draw(found, pairs, args.out, **words)]:
                print(f"written: {path}")
        return 0


def read_pairs(data: Sequence[Path], *, reverse: bool = False) -> list[SentencePair]:
    """The sentence pairs that DATA names.

    Parameters
    ----------
    data : sequence of one or two paths
        A table, two files of parallel text, the name of a bundled corpus (its held-out pairs), or a
        folder with Multi30k (its dev pairs).
    reverse : bool
        Whether source and target are swapped.

    Raises
    ------
    ValueError
        If there are more than two.
    """
    if len(data) > 2:
        raise ValueError(f"examples: expected one or two files of translation, got {len(data)}")
    if len(data) == 2:
        pairs = read_parallel(*data)
    elif str(data[0]) in BUNDLED:
        pairs = BUNDLED[str(data[0])]()[-BUNDLED_DEV:]
    elif data[0].is_dir():
        return read_multi30k(data[0], reverse=reverse).dev
    else:
        pairs = read_table(data[0])
    return [SentencePair(pair.target, pair.source) for pair in pairs] if reverse else pairs
