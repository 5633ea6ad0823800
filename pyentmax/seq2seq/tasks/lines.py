"""Commands on files: lines as they arrive, and the results of each, in three formats."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.tasks.command_line import printable
from pyentmax.seq2seq.tasks.text_files import COMPRESSED, decode

FORMATS = ("tsv", "json", "jsonl")
N_NAMED = 20  # notes of one kind that are printed
N_WAITING = 512  # lines that are worked on together


class Line(NamedTuple):
    """A line with its place, such as "words, line 3"; or why it cannot be read."""

    where: str
    text: str
    error: str = ""


def is_input(word: str) -> bool:
    """Whether an argument is "-", for standard input, or a file."""
    return word == "-" or Path(word).is_file()


@contextmanager
def blocks_from(word: str) -> Iterator[Iterator[list[Line]]]:
    """The lines of standard input or a file, in blocks."""
    if word == "-":
        yield blocks_of_lines(sys.stdin.buffer, "standard input")
        return
    with open(word, "rb") as file:
        yield blocks_of_lines(file, word)


def blocks_of_lines(stream: BinaryIO, name: str) -> Iterator[list[Line]]:
    """Lines as they arrive: those that are waiting together, at most `N_WAITING`.

    Nothing is read ahead of a line that is complete, so that a process that waits for the answer to
    each line before it writes the next gets it.

    Examples
    --------
    >>> import io
    >>> [[line.text for line in block] for block in blocks_of_lines(io.BytesIO(b"a\\n\\nb"), "-")]
    [['a', ''], ['b']]
    """
    rest, number = b"", 0
    while True:
        data = stream.read1(1 << 20)  # type: ignore[attr-defined]  # waits for the first byte only
        *complete, rest = (rest + data).split(b"\n")
        if not data and rest:
            complete.append(rest)
        lines = []
        for raw in complete:
            number += 1
            where = f"{name}, line {number}"
            try:
                lines.append(Line(where, decode(raw, name, number)))
            except DataError as error:
                if number == 1 and raw.startswith(tuple(COMPRESSED.values())):
                    raise
                lines.append(Line(where, "", str(error)))
        for start in range(0, len(lines), N_WAITING):
            yield lines[start : start + N_WAITING]
        if not data:
            return


class Notes:
    """What a command says about lines on standard error, and its exit status."""

    def __init__(self, strict: bool) -> None:
        self.strict, self.good, self.bad = strict, 0, 0
        self._said: dict[str, int] = {}
        self._keys: set[str] = set()

    def wrong(self, message: str) -> None:
        """Say what is wrong with a line, which is left out."""
        self.bad += 1
        self.say(message, "of lines left out", limit=None if self.strict else N_NAMED)

    def once(self, message: str, key: str, kind: str) -> None:
        """Say what is the same for all lines with this key."""
        if key not in self._keys:
            self._keys.add(key)
            self.say(message, kind)

    def say(self, message: str, kind: str = "", limit: int | None = N_NAMED) -> None:
        """Print a line, unless many of its kind were."""
        self._said[kind] = count = self._said.get(kind, 0) + 1
        if limit is None or not kind or count <= limit:
            print(printable(f"note: {message}", keep=""), file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Count what was left out; exit with status 1 if nothing could be done, or if strict."""
        for kind, count in self._said.items():
            if kind and count > N_NAMED:
                self.say(f"{count} notes {kind}, the first {N_NAMED} are shown")
        if self.bad:
            self.say(f"{self.bad} of {self.good + self.bad} lines were left out")
        if not self.good and not self.bad:
            self.say("expected at least one line, got none")
        if not self.good or (self.bad and self.strict):
            sys.stdout.flush()
            sys.exit(1)


class Results:
    """Writes the results of each line: as the command does, or in one of `FORMATS`."""

    def __init__(self, form: str | None) -> None:
        self.form, self._count = form, 0

    def write(self, lines: Sequence[str], record: dict[str, Any]) -> None:
        """Write a result.

        Parameters
        ----------
        lines : sequence of str
            What to write without a format.
        record : dict
            What was given, as texts, then ``results``, a list of dicts, and ``complete``. Empty for
            an empty line.
        """
        self._count += 1
        if self.form is None:
            print(*(printable(line, keep="\t") for line in lines), sep="\n")
        elif self.form == "tsv":
            cells = [str(v) for k, v in record.items() if k not in ("results", "complete", "error")]
            state = "complete" if record.get("complete") else "incomplete"
            rows = [[*cells, *map(_number, r.values()), state] for r in record.get("results", ())]
            for row in rows or [[]]:
                print("\t".join(printable(text, keep="") for text in row))
        else:
            start = "" if self.form == "jsonl" else ",\n" if self._count > 1 else "[\n"
            print(start + _json(record), end="\n" if self.form == "jsonl" else "")

    def flush(self) -> None:
        """Hand over what was written: a process may wait for it."""
        sys.stdout.flush()

    def finish(self) -> None:
        """End the list of JSON."""
        if self.form == "json":
            print("\n]" if self._count else "[]")


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _json(record: dict[str, Any]) -> str:
    text = json.dumps(record, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def result(text: str, log_prob: float, score: float | None = None) -> dict[str, Any]:
    """One of the ``results`` of a record."""
    numbers = {"probability": math.exp(log_prob), "log_probability": log_prob}
    return {"text": text, **numbers} | ({} if score is None else {"score": score})
