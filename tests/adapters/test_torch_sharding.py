"""DTensors, replicated and sharded along the batch: two processes, over gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax.torch as pt  # noqa: E402

if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no distributed package", allow_module_level=True)

RNG = np.random.default_rng(57)
Z, G = RNG.normal(size=(2, 4, 3, 6))
MASK = RNG.random(Z.shape) < 0.8
MASK[..., 0] = True
ALPHA = RNG.uniform(1.1, 2, size=(4, 1))
LABELS = np.where(MASK.argmin(axis=-1) == 0, 1, 0)
LABELS[0, 0] = -1


def calls() -> dict[str, Any]:
    """What is called: of scores, mask, α, labels and a distribute function."""
    return {
        "entmax15": lambda z, mask, alpha, y: pt.entmax15(z, mask=mask),
        "entmax": lambda z, mask, alpha, y: pt.entmax(z, alpha, mask=mask),
        "csparsemax": lambda z, mask, alpha, y: pt.csparsemax(z, 0.6),
        "log_softmax": lambda z, mask, alpha, y: pt.log_softmax(z),
        "bounds": lambda z, mask, alpha, y: pt.csparsemax(z, alpha[..., None]),
        "broadcast": lambda z, mask, alpha, y: pt.sparsemax(z, mask=mask[:1]),
        "loss_none": lambda z, mask, alpha, y: pt.entmax15_loss(
            z, y, reduction="none", ignore_index=-1
        ),
        "loss_sum": lambda z, mask, alpha, y: pt.entmax15_loss(
            z, y, reduction="sum", ignore_index=-1
        ),
        "loss_mean": lambda z, mask, alpha, y: pt.softmax_loss(z, y, ignore_index=-1),
        "loss_weighted": lambda z, mask, alpha, y: pt.entmax_loss(
            z, y.clamp(min=0), 1.3, weight=alpha
        ),
    }


def gradients(call: Any, z: Any, mask: Any, alpha: Any, y: Any, g: Any) -> tuple[Any, Any]:
    result = call(z, mask, alpha, y)
    (
        result * g[..., 0] if result.ndim == 2 else result * g if result.ndim else result
    ).sum().backward()
    return result.detach(), z.grad


def work(rank: int, folder: str) -> None:
    """Compare every call with plain tensors, in one of two processes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    mesh = init_device_mesh("cpu", (2,))
    arrays = (Z, MASK, ALPHA, LABELS, G)
    for name, call in calls().items():
        plain = [torch.tensor(a) for a in arrays]
        expected = gradients(call, plain[0].requires_grad_(), *plain[1:])
        for place in (Replicate(), Shard(0), Shard(1)):
            tensors = [distribute_tensor(torch.tensor(a), mesh, [Replicate()]) for a in arrays]
            tensors[0] = distribute_tensor(torch.tensor(Z), mesh, [place]).requires_grad_()
            result, gradient = gradients(call, *tensors)
            for found, right in zip((result, gradient), expected, strict=True):
                torch.testing.assert_close(found.full_tensor(), right, rtol=1e-14, atol=1e-15)
            if result.ndim:
                assert result.placements == (place,), (name, result.placements)
    spread = distribute_tensor(torch.tensor(Z), mesh, [Shard(2)])
    for call in calls().values():
        with pytest.raises(ValueError, match="rows of a DTensor must lie on one device"):
            call(spread, *tensors[1:4])
    for mapping in ("entmax", "softmax"):
        with pytest.raises(TypeError, match=r"not be a DTensor: pass query.to_local\(\)"):
            pt.attention(spread, spread, spread, mapping=mapping, causal=True)
    torch.distributed.destroy_process_group()


def test_mappings_and_losses_of_sharded_batches(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=2)
