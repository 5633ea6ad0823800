"""Attention of tensors with a bias by distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax.torch as pt  # noqa: E402
from pyentmax.sparse_attention import route as route_numbers  # noqa: E402

T, S, HEADS = 4, 5, 4
NUMBERS: dict[str, Any] = {
    "distances": torch.linspace(-1, 1, HEADS * (T + S - 1)).double().reshape(HEADS, -1).sin(),
    "distances of all heads": torch.linspace(-1, 1, T + S - 1).double().square(),
    "slopes": torch.tensor([0.1, 0.2, 0.4, 0.8]).double(),
    "slope": torch.tensor(0.3).double(),
}
FORMS: dict[str, dict[str, Any]] = {
    "alone": {},
    "causal": {"causal": True, "offset": 2},
    "alpha, sink and scale": {
        "alpha": torch.tensor([1.2, 1.5, 2.0, 1.7]).double(),
        "sink": torch.tensor(0.2).double(), "scale": torch.ones(4, 1).double(),
    },
    "packed": {
        "cu_seqlens": (torch.tensor([0, 1, 1, 4]), torch.tensor([0, 2, 3, 5])),
        "causal": True, "offset": torch.tensor([1, 0, 1]),
    },
    "packed as one": {"cu_seqlens": (torch.tensor([0, 4]), torch.tensor([0, 5]))},
    "softmax": {"mapping": "softmax"},
}  # fmt: skip


def made(name: str, numbers: Any) -> Any:
    return pt.DistanceBias(slopes=numbers) if "slope" in name else pt.DistanceBias(numbers)


def arrays() -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, HEADS, T, 3), (2, 2, S, 3), (2, 2, S, 2)
    return [torch.randn(x, dtype=torch.float64, generator=generator) for x in shapes]


def as_array(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(as_array, x))
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", NUMBERS)
def test_tensors_have_the_biases_of_arrays(
    kind: str, form: str, is_sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_sparse:
        monkeypatch.setitem(route_numbers.LEAST_SCORES, "tensors", 0)
    options = FORMS[form]
    learned = [x.clone().requires_grad_() for x in (*arrays(), NUMBERS[kind])]
    output = pt.attention(*learned[:3], bias=made(kind, learned[3]), **options)
    numpy, given = [as_array(x) for x in learned], {k: as_array(x) for k, x in options.items()}
    given["bias"] = made(kind, numpy[3])
    expected, weights = pe.attention(*numpy[:3], return_weights=True, **given)
    np.testing.assert_allclose(output.detach(), expected, rtol=1e-12, atol=1e-13)
    found = torch.autograd.grad(output.square().sum(), learned)
    wanted = pe.attention_vjp(weights, *numpy[:3], 2 * expected, **given)
    for ours, theirs in zip(found, (*wanted[:3], wanted[-1]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    if form != "softmax":  # which is PyTorch's own, and float32's rounding of its derivative
        dense, capped = (
            pt.attention(*learned[:3], bias=made(kind, learned[3]), softcap=cap, **options)
            for cap in (1e9, 0.5)
        )
        torch.testing.assert_close(dense, output, rtol=1e-9, atol=1e-9)
        assert not torch.equal(capped, output)


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
