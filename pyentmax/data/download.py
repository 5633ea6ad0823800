"""Data sets that are fetched: the files of CoNLL-SIGMORPHON 2018, task 1, each with its checksum.

The files are taken from a folder on this machine if there is one, and otherwise downloaded, once,
into the user's cache. Folder and cache have the layout of the shared task's repository:
``conll2018/task1/{all,surprise}/LANGUAGE-train-medium`` and so on. The checksums, in
``conll2018_sha256.txt`` as ``sha256sum`` writes them, decide what a download has to be.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pyentmax.data.errors import DataError
from pyentmax.data.inflection import language_of

__all__ = ["SPLITS", "conll2018_files", "conll2018_languages"]

SPLITS = ("train-low", "train-medium", "train-high", "dev")
"""The files of a language; some have fewer. Test files are for finished models: not fetched."""

FOLDER_VARIABLE = "PYENTMAX_DATA"
_INSIDE = Path("conll2018", "task1")
# A branch, not a commit: it is the checksums that say which contents are right.
_URL = "https://raw.githubusercontent.com/sigmorphon/conll2018/master/task1/"
_TIMEOUT = 30  # seconds without an answer


def conll2018_languages(split: str, folder: str | os.PathLike[str] | None = None) -> list[str]:
    """The languages that have files of a split.

    Parameters
    ----------
    split : {"train-low", "train-medium", "train-high", "dev"}
    folder : path, optional
        As for :func:`conll2018_files`.

    Returns
    -------
    list of str
        Sorted, spelt as the files are.

    Raises
    ------
    DataError
        If there is no such split, or the folder does not hold ``conll2018/task1``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     task = Path(folder, "conll2018", "task1", "all")
    ...     task.mkdir(parents=True)
    ...     Path(task, "welsh-dev").touch()
    ...     conll2018_languages("dev", folder)
    ['welsh']
    """
    _check_split(split)
    return sorted(_known(_local(folder)).get(split, {}))


def conll2018_files(
    languages: Iterable[str], split: str, folder: str | os.PathLike[str] | None = None
) -> list[Path]:
    """The files of some languages, from a folder or, fetched on first use, from the cache.

    Parameters
    ----------
    languages : iterable of str
        As the shared task names its files: ``"english"``, ``"north-frisian"``.
    split : {"train-low", "train-medium", "train-high", "dev"}
    folder : path, optional
        It holds ``conll2018/task1/{all,surprise}/``. Its files are used as they are, and nothing
        is downloaded. If not given, the environment variable ``PYENTMAX_DATA`` names it; if that
        is not set either, the files are downloaded into the user's cache
        (``pooch.os_cache("pyentmax")``).

    Returns
    -------
    list of Path
        A file for each language, in their order.

    Raises
    ------
    DataError
        If a language is unknown or has no such file, the folder is not as described, or a
        download does not have the known checksum; such a download is not kept.
    ConnectionError
        If a download fails. The files that came before it are kept.
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
    ...     [path.name for path in conll2018_files(["welsh"], "dev", folder)]
    ['welsh-dev']
    """
    _check_split(split)
    local = _local(folder)
    known = _known(local)
    names = [_name(language, split, known) for language in languages]
    return [local / name for name in names] if local is not None else _fetch(names)


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise DataError(f"split: expected one of {', '.join(SPLITS)}; got {split!r}")


# --- what there is --------------------------------------------------------------------------------
@cache
def _registry() -> dict[str, str]:
    """File under ``task1`` → SHA-256."""
    text = resources.files(__package__).joinpath("conll2018_sha256.txt").read_text("utf-8")
    return {name: digest for digest, name in map(str.split, text.splitlines())}


def _local(folder: str | os.PathLike[str] | None) -> Path | None:
    """The folder ``task1`` on this machine, if the user has one."""
    named = f"{FOLDER_VARIABLE}=" if folder is None else ""
    chosen = os.environ.get(FOLDER_VARIABLE) if folder is None else folder
    if not chosen:
        return None
    task = Path(chosen) / _INSIDE
    if not task.is_dir():
        raise DataError(
            f"{named}{chosen}: expected a folder that holds {_INSIDE.as_posix()}/, got one without"
        )
    return task


def _known(local: Path | None) -> dict[str, dict[str, str]]:
    """Split → language → file under ``task1``."""
    if local is None:
        names: Iterable[str] = _registry()
    else:
        names = (path.relative_to(local).as_posix() for path in sorted(local.glob("*/*")))
    known: dict[str, dict[str, str]] = {}
    for name in names:
        for split in SPLITS:
            if name.endswith(f"-{split}"):
                known.setdefault(split, {})[language_of(name)] = name
    return known


def _name(language: str, split: str, known: dict[str, dict[str, str]]) -> str:
    of_split = known.get(split, {})
    if language in of_split:
        return of_split[language]
    splits = [s for s in SPLITS if language in known.get(s, {})]
    if splits:
        raise DataError(f"{language} has no {split}, only {', '.join(splits)}")
    everywhere = sorted({name for languages in known.values() for name in languages})
    near = difflib.get_close_matches(language, everywhere, n=3)
    hint = f"is it {' or '.join(near)}?" if near else f"known are {' '.join(everywhere)}"
    raise DataError(f"unknown language {language!r}: {hint}")


# --- downloads ------------------------------------------------------------------------------------
def _fetch(names: Sequence[str]) -> list[Path]:
    """The files in the cache, after downloading those that are not there whole."""
    pooch, tqdm = _tools()
    store = pooch.create(
        path=Path(pooch.os_cache("pyentmax")) / _INSIDE, base_url=_URL, registry=_registry()
    )
    pooch.get_logger().setLevel("WARNING")  # it would write a line a file
    missing = sum(not (store.abspath / name).exists() for name in names)
    if missing:
        print(f"downloading {missing} files to {store.abspath}", file=sys.stderr)
    shown = missing and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    download = pooch.HTTPDownloader(timeout=_TIMEOUT)
    return [
        _fetch_one(store, name, download)
        for name in tqdm(names, unit="file", disable=not shown, leave=False)
    ]


def _fetch_one(store: Any, name: str, download: Any) -> Path:
    import requests

    try:
        return Path(store.fetch(name, downloader=download))
    except requests.RequestException as error:
        raise ConnectionError(
            f"could not download {store.get_url(name)} ({_short(error)}). Without a connection, "
            f"put the folder task1 of github.com/sigmorphon/conll2018 under FOLDER/conll2018/ "
            f"and name FOLDER, by {FOLDER_VARIABLE} or where it is asked for"
        ) from error
    except ValueError as error:  # of a file without the known checksum, which is deleted again
        raise DataError(
            f"{store.get_url(name)}: {error} Try again; if it stays, the file was changed there"
        ) from error


def _short(error: Exception) -> str:
    """The innermost reason: what wraps it repeats the address."""
    while isinstance(error.__context__, Exception):
        error = error.__context__
    return f"{type(error).__name__}: {error}"


def _tools() -> tuple[Any, Any]:
    try:
        import pooch
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            f"downloading data needs pooch and tqdm ({error}): pip install 'pyentmax[models]', or "
            f"name a folder that holds {_INSIDE.as_posix()}/, by {FOLDER_VARIABLE} or where it is "
            "asked for"
        ) from error
    return pooch, tqdm
