"""The products of all heads: against loops over heads, and gradients against differences."""

import numpy as np
import pytest

from pyentmax.seq2seq.nn.attention import (
    init_multi_head_attention,
    multi_head_attention,
)
from pyentmax.seq2seq.nn.attention.heads import additive_head_scores, head_averages, head_scores
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

HEADS, D, T, S = 3, 2, 4, 5
N = HEADS * D
LEADING = [(), (2,), (2, 3)]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def part(x, head):
    return x[..., head * D : (head + 1) * D]


@pytest.mark.parametrize("leading", LEADING)
def test_scores_and_averages_equal_each_heads(leading):
    q, k, v = (normal(*leading, n, N, seed=n) for n in (T, S, S + 1))
    v, p, w = v[..., :S, :], normal(*leading, HEADS, T, S), normal(HEADS, D, seed=9)
    scores, additive = head_scores(q, k, HEADS, 0.5).data, additive_head_scores(q, k, w).data
    averages = head_averages(p, v).data
    for h in range(HEADS):
        qh, kh, vh = (part(x, h) for x in (q, k, v))
        expected = 0.5 * np.einsum("...td,...sd->...ts", qh, kh)
        np.testing.assert_allclose(scores[..., h, :, :], expected, rtol=1e-12, atol=1e-14)
        hidden = np.tanh(qh[..., :, None, :] + kh[..., None, :, :])
        np.testing.assert_allclose(additive[..., h, :, :], hidden @ w[h], rtol=1e-12, atol=1e-14)
        expected = np.einsum("...ts,...sd->...td", p[..., h, :, :], vh)
        np.testing.assert_allclose(part(averages, h), expected, rtol=1e-12, atol=1e-14)


def test_dropout_leaves_returned_weights_unchanged():
    params = init_multi_head_attention(np.random.default_rng(0), "a", N, np.float64)
    x = normal(1, S, N)
    args, options = (params, "a", x, x, x, choose_mapping("softmax")), {"heads": HEADS}
    plain, weights = multi_head_attention(*args, **options)
    rng = np.random.default_rng(0)
    dropped, same = multi_head_attention(*args, **options, rate=0.5, rng=rng)
    np.testing.assert_array_equal(same.data, weights.data)
    assert not np.allclose(dropped.data, plain.data, rtol=0.01, atol=0.01)
    off, _ = multi_head_attention(*args, **options, rate=0.5)
    np.testing.assert_array_equal(off.data, plain.data)


def test_unknown_scores_are_refused():
    with pytest.raises(ValueError, match="score: expected one of scaled, .*got 'cosine'"):
        init_multi_head_attention(np.random.default_rng(0), "a", N, score="cosine")
