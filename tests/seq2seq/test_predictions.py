"""Measures of predictions with zeros, on distributions whose values are known."""

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.seq2seq.analysis import epsilon_perplexity, jensen_shannon, sparsemax_score

RNG = np.random.default_rng(0)
P = pe.entmax15(3 * RNG.normal(size=(5, 7, 11)))
LABELS = RNG.integers(11, size=(5, 7))
MEASURES = [epsilon_perplexity, sparsemax_score, jensen_shannon]


def entropy(p):
    return -np.sum(p * np.log(np.where(p > 0, p, 1)))


def test_epsilon_perplexity_mixes_with_the_uniform_distribution():
    epsilon = 0.01
    mixed = (P + epsilon) / (1 + epsilon * 11)
    np.testing.assert_allclose(mixed.sum(axis=-1), 1, rtol=1e-12)
    p_label = np.take_along_axis(mixed, LABELS[..., None], axis=-1)
    expected = np.exp(-np.log(p_label).mean())
    assert epsilon_perplexity(P, LABELS, epsilon) == pytest.approx(expected, rel=1e-12, abs=0)


def test_jensen_shannon_is_that_of_the_definition():
    divergences = []
    for p, y in zip(P.reshape(-1, 11), LABELS.ravel(), strict=True):
        one = np.eye(11)[y]
        mean = (p + one) / 2
        divergences.append(entropy(mean) - entropy(p) / 2)  # the entropy of `one` is 0
    assert jensen_shannon(P, LABELS) == pytest.approx(np.mean(divergences), rel=1e-12, abs=0)


def test_sparsemax_score_is_one_minus_sparsemax_loss():
    loss = pe.sparsemax.loss(P, LABELS)
    assert sparsemax_score(P, LABELS) == pytest.approx(1 - loss, rel=1e-12, abs=0)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (LABELS[0], r"expected the shape \(5, 7\)"),
        (LABELS - 11, "expected numbers from 0 to 10, got -"),
        (LABELS + 11, "expected numbers from 0 to 10, got 1"),
    ],
)
def test_labels_that_do_not_fit(measure, labels, words):
    with pytest.raises(ValueError, match=words):
        measure(P, labels)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_epsilon_is_above_zero(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        epsilon_perplexity(P, LABELS, epsilon)
