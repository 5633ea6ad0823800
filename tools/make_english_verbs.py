"""Make the bundled table of English verbs: ``python tools/make_english_verbs.py``.

Two word lists, written for this library from general knowledge of English, and the spelling rules
of `english_spelling` give ``english_verbs.tsv``. Edit a list, run this, and commit both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from english_spelling import present_participle, regular_past, third_person

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.inflection import Example, examples

TABLE = Path(examples.__file__).with_name("english_verbs.tsv")
TAGS = ("V;NFIN", "V;3;SG;PRS", "V;PST", "V;V.PTCP;PST", "V;V.PTCP;PRS")


def regular_forms(entry: str) -> tuple[str, ...]:
    """The five forms of a regular verb, in the order of `TAGS`.

    Parameters
    ----------
    entry : str
        The lemma; ``*`` after it doubles the last consonant of a verb of several syllables, ``+``
        keeps a silent e before -ing.

    Examples
    --------
    >>> regular_forms("regret*")
    ('regret', 'regrets', 'regretted', 'regretted', 'regretting')
    >>> regular_forms("singe+")
    ('singe', 'singes', 'singed', 'singed', 'singeing')
    """
    lemma, stressed, soft = entry.rstrip("*+"), "*" in entry, "+" in entry
    past = regular_past(lemma, stressed=stressed)
    ing = present_participle(lemma, stressed=stressed, soft=soft)
    return lemma, third_person(lemma, stressed=stressed), past, past, ing


def irregular_forms(line: str) -> list[tuple[str, ...]]:
    """The forms of an irregular verb and of its compounds, in the order of `TAGS`.

    Parameters
    ----------
    line : str
        ``lemma past participle [third person] [+ prefix prefix ...]``.

    Returns
    -------
    list of tuple of str
        The verb first, then one for each prefix.

    Raises
    ------
    DataError
        If there are not three or four forms, or no prefix after the ``+``.

    Examples
    --------
    >>> irregular_forms("do did done + un")
    [('do', 'does', 'did', 'done', 'doing'), ('undo', 'undoes', 'undid', 'undone', 'undoing')]
    >>> irregular_forms("have had had has")
    [('have', 'has', 'had', 'had', 'having')]
    """
    forms, plus, prefixes = line.partition("+")
    words = forms.split()
    if len(words) not in (3, 4) or (plus and not prefixes.split()):
        raise DataError(
            "expected 'lemma past participle [third person] [+ prefix prefix ...]', "
            f"got {line.strip()!r}"
        )
    lemma, stressed = words[0].rstrip("*"), words[0].endswith("*")
    third = words[3] if len(words) == 4 else third_person(lemma, stressed=stressed)
    base = (lemma, third, *words[1:3], present_participle(lemma, stressed=stressed))
    return [base, *(tuple(prefix + form for form in base) for prefix in prefixes.split())]


def make_examples(regular: Iterable[str], irregular: Iterable[str]) -> list[Example]:
    """All forms of the verbs in the two lists, sorted by lemma.

    Parameters
    ----------
    regular, irregular : iterables of str
        Lines of the word lists; what follows a ``#`` is a comment.

    Raises
    ------
    DataError
        If a verb is listed twice, or a line of *irregular* is malformed.

    Examples
    --------
    >>> [example.form for example in make_examples(["bake  # and so on"], [])]
    ['bake', 'bakes', 'baked', 'baked', 'baking']
    """
    verbs: dict[str, tuple[str, ...]] = {}
    for forms in (*_all_regular(regular), *_all_irregular(irregular)):
        if forms[0] in verbs:
            raise DataError(f"verb {forms[0]!r} is listed twice; delete one of the two")
        verbs[forms[0]] = forms
    return [
        Example(lemma, form, tuple(tags.split(";")))
        for lemma, forms in sorted(verbs.items())
        for form, tags in zip(forms, TAGS, strict=True)
    ]


def english_verbs_table() -> str:
    """The text of ``english_verbs.tsv`` as the word lists give it now.

    Returns
    -------
    str
        Lines ``lemma TAB form TAB tags``.

    Examples
    --------
    >>> english_verbs_table().splitlines()[:2]
    ['abandon\\tabandon\\tV;NFIN', 'abandon\\tabandons\\tV;3;SG;PRS']
    """
    lists = [
        Path(__file__).with_name(f"english_verbs_{kind}.txt").read_text("utf-8").splitlines()
        for kind in ("regular", "irregular")
    ]
    return "".join(
        f"{example.lemma}\t{example.form}\t{';'.join(example.tags)}\n"
        for example in make_examples(*lists)
    )


def _all_regular(lines: Iterable[str]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        yield from map(regular_forms, line.partition("#")[0].split())


def _all_irregular(lines: Iterable[str]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        entry = line.partition("#")[0]
        if entry.strip():
            yield from irregular_forms(entry)


def main() -> None:
    """Rewrite ``english_verbs.tsv`` where the package has it."""
    TABLE.write_text(english_verbs_table(), encoding="utf-8", newline="\n")
    print(f"wrote {TABLE}")


if __name__ == "__main__":
    main()
