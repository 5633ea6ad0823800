"""Examples of inflection, their files, and the token sequences that a model sees.

An example asks for one form of one word: *draw*, past participle, gives *drawn*. The files are
those of the CoNLL-SIGMORPHON shared tasks, in UTF-8, with one example per line:
``lemma TAB form TAB tags;joined;by;semicolons``, or, as from 2023 on, lemma, tags and form.

Text keeps the code points of the file, including blanks at the ends and decomposed accents. Unicode
normalisation would make some predicted forms differ from those of the file, or agree with them
where the file does not; those who want it normalise the files.
"""

from __future__ import annotations

import os
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from pyentmax.seq2seq.data.errors import DataError
from pyentmax.seq2seq.data.text_files import numbered_lines

_PathLike = str | os.PathLike[str]
LANGUAGE_MARK = "lang="
"""Prefix of the token that names the language; see `source_tokens`."""

_COLUMNS = "lemma TAB form TAB tags;joined;by;semicolons"
_SPLIT_SUFFIX = re.compile(r"-(train-(low|medium|high)|train|dev|test)$")


class Example(NamedTuple):
    """One form of one word.

    Attributes
    ----------
    lemma : str
        The dictionary form.
    form : str
        The inflected form.
    tags : tuple of str
        What *form* expresses, such as ``("V", "PST")``, in the order of the file.
    language : str or None
        Its language, if examples of several languages are mixed.
    """

    lemma: str
    form: str
    tags: tuple[str, ...]
    language: str | None = None

    def title(self) -> str:
        """Lemma, tags and form, if there is one, in a line.

        Examples
        --------
        >>> Example("draw", "drawn", ("V", "V.PTCP", "PST")).title()
        'draw  V;V.PTCP;PST: drawn'
        """
        return f"{self.lemma}  {';'.join(self.tags)}" + (f": {self.form}" if self.form else "")

    def file_name(self) -> str:
        """The title as the beginning of a file's name, with a checksum if it has to be changed.

        Examples
        --------
        >>> Example("draw", "", ("V", "V.PTCP", "PST")).file_name()
        'draw-V.V.PTCP.PST'
        """
        title = "-".join(filter(None, [self.lemma, ".".join(self.tags), self.form]))
        # Vowel signs and accents of their own are marks, and as safe as letters.
        is_safe = (re.match(r"[\w.-]", c) or unicodedata.category(c)[0] == "M" for c in title)
        name = "".join(c if safe else "." for c, safe in zip(title, is_safe, strict=True))
        if name == title and len(name) <= 50:
            return name
        return f"{name[:41]}-{zlib.crc32(title.encode()):08x}"


def read_examples(
    paths: _PathLike | Sequence[_PathLike], *, languages: Sequence[str | None] | None = None
) -> list[Example]:
    """Read examples of inflection from one or several files, repeated lines included.

    Parameters
    ----------
    paths : path or sequence of paths
        Files with lines ``lemma TAB form TAB tags;joined;by;semicolons``, or with tags before the
        form (`tags_column`); blank lines are skipped.
    languages : sequence of str or None, optional
        The language of each file, in the order of *paths*; see `language_of`. By default the
        examples have no language.

    Raises
    ------
    DataError
        If a line is malformed or not UTF-8, or a tag looks like the mark of a language (naming file
        and line), if the tags stand first or a file has no example, or if *languages* and *paths*
        differ in length.
    OSError
        If a file cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "english-dev")
    ...     _ = path.write_text("draw\\tdrawn\\tV;V.PTCP;PST\\n")
    ...     read_examples(path, languages=[language_of(path)])
    [Example(lemma='draw', form='drawn', tags=('V', 'V.PTCP', 'PST'), language='english')]
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    marks = [None] * len(files) if languages is None else list(languages)
    if len(marks) != len(files):
        raise DataError(f"languages: expected one per file, {len(files)}, got {len(marks)}")
    examples: list[Example] = []
    for path, language in zip(files, marks, strict=True):
        rows = [(where, line.split("\t")) for where, line in numbered_lines(path) if line.strip()]
        for where, columns in rows:
            if len(columns) != 3:
                count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
                text = "\t".join(columns)
                raise DataError(f"{where}: expected {_COLUMNS}, got {count}: {text!r}")
        if not rows:
            raise DataError(f"{path}: no examples; expected lines {_COLUMNS}, got an empty file")
        place = tags_column([columns for _, columns in rows])
        if not place:
            text = "\t".join(rows[0][1])
            raise DataError(f"{rows[0][0]}: expected {_COLUMNS}, got the tags first: {text!r}")
        examples += [_example_from(columns, place, where, language) for where, columns in rows]
    return examples


def english_verbs() -> list[Example]:
    """English verbs: five forms of each of some 2,200, every common irregular verb among them.

    The table is our own: two word lists and the rules of spelling give it, by
    ``tools/make_english_verbs.py`` in the repository. American spelling, one form per cell. Sorted
    by lemma; for each the infinitive, third person singular, past, past participle and present
    participle, with UniMorph tags.

    Examples
    --------
    >>> [example.form for example in english_verbs() if example.lemma == "draw"]
    ['draw', 'draws', 'drew', 'drawn', 'drawing']
    """
    with resources.as_file(resources.files(__package__) / "english_verbs.tsv") as path:
        return read_examples(path)


def language_of(path: _PathLike) -> str:
    """The language of a file named as in the shared tasks, such as ``LANGUAGE-train-high``.

    The name ends in ``-train``, with or without ``-low``, ``-medium`` or ``-high``, in ``-dev`` or
    in ``-test``.

    Raises
    ------
    DataError
        If the name has a different form.

    Examples
    --------
    >>> language_of("surprise/north-frisian-train-low"), language_of("english-dev")
    ('north-frisian', 'english')
    """
    name = Path(path).name
    language = _SPLIT_SUFFIX.sub("", name)
    if language in ("", name):
        raise DataError(
            f"cannot tell the language of {str(path)!r} from its name: expected "
            "a name such as LANGUAGE-train-high or LANGUAGE-dev; rename the file"
        )
    return language


def source_tokens(example: Example) -> list[str]:
    """A model's input: the language if there is one, the tags, then the lemma's characters.

    This is the source sequence of Peters et al. (2019, §4.1). Language and tags are in angle
    brackets, so that no tag can be mistaken for a character.

    Examples
    --------
    >>> source_tokens(Example("go", "went", ("V", "PST"), language="english"))
    ['<lang=english>', '<V>', '<PST>', 'g', 'o']
    """
    language = [] if example.language is None else [f"<{LANGUAGE_MARK}{example.language}>"]
    return [*language, *(f"<{tag}>" for tag in example.tags), *example.lemma]


def tag_order(examples: Iterable[Example]) -> list[str]:
    """All tags of examples in one order, in which most bundles have them.

    A bundle is a set, written in an order that differs between files. A model that reads sequences
    needs one.

    Examples
    --------
    >>> bundles = [("V", "3", "SG", "PRS"), ("V", "PRS", "3", "PL"), ("V", "SG", "PRS")]
    >>> tag_order(Example("go", "", tags) for tags in bundles)
    ['V', '3', 'SG', 'PRS', 'PL']
    """
    before = Counter(pair for example in examples for pair in combinations(("", *example.tags), 2))
    places: Counter[str] = Counter(tag for (_, tag), n in before.items() for _ in range(n))
    later = {
        b: [a for a, other in before if other == b and before[a, b] > before[b, a]] for b in places
    }
    try:
        order = list(TopologicalSorter(later).static_order())
    except CycleError:  # then by the number of tags before it in a bundle, on average
        order = sorted(places, key=lambda tag: places[tag] / before["", tag])
    return [tag for tag in order if tag]


def compounds_of(base: str, lemmas: Iterable[str]) -> list[str]:
    """The lemmas that end in *base*, itself included: its compounds, as far as spelling shows.

    They are sorted, without repetitions.

    Raises
    ------
    DataError
        If *base* is empty: every word ends in nothing.

    Examples
    --------
    >>> compounds_of("draw", ["withdraw", "saw", "draw", "drawl", "draw"])
    ['draw', 'withdraw']
    """
    if not base:
        raise DataError("base must be a word, got an empty string")
    return sorted({lemma for lemma in lemmas if lemma.endswith(base)})


def hold_out(
    examples: Iterable[Example], lemmas: Iterable[str]
) -> tuple[list[Example], list[Example]]:
    """Split *examples* by lemma, so that no form of the *lemmas* held out stays in training.

    Returns the examples that are kept and those that are held out, both in their order.

    Examples
    --------
    >>> examples = [Example("draw", "drew", ("V", "PST")), Example("saw", "sawed", ("V", "PST"))]
    >>> kept, held = hold_out(examples, ["draw"])
    >>> [example.form for example in kept], [example.form for example in held]
    (['sawed'], ['drew'])
    """
    out = set(lemmas)
    kept: list[Example] = []
    held: list[Example] = []
    for example in examples:
        (held if example.lemma in out else kept).append(example)
    return kept, held


def split_tags(text: str) -> tuple[str, ...]:
    """The tags of a text such as ``V;PST``, without blanks around them.

    Examples
    --------
    >>> split_tags("V; PST")
    ('V', 'PST')
    """
    return tuple(tag.strip() for tag in text.split(";"))


def tags_column(rows: Sequence[Sequence[str]]) -> int:
    """The column that holds the tags of these lines: 2 (before 2023) or 1; 0 is a mistake.

    It is the one with a semicolon in more lines; of the last two, if they are equal, the one with
    fewer different values.

    Examples
    --------
    >>> tags_column([["draw", "V;PST", "drew"], ["go", "V;PST", "went"]])
    1
    """
    columns = list(zip(*rows, strict=True))
    joined = [sum(";" in text for text in column) for column in columns]
    if joined[0] > max(joined[1:]):
        return 0
    return max((2, 1), key=lambda i: (joined[i], -len(set(columns[i]))))


def _example_from(
    columns: Sequence[str], place: int, where: str, language: str | None = None
) -> Example:
    """The example of a line's three columns, the tags in the column ``place``."""
    form, text = columns[3 - place], "\t".join(columns)
    tags = split_tags(columns[place])
    if ";" in form and len(tags) == 1:
        raise DataError(
            f"{where}: expected tags in column {place + 1}, as in the other lines, got {text!r}"
        )
    for name, value in (("lemma", columns[0]), ("form", form), *(("tag", t) for t in tags)):
        if not value.strip():
            raise DataError(f"{where}: expected {_COLUMNS}, got an empty {name}: {text!r}")
    for tag in tags:
        if tag.startswith(LANGUAGE_MARK):
            raise DataError(
                f"{where}: tag {tag!r} looks like the mark of a language; rename it, or, if it "
                "names the language, mark the examples by the names of their files (--multilingual)"
            )
    return Example(columns[0], form, tags, language)
