"""The bundled verbs: the rules, the lists, and the table made from them."""

from __future__ import annotations

from collections import Counter

import pytest
from make_english_verbs import (
    TABLE,
    TAGS,
    english_verbs_table,
)

from pyentmax.seq2seq.inflection import english_verbs


@pytest.fixture(scope="module")
def forms():
    return {(example.lemma, ";".join(example.tags)): example.form for example in english_verbs()}


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
