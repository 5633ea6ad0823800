"""A set of keys as mask of tensors: as the mask of bools, in every form, with every gradient."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax.torch as pt  # noqa: E402

T, S = 20, 30
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")


def tensor(*shape: int, seed: int = 0, learns: bool = True) -> Any:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return x.requires_grad_(learns)


def bools() -> Any:
    mask = tensor(T, S, learns=False) > 1
    mask[7] = False
    return mask


def numbers(mask: Any) -> Any:
    """The keys of each query in falling order, and −1 behind them."""
    keys = torch.where(mask, torch.arange(S), -1).sort(-1, descending=True).values
    return keys[:, : int(mask.sum(-1).max()) + 1]


def test_a_set_for_each_head() -> None:
    query, key, value = tensor(4, T, 8), tensor(4, S, 8), tensor(4, S, 5)
    _, weights = pt.attention(query, key, value, 2.0, return_weights=True)
    seen = weights.to_dense() != 0
    few = torch.stack([x.topk(3).indices for x in weights.to_dense()])
    both = torch.zeros_like(seen).scatter(-1, few, True)
    batch = both.to_sparse_csr()
    for given, mask in ((weights, seen), (few, both), (batch, both)):
        output = pt.attention(query, key, value, mapping="softmax", mask=given)
        expected = pt.attention(query, key, value, mapping="softmax", mask=mask)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


def test_slopes_and_half_types() -> None:
    mask = bools()
    query, key, value = (tensor(4, n, 8).detach().bfloat16() for n in (T, S, S))
    bias = pt.DistanceBias(slopes=torch.tensor([0.5, 0.25, 0.125, 0.0625]))
    options: dict[str, Any] = {"bias": bias, "causal": True, "offset": 4}
    output = pt.attention(query, key, value, mask=numbers(mask), **options)
    expected = pt.attention(query, key, value, mask=mask, **options)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output, expected, rtol=0, atol=0.02)


X = tensor(2, 4, 8, learns=False)
ONE = torch.zeros(4, 1, dtype=torch.long)
WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "bools as integers": (torch.eye(4).long(), {}, ValueError, r"mean mask.astype\(bool\)"),
    "repeated": (ONE.expand(4, 2), {}, ValueError, "got key 0 twice"),
    "dropout": (ONE, {"dropout": 0.5}, ValueError, "does not go with dropout"),
    "softcap": (ONE, {"softcap": 5.0}, ValueError, "does not go with softcap"),
    "packed": (ONE, {"cu_seqlens": torch.tensor([0, 4])}, ValueError, "does not go with cu_seq"),
    "mapping": (ONE, {"mapping": "topk_softmax", "k": 2}, ValueError, "expected a mapping of"),
    "bias": (ONE, {"bias": torch.ones(4, 4)}, ValueError, "one number for each entry"),
    "weights of CSR": (
        lambda: torch.eye(4).to_sparse_csr(),
        {},
        TypeError,
        "a boolean CSR",
    ),
    "shape": (
        lambda: torch.ones(4, 5).bool().to_sparse_csr(),
        {},
        ValueError,
        "tensor of shape",
    ),
    "floats": (torch.ones(4, 4), {}, TypeError, "mask must be boolean"),
    "meta": (ONE.to("meta"), {}, TypeError, "expected CPU tensors, got meta"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sets_are_refused(name: str) -> None:
    mask, options, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        pt.attention(X, X, X, mask=mask() if callable(mask) else mask, **options)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the graph ends before the set
def test_compiled_calls_take_sets() -> None:
    mask, x = numbers(bools()), tensor(S, 8)
    run = torch.compile(
        lambda q: pt.attention(q * 1, x, x, mapping="softmax", mask=mask).sum(), backend="eager"
    )
    query = tensor(T, 8)
    expected = pt.attention(query, x, x, mapping="softmax", mask=mask).sum()
    torch.testing.assert_close(run(query), expected)
