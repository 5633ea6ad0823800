"""Few queries of tensors, and screened rows: as float keys, and as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.engine.backends import choice
from pyentmax.sparse_attention import few_queries

torch = pytest.importorskip("torch")
pt = pytest.importorskip("pyentmax.torch")


def tensors(*shapes: tuple[int, ...], seed: int = 0) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("mapping", ["entmax", "entmax15", "sparsemax"])
def test_few_queries_match_whole_matrices(mapping: str, dtype: str) -> None:
    arrays = tensors((2, 6, 1, 16), (2, 2, 1500, 16), (2, 2, 1500, 8))
    query, key, value = (x.to(getattr(torch, dtype)) for x in arrays)
    mask = torch.rand(2, 1, 1, 1500, generator=torch.Generator().manual_seed(1)) < 0.7
    output = pt.attention(query, key, value, mapping=mapping, mask=mask)
    learned = query.clone().requires_grad_()  # by whole matrices, for the derivative
    expected = pt.attention(learned, key, value, mapping=mapping, mask=mask)
    assert output.dtype == query.dtype
    room = {"float32": 1e-5, "float64": 1e-12}.get(dtype, 0.02)
    torch.testing.assert_close(output, expected.detach(), rtol=0, atol=room)


@pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")
def test_few_queries_reach_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    served, forward = [], few_queries.forward
    monkeypatch.setattr(few_queries, "forward", lambda *a: served.append(1) or forward(*a))
    query, key = tensors((4, 1, 16), (4, 1500, 16))
    pt.attention(query, key, key, scale=0.25)
    assert served == [1]
    query.requires_grad_()
    pt.attention(query, key, key).sum().backward()
    assert served == [1]


@pytest.mark.slow
def test_few_queries_compile() -> None:
    query, key, value = tensors((1, 4, 1, 16), (1, 4, 700, 16), (1, 4, 700, 16))

    @torch.compile(fullgraph=True, dynamic=True)
    def step(query: Any, key: Any, value: Any) -> Any:
        return pt.attention(query, key, value, alpha=1.5)

    for n in (700, 650):
        arguments = query, key[:, :, :n], value[:, :, :n]
        torch.testing.assert_close(step(*arguments), pt.attention(*arguments), rtol=0, atol=1e-5)


def test_screened_keys_match_float_keys() -> None:
    query, key, value = tensors((2, 6, 1, 16), (2, 2, 1500, 16), (2, 2, 1500, 8))
    rows = pt.ScreenedRows(key)
    options: list[dict[str, Any]] = [
        {},
        {"alpha": torch.linspace(1.1, 2, 6)},
        {"mask": torch.arange(1500) > 300, "sink": 0.5, "scale": 0.3},
        {"bias": pt.DistanceBias(slopes=torch.linspace(1, 0.1, 6)), "causal": True, "offset": 1499},
        {"bias": tensors((6, 1, 1500), seed=2)[0], "mapping": "sparsemax"},
    ]
    for each in options:
        expected = pt.attention(query, key, value, **each)
        output = pt.attention(query, rows, value, **each)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_as_float_keys(dtype: Any) -> None:
    query, key, value = (
        x.to(dtype) for x in tensors((2, 6, 1, 16), (2, 2, 1500, 16), (2, 2, 1500, 8))
    )
    rows = pt.ScreenedRows(key[:, :, :1400])
    rows.append(key[:, :, 1400:])
    assert torch.equal(rows.rows, key)
    assert repr(rows) == f"ScreenedRows(1500 rows of 16, (2, 2) matrices, {dtype})"
    output = pt.attention(query, rows, value, 1.3, sink=0.5)
    assert output.dtype == dtype
    torch.testing.assert_close(output, pt.attention(query, key, value, 1.3, sink=0.5))
    one = pt.ScreenedRows(key[0, 0])
    p = pt.entmax_linear(query[0, 0].float(), one)
    expected = pt.entmax15(query[0, 0].float() @ key[0, 0].float().T)
    torch.testing.assert_close(p.to_dense(), expected, rtol=0, atol=1e-5)
    beams = rows.take(torch.tensor([1, 1]))
    assert torch.equal(beams.rows, key[[1, 1]])


def test_screened_rows_follow_a_cache() -> None:
    (rows,) = tensors((3, 2, 80, 16))
    screened = pt.ScreenedRows(rows[:, :, :50])
    screened.append(rows[:, :, 50:])
    assert torch.equal(screened.rows, rows)
    beams = screened.take(torch.tensor([1, 1, 0]))
    beams.crop(20)
    assert torch.equal(beams.rows, rows[[1, 1, 0], :, :20])
    assert screened.shape == (3, 2, 80, 16)
    assert screened.dtype == torch.float32
    assert screened.nbytes > rows.nbytes
    assert repr(beams) == "ScreenedRows(20 rows of 16, (3, 2) matrices, torch.float32)"


def test_linear_is_that_of_arrays() -> None:
    pytest.importorskip("scipy")
    x, matrix, bias = tensors((5, 32), (4000, 32), (4000,))
    screened = pt.ScreenedRows(matrix)
    p, counts = pt.entmax_linear(x, screened, 1.4, bias=bias, scale=0.7, return_counts=True)
    arrays = x.numpy(), pe.ScreenedRows(matrix.numpy()), 1.4
    expected = pe.entmax_linear(*arrays, bias=bias.numpy(), scale=0.7)
    assert p.layout == torch.sparse_csr
    np.testing.assert_array_equal(p.to_dense().numpy(), expected.toarray())
    dense = pt.entmax(0.7 * x @ matrix.T + bias, 1.4)
    torch.testing.assert_close(p.to_dense(), dense, rtol=0, atol=1e-5)
    assert (counts.numpy() >= np.diff(expected.indptr)).all()


def test_wrong_arguments_say_what_to_do() -> None:
    query, key = tensors((1, 4), (30, 4))
    rows = pt.ScreenedRows(key)
    for wrong in (key.long(), [[1.0]]):
        with pytest.raises(TypeError, match="expected a tensor of a floating type on the CPU"):
            pt.ScreenedRows(wrong)
    options: list[dict[str, Any]] = [
        {"dropout": 0.1},
        {"softcap": 5.0},
        {"return_weights": True},
        {"cu_seqlens": torch.tensor([0, 1])},
        {"k": 3},
    ]
    for each in options:
        with pytest.raises(ValueError, match="do not go with"):
            pt.attention(query, rows, key, **each)
    with pytest.raises(ValueError, match="expected α-entmax with 1 < alpha <= 2"):
        pt.attention(query, rows, key, mapping="softmax")
    query.requires_grad_()
    for call in (lambda: pt.attention(query, rows, key), lambda: pt.entmax_linear(query, rows)):
        with pytest.raises(TypeError, match="has no gradient"):
            call()
    with torch.no_grad():
        assert pt.attention(query, rows, key).shape == (1, 4)
    with pytest.raises(TypeError, match=r"expected pyentmax.torch.ScreenedRows"):
        pt.entmax_linear(query.detach(), key)
