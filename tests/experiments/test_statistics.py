"""What experiments count: paired bootstraps, trajectories of α, and the pieces of words."""

import numpy as np
import pytest

from experiments.analysis import PerSentence
from experiments.bootstrap import bootstrap_difference
from experiments.correia2019.clusters import word_clusters
from experiments.correia2019.trajectories import trajectory_statistics

RNG = np.random.default_rng(0)


def test_bootstrap_pairs_sentences_weighted_by_queries():
    counts = RNG.integers(1, 9, size=200).astype(float)
    noise = RNG.normal(size=(200, 3))
    first, second = PerSentence(noise + [0.1, 0, -0.1], counts), PerSentence(noise, counts)
    measured = bootstrap_difference(first, second, samples=200)
    for value in measured:  # the noise is in both, and goes out
        np.testing.assert_allclose(value, [0.1, 0, -0.1], rtol=0, atol=1e-12)
    other = PerSentence(RNG.normal(size=(200, 3)), counts)
    measured = bootstrap_difference(first, other, samples=200)
    assert (measured.low < measured.difference).all()
    assert (measured.difference < measured.high).all()
    np.testing.assert_allclose(measured.difference, first.mean - other.mean, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="measures of the same sentences"):
        bootstrap_difference(first, PerSentence(noise, counts + 1))


def test_trajectory_statistics():
    updates = np.arange(0, 201, 20)
    falls = np.linspace(1.6, 1.2, 11)
    returns = np.concatenate([np.linspace(1.5, 1.3, 5), np.linspace(1.4, 1.9, 6)])
    measured = trajectory_statistics(updates, np.stack([falls, returns], axis=1)[:, None])
    assert measured == pytest.approx((1, 0.6, 0.35), rel=0, abs=1e-6)


def test_words_are_cut_where_a_piece_begins_one():
    pieces = ["▁ein", "▁apfel", "kuchen", "▁", "liegt"]
    assert word_clusters(pieces) == [(1, 2), (3, 4)]
    assert word_clusters(pieces, smallest=1) == [(0,), (1, 2), (3, 4)]
    assert word_clusters(["kuchen", "stück"]) == [(0, 1)]  # a word that the sentence cuts
    assert word_clusters([]) == []


def test_hyphens_join_the_words_beside_them():
    pieces = ["▁well", "▁@", "-", "@", "▁know", "n", "▁dog", "▁@-@"]
    assert word_clusters(pieces) == [(0, 1, 2, 3, 4, 5), (6, 7)]
    assert word_clusters(pieces, hyphens=()) == [(1, 2, 3), (4, 5)]
    assert word_clusters(["▁@-@", "▁dog", "▁cat"], smallest=1) == [(0, 1), (2,)]
