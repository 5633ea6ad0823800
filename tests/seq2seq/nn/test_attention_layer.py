"""Attention: scores, averages and heads by their formulas, masks, every mapping, both routes."""

from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax.engine.backends import choice
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn import attention as layer
from pyentmax.seq2seq.nn.attention import (
    SCORES,
    LearnedEntmax,
    attend,
    init_learned_alpha,
    init_multi_head_attention,
    learned_alpha,
    merge_heads,
    multi_head_attention,
    split_heads,
)
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

B, T, S, N, HEADS = 2, 3, 4, 6, 3
ENTMAX15 = choose_mapping(1.5)
PARAMETERS = {
    "entmax": "1.3",
    "normmax": "2.5",
    "topk_softmax": "2",
    "topk_sparsemax": "2",
    "fusedmax": "0.3",
    "oscarmax": "0.1",
    "csoftmax": "1",
    "csparsemax": "1",
    "budget_sparsemax": "1",
}
FORMULAS = {  # of one value h and one query q, as the module's docstring has them
    "dot": lambda p, h, q: h @ q,
    "bilinear": lambda p, h, q: h @ p["a.weight"] @ q,
    "scaled": lambda p, h, q: h @ p["a.weight"] @ q / N**0.5,
    "additive": lambda p, h, q: p["a.v"] @ np.tanh(h @ p["a.weight"] + q @ p["a.query.weight"]),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def new_params(**options):
    """Projections whose scores differ enough for zeros among the weights, and α per head."""
    rng = np.random.default_rng(1)
    params = init_multi_head_attention(rng, "a", N, np.float64, heads=HEADS, **options)
    params = {name: 2 * x for name, x in params.items()}
    return params | {"a.alpha_logit": np.array([[-2.0], [0.0], [2.0]])}


def attention(params, q, k, v, mapping=ENTMAX15, **options):
    return multi_head_attention(params, "a", q, k, v, mapping, heads=HEADS, **options)


# --- one query ------------------------------------------------------------------------------------
@pytest.mark.parametrize("leading", [(), (2, 3)])
@pytest.mark.parametrize("name", sorted(SCORES))
def test_named_scores(name, leading):
    score = SCORES[name]
    params = score.initialize(np.random.default_rng(1), "a", N, np.float64)
    values, query = normal(*leading, S, N), normal(*leading, N, seed=1)
    z = score.compare(params, "a", query, score.keys(params, "a", values)).data
    assert z.shape == (*leading, S)
    for index in np.ndindex(*leading, S):
        expected = FORMULAS[name](params, values[index], query[index[:-1]])
        np.testing.assert_allclose(z[index], expected, rtol=1e-12, atol=1e-14)


def test_unknown_scores_are_refused():
    for call in (layer.check_score, lambda name: new_params(score=name)):
        with pytest.raises(ValueError, match="score: expected one of additive, .*; got 'cosine'"):
            call("cosine")


def test_attend_averages_unmasked_values():
    q, k, v = normal(3, N), normal(3, S, N, seed=1), normal(3, S, N, seed=2)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)
    context, weights = attend(q, k, v, ENTMAX15, mask)
    assert not weights.data[~mask].any()
    expected = pyentmax.entmax15(np.einsum("bh,bsh->bs", q, k), mask=mask)
    np.testing.assert_allclose(weights.data, expected, rtol=1e-12)
    np.testing.assert_allclose(context.data, np.einsum("bs,bsh->bh", expected, v), rtol=1e-12)
    many, _ = attend(q[:, None], k, v, ENTMAX15, mask[:, None])
    np.testing.assert_allclose(many.data[:, 0], context.data, rtol=1e-12)


# --- several heads --------------------------------------------------------------------------------
def by_the_book(params, q, k, v, head, alpha, score):
    """Eq. 1 and 3 of Correia et al. for one head of one example, query by query."""
    d = N // HEADS
    part = slice(head * d, (head + 1) * d)
    wq, wk, wv = (
        params.get(f"a.{name}.weight", np.eye(N))[:, part] for name in ("query", "key", "value")
    )
    divisor, rows = np.sqrt(d) if score == "scaled" else 1, []
    for x in q:
        if score == "additive":
            z = np.array([params["a.v"][head] @ np.tanh(x @ wq + y @ wk) for y in k])
        else:
            z = np.array([(x @ wq) @ (y @ wk) for y in k]) / divisor
        rows.append(pyentmax.entmax(z, alpha) @ (v @ wv))
    return np.array(rows)


@pytest.mark.parametrize("score", sorted(SCORES))
@pytest.mark.parametrize("alphas", [[1.5, 1.5, 1.5], [1.0, 1.3, 2.0]])
def test_attention_equals_the_papers_formula(alphas, score):
    params = new_params(score=score)
    q, k, v = normal(B, T, N), normal(B, S, N, seed=1), normal(B, S, N, seed=2)

    def mapping(z, mask):
        return Tensor(pyentmax.entmax(z.data, np.array(alphas)[:, None], mask=mask))

    output, weights = attention(params, q, k, v, mapping, score=score)
    assert weights.shape == (B, HEADS, T, S)
    np.testing.assert_allclose(weights.data.sum(axis=-1), 1, rtol=1e-12)
    heads = [
        [by_the_book(params, q[i], k[i], v[i], h, a, score) for h, a in enumerate(alphas)]
        for i in range(B)
    ]
    expected = np.concatenate(np.moveaxis(heads, 1, 0), axis=-1) @ params["a.output.weight"]
    np.testing.assert_allclose(output.data, expected, rtol=1e-11, atol=1e-13)


def test_every_mapping_can_normalize_attention():
    params, x = new_params(), normal(B, S, N)
    mask = np.array([[True, True, True, False], [False] * 4])
    for name in pyentmax.MAPPINGS:
        choice = ":".join(filter(None, (name, PARAMETERS.get(name))))
        output, weights = attention(params, x, x, x, choose_mapping(choice), mask=mask)
        np.testing.assert_allclose(weights.data[0].sum(axis=-1), 1, rtol=1e-12, err_msg=name)
        assert not weights.data[0, ..., 3].any(), name
        assert not weights.data[1].any(), name
        assert not output.data[1].any(), name


def test_rows_of_padding_give_zeros_and_zero_gradients():
    params = {name: Tensor(x, requires_grad=True) for name, x in new_params().items()}
    q, h = (Tensor(normal(1, S, N, seed=s), requires_grad=True) for s in range(2))
    mask = np.zeros((1, S), bool)
    output, weights = attention(params, q, h, h, LearnedEntmax(params, "a"), mask=mask)
    (output.sum() + weights.sum()).backward()
    for tensor in (output, weights):
        np.testing.assert_array_equal(tensor.data, 0)
    for tensor in (q, h, *params.values()):
        np.testing.assert_array_equal(tensor.grad, 0)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_leading_axes(leading):
    params = new_params()
    q, h = normal(*leading, T, N), normal(*leading, S, N, seed=1)
    mask = np.random.default_rng(2).random((*leading, S)) < 0.7
    mapping = LearnedEntmax(params, "a")
    output, weights = attention(params, q, h, h, mapping, mask=mask)
    assert weights.shape == (*leading, HEADS, T, S)
    for index in np.ndindex(leading):
        one, _ = attention(params, q[index], h[index], h[index], mapping, mask=mask[index])
        np.testing.assert_allclose(output.data[index], one.data, rtol=1e-12, atol=1e-14)


def test_alpha_is_per_head_not_per_query():
    # As many queries as heads: α of shape (heads,) would go by the query.
    params, x = new_params(), normal(B, HEADS, N)
    together = attention(params, x, x, x, LearnedEntmax(params, "a"))[1].data
    for head, alpha in enumerate(learned_alpha(params, "a").data[:, 0]):
        alone = attention(params, x, x, x, choose_mapping(alpha))[1].data[:, head]
        np.testing.assert_allclose(together[:, head], alone, rtol=1e-12, atol=1e-14)


def test_alpha_logits_are_drawn_from_a_normal():
    rng = np.random.default_rng(0)
    drawn = init_learned_alpha("a", (1000, 1), rng, np.float64)["a.alpha_logit"]
    assert drawn.shape == (1000, 1)
    # The tolerance is three standard errors.
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [0, 1], rtol=0, atol=0.1)
    assert init_learned_alpha("a")["a.alpha_logit"].tolist() == [0.0]


def test_heads_split_and_merge():
    x = normal(B, T, N)
    parts = split_heads(x, HEADS)
    assert parts.shape == (B, HEADS, T, N // HEADS)
    np.testing.assert_array_equal(parts.data[:, 1], x[..., 2:4])
    np.testing.assert_array_equal(merge_heads(parts).data, x)
    for heads in (0, 4):
        message = f"heads: expected a divisor of the width 6, got {heads}"
        with pytest.raises(ValueError, match=message):
            split_heads(x, heads)


def test_dropout_leaves_returned_weights_unchanged():
    params, x, softmax = new_params(), normal(1, S, N), choose_mapping("softmax")
    plain, weights = attention(params, x, x, x, softmax)
    rng = np.random.default_rng(0)
    dropped, same = attention(params, x, x, x, softmax, rate=0.5, rng=rng)
    np.testing.assert_array_equal(same.data, weights.data)
    assert not np.allclose(dropped.data, plain.data, rtol=0.01, atol=0.01)
    off, _ = attention(params, x, x, x, softmax, rate=0.5)
    np.testing.assert_array_equal(off.data, plain.data)


def test_float32_stays_float32():
    params = init_multi_head_attention(np.random.default_rng(0), "a", N)
    params |= init_learned_alpha("a", (HEADS, 1))
    tensors = {name: Tensor(x, requires_grad=True) for name, x in params.items()}
    x = Tensor(normal(B, T, N).astype(np.float32))
    output, _ = attention(tensors, x, x, x, LearnedEntmax(tensors, "a"), causal=True)
    output.sum().backward()
    assert {output.dtype, *(t.grad.dtype for t in tensors.values())} == {np.dtype(np.float32)}


# --- over the support alone -----------------------------------------------------------------------
MANY, MORE = 130, 140  # queries, keys
NEEDS_KERNELS = pytest.mark.skipif(not choice.kernels(), reason="without kernels all is dense")
SPARSE = {
    "α": lambda params: choose_mapping(1.5),
    "another α": lambda params: choose_mapping(1.2),
    "sparsemax": lambda params: choose_mapping("sparsemax"),
    "top-k": lambda params: choose_mapping("topk_softmax:5"),
    "an α per head": lambda params: LearnedEntmax(params, "a"),
    "one α": lambda params: LearnedEntmax(params, "one"),
}


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The calls that went over the support."""
    taken: list[dict[str, Any]] = []
    original = layer.attention

    def recorded(*args: Any, **arguments: Any) -> Tensor:
        taken.append(arguments)
        return original(*args, **arguments)

    monkeypatch.setattr(layer, "attention", recorded)
    return taken


@NEEDS_KERNELS
@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("causal", [False, True])
def test_sparse_and_dense_paths_agree(paths: list[Any], name: str, causal: bool) -> None:
    mask = (np.arange(MORE) < np.array([[MORE], [MORE - 30]]))[:, None, None, :]
    found = []
    for need_weights in (True, False):
        arrays = new_params(bias=True) | {"one.alpha_logit": np.array([0.5])}
        params = {name: Tensor(x, requires_grad=True) for name, x in arrays.items()}
        x, h = (Tensor(normal(B, n, N, seed=n), requires_grad=True) for n in (MANY, MORE))
        scale = Tensor(normal(HEADS, MANY, seed=3), requires_grad=True) if causal else None
        heads = layer.MultiHead(params, "a", SPARSE[name](params), HEADS, causal=causal)
        pair = heads.keys_and_values(h)
        output, weights = heads(x, *pair, mask, scale=scale, need_weights=need_weights)
        assert (weights is not None) == need_weights
        output.backward(normal(*output.shape, seed=5))
        leaves = [x, h, *params.values(), *([scale] if causal else [])]
        found.append([output.data, *(leaf.grad for leaf in leaves)])
    assert len(paths) == 1
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            scale = max(1, np.abs(one).max())
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-9 * scale)


@NEEDS_KERNELS
@pytest.mark.parametrize(
    ("options", "n_sparse"),
    [
        ({}, 1),
        ({"rate": 0.1}, 1),  # without a generator it drops nothing
        ({"rate": 0.1, "rng": np.random.default_rng(0)}, 0),
        ({"need_weights": True}, 0),
        ({"score": "additive"}, 0),
        *(
            ({"mapping": choose_mapping(name)}, 0)
            for name in ("softmax", "normmax:2", "fusedmax:0.1", "topk_softmax:40")
        ),
    ],
)
def test_which_calls_go_over_the_support(
    paths: list[Any], options: dict[str, Any], n_sparse: int
) -> None:
    params = new_params(score=options.get("score", "scaled"))
    options = {"mapping": ENTMAX15, "need_weights": False, **options}
    for length in (20, MANY):
        x = normal(length, N)
        attention(params, x, x, x, **options)
        assert len(paths) == (n_sparse if length == MANY else 0)
