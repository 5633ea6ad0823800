"""The bundled verbs: the rules, the lists, and the table made from them."""

from __future__ import annotations

from collections import Counter

import pytest
from english_spelling import present_participle, regular_past, third_person
from make_english_verbs import (
    TABLE,
    TAGS,
    english_verbs_table,
    irregular_forms,
    make_examples,
    regular_forms,
)

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.inflection import english_verbs


@pytest.fixture(scope="module")
def forms():
    return {(example.lemma, ";".join(example.tags)): example.form for example in english_verbs()}


@pytest.mark.parametrize(
    ("lemma", "stressed", "third", "past", "ing"),
    [
        ("miss", False, "misses", "missed", "missing"),
        ("quiz", False, "quizzes", "quizzed", "quizzing"),
        ("cry", False, "cries", "cried", "crying"),
        ("echo", False, "echoes", "echoed", "echoing"),
        ("queue", False, "queues", "queued", "queuing"),
        ("eye", False, "eyes", "eyed", "eyeing"),
        ("die", False, "dies", "died", "dying"),
        ("mimic", False, "mimics", "mimicked", "mimicking"),
        ("stop", False, "stops", "stopped", "stopping"),
        ("fix", False, "fixes", "fixed", "fixing"),
        ("equip", True, "equips", "equipped", "equipping"),
        ("visit", False, "visits", "visited", "visiting"),
    ],
)
def test_regular_spelling(lemma, stressed, third, past, ing):
    assert third_person(lemma, stressed=stressed) == third
    assert regular_past(lemma, stressed=stressed) == past
    assert present_participle(lemma, stressed=stressed) == ing


def test_table_is_what_the_generator_makes():
    table = TABLE.read_text(encoding="utf-8")
    assert table == english_verbs_table(), (
        "english_verbs.tsv is stale; run python tools/make_english_verbs.py"
    )


def test_every_verb_has_five_forms():
    examples = english_verbs()
    per_lemma = Counter(example.lemma for example in examples)
    assert len(per_lemma) >= 1800
    assert set(per_lemma.values()) == {5}
    assert {";".join(example.tags) for example in examples} == set(TAGS)
    assert len({(example.lemma, example.tags) for example in examples}) == len(examples)
    assert all(text.isascii() and text.islower() for e in examples for text in (e.lemma, e.form))


@pytest.mark.parametrize(
    ("lemma", "expected"),
    [
        ("be", "be is was been being"),
        ("have", "have has had had having"),
        ("begin", "begin begins began begun beginning"),
        ("lie", "lie lies lay lain lying"),
        ("withdraw", "withdraw withdraws withdrew withdrawn withdrawing"),
        ("saw", "saw saws sawed sawn sawing"),
        ("singe", "singe singes singed singed singeing"),
        ("worship", "worship worships worshipped worshipped worshipping"),
    ],
)
def test_forms_of_single_verbs(forms, lemma, expected):
    assert [forms[lemma, tags] for tags in TAGS] == expected.split()


def test_verb_listed_twice_is_an_error():
    with pytest.raises(DataError, match="verb 'draw' is listed twice; delete one"):
        make_examples(["claw draw"], ["draw drew drawn"])
    with pytest.raises(DataError, match="verb 'redraw' is listed twice"):
        make_examples(["redraw"], ["draw drew drawn + re"])


@pytest.mark.parametrize("line", ["draw drew", "a b c d e", "draw drew drawn +"])
def test_malformed_irregular_line_is_an_error(line):
    with pytest.raises(DataError, match="expected 'lemma past participle .* got '"):
        irregular_forms(line)


def test_marks_are_removed_from_forms():
    assert regular_forms("zigzag*") == ("zigzag", "zigzags", "zigzagged", "zigzagged", "zigzagging")
    assert irregular_forms("begin* began begun")[0][4] == "beginning"
