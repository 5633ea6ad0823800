"""Multi-head attention: the papers' formulas, masks, every mapping, α per head and gradients."""

import numpy as np
import pytest
from finite_differences import assert_gradients

import pyentmax
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.attention import (
    init_learned_alpha,
    init_multi_head_attention,
    learned_alpha,
    learned_entmax,
    merge_heads,
    multi_head_attention,
    split_heads,
)
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

B, T, S, N, HEADS = 2, 3, 4, 6, 3
ENTMAX15 = choose_mapping(1.5)
MAPPINGS = {
    "entmax": "entmax:1.3",
    "normmax": "normmax:2.5",
    "topk_softmax": "topk_softmax:2",
    "topk_sparsemax": "topk_sparsemax:2",
    "fusedmax": "fusedmax:0.3",
    "oscarmax": "oscarmax:0.1",
    "csoftmax": "csoftmax:1",
    "csparsemax": "csparsemax:1",
    "budget_sparsemax": "budget_sparsemax:1",
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def new_params(seed=1, scale=2.0):
    """Projections whose scores differ enough for zeros among the weights."""
    params = init_multi_head_attention(np.random.default_rng(seed), "a", N, np.float64)
    return {name: scale * x for name, x in params.items()}


def attention(params, q, k, v, mapping=ENTMAX15, **options):
    return multi_head_attention(params, "a", q, k, v, mapping, heads=HEADS, **options)


def by_the_book(params, q, k, v, head, alpha):
    """Eq. 1 and 3 of Correia et al. for one head of one example, query by query."""
    d = N // HEADS
    part = slice(head * d, (head + 1) * d)
    wq, wk, wv = (params[f"a.{name}.weight"][:, part] for name in ("query", "key", "value"))
    rows = []
    for x in q:
        z = np.array([(x @ wq) @ (y @ wk) for y in k]) / np.sqrt(d)
        rows.append(pyentmax.entmax(z, alpha) @ (v @ wv))
    return np.array(rows)


@pytest.mark.parametrize("alphas", [[1.5, 1.5, 1.5], [1.0, 1.3, 2.0]])
def test_attention_equals_the_papers_formula(alphas):
    params, q, k, v = (
        new_params(),
        normal(B, T, N),
        normal(B, S, N, seed=1),
        normal(B, S, N, seed=2),
    )

    def mapping(z, mask):
        return Tensor(pyentmax.entmax(z.data, np.array(alphas)[:, None], mask=mask))

    output, weights = attention(params, q, k, v, mapping)
    assert weights.shape == (B, HEADS, T, S)
    np.testing.assert_allclose(weights.data.sum(axis=-1), 1, rtol=1e-12)
    expected = [
        np.concatenate(
            [by_the_book(params, q[i], k[i], v[i], h, a) for h, a in enumerate(alphas)], axis=1
        )
        @ params["a.output.weight"]
        for i in range(B)
    ]
    np.testing.assert_allclose(output.data, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("use", "causal"), [("self", True), ("key-value", False)])
def test_gradients_with_an_alpha_per_head(use, causal):
    params = new_params() | {"a.alpha_logit": np.array([[-1.5], [0.2], [2.0]])}
    mask = np.array([[True, True, True, True], [True, True, False, False]])

    def function(q, k, v, *arrays):
        given = dict(zip(params, arrays, strict=True))
        others = {"self": (q, q), "key-value": (k, v)}[use]
        mapping = learned_entmax(given, "a")
        return (
            attention(given, q, *others, mapping, mask=mask, causal=causal)[0] + 0 * (k + v).sum()
        )

    q, k, v = (normal(B, S, N, seed=seed) for seed in range(3))
    assert_gradients(function, q, k, v, *params.values(), rtol=1e-5, atol=1e-7)


def test_every_mapping_can_normalize_attention():
    params, x = new_params(), normal(B, S, N)
    mask = np.array([[True, True, True, False], [False] * 4])
    for name in pyentmax.MAPPINGS:
        mapping = choose_mapping(MAPPINGS.get(name, name))
        output, weights = attention(params, x, x, x, mapping, mask=mask)
        np.testing.assert_allclose(weights.data[0].sum(axis=-1), 1, rtol=1e-12, err_msg=name)
        assert not weights.data[0, ..., 3].any(), name
        assert not weights.data[1].any(), name
        assert not output.data[1].any(), name


def test_rows_of_padding_give_zeros_and_zero_gradients():
    params = {name: Tensor(x, requires_grad=True) for name, x in new_params().items()}
    params |= {"a.alpha_logit": Tensor(np.zeros((HEADS, 1)), requires_grad=True)}
    q, h = (Tensor(normal(1, S, N, seed=s), requires_grad=True) for s in range(2))
    mask = np.zeros((1, S), bool)
    output, weights = attention(params, q, h, h, learned_entmax(params, "a"), mask=mask)
    (output.sum() + weights.sum()).backward()
    for tensor in (output, weights):
        np.testing.assert_array_equal(tensor.data, 0)
    for tensor in (q, h, *params.values()):
        np.testing.assert_array_equal(tensor.grad, 0)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_leading_axes(leading):
    params = new_params() | {"a.alpha_logit": normal(HEADS, 1)}
    q, h = normal(*leading, T, N), normal(*leading, S, N, seed=1)
    mask = np.random.default_rng(2).random((*leading, S)) < 0.7
    mapping = learned_entmax(params, "a")
    output, weights = attention(params, q, h, h, mapping, mask=mask)
    assert weights.shape == (*leading, HEADS, T, S)
    for index in np.ndindex(leading):
        one, _ = attention(params, q[index], h[index], h[index], mapping, mask=mask[index])
        np.testing.assert_allclose(output.data[index], one.data, rtol=1e-12, atol=1e-14)


def test_alpha_is_per_head_not_per_query():
    # As many queries as heads: α of shape (heads,) would go by the query.
    params, x = new_params(), normal(B, HEADS, N)
    params |= {"a.alpha_logit": np.array([[-2.0], [0.0], [2.0]])}
    together = attention(params, x, x, x, learned_entmax(params, "a"))[1].data
    for head, alpha in enumerate(learned_alpha(params, "a").data[:, 0]):
        alone = attention(params, x, x, x, choose_mapping(alpha))[1].data[:, head]
        np.testing.assert_allclose(together[:, head], alone, rtol=1e-12, atol=1e-14)


def test_alpha_logits_are_drawn_from_a_normal():
    # The tolerance is three standard errors.
    drawn = init_learned_alpha("a", (1000, 1), np.random.default_rng(0), np.float64)[
        "a.alpha_logit"
    ]
    assert drawn.shape == (1000, 1)
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [0, 1], rtol=0, atol=0.1)
    assert init_learned_alpha("a")["a.alpha_logit"].tolist() == [0.0]


def test_heads_split_and_merge():
    x = normal(B, T, N)
    parts = split_heads(x, HEADS)
    assert parts.shape == (B, HEADS, T, N // HEADS)
    np.testing.assert_array_equal(parts.data[:, 1], x[..., 2:4])
    np.testing.assert_array_equal(merge_heads(parts).data, x)
    for heads in (0, 4):
        with pytest.raises(
            ValueError, match=f"heads: expected a divisor of the width 6, got {heads}"
        ):
            split_heads(x, heads)


def test_float32_stays_float32():
    params = init_multi_head_attention(np.random.default_rng(0), "a", N)
    params |= init_learned_alpha("a", (HEADS, 1))
    tensors = {name: Tensor(x, requires_grad=True) for name, x in params.items()}
    x = Tensor(normal(B, T, N).astype(np.float32))
    output, _ = attention(tensors, x, x, x, learned_entmax(tensors, "a"), causal=True)
    output.sum().backward()
    assert {output.dtype, *(t.grad.dtype for t in tensors.values())} == {np.dtype(np.float32)}
