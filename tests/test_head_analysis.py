"""Measures of heads, on attention made by hand whose answers are known."""

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.analysis import (
    attention_to,
    head_densities,
    head_diversity,
    merging_scores,
    positional_confidence,
    word_clusters,
)
from pyentmax.models.transformer import KINDS, Transformer, TransformerConfig

RNG = np.random.default_rng(0)


def random_weights(*shape):
    return pe.entmax15(2 * RNG.normal(size=shape))


@pytest.mark.parametrize("offset", [-3, -2, -1, 0, 1, 2])
def test_a_perfect_positional_head_has_confidence_1_at_its_offset_and_0_elsewhere(offset):
    weights = np.eye(7, k=offset)[None, None]
    for other in range(-3, 3):
        assert positional_confidence(weights, other) == [other == offset]


def test_heads_that_look_alike_have_no_diversity():
    one = random_weights(3, 1, 5, 6)
    assert head_diversity(np.repeat(one, 4, axis=1)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("heads", [2, 3, 5])
def test_disjoint_heads_have_the_largest_diversity(heads):
    apart = np.broadcast_to(np.eye(heads)[:, None], (2, heads, 4, heads))
    assert head_diversity(apart) == pytest.approx(1, rel=1e-6, abs=1e-12)
    wider = np.zeros((2, heads, 4, heads**2))
    wider[..., :heads] = apart
    assert head_diversity(wider) == pytest.approx(0.5, rel=1e-6, abs=1e-12)  # log H to the base H²
    for _ in range(20):
        assert 0 <= head_diversity(random_weights(2, heads, 4, heads)) <= 1


def test_diversity_is_what_its_definition_says():
    p = random_weights(2, 3, 4, 5)
    entropy = pe.entropies.shannon_entropy
    expected = (entropy(p.mean(axis=1)) - entropy(p).mean(axis=1)) / np.log(5)
    assert head_diversity(p) == pytest.approx(expected.mean(), rel=1e-6, abs=1e-12)


def test_densities_of_full_and_one_hot_heads():
    weights = np.stack([np.full((2, 4, 5), 0.2), np.eye(4, 5) + np.zeros((2, 1, 1))], axis=1)
    np.testing.assert_allclose(head_densities(weights), [1, 0.2], rtol=1e-7)


def test_causal_densities_count_the_past_alone():
    past = np.tri(4) / np.arange(1, 5)[:, None]
    own = np.eye(4)
    weights = np.stack([past, own])[None]
    expected = np.mean([1, 1 / 2, 1 / 3, 1 / 4])
    np.testing.assert_allclose(head_densities(weights, causal=True), [1, expected], rtol=1e-7)


def test_padding_counts_nowhere():
    short, long = random_weights(1, 3, 4, 4), random_weights(1, 3, 6, 6)
    padded = np.zeros((2, 3, 6, 6))
    padded[0, :, :4, :4], padded[1] = short[0], long[0]
    padded[0, :, 4:, 0] = 1  # what padding attends to is arbitrary
    tokens = np.arange(6) < np.array([[4], [6]])
    for measure in (
        lambda p, **masks: head_densities(p, **masks),
        lambda p, **masks: head_diversity(p, **masks),
        lambda p, **masks: head_densities(p, causal=True, **masks),
        lambda p, queries, keys: positional_confidence(p, 1, queries=queries),
        lambda p, queries, keys: positional_confidence(p, -2, queries=queries),
    ):
        both = measure(padded, queries=tokens, keys=tokens)
        alone, sizes = [], []
        for p, n in ((short, 4), (long, 6)):
            full = np.ones((1, n), dtype=bool)
            alone.append(measure(p, queries=full, keys=full))
            sizes.append(n)
        low, high = np.minimum(*alone), np.maximum(*alone)
        assert np.all((both >= low - 1e-12) & (both <= high + 1e-12))
    np.testing.assert_allclose(
        head_densities(padded, queries=tokens, keys=tokens),
        (4 * head_densities(short) + 6 * head_densities(long)) / 10,
        rtol=1e-7,
    )
    np.testing.assert_allclose(
        positional_confidence(padded, 1, queries=tokens),
        (3 * positional_confidence(short, 1) + 5 * positional_confidence(long, 1)) / 8,
        rtol=1e-7,
    )


def test_the_question_head_is_found():
    length = 6
    weights = random_weights(2, 4, length, length)
    question, word = np.zeros((2, length), bool), np.zeros((2, length), bool)
    question[0, 5] = word[0, 0] = word[0, 2] = True
    weights[0, 3, [0, 2]] = np.eye(length)[5]
    found = attention_to(weights, word, question)
    assert found.argmax() == 3
    assert found[3] == 1
    np.testing.assert_allclose(found[:3], weights[0, :3][:, [0, 2], 5].mean(axis=1), rtol=1e-7)


def test_merging_scores_of_heads_that_join_and_heads_that_do_not():
    joins = np.array([[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 1]])
    weights = np.stack([joins, np.eye(4), np.full((4, 4), 0.25)])[None]
    np.testing.assert_allclose(merging_scores(weights, [[(0, 1, 2)]]), [1, 0, 0.5], rtol=1e-7)
    np.testing.assert_allclose(merging_scores(weights, [[(3,)]]), [1, 1, 0.25], rtol=1e-7)
    np.testing.assert_allclose(
        merging_scores(weights, [[(0, 1, 2), (3,)]]), [1, 0.5, 0.375], rtol=1e-7
    )


def test_words_are_cut_where_a_piece_begins_one():
    pieces = ["▁ein", "▁apfel", "kuchen", "▁", "liegt"]
    assert word_clusters(pieces) == [(1, 2), (3, 4)]
    assert word_clusters(pieces, smallest=1) == [(0,), (1, 2), (3, 4)]
    assert word_clusters(["kuchen", "stück"]) == [(0, 1)]  # a word that the sentence cuts
    assert word_clusters([]) == []


@pytest.mark.parametrize("attention", ["1", "1.5", "topk_softmax:2"])
def test_the_weights_of_a_model_are_measured_as_it_gives_them(attention):
    shape = {"width": 16, "layers": 2, "heads": 4, "inner": 16, "attention": attention}
    config = TransformerConfig(12, 12, **shape)
    model = Transformer.initialize(config, RNG, bos=1, eos=2)
    source = RNG.integers(3, 12, size=(3, 7))
    tokens = np.arange(7) < np.array([[7], [4], [5]])
    target = RNG.integers(3, 12, size=(3, 5))
    found = model.attention_weights(np.where(tokens, source, 0), tokens, target)
    masks = {
        "encoder": {"queries": tokens, "keys": tokens},
        "context": {"keys": tokens},
        "decoder": {"causal": True},
    }
    for kind in KINDS:
        densities = np.array([head_densities(p, **masks[kind]) for p in found[kind]])
        assert densities.shape == (2, 4)
        assert densities.all()
        assert (densities.mean() == 1) == (attention == "1")
        assert all(0 < head_diversity(p, **masks[kind]) < 1 for p in found[kind])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: head_densities(p[0]), "weights: expected shape"),
        (lambda p: head_densities(p, queries=[True] * 4), "queries: expected a bool array"),
        (lambda p: head_densities(p, keys=np.ones((2, 5))), "keys: expected a bool array"),
        (lambda p: head_densities(p, keys=np.zeros((2, 5), bool)), "has an allowed key"),
        (lambda p: head_diversity(p, keys=np.eye(2, 5, dtype=bool)), "has two allowed keys"),
        (lambda p: positional_confidence(p, 0), "as many queries as keys"),
        (lambda p: positional_confidence(p[..., :4], 4), r"a token at offset \+4"),
        (lambda p: merging_scores(p, [[], []]), "as many queries as keys"),
        (lambda p: merging_scores(p[..., :4], [[]]), "a list for each of 2 sentences"),
        (lambda p: merging_scores(p[..., :4], [[], []]), "expected one at least"),
        (lambda p: merging_scores(p[..., :4], [[(0, 4)], []]), "positions from 0 to 3"),
        (lambda p: merging_scores(p[..., :4], [[()], []]), "positions from 0 to 3"),
        (
            lambda p: attention_to(p, np.zeros((2, 4), bool), np.ones((2, 5), bool)),
            "has been chosen",
        ),
    ],
)
def test_what_does_not_fit_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call(random_weights(2, 3, 4, 5))
