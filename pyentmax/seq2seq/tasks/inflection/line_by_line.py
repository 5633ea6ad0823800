"""`inflect` on a file or a pipe: a prediction for each line."""

from __future__ import annotations

import unicodedata
from collections.abc import Set
from typing import Any

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.decoding import SearchResult
from pyentmax.seq2seq.tasks.inflection.examples import Example, split_tags
from pyentmax.seq2seq.tasks.inflection.inflector import Inflector
from pyentmax.seq2seq.tasks.lines import Line, Notes, Results, blocks_from, result


def record_from(inflector: Inflector, search: SearchResult, best: int | None) -> dict[str, Any]:
    """The results of a search for `Results`, all or the first n."""
    finished = [hypothesis for hypothesis in search.hypotheses if hypothesis.finished]
    forms = [result(inflector.form(h.tokens), h.log_prob) for h in finished[:best]]
    return {"results": forms, "complete": search.exact and len(forms) == len(finished)}


def inflect_lines(
    inflector: Inflector,
    name: str,
    language: str | None,
    results: Results,
    notes: Notes,
    **options: Any,
) -> None:
    """Inflect each line of a file or of "-", and write results and notes.

    Without a format, a line is written as it came, with the form that the model predicts; with
    ``n_best`` in the options, once for each of that many.
    """
    count, known = options.get("n_best") or 1, set(inflector.known_tags())
    if results.form is None:
        options["n_best"] = count
    right = references = 0
    with blocks_from(name) as blocks:
        for block in blocks:
            parsed: dict[int, tuple[list[str], int, Example]] = {}
            for i, line in enumerate(block):
                try:
                    if line.text.strip() or line.error:
                        parsed[i] = _parse(line, inflector, known, language)
                except DataError as error:
                    notes.wrong(str(error))
            searches = iter(
                inflector.predict([example for *_, example in parsed.values()], **options)
            )
            for i, line in enumerate(block):
                if i not in parsed:
                    results.write([""], {})
                    continue
                columns, place, example = parsed[i]
                _note_unseen(notes, inflector, line.where, example)
                notes.good += 1
                searched = next(searches)
                if example.form:
                    references += 1
                    right += inflector.form(searched.best.tokens) == example.form
                rows = []
                for hypothesis in searched.hypotheses[:count]:
                    row = [*columns, ""][:3]
                    row[3 - place] = inflector.form(hypothesis.tokens)
                    rows.append("\t".join(row))
                entry = {"lemma": columns[0], "tags": columns[place]}
                entry |= {"form": example.form} if example.form else {}
                results.write(rows, entry | record_from(inflector, searched, options.get("n_best")))
            results.flush()
    results.finish()
    if references:
        notes.say(f"{right} of {references} forms are right, {right / references:.1%}")
    notes.finish()


def _parse(
    line: Line, inflector: Inflector, known: Set[str], language: str | None
) -> tuple[list[str], int, Example]:
    """The columns of a line, that of the tags, and what is asked for."""
    if line.error:
        raise DataError(line.error)
    columns, place = line.text.split("\t"), 1
    if len(columns) != 2:
        if len(columns) != 3:
            expected = "lemma TAB tags, or three columns with the form"
            raise DataError(f"{line.where}: expected {expected}, got {line.text!r}")
        second, third = (set(split_tags(text)) for text in columns[1:])
        # Where both or neither are known tags, the one with more of them, or else the last.
        place = 1 if (known >= second, len(second)) > (known >= third, len(third)) else 2
    form = columns[3 - place] if len(columns) == 3 else ""
    example = Example(columns[0], form, split_tags(columns[place]), language)
    try:
        inflector.check(example.lemma, example.tags, language)
    except DataError as error:
        raise DataError(f"{line.where}: {error}") from error
    return columns, place, example


def _note_unseen(notes: Notes, inflector: Inflector, where: str, example: Example) -> None:
    """Say what of an example the model has not seen."""
    if note := inflector.note(example.tags):
        notes.once(f"{where}: {note}", note, "on bundles of tags")
    strange = [c for c in dict.fromkeys(example.lemma) if c not in inflector.source]
    if strange:
        composed = unicodedata.normalize("NFC", example.lemma)
        nfc = "; in Unicode's form NFC it would" * all(c in inflector.source for c in composed)
        letters = " ".join(map(repr, strange))
        notes.say(
            f"{where}: the model does not know {letters} of {example.lemma!r}{nfc}",
            "on unknown letters",
        )
