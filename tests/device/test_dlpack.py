"""PyTorch's tensors go in and out by DLPack, in one memory; and the code in docs/gpu.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyentmax

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def run(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, str(PAGE), "exec"), namespace)
    return namespace


def test_the_first_example_runs():
    found = run(BLOCKS[0])
    np.testing.assert_allclose(found["p"].sum(axis=-1), 1, rtol=1e-12)
    assert found["gradient"].shape == found["z"].shape


def test_the_example_with_pytorch_has_the_right_gradient():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    found = run(BLOCKS[1])
    scores = found["scores"].detach().double().requires_grad_()
    assert torch.autograd.gradcheck(found["Entmax15"].apply, scores)
    np.testing.assert_allclose(
        found["weights"].detach(), pyentmax.entmax15(found["scores"].detach().numpy()), rtol=1e-6
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_and_arrays_share_memory(dtype: str):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    scores = torch.randn(3, 7, dtype=getattr(torch, dtype))
    z = np.from_dlpack(scores)
    assert z.ctypes.data == scores.data_ptr()
    before = scores.clone()
    p = pyentmax.sparsemax(z, mask=np.from_dlpack(scores > -1))
    probabilities = torch.from_dlpack(p)
    assert probabilities.data_ptr() == p.ctypes.data
    assert probabilities.dtype == scores.dtype
    assert torch.equal(scores, before)
    assert ((probabilities > 0) <= (scores > -1)).all()


def test_the_result_can_be_written_into_a_tensor():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    scores, out = torch.randn(3, 7), torch.empty(3, 7)
    pyentmax.entmax15(np.from_dlpack(scores), out=np.from_dlpack(out))
    np.testing.assert_array_equal(out.numpy(), pyentmax.entmax15(scores.numpy()))
