"""Rows of different lengths in tensors: by `by_rows`, row by row."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax as pe  # noqa: E402
import pyentmax.torch as pt  # noqa: E402

OFFSETS = torch.tensor([0, 3, 3, 4, 9, 12])
LENGTH, ROWS = 12, 5
ALPHA = torch.tensor([1.2, 1.5, 1.7, 2.0, 1.1], dtype=torch.float64)


def scores(seed: int = 0) -> Any:
    z = torch.randn(LENGTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z.requires_grad_()


def row_by_row(function: Any, z: Any, *per_row: Any) -> Any:
    edges = OFFSETS.tolist()
    rows = [(a, b, *x) for a, b, *x in zip(edges, edges[1:], *per_row, strict=False) if b > a]
    return torch.cat([torch.atleast_1d(function(z[a:b], *x)) for a, b, *x in rows])


@pytest.mark.parametrize("create_graph", [False, True])
def test_values_and_gradients_are_those_of_each_row(create_graph: bool) -> None:
    z, alpha = scores(), ALPHA.clone().requires_grad_()
    found = pt.by_rows(pt.entmax, (z,), OFFSETS, (alpha,))
    expected = row_by_row(pt.entmax, z, alpha)
    assert torch.equal(found, expected)
    inputs = z, alpha
    pair = (
        torch.autograd.grad(p.square().sum(), inputs, create_graph=True) for p in (found, expected)
    )
    for one, other in zip(*pair, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-14)
    if create_graph:
        call = lambda z, alpha: pt.by_rows(pt.entmax, (z,), OFFSETS, (alpha,))  # noqa: E731
        assert torch.autograd.gradgradcheck(call, inputs)


def test_losses_masks_and_several_results() -> None:
    z, labels = scores(), torch.tensor([2, -1, 0, 4, 1])
    loss = partial(pt.entmax15.loss, reduction="none", ignore_index=-1)
    found = pt.by_rows(loss, (z,), OFFSETS, (labels,))
    expected = pe.by_rows(
        partial(pe.entmax15.loss, reduction="none", ignore_index=-1),
        (z.detach().numpy(),), OFFSETS.numpy(), (labels.numpy(),),
    )  # fmt: skip
    np.testing.assert_array_equal(found.detach(), expected)
    assert found[1] == 0
    assert torch.autograd.gradcheck(lambda z: pt.by_rows(loss, (z,), OFFSETS, (labels,)), z)
    mask = z.detach() > -0.5
    p, support = pt.by_rows(
        lambda z, mask: (pt.sparsemax(z, mask=mask), pt.sparsemax.support(z, mask=mask)),
        (z, mask), OFFSETS,
    )  # fmt: skip
    assert torch.equal(support, p > 0)
    assert not p[~mask].any()
    sums = pt.by_rows(lambda p: p.sum(-1), (p,), OFFSETS)
    assert sums[1] == 0
    live = [mask[a:b].any() for a, b in zip(OFFSETS, OFFSETS[1:], strict=False)]
    torch.testing.assert_close(sums, torch.stack(live).double())


def test_rows_without_entries_and_other_devices() -> None:
    nothing = torch.zeros(3, dtype=torch.int32)
    assert pt.by_rows(pt.softmax, (torch.zeros(0),), nothing).shape == (0,)
    each = pt.by_rows(lambda z: z.sum(-1), (torch.zeros(0),), nothing)
    assert each.tolist() == [0, 0]
    z = scores()
    expected = pt.by_rows(pt.entmax15, (z,), OFFSETS)
    with torch.device("meta"):
        assert torch.equal(pt.by_rows(pt.entmax15, (z,), OFFSETS), expected)


def test_forward_mode_and_vmap_go_through() -> None:
    z = scores().detach()
    call = lambda z: pt.by_rows(pt.entmax15, (z,), OFFSETS)  # noqa: E731
    _, moved = torch.func.jvp(call, (z,), (torch.ones_like(z),))
    torch.testing.assert_close(moved, torch.zeros_like(z), rtol=0, atol=1e-15)
    both = torch.stack([z, 2 * z])
    assert torch.equal(torch.func.vmap(call)(both)[1], call(2 * z))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda z: pt.by_rows(pt.softmax, (z,), [0, 12]), TypeError, "offsets must be a Tensor"),
        (lambda z: pt.by_rows(pt.softmax, (z,), OFFSETS.double()), TypeError, "int32 or int64"),
        (lambda z: pt.by_rows(pt.softmax, (z,), OFFSETS[:-1]), ValueError, "from 0 to 12"),
        (lambda z: pt.by_rows(pt.softmax, (z.numpy(),), OFFSETS), TypeError, r"entries\[0\] must"),
        (lambda z: pt.by_rows(pt.softmax, (z, z[1:]), OFFSETS), ValueError, r"one shape \(n,\)"),
        (lambda z: pt.by_rows(pt.entmax, (z,), OFFSETS, (z,)), ValueError, r"per_row\[0\] must"),
        (lambda z: pt.by_rows(torch.sum, (z,), OFFSETS), ValueError, "an entry for each score"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(scores().detach())
