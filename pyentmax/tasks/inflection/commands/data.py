"""``data conll2018``: the shared task's files."""

from __future__ import annotations

import argparse

from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.inflection.commands.options import add_folder
from pyentmax.tasks.inflection.conll2018 import SPLITS, conll2018_files, conll2018_languages


def add_data(commands: Commands) -> None:
    """Add the `data conll2018` command."""
    conll2018 = commands.add(
        "data conll2018",
        run=_data_conll2018,
        computes=False,
        help="morphological inflection in 103 languages",
        description="The files of the CoNLL-SIGMORPHON 2018 shared task 1, downloaded into the "
        "user's cache with their checksums verified, or found in a folder. Prints their paths; "
        "without --languages, the languages that there are.",
    )
    add = conll2018.add_argument
    add("--languages", nargs="+", default=[], metavar="NAME", help="or 'all'")
    add("--split", nargs="+", choices=SPLITS, default=["train-medium", "dev"], help="which files")
    add_folder(conll2018, "--folder")


def _data_conll2018(args: argparse.Namespace) -> int:
    if not args.languages:
        has = {split: conll2018_languages(split, args.folder) for split in SPLITS}
        for language in sorted({name for names in has.values() for name in names}):
            print(f"{language:24}", *(split for split in SPLITS if language in has[split]))
        return 0
    for split in args.split:
        names = args.languages
        if names == ["all"]:
            names = conll2018_languages(split, args.folder)
        print(*conll2018_files(names, split, args.folder), sep="\n")
    return 0
