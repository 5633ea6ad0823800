"""Files that are written completely or not at all, and locks between processes."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

UNSUPPORTED = (errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` when the block ends without an error.

    It is in the same folder and is flushed to the disk before it is renamed. Whatever interrupts
    the writing, a full disk or Ctrl-C, an earlier file remains, complete. A link remains a link,
    and the new file gets the earlier one's permissions. File systems that can neither flush a file
    nor set permissions go without.

    Raises
    ------
    OSError
        If the file cannot be written, or is a device or a pipe; the message names it.

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
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        mode = path.stat().st_mode if path.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "expected a regular file, got a device, pipe or folder")
        with temporary.open("xb") as file:
            if mode is not None:
                with _where_supported():
                    temporary.chmod(stat.S_IMODE(mode))
            yield file
            file.flush()
            with _where_supported():
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
def _where_supported() -> Iterator[None]:
    """Ignore the error of a file system that has no such operation (CIFS, drives in WSL, FUSE)."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


@contextmanager
def locked(path: str | os.PathLike[str], what: str, *, wait: bool = True) -> Iterator[None]:
    """Wait until no other process or thread is in a block that is locked by the same file.

    The operating system releases the lock when the process that holds it ends, however it ends;
    the empty file remains. Where files cannot be locked (Windows, some network file systems),
    the block runs without a lock.

    Parameters
    ----------
    path : path
        Created if it is missing, with its folder. It is not removed.
    what : str
        What happens in the block: printed to standard error if it has to wait; with ``wait=False``
        the message of the error.
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
            print(f"waiting for another process: {what}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # the file system has no locks
            pass
        yield
