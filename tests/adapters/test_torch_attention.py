"""Attention of tensors: what changes scores and weights, the routes, and their derivatives."""

from __future__ import annotations

import functools
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

import pyentmax as pe

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

from torch.utils.checkpoint import checkpoint  # noqa: E402

import pyentmax.torch as pt  # noqa: E402
from pyentmax.engine.backends import choice  # noqa: E402
from pyentmax.sparse_attention import route as route_numbers  # noqa: E402
from pyentmax.torch import sparse_attention  # noqa: E402

slow = pytest.mark.slow
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


@pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")
def test_route_says_which_way_a_call_goes() -> None:
    for t, s, causal, learns, way in (
        (255, 257, False, False, "dense"),
        (256, 256, False, False, "sparse"),
        (128, 128, True, False, "sparse"),
        (1, 70_000, False, True, "dense"),
        # Without a gradient, few queries go over many keys as they lie.
        (8, 1023, True, False, "dense"),
        (8, 1024, True, False, "sparse"),
        (8, 1024, False, True, "dense"),
        (9, 1024, False, False, "dense"),
        (1, 70_000, False, False, "short call"),
    ):
        query, key = torch.ones(t, 1, requires_grad=learns), torch.ones(s, 1)
        options = {"causal": causal, "mapping": "entmax", "sink": None, "dropout": 0}
        assert pt.attention.route(query, key, key, **options) == way
    x = torch.ones(2, 400, 4)
    assert pt.attention.route(x[:, :1], pt.ScreenedRows(x), x, scale=1.0) == "screened"
    assert pt.attention.route(x, x, x, mask=torch.zeros(400, 1, dtype=torch.long)) == "sparse"
    assert pt.attention.route(x, x, x, mapping="softmax") == "sdpa"


def test_whole_matrices_while_they_fit_a_gpu() -> None:
    memory = 128 * 4 * 1000  # scores for 1,000 entries
    for shape, fits in (((2, 20, 25), True), ((2, 20, 26), False), ((1000, 1, 2), True)):
        assert route_numbers.is_short(shape, memory=memory) == fits


def test_bias_and_softcap_by_definition() -> None:
    query, key, value = inputs()
    bias, mask = tensor(4, 5, 6, seed=4), tensor(5, 6, seed=5) > -1
    capped = 2 * torch.tanh(scores(query, key, scale=0.8) / 2) + bias
    expected = torch.from_numpy(pe.entmax(capped.numpy(), 1.4, mask=mask.numpy()))
    output, weights = pt.attention(
        *inputs(), 1.4, scale=0.8, softcap=2.0, bias=bias, mask=mask, return_weights=True
    )
    torch.testing.assert_close(weights.to_dense(), expected, **EXACT)
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
    weights, whole = weights.to_dense(), pt.attention(query, key, value, return_weights=True)[1]
    whole = whole.to_dense()
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
    torch.testing.assert_close(found[0], expected[0], **EXACT)
    torch.testing.assert_close(found[1].to_dense(), expected[1].to_dense(), **EXACT)


FLOAT, BFLOAT, DOUBLE = torch.float32, torch.bfloat16, torch.float64
MIXED = [
    *product((FLOAT, BFLOAT), repeat=3),
    (torch.float16, BFLOAT, BFLOAT),
    (DOUBLE, FLOAT, BFLOAT),
    (BFLOAT, FLOAT, DOUBLE),
]
FORMS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"mask": torch.arange(400) % 3 > 0},
    {"scale": torch.tensor(0.4, dtype=torch.float16), "sink": torch.tensor([0.1, 0.2]).double()},
    {"bias": torch.linspace(0, 2, 400, dtype=BFLOAT), "return_weights": True},
]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16])
def test_one_rule_for_mixed_dtypes(autocast: Any) -> None:
    cases = zip(product((20, 400), MIXED), cycle(FORMS), strict=False)
    for i, ((n, dtypes), form) in enumerate(cases):
        options = {k: v[..., :n] if k in ("mask", "bias") else v for k, v in form.items()}
        options["alpha"] = torch.tensor([1.5, 2.0], dtype=torch.float16)
        arrays = [x[:1] for x in inputs(n, n, 2, 1 + i % 2)]
        arrays = [x.to(dtype) for x, dtype in zip(arrays, dtypes, strict=True)]
        expected = torch.promote_types(torch.promote_types(*dtypes[:2]), dtypes[2])
        if autocast and expected != DOUBLE:
            expected = autocast
        with torch.autocast("cpu", autocast or BFLOAT, enabled=autocast is not None):
            found = pt.attention(*arrays, **options)
        exact = pt.attention(*(x.double() for x in arrays), **options)
        pair = (found,), (exact,)
        if isinstance(found, tuple):
            pair = tuple((x[0], x[1].to_dense()) for x in (found, exact))
        for ours, theirs in zip(*pair, strict=True):
            assert ours.dtype == expected
            rounding = max(torch.finfo(expected).eps, 1e-5)
            torch.testing.assert_close(ours.double(), theirs, rtol=rounding, atol=rounding)


def test_gradients_keep_the_dtypes_of_inputs() -> None:
    for dtypes, n in zip(MIXED, cycle((20, 400)), strict=False):
        arrays = [x[:1] for x in inputs(n, n, 2, 1)]
        arrays = [x.to(d).requires_grad_() for x, d in zip(arrays, dtypes, strict=True)]
        more = {"scale": torch.ones(2, 1).half(), "sink": torch.zeros(2).double()}
        learned = [*arrays, *(x.requires_grad_() for x in more.values())]
        with torch.autocast("cpu", BFLOAT):
            output = pt.attention(*arrays, **more)
        gradients = torch.autograd.grad(output.double().square().sum(), learned)
        assert [g.dtype for g in gradients] == [x.dtype for x in learned]
        assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("n", [20, pytest.param(300, marks=slow)])
def test_grouped_heads_in_one_graph(n: int) -> None:
    torch.compiler.reset()
    arrays = inputs(n, n)
    expected = pt.attention(*arrays)
    compiled = torch.compile(pt.attention, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*arrays), expected, **EXACT)
    exported = torch.export.export(pt.Attention(), tuple(arrays), strict=True)
    torch.testing.assert_close(exported.module()(*arrays), expected, **EXACT)


@pytest.mark.parametrize("n", [20, 300])
def test_head_counts_by_one_rule(n: int) -> None:
    query, key, value = (tensor(heads, n, 2) for heads in (6, 2, 3))
    with pytest.raises(ValueError, match="must have one number of heads"):
        pt.attention(query, key, value)
    with pytest.raises(ValueError, match="must have one number of heads"):
        pe.attention(query.numpy(), key.numpy(), value.numpy())
    assert pt.attention(query, key, value[:1]).shape == (6, n, 2)


@pytest.mark.parametrize("n", [20, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_of_meta_tensors(n: int, dtype: Any) -> None:
    arrays = [x.to("meta", dtype).requires_grad_() for x in inputs(n, n)]
    for options in ({}, {"causal": True}, {"mapping": "softmax"}, {"return_weights": True}):
        found = pt.attention(*arrays, **options)
        output = found[0] if isinstance(found, tuple) else found
        assert (output.shape, output.dtype) == ((2, 4, n, 2), dtype)
        output.sum().backward()


@pytest.mark.parametrize("n", [40, pytest.param(200, marks=slow)])
def test_hidden_values_matter_to_no_route(n: int) -> None:
    torch.compiler.reset()
    arrays = [tensor(2, 2, n, 3, seed=i) for i in range(3)]
    for broken, hidden in zip((torch.nan, torch.inf), (n - 2, n - 5), strict=True):
        arrays[1][:, :, hidden:] = arrays[2][:, :, hidden:] = broken
    mask = torch.arange(n) < n - 5

    def attended(query: Any, key: Any, value: Any) -> Any:
        return pt.attention(query, key, value, mask=mask)

    ways = attended, torch.compile(attended, backend="aot_eager"), torch.vmap(attended)
    found = []
    for way in ways:
        learned = [x.clone().requires_grad_() for x in arrays]
        output = way(*learned)
        found.append((output, *torch.autograd.grad(output.square().sum(), learned)))
    for results in zip(*found, strict=True):
        assert all(x.isfinite().all() for x in results)
        for x in results:
            torch.testing.assert_close(x, results[0], **EXACT)


@pytest.mark.parametrize(
    "name",
    ["alpha", "sink", *(pytest.param(x, marks=slow) for x in ("scale", "softcap", "strength"))],
)
def test_a_changing_number_is_compiled_once(name: str) -> None:
    torch.compiler.reset()
    graphs = []

    def backend(graph: Any, example: Any) -> Any:
        graphs.append(graph)
        return graph

    mapping = {"mapping": "fusedmax"} if name == "strength" else {}

    arrays = [tensor(260, 2, seed=i) for i in range(3)]

    def attended(number: float) -> Any:
        return pt.attention(*arrays, **{name: number}, **mapping)

    compiled = torch.compile(attended, backend=backend, fullgraph=True)
    for number in (1.1, 1.3, 1.7, 1.9):  # open from the second on
        torch.testing.assert_close(compiled(number), attended(number), **EXACT)
    assert len(graphs) <= 2


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


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("least", [0, 1 << 16])
def test_weights_are_those_of_arrays(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(route_numbers.LEAST_SCORES, "tensors", least)
    _, expected = pe.attention(*(x.numpy() for x in inputs()), return_weights=True)
    _, weights = pt.attention(*inputs(), return_weights=True)
    for part in ("data", "indices", "indptr", "support_sizes", "density"):
        np.testing.assert_allclose(getattr(weights, part), getattr(expected, part), **EXACT)
    torch.testing.assert_close(weights.csr(1, -1).to_dense(), weights.to_dense()[1, -1])
    with pytest.raises(IndexError, match="no head"):
        weights.csr(2, 0)


def test_weights_of_long_inputs_are_not_made_dense() -> None:
    query, key = torch.randn(2, 2, 300, 8)
    output, weights = pt.attention(query, key, key, return_weights=True)
    assert weights._dense is None
    assert weights.to_dense().shape == (2, 300, 300)
    found = torch.vmap(lambda q: pt.attention(q, key, key, return_weights=True)[1].to_dense())
    torch.testing.assert_close(found(query[None])[0], weights.to_dense())
    compiled = torch.compile(
        lambda q: pt.attention(q, key, key, return_weights=True), backend="aot_eager"
    )
    torch.testing.assert_close(compiled(query)[1].to_dense(), weights.to_dense())


def test_the_derivative_keeps_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [tensor(2, 300, 8, seed=i) for i in range(3)]
    learned = [x.clone().requires_grad_() for x in arrays]
    weights = pe.attention(*(x.numpy() for x in arrays), return_weights=True)[1]
    kept: list[int] = []

    def pack(x: Any) -> Any:
        kept.append(x.numel() if x.dtype == torch.int32 else 0)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        pt.attention(*arrays)
        assert sum(kept) == 0
        pt.attention(*learned)
    assert sum(kept) == len(weights.data)
    output = pt.attention(*learned)
    problem = pe.sparse_attention.problem.AttentionProblem
    forward, calls = problem.forward, []
    counted = lambda *args, **options: calls.append(1) or forward(*args, **options)  # noqa: E731
    monkeypatch.setattr(problem, "forward", counted)
    expected = torch.autograd.grad(output.square().sum(), learned)
    assert not calls
    again = checkpoint(pt.attention, *learned, use_reentrant=False)
    found = torch.autograd.grad(again.square().sum(), learned)
    assert len(calls) == 2
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_softmax_is_pytorchs_own_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(route_numbers.LEAST_SCORES, "tensors", 0)
    for options in ({}, {"causal": True}, {"causal": True, "offset": 1}, {"bias": tensor(5, 6)}):
        found = pt.attention(*inputs(), mapping="softmax", **options)
        expected = pt.attention(*inputs(), mapping="softmax", sink=-torch.inf, **options)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    calls: list[Any] = []
    monkeypatch.setattr(
        "pyentmax.torch.dense_attention.scaled_dot_product_attention",
        lambda query, *args, **options: calls.append(options) or query,
    )
    pt.attention(*inputs(), mapping="softmax")
    assert calls == [{"scale": 3**-0.5, "dropout_p": 0.0, "enable_gqa": True}]


@pytest.mark.parametrize("gamma", [-1.5, 0.0, 1.9])
@pytest.mark.parametrize("features", [0, 6])
def test_a_length_scale_is_finite_and_learned(features: int, gamma: float) -> None:
    options = {"inputs": features} if features else {}
    scale = pt.LengthScale(4, 3, beta=0.2, gamma=gamma, **options)
    x = torch.randn(2, 5, features, generator=torch.Generator().manual_seed(0))
    given = (torch.arange(1, 6), x) if features else (torch.arange(1, 6),)
    expected = (1 + 0.2 * np.log(np.arange(2.0, 7)) ** gamma) / 3**0.5
    found = scale(*given).detach()
    assert found.shape == ((2, 4, 5) if features else (4, 5))
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-5)
    if features:  # a scale of each query
        with torch.no_grad():
            scale.w.normal_(generator=torch.Generator().manual_seed(1))
            scale.u.normal_(generator=torch.Generator().manual_seed(2))
        beta = torch.nn.functional.softplus(x[1, 2] @ scale.w[3] + scale.b[3, 0])
        power = 2 * torch.tanh(x[1, 2] @ scale.u[3] + scale.c[3, 0])
        expected = (1 + beta * np.log(4.0) ** power) / 3**0.5
        torch.testing.assert_close(scale(*given)[1, 3, 2], expected)
    pt.attention(*inputs(5, 5), causal=True, scale=scale(*given)).square().sum().backward()
    for parameter in scale.parameters():
        assert parameter.grad.isfinite().all()
        assert (parameter.grad != 0).any()
    named = ", inputs=6" if features else ""
    assert repr(scale) == f"LengthScale(heads=4, features=3{named})"
    wrong = given[:1] if features else (*given, x)
    with pytest.raises(ValueError, match="x: expected inputs="):
        scale(*wrong)
    with pytest.raises(ValueError, match="beta must be above 0"):
        pt.LengthScale(4, 3, beta=0.0)


def test_a_logarithmic_scale_is_finite_for_one_key() -> None:
    scale, keys = pt.LogScale(4, 3, s=0.7), torch.arange(1, 6)
    expected = 0.7 * np.log(np.arange(1.0, 6)) / 3**0.5
    np.testing.assert_allclose(scale(keys).detach(), np.tile(expected, (4, 1)), rtol=1e-6)
    arrays = inputs(5, 5)
    output = pt.attention(*arrays, causal=True, scale=scale(keys))
    torch.testing.assert_close(output[:, ::2, 0], arrays[2][:, :, 0])
    output.square().sum().backward()
    assert scale.s.grad.isfinite().all()
    assert (scale.s.grad != 0).all()


def test_checkpoints_whose_second_pass_differs_in_digits() -> None:
    """The number of saved weights differs then, which `checkpoint` may be told to ignore."""
    torch.manual_seed(0)
    passes: list[int] = []

    def layer(x: Any) -> Any:
        passes.append(1)
        q = x * (1 + 1e-5 * len(passes))
        return pt.attention(q, q, q)

    start = torch.randn(1, 2, 300, 8)
    gradients, options = [], {"use_reentrant": False, "determinism_check": "none"}
    for run in (layer, functools.partial(checkpoint, layer, **options)):
        x = start.clone().requires_grad_()
        run(x).sum().backward()
        gradients.append(x.grad)
    assert len(passes) == 3
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-3)


@pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")
def test_plain_steps_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = tensor(2, 4, 1, 3), tensor(2, 4, 300, 3), tensor(2, 4, 300, 2, seed=2)
    screened = pt.ScreenedRows(key)
    expected = pe.attention(query.numpy(), key.numpy(), value.numpy(), mapping="entmax")
    monkeypatch.setattr(sparse_attention, "_run", None)
    monkeypatch.setattr(sparse_attention, "screened_attention", None)
    for keys in (key, screened):
        output = pt.attention(query, keys, value)
        np.testing.assert_allclose(output, expected, **EXACT)
    assert torch.equal(pt.attention(query, key, value), torch.from_numpy(expected))
    learned = query.clone().requires_grad_()
    with torch.no_grad():
        assert torch.equal(pt.attention(learned, key, value, 1.5), torch.from_numpy(expected))
    half, few = (x.bfloat16() for x in (query, key, value)), (query, key, value)
    calls: list[tuple[Any, dict[str, Any]]] = [
        ((learned, key, value), {}),
        ((tensor(2, 4, 9, 3), key, value), {}),
        (few, {"scale": 1.0}),
        ((query, screened, value), {"scale": 1.0}),
        ((*few, torch.tensor(1.5)), {}),
        (tuple(half), {}),
    ]
    for arguments, more in calls:
        with pytest.raises(TypeError, match="NoneType"):  # the long way
            pt.attention(*arguments, **more)
    with torch.autocast("cpu"), pytest.raises(TypeError, match="NoneType"):
        pt.attention(query.float(), key.float(), value.float())


@pytest.mark.parametrize("numbers", [torch.rand(2), torch.randn(2, 599)])
def test_distances_store_no_array_of_scores(numbers: Any) -> None:
    query, key = torch.randn(2, 2, 300, 8)
    kept: list[int] = []
    bias = pt.DistanceBias(numbers) if numbers.ndim > 1 else pt.DistanceBias(slopes=numbers)
    numbers.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append(x.numel()) or x, lambda x: x
    ):
        pt.attention(query.requires_grad_(), key, key, bias=bias, causal=True)
    assert max(kept) < 2 * 300 * 300


def test_half_types_and_numbers_of_arrays() -> None:
    query, key = torch.randn(2, 2, 300, 8)
    slopes = np.array([0.1, 0.2])
    expected = pt.attention(query, key, key, bias=pt.DistanceBias(slopes=torch.tensor(slopes)))
    for bias in (pt.DistanceBias(slopes=slopes), pt.DistanceBias(slopes=[0.1, 0.2])):
        torch.testing.assert_close(pt.attention(query, key, key, bias=bias), expected)
    half = [x.bfloat16() for x in (query, key, key)]
    found = pt.attention(*half, bias=pt.DistanceBias(slopes=torch.tensor(slopes).bfloat16()))
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("n", [5, 400])
def test_wrong_arguments_are_refused(n: int) -> None:
    x, of_batch = torch.ones(2, n, 3), "bias of shape .* does not broadcast to the batch"
    whole = torch.ones(2 * n - 1, dtype=torch.int64)
    calls: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "expected T .* numbers", {"bias": pt.DistanceBias(torch.ones(2, 2 * n))}),
        (ValueError, of_batch, {"bias": pt.DistanceBias(slopes=torch.ones(3))}),
        (ValueError, of_batch, {"bias": pt.DistanceBias(torch.ones(3, 2 * n - 1))}),
        (TypeError, "a tensor of a floating dtype", {"bias": pt.DistanceBias(whole)}),
        (ValueError, "cu_seqlens", {"cu_seqlens": torch.tensor([0, 4])}),
        (TypeError, "cu_seqlens", {"cu_seqlens": torch.ones(2)}),
    ]
    for error, message, options in calls:
        with pytest.raises(error, match=message):
            pt.attention(x, x, x, **options)
