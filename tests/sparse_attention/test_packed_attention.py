"""Packed sequences: one call equals a call for each of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.seq2seq.autograd import attention as tape_attention
from pyentmax.seq2seq.autograd.tensor import Tensor
from pyentmax.sparse_attention import tiles

QUERIES, KEYS = [0, 3, 3, 8, 9], [0, 4, 6, 6, 11]  # the second has no query, the third no key
ROOM = 1e-14  # few queries alone go another way, which rounds elsewhere
FORMS: dict[str, dict[str, Any]] = {
    "alone": {},
    "causal": {"causal": True, "offset": 1},
    "an offset for each": {"causal": True, "offset": np.array([1, 2, 0, 4])},
    "alpha and sink of heads": {"alpha": np.array([1.2, 2.0]), "sink": np.array([0.1, -0.2])},
    "scale of queries": {"scale": np.linspace(0.5, 1.5, 9)},
    "scale of heads": {"scale": np.array([[0.5], [1.0]])},
    "masked": {"mask": np.arange(11) % 3 > 0},
    "top-k": {"mapping": "topk_softmax", "k": 2},
    "bounded": {"mapping": "csparsemax", "upper": np.full((9, 11), 0.9), "mask": np.arange(11) > 3},
}


def arrays(heads: int = 2, key_heads: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(shape)
        for shape in ((2, heads, 9, 3), (2, key_heads, 11, 3), (2, key_heads, 11, 2))
    ]


def parts(form: dict[str, Any], packed: list[np.ndarray]) -> Any:
    """Arguments of the call of each sequence, and its places."""
    for i in range(4):
        q, k = slice(*QUERIES[i : i + 2]), slice(*KEYS[i : i + 2])
        own = dict(form)
        if np.ndim(own.get("offset", 0)):
            own["offset"] = own["offset"][i]
        if np.shape(own.get("scale", 0))[-1:] == (9,):
            own["scale"] = own["scale"][q]
        if "mask" in own:
            own["mask"] = own["mask"][k]
        if "upper" in own:
            own["upper"] = own["upper"][q, k]
        yield [packed[0][:, :, q], packed[1][:, :, k], packed[2][:, :, k]], own, (q, k)


@pytest.mark.parametrize("name", FORMS)
def test_packed_equals_separate_calls(name: str) -> None:
    form, packed = FORMS[name], arrays()
    if name == "bounded":  # which needs a feasible sequence
        form, packed = dict(form), packed
        form.pop("mask")
        form["upper"] = np.full((9, 11), 1.0)
    cu_seqlens = QUERIES, KEYS
    output, weights = pe.attention(*packed, cu_seqlens=cu_seqlens, return_weights=True, **form)
    g = np.random.default_rng(1).standard_normal(output.shape)
    gradients = pe.attention_vjp(weights, *packed, g, cu_seqlens=cu_seqlens, **form)
    dense = np.zeros((2, 2, 9, 11))
    separate = []
    for own, options, (q, k) in parts(form, packed):
        expected, part = pe.attention(*own, return_weights=True, **options)
        alone = pe.attention(*packed, cu_seqlens=cu_seqlens, **form)  # few queries, and no weights
        np.testing.assert_allclose(output[:, :, q], expected, rtol=0, atol=ROOM)
        np.testing.assert_allclose(alone[:, :, q], expected, rtol=0, atol=ROOM)
        dense[:, :, q, k] = part.to_dense()
        separate.append(pe.attention_vjp(part, *own, g[:, :, q], **options))
    np.testing.assert_allclose(weights.to_dense(), dense, rtol=0, atol=ROOM)
    for found, each in zip(gradients, zip(*separate, strict=True), strict=True):
        if found.ndim == 4:
            np.testing.assert_allclose(found, np.concatenate(each, -2), rtol=0, atol=ROOM)
        elif name == "scale of queries":
            np.testing.assert_allclose(found, np.concatenate(each), rtol=0, atol=ROOM)
        else:
            np.testing.assert_allclose(found, sum(each), rtol=1e-13)


def test_heads_of_a_sequence_share_a_tile(monkeypatch: Any) -> None:
    """Of four heads and three sequences there are three tiles, whose rows are put in order."""
    pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")
    rng = np.random.default_rng(3)
    query, key, value = (rng.standard_normal((2, 2, 60, 4)) for _ in range(3))
    sink, edges, seen = np.array([0.3, -0.5]), [0, 25, 36, 60], []
    forward = tiles._Kernels.forward

    def counted(self: Any, tile: Any, out: Any) -> Any:
        seen.append(tile)
        return forward(self, tile, out)

    monkeypatch.setattr(tiles._Kernels, "forward", counted)
    output, weights = pe.attention(
        query, key, value, sink=sink, cu_seqlens=edges, return_weights=True
    )
    assert len(seen) == 3
    dense = weights.to_dense()
    np.testing.assert_allclose(dense @ value, output, rtol=0, atol=ROOM)
    np.testing.assert_allclose(dense.sum(axis=-1) + weights.sink, 1, rtol=0, atol=ROOM)
    for start, stop in itertools.pairwise(edges):
        own, part = slice(start, stop), (query, key, value)
        expected, alone = pe.attention(
            *(x[:, :, own] for x in part), sink=sink, return_weights=True
        )
        np.testing.assert_allclose(output[:, :, own], expected, rtol=0, atol=ROOM)
        np.testing.assert_allclose(dense[:, :, own, own], alone.to_dense(), rtol=0, atol=ROOM)
        np.testing.assert_allclose(weights.sink[:, :, own], alone.sink, rtol=0, atol=ROOM)


def test_the_tape_packs_sequences_and_learns() -> None:
    query, key, value = (Tensor(x, requires_grad=True) for x in arrays())
    alpha = Tensor(np.array([1.3, 1.6]), requires_grad=True)
    output = tape_attention(query, key, value, alpha, cu_seqlens=(QUERIES, KEYS))
    output.sum().backward()
    total = np.zeros(2)
    for own, _, _ in parts({}, arrays()):
        expected, weights = pe.attention(*own, alpha.data, return_weights=True)
        total += pe.attention_vjp_alpha(weights, own[2], np.ones_like(expected), alpha.data)
    np.testing.assert_allclose(alpha.grad, total, rtol=1e-12)


@pytest.mark.parametrize(
    ("cu_seqlens", "error", "message"),
    [
        ([0, 5, 3, 9], ValueError, "of the queries must rise from 0 to their number, 9"),
        ([1, 9], ValueError, "must rise from 0"),
        ([0, 8], ValueError, "must rise from 0 to their number, 9"),
        (([0, 9], [0, 3, 11]), ValueError, "as many sequences of queries as of keys, got 1 and 2"),
        (([0, 9], [0, 12]), ValueError, "of the keys must rise from 0 to their number, 11"),
        (([0, 9],), ValueError, "one array or two, got 1"),
        ([0.0, 9.0], TypeError, "whole numbers with one axis"),
    ],
)
def test_wrong_sequences_are_refused(cu_seqlens: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        pe.attention(*arrays(), cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="mask of shape .* does not broadcast to the scores"):
        pe.attention(*arrays(), cu_seqlens=(QUERIES, KEYS), mask=np.ones(12, bool))
    with pytest.raises(ValueError, match="a number, or one for each of 4 sequences"):
        pe.attention(*arrays(), cu_seqlens=(QUERIES, KEYS), causal=True, offset=[1, 2])
