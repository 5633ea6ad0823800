"""Writing a file whole or not at all, and doing a thing in one process at a time."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file that takes the place of ``path`` when the block ends without an error.

    It lies beside ``path`` and is flushed to the disk before it is renamed. Whatever interrupts the
    writing, a full disk or a Ctrl-C, the file that was there before is still there, whole.

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
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
        ) as file:
            temporary = Path(file.name)
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Temporary files are private; the result gets the permissions of any new file.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"could not write {path} ({reason}); a file from before is untouched"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Wait until no other process, or thread, is in a block that is locked by the same file.

    The system ends the lock with the process that holds it, however that dies: nothing stale can
    be left but the empty file. Where files cannot be locked (Windows, some network file systems)
    the block just runs.

    Parameters
    ----------
    path : path
        Made if it is not there, with its folder. It stays.
    what : str
        What happens in the block; printed if that has to wait.

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
        except BlockingIOError:
            print(f"waiting for another process: {what}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # the file system has no locks
            pass
        yield
