"""Files that are written completely or not at all, and locks between processes."""

from __future__ import annotations

import os
import secrets
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pyentmax.system.notes import note


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` when the block ends without an error.

    It is in the same folder and is flushed to the disk before it is renamed. Whatever interrupts
    the writing, a full disk or Ctrl-C, the file that was there before is still there, complete.

    Raises
    ------
    OSError
        If the file cannot be written; the message names it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "word.txt"
    ...     with replacing(path) as file:
    ...         _ = file.write(b"drawn")
    ...     path.read_text()
    'drawn'
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"could not write {path} ({reason}); an earlier file is untouched"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within it, an OSError names this file if it names none: to open one does, to read does not.

    Examples
    --------
    >>> import errno
    >>> with naming("words.txt"):
    ...     raise OSError(errno.EIO, "Input/output error")
    Traceback (most recent call last):
        ...
    OSError: [Errno 5] Input/output error: 'words.txt'
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


def cut_name(name: str) -> str:
    """As much of a file's name as leaves room for an ending, and for that of a temporary file.

    Most file systems allow 255 bytes for both; a character of UTF-8 takes up to four.

    Examples
    --------
    >>> cut_name("draw"), len(cut_name(300 * "字"))
    ('draw', 66)
    """
    return name.encode("utf-8")[:200].decode("utf-8", "ignore")


def distinct_names(names: Iterable[str]) -> list[str]:
    """The names, with a number behind each that may be the same file as one before it.

    Some file systems take no notice of case, nor of how a letter with an accent is composed.

    Examples
    --------
    >>> distinct_names(["ein.hund", "eine.katze", "Ein.Hund", "ein.hund"])
    ['ein.hund', 'eine.katze', 'Ein.Hund-2', 'ein.hund-3']
    """
    counts: dict[str, int] = {}
    found = []
    for name in names:
        distinct, file = name, _as_file(name)
        while _as_file(distinct) in counts:
            counts[file] += 1
            distinct = f"{name}-{counts[file]}"
        counts[_as_file(distinct)] = 1
        found.append(distinct)
    return found


def _as_file(name: str) -> str:
    """The same text for all names that some file system takes for the same."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


@contextmanager
def locked(path: str | os.PathLike[str], what: str, *, wait: bool = True) -> Iterator[None]:
    """Wait until no other process or thread is in a block that is locked by the same file.

    The operating system releases the lock when the process that holds it ends, however it ends:
    only the empty file is left. Where files cannot be locked (Windows, some network file systems),
    the block runs without a lock.

    Parameters
    ----------
    path : path
        Created if it is missing, with its folder. It is not removed.
    what : str
        What happens in the block; printed to standard error if it has to wait, and the message of
        the error otherwise.
    wait : bool, default True
        False raises an error at once if the block cannot be entered.

    Raises
    ------
    BlockingIOError
        If ``wait`` is False, and another process or thread is in such a block.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with locked(Path(folder) / "lock", "training"):
    ...         print("nobody else trains here")
    nobody else trains here
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not wait:
                raise BlockingIOError(error.errno, what) from None
            note(f"waiting for another process: {what}")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # the file system has no locks
            pass
        yield
