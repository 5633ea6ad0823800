"""Text of users: files in UTF-8, with errors that name file and line; what a terminal can show."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pyentmax.seq2seq.data.errors import DataError

COMPRESSED = {"gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ", "zip": b"PK\x03\x04"}
"""First bytes of compressed files."""


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file, without byte-order marks, with line feeds as line ends.

    Raises
    ------
    DataError
        If the file is not UTF-8; the message names it and the line.
    OSError
        If it cannot be read.
    """
    text = decode(Path(path).read_bytes(), os.fspath(path))
    return text if "\n" in text else text.replace("\r", "\n")  # lines of an old Mac


def decode(data: bytes, where: str) -> str:
    """The text of some bytes, as for `read_text`.

    Examples
    --------
    >>> decode("\\ufeffα\\r\\nβ".encode(), "letters.txt")
    'α\\nβ'
    """
    try:
        # A line may begin with a mark where files were joined, and end with several returns.
        return re.sub(r"(?<![^\n])\ufeff|\r+(?![^\n])", "", data.decode())
    except UnicodeDecodeError as error:
        if packed := [name for name, start in COMPRESSED.items() if data.startswith(start)]:
            raise DataError(f"{where}: expected text, got a {packed[0]} file; unpack it") from error
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{where}, line {line}: expected UTF-8, got byte 0x{error.object[error.start]:02x} "
            f"({error.reason}); convert the file to UTF-8"
        ) from error


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """Each line of a file with its place, such as ``("words.txt, line 3", "draw")``."""
    return numbered(read_text(path), os.fspath(path))


def numbered(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Each line of a text with its place, as for `numbered_lines`.

    Only a line feed ends a line: the other characters of `str.splitlines` belong to the text.
    """
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], start=1):
        yield f"{name}, line {number}", line


def printable(text: str, keep: str = "\n\t") -> str:
    r"""A text of a model or a file for a terminal: control characters are escaped.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """

    def escaped(match: re.Match[str]) -> str:
        return match[0] if match[0] in keep else ascii(match[0])[1:-1]

    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", escaped, text)
