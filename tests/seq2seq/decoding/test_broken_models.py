"""Wrong arguments and broken models: every decoder says so, in the same words."""

from __future__ import annotations

import numpy as np
import pytest

from pyentmax.seq2seq.decoding import (
    ancestral_sampling,
    beam_search,
    exact_search,
    forced_decoding,
    greedy_search,
)
from pyentmax.seq2seq.models.ensemble import Ensemble
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig

SOURCE = np.array([[1, 2, 3], [3, 2, 0]])
MASK = SOURCE > 0
DECODERS = {
    "beam": beam_search,
    "exact": exact_search,
    "greedy": greedy_search,
    "forced": lambda *arguments: forced_decoding(*arguments, [[3], [4, 3]]),
    "sampling": lambda *arguments: ancestral_sampling(*arguments, np.random.default_rng(0)),
}


def recurrent(output="1.5", **options):
    config = RNNSeq2SeqConfig(4, 5, hidden=4, output=output, **options)
    return RNNSeq2Seq.initialize(config, np.random.default_rng(0), bos=1, eos=2)


def transformer(output="1.5", **options):
    config = TransformerConfig(4, 5, width=4, layers=1, heads=1, inner=4, output=output, **options)
    return Transformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("model", [recurrent(), transformer()])
@pytest.mark.parametrize(("ids", "which"), [([1, -1, 2], -1), ([1, 4, 2], 4)])
def test_ids_outside_the_vocabulary_are_refused(decoder, model, ids, which):
    source = np.array([ids, ids])
    with pytest.raises(ValueError, match=f"source: expected token ids from 0 .*, got {which}"):
        DECODERS[decoder](model, source, source == source)
    # What stands in padding is never read.
    padded = np.array([[1, 2, -1]])
    beam_search(model, padded, padded > 0, max_length=2)


@pytest.mark.parametrize("decoder", DECODERS)
def test_sources_are_a_batch_of_ids_with_a_mask(decoder):
    def decode(ids, mask):
        return DECODERS[decoder](recurrent(), ids, mask)

    with pytest.raises(ValueError, match=r"not int64 of shape \(3,\); pass a .* source\[None\]"):
        decode(SOURCE[0], MASK[0])
    with pytest.raises(ValueError, match="must be an integer array .* not float64"):
        decode(SOURCE.astype(float), MASK)
    with pytest.raises(ValueError, match=r"source's shape \(2, 3\).* not bool of shape \(2, 1\)"):
        decode(SOURCE, MASK[:, :1])
    with pytest.raises(ValueError, match="not int64 of shape"):
        decode(SOURCE, MASK.astype(int))


@pytest.mark.parametrize("decode", [beam_search, exact_search, greedy_search, ancestral_sampling])
def test_no_sources_give_an_empty_list(decode):
    rng = [np.random.default_rng(0)] if decode is ancestral_sampling else []
    assert decode(recurrent(), SOURCE[:0], MASK[:0], *rng) == []
    assert forced_decoding(recurrent(), SOURCE[:0], MASK[:0], []) == []


@pytest.mark.parametrize(
    ("decode", "names"),
    [
        (beam_search, ["beam", "n_best", "max_length"]),
        (exact_search, ["n_best", "budget", "width", "max_length"]),
        (greedy_search, ["max_length"]),
    ],
)
def test_numbers_below_one_are_refused(decode, names):
    for name in names:
        with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
            decode(recurrent(), SOURCE, MASK, **{name: 0})


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([[3], [4, -1]], "expected a list of token ids from 0 up .* got .4, -1."),
        ([[3], [4, 5]], "expected token ids below 5, .* got 5 for source 1"),
        ([[3], [1.5]], "expected a list of token ids .* got .1.5."),
        ([[3], [[3, 4]]], "expected a list of token ids .* shape .1, 2"),
        ([[3], 4], "expected a list of token ids .* shape "),
    ],
)
def test_targets_are_token_ids(targets, message):
    with pytest.raises(ValueError, match=f"targets: {message}"):
        forced_decoding(recurrent(), SOURCE, MASK, targets)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    ("output", "bad"),
    [("1", np.nan), ("1.5", np.inf), ("1.25", np.nan), ("topk_softmax:2", np.inf)],
)
def test_nan_is_refused_by_all_decoders(decoder, output, bad):
    model = recurrent(output)
    model.params["output.bias"][3] = bad
    for broken in (model, Ensemble([recurrent(output), model])):
        with pytest.raises(ValueError, match="gives source 0 no next token after 0 tokens.* NaN"):
            DECODERS[decoder](broken, SOURCE, MASK)
