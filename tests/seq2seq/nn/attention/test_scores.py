"""The four scores against their formulas, one value at a time."""

import numpy as np
import pytest
from finite_differences import assert_gradients

from pyentmax.seq2seq import autograd as ag
from pyentmax.seq2seq.nn.attention import SCORES, additive_scores, choose_score, dot_scores

RNG = np.random.default_rng(0)
B, S, H = 3, 4, 2


def normal(*shape):
    return RNG.standard_normal(shape)


FORMULAS = {  # of one value h and one query q, as the module's docstring has them
    "dot": lambda p, h, q: h @ q,
    "bilinear": lambda p, h, q: h @ p["a.weight"] @ q,
    "scaled": lambda p, h, q: h @ p["a.weight"] @ q / H**0.5,
    "additive": lambda p, h, q: p["a.v"] @ np.tanh(h @ p["a.weight"] + q @ p["a.query.weight"]),
}


def test_gradients_of_scores():
    assert_gradients(dot_scores, normal(B, H), normal(B, S, H))
    assert_gradients(additive_scores, normal(B, H), normal(B, S, H), normal(H))


@pytest.mark.parametrize("leading", [(), (2, 3)])
@pytest.mark.parametrize("name", sorted(SCORES))
def test_named_scores(name, leading):
    score = choose_score(name)
    params = score.initialize(np.random.default_rng(1), "a", H, np.float64)
    values, query = normal(*leading, S, H), normal(*leading, H)

    def compare(values, query, *arrays):
        given = dict(zip(params, arrays, strict=True))
        return score.compare(given, "a", query, score.keys(given, "a", values))

    z = compare(ag.as_tensor(values), query, *params.values()).data
    for index in np.ndindex(*leading, S):
        expected = FORMULAS[name](params, values[index], query[index[:-1]])
        np.testing.assert_allclose(z[index], expected, rtol=1e-12, atol=1e-14)
    assert z.shape == (*leading, S)
    assert_gradients(compare, values, query, *params.values())


def test_unknown_scores_are_refused():
    with pytest.raises(ValueError, match="score: expected one of additive, .*; got 'cosine'"):
        choose_score("cosine")
