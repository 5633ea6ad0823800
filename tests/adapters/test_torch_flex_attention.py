"""α-entmax attention by FlexAttention: on the host with a stand-in for its semantics."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install pyentmax[torch]")
library = pytest.importorskip("torch.nn.attention.flex_attention")
if not hasattr(library, "AuxRequest"):
    pytest.skip("FlexAttention returns no largest scores", allow_module_level=True)

import pyentmax.torch as pt  # noqa: E402
from pyentmax.torch import arrays, flex_attention  # noqa: E402

B, H, T, S, D = 2, 4, 9, 11, 3


class StandIn:
    """FlexAttention's semantics by all scores, with the gradient of its log-sum-exp; it counts."""

    passes = 0

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        score_mod: Any = None,
        block_mask: Any = None,
        scale: Any = None,
        enable_gqa: bool = False,
        return_aux: Any = None,
    ) -> Any:
        self.passes += 1
        assert enable_gqa == (query.size(1) != key.size(1))
        key, value = (x.repeat_interleave(query.size(1) // x.size(1), 1) for x in (key, value))
        scores = scale * query @ key.mT
        places = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
        if score_mod is not None:
            scores = score_mod(scores, *places)
        if block_mask is not None:
            scores = torch.where(block_mask.mask_mod(*places), scores, -torch.inf)
        dead = (scores == -torch.inf).all(-1, keepdim=True)
        weights = torch.where(dead, 0, torch.where(dead, 0, scores).softmax(-1))
        if return_aux is None:
            return weights @ value
        lse = torch.where(dead, 0, scores).logsumexp(-1).masked_fill(dead[..., 0], -torch.inf)
        found = {"lse": lse, "max_scores": scores.amax(-1).detach()}
        asked = {name: x if getattr(return_aux, name) else None for name, x in found.items()}
        return weights @ value, library.AuxOutput(**asked)


def inputs(dtype: Any = torch.float64, key_heads: int = H) -> list[Any]:
    shapes = (B, H, T, D), (B, key_heads, S, D), (B, key_heads, S, 2)
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes]
    return [(3 * x if i == 0 else x).to(dtype).requires_grad_() for i, x in enumerate(drawn)]


def cases() -> dict[str, dict[str, Any]]:
    mask = torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[0, 0, 2] = False
    return {
        "1.5": {"alpha": 1.5},
        "1.05": {"alpha": 1.05, "causal": True, "offset": 2},
        "sparsemax": {"alpha": 2.0, "mask": mask},
        "heads": {"alpha": torch.tensor([1.1, 1.4, 1.6, 1.9]).double(), "causal": True},
        "rows without keys": {"alpha": 1.5, "mask": mask, "causal": True, "offset": -1},
    }


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("key_heads", [H, 2])
def test_outputs_and_gradients_equal_dense_entmax(case: str, key_heads: int) -> None:
    options, arrays = cases()[case], inputs(key_heads=key_heads)
    alpha = options.pop("alpha")
    if isinstance(alpha, torch.Tensor):
        arrays.append(alpha.requires_grad_())
    expected = pt.attention(*arrays[:3], alpha, scale=0.7, **options)
    found = flex_attention.flex_attention(
        *arrays[:3], alpha, scale=0.7, passes=9, flex=StandIn(), **options
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    g = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ours, theirs = (torch.autograd.grad(output, arrays, g) for output in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("alpha", [1.01, 1.25, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("kind", ["normal", "steep", "flat", "spike", "causal", "windows"])
def test_few_passes_over_the_scores(kind: str, alpha: float, dtype: Any) -> None:
    generator = torch.Generator().manual_seed(7)
    query, key, value = torch.randn(3, 1, 2, 512, 16, dtype=torch.float64, generator=generator)
    query *= {"steep": 3, "flat": 1e-3}.get(kind, 1)
    if kind == "spike":
        key[:, :, 301] *= 5
    options: dict[str, Any] = {"causal": kind == "causal", "scale": 0.4}
    if kind == "windows":
        apart = torch.arange(512)[:, None] - torch.arange(512)
        options["mask"] = apart.abs() < 3  # of many rows, the sample has no key
    tensors, stand_in = [x.to(dtype) for x in (query, key, value)], StandIn()
    found = flex_attention.flex_attention(*tensors, alpha, flex=stand_in, **options)
    print(kind, alpha, dtype, "passes in all", stand_in.passes)
    half = dtype == torch.float16
    assert stand_in.passes <= (5 + (not half) if alpha <= 1.5 else 7)
    expected = pt.attention(*(x.double() for x in tensors), alpha, **options)
    tolerance = 2e-3 if half else 2e-5  # scores up to 30, rounded by 2e-6
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-2), (torch.float32, 1e-4)])
@pytest.mark.parametrize("alpha", [1.25, 1.5, 1.75, 2.0])
def test_gradients_after_few_passes(alpha: float, dtype: Any, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(1)
    *drawn, g = torch.randn(4, 1, 2, 512, 16, dtype=torch.float64, generator=generator).to(dtype)
    ours, theirs = [x.clone().requires_grad_() for x in drawn], [x.double() for x in drawn]
    theirs = [x.requires_grad_() for x in theirs]
    found = flex_attention.flex_attention(*ours, alpha, scale=0.4, flex=StandIn())
    gradients = torch.autograd.grad(found, ours, g)
    expected = torch.autograd.grad(pt.attention(*theirs, alpha, scale=0.4), theirs, g.double())
    for got, right in zip(gradients, expected, strict=True):
        room = tolerance * right.abs().max().item()
        torch.testing.assert_close(got.double(), right, rtol=0, atol=room)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_clusters_of_scores_converge(alpha: float) -> None:
    generator = torch.Generator().manual_seed(3)
    query, value = torch.ones(1, 1, 64, 16), torch.randn(1, 1, 2048, 16, generator=generator)
    high = torch.rand(1, 1, 2048, 1, generator=generator) < 0.02
    key = (high + 1e-4 * torch.randn(1, 1, 2048, 16, generator=generator)) / 16
    query *= torch.linspace(0.1, 2, 64)[:, None]
    stand_in = StandIn()
    found = flex_attention.flex_attention(query, key, value, alpha, scale=1.0, flex=stand_in)
    assert stand_in.passes <= 10
    expected = pt.attention(query.double(), key.double(), value.double(), alpha, scale=1.0)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=5e-6)


def test_thresholds_of_long_flat_rows_are_precise() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 1, 1, 4096, 16, generator=generator)
    query = torch.cat([1e-3 * query[:, :, :32, :15], torch.ones(1, 1, 32, 1)], -1)
    key[..., 15] = 3  # scores of 3 and a little, whose thresholds one float32 cannot tell apart
    found = flex_attention.flex_attention(query, key, value, 2.0, scale=1.0, flex=StandIn())
    expected = pt.attention(query.double(), key.double(), value.double(), 2.0, scale=1.0)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-5)


def test_alpha_that_it_does_not_serve_gives_nan() -> None:
    alpha, arrays = torch.tensor([0.9, 1.5, 2.1, 2.0]).double(), inputs()
    found = flex_attention.flex_attention(*arrays, alpha, scale=0.7, flex=StandIn())
    assert found.isnan().flatten(2).all(-1).all(0).tolist() == [True, False, True, False]
    assert found[:, [1, 3]].isfinite().all()


def on_the_host(*arrays: Any, return_aux: Any = None, **options: Any) -> Any:
    """FlexAttention itself, but for the largest scores, which it does not return there."""
    if return_aux is None or not return_aux.max_scores:
        return library.flex_attention(*arrays, return_aux=return_aux, **options)
    output, aux = library.flex_attention(
        *arrays, return_aux=library.AuxRequest(lse=True), **options
    )
    return output, aux._replace(
        max_scores=StandIn()(*arrays, return_aux=return_aux, **options)[1].max_scores
    )


@pytest.mark.slow  # PyTorch's compiler takes half a minute
@pytest.mark.filterwarnings("ignore")
def test_flex_attention_itself_and_its_graph_give_the_same_output() -> None:
    arrays, options = [x.detach() for x in inputs(torch.float32)], {"scale": 0.7, "causal": True}
    expected = pt.attention(*arrays, 1.5, **options)
    found = flex_attention.flex_attention(*arrays, 1.5, flex=on_the_host, **options)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    # In a graph that PyTorch compiles, too, and not anew for each number.
    run = torch.compile(flex_attention.flex_attention, backend=backend, fullgraph=True)
    for alpha in (1.5, 1.6, 1.7):
        found = run(*arrays, torch.tensor(alpha), scale=0.7, flex=on_the_host)
        torch.testing.assert_close(
            found, pt.attention(*arrays, alpha, scale=0.7), rtol=0, atol=1e-5
        )
    assert len(graphs) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_cupy", lambda: None)
    host = [torch.randn(2, n, 512, 64).requires_grad_() for n in (4, 2, 2)]
    alpha = torch.tensor([1.2, 1.5, 1.75, 2.0], requires_grad=True)
    for a, options in ((1.5, {}), (1.5, {"causal": True}), (alpha, {"causal": True})):
        device = [x.detach().cuda().requires_grad_() for x in (*host, alpha)]
        on_device = device[3] if a is alpha else a
        assert flex_attention.alpha_for(*device[:3], "entmax", on_device) is not None
        found = pt.attention(*device[:3], on_device, **options)
        expected = pt.attention(*host, a, **options)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=2e-5)
        inputs, theirs = (list(x[:3]) + [x[3]] * (a is alpha) for x in (device, [*host, alpha]))
        gradients = torch.autograd.grad(found.square().sum(), inputs)
        wanted = torch.autograd.grad(expected.square().sum(), theirs)
        for ours, right in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(ours.cpu(), right, rtol=1e-3, atol=3e-4)
