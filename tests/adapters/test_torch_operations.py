"""The operations registered with PyTorch: values, derivatives, batching, graphs."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.mappings import MAPPINGS

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install pyentmax[torch]")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.library import opcheck  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import pyentmax.torch as pt  # noqa: E402

VALUES: dict[str, Any] = {"alpha": 1.3, "k": 2, "strength": 0.2, "upper": 0.4, "budget": 1.5}
SEPARABLE = [name for name, record in MAPPINGS.items() if record.support_alpha or name == "entmax"]
WITH_LOSS = [name for name, record in MAPPINGS.items() if record.omega is not None]
# Steps of 1e-6 in float64, on functions whose slopes are about 1.
DIFFERENCES = {"eps": 1e-6, "atol": 1e-5, "rtol": 1e-3}
ROUNDING = {"rtol": 1e-6, "atol": 1e-6}  # of float32, where sums run in another order

each_mapping = pytest.mark.parametrize("name", MAPPINGS)


def of(name: str) -> list[Any]:
    """A value for the mapping's parameter, if it has one."""
    return [VALUES[parameter] for parameter in MAPPINGS[name].parameters]


def tensor(*shape: int, dtype: Any = torch.float64, seed: int = 0, grad: bool = True) -> Any:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, dtype=torch.float64, generator=generator)
    return values.to(dtype).requires_grad_(grad)


# --- values ---------------------------------------------------------------------------------------


@each_mapping
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_those_of_the_arrays(name: str, dtype: Any) -> None:
    z = tensor(3, 4, 5, dtype=dtype, grad=False)
    mask = tensor(3, 4, 5, seed=1, grad=False) > -0.5
    mask[..., :3] = True  # room for what sums to more than 1, and for bounds
    expected = MAPPINGS[name].forward(z.numpy(), *of(name), axis=1)
    np.testing.assert_array_equal(getattr(pt, name)(z, *of(name), dim=1), expected)
    expected = MAPPINGS[name].forward(z.numpy(), *of(name), mask=mask.numpy())
    np.testing.assert_array_equal(getattr(pt, name)(z, *of(name), mask=mask), expected)


def test_the_host_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    z = tensor(2, 5, dtype=torch.float32)
    seen = {}

    def forward(array: np.ndarray, *, mask: Any) -> np.ndarray:
        seen["z"], seen["p"] = array, pe.softmax(array)
        return seen["p"]

    record = copy.copy(MAPPINGS["softmax"])
    object.__setattr__(record, "forward", forward)
    monkeypatch.setitem(MAPPINGS, "softmax", record)
    p = pt.softmax(z)
    assert seen["z"].ctypes.data == z.data_ptr()
    assert seen["p"].ctypes.data == p.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype: Any) -> None:
    z = tensor(8, 300, dtype=dtype)
    g = tensor(8, 300, dtype=dtype, seed=1, grad=False)
    p = pt.entmax15(z)
    p.backward(g)
    wide = z.detach().float().requires_grad_()
    torch.testing.assert_close(p, pt.entmax15(wide).to(dtype), rtol=0, atol=0)
    assert z.grad is not None
    assert z.grad.dtype == dtype
    # p itself is rounded to the dtype before its derivative is taken.
    (expected,) = torch.autograd.grad(pt.entmax15(wide), wide, g.float())
    torch.testing.assert_close(z.grad.float(), expected, rtol=0.02, atol=0.02)
    y = torch.zeros(8, dtype=torch.int64)
    assert pt.entmax15_loss(z, y).dtype == dtype


@pytest.mark.parametrize("name", ["csparsemax", "csoftmax"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_at_its_bound_is_so_in_half_precision(name: str, dtype: Any) -> None:
    """p is rounded, and was compared with bounds that were not."""
    for number in range(40):
        rng = np.random.default_rng(number)
        g = rng.integers(-4, 5, 4).astype(float)
        full = rng.uniform(0.3, 0.4, 2)  # of what scores highest; the others are far from theirs
        z, upper = np.array([3.0, 2.5, 0.5, 0.25]), np.append(full, [0.9, 0.9])
        p = getattr(pe, name)(z, upper)
        of_scores = getattr(pe, f"{name}_vjp")(p, g, upper)
        seen = (z,) if MAPPINGS[name].parameter_vjp_takes_scores else ()
        of_bounds = getattr(pe, f"{name}_vjp_upper")(p, g, upper, *seen)
        assert (p[:2] == full).all()
        scores = torch.tensor(z, dtype=dtype, requires_grad=True)
        bounds = torch.tensor(upper, requires_grad=True)
        getattr(pt, name)(scores, upper=bounds).backward(torch.tensor(g, dtype=dtype))
        assert scores.grad is not None
        assert bounds.grad is not None
        np.testing.assert_allclose(scores.grad.float(), of_scores, rtol=0, atol=0.03)
        np.testing.assert_allclose(bounds.grad, of_bounds, rtol=0, atol=0.03)
    # One bound for all, a number, that leaves no room.
    for d in range(2, 40):
        scores = torch.zeros(d, dtype=dtype, requires_grad=True)
        getattr(pt, name)(scores, upper=1 / d).backward(torch.arange(d, dtype=dtype))
        assert scores.grad is not None
        assert not scores.grad.any()


def test_a_masked_row_is_zeros_with_zero_gradients() -> None:
    z = tensor(2, 4)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    for p in (pt.entmax15(z, mask=mask), pt.softmax(z.masked_fill(~mask, -torch.inf))):
        assert not p[1].any()
        (gradient,) = torch.autograd.grad(p, z, tensor(2, 4, seed=1, grad=False))
        assert gradient[0].any()
        assert not gradient[1].any()


def test_other_dimensions_and_names_of_parameters() -> None:
    z = tensor(3, 4, 5, grad=False)
    alpha = 1 + torch.rand(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = pe.entmax(z.numpy(), alpha.numpy(), axis=1)
    for p in (pt.entmax(z, alpha, 1), pt.entmax(z, alpha=alpha, dim=-2)):
        np.testing.assert_array_equal(p, expected)
    upper = torch.full((4, 1), 0.4, dtype=torch.float64)
    expected = pe.csoftmax(z.numpy(), upper.numpy(), axis=1)
    np.testing.assert_array_equal(pt.csoftmax(z, upper, dim=1), expected)


def test_errors_say_what_is_wrong() -> None:
    z = tensor(2, 3)
    with pytest.raises(TypeError, match=r"floating dtype, got torch.int64; .* z.float\(\)"):
        pt.softmax(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=r"alpha must be at least 1, got 0.5"):
        pt.entmax(z, 0.5)
    with pytest.raises(TypeError, match=r"topk_softmax\(\) missing a required argument: 'k'"):
        pt.topk_softmax(z)
    with pytest.raises(TypeError, match=r"entmax\(\) got an unexpected keyword argument 'beta'"):
        pt.entmax(z, beta=2)
    with pytest.raises(TypeError, match=r"entmax\(\) got two values for alpha"):
        pt.entmax(z, 1.5, alpha=2)
    with pytest.raises(TypeError, match=r"entmax_loss has no gradient in alpha"):
        pt.entmax_loss(z, torch.tensor([0, 1]), torch.tensor(1.5, requires_grad=True))
    with pytest.raises(NotImplementedError, match="normmax has no derivative in alpha"):
        pt.normmax(z, torch.tensor(1.5, requires_grad=True)).sum().backward()
    for module in (pt.Entmax15Loss, pt.EntmaxLoss):
        with pytest.raises(TypeError, match="got weight; weight and mask go with the scores"):
            module(weight=torch.ones(3))
    with pytest.raises(ValueError, match="mapping must be one of softmax, .*, got 'soft'"):
        pt.attention(z, z, z, mapping="soft")


@pytest.mark.parametrize(
    "y",
    [
        torch.tensor([1]),
        torch.tensor([[1], [0]]),
        torch.tensor([1, 2, 0]),
        torch.tensor(1),
        torch.tensor([True, False, True, True]),
        torch.tensor([0.0, 1, 2, 1]),
        torch.zeros(1, 3),
    ],
    ids=lambda y: f"{y.dtype}-{tuple(y.shape)}",
)
def test_targets_of_one_vs_all_are_not_broadcast(y: Any) -> None:
    """One label served for all rows, and a bool for a label of class 0 or 1."""
    expected = r"y must be integer labels of shape \(4,\) or targets of shape \(4, 3\), got dtype"
    with pytest.raises(ValueError, match=expected):
        pt.one_vs_all_loss(tensor(4, 3), y)


def test_errors_of_the_sigmoid_loss_name_what_was_passed() -> None:
    z = tensor(4, 3)
    with pytest.raises(
        ValueError, match=r"^alpha of shape \(2, 3\) does not .* z, of shape \(4, 3\)"
    ):
        pt.entmax_sigmoid_loss(z, z > 0, torch.full((2, 3), 1.5))
    for loss in (pt.entmax_sigmoid_loss, pt.one_vs_all_loss):
        with pytest.raises(ValueError, match=r"^targets y must be in \[0, 1\], got 2"):
            loss(z, torch.full((4, 3), 2.0))
        with pytest.raises(TypeError, match=r"^y must hold real numbers, got torch\.complex64"):
            loss(z, torch.zeros(4, 3, dtype=torch.complex64))
    for name in ("entmax_sigmoid_loss", "one_vs_all_loss"):
        with pytest.raises(TypeError, match=f"^{name} has no gradient in alpha"):
            getattr(pt, name)(z, z > 0, torch.tensor(1.5, requires_grad=True))
    with pytest.raises(TypeError, match="dim"):  # of which it has none: it took it for another one
        pt.entmax_sigmoid_loss(z, z > 0, dim=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="z is 0-dimensional"):
        pt.one_vs_all_loss(z[0, 0], torch.tensor(1))


NO_TENSORS = [[[1.0, 2.0]], None, "scores", 2.5, np.zeros((2, 3))]


@pytest.mark.parametrize("value", NO_TENSORS, ids=lambda value: type(value).__name__)
def test_what_is_no_tensor_is_refused_by_its_name(value: Any) -> None:
    z, y, came = tensor(2, 3), torch.tensor([0, 1]), type(value).__name__
    targets = torch.zeros(2, 3)
    calls = {
        "z": [
            lambda: pt.entmax15(value),
            lambda: pt.csoftmax(value, 1.0, dim=0),
            lambda: pt.entmax_loss(value, y),
            lambda: pt.entmax_sigmoid(value),
            lambda: pt.entmax_sigmoid_loss(value, targets),
            lambda: pt.one_vs_all_loss(value, y),
            lambda: pt.fenchel_young_loss(value, y),
        ],
        "y": [
            lambda: pt.entmax15_loss(z, value),
            lambda: pt.entmax_sigmoid_loss(z, value),
            lambda: pt.one_vs_all_loss(z, value),
        ],
        "query": [lambda: pt.attention(value, z, z)],
        "key": [lambda: pt.attention(z, value, z)],
        "value": [lambda: pt.attention(z, z, value)],
    }
    if value is not None:
        calls["mask"] = [
            lambda: pt.entmax15(z, mask=value),
            lambda: pt.entmax15(z, dim=0, mask=value),
            lambda: pt.softmax_loss(z, y, mask=value),
            lambda: pt.entmax_sigmoid(z, mask=value),
            lambda: pt.one_vs_all_loss(z, y, mask=value),
            lambda: pt.attention(z, z, z, mask=value),
        ]
        calls["weight"] = [
            lambda: pt.softmax_loss(z, y, weight=value),
            lambda: pt.one_vs_all_loss(z, y, weight=value),
        ]
    if type(value) is not float:
        calls["alpha"] = [
            lambda: pt.entmax(z, value),
            lambda: pt.entmax_sigmoid(z, value),
            lambda: pt.attention(z, z, z, value),
        ]
        if type(value) is not np.ndarray:
            calls["dim"] = [
                lambda: pt.softmax(z, dim=value),
                lambda: pt.softmax_loss(z, y, dim=value),
                lambda: pt.one_vs_all_loss(z, y, dim=value),
            ]
    for name, several in calls.items():
        for call in several:
            told = f"^{name} must be .*got ({came}|'scores'|None|\\[)"
            with pytest.raises(TypeError, match=told):
                call()


def test_scores_that_cannot_be_computed_with_are_refused_by_their_type() -> None:
    z = torch.zeros(2, 3)
    for call in (pt.sparsemax, pt.entmax_sigmoid):
        with pytest.raises(TypeError, match=r"z must be a dense Tensor, .*; .*z.to_dense\(\)"):
            call(z.to_sparse())
        for other in (z.to(torch.complex64), z.to(torch.float8_e4m3fn), z.bool()):
            with pytest.raises(TypeError, match="z must be a tensor of a floating dtype, got"):
                call(other)


def test_shapes_that_do_not_fit_are_told() -> None:
    z, y = torch.zeros(2, 3), torch.tensor([0, 1])
    mask = torch.ones(2, dtype=torch.bool)
    for call in (pt.entmax_sigmoid, pt.softmax, lambda z, mask: pt.softmax(z, 0, mask=mask)):
        with pytest.raises(ValueError, match=r"mask of shape \(2,\) does not broadcast to z"):
            call(z, mask=mask)
        with pytest.raises(TypeError, match=r"mask must be boolean, .* got (dtype|torch.)"):
            call(z, mask=torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"weight of shape \(3,\) does not broadcast"):
        pt.one_vs_all_loss(z, y, weight=torch.ones(3))
    with pytest.raises(ValueError, match=r"alpha of shape \(2,\) does not broadcast to z"):
        pt.entmax_sigmoid(z, torch.ones(2))
    with pytest.raises(ValueError, match=r"y must be targets of shape \(2, 3\), got shape \(2,\)"):
        pt.entmax_sigmoid_loss(z, y)
    for loss in (pt.softmax_loss, pt.one_vs_all_loss):
        with pytest.raises(TypeError, match="ignore_index must be a whole number or None, got 1.5"):
            loss(z, y, ignore_index=1.5)
        with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\], got 1.5"):
            loss(z, y, label_smoothing=1.5)
        with pytest.raises(TypeError, match="label_smoothing must be a number"):
            loss(z, y, label_smoothing=None)


@pytest.mark.parametrize("label", [-1, 4, -100])
def test_a_label_of_no_class_is_refused(label: int) -> None:
    """It was taken for a row of which no class is right."""
    z, y = tensor(3, 4), torch.tensor([0, label, 3])
    with pytest.raises(ValueError, match=rf"labels must be in 0 … 3, got {label}; rows to leave"):
        pt.one_vs_all_loss(z, y)
    left = pt.one_vs_all_loss(z, y, ignore_index=label)
    torch.testing.assert_close(left, pt.one_vs_all_loss(z[::2], y[::2]))
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False  # a row that does not count
    torch.testing.assert_close(left, pt.one_vs_all_loss(z, y, mask=mask))
    # Where labels are not looked at, its loss is no number.
    each = torch.func.vmap(pt.one_vs_all_loss)(z.detach()[:, None], y[:, None])
    assert each.isnan().tolist() == [False, True, False]


def test_the_mean_of_one_vs_all_losses_depends_on_the_ratios_of_weights_alone() -> None:
    z, y = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2])
    for weight in ([3e38, 3e38, 1.0], [1e-45, 1e-45, 0.0]):
        expected = pe.one_vs_all_loss(z.numpy(), y.numpy(), weight=np.float32(weight))
        found = pt.one_vs_all_loss(z, y, weight=torch.tensor(weight))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    each = pt.one_vs_all_loss(z, y, weight=torch.tensor([-1.0, 1, 1]), reduction="none")
    assert each.isnan().tolist() == [True, False, False]
    assert pt.one_vs_all_loss(z[:0], y[:0]) == 0


@pytest.mark.parametrize("loss", ["one_vs_all_loss", "entmax15_loss"])
def test_labels_may_be_bytes(loss: str) -> None:
    """Of 256 classes every label was refused, and 156 was taken for an ignore_index of −100."""
    z, y = tensor(3, 256), torch.tensor([0, 156, 255])
    of = getattr(pt, loss)
    found = of(z, y.to(torch.uint8), ignore_index=-100)
    assert found == of(z, y)
    second = []
    for value in (found, of(z, y)):
        (slope,) = torch.autograd.grad(value, z, create_graph=True)
        second += torch.autograd.grad(slope, z, z.detach())
    assert torch.equal(*second)


def test_more_rows_than_float16_can_count_have_a_mean() -> None:
    z = tensor(70_000, 2, dtype=torch.float16)
    y = torch.zeros(len(z), dtype=torch.long)
    loss = pt.one_vs_all_loss(z, y)
    expected = pe.one_vs_all_loss(z.detach().numpy(), y.numpy())
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-3)
    assert torch.autograd.grad(loss, z)[0].any()


@pytest.mark.parametrize("loss", ["one_vs_all_loss", "entmax15_loss"])
def test_a_row_of_weight_0_may_hold_anything(loss: str) -> None:
    """The gradient of one against all, and second derivatives, were NaN in that row."""
    z = tensor(3, 4, grad=False)
    z[1] = torch.nan
    z.requires_grad_()
    y, weight = torch.tensor([0, -100, 2]), torch.tensor([1.0, 0.0, 1.0])
    total = getattr(pt, loss)(z, y, weight=weight)
    (gradient,) = torch.autograd.grad(total, z, create_graph=True)
    expected = getattr(pe, f"{loss}_and_grad")(z.detach().numpy(), y.numpy(), weight=weight.numpy())
    np.testing.assert_allclose(total.detach(), expected[0], rtol=1e-12)
    np.testing.assert_allclose(gradient.detach(), expected[1], rtol=1e-12, atol=1e-15)
    (second,) = torch.autograd.grad(gradient, z, torch.ones_like(z))
    assert not second.isnan().any()


@pytest.mark.parametrize("alpha", [1, 1.5, 2, 3])
def test_the_loss_of_the_sigmoid_has_no_end_where_its_score_has_none(alpha: float) -> None:
    for z, y in ((np.inf, 0.0), (-np.inf, 0.5), (np.inf, 1.0), (-np.inf, 0.0)):
        expected, slope = pe.entmax_sigmoid_loss_and_grad(np.array(z), np.array(y), alpha)
        scores = torch.tensor(z, dtype=torch.float64, requires_grad=True)
        loss = pt.entmax_sigmoid_loss(scores, torch.tensor(y, dtype=torch.float64), alpha)
        (found,) = torch.autograd.grad(loss, scores)
        assert loss == expected
        assert found == slope


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_targets_in_half_precision_sum_to_1_as_well_as_they_can(dtype: Any) -> None:
    # 1/13 in bfloat16 is off by nearly 2⁻⁸ of itself, and so is thirteen times it.
    for d in (3, 7, 11, 13, 43, 100):
        z, uniform = torch.zeros(2, d, dtype=dtype), torch.full((2, d), 1 / d, dtype=dtype)
        assert pt.softmax_loss(z, uniform).isfinite()


# --- derivatives ----------------------------------------------------------------------------------


@each_mapping
def test_derivatives_in_the_scores(name: str) -> None:
    f = getattr(pt, name)
    assert torch.autograd.gradcheck(lambda z: f(z, *of(name), dim=0), tensor(3, 4), **DIFFERENCES)


@pytest.mark.parametrize("name", [n for n, r in MAPPINGS.items() if r.parameter_vjp is not None])
def test_derivatives_in_a_parameter(name: str) -> None:
    shape = (3, 4) if MAPPINGS[name].parameters == ("upper",) else (3,)
    value = torch.full(shape, VALUES[MAPPINGS[name].parameters[0]], dtype=torch.float64)
    value += 0.01 * torch.arange(value.numel()).reshape(shape)  # away from kinks
    value.requires_grad_()
    f = getattr(pt, name)
    assert torch.autograd.gradcheck(f, (tensor(3, 4), value), **DIFFERENCES)


@pytest.mark.parametrize("name", SEPARABLE)
def test_second_derivatives(name: str) -> None:
    f, loss = getattr(pt, name), getattr(pt, f"{name}_loss", None)
    z, y = tensor(3, 4), torch.tensor([0, 2, 3])
    assert torch.autograd.gradgradcheck(lambda z: f(z, *of(name)), z, **DIFFERENCES)
    for options in ({}, {"reduction": "none", "ignore_index": 2}, {"reduction": "sum"}):
        if loss is None:
            continue
        assert torch.autograd.gradgradcheck(
            lambda z, options=options: loss(z, y, *of(name), **options), z, **DIFFERENCES
        )


def test_mixed_derivatives_in_alpha() -> None:
    z, alpha = tensor(3, 4), torch.tensor([1.2, 1.5, 1.8], dtype=torch.float64, requires_grad=True)
    g = tensor(3, 4, seed=1, grad=False)

    def slope(alpha: Any) -> Any:
        (gradient,) = torch.autograd.grad(pt.entmax(z, alpha), z, g, create_graph=True)
        return gradient

    assert torch.autograd.gradcheck(slope, alpha, **DIFFERENCES)


@pytest.mark.parametrize("name", ["entmax", "csparsemax", "csoftmax"])
def test_a_gradient_in_a_parameter_says_that_it_has_no_derivative(name: str) -> None:
    """PyTorch went on with zeros."""
    z, value = tensor(4), torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
    p = getattr(pt, name)(z, value)
    inputs = (z, value)
    of_both = torch.autograd.grad(p.square().sum(), inputs, create_graph=True)
    with pytest.raises(NotImplementedError, match=rf"{name}'s gradient in (alpha|upper) has no"):
        of_both[1].backward()

    def slope(z: Any, value: Any) -> Any:
        f = torch.func.grad(lambda value: getattr(pt, name)(z, value).square().sum())
        return f(value)

    assert slope(*(x.detach() for x in inputs)) == of_both[1]
    with pytest.raises(NotImplementedError, match=r"has no derivative: take it without"):
        torch.func.grad(slope)(*(x.detach() for x in inputs))


def test_other_mappings_say_that_they_have_no_second_derivative() -> None:
    z = tensor(2, 3)
    (gradient,) = torch.autograd.grad(pt.normmax(z).square().sum(), z, create_graph=True)
    with pytest.raises(NotImplementedError, match="normmax has no second derivatives here"):
        gradient.sum().backward()


@pytest.mark.parametrize("name", WITH_LOSS)
def test_losses_and_their_derivatives(name: str) -> None:
    z, y = tensor(4, 5), torch.tensor([0, 4, 2, 1])
    loss = getattr(pt, f"{name}_loss")
    named = dict(zip(MAPPINGS[name].parameters, of(name), strict=True))
    distributions = torch.softmax(tensor(4, 5, seed=1, grad=False), -1)
    weight = torch.tensor([1.0, 0.5, 0, 2])
    cases: list[tuple[Any, dict[str, Any]]] = [
        (y, {}),
        (y, {"reduction": "none", "ignore_index": 2}),
        (y, {"reduction": "sum", "weight": weight}),
    ]
    if name != "topk_sparsemax":  # whose loss of a target with more than k entries is infinite
        cases += [(distributions, {"weight": weight}), (y, {"label_smoothing": 0.1})]
    for target, options in cases:
        found = loss(z, target, *of(name), **options)
        arrays = {
            key: x.numpy() if isinstance(x, torch.Tensor) else x for key, x in options.items()
        }
        expected = pe.fenchel_young_loss(
            z.detach().numpy(), target.numpy(), name, **named, **arrays
        )
        np.testing.assert_array_equal(found.detach(), expected)
        assert torch.equal(found, pt.fenchel_young_loss(z, target, name, **named, **options))
        assert torch.autograd.gradcheck(
            lambda z, target=target, options=options: loss(z, target, *of(name), **options),
            z,
            **DIFFERENCES,
        )


def test_losses_along_another_dimension() -> None:
    z, y = tensor(2, 5, 3), torch.tensor([[0, 1, 2], [4, 3, 2]])  # as cross_entropy's classes lie
    expected = pe.entmax15_loss(z.detach().numpy(), y.numpy(), axis=1)
    np.testing.assert_array_equal(pt.entmax15_loss(z, y, dim=1).detach(), expected)
    expected = torch.nn.functional.cross_entropy(z, y)
    torch.testing.assert_close(pt.softmax_loss(z, y, dim=1), expected, rtol=1e-12, atol=1e-12)


def test_attention_and_its_derivatives() -> None:
    query, key, value = (tensor(2, 2, 4, 3, seed=i) for i in range(3))
    alpha = torch.tensor([1.3, 1.7], dtype=torch.float64, requires_grad=True)
    arrays = [x.detach().numpy() for x in (query, key, value, alpha)]
    expected = pe.attention(*arrays, causal=True)
    found = pt.attention(query, key, value, alpha, causal=True)
    np.testing.assert_array_equal(found.detach(), expected)

    def attended(*inputs: Any) -> Any:
        return pt.attention(*inputs, causal=True)

    assert torch.autograd.gradcheck(attended, (query, key, value, alpha), **DIFFERENCES)
    mask = torch.tensor([True, True, False, True])
    expected = pe.attention(*arrays[:3], mapping="topk_softmax", k=2, mask=mask.numpy())
    found = pt.attention(query, key, value, mapping="topk_softmax", k=2, mask=mask)
    np.testing.assert_array_equal(found.detach(), expected)
    shared = pt.attention(query, key[:, :1], value[:, :1], mapping="sparsemax")
    assert shared.shape == (2, 2, 4, 3)


# --- batching -------------------------------------------------------------------------------------


@each_mapping
def test_vmap(name: str) -> None:
    f = getattr(pt, name)
    z = tensor(4, 3, 5, grad=False)
    expected = f(z, *of(name))
    for axis in range(2):
        found = torch.vmap(lambda z: f(z, *of(name)), in_dims=axis, out_dims=axis)(z)
        torch.testing.assert_close(found, expected, **ROUNDING)
    one = z[0]
    batched, alone = (
        torch.autograd.functional.jacobian(lambda z: f(z, *of(name)), one, vectorize=vectorize)
        for vectorize in (True, False)
    )
    torch.testing.assert_close(batched, alone, **ROUNDING)


def test_attention_says_that_it_has_no_second_derivatives() -> None:
    """PyTorch went on with zeros."""
    query, key, value = (tensor(2, 4, 3, seed=seed) for seed in range(3))

    def slope(query: Any) -> Any:
        f = torch.func.grad(lambda query: pt.attention(query, key, value, 1.5).sum())
        return f(query).sum()

    output = pt.attention(query, key, value, 1.5).sum()
    (gradient,) = torch.autograd.grad(output, query, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention has no second derivatives"):
        gradient.sum().backward()
    with pytest.raises(NotImplementedError, match="attention has no second derivatives"):
        torch.func.grad(slope)(query.detach())


def test_vmap_over_parameters_masks_losses_and_attention() -> None:
    z, g = tensor(4, 3, 5, grad=False), tensor(4, 3, 5, seed=1, grad=False)
    alpha, mask = 1 + torch.sigmoid(g[..., 0]), g > -1
    found = torch.vmap(lambda z, alpha, mask: pt.entmax(z, alpha, mask=mask))(z, alpha, mask)
    torch.testing.assert_close(found, pt.entmax(z, alpha, mask=mask), **ROUNDING)
    found = torch.vmap(pt.entmax, in_dims=(None, 0))(z[0], alpha[:, 0])
    expected = torch.stack([pt.entmax(z[0], a) for a in alpha[:, 0]])
    torch.testing.assert_close(found, expected, **ROUNDING)
    found = torch.vmap(pt.csoftmax, in_dims=(None, 0))(z[0], torch.full((4, 5), 0.4))
    assert found.shape == (4, 3, 5)
    parameter = alpha[0].clone().requires_grad_()
    jacobians = [
        torch.autograd.functional.jacobian(lambda a: pt.entmax(z[0], a), parameter, vectorize=v)
        for v in (True, False)
    ]
    torch.testing.assert_close(*jacobians, **ROUNDING)
    y = torch.tensor([0, 1, 2])
    found = torch.vmap(pt.entmax15_loss, in_dims=(0, None))(z, y)
    expected = torch.stack([pt.entmax15_loss(one, y) for one in z])
    torch.testing.assert_close(found, expected, **ROUNDING)
    found = torch.vmap(lambda query: pt.attention(query, z[0], z[0]))(z)
    torch.testing.assert_close(found, pt.attention(z, z[0], z[0]), **ROUNDING)


# --- transformations of functions -----------------------------------------------------------------


def test_gradients_by_torch_func() -> None:
    z, y = tensor(4, 5), torch.tensor([0, 4, 2, 1])
    alpha = torch.tensor([1.2, 1.4, 1.6, 1.8], dtype=torch.float64, requires_grad=True)
    mask = z.detach() > -1
    weight = tensor(4, 5, seed=1, grad=False)

    def of_scores(z: Any) -> Any:
        return (weight * pt.entmax(z, 1.3, mask=mask)).sum() + pt.entmax15_loss(z, y)

    def of_alpha(alpha: Any) -> Any:
        return (weight * pt.entmax(z.detach(), alpha)).sum()

    def of_attention(z: Any) -> Any:
        return pt.attention(z, z, z, 1.4).square().sum()

    for function, point in ((of_scores, z), (of_alpha, alpha), (of_attention, z)):
        (expected,) = torch.autograd.grad(function(point), point)
        found = torch.func.grad(function)(point.detach())
        torch.testing.assert_close(found, expected, **ROUNDING)
    # Twice.
    row = z[0].detach()
    found = torch.func.jacrev(torch.func.jacrev(lambda z: pt.entmax(z, 1.3).square().sum()))(row)
    expected = torch.autograd.functional.hessian(lambda z: pt.entmax(z, 1.3).square().sum(), row)
    torch.testing.assert_close(found, expected, **ROUNDING)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_forward_mode_is_refused_wherever_it_is_asked_for() -> None:
    """Tangents were dropped, so that a Jacobian in forward mode was all zeros."""
    z, alpha = tensor(3, 4, grad=False), torch.tensor(1.5)
    y = torch.tensor([0, 1, 2])
    jacobian = torch.autograd.functional.jacobian
    for of_z in (pt.entmax15, lambda z: pt.sparsemax_loss(z, y), lambda z: pt.attention(z, z, z)):
        with pytest.raises(NotImplementedError, match="no derivative in forward mode"):
            jacobian(of_z, z, vectorize=True, strategy="forward-mode")
        with pytest.raises(NotImplementedError, match="no derivative in forward mode"):
            torch.func.jvp(of_z, (z,), (z,))
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(alpha, torch.ones(()))
        with pytest.raises(NotImplementedError, match="no derivative in forward mode"):
            pt.entmax(z, dual)
        pt.entmax(z, alpha)


def test_gradients_of_each_example_by_vmap() -> None:
    z, y = tensor(4, 5, grad=False), torch.tensor([0, 4, 2, 1])
    functions = {
        "mapping": lambda z, y: pt.entmax15(z).square().sum(),
        "loss": lambda z, y: pt.sparsemax_loss(z, y),
        "one-vs-all": lambda z, y: pt.one_vs_all_loss(z, (z > 0).long()),
        "attention": lambda z, y: pt.attention(z[None], z[None], z[None]).square().sum(),
    }
    for name, function in functions.items():
        each = torch.func.vmap(torch.func.grad(function))(z, y)
        one_by_one = [torch.func.grad(function)(*pair) for pair in zip(z, y, strict=True)]
        torch.testing.assert_close(each, torch.stack(one_by_one), **ROUNDING, msg=name)
        outside = torch.func.grad(
            lambda z, function=function: torch.func.vmap(function)(z, y).sum()
        )(z)
        torch.testing.assert_close(each, outside, **ROUNDING, msg=name)


# --- what PyTorch asks of an operation ------------------------------------------------------------


def operations() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Calls of each operation."""
    z, v = tensor(3, 5, dtype=torch.float32), tensor(3, 5, dtype=torch.float32, seed=1)
    p = torch.softmax(z.detach(), -1).requires_grad_()
    alpha = torch.tensor([1.3, 1.5, 2.0], requires_grad=True)
    mask, y = v.detach() > -1, torch.tensor([0, 1, 2])
    query, key, value = (tensor(2, 2, 4, 3, seed=i, dtype=torch.float32) for i in range(3))
    two = torch.tensor([1.3, 1.7], requires_grad=True)
    names = ("mapping", "product", "parameter_gradient", "loss", "attention")
    found = [getattr(torch.ops.pyentmax, name).default for name in names]
    mapping, product, gradient, loss, attention = found
    gradients = torch.ops.pyentmax.attention_gradients.default
    fixed = tuple(x.detach() for x in (query, query, key, value))
    setting = ("entmax", two, None, None, True, 0, None)
    return {
        "mapping": (mapping, (z, "entmax15", None, None, None)),
        "mapping of alpha": (mapping, (z, "entmax", alpha, None, mask)),
        "mapping of a number": (mapping, (z, "topk_softmax", None, 2.0, mask)),
        "product": (product, (p, v, "entmax", alpha, None, mask)),
        "gradient of alpha": (
            gradient,
            (p.detach(), v.detach(), None, "entmax", alpha.detach(), mask),
        ),
        "loss": (loss, (z, y, "entmax15", None, None, None, mask, "mean", 1, 0.0)),
        "losses": (loss, (z, y, "entmax", None, 1.3, None, None, "none", None, 0.1)),
        "attention": (attention, (query, key, value, *setting)),
        "attention of a mapping": (
            attention,
            (query, key[:, :1], value, "sparsemax", None, None, None, False, 0, 0.3),
        ),
        "gradients of attention": (gradients, (*fixed, "entmax", two.detach(), *setting[2:])),
    }


def test_who_watches_sees_operations_and_others_do_not_wait_for_them() -> None:
    z, y = tensor(3, 5), torch.tensor([0, 1, 2])
    names = {"pyentmax.mapping.default", "pyentmax.product.default", "pyentmax.loss.default"}

    def both() -> Any:
        return pt.entmax15(z).square().sum() + pt.entmax15_loss(z, y)

    assert type(pt.entmax15(z).grad_fn).__name__ == "Pyentmax_mappingBackward"  # called at once
    (expected,) = torch.autograd.grad(both(), z)
    seen = set()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
            seen.add(str(function))
            return function(*args, **(kwargs or {}))

    with Watching():
        (found,) = torch.autograd.grad(both(), z)
    assert names <= seen
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    with torch.profiler.profile() as profile:
        torch.autograd.grad(both(), z)
    assert {"pyentmax::mapping", "pyentmax::loss"} <= {
        event.key for event in profile.key_averages()
    }
    with FakeTensorMode():
        assert pt.entmax15(torch.empty(3, 5, dtype=torch.float16)).dtype == torch.float16
    graph = make_fx(lambda z: pt.entmax15(z))(z.detach())
    assert "pyentmax.mapping.default" in graph.code
    kept: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        p = pt.entmax15(z)
    assert [x.data_ptr() for x in kept] == [p.data_ptr()]


@pytest.mark.parametrize("case", operations())
def test_opcheck(case: str) -> None:
    operation, args = operations()[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of what it is about to change
        found = opcheck(operation, args)
    assert set(found.values()) == {"SUCCESS"}


class Model(torch.nn.Module):
    """Everything that has an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 5)
        self.heads = pt.AlphaEntmax(2)
        self.loss = pt.Entmax15Loss(ignore_index=2)

    def forward(self, x: Any, y: Any) -> Any:
        h = pt.entmax15(self.linear(x)) + 1
        s = pt.entmax(h, 1.3, dim=0, mask=h > 0)
        w = self.heads(torch.stack([s, s + h.relu()]))
        o = pt.attention(h[None], h[None], s[None], causal=True)
        return self.loss(h + s + w.sum(0), y) + o.sum()


def assert_compiled(backend: str) -> None:
    torch.manual_seed(0)
    model, y = Model(), torch.tensor([0, 1, 2, 3, 4])
    x = tensor(5, 6, dtype=torch.float32, grad=False)
    expected = model(x, y)
    expected.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.compile(model, fullgraph=True, backend=backend)(x, y)
        found.backward()
    torch.testing.assert_close(found, expected, **ROUNDING)
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad, gradient, **ROUNDING)


def test_a_model_compiles_in_one_graph() -> None:
    assert_compiled("aot_eager")


@pytest.mark.parametrize("name", ["entmax15_loss", "one_vs_all_loss"])
def test_losses_compile_with_numbers_that_the_graph_leaves_open(name: str) -> None:
    """PyTorch may be asked for that, and does so by itself for an option that has changed."""
    z, y = tensor(3, 4), torch.tensor([0, 1, 2])
    loss = getattr(pt, name)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for smoothing in (0.0, 0.1, 0.2):
        expected = loss(z, y, label_smoothing=smoothing)
        torch.testing.assert_close(compiled(z, y, label_smoothing=smoothing), expected, **ROUNDING)


@pytest.mark.slow
def test_a_model_compiles_with_inductor() -> None:
    assert_compiled("inductor")


def test_a_model_is_exported() -> None:
    model, y = Model(), torch.tensor([0, 1, 2, 3, 4])
    x = tensor(5, 6, dtype=torch.float32, grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(model, (x, y))
    assert "torch.ops.pyentmax.mapping.default" in exported.graph_module.code
    torch.testing.assert_close(exported.module()(x, y), model(x, y), **ROUNDING)


# --- modules --------------------------------------------------------------------------------------


@each_mapping
def test_modules_do_what_functions_do(name: str) -> None:
    z = tensor(3, 5, grad=False)
    title = "".join(part.capitalize() for part in name.split("_"))
    module = getattr(pt, title)(*of(name), dim=0)
    assert torch.equal(module(z), getattr(pt, name)(z, *of(name), dim=0))
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert repr(again) == repr(module)
    assert torch.equal(again(z), module(z))
    if name in WITH_LOSS:
        y = torch.tensor([0, 1, 2])
        loss = getattr(pt, f"{title}Loss")(*of(name), reduction="sum", ignore_index=1)
        expected = getattr(pt, f"{name}_loss")(z, y, *of(name), reduction="sum", ignore_index=1)
        assert torch.equal(loss(z, y), expected)


def test_a_modules_tensor_moves_with_it_and_its_parameter_is_learned() -> None:
    fixed = pt.Entmax(torch.tensor(1.3))
    assert [name for name, _ in fixed.named_buffers()] == ["value"]
    learned = pt.Entmax(alpha=torch.nn.Parameter(torch.tensor(1.3)))
    assert [name for name, _ in learned.named_parameters()] == ["value"]
    (learned(tensor(2, 3, grad=False, dtype=torch.float32))[0, 0]).backward()
    assert learned.value.grad != 0


def test_an_alpha_for_each_head() -> None:
    heads = pt.AlphaEntmax(2, a=torch.tensor([-1.0, 2.0]))
    scores = tensor(3, 2, 4, 5, dtype=torch.float32)
    weights = heads(scores)
    for head, alpha in enumerate(heads.alpha):
        expected = pt.entmax(scores[:, head], alpha.item())
        torch.testing.assert_close(weights[:, head], expected, **ROUNDING)
    weights[..., 0].sum().backward()
    assert heads.a.grad is not None
    assert heads.a.grad.shape == (2,)
    assert heads.a.grad.all()
    attend = pt.Attention(1.3, causal=True)
    query = tensor(2, 2, 4, 3, grad=False)
    expected = pt.attention(query, query, query, 1.3, causal=True)
    assert torch.equal(attend(query, query, query), expected)


# --- scores by themselves -------------------------------------------------------------------------


def test_the_sigmoid_and_its_losses_are_those_of_arrays() -> None:
    z = tensor(4, 3)
    alpha = torch.tensor([1.1, 1.4, 1.9], dtype=torch.float64, requires_grad=True)
    array, alphas = z.detach().numpy(), alpha.detach().numpy()
    expected = pe.entmax_sigmoid(array, alphas)
    np.testing.assert_allclose(
        pt.entmax_sigmoid(z, alpha).detach(), expected, rtol=1e-12, atol=1e-14
    )
    infinite = torch.tensor([-torch.inf, 0, torch.inf])
    assert pt.entmax_sigmoid(infinite).tolist() == [0, 0.5, 1]
    assert torch.autograd.gradcheck(pt.entmax_sigmoid, (z, alpha), **DIFFERENCES)
    inside = (0.3 * tensor(4, 3, grad=False)).requires_grad_()
    assert torch.autograd.gradgradcheck(pt.entmax_sigmoid, inside, **DIFFERENCES)
    weight, mask = torch.tensor([1.0, 0, 2, 0.5]).double(), z.detach() > -1
    labels, several = torch.tensor([0, 2, -100, 1]), (tensor(4, 3, seed=1) > 0).long()
    several[0, 1] = -1
    for reduction in ("mean", "sum", "none"):
        for y, ignored in ((labels, -100), (several, -1), (several.clamp(0) * 0.3, None)):
            for options in ({}, {"weight": weight, "mask": mask, "label_smoothing": 0.2}):
                options: dict[str, Any] = {
                    **options,
                    "reduction": reduction,
                    "ignore_index": ignored,
                }
                arrays = {
                    key: x.numpy() if isinstance(x, torch.Tensor) else x
                    for key, x in options.items()
                }
                right, slope = pe.one_vs_all_loss_and_grad(array, y.numpy(), 1.4, **arrays)
                found = pt.one_vs_all_loss(z, y, 1.4, **options)
                np.testing.assert_allclose(found.detach(), right, rtol=1e-12, atol=1e-14)
                (gradient,) = torch.autograd.grad(found.sum(), z)
                np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-14)
    right = pe.entmax_sigmoid_loss(array, several.numpy(), alphas, ignore_index=-1)
    found = pt.entmax_sigmoid_loss(z, several, alpha.detach(), ignore_index=-1)
    np.testing.assert_allclose(found.detach(), right, rtol=1e-12, atol=1e-14)
    sigmoid = pt.EntmaxSigmoid(torch.nn.Parameter(alpha.detach().clone()))
    assert [name for name, _ in sigmoid.named_parameters()] == ["value"]
    assert torch.equal(sigmoid(z, mask), pt.entmax_sigmoid(z, alpha, mask=mask))
    loss = pt.EntmaxSigmoidLoss(alpha.detach(), ignore_index=-1)
    assert [name for name, _ in loss.named_buffers()] == ["value"]
    assert torch.equal(loss(z, several), found)
    options = {"reduction": "sum", "label_smoothing": 0.1}
    found = pt.OneVsAllLoss(1.3, **options)(z, several.clamp(0), weight, mask)
    right = pt.one_vs_all_loss(z, several.clamp(0), 1.3, weight=weight, mask=mask, **options)
    assert torch.equal(found, right)
    turned = pt.one_vs_all_loss(z.T, labels, dim=0, ignore_index=-100)
    torch.testing.assert_close(turned, pt.one_vs_all_loss(z, labels, ignore_index=-100), **ROUNDING)
