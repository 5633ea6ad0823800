"""Attention of tensors: what changes scores and weights, the routes, and their derivatives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyentmax as pe

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax.torch as pt  # noqa: E402
from pyentmax.torch import dense_attention, operations  # noqa: E402

EXACT = {"rtol": 1e-12, "atol": 1e-13}  # of float64
DIFFERENCES = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-4}


def tensor(*shape: int, seed: int = 0, **options: Any) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator, **options)


def inputs(t: int = 5, s: int = 6, heads: int = 4, key_heads: int = 2) -> list[Any]:
    query = tensor(2, heads, t, 3, seed=1)
    return [query, tensor(2, key_heads, s, 3, seed=2), tensor(2, key_heads, s, 2, seed=3)]


def scores(query: Any, key: Any, scale: float = 3**-0.5) -> Any:
    """Of every query with every key; neighbouring heads of queries share a head of keys."""
    key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    return scale * query @ key.mT


def averages(weights: Any, value: Any) -> Any:
    return weights @ value.repeat_interleave(weights.shape[-3] // value.shape[-3], -3)


@pytest.fixture(params=["dense", "over the support"])
def route(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "over the support":
        monkeypatch.setattr(dense_attention, "LEAST_SCORES", 0)


@pytest.mark.usefixtures("route")
def test_attention_and_its_derivatives() -> None:
    query, key, value = inputs(4, 5)
    alpha = torch.tensor([1.3, 1.5, 1.7, 2.0]).double()
    arrays = [x.numpy() for x in (query, key, value, alpha)]
    expected = pe.attention(*arrays, causal=True, offset=1)
    found = pt.attention(query, key, value, alpha, causal=True, offset=1)
    np.testing.assert_allclose(found, expected, **EXACT)

    def attended(*inputs: Any) -> Any:
        return pt.attention(*inputs, causal=True, offset=1)

    learned = [x[:, :2].clone() for x in (query, key[:, :1], value)] + [alpha[:2].clone()]
    assert torch.autograd.gradcheck(attended, [x.requires_grad_() for x in learned], **DIFFERENCES)
    mask = torch.tensor([True, True, False, True, True])
    expected = pe.attention(*arrays[:3], mapping="topk_softmax", k=2, mask=mask.numpy())
    found = pt.attention(query, key, value, mapping="topk_softmax", k=2, mask=mask)
    np.testing.assert_allclose(found, expected, **EXACT)


@pytest.mark.usefixtures("route")
def test_hidden_keys_may_hold_anything() -> None:
    query, key, value = (x.requires_grad_() for x in inputs(5, 5))
    expected = torch.autograd.grad(pt.attention(query, key, value, causal=True).sum(), query)
    broken = [x.detach().clone() for x in (key, value)]
    broken[0][:, :, 4], broken[1][:, :, 3:] = torch.nan, torch.inf
    output = pt.attention(query, *broken, causal=True)
    torch.testing.assert_close(
        output[:, :, :3], pt.attention(query, key, value, causal=True)[:, :, :3], **EXACT
    )
    (found,) = torch.autograd.grad(output[:, :, :3].sum(), query)
    torch.testing.assert_close(found[:, :, :3], expected[0][:, :, :3], **EXACT)


def test_few_scores_and_one_query_need_no_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "attention", lambda *args: args[0])
    for t, s, causal, is_short in (
        (255, 257, False, True),
        (256, 256, False, False),
        (128, 128, True, False),
        (1, 70_000, False, True),
    ):
        query, key = torch.ones(t, 1), torch.ones(s, 1)
        output = pt.attention(query, key, key, causal=causal)
        assert (output is not query) == is_short


def test_whole_matrices_while_they_fit_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total_memory=128 * 4 * 1000)  # scores for 1,000 entries
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: memory)
    for shape, fits in (((2, 20, 25), True), ((2, 20, 26), False), ((1000, 1, 2), True)):
        assert dense_attention.is_short(shape, False, torch.device("cuda")) == fits


def test_bias_and_softcap_by_definition() -> None:
    query, key, value = inputs()
    bias, mask = tensor(4, 5, 6, seed=4), tensor(5, 6, seed=5) > -1
    capped = 2 * torch.tanh(scores(query, key, scale=0.8) / 2) + bias
    expected = torch.from_numpy(pe.entmax(capped.numpy(), 1.4, mask=mask.numpy()))
    output, weights = pt.attention(
        *inputs(), 1.4, scale=0.8, softcap=2.0, bias=bias, mask=mask, return_weights=True
    )
    torch.testing.assert_close(weights, expected, **EXACT)
    torch.testing.assert_close(output, averages(expected, value), **EXACT)


def test_bias_alone_hides_keys_as_a_mask() -> None:
    mask = tensor(5, 6, seed=5) > -0.5
    mask[2] = False
    bias = torch.where(mask, 0.0, -torch.inf)
    found = pt.attention(*inputs(), bias=bias)
    torch.testing.assert_close(found, pt.attention(*inputs(), mask=mask), **EXACT)
    assert (found[:, :, 2] == 0).all()


def test_gradients_of_bias_and_all_inputs() -> None:
    alpha, bias = torch.tensor([1.3, 1.7]).double(), tensor(2, 1, 4, seed=4)
    arguments = [x.requires_grad_() for x in (*inputs(3, 4, 2, 1), alpha, bias)]

    def attended(query: Any, key: Any, value: Any, alpha: Any, bias: Any) -> Any:
        return pt.attention(query, key, value, alpha, bias=bias, softcap=3.0, causal=True, offset=2)

    assert torch.autograd.gradcheck(attended, arguments, **DIFFERENCES)
    assert torch.autograd.gradgradcheck(attended, arguments, atol=1e-4, fast_mode=True)


def test_dropout_drops_weights_and_keeps_their_mean() -> None:
    query, key, value = tensor(1, 1, 2, 3), tensor(1, 1, 5, 3), tensor(1, 1, 5, 2)
    torch.manual_seed(0)
    many = query.expand(1, 2000, 2, 3)
    output, weights = pt.attention(many, key, value, dropout=0.25, return_weights=True)
    _, whole = pt.attention(query, key, value, return_weights=True)
    assert bool(((weights == 0) | torch.isclose(weights, whole / 0.75, **EXACT)).all())
    torch.testing.assert_close(output, averages(weights, value), **EXACT)
    # The mean of 2000 weights up to 4/3, each with a standard deviation of at most 0.58.
    torch.testing.assert_close(weights.mean(1), whole[0], rtol=0, atol=5 * 0.58 / 2000**0.5)


def test_the_module_drops_in_training_only() -> None:
    arrays = inputs()
    module = pt.Attention(1.4, dropout=0.5, softcap=2.0)
    assert repr(module).startswith("Attention(alpha=1.4, mapping='entmax', causal=False")
    assert not torch.equal(module(*arrays), module(*arrays))
    expected = pt.attention(*arrays, 1.4, softcap=2.0, bias=tensor(5, 6), return_weights=True)
    found = module.eval()(*arrays, bias=tensor(5, 6), return_weights=True)
    for theirs, ours in zip(found, expected, strict=True):
        torch.testing.assert_close(theirs, ours, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_keep_the_dtype_under_autocast(dtype: Any) -> None:
    arrays = [x.to(dtype) for x in inputs()]
    expected = pt.attention(*(x.double() for x in arrays))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, weights = pt.attention(*arrays, return_weights=True)
    assert output.dtype == weights.dtype == dtype
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(output.double(), expected, rtol=rounding, atol=4e-7)


@pytest.mark.parametrize("mapping", ["fusedmax", "csoftmax", "topk_softmax"])
def test_weights_of_any_mapping(mapping: str) -> None:
    name = next(iter(pe.MAPPINGS[mapping].parameters))
    number = {"strength": 0.2, "upper": torch.rand(6, generator=torch.Generator()) + 0.5, "k": 2}
    options = {"mapping": mapping, name: number[name]}
    output, weights = pt.attention(*inputs(), return_weights=True, **options)
    torch.testing.assert_close(output, pt.attention(*inputs(), **options), **EXACT)
    arrays = [x.numpy() if isinstance(x, torch.Tensor) else x for x in (number[name],)]
    expected = pe.MAPPINGS[mapping].forward(scores(*inputs()[:2]).numpy(), *arrays)
    np.testing.assert_allclose(weights, expected, **EXACT)


SINKS: dict[str, dict[str, Any]] = {
    "entmax": {"alpha": 1.4},
    "softmax": {"mapping": "softmax", "causal": True, "offset": -1},
    "sparsemax": {"mapping": "sparsemax", "mask": torch.arange(6) % 3 > 0},
    "topk_softmax": {"mapping": "topk_softmax", "k": 2},
    "topk_sparsemax": {"mapping": "topk_sparsemax", "k": 3},
}


@pytest.mark.parametrize("name", SINKS)
@pytest.mark.parametrize("return_weights", [False, True])
def test_scales_and_sinks_are_those_of_arrays(name: str, return_weights: bool) -> None:
    options, arrays = SINKS[name], inputs()
    more = {"scale": tensor(4, 5, seed=7).exp(), "sink": tensor(4, seed=8)}
    learned = [x.requires_grad_() for x in (*arrays, *more.values())]
    found = pt.attention(*arrays, **more, **options, return_weights=return_weights)
    output = found[0] if return_weights else found
    given = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    given |= {k: v.detach().numpy() for k, v in more.items()}
    numpy = [x.detach().numpy() for x in arrays]
    expected, weights = pe.attention(*numpy, return_weights=True, **given)
    np.testing.assert_allclose(output.detach(), expected, **EXACT)
    if return_weights:
        np.testing.assert_allclose(found[1].detach(), weights.to_dense(), **EXACT)
    gradients = torch.autograd.grad(output.sum(), learned)
    wanted = pe.attention_vjp(weights, *numpy, np.ones_like(expected), **given)
    for theirs, ours in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-10, atol=1e-12)


def test_the_module_learns_scale_and_sink() -> None:
    scale, sink = torch.nn.Parameter(torch.ones(4, 1)), torch.nn.Parameter(torch.zeros(4))
    module = pt.Attention(1.3, scale=scale, sink=sink)
    arrays = [x.to(torch.bfloat16) for x in inputs()]
    output = module(*arrays)
    output.sum().backward()
    assert output.dtype == torch.bfloat16
    assert {name for name, _ in module.named_parameters()} == {"scale", "sink"}
    assert (scale.grad != 0).all()
    assert (sink.grad != 0).all()
    torch.testing.assert_close(pt.attention(*inputs(), sink=-torch.inf), pt.attention(*inputs()))
    with pytest.raises(ValueError, match="sink: expected one of entmax, .* got fusedmax"):
        pt.Attention(mapping="fusedmax", strength=1.0, sink=0.0)
