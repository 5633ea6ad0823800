"""Writing a file whole or not at all."""

from __future__ import annotations

import os
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
