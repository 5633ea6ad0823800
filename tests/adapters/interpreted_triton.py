"""The Triton kernels of attention by Triton's interpreter, without a GPU, against dense α-entmax.

Kernels are interpreted only in a process that sets it from the start: `make test-adapters` runs
this file by itself. With PYENTMAX_TEST_TRITON=cuda they are compiled, and run on the GPU.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DEVICE = os.environ.get("PYENTMAX_TEST_TRITON", "cpu")
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install pyentmax[torch]")
pytest.importorskip("triton", reason="Triton is not installed: it comes with PyTorch for CUDA")

from attention_cases import BOOLS, Case, expected, make, names  # noqa: E402
from stages import sample  # noqa: E402
from torch.library import opcheck  # noqa: E402

import pyentmax as pe  # noqa: E402
import pyentmax.torch as pt  # noqa: E402
from pyentmax.torch import triton_attention  # noqa: E402
from pyentmax.torch.attention_problem import TensorProblem  # noqa: E402

# The interpreter computes with NumPy, and −∞ on the way to a weight of 0 makes it warn.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes]


def attend(
    query: Any, key: Any, value: Any, alpha: Any, *, scale: float, causal: bool = False,
    offset: Any = 0, mask: Any = None, sink: Any = None, slopes: Any = None, softcap: Any = None,
    cu_seqlens: Any = (None, None), count: bool = False,
) -> Any:  # fmt: skip
    """The output of the kernels, and with `count` the passes for each threshold."""
    parameter, number = (alpha, None) if isinstance(alpha, torch.Tensor) else (None, alpha)
    offset, offsets = (0, offset) if isinstance(offset, torch.Tensor) else (offset, None)
    problem = TensorProblem(
        query, key, value, "entmax", parameter, number, mask, None, causal, offset, scale, sink,
        slopes, "slopes", *cu_seqlens, offsets, softcap,
    )  # fmt: skip
    output, passes = triton_attention.triton_attention(problem)
    return (output, passes) if count else output


def hidden(*shape: int) -> Any:
    """A mask that hides a block of keys, all keys of a query, and others here and there."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[..., 3, :] = False
    mask[..., 16:50] = False
    return mask


TABLE = names(
    heads=("of their own", "three share", "all share"), keys=BOOLS,
    mapping=("1.5", "per head", "1", "2"), bias=("", "slopes"), scale=("",),
)  # fmt: skip


@pytest.mark.parametrize("name", sample(TABLE, 3))
def test_outputs_and_gradients(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(triton_attention, "TILES", {"ROWS": 16, "KEYS": 16})
    compare(make(name, 20, 40, (16, 16)), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: Any) -> None:
    compare(make("of their own, all, 1.5, , , ", 40, 130, (32, 32)), dtype)


def test_features_that_are_no_power_of_two() -> None:
    compare(make("three share, causal cache, 2, sinks, , ", 40, 75, (48, 20)), torch.float32)


def compare(case: Case, dtype: Any) -> None:
    """Outputs and gradients are those of whole matrices, of what the kernels are given."""
    if "cu_seqlens" in case.options:  # of one batch
        case.g[1:] = 0
    batch = slice(0, 1 if "cu_seqlens" in case.options else None)
    for x in (*case.arrays, case.g):
        x[...] = torch.from_numpy(x).to(dtype).double().numpy()
    results, right = expected(case)
    options, sink = case.options, case.options.get("sink")
    learned = {
        k: torch.tensor(x, device=DEVICE).float().requires_grad_() for k, x in case.learned.items()
    }
    if isinstance(alpha := options["alpha"], np.ndarray):
        alpha = learned["alpha"] = torch.tensor(alpha, device=DEVICE).float().requires_grad_()
    if isinstance(sink, float):
        sink = torch.full((6,), sink, device=DEVICE)
    tensors = [
        torch.tensor(x[batch], device=DEVICE).to(dtype).requires_grad_() for x in case.arrays
    ]
    more = {
        k: torch.as_tensor(options[k], device=DEVICE) for k in ("mask", "offset") if k in options
    }
    if not more.get("offset", torch.ones(1)).ndim:
        more["offset"] = options["offset"]
    if "cu_seqlens" in options:
        more["cu_seqlens"] = tuple(torch.tensor(x, device=DEVICE) for x in options["cu_seqlens"])
    output, passes = attend(
        *tensors, alpha, scale=tensors[0].size(-1) ** -0.5, causal=options.get("causal", False),
        sink=learned.get("sink", sink), slopes=learned.get("bias"), count=True, **more,
    )  # fmt: skip
    output.backward(torch.tensor(case.g[batch], device=DEVICE).to(dtype))
    assert passes.max() <= 7
    pairs = [(output, results["output"][batch])]
    pairs += [(x.grad, right[k][batch]) for k, x in zip(right, tensors, strict=False)]
    pairs += [(x.grad, right[k]) for k, x in learned.items() if k not in ("query", "key", "value")]
    for found, wanted in pairs:
        room = TOLERANCES[dtype] * max(1.0, np.abs(wanted).max())
        found = found.detach().double().cpu().numpy()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=room)


def test_softcap_is_that_of_whole_matrices() -> None:
    numbers = [torch.tensor(x).double() for x in ([1.3, 1.9], [0.5, -1.0], [0.1, 0.02])]
    drawn_ = [*drawn(*3 * [(1, 2, 40, 16)]), *numbers]
    ours = [x.to(DEVICE, torch.float32).requires_grad_() for x in drawn_]
    theirs = [x.requires_grad_() for x in drawn_]
    *arrays, alpha, sink, slopes = ours
    options: dict[str, Any] = {"scale": 0.4, "softcap": 4.0, "causal": True}
    found = attend(*arrays, alpha, sink=sink, slopes=slopes, **options)
    *arrays, alpha, sink, slopes = theirs
    bias = pt.DistanceBias(slopes=slopes)
    right = pt.attention(*arrays, alpha, sink=sink, bias=bias, **options)
    torch.testing.assert_close(found.double().cpu(), right, rtol=0, atol=2e-5)
    pairs = (torch.autograd.grad(x.square().sum(), y) for x, y in ((found, ours), (right, theirs)))
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=2e-4, atol=1e-4)


def rows_of(kind: str, rng: Any) -> tuple[Any, Any]:
    """Queries and keys whose scores are of a kind that thresholds find hard."""
    query, key = rng.normal(size=(64, 16)), rng.normal(size=(300, 16)) / 4
    if kind == "flat":
        key *= 1e-3
    elif kind == "clusters":
        query[:] = 1
        key[:] = (rng.random((300, 1)) < 0.1) / 16 + 1e-5 * rng.normal(size=(300, 1))
    elif kind == "spike":
        key[:, 0], query[:, 0] = 0, 20
        key[100, 0] = 1
    elif kind == "missed by the sample":
        query[:], key[:] = 1, 0
        key[7] = 3.0
    elif kind == "steep":
        key *= 30
    return query, key


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0])
@pytest.mark.parametrize("kind", ["flat", "clusters", "spike", "missed by the sample", "steep"])
def test_hard_rows(kind: str, alpha: float) -> None:
    query, key = (torch.from_numpy(x)[None, None] for x in rows_of(kind, np.random.default_rng(1)))
    (value,) = drawn((1, 1, 300, 16))
    query, key, value = (x.to(DEVICE, torch.float32) for x in (query, key, value))
    output, passes = attend(query, key, value, alpha, scale=1.0, count=True)
    scores = (query.double() @ key.double().mT).cpu().numpy()
    right = pe.entmax.reference(scores, alpha) @ value.double().cpu().numpy()
    print(kind, alpha, "passes", passes.max().item())
    assert passes.max() <= 6
    room = 2e-5 if kind != "steep" else 2e-4  # scores of 100 are rounded by 1e-5
    np.testing.assert_allclose(output.double().cpu().numpy(), right, rtol=0, atol=room)


def test_tiles_without_weight_are_not_read(monkeypatch: Any) -> None:
    """A block of queries looks at one block of keys, another at the next; 0 · NaN would be NaN."""
    monkeypatch.setattr(triton_attention, "TILES", {"ROWS": 16, "KEYS": 16})
    query, key, value, g = (x.to(DEVICE, torch.float32) for x in drawn(*4 * [(1, 1, 32, 16)]))
    query, key = 0.01 * query, 0.01 * key
    for block in (slice(0, 16), slice(16, 32)):
        query[..., block, block.start // 16] += 8
        key[..., block, block.start // 16] += 8
    right = attend(query, key, value, 1.5, scale=1.0)
    value[:, :, 16:], g[:, :, 16:] = torch.nan, torch.nan
    leaves = [x.requires_grad_() for x in (query, key, value)]
    output = attend(*leaves, 1.5, scale=1.0)
    assert torch.equal(output[:, :, :16], right[:, :, :16])
    output.backward(g)
    for x in leaves:
        assert x.grad[:, :, :16].isfinite().all()
        assert x.grad[:, :, :16].any()


@pytest.mark.parametrize("causal", [True, False])
def test_hidden_nan_stays_hidden(causal: bool) -> None:
    query, key, value = (x.to(DEVICE, torch.float32) for x in drawn(*3 * [(1, 1, 40, 16)]))
    mask = torch.ones(40, 40, dtype=torch.bool, device=DEVICE)
    mask[:39, 39], mask[5] = False, False
    options: dict[str, Any] = {"causal": True} if causal else {"mask": mask}
    right = attend(query, key, value, 1.5, scale=0.5, **options)
    assert right[:, :, 5].any() == causal
    key[:, :, 39], value[:, :, 39] = torch.nan, torch.nan
    tensors = [x.requires_grad_() for x in (query, key, value)]
    output = attend(*tensors, 1.5, scale=0.5, **options)
    torch.testing.assert_close(output[:, :, :39], right[:, :, :39], rtol=0, atol=0)
    assert output[:, :, 39].isnan().all()
    output[:, :, :39].sum().backward()
    assert all(x.grad[:, :, :39].isfinite().all() for x in tensors)


def test_pytorch_takes_the_operation_and_its_fake() -> None:
    tensors = [x.to(DEVICE, torch.float32) for x in drawn(*3 * [(1, 2, 8, 16)])]
    alpha = torch.tensor([1.3, 1.6], device=DEVICE, requires_grad=True)
    sink = torch.zeros(2, device=DEVICE, requires_grad=True)
    leaves = [x.requires_grad_() for x in tensors]
    record = TensorProblem(
        *leaves, "entmax", alpha, None, hidden(2, 8, 8).to(DEVICE), None, True, 0, 0.4, sink,
        None, "slopes", None, None, None, 5.0,
    )  # fmt: skip
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    opcheck(torch.ops.pyentmax.triton_attention.default, tuple(record), test_utils=checks)


def test_compiled_graphs_hold_the_operation(monkeypatch: Any) -> None:
    from pyentmax.torch import sparse_attention

    monkeypatch.setattr(sparse_attention, "has_kernels", lambda query: False)
    monkeypatch.setattr(sparse_attention, "_is_long_on_gpu", lambda *_: True)
    called = []

    def backend(graph: Any, _: Any) -> Any:
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    def call(*tensors: Any) -> Any:
        return pt.attention(*tensors, 1.5, causal=True)

    tensors = [x.to(DEVICE, torch.float32) for x in drawn(*3 * [(1, 2, 8, 16)])]
    found = torch.compile(call, backend=backend, fullgraph=True)(*tensors)
    torch.testing.assert_close(found, call(*tensors), rtol=0, atol=1e-6)
    assert "pyentmax.triton_attention.default" in called


def test_alpha_outside_is_nan() -> None:
    query, key, value = (x.to(DEVICE, torch.float32) for x in drawn(*3 * [(1, 3, 8, 16)]))
    alpha = torch.tensor([0.5, 1.5, 2.5], device=DEVICE)
    output = attend(query, key, value, alpha, scale=0.5)
    assert output[:, 1].isfinite().all()
    assert output[:, [0, 2]].isnan().all()


@pytest.mark.parametrize("packed", [False, True])
def test_attention_goes_through_triton(monkeypatch: Any, packed: bool) -> None:
    """As on a GPU without CuPy, whose place the interpreter takes."""
    from pyentmax.torch import sparse_attention

    query, key, value = (x.to(DEVICE, torch.float32) for x in drawn(*3 * [(1, 2, 40, 16)]))
    options: dict[str, Any] = {"causal": True, "sink": torch.zeros(2, device=DEVICE)}
    if packed:
        options["cu_seqlens"] = torch.tensor([0, 15, 40], device=DEVICE)
    options |= {"softcap": 5.0, "mask": hidden(40, 40).to(DEVICE)}
    options["bias"] = pt.DistanceBias(slopes=torch.tensor([0.1, 0.02], device=DEVICE))
    right = pt.attention(query, key, value, 1.5, **options)
    monkeypatch.setattr(sparse_attention, "has_kernels", lambda query: False)
    monkeypatch.setattr(sparse_attention, "_is_long_on_gpu", lambda *_: True)
    assert pt.attention.route(query, key, value, 1.5, **options) == "triton"
    output = pt.attention(query, key, value, 1.5, **options)
    torch.testing.assert_close(output, right, rtol=0, atol=1e-5)
    options["bias"] = pt.DistanceBias(torch.zeros(79, device=DEVICE))
    assert pt.attention.route(query, key, value, 1.5, **options) == "dense"
    assert pt.attention.route(query.double(), key, value, 1.5, causal=True) == "dense"


def test_benchmark_prints_a_row_for_each_case(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import gpu_attention_torch

    monkeypatch.setattr(triton_attention, "TILES", {})
    few = "--tokens 32 --sizes 16 --dtypes float32 --scales 1 --alphas 1.5 --heads 1 --rounds 1"
    gpu_attention_torch.main(f"--device {DEVICE} {few} --rows 16 --keys 16".split())
    printed = capsys.readouterr().out
    table = [line.split(" | ") for line in printed.splitlines() if line.startswith("| 32")]
    assert [len(cells) for cells in table] == 2 * [len(gpu_attention_torch.COLUMNS)]
    assert all(float(cells[7]) < 1e-5 for cells in table)
    if DEVICE == "cpu":
        assert "SKIPPED: adasplash" in printed
        gpu_attention_torch.main([])
        assert "SKIPPED: no CUDA device" in capsys.readouterr().out
