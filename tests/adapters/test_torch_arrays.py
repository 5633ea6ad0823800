"""Tensors on other devices: NumPy's bodies as torch operations, here on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.mappings import MAPPINGS

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install pyentmax[torch]")

from pyentmax.torch import arrays  # noqa: E402
from pyentmax.torch.tensor_array import TensorArray  # noqa: E402

RNG = np.random.default_rng(0)
SHAPE = (4, 7)
Z, V = RNG.normal(size=(2, *SHAPE))
MASK = RNG.random(SHAPE) < 0.7
MASK[:, :3] = True
MASK[3] = False
VALUES: dict[str, Any] = {"alpha": 1.3, "k": 2, "strength": 0.2, "upper": 0.4, "budget": 1.5}
# Another order of sums: a few roundings of numbers up to 1, or of slopes up to 10.
ROUNDINGS = {np.float32: 2e-6, np.float64: 4e-15}

pytestmark = pytest.mark.filterwarnings("ignore:.*beta state.*:UserWarning")


@pytest.fixture(autouse=True)
def bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pe.backends.choice, "kernels", dict)


def moved(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return TensorArray(torch.from_numpy(value.copy()))


def assert_same(function: Any, *args: Any, scale: float = 1, **kwargs: Any) -> None:
    """A function gives for tensors what it gives for arrays."""
    expected = function(*args, **kwargs)
    found = function(*map(moved, args), **{name: moved(x) for name, x in kwargs.items()})
    pairs = [x if isinstance(x, tuple) else (x,) for x in (expected, found)]
    for array, ours in zip(*pairs, strict=True):
        array = np.asarray(array)
        assert ours.dtype == array.dtype
        tolerance = scale * ROUNDINGS[array.dtype.type]
        np.testing.assert_allclose(ours.get(), array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MAPPINGS)
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("per_row", [False, True], ids=["number", "rows"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bodies_run_as_torch_operations(name: str, mask: Any, per_row: bool, dtype: Any) -> None:
    record = MAPPINGS[name]
    z, v = Z.astype(dtype), V.astype(dtype)
    values = [VALUES[parameter] for parameter in record.parameters]
    if per_row:
        shape = SHAPE if record.parameters == ("upper",) else SHAPE[:1]
        values = [np.full(shape, value, np.float64) for value in values]
    assert_same(record.forward, z, *values, mask=mask)
    p = record.forward(z, *values, mask=mask)
    assert_same(record.vjp, p, v, *values, mask=mask, scale=10)
    if record.parameter_vjp is not None:
        scores = [z] if record.parameter_vjp_takes_scores else []
        assert_same(record.parameter_vjp, p, v, *values, *scores, mask=mask, scale=100)
    if record.omega is not None:
        named = dict(zip(record.parameters, values, strict=True))
        labels = np.array([0, 1, 2, 1])
        loss = pe.fenchel_young_loss_and_grad
        assert_same(loss, z, labels, name, mask=mask, ignore_index=1, scale=10, **named)


@pytest.mark.parametrize("alpha", [1, 1.5, 3, np.inf])
def test_special_rows_and_alphas(alpha: float) -> None:
    z = np.array([[1, -np.inf, 3, 3], [np.nan, 0, 1, 2], [-np.inf] * 4, [1e30, -1e30, 0, 0]])
    assert_same(pe.entmax, z, alpha)
    p = pe.entmax(z, alpha)
    assert_same(pe.entmax_vjp, p, V[:, :4], alpha, scale=10)
    assert_same(pe.entmax_vjp_alpha, p, V[:, :4], np.full(4, alpha), scale=100)


def test_attention() -> None:
    query, key, value = RNG.normal(size=(3, 2, 5, 3))
    assert_same(pe.attention, query, key, value, np.array([1.2, 2.0]), mask=np.tri(5, dtype=bool))
    assert_same(pe.attention, query, key, value, 1.0, mapping="topk_softmax", k=np.full(2, 2))


def test_other_devices_than_the_host_take_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyentmax.torch as pt

    taken = []

    def on_torch(function: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        taken.append(function)
        lent = {name: arrays._torch(value) for name, value in kwargs.items()}
        return arrays._returned(function(*map(arrays._torch, args), **lent), dtype or args[0].dtype)

    for module in ("mapping", "loss", "attention"):
        monkeypatch.setattr(f"pyentmax.torch.{module}_operations.on_arrays", on_torch)
    z = torch.from_numpy(Z).requires_grad_()
    alpha = torch.full((4,), 1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pt.entmax, (z, alpha))
    assert torch.autograd.gradcheck(lambda z: pt.entmax15_loss(z, torch.arange(4)), z)
    labels, expected = torch.arange(4), pt.entmax15_loss(z, torch.arange(4))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        assert pt.entmax15_loss(z, labels.to(dtype), ignore_index=-253) == expected
    half = z.detach().bfloat16()
    torch.testing.assert_close(pt.entmax15(half), pt.entmax15(half.float()).bfloat16())
    assert len(taken) > 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("cupy", [True, False])
def test_on_a_gpu(cupy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyentmax.torch as pt

    if cupy:
        pytest.importorskip("cupy")
    else:
        monkeypatch.setattr(arrays, "_cupy", lambda: None)
    z = torch.from_numpy(Z.astype(np.float32)).requires_grad_()
    there = z.detach().cuda().requires_grad_()
    mask = torch.from_numpy(MASK)
    y = torch.tensor([0, 1, 2, 1])
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
