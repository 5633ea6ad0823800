"""Measures of heads, on attention made by hand whose answers are known."""

import numpy as np
import pytest

import pyentmax as pe
from experiments.analysis import (
    attention_to,
    head_densities,
    head_diversity,
    merging_scores,
    positional_confidence,
)

RNG = np.random.default_rng(0)


def random_weights(*shape):
    return pe.entmax15(2 * RNG.normal(size=shape))


@pytest.mark.parametrize("offset", [-3, -1, 0, 2])
def test_positional_head_is_confident_at_its_offset_alone(offset):
    weights = np.eye(7, k=offset) + np.zeros((2, 3, 1, 1))
    for other in range(-3, 3):
        assert (positional_confidence(weights, other) == np.full((2, 3), other == offset)).all()


def test_diversity_is_what_its_definition_says():
    p = random_weights(2, 3, 4, 5)
    entropy = pe.shannon_entropy
    expected = (entropy(p.mean(axis=1)) - entropy(p).mean(axis=1)) / np.log(5)
    np.testing.assert_allclose(head_diversity(p), expected.mean(axis=-1), rtol=1e-6)


def test_causal_measures_count_the_past_alone():
    past, own = np.tri(4) / np.arange(1, 5)[:, None], np.eye(4)
    densities = head_densities([past, own], causal=True)
    np.testing.assert_allclose(densities, [1, np.mean([1, 1 / 2, 1 / 3, 1 / 4])], rtol=1e-12)
    np.testing.assert_allclose(head_densities([past, own]), [10 / 16, 1 / 4], rtol=1e-12)
    expected = [head_diversity([past[None, t, : t + 1], own[None, t, : t + 1]]) for t in (1, 2, 3)]
    assert head_diversity([past, own], causal=True) == pytest.approx(
        np.mean(expected), rel=1e-12, abs=0
    )


def test_question_head_is_found():
    weights = random_weights(4, 6, 6)
    question, word = np.arange(6) == 5, np.isin(np.arange(6), [0, 2])
    weights[3, word] = question
    mass = attention_to(weights, word, question)
    assert mass.argmax() == 3
    assert mass[3] == 1
    np.testing.assert_allclose(mass[:3], weights[:3][:, [0, 2], 5].mean(axis=1), rtol=1e-7)


def test_merging_scores_of_joining_and_other_heads():
    joins = np.array([[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 1]])
    weights = np.stack([joins, np.eye(4), np.full((4, 4), 0.25)])
    np.testing.assert_allclose(merging_scores(weights, [(0, 1, 2)]), [1, 0, 0.5], rtol=1e-7)
    np.testing.assert_allclose(merging_scores(weights, [(3,)]), [1, 1, 0.25], rtol=1e-7)
    both = merging_scores(weights, [(0, 1, 2), (3,)])
    np.testing.assert_allclose(both, [1, 0.5, 0.375], rtol=1e-7)
