"""PyTorch's tensors go in and out by DLPack, in one memory."""

from __future__ import annotations

import numpy as np
import pytest

import pyentmax


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
