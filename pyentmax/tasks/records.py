"""The results of an experiment, in files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from pyentmax.system.files import locked, naming, replacing

SETTINGS, FOLDER_LOCK = "settings.json", ".lock"

P = ParamSpec("P")
R = TypeVar("R")


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """The value that :func:`write_json` wrote; a ValueError names a damaged file."""
    try:
        with naming(path):
            return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, as this command writes it ({error})") from error


def of_results(
    report: Callable[Concatenate[Path, P], R],
) -> Callable[Concatenate[Path, P], R]:
    """Decorator of what reports on a folder of results: a ValueError says so if one does not fit.

    A result that was damaged, or written by another version, lacks what is reported, or has it in
    another form.

    One process at a time reports on a folder: of two that end a row at once, the one that writes
    last would otherwise do so without the other's row, if it had read the results first.
    """

    @functools.wraps(report)
    def named(out: Path, /, *args: P.args, **kwargs: P.kwargs) -> R:
        lock = locked(out / FOLDER_LOCK, f"a report on {out}")
        try:
            with lock if out.is_dir() else contextlib.nullcontext():
                return report(out, *args, **kwargs)
        except (
            KeyError,
            TypeError,
            IndexError,
            AttributeError,
            ValueError,
            OverflowError,
        ) as error:
            if isinstance(error, ValueError):
                if type(error) is not ValueError or str(out) in str(error):
                    raise  # it names a file
            raise ValueError(
                f"{out}: expected results as this command writes them, one is damaged or another "
                f"version's ({type(error).__name__}: {error}); without its result.json the command "
                "measures that run again"
            ) from error

    return named


def fingerprint_of_texts(texts: Iterable[str]) -> str:
    """A short text for some texts, the same only for the same ones in the same order.

    Examples
    --------
    >>> fingerprint_of_texts(["ab", "c"]) == fingerprint_of_texts(["a", "bc"])
    False
    """
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)} {text}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def open_folder(out: Path, settings: Mapping[str, Any]) -> None:
    """Create the folder of an experiment, or check that the one there has the same settings.

    They are kept in its ``settings.json``, so in a form that JSON can hold. A ValueError says which
    are not the same, and names a result if there is one but nothing that says what it is of.
    """
    path = out / SETTINGS
    if not path.exists():
        # Two commands with other settings may begin at once.
        with locked(out / FOLDER_LOCK, f"opening {out}"):
            if not path.exists():
                if result := next(out.glob("**/result.json"), None):
                    raise ValueError(
                        f"{path}: not found, though {result} is there, of settings that nobody "
                        "knows: give another --out"
                    )
                write_json(path, settings)
                return
    there = read_json(path)
    if not isinstance(there, dict):
        raise ValueError(f"{path}: expected the settings of an experiment, got {str(there)[:60]}")
    if different := [name for name in settings if there.get(name) != settings[name]]:
        told = ", ".join(f"{n} {there.get(n)!r} there, {settings[n]!r} now" for n in different)
        raise ValueError(f"{out} was begun with other settings ({told}): give another --out")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a CSV file in one step; each row has exactly these columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
