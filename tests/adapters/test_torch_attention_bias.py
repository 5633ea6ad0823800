"""Attention of tensors with a bias by distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax.torch as pt  # noqa: E402

T, S, HEADS = 4, 5, 4


def made(name: str, numbers: Any) -> Any:
    return pt.DistanceBias(slopes=numbers) if "slope" in name else pt.DistanceBias(numbers)


@pytest.mark.parametrize("kind", ["distances", "slopes"])
def test_distances_store_no_array_of_scores(kind: str) -> None:
    query, key = torch.randn(2, 2, 300, 8)
    numbers = torch.rand(2) if kind == "slopes" else torch.randn(2, 599)
    kept: list[int] = []

    def pack(x: Any) -> Any:
        kept.append(x.numel())
        return x

    learned = query.requires_grad_(), numbers.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        output = pt.attention(query, key, key, bias=made(kind, numbers), causal=True)
    assert max(kept) < 2 * 300 * 300
    gradients = torch.autograd.grad(output.square().sum(), learned)
    compiled = torch.compile(
        lambda q, x: pt.attention(q, key, key, bias=made(kind, x), causal=True),
        backend="aot_eager",
        fullgraph=True,
    )
    for ours, theirs in zip(
        torch.autograd.grad(compiled(*learned).square().sum(), learned), gradients, strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_half_types_and_numbers_of_arrays() -> None:
    query, key = torch.randn(2, 2, 300, 8)
    slopes = np.array([0.1, 0.2])
    expected = pt.attention(query, key, key, bias=pt.DistanceBias(slopes=torch.tensor(slopes)))
    for bias in (pt.DistanceBias(slopes=slopes), pt.DistanceBias(slopes=[0.1, 0.2])):
        torch.testing.assert_close(pt.attention(query, key, key, bias=bias), expected)
    half = [x.bfloat16() for x in (query, key, key)]
    found = pt.attention(*half, bias=pt.DistanceBias(slopes=torch.tensor(slopes).bfloat16()))
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("n", [5, 400])
def test_wrong_distances_are_refused(n: int) -> None:
    x = torch.ones(2, n, 3)
    with pytest.raises(ValueError, match=rf"expected T \+ S − 1 = {2 * n - 1} numbers"):
        pt.attention(x, x, x, bias=pt.DistanceBias(torch.ones(2, 2 * n)))
    for bias in (pt.DistanceBias(slopes=torch.ones(3)), pt.DistanceBias(torch.ones(3, 2 * n - 1))):
        with pytest.raises(ValueError, match="bias of shape .* does not broadcast to the batch"):
            pt.attention(x, x, x, bias=bias)
    with pytest.raises(TypeError, match="bias must be a tensor of a floating dtype"):
        pt.attention(x, x, x, bias=pt.DistanceBias(torch.ones(2 * n - 1, dtype=torch.int64)))
