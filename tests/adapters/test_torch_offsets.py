"""Rows of different lengths in tensors: by `offsets=`, row by row."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pyentmax

torch = pytest.importorskip("torch")
pt = pytest.importorskip("pyentmax.torch")

LENGTHS = [3, 0, 1, 7, 3, 20, 0, 2]
OFFSETS = torch.tensor([0, *np.cumsum(LENGTHS).tolist()])
LENGTH = sum(LENGTHS)
RNG = np.random.default_rng(57)
PARAMETERS: dict[str, dict[str, Any]] = {
    "entmax": {"alpha": 1.3},
    "topk_softmax": {"k": 2},
    "topk_sparsemax": {"k": 2},
    "fusedmax": {"strength": 0.3},
    "oscarmax": {"strength": 0.02},
    "csoftmax": {"upper": 1.0},
    "csparsemax": {"upper": 1.0},
    "budget_sparsemax": {"budget": 0.75},
    "normmax": {"alpha": 2.5},
}


def by_columns(function: Any, *entries: Any, per_row: tuple[Any, ...] = ()) -> Any:
    """The function of arrays for each column, whose rows lie one after the other."""
    entries = tuple(np.broadcast_to(x, (LENGTH, 2)) for x in entries)
    columns = [
        pyentmax.by_rows(
            function, [x[:, j] for x in entries], OFFSETS.numpy(), [x[:, j] for x in per_row]
        )
        for j in (0, 1)
    ]
    return np.stack(columns, axis=1)


def scores(*shape: int, grad: bool = True) -> Any:
    return torch.tensor(RNG.normal(size=shape)).requires_grad_(grad)


@pytest.mark.parametrize("name", sorted(pyentmax.MAPPINGS))
def test_mappings_agree_with_those_of_arrays(name: str) -> None:
    z, g, parameters = scores(LENGTH, 2), scores(LENGTH, 2, grad=False), PARAMETERS.get(name, {})
    mask = torch.ones(LENGTH, 1, dtype=torch.bool)
    if name not in ("csoftmax", "csparsemax"):
        mask[4::5] = False
    options = {"dim": 0, "mask": mask, "offsets": OFFSETS} | parameters
    mapping = getattr(pyentmax, name)
    p = getattr(pt, name)(z, **options)
    expected = by_columns(
        lambda z, mask: mapping(z, **parameters, mask=mask), z.detach().numpy(), mask.numpy()
    )
    np.testing.assert_allclose(p.detach(), expected, rtol=1e-12, atol=1e-12)
    p.backward(g)
    slope = by_columns(
        lambda p, g, mask: mapping.vjp(p, g, **parameters, mask=mask),
        expected, g.numpy(), mask.numpy(),
    )  # fmt: skip
    np.testing.assert_allclose(z.grad, slope, rtol=1e-12, atol=1e-12)
    support = getattr(pt, f"{name}_support")(z, **options)
    np.testing.assert_array_equal(support, expected > 0)
    if hasattr(pt, f"log_{name}"):
        logarithm = getattr(pt, f"log_{name}")(z, **options)
        np.testing.assert_allclose(logarithm.detach().exp(), expected, rtol=1e-12, atol=1e-12)


def test_derivatives_of_both_orders() -> None:
    z, alpha = scores(LENGTH, 2), torch.tensor(1.2 + RNG.random((len(LENGTHS), 1)))

    def call(z: Any, alpha: Any) -> Any:
        return pt.entmax(z, alpha, 0, offsets=OFFSETS)

    arguments = (z, alpha.requires_grad_())
    assert torch.autograd.gradcheck(call, arguments)
    assert torch.autograd.gradgradcheck(call, arguments)
    compiled = torch.compile(call, backend="eager")
    torch.testing.assert_close(compiled(*arguments), call(*arguments))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_agree_with_those_of_arrays(reduction: str) -> None:
    z, weight = scores(LENGTH, 2), torch.tensor(RNG.random((len(LENGTHS), 2)))
    y = torch.tensor([[n // 2, n - 1] for n in LENGTHS])
    for smoothing in (0.0, 0.2):
        options = {"reduction": reduction, "ignore_index": -1, "label_smoothing": smoothing}
        y[1] = y[6] = -1
        loss = pt.entmax15_loss(z, y, 0, offsets=OFFSETS, weight=weight, **options)
        (slope,) = torch.autograd.grad(loss.sum(), z)
        share = np.where(y.numpy() == -1, 0, weight.numpy())
        share /= share.sum() if reduction == "mean" else 1
        options["reduction"] = "none"
        each = partial(pyentmax.entmax15.loss, **options)
        both = partial(pyentmax.entmax15.loss_and_grad, **options)
        expected = share * by_columns(each, z.detach().numpy(), per_row=(y.numpy(),))
        expected = expected if reduction == "none" else expected.sum()
        np.testing.assert_allclose(loss.detach(), expected, rtol=1e-10)
        gradient = by_columns(
            lambda z, y, both=both: both(z, y)[1], z.detach().numpy(), per_row=(y.numpy(),)
        )
        gradient *= np.repeat(share, LENGTHS, axis=0)
        np.testing.assert_allclose(slope, gradient, rtol=1e-12, atol=1e-12)
    q = pt.sparsemax(scores(LENGTH, 2, grad=False), 0, offsets=OFFSETS)
    loss = pt.entmax15_loss(z, q, 0, offsets=OFFSETS, reduction=reduction)
    each = partial(pyentmax.entmax15.loss, reduction="none")
    expected = by_columns(each, z.detach().numpy(), q.numpy())
    count = 2 * np.count_nonzero(LENGTHS)
    reduced = {"none": expected, "mean": expected.sum() / count, "sum": expected.sum()}
    np.testing.assert_allclose(loss.detach(), reduced[reduction], rtol=1e-10)
    assert torch.autograd.gradcheck(lambda z: pt.sparsemax_loss(z, q, 0, offsets=OFFSETS), z)


@pytest.mark.parametrize(
    ("offsets", "error", "message"),
    [
        (torch.tensor([0.0, 4.0]), TypeError, "offsets must be int32 or int64, got float32"),
        (torch.tensor([[0, 4]]), ValueError, r"offsets must have the shape \(rows \+ 1,\)"),
        (torch.tensor([0, 3, 2, 4]), ValueError, "must not fall, got 3 and then 2"),
        (torch.tensor([1, 4]), ValueError, "go from 0 to 4, .* got 1 to 4"),
        (torch.tensor([0, 3]), ValueError, "go from 0 to 4"),
        ([0, 4], TypeError, "offsets must be a Tensor, got list"),
    ],
)
def test_offsets_that_are_none(offsets: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pt.softmax(torch.zeros(4), offsets=offsets)


def test_edges() -> None:
    z, nothing = torch.zeros(0, 2), torch.zeros(3, dtype=torch.int32)
    assert pt.entmax15(z, 0, offsets=nothing).shape == (0, 2)
    assert pt.entmax15(z, 0, offsets=nothing[:1]).shape == (0, 2)
    y = torch.full((2, 2), -1)
    assert pt.sparsemax_loss(z, y, 0, offsets=nothing, ignore_index=-1) == 0
    with pytest.raises(ValueError, match="label of an empty row must be ignore_index"):
        pt.sparsemax_loss(z, y, 0, offsets=nothing)
    with pytest.raises(TypeError, match="offsets is not for class_weight"):
        pt.sparsemax_loss(z, y, 0, offsets=nothing, class_weight=torch.ones(2))


def test_default_devices_do_not_move_offsets() -> None:
    z, offsets, labels = torch.randn(5), torch.tensor([0, 2, 5]), torch.tensor([0, 2])
    expected = pt.entmax15(z, offsets=offsets), pt.entmax15_loss(z, labels, offsets=offsets)
    with torch.device("meta"):
        found = pt.entmax15(z, offsets=offsets), pt.entmax15_loss(z, labels, offsets=offsets)
    assert torch.equal(found[0], expected[0])
    assert found[1] == expected[1]


def test_tensors_on_the_host_are_not_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 rows took 70 times as long as arrays, which padded tensors cost."""

    def refuse(*args: Any) -> None:
        raise AssertionError("rows were padded")

    monkeypatch.setattr(pt.offsets.Cut, "map_rows", refuse)
    z, alpha = scores(LENGTH, 2), torch.full((len(LENGTHS), 1), 1.3).requires_grad_()
    pt.entmax(z, alpha, 0, offsets=OFFSETS).square().sum().backward()
    assert z.grad.any()
    assert alpha.grad.any()
    assert pt.sparsemax_support(z, 0, offsets=OFFSETS).any(0).all()
    assert pt.log_entmax15(z, 0, offsets=OFFSETS).shape == z.shape


def test_losses_have_second_derivatives_and_those_of_targets() -> None:
    z, q = scores(LENGTH, 2), pt.sparsemax(scores(LENGTH, 2, grad=False), 0, offsets=OFFSETS)
    for reduction in ("mean", "none"):

        def call(z: Any, q: Any, reduction: str = reduction) -> Any:
            q = pt.softmax(q, 0, offsets=OFFSETS)
            return pt.entmax15_loss(z, q, 0, offsets=OFFSETS, reduction=reduction)

        arguments = z, q.requires_grad_()
        assert torch.autograd.gradcheck(call, arguments, fast_mode=True)
        assert torch.autograd.gradgradcheck(call, arguments, fast_mode=True)


def test_derivatives_of_logarithms_and_others() -> None:
    z, alpha = scores(LENGTH, 2), torch.tensor(1.2 + RNG.random((len(LENGTHS), 1)))
    log = lambda z, alpha: pt.log_entmax(z, alpha, 0, offsets=OFFSETS).clamp(min=-9)  # noqa: E731
    assert torch.autograd.gradcheck(log, (z, alpha.requires_grad_()), fast_mode=True)
    _, moved = torch.func.jvp(lambda z: pt.entmax15(z, 0, offsets=OFFSETS), (z,), (z,))
    expected = pt.entmax15(z, 0, offsets=OFFSETS)
    (slope,) = torch.autograd.grad(expected, z, z.detach())  # J is symmetric
    torch.testing.assert_close(moved, slope)
    upper = torch.tensor(0.6 + RNG.random((LENGTH, 2)))
    upper[3] = 1.5  # a row of its own
    upper.requires_grad_()
    call = lambda z, upper: pt.csparsemax(z, upper, 0, offsets=OFFSETS)  # noqa: E731
    z = scores(LENGTH, 2)
    assert torch.autograd.gradcheck(call, (z, upper), atol=1e-4, fast_mode=True)
    p = pt.fusedmax(z, 0.3, 0, offsets=OFFSETS)
    (slope,) = torch.autograd.grad(p.square().sum(), z, create_graph=True)
    with pytest.raises(NotImplementedError, match="fusedmax has no second derivatives"):
        slope.sum().backward()
