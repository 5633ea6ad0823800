"""The toy corpus: the table is what the grammar makes, and it has what it was made for."""

from collections import Counter

import pytest
from make_toy_german import (
    PAIRS,
    TABLE,
    corpus,
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
