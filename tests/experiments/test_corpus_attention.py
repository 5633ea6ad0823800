"""The heads of a whole corpus: sentence by sentence the same as each alone, on known attention."""

import numpy as np
import pytest

from experiments.analysis import SentenceAttention, corpus_attention, head_densities, measure_heads
from pyentmax import entmax15
from pyentmax.seq2seq.data import make_batch
from pyentmax.seq2seq.models.transformer import KINDS, Transformer, TransformerConfig

RNG = np.random.default_rng(0)


TWO_LENGTHS = [entmax15(2 * RNG.normal(size=(2, 3, n, n))) for n in (3, 5)]


def random_pairs(count, longest=7):
    lengths = RNG.integers(1, longest + 1, size=(count, 2))
    return [tuple(RNG.integers(4, 12, size=n) for n in pair) for pair in lengths]


def model_of(attention, **config):
    shape = {"width": 16, "layers": 2, "heads": 4, "inner": 16, "attention": attention, **config}
    return Transformer.initialize(TransformerConfig(12, 12, **shape), RNG, bos=1, eos=2)


def everywhere(p):
    """A sentence with the same self-attention (layers, heads, T, T) in all places."""
    return SentenceAttention(0, dict.fromkeys(KINDS, np.asarray(p, dtype=float)))


@pytest.mark.parametrize("attention", ["1", "1.5", "learned", "topk_softmax:2"])
def test_a_corpus_gives_each_sentence_its_own_attention(attention):
    model, pairs = model_of(attention), random_pairs(9)
    measured = {s.place: s.weights for s in corpus_attention(model, pairs, batch_size=4)}
    assert sorted(measured) == list(range(9))
    for i, (source, target) in enumerate(pairs):
        batch = make_batch(pairs, [i])
        alone = model.attention_weights(batch.source, batch.source_mask, batch.target_in)
        queries = {"encoder": len(source), "context": len(target) + 1, "decoder": len(target) + 1}
        keys = {"encoder": len(source), "context": len(source), "decoder": len(target) + 1}
        for kind in KINDS:
            assert measured[i][kind].shape == (2, 4, queries[kind], keys[kind])
            expected = np.stack(alone[kind])[:, 0]
            np.testing.assert_allclose(measured[i][kind], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(measured[i][kind].sum(axis=-1), 1, rtol=1e-5)


def test_heads_of_known_attention_are_measured():
    length = 5
    back = np.eye(length, k=-1)
    back[0, 0] = 1
    own, even = np.eye(length), np.tri(length) / np.arange(1, length + 1)[:, None]
    looks = np.zeros((length, length))
    looks[:, -1] = 1
    sentence = everywhere([[back, own], [looks, even], [own, own]])
    marks = np.arange(length) == length - 1
    measured = measure_heads([sentence], clusters=[[(1, 2)]], marked=[(~marks, marks)])
    previous = measured.positional["encoder", -1].mean
    assert previous[0, 0] == previous.max() == 1
    assert measured.positional["encoder", 0].mean[0, 1] == 1
    assert ("decoder", 1) not in measured.positional
    assert measured.marked.mean[1, 0] == measured.last_source.mean[1, 0] == 1
    assert measured.merging.mean[0, 0] == 1
    density = measured.density["decoder"].mean
    assert density[1, 1] == pytest.approx(1, rel=1e-12, abs=0)
    assert density[0, 1] == pytest.approx(np.mean(1 / np.arange(1, 6)), rel=1e-12, abs=0)
    assert measured.diversity["encoder"].mean[2] == 0
    assert (measured.diversity["encoder"].mean[:2] > 0.1).all()


def test_means_go_over_queries_and_not_over_sentences():
    sentences = [SentenceAttention(i, dict.fromkeys(KINDS, w)) for i, w in enumerate(TWO_LENGTHS)]
    measured = measure_heads(sentences)
    short, long = (head_densities(w) for w in TWO_LENGTHS)
    expected = (3 * short + 5 * long) / 8
    np.testing.assert_allclose(measured.density["encoder"].mean, expected, rtol=1e-12)


def test_a_single_token_counts_where_it_can():
    measured = measure_heads([everywhere(np.ones((1, 2, 1, 1)))])
    assert np.isnan(measured.diversity["encoder"].mean).all()
    assert np.isnan(measured.positional["encoder", -1].mean).all()
    assert np.isnan(measured.merging.mean).all()
    assert (measured.positional["encoder", 0].mean == 1).all()


def test_no_sentence_is_an_error():
    with pytest.raises(ValueError, match="sentences: expected at least one"):
        measure_heads([])
