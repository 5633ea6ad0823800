"""Functions and modules of tensors: values, derivatives, batching, graphs."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
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
COMPOSED = [name for name, record in MAPPINGS.items() if record.support_alpha or name == "entmax"]
WITH_LOSS = [name for name, record in MAPPINGS.items() if record.omega is not None]
# Steps of 1e-6 in float64, on functions whose slopes are about 1.
DIFFERENCES = {"eps": 1e-6, "atol": 1e-5, "rtol": 1e-3}
ROUNDING = {"rtol": 1e-6, "atol": 1e-6}  # of float32, where sums run in another order
DOUBLE = {"rtol": 1e-12, "atol": 1e-14}

each_mapping = pytest.mark.parametrize("name", MAPPINGS)
half = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


def values(name: str) -> list[Any]:
    """A value for the mapping's parameter, if it has one."""
    return [VALUES[parameter] for parameter in MAPPINGS[name].parameters]


def tensor(*shape: int, dtype: Any = torch.float64, seed: int = 0, grad: bool = True) -> Any:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(shape, dtype=torch.float64, generator=generator)
    return drawn.to(dtype).requires_grad_(grad)


def numpy_options(options: dict[str, Any]) -> dict[str, Any]:
    return {k: x.numpy() if isinstance(x, torch.Tensor) else x for k, x in options.items()}


# --- values ---------------------------------------------------------------------------------------


@each_mapping
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mappings_equal_the_array_functions(name: str, dtype: Any) -> None:
    z = tensor(3, 4, 5, dtype=dtype, grad=False)
    mask = tensor(3, 4, 5, seed=1, grad=False) > -0.5
    mask[..., :3] = True  # room for budgets and upper bounds
    expected = MAPPINGS[name].forward(z.numpy(), *values(name), axis=1)
    np.testing.assert_array_equal(getattr(pt, name)(z, *values(name), dim=1), expected)
    expected = MAPPINGS[name].forward(z.numpy(), *values(name), mask=mask.numpy())
    np.testing.assert_array_equal(getattr(pt, name)(z, *values(name), mask=mask), expected)


def test_host_tensors_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
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


@half
def test_half_precision_is_rounded_once(dtype: Any) -> None:
    z, g = tensor(8, 300, dtype=dtype), tensor(8, 300, dtype=dtype, seed=1, grad=False)
    p = pt.entmax15(z)
    p.backward(g)
    wide = z.detach().float().requires_grad_()
    torch.testing.assert_close(p, pt.entmax15(wide).to(dtype), rtol=0, atol=0)
    # p itself is rounded to the dtype before its derivative is taken.
    (expected,) = torch.autograd.grad(pt.entmax15(wide), wide, g.float())
    assert z.grad.dtype == dtype
    torch.testing.assert_close(z.grad.float(), expected, rtol=0.02, atol=0.02)
    assert pt.entmax15_loss(z, torch.zeros(8, dtype=torch.int64)).dtype == dtype


@pytest.mark.parametrize("name", ["csparsemax", "csoftmax"])
@half
def test_half_precision_rounds_bounds_as_probabilities(name: str, dtype: Any) -> None:
    """p is rounded, and was compared with bounds that were not."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        g = rng.integers(-4, 5, 4).astype(float)
        full = rng.uniform(0.3, 0.4, 2)  # bounds of the largest scores; the others are far from it
        z, upper = np.array([3.0, 2.5, 0.5, 0.25]), np.append(full, [0.9, 0.9])
        p = getattr(pe, name)(z, upper)
        seen = (z,) if MAPPINGS[name].parameter_vjp_takes_scores else ()
        expected = getattr(pe, f"{name}_vjp_upper")(p, g, upper, *seen)
        assert (p[:2] == full).all()
        scores = torch.tensor(z, dtype=dtype, requires_grad=True)
        bounds = torch.tensor(upper, requires_grad=True)
        getattr(pt, name)(scores, upper=bounds).backward(torch.tensor(g, dtype=dtype))
        in_scores = getattr(pe, f"{name}_vjp")(p, g, upper)
        np.testing.assert_allclose(scores.grad.float(), in_scores, rtol=0, atol=0.03)
        np.testing.assert_allclose(bounds.grad, expected, rtol=0, atol=0.03)
    for d in (3, 7, 11):  # one number as a bound for all, that leaves no room
        scores = torch.zeros(d, dtype=dtype, requires_grad=True)
        getattr(pt, name)(scores, upper=1 / d).backward(torch.arange(d, dtype=dtype))
        assert not scores.grad.any()


def test_a_masked_row_has_zero_gradients() -> None:
    z = tensor(2, 4)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    for p in (pt.entmax15(z, mask=mask), pt.softmax(z.masked_fill(~mask, -torch.inf))):
        assert not p[1].any()
        for again in (False, True):
            g = tensor(2, 4, seed=1, grad=False)
            (gradient,) = torch.autograd.grad(p, z, g, create_graph=again, retain_graph=True)
            assert gradient[0].any()
            assert not gradient[1].any()


def test_parameters_follow_other_dimensions() -> None:
    z = tensor(3, 4, 5, grad=False)
    alpha = 1 + torch.rand(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = pe.entmax(z.numpy(), alpha.numpy(), axis=1)
    for p in (pt.entmax(z, alpha, 1), pt.entmax(z, alpha=alpha, dim=-2)):
        np.testing.assert_array_equal(p, expected)
    upper = torch.full((4, 1), 0.4, dtype=torch.float64)
    expected = pe.csoftmax(z.numpy(), upper.numpy(), axis=1)
    np.testing.assert_array_equal(pt.csoftmax(z, upper, dim=1), expected)


# --- errors ---------------------------------------------------------------------------------------


Z, Y = torch.zeros(2, 3), torch.tensor([0, 1])
LEARNED = torch.tensor(1.5, requires_grad=True)
ARRAY = np.zeros((2, 3))
TYPE_ERRORS = {
    "integer scores": (
        lambda: pt.softmax(torch.tensor([1, 2])),
        r"floating dtype, got torch.int64",
    ),
    "complex scores": (lambda: pt.softmax(Z.to(torch.complex64)), "floating dtype"),
    "float8 scores": (lambda: pt.softmax(Z.to(torch.float8_e4m3fn)), "floating dtype"),
    "sparse scores": (lambda: pt.sparsemax(Z.to_sparse()), r"dense Tensor, .*z.to_dense\(\)"),
    "array of scores": (lambda: pt.entmax15(ARRAY), "z must be a Tensor, got ndarray"),
    "array of targets": (lambda: pt.one_vs_all_loss(Z, ARRAY), "y must be a Tensor, got ndarray"),
    "list as query": (lambda: pt.attention([1.0], Z, Z), "query must be a Tensor, got list"),
    "array as mask": (lambda: pt.entmax15(Z, 0, mask=ARRAY), "mask must be a Tensor, got ndarray"),
    "array as weight": (
        lambda: pt.softmax_loss(Z, Y, weight=ARRAY),
        "weight must be a Tensor, got ndarray",
    ),
    "array as alpha": (lambda: pt.entmax(Z, ARRAY), "alpha must be a number or a Tensor"),
    "float as dim": (lambda: pt.softmax(Z, dim=1.5), "dim must be an int, got 1.5"),
    "missing k": (lambda: pt.topk_softmax(Z), r"topk_softmax\(\) missing a required argument: 'k'"),
    "unknown name": (lambda: pt.entmax(Z, beta=2), r"entmax\(\) got an unexpected .* 'beta'"),
    "two values": (lambda: pt.entmax(Z, 1.5, alpha=2), r"entmax\(\) got two values for alpha"),
    "unknown option": (lambda: pt.softmax_loss(Z, Y, eps=1), r"softmax_loss\(\) got .* 'eps'"),
    "integer mask": (lambda: pt.softmax(Z, mask=torch.ones(3).int()), r"boolean, .* mask != 0"),
    "additive mask": (lambda: pt.softmax(Z, mask=torch.zeros(3)), "additive mask: pass mask == 0"),
    "learned loss": (lambda: pt.entmax_loss(Z, Y, LEARNED), "entmax_loss has no gradient in alpha"),
    "learned one-vs-all": (lambda: pt.one_vs_all_loss(Z, Y, LEARNED), "no gradient in alpha"),
    "learned targets": (
        lambda: pt.normmax_loss(Z, Z.clone().requires_grad_()),
        "normmax_loss has no gradient in y",
    ),
    "learned scale": (lambda: pt.attention(Z, Z, Z, scale=LEARNED), "no gradient in scale"),
    "module's scale": (
        lambda: pt.Attention(scale=torch.nn.Parameter(torch.ones(()))),
        "no gradient in scale",
    ),
    "tensor smoothing": (
        lambda: pt.softmax_loss(Z, Y, label_smoothing=LEARNED),
        "must be a number",
    ),
    "fractional ignore_index": (
        lambda: pt.one_vs_all_loss(Z, Y, ignore_index=1.5),
        "ignore_index must be a whole number or None, got 1.5",
    ),
    "weight of a module": (lambda: pt.Entmax15Loss(weight=Y), "weight and mask go with the scores"),
    "complex targets": (
        lambda: pt.one_vs_all_loss(Z, Z.to(torch.complex64)),
        "y must hold real numbers",
    ),
    "dim of the sigmoid": (lambda: pt.entmax_sigmoid_loss(Z, Z > 0, dim=1), "dim"),
    "is_causal": (lambda: pt.attention(Z, Z, Z, is_causal=True), "'is_causal'.*here it is causal"),
    "module's is_causal": (lambda: pt.Attention(is_causal=True), "'is_causal'.*here it is causal"),
    "attn_mask": (lambda: pt.attention(Z, Z, Z, attn_mask=Z > 0), "'attn_mask'.*here it is mask"),
    "dropout_p": (lambda: pt.attention(Z, Z, Z, dropout_p=0.1), "unexpected .*'dropout_p'"),
    "dropout_p of sparsemax": (
        lambda: pt.attention(Z, Z, Z, mapping="sparsemax", dropout_p=0.1),
        "unexpected .*'dropout_p'",
    ),
}
VALUE_ERRORS = {
    "alpha": (lambda: pt.entmax(Z, 0.5), "alpha must be at least 1, got 0.5"),
    "mapping": (lambda: pt.attention(Z, Z, Z, mapping="soft"), "mapping must be one of softmax, "),
    "mask": (lambda: pt.softmax(Z, 0, mask=Y > 0), r"mask of shape \(2,\) does not broadcast to z"),
    "weight": (lambda: pt.one_vs_all_loss(Z, Y, weight=torch.ones(3)), r"weight of shape \(3,\)"),
    "alpha's shape": (lambda: pt.entmax_sigmoid(Z, torch.ones(2)), r"alpha of shape \(2,\) does"),
    "targets' shape": (lambda: pt.entmax_sigmoid_loss(Z, Y), r"targets of shape \(2, 3\), got sh"),
    "label": (lambda: pt.one_vs_all_loss(Z, Y + 2), r"labels must be in 0 … 2, got 3; rows to le"),
    "one label": (
        lambda: pt.one_vs_all_loss(Z, Y[:1]),
        r"y must be integer labels of shape \(2,\)",
    ),
    "bool labels": (lambda: pt.one_vs_all_loss(Z, Y > 0), "y must be integer labels"),
    "target": (lambda: pt.one_vs_all_loss(Z, Z + 2), r"targets y must be in \[0, 1\], got 2"),
    "smoothing": (lambda: pt.softmax_loss(Z, Y, label_smoothing=1.5), "got 1.5"),
    "reduction": (lambda: pt.softmax_loss(Z, Y, reduction="avg"), "mean, sum, none, got 'avg'"),
    "no row": (lambda: pt.one_vs_all_loss(Z[0, 0], Y[0]), "z is 0-dimensional"),
}


@pytest.mark.parametrize("case", TYPE_ERRORS)
def test_wrong_types_are_refused(case: str) -> None:
    call, message = TYPE_ERRORS[case]
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("case", VALUE_ERRORS)
def test_wrong_values_are_refused(case: str) -> None:
    call, message = VALUE_ERRORS[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_import_without_docstrings() -> None:
    code = "import pyentmax.torch as pt; assert pt.Entmax15().dim == -1"
    subprocess.run([sys.executable, "-OO", "-W", "ignore", "-c", code], check=True)


# --- derivatives ----------------------------------------------------------------------------------


@each_mapping
def test_derivatives_in_the_scores(name: str) -> None:
    f = getattr(pt, name)
    assert torch.autograd.gradcheck(
        lambda z: f(z, *values(name), dim=0),
        tensor(3, 4),
        check_forward_ad=name in COMPOSED,
        **DIFFERENCES,
    )


@pytest.mark.parametrize("name", [n for n, r in MAPPINGS.items() if r.parameter_vjp is not None])
def test_derivatives_in_a_parameter(name: str) -> None:
    shape = (3, 4) if MAPPINGS[name].parameters == ("upper",) else (3,)
    value = torch.full(shape, VALUES[MAPPINGS[name].parameters[0]], dtype=torch.float64)
    value += 0.01 * torch.arange(value.numel()).reshape(shape)  # away from kinks
    inputs = (tensor(3, 4), value.requires_grad_())
    forward = name == "entmax"
    f = getattr(pt, name)
    assert torch.autograd.gradcheck(f, inputs, check_forward_ad=forward, **DIFFERENCES)


@pytest.mark.parametrize("name", COMPOSED)
def test_second_derivatives(name: str) -> None:
    f, loss = getattr(pt, name), getattr(pt, f"{name}_loss", None)
    z, y = tensor(3, 4), torch.tensor([0, 2, 3])
    assert torch.autograd.gradgradcheck(lambda z: f(z, *values(name)), z, **DIFFERENCES)
    for options in ({}, {"reduction": "none", "ignore_index": 2}, {"reduction": "sum"}):
        if loss is not None:
            assert torch.autograd.gradgradcheck(
                lambda z, options=options: loss(z, y, *values(name), **options), z, **DIFFERENCES
            )


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5, 2.0, 2.5])
def test_second_derivatives_in_alpha(alpha: float) -> None:
    z = torch.tensor([[0.3, 0.1, -0.2, -0.9], [0.5, 0.0, -0.4, 0.2]], dtype=torch.float64)
    inputs = (z.requires_grad_(), torch.tensor([alpha, 1.4]).double().requires_grad_())
    with warnings.catch_warnings():  # at α = 1 differences would step to where it is an error
        if alpha == 1:
            hessian = torch.func.hessian(lambda a: pt.entmax(z, a).square().sum())
            near = hessian(torch.tensor([1 + 1e-5, 1.4]).double())
            torch.testing.assert_close(hessian(inputs[1]), near, rtol=1e-3, atol=1e-4)
        else:
            assert torch.autograd.gradgradcheck(pt.entmax, inputs, **DIFFERENCES)


def test_missing_derivatives_are_errors() -> None:
    """PyTorch would go on with zeros."""
    z, bound = tensor(4), torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    p = pt.csparsemax(z, bound)
    _, in_bound = torch.autograd.grad(p.square().sum(), (z, bound), create_graph=True)
    with pytest.raises(NotImplementedError, match="the gradient in this mapping's parameter"):
        in_bound.backward()
    (gradient,) = torch.autograd.grad(pt.normmax(z).square().sum(), z, create_graph=True)
    with pytest.raises(NotImplementedError, match="normmax has no second derivatives here"):
        gradient.sum().backward()
    with pytest.raises(NotImplementedError, match="normmax has no derivative in alpha"):
        pt.normmax(z, torch.tensor(1.5, requires_grad=True)).sum().backward()
    x = tensor(4, 3)
    (gradient,) = torch.autograd.grad(pt.attention(x, x, x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention has no second derivatives"):
        gradient.sum().backward()
    for f in (pt.normmax, lambda x: pt.attention(x, x, x)):
        with pytest.raises(NotImplementedError, match="no derivative in forward mode"):
            torch.func.jvp(f, (x.detach(),), (x.detach(),))


# --- losses and attention -------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_LOSS)
def test_losses_equal_the_array_functions(name: str) -> None:
    z, y = tensor(4, 5), torch.tensor([0, 4, 2, 1])
    loss = getattr(pt, f"{name}_loss")
    named = dict(zip(MAPPINGS[name].parameters, values(name), strict=True))
    distributions = torch.softmax(tensor(4, 5, seed=1, grad=False), -1)
    weight = torch.tensor([1.0, 0.5, 0, 2])
    cases: list[tuple[Any, dict[str, Any]]] = [
        (y, {}),
        (y, {"reduction": "none", "ignore_index": 2}),
        (y.to(torch.uint8), {"reduction": "sum", "weight": weight, "ignore_index": -100}),
    ]
    if name != "topk_sparsemax":  # whose loss of a target with more than k entries is infinite
        cases += [(distributions, {"weight": weight}), (y, {"label_smoothing": 0.1})]
    for target, options in cases:
        found = loss(z, target, *values(name), **options)
        arrays = z.detach().numpy(), target.numpy()
        expected = pe.fenchel_young_loss(*arrays, name, **named, **numpy_options(options))
        np.testing.assert_array_equal(found.detach(), expected)
        assert torch.equal(found, pt.fenchel_young_loss(z, target, name, **named, **options))
        assert torch.autograd.gradcheck(
            lambda z, target=target, options=options: loss(z, target, *values(name), **options),
            z,
            **DIFFERENCES,
        )


@pytest.mark.parametrize("name", ["softmax", "entmax15", "sparsemax"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_losses_have_gradients_in_targets_and_weights(name: str, reduction: str) -> None:
    z, a, w = tensor(2, 3), tensor(2, 3, seed=1), torch.tensor([1.0, 0.5]).double()
    inputs = (z, a, w.requires_grad_())

    def loss(z: Any, a: Any, w: Any) -> Any:
        y, f = torch.softmax(a, -1), getattr(pt, f"{name}_loss")
        return f(z, y, weight=w, label_smoothing=0.1, reduction=reduction)

    assert torch.autograd.gradcheck(loss, inputs, **DIFFERENCES)
    assert torch.autograd.gradgradcheck(loss, inputs, **DIFFERENCES)


def test_losses_along_another_dimension() -> None:
    z, y = tensor(2, 5, 3), torch.tensor([[0, 1, 2], [4, 3, 2]])  # as cross_entropy's classes lie
    expected = pe.entmax15_loss(z.detach().numpy(), y.numpy(), axis=1)
    np.testing.assert_array_equal(pt.entmax15_loss(z, y, dim=1).detach(), expected)
    expected = torch.nn.functional.cross_entropy(z, y)
    torch.testing.assert_close(pt.softmax_loss(z, y, dim=1), expected, **DOUBLE)


@pytest.mark.parametrize("loss", ["one_vs_all_loss", "entmax15_loss"])
def test_a_row_of_weight_0_may_hold_anything(loss: str) -> None:
    z = tensor(3, 4, grad=False)
    z[1] = torch.nan
    z.requires_grad_()
    y, weight = torch.tensor([0, -100, 2]), torch.tensor([1.0, 0.0, 1.0])
    total = getattr(pt, loss)(z, y, weight=weight)
    (gradient,) = torch.autograd.grad(total, z, create_graph=True)
    expected = getattr(pe, f"{loss}_and_grad")(z.detach().numpy(), y.numpy(), weight=weight.numpy())
    np.testing.assert_allclose(total.detach(), expected[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient.detach(), expected[1], rtol=1e-12, atol=1e-14)
    (second,) = torch.autograd.grad(gradient, z, torch.ones_like(z))
    assert not second.isnan().any()


@half
def test_losses_are_float32_under_autocast(dtype: Any) -> None:
    """float16 losses times GradScaler's 65,536 were infinite."""
    linear, y = torch.nn.Linear(6, 3), torch.tensor([0, 1, 2])
    for loss in (pt.entmax15_loss, pt.one_vs_all_loss):
        with torch.autocast("cpu", dtype=dtype):
            total = loss(linear(torch.ones(3, 6)), y)
        assert total.dtype == torch.float32
        (65_536 * total).backward()
        assert linear.weight.grad.isfinite().all()


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


# --- transformations ------------------------------------------------------------------------------


@each_mapping
def test_vmap_equals_a_batch(name: str) -> None:
    f, z = getattr(pt, name), tensor(4, 3, 5, grad=False)
    expected = f(z, *values(name))
    for axis in range(2):
        found = torch.vmap(lambda z: f(z, *values(name)), in_dims=axis, out_dims=axis)(z)
        torch.testing.assert_close(found, expected, **ROUNDING)
    jacobian = torch.autograd.functional.jacobian
    one_by_one, at_once = (
        jacobian(lambda z: f(z, *values(name)), z[0], vectorize=vectorize)
        for vectorize in (False, True)
    )
    torch.testing.assert_close(at_once, one_by_one, **ROUNDING)


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
    y = torch.tensor([0, 1, 2])
    found = torch.vmap(pt.entmax15_loss, in_dims=(0, None))(z, y)
    expected = torch.stack([pt.entmax15_loss(one, y) for one in z])
    torch.testing.assert_close(found, expected, **ROUNDING)
    found = torch.vmap(lambda query: pt.attention(query, z[0], z[0]))(z)
    torch.testing.assert_close(found, pt.attention(z, z[0], z[0]), **ROUNDING)


def scalar_functions() -> dict[str, Any]:
    y, alpha = torch.tensor(2), torch.tensor(1.3, dtype=torch.float64)
    return {
        "entmax": lambda z: pt.entmax(z, alpha).square().sum(),
        "alpha": lambda z: pt.entmax(z, 1.2 + z[0].sigmoid()).square().sum(),
        "topk_sparsemax": lambda z: pt.topk_sparsemax(z, 3).square().sum(),
        "loss": lambda z: pt.softmax_loss(z, y, label_smoothing=0.1),
        "target": lambda z: pt.sparsemax_loss(z[1:], torch.softmax(z[:-1], -1)),
        "one-vs-all": lambda z: pt.one_vs_all_loss(0.3 * z, y),
    }


@pytest.mark.parametrize("name", scalar_functions())
def test_transformations_agree(name: str) -> None:
    """A registered derivative is not seen by torch.func, and forward mode drops tangents."""
    f, z = scalar_functions()[name], tensor(5, grad=False)
    func, functional = torch.func, torch.autograd.functional
    gradient, hessian = functional.jacobian(f, z), functional.hessian(f, z)
    others = [func.grad(f)(z), func.jacrev(f)(z), func.vmap(func.grad(f))(z[None])[0]]
    others += [func.grad(lambda z: func.vmap(f)(z).sum())(z[None])[0]]
    second = [func.jacrev(func.jacrev(f))(z)]
    if name != "target":  # with no derivative in forward mode
        others += [func.jacfwd(f)(z)]
        second += [func.hessian(f)(z), func.jacfwd(func.jacfwd(f))(z)]
        second += [func.jacrev(func.jacfwd(f))(z)]
    for found in others:
        torch.testing.assert_close(found, gradient, **DOUBLE)
    for found in second:
        torch.testing.assert_close(found, hessian, rtol=1e-11, atol=1e-13)


def test_per_example_gradients_of_attention() -> None:
    z = tensor(4, 5, grad=False)

    def function(z: Any) -> Any:
        return pt.attention(z[None], z[None], z[None]).square().sum()

    each = torch.func.vmap(torch.func.grad(function))(z)
    expected = torch.stack([torch.func.grad(function)(row) for row in z])
    torch.testing.assert_close(each, expected, **ROUNDING)


# --- what PyTorch asks of an operation ------------------------------------------------------------


def operations() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Calls of each operation."""
    z, v = tensor(3, 5, dtype=torch.float32), tensor(3, 5, dtype=torch.float32, seed=1)
    p = torch.softmax(z.detach(), -1)
    alpha = torch.tensor([1.3, 1.5, 2.0], requires_grad=True)
    mask, y = v.detach() > -1, torch.tensor([0, 1, 2])
    query, key, value = (tensor(2, 2, 4, 3, seed=i, dtype=torch.float32) for i in range(3))
    two = torch.tensor([1.3, 1.7], requires_grad=True)
    ops = torch.ops.pyentmax
    fixed = tuple(x.detach() for x in (query, query, key, value))
    setting = ("entmax", two, None, None, True, 0, None)
    return {
        "mapping": (ops.mapping, (z, "entmax15", None, None, None)),
        "mapping of alpha": (ops.mapping, (z, "entmax", alpha, None, mask)),
        "mapping of a number": (ops.mapping, (z, "topk_softmax", None, 2.0, mask)),
        "product": (ops.product, (p, v, "entmax", alpha.detach(), None, mask)),
        "gradient of alpha": (
            ops.parameter_gradient,
            (p, v.detach(), None, "entmax", alpha.detach(), mask),
        ),
        "loss": (ops.loss, (z, y, "entmax15", None, None, None, mask, "mean", 1, 0.0)),
        "losses": (ops.loss, (z, y, "entmax", None, 1.3, None, None, "none", None, 0.1)),
        "attention": (ops.attention, (query, key, value, *setting)),
        "attention of a mapping": (
            ops.attention,
            (query, key[:, :1], value, "sparsemax", None, None, None, False, 0, 0.3),
        ),
        "gradients of attention": (
            ops.attention_gradients,
            (*fixed, "entmax", two.detach(), *setting[2:]),
        ),
    }


@pytest.mark.parametrize("case", operations())
def test_opcheck(case: str) -> None:
    operation, args = operations()[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of what it is about to change
        found = opcheck(operation.default, args)
    assert set(found.values()) == {"SUCCESS"}


def test_modes_and_profilers_see_operations() -> None:
    z, y = tensor(3, 5), torch.tensor([0, 1, 2])
    names = {"pyentmax.mapping", "pyentmax.product", "pyentmax.loss"}

    def both() -> Any:
        return pt.entmax15(z).square().sum() + pt.entmax15_loss(z, y)

    (expected,) = torch.autograd.grad(both(), z)
    seen = set()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
            seen.add(str(function.overloadpacket))
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


@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_traced_graphs_keep_operations_and_derivatives(mode: str) -> None:
    z = tensor(3, 5)
    graph = make_fx(lambda z: pt.entmax15(z), tracing_mode=mode)(z.detach())
    assert "pyentmax.mapping.default" in graph.code
    (expected,) = torch.autograd.grad(pt.entmax15(z).square().sum(), z)
    (found,) = torch.autograd.grad(graph(z).square().sum(), z)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    slope = torch.func.grad(lambda z: pt.entmax15(z).square().sum())
    graph = make_fx(slope, tracing_mode=mode)(z.detach())
    torch.testing.assert_close(graph(z.detach()), expected, **DOUBLE)


def test_compiled_tangents_are_not_dropped() -> None:
    z, v = tensor(5, grad=False), tensor(5, seed=1, grad=False)
    with_tangent = lambda z, v: torch.func.jvp(pt.entmax15, (z,), (v,))  # noqa: E731
    compiled = torch.compile(with_tangent, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z, v), with_tangent(z, v), **DOUBLE)


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


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_model_compiles_in_one_graph(backend: str) -> None:
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


@pytest.mark.parametrize("name", ["entmax15_loss", "one_vs_all_loss"])
def test_losses_compile_with_dynamic_numbers(name: str) -> None:
    """PyTorch may be asked for that, and does so by itself for an option that has changed."""
    z, y = tensor(3, 4), torch.tensor([0, 1, 2])
    loss = getattr(pt, name)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for smoothing in (0.0, 0.1, 0.2):
        expected = loss(z, y, label_smoothing=smoothing)
        torch.testing.assert_close(compiled(z, y, label_smoothing=smoothing), expected, **ROUNDING)


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
def test_modules_equal_functions(name: str) -> None:
    z = tensor(3, 5, grad=False)
    title = "".join(part.capitalize() for part in name.split("_"))
    module = getattr(pt, title)(*values(name), dim=0)
    assert torch.equal(module(z), getattr(pt, name)(z, *values(name), dim=0))
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert repr(again) == repr(module)
    assert torch.equal(again(z), module(z))
    if name in WITH_LOSS:
        y = torch.tensor([0, 1, 2])
        loss = getattr(pt, f"{title}Loss")(*values(name), reduction="sum", ignore_index=1)
        expected = getattr(pt, f"{name}_loss")(z, y, *values(name), reduction="sum", ignore_index=1)
        assert torch.equal(loss(z, y), expected)


def test_tensors_of_a_module_are_buffers_or_parameters() -> None:
    fixed = pt.Entmax(torch.tensor(1.3))
    assert [name for name, _ in fixed.named_buffers()] == ["value"]
    learned = pt.Entmax(alpha=torch.nn.Parameter(torch.tensor(1.3)))
    assert [name for name, _ in learned.named_parameters()] == ["value"]
    (learned(tensor(2, 3, grad=False, dtype=torch.float32))[0, 0]).backward()
    assert learned.value.grad != 0


def test_alpha_is_learned_for_each_head() -> None:
    heads = pt.AlphaEntmax(2, a=torch.tensor([-1.0, 2.0]))
    scores = tensor(3, 2, 4, 5, dtype=torch.float32)
    weights = heads(scores)
    for head, alpha in enumerate(heads.alpha):
        expected = pt.entmax(scores[:, head], alpha.item())
        torch.testing.assert_close(weights[:, head], expected, **ROUNDING)
    weights[..., 0].sum().backward()
    assert heads.a.grad.shape == (2,)
    assert heads.a.grad.all()
    attend, query = pt.Attention(1.3, causal=True), tensor(2, 2, 4, 3, grad=False)
    assert torch.equal(
        attend(query, query, query), pt.attention(query, query, query, 1.3, causal=True)
    )


# --- one against all ------------------------------------------------------------------------------


def test_the_sigmoid_equals_the_array_function() -> None:
    z = tensor(4, 3)
    alpha = torch.tensor([1.1, 1.4, 1.9], dtype=torch.float64, requires_grad=True)
    expected = pe.entmax_sigmoid(z.detach().numpy(), alpha.detach().numpy())
    np.testing.assert_allclose(
        pt.entmax_sigmoid(z, alpha).detach(), expected, rtol=1e-12, atol=1e-14
    )
    infinite = torch.tensor([-torch.inf, 0, torch.inf])
    assert pt.entmax_sigmoid(infinite).tolist() == [0, 0.5, 1]
    assert torch.autograd.gradcheck(pt.entmax_sigmoid, (z, alpha), **DIFFERENCES)
    inside = (0.3 * tensor(4, 3, grad=False)).requires_grad_()
    assert torch.autograd.gradgradcheck(pt.entmax_sigmoid, inside, **DIFFERENCES)
    sigmoid = pt.EntmaxSigmoid(torch.nn.Parameter(alpha.detach().clone()))
    assert [name for name, _ in sigmoid.named_parameters()] == ["value"]
    mask = z.detach() > -1
    assert torch.equal(sigmoid(z, mask), pt.entmax_sigmoid(z, alpha, mask=mask))


def test_one_vs_all_losses_equal_the_array_functions() -> None:
    z, weight = tensor(4, 3), torch.tensor([1.0, 0, 2, 0.5]).double()
    mask, array = z.detach() > -1, z.detach().numpy()
    labels, several = torch.tensor([0, 2, -100, 1]), (tensor(4, 3, seed=1) > 0).long()
    several[0, 1] = -1
    for reduction in ("mean", "sum", "none"):
        for y, ignored in ((labels, -100), (several, -1), (several.clamp(0) * 0.3, None)):
            for more in ({}, {"weight": weight, "mask": mask, "label_smoothing": 0.2}):
                options: dict[str, Any] = more | {"reduction": reduction, "ignore_index": ignored}
                expected, slope = pe.one_vs_all_loss_and_grad(
                    array, y.numpy(), 1.4, **numpy_options(options)
                )
                found = pt.one_vs_all_loss(z, y, 1.4, **options)
                np.testing.assert_allclose(found.detach(), expected, rtol=1e-12, atol=1e-14)
                (gradient,) = torch.autograd.grad(found.sum(), z)
                np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-14)
    alphas = torch.tensor([1.1, 1.4, 1.9]).double()
    expected = pe.entmax_sigmoid_loss(array, several.numpy(), alphas.numpy(), ignore_index=-1)
    loss = pt.EntmaxSigmoidLoss(alphas, ignore_index=-1)
    np.testing.assert_allclose(loss(z, several).detach(), expected, rtol=1e-12, atol=1e-14)
    options = {"reduction": "sum", "label_smoothing": 0.1}
    found = pt.OneVsAllLoss(1.3, **options)(z, several.clamp(0), weight, mask)
    expected = pt.one_vs_all_loss(z, several.clamp(0), 1.3, weight=weight, mask=mask, **options)
    assert torch.equal(found, expected)
    turned = pt.one_vs_all_loss(z.T, labels, dim=0, ignore_index=-100)
    torch.testing.assert_close(turned, pt.one_vs_all_loss(z, labels, ignore_index=-100), **DOUBLE)


def test_one_vs_all_edges() -> None:
    z, y = tensor(3, 256, dtype=torch.float32), torch.tensor([0, 156, 255])
    expected = pt.one_vs_all_loss(z, y)
    assert pt.one_vs_all_loss(z, y.to(torch.uint8), ignore_index=-100) == expected
    assert pt.one_vs_all_loss(z[:0], y[:0]) == 0
    for weight in ([3e38, 3e38, 1.0], [1e-45, 1e-45, 0.0]):  # whose sums overflow or underflow
        found = pt.one_vs_all_loss(z, y, weight=torch.tensor(weight))
        arrays = z.detach().numpy(), y.numpy()
        expected = pe.one_vs_all_loss(*arrays, weight=np.float32(weight))
        np.testing.assert_allclose(found.detach(), expected, rtol=1e-6, atol=1e-6)
    # Where labels cannot be looked at, a wrong one makes the loss NaN.
    each = torch.func.vmap(pt.one_vs_all_loss)(z.detach()[:, None], (y + 1)[:, None])
    assert each.isnan().tolist() == [False, False, True]
    many = tensor(70_000, 2, dtype=torch.float16)  # more rows than float16 can count
    found = pt.one_vs_all_loss(many, torch.zeros(len(many), dtype=torch.long))
    expected = pe.one_vs_all_loss(many.detach().numpy(), np.zeros(len(many), int))
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-3)


@pytest.mark.parametrize("alpha", [1, 1.5, 2, 3])
def test_sigmoid_losses_of_infinite_scores(alpha: float) -> None:
    for z, y in ((np.inf, 0.0), (-np.inf, 0.5), (np.inf, 1.0), (-np.inf, 0.0)):
        expected, slope = pe.entmax_sigmoid_loss_and_grad(np.array(z), np.array(y), alpha)
        scores = torch.tensor(z, dtype=torch.float64, requires_grad=True)
        loss = pt.entmax_sigmoid_loss(scores, torch.tensor(y, dtype=torch.float64), alpha)
        (found,) = torch.autograd.grad(loss, scores)
        assert loss == expected
        assert found == slope
