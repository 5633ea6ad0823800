"""Every layer against central differences in float64: one table."""

from functools import partial

import numpy as np
import pytest
from finite_differences import assert_gradients

from pyentmax.seq2seq import autograd as ag
from pyentmax.seq2seq.nn.attention import (
    SCORES,
    LearnedEntmax,
    additive_scores,
    attend,
    dot_scores,
    init_multi_head_attention,
    multi_head_attention,
    weighted_average,
)
from pyentmax.seq2seq.nn.feed_forward import feed_forward, init_feed_forward
from pyentmax.seq2seq.nn.layer_norm import layer_norm
from pyentmax.seq2seq.nn.lstm import bilstm, init_bilstm, lstm, lstm_step
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.seq2seq.nn.shared_matrix import shared

B, T, S, H = 3, 4, 5, 2
STEPS = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 0, 0]], bool)  # (T, B)
MASK = np.arange(S) < np.array([[S], [2], [1]])


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def with_params(layer, params, *inputs):
    """A layer of inputs and parameters as a function of arrays, and these."""

    def function(*arrays):
        given, rest = arrays[: len(inputs)], arrays[len(inputs) :]
        return layer(dict(zip(params, rest, strict=True)), *given)

    return function, (*inputs, *params.values())


def score(name):
    kind = SCORES[name]
    params = kind.initialize(np.random.default_rng(1), "a", H, np.float64)

    def compare(given, values, query):
        return kind.compare(given, "a", query, kind.keys(given, "a", values))

    return with_params(compare, params, normal(2, B, S, H), normal(2, B, H))


def attention(mapping):
    def function(q, k, v):
        return ag.concatenate(attend(q, k, v, choose_mapping(mapping), MASK))

    return function, (normal(B, H), normal(B, S, H), normal(B, S, H, seed=1))


def heads(*, score="scaled", causal=False, key_value=False):
    params = init_multi_head_attention(
        np.random.default_rng(1), "a", 6, np.float64, bias=True, score=score, heads=3
    )
    params = {name: 2 * x for name, x in params.items()}  # for zeros among the weights
    params["a.alpha_logit"] = np.array([[-1.5], [0.2], [2.0]])

    def layer(given, q, k, v):
        options = {"heads": 3, "score": score, "causal": causal, "mask": MASK}
        key, value = (k, v) if key_value else (q, q)
        mapping = LearnedEntmax(given, "a")
        y, _ = multi_head_attention(given, "a", q, key, value, mapping, **options)
        return y + 0 * (k + v).sum()

    return with_params(layer, params, *(normal(B, S, 6, seed=seed) for seed in range(3)))


def two_steps(keys, q):
    """Several queries of keys that are shared: their gradients are put together once."""
    keys = shared(keys)
    return sum((weighted_average(dot_scores(x, keys), keys) for x in q), 0)


def chain(a, x, state, weight):
    for step_a, step_x in zip(a, x, strict=True):
        state = lstm_step(step_a, step_x, state, weight)
    return state


def network(rate):
    params = init_feed_forward(np.random.default_rng(1), "f", 3, 7, np.float64)
    params = {name: a + 0.1 * normal(*a.shape) for name, a in params.items()}
    return with_params(
        lambda given, x: feed_forward(given, "f", x, rate, np.random.default_rng(5)),
        params,
        normal(2, 4, 3),
    )


def recurrence(output, mask=None, reverse=False):
    def function(a, u):
        return lstm(a, u, mask, reverse)[output]

    return function, (normal(T, B, 4 * H), normal(H, 4 * H))


ONE, MANY = normal(B, H), normal(B, T, H)
KEYS, HEADS = normal(B, S, H), normal(B, 3, S, H)
CHAIN = normal(T, B, 3), normal(2, B, H), normal(3 + H, 4 * H)
LAYERS = {
    "dot score of one query": (dot_scores, (ONE, KEYS)),
    "scaled dot scores of many": (partial(dot_scores, scale=0.3), (MANY, KEYS)),
    "additive score of one query": (additive_scores, (ONE, KEYS, normal(H))),
    "additive scores of heads": (additive_scores, (normal(B, 3, T, H), HEADS, normal(3, 1, 1, H))),
    "average of one query": (weighted_average, (normal(B, S), KEYS)),
    "averages of many": (weighted_average, (normal(2, B, T, S), normal(2, B, S, H))),
    "shared keys": (two_steps, (KEYS, normal(2, B, H))),
    **{f"{name} score": score(name) for name in SCORES},
    **{f"attend, {name}": attention(name) for name in ("1", "1.3", "1.5", "2")},
    "self-attention, α per head": heads(causal=True),
    "key-value attention, bilinear": heads(score="bilinear", key_value=True),
    "attention without projections": heads(score="dot"),
    "additive attention of heads": heads(score="additive", key_value=True),
    "layer norm": (layer_norm, (2 * normal(2, 3, 5) + 1, normal(5), normal(5, seed=1))),
    "layer norm of a vector": (layer_norm, (normal(5), normal(5), normal(5, seed=1))),
    "layer norm of equals": (layer_norm, (np.ones((2, 4)), normal(4), normal(4, seed=1))),
    "network": network(0.0),
    "network with dropout": network(0.4),
    "LSTM, hidden states": recurrence(0),
    "LSTM, last state": recurrence(1),
    "LSTM backwards with a mask, hidden states": recurrence(0, STEPS, reverse=True),
    "LSTM backwards with a mask, last state": recurrence(1, STEPS, reverse=True),
    "LSTM steps": (chain, (normal(T, B, 4 * H), *CHAIN)),
    "LSTM steps with one bias": (chain, (normal(T, 4 * H), *CHAIN)),
    "bidirectional LSTM": with_params(
        lambda given, x: bilstm(given, "e", x, STEPS)[0],
        init_bilstm(np.random.default_rng(1), "e", 3, 2 * H, np.float64),
        normal(T, B, 3),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_equal_differences(name):
    function, arrays = LAYERS[name]
    assert_gradients(function, *arrays, rtol=1e-5, atol=1e-7)
