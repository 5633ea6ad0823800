"""Losses of output layers of tensors: values, gradients, dtypes, compilers, training."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")


import pyentmax.torch as pt  # noqa: E402
from pyentmax.torch.linear_loss import _in_chunks  # noqa: E402  # what devices without kernels run

linear_loss_module = sys.modules["pyentmax.torch.linear_loss"]  # the package has the function
CLASSES = 90
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum", "ignore_index": 2},
    {"label_smoothing": 0.1, "row_weight": torch.tensor([1, 0.5, 0, 3])},
    {"weight": torch.linspace(0, 2, CLASSES).double(), "reduction": "none"},
    {"softcap": 1.5, "label_smoothing": 0.1},
    {"softcap": 4.0, "reduction": "none"},
]


def layer(scale: float = 1, dtype: Any = torch.float64) -> tuple[Any, Any, Any, Any]:
    """Inputs (5, 4, 6), rows and a bias that excludes classes, with gradients; labels."""
    draw = torch.Generator().manual_seed(0)
    x = scale * torch.randn(5, 4, 6, generator=draw, dtype=torch.float64)
    rows = torch.randn(CLASSES, 6, generator=draw, dtype=torch.float64)
    bias = torch.randn(CLASSES, generator=draw, dtype=torch.float64)
    bias[-20:] = -torch.inf
    y = torch.randint(0, CLASSES - 20, (5, 4), generator=draw)
    y[0, :2] = 2
    return *(t.to(dtype).requires_grad_() for t in (x, rows, bias)), y


def gradients(loss: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    upstream = torch.linspace(-1, 2, loss.numel(), dtype=loss.dtype).reshape(loss.shape)
    return torch.autograd.grad(loss, tensors, upstream)


@pytest.mark.parametrize("scale", [0.01, 1, 30])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["softmax", "entmax15", "entmax", "topk_sparsemax", "fusedmax"])
def test_losses_and_gradients_equal_those_of_all_scores(
    name: str, options: dict[str, Any], scale: float
) -> None:
    x, rows, bias, y = layer(scale)
    own = {"entmax": {"alpha": 1.3}, "topk_sparsemax": {"k": 3}}.get(name, {})
    if name == "topk_sparsemax" and "label_smoothing" in options:
        return  # infinite
    others = {name: value for name, value in options.items() if name != "softcap"}
    z = x @ rows.T + bias
    if cap := options.get("softcap"):
        z = torch.where(bias.isneginf(), -torch.inf, cap * torch.tanh(z / cap))
    expected = pt.fenchel_young_loss(z, y, name, **others, **own)
    found = pt.linear_loss(x, rows, y, name, linear_bias=bias, chunk=7, **options, **own)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        gradients(found, x, rows, bias), gradients(expected, x, rows, bias), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", ["entmax15", "softmax"])
def test_gradcheck(name: str, reduction: str) -> None:
    x, rows, bias, y = layer()
    bias = bias.detach()[:30].clamp(min=-5).requires_grad_()
    rows = rows.detach()[:30].requires_grad_()

    def loss(x: Any, rows: Any, bias: Any) -> Any:
        options = {"linear_bias": bias, "reduction": reduction, "label_smoothing": 0.1}
        return pt.linear_loss(x, rows, y % 30, name, **options)

    assert torch.autograd.gradcheck(loss, (x, rows, bias))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["entmax15", "entmax", "softmax"])
def test_chunks_of_other_devices_equal_the_hosts(name: str, options: dict[str, Any]) -> None:
    x, rows, bias, y = (t.detach() for t in layer(3))
    options = dict(options)
    if (weight := options.pop("weight", None)) is not None:
        options["row_weight"] = weight[y]
    values = {"row_weight": None, "reduction": "mean", "ignore_index": None}
    values |= {"label_smoothing": 0.0, "chunk": 7, "softcap": None}
    values |= {"upstream": None, "wanted": "xrb", **options}
    supports = None, None, None
    alpha = torch.linspace(1.1, 2, 4).double() if name == "entmax" else None
    if values["reduction"] == "none":
        values["upstream"] = torch.linspace(-1, 2, 20).double().reshape(5, 4)
    setting = (x, rows, bias, y, name, alpha, None, *values.values(), *supports)
    expected = torch.ops.pyentmax.linear_loss(*setting)
    found = _in_chunks(x, rows, bias, y, name, alpha, None, *values.values())
    compared = slice(1 if values["reduction"] == "none" else 0, None)  # gradients alone are used
    for one, other in zip(found[compared], expected[compared], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype: Any) -> None:
    x, rows, bias, y = layer(2, dtype)
    loss = pt.linear_loss(x, rows, y, linear_bias=bias)
    wide = [t.detach().float().requires_grad_() for t in (x, rows, bias)]
    expected = pt.linear_loss(wide[0], wide[1], y, linear_bias=wide[2])
    torch.testing.assert_close(loss, expected.to(dtype), rtol=0, atol=0)
    for one, other in zip(gradients(loss, x, rows, bias), gradients(expected, *wide), strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other.to(dtype))


def test_autocast_returns_float32() -> None:
    x, rows, bias, y = layer(2, torch.float32)
    expected = gradients(pt.linear_loss(x, rows, y, linear_bias=bias), rows)[0]
    with torch.autocast("cpu", torch.bfloat16):
        half = torch.nn.functional.linear(x, torch.eye(6))
        loss = pt.linear_loss(half, rows, y, linear_bias=bias)
    assert (half.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    (found,) = gradients(loss, rows)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_no_gradient_is_computed_where_none_is_needed() -> None:
    x, rows, _, y = layer()
    with torch.no_grad():
        loss = torch.ops.pyentmax.linear_loss
        assert not pt.linear_loss(x, rows, y).requires_grad
        rest = (*(None,) * 3, "mean", None, 0.0, None, None, None, "", *(None,) * 3)
        parts = loss(x, rows, None, y, "entmax15", *rest)
    assert [part.numel() for part in parts] == [1, 0, 0, 0]


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("scale", [0.01, 3])
def test_what_is_frozen_costs_nothing(
    scale: float, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, rows, bias, y = layer(scale)
    options = {"label_smoothing": 0.1, "reduction": reduction, "ignore_index": 2}
    expected = gradients(pt.linear_loss(x, rows, y, linear_bias=bias, **options), x, rows, bias)
    saved, run = [], linear_loss_module.passes
    monkeypatch.setattr(
        linear_loss_module, "passes", lambda *a, **b: saved.append(run(*a, **b)) or saved[-1]
    )
    for learned, one in enumerate(expected):
        tensors = [t.detach().requires_grad_(n == learned) for n, t in enumerate((x, rows, bias))]
        loss = pt.linear_loss(*tensors[:2], y, linear_bias=tensors[2], **options)
        torch.testing.assert_close(gradients(loss, tensors[learned])[0], one, rtol=0, atol=0)
        assert [n for n, part in enumerate(saved.pop()[1:]) if part is not None] == [learned]
        saved.clear()


def test_gradients_may_be_changed_in_place() -> None:
    """They were the tensors that the operation had kept."""
    x, rows, bias, y = layer()
    loss = pt.linear_loss(x, rows, y, linear_bias=bias)
    found = torch.autograd.grad(loss, (x, rows, bias), retain_graph=True)
    expected = [one.clone() for one in found]
    for one in found:
        one.mul_(0.5)
    for one, other in zip(torch.autograd.grad(loss, (x, rows, bias)), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_gradients_of_examples_and_traces() -> None:
    """The backward pass asked for the value of the upstream gradient."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x, rows, _, y = (None if t is None else t.detach() for t in layer())
    x, y = x[0], y[0]
    one = torch.func.grad(lambda rows, x, y: pt.linear_loss(x[None], rows, y[None]))
    found = torch.func.vmap(one, (None, 0, 0))(rows, x, y)
    rows.requires_grad_()
    losses = pt.linear_loss(x, rows, y, reduction="none")
    expected = [torch.autograd.grad(one, rows, retain_graph=True)[0] for one in losses]
    torch.testing.assert_close(found, torch.stack(expected))

    def gradient(x: Any, rows: Any, y: Any) -> Any:
        return torch.autograd.grad(pt.linear_loss(x, rows, y), rows)[0]

    for mode in ("real", "fake", "symbolic"):
        traced = make_fx(gradient, tracing_mode=mode)(x, rows, y)
        torch.testing.assert_close(traced(x, rows, y), gradient(x, rows, y))


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_half_gradients_survive_a_mean_and_a_loss_scale(reduction: str) -> None:
    x = torch.randn(4096, 4, generator=torch.Generator().manual_seed(0)).half().requires_grad_()
    rows = torch.eye(4).repeat(50, 1).div(8).half().requires_grad_()
    wide = [t.detach().double().requires_grad_() for t in (x, rows)]
    y, scale = torch.zeros(4096, dtype=torch.long), 2.0 ** (10 if reduction == "mean" else -2)
    found, expected = [
        torch.autograd.grad(scale * pt.linear_loss(*pair, y, reduction=reduction).sum(), pair)
        for pair in ((x, rows), wide)
    ]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("deviation", "products"), [(3.0, 2), (1e-3, 6)])
def test_losses_of_rows_keep_their_supports(
    deviation: float, products: int, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where these are small, the backward pass multiplies no matrices."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 5, 6, generator=generator, dtype=torch.float64)
    rows = deviation * torch.randn(500, 6, generator=generator, dtype=torch.float64)
    bias = torch.zeros(500, dtype=torch.float64)
    bias[7] = -torch.inf
    y = torch.randint(8, 500, (4, 5), generator=generator)
    y[1, 2] = -1
    upstream = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    count, multiply = [], linear_loss_module._multiply
    monkeypatch.setattr(
        linear_loss_module, "_multiply", lambda *a, **b: count.append(1) or multiply(*a, **b)
    )
    layer = [t.requires_grad_() for t in (x, rows, bias)]
    options = {"ignore_index": -1, "label_smoothing": smoothing, "row_weight": torch.arange(5.0)}
    options |= {"reduction": "none"}
    loss = pt.linear_loss(x, rows, y, linear_bias=bias, chunk=12, **options)
    found = torch.autograd.grad(loss, layer, upstream, retain_graph=True)
    assert len(count) == products
    again = torch.autograd.grad(loss, layer, upstream)
    expected = pt.entmax15_loss(x @ rows.T + bias, y, **options)
    torch.testing.assert_close(loss, expected)
    gradients_of_all = torch.autograd.grad(expected, layer, upstream)
    for one, other, second in zip(found, gradients_of_all, again, strict=True):
        torch.testing.assert_close(one, torch.nan_to_num(other), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(one, second, rtol=0, atol=0)


def test_storage_of_the_caller_stays_resizable_and_unwarned() -> None:
    x, rows, bias, y = (t.detach() for t in layer())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pt.linear_loss(x, rows.requires_grad_(), y, linear_bias=bias).backward()
    for tensor in (x, bias, y):
        tensor.resize_(2, 3)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiles_in_one_graph(reduction: str) -> None:
    x, rows, bias, y = layer()

    def loss(x: Any, rows: Any, bias: Any) -> Any:
        return 2 * pt.linear_loss(x, rows, y, linear_bias=bias, reduction=reduction)

    expected = loss(x, rows, bias)
    found = torch.compile(loss, fullgraph=True, backend="aot_eager")(x, rows, bias)
    for one, other in zip(
        gradients(found, x, rows, bias), gradients(expected, x, rows, bias), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_second_derivatives_are_refused() -> None:
    x, rows, _, y = layer()
    for reduction in ("mean", "none"):
        loss = pt.linear_loss(x, rows, y, reduction=reduction).sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        with pytest.raises(NotImplementedError, match="no second derivatives"):
            torch.autograd.grad(first.sum(), rows)
    assert torch.func.grad(lambda x: pt.linear_loss(x, rows, y))(x).shape == x.shape
    with pytest.raises(NotImplementedError, match="forward mode"):
        torch.func.jvp(lambda x: pt.linear_loss(x, rows, y), (x,), (x,))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"input": torch.zeros(2, 4)}, ValueError, "input must have the shape"),
        ({"linear_bias": torch.zeros(4)}, ValueError, r"linear_bias must have the shape \(5,\)"),
        ({"weight": torch.ones(2, requires_grad=True)}, TypeError, "no gradient in weight"),
        ({"mapping": "linear"}, ValueError, "mapping must be one of"),
        ({"mapping": "csoftmax", "upper": 1}, ValueError, "must have an Ω"),
        ({"alpha": 1.5}, TypeError, "unexpected keyword argument 'alpha'"),
        ({"linear_weight": torch.zeros(5, 3).long()}, TypeError, "linear_weight must be a tensor"),
        ({"target": torch.tensor([0, 5])}, ValueError, "labels must be in 0 … 4"),
        ({"chunk": 0}, ValueError, "chunk must be at least 1"),
    ],
)
def test_wrong_arguments_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"input": torch.zeros(2, 3), "linear_weight": torch.zeros(5, 3)}
    with pytest.raises(error, match=message):
        pt.linear_loss(**{**given, "target": torch.tensor([0, 1]), **changes})


# --- the module, and training with it -------------------------------------------------------------


def test_module_has_the_layer_of_linear() -> None:
    torch.manual_seed(1)
    head = pt.LinearLoss(8, CLASSES, "entmax", bias=True, alpha=1.3, ignore_index=-100)
    torch.manual_seed(1)
    linear = torch.nn.Linear(8, CLASSES)
    assert head.state_dict().keys() == linear.state_dict().keys()
    for one, other in zip(head.parameters(), linear.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    x, y = torch.randn(3, 8), torch.tensor([1, -100, 2])
    expected = pt.entmax.loss(linear(x), y, 1.3, ignore_index=-100)
    torch.testing.assert_close(head(x, y), expected)
    assert "mapping='entmax'" in repr(head)
    with pytest.raises(TypeError, match="unexpected keyword argument 'k'"):
        pt.LinearLoss(8, CLASSES, k=3)
