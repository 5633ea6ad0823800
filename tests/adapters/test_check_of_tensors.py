"""`check_mapping` on PyTorch's and JAX's functions, with their own derivatives."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from pyentmax import check_attention, check_loss, check_mapping

TOP_K = "ties at the kth score"
TYPES = {"torch": ("float64", "float32", "float16", "bfloat16")}
TYPES["jax"] = TYPES["torch"][1:]  # float64 is off by default


def softmax_of(library: str) -> Any:
    module = pytest.importorskip(library)
    return module.softmax if library == "torch" else module.nn.softmax


@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_librarys_softmax_passes_with_its_derivative(library: str) -> None:
    report = check_mapping(softmax_of(library), "softmax", strict=True).raise_if_failed()
    assert report.dtypes == TYPES[library]
    untried = {TOP_K, "derivative in the parameter"}
    if library == "jax":  # whose arrays have no strides, and cannot be written to
        untried |= {"memory layouts", "arrays read anew", "strided gradients from above",
                    "a second backward pass"}  # fmt: skip
    assert {one.name for one in report.results if one.verdict != "passed"} == untried


@pytest.mark.slow
def test_wrong_backward_pass_is_named() -> None:
    torch = pytest.importorskip("torch")

    class Softmax(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, z: Any) -> Any:
            p = torch.softmax(z, -1)
            ctx.save_for_backward(p)
            return p

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:
            (p,) = ctx.saved_tensors
            return p * (v + (p * v).sum(-1, keepdim=True))

    report = check_mapping(Softmax.apply, "softmax")
    assert {"derivative", "derivative in arrays", "derivative of long rows"} <= {*report.failures}
    assert report.verdict == "wrong"
    assert [one.partition(":")[0] for one in report.causes] == ["sign of the mean"]
    assert "v = [1, 0] gives [0." in str(report.failures["derivative"])


@pytest.mark.slow
def test_entmax_package_is_right_on_finite_scores() -> None:
    entmax = pytest.importorskip("entmax")
    # A row of −∞, or of NaN within a batch, is an IndexError there.
    rows = {"masked rows", "batches"}
    assert {*check_mapping(entmax.sparsemax, "sparsemax").failures} == rows
    assert {*check_mapping(entmax.entmax15, "entmax15").failures} == rows
    # The bisection starts at the largest score less 1, which is the same float from 1e16 on.
    bisection = partial(entmax.entmax_bisect, alpha=1.25)
    assert check_mapping(entmax.sparsemax, "sparsemax").verdict == "edges"
    report = check_mapping(bisection, "entmax", alpha=1.25)
    assert {*report.failures} == {"tiny and huge scores"}


def test_bfloat16_without_shift_fails() -> None:
    torch = pytest.importorskip("torch")

    def sparsemax(z: Any) -> Any:
        falling = z.sort(-1, descending=True).values
        excess = falling.cumsum(-1) - 1
        rank = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        size = (rank * falling > excess).sum(-1, keepdim=True)
        return (z - excess.gather(-1, size - 1) / size).clamp(min=0)

    report = check_mapping(sparsemax, "sparsemax", dtypes=["bfloat16"])
    found = str(report.failures["scores around 16"])
    assert found.startswith("sum, [16, 16, 16.875] gives 1.25, expected 1")


@pytest.mark.slow
def test_librarys_cross_entropy_passes_with_its_gradient() -> None:
    torch = pytest.importorskip("torch")
    report = check_loss(torch.nn.functional.cross_entropy, "softmax", strict=True)
    report.raise_if_failed()
    assert [one.name for one in report.results if one.verdict != "passed"] == ["masks"]


@pytest.mark.slow
def test_loss_of_entmax_package_fails_only_where_masked() -> None:
    entmax = pytest.importorskip("entmax")
    report = check_loss(entmax.Entmax15Loss(), "entmax15")
    assert report.verdict == "edges"
    assert [*report.failures] == ["masked scores"]


@pytest.mark.slow
def test_librarys_attention_passes_with_its_gradients() -> None:
    torch = pytest.importorskip("torch")

    def attention(query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False,
                  scale: Any = None, dropout_p: float = 0.0) -> Any:  # fmt: skip
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=True
        )

    state = torch.random.get_rng_state()
    report = check_attention(attention)
    assert (torch.random.get_rng_state() == state).all(), "the caller's generator is as it was"
    assert [*report.failures] == ["NaN in what is masked"]
    assert report.causal == "top-left"
    passed = {one.name for one in report.results if one.verdict == "passed"}
    assert {"gradients", "dropout", "additive masks", "grouped heads"} <= passed


def test_own_attention_of_tensors_passes() -> None:
    pytest.importorskip("torch")
    import pyentmax.torch

    report = check_attention(
        pyentmax.torch.attention, "entmax", alpha=1.5, dtypes=["float32", "bfloat16"]
    )
    assert report.verdict == "right"
    assert "gradients" in {one.name for one in report.results if one.verdict == "passed"}


def test_gradient_in_alpha_is_checked() -> None:
    torch = pytest.importorskip("torch")
    import pyentmax.torch

    class Halved(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g / 2

    def halved(z: Any, alpha: Any = 1.5, dim: int = -1) -> Any:
        alpha = Halved.apply(alpha) if torch.is_tensor(alpha) else alpha
        return pyentmax.torch.entmax(z, alpha, dim)

    report = check_mapping(halved, "entmax", alpha=1.5, dtypes=["float32"])
    assert [*report.failures] == ["derivative in the parameter"]
    report = check_mapping(pyentmax.torch.entmax, "entmax", alpha=1.5, dtypes=["float32"])
    assert report.verdict == "right"
    assert "derivative in the parameter" in {x.name for x in report.results if x.finding}
    report = check_attention(pyentmax.torch.attention, "entmax", alpha=1.5, dtypes=["float64"])
    assert report.verdict == "right"
    assert "gradient of the parameter" in {x.name for x in report.results if x.finding}


def test_dropout_of_jax_which_needs_a_key_is_no_fault() -> None:
    jax = pytest.importorskip("jax")
    import pyentmax as pe

    def attention(query: Any, key: Any, value: Any, dropout: float = 0.0, rng: Any = None) -> Any:
        if dropout:
            return jax.random.bernoulli(rng, dropout) * value
        arrays = (np.asarray(x, "f4") for x in (query, key, value))  # nothing is compiled
        return jax.numpy.asarray(pe.attention(*arrays))

    report = check_attention(attention, "entmax", alpha=1.5, dtypes=["float32"])
    assert [*report.failures] == ["gradients"]  # which NumPy's arrays have not
    (dropout,) = (one for one in report.results if one.name == "dropout")
    assert (dropout.grade, dropout.reason[:4]) == ("not applicable", "JAX ")


def test_options_of_a_module_are_tried() -> None:
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    report = check_attention(Attention(), dtypes=["float32"])
    assert [one.partition(":")[0] for one in report.causes] == ["causal ignored"]
