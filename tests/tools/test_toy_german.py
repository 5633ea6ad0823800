"""The toy corpus: the table is what the grammar makes, and it has what it was made for."""

from collections import Counter

import pytest
from make_toy_german import (
    PAIRS,
    PEOPLE,
    TABLE,
    THINGS,
    corpus,
    noun_phrase,
    toy_german_table,
)

from experiments.tasks.translation import toy_german

PAIRS_READ = toy_german()


def test_table_is_what_the_grammar_makes():
    assert TABLE.read_text(encoding="utf-8") == toy_german_table()
    assert len(PAIRS_READ) == PAIRS
    assert len({pair.source for pair in PAIRS_READ}) == PAIRS
    assert list(corpus(50)) == [tuple(pair) for pair in PAIRS_READ[:50]]
    assert list(corpus(50, seed=1)) != list(corpus(50))


@pytest.mark.parametrize(
    ("noun", "case", "plural", "definite", "adjective", "german", "english"),
    [
        (PEOPLE[0], "nominative", False, True, "alt", "der alte mann", "the old man"),
        (PEOPLE[0], "accusative", False, True, None, "den mann", "the man"),
        (PEOPLE[0], "nominative", False, False, "alt", "ein alter mann", "an old man"),
        (PEOPLE[1], "accusative", False, False, "rot", "eine rote frau", "a red woman"),
        (PEOPLE[2], "nominative", False, False, "neu", "ein neues kind", "a new child"),
        (PEOPLE[2], "accusative", True, True, "neu", "die neuen kinder", "the new children"),
        (PEOPLE[2], "nominative", True, False, "neu", "neue kinder", "new children"),
        (PEOPLE[1], "nominative", True, False, None, "frauen", "women"),
        (THINGS[2], "accusative", False, False, None, "einen apfel", "an apple"),
        (THINGS[6], "accusative", False, False, "ehrlich", "ein ehrliches ei", "an honest egg"),
    ],
)
def test_phrases_agree(noun, case, plural, definite, adjective, german, english):
    options = {"plural": plural, "definite": definite, "adjective": adjective}
    assert noun_phrase(noun, case, **options) == (german, english)


def test_place_disambiguates_bank():
    found = Counter()
    for source, target in PAIRS_READ:
        words = source.split()
        place = words[words.index("in") + 2] if "in" in words else ""
        place = words[words.index("im") + 1] if "im" in words else place
        if "bank" in words:
            found[place, "bank" in target.split()] += 1
        assert ("banken" in words) == ("banks" in target.split())
        assert ("bänke" in words) == ("benches" in target.split())
    assert not found["stadt", False]
    assert not found["park", True]
    assert not found["garten", True]
    unclear = found["", True] / (found["", True] + found["", False])
    # 0.6, to three standard errors of about 250 draws.
    assert unclear == pytest.approx(0.6, rel=0, abs=0.1)
