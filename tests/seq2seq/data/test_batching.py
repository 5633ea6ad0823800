"""Batches: each pair exactly once, padding where the masks say, alike in length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyentmax.seq2seq.data import (
    BOS,
    EOS,
    PAD,
    BucketedPairs,
    DataError,
    TokenBatches,
    bucketed_batches,
    make_batch,
)

# Ids from PAD on: padding must be told by the masks, not by the ids.
ids = st.integers(PAD, 9)
pair_lists = st.lists(
    st.tuples(st.lists(ids, min_size=1, max_size=6), st.lists(ids, max_size=6)), max_size=20
)
seeds = st.none() | st.integers(0, 2**32)


def as_pairs(lists):
    return [(np.array(s, dtype=np.int64), np.array(t, dtype=np.int64)) for s, t in lists]


def batches_of(pairs, batch_size, seed):
    rng = None if seed is None else np.random.default_rng(seed)
    return bucketed_batches(pairs, batch_size, rng)


@given(pair_lists, st.integers(1, 7), seeds)
def test_each_pair_is_in_exactly_one_batch(lists, batch_size, seed):
    batches = batches_of(as_pairs(lists), batch_size, seed)
    places = [int(place) for batch in batches for place in batch]
    assert sorted(places) == list(range(len(lists)))
    assert all(1 <= len(batch) <= batch_size for batch in batches)
    assert len(batches) == -(-len(lists) // batch_size)


@given(pair_lists, st.integers(1, 7), seeds)
def test_masked_batches_hold_the_pairs(lists, batch_size, seed):
    pairs = as_pairs(lists)
    for index in batches_of(pairs, batch_size, seed):
        batch = make_batch(pairs, index)
        assert len(batch) == len(index)
        assert np.array_equal(batch.index, index)
        assert batch.source.shape == batch.source_mask.shape
        assert batch.target_in.shape == batch.target_out.shape == batch.target_mask.shape
        assert batch.source.shape[1] == max(len(lists[i][0]) for i in index)
        assert batch.target_in.shape[1] == max(len(lists[i][1]) for i in index) + 1
        for row, i in enumerate(index):
            source, target = lists[i]
            mask = batch.target_mask[row]
            assert batch.source[row, batch.source_mask[row]].tolist() == source
            assert batch.target_in[row, mask].tolist() == [BOS, *target]
            assert batch.target_out[row, mask].tolist() == [*target, EOS]
            # Tokens first, padding after them.
            assert np.all(np.diff(batch.source_mask[row].astype(int)) <= 0)
            assert np.all(np.diff(mask.astype(int)) <= 0)
        for array, mask in (
            (batch.source, batch.source_mask),
            (batch.target_in, batch.target_mask),
            (batch.target_out, batch.target_mask),
        ):
            assert array.dtype == np.int64
            assert mask.dtype == np.bool_
            assert np.all(array[~mask] == PAD)


@given(pair_lists, st.integers(1, 7), seeds)
def test_batches_hold_runs_of_the_lengths_in_order(lists, batch_size, seed):
    lengths = sorted((len(source), len(target)) for source, target in lists)
    runs = [lengths[i : i + batch_size] for i in range(0, len(lengths), batch_size)]
    batches = batches_of(as_pairs(lists), batch_size, seed)
    found = [sorted((len(lists[i][0]), len(lists[i][1])) for i in batch) for batch in batches]
    assert (found if seed is None else sorted(found)) == (runs if seed is None else sorted(runs))


PAIRS = as_pairs([([5] * n, [6] * m) for n in range(1, 6) for m in range(8)] * 3)


@pytest.mark.parametrize("batches", [BucketedPairs(PAIRS, 4), TokenBatches(PAIRS, 20)])
def test_epochs_depend_on_the_generator_alone(batches):
    first, again, other = (
        [batch.index.tolist() for batch in batches.epoch(np.random.default_rng(seed))]
        for seed in (1, 1, 2)
    )
    assert first == again
    # Which pairs share a batch changes, not only the order of the batches, and that is random too.
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in other}
    lengths = [[len(PAIRS[i][0]) for i in batch] for batch in first]
    assert sorted(lengths) != lengths
    assert sorted(sum(first, [])) == list(range(len(PAIRS)))


def test_errors_of_batches():
    pairs = as_pairs([([5], [6]), ([], [6])])
    for batches in (bucketed_batches, BucketedPairs):
        with pytest.raises(DataError, match="batch_size must be at least 1, got 0"):
            batches(pairs, 0)
    with pytest.raises(DataError, match="pair 1 has an empty source"):
        make_batch(pairs, [0, 1])
    with pytest.raises(DataError, match=r"index must be a list of positions, .* shape \(0,\)"):
        make_batch(pairs, [])
    with pytest.raises(DataError, match=r"array of shape \(\)"):
        make_batch(pairs, 0)


def test_token_batches_are_full_of_tokens():
    lengths = np.random.default_rng(0).integers(1, 20, size=(300, 2))
    pairs = as_pairs([([4] * n, [4] * m) for n, m in lengths])
    source = TokenBatches(pairs, 100)
    batches = list(source.epoch(np.random.default_rng(1)))
    assert sorted(i for batch in batches for i in batch.index) == list(range(len(pairs)))
    sizes = [len(b) * max(b.source.shape[1], b.target_in.shape[1]) for b in batches]
    assert max(sizes) <= 100
    assert np.mean(sizes) > 85
    assert np.mean([b.target_mask.mean() for b in batches]) > 0.9
    assert sum(map(source.count, batches)) == lengths[:, 1].sum() + len(pairs)


def test_pairs_that_do_not_fit_are_named():
    pairs = [(np.array([5]), np.array([7])), (np.array([5]), np.array([7] * 9))]
    with pytest.raises(DataError, match="longest pair, 10 tokens of pair 1, got 9"):
        TokenBatches(pairs, 9)
    assert len(list(TokenBatches(pairs, 10).epoch(np.random.default_rng(0)))) == 2
    with pytest.raises(DataError, match="at least one example, got none"):
        TokenBatches([], 9)
