"""The judge on tensors: gradients of PyTorch, and the faults that show in them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyentmax import check_attention, check_loss, check_mapping

torch: Any = pytest.importorskip("torch")
cross_entropy = torch.nn.functional.cross_entropy
sdpa = torch.nn.functional.scaled_dot_product_attention
F32: Any = {"dtypes": ["float32"]}


@pytest.mark.parametrize(
    ("check", "fn"),
    [
        (check_attention, lambda query, key, value: sdpa(
            *(torch.as_tensor(np.asarray(x)) for x in (query, key, value)))),
        (check_mapping, lambda z: torch.softmax(torch.as_tensor(np.asarray(z)), -1)),
        (check_loss, lambda z, y: cross_entropy(
            torch.as_tensor(np.asarray(z)), torch.as_tensor(np.asarray(y)))),
    ],
)  # fmt: skip
def test_function_of_arrays_is_judged_without_gradients(check: Any, fn: Any) -> None:
    report = check(fn, "softmax", **F32)
    assert report.verdict == "right", report
    assert "gradients: not applicable (the function takes arrays)" in report.notes


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Any, fault: str) -> Any:
        p = torch.softmax(z, -1)
        ctx.save_for_backward(p)
        ctx.fault = fault
        return p

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (p,) = ctx.saved_tensors
        if ctx.fault == "strided" and min(g.stride(), default=0) > 0:
            g = torch.as_strided(g, g.shape, torch.empty(g.shape).stride())
        at_z = p * (g - (p * g).sum(-1, keepdim=True))
        if ctx.fault == "second":
            p.data.zero_()
        return at_z, None


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("", ""), ("strided", "strides of the gradient from above"), ("second", "a second backward")],
)
def test_fault_of_backward_pass_is_named(fault: str, cause: str) -> None:
    def attention(query: Any, key: Any, value: Any) -> Any:
        return Softmax.apply(query @ key.mT * query.shape[-1] ** -0.5, fault) @ value

    def loss(z: Any, y: Any) -> Any:
        return -Softmax.apply(z, fault).log().gather(-1, y[:, None]).mean()

    reports = [check_mapping(lambda z: Softmax.apply(z, fault), "softmax", **F32)]
    if fault != "strided":  # a product comes between
        reports += [check_attention(attention, **F32), check_loss(loss, "softmax", **F32)]
    for report in reports:
        assert report.verdict == ("wrong" if fault else report.verdict), report
        assert fault or report.passed, report
        assert not cause or report.causes[0].startswith(cause), report


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Any, y: Any, ignore_index: int, reduction: str, fault: str) -> Any:
        keep = y != ignore_index
        at = torch.where(keep, y, 0)
        g = torch.softmax(z, -1) - torch.nn.functional.one_hot(at, z.shape[-1]).to(z.dtype)
        g = g * (keep[:, None] if fault != "ignored" else 1)
        n = keep.sum().clamp(min=1) if reduction == "mean" else 1
        ctx.save_for_backward(g / n)
        ctx.fault = fault
        losses = torch.where(keep, cross_entropy(z, at, reduction="none"), 0)
        return losses if reduction == "none" else losses.sum() / n

    @staticmethod
    def backward(ctx: Any, u: Any) -> Any:
        (g,) = ctx.saved_tensors
        u = u.flatten()[0] if ctx.fault == "first" else u
        return g * (u[:, None] if u.ndim else u), None, None, None, None


@pytest.mark.parametrize("fault", ["", "ignored", "first"])
def test_gradient_of_reduced_and_ignored_rows(fault: str) -> None:
    def loss(z: Any, y: Any, ignore_index: int = -100, reduction: str = "mean") -> Any:
        return CrossEntropy.apply(z, y, ignore_index, reduction, fault)

    report = check_loss(loss, "softmax", **F32)
    assert report.verdict == ("wrong" if fault else "right"), report
    assert fault != "first" or report.causes[0].startswith("the first row's upstream gradient")


def test_additive_and_boolean_masks_of_several_libraries() -> None:
    def additive(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        scores = query @ key.mT * query.shape[-1] ** -0.5
        return torch.softmax(scores if mask is None else scores + mask, -1) @ value

    def ignoring(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        boolean = mask is not None and mask.dtype == torch.bool
        return additive(query, key, value, None if boolean else mask)

    report = check_attention(additive, **F32)
    assert report.passed, report
    assert 'masks are additive; masks="additive" declares it' in report.notes
    report = check_attention(ignoring, **F32)
    assert report.verdict == "wrong"
    assert report.causes == ("boolean masks ignored: True means that a key is seen",)


def test_nan_gradients_of_rows_that_see_nothing_are_edges() -> None:
    def attention(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if causal:
            t, s = scores.shape[-2:]
            later = torch.ones(t, s, dtype=torch.bool).triu(1 + s - t)
            scores = scores.masked_fill(later, -torch.inf)
        return torch.softmax(scores, -1) @ value

    report = check_attention(attention, **F32)
    assert report.causal == "bottom-right"
    assert (report.verdict, [*report.failures]) == ("edges", ["rows that see nothing"]), report
