"""The page of torch operations, for devices without kernels: here the host, without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax.torch as pt  # noqa: E402
from pyentmax.torch import arrays, composed, one_vs_all, operations, sparse_attention  # noqa: E402

RNG = np.random.default_rng(0)
SHAPE = (4, 7)
Z, V = RNG.normal(size=(2, *SHAPE))
MASK = RNG.random(SHAPE) < 0.7
MASK[:, :3] = True
MASK[3] = False
LOSSES = [*(name for name in composed.NAMES if name != "topk_softmax"), "one_vs_all"]
# Sums in another order: a few roundings of numbers up to 1.
ROUNDING = {torch.float32: 2e-6, torch.float64: 4e-15}


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (operations, sparse_attention):
        monkeypatch.setattr(module, "has_kernels", lambda tensor: False)


def test_composed_losses_of_one_vs_all_equal_the_array_function() -> None:
    z, weight = torch.tensor(Z, requires_grad=True), torch.tensor([1.0, 0.5, 2, 1])
    labels, several = torch.tensor([0, 1, 2, 1]), torch.zeros(SHAPE, dtype=torch.float64)
    several[:, :2] = 0.5
    for y, options in (
        (labels, {"ignore_index": 1, "mask": torch.tensor(MASK)}),
        (labels.to(torch.uint8), {"row_weight": weight, "reduction": "sum", "ignore_index": -100}),
        (several, {"reduction": "none"}),
        (labels, {"label_smoothing": 0.1}),
    ):
        arrays = {k: x.numpy() if isinstance(x, torch.Tensor) else x for k, x in options.items()}
        arrays["weight"] = arrays.pop("row_weight", None)
        expected, slope = pe.one_vs_all_loss_and_grad(Z, y.numpy(), **arrays)
        found = pt.one_vs_all_loss(z, y, **options)
        np.testing.assert_allclose(found.detach(), expected, rtol=1e-13, atol=1e-14)
        (gradient,) = torch.autograd.grad(found.sum(), z)
        np.testing.assert_allclose(gradient, slope, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("loss", [pt.entmax15_loss, pt.one_vs_all_loss])
def test_composed_losses_of_wrong_targets(loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_vs_all, "is_unwatched", lambda tensors: False)  # as on a device
    z, y = torch.tensor(Z), torch.tensor([0, 7, 2, -1])
    assert loss(z, y, reduction="none").isnan().tolist() == [False, True, False, True]
    with pytest.raises(ValueError, match=r"y must be integer labels of shape \(4,\) or targets"):
        loss(z, y[:1])


@pytest.mark.parametrize("alpha", [1.001, 1.3, 1.75, 1.99])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_newtons_steps_reach_thresholds_of_hard_rows(alpha: float, dtype: Any) -> None:
    """A dozen are enough from the largest score on, however wide and flat the rows are."""
    for d in (1, 2, 50, 30_000):
        normal = torch.tensor(RNG.normal(size=d), dtype=dtype)
        ties = torch.zeros(d, dtype=dtype)
        ties[: d // 3] = -1
        z = torch.stack([ties * 0, ties, *(normal * s for s in (1e-3, 0.1, 1, 10, 1e4))])
        p, expected = pt.entmax(z, alpha), pe.entmax(z.numpy(), alpha)
        torch.testing.assert_close(p, torch.tensor(expected), rtol=1e-4, atol=8 * ROUNDING[dtype])
        within = 4 * torch.finfo(dtype).eps * d**0.5
        torch.testing.assert_close(p.sum(-1), torch.ones(7, dtype=dtype), rtol=0, atol=within)


def test_dense_attention_equals_the_array_function() -> None:
    query, key, value = (torch.tensor(x) for x in RNG.normal(size=(3, 2, 4, 5, 3)))
    key, value, alpha = key[:, ::2], value[:, ::2], torch.tensor([1.2, 2.0, 1.5, 1.0])
    mask = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.8
    inputs = [query, key, value, alpha.double()]
    for options in ({"causal": True, "offset": 1, "scale": 0.3}, {"mask": mask}):
        arrays = {k: x.numpy() if isinstance(x, torch.Tensor) else x for k, x in options.items()}
        expected = pe.attention(*(x.numpy() for x in inputs), **arrays)
        found = pt.attention(*inputs, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    inputs = [x[:1, : x.shape[1] // 2, :3].clone().requires_grad_() for x in inputs[:3]]
    attended = lambda *inputs: pt.attention(*inputs, 1.4, causal=True)  # noqa: E731
    assert torch.autograd.gradcheck(attended, inputs)
    assert torch.autograd.gradgradcheck(attended, inputs)


def test_other_mappings_name_the_host() -> None:
    z, y = torch.tensor(Z), torch.arange(4)
    for call in (
        lambda: pt.fusedmax(z),
        lambda: pt.normmax.loss(z, y),
        lambda: pt.attention(z, z, z, mapping="csoftmax", upper=0.5),
    ):
        with pytest.raises(
            NotImplementedError, match=r"has no kernel .* on the host, with .cpu\(\)"
        ):
            call()
    with pytest.raises(ValueError, match="alpha must be above 0, got 0"):
        pt.entmax(z, 0)
    assert pt.entmax(z, torch.tensor(0.0)).isnan().all()  # values on a device are not looked at


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("cupy", [True, False])
def test_on_a_gpu(cupy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (operations, sparse_attention):
        monkeypatch.setattr(module, "has_kernels", arrays.has_kernels)
    if cupy:
        pytest.importorskip("cupy")
    else:
        monkeypatch.setattr(arrays, "_cupy", lambda: None)
    z = torch.from_numpy(Z.astype(np.float32)).requires_grad_()
    there = z.detach().cuda().requires_grad_()
    mask, y = torch.from_numpy(MASK), torch.tensor([0, 1, 2, 1])
    for f in (
        lambda z: pt.entmax15(z, mask=mask.to(z.device)),
        lambda z: pt.entmax(z, torch.full((4,), 1.3, device=z.device)),
        lambda z: pt.entmax15_loss(z, y.to(z.device)),
        lambda z: pt.attention(z, z, z, causal=True),
    ):
        expected, found = f(z), f(there)
        torch.testing.assert_close(found.cpu(), expected, rtol=2e-5, atol=2e-6)
        (ours,) = torch.autograd.grad(expected.square().sum(), z)
        (theirs,) = torch.autograd.grad(found.square().sum(), there)
        torch.testing.assert_close(theirs.cpu(), ours, rtol=2e-5, atol=2e-5)
