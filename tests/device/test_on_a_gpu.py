"""What the stand-in for CuPy shows, on CuPy: where a GPU computes; elsewhere skipped, saying why.

Sums are taken in another order there, so that results agree to rounding and no further.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax.engine.calls.devices import device_module
from pyentmax.reference.mappings import MAPPINGS

try:
    cupy = device_module("cuda")
except (ImportError, ValueError) as error:
    pytest.skip(str(error), allow_module_level=True)

RNG = np.random.default_rng(0)
Z, V = RNG.normal(size=(2, 64, 33))
MASK = RNG.random(Z.shape) < 0.8
PARAMETERS: dict[str, Any] = {"alpha": 1.3, "k": 4, "strength": 0.05, "upper": 0.2, "budget": 3.5}


def on_gpu(x: Any) -> Any:
    return cupy.asarray(x) if isinstance(x, np.ndarray) else x


def assert_close(function: Any, *args: Any, **kwargs: Any) -> None:
    """The body gives the same on the host and on the GPU, and the kernel, if any, too."""
    expected = function(*args, **kwargs)
    moved, options = map(on_gpu, args), {key: on_gpu(x) for key, x in kwargs.items()}
    moved = tuple(moved)
    for run in {function, getattr(function, "reference", function)}:
        found = run(*moved, **options)
        pairs = (x if isinstance(x, tuple) else (x,) for x in (expected, found))
        for mine, theirs in zip(*pairs, strict=True):
            assert isinstance(theirs, cupy.ndarray)
            assert theirs.dtype == mine.dtype
            np.testing.assert_allclose(theirs.get(), mine, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("name", MAPPINGS)
def test_mappings(name: str, mask: Any) -> None:
    record = MAPPINGS[name]
    params = [PARAMETERS[parameter] for parameter in record.parameters]
    assert_close(record, Z, *params, mask=mask)
    p = record(Z, *params, mask=mask)
    assert_close(record.jvp, p, V, *params, mask=mask)
    assert_close(record.jacobian, p, *params)
    if record.regularizer.is_defined:
        named = dict(zip(record.parameters, params, strict=True))
        labels = np.arange(64) % 33 if mask is None else MASK.argmax(axis=-1)
        loss = pyentmax.fenchel_young_loss_and_grad
        assert_close(loss, Z, labels, name, mask=mask, reduction="none", **named)


def test_tensors_of_pytorch_share_their_memory() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU here")
    scores = torch.randn(8, 100, device="cuda")
    z = cupy.from_dlpack(scores)
    assert z.data.ptr == scores.data_ptr()
    p = torch.from_dlpack(pyentmax.sparsemax(z))
    assert p.device.type == "cuda"
    np.testing.assert_allclose(
        p.cpu().numpy(), pyentmax.sparsemax(scores.cpu().numpy()), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_attention_and_its_gradients(alpha: float) -> None:
    query, key, value, g = RNG.normal(size=(4, 2, 4, 70, 16))
    key, value = key[:, :2], value[:, :2]  # grouped heads
    there = [cupy.asarray(x) for x in (query, key, value)]
    named = {"causal": True, "return_weights": True}
    output, kept = pyentmax.attention(*there, alpha, **named)
    expected, weights = pyentmax.attention(query, key, value, alpha, **named)
    found = pyentmax.attention_vjp(kept, *there, cupy.asarray(g), alpha, causal=True)
    wanted = pyentmax.attention_vjp(weights, query, key, value, g, alpha, causal=True)
    pairs = [(output, expected), (kept.to_dense(), weights.to_dense())]
    for theirs, mine in [*pairs, *zip(found, wanted, strict=True)]:
        assert isinstance(theirs, cupy.ndarray)
        np.testing.assert_allclose(theirs.get(), mine, rtol=0, atol=1e-10)
    slope = pyentmax.attention_vjp_alpha(kept, there[2], cupy.asarray(g), alpha)
    wanted_slope = pyentmax.attention_vjp_alpha(weights, value, g, alpha)
    np.testing.assert_allclose(slope.get(), wanted_slope, rtol=1e-9)


def test_attention_makes_no_array_of_scores() -> None:
    x = cupy.asarray(RNG.normal(size=(3, 1, 16384, 16)).astype(np.float32) * 3)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    with pool_limit(pool, 900 << 20):  # all scores are 1 GiB
        output, weights = pyentmax.attention(*x, 2.0, return_weights=True)
        gradients = pyentmax.attention_vjp(weights, *x, output, 2.0)
    assert all(bool(cupy.isfinite(y).all()) for y in gradients)


@contextmanager
def pool_limit(pool: Any, size: int) -> Iterator[None]:
    """Let CuPy have so many bytes at most."""
    before = pool.get_limit()
    pool.set_limit(size=size)
    try:
        yield
    finally:
        pool.set_limit(size=before)
