"""Files that are fetched: from a folder on this machine, or downloaded once and verified.

A data set lies in the same place inside the user's data folder and inside the cache, such as
``conll2018/task1``. Files in a data folder are used as they are; a download must have the SHA-256
that the data set's list gives for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from pyentmax.seq2seq.data.errors import DataError

FOLDER_VARIABLE = "PYENTMAX_DATA"
"""The environment variable that names the user's data folder."""

_TIMEOUT = 30  # seconds without an answer


def local_folder(inside: str, folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder of a data set on this machine; None if the files have to be downloaded.

    Parameters
    ----------
    inside : str
        The place of the data set inside a data folder, such as ``"conll2018/task1"``.
    folder : path, optional
        The data folder. If not given, the environment variable ``PYENTMAX_DATA`` names it; if
        that is not set either, there is none.

    Raises
    ------
    DataError
        If the data folder does not hold ``inside``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "conll2018", "task1").mkdir(parents=True)
    ...     local_folder("conll2018/task1", folder).name
    'task1'
    """
    named = f"{FOLDER_VARIABLE}=" if folder is None else ""
    chosen = os.environ.get(FOLDER_VARIABLE) if folder is None else folder
    if not chosen:
        return None
    if not (path := Path(chosen, inside).expanduser()).is_dir():
        raise DataError(f"{named}{chosen}: expected a folder that holds {inside}/, got one without")
    return path


def fetch(
    names: Sequence[str], checksums: Mapping[str, str], inside: str, url: str, source: str
) -> list[Path]:
    """Files of a data set in the user's cache, after downloading those that are not there.

    Parameters
    ----------
    names : sequence of str
        The files, by their paths inside the data set; returned in this order.
    checksums : mapping of str to str
        The SHA-256 of each file that the data set has.
    inside : str
        Their place inside the cache, as for :func:`local_folder`.
    url : str
        The address below which they are, ending in a slash.
    source : str
        What to put into a data folder by hand, for the message without a connection.

    Raises
    ------
    DataError
        If a download does not have the known checksum; it is not kept.
    ConnectionError
        If a download fails. Files that were complete before are kept.
    ImportError
        If pooch or tqdm is not installed.
    """
    elsewhere = f"by {FOLDER_VARIABLE} or where it is asked for"
    try:
        import pooch
        import requests
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            f"downloading data needs pooch and tqdm ({error}): pip install 'pyentmax[models]', or "
            f"name a folder that holds {inside}/, {elsewhere}"
        ) from error
    store = pooch.create(
        path=Path(pooch.os_cache("pyentmax"), inside), base_url=url, registry=dict(checksums)
    )
    pooch.get_logger().setLevel("WARNING")  # it would write one line per file
    missing = sum(not (store.abspath / name).exists() for name in names)
    if missing:
        print(f"downloading {missing} files to {store.abspath}", file=sys.stderr)
    shown = missing and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    download, paths = pooch.HTTPDownloader(timeout=_TIMEOUT), []
    for name in tqdm(names, unit="file", disable=not shown, leave=False):
        try:
            paths.append(Path(store.fetch(name, downloader=download)))
        except requests.RequestException as error:
            raise ConnectionError(
                f"could not download {store.get_url(name)} ({_innermost(error)}). Without a "
                f"connection, put {source} under FOLDER/{PurePosixPath(inside).parent}/ and name "
                f"FOLDER, {elsewhere}"
            ) from error
        except ValueError as error:  # of a file without the known checksum, deleted again
            raise DataError(
                f"{store.get_url(name)}: {error} Try again; if it stays, the file was changed there"
            ) from error
    return paths


def _innermost(error: BaseException) -> str:
    """The innermost reason: what wraps it repeats the address."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}"
