"""Functions and modules of tensors: values, derivatives, batching, graphs."""

from __future__ import annotations

import inspect
import io
import pickle
import subprocess
import sys
import warnings
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages import slow

import pyentmax as pe
from pyentmax.reference.mappings import MAPPINGS

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.library import opcheck  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import pyentmax.torch as pt  # noqa: E402
from pyentmax.torch import arrays  # noqa: E402
from pyentmax.torch import operations as operations_module  # noqa: E402
from pyentmax.torch.attention_problem import TensorProblem  # noqa: E402
from pyentmax.torch.sorting import soft_sort  # noqa: E402

VALUES: dict[str, Any] = {"alpha": 1.3, "k": 2, "strength": 0.2, "upper": 0.4, "budget": 1.5}
COMPOSED = [name for name, record in MAPPINGS.items() if record.support_alpha or name == "entmax"]
WITH_LOSS = [name for name, record in MAPPINGS.items() if record.regularizer.is_defined]
# Steps of 1e-6 in float64, on functions whose slopes are about 1.
DIFFERENCES = {"eps": 1e-6, "atol": 1e-5, "rtol": 1e-3}
ROUNDING = {"rtol": 1e-6, "atol": 1e-6}  # of float32, where sums run in another order
DOUBLE = {"rtol": 1e-12, "atol": 1e-14}
EXACT = {"rtol": 0, "atol": 0}

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


def loss_of(name: str) -> Any:
    return pt.one_vs_all_loss if name == "one_vs_all" else getattr(pt, name).loss


def numpy_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of array functions, whose weight is of rows."""
    names = {"row_weight": "weight"}
    arrays = {k: x.numpy() if isinstance(x, torch.Tensor) else x for k, x in options.items()}
    return {names.get(name, name): x for name, x in arrays.items()}


# --- values ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MAPPINGS)
def test_every_mapping_is_written_out(name: str) -> None:
    """A mapping has its functions and modules here, with the array function's default."""
    array_function = inspect.signature(getattr(pe, name)).parameters
    own = [array_function[parameter] for parameter in MAPPINGS[name].parameters][:1]
    title = "".join(part.capitalize() for part in name.split("_"))
    written = {name: ["z"], f"{name}.support": ["z"], title: []}
    if MAPPINGS[name].regularizer.is_defined:
        written |= {f"{name}.loss": ["z", "y"], f"{title}Loss": []}
    for full_name, tensors in written.items():
        assert full_name.partition(".")[0] in pt.__all__
        shown = list(inspect.signature(attrgetter(full_name)(pt)).parameters.values())
        positional = [p for p in shown if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [p.name for p in positional] == [*tensors, *(p.name for p in own), "dim"]
        assert [p.default for p in positional[len(tensors) : -1]] == [p.default for p in own]


def test_functions_are_pickled_by_name() -> None:
    public = [getattr(pt, name) for name in pt.__all__ if callable(getattr(pt, name))]
    assert [pickle.loads(pickle.dumps(x)) is x for x in public] == [True] * len(public)


def test_host_tensors_are_not_copied() -> None:
    z = tensor(2, 5, dtype=torch.float32)
    assert (
        arrays.on_arrays(lambda array: np.int64(array.ctypes.data), z, dtype=torch.int64)
        == z.data_ptr()
    )


def test_storage_of_the_caller_stays_resizable() -> None:
    """As FSDP2 on a host asks of parameters."""
    z, mask = tensor(2, 300, grad=False), tensor(2, 300, grad=False) > -1
    pt.entmax15(z, mask=mask)
    pt.attention(z[:, None], z[:, None], z[:, None], causal=True)
    pt.entmax15_loss(z, torch.tensor([0, 1]), row_weight=z[:, 0].abs())
    for x in (z, mask):
        x.resize_(300, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_function_runs_on_meta_tensors(dtype: Any) -> None:
    z = torch.empty(3, 4, dtype=dtype, device="meta")
    y = torch.empty(3, dtype=torch.int64, device="meta")
    for name in pt.__all__:
        function, mapping = (
            getattr(pt, name),
            MAPPINGS.get(name.removesuffix("_loss").removesuffix("_support")),
        )
        if isinstance(function, type) or not callable(function):
            continue
        if name in ("entmax_linear", "by_rows") or (
            name.startswith("linear_") and "loss" not in name
        ):
            continue
        numbers = [] if mapping is None else [VALUES[p] for p in mapping.parameters]
        inputs = [z, z if "sigmoid" in name else y] if name.endswith("_loss") else [z]
        inputs = [z, z, y] if name == "linear_loss" else inputs
        found = function(*([z] * 3 if name == "attention" else inputs), *numbers)
        kind = torch.bool if name.endswith("_support") else dtype
        assert (found.device.type, found.dtype) == ("meta", kind), name


@half
def test_half_precision_is_rounded_once(dtype: Any) -> None:
    z, g = tensor(8, 300, dtype=dtype), tensor(8, 300, dtype=dtype, seed=1, grad=False)
    p = pt.entmax15(z)
    p.backward(g)
    wide = z.detach().float().requires_grad_()
    torch.testing.assert_close(p, pt.entmax15(wide).to(dtype), **EXACT)
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
        expected = getattr(pe, name).parameter_vjp.at_scores(z, p, g, upper)
        assert (p[:2] == full).all()
        scores = torch.tensor(z, dtype=dtype, requires_grad=True)
        bounds = torch.tensor(upper, requires_grad=True)
        getattr(pt, name)(scores, upper=bounds).backward(torch.tensor(g, dtype=dtype))
        in_scores = getattr(pe, name).vjp(p, g, upper)
        np.testing.assert_allclose(scores.grad.float(), in_scores, rtol=0, atol=0.03)
        np.testing.assert_allclose(bounds.grad, expected, rtol=0, atol=0.03)
    scores = torch.zeros(3, dtype=dtype, requires_grad=True)
    getattr(pt, name)(scores, upper=1 / 3).backward(torch.arange(3, dtype=dtype))
    assert not scores.grad.any()  # a number as bound of all leaves no room


@each_mapping
def test_scores_are_converted_as_by_softmax(name: str) -> None:
    z, f = tensor(3, 5, dtype=torch.bfloat16, grad=False), getattr(pt, name)
    found = f(z, *values(name), -1, dtype=torch.float32)
    torch.testing.assert_close(found, f(z.float(), *values(name)), **EXACT)


# --- errors ---------------------------------------------------------------------------------------


Z, Y = torch.zeros(2, 3), torch.tensor([0, 1])
LEARNED = torch.tensor(1.5, requires_grad=True)
ARRAY = np.zeros((2, 3))
TYPE_ERRORS = {
    "pt.softmax(Z.int())": "floating dtype, got torch.int32",
    "pt.softmax(Z.to(torch.complex64))": "floating dtype",
    "pt.softmax(Z.to(torch.float8_e4m3fn))": "floating dtype",
    "pt.sparsemax(Z.to_sparse())": r"dense Tensor, .*z.to_dense\(\)",
    "pt.entmax15(ARRAY)": "z must be a Tensor, got ndarray",
    "pt.one_vs_all_loss(Z, ARRAY)": "y must be a Tensor, got ndarray",
    "pt.attention([1.0], Z, Z)": "query must be a Tensor, got list",
    "pt.entmax15(Z, 0, mask=ARRAY)": "mask must be a Tensor, got ndarray",
    "pt.softmax.loss(Z, Y, weight=ARRAY)": "^weight must be a Tensor, got ndarray",
    "pt.softmax.loss(Z, Y, row_weight=ARRAY)": "row_weight must be a Tensor, got ndarray",
    "pt.entmax(Z, ARRAY)": "alpha must be a number or a Tensor",
    "pt.softmax(Z, dim=1.5)": "dim must be an int, got 1.5",
    "pt.topk_softmax(Z)": r"topk_softmax\(\) missing 1 required .* 'k'",
    "pt.entmax(Z, beta=2)": r"entmax\(\) got an unexpected .* 'beta'",
    "pt.entmax(Z, 1.5, alpha=2)": r"entmax\(\) got multiple values for argument 'alpha'",
    "pt.softmax.loss(Z, Y, eps=1)": r"softmax.loss\(\) got .* 'eps'",
    "pt.softmax(Z, mask=Z.int())": r"boolean, .* mask != 0",
    "pt.softmax(Z, mask=Z)": "additive mask: pass mask == 0",
    "pt.entmax.loss(Z, Y, LEARNED)": "entmax.loss has no gradient in alpha",
    "pt.one_vs_all_loss(Z, Y, LEARNED)": "entmax.loss has no gradient in alpha",
    "pt.normmax.loss(Z, LEARNED + Z)": "normmax.loss has no gradient in y",
    "pt.softmax.loss(Z, Y, label_smoothing=LEARNED)": "must be a number",
    "pt.one_vs_all_loss(Z, Y, ignore_index=1.5)": "ignore_index must be a whole number or None",
    "pt.Entmax15Loss(row_weight=Y)": r"Entmax15Loss\(\) got .* 'row_weight'",
    "pt.one_vs_all_loss(Z, Z.to(torch.complex64))": "real numbers",
    "pt.attention(Z, Z, Z, is_causal=True)": "'is_causal'.*here it is causal",
    "pt.Attention(is_causal=True)": "'is_causal'.*here it is causal",
    "pt.attention(Z, Z, Z, attn_mask=Z > 0)": "'attn_mask'.*here it is mask, or bias",
    "pt.attention(Z, Z, Z, dropout_p=0.1)": "'dropout_p'.*here it is dropout",
    "pt.attention(Z, Z, Z, mapping='sparsemax', biased=Z)": "unexpected .*'biased'",
    "pt.attention(Z, Z, Z, bias=torch.ones(2, 2) > 0)": "bias must be .* floating dtype",
    "pt.attention(Z, Z, Z, softcap=Z)": "softcap must be a number, got tensor",
    "pt.attention(Z, Z, Z, 1.3, mapping='sparsemax')": r"\(mapping='sparsemax'\) got .*'alpha'",
    "pt.Attention(1.3, mapping='sparsemax')": r"\(mapping='sparsemax'\) got .*'alpha'",
}
VALUE_ERRORS = {
    "pt.entmax(Z, 0)": "alpha must be above 0, got 0",
    "pt.attention(Z, Z, Z, mapping='soft')": "mapping must be one of softmax, ",
    "pt.attention(Z, Z, Z, bias=Z)": r"bias of shape \(2, 3\) .* the scores, of shape \(2, 2\)",
    "pt.attention(Z, Z, Z, softcap=0.0)": "softcap must be above 0, got 0.0",
    "pt.Attention(dropout=1.5)": "dropout must be a probability, from 0 to 1, got 1.5",
    "pt.attention(Z, Z, Z, offset=1)": "offset shifts the causal mask",
    "pt.attention(Z, Z[:, :2], Z)": "the same number of features",
    "pt.attention(Z, Z, Z[:1], mask=Z > 0)": "the same number of positions",
    "pt.attention(torch.ones(3, 2, 3), torch.ones(2, 2, 3), Z)": "batch shapes .* must broadcast",
    "pt.softmax(Z, 0, mask=Y > 0)": r"mask of shape \(2,\) does not broadcast to z",
    "pt.one_vs_all_loss(Z, Y, row_weight=Z[0])": r"shape \(3,\)",
    "pt.softmax.loss(Z, Y, weight=Z[:, 0])": r"the shape \(3,\), .* got shape \(2,\)",
    "pt.one_vs_all_loss(Z, Z, weight=Z[0])": "for integer labels",
    "pt.entmax_sigmoid(Z, torch.ones(2))": r"alpha of shape \(2,\) does",
    "pt.one_vs_all_loss(Z, Y + 2)": "^y must be from 0 to 2, got 3",
    "pt.one_vs_all_loss(Z, Z + 2)": "^y must be from 0 to 1, got 2.0",
    "pt.one_vs_all_loss(Z, Y[:1])": r"y must be integer labels of shape \(2,\)",
    "pt.softmax.loss(Z, Y, label_smoothing=1.5)": "got 1.5",
    "pt.softmax.loss(Z, Y, reduction='avg')": "mean, sum, none, got 'avg'",
}


@pytest.mark.parametrize("call", TYPE_ERRORS)
def test_wrong_types_are_refused(call: str) -> None:
    with pytest.raises(TypeError, match=TYPE_ERRORS[call]):
        eval(call)


@pytest.mark.parametrize("call", VALUE_ERRORS)
def test_wrong_values_are_refused(call: str) -> None:
    with pytest.raises(ValueError, match=VALUE_ERRORS[call]):
        eval(call)


@pytest.mark.slow
def test_import_without_docstrings() -> None:
    code = "import pyentmax.torch as pt; assert pt.Entmax15().dim == -1"
    subprocess.run([sys.executable, "-OO", "-W", "ignore", "-c", code], check=True)


# --- derivatives ----------------------------------------------------------------------------------


@each_mapping
def test_derivatives_in_the_scores(name: str) -> None:
    f, forward = getattr(pt, name), {"check_forward_ad": name in COMPOSED}
    assert torch.autograd.gradcheck(
        lambda z: f(z, *values(name), dim=0), tensor(3, 4), **forward, **DIFFERENCES
    )


@pytest.mark.parametrize("name", COMPOSED)
def test_second_derivatives(name: str) -> None:
    f, has_loss = getattr(pt, name), name in WITH_LOSS
    z, y = tensor(3, 4), torch.tensor([0, 2, 3])
    assert torch.autograd.gradgradcheck(lambda z: f(z, *values(name)), z, **DIFFERENCES)
    for options in ({}, {"reduction": "none", "ignore_index": 2}, {"reduction": "sum"}):
        if has_loss:
            assert torch.autograd.gradgradcheck(
                lambda z, options=options: f.loss(z, y, *values(name), **options), z, **DIFFERENCES
            )


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5, 2.0, 2.5])
def test_second_derivatives_in_alpha(alpha: float) -> None:
    z = torch.tensor([[0.3, 0.1, -0.2, -0.9], [0.5, 0.0, -0.4, 0.2]], dtype=torch.float64)
    inputs = (z.requires_grad_(), torch.tensor([alpha, 1.4]).double().requires_grad_())
    if alpha == 1:  # from where differences would step to where it is an error
        hessian = torch.func.hessian(lambda a: pt.entmax(z, a).square().sum())
        near = hessian(torch.tensor([1 + 1e-5, 1.4]).double())
        torch.testing.assert_close(hessian(inputs[1]), near, rtol=1e-3, atol=1e-4)
    else:
        assert torch.autograd.gradgradcheck(pt.entmax, inputs, **DIFFERENCES)


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15", "entmax"])
@pytest.mark.parametrize("kernels", [True, False])
def test_logarithms_and_their_derivatives(
    name: str, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels:
        monkeypatch.setattr(operations_module, "has_kernels", lambda tensor: False)
    z, mask = tensor(3, 5), torch.tensor([True, True, True, False, True])
    settings = [torch.tensor(1.3, dtype=torch.float64)] * (name == "entmax")
    function, mapping = getattr(pt, name).log, getattr(pt, name)
    log_p, p = (f(z, *settings, mask=mask) for f in (function, mapping))
    torch.testing.assert_close(log_p, p.log(), **DOUBLE)
    inputs = [(0.2 * tensor(3, 5, grad=False)).requires_grad_()]  # with few zeros
    inputs += [x.clone().requires_grad_() for x in settings]

    def on_support(z: Any, *settings: Any) -> Any:
        log_p = function(z.mT, *settings, 0, mask=mask[:, None])
        return torch.where(log_p > -torch.inf, log_p, 0)

    assert torch.autograd.gradcheck(on_support, inputs, **DIFFERENCES)
    assert torch.autograd.gradgradcheck(on_support, inputs, **DIFFERENCES)
    direction = tuple(torch.ones_like(x) * x.detach().cos() for x in inputs)
    _, found = torch.func.jvp(on_support, tuple(x.detach() for x in inputs), direction)
    _, expected = torch.autograd.functional.jvp(on_support, tuple(inputs), direction)
    torch.testing.assert_close(found, expected, **DOUBLE)
    assert (function(z, *settings, mask=torch.tensor(False)) == -torch.inf).all()
    half = z.detach().bfloat16()
    torch.testing.assert_close(function(half), function(half.float()).bfloat16())


def test_a_log_probability_stays_finite_where_p_underflows() -> None:
    z = torch.tensor([0.0, -900.0, -1100.0], dtype=torch.float64, requires_grad=True)
    assert pt.entmax(z, 1.001)[1] == 0
    log_p = pt.entmax.log(z, 1.001)
    np.testing.assert_array_equal(log_p.detach(), pe.entmax.log(z.detach().numpy(), 1.001))
    log_p[1].backward()  # dlog p₁ = p₁^{1−α}(dz₁ − dz₀), with all of Σs at 0
    rate = np.exp(-0.001 * log_p[1].item())
    np.testing.assert_allclose(z.grad, [-rate, rate, 0], rtol=1e-12)


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
    x = tensor(300, 3)  # long enough for sums over the support
    (gradient,) = torch.autograd.grad(pt.attention(x, x, x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="attention has no second derivatives"):
        gradient.sum().backward()
    z, x, y = z.detach(), x.detach(), torch.tensor(0)
    cases = [
        (pt.normmax, z),
        (lambda z: pt.normmax.loss(z, y), z),
        (torch.func.vmap(pt.fusedmax), x),
        (soft_sort, z),
        (lambda x: pt.attention(x, x, x), x),
    ]
    for f, point in cases:
        with pytest.raises(NotImplementedError, match="no derivative in forward mode"):
            torch.func.jvp(f, (point,), (point,))
        with pytest.raises(NotImplementedError, match="forward mode"), forward_ad.dual_level():
            f(forward_ad.make_dual(point, point))
    with pytest.raises(NotImplementedError, match="this mapping has no derivative in forward mode"):
        torch.func.hessian(lambda z: pt.normmax(z).square().sum())(z)


# --- losses and attention -------------------------------------------------------------------------


def test_losses_of_one_vs_all_equal_the_array_function() -> None:
    z, y = tensor(4, 5), torch.tensor([0, 4, 2, 1])
    weight, mask = torch.tensor([1.0, 0.5, 0, 2]), tensor(4, 5, seed=1) > -1
    distributions = torch.softmax(tensor(4, 5, seed=1, grad=False), -1)
    for target, options in (
        (y, {"mask": mask}),
        (y, {"reduction": "none", "ignore_index": 2}),
        (y.to(torch.uint8), {"reduction": "sum", "row_weight": weight, "ignore_index": -100}),
        (distributions, {"row_weight": weight}),
        (y, {"label_smoothing": 0.1}),
    ):
        loss = partial(pt.one_vs_all_loss, y=target, alpha=1.4, **options)
        arrays = z.detach().numpy(), target.numpy(), 1.4
        expected = pe.one_vs_all_loss(*arrays, **numpy_options(options))
        np.testing.assert_allclose(loss(z).detach(), expected, rtol=1e-14)
        assert torch.autograd.gradcheck(loss, z, **DIFFERENCES)
    assert torch.equal(pt.entmax.loss(z, y, 1.4), pt.fenchel_young_loss(z, y, "entmax", alpha=1.4))


@pytest.mark.parametrize("name", ["entmax15", "one_vs_all", *slow("softmax", "sparsemax")])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_losses_have_gradients_in_targets_and_weights(name: str, reduction: str) -> None:
    z, a, w = tensor(2, 3), tensor(2, 3, seed=1), torch.tensor([1.0, 0.5]).double()
    inputs = (z, a, w.requires_grad_())

    def loss(z: Any, a: Any, w: Any) -> Any:
        y, f = torch.softmax(a, -1), loss_of(name)
        return f(z, y, row_weight=w, label_smoothing=0.1, reduction=reduction)

    assert torch.autograd.gradcheck(loss, inputs, **DIFFERENCES)
    assert torch.autograd.gradgradcheck(loss, inputs, **DIFFERENCES)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_are_those_of_cross_entropy(reduction: str) -> None:
    z, y = tensor(5, 3), torch.tensor([0, 1, 2, 1, -100])
    options = {"reduction": reduction, "ignore_index": -100}
    weight = torch.tensor([0.5, 2, 1], dtype=torch.float64)
    expected = torch.nn.functional.cross_entropy(z, y, weight, **options)
    found = pt.softmax.loss(z, y, weight=weight, **options)
    torch.testing.assert_close(found, expected, **DOUBLE)
    slopes = [torch.autograd.grad(x.sum(), z)[0] for x in (found, expected)]
    torch.testing.assert_close(*slopes, **DOUBLE)
    of_rows = weight.numpy()[np.where(y == -100, 0, y)]
    array = pe.softmax.loss(z.detach().numpy(), y.numpy(), weight=of_rows, **options)
    np.testing.assert_allclose(array, expected.detach(), **DOUBLE)
    labels, y = {**options, "ignore_index": None}, y % 3
    for name in ("entmax15", "one_vs_all"):
        own = loss_of(name)(z, y, weight=weight, row_weight=z[:, 0] ** 2, **labels)
        of_rows = loss_of(name)(z, y, row_weight=weight[y] * z[:, 0] ** 2, **labels)
        torch.testing.assert_close(own, of_rows, **DOUBLE)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_losses_widen_a_block_at_a_time(
    dtype: Any, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    widened, run = [], pt.operations.fenchel_young_loss_and_grad

    def spy(z: Any, *args: Any, **options: Any) -> Any:
        widened.append(z.size)
        return run(z, *args, **options)

    monkeypatch.setattr(pt.operations, "fenchel_young_loss_and_grad", spy)
    monkeypatch.setattr(pt.operations, "BLOCK", 16)
    z = tensor(4, 3, 7, grad=False).to(dtype)
    z[1, 2] = -torch.inf
    y, weight = torch.arange(12).view(4, 3) % 7, torch.arange(12.0).view(4, 3)
    q = pt.softmax(tensor(4, 3, 7, seed=1, grad=False)).to(dtype)
    q[1, 2] = torch.eye(7)[0]
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[:, 3] = False
    cases: list[tuple[Any, dict[str, Any]]] = [
        (y, {}),
        (q, {}),
        (y, {"ignore_index": 2, "row_weight": weight, "label_smoothing": 0.1}),
        (y, {"row_weight": weight[0], "mask": mask, "ignore_index": 3}),
    ]
    for target, options in cases:
        pair = z.clone().requires_grad_(), z.float().requires_grad_()
        losses = [pt.entmax.loss(x, target, 1.3, reduction=reduction, **options) for x in pair]
        torch.testing.assert_close(losses[0], losses[1].to(dtype), rtol=0.01, atol=1e-3)
        for loss in losses:
            loss.sum().backward()
        torch.testing.assert_close(pair[0].grad, pair[1].grad.to(dtype), rtol=0.01, atol=1e-3)
    assert sorted(set(widened)) == [14, 84]


@half
@pytest.mark.parametrize("loss", ["softmax.loss", "entmax15.loss", "one_vs_all_loss"])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 3.0]).repeat(2048)])
def test_half_gradients_survive_a_mean_and_a_loss_scale(dtype: Any, loss: str, weight: Any) -> None:
    """Divided by the number of rows before the scale came, all but the labels' were 0."""
    z = tensor(4096, 50, grad=False).div(100).to(dtype).requires_grad_()
    y = torch.zeros(4096, dtype=torch.long)
    found, expected = [
        torch.autograd.grad(attrgetter(loss)(pt)(x, y, row_weight=weight).float() * 2.0**10, x)[0]
        for x in (z, z.detach().double().requires_grad_())
    ]
    error = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), expected, rtol=1.1 * error, atol=6e-8)
    for x in (found, expected):
        assert not x.eq(0).any()


@pytest.mark.parametrize("loss", ["one_vs_all_loss", "entmax15.loss"])
def test_a_row_of_weight_0_may_hold_anything(loss: str) -> None:
    z = tensor(3, 4, grad=False)
    z[1] = torch.nan
    z.requires_grad_()
    y, weight = torch.tensor([0, -100, 2]), torch.tensor([1.0, 0.0, 1.0])
    total = attrgetter(loss)(pt)(z, y, row_weight=weight)
    (gradient,) = torch.autograd.grad(total, z, create_graph=True)
    array_function = attrgetter(f"{loss}_and_grad")(pe)
    expected = array_function(z.detach().numpy(), y.numpy(), weight=weight.numpy())
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


def test_one_vs_all_with_several_classes_equals_the_array_function() -> None:
    z, several, mask = tensor(4, 3), (tensor(4, 3, seed=1) > 0).long(), tensor(4, 3, seed=2) > -1
    several[0, 1] = -1
    alpha = torch.tensor([1.1, 1.4, 1.9]).double()
    arrays = z.detach().numpy(), several.numpy(), alpha.numpy()
    expected = pe.one_vs_all_loss(*arrays, ignore_index=-1, mask=mask.numpy())
    found = pt.OneVsAllLoss(alpha, ignore_index=-1)(z, several, mask=mask)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-12)
    bools = several == 1
    assert torch.equal(pt.one_vs_all_loss(z, bools, 1.4), pt.one_vs_all_loss(z, 1 * bools, 1.4))


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
    for loss in (pt.entmax15_loss, pt.one_vs_all_loss):
        found = torch.vmap(loss, in_dims=(0, None))(z, y)
        torch.testing.assert_close(found, torch.stack([loss(one, y) for one in z]), **ROUNDING)
    found = torch.vmap(lambda query: pt.attention(query, z[0], z[0]))(z)
    torch.testing.assert_close(found, pt.attention(z, z[0], z[0]), **ROUNDING)


def scalar_functions() -> dict[str, Any]:
    y, alpha = torch.tensor(2), torch.tensor(1.3, dtype=torch.float64)
    return {
        "entmax": lambda z: pt.entmax(z, alpha).square().sum(),
        "alpha": lambda z: pt.entmax(z, 1.2 + z[0].sigmoid()).square().sum(),
        "topk_sparsemax": lambda z: pt.topk_sparsemax(z, 3).square().sum(),
        "loss": lambda z: pt.softmax.loss(z, y, label_smoothing=0.1),
        "target": lambda z: pt.sparsemax_loss(z[1:], torch.softmax(z[:-1], -1)),
        "one-vs-all": lambda z: pt.one_vs_all_loss(0.3 * z, y),
    }


@pytest.mark.parametrize("name", scalar_functions())
def test_transformations_agree(name: str) -> None:
    """A registered derivative is not seen by torch.func, nor by forward mode."""
    f, z = scalar_functions()[name], tensor(5, grad=False)
    func, functional = torch.func, torch.autograd.functional
    gradient, hessian = functional.jacobian(f, z), functional.hessian(f, z)
    others = [func.grad(f)(z), func.jacrev(f)(z), func.vmap(func.grad(f))(z[None])[0]]
    others += [func.grad(lambda z: func.vmap(f)(z).sum())(z[None])[0]]
    second = [func.jacrev(func.jacrev(f))(z)]
    others += [func.jacfwd(f)(z)]
    tangent = tensor(1, 5, seed=1, grad=False)
    _, along = func.jvp(func.vmap(f), (z[None],), (tangent,))
    torch.testing.assert_close(along, tangent @ gradient, **DOUBLE)
    second += [func.hessian(f)(z), func.jacfwd(func.jacfwd(f))(z)]
    second += [func.jacrev(func.jacfwd(f))(z)]
    for found in others:
        torch.testing.assert_close(found, gradient, **DOUBLE)
    for found in second:
        torch.testing.assert_close(found, hessian, rtol=1e-11, atol=1e-13)
    third = func.jacrev(func.jacrev(func.jacrev(f)))(z)
    for found in (func.jacfwd(func.hessian(f))(z), func.jacrev(func.jacrev(func.jacfwd(f)))(z)):
        torch.testing.assert_close(found, third, rtol=1e-10, atol=1e-12)


def test_a_symbolic_trace_keeps_calls_whole() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.sparse = pt.Attention(1.4, causal=True), pt.Sparsemax(dim=0)
            self.loss, self.binary = pt.EntmaxLoss(1.3), pt.OneVsAllLoss()

        def forward(self, z: Any, y: Any) -> Any:
            p = self.sparse(self.attention(z, z, z)) + pt.entmax(z, 1.3) + pt.entmax_sigmoid(z)
            return self.loss(p, y) + self.binary(p, p.sigmoid())

    z, y = tensor(3, 4, grad=False), torch.tensor([0, 1, 3])
    traced = torch.fx.symbolic_trace(Model())
    assert torch.equal(traced(z, y), Model()(z, y))
    targets = [node.target.__name__ for node in traced.graph.nodes if callable(node.target)]
    assert {"attention", "apply", "entmax_sigmoid", "apply_loss"} <= set(targets)


def host_calls() -> list[Any]:
    """Calls that take plain tensors alone."""
    labels = torch.tensor([0, 1])
    return [
        pt.sparsemax,
        pt.entmax15.support,
        lambda z: pt.sparsemax_loss(z, labels),
        lambda z: pt.attention(z, z, z),
        lambda z: pt.linear_loss(torch.ones(2, 3), torch.nn.Parameter(z), labels),
    ]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="no distributed package")
def test_dtensors_are_told_how_to_become_plain(tmp_path: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    place = {"init_method": f"file://{tmp_path}/store", "rank": 0, "world_size": 1}
    torch.distributed.init_process_group("gloo", **place)
    try:
        z = distribute_tensor(torch.ones(2, 3), init_device_mesh("cpu", (1,)), [Replicate()])
        for call in host_calls():
            with pytest.raises(TypeError, match=r"pass (\w+).full_tensor\(\), .* \1.to_local"):
                call(z)
        torch.testing.assert_close(pt.sparsemax(z.to_local()), torch.full((2, 3), 1 / 3))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_told_how_to_pad(layout: Any) -> None:
    rows = [tensor(2, 3, grad=False), tensor(3, 3, grad=False)]
    nested = torch.nested.nested_tensor(rows, layout=layout)
    advice = r"pad it with (\w+).to_padded_tensor\(0.0\), and hide the padding with a mask"
    if layout is torch.jagged:
        advice += r"; its rows are \1.values\(\), cut at \1.offsets\(\)"
    for call in host_calls():
        with pytest.raises(TypeError, match=advice + "$"):
            call(nested)
    padded, mask = nested.to_padded_tensor(0.0), torch.tensor([[True, True, False], [True] * 3])
    found = pt.attention(padded, padded, padded, mask=mask.unsqueeze(1))
    for output, z in zip(found, rows, strict=True):
        torch.testing.assert_close(output[: len(z)], pt.attention(z, z, z), **DOUBLE)


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
    sink, share = torch.tensor([0.1, 0.2], requires_grad=True), torch.tensor(0.1)
    slopes = torch.tensor([0.1, 0.3], requires_grad=True)
    heads = TensorProblem(
        query, key, value, "entmax", two, None, None, None, True, 0, None, sink, slopes,
        "slopes", None, None, None,
    )  # fmt: skip
    shared = TensorProblem(
        query, key[:, :1], value, "sparsemax", None, None, None, None, False, 0, 0.3, None,
        None, "scores", None, None, None,
    )  # fmt: skip
    constant = (x.detach() if isinstance(x, torch.Tensor) else x for x in heads)
    rest = ("entmax", alpha.detach(), mask)
    return {
        "mapping": (ops.mapping, (z, "entmax", alpha, None, mask)),
        "log p": (ops.mapping, (z, "log_entmax", alpha, None, mask)),
        "product": (ops.product, (p, v, "entmax", alpha.detach(), None, mask)),
        "gradient of alpha": (ops.parameter_gradient, (p, v.detach(), None, *rest)),
        "loss": (ops.loss, (z, y, "entmax15", None, None, None, mask, "mean", 1, None)),
        "losses": (ops.loss, (z, y, "entmax", None, 1.3, None, None, "none", None, share)),
        "attention": (ops.attention, tuple(heads)),
        "attention that keeps its weights": (
            ops.attention_with_weights,
            tuple(heads._replace(return_weights=True)),
        ),
        "attention that keeps what derivatives need": (ops.attention_with_weights, tuple(heads)),
        "attention of a mapping": (ops.attention, tuple(shared)),
        "gradients of attention": (
            ops.attention_gradients,
            (query.detach(), *constant, True, True, *[None] * 6),
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

    def both() -> Any:
        return pt.entmax15(z).square().sum() + pt.entmax15_loss(z, y)

    (expected,) = torch.autograd.grad(both(), z)
    seen = set()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
            seen.add(str(function))
            return function(*args, **(kwargs or {}))

    with Watching():
        (found,) = torch.autograd.grad(both(), z)
    names = {"mapping", "product", "loss"}
    assert {f"pyentmax.{name}.default" for name in names} <= seen
    torch.testing.assert_close(found, expected, **EXACT)
    with torch.profiler.profile() as profile:
        torch.autograd.grad(both(), z)
    assert {f"pyentmax::{name}" for name in names} <= {x.key for x in profile.key_averages()}
    with FakeTensorMode():
        assert pt.entmax15(torch.empty(3, 5, dtype=torch.float16)).dtype == torch.float16


@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_traced_graphs_keep_operations_and_derivatives(mode: str) -> None:
    z = tensor(3, 5)
    graph = make_fx(lambda z: pt.entmax15(z), tracing_mode=mode)(z.detach())
    assert "pyentmax.mapping.default" in graph.code
    (expected,) = torch.autograd.grad(pt.entmax15(z).square().sum(), z)
    (found,) = torch.autograd.grad(graph(z).square().sum(), z)
    torch.testing.assert_close(found, expected, **EXACT)
    slope = torch.func.grad(lambda z: pt.entmax15(z).square().sum())
    graph = make_fx(slope, tracing_mode=mode)(z.detach())
    torch.testing.assert_close(graph(z.detach()), expected, **DOUBLE)


def test_compiled_tangents_are_not_dropped() -> None:
    z, v = tensor(5, grad=False), tensor(5, seed=1, grad=False)
    with_tangent = lambda z, v: torch.func.jvp(pt.entmax15, (z,), (v,))  # noqa: E731
    compiled = torch.compile(with_tangent, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z, v), with_tangent(z, v), **DOUBLE)


@pytest.mark.parametrize("name", ["entmax", *slow("alpha", "one-vs-all", "target")])
def test_transformations_compile(name: str) -> None:
    f, z, func = scalar_functions()[name], tensor(5, grad=False), torch.func
    transformed = {"grad": func.grad(f)}
    if name in ("alpha", "one-vs-all"):
        transformed = {
            "hessian": func.hessian(f),
            "batch": lambda z: func.vmap(func.grad(f))(z[None]),
        }
    for function in transformed.values():
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(z), function(z), rtol=1e-11, atol=1e-13)


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


NUMBERS: dict[str, Any] = {
    "alpha": lambda z, x: pt.entmax(z, 1 + x),
    "penalty": lambda z, x: pt.fusedmax(z, x),
    "loss": lambda z, x: pt.entmax.loss(z, torch.tensor([0, 1, 2]), 1 + x),
    "smoothing": lambda z, x: pt.softmax.loss(z, torch.tensor([0, 1, 2]), label_smoothing=x),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_change_compile_twice(name: str) -> None:
    """The first is a constant of its graph, and an input of the second."""
    graphs = CompileCounterWithBackend("aot_eager")
    z, compiled = tensor(3, 4), torch.compile(NUMBERS[name], fullgraph=True, backend=graphs)
    for number in (0.1, 0.2, 0.3, 0.4):
        torch.testing.assert_close(compiled(z, number), NUMBERS[name](z, number), **ROUNDING)
    assert graphs.frame_count <= 2


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1, 1.5, 2.0])
def test_onnx_has_no_search_for_alphas_with_closed_forms(alpha: float) -> None:
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)

    class Weights(torch.nn.Module):
        def forward(self, z: Any) -> Any:
            return pt.entmax(z, alpha), pt.attention(z, z, z, alpha)

    z = tensor(3, 6, dtype=torch.float32, grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(Weights(), (z,), dynamo=True, verbose=False)
    nodes = exported.model_proto.graph.node
    assert len(nodes) < 450  # a search takes 540 for each
    assert not {"TopK", "Loop"} & {node.op_type for node in nodes}


@pytest.mark.parametrize("name", ["entmax15", "sparsemax"])
def test_newtons_steps_in_onnx_are_enough_for_a_million_scores(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = 1 << 20
    normal = torch.randn(d, generator=torch.Generator().manual_seed(0))
    half = torch.where(torch.arange(d) % 2 == 0, 0.0, -torch.inf)
    levels = (8 * normal.sigmoid()).round() / 8
    kinds = [torch.zeros(d), half, normal / 1e6, levels, normal, 100 * normal, 1e-3 * normal]
    z = torch.stack([*kinds, torch.linspace(-1, 0, d)])
    expected = getattr(pt, name)(z.double())
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    found = pt.composed.mapping(z, name, None, None)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=3e-7)
    assert found.double().sum(-1).sub(1).abs().max() < 1e-3


def test_the_older_onnx_exporter_refuses_attention() -> None:
    class Model(torch.nn.Module):
        def forward(self, z: Any) -> Any:
            return pt.attention(z, z, z)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        with pytest.raises(RuntimeError, match=r"attention.*dynamo=True"):
            torch.onnx.export(Model(), (torch.ones(3, 4),), io.BytesIO(), dynamo=False)


class Exported(torch.nn.Module):
    """What ONNX knows as PyTorch's operations; scores with ties."""

    def forward(self, z: Any, y: Any) -> Any:
        z, alpha = (4 * z).round() / 4, 1 + y[0, 0].sigmoid()
        found = [pt.topk_softmax(z, 2), pt.topk_sparsemax(z, 3), pt.entmax_sigmoid(z)]
        for name in ("softmax", "sparsemax", "entmax15"):
            found += [getattr(pt, name)(z, dim=0), getattr(pt, name).log(z)]
        found += [pt.entmax(z, 1.3), pt.entmax.log(z, alpha), pt.attention(z[:1], y, y)]
        return (*found, pt.attention(z, z, z, mapping="entmax15", causal=True))


@pytest.mark.slow
def test_exported_functions_run_at_other_sizes_in_onnx() -> None:
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    onnxruntime = pytest.importorskip("onnxruntime")
    shapes = [(3, 6), (5, 6)], [(4, 9), (2, 9)]
    first, second = [
        [tensor(*s, seed=i, dtype=torch.float32, grad=False) for i, s in enumerate(pair)]
        for pair in shapes
    ]
    rows, classes, keys = (torch.export.Dim(name) for name in ("rows", "classes", "keys"))
    dynamic = {0: rows, 1: classes}, {0: keys, 1: classes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(
            Exported(), tuple(first), dynamo=True, verbose=False, dynamic_shapes=dynamic
        )
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    names = [x.name for x in session.get_inputs()]
    for inputs in (first, second):
        results = session.run(None, dict(zip(names, (x.numpy() for x in inputs), strict=True)))
        for result, expected in zip(results, Exported()(*inputs), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1, 1.1, 1.5, 1.7, 2 - 1e-3, 2])
def test_onnx_gives_hard_rows_their_eager_values(alpha: float) -> None:
    """NaN, too, which may get lost where ONNX Runtime looks for the largest."""
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    onnxruntime = pytest.importorskip("onnxruntime")
    model = pt.Entmax(alpha)
    dims = {0: torch.export.Dim("rows"), 1: torch.export.Dim("classes")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(
            model, (torch.randn(3, 6),), dynamo=True, verbose=False, dynamic_shapes=(dims,)
        )
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    [given], inf, nan = [x.name for x in session.get_inputs()], torch.inf, torch.nan
    for d in (2, 5, 40, 3000):
        z = torch.randn(24, d, generator=torch.Generator().manual_seed(d))
        z[1:7] *= torch.tensor([[1e-4], [0.1], [10], [1e4], [1e30], [1e37]])
        z[7], z[8, 1:], z[9, :-1], z[10, ::2], z[11] = 0, -inf, -inf, -inf, -inf
        z[12, 0], z[13, -1], z[14] = inf, inf, inf
        z[15, 0], z[16, 1], z[17, -1], z[18, d // 2], z[19] = nan, nan, nan, nan, nan
        z[20], z[20, -1], z[21], z[21, 0], z[22], z[22, 1] = -inf, nan, inf, nan, -inf, inf
        [p] = session.run(None, {given: z.numpy()})
        np.testing.assert_allclose(p, model(z), rtol=1e-4, atol=2e-6, err_msg=str(d))


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
        expected = getattr(pt, name).loss(z, y, *values(name), reduction="sum", ignore_index=1)
        assert torch.equal(loss(z, y), expected)


def test_other_modules_equal_functions() -> None:
    z, y, weight, mask = tensor(3, 5), torch.tensor([0, 1, 2]), torch.ones(3), tensor(3, 5) > -1
    assert torch.equal(pt.EntmaxSigmoid(1.3)(z), pt.entmax_sigmoid(z, 1.3))
    loss = pt.OneVsAllLoss(1.3, label_smoothing=0.1)(z, y, weight, mask)
    expected = pt.one_vs_all_loss(z, y, 1.3, row_weight=weight, mask=mask, label_smoothing=0.1)
    assert torch.equal(loss, expected)
    attention = pt.Attention(mapping="topk_softmax", k=2, causal=True)
    expected = pt.attention(z, z, z, mapping="topk_softmax", k=2, causal=True)
    assert torch.equal(attention(z, z, z), expected)


def test_tensors_of_a_module_are_buffers_or_parameters() -> None:
    fixed = pt.Entmax(torch.tensor(1.3))
    assert [name for name, _ in fixed.named_buffers()] == ["alpha"]
    learned = pt.Entmax(alpha=torch.nn.Parameter(torch.tensor(1.3)))
    assert [name for name, _ in learned.named_parameters()] == ["alpha"]
    (learned(tensor(2, 3, grad=False, dtype=torch.float32))[0, 0]).backward()
    assert learned.alpha.grad != 0


def test_alpha_is_learned_for_each_head() -> None:
    heads = pt.AlphaEntmax(2, a=torch.tensor([-1.0, 2.0]))
    scores = tensor(3, 2, 4, 5, dtype=torch.float32)
    weights = heads(scores)
    for head, alpha in enumerate(heads.alpha):
        expected = pt.entmax(scores[:, head], alpha.item())
        torch.testing.assert_close(weights[:, head], expected, **ROUNDING)
    weights[..., 0].sum().backward()
    assert heads.to(torch.bfloat16).alpha.dtype == torch.float32
    assert heads.a.grad.shape == (2,)
    assert heads.a.grad.all()


def on_meta(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.ones(shape, device="meta", dtype=dtype)


DEVICES: dict[str, Any] = {
    "parameter": lambda z: pt.entmax(z, on_meta(3)),
    "mask": lambda z: pt.entmax15(z, mask=on_meta(5, dtype=torch.bool)),
    "logarithm": lambda z: pt.entmax.log(z, on_meta(3)),
    "support": lambda z: pt.entmax.support(z, on_meta(3)),
    "upper": lambda z: pt.csparsemax(z, on_meta(5)),
    "labels": lambda z: pt.entmax15_loss(z, on_meta(3, dtype=torch.long)),
    "row weight": lambda z: pt.entmax15_loss(z, torch.arange(3), row_weight=on_meta(3)),
    "weight": lambda z: pt.entmax15_loss(z, torch.arange(3), weight=on_meta(5)),
    "key": lambda z: pt.attention(tensor(300, 5), on_meta(300, 5), tensor(300, 5)),
    "attention's mask": lambda z: pt.attention(
        *tensor(3, 300, 5), mask=on_meta(300, 300, dtype=torch.bool)
    ),
    "sink": lambda z: pt.attention(*tensor(3, 2, 300, 5), sink=on_meta(2)),
}


@pytest.mark.parametrize("case", DEVICES)
def test_tensors_on_two_devices_are_refused(case: str) -> None:
    # A kernel for one of these devices would return memory that nobody has written.
    with pytest.raises(RuntimeError, match=r"on one device, got \w+ on cpu.* \w+ on meta"):
        DEVICES[case](tensor(3, 5))


@pytest.mark.parametrize("call", [pt.entmax15, lambda z: pt.attention(z, z, z)], ids=["p", "o"])
def test_transformations_see_operations_on_tensors_from_outside(call: Any) -> None:
    z = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    expected = call(z).sum()
    found = torch.func.grad(lambda s: (s * call(z)).sum())(torch.ones((), dtype=torch.float64))
    torch.testing.assert_close(found, expected)
    many = torch.vmap(lambda s: s * call(z).sum())(torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(many, expected.expand(4))


INNER: dict[str, Any] = {
    "mapping": lambda z: pt.entmax15(z, dim=1),
    "learned": lambda z: pt.AlphaEntmax(4, dim=1, a=torch.zeros(4))(z.transpose(0, 1)),
    "logarithm": lambda z: pt.entmax15.log(z, dim=1),
    "support": lambda z: pt.entmax15.support(z, dim=1),
}


@pytest.mark.parametrize("case", INNER)
def test_results_along_inner_dimensions_are_contiguous(case: str) -> None:
    z = tensor(4, 3, 4, 2) if case == "learned" else tensor(2, 3, 4, 4)
    result = INNER[case](z)
    assert torch.softmax(z, 1).is_contiguous()
    assert result.is_contiguous()
    if result.is_floating_point():
        (slope,) = torch.autograd.grad(result, z, torch.randn_like(result))
        assert case == "learned" or slope.is_contiguous()


def test_sizes_known_at_run_time_are_exported() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any, keep: Any, mask: Any) -> Any:
            x, mask = x[keep], mask[keep]
            p = pt.entmax15(x[:, 0, 0], mask=mask[:, 0, 0, :4])
            positions = x[:, 0, 0]
            return (
                p,
                pt.attention(x, x[:, :2], x[:, :2], mask=mask),
                pt.attention(positions, positions, positions),
            )

    x, keep = tensor(6, 4, 5, 4, grad=False), torch.tensor([1, 0, 1, 1, 0, 1]) > 0
    arguments = x, keep, torch.ones(6, 1, 5, 5) > 0
    program = torch.export.export(Model(), arguments).module()
    for found, expected in zip(program(*arguments), Model()(*arguments), strict=True):
        torch.testing.assert_close(found, expected, **DOUBLE)


def test_a_setting_that_becomes_a_tensor_is_a_buffer() -> None:
    loss = pt.Entmax15Loss()
    loss.weight = torch.ones(5)
    loss.double()
    assert loss.weight.dtype == torch.float64
    assert list(loss.state_dict()) == ["weight"]
    loss.weight = None
    assert not loss.state_dict()
    attention = pt.Attention(1.5)
    attention.alpha = torch.tensor([1.2, 1.4])
    assert [name for name, _ in attention.named_buffers()] == ["alpha"]
    attention.sink = torch.nn.Parameter(torch.zeros(2))
    assert [name for name, _ in attention.named_parameters()] == ["sink"]
    with pytest.raises(TypeError, match="cannot assign"):
        attention.sink = torch.zeros(2)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (pt.AlphaEntmax, {"heads": 4}),
        (pt.LengthScale, {"heads": 4, "features": 3, "beta": 0.3, "inputs": 2}),
        (pt.LogScale, {"heads": 4, "features": 3, "s": 0.7}),
    ],
)
def test_modules_with_parameters_are_made_as_those_of_torch(module: Any, arguments: Any) -> None:
    made = module(**arguments, device="meta", dtype=torch.float64)
    assert {(x.device.type, x.dtype) for x in made.parameters()} == {("meta", torch.float64)}
    torch.manual_seed(0)
    expected = module(**arguments, dtype=torch.float64).state_dict()
    made.to_empty(device="cpu")
    torch.manual_seed(0)
    made.reset_parameters()
    torch.testing.assert_close(made.state_dict(), expected, rtol=0, atol=0)
    skipped = torch.nn.utils.skip_init(module, **arguments)
    assert {name: x.shape for name, x in skipped.named_parameters()} == {
        name: x.shape for name, x in expected.items()
    }


def test_a_support_compiles_without_a_graph_break() -> None:
    run = torch.compile(
        lambda z: pt.entmax.support(z, alpha=1.001), fullgraph=True, backend="eager"
    )
    assert run(torch.tensor([0.0, -900, -1100])).tolist() == [True, True, False]
    z, mask = tensor(4, 3, 5), tensor(4, 3, 5, seed=1) > -1
    support = pt.sparsemax.support(z, mask=mask)
    assert not support.requires_grad
    assert torch.equal(torch.vmap(lambda z, m: pt.sparsemax.support(z, mask=m))(z, mask), support)


def test_advice_fits_what_is_refused() -> None:
    with pytest.raises(TypeError, match=r"take z.real or z.abs\(\)"):
        pt.entmax15(torch.tensor([1 + 2j, 0j]))
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    with pytest.raises(TypeError, match=r"its rows are z.values\(\)"):
        pt.entmax_sigmoid(nested)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axis'; of tensors it is dim"):
        pt.entmax15_loss(torch.zeros(2, 3), torch.tensor([0, 1]), axis=1)
    with pytest.raises(ValueError, match=r"along axis=1 \(of tensors dim\)"):
        pt.entmax15_loss(torch.zeros(2, 5, 3), torch.zeros(2, 3, dtype=torch.long))
