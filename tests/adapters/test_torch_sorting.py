"""Soft sorting of tensors: the array functions' values, and their gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyentmax import sorting as array_sorting

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

from pyentmax.torch import sorting  # noqa: E402

NAMES = [("soft_sort", ()), ("soft_rank", ()), ("soft_topk", (2,))]
Z = np.random.default_rng(57).normal(size=(3, 6))
STRENGTH = np.array([[0.3], [1.0], [2.0]])


@pytest.mark.parametrize(("name", "k"), NAMES)
def test_sorting_equals_arrays_and_has_gradients(name: str, k: Any) -> None:
    function, arrays = getattr(sorting, name), getattr(array_sorting, name)
    z = torch.tensor(Z, requires_grad=True)
    found = function(z, *k, torch.tensor(STRENGTH[:, 0]))
    np.testing.assert_array_equal(found.detach(), arrays(Z, *k, STRENGTH[:, 0]))
    np.testing.assert_array_equal(function(z.T, *k, 0.7, 0).T.detach(), arrays(Z, *k, 0.7))
    half = torch.tensor(Z, dtype=torch.bfloat16)
    expected = torch.tensor(arrays(half.float().numpy(), *k)).bfloat16()
    assert torch.equal(function(half, *k), expected)
    assert torch.autograd.gradcheck(lambda z: function(z, *k, 0.7), z)
    assert torch.autograd.gradgradcheck(lambda z: function(z, *k, 0.7), z)


def test_sorting_compiles_and_maps() -> None:
    z = torch.tensor(Z, requires_grad=True)

    def spearman(z: Any) -> Any:
        return (sorting.soft_rank(z, 0.5) * torch.arange(6)).sum()

    run = torch.compile(spearman, fullgraph=True, backend="aot_eager")
    expected, found = (torch.autograd.grad(f(z), z)[0] for f in (spearman, run))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    each = torch.vmap(torch.func.grad(spearman))(z.detach())
    torch.testing.assert_close(each, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda z: sorting.soft_rank(z, 0.0), ValueError, "strength must be above 0"),
        (lambda z: sorting.soft_topk(z, 0), ValueError, "k must be at least 1"),
        (lambda z: sorting.soft_sort(z.long()), TypeError, "floating dtype"),
        (lambda z: sorting.soft_rank(z, torch.ones(3, requires_grad=True)), TypeError, "detach"),
        (lambda z: sorting.soft_rank(z.to("meta") + 0), TypeError, "on the host"),
    ],
)
def test_wrong_calls_of_sorting_are_refused(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(torch.tensor(Z))
