"""Pieces of one text: what an epoch holds, and what is asked of the text."""

import numpy as np
import pytest

from pyentmax.seq2seq.data import DataError, Segments, cut

TEXT = np.random.default_rng(0).integers(4, 30, 101)


@pytest.mark.parametrize(("context", "batch_size"), [(7, 3), (5, 2), (10, 1)])
def test_an_epoch_predicts_each_token_once(context, batch_size):
    places = np.arange(len(TEXT))
    batches = Segments(places, context, batch_size)
    for seed in range(5):
        epoch = list(batches.epoch(np.random.default_rng(seed)))
        predicted = np.concatenate([batch.tokens_out.ravel() for batch in epoch])
        assert len(set(predicted)) == len(predicted)
        # Left out: what stands before the first piece, and less than a batch and a piece.
        assert len(predicted) > len(TEXT) - context * (batch_size + 2)
        for batch in epoch:
            np.testing.assert_array_equal(batch.tokens_out, batch.tokens_in + 1)
            np.testing.assert_array_equal(np.diff(batch.tokens_in, axis=1), 1)
            assert batches.count(batch) == batch_size * context
    first, again, other = (
        [batch.tokens_in.tolist() for batch in batches.epoch(np.random.default_rng(seed))]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_shortest_text_has_a_batch_at_any_offset():
    shortest = 7 * (3 + 1)
    batches = Segments(TEXT[:shortest], 7, 3)
    assert all(len(list(batches.epoch(np.random.default_rng(seed)))) == 1 for seed in range(30))
    with pytest.raises(DataError, match=f"tokens: expected at least {shortest}"):
        Segments(TEXT[: shortest - 1], 7, 3)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((0, 1), "context"), ((1, 0), "batch_size")],
)
def test_bad_sizes(sizes, words):
    with pytest.raises(DataError, match=f"{words}: expected at least"):
        Segments(TEXT, *sizes)


def test_cut():
    piece = cut(TEXT, np.array([10, 50]), context=6)
    np.testing.assert_array_equal(piece.tokens_in[1], TEXT[50:56])
    np.testing.assert_array_equal(piece.tokens_out[0], TEXT[11:17])
