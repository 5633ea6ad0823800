"""Options that several commands of inflection share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyentmax.tasks.inflection.examples import Example, language_of, read_examples, source_tokens


def add_folder(parser: argparse.ArgumentParser, option: str) -> None:
    """Add the option that names the data folder."""
    parser.add_argument(
        option,
        type=Path,
        metavar="DIR",
        help="folder that holds conll2018/; if not given, that in PYENTMAX_DATA, or a download",
    )


def read_marked(paths: Sequence[Path], multilingual: bool) -> list[Example]:
    """Read examples, if ``multilingual`` marked with the language that their file's name tells."""
    languages = [language_of(path) for path in paths] if multilingual else None
    return read_examples(paths, languages=languages)


def note_unknown(known: Set[str], examples: Sequence[Example], what: str) -> None:
    """Say which share of the examples has tokens that no model of these knows, or can get right."""
    strange = [e for e in examples if not known >= {*source_tokens(e), *e.form}]
    if strange:
        share = len(strange) / len(examples)
        print(
            f"note: {len(strange)} of {len(examples)} {what} ({share:.0%}) have characters or tags "
            f"that the training data lacks, such as {strange[0].lemma!r}"
        )


def fields_from(args: argparse.Namespace, settings: Any) -> dict[str, Any]:
    """The values of the options that are named like fields of a dataclass."""
    return {
        field.name: getattr(args, field.name) for field in fields(settings) if field.name in args
    }
