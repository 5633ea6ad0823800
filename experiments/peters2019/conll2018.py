"""The files of CoNLL-SIGMORPHON 2018, task 1: inflection in 103 languages.

They are read from a folder on this machine if there is one, and otherwise downloaded once into the
user's cache. Folder and cache have the layout of the shared task's repository:
``conll2018/task1/{all,surprise}/LANGUAGE-train-medium`` and so on. A download must have the
checksum that ``conll2018_sha256.txt``, in the format of ``sha256sum``, gives for it. To get some,
and print where they are, or, without languages, which there are:

    python -m experiments.peters2019.conll2018 --languages english german --split train-high dev
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from experiments.download import fetch, local_folder
from pyentmax.seq2seq.data.errors import DataError
from pyentmax.seq2seq.inflection.examples import language_of

SPLITS = ("train-low", "train-medium", "train-high", "dev")
"""The files of a language; some languages have fewer. Test files are not fetched: they are for
finished models."""

_INSIDE = "conll2018/task1"
# A branch, not a commit: it is the checksums that say which contents are right.
_URL = "https://raw.githubusercontent.com/sigmorphon/conll2018/master/task1/"


def conll2018_languages(split: str, folder: str | os.PathLike[str] | None = None) -> list[str]:
    """The languages that have files of a split, sorted, with the spelling of the files.

    Parameters, errors and an example are those of :func:`conll2018_files`.
    """
    _check_split(split)
    return sorted(_known(local_folder(_INSIDE, folder)).get(split, {}))


def conll2018_files(
    languages: Iterable[str], split: str, folder: str | os.PathLike[str] | None = None
) -> list[Path]:
    """The files of some languages, in that order: from a folder, or downloaded on first use.

    Parameters
    ----------
    languages : iterable of str
        With the spelling of the files, such as ``"english"`` or ``"north-frisian"``.
    split : {"train-low", "train-medium", "train-high", "dev"}
    folder : path, optional
        The data folder, which holds ``conll2018/task1/{all,surprise}/``. Its files are used as they
        are, and nothing is downloaded. If not given, the environment variable ``PYENTMAX_DATA``
        names it; if that is not set either, the files are downloaded into the user's cache
        (``pooch.os_cache("pyentmax")``).

    Raises
    ------
    DataError
        If there is no such split, a language is unknown or has no such file, the folder is not as
        described, or a download does not have the known checksum; such a download is not kept.
    ConnectionError
        If a download fails. Files that were complete before are kept.
    ImportError
        If something must be downloaded and pooch is not installed.

    References
    ----------
    Cotterell et al. (2018), The CoNLL–SIGMORPHON 2018 Shared Task: Universal Morphological
    Reinflection.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     task = Path(folder, "conll2018", "task1", "all")
    ...     task.mkdir(parents=True)
    ...     Path(task, "welsh-dev").touch()
    ...     conll2018_languages("dev", folder)
    ...     [path.name for path in conll2018_files(["welsh"], "dev", folder)]
    ['welsh']
    ['welsh-dev']
    """
    _check_split(split)
    local = local_folder(_INSIDE, folder)
    known = _known(local)
    names = [_name(language, split, known) for language in languages]
    if local is not None:
        return [local / name for name in names]
    source = "the folder task1 of github.com/sigmorphon/conll2018"
    return fetch(names, _checksums(), _INSIDE, _URL, source)


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise DataError(f"split: expected one of {', '.join(SPLITS)}; got {split!r}")


@cache
def _checksums() -> dict[str, str]:
    """File under ``task1`` → SHA-256."""
    text = resources.files(__package__).joinpath("conll2018_sha256.txt").read_text("utf-8")
    return {name: digest for digest, name in map(str.split, text.splitlines())}


def _known(local: Path | None) -> dict[str, dict[str, str]]:
    """Split → language → file under ``task1``."""
    if local is None:
        names: Iterable[str] = _checksums()
    else:
        names = (path.relative_to(local).as_posix() for path in sorted(local.glob("*/*")))
    known: dict[str, dict[str, str]] = {}
    for name in names:
        for split in SPLITS:
            if name.endswith(f"-{split}"):
                known.setdefault(split, {})[language_of(name)] = name
    return known


def _name(language: str, split: str, known: dict[str, dict[str, str]]) -> str:
    files = known.get(split, {})
    if language in files:
        return files[language]
    splits = [s for s in SPLITS if language in known.get(s, {})]
    if splits:
        raise DataError(f"{language} has no {split}, only {', '.join(splits)}")
    everywhere = sorted({name for languages in known.values() for name in languages})
    near = difflib.get_close_matches(language, everywhere, n=3)
    hint = f"is it {' or '.join(near)}?" if near else f"known are {' '.join(everywhere)}"
    raise DataError(f"unknown language {language!r}: {hint}")


def main(argv: Sequence[str] | None = None) -> None:
    """Print where the files are, or which languages there are."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--languages", nargs="+", default=[], metavar="NAME", help="or 'all'")
    add("--split", nargs="+", choices=SPLITS, default=["train-medium", "dev"], help="which files")
    add("--folder", type=Path, metavar="DIR", help="that holds conll2018/; else PYENTMAX_DATA's")
    args = parser.parse_args(argv)
    for split in args.split:
        known = conll2018_languages(split, args.folder)
        if not args.languages:
            print(f"{split}:", *known)
            continue
        names = known if args.languages == ["all"] else args.languages
        print(*conll2018_files(names, split, args.folder), sep="\n")


if __name__ == "__main__":
    main()
